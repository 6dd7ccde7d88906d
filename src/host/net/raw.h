/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ethernet frames of an interface, where the process may open packet sockets (CAP_NET_RAW). 0 or a negative
 * errno.
 */
#ifndef VB_HOST_RAW_H
#define VB_HOST_RAW_H

#include <sys/uio.h>

#include "base/base.h"

enum { VB_RAW_MAX_FRAME = 65536 + 18 };

/*
 * A socket that sends, or one that also hears all frames that come in on the interface, and group frames that
 * go out. -EPERM: not allowed. ifindex 0: of no interface, to see whether it is.
 */
int vb_raw_open(unsigned ifindex, bool hears, int *fd);
/* A whole frame from the Ethernet header on. What does not go out is lost, but for -EFAULT. */
int vb_raw_send(int fd, unsigned ifindex, const struct iovec *iov, unsigned n);
/*
 * The bytes of the next frame; 0: there is none now. A frame that is longer is cut. *is_own: this host sends
 * it.
 */
size_t vb_raw_receive(int fd, void *frame, size_t room, bool *is_own);
void vb_raw_close(int fd);

#endif

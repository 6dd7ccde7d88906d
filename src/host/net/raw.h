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
 * A socket that sends. With `receives` it also gets all frames that come in on the interface, and group
 * frames that go out. -EPERM: not allowed. ifindex 0: of no interface, to see whether it is allowed.
 */
int vb_raw_open(unsigned ifindex, bool receives, int *fd);
/*
 * Sends a whole frame, from the Ethernet header on. -EFAULT; -EMSGSIZE: the interface takes none of this
 * length; all other errors lose the frame silently.
 */
int vb_raw_send(int fd, unsigned ifindex, const struct iovec *iov, unsigned n);
/*
 * The length of the next frame; 0: there is none now. A frame longer than `room` is cut. *is_own: this host
 * sent it.
 */
size_t vb_raw_receive(int fd, void *frame, size_t room, bool *is_own);
void vb_raw_close(int fd);

#endif

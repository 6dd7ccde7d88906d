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
 * length; -EAGAIN: the socket's earlier frames still wait for the interface; all other errors lose the frame
 * silently.
 */
int vb_raw_send(int fd, unsigned ifindex, const struct iovec *iov, unsigned n);

struct vb_raw_frame {
	size_t bytes;     /* 0: it is not for anybody here */
	bool is_own;      /* this host sent it */
	/*
	 * The kernel has joined frames of one flow, or not yet cut them: each has so much of what follows
	 * TCP's or UDP's header, the last one perhaps less. 0: it is one frame.
	 */
	uint16_t segment;
	uint8_t protocol; /* whose header that is */
};

/*
 * The next frame, into `frame`; false: there is none now. A frame longer than `room` is cut. A checksum that
 * the kernel has left to the interface is filled in, but not in what is joined. Before Linux 6.2 joined
 * datagrams are lost.
 */
bool vb_raw_receive(int fd, void *frame, size_t room, struct vb_raw_frame *heard);
void vb_raw_close(int fd);

#endif

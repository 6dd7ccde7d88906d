/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Answers requests of rdma(8) in the kernel's formats (<rdma/rdma_netlink.h>). Devices and ports
 * come from the sysfs tree. Resources come from all processes of the user. Sockets are not handled
 * here but in netlink.c.
 */
#ifndef VB_ANSWERS_NLDEV_H
#define VB_ANSWERS_NLDEV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Netlink messages one after the other, each padded to 4 bytes; to be freed. */
struct vb_reply {
	uint8_t *bytes;
	size_t used, room;
	bool is_short; /* memory was out: the content is of no use */
};

/*
 * Adds the answers to a datagram of requests from the socket at `port` (its netlink address). As the kernel
 * does, refuses changes of a device with EPERM, and unknown requests with EINVAL or EOPNOTSUPP.
 */
void vb_nldev_answer(const void *requests, size_t bytes, uint32_t port, struct vb_reply *reply);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Answers to what rdma(8) asks: NETLINK_RDMA's messages of devices, ports and resources (<rdma/rdma_netlink.h>), as the kernel would
 * answer of its rxe. Devices are those of the sysfs tree, resources those of all processes of the user. Pure formats: sockets are
 * netlink.c's.
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
	bool is_short; /* there was no memory: what it holds is of no use */
};

/*
 * Adds the answers to a datagram of requests from the socket at `port` (its netlink address). What would change a device is refused with
 * EPERM, what is not known with EINVAL or EOPNOTSUPP, as the kernel does. One thread at a time.
 */
void vb_nldev_answer(const void *requests, size_t bytes, uint32_t port, struct vb_reply *reply);

#endif

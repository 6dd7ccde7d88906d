/* SPDX-License-Identifier: BSD-2-Clause */
/* Whose sockets have a UDP port, as the kernel's tables in /proc say. */
#ifndef VB_HOST_HOLDER_H
#define VB_HOST_HOLDER_H

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/types.h>

struct vb_holder {
	struct in6_addr address; /* bound to; IPv4 as ::ffff:a.b.c.d, all of a version as :: or ::ffff:0.0.0.0 */
	uid_t uid;               /* as this user namespace sees it */
	unsigned long inode;     /* 0: the kernel's own */
};

/* The sockets of one IP version that have a port, up to max of them. None where /proc does not tell. */
unsigned vb_holders_of_udp(bool ipv4, uint16_t port, struct vb_holder *list, unsigned max);

#endif

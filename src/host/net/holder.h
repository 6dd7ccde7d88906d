/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who has what processes on verbatim need of the network namespace, UDP port 4791 and slots, as the kernel's
 * tables in /proc say. Which user that is, anybody may know; which process, only root and that user.
 */
#ifndef VB_HOST_HOLDER_H
#define VB_HOST_HOLDER_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct vb_holder {
	/* bound to; IPv4 as ::ffff:a.b.c.d, all of a version as :: or ::ffff:0.0.0.0 */
	struct in6_addr address;
	uid_t uid;               /* as this user namespace sees it */
	unsigned long inode;     /* 0: the kernel's own */
};

/* The sockets of one IP version that have a port, up to max of them. None where /proc does not tell. */
unsigned vb_holders_of_udp(bool ipv4, uint16_t port, struct vb_holder *list, unsigned max);

/* The sockets that have slots, up to max of them, as inodes. */
unsigned vb_holders_of_slots(unsigned long *inodes, unsigned max);

/*
 * Sets the bits of the slots whose processes take links (VB_LINK_VERSION): VB_SLOT_COUNT bits, zero before.
 */
void vb_holders_of_links(unsigned version, uint64_t *slots, unsigned count);

/*
 * Whoever has most of some sockets, in words: "process 17 (ibdaemon) of user 1000". user: of the first,
 * (uid_t)-1 if it is to be found out.
 */
enum { VB_OWNER_TEXT = 128 };
void vb_owner_of_sockets(const unsigned long *inodes, unsigned count, uid_t user, char text[VB_OWNER_TEXT]);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who holds the UDP port 4791 and the slots of the network namespace, as the kernel's tables in /proc say.
 * All users may see which user it is; only root and that user may see which process.
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

/* The sockets of one IP version at a port, up to max of them. None where /proc does not tell. */
unsigned vb_holders_of_udp(bool ipv4, uint16_t port, struct vb_holder *list, unsigned max);

/*
 * Finds the sockets that hold slots below count. A slot has two names, its inbox's and its link's of this
 * version; a socket with either name denies the slot to others. Fills inodes, which has room for 2 * count,
 * and returns how many it filled. *slots: how many slots are taken.
 */
unsigned vb_holders_of_slots(unsigned version, unsigned long *inodes, unsigned count, unsigned *slots);

/*
 * Sets the bits of the slots whose processes take links (VB_LINK_VERSION): VB_SLOT_COUNT bits, zero before.
 */
void vb_holders_of_links(unsigned version, uint64_t *slots, unsigned count);

/*
 * Who listens under a name of an abstract socket. 0 and (uid_t)-1: this process may not see it, or nobody
 * does.
 */
void vb_holder_of_name(const char *name, pid_t *pid, uid_t *uid);

/*
 * Describes the process that has most of some sockets: "process 17 (ibdaemon) of user 1000". user: that of
 * the first socket, or (uid_t)-1 to find it out.
 */
enum { VB_OWNER_TEXT = 128 };
void vb_owner_of_sockets(const unsigned long *inodes, unsigned count, uid_t user, char text[VB_OWNER_TEXT]);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whom an inbox believes. The kernel says which user sent a message. This process's own user could do as he
 * likes with it anyhow, and so could root. Whoever has the RoCE port gets what other hosts send, for all
 * processes, so he is to bring it. Anybody else speaks for himself alone.
 *
 * Who has the port is looked up in the kernel's tables, and holds for a while; nobody else's sockets can have
 * it while this process has one of its own. A user who does not have it makes the tables be read again, but
 * not often, however much he sends.
 *
 * All of that is the progress thread's, which receives.
 *
 * UDP tells no user. But what a process that takes links has to say to its own host, it says by inboxes, but
 * for connections that cannot be linked. Which do, is in the kernel's table of Unix sockets; this is
 * whoever's who receives from UDP.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "host/net/holder.h"
#include "host/private.h"

enum {
	MAX_HOLDERS = 64,
	HOLDS_NS = 250000000,
	AGAIN_NS = 20000000,
};

/* When something was asked of the kernel; a forked child asks anew. */
struct asked {
	uint64_t at_ns;
	unsigned generation;
};

/* True: it was asked longer ago, and is asked now. */
static bool is_news(struct asked *asked, uint64_t holds_ns)
{
	uint64_t now = vb_now_ns();
	if (asked->at_ns && asked->generation == vb_host_generation() && now - asked->at_ns < holds_ns)
		return false;
	*asked = (struct asked){ now, vb_host_generation() };
	return true;
}

/* ---- users ---- */

/* Of users whom a user namespace has no number for the kernel says this one. */
static uid_t overflow_uid(void)
{
	unsigned uid = 65534;
	char text[32];
	if (!vb_file_read("/proc/sys/kernel/overflowuid", text, sizeof text))
		sscanf(text, "%u", &uid);
	return uid;
}

/* Has this user namespace a number for each user, as the first one has? */
static bool all_users_are_known(void)
{
	unsigned inside, outside, count;
	char text[4096];
	return !vb_file_read("/proc/self/uid_map", text, sizeof text) &&
	       sscanf(text, "%u %u %u", &inside, &outside, &count) == 3 && count == UINT32_MAX;
}

/* False: the number may be one user's, or that of all who have none here. */
static bool is_known(uid_t uid)
{
	static bool all;
	static uid_t overflow;
	static struct asked asked;
	if (is_news(&asked, UINT64_MAX)) { /* a process with threads enters no other */
		overflow = overflow_uid();
		all = all_users_are_known();
	}
	return uid != overflow || all;
}

/* A program changes its user rarely, and before it has anything to hide from the one that it was. */
static uid_t own_user(void)
{
	static uid_t user;
	static struct asked asked;
	if (is_news(&asked, HOLDS_NS))
		user = geteuid();
	return user;
}

/* For users without a number: their own processes are told by what else the kernel knows of them. */
static bool is_kin(pid_t pid)
{
	static struct asked asked;
	static pid_t last;
	static bool is_one;
	if (is_news(&asked, HOLDS_NS) || pid != last) {
		last = pid;
		is_one = vb_process_may_share(pid);
	}
	return is_one;
}

/* ---- the port ---- */

static struct {
	struct asked asked;
	unsigned count[2]; /* [0] IPv6, [1] IPv4 */
	struct vb_holder of[2][MAX_HOLDERS];
} holders;

static atomic_bool is_ours[2]; /* this process has a socket there; [0] IPv6, [1] IPv4 */

void vb_sender_note_port(bool ipv4, bool ours) { atomic_store(&is_ours[ipv4], ours); }

static void look_for_holders(uint64_t holds_ns)
{
	if (!is_news(&holders.asked, holds_ns))
		return;
	for (int ipv4 = 0; ipv4 < 2; ipv4++)
		holders.count[ipv4] = vb_holders_of_udp(ipv4, VB_ROCE_PORT, holders.of[ipv4], MAX_HOLDERS);
}

static bool takes(const struct vb_holder *h, const struct in6_addr *dst)
{
	static const struct in6_addr all_v4 = { .s6_addr = { [10] = 0xff, [11] = 0xff } };
	bool is_any = IN6_IS_ADDR_UNSPECIFIED(&h->address) || IN6_ARE_ADDR_EQUAL(&h->address, &all_v4);
	return is_any || IN6_ARE_ADDR_EQUAL(&h->address, dst);
}

/* A socket of IPv6 may take what comes over IPv4, but for addresses that one of IPv4 has. */
static bool is_listed(uid_t uid, const struct in6_addr *dst)
{
	bool any = false;
	for (int ipv4 = IN6_IS_ADDR_V4MAPPED(dst); ipv4 >= 0 && !any; ipv4--) {
		for (unsigned i = 0; i < holders.count[ipv4]; i++) {
			const struct vb_holder *h = &holders.of[ipv4][i];
			if (takes(h, dst) && h->uid == uid)
				return true;
			any |= takes(h, dst);
		}
	}
	return false;
}

static bool has_port(uid_t uid, const struct in6_addr *dst)
{
	if (atomic_load(&is_ours[IN6_IS_ADDR_V4MAPPED(dst)]))
		return false;
	look_for_holders(HOLDS_NS);
	if (!is_listed(uid, dst))
		look_for_holders(AGAIN_NS);
	return is_listed(uid, dst);
}

/* ---- links ---- */

static bool takes_links(uint32_t slot)
{
	static uint64_t slots[VB_SLOT_COUNT / 64];
	static struct asked asked;
	if (is_news(&asked, HOLDS_NS)) {
		memset(slots, 0, sizeof slots);
		vb_holders_of_links(VB_LINK_VERSION, slots, VB_SLOT_COUNT);
	}
	return slot < VB_SLOT_COUNT && (slots[slot / 64] >> slot % 64 & 1);
}

bool vb_slot_is_belied(uint32_t slot, const struct in6_addr *src)
{
	return slot && takes_links(slot) && vb_netif_is_local(src);
}

/* ---- both ---- */

bool vb_sender_is_believed(const struct ucred *sender, const struct in6_addr *dst)
{
	if (vb_unlikely(!is_known(sender->uid)))
		return is_kin(sender->pid);
	return sender->uid == 0 || sender->uid == own_user() || has_port(sender->uid, dst);
}

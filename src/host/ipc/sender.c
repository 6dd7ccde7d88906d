/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which senders an inbox trusts. The kernel says which user sent a message. This process's own user can
 * control the process anyway, and so can root. The user who holds the RoCE port receives what other hosts
 * send to all processes, and forwards it. A message of any other user counts for that user alone.
 *
 * The kernel's tables say who holds the port. The answer is kept for a while. While this process has a socket
 * at the port, no other user can. Messages of a user who does not hold the port make the tables be read
 * again, but not often, however many they are.
 *
 * Only the progress thread, which receives, uses all of that.
 *
 * UDP does not name users. But a process that takes links uses inboxes within its host, except for
 * connections that cannot have a link. The kernel's table of Unix sockets says which processes take links.
 * That part belongs to whoever receives from UDP.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/nanoseconds.h"
#include "host/ipc/rights.h"
#include "host/net/holder.h"
#include "host/private.h"

enum {
	MAX_HOLDERS = 64,
	HOLDS_NS = 250 * VB_NS_PER_MS,
	AGAIN_NS = 20 * VB_NS_PER_MS,
};

/* When the kernel was last asked for something. A forked child asks again. */
struct query {
	uint64_t at_ns;
	unsigned generation;
};

/* True: the last query is too old, and the caller makes it again now. */
static bool is_due(struct query *last, uint64_t holds_ns)
{
	uint64_t now = vb_now_ns();
	if (last->at_ns && last->generation == vb_host_generation() && now - last->at_ns < holds_ns)
		return false;
	*last = (struct query){ now, vb_host_generation() };
	return true;
}

/* ---- users ---- */

/* The number that the kernel gives for users who have none in this user namespace. */
static uid_t overflow_uid(void)
{
	unsigned uid = 65534;
	char text[32];
	if (!vb_file_read("/proc/sys/kernel/overflowuid", text, sizeof text))
		sscanf(text, "%u", &uid);
	return uid;
}

/* Has this user namespace a number for each user, as the initial one has? */
static bool all_users_are_known(void)
{
	unsigned inside, outside, count;
	char text[4096];
	return !vb_file_read("/proc/self/uid_map", text, sizeof text) &&
	       sscanf(text, "%u %u %u", &inside, &outside, &count) == 3 && count == UINT32_MAX;
}

/* False: the number may stand for one user, or for all who have none here. */
static bool is_known(uid_t uid)
{
	static bool all;
	static uid_t overflow;
	static struct query last;
	if (is_due(&last, UINT64_MAX)) { /* a process with threads cannot change its namespace */
		overflow = overflow_uid();
		all = all_users_are_known();
	}
	return uid != overflow || all;
}

/* A program changes its user rarely, and before it has secrets from the old one. */
static uid_t own_user(void)
{
	static uid_t user;
	static struct query last;
	if (is_due(&last, HOLDS_NS))
		user = geteuid();
	return user;
}

/* For users without a number: do the process's other rights say that it is of this user? */
static bool is_own_process(pid_t pid)
{
	static struct query last;
	static pid_t asked;
	static bool is_own;
	if (is_due(&last, HOLDS_NS) || pid != asked) {
		asked = pid;
		is_own = vb_process_may_share(pid);
	}
	return is_own;
}

/* ---- the port ---- */

static struct {
	struct query last;
	unsigned count[2]; /* [0] IPv6, [1] IPv4 */
	struct vb_holder of[2][MAX_HOLDERS];
} holders;

static atomic_bool is_ours[2]; /* this process has a socket there; [0] IPv6, [1] IPv4 */

void vb_sender_note_port(bool ipv4, bool ours) { atomic_store(&is_ours[ipv4], ours); }

static void look_for_holders(uint64_t holds_ns)
{
	if (!is_due(&holders.last, holds_ns))
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

/* An IPv6 socket may receive IPv4 packets too, except to addresses that an IPv4 socket has. */
static bool is_listed(uid_t uid, const struct in6_addr *dst)
{
	bool any = false;
	for (int ipv4 = vb_ip_is_v4(dst); ipv4 >= 0 && !any; ipv4--) {
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
	if (atomic_load(&is_ours[vb_ip_is_v4(dst)]))
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
	static struct query last;
	if (is_due(&last, HOLDS_NS)) {
		memset(slots, 0, sizeof slots);
		vb_holders_of_links(VB_LINK_VERSION, slots, VB_SLOT_COUNT);
	}
	return slot < VB_SLOT_COUNT && (slots[slot / 64] >> slot % 64 & 1);
}

bool vb_slot_is_spoofed(uint32_t slot, const struct in6_addr *src)
{
	return slot && takes_links(slot) && vb_netif_is_local(src);
}

/* ---- both ---- */

bool vb_sender_is_trusted(const struct ucred *sender, const struct in6_addr *dst)
{
	if (vb_unlikely(!is_known(sender->uid)))
		return is_own_process(sender->pid);
	return sender->uid == 0 || sender->uid == own_user() || has_port(sender->uid, dst);
}

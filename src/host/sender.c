/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whom an inbox believes. The kernel says which user sent a message. This process's own user could do as he likes with it anyhow, and so
 * could root. Whoever has the RoCE port gets what other hosts send, for all processes, so he is to bring it. Anybody else speaks for
 * himself alone.
 *
 * Who has the port is looked up in the kernel's tables, and holds for a while; nobody else's sockets can have it while this process has
 * one of its own. A user who does not have it makes the tables be read again, but not often, however much he sends.
 *
 * All of it is the progress thread's, which receives.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "host/holder.h"
#include "host/udp_private.h"

enum {
	MAX_HOLDERS = 64,
	HOLDS_NS = 250000000,
	AGAIN_NS = 20000000,
};

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
	return !vb_file_read("/proc/self/uid_map", text, sizeof text) && sscanf(text, "%u %u %u", &inside, &outside, &count) == 3 &&
	       count == UINT32_MAX;
}

/* False: the number may be one user's, or that of all who have none here. */
static bool is_known(uid_t uid)
{
	static struct {
		bool asked, all;
		uid_t overflow;
	} users;
	if (!users.asked) {
		users.overflow = overflow_uid();
		users.all = all_users_are_known();
		users.asked = true;
	}
	return uid != users.overflow || users.all;
}

/* A program changes its user rarely, and before it has anything to hide from the one that it was. */
static uid_t own_user(uint64_t now)
{
	static uid_t user;
	static uint64_t asked_ns;
	if (!asked_ns || now - asked_ns >= HOLDS_NS) {
		user = geteuid();
		asked_ns = now;
	}
	return user;
}

/* ---- the port ---- */

static struct {
	uint64_t read_ns;
	unsigned count[2]; /* [0] IPv6, [1] IPv4 */
	struct vb_holder of[2][MAX_HOLDERS];
} holders;

static void read_holders(uint64_t now)
{
	for (int ipv4 = 0; ipv4 < 2; ipv4++)
		holders.count[ipv4] = vb_holders_of_udp(ipv4, VB_ROCE_PORT, holders.of[ipv4], MAX_HOLDERS);
	holders.read_ns = now;
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

static bool has_port(uid_t uid, const struct in6_addr *dst, uint64_t now)
{
	if (vb_udp_receiver(IN6_IS_ADDR_V4MAPPED(dst)) >= 0)
		return false;
	if (now - holders.read_ns >= HOLDS_NS)
		read_holders(now);
	if (!is_listed(uid, dst) && now - holders.read_ns >= AGAIN_NS)
		read_holders(now);
	return is_listed(uid, dst);
}

/* ---- both ---- */

bool vb_sender_is_believed(uid_t uid, const struct in6_addr *dst)
{
	uint64_t now = vb_now_ns();
	return uid == 0 || (is_known(uid) && (uid == own_user(now) || has_port(uid, dst, now)));
}

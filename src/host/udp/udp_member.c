/* SPDX-License-Identifier: BSD-2-Clause */
/* IP multicast groups of this process, on its receiving sockets. All under the host lock. */
#include "host/udp/udp_private.h"

#include <errno.h>
#include <stdlib.h>

struct membership {
	struct in6_addr group;
	unsigned ifindex, count;
};

static struct membership *memberships;
static size_t membership_count, membership_room;

/* A socket that there is not yet joins when it opens. */
static int change(bool joins, const struct membership *m)
{
	bool ipv4 = vb_ip_is_v4(&m->group);
	union vb_ip_address address = vb_ip_address(&m->group, ipv4, 0);
	struct ip_mreqn v4 = { .imr_multiaddr = address.v4.sin_addr, .imr_ifindex = (int)m->ifindex };
	struct ipv6_mreq v6 = { .ipv6mr_multiaddr = m->group, .ipv6mr_interface = m->ifindex };
	int fd = vb_udp_receiver(ipv4);
	if (fd < 0)
		return vb_udp_may_come(fd) ? 0 : fd;
	int err = ipv4 ? setsockopt(fd, IPPROTO_IP, joins ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, &v4,
				    sizeof v4) :
			 setsockopt(fd, IPPROTO_IPV6, joins ? IPV6_JOIN_GROUP : IPV6_LEAVE_GROUP, &v6,
				    sizeof v6);
	return err < 0 ? -errno : 0;
}

static struct membership *find_locked(const struct in6_addr *group, unsigned ifindex)
{
	for (size_t i = 0; i < membership_count; i++)
		if (memberships[i].ifindex == ifindex && IN6_ARE_ADDR_EQUAL(&memberships[i].group, group))
			return &memberships[i];
	return NULL;
}

static int reserve_locked(void)
{
	if (membership_count < membership_room)
		return 0;
	size_t room = membership_room + 16;
	struct membership *table = realloc(memberships, room * sizeof *table);
	if (!table)
		return -ENOMEM;
	memberships = table;
	membership_room = room;
	return 0;
}

static int join_locked(const struct in6_addr *group, unsigned ifindex)
{
	struct membership *m = find_locked(group, ifindex), fresh = { *group, ifindex, 1 };
	if (m) {
		m->count++;
		return 0;
	}
	int err = reserve_locked();
	if (!err)
		err = change(true, &fresh);
	if (!err)
		memberships[membership_count++] = fresh;
	return err;
}

int vb_udp_join(const struct in6_addr *group, unsigned ifindex)
{
	vb_host_lock();
	int err = join_locked(group, ifindex);
	vb_host_unlock();
	return err;
}

void vb_udp_leave(const struct in6_addr *group, unsigned ifindex)
{
	vb_host_lock();
	struct membership *m = find_locked(group, ifindex);
	if (m && --m->count == 0) {
		change(false, m);
		*m = memberships[--membership_count];
	}
	vb_host_unlock();
}

void vb_udp_rejoin_locked(bool ipv4)
{
	for (size_t i = 0; i < membership_count; i++)
		if (vb_ip_is_v4(&memberships[i].group) == ipv4)
			change(true, &memberships[i]);
}

void vb_udp_member_forget(void) { membership_count = 0; }

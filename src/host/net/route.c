/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A connected datagram socket shows whether there is a route, its source address and its MTU. rtnetlink has
 * the rest. Some sandboxes lack it: then the next hop counts as ready.
 */
#include "host/net/route.h"

#include <errno.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cancel.h"
#include "host/host.h"

enum { DISCARD_PORT = 9 };

/* ---- a socket's view ---- */

static union vb_ip_address address(const struct in6_addr *ip, uint32_t scope, uint16_t port)
{
	union vb_ip_address a = vb_ip_address(ip, vb_ip_is_v4(ip), port);
	if (!vb_ip_is_v4(ip))
		a.v6.sin6_scope_id = scope;
	return a;
}

/* Connecting sends nothing to the discard port. Negative errno, or the descriptor. */
static int connected_socket(const struct in6_addr *dst, uint32_t scope, const struct in6_addr *source)
{
	union vb_ip_address to = address(dst, scope, DISCARD_PORT), from;
	int fd = socket(to.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	if (source)
		from = address(source, scope, 0);
	if ((source && bind(fd, &from.any, vb_ip_address_bytes(vb_ip_is_v4(source))) != 0) ||
	    connect(fd, &to.any, vb_ip_address_bytes(vb_ip_is_v4(dst))) != 0) {
		int err = -errno;
		close(fd);
		return err;
	}
	return fd;
}

static unsigned path_mtu(int fd, bool v4)
{
	int mtu;
	socklen_t len = sizeof(mtu);

	if (getsockopt(fd, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_MTU : IPV6_MTU, &mtu, &len) != 0 ||
	    mtu < 0)
		return 0;
	return (unsigned)mtu;
}

/* ---- rtnetlink: one question, one answer ---- */

struct message {
	struct nlmsghdr header;
	union {
		struct rtmsg route;
		struct ndmsg neighbour;
		struct nlmsgerr error;
		char room[2048];
	};
};

static void put(struct message *m, unsigned short type, const void *data, size_t bytes)
{
	struct rtattr *attr = (struct rtattr *)((char *)m + NLMSG_ALIGN(m->header.nlmsg_len));

	attr->rta_type = type;
	attr->rta_len = (unsigned short)RTA_LENGTH(bytes);
	memcpy(RTA_DATA(attr), data, bytes);
	m->header.nlmsg_len = NLMSG_ALIGN(m->header.nlmsg_len) + RTA_ALIGN(attr->rta_len);
}

static void put_ip(struct message *m, unsigned short type, const struct in6_addr *ip)
{
	put(m, type, ip->s6_addr + (vb_ip_is_v4(ip) ? 12 : 0), vb_ip_is_v4(ip) ? 4 : 16);
}

static int ask(struct message *m, struct message *answer)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	ssize_t n;

	if (fd < 0)
		return -errno;
	m->header.nlmsg_flags = NLM_F_REQUEST;
	n = send(fd, m, m->header.nlmsg_len, 0);
	if (n >= 0) /* the kernel answers before it returns */
		n = recv(fd, answer, sizeof(*answer), MSG_DONTWAIT);
	int err = n < 0 ? -errno : 0;
	close(fd);
	if (err)
		return err;
	if (!NLMSG_OK(&answer->header, (unsigned)n))
		return -EBADMSG;
	if (answer->header.nlmsg_type != NLMSG_ERROR)
		return 0;
	return answer->header.nlmsg_len < NLMSG_LENGTH(sizeof(answer->error)) ? -EBADMSG :
										answer->error.error;
}

static void read_hop(struct vb_route *r, const struct rtattr *attr)
{
	size_t bytes = RTA_PAYLOAD(attr);
	const uint8_t *data = RTA_DATA(attr);
	const struct rtvia *via = RTA_DATA(attr);

	if (attr->rta_type == RTA_OIF && bytes >= sizeof(uint32_t))
		memcpy(&r->ifindex, data, sizeof(uint32_t));
	else if (attr->rta_type == RTA_GATEWAY && bytes == 4)
		r->next_hop = vb_ip_from_v4(data);
	else if (attr->rta_type == RTA_GATEWAY && bytes == 16)
		memcpy(&r->next_hop, data, 16);
	else if (attr->rta_type == RTA_VIA && bytes == sizeof(*via) + 16 && via->rtvia_family == AF_INET6)
		memcpy(&r->next_hop, via->rtvia_addr, 16);
}

/* Rules may choose the route by the source, which the packets will have. */
static void find_hop(struct vb_route *r, uint32_t scope)
{
	struct message question = { .header = { .nlmsg_len = NLMSG_LENGTH(sizeof(struct rtmsg)),
						.nlmsg_type = RTM_GETROUTE } };
	struct message answer;

	question.route.rtm_family = vb_ip_is_v4(&r->destination) ? AF_INET : AF_INET6;
	question.route.rtm_dst_len = question.route.rtm_src_len = vb_ip_is_v4(&r->destination) ? 32 : 128;
	put_ip(&question, RTA_DST, &r->destination);
	put_ip(&question, RTA_SRC, &r->source);
	if (scope)
		put(&question, RTA_OIF, &scope, sizeof(scope));
	if (ask(&question, &answer) || answer.header.nlmsg_type != RTM_NEWROUTE ||
	    answer.header.nlmsg_len < NLMSG_LENGTH(sizeof(answer.route)))
		return;
	unsigned left = (unsigned)RTM_PAYLOAD(&answer.header);
	for (const struct rtattr *attr = RTM_RTA(&answer.route); RTA_OK(attr, left);
	     attr = RTA_NEXT(attr, left))
		read_hop(r, attr);
}

int vb_route_find(const struct in6_addr *dst, uint32_t scope, const struct in6_addr *source,
		  struct vb_route *route)
{
	VB_UNCANCELLED;
	union vb_ip_address local;
	socklen_t len = sizeof(local);
	int fd = connected_socket(dst, scope, source), err = 0;

	if (fd < 0)
		return fd;
	*route = (struct vb_route){
		.destination = *dst, .next_hop = *dst, .ifindex = scope, .mtu = path_mtu(fd, vb_ip_is_v4(dst))
	};
	if (getsockname(fd, &local.any, &len) != 0)
		err = -errno;
	close(fd);
	if (err)
		return err;
	route->source = vb_ip_is_v4(dst) ? vb_ip_from_v4(&local.v4.sin_addr) : local.v6.sin6_addr;
	find_hop(route, scope);
	return 0;
}

/* ---- the next hop ---- */

static bool needs_no_neighbour(unsigned ifindex)
{
	struct ifreq r = { 0 };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool needs = fd >= 0 && if_indextoname(ifindex, r.ifr_name) && ioctl(fd, SIOCGIFFLAGS, &r) == 0 &&
		     !(r.ifr_flags & (IFF_NOARP | IFF_LOOPBACK | IFF_POINTOPOINT));

	if (fd >= 0)
		close(fd);
	return !needs;
}

bool vb_route_is_ready(const struct vb_route *route)
{
	VB_UNCANCELLED;
	const unsigned usable = NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE | NUD_DELAY;
	struct message question = { .header = { .nlmsg_len = NLMSG_LENGTH(sizeof(struct ndmsg)),
						.nlmsg_type = RTM_GETNEIGH } };
	struct message answer;

	if (!route->ifindex || vb_ip_is_multicast(&route->destination) || needs_no_neighbour(route->ifindex))
		return true;
	question.neighbour.ndm_family = vb_ip_is_v4(&route->next_hop) ? AF_INET : AF_INET6;
	question.neighbour.ndm_ifindex = (int)route->ifindex;
	put_ip(&question, NDA_DST, &route->next_hop);
	int err = ask(&question, &answer);
	if (err)
		return err != -ENOENT;
	if (answer.header.nlmsg_type != RTM_NEWNEIGH ||
	    answer.header.nlmsg_len < NLMSG_LENGTH(sizeof(answer.neighbour)))
		return true;
	return answer.neighbour.ndm_state & usable;
}

void vb_route_kick(const struct vb_route *route)
{
	VB_UNCANCELLED;
	int fd = connected_socket(&route->destination, route->ifindex, &route->source);

	if (fd < 0)
		return;
	send(fd, NULL, 0, MSG_DONTWAIT | MSG_NOSIGNAL);
	close(fd);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma_getaddrinfo: getaddrinfo(3) with RDMA's types. Routes need no resolving here, so ai_route stays
 * empty.
 */
#include <infiniband/ib.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "rdmacm/address/address.h"
#include "rdmacm/fail.h"

enum { KNOWN_FLAGS = RAI_PASSIVE | RAI_NUMERICHOST | RAI_NOROUTE | RAI_FAMILY | RAI_DNS };

/* ---- hints ---- */

static int socket_type(const struct rdma_addrinfo *hints)
{
	if (hints->ai_qp_type)
		return hints->ai_qp_type == IBV_QPT_UD ? SOCK_DGRAM : SOCK_STREAM;
	return hints->ai_port_space == RDMA_PS_UDP || hints->ai_port_space == RDMA_PS_IPOIB ? SOCK_DGRAM :
											      SOCK_STREAM;
}

static int protocol(const struct rdma_addrinfo *hints)
{
	switch (hints->ai_port_space) {
	case RDMA_PS_TCP:
		return IPPROTO_TCP;
	case RDMA_PS_UDP:
	case RDMA_PS_IPOIB:
		return IPPROTO_UDP;
	}
	return socket_type(hints) == SOCK_DGRAM ? IPPROTO_UDP : IPPROTO_TCP;
}

static bool wants_gids(const struct rdma_addrinfo *hints)
{
	return (hints->ai_flags & RAI_FAMILY) && hints->ai_family == AF_IB;
}

static struct addrinfo translate(const struct rdma_addrinfo *hints)
{
	struct addrinfo ai = { .ai_flags = AI_CANONNAME, .ai_socktype = socket_type(hints),
			       .ai_protocol = protocol(hints) };

	if (hints->ai_flags & RAI_PASSIVE)
		ai.ai_flags |= AI_PASSIVE;
	if (hints->ai_flags & RAI_NUMERICHOST)
		ai.ai_flags |= AI_NUMERICHOST;
	if (hints->ai_family != AF_IB)
		ai.ai_family = hints->ai_family;
	if (wants_gids(hints)) { /* these are written as IPv6 addresses */
		ai.ai_family = AF_INET6;
		ai.ai_flags |= AI_NUMERICHOST;
	}
	return ai;
}

/* ---- results ---- */

static int copy(const void *from, size_t len, void **to, socklen_t *to_len)
{
	*to = malloc(len);
	if (!*to)
		return EAI_MEMORY;
	memcpy(*to, from, len);
	*to_len = (socklen_t)len;
	return 0;
}

static int copy_src(struct rdma_addrinfo *rai, const struct sockaddr *sa, socklen_t len)
{
	return copy(sa, len, (void **)&rai->ai_src_addr, &rai->ai_src_len);
}

static int copy_dst(struct rdma_addrinfo *rai, const struct sockaddr *sa, socklen_t len)
{
	return copy(sa, len, (void **)&rai->ai_dst_addr, &rai->ai_dst_len);
}

static void to_gid(struct rdma_addrinfo *rai, struct sockaddr_storage *ss)
{
	struct vb_cma_addr addr;

	if (vb_cma_addr_parse((const struct sockaddr *)ss, &addr))
		return;
	addr.family = AF_IB;
	addr.port_space = (uint16_t)rai->ai_port_space;
	vb_cma_addr_format(&addr, ss);
}

static struct rdma_addrinfo *new_result(const struct rdma_addrinfo *hints)
{
	struct rdma_addrinfo *rai = calloc(1, sizeof(*rai));
	bool datagram = socket_type(hints) == SOCK_DGRAM;

	if (!rai)
		return NULL;
	rai->ai_flags = hints->ai_flags;
	rai->ai_family = hints->ai_family;
	rai->ai_qp_type = hints->ai_qp_type ? hints->ai_qp_type : datagram ? IBV_QPT_UD : IBV_QPT_RC;
	rai->ai_port_space = hints->ai_port_space ? hints->ai_port_space :
			     datagram		  ? RDMA_PS_UDP :
						    RDMA_PS_TCP;
	return rai;
}

static int copy_name(const char *name, char **out)
{
	*out = name ? strdup(name) : NULL;
	return name && !*out ? EAI_MEMORY : 0;
}

static int fill(struct rdma_addrinfo *rai, const struct addrinfo *ai)
{
	bool gid = wants_gids(rai);
	struct sockaddr_storage ss = { 0 };
	const struct sockaddr *sa = (const struct sockaddr *)&ss;
	socklen_t len = gid ? sizeof(struct sockaddr_ib) : ai->ai_addrlen;
	int err;

	memcpy(&ss, ai->ai_addr, ai->ai_addrlen);
	if (gid)
		to_gid(rai, &ss);
	rai->ai_family = gid ? AF_IB : ai->ai_family;
	if (rai->ai_flags & RAI_PASSIVE) {
		err = copy_name(ai->ai_canonname, &rai->ai_src_canonname);
		return err ? err : copy_src(rai, sa, len);
	}
	err = copy_name(ai->ai_canonname, &rai->ai_dst_canonname);
	return err ? err : copy_dst(rai, sa, len);
}

/* Appends one result to *tail. ai NULL: everything comes from the hints. */
static int append(const struct rdma_addrinfo *hints, const struct addrinfo *ai, struct rdma_addrinfo ***tail)
{
	struct rdma_addrinfo *rai = new_result(hints);
	int err = rai ? 0 : EAI_MEMORY;

	if (err)
		return err;
	**tail = rai;
	*tail = &rai->ai_next;
	if (ai)
		err = fill(rai, ai);
	if (!err && !rai->ai_src_addr && hints->ai_src_addr && hints->ai_src_len)
		err = copy_src(rai, hints->ai_src_addr, hints->ai_src_len);
	if (!err && !rai->ai_dst_addr && hints->ai_dst_addr && hints->ai_dst_len &&
	    !(rai->ai_flags & RAI_PASSIVE))
		err = copy_dst(rai, hints->ai_dst_addr, hints->ai_dst_len);
	return err;
}

static int by_name(const char *node, const char *service, const struct rdma_addrinfo *hints,
		   struct rdma_addrinfo **res)
{
	struct addrinfo ai_hints = translate(hints), *list;
	int err;

	if (!node)
		ai_hints.ai_flags &= ~AI_CANONNAME;
	err = getaddrinfo(node, service, &ai_hints, &list);
	if (err)
		return err;
	for (struct addrinfo *ai = list; ai && !err; ai = ai->ai_next)
		if (ai->ai_family == AF_INET || ai->ai_family == AF_INET6)
			err = append(hints, ai, &res);
	freeaddrinfo(list);
	return err;
}

/* ---- results that mean this host ---- */

/*
 * libfabric asks for a passive side of "localhost" without a service, and takes the answer as this host: if
 * the address belongs to no device, it uses all devices. The kernel's connection manager does so, too. But a
 * program that writes 127.0.0.1 itself gets vb_lo. So the answer to a name is marked, in bytes of the
 * address that mean nothing in a source. A copy of the address has the mark, too.
 */
static const char mark_v4[sizeof(((struct sockaddr_in *)0)->sin_zero)] = { 'v', 'e', 'r', 'b',
									   'a', 't', 'i', 'm' };
enum { MARK_V6 = 0xf7b00000 }; /* beyond traffic class and flow label */

static bool is_mine(const struct sockaddr *sa)
{
	struct vb_cma_addr addr;

	return !vb_cma_addr_parse(sa, &addr) && !addr.port && vb_ip_is_loopback(&addr.ip);
}

bool vb_cma_addrinfo_is_host(const struct sockaddr *sa)
{
	if (!is_mine(sa))
		return false;
	if (sa->sa_family == AF_INET)
		return memcmp(((const struct sockaddr_in *)sa)->sin_zero, mark_v4, sizeof(mark_v4)) == 0;
	return sa->sa_family == AF_INET6 &&
	       ((const struct sockaddr_in6 *)sa)->sin6_flowinfo == htonl(MARK_V6);
}

static void mark_host(struct sockaddr *sa)
{
	if (!sa || !is_mine(sa))
		return;
	if (sa->sa_family == AF_INET)
		memcpy(((struct sockaddr_in *)sa)->sin_zero, mark_v4, sizeof(mark_v4));
	else if (sa->sa_family == AF_INET6)
		((struct sockaddr_in6 *)sa)->sin6_flowinfo = htonl(MARK_V6);
}

static bool is_name(const char *node)
{
	const struct addrinfo hints = { .ai_flags = AI_NUMERICHOST };
	struct addrinfo *list;

	if (getaddrinfo(node, NULL, &hints, &list))
		return true;
	freeaddrinfo(list);
	return false;
}

/* ---- the calls ---- */

VB_EXPORT int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints,
			       struct rdma_addrinfo **res)
{
	static const struct rdma_addrinfo none;
	struct rdma_addrinfo *list = NULL, **tail = &list;

	if (vb_cma_is_faulty(__func__))
		return -1;
	if (!res || (!node && !service && !hints))
		return vb_cma_fail(EINVAL,
				   "node, service or hints, and a place for the result, must be given");
	if (!hints)
		hints = &none;
	if (hints->ai_flags & ~KNOWN_FLAGS) {
		vb_explain(__func__, "unknown flags 0x%x",
			   (unsigned)hints->ai_flags & ~(unsigned)KNOWN_FLAGS);
		return EAI_BADFLAGS;
	}
	int err = node || service ? by_name(node, service, hints, &list) : append(hints, NULL, &tail);
	if (!err && !list)
		err = EAI_ADDRFAMILY;
	if (err) {
		vb_explain(__func__, "%s, %s: %s", node ? node : "no node", service ? service : "no service",
			   gai_strerror(err));
		rdma_freeaddrinfo(list);
		return err;
	}
	*res = list;
	if (node && !service && (hints->ai_flags & RAI_PASSIVE) && is_name(node))
		for (; list; list = list->ai_next)
			mark_host(list->ai_src_addr);
	return 0;
}

VB_EXPORT void rdma_freeaddrinfo(struct rdma_addrinfo *rai)
{
	while (rai) {
		struct rdma_addrinfo *next = rai->ai_next;
		free(rai->ai_src_addr);
		free(rai->ai_dst_addr);
		free(rai->ai_src_canonname);
		free(rai->ai_dst_canonname);
		free(rai->ai_route);
		free(rai->ai_connect);
		free(rai);
		rai = next;
	}
}

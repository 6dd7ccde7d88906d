/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <endian.h>
#include <infiniband/ib.h>
#include <stdio.h>
#include <string.h>

#include "rdmacm/address/address.h"
#include "rdmacm/fail.h"

static void parse_ib(const struct sockaddr *sa, struct vb_cma_addr *addr)
{
	struct sockaddr_ib sib;
	uint64_t service;

	memcpy(&sib, sa, sizeof(sib));
	memcpy(&addr->ip, sib.sib_addr.sib_raw, sizeof(addr->ip));
	service = be64toh(sib.sib_sid);
	addr->port = (uint16_t)service;
	addr->port_space = (uint16_t)(service >> 16);
	addr->scope = IN6_IS_ADDR_LINKLOCAL(&addr->ip) ? (uint32_t)be64toh(sib.sib_scope_id) : 0;
}

static void format_ib(const struct vb_cma_addr *addr, struct sockaddr_ib *sib)
{
	sib->sib_family = AF_IB;
	sib->sib_pkey = htobe16(VB_PKEY_DEFAULT);
	memcpy(sib->sib_addr.sib_raw, &addr->ip, sizeof(addr->ip));
	sib->sib_sid = htobe64((uint64_t)addr->port_space << 16 | addr->port);
	sib->sib_sid_mask = htobe64(UINT64_MAX);
	sib->sib_scope_id = htobe64(addr->scope);
}

int vb_cma_addr_parse(const struct sockaddr *sa, struct vb_cma_addr *addr)
{
	struct sockaddr_in sin;
	struct sockaddr_in6 sin6;

	memset(addr, 0, sizeof(*addr));
	if (!sa)
		return -EINVAL;
	addr->family = sa->sa_family;
	switch (sa->sa_family) {
	case AF_INET:
		memcpy(&sin, sa, sizeof(sin));
		addr->ip = vb_ip_from_v4(&sin.sin_addr);
		addr->port = ntohs(sin.sin_port);
		return 0;
	case AF_INET6:
		memcpy(&sin6, sa, sizeof(sin6));
		addr->ip = sin6.sin6_addr;
		addr->port = ntohs(sin6.sin6_port);
		addr->scope = IN6_IS_ADDR_LINKLOCAL(&addr->ip) || IN6_IS_ADDR_MC_LINKLOCAL(&addr->ip) ?
				      sin6.sin6_scope_id :
				      0;
		return 0;
	case AF_IB:
		parse_ib(sa, addr);
		return 0;
	}
	return -EINVAL;
}

void vb_cma_addr_format(const struct vb_cma_addr *addr, struct sockaddr_storage *ss)
{
	struct sockaddr_in *sin = (struct sockaddr_in *)ss;
	struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)ss;

	memset(ss, 0, sizeof(*ss));
	if (addr->family == AF_INET) {
		sin->sin_family = AF_INET;
		sin->sin_port = htons(addr->port);
		memcpy(&sin->sin_addr, &addr->ip.s6_addr[12], 4);
	} else if (addr->family == AF_INET6) {
		sin6->sin6_family = AF_INET6;
		sin6->sin6_port = htons(addr->port);
		sin6->sin6_addr = addr->ip;
		sin6->sin6_scope_id = addr->scope;
	} else if (addr->family == AF_IB) {
		format_ib(addr, (struct sockaddr_ib *)ss);
	}
}

void vb_cma_addr_any(sa_family_t family, struct vb_cma_addr *addr)
{
	memset(addr, 0, sizeof(*addr));
	addr->family = family;
	if (family == AF_INET)
		memset(&addr->ip.s6_addr[10], 0xff, 2);
}

bool vb_cma_addr_is_any(const struct vb_cma_addr *addr)
{
	static const uint8_t zero[4];

	if (vb_ip_is_v4(&addr->ip))
		return memcmp(&addr->ip.s6_addr[12], zero, 4) == 0;
	return IN6_IS_ADDR_UNSPECIFIED(&addr->ip);
}

void vb_cma_addr_settle(struct vb_cma_addr *dst)
{
	if (!vb_cma_addr_is_any(dst))
		return;
	if (vb_ip_is_v4(&dst->ip)) {
		dst->ip.s6_addr[12] = 127;
		dst->ip.s6_addr[15] = 1;
	} else {
		dst->ip = in6addr_loopback;
	}
}

const char *vb_cma_addr_text(const struct vb_cma_addr *addr, char text[VB_CMA_TEXT])
{
	char ip[INET6_ADDRSTRLEN] = "?";

	if (vb_ip_is_v4(&addr->ip)) {
		inet_ntop(AF_INET, &addr->ip.s6_addr[12], ip, sizeof(ip));
		snprintf(text, VB_CMA_TEXT, "%s:%u", ip, addr->port);
	} else {
		inet_ntop(AF_INET6, &addr->ip, ip, sizeof(ip));
		snprintf(text, VB_CMA_TEXT, "[%s]:%u", ip, addr->port);
	}
	return text;
}

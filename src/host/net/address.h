/* SPDX-License-Identifier: BSD-2-Clause */
/* IP addresses as 16 bytes, IPv4 as ::ffff:a.b.c.d, and as sockets take them. */
#ifndef VB_HOST_ADDRESS_H
#define VB_HOST_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>

enum { VB_ROCE_PORT = 4791 };

union vb_ip_address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static inline socklen_t vb_ip_address_bytes(bool ipv4)
{
	return ipv4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

/* ip is v4-mapped if ipv4; all zeros is the wildcard of both. */
static inline union vb_ip_address vb_ip_address(const struct in6_addr *ip, bool ipv4, uint16_t port)
{
	union vb_ip_address a;
	memset(&a, 0, sizeof a);
	if (ipv4) {
		a.v4.sin_family = AF_INET;
		a.v4.sin_port = htons(port);
		memcpy(&a.v4.sin_addr, &ip->s6_addr[12], 4);
	} else {
		a.v6.sin6_family = AF_INET6;
		a.v6.sin6_port = htons(port);
		a.v6.sin6_addr = *ip;
	}
	return a;
}

/* From the four bytes of an IPv4 address. */
static inline struct in6_addr vb_ip_from_v4(const void *v4)
{
	struct in6_addr ip = { .s6_addr = { [10] = 0xff, [11] = 0xff } };
	memcpy(&ip.s6_addr[12], v4, 4);
	return ip;
}

static inline bool vb_ip_is_v4(const struct in6_addr *ip) { return IN6_IS_ADDR_V4MAPPED(ip); }

/* 127.0.0.0/8 or ::1. */
static inline bool vb_ip_is_loopback(const struct in6_addr *ip)
{
	return vb_ip_is_v4(ip) ? ip->s6_addr[12] == 127 : IN6_IS_ADDR_LOOPBACK(ip);
}

/* Of either family. */
static inline bool vb_ip_is_multicast(const struct in6_addr *ip)
{
	return vb_ip_is_v4(ip) ? ip->s6_addr[12] >> 4 == 0xe : IN6_IS_ADDR_MULTICAST(ip);
}

#endif

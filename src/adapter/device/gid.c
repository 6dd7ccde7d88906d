/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the GID table makes of an interface's addresses. An entry keeps its index while its address stays,
 * because programs remember indices; an address that goes leaves a hole that a later address may fill.
 */
#include <string.h>

#include "adapter/device/device.h"

/* Bytes of the longest RoCEv2 packet's headers and trailer: IPv6, UDP, BTH, XRCETH, RETH, ImmDt, ICRC. */
enum { PACKET_OVERHEAD = 40 + 8 + 12 + 4 + 16 + 4 + 4 };

enum ibv_mtu vb_mtu_for(unsigned netif_mtu)
{
	enum ibv_mtu mtu = IBV_MTU_4096;
	while (mtu > IBV_MTU_256 && vb_mtu_bytes(mtu) + PACKET_OVERHEAD > netif_mtu)
		mtu--;
	return mtu;
}

static bool is_hole(const struct in6_addr *ip) { return IN6_IS_ADDR_UNSPECIFIED(ip); }

/* The link-local address that IPv6 autoconfiguration would make of the MAC (EUI-64, RFC 4291 appendix A). */
static struct in6_addr eui64_gid(const uint8_t mac[6])
{
	struct in6_addr ip = { .s6_addr = { 0xfe, 0x80, [8] = mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3],
					    mac[4], mac[5] } };
	return ip;
}

static bool netif_has(const struct vb_netif *netif, const struct in6_addr *ip)
{
	for (unsigned i = 0; i < netif->naddrs; i++)
		if (IN6_ARE_ADDR_EQUAL(&netif->addrs[i].ip, ip))
			return true;
	return false;
}

/* The one that has the entry now, if it can: the kernel lists a new one before those that there were. */
static const struct in6_addr *link_local(const struct vb_netif *netif, const struct in6_addr *now)
{
	if (IN6_IS_ADDR_LINKLOCAL(now) && netif_has(netif, now))
		return now;
	for (unsigned i = 0; i < netif->naddrs; i++)
		if (IN6_IS_ADDR_LINKLOCAL(&netif->addrs[i].ip))
			return &netif->addrs[i].ip;
	return NULL;
}

/*
 * Entries with a fixed meaning: on the loopback 127.0.0.1 and ::1, elsewhere the link-local address. Returns
 * how many.
 */
static unsigned reserved_entries(const struct vb_netif *netif, struct in6_addr *entries)
{
	static const struct in6_addr loopback_v4 = { .s6_addr = { [10] = 0xff, 0xff, 127, 0, 0, 1 } };
	if (!netif->loopback) {
		const struct in6_addr *own = link_local(netif, &entries[0]);
		entries[0] = own ? *own : eui64_gid(netif->mac);
		return 1;
	}
	entries[0] = entries[1] = in6addr_any;
	for (unsigned i = 0; i < netif->naddrs; i++) {
		if (IN6_ARE_ADDR_EQUAL(&netif->addrs[i].ip, &loopback_v4))
			entries[0] = loopback_v4;
		else if (IN6_IS_ADDR_LOOPBACK(&netif->addrs[i].ip))
			entries[1] = in6addr_loopback;
	}
	return 2;
}

static bool has(const struct in6_addr *table, unsigned from, unsigned to, const struct in6_addr *ip)
{
	for (unsigned i = from; i < to; i++)
		if (IN6_ARE_ADDR_EQUAL(&table[i], ip))
			return true;
	return false;
}

/* Without a free entry the address has no GID. */
static void add(struct in6_addr *table, unsigned first, unsigned *used, const struct in6_addr *ip)
{
	unsigned at = first;
	while (at < *used && !is_hole(&table[at]))
		at++;
	if (at == VB_GID_TABLE)
		return;
	table[at] = *ip;
	if (at == *used)
		(*used)++;
}

static void add_all(struct in6_addr *table, unsigned first, unsigned *used, const struct vb_netif *netif,
		    bool v4)
{
	for (unsigned i = 0; i < netif->naddrs; i++)
		if (vb_ip_is_v4(&netif->addrs[i].ip) == v4 && !has(table, 0, *used, &netif->addrs[i].ip))
			add(table, first, used, &netif->addrs[i].ip);
}

void vb_gids_update(struct in6_addr table[VB_GID_TABLE], unsigned *used, const struct vb_netif *netif)
{
	unsigned first = reserved_entries(netif, table);
	for (unsigned i = first; i < *used; i++)
		if (!netif_has(netif, &table[i]) || has(table, 0, first, &table[i]))
			table[i] = in6addr_any;
	if (*used < first)
		*used = first;
	add_all(table, first, used, netif, true);
	add_all(table, first, used, netif, false);
	while (*used && is_hole(&table[*used - 1]))
		(*used)--;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* What the kernel's routing and neighbour tables say. */
#ifndef VB_HOST_ROUTE_H
#define VB_HOST_ROUTE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

struct vb_route {
	struct in6_addr destination, source; /* IPv4 as ::ffff:a.b.c.d */
	/* the destination or a gateway: packets go to its link address */
	struct in6_addr next_hop;
	unsigned ifindex;                    /* outgoing; 0: unknown */
	unsigned mtu;                        /* most bytes of an IP packet; 0: unknown */
};

/*
 * Finds the route to dst, from `source` or, if that is NULL, from the address that the kernel chooses. scope:
 * interface index for a link-local dst, else 0. -ENETUNREACH, -EHOSTUNREACH, -EINVAL (a link-local dst
 * without scope), … No packet is sent.
 */
VB_EXPORT int vb_route_find(const struct in6_addr *dst, uint32_t scope, const struct in6_addr *source,
			    struct vb_route *route);

/*
 * Is the next hop's link address known, so that packets leave at once? True also where none is needed
 * (loopback, tunnels, multicast) and where the kernel does not say. False: vb_route_kick makes the kernel
 * resolve it.
 */
VB_EXPORT bool vb_route_is_ready(const struct vb_route *route);
/* Sends an empty datagram from the source to the destination's discard port. */
VB_EXPORT void vb_route_kick(const struct vb_route *route);

#endif

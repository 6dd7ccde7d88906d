/* SPDX-License-Identifier: BSD-2-Clause */
/* What the kernel's routing tables say. */
#ifndef VB_HOST_ROUTE_H
#define VB_HOST_ROUTE_H

#include <netinet/in.h>
#include <stdint.h>

#include "base/base.h"

/*
 * The source address that a packet to dst would have (IPv4 as ::ffff:a.b.c.d). scope: interface index for a link-local
 * dst, else 0. -ENETUNREACH, -EHOSTUNREACH, -EINVAL (a link-local dst without scope), … No packet is sent.
 */
VB_EXPORT int vb_route_source(const struct in6_addr *dst, uint32_t scope, struct in6_addr *src);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/* What all packets of this host have, whoever makes them: numbers of their IP headers, and checksums. */
#ifndef VB_INET_H
#define VB_INET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { VB_HOP_LIMIT = 64 /* of packets for which none was given */ };

/* Did the packet meet a queue that fills (RFC 3168)? */
static inline bool vb_inet_is_congested(uint8_t traffic_class) { return (traffic_class & 3) == 3; }

/*
 * The sum of 16-bit numbers in network order that a checksum is made of (RFC 1071), added to `start`. The
 * last of an odd number of bytes counts as if a 0 followed: what is summed up in pieces has even ones before
 * that.
 */
static inline uint64_t vb_inet_sum(uint64_t start, const void *bytes, size_t n)
{
	const uint8_t *at = bytes;
	for (; n >= 2; n -= 2, at += 2)
		start += (uint32_t)at[0] << 8 | at[1];
	return n ? start + ((uint32_t)at[0] << 8) : start;
}

/* In 16 bits. The checksum is the complement: bytes that have theirs among them give 0xffff. */
static inline uint16_t vb_inet_fold(uint64_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

/* The checksum of bytes that have 0 in its place. */
static inline uint16_t vb_inet_checksum(const void *bytes, size_t n)
{
	return (uint16_t)~vb_inet_fold(vb_inet_sum(0, bytes, n));
}

#endif

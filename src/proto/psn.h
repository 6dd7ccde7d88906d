/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packet sequence numbers. On the wire they have 24 bits and wrap; inside the engines they are 64-bit counts
 * that never do, so that comparing them is comparing numbers. Both sides of a connection are within 2^23 of
 * each other (9.7.2).
 */
#ifndef VB_PROTO_PSN_H
#define VB_PROTO_PSN_H

#include "wire/headers.h"

/* Counts begin here, so that a number from before the first packet is not below zero. */
#define VB_PSN_BASE (UINT64_C(1) << 32)

static inline uint64_t vb_psn_first(uint32_t wire) { return VB_PSN_BASE | (wire & VB_PSN_MASK); }

/* The count nearest to `near` that has these 24 bits. */
static inline uint64_t vb_psn_expand(uint64_t near, uint32_t wire)
{
	uint32_t ahead = (wire - (uint32_t)near) & VB_PSN_MASK;
	return ahead < 1u << 23 ? near + ahead : near + ahead - (1u << 24);
}

#endif

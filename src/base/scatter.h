/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A random permutation of numbers of 20 bits: applied to 0, 1, 2, ... it yields unpredictable numbers that do
 * not repeat. It is a Feistel network whose round functions are tables of random numbers.
 */
#ifndef VB_SCATTER_H
#define VB_SCATTER_H

#include <stdint.h>

enum { VB_SCATTER_ROUNDS = 4, VB_SCATTER_HALF_BITS = 10 };

struct vb_scatter {
	uint16_t random[VB_SCATTER_ROUNDS][1 << VB_SCATTER_HALF_BITS]; /* random bytes, of the user */
};

/* Uses the lower 20 bits of n. */
static inline uint32_t vb_scatter(const struct vb_scatter *s, uint32_t n)
{
	const uint32_t mask = (1u << VB_SCATTER_HALF_BITS) - 1;
	uint32_t left = n >> VB_SCATTER_HALF_BITS & mask, right = n & mask;
	for (int round = 0; round < VB_SCATTER_ROUNDS; round++) {
		uint32_t next = left ^ (s->random[round][right] & mask);
		left = right;
		right = next;
	}
	return left << VB_SCATTER_HALF_BITS | right;
}

#endif

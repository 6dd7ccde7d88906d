/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef VB_SIM_CHANCE_H
#define VB_SIM_CHANCE_H

#include <stdint.h>

/* The next random number (xorshift64*). state: not 0. */
static inline uint64_t chance_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state * UINT64_C(0x2545f4914f6cdd1d);
}

/* One below a number, which is at most 2^31. */
static inline uint64_t chance_below(uint64_t *state, uint64_t n) { return (chance_next(state) >> 33) % n; }

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Times that the protocol encodes in five bits (InfiniBand specification volume 1, chapter 9: local ACK
 * timeout, RNR NAK timer).
 */
#ifndef VB_WIRE_TIMERS_H
#define VB_WIRE_TIMERS_H

#include <stdint.h>

/* 4.096 us * 2^code; code 0 means no timeout and is not for this function. */
static inline uint64_t vb_ack_timeout_ns(unsigned code)
{
	return 4096ull << (code & 31);
}

/*
 * How long a requester waits for an answer before it counts a retry; 0: for ever. The responder is a thread
 * that has to get a processor first, which on a busy machine takes some time slices. So silence lasts as long
 * as the specification lets it (9.7.6.1.3: up to four times the timeout), and no less than 16 ms.
 */
static inline uint64_t vb_silence_ns(unsigned code)
{
	const uint64_t least = 16000000;
	uint64_t most = 4 * vb_ack_timeout_ns(code);
	return !code ? 0 : most > least ? most : least;
}

/*
 * Steps of 10 us: code 0 is 2^16 of them, 1 is one; from 2 on even codes are powers of two and odd ones lie
 * half way between (2^(c/2) and 3 * 2^((c-3)/2)), up to 491.52 ms for 31.
 */
static inline uint64_t vb_rnr_timer_ns(unsigned code)
{
	code &= 31;
	uint64_t steps = code == 0 ? 65536 :
			 code == 1 ? 1 :
			 code % 2  ? 3ull << (code - 3) / 2 :
				     1ull << code / 2;
	return steps * 10000;
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Times that the protocol encodes in five bits (InfiniBand specification volume 1, chapter 9: local ACK
 * timeout, RNR NAK timer).
 */
#ifndef VB_WIRE_TIMERS_H
#define VB_WIRE_TIMERS_H

#include "base/base.h"
#include "base/nanoseconds.h"

/*
 * The requester's transport timer: after so long without a response it retries. 0 means that it never does.
 * The local ACK timeout is 4.096 us * 2^code, and none for code 0. The specification allows the timer up to
 * four of these timeouts (9.7.6.1.3). The timer uses all four, and at least 16 ms, because the responder is a
 * thread that may wait some time slices for a processor on a busy machine.
 */
static inline uint64_t vb_transport_timer_ns(unsigned code)
{
	enum { TIMEOUTS = 4, LEAST_NS = 16 * VB_NS_PER_MS };
	return code ? vb_max_u64(TIMEOUTS * (4096ull << (code & 31)), LEAST_NS) : 0;
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

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The processor's time-stamp counter: a clock that takes a few nanoseconds to read, where precision does not
 * matter. It has no unit: vb_ticks_us ticks are about a microsecond on current machines, within a factor of
 * four.
 */
#ifndef VB_TICKS_H
#define VB_TICKS_H

#include <stdint.h>

#if defined(VB_TICKS_FAKE) /* tests set the time */
static inline uint64_t vb_ticks_us(void) { return 1000; }
uint64_t vb_ticks(void);
#elif defined(__x86_64__) || defined(__i386__)
static inline uint64_t vb_ticks_us(void) { return 2500; }
static inline uint64_t vb_ticks(void) { return __builtin_ia32_rdtsc(); }
#elif defined(__aarch64__)
/* 24 MHz on some processors, 1 GHz on others. */
static inline uint64_t vb_ticks_us(void)
{
	uint64_t hertz;
	__asm__("mrs %0, cntfrq_el0" : "=r"(hertz));
	return hertz / 1000000;
}
static inline uint64_t vb_ticks(void)
{
	uint64_t ticks;
	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
	return ticks;
}
#else
#include "base/clock.h"
static inline uint64_t vb_ticks_us(void) { return 1000; }
static inline uint64_t vb_ticks(void) { return vb_clock_ns(CLOCK_MONOTONIC); }
#endif

#endif

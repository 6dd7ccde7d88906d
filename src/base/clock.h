/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernel's clocks, and its times as nanoseconds. */
#ifndef VB_CLOCK_H
#define VB_CLOCK_H

#include <sys/time.h>
#include <time.h>

#include "base/nanoseconds.h"

/* Of times that are not negative. */
static inline uint64_t vb_ns_of_timespec(struct timespec t)
{
	return (uint64_t)t.tv_sec * VB_NS_PER_S + (uint64_t)t.tv_nsec;
}

static inline uint64_t vb_ns_of_timeval(struct timeval t)
{
	return (uint64_t)t.tv_sec * VB_NS_PER_S + (uint64_t)t.tv_usec * VB_NS_PER_US;
}

static inline struct timespec vb_timespec_of_ns(uint64_t ns)
{
	return (struct timespec){ .tv_sec = (time_t)(ns / VB_NS_PER_S), .tv_nsec = (long)(ns % VB_NS_PER_S) };
}

static inline uint64_t vb_clock_ns(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return vb_ns_of_timespec(t);
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/* Nanoseconds, in which all times here are counted. */
#ifndef VB_NANOSECONDS_H
#define VB_NANOSECONDS_H

#include <stdint.h>
#include <time.h>

#define VB_NS_PER_US UINT64_C(1000)
#define VB_NS_PER_MS UINT64_C(1000000)
#define VB_NS_PER_S  UINT64_C(1000000000)

/* Rounded up: who waits so long has waited long enough. */
static inline uint64_t vb_ms_of_ns(uint64_t ns) { return ns / VB_NS_PER_MS + (ns % VB_NS_PER_MS != 0); }

/* Of a time that is not negative. */
static inline uint64_t vb_ns_of_timespec(struct timespec t)
{
	return (uint64_t)t.tv_sec * VB_NS_PER_S + (uint64_t)t.tv_nsec;
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

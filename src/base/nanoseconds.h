/* SPDX-License-Identifier: BSD-2-Clause */
/* Nanoseconds, in which all times here are counted. */
#ifndef VB_NANOSECONDS_H
#define VB_NANOSECONDS_H

#include <stdint.h>

#define VB_NS_PER_US UINT64_C(1000)
#define VB_NS_PER_MS UINT64_C(1000000)
#define VB_NS_PER_S  UINT64_C(1000000000)

/* Rounded up: who waits so long has waited long enough. */
static inline uint64_t vb_ms_of_ns(uint64_t ns) { return ns / VB_NS_PER_MS + (ns % VB_NS_PER_MS != 0); }

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counts of values, each known to 1 part in 64 over the whole range of 64 bits (as HdrHistogram has them):
 * 64 buckets for each power of two. The largest value is exact.
 */
#ifndef VB_TOOLS_HISTOGRAM_H
#define VB_TOOLS_HISTOGRAM_H

#include <stdint.h>

enum { HISTOGRAM_BUCKETS = 64 * 57 + 128 };

struct histogram {
	uint64_t count, max;
	uint64_t buckets[HISTOGRAM_BUCKETS];
};

void histogram_add(struct histogram *h, uint64_t value);
/* The largest value of a bucket; never more than h->max. */
uint64_t histogram_value(const struct histogram *h, unsigned bucket);
/* So many of 1000 values (1 to 1000) are not larger. 0 if there is none. */
uint64_t histogram_percentile(const struct histogram *h, unsigned per_mille);

#endif

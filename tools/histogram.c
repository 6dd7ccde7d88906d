/* SPDX-License-Identifier: BSD-2-Clause */
#include "histogram.h"

enum { SUB_BITS = 6, SUB = 1 << SUB_BITS };

/* Values below 2 * SUB have buckets of their own. */
static unsigned bucket_of(uint64_t value)
{
	unsigned shift = value < 2 * SUB ? 0 : 63 - SUB_BITS - (unsigned)__builtin_clzll(value);

	return SUB * shift + (unsigned)(value >> shift);
}

void histogram_add(struct histogram *h, uint64_t value)
{
	h->count++;
	h->max = value > h->max ? value : h->max;
	h->buckets[bucket_of(value)]++;
}

uint64_t histogram_value(const struct histogram *h, unsigned bucket)
{
	unsigned shift = bucket < 2 * SUB ? 0 : bucket / SUB - 1;
	uint64_t last = ((uint64_t)(bucket - SUB * shift) << shift) + ((UINT64_C(1) << shift) - 1);

	return last < h->max ? last : h->max;
}

uint64_t histogram_percentile(const struct histogram *h, unsigned per_mille)
{
	uint64_t wanted = (h->count * per_mille + 999) / 1000, seen = 0;

	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		seen += h->buckets[i];
		if (seen && seen >= wanted)
			return histogram_value(h, i);
	}
	return h->max;
}

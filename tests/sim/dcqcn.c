/* SPDX-License-Identifier: BSD-2-Clause */
#include "dcqcn.h"

#define PERIOD_NS     UINT64_C(55000)
#define GROWTH_BYTES  UINT64_C(10000000)
#define LEAST_RATE    1e6
#define ADDED_RATE    5e6      /* 40 Mbit/s */
#define MUCH_ADDED    50e6

enum { FAST_RECOVERIES = 5 };
static const double gain = 1.0 / 256;

void dcqcn_init(struct dcqcn *d, uint64_t now_ns, double line)
{
	*d = (struct dcqcn){ .rate = line, .target = line, .line = line, .alpha = 1,
			     .alpha_at = now_ns + PERIOD_NS, .growth_at = now_ns + PERIOD_NS };
}

void dcqcn_notified(struct dcqcn *d, uint64_t now_ns)
{
	d->target = d->rate;
	d->rate *= 1 - d->alpha / 2;
	if (d->rate < LEAST_RATE)
		d->rate = LEAST_RATE;
	d->alpha = (1 - gain) * d->alpha + gain;
	d->by_time = d->by_bytes = 0;
	d->bytes = 0;
	d->alpha_at = d->growth_at = now_ns + PERIOD_NS;
}

static void grow(struct dcqcn *d)
{
	unsigned most = d->by_time > d->by_bytes ? d->by_time : d->by_bytes,
		 least = d->by_time > d->by_bytes ? d->by_bytes : d->by_time;
	if (most > FAST_RECOVERIES)
		d->target += least > FAST_RECOVERIES ? MUCH_ADDED : ADDED_RATE;
	if (d->target > d->line)
		d->target = d->line;
	d->rate = (d->target + d->rate) / 2;
}

uint64_t dcqcn_sent(struct dcqcn *d, uint64_t now_ns, uint64_t bytes)
{
	for (; now_ns >= d->alpha_at; d->alpha_at += PERIOD_NS)
		d->alpha *= 1 - gain;
	for (; now_ns >= d->growth_at; d->growth_at += PERIOD_NS, grow(d))
		d->by_time++;
	d->bytes += bytes;
	if (d->bytes >= GROWTH_BYTES) {
		d->bytes = 0;
		d->by_bytes++;
		grow(d);
	}
	return now_ns + (uint64_t)((double)bytes * 1e9 / d->rate);
}

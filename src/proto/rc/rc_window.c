/* SPDX-License-Identifier: BSD-2-Clause */
#include "proto/rc/rc_window.h"

enum {
	MOST_DOUBLINGS = 9,
	FEW_LOST = 4,    /* however small the window */
	MANY_LOST = 8,   /* one of so many */
	BUNCH = 8,
	PACE_BURST = 32, /* packets that may go at once */
};

#define FIRST_PATIENCE_NS UINT64_C(10000000)
#define LEAST_PATIENCE_NS UINT64_C(1000000)	/* mostly enough for a peer that has to be scheduled first */
#define LEAST_PROBE_NS    UINT64_C(50000)
#define MOST_PATIENCE_NS  UINT64_C(500000000)
#define NO_QUEUE_NS       UINT64_C(100000)	/* round trips differ by that for other reasons */
#define LEAST_AGE_NS      UINT64_C(10000000000)	/* paths change */
#define PACE_BURST_NS     UINT64_C(1000000)	/* and what is due within it: no pace for short round trips */

void vb_rc_window_init(struct vb_rc_window *w, uint32_t most)
{
	*w = (struct vb_rc_window){ .size = vb_min_u32(most, VB_RC_WINDOW_START),
				    .most = most,
				    .threshold = most };
}

/* Silences before the first round trip was measured say nothing but that it is long. */
static void open_anew(struct vb_rc_window *w)
{
	w->size = vb_min_u32(w->most, VB_RC_WINDOW_START);
	w->threshold = w->most;
}

void vb_rc_window_measured(struct vb_rc_window *w, uint64_t now, uint64_t round_trip_ns)
{
	if (round_trip_ns == 0)
		round_trip_ns = 1;
	if (w->least_ns == 0 || round_trip_ns <= w->least_ns || now - w->least_at > LEAST_AGE_NS) {
		w->least_ns = round_trip_ns;
		w->least_at = now;
	}
	w->bunch_least_ns = w->bunch ? vb_min_u64(w->bunch_least_ns, round_trip_ns) : round_trip_ns;
	if (++w->bunch == BUNCH) {
		w->standing_ns = w->bunch_least_ns;
		w->bunch = 0;
	}
	w->silences = 0;
	if (w->smooth_ns == 0) {
		w->smooth_ns = round_trip_ns;
		w->variance_ns = round_trip_ns / 2;
		if (w->size < VB_RC_WINDOW_START)
			open_anew(w);
		return;
	}
	uint64_t off =
		round_trip_ns > w->smooth_ns ? round_trip_ns - w->smooth_ns : w->smooth_ns - round_trip_ns;
	w->variance_ns = (3 * w->variance_ns + off) / 4;
	w->smooth_ns = (7 * w->smooth_ns + round_trip_ns) / 8;
}

static void count_delivered(struct vb_rc_window *w, uint64_t now, uint32_t packets)
{
	w->counted += packets;
	if (w->smooth_ns == 0 || now - w->counted_from < w->smooth_ns)
		return;
	w->rate_packets = w->counted;
	w->rate_ns = now - w->counted_from;
	w->counted = 0;
	w->counted_from = now;
}

static bool has_queue(const struct vb_rc_window *w) { return w->standing_ns > 2 * w->least_ns + NO_QUEUE_NS; }

void vb_rc_window_acknowledged(struct vb_rc_window *w, uint64_t now, uint32_t packets, uint64_t in_flight)
{
	count_delivered(w, now, packets);
	if (in_flight * 2 < w->size)
		return;
	if (has_queue(w) && w->threshold > w->size)
		w->threshold = w->size;
	if (w->size < w->threshold) {
		w->size = vb_min_u32(w->size + packets, w->threshold);
		return;
	}
	uint32_t step = has_queue(w) ? w->size : w->size / 4;	/* packets that earn one more */
	w->grown += packets;
	w->size = vb_min_u32(w->size + w->grown / step, w->most);
	w->grown %= step;
}

static uint32_t bounded(const struct vb_rc_window *w, uint64_t size)
{
	return (uint32_t)vb_min_u64(size < VB_RC_WINDOW_LEAST ? VB_RC_WINDOW_LEAST : size, w->most);
}

void vb_rc_window_congested(struct vb_rc_window *w)
{
	uint64_t carried = w->rate_ns ? w->rate_packets * w->least_ns / w->rate_ns : 0;

	w->size = vb_min_u32(w->size, bounded(w, carried > w->size / 2 ? carried : w->size / 2));
	w->threshold = w->size;
	w->grown = 0;
}

void vb_rc_window_lost(struct vb_rc_window *w, uint64_t packets)
{
	if ((packets > FEW_LOST && packets * MANY_LOST > w->size) || has_queue(w))
		vb_rc_window_congested(w);
}

void vb_rc_window_heard(struct vb_rc_window *w)
{
	if (w->smooth_ns)
		w->silences = 0;
}

void vb_rc_window_silent(struct vb_rc_window *w)
{
	if (w->silences < MOST_DOUBLINGS)
		w->silences++;
	w->threshold = bounded(w, w->size / 2);
	w->size = bounded(w, w->size / 4);
	w->grown = 0;
}

static bool is_paced(const struct vb_rc_window *w) { return w->smooth_ns > PACE_BURST_NS; }

/*
 * How long the pace takes for so many packets: the window per round trip, and half as much again, or twice
 * while it opens fast.
 */
static uint64_t pace_of(const struct vb_rc_window *w, uint32_t packets)
{
	uint64_t whole = packets * w->smooth_ns / w->size;

	return w->size < w->threshold ? whole / 2 : whole * 2 / 3;
}

uint64_t vb_rc_window_pace_ns(const struct vb_rc_window *w, uint64_t now)
{
	if (!is_paced(w))
		return now;
	uint64_t burst = pace_of(w, PACE_BURST);
	if (burst < PACE_BURST_NS)
		burst = PACE_BURST_NS;
	return w->paced_ns <= now + burst ? now : w->paced_ns - burst / 2;
}

void vb_rc_window_sent(struct vb_rc_window *w, uint64_t now, uint32_t packets)
{
	if (is_paced(w))
		w->paced_ns = (w->paced_ns > now ? w->paced_ns : now) + pace_of(w, packets);
}

uint64_t vb_rc_window_patience_ns(const struct vb_rc_window *w)
{
	uint64_t patience = w->smooth_ns ? 3 * w->smooth_ns + 4 * w->variance_ns : FIRST_PATIENCE_NS;

	if (patience < LEAST_PATIENCE_NS)
		patience = LEAST_PATIENCE_NS;
	return vb_min_u64(patience << w->silences, MOST_PATIENCE_NS);
}

uint64_t vb_rc_window_probe_ns(const struct vb_rc_window *w, unsigned n)
{
	uint64_t wait = w->smooth_ns * 3 / 2 + 4 * w->variance_ns;

	return (wait < LEAST_PROBE_NS ? LEAST_PROBE_NS : wait) << n;
}

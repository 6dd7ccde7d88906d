/* SPDX-License-Identifier: BSD-2-Clause */
#include "proto/rc_window.h"

enum { MOST_DOUBLINGS = 9 };

#define FIRST_PATIENCE_NS UINT64_C(10000000)
#define LEAST_PATIENCE_NS UINT64_C(1000000)	/* a peer that has to be scheduled first answers within it, mostly */
#define MOST_PATIENCE_NS  UINT64_C(500000000)
#define LEAST_AGE_NS      UINT64_C(10000000000)	/* paths change */

void vb_rc_window_init(struct vb_rc_window *w, uint32_t most)
{
	*w = (struct vb_rc_window){ .size = vb_min_u32(most, VB_RC_WINDOW_START), .most = most, .threshold = most };
}

void vb_rc_window_measured(struct vb_rc_window *w, uint64_t now, uint64_t round_trip_ns)
{
	if (round_trip_ns == 0)
		round_trip_ns = 1;
	if (w->least_ns == 0 || round_trip_ns <= w->least_ns || now - w->least_at > LEAST_AGE_NS) {
		w->least_ns = round_trip_ns;
		w->least_at = now;
	}
	if (w->smooth_ns == 0) {
		w->smooth_ns = round_trip_ns;
		w->variance_ns = round_trip_ns / 2;
		return;
	}
	uint64_t off = round_trip_ns > w->smooth_ns ? round_trip_ns - w->smooth_ns : w->smooth_ns - round_trip_ns;
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

void vb_rc_window_acknowledged(struct vb_rc_window *w, uint64_t now, uint32_t packets, uint64_t in_flight)
{
	w->silences = 0;
	count_delivered(w, now, packets);
	if (in_flight * 2 < w->size)
		return;
	if (w->size < w->threshold) {
		w->size = vb_min_u32(w->size + packets, w->threshold);
		return;
	}
	w->grown += packets;
	if (w->grown >= w->size) {
		w->grown = 0;
		w->size = vb_min_u32(w->size + 1, w->most);
	}
}

static void shrink_to(struct vb_rc_window *w, uint64_t size)
{
	if (size < VB_RC_WINDOW_LEAST)
		size = VB_RC_WINDOW_LEAST;
	w->size = vb_min_u32(w->size, (uint32_t)vb_min_u64(size, w->most));
	w->threshold = w->size;
	w->grown = 0;
}

void vb_rc_window_lost(struct vb_rc_window *w)
{
	uint64_t carried = w->rate_ns ? w->rate_packets * w->least_ns / w->rate_ns : 0;
	shrink_to(w, carried > w->size / 2 ? carried : w->size / 2);
}

void vb_rc_window_silent(struct vb_rc_window *w)
{
	if (w->silences < MOST_DOUBLINGS)
		w->silences++;
	shrink_to(w, w->size / 2);
}

uint64_t vb_rc_window_patience_ns(const struct vb_rc_window *w)
{
	uint64_t patience = w->smooth_ns ? w->smooth_ns + 4 * w->variance_ns : FIRST_PATIENCE_NS;

	if (patience < LEAST_PATIENCE_NS)
		patience = LEAST_PATIENCE_NS;
	return vb_min_u64(patience << w->silences, MOST_PATIENCE_NS);
}

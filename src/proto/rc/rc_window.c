/* SPDX-License-Identifier: BSD-2-Clause */
#include "proto/rc/rc_window.h"
#include "base/nanoseconds.h"

enum {
	MOST_DOUBLINGS = 9,
	FEW_LOST = 4,    /* however small the window */
	MANY_LOST = 8,   /* one of so many */
	GROUP = 8,
	GROUP_AFTER_CUT = 2, /* few, so that a queue that stays is soon seen again */
	PARTS = 16,      /* of a packet */
	/* in a round trip */
	LEAST_GROWTH = 2, GROWTH_IN_SPACE = 3 * PARTS / 2, MOST_GROWTH = 16 * PARTS,
	PARTS_OF_EACH = 2, /* of each packet in the window at most */
	MOST_UNITS = 5,    /* of time: a round trip that counts as longer would grow by more than the most */
	FINE = 1024,       /* parts of such a unit */
};

#define FIRST_RTO_NS   (10 * VB_NS_PER_MS)
#define LEAST_RTO_NS   VB_NS_PER_MS	/* usually enough for a peer that must be scheduled first */
#define MOST_RTO_NS    (500 * VB_NS_PER_MS)
#define NO_QUEUE_NS    (100 * VB_NS_PER_US)	/* round trips differ by this for other reasons */
#define LEAST_UNIT_NS  (200 * VB_NS_PER_US)	/* of time, in which the window grows by one packet */
#define LEAST_AGE_NS   (10 * VB_NS_PER_S)	/* paths change */
#define MARK_AGE_NS    (10 * VB_NS_PER_MS)	/* and four round trips: the queue that marked may be gone */

void vb_rc_window_init(struct vb_rc_window *w, uint32_t most)
{
	*w = (struct vb_rc_window){ .size = vb_min_u32(most, VB_RC_WINDOW_START),
				    .most = most,
				    .threshold = most };
}

/* An RTO that expired before the first round trip was measured only shows that the trip is long. */
static void reopen(struct vb_rc_window *w)
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
	w->group_least_ns = w->group ? vb_min_u64(w->group_least_ns, round_trip_ns) : round_trip_ns;
	if (++w->group == GROUP) {
		w->standing_ns = w->group_least_ns;
		w->is_stale = false;
		w->group = 0;
	}
	w->before_last_ns = w->last_ns;
	w->last_ns = round_trip_ns;
	w->rto_doublings = 0;
	if (w->smooth_ns == 0) {
		w->smooth_ns = round_trip_ns;
		w->variance_ns = round_trip_ns / 2;
		if (w->size < VB_RC_WINDOW_START)
			reopen(w);
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

/* Is a round trip so long that packets wait somewhere? */
static bool is_long(const struct vb_rc_window *w, uint64_t round_trip_ns)
{
	return round_trip_ns > w->least_ns + w->least_ns / 4 + NO_QUEUE_NS;
}

static bool has_queue(const struct vb_rc_window *w) { return is_long(w, w->standing_ns); }

static bool was_marked(const struct vb_rc_window *w, uint64_t now)
{
	return w->marked_at && now < w->marked_at + MARK_AGE_NS + 4 * w->smooth_ns;
}

/* How many parts of a packet the window grows by in a round trip. */
static uint32_t growth(const struct vb_rc_window *w, uint64_t now)
{
	uint64_t unit = vb_max_u64(w->full_ns, LEAST_UNIT_NS),
		 units = FINE * vb_min_u64(w->smooth_ns, MOST_UNITS * unit) / unit,
		 by_length = PARTS * units * units / (FINE * FINE),
		 by_space = has_queue(w) || was_marked(w, now) ? 0 : GROWTH_IN_SPACE,
		 most = vb_min_u64(vb_max_u64(w->size * PARTS_OF_EACH, LEAST_GROWTH), MOST_GROWTH);
	return (uint32_t)vb_min_u64(vb_max_u64(vb_max_u64(by_length, by_space), LEAST_GROWTH), most);
}

void vb_rc_window_acknowledged(struct vb_rc_window *w, uint64_t now, uint32_t packets, uint64_t in_flight)
{
	count_delivered(w, now, packets);
	if (in_flight * 2 < w->size)
		return;
	if (w->threshold > w->size && is_long(w, vb_min_u64(w->last_ns, w->before_last_ns)))
		w->threshold = w->size;
	if (w->size < w->threshold) {
		w->size = vb_min_u32(w->size + packets, w->threshold);
		return;
	}
	uint32_t step = w->size * PARTS;
	w->grown += packets * growth(w, now);
	w->size = vb_min_u32(w->size + w->grown / step, w->most);
	w->grown %= step;
}

static uint32_t bounded(const struct vb_rc_window *w, uint64_t size)
{
	return (uint32_t)vb_min_u64(size < VB_RC_WINDOW_LEAST ? VB_RC_WINDOW_LEAST : size, w->most);
}

static void cut_to(struct vb_rc_window *w, uint64_t size)
{
	w->size = vb_min_u32(w->size, bounded(w, size));
	w->threshold = w->size;
	w->grown = 0;
}

/* What packets wait in the queue on the path. */
static uint64_t queue_ns(const struct vb_rc_window *w)
{
	return w->smooth_ns - vb_min_u64(w->least_ns, w->smooth_ns);
}

void vb_rc_window_marked(struct vb_rc_window *w, uint64_t now)
{
	w->marked_at = now;
	w->full_ns = 2 * queue_ns(w); /* a queue begins to mark long before it is full */
	cut_to(w, w->size - w->size / 4);
}

uint64_t vb_rc_window_carried(const struct vb_rc_window *w)
{
	return w->rate_ns ? w->rate_packets * w->least_ns / w->rate_ns : 0;
}

static void halve(struct vb_rc_window *w)
{
	w->full_ns = queue_ns(w);
	w->is_stale = true;
	w->group = GROUP - GROUP_AFTER_CUT;
	w->group_least_ns = UINT64_MAX;
	cut_to(w, vb_max_u64(vb_rc_window_carried(w), w->size / 2));
}

bool vb_rc_window_lost(struct vb_rc_window *w, uint32_t packets)
{
	bool is_at_queue = has_queue(w) && !w->is_stale;
	if ((packets <= FEW_LOST || packets * MANY_LOST <= w->size) && !is_at_queue)
		return false;
	halve(w);
	return true;
}

void vb_rc_window_reset_rto(struct vb_rc_window *w)
{
	if (w->smooth_ns)
		w->rto_doublings = 0;
}

void vb_rc_window_timed_out(struct vb_rc_window *w)
{
	if (w->rto_doublings < MOST_DOUBLINGS)
		w->rto_doublings++;
	w->threshold = bounded(w, w->size / 2);
	w->size = bounded(w, w->size / 4);
	w->grown = 0;
}

struct pace {
	unsigned percent;  /* of a round trip, over which a window is spread */
	uint32_t burst;    /* packets that may go at once, */
	uint64_t burst_ns; /* and what is due within this time: a shorter round trip has no pace */
};

static struct pace pace_of(const struct vb_rc_window *w, uint64_t now)
{
	if (was_marked(w, now))
		return (struct pace){ .percent = 88, .burst = 8, .burst_ns = 50 * VB_NS_PER_US };
	return (struct pace){
		.percent = w->size < w->threshold ? 50 : 67,
		.burst = 32,
		.burst_ns = VB_NS_PER_MS,
	};
}

static bool is_paced(const struct vb_rc_window *w, const struct pace *pace)
{
	return w->smooth_ns > pace->burst_ns;
}

static uint64_t time_of(const struct vb_rc_window *w, const struct pace *pace, uint32_t packets)
{
	return packets * w->smooth_ns / w->size * pace->percent / 100;
}

uint64_t vb_rc_window_pace_ns(const struct vb_rc_window *w, uint64_t now)
{
	struct pace pace = pace_of(w, now);
	if (!is_paced(w, &pace))
		return now;
	uint64_t burst = vb_max_u64(time_of(w, &pace, pace.burst), pace.burst_ns);
	return w->paced_ns <= now + burst ? now : w->paced_ns - burst / 2;
}

void vb_rc_window_sent(struct vb_rc_window *w, uint64_t now, uint32_t packets)
{
	struct pace pace = pace_of(w, now);
	if (is_paced(w, &pace))
		w->paced_ns = vb_max_u64(w->paced_ns, now) + time_of(w, &pace, packets);
}

uint64_t vb_rc_window_rto_ns(const struct vb_rc_window *w)
{
	uint64_t rto = w->smooth_ns ? 3 * w->smooth_ns + 4 * w->variance_ns : FIRST_RTO_NS;

	if (rto < LEAST_RTO_NS)
		rto = LEAST_RTO_NS;
	return vb_min_u64(rto << w->rto_doublings, MOST_RTO_NS);
}

uint64_t vb_rc_window_probe_ns(const struct vb_rc_window *w, unsigned n)
{
	uint64_t wait = w->smooth_ns * 3 / 2 + 4 * w->variance_ns;

	return vb_max_u64(wait, VB_RC_LEAST_PROBE_NS) << n;
}

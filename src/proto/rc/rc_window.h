/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How much an RC requester keeps in flight, and its retransmission timeout (RTO). Neither is visible on the
 * wire.
 *
 * The window counts packets, and the responses that READs have asked for. Up to the threshold it grows by
 * what was acknowledged. Two long round trips in a row end that: packets wait in a queue, and twice as many
 * would not fit. Beyond the threshold it grows by the square of the round trip's length, one packet at the
 * time that the queue took when it was last full, but at least 200 us. All connections that share a queue see
 * that time, so those of different lengths end up with equal shares, however slow the link is. While no queue
 * stands on the path, the window grows by at least one and a half packets. (A queue stands if a mark came a
 * short while ago, or if even the shortest of the last round trips is long. A peer that waits for a processor
 * makes some of them long, not all.)
 *
 * Few losses without a queue are random and change nothing. Losses at a queue, or many of them, halve the
 * window, but not below what the path has just carried (delivery rate times least round trip). A mark takes
 * a quarter of it. An RTO that expires takes three quarters, and sets the threshold to half of it. The window
 * grows only while at least half of it is in use.
 *
 * Pacing: if a round trip takes long, the packets of a window are spread over it, somewhat faster than they
 * will be acknowledged. So what a pause, or one ACK, lets go at once does not overflow a short queue. Where
 * queues mark, shorter round trips have a pace, too, and a slower one: a window that goes at once would fill
 * the queue for a moment, take marks meant for all, and leave the link idle for the rest of the round trip.
 */
#ifndef VB_PROTO_RC_WINDOW_H
#define VB_PROTO_RC_WINDOW_H

#include "base/base.h"

enum { VB_RC_WINDOW_LEAST = 4, VB_RC_WINDOW_START = 64 };
#define VB_RC_LEAST_PROBE_NS UINT64_C(50000)

struct vb_rc_window {
	uint32_t size, most, threshold;	/* packets */
	uint32_t grown;			/* since the last step: see growth() */
	uint64_t smooth_ns, variance_ns; /* round trip; 0: none measured */
	uint64_t least_ns, least_at, last_ns, before_last_ns;
	/* the least of the last group of round trips, and of this group so far */
	uint64_t standing_ns, group_least_ns;
	bool is_stale;			/* standing_ns is from before the last cut */
	uint64_t full_ns;		/* what the queue took when it was last full; 0: unknown */
	uint32_t group;			/* measured in this group */
	/* delivered packets of the last whole period, and its length */
	uint64_t counted_from, rate_packets, rate_ns;
	uint32_t counted;
	unsigned rto_doublings;		/* since an answer came within it */
	uint64_t marked_at;		/* the last time; 0: never */
	uint64_t paced_ns;		/* when the pace would have sent the last packet */
};

void vb_rc_window_init(struct vb_rc_window *w, uint32_t most);
void vb_rc_window_measured(struct vb_rc_window *w, uint64_t now, uint64_t round_trip_ns);
/* packets were acknowledged; in_flight: how many were in flight before. */
void vb_rc_window_acknowledged(struct vb_rc_window *w, uint64_t now, uint32_t packets, uint64_t in_flight);
/* packets: how many of a round trip's are known to be lost. True: the window was cut, for all of them. */
bool vb_rc_window_lost(struct vb_rc_window *w, uint32_t packets);
/* Packets that the path has just carried in its least round trip: what is under way without a queue. */
uint64_t vb_rc_window_carried(const struct vb_rc_window *w);
/* The RTO expired. */
void vb_rc_window_timed_out(struct vb_rc_window *w);
/* A queue on the path marks packets. At most once per round trip. */
void vb_rc_window_marked(struct vb_rc_window *w, uint64_t now);
/* When the pace lets the next packet go: now, or so much later that several may go at once. */
uint64_t vb_rc_window_pace_ns(const struct vb_rc_window *w, uint64_t now);
/* packets went out, or as many responses were asked for. */
void vb_rc_window_sent(struct vb_rc_window *w, uint64_t now, uint32_t packets);
/*
 * What was sent after the RTO expired was answered in time: undoes the doublings, if a round trip was
 * measured.
 */
void vb_rc_window_reset_rto(struct vb_rc_window *w);
/* The RTO. It doubles each time that it expires. */
uint64_t vb_rc_window_rto_ns(const struct vb_rc_window *w);
/*
 * How long a packet that was sent again may take before it counts as lost again, for the n-th time. Shorter
 * than the RTO, since a mistake costs little.
 */
uint64_t vb_rc_window_probe_ns(const struct vb_rc_window *w, unsigned n);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How much an RC requester keeps in flight, and how long it waits before it asks again. Nothing of it is seen
 * on the wire.
 *
 * The window counts packets, and the responses that READs have asked for. It opens by what was acknowledged
 * up to the threshold; beyond it by four per round trip, or by one while even the shortest round trips of
 * late are much longer than the least, which means that a queue stands on the path (a peer that waits for a
 * processor makes some of them long, not all); that also sets the threshold. Few losses while there is no
 * queue are random and change nothing. Losses at a queue, or many of them, halve the window, but not below
 * what the path has just been carrying (delivery rate times least round trip). A silence quarters it, with
 * the threshold at the half. It grows only while it is really used.
 *
 * Pacing: where a round trip takes long, the window goes out spread over it, somewhat faster than it will be
 * acknowledged, so that what a pause or one ACK lets go at once does not meet a short queue as one burst.
 */
#ifndef VB_PROTO_RC_WINDOW_H
#define VB_PROTO_RC_WINDOW_H

#include "base/base.h"

enum { VB_RC_WINDOW_LEAST = 4, VB_RC_WINDOW_START = 64 };

struct vb_rc_window {
	uint32_t size, most, threshold;	/* packets */
	uint32_t grown;			/* acknowledged since the last step */
	uint64_t smooth_ns, variance_ns; /* round trip; 0: none measured */
	uint64_t least_ns, least_at;
	/* the least of the last bunch of round trips, and of this one so far */
	uint64_t standing_ns, bunch_least_ns;
	uint32_t bunch;			/* measured in this one */
	/* delivered packets of the last whole period, and its length */
	uint64_t counted_from, rate_packets, rate_ns;
	uint32_t counted;
	unsigned silences;		/* since the patience was last seen to suffice */
	uint64_t paced_ns;		/* when the pace would have sent the last packet */
};

void vb_rc_window_init(struct vb_rc_window *w, uint32_t most);
void vb_rc_window_measured(struct vb_rc_window *w, uint64_t now, uint64_t round_trip_ns);
/* packets were acknowledged; in_flight: how many were under way before. */
void vb_rc_window_acknowledged(struct vb_rc_window *w, uint64_t now, uint32_t packets, uint64_t in_flight);
/* At most once per round trip. packets: how many had to be sent again since the last time. */
void vb_rc_window_lost(struct vb_rc_window *w, uint64_t packets);
void vb_rc_window_silent(struct vb_rc_window *w);
/* A queue on the path says that it fills. At most once per round trip. */
void vb_rc_window_congested(struct vb_rc_window *w);
/*
 * When the next packet may go out, as far as the pace goes: now, or later; then so late that several may go
 * at once.
 */
uint64_t vb_rc_window_pace_ns(const struct vb_rc_window *w, uint64_t now);
/* packets went out, or as many responses were asked for. */
void vb_rc_window_sent(struct vb_rc_window *w, uint64_t now, uint32_t packets);
/*
 * What was sent after the last silence was answered before another: the patience is long enough again, if it
 * was measured at all.
 */
void vb_rc_window_heard(struct vb_rc_window *w);
/* How long to wait for an answer; doubled by each silence. */
uint64_t vb_rc_window_patience_ns(const struct vb_rc_window *w);
/*
 * How long a packet that was sent again may take before it counts as lost again, for the n-th time; shorter,
 * as little is at stake.
 */
uint64_t vb_rc_window_probe_ns(const struct vb_rc_window *w, unsigned n);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How much an RC requester keeps in flight, and how long it waits before it asks again. Nothing of it is seen on the wire.
 *
 * The window (packets, counting the responses that READs have asked for) opens as TCP's does: by what was acknowledged up to
 * the threshold, then by one per window. A loss halves it, but not below what the path has just been carrying (delivery
 * rate times least round-trip time): random loss on an empty path costs no speed, loss at a full queue makes room.
 * A silence halves it without that floor. It grows only while it is really used.
 */
#ifndef VB_PROTO_RC_WINDOW_H
#define VB_PROTO_RC_WINDOW_H

#include "base/base.h"

enum { VB_RC_WINDOW_LEAST = 4, VB_RC_WINDOW_START = 64 };

struct vb_rc_window {
	uint32_t size, most, threshold;	/* packets */
	uint32_t grown;			/* acknowledged since the last step of one */
	uint64_t smooth_ns, variance_ns; /* round trip; 0: none measured */
	uint64_t least_ns, least_at;
	uint64_t counted_from, rate_packets, rate_ns; /* delivered packets of the last whole period, and its length */
	uint32_t counted;
	unsigned silences;		/* in a row */
};

void vb_rc_window_init(struct vb_rc_window *w, uint32_t most);
void vb_rc_window_measured(struct vb_rc_window *w, uint64_t now, uint64_t round_trip_ns);
/* packets were acknowledged; in_flight: how many were under way before. */
void vb_rc_window_acknowledged(struct vb_rc_window *w, uint64_t now, uint32_t packets, uint64_t in_flight);
void vb_rc_window_lost(struct vb_rc_window *w);
void vb_rc_window_silent(struct vb_rc_window *w);
/* How long to wait for an answer; doubled by each silence. */
uint64_t vb_rc_window_patience_ns(const struct vb_rc_window *w);

#endif

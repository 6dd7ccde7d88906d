/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the two halves of the requester share: rc_requester.c sends, rc_replies.c handles replies and
 * timeouts.
 */
#ifndef VB_PROTO_RC_REQUESTER_INTERNAL_H
#define VB_PROTO_RC_REQUESTER_INTERNAL_H

#include "proto/rc/rc_requester.h"

enum { VB_RC_MOST_PROBES = 3 };

static inline struct vb_rc_entry *entry_at(const struct vb_rc_req *req, uint32_t position)
{
	return &req->entries[position & req->mask];
}

static inline bool is_answered_entry(const struct vb_rc_entry *entry)
{
	return vb_request_is_answered(&entry->request);
}

static inline bool is_recovering(const struct vb_rc_req *req) { return req->acked < req->recover_end; }

static inline bool has_answer(const struct vb_rc_req *req, uint64_t psn)
{
	return req->answered[psn % VB_RC_WINDOW / 64] >> psn % 64 & 1;
}

/* Is the request at this position at or behind one that fails? */
static inline bool is_beyond_failure(const struct vb_rc_req *req, uint32_t position)
{
	return req->failing && (int32_t)(position - req->failure_position) >= 0;
}

/* The request that a PSN in [una, next) belongs to. */
static inline uint32_t position_of(const struct vb_rc_req *req, uint64_t psn)
{
	/* both count from head; the result is in [low, high] */
	uint32_t low = 0, high = req->sending - req->head;

	while (low < high) {
		uint32_t middle = low + (high - low + 1) / 2;
		if (entry_at(req, req->head + middle)->first <= psn)
			low = middle;
		else
			high = middle - 1;
	}
	return req->head + low;
}

/* Nothing may be sent before, so no answer can be missed until then. */
static inline uint64_t sends_from(const struct vb_rc_req *req, uint64_t now)
{
	return vb_max_u64(now, req->rnr_until);
}

/* Starts the timers for what is in flight. */
static inline void start_timers(struct vb_rc_req *req, uint64_t now)
{
	uint64_t timeout = req->config.ack_timeout_ns, rto = vb_rc_window_rto_ns(&req->window),
		 from = sends_from(req, now);

	req->rto_at = from + (timeout ? vb_min_u64(rto, timeout) : rto);
	req->timeout_at = timeout ? from + timeout : VB_RC_NEVER;
}

/* Sets when the requester sends a packet that it has sent again once more, if that is still missing. */
static inline void start_probe(struct vb_rc_req *req, uint64_t now)
{
	if (req->window.smooth_ns && req->probes < VB_RC_MOST_PROBES)
		req->probe_at = vb_max_u64(req->resent_at + vb_rc_window_probe_ns(&req->window, req->probes),
					   sends_from(req, now) + VB_RC_LEAST_PROBE_NS);
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/* The half of the RC requester that handles replies and timeouts. */
#include "proto/rc/rc_requester.h"
#include "proto/rc/rc_requester_internal.h"
#include "wire/syndrome.h"
#include "wire/timers.h"

enum { BURST_FOR_DROPPERS = 8, SINGLE_HOLES = 4, MOST_AT_ONCE = 32 };

/* ---- what to resend ---- */

static void schedule(struct vb_rc_req *req, uint64_t from, uint64_t end)
{
	if (req->resend_from >= req->resend_end) {
		req->resend_from = from;
		req->resend_end = end;
		return;
	}
	if (from < req->resend_from)
		req->resend_from = from;
	if (end > req->resend_end)
		req->resend_end = end;
}

static void resend(struct vb_rc_req *req, uint64_t from, uint32_t burst)
{
	req->burst = burst;
	req->burst_end = vb_min_u64(from + burst, req->recover_end);
	schedule(req, from, req->burst_end);
}

/* A responder that keeps packets names one hole in a round trip: all that are left would take too long. */
static bool has_many_holes(const struct vb_rc_req *req)
{
	return req->peer == VB_RC_PEER_KEEPS && req->lost > SINGLE_HOLES;
}

/* The responder may be waiting for acked. */
static void recover(struct vb_rc_req *req, uint32_t burst)
{
	req->recover_end = req->next;
	req->timed_psn = 0;
	resend(req, req->acked, burst);
}

/* The window was cut for whatever is lost of the packets in flight. */
static void note_cut(struct vb_rc_req *req)
{
	req->cut_end = req->next;
	req->is_cut = true;
}

/* More packets are found lost. */
static void note_loss(struct vb_rc_req *req, uint32_t packets)
{
	if (req->una >= req->cut_end) {
		req->cut_end = req->next;
		req->lost = 0;
		req->is_cut = false;
	}
	req->lost += packets;
	if (!req->is_cut)
		req->is_cut = vb_rc_window_lost(&req->window, req->lost);
}

/* Answers to what is before acked that are missing, from *psn on, which becomes the first of them. */
static uint32_t count_missing(const struct vb_rc_req *req, uint64_t *psn)
{
	uint32_t missing = 0;

	for (uint64_t at = *psn; at < req->acked;) {
		const struct vb_rc_entry *entry = entry_at(req, position_of(req, at));
		uint64_t end = vb_min_u64(entry->end, req->acked);
		for (; at < end && is_answered_entry(entry); at++)
			if (!has_answer(req, at) && !missing++)
				*psn = at;
		at = end;
	}
	return missing;
}

/* Requests answers that the responder has sent, that are missing, and that were not requested again yet. */
static void ask_for_holes(struct vb_rc_req *req)
{
	uint64_t psn = vb_max_u64(req->una, req->holes_asked);
	uint32_t missing = count_missing(req, &psn);

	req->holes_asked = vb_max_u64(req->holes_asked, req->acked);
	if (!missing)
		return;
	schedule(req, psn, req->acked);
	req->timed_psn = 0;
	note_loss(req, missing);
}

/* ---- progress ---- */

static bool clear_answer(struct vb_rc_req *req, uint64_t psn)
{
	uint64_t *word = &req->answered[psn % VB_RC_WINDOW / 64], bit = UINT64_C(1) << psn % 64;
	bool had = *word & bit;

	*word &= ~bit;
	return had;
}

/* The end of the oldest request's PSNs that are done. */
static uint64_t done_within(struct vb_rc_req *req, const struct vb_rc_entry *entry)
{
	uint64_t end = vb_min_u64(entry->end, req->next), una = req->una;

	if (!is_answered_entry(entry))
		return req->acked > una ? vb_min_u64(end, req->acked) : una;
	while (una < end && clear_answer(req, una))
		una++;
	return una;
}

/* Moves una over what is done and completes requests. */
static void advance_una(struct vb_rc_req *req)
{
	while (req->head != req->tail && !req->broken) {
		const struct vb_rc_entry *entry = entry_at(req, req->head);
		req->una = done_within(req, entry);
		if (req->una < entry->end)
			break;
		if (req->sending == req->head)
			req->sending++;
		req->head++;
		req->broken = req->failing && req->head == req->failure_position;
	}
	while (req->reads_count && req->reads[req->reads_head].end <= req->una) {
		req->reads_head = (req->reads_head + 1) % VB_RC_MAX_RD_ATOMIC;
		req->reads_count--;
	}
}

/* After progress. */
static void reset_timers(struct vb_rc_req *req, uint64_t now)
{
	req->retries = req->rnr_retries = req->probes = 0;
	req->rto_at = req->timeout_at = req->probe_at = VB_RC_NEVER;
	if (req->una != req->next)
		start_timers(req, now);
	if (req->acked < req->burst_end)	/* more of what was sent again is under way */
		start_probe(req, now);
}

/*
 * acked has advanced while recovering: to before the end of what was resent, to the end, or beyond. At the
 * end or a little beyond: a run of losses, or a responder that drops packets, so the next burst is larger.
 * Far beyond: one packet was missing. After some of these the requester expects many more.
 */
static void continue_recovery(struct vb_rc_req *req, bool is_nak)
{
	if (req->acked < req->burst_end)
		return;
	uint64_t beyond = req->acked - req->burst_end;
	if (beyond)
		req->peer = VB_RC_PEER_KEEPS;
	else if (!is_nak)	/* the first time, all behind it may have been lost */
		req->peer = req->peer == VB_RC_PEER_KEEPS ? VB_RC_PEER_UNKNOWN : VB_RC_PEER_DROPS;
	note_loss(req, beyond ? 1 : req->burst);
	bool grows = beyond <= 4 * req->burst || has_many_holes(req);
	uint32_t most = req->peer == VB_RC_PEER_DROPS ? VB_RC_WINDOW : MOST_AT_ONCE;
	resend(req, req->acked, grows ? vb_min_u32(req->burst * 2, most) : 1);
}

/*
 * Measures the round trip of the timed packet, whose ACK has come. If the packet was sent twice, the ACK may
 * be for the first copy, and the time too short. So a time that is shorter than all before does not count.
 */
static void measure(struct vb_rc_req *req, uint64_t now)
{
	uint64_t round_trip = now - req->timed_at;

	if (!req->is_timed_again || round_trip >= req->window.least_ns)
		vb_rc_window_measured(&req->window, now, round_trip);
	req->timed_psn = 0;
}

/*
 * The responder has executed everything before `acked`. An answer is recorded before this call.
 */
static void progress(struct vb_rc_req *req, uint64_t now, uint64_t acked, bool is_nak)
{
	uint64_t una = req->una, in_flight = req->next - una;
	bool stepped = acked > req->acked, was_recovering = is_recovering(req);

	if (stepped)
		req->acked = acked;
	advance_una(req);
	if (req->timed_psn && req->acked > req->timed_psn)
		measure(req, now);
	if (req->acked > req->rto_end)
		vb_rc_window_reset_rto(&req->window);
	if (req->una > una)
		vb_rc_window_acknowledged(&req->window, now, (uint32_t)(req->una - una), in_flight);
	if (req->una > una || stepped)
		reset_timers(req, now);
	if (stepped && was_recovering && is_recovering(req))
		continue_recovery(req, is_nak);
	ask_for_holes(req);
}

/* ---- replies ---- */

static void receive_rnr(struct vb_rc_req *req, uint64_t now, uint64_t psn, unsigned code)
{
	if (req->config.rnr_retry != VB_RNR_RETRY_FOREVER && req->rnr_retries++ >= req->config.rnr_retry) {
		vb_rc_req_break(req, position_of(req, psn), VB_RC_RNR_RETRY_EXCEEDED);
		return;
	}
	req->rnr_until = now + vb_rnr_timer_ns(code);
	req->rto_at = req->timeout_at = req->probe_at = VB_RC_NEVER;
	recover(req, 1);
}

static void receive_sequence_error(struct vb_rc_req *req, uint64_t psn)
{
	bool is_due = req->resend_from <= psn && psn < req->resend_end,
	     is_under_way = is_recovering(req) && psn < req->burst_end && req->peer != VB_RC_PEER_DROPS;

	req->nak_psn = psn;
	if (is_due || is_under_way) {
		req->recover_end = req->next;
		return;
	}
	note_loss(req, 1);
	recover(req, req->peer == VB_RC_PEER_DROPS ? BURST_FOR_DROPPERS : 1);
}

static enum vb_rc_status status_of_nak(unsigned code)
{
	switch (code) {
	case VB_NAK_INVALID_REQUEST: return VB_RC_REMOTE_INVALID_REQUEST;
	case VB_NAK_REMOTE_ACCESS: return VB_RC_REMOTE_ACCESS;
	case VB_NAK_REMOTE_OPERATIONAL: return VB_RC_REMOTE_OPERATIONAL;
	}
	return VB_RC_SUCCESS;	/* not a NAK that ends the connection */
}

/* The PSN is one of a READ or atomic that the responder has executed, and the answer has not come. */
static bool is_answer_missing(const struct vb_rc_req *req, uint64_t psn)
{
	return req->una <= psn && psn < req->acked &&
	       is_answered_entry(entry_at(req, position_of(req, psn))) && !has_answer(req, psn);
}

/* The responder was asked for the answer again, and refuses. */
static enum vb_rc_verdict receive_refusal(struct vb_rc_req *req, uint64_t psn, enum vb_rc_status status)
{
	uint32_t position = position_of(req, psn);

	if (is_beyond_failure(req, position))
		return VB_RC_IGNORED;
	req->fatal_naks++;
	vb_rc_req_break(req, position, status);
	return req->broken ? VB_RC_BROKEN : VB_RC_TAKEN;
}

static enum vb_rc_verdict receive_nak(struct vb_rc_req *req, uint64_t now, uint64_t psn, uint8_t syndrome)
{
	unsigned value = vb_syndrome_value(syndrome);
	bool is_rnr = vb_syndrome_class(syndrome) == VB_AETH_RNR,
	     is_sequence = !is_rnr && value == VB_NAK_SEQUENCE;
	enum vb_rc_status fatal = is_rnr ? VB_RC_SUCCESS : status_of_nak(value);

	if (fatal != VB_RC_SUCCESS && is_answer_missing(req, psn))
		return receive_refusal(req, psn, fatal);
	if (psn < req->acked || psn >= req->next || now < req->rnr_until)
		return VB_RC_IGNORED;
	if (is_sequence && is_recovering(req) && req->nak_psn == psn)
		/* a duplicate; only the probe or the RTO finds that what was resent is lost */
		return VB_RC_IGNORED;
	if (!is_rnr && !is_sequence && fatal == VB_RC_SUCCESS)
		return VB_RC_IGNORED;
	progress(req, now, psn, true);
	if (req->broken)
		return VB_RC_BROKEN;
	if (is_beyond_failure(req, position_of(req, psn)))
		return VB_RC_TAKEN; /* it is not sent again; the timers are for what is before it */
	++*(is_rnr ? &req->rnr_naks : is_sequence ? &req->sequence_naks : &req->fatal_naks);
	if (is_rnr)
		receive_rnr(req, now, psn, value);
	else if (is_sequence)
		receive_sequence_error(req, psn);
	else
		vb_rc_req_break(req, position_of(req, psn), fatal);
	return req->broken ? VB_RC_BROKEN : VB_RC_TAKEN;
}

/* Receives are never withdrawn, so an ACK with fewer credits is late. */
static void learn_credits(struct vb_rc_req *req, const struct vb_packet *packet)
{
	if (!vb_opcode_has(packet->row, VB_EXT_AETH))
		return;
	const struct vb_aeth *aeth = (const struct vb_aeth *)vb_packet_extension(packet, VB_EXT_AETH);
	uint8_t syndrome = (uint8_t)vb_aeth_syndrome(aeth);
	if (vb_syndrome_class(syndrome) != VB_AETH_ACK)
		return;
	bool had_credits = req->has_credits;
	req->has_credits = vb_syndrome_value(syndrome) != VB_AETH_NO_CREDITS;
	if (!req->has_credits)
		return;
	uint32_t end = vb_aeth_msn(aeth) + vb_credits(vb_syndrome_value(syndrome));
	if (!had_credits || (int32_t)((end - req->credit_end) << 8) > 0)
		req->credit_end = end;
}

static enum vb_rc_verdict receive_ack(struct vb_rc_req *req, uint64_t now, uint64_t psn,
				      const struct vb_packet *packet)
{
	const struct vb_aeth *aeth = (const struct vb_aeth *)vb_packet_extension(packet, VB_EXT_AETH);
	uint8_t syndrome = (uint8_t)vb_aeth_syndrome(aeth);

	switch (vb_syndrome_class(syndrome)) {
	case VB_AETH_ACK:
		if (psn < req->acked || psn >= req->next)
			return VB_RC_IGNORED;
		learn_credits(req, packet);
		progress(req, now, psn + 1, false);
		return req->broken ? VB_RC_BROKEN : VB_RC_TAKEN;
	case VB_AETH_RNR:
	case VB_AETH_NAK:
		return receive_nak(req, now, psn, syndrome);
	}
	return VB_RC_IGNORED;
}

static int place_read(struct vb_rc_req *req, uint32_t position, uint64_t offset,
		      const struct vb_packet *packet)
{
	if (packet->payload_bytes == 0)
		return 0;
	return req->config.place(req->config.ctx, position, offset, packet->payload, packet->payload_bytes);
}

static int place_atomic(struct vb_rc_req *req, uint32_t position, const struct vb_packet *packet)
{
	const uint8_t *header = vb_packet_extension(packet, VB_EXT_ATOMICACKETH);
	uint64_t original = vb_atomicacketh_original((const struct vb_atomicacketh *)header);

	return req->config.place(req->config.ctx, position, 0, &original, sizeof(original));
}

static bool is_atomic(const struct vb_rc_entry *entry)
{
	return entry->request.kind == VB_REQ_COMPARE_SWAP || entry->request.kind == VB_REQ_FETCH_ADD;
}

static enum vb_rc_verdict receive_answer(struct vb_rc_req *req, uint64_t now, uint64_t psn,
					 const struct vb_packet *packet)
{
	if (psn < req->una || psn >= req->next || has_answer(req, psn))
		return VB_RC_IGNORED;
	uint32_t position = position_of(req, psn);
	const struct vb_rc_entry *entry = entry_at(req, position);
	bool atomic = packet->row->operation == VB_OP_ATOMIC_ACK;
	if (!is_answered_entry(entry) || is_atomic(entry) != atomic)
		return VB_RC_IGNORED;
	learn_credits(req, packet);
	uint64_t offset = (psn - entry->first) * req->config.mtu;
	if (!atomic && packet->payload_bytes !=
			       vb_min_u64(req->config.mtu, vb_request_answer_bytes(&entry->request) - offset))
		vb_rc_req_break(req, position, VB_RC_BAD_RESPONSE);
	else if (atomic ? place_atomic(req, position, packet) : place_read(req, position, offset, packet))
		vb_rc_req_break(req, position, VB_RC_LOCAL);
	else
		req->answered[psn % VB_RC_WINDOW / 64] |= UINT64_C(1) << psn % 64;
	progress(req, now, psn + 1, false);
	return req->broken ? VB_RC_BROKEN : VB_RC_TAKEN;
}

static enum vb_rc_verdict receive_congestion(struct vb_rc_req *req, uint64_t now)
{
	if ((req->una < req->cut_end && req->is_cut) || req->una == req->next)
		return VB_RC_IGNORED;
	note_cut(req);
	vb_rc_window_marked(&req->window, now);
	return VB_RC_TAKEN;
}

enum vb_rc_verdict vb_rc_req_receive(struct vb_rc_req *req, uint64_t now, const struct vb_packet *packet)
{
	if (req->broken || !vb_pkey_matches(packet->pkey, req->config.to.pkey))
		return VB_RC_IGNORED;
	if (packet->row->operation == VB_OP_CNP)
		return receive_congestion(req, now);
	if (packet->opcode >> VB_OPCODE_BITS != req->config.to.service)
		return VB_RC_IGNORED;
	uint64_t psn = vb_psn_expand(req->una, packet->psn);
	switch ((enum vb_operation)packet->row->operation) {
	case VB_OP_ACK:
		return receive_ack(req, now, psn, packet);
	case VB_OP_READ_RESPONSE:
	case VB_OP_ATOMIC_ACK:
		return receive_answer(req, now, psn, packet);
	case VB_OP_SEND:
	case VB_OP_WRITE:
	case VB_OP_READ:
	case VB_OP_ATOMIC:
	case VB_OP_ATOMIC_WRITE:
	case VB_OP_FLUSH:
	case VB_OP_CNP:
		break;
	}
	return VB_RC_IGNORED;
}

/* ---- timeouts ---- */

/* Schedules everything that is known to be missing. */
static void resend_missing(struct vb_rc_req *req)
{
	req->probe_at = VB_RC_NEVER;
	req->holes_asked = req->una;
	ask_for_holes(req);
	if (is_recovering(req))
		resend(req, req->acked, has_many_holes(req) ? (req->burst + 1) / 2 : 1);
}

static void rto_expired(struct vb_rc_req *req, uint64_t now)
{
	uint64_t timeout = req->timeout_at;

	vb_rc_window_timed_out(&req->window);
	note_cut(req);
	req->rto_end = req->next;
	req->peer = VB_RC_PEER_UNKNOWN;
	req->nak_psn = 0;
	if (req->acked < req->next)
		recover(req, 1);
	resend_missing(req);
	start_timers(req, now);
	if (timeout != VB_RC_NEVER) /* else it was switched on since */
		req->timeout_at = timeout;
}

void vb_rc_req_expire(struct vb_rc_req *req, uint64_t now)
{
	if (req->broken)
		return;
	if (now >= req->rnr_until)
		req->rnr_until = 0;
	if (now >= req->pace_at)
		req->pace_at = VB_RC_NEVER;
	if (!req->config.ack_timeout_ns) /* it may have been switched off since */
		req->timeout_at = VB_RC_NEVER;
	bool timed_out = now >= req->timeout_at;
	if (timed_out) {
		req->timeouts++;
		if (req->retries++ >= req->config.retry_count) {
			vb_rc_req_break(req, req->head, VB_RC_RETRY_EXCEEDED);
			return;
		}
		req->timeout_at = now + req->config.ack_timeout_ns;
	}
	if (timed_out || now >= req->rto_at)
		rto_expired(req, now);
	else if (now >= req->probe_at) {
		req->probes++;
		resend_missing(req);
	}
}

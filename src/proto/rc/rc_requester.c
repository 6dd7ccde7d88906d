/* SPDX-License-Identifier: BSD-2-Clause */
#include "proto/rc/rc_requester.h"

#include <errno.h>

#include "proto/rc/rc_requester_internal.h"

enum {
	ASK_EVERY = 32,		/* packets at most between those that ask for an ACK */
};

void vb_rc_req_init(struct vb_rc_req *req, const struct vb_rc_req_config *config, struct vb_rc_entry *entries,
		    uint32_t num_entries)
{
	uint64_t first = vb_psn_first(config->first_psn);

	*req = (struct vb_rc_req){
		.config = *config,
		.entries = entries,
		.mask = num_entries - 1,
		.una = first,
		.acked = first,
		.next = first,
		.end = first,
		.asked = first,
		.rto_at = VB_RC_NEVER,
		.timeout_at = VB_RC_NEVER,
		.probe_at = VB_RC_NEVER,
		.pace_at = VB_RC_NEVER,
	};
	vb_rc_window_init(&req->window, config->max_window);
}

int vb_rc_req_post(struct vb_rc_req *req, const struct vb_request *request)
{
	if (vb_request_check(request, VB_SERVICE_RC))
		return -EINVAL;
	if (req->tail - req->head > req->mask)
		return -EAGAIN;
	*entry_at(req, req->tail) = (struct vb_rc_entry){
		.request = *request,
		.first = req->end,
		.end = req->end + vb_request_packets(request, req->config.mtu),
	};
	req->end = entry_at(req, req->tail)->end;
	req->tail++;
	return 0;
}

void vb_rc_req_skip(struct vb_rc_req *req)
{
	req->head = req->reported = req->sending = ++req->tail;
}

static void make_packet(struct vb_rc_req *req, uint32_t position, uint64_t psn, uint32_t count,
			struct vb_packet_out *out)
{
	const struct vb_rc_entry *entry = entry_at(req, position);

	vb_request_packet(&entry->request, &req->config.to, req->config.mtu, (uint32_t)psn,
		(uint32_t)(psn - entry->first), count, out);
	out->position = position;
}

/* ---- resending ---- */

/* How many answers from psn on are missing, within the READ request that first asked for them. */
static uint32_t missing_run(const struct vb_rc_req *req, uint64_t psn)
{
	uint64_t end = psn + 1;

	for (unsigned i = 0; i < req->reads_count; i++) {
		unsigned at = (req->reads_head + i) % VB_RC_MAX_RD_ATOMIC;
		if (req->reads[at].first <= psn && psn < req->reads[at].end)
			end = req->reads[at].end;
	}
	uint64_t run = psn + 1;
	while (run < end && !has_answer(req, run))
		run++;
	return (uint32_t)(run - psn);
}

static void resend_read(struct vb_rc_req *req, uint32_t position, uint64_t psn, struct vb_packet_out *out)
{
	uint32_t count = missing_run(req, psn);

	make_packet(req, position, psn, count, out);
	req->resend_from = psn + count;
	if (is_recovering(req) && psn >= req->acked && req->burst_end < req->resend_from)
		req->burst_end = req->resend_from;
}

static void resend_data(struct vb_rc_req *req, uint32_t position, uint64_t psn, struct vb_packet_out *out)
{
	make_packet(req, position, psn, 1, out);
	req->resend_from = psn + 1;
	if (req->resend_from >= req->resend_end || req->resend_from == req->burst_end)
		vb_packet_out_ask(out);
}

/*
 * Times a packet that is sent again because a NAK named it. While losses are frequent, the requester has few
 * other round trips to measure. It does not time probes: an ACK may answer the packet sent before the probe.
 */
static void time_resend(struct vb_rc_req *req, uint64_t now, uint64_t psn)
{
	bool is_named = psn == req->acked && psn == req->nak_psn && !req->probes;

	req->timed_psn = is_named ? psn : 0;
	req->timed_at = now;
	req->is_timed_again = true;
}

/* Moves resend_from to the first PSN that is still missing. False: there is none. */
static bool find_missing(struct vb_rc_req *req, uint32_t *position)
{
	if (req->resend_from < req->una)
		req->resend_from = req->una;
	while (req->resend_from < vb_min_u64(req->resend_end, req->next)) {
		*position = position_of(req, req->resend_from);
		const struct vb_rc_entry *entry = entry_at(req, *position);
		bool answered = is_answered_entry(entry);
		if (is_beyond_failure(req, *position))
			return false;
		if (answered ? !has_answer(req, req->resend_from) : req->resend_from >= req->acked)
			return true;
		req->resend_from = answered ? req->resend_from + 1 : vb_min_u64(entry->end, req->acked);
	}
	return false;
}

static bool write_resend(struct vb_rc_req *req, uint64_t now, struct vb_packet_out *out)
{
	uint32_t position;

	if (req->resend_from >= req->resend_end || !find_missing(req, &position)) {
		req->resend_from = req->resend_end = 0;
		return false;
	}
	time_resend(req, now, req->resend_from);
	if (is_answered_entry(entry_at(req, position)))
		resend_read(req, position, req->resend_from, out);
	else
		resend_data(req, position, req->resend_from, out);
	req->packets_resent++;
	req->resent_at = now;
	start_probe(req, now);
	return true;
}

/* ---- sending ---- */

/*
 * What may be in flight. While a hole is being filled, what went behind it has mostly arrived, though no ACK
 * can say so. Without some packets more the link would be idle until the hole's ACK comes.
 */
static uint32_t window_of(const struct vb_rc_req *req)
{
	uint64_t more = is_recovering(req) ? vb_rc_window_carried(&req->window) : 0;

	return (uint32_t)vb_min_u64(req->window.size + more, req->window.most);
}

static bool is_window_full(const struct vb_rc_req *req) { return req->next - req->una >= window_of(req); }

/* How many responses to ask for: enough to use the window in few requests; 0: better wait for more room. */
static uint32_t read_share(const struct vb_rc_req *req, const struct vb_rc_entry *entry)
{
	uint32_t size = window_of(req), room = size - (uint32_t)(req->next - req->una);
	uint32_t sharers = vb_min_u32(req->config.max_rd_atomic, 4);
	uint32_t left = (uint32_t)vb_min_u64(entry->end - req->next, size);

	return room < vb_min_u32(left, size / 4) ? 0 : vb_min_u32(left, vb_min_u32(room, size / sharers));
}

/* Do the credits permit this many messages? MSNs have 24 bits. */
static bool is_within_credits(const struct vb_rc_req *req, uint32_t messages)
{
	return !req->has_credits || (int32_t)((messages - req->credit_end) << 8) <= 0;
}

/* Is a receive known for the next packet's message? If not, the packet may go alone. */
static bool has_credit(const struct vb_rc_req *req, const struct vb_rc_entry *entry)
{
	bool begins = req->next == entry->first;

	if (!vb_request_takes_receive(&entry->request) || (!begins && req->acked > entry->first))
		return true;
	return is_within_credits(req, req->messages + begins) || req->una == req->next;
}

/* The next request to send; false: it fails. max_rd_atomic may have become 0 since it was posted. */
static bool is_permitted(struct vb_rc_req *req, const struct vb_rc_entry *entry)
{
	if (!is_answered_entry(entry) || req->config.max_rd_atomic)
		return true;
	vb_rc_req_break(req, req->sending, VB_RC_LOCAL_OPERATION);
	return false;
}

static bool may_go(const struct vb_rc_req *req, const struct vb_rc_entry *entry)
{
	if (is_window_full(req) || (is_recovering(req) && req->peer != VB_RC_PEER_KEEPS))
		return false;
	if (entry->request.fence && req->next == entry->first && req->reads_count)
		return false;
	if (is_answered_entry(entry))
		return req->reads_count < req->config.max_rd_atomic;
	return has_credit(req, entry);
}

/* Called last: then only the pace delays the packet. */
static bool is_held_by_pace(struct vb_rc_req *req, uint64_t now)
{
	uint64_t at = vb_rc_window_pace_ns(&req->window, now);

	req->pace_at = at > now ? at : VB_RC_NEVER;
	return at > now;
}

static void note_read(struct vb_rc_req *req, uint32_t count)
{
	unsigned at = (req->reads_head + req->reads_count++) % VB_RC_MAX_RD_ATOMIC;

	req->reads[at].first = req->next;
	req->reads[at].end = req->next + count;
}

/* An ACK is requested where something waits for it, and regularly. */
static bool wants_ack(const struct vb_rc_req *req)
{
	uint64_t every = vb_min_u32(ASK_EVERY, req->window.size / 4);

	return req->next == req->end || is_window_full(req) || req->next - req->asked >= every;
}

/* After this packet, the begin or the end of its message, the next message may have to wait for an ACK. */
static bool is_last_credit(const struct vb_rc_req *req, const struct vb_rc_entry *entry, uint64_t psn)
{
	return !is_within_credits(req, req->messages + 1) && (psn == entry->first || req->next == entry->end);
}

static bool write_new(struct vb_rc_req *req, uint64_t now, struct vb_packet_out *out)
{
	if (req->next == req->end)
		return false;
	if (req->next == entry_at(req, req->sending)->end)
		req->sending++;
	const struct vb_rc_entry *entry = entry_at(req, req->sending);
	bool answered = is_answered_entry(entry);
	if (is_beyond_failure(req, req->sending) || !is_permitted(req, entry) || !may_go(req, entry))
		return false;
	uint32_t count = answered ? read_share(req, entry) : 1;
	if (count == 0 || is_held_by_pace(req, now))
		return false;
	vb_rc_window_sent(&req->window, now, count);
	make_packet(req, req->sending, req->next, count, out);
	if (answered)
		note_read(req, count);
	uint64_t psn = req->next;
	req->messages += answered || psn == entry->first;
	req->next += count;
	if (answered || wants_ack(req) || is_last_credit(req, entry, psn)) {
		if (!answered)
			vb_packet_out_ask(out);
		req->asked = req->next;
		if (req->timed_psn == 0 && !is_recovering(req)) {
			req->timed_psn = psn;
			req->timed_at = now;
			req->is_timed_again = false;
		}
	}
	return true;
}

/* ---- calls ---- */

bool vb_rc_req_write(struct vb_rc_req *req, uint64_t now, struct vb_packet_out *out)
{
	if (req->broken || now < req->rnr_until)
		return false;
	req->rnr_until = 0;
	req->pace_at = VB_RC_NEVER;
	if (!write_resend(req, now, out) && !write_new(req, now, out))
		return false;
	if (req->rto_at == VB_RC_NEVER)
		start_timers(req, now);
	return true;
}

uint64_t vb_rc_req_deadline(const struct vb_rc_req *req)
{
	if (req->broken)
		return VB_RC_NEVER;
	uint64_t answer = vb_min_u64(vb_min_u64(req->rto_at, req->timeout_at),
				     vb_min_u64(req->probe_at, req->pace_at));
	return req->rnr_until ? vb_min_u64(answer, req->rnr_until) : answer;
}

bool vb_rc_req_next_completion(struct vb_rc_req *req, struct vb_rc_completion *out)
{
	if (req->reported != req->head) {
		*out = (struct vb_rc_completion){ req->reported++, VB_RC_SUCCESS };
		return true;
	}
	if (!req->broken || req->failure_reported)
		return false;
	req->failure_reported = true;
	*out = (struct vb_rc_completion){ req->failure_position, (enum vb_rc_status)req->failure };
	return true;
}

void vb_rc_req_break(struct vb_rc_req *req, uint32_t position, enum vb_rc_status status)
{
	if (req->broken || is_beyond_failure(req, position))
		return;
	req->failing = true;
	req->failure = (uint8_t)status;
	req->failure_position = position;
	req->broken = position == req->head;
}

const char *vb_rc_status_text(enum vb_rc_status status)
{
	switch (status) {
#define X(name, text) case VB_RC_##name: return text;
	VB_RC_STATUSES(X)
#undef X
	}
	return "?";
}

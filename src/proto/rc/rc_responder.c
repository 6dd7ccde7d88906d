/* SPDX-License-Identifier: BSD-2-Clause */
#include "proto/rc/rc_responder.h"

#include <errno.h>

#include "wire/syndrome.h"

/* The bytes of a packet that arrived out of order. */
struct vb_rc_kept {
	uint32_t len;
	uint8_t bytes[VB_RC_BUFFER_BYTES - sizeof(uint32_t)];
};
_Static_assert(sizeof(struct vb_rc_kept) == VB_RC_BUFFER_BYTES, "what buffer_take gives");

void vb_rc_resp_init(struct vb_rc_resp *resp, const struct vb_rc_resp_config *config)
{
	memset(resp, 0, sizeof(*resp));
	resp->config = *config;
	resp->expected = vb_psn_first(config->first_psn);
}

static struct vb_rc_kept **kept_at(struct vb_rc_resp *resp, uint64_t psn)
{
	return &resp->kept[psn % VB_RC_KEPT];
}

static void drop_kept(struct vb_rc_resp *resp, uint64_t psn)
{
	struct vb_rc_kept **at = kept_at(resp, psn);

	if (!*at)
		return;
	resp->config.buffer_give(resp->config.ctx, *at);
	*at = NULL;
	resp->kept_count--;
}

void vb_rc_resp_fini(struct vb_rc_resp *resp)
{
	for (unsigned i = 0; i < VB_RC_KEPT; i++)
		drop_kept(resp, i);
}

static uint64_t *count_of(struct vb_rc_resp *resp, uint8_t syndrome)
{
	if (vb_syndrome_class(syndrome) == VB_AETH_RNR)
		return &resp->rnr_naks;
	return vb_syndrome_value(syndrome) == VB_NAK_SEQUENCE ? &resp->sequence_naks : &resp->fatal_naks;
}

static void set_nak(struct vb_rc_resp *resp, uint64_t psn, uint8_t syndrome)
{
	if (vb_syndrome_class(syndrome) != VB_AETH_ACK)
		++*count_of(resp, syndrome);
	resp->nak_due = true;
	resp->nak_psn = psn;
	resp->nak_syndrome = syndrome;
}

/* ---- execution ---- */

/*
 * Each returns 0, VB_MESSAGE_IS_LAST, or a negative errno as in vb_responder_ops, and has changed nothing
 * then.
 */

/* The place for a READ or atomic. NULL: the peer has more of them outstanding than it may. */
static struct vb_rc_saved *next_saved(struct vb_rc_resp *resp)
{
	if (resp->saved_next - resp->saved_unsent >= resp->config.max_rd_atomic)
		return NULL;
	return &resp->saved[resp->saved_next % VB_RC_MAX_RD_ATOMIC];
}

static void save(struct vb_rc_resp *resp, struct vb_rc_saved *at, const struct vb_rc_saved *what)
{
	*at = *what;
	resp->saved_next++;
	resp->expected = what->end;
	resp->msn++;
}

static uint32_t responses(const struct vb_rc_resp *resp, uint32_t length)
{
	return length ? (uint32_t)(((uint64_t)length + resp->config.mtu - 1) / resp->config.mtu) : 1;
}

/* 0: it has none. */
static uint32_t srqn_of(const struct vb_packet *packet)
{
	if (!vb_opcode_has(packet->row, VB_EXT_XRCETH))
		return 0;
	return vb_xrceth_srqn((const struct vb_xrceth *)vb_packet_extension(packet, VB_EXT_XRCETH));
}

static int execute_read(struct vb_rc_resp *resp, const struct vb_packet *packet)
{
	const struct vb_reth *reth = (const struct vb_reth *)vb_packet_extension(packet, VB_EXT_RETH);
	struct vb_rc_saved read = { .first = resp->expected,
				    .sent = resp->expected,
				    .address = vb_reth_address(reth),
				    .rkey = vb_reth_rkey(reth),
				    .length = vb_reth_length(reth),
				    .srqn = srqn_of(packet) };
	struct vb_rc_saved *at = next_saved(resp);

	if (!at || read.length > VB_MAX_MESSAGE_BYTES)
		return -EINVAL;
	int rc = resp->config.ops->check(resp->config.ctx, read.rkey, read.address, read.length,
					 VB_ACCESS_READ);
	if (rc)
		return rc;
	read.end = read.first + responses(resp, read.length);
	save(resp, at, &read);
	return 0;
}

static int execute_atomic(struct vb_rc_resp *resp, const struct vb_packet *packet)
{
	const struct vb_atomiceth *eth =
		(const struct vb_atomiceth *)vb_packet_extension(packet, VB_EXT_ATOMICETH);
	struct vb_rc_saved answer = { .first = resp->expected, .end = resp->expected + 1,
		.sent = resp->expected, .is_atomic = true };
	bool swaps = (packet->opcode & VB_OPCODE_MASK) == VB_OPB_COMPARE_SWAP;
	struct vb_atomic atomic = { .addr = vb_atomiceth_address(eth),
				    .rkey = vb_atomiceth_rkey(eth),
				    .kind = swaps ? VB_REQ_COMPARE_SWAP : VB_REQ_FETCH_ADD,
				    .swap_or_add = vb_atomiceth_swap_or_add(eth),
				    .compare = vb_atomiceth_compare(eth) };
	struct vb_rc_saved *at = next_saved(resp);

	if (!at || atomic.addr % 8)
		return -EINVAL;
	int rc = resp->config.ops->check(resp->config.ctx, atomic.rkey, atomic.addr, 8, VB_ACCESS_ATOMIC);
	if (rc == 0)
		rc = resp->config.ops->atomic(resp->config.ctx, &atomic, &answer.original);
	if (rc)
		return rc;
	save(resp, at, &answer);
	return 0;
}

/* Answered like a READ of 0 bytes. */
static int execute_atomic_write(struct vb_rc_resp *resp, const struct vb_packet *packet)
{
	const struct vb_reth *reth = (const struct vb_reth *)vb_packet_extension(packet, VB_EXT_RETH);
	struct vb_rc_saved write = { .first = resp->expected,
				     .end = resp->expected + 1,
				     .sent = resp->expected };
	struct vb_atomic atomic = { .addr = vb_reth_address(reth),
				    .rkey = vb_reth_rkey(reth),
				    .kind = VB_REQ_ATOMIC_WRITE };
	uint64_t unused;
	struct vb_rc_saved *at = next_saved(resp);

	if (!at || atomic.addr % 8 || packet->payload_bytes != 8 || vb_reth_length(reth) != 8)
		return -EINVAL;
	memcpy(&atomic.swap_or_add, packet->payload, 8);
	int rc = resp->config.ops->check(resp->config.ctx, atomic.rkey, atomic.addr, 8, VB_ACCESS_WRITE);
	if (rc == 0)
		rc = resp->config.ops->atomic(resp->config.ctx, &atomic, &unused);
	if (rc)
		return rc;
	save(resp, at, &write);
	return 0;
}

/* Requests are executed in order, so earlier writes are complete. Answered like a READ of 0 bytes. */
static int execute_flush(struct vb_rc_resp *resp, const struct vb_packet *packet)
{
	const struct vb_feth *feth = (const struct vb_feth *)vb_packet_extension(packet, VB_EXT_FETH);
	const struct vb_reth *reth = (const struct vb_reth *)vb_packet_extension(packet, VB_EXT_RETH);
	struct vb_rc_saved flush = { .first = resp->expected,
				     .end = resp->expected + 1,
				     .sent = resp->expected };
	struct vb_rc_saved *at = next_saved(resp);

	if (!at || packet->payload_bytes || !resp->config.ops->flush)
		return -EINVAL;
	int rc = resp->config.ops->flush(resp->config.ctx, vb_reth_rkey(reth), vb_reth_address(reth),
					 vb_reth_length(reth),
					 vb_flush(vb_feth_placement(feth), vb_feth_selectivity(feth)));
	if (rc)
		return rc;
	save(resp, at, &flush);
	return 0;
}

static int execute_message(struct vb_rc_resp *resp, const struct vb_packet *packet)
{
	int rc = vb_message_execute(&resp->message, resp->config.ops, resp->config.ctx, resp->config.mtu,
				    packet);

	if (rc < 0)
		return rc;
	resp->expected++;
	resp->msn += packet->row->flags.last;
	return rc;
}

static int execute(struct vb_rc_resp *resp, const struct vb_packet *packet)
{
	if (vb_opcode_has(packet->row, VB_EXT_XRCETH) && resp->config.ops->select) {
		int rc = resp->config.ops->select(resp->config.ctx, srqn_of(packet));
		if (rc)
			return rc;
	}
	switch ((enum vb_operation)packet->row->operation) {
	case VB_OP_SEND:
	case VB_OP_WRITE: return execute_message(resp, packet);
	case VB_OP_READ: return resp->message.state ? -EINVAL : execute_read(resp, packet);
	case VB_OP_ATOMIC: return resp->message.state ? -EINVAL : execute_atomic(resp, packet);
	case VB_OP_ATOMIC_WRITE: return resp->message.state ? -EINVAL : execute_atomic_write(resp, packet);
	case VB_OP_FLUSH: return resp->message.state ? -EINVAL : execute_flush(resp, packet);
	case VB_OP_READ_RESPONSE:
	case VB_OP_ACK:
	case VB_OP_ATOMIC_ACK:
	case VB_OP_CNP:
		break;
	}
	return -EINVAL;
}

/* The receive of a message in progress counts too, since the MSN does not count the message yet. */
static uint8_t ack(const struct vb_rc_resp *resp)
{
	if (!resp->config.receives)
		return vb_syndrome(VB_AETH_ACK, VB_AETH_NO_CREDITS);
	return vb_syndrome(VB_AETH_ACK, vb_credits_code(resp->config.receives(resp->config.ctx) +
							resp->message.has_receive));
}

static uint8_t syndrome_of(int rc) { return vb_syndrome(VB_AETH_NAK, vb_nak_of(rc)); }

/* ---- arrival ---- */

static bool has_unread(const struct vb_rc_resp *resp)
{
	for (uint32_t i = resp->saved_unsent; i != resp->saved_next; i++)
		if (resp->saved[i % VB_RC_MAX_RD_ATOMIC].length)
			return true;
	return false;
}

/*
 * A READ's data are read when it is answered, and an atomic behind it must not change them before. SENDs and
 * WRITEs may: requesters that mind fence them (10.8.3).
 */
static bool must_wait(const struct vb_rc_resp *resp, const struct vb_packet *packet)
{
	enum vb_operation operation = packet->row->operation;

	return (operation == VB_OP_ATOMIC || operation == VB_OP_ATOMIC_WRITE) && has_unread(resp);
}

/* The ACK of the last request that is executed is repeated like a NAK, and the only answer from now on. */
static enum vb_rc_verdict end_by_ack(struct vb_rc_resp *resp, uint64_t psn)
{
	set_nak(resp, psn, ack(resp));
	resp->broken = true;
	return VB_RC_BROKEN;
}

static enum vb_rc_verdict receive_expected(struct vb_rc_resp *resp, const struct vb_packet *packet)
{
	uint64_t psn = resp->expected;
	int rc = execute(resp, packet);

	if (rc == -EAGAIN) {
		set_nak(resp, psn, vb_syndrome(VB_AETH_RNR, resp->config.rnr_timer));
		return VB_RC_TAKEN;
	}
	if (rc < 0) {
		set_nak(resp, psn, syndrome_of(rc));
		resp->broken = true;
		return VB_RC_BROKEN;
	}
	drop_kept(resp, psn);
	if (rc == VB_MESSAGE_IS_LAST)
		return end_by_ack(resp, psn);
	resp->nak_due = false;
	resp->last_by_ack = packet->row->operation == VB_OP_SEND || packet->row->operation == VB_OP_WRITE;
	if (!resp->last_by_ack)
		resp->ack_due = false;	/* READ or atomic: its answer acknowledges all before it */
	else if (packet->ack_request)
		resp->ack_due = true;
	return VB_RC_TAKEN;
}

/* After the execution of psn. A READ takes its answers' PSNs; no request can have those. */
static void drop_skipped(struct vb_rc_resp *resp, uint64_t psn)
{
	uint64_t end = vb_min_u64(resp->expected, psn + VB_RC_KEPT);

	while (resp->kept_count && ++psn < end)
		drop_kept(resp, psn);
}

/* What was kept behind the packet that has just been executed. */
static enum vb_rc_verdict receive_kept(struct vb_rc_resp *resp)
{
	while (resp->kept_count && *kept_at(resp, resp->expected)) {
		const struct vb_rc_kept *kept = *kept_at(resp, resp->expected);
		uint64_t psn = resp->expected;
		struct vb_packet packet;
		resp->ack_due = true;
		/* It was parsed when it came, and only we can write to it. */
		if (vb_packet_parse(kept->bytes, kept->len, &packet))
			return VB_RC_BROKEN;
		resp->waits_for_reads = must_wait(resp, &packet);
		if (resp->waits_for_reads)
			return VB_RC_TAKEN;
		if (receive_expected(resp, &packet) == VB_RC_BROKEN)
			return VB_RC_BROKEN;
		if (resp->expected == psn)
			return VB_RC_TAKEN;	/* no receive: it will be sent again */
		drop_skipped(resp, psn);
	}
	if (resp->kept_count)
		set_nak(resp, resp->expected, vb_syndrome(VB_AETH_NAK, VB_NAK_SEQUENCE));
	return VB_RC_TAKEN;
}

static void keep(struct vb_rc_resp *resp, const struct vb_packet *packet, uint64_t psn)
{
	struct vb_rc_kept **at = kept_at(resp, psn);
	size_t len = (size_t)(packet->payload - packet->bytes) + (packet->payload_bytes + 3u) / 4 * 4;

	if (psn - resp->expected >= VB_RC_KEPT || *at || len > sizeof((*at)->bytes))
		return;
	*at = resp->config.buffer_take(resp->config.ctx);
	if (!*at)
		return;
	(*at)->len = (uint32_t)len;
	memcpy((*at)->bytes, packet->bytes, len);
	resp->kept_count++;
}

static enum vb_rc_verdict receive_in_order(struct vb_rc_resp *resp, const struct vb_packet *packet)
{
	uint64_t psn = resp->expected;

	resp->waits_for_reads = false;
	if (must_wait(resp, packet)) {
		keep(resp, packet, psn);
		resp->waits_for_reads = *kept_at(resp, psn);
		return VB_RC_TAKEN;
	}
	enum vb_rc_verdict verdict = receive_expected(resp, packet);
	if (verdict == VB_RC_BROKEN || resp->expected == psn || resp->kept_count == 0)
		return verdict;
	resp->filled = psn;
	drop_skipped(resp, psn);
	return receive_kept(resp);
}

/*
 * A NAK for a sequence error goes once, since most requesters begin anew at the packet that it names, each
 * time. One that sends only this packet hears it again when it asks for an ACK: the NAK may be lost, and the
 * requester would wait for its RTO.
 */
static void nak_ahead(struct vb_rc_resp *resp, const struct vb_packet *packet)
{
	const uint8_t syndrome = vb_syndrome(VB_AETH_NAK, VB_NAK_SEQUENCE);

	if (resp->nak_psn != resp->expected)
		set_nak(resp, resp->expected, syndrome);
	else if (resp->peer_selects && packet->ack_request && resp->nak_syndrome == syndrome)
		resp->nak_due = true;
}

/* A hole was filled. The first packet behind it tells whether the peer sends again what is kept here, too. */
static void note_selection(struct vb_rc_resp *resp, uint64_t psn)
{
	if (!resp->filled || psn <= resp->filled)
		return;
	resp->peer_selects = psn >= resp->expected;
	resp->filled = 0;
}

static enum vb_rc_verdict receive_ahead(struct vb_rc_resp *resp, const struct vb_packet *packet, uint64_t psn)
{
	keep(resp, packet, psn);
	if (resp->waits_for_reads)
		return VB_RC_TAKEN; /* nothing is missing */
	resp->early++;
	nak_ahead(resp, packet);
	return VB_RC_TAKEN;
}

/* ---- duplicates ---- */

static const struct vb_rc_saved *find_saved(const struct vb_rc_resp *resp, uint64_t psn)
{
	/* What was never used is 0, and has no PSN in it. */
	for (uint32_t back = 1; back <= resp->config.max_rd_atomic; back++) {
		const struct vb_rc_saved *saved =
			&resp->saved[(resp->saved_next - back) % VB_RC_MAX_RD_ATOMIC];
		if (saved->first <= psn && psn < saved->end)
			return saved;
	}
	return NULL;
}

static enum vb_rc_verdict replay(struct vb_rc_resp *resp, const struct vb_rc_saved *what)
{
	for (unsigned i = 0; i < resp->replays_count; i++) {
		const struct vb_rc_saved *due =
			&resp->replays[(resp->replays_head + i) % VB_RC_MAX_RD_ATOMIC];
		if (due->sent <= what->first && what->end <= due->end)
			return VB_RC_IGNORED;
	}
	if (resp->replays_count == VB_RC_MAX_RD_ATOMIC)
		return VB_RC_IGNORED;
	resp->replays[(resp->replays_head + resp->replays_count++) % VB_RC_MAX_RD_ATOMIC] = *what;
	return VB_RC_TAKEN;
}

static enum vb_rc_verdict receive_duplicate_read(struct vb_rc_resp *resp, const struct vb_packet *packet,
						 uint64_t psn)
{
	const struct vb_reth *reth = (const struct vb_reth *)vb_packet_extension(packet, VB_EXT_RETH);
	const struct vb_rc_saved *saved = find_saved(resp, psn);

	if (!saved || saved->is_atomic || saved->sent <= psn)
		return VB_RC_IGNORED;	/* unknown, or its answer is due anyway */
	struct vb_rc_saved part = { .first = psn,
				    .sent = psn,
				    .address = vb_reth_address(reth),
				    .rkey = saved->rkey,
				    .length = vb_reth_length(reth),
				    .srqn = saved->srqn };
	uint64_t offset = (psn - saved->first) * resp->config.mtu;
	if (vb_reth_rkey(reth) != saved->rkey || part.address != saved->address + offset ||
	    part.length > saved->length - offset)
		return VB_RC_IGNORED;
	part.end = psn + responses(resp, part.length);
	return replay(resp, &part);
}

static enum vb_rc_verdict receive_duplicate(struct vb_rc_resp *resp, const struct vb_packet *packet,
					    uint64_t psn)
{
	const struct vb_rc_saved *saved;

	switch ((enum vb_operation)packet->row->operation) {
	case VB_OP_SEND:
	case VB_OP_WRITE:
		resp->ack_due = true;
		return VB_RC_TAKEN;
	case VB_OP_READ:
		return receive_duplicate_read(resp, packet, psn);
	case VB_OP_ATOMIC:
	case VB_OP_ATOMIC_WRITE:
	case VB_OP_FLUSH:
		saved = find_saved(resp, psn);
		if (!saved || saved->is_atomic != (packet->row->operation == VB_OP_ATOMIC) || saved->length ||
		    saved->sent <= psn)
			return VB_RC_IGNORED;
		struct vb_rc_saved again = *saved;
		again.sent = again.first;
		return replay(resp, &again);
	case VB_OP_READ_RESPONSE:
	case VB_OP_ACK:
	case VB_OP_ATOMIC_ACK:
	case VB_OP_CNP:
		break;
	}
	return VB_RC_IGNORED;
}

enum vb_rc_verdict vb_rc_resp_receive(struct vb_rc_resp *resp, const struct vb_packet *packet)
{
	if (!packet->row->flags.request || packet->opcode >> VB_OPCODE_BITS != resp->config.to.service ||
	    !vb_pkey_matches(packet->pkey, resp->config.to.pkey))
		return VB_RC_IGNORED;
	if (resp->broken) {
		resp->nak_due = true;
		return VB_RC_BROKEN;
	}
	uint64_t psn = vb_psn_expand(resp->expected, packet->psn);
	if (psn >= resp->expected)
		note_selection(resp, psn);
	if (psn == resp->expected)
		return receive_in_order(resp, packet);
	if (psn > resp->expected)
		return receive_ahead(resp, packet, psn);
	enum vb_rc_verdict verdict = receive_duplicate(resp, packet, psn);
	if (verdict == VB_RC_TAKEN) {
		resp->duplicates++;
		note_selection(resp, psn);
	}
	return verdict;
}

/* ---- output ---- */

static void put_aeth(const struct vb_rc_resp *resp, struct vb_packet_out *out,
		     const struct vb_opcode_row *row, uint8_t syndrome)
{
	struct vb_aeth *aeth = vb_packet_out_extension(out, row, VB_EXT_AETH);

	vb_aeth_set_syndrome(aeth, syndrome);
	vb_aeth_set_msn(aeth, resp->msn);
}

static void write_atomic_answer(const struct vb_rc_resp *resp, struct vb_rc_saved *atomic,
				struct vb_packet_out *out)
{
	const struct vb_opcode_row *row = vb_packet_out_begin(
		out, &resp->config.to, VB_OPB_ATOMIC_ACKNOWLEDGE, (uint32_t)atomic->first, 0);

	put_aeth(resp, out, row, ack(resp));
	vb_atomicacketh_set_original(vb_packet_out_extension(out, row, VB_EXT_ATOMICACKETH),
				     atomic->original);
	atomic->sent = atomic->end;
}

static void write_response(const struct vb_rc_resp *resp, struct vb_rc_saved *read, struct vb_packet_out *out)
{
	static const uint8_t bits[2][2] = { { VB_OPB_READ_RESPONSE_MIDDLE, VB_OPB_READ_RESPONSE_LAST },
					    { VB_OPB_READ_RESPONSE_FIRST, VB_OPB_READ_RESPONSE_ONLY } };
	uint64_t psn = read->sent++, offset = (psn - read->first) * resp->config.mtu;
	uint32_t bytes = (uint32_t)vb_min_u64(resp->config.mtu, read->length - offset);
	const struct vb_opcode_row *row =
		vb_packet_out_begin(out, &resp->config.to, bits[psn == read->first][read->sent == read->end],
			(uint32_t)psn, bytes);

	if (vb_opcode_has(row, VB_EXT_AETH))
		put_aeth(resp, out, row, ack(resp));
	out->payload_at = read->address + offset;
	out->rkey = read->rkey;
	out->srqn = read->srqn;
}

/* Returns whether that was the last of it. */
static bool write_answer(const struct vb_rc_resp *resp, struct vb_rc_saved *saved, struct vb_packet_out *out)
{
	if (saved->is_atomic)
		write_atomic_answer(resp, saved, out);
	else
		write_response(resp, saved, out);
	return saved->sent == saved->end;
}

static void write_ack(struct vb_rc_resp *resp, struct vb_packet_out *out)
{
	uint64_t psn = resp->nak_due ? resp->nak_psn : resp->expected - 1;
	const struct vb_opcode_row *row =
		vb_packet_out_begin(out, &resp->config.to, VB_OPB_ACKNOWLEDGE, (uint32_t)psn, 0);

	put_aeth(resp, out, row, resp->nak_due ? resp->nak_syndrome : ack(resp));
	/* A NAK acknowledges all before it; after a NAK about a duplicate an ACK may still be due. */
	resp->ack_due = resp->ack_due && psn < resp->expected - 1 && !resp->broken;
	resp->nak_due = false;
}

/* What has waited for READs goes on once their data have been read. */
static void go_on(struct vb_rc_resp *resp)
{
	if (!resp->waits_for_reads || resp->broken || has_unread(resp))
		return;
	resp->waits_for_reads = false;
	receive_kept(resp);
}

bool vb_rc_resp_write(struct vb_rc_resp *resp, struct vb_packet_out *out)
{
	go_on(resp);
	resp->is_replaying = resp->replays_count;
	if (resp->is_replaying) {
		if (write_answer(resp, &resp->replays[resp->replays_head], out)) {
			resp->replays_head = (resp->replays_head + 1) % VB_RC_MAX_RD_ATOMIC;
			resp->replays_count--;
		}
		return true;
	}
	if (resp->saved_unsent != resp->saved_next) {
		resp->saved_unsent +=
			write_answer(resp, &resp->saved[resp->saved_unsent % VB_RC_MAX_RD_ATOMIC], out);
		return true;
	}
	if (!resp->ack_due && !resp->nak_due)
		return false;
	write_ack(resp, out);
	return true;
}

bool vb_rc_resp_ack_again(struct vb_rc_resp *resp)
{
	if (!resp->last_by_ack || resp->broken || resp->nak_due || resp->ack_due)
		return false;
	resp->ack_due = true;
	return true;
}

void vb_rc_resp_fault(struct vb_rc_resp *resp, const struct vb_packet_out *out)
{
	if (resp->broken)
		return;
	resp->replays_count = 0;
	if (!resp->is_replaying) {
		resp->broken = true;
		resp->saved_unsent = resp->saved_next;
	} else if (resp->nak_due) {
		return;	/* the requester will ask again */
	}
	set_nak(resp, vb_psn_expand(resp->expected, vb_bth_psn((const struct vb_bth *)out->header)),
		vb_syndrome(VB_AETH_NAK, VB_NAK_REMOTE_ACCESS));
}

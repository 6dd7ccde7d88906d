/* SPDX-License-Identifier: BSD-2-Clause */
#include "local/capture.h"

#include <stdlib.h>
#include <string.h>

#include "adapter/memory/ranges.h"

enum { PSN_MASK = 0xffffff };

/* ---- memory of this process ---- */

static bool copy_list(struct vb_sg_list list, uint64_t offset, size_t bytes, uint8_t *to)
{
	struct vb_ranges from, into;
	if (vb_ranges_of_list(&from, vb_arena, list, offset, bytes, 0) != VB_KEY_OK)
		return false;
	vb_ranges_of_bytes(&into, to, bytes);
	return vb_ranges_copy(&into, &from) == 0;
}

/* ctx: a requester. Of a READ, what it has got. */
struct requester {
	struct vb_local_qp *l;
	const struct vb_sqe *sqe;
};

static bool fetch_entry(void *ctx, uint64_t offset, size_t bytes, uint8_t *to)
{
	const struct requester *r = ctx;
	if (!(r->sqe->flags & IBV_SEND_INLINE))
		return copy_list(vb_sg_list_of_send(r->l->qp, r->sqe), offset, bytes, to);
	memcpy(to, r->sqe->inline_data + offset, bytes);
	return true;
}

/*
 * Are the first bytes of the current request there, up to this offset? Those of an earlier one may be, if a
 * capture ended in its middle.
 */
static bool has_passed(const struct vb_local_qp *l, uint64_t end)
{
	const struct vb_passed *p = l->capture.passed;
	return p && p->bytes >= end && p->at == atomic_load_explicit(&l->resp.next, memory_order_relaxed);
}

static void begin_passed(struct vb_local_qp *l)
{
	free(l->capture.passed);
	struct vb_passed *p = l->capture.passed = malloc(sizeof(*p) + l->cur.length);
	if (!p)
		return;
	p->bytes = 0;
	p->at = atomic_load_explicit(&l->resp.next, memory_order_relaxed);
}

/* This process has it for a moment only: it is kept until the request is shown. */
void vb_capture_passed(struct vb_local_qp *l, uint64_t n)
{
	if (!l->cur.done)
		begin_passed(l);
	if (!has_passed(l, l->cur.done))
		return; /* there is no memory, or the capture began behind the request's beginning */
	memcpy(l->capture.passed->data + l->cur.done, l->piece->bytes, n);
	l->capture.passed->bytes += n;
}

static bool fetch_passed(const struct vb_local_qp *l, uint64_t offset, size_t bytes, uint8_t *to)
{
	if (!has_passed(l, offset + bytes))
		return false;
	memcpy(to, l->capture.passed->data + offset, bytes);
	return true;
}

static void forget_passed(struct vb_local_qp *l)
{
	free(l->capture.passed);
	l->capture.passed = NULL;
}

/* ctx: the responder's half. A SEND has gone to the receive, all else to or from where the request said. */
static bool fetch_target(void *ctx, uint64_t offset, size_t bytes, uint8_t *to)
{
	const struct vb_local_qp *l = ctx;
	const struct vb_entry_copy *r = &l->cur;
	struct vb_ranges from, into;
	uint64_t va;
	if (l->resp.is_remote)
		return fetch_passed(l, offset, bytes, to);
	if (r->opcode == IBV_WR_SEND || r->opcode == IBV_WR_SEND_WITH_IMM ||
	    r->opcode == IBV_WR_SEND_WITH_INV)
		return l->execution.have_rwqe &&
		       copy_list(vb_sg_list_of_receive(&l->execution.rwqe), offset, bytes, to);
	struct vb_key_use use = { .key = r->rkey, .pd = vb_qp_domain(l->qp), .qpn = l->qp->qpn,
				  .addr = r->remote_addr + offset, .length = bytes };
	if (vb_key_check(vb_key_table(vb_arena), &use, &va) != VB_KEY_OK)
		return false;
	vb_ranges_of_bytes(&from, (void *)(uintptr_t)va, bytes);
	from.on_demand = vb_key_is_on_demand(vb_key_table(vb_arena), r->rkey);
	vb_ranges_of_bytes(&into, to, bytes);
	return vb_ranges_copy(&into, &from) == 0;
}

/* ---- the requester ---- */

static struct vb_captured message_of(struct requester *r, uint32_t psn, uint32_t msn)
{
	return (struct vb_captured){ .qp = r->l->qp,
				  .what = r->sqe,
				  .srqn = vb_sqe_srqn(r->l->qp, r->sqe),
				  .psn = psn,
				  .msn = msn & PSN_MASK,
				  .peer_pid = r->l->peer->pid,
				  .by_requester = true,
				  .fetch = fetch_entry,
				  .ctx = r };
}

/* The first message of a capture is the next one: what is in the ring has no number. */
static void begin_requester(struct vb_local_qp *l, uint32_t position)
{
	unsigned serial = vb_capture_serial();
	if (l->capture.req_serial == serial)
		return;
	l->capture.req_serial = serial;
	l->capture.first = position;
	l->capture.psn = l->capture.answered_psn = (l->qp->attr.sq_psn + position) & PSN_MASK;
	l->capture.msn = position;
	l->capture.is_fresh = true;
}

/* Only where the responder cannot know what came before. */
static void tell_psn(struct vb_local_qp *l, uint32_t position)
{
	bool is_empty = position == atomic_load_explicit(&l->req.acked, memory_order_relaxed);
	if (!is_empty && !l->capture.is_fresh)
		return;
	l->capture.is_fresh = false;
	atomic_store_explicit(&l->mine->captured, vb_shm_captured(position, l->capture.psn),
			      memory_order_relaxed);
	if (is_empty)
		l->capture.answered_psn = l->capture.psn;
}

void vb_capture_published(struct vb_local_qp *l, const struct vb_sqe *sqe)
{
	uint32_t position = l->req.published;
	struct requester r = { .l = l, .sqe = sqe };
	begin_requester(l, position);
	tell_psn(l, position);
	struct vb_captured m = message_of(&r, l->capture.psn, 0);
	vb_capture_request(&m);
	l->capture.psn = (l->capture.psn + vb_captured_packets(l->qp, sqe)) & PSN_MASK;
}

static uint64_t found_by(struct requester *r)
{
	uint64_t original = 0;
	return fetch_entry(r, 0, sizeof(original), (uint8_t *)&original) ? original : 0;
}

void vb_capture_acknowledged(struct vb_local_qp *l, const struct vb_sqe *sqe, enum ibv_wc_status status)
{
	uint32_t position = atomic_load_explicit(&l->req.acked, memory_order_relaxed);
	struct requester r = { .l = l, .sqe = sqe };
	if (l->capture.req_serial != vb_capture_serial() || (int32_t)(position - l->capture.first) < 0)
		return;
	struct vb_captured m =
		message_of(&r, l->capture.answered_psn, l->capture.msn + (status == IBV_WC_SUCCESS));
	if (status != IBV_WC_SUCCESS) {
		vb_capture_nak(&m, status);
		return;
	}
	m.original = vb_wr_is_atomic(sqe->opcode) ? found_by(&r) : 0;
	vb_capture_answer(&m);
	l->capture.msn++;
	l->capture.answered_psn = (l->capture.answered_psn + vb_captured_packets(l->qp, sqe)) & PSN_MASK;
}

void vb_capture_executed_here(struct vb_local_qp *l, const struct vb_sqe *sqe)
{
	struct requester r = { .l = l, .sqe = sqe };
	begin_requester(l, l->req.published);
	struct vb_captured m = message_of(&r, l->capture.psn, ++l->capture.msn);
	m.original = vb_wr_is_atomic(sqe->opcode) ? found_by(&r) : 0;
	vb_capture_request(&m);
	vb_capture_answer(&m);
	l->capture.psn = (l->capture.psn + vb_captured_packets(l->qp, sqe)) & PSN_MASK;
}

/* ---- the responder ---- */

/* The PSN of the request at a ring position: as the requester says, or as it follows from the one before. */
static uint32_t expected_psn(struct vb_local_qp *l, uint32_t position)
{
	const struct vb_shm_qp *theirs = atomic_load_explicit(&l->theirs, memory_order_acquire);
	uint64_t said = atomic_load_explicit(&theirs->captured, memory_order_relaxed);
	unsigned serial = vb_capture_serial();
	if (l->capture.resp_serial != serial) {
		l->capture.expected = (l->qp->attr.rq_psn + position) & PSN_MASK;
		l->capture.served = position;
	}
	l->capture.resp_serial = serial;
	if (vb_shm_captured_is_for(said, position))
		l->capture.expected = vb_shm_captured_psn(said);
	return l->capture.expected;
}

static struct vb_sqe entry_of(const struct vb_entry_copy *r)
{
	return (struct vb_sqe){
		.remote_addr = r->remote_addr,
		.rkey = r->rkey,
		.imm = r->imm,
		.length = r->length,
		.opcode = r->opcode,
		.compare_add = r->compare_add,
		.swap = r->swap,
		.flags = r->flags & VB_SHM_SOLICITED ? IBV_SEND_SOLICITED : 0,
	};
}

/*
 * A request that was refused is shown without its data, that is, by its NAK: they may be nowhere in this
 * process.
 */
void vb_capture_served(struct vb_local_qp *l, enum ibv_wc_status status)
{
	struct vb_sqe what = entry_of(&l->cur);
	uint32_t position = atomic_load_explicit(&l->resp.next, memory_order_relaxed),
		 psn = expected_psn(l, position);
	struct vb_captured m = { .qp = l->qp,
			      .what = &what,
			      .srqn = l->cur.srqn,
			      .psn = psn,
			      .msn = l->capture.served & PSN_MASK,
			      .peer_pid = l->peer->pid,
			      .fetch = fetch_target,
			      .ctx = l };
	if (status != IBV_WC_SUCCESS) {
		vb_capture_nak(&m, status);
		return;
	}
	if (vb_wr_is_atomic(what.opcode))
		m.original = atomic_load_explicit(
			&l->mine->atomics[(l->atomics_executed - 1) % VB_SHM_ATOMICS], memory_order_relaxed);
	vb_capture_request(&m);
	m.msn = ++l->capture.served & PSN_MASK;
	vb_capture_answer(&m);
	l->capture.expected = (psn + vb_captured_packets(l->qp, &what)) & PSN_MASK;
	forget_passed(l);
}

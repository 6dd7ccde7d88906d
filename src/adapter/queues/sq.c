/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Send queues: posting, completion in order, and the way into the error state. An entry is pending from its
 * post until the path completes it; its place is free again when a completion at or behind it has been
 * polled, as with a hardware queue whose driver learns from completions alone how far the adapter got.
 */
#include <errno.h>
#include <string.h>

#include "adapter/queues/completion.h"
#include "adapter/progress/path.h"
#include "adapter/queues/queue.h"
#include "adapter/queues/status.h"
#include "adapter/queues/counter.h"
#include "adapter/queues/tags.h"
#include "adapter/progress/prefetch.h"
#include "adapter/queues/noted.h"
#include "adapter/queues/observer.h"
#include "adapter/memory/window.h"
#include "base/log.h"
#include "proto/ud.h"

/* What each work request opcode is: for which QP types it exists, and what its completion is called. */
enum { RC = 1 << IBV_QPT_RC, UC = 1 << IBV_QPT_UC, UD = 1 << IBV_QPT_UD, XRC = 1 << IBV_QPT_XRC_SEND,
       RAW = 1 << IBV_QPT_RAW_PACKET };

struct opcode {
	uint16_t types;
	uint8_t completion; /* enum ibv_wc_opcode */
	bool known, inlines, atomic;
	uint8_t traffic; /* enum vb_traffic_kind */
};

static const struct opcode opcodes[] = {
	[IBV_WR_SEND]                 = { RC | UC | UD | XRC | RAW, IBV_WC_SEND, true, true, false, VB_TRAFFIC_SEND },
	[IBV_WR_SEND_WITH_IMM]        = { RC | UC | UD | XRC, IBV_WC_SEND, true, true, false, VB_TRAFFIC_SEND },
	[IBV_WR_RDMA_WRITE]           = { RC | UC | XRC, IBV_WC_RDMA_WRITE, true, true, false, VB_TRAFFIC_WRITE },
	[IBV_WR_RDMA_WRITE_WITH_IMM]  = { RC | UC | XRC, IBV_WC_RDMA_WRITE, true, true, false, VB_TRAFFIC_WRITE },
	[IBV_WR_RDMA_READ]            = { RC | XRC, IBV_WC_RDMA_READ, true, false, false, VB_TRAFFIC_READ },
	[IBV_WR_ATOMIC_CMP_AND_SWP]   = { RC | XRC, IBV_WC_COMP_SWAP, true, false, true, VB_TRAFFIC_ATOMIC },
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = { RC | XRC, IBV_WC_FETCH_ADD, true, false, true, VB_TRAFFIC_ATOMIC },
	[IBV_WR_LOCAL_INV]            = { RC | UC | XRC, IBV_WC_LOCAL_INV, true, false, false, VB_TRAFFIC_NONE },
	[IBV_WR_BIND_MW]              = { RC | UC | XRC, IBV_WC_BIND_MW, true, false, false, VB_TRAFFIC_NONE },
	[IBV_WR_SEND_WITH_INV]        = { RC | XRC, IBV_WC_SEND, true, true, false, VB_TRAFFIC_SEND },
	[IBV_WR_FLUSH]                = { RC, IBV_WC_FLUSH, true, false, true, VB_TRAFFIC_FLUSH },
	[IBV_WR_ATOMIC_WRITE]         = { RC, IBV_WC_ATOMIC_WRITE, true, true, false, VB_TRAFFIC_ATOMIC },
	[IBV_WR_TSO]                  = { RAW, IBV_WC_TSO, true, false, false, VB_TRAFFIC_SEND },
};

enum { KNOWN_FLAGS = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE };

static const struct opcode *opcode_of(const struct vb_qp *qp, unsigned opcode)
{
	if (opcode >= VB_ARRAY_LEN(opcodes) || !opcodes[opcode].known ||
	    !(opcodes[opcode].types & 1 << qp->type))
		return NULL;
	return &opcodes[opcode];
}

/* ---- posting ---- */

static int refuse(int err, const char *why)
{
	vb_explain("ibv_post_send", "%s", why);
	return err;
}

static int refuse_full(const struct vb_sq *sq)
{
	if (!sq->max_wr)
		return refuse(ENOMEM, "the queue pair was made with max_send_wr 0: it has room for no request");
	vb_explain_limit(
		"ibv_post_send",
		"the send queue is full: max_send_wr requests wait for their completions to be polled");
	return ENOMEM;
}

static int copy_inline(const struct vb_sq *sq, struct vb_sqe *sqe, const struct ibv_send_wr *wr)
{
	uint64_t length = 0;
	for (int i = 0; i < wr->num_sge; i++)
		length += wr->sg_list[i].length;
	if (length > sq->max_inline)
		return refuse(ENOMEM, "more inline data than the queue pair's max_inline_data");
	uint8_t *to = sqe->inline_data;
	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *piece = &wr->sg_list[i];
		if (piece->length) /* else its address may be NULL */
			memcpy(to, (void *)(uintptr_t)piece->addr, piece->length);
		to += piece->length;
	}
	sqe->length = length;
	return 0;
}

static int copy_gather(struct vb_sqe *sqe, const struct ibv_send_wr *wr)
{
	uint64_t length = 0;
	for (int i = 0; i < wr->num_sge; i++) {
		vb_sge_copy(&sqe->sge[i], &wr->sg_list[i]);
		length += wr->sg_list[i].length;
	}
	if (length > VB_MAX_MSG)
		return refuse(EINVAL, "the message is longer than the port's max_msg_sz");
	sqe->length = length;
	return 0;
}

/* The address handle is copied: it may be gone before the entry is. */
static void fill_datagram(struct vb_qp *qp, struct vb_sqe *sqe, const struct ibv_send_wr *wr)
{
	const struct vb_ah *ah = vb_ah_of(wr->wr.ud.ah);
	*vb_sqe_to(&qp->sq, sqe) = (struct vb_datagram_to){
		.src = ah->sgid,
		.dst = ah->dgid,
		.qpn = wr->wr.ud.remote_qpn & 0xffffff,
		.qkey = vb_ud_qkey(wr->wr.ud.remote_qkey,
				   atomic_load_explicit(&qp->qkey, memory_order_relaxed)),
		.flow_label = ah->attr.grh.flow_label,
		.traffic_class = ah->attr.grh.traffic_class,
		.hop_limit = ah->attr.grh.hop_limit,
		.is_local = ah->is_local,
	};
	if (ah->pd->number != qp->pd->number)
		vb_sqe_fail(sqe, IBV_WC_LOC_QP_OP_ERR);
}

/* 0 or an errno value. The header is copied: it may be gone before the entry is. */
static int fill_segment(const struct vb_sq *sq, struct vb_sqe *sqe, const struct ibv_send_wr *wr)
{
	if (!wr->tso.hdr || !wr->tso.mss || wr->tso.hdr_sz > sq->header_room)
		return refuse(
			EINVAL,
			"a segment has a header of at most the queue pair's max_tso_header, and an mss");
	if (sqe->length > VB_MAX_TSO)
		return refuse(EINVAL, "the segment is longer than the device's max_tso");
	sqe->tso.header_bytes = wr->tso.hdr_sz;
	sqe->tso.mss = wr->tso.mss;
	memcpy(vb_sqe_header(sq, sqe), wr->tso.hdr, wr->tso.hdr_sz);
	return 0;
}

/* The program chooses the low byte. The handle names the window, whatever the program writes to mw->rkey. */
static uint32_t key_of_bind(const struct ibv_send_wr *wr)
{
	return (wr->bind_mw.mw->handle & ~0xffu) | (wr->bind_mw.rkey & 0xff);
}

/* 0 or an errno value. The window and the region are checked at execution. */
static int fill_bind(struct vb_sqe *sqe, const struct ibv_send_wr *wr)
{
	const struct ibv_mw_bind_info *info = &wr->bind_mw.bind_info;
	if (!info->mr && info->length)
		return refuse(EINVAL, "a window is bound to bytes of a region (bind_info.mr is NULL)");
	if (!wr->bind_mw.mw)
		return refuse(EINVAL, "a bind needs a window (bind_mw.mw)");
	sqe->remote_addr = info->addr;
	sqe->rkey = key_of_bind(wr);
	sqe->imm = info->mw_access_flags;
	sqe->bind.bytes = info->length;
	sqe->bind.region = info->mr ? info->mr->lkey : 0;
	return 0;
}

static void fill_remote(struct vb_qp *qp, struct vb_sqe *sqe, const struct ibv_send_wr *wr, bool atomic)
{
	if (qp->type == IBV_QPT_XRC_SEND)
		*vb_sqe_srqn_at(&qp->sq, sqe) = wr->qp_type.xrc.remote_srqn;
	if (qp->type == IBV_QPT_UD) {
		fill_datagram(qp, sqe, wr);
	} else if (atomic) {
		sqe->remote_addr = wr->wr.atomic.remote_addr;
		sqe->rkey = wr->wr.atomic.rkey;
		sqe->compare_add = wr->wr.atomic.compare_add;
		sqe->swap = wr->wr.atomic.swap;
	} else {
		sqe->remote_addr = wr->wr.rdma.remote_addr;
		sqe->rkey = wr->wr.rdma.rkey;
	}
}

/* Is its answer or its payload one word? A flush has an answer and no payload. */
static bool is_word(const struct opcode *op, unsigned opcode)
{
	return op->atomic || opcode == IBV_WR_ATOMIC_WRITE;
}

/* 0 or an errno value. */
static int check_word(const struct vb_sqe *sqe, const struct opcode *op)
{
	bool flushes = sqe->opcode == IBV_WR_FLUSH;
	if (vb_likely(!is_word(op, sqe->opcode)))
		return 0;
	if (sqe->length != (flushes ? 0 : sizeof(uint64_t)))
		return refuse(EINVAL, flushes ? "a flush has no pieces of its own" :
						"an atomic operation's pieces are 8 bytes together");
	if (flushes && sqe->compare_add > UINT32_MAX)
		return refuse(EINVAL, "more bytes to flush than a message can have");
	return 0;
}

/* Marks what must fail, but as on hardware only at execution, in order. */
static void fail_early(struct vb_qp *qp, struct vb_sqe *sqe, const struct opcode *op)
{
	if ((is_word(op, sqe->opcode) || sqe->opcode == IBV_WR_RDMA_READ) && !vb_qp_attr(qp, max_rd_atomic))
		vb_sqe_fail(sqe, IBV_WC_LOC_QP_OP_ERR);
}

void vb_sq_forbid_reads(struct vb_qp *qp)
{
	for (uint32_t at = qp->sq.sent + qp->sq.begun; at != qp->sq.tail; at++) {
		struct vb_sqe *sqe = vb_sq_at(&qp->sq, at);
		if (sqe->status == VB_SQE_PENDING)
			fail_early(qp, sqe, &opcodes[sqe->opcode]);
	}
}

static bool has_room(const struct vb_sq *sq)
{
	return vb_sq_in_use(sq) < sq->max_wr;
}

static int post_one(struct vb_qp *qp, const struct ibv_send_wr *wr)
{
	struct vb_sq *sq = &qp->sq;
	const struct opcode *op = opcode_of(qp, wr->opcode);
	if (vb_unlikely(!op))
		return refuse(EINVAL, "this queue pair type has no such opcode");
	if (vb_unlikely(wr->send_flags & ~(unsigned)KNOWN_FLAGS) &&
	    (wr->send_flags & ~(unsigned)(KNOWN_FLAGS | IBV_SEND_IP_CSUM) || qp->type != IBV_QPT_RAW_PACKET))
		return refuse(EINVAL, "unknown send_flags");
	if (vb_unlikely(wr->num_sge < 0 || (uint32_t)wr->num_sge > sq->max_sge))
		return refuse(EINVAL, "num_sge is beyond the queue pair's max_send_sge");
	if (vb_unlikely(!has_room(sq)))
		return refuse_full(sq);
	if (vb_unlikely(qp->type == IBV_QPT_UD && !wr->wr.ud.ah))
		return refuse(EINVAL, "a datagram needs an address handle (wr.ud.ah)");
	bool inlined = wr->send_flags & IBV_SEND_INLINE;
	if (vb_unlikely(inlined && !op->inlines))
		return refuse(EINVAL, "IBV_SEND_INLINE is for sends and writes only");

	struct vb_sqe *sqe = vb_sq_at(sq, sq->tail);
	int err = inlined ? copy_inline(sq, sqe, wr) : copy_gather(sqe, wr);
	if (vb_unlikely(err))
		return err;
	sqe->wr_id = wr->wr_id;
	sqe->imm = wr->imm_data;
	sqe->nsge = inlined ? 0 : wr->num_sge;
	sqe->opcode = wr->opcode;
	sqe->flags = wr->send_flags;
	sqe->status = VB_SQE_PENDING;
	if (vb_unlikely(wr->opcode == IBV_WR_BIND_MW))
		err = fill_bind(sqe, wr);
	else if (vb_unlikely(wr->opcode == IBV_WR_TSO))
		err = fill_segment(sq, sqe, wr);
	else
		fill_remote(qp, sqe, wr, op->atomic);
	if (!err)
		err = check_word(sqe, op);
	if (vb_unlikely(err))
		return err;
	fail_early(qp, sqe, op);
	sq->tail++;
	return 0;
}

/* ---- completion ---- */

static void push_completion(struct vb_qp *qp, const struct vb_sqe *sqe, enum ibv_wc_status status)
{
	if (vb_unlikely(sqe->flags & VB_SQE_OWN))
		vb_tags_sent(qp, sqe, status);
	else
		vb_cq_push_send(qp, sqe->wr_id, opcodes[sqe->opcode].completion, sqe->length, status);
}

static void note_completed(struct vb_qp *qp, const struct vb_sqe *sqe)
{
	if ((qp->after_send & VB_AFTER_SEND_COUNT) && !(sqe->flags & VB_SQE_OWN))
		vb_counter_add(qp, opcodes[sqe->opcode].completion, IBV_WC_SUCCESS, sqe->length);
	if (!(qp->after_send & VB_AFTER_SEND_DRAIN) || vb_sq_is_busy(&qp->sq))
		return;
	qp->after_send &= (uint8_t)~VB_AFTER_SEND_DRAIN;
	vb_async_raise(qp->ctx, IBV_EVENT_SQ_DRAINED, VB_ASYNC_QP, qp, &qp->async, 0);
}

void vb_sq_complete(struct vb_qp *qp)
{
	const struct vb_sqe *sqe = vb_sq_at(&qp->sq, qp->sq.head++);
	vb_traffic_add(&qp->done[opcodes[sqe->opcode].traffic], sqe->length);
	if (vb_sq_signals(qp, sqe->flags))
		push_completion(qp, sqe, IBV_WC_SUCCESS);
	if (vb_unlikely(qp->after_send))
		note_completed(qp, sqe);
}

bool vb_sq_execute(struct vb_qp *qp)
{
	const char *why;
	enum ibv_wc_status status = vb_window_execute(qp, vb_sq_at(&qp->sq, qp->sq.sent), &why);
	if (status != IBV_WC_SUCCESS) {
		(qp->type == IBV_QPT_UC ? vb_qp_fail_sends : vb_qp_fail)(qp, status, why);
		return false;
	}
	qp->sq.sent++;
	vb_sq_complete(qp);
	return true;
}

/* why: a sentence for the log, or NULL. */
static void fail_oldest(struct vb_qp *qp, enum ibv_wc_status status, const char *why)
{
	struct vb_sq *sq = &qp->sq;
	const struct vb_sqe *sqe = vb_sq_at(sq, sq->head++);
	qp->failed++;
	if (why)
		vb_explain("completion", "QP 0x%06x, send wr_id 0x%llx: %s: %s", qp->qpn,
			   (unsigned long long)sqe->wr_id, vb_wc_status_name(status), why);
	if (vb_observer && status != IBV_WC_WR_FLUSH_ERR)
		vb_observer->send_failed(qp, sqe, status, why);
	if ((qp->after_send & VB_AFTER_SEND_COUNT) && !(sqe->flags & VB_SQE_OWN))
		vb_counter_add(qp, opcodes[sqe->opcode].completion, status, 0);
	push_completion(qp, sqe, status);
}

static void flush_sends(struct vb_qp *qp)
{
	while (qp->sq.head != qp->sq.tail)
		fail_oldest(qp, IBV_WC_WR_FLUSH_ERR, NULL);
	qp->sq.sent = qp->sq.head;
	qp->sq.begun = false;
}

/* Traffic stops first, then all that waits is flushed in order. Harmless in the error state. */
void vb_qp_fail(struct vb_qp *qp, enum ibv_wc_status status, const char *why)
{
	const struct vb_path_ops *path = atomic_load(&qp->path);
	vb_lock(&qp->resp_lock);
	bool was_error = atomic_exchange(&qp->state, IBV_QPS_ERR) == IBV_QPS_ERR;
	if (path && !was_error)
		path->stop(qp);
	if (!was_error && qp->sq.head != qp->sq.tail)
		fail_oldest(qp, status, why);
	flush_sends(qp);
	if (!was_error)
		vb_receives_flush(qp);
	vb_unlock(&qp->resp_lock);
}

/* ERR and RESET are entered under sq.lock alone, so the state is none of them here. */
void vb_qp_fail_sends(struct vb_qp *qp, enum ibv_wc_status status, const char *why)
{
	atomic_store(&qp->state, IBV_QPS_SQE);
	fail_oldest(qp, status, why);
	flush_sends(qp);
}

void vb_qp_break(struct vb_qp *qp, int event)
{
	vb_lock(&qp->sq.lock);
	uint32_t state = atomic_load(&qp->state);
	/* the program may be resetting it */
	bool alive = state != IBV_QPS_ERR && state != IBV_QPS_RESET;
	if (alive)
		vb_qp_fail(qp, IBV_WC_WR_FLUSH_ERR, NULL);
	vb_unlock(&qp->sq.lock);
	if (alive && event >= 0)
		vb_async_raise(qp->ctx, event, VB_ASYNC_QP, qp, &qp->async, 0);
}

void vb_qp_established(struct vb_qp *qp)
{
	if (qp->comm_est)
		return;
	qp->comm_est = true;
	if (atomic_load(&qp->state) == IBV_QPS_RTR)
		vb_async_raise(qp->ctx, IBV_EVENT_COMM_EST, VB_ASYNC_QP, qp, &qp->async, 0);
}

void vb_qp_peer_lost(struct vb_qp *qp)
{
	vb_lock(&qp->sq.lock);
	uint32_t state = atomic_load(&qp->state);
	if (state != IBV_QPS_ERR && state != IBV_QPS_RESET)
		vb_qp_fail(qp, IBV_WC_RETRY_EXC_ERR, VB_PEER_GONE);
	vb_unlock(&qp->sq.lock);
}

/* ---- the calls ---- */

/* NULL: it takes sends. An extended receiving queue pair has not even a completion queue for them. */
static const char *why_not_now(const struct vb_qp *qp)
{
	uint32_t state = atomic_load_explicit(&qp->state, memory_order_relaxed);
	if (vb_unlikely(qp->type == IBV_QPT_XRC_RECV))
		return "an extended receiving queue pair sends nothing";
	if (vb_likely(state == IBV_QPS_RTS) || state == IBV_QPS_SQD || state == IBV_QPS_SQE ||
	    state == IBV_QPS_ERR)
		return NULL;
	return "the queue pair is not connected (it takes sends from RTS on)";
}

static bool is_broken(const struct vb_qp *qp)
{
	return atomic_load_explicit(&qp->state, memory_order_relaxed) == IBV_QPS_ERR ||
	       vb_qp_loses_completions(qp);
}

/* ---- the fast path ---- */

/* Bytes of a request of the usual form; 0: it is no such request. */
static inline uint32_t plain_length(const struct vb_qp *qp, const struct ibv_send_wr *wr)
{
	/* volatile, so that the compiler does not load it together with the opcode: see vb_sge_copy */
	const volatile int *entries = &wr->num_sge;
	uint64_t length = 0;
	int n = *entries;
	if (vb_unlikely(n < 1 || n > qp->sq.max_sge || qp->after_send) ||
	    vb_unlikely(wr->send_flags & ~(unsigned)KNOWN_FLAGS))
		return 0;
	for (int i = 0; i < n; i++)
		length += wr->sg_list[i].length;
	return vb_likely(length <= (wr->send_flags & IBV_SEND_INLINE ? qp->sq.max_inline : VB_MAX_MSG)) ?
		       (uint32_t)length :
		       0;
}

/* Is nothing ahead of it that it has to wait for? */
static inline bool is_in_order(const struct vb_qp *qp, const struct ibv_send_wr *wr)
{
	const struct vb_sq *sq = &qp->sq;
	switch (wr->opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		return (vb_unlikely(wr->send_flags & IBV_SEND_FENCE) ? sq->head : sq->sent) == sq->tail;
	case IBV_WR_RDMA_WRITE:
		return sq->head == sq->tail;
	case IBV_WR_RDMA_READ:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return sq->head == sq->tail && vb_qp_attr(qp, max_rd_atomic) &&
		       !(wr->send_flags & IBV_SEND_INLINE);
	default:
		return false;
	}
}

/* The bytes are on their way: keeps what the completion needs of the request. */
static inline void note_sent(struct vb_sq *sq, const struct ibv_send_wr *wr, uint32_t length)
{
	struct vb_sqe *sqe = vb_sq_at(sq, sq->tail);
	sqe->wr_id = wr->wr_id;
	sqe->length = length;
	sqe->nsge = 0;
	sqe->opcode = wr->opcode;
	sqe->flags = wr->send_flags;
	sqe->status = VB_SQE_PENDING;
	sq->sent = ++sq->tail;
}

/* The request is done, and needs no entry. */
static inline void complete_at_once(struct vb_qp *qp, const struct ibv_send_wr *wr, uint32_t length)
{
	qp->sq.head = qp->sq.sent = ++qp->sq.tail;
	vb_traffic_add(&qp->done[opcodes[wr->opcode].traffic], length);
	vb_path_note_shm();
	if (vb_sq_signals(qp, wr->send_flags))
		vb_cq_push_send(qp, wr->wr_id, opcodes[wr->opcode].completion, length, IBV_WC_SUCCESS);
}

/* Fast path. False: no side effects; the request goes through the queue. sq.lock is held. */
static inline bool try_post(struct vb_qp *qp, const struct ibv_send_wr *wr)
{
	const struct vb_path_ops *path = atomic_load_explicit(&qp->path, memory_order_relaxed);
	uint32_t length;
	if (vb_unlikely(!path || !path->try_post ||
			atomic_load_explicit(&qp->state, memory_order_relaxed) != IBV_QPS_RTS) ||
	    vb_unlikely(!(length = plain_length(qp, wr)) || !is_in_order(qp, wr) || !has_room(&qp->sq) ||
			vb_qp_loses_completions(qp)))
		return false;
	enum vb_post_result posted = path->try_post(qp, wr, length);
	if (vb_unlikely(posted == VB_POST_NOT))
		return false;
	if (posted == VB_POST_SENT)
		note_sent(&qp->sq, wr, length);
	else
		complete_at_once(qp, wr, length);
	if (vb_qp_is_one_of_many(qp))
		vb_prefetch_next(qp, wr->opcode);
	return true;
}

/* ---- posting through the queue ---- */

/* Of the requests before `end`, which are posted: windows show the keys that they are to have. */
static void show_keys(const struct ibv_send_wr *wr, const struct ibv_send_wr *end)
{
	for (; wr != end; wr = wr->next)
		if (wr->opcode == IBV_WR_BIND_MW)
			wr->bind_mw.mw->rkey = key_of_bind(wr);
}

/* For a capture. wrong: a request, if there is an error. */
static inline void note_posts(const struct vb_qp *qp, const struct ibv_send_wr *first,
			      const struct ibv_send_wr *wrong, bool is_all_or_none, int err)
{
	if (vb_qp_is_captured(qp))
		vb_note_sends(&(struct vb_noted_post){ .qp = qp,
						       .refused = is_all_or_none ? first : wrong,
						       .wrong = wrong,
						       .err = err },
			      first);
}

/* sq.lock is held. Out of line: else every post would save the registers that it needs. */
static __attribute__((noinline)) int post_all(struct vb_qp *qp, struct ibv_send_wr *wr,
					      struct ibv_send_wr **bad)
{
	int err = 0;
	bool binds = false;
	const struct ibv_send_wr *first = wr;
	uint32_t before = qp->sq.tail;
	const char *why = why_not_now(qp);
	if (vb_unlikely(why != NULL)) {
		if (bad)
			*bad = wr;
		err = refuse(EINVAL, why);
		note_posts(qp, first, wr, !bad, err);
		return err;
	}
	while (!err && wr) {
		err = post_one(qp, wr);
		binds |= wr->opcode == IBV_WR_BIND_MW;
		wr = err ? wr : wr->next;
	}
	if (vb_unlikely(binds) && (!err || bad))
		show_keys(first, wr);
	if (vb_unlikely(err)) {
		if (bad)
			*bad = wr;
		else
			qp->sq.tail = before; /* nobody has seen what was behind it */
	}
	note_posts(qp, first, wr, !bad, err);
	const struct vb_path_ops *path = atomic_load_explicit(&qp->path, memory_order_relaxed);
	if (vb_unlikely(is_broken(qp)))
		vb_qp_fail(qp, IBV_WC_WR_FLUSH_ERR, NULL);
	else if (vb_unlikely(atomic_load_explicit(&qp->state, memory_order_relaxed) == IBV_QPS_SQE))
		flush_sends(qp);
	else if (qp->sq.sent != qp->sq.tail && path)
		path->send(qp);
	return err;
}

int vb_qp_post_send(struct vb_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct ibv_send_wr *rest = wr;
	bool one_by_one = bad || (wr && !wr->next); /* else all or none */
	int err = 0;
	vb_lock(&qp->sq.lock);
	while (rest && one_by_one && vb_likely(try_post(qp, rest)))
		rest = rest->next;
	if (vb_unlikely(rest || !wr))
		err = post_all(qp, rest, bad);
	vb_unlock(&qp->sq.lock);
	return err;
}

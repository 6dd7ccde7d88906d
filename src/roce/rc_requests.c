/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The requester of a reliable connection over the wire. Its positions are those of the send queue. sq.lock is
 * held where nothing else is said.
 *
 * One timer serves all deadlines. It is set anew only when a deadline becomes earlier. When it fires too
 * early, it is set to the next deadline.
 */
#include <errno.h>
#include <stdio.h>

#include "adapter/device/device.h"
#include "adapter/queues/payload.h"
#include "adapter/queues/request.h"
#include "adapter/queues/status.h"
#include "base/tuned.h"
#include "roce/burst.h"
#include "roce/delayed_ack.h"
#include "roce/rc.h"

enum { MAX_WINDOW = 1024 /* packets in flight */ };

static enum ibv_wc_status status_of(const struct vb_rc_connection *c, const struct vb_rc_completion *done)
{
	static const enum ibv_wc_status statuses[] = {
		[VB_RC_SUCCESS] = IBV_WC_SUCCESS,
		[VB_RC_REMOTE_INVALID_REQUEST] = IBV_WC_REM_INV_REQ_ERR,
		[VB_RC_REMOTE_ACCESS] = IBV_WC_REM_ACCESS_ERR,
		[VB_RC_REMOTE_OPERATIONAL] = IBV_WC_REM_OP_ERR,
		[VB_RC_RETRY_EXCEEDED] = IBV_WC_RETRY_EXC_ERR,
		[VB_RC_RNR_RETRY_EXCEEDED] = IBV_WC_RNR_RETRY_EXC_ERR,
		[VB_RC_LOCAL] = IBV_WC_LOC_PROT_ERR,
		[VB_RC_LOCAL_OPERATION] = IBV_WC_LOC_QP_OP_ERR,
		[VB_RC_BAD_RESPONSE] = IBV_WC_BAD_RESP_ERR,
	};
	const struct vb_sqe *sqe = vb_sq_at(&c->qp->sq, done->position);
	return done->status == VB_RC_LOCAL && sqe->status != VB_SQE_PENDING ? sqe->status :
									      statuses[done->status];
}

/*
 * No answer has come. A queue pair of this host that the local path has declined (qp->declined) is no matter
 * of the network.
 */
static void fail_in_silence(struct vb_qp *qp)
{
	char why[192];
	snprintf(why, sizeof(why),
		 "no answer after the last retry, and no process of this host that shares memory with this one "
		 "has a queue pair 0x%06x (is the number in the host's byte order?)",
		 qp->attr.dest_qp_num);
	vb_qp_fail(qp, IBV_WC_RETRY_EXC_ERR,
		   qp->declined ? why :
				  "no answer after the last retry: is the peer's queue pair connected to this "
				  "one, and does the network let UDP port 4791 through?");
}

static void fail(struct vb_rc_connection *c, const struct vb_rc_completion *done)
{
	enum ibv_wc_status status = status_of(c, done);
	if (status == IBV_WC_RETRY_EXC_ERR)
		fail_in_silence(c->qp);
	else
		vb_qp_fail(c->qp, status, vb_wc_status_text(status));
}

void vb_rc_complete(struct vb_rc_connection *c)
{
	struct vb_rc_completion done;
	while (vb_rc_is_running(c->qp) && vb_rc_req_next_completion(&c->requester, &done)) {
		if (done.status == VB_RC_SUCCESS)
			vb_sq_complete(c->qp);
		else
			fail(c, &done);
	}
}

static void set_timer_to(struct vb_rc_connection *c, uint64_t at)
{
	c->timer_at = at;
	vb_timer_set(&c->timer, at);
}

static void set_timer(struct vb_rc_connection *c)
{
	uint64_t deadline = vb_rc_req_deadline(&c->requester);
	if (deadline < c->timer_at)
		set_timer_to(c, deadline);
}

/* False: the burst is full. */
static bool put(struct vb_rc_connection *c, struct vb_burst *burst, const struct vb_packet_out *out)
{
	struct vb_sqe *sqe = vb_sq_at(&c->qp->sq, out->position);
	uint8_t *payload =
		vb_burst_begin(burst, &c->route, out->header, out->header_bytes, out->payload_bytes);
	if (!out->payload_bytes ||
	    vb_payload_gather(c->qp, sqe, out->payload_at, payload, out->payload_bytes))
		return vb_burst_commit(burst);
	vb_rc_req_break(&c->requester, out->position, VB_RC_LOCAL);
	return true;
}

/*
 * Is an ACK to be sent with requests? One that another thread is about to send may leave behind them, or
 * never if the program ends. So it is sent once more. resp_lock is held.
 */
static bool is_ack_due(struct vb_rc_connection *c)
{
	if (!vb_qp_listens(c->qp) || (c->is_answering && !c->answers_ack_alone))
		return false;
	if (c->is_answering)
		vb_rc_resp_ack_again(&c->responder);
	return vb_rc_resp_owes_ack_alone(&c->responder);
}

/* The ACK that is to be sent with requests, whose burst may be filled already. False: there is none. */
static bool take_ack(struct vb_rc_connection *c, struct vb_packet_out *ack)
{
	vb_lock(&c->qp->resp_lock);
	bool due = is_ack_due(c) && vb_rc_resp_write(&c->responder, ack);
	if (due) {
		atomic_store_explicit(&c->owes_ack, c->is_answering, memory_order_relaxed);
		vb_delayed_ack_drop(c->qp);
	}
	vb_unlock(&c->qp->resp_lock);
	return due;
}

static bool owes_ack(const struct vb_rc_connection *c)
{
	return atomic_load_explicit(&c->owes_ack, memory_order_relaxed);
}

/*
 * Returns a burst of what may be sent now, or NULL. *n counts the packets of all bursts, up to
 * VB_RC_SLICE_PACKETS. Sets sends_more if the burst is full.
 */
static struct vb_burst *fill(struct vb_rc_connection *c, uint64_t now, unsigned *n)
{
	struct vb_packet_out out;
	struct vb_burst *burst = NULL;
	c->sends_more = false;
	while (*n < VB_RC_SLICE_PACKETS && !c->sends_more && vb_rc_req_write(&c->requester, now, &out)) {
		if (!burst)
			burst = vb_burst_take(VB_BURST_REQUESTS);
		c->sends_more = !put(c, burst, &out);
		++*n;
	}
	return burst;
}

/*
 * The ACK is sent before the requests where a thread may wait for events, and where tags are matched. In a
 * rendezvous, the peer must see its SEND completed before it is told that its memory was read.
 */
static bool ack_goes_first(const struct vb_rc_connection *c)
{
	return c->qp->tags || vb_rc_may_wait_for_events(c);
}

/* By the burst's own copy of the route, since no lock is held that keeps the connection's. */
static void send_ack_with(struct vb_rc_connection *c, struct vb_burst *burst)
{
	struct vb_packet_out ack;
	if (!take_ack(c, &ack))
		return;
	if (ack_goes_first(c))
		vb_burst_send_ahead(burst, ack.header, ack.header_bytes);
	else
		vb_burst_append(burst, ack.header, ack.header_bytes);
}

/*
 * The ACK goes with the last burst. So no message of the program's leaves without the ACK of what it has
 * received: the program may end when its message is answered. The ACK goes behind where it may, because a
 * shorter packet ends a burst of equal ones.
 */
static void send_burst(struct vb_rc_connection *c, struct vb_burst *burst)
{
	bool carries_ack = !c->sends_more && owes_ack(c);
	c->is_sending = true;
	vb_unlock(&c->qp->sq.lock);
	if (carries_ack)
		send_ack_with(c, burst);
	vb_burst_give(burst);
	vb_lock(&c->qp->sq.lock);
	c->is_sending = false;
}

/*
 * Sends what may be sent now, and returns how many packets that was. Releases sq.lock meanwhile, so the queue
 * pair may have stopped running by the return.
 */
static unsigned send_requests(struct vb_rc_connection *c, uint64_t now)
{
	struct vb_burst *burst;
	unsigned n = 0;
	c->sends_more = true;
	while (!c->is_sending && c->sends_more && n < VB_RC_SLICE_PACKETS && vb_rc_is_running(c->qp)) {
		burst = fill(c, now, &n);
		if (burst)
			send_burst(c, burst);
	}
	return n;
}

/* Sends what may be sent now; completes what is done. */
static void request_at(struct vb_rc_connection *c, uint64_t now)
{
	unsigned n = send_requests(c, now);
	vb_rc_complete(c);
	if (!vb_rc_is_running(c->qp))
		return;
	set_timer(c);
	if (n == VB_RC_SLICE_PACKETS)
		vb_progress_schedule(c->qp);
}

/* A request that cannot be carried out fails once all that was posted before it has completed. */
static void post_failing(struct vb_rc_connection *c, uint32_t position)
{
	static const struct vb_request nothing = { .kind = VB_REQ_SEND };
	if (!vb_rc_req_post(&c->requester, &nothing))
		vb_rc_req_break(&c->requester, position, VB_RC_LOCAL);
}

/* An entry that is this side's alone, once it is the oldest. */
static bool execute_here(struct vb_rc_connection *c)
{
	if (c->qp->sq.head != c->qp->sq.sent || !vb_sq_execute(c->qp))
		return false;
	vb_rc_req_skip(&c->requester);
	return true;
}

/* False: nothing more can be for now. */
static bool hand_over(struct vb_rc_connection *c, struct vb_sqe *sqe, uint32_t position)
{
	struct vb_request r;
	if (vb_unlikely(vb_sqe_is_local(sqe)))
		return execute_here(c);
	if (vb_unlikely(sqe->status != VB_SQE_PENDING || !vb_payload_is_readable(c->qp, sqe))) {
		post_failing(c, position);
		c->qp->sq.sent++;
		return true;
	}
	vb_request_of_sqe(sqe, vb_sqe_srqn(c->qp, sqe), &r);
	if (vb_rc_req_post(&c->requester, &r))
		return false;
	c->qp->sq.sent++;
	return true;
}

static bool may_start(const struct vb_rc_connection *c)
{
	return c->requests && atomic_load(&c->qp->state) == IBV_QPS_RTS && c->qp->sq.sent != c->qp->sq.tail;
}

/*
 * Hands requests to the engine and sends what it allows. A request that waits for all earlier ones follows at
 * once when they have completed.
 */
void vb_rc_go_on(struct vb_rc_connection *c, uint64_t now)
{
	struct vb_sq *sq = &c->qp->sq;
	do {
		while (may_start(c) && hand_over(c, vb_sq_at(sq, sq->sent), sq->sent))
			;
		if (c->requests && vb_rc_is_running(c->qp))
			request_at(c, now);
	} while (may_start(c) && sq->head == sq->sent && vb_sqe_is_local(vb_sq_at(sq, sq->sent)));
}

static void note_post(struct vb_rc_connection *c, uint64_t now)
{
	uint64_t arrived_at = atomic_load_explicit(&c->arrived_at, memory_order_relaxed);
	if (!arrived_at)
		return;
	bool soon =
		now < arrived_at + vb_max_u64(VB_SOON_NS, c->requester.window.smooth_ns / VB_SOON_SHARE);
	atomic_store_explicit(&c->answered,
			      soon ? atomic_load_explicit(&c->answered, memory_order_relaxed) + 1 : 0,
			      memory_order_relaxed);
	atomic_store_explicit(&c->arrived_at, 0, memory_order_relaxed);
}

void vb_rc_send_posted(struct vb_qp *qp)
{
	struct vb_rc_connection *c = vb_rc_of(qp);
	uint64_t now = vb_now_ns();
	note_post(c, now);
	vb_rc_go_on(c, now);
}

/* Mostly the deadline has moved on since the timer was set, which is all that there is to do then. */
static bool is_due(struct vb_rc_connection *c, uint64_t now_ns)
{
	if (!vb_lock_try(&c->qp->sq.lock)) {
		/* somebody is at it, who sets the timer as well */
		vb_timer_set(&c->timer, now_ns + VB_BUSY_RECEIVER_NS);
		return false;
	}
	bool running = c->requests && vb_rc_is_running(c->qp),
	     due = running && vb_rc_req_deadline(&c->requester) <= now_ns;
	if (!due) {
		c->timer_at = VB_RC_NEVER;
		if (running)
			set_timer(c);
	}
	vb_unlock(&c->qp->sq.lock);
	return due;
}

/*
 * What this process was too slow to receive has not been lost: the socket is emptied before silence counts.
 * If another thread is about to do that (and perhaps waits for a processor), so does the timer.
 */
void vb_rc_timer_fired(struct vb_timer *timer, uint64_t now_ns)
{
	struct vb_rc_connection *c = timer->arg;
	struct vb_qp *qp = c->qp;
	if (!is_due(c, now_ns))
		return;
	bool drained = vb_udp_drain();
	vb_lock(&qp->sq.lock);
	c->timer_at = VB_RC_NEVER;
	if (c->requests && vb_rc_is_running(qp)) {
		if (drained) {
			vb_rc_req_expire(&c->requester, now_ns);
			vb_rc_go_on(c, now_ns);
		} else {
			set_timer_to(c, now_ns + VB_BUSY_RECEIVER_NS);
		}
	}
	vb_unlock(&qp->sq.lock);
}

static int place(void *ctx, uint32_t position, uint64_t offset, const void *bytes, size_t len)
{
	struct vb_rc_connection *c = ctx;
	return vb_payload_place(c->qp, vb_sq_at(&c->qp->sq, position), offset, bytes, len) ? 0 : -EFAULT;
}

void vb_rc_begin_requests(struct vb_rc_connection *c)
{
	const struct ibv_qp_attr *a = &c->qp->attr;
	struct vb_rc_req_config config = {
		.to = vb_rc_peer_of(c->qp),
		.mtu = vb_mtu_bytes(a->path_mtu),
		.first_psn = a->sq_psn,
		.max_window = MAX_WINDOW,
		.max_rd_atomic = a->max_rd_atomic,
		.place = place,
		.ctx = c,
	};
	vb_rc_req_init(&c->requester, &config, c->entries, c->qp->sq.mask + 1);
	c->requests = true;
}

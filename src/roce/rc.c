/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reliable connections over the wire: the two engines of proto/rc_*.h with queues, memory, packets and time
 * around them.
 *
 *	sq entries -> requester engine -> packets     (sq.lock)
 *	ACKs, answers -> requester engine -> completions
 *	requests -> responder engine -> memory, receives; ACKs and answers at the end of the batch   (resp_lock)
 *
 * The requester's positions are those of the send queue. It exists from RTS on, when the first PSN is known.
 * One timer serves its deadlines; it is set when a deadline is earlier than what it is set to, and otherwise
 * finds out when it fires.
 *
 * Sending is a system call, and the thread that it wakes may get this processor before it returns. No thread
 * may wait for a lock meanwhile, so bursts go out with neither lock held. One thread at a time sends a
 * connection's requests, and one its answers, which keeps them in order; others leave what they have to that
 * one.
 *
 * A responder that has refused a request repeats its NAK while the QP is in the error state: the first one
 * may be lost. A responder whose session ends without an error repeats its last ACK at once: it will not be
 * there when the peer asks.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/fault_injection.h"
#include "adapter/inspection/counts.h"
#include "adapter/queues/request.h"
#include "adapter/progress/path.h"
#include "adapter/execution/execute.h"
#include "adapter/queues/payload.h"
#include "adapter/execution/refusal.h"
#include "adapter/queues/tags.h"
#include "adapter/xrc/xrc.h"
#include "base/log.h"
#include "base/tuned.h"
#include "proto/rc/cnp.h"
#include "proto/rc/rc_responder.h"
#include "roce/buffers.h"
#include "roce/burst.h"
#include "roce/delayed_ack.h"
#include "roce/qp_route.h"
#include "wire/syndrome.h"
#include "wire/timers.h"

enum {
	SLICE_PACKETS = 256, /* sent in one go, so that no lock is held for long */
	MAX_WINDOW = 1024,   /* packets in flight */
	/* Repetitions: where one packet in five is lost, one session in ten million ends badly. */
	LAST_ACKS = 9,
};

struct connection {
	struct vb_qp *qp;
	struct vb_roce_route route;        /* changes under both locks */
	/* Repetitions go out so that ICMP errors are reported. Under sq.lock. */
	struct vb_roce_route returnable;
	const struct vb_roce_route *requests_take; /* one of the two */
	struct vb_rc_req requester;
	struct vb_rc_slot *slots;
	bool requests;                     /* the requester has begun; under sq.lock */
	/* a thread sends requests; it is to look for more when it has. Under sq.lock */
	bool is_sending, sends_more;
	bool is_answering, answers_more;   /* the same of answers; under resp_lock */
	bool answers_ack_alone;            /* what is being sent is an ACK and nothing else */
	bool has_refused;                  /* and said so; under resp_lock */
	struct vb_timer timer;
	uint64_t timer_at;                 /* what it is set to at the latest; under sq.lock */
	struct vb_rc_resp responder;
	struct vb_execution execution;
	struct vb_cnp cnp;                 /* under resp_lock */
	bool cnp_due;
	/*
	 * Does the program answer what it gets with a message of its own? Hints, written under one of the
	 * locks.
	 */
	/* when the last batch with requests was done; 0: a post has followed it */
	_Atomic uint64_t arrived_at;
	atomic_uint answered;              /* posts that followed soon, in a row */
	/* an ACK is due, or may become so, or is about to be sent; written under resp_lock */
	atomic_bool owes_ack;
};

static struct connection *of(const struct vb_qp *qp) { return qp->path_state; }

/* ---- the requester: sq.lock is held ---- */

static const struct {
	enum ibv_wc_status status;
	const char *why;
} failures[] = {
	[VB_RC_SUCCESS] = { IBV_WC_SUCCESS, NULL },
	[VB_RC_REMOTE_INVALID_REQUEST] = { IBV_WC_REM_INV_REQ_ERR,
					   "the peer refused it as invalid (message longer than its receive "
					   "buffer, or an operation that its queue pair does not take)" },
	[VB_RC_REMOTE_ACCESS] = { IBV_WC_REM_ACCESS_ERR,
				  "the peer's memory may not be accessed so (key, range or rights)" },
	[VB_RC_REMOTE_OPERATIONAL] = { IBV_WC_REM_OP_ERR,
				       "the peer could not carry it out (its receive buffer's memory?)" },
	[VB_RC_RETRY_EXCEEDED] = { IBV_WC_RETRY_EXC_ERR,
				   "no answer after the last retry: is the peer's queue pair connected to "
				   "this one, and does the network let UDP port 4791 through?" },
	[VB_RC_RNR_RETRY_EXCEEDED] = { IBV_WC_RNR_RETRY_EXC_ERR,
				       "the peer never had a receive posted in time" },
	[VB_RC_LOCAL] = { IBV_WC_LOC_PROT_ERR, "its own memory or attributes do not allow it" },
	[VB_RC_BAD_RESPONSE] = { IBV_WC_BAD_RESP_ERR,
				 "the peer answered a READ with packets of the wrong length" },
};

static void fail(struct connection *c, const struct vb_rc_completion *done)
{
	const struct vb_sqe *sqe = vb_sq_at(&c->qp->sq, done->position);
	enum ibv_wc_status status = failures[done->status].status;
	if (done->status == VB_RC_LOCAL && sqe->status != VB_SQE_PENDING)
		status = sqe->status;
	vb_qp_fail(c->qp, status, failures[done->status].why);
}

static bool is_running(const struct vb_qp *qp)
{
	enum ibv_qp_state state = atomic_load(&qp->state);
	return state == IBV_QPS_RTS || state == IBV_QPS_SQD;
}

static void complete(struct connection *c)
{
	struct vb_rc_completion done;
	while (is_running(c->qp) && vb_rc_req_next_completion(&c->requester, &done)) {
		if (done.status == VB_RC_SUCCESS)
			vb_sq_complete(c->qp);
		else
			fail(c, &done);
	}
}

static void set_timer_to(struct connection *c, uint64_t at)
{
	c->timer_at = at;
	vb_timer_set(&c->timer, at);
}

static void set_timer(struct connection *c)
{
	uint64_t deadline = vb_rc_req_deadline(&c->requester);
	if (deadline < c->timer_at)
		set_timer_to(c, deadline);
}

/* False: the burst is full. */
static bool put(struct connection *c, struct vb_burst *burst, const struct vb_packet_out *out)
{
	struct vb_sqe *sqe = vb_sq_at(&c->qp->sq, out->position);
	uint8_t *payload =
		vb_burst_begin(burst, c->requests_take, out->header, out->header_bytes, out->payload_bytes);
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
static bool is_ack_due(struct connection *c)
{
	if (!vb_qp_listens(c->qp) || (c->is_answering && !c->answers_ack_alone))
		return false;
	if (c->is_answering)
		vb_rc_resp_ack_again(&c->responder);
	return vb_rc_resp_owes_ack_alone(&c->responder);
}

/* The ACK that is to be sent with requests. False: there is none. */
static bool take_ack(struct connection *c, struct vb_packet_out *ack)
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

static bool owes_ack(const struct connection *c)
{
	return atomic_load_explicit(&c->owes_ack, memory_order_relaxed);
}

/*
 * One burst of what may be sent now, at most up to SLICE_PACKETS in all; NULL: nothing. sends_more: the burst
 * is full.
 */
static struct vb_burst *fill(struct connection *c, uint64_t now, unsigned *n)
{
	struct vb_packet_out out;
	struct vb_burst *burst = NULL;
	c->sends_more = false;
	while (*n < SLICE_PACKETS && !c->sends_more && vb_rc_req_write(&c->requester, now, &out)) {
		if (!burst)
			burst = vb_burst_take();
		c->sends_more = !put(c, burst, &out);
		++*n;
	}
	return burst;
}

/*
 * Programs that wait for events rely on an order that adapters give, which acknowledge at once: a SEND
 * completes before the answer to it arrives. So the ACK goes ahead of the requests while no thread polls. It
 * also does where tags are matched: the peer of a rendezvous sees its SEND done before it hears that its
 * memory was read.
 */
static bool ack_goes_first(const struct connection *c) { return c->qp->tags || !vb_progress_is_polled(); }

static void send_ack_with(struct connection *c, const struct vb_roce_route *route, struct vb_burst *burst)
{
	struct vb_packet_out ack;
	if (!take_ack(c, &ack))
		return;
	if (ack_goes_first(c)) {
		vb_burst_send_alone(route, ack.header, ack.header_bytes);
	} else {
		vb_burst_begin(burst, route, ack.header, ack.header_bytes, 0);
		vb_burst_commit(burst);
	}
}

/*
 * The ACK goes with the last burst. So no message of the program's leaves without the ACK of what it has
 * received: the program may end when its message is answered. The ACK goes behind where it may, because a
 * shorter packet ends a burst of equal ones.
 */
static void send_burst(struct connection *c, struct vb_burst *burst)
{
	const struct vb_roce_route *route = c->requests_take;
	bool carries_ack = !c->sends_more && owes_ack(c);
	c->is_sending = true;
	vb_unlock(&c->qp->sq.lock);
	if (carries_ack)
		send_ack_with(c, route, burst);
	vb_burst_give(burst);
	vb_lock(&c->qp->sq.lock);
	c->is_sending = false;
}

/*
 * Sends what may be sent now. sq.lock is released meanwhile: the QP may not be running any more. Returns the
 * packets.
 */
static unsigned send_requests(struct connection *c, uint64_t now)
{
	struct vb_burst *burst;
	unsigned n = 0;
	c->sends_more = true;
	while (!c->is_sending && c->sends_more && n < SLICE_PACKETS && is_running(c->qp)) {
		burst = fill(c, now, &n);
		if (burst)
			send_burst(c, burst);
	}
	return n;
}

/* Sends what may be sent now; completes what is done. */
static void request_at(struct connection *c, uint64_t now)
{
	unsigned n = send_requests(c, now);
	complete(c);
	if (!is_running(c->qp))
		return;
	set_timer(c);
	if (n == SLICE_PACKETS)
		vb_progress_schedule(c->qp);
}

/* A request that cannot be carried out fails once all that was posted before it has completed. */
static void post_failing(struct connection *c, uint32_t position)
{
	static const struct vb_request nothing = { .kind = VB_REQ_SEND };
	if (!vb_rc_req_post(&c->requester, &nothing))
		vb_rc_req_break(&c->requester, position, VB_RC_LOCAL);
}

/* An entry that is this side's alone, once it is the oldest. */
static bool execute_here(struct connection *c)
{
	if (c->qp->sq.head != c->qp->sq.sent || !vb_sq_execute(c->qp))
		return false;
	vb_rc_req_skip(&c->requester);
	return true;
}

/* False: nothing more can be for now. */
static bool hand_over(struct connection *c, struct vb_sqe *sqe, uint32_t position)
{
	struct vb_request r;
	if (vb_unlikely(vb_sqe_is_local(sqe)))
		return execute_here(c);
	if (vb_unlikely(sqe->status != VB_SQE_PENDING || !vb_payload_is_readable(c->qp, sqe))) {
		post_failing(c, position);
		c->qp->sq.sent++;
		return true;
	}
	vb_request_of_sqe(sqe, &r);
	if (vb_rc_req_post(&c->requester, &r))
		return false;
	c->qp->sq.sent++;
	return true;
}

static bool may_start(const struct connection *c)
{
	return c->requests && atomic_load(&c->qp->state) == IBV_QPS_RTS && c->qp->sq.sent != c->qp->sq.tail;
}

/*
 * Hands over what can be, sends what may be. What waits for all before it to complete may follow at once when
 * they have.
 */
static void go_on(struct connection *c, uint64_t now)
{
	struct vb_sq *sq = &c->qp->sq;
	do {
		while (may_start(c) && hand_over(c, vb_sq_at(sq, sq->sent), sq->sent))
			;
		if (c->requests && is_running(c->qp))
			request_at(c, now);
	} while (may_start(c) && sq->head == sq->sent && vb_sqe_is_local(vb_sq_at(sq, sq->sent)));
}

static void note_post(struct connection *c, uint64_t now)
{
	uint64_t arrived_at = atomic_load_explicit(&c->arrived_at, memory_order_relaxed);
	if (!arrived_at)
		return;
	bool soon = now - arrived_at < vb_max_u64(VB_SOON_NS, c->requester.window.smooth_ns / VB_SOON_SHARE);
	atomic_store_explicit(&c->answered,
			      soon ? atomic_load_explicit(&c->answered, memory_order_relaxed) + 1 : 0,
			      memory_order_relaxed);
	atomic_store_explicit(&c->arrived_at, 0, memory_order_relaxed);
}

static void send_posted(struct vb_qp *qp)
{
	struct connection *c = of(qp);
	uint64_t now = vb_now_ns();
	note_post(c, now);
	go_on(c, now);
}

/* Mostly the deadline has moved on since the timer was set, which is all that there is to do then. */
static bool is_due(struct connection *c, uint64_t now_ns)
{
	if (!vb_lock_try(&c->qp->sq.lock)) {
		/* somebody is at it, who sets the timer as well */
		vb_timer_set(&c->timer, now_ns + VB_BUSY_RECEIVER_NS);
		return false;
	}
	bool running = c->requests && is_running(c->qp),
	     due = running && vb_rc_req_deadline(&c->requester) <= now_ns;
	if (!due) {
		c->timer_at = VB_RC_NEVER;
		if (running)
			set_timer(c);
	}
	vb_unlock(&c->qp->sq.lock);
	return due;
}

static void ask_again(struct connection *c, uint64_t now_ns)
{
	if (vb_roce_route_returnable(&c->route, &c->returnable))
		c->requests_take = &c->returnable;
	go_on(c, now_ns);
	c->requests_take = &c->route;
}

/*
 * What this process was too slow to receive has not been lost: the socket is emptied before silence counts.
 * If another thread is about to do that (and perhaps waits for a processor), so does the timer.
 */
static void timer_fired(struct vb_timer *timer, uint64_t now_ns)
{
	struct connection *c = timer->arg;
	struct vb_qp *qp = c->qp;
	if (!is_due(c, now_ns))
		return;
	bool drained = vb_udp_drain();
	vb_lock(&qp->sq.lock);
	c->timer_at = VB_RC_NEVER;
	if (c->requests && is_running(qp)) {
		if (drained) {
			vb_rc_req_expire(&c->requester, now_ns);
			ask_again(c, now_ns);
		} else {
			set_timer_to(c, now_ns + VB_BUSY_RECEIVER_NS);
		}
	}
	vb_unlock(&qp->sq.lock);
}

static int place(void *ctx, uint32_t position, uint64_t offset, const void *bytes, size_t len)
{
	struct connection *c = ctx;
	return vb_payload_place(c->qp, vb_sq_at(&c->qp->sq, position), offset, bytes, len) ? 0 : -EFAULT;
}

/* ---- the responder: resp_lock is held ---- */

static struct vb_burst *begin_answers(struct connection *c)
{
	struct vb_burst *burst = vb_burst_take();
	struct vb_packet_out out;
	if (vb_likely(!c->cnp_due))
		return burst;
	c->cnp_due = false;
	vb_cnp_build(&c->responder.config.to, &out);
	vb_burst_begin(burst, &c->route, out.header, out.header_bytes, 0);
	vb_burst_commit(burst);
	return burst;
}

/*
 * One burst of answers, at most up to SLICE_PACKETS in all; NULL: there are none. answers_more: the burst is
 * full.
 */
static struct vb_burst *fill_answers(struct connection *c, unsigned *n)
{
	struct vb_packet_out out;
	struct vb_burst *burst = c->cnp_due ? begin_answers(c) : NULL;
	c->answers_more = false;
	for (; *n < SLICE_PACKETS && !c->answers_more && vb_rc_resp_write(&c->responder, &out); ++*n) {
		if (!burst)
			burst = begin_answers(c);
		uint8_t *payload =
			vb_burst_begin(burst, &c->route, out.header, out.header_bytes, out.payload_bytes);
		if (!out.payload_bytes || vb_execution_read(&c->execution, out.srqn, out.rkey, out.payload_at,
							    payload, out.payload_bytes))
			c->answers_more = !vb_burst_commit(burst);
		else
			vb_rc_resp_fault(&c->responder, &out);
	}
	return burst;
}

/* What the responder has refused, if it has; an ACK that ends the connection is none. */
static const struct vb_refusal *refusal_of(const struct connection *c)
{
	uint8_t syndrome = c->responder.nak_syndrome;
	bool refuses = c->responder.broken && vb_syndrome_class(syndrome) == VB_AETH_NAK;
	return refuses ? vb_refusal_of(vb_syndrome_value(syndrome)) : NULL;
}

static enum ibv_wc_status status_of_receive(const struct connection *c)
{
	const struct vb_refusal *refusal = refusal_of(c);
	if (c->execution.receive_status != IBV_WC_SUCCESS)
		return c->execution.receive_status;
	return refusal && vb_rc_resp_has_refused_next(&c->responder) ? refusal->receive : IBV_WC_WR_FLUSH_ERR;
}

/*
 * The receive that is taken, if one is: what it failed with counts, though the queue pair may be stopped
 * before that is reported.
 */
static void end_receive(struct connection *c)
{
	vb_execution_end_receive(&c->execution, status_of_receive(c));
}

/*
 * The responder has ended the session: says so. A receive that was at fault ends when the queue pair stops,
 * in the error state. The event if that receive does not tell it, or -1.
 */
static int note_refusal(struct connection *c)
{
	const struct vb_qp *qp = c->qp;
	const struct vb_rwqe *w = &c->execution.rwqe;
	const struct vb_refusal *refusal = refusal_of(c);
	bool is_reported = c->execution.have_rwqe && status_of_receive(c) != IBV_WC_WR_FLUSH_ERR;
	const char *why =
		c->execution.why ?
			c->execution.why :
			"it breaks the rules of the connection (opcode, length, an atomic's alignment, path MTU or number of READs)";
	if (c->execution.have_rwqe && c->execution.receive_status != IBV_WC_SUCCESS)
		vb_explain("receiver",
			   "QP 0x%06x, receive wr_id 0x%llx, %llu bytes: a message of QP 0x%06x: %s", qp->qpn,
			   (unsigned long long)w->wr_id, (unsigned long long)w->length, qp->attr.dest_qp_num,
			   why);
	else
		vb_explain("responder", "QP 0x%06x, request of QP 0x%06x: %s", qp->qpn, qp->attr.dest_qp_num,
			   why);
	return is_reported || !refusal ? -1 : refusal->event;
}

/* In the error state there is only a NAK to repeat. */
static bool may_respond(const struct connection *c)
{
	return vb_qp_listens(c->qp) || (c->responder.broken && atomic_load(&c->qp->state) == IBV_QPS_ERR);
}

/* True, once: the responder has refused a request for good. Its NAK has been sent. */
static bool refuses(struct connection *c, int *event)
{
	if (vb_likely(!c->responder.broken) || c->has_refused)
		return false;
	c->has_refused = true;
	*event = note_refusal(c);
	return true;
}

static void note_owed_ack(struct connection *c)
{
	atomic_store_explicit(&c->owes_ack, c->responder.ack_due || c->is_answering, memory_order_relaxed);
}

static void send_answers(struct connection *c, struct vb_burst *burst)
{
	c->is_answering = true;
	vb_unlock(&c->qp->resp_lock);
	vb_burst_give(burst);
	vb_lock(&c->qp->resp_lock);
	c->is_answering = false;
}

/* resp_lock is held, and released; answers go out without it. */
static void finish_responding(struct connection *c)
{
	struct vb_qp *qp = c->qp;
	struct vb_burst *burst;
	unsigned n = 0;
	int event = -1;
	c->answers_more = true;
	while (!c->is_answering && c->answers_more && n < SLICE_PACKETS && may_respond(c)) {
		c->answers_ack_alone = !c->cnp_due && vb_rc_resp_owes_ack_alone(&c->responder);
		burst = fill_answers(c, &n);
		if (burst)
			send_answers(c, burst);
	}
	note_owed_ack(c);
	bool breaks = !c->is_answering && refuses(c, &event);
	vb_unlock(&qp->resp_lock);
	if (vb_unlikely(breaks))
		vb_qp_break(qp, event);
	else if (n == SLICE_PACKETS)
		vb_progress_schedule(qp);
}

/*
 * Each in a burst of its own: what is lost on the way may be a whole burst. Both locks are held all the time.
 */
static void repeat_last_ack(struct connection *c)
{
	unsigned repetitions = 0, n = 0;
	do {
		struct vb_burst *burst = fill_answers(c, &n);
		if (burst)
			vb_burst_give(burst);
	} while (repetitions++ < LAST_ACKS && vb_rc_resp_ack_again(&c->responder));
}

/* ---- arrivals ---- */

/* A lock is held: the route may be modified under traffic. */
static bool is_from_peer(const struct connection *c, const struct vb_inbox_msg *msg)
{
	return vb_likely(vb_qp_route_matches(&c->route, &msg->addr));
}

static bool accepts(bool is_ready, const struct connection *c, const struct vb_inbox_msg *msg)
{
	if (vb_likely(is_ready) && is_from_peer(c, msg))
		return true;
	vb_drop(is_ready ? VB_DROP_STRANGER : VB_DROP_NOT_READY);
	return false;
}

static enum vb_rc_verdict note(enum vb_rc_verdict verdict)
{
	if (vb_unlikely(verdict == VB_RC_IGNORED))
		vb_drop(VB_DROP_UNEXPECTED);
	return verdict;
}

static bool request_arrived(struct connection *c, const struct vb_inbox_msg *msg,
			    const struct vb_packet *packet)
{
	struct vb_qp *qp = c->qp;
	enum vb_rc_verdict verdict = VB_RC_IGNORED;
	vb_lock(&qp->resp_lock);
	/* Before the program can see what arrives. */
	atomic_store_explicit(&c->owes_ack, true, memory_order_relaxed);
	if (accepts(may_respond(c), c, msg))
		verdict = note(vb_rc_resp_receive(&c->responder, packet));
	vb_execution_release_queue(&c->execution);
	note_owed_ack(c);
	if (vb_unlikely(!qp->comm_est) && verdict == VB_RC_TAKEN && vb_rc_resp_has_begun(&c->responder))
		vb_qp_established(qp);
	if (vb_unlikely(verdict == VB_RC_BROKEN)) {
		finish_responding(c);
		return false;
	}
	vb_unlock(&qp->resp_lock);
	return verdict == VB_RC_TAKEN;
}

static bool answer_arrived(struct connection *c, const struct vb_inbox_msg *msg,
			   const struct vb_packet *packet)
{
	struct vb_qp *qp = c->qp;
	enum vb_rc_verdict verdict = VB_RC_IGNORED;
	vb_lock(&qp->sq.lock);
	if (accepts(c->requests && is_running(qp), c, msg))
		verdict = note(vb_rc_req_receive(&c->requester, vb_now_ns(), packet));
	/* at once: a request in the same batch may be the answer to what is done now */
	if (verdict != VB_RC_IGNORED)
		complete(c);
	vb_unlock(&qp->sq.lock);
	return verdict == VB_RC_TAKEN;
}

static bool handle(struct connection *c, const struct vb_inbox_msg *msg, const struct vb_packet *packet)
{
	return packet->row->flags.request ? request_arrived(c, msg, packet) : answer_arrived(c, msg, packet);
}

/* The packet met a queue that fills: a CNP tells its sender, but not for each packet. True: one is due. */
static bool note_congestion(struct connection *c, const struct vb_inbox_msg *msg)
{
	vb_lock(&c->qp->resp_lock);
	c->cnp_due |= vb_qp_listens(c->qp) && is_from_peer(c, msg) && vb_cnp_is_due(&c->cnp, vb_now_ns());
	bool due = c->cnp_due;
	vb_unlock(&c->qp->resp_lock);
	return due;
}

static bool is_congested(const struct vb_inbox_addr *addr)
{
	return (addr->traffic_class & VB_ECN_MASK) == VB_ECN_CONGESTED;
}

static bool arrived(struct vb_qp *qp, const struct vb_inbox_msg *msg, const struct vb_packet *packet)
{
	struct connection *c = of(qp);
	bool due = vb_unlikely(is_congested(&msg->addr)) && note_congestion(c, msg);
	return handle(c, msg, packet) || due;
}

/* Is only an ACK due, and a post likely to follow that carries it? Then it is delayed. resp_lock is held. */
static bool may_wait(struct connection *c, uint64_t now)
{
	return vb_progress_is_polled() &&
	       atomic_load_explicit(&c->answered, memory_order_relaxed) >= VB_ANSWERS_IN_A_ROW &&
	       !c->cnp_due && vb_rc_resp_owes_ack_alone(&c->responder) &&
	       atomic_load(&c->qp->state) == IBV_QPS_RTS && vb_delayed_ack_put(c->qp, now);
}

static void answer(struct vb_qp *qp)
{
	struct connection *c = of(qp);
	uint64_t now = vb_now_ns();
	vb_lock(&qp->sq.lock);
	if (c->requests && is_running(qp))
		go_on(c, now);
	vb_unlock(&qp->sq.lock);
	vb_lock(&qp->resp_lock);
	if (c->responder.ack_due)
		atomic_store_explicit(&c->arrived_at, now, memory_order_relaxed);
	if (vb_unlikely(!may_respond(c)) || may_wait(c, now))
		vb_unlock(&qp->resp_lock);
	else
		finish_responding(c);
}

static void run(struct vb_qp *qp)
{
	if (vb_unlikely(qp->tags != NULL))
		vb_tags_run(qp);
	answer(qp);
}

static struct vb_path_ops rc_path;

/* A delayed ACK is due. */
static void acknowledge(struct vb_qp *qp)
{
	if (atomic_load(&qp->path) != &rc_path)
		return;
	struct connection *c = of(qp);
	vb_lock(&qp->resp_lock);
	if (c->responder.ack_due)
		atomic_store_explicit(&c->answered, 0, memory_order_relaxed);
	if (vb_likely(may_respond(c)))
		finish_responding(c);
	else
		vb_unlock(&qp->resp_lock);
}

/* ---- the path ---- */

static bool claims(struct vb_qp *qp)
{
	return qp->type == IBV_QPT_RC || qp->type == IBV_QPT_XRC_SEND || qp->type == IBV_QPT_XRC_RECV;
}

static void *take_buffer(void *ctx) { return vb_buffer_take(); }
static void give_buffer(void *ctx, void *buffer) { vb_buffer_give(buffer); }

static unsigned count_receives(void *ctx)
{
	struct vb_execution *execution = ctx;
	return vb_rq_waiting(&execution->qp->rq);
}

static struct vb_packet_to peer_of(const struct vb_qp *qp)
{
	return (struct vb_packet_to){ .qpn = qp->attr.dest_qp_num, .pkey = VB_PKEY_DEFAULT,
				       .service = qp->type == IBV_QPT_RC ? VB_SERVICE_RC : VB_SERVICE_XRC };
}

static void begin_responder(struct connection *c)
{
	const struct ibv_qp_attr *a = &c->qp->attr;
	struct vb_rc_resp_config config = {
		.to = peer_of(c->qp),
		.mtu = 128u << a->path_mtu,
		.first_psn = a->rq_psn,
		.max_rd_atomic = a->max_dest_rd_atomic,
		.rnr_timer = a->min_rnr_timer,
		.ops = &vb_execution_ops,
		.receives = c->qp->srq || c->qp->xrcd ? NULL : count_receives,
		.buffer_take = take_buffer,
		.buffer_give = give_buffer,
		.ctx = &c->execution,
	};
	vb_rc_resp_init(&c->responder, &config);
}

static void begin_requester(struct connection *c)
{
	const struct ibv_qp_attr *a = &c->qp->attr;
	struct vb_rc_req_config config = {
		.to = peer_of(c->qp),
		.mtu = 128u << a->path_mtu,
		.first_psn = a->sq_psn,
		.max_window = MAX_WINDOW,
		.max_rd_atomic = a->max_rd_atomic,
		.place = place,
		.ctx = c,
	};
	vb_rc_req_init(&c->requester, &config, c->slots, c->qp->sq.mask + 1);
	c->requests = true;
}

static int attach(struct vb_qp *qp)
{
	int err = vb_qp_route_open(qp);
	struct connection *c = err ? NULL : calloc(1, sizeof(*c));
	if (!c)
		return err ? err : -ENOMEM;
	c->slots = aligned_alloc(VB_CACHE_LINE,
				 vb_align_up((size_t)(qp->sq.mask + 1) * sizeof(*c->slots), VB_CACHE_LINE));
	if (!c->slots) {
		free(c);
		return -ENOMEM;
	}
	c->qp = c->execution.qp = qp;
	c->timer = (struct vb_timer){ .fire = timer_fired, .arg = c };
	c->timer_at = VB_RC_NEVER;
	vb_qp_route(qp, &c->route);
	c->requests_take = &c->route;
	begin_responder(c);
	qp->path_state = c;
	vb_roce_use(1);
	if (vb_faults_on)
		vb_fault_forget_psns(qp->qpn);
	return 0;
}

/* sq.lock is held. */
static void update(struct vb_qp *qp)
{
	struct connection *c = of(qp);
	const struct ibv_qp_attr *a = &qp->attr;
	vb_lock(&qp->resp_lock);
	vb_qp_route(qp, &c->route);
	c->responder.config.rnr_timer = a->min_rnr_timer;
	c->responder.config.max_rd_atomic = a->max_dest_rd_atomic;
	vb_unlock(&qp->resp_lock);
	if (!c->requests && atomic_load(&qp->state) == IBV_QPS_RTS)
		begin_requester(c);
	c->requester.config.max_rd_atomic = a->max_rd_atomic;
	c->requester.config.retry_count = a->retry_cnt;
	c->requester.config.rnr_retry = a->rnr_retry;
	c->requester.config.ack_timeout_ns = vb_transport_timer_ns(a->timeout);
}

/* Both locks are held. Packets and the timer look at the state from here on. */
static void stop(struct vb_qp *qp)
{
	struct connection *c = of(qp);
	repeat_last_ack(c);
	end_receive(c);
	vb_rc_resp_fini(&c->responder);
}

static void unlink_qp(struct vb_qp *qp)
{
	vb_timer_cancel(&of(qp)->timer);
	vb_delayed_ack_drop(qp);
}

/*
 * A program's thread that posts has no reference: it may be sending. Once it has sq.lock again, it has `c` no
 * longer than that.
 */
static void await_sender(struct connection *c)
{
	bool is_sending;
	do {
		vb_lock(&c->qp->sq.lock);
		is_sending = c->is_sending;
		vb_unlock(&c->qp->sq.lock);
	} while (is_sending && !sched_yield());
}

static void detach(struct vb_qp *qp)
{
	struct connection *c = of(qp);
	await_sender(c);
	vb_roce_use(-1);
	free(c->slots);
	free(c);
	qp->path_state = NULL;
}

static void describe(struct vb_qp *qp, struct vb_record_qp *record)
{
	const struct connection *c = of(qp);
	if (!c || !vb_lock_try(&qp->sq.lock))
		return;
	if (c->requests) {
		record->again = c->requester.packets_resent;
		record->retries = c->requester.retries;
	}
	vb_unlock(&qp->sq.lock);
}

static void count(const struct vb_qp *qp, struct vb_counts *counts)
{
	const struct connection *c = of(qp);
	counts->resent += vb_count_read(&c->requester.packets_resent);
	counts->timeouts += vb_count_read(&c->requester.timeouts);
	counts->rnr_received += vb_count_read(&c->requester.rnr_naks);
	counts->sequence_received += vb_count_read(&c->requester.sequence_naks);
	counts->naks_received += vb_count_read(&c->requester.fatal_naks);
	counts->rnr_sent += vb_count_read(&c->responder.rnr_naks);
	counts->sequence_sent += vb_count_read(&c->responder.sequence_naks);
	counts->naks_sent += vb_count_read(&c->responder.fatal_naks);
	counts->duplicates += vb_count_read(&c->responder.duplicates);
	counts->early += vb_count_read(&c->responder.early);
}

static struct vb_path_ops rc_path = {
	.name = "RC",
	.rank = VB_PATH_WIRE,
	.claims = claims,
	.attach = attach,
	.update = update,
	.stop = stop,
	.unlink = unlink_qp,
	.detach = detach,
	.send = send_posted,
	.run = run,
	.describe = describe,
	.count = count,
	.arrived = arrived,
};

__attribute__((constructor)) static void offer(void)
{
	vb_delayed_ack_set_handler(acknowledge);
	vb_path_register(&rc_path);
}

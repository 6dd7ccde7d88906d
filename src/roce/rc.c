/* SPDX-License-Identifier: BSD-2-Clause */
/* Reliable connections over the wire: what arrives for them, and the path. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "adapter/device/device.h"
#include "adapter/fault_injection.h"
#include "adapter/inspection/counts.h"
#include "adapter/queues/tags.h"
#include "base/inet.h"
#include "base/tuned.h"
#include "roce/buffers.h"
#include "roce/delayed_ack.h"
#include "roce/rc.h"
#include "wire/timers.h"

/* ---- arrivals ---- */

/* A lock is held: the route may be modified under traffic. */
static bool is_from_peer(const struct vb_rc_connection *c, const struct vb_inbox_msg *msg)
{
	return vb_likely(vb_qp_route_matches(&c->route, &msg->addr));
}

static bool accepts(bool is_ready, const struct vb_rc_connection *c, const struct vb_inbox_msg *msg)
{
	if (vb_likely(is_ready) && is_from_peer(c, msg))
		return true;
	if (is_ready)
		vb_qp_route_drop_stranger(c->qp, &c->route, &msg->addr);
	else
		vb_drop(VB_DROP_NOT_READY);
	return false;
}

static enum vb_rc_verdict note(enum vb_rc_verdict verdict)
{
	if (vb_unlikely(verdict == VB_RC_IGNORED))
		vb_drop(VB_DROP_UNEXPECTED);
	return verdict;
}

static bool request_arrived(struct vb_rc_connection *c, const struct vb_inbox_msg *msg,
			    const struct vb_packet *packet)
{
	struct vb_qp *qp = c->qp;
	enum vb_rc_verdict verdict = VB_RC_IGNORED;
	vb_lock(&qp->resp_lock);
	/* Before the program can see what arrives. */
	atomic_store_explicit(&c->owes_ack, true, memory_order_relaxed);
	if (accepts(vb_rc_may_respond(c), c, msg))
		verdict = note(vb_rc_resp_receive(&c->responder, packet));
	vb_execution_release_queue(&c->execution);
	vb_rc_note_owed_ack(c);
	if (vb_unlikely(!qp->comm_est) && verdict == VB_RC_TAKEN && vb_rc_resp_has_begun(&c->responder))
		vb_qp_established(qp);
	if (vb_unlikely(verdict == VB_RC_BROKEN)) {
		vb_rc_respond_and_unlock(c);
		return false;
	}
	vb_unlock(&qp->resp_lock);
	return verdict == VB_RC_TAKEN;
}

static bool answer_arrived(struct vb_rc_connection *c, const struct vb_inbox_msg *msg,
			   const struct vb_packet *packet)
{
	struct vb_qp *qp = c->qp;
	enum vb_rc_verdict verdict = VB_RC_IGNORED;
	vb_lock(&qp->sq.lock);
	if (accepts(c->requests && vb_rc_is_running(qp), c, msg))
		verdict = note(vb_rc_req_receive(&c->requester, vb_now_ns(), packet));
	/* at once: a request in the same batch may be the answer to what is done now */
	if (verdict != VB_RC_IGNORED)
		vb_rc_complete(c);
	vb_unlock(&qp->sq.lock);
	return verdict == VB_RC_TAKEN;
}

/* An XRC initiator has no responder (annex A14), so that requests to it are dropped. */
static bool handle(struct vb_rc_connection *c, const struct vb_inbox_msg *msg, const struct vb_packet *packet)
{
	if (!packet->row->flags.request)
		return answer_arrived(c, msg, packet);
	if (vb_likely(c->qp->type != IBV_QPT_XRC_SEND))
		return request_arrived(c, msg, packet);
	vb_drop(VB_DROP_UNEXPECTED);
	return false;
}

/* The packet met a queue that fills: a CNP tells its sender, but not for each packet. True: one is due. */
static bool note_congestion(struct vb_rc_connection *c, const struct vb_inbox_msg *msg)
{
	vb_lock(&c->qp->resp_lock);
	c->cnp_due |= vb_qp_listens(c->qp) && is_from_peer(c, msg) && vb_cnp_is_due(&c->cnp, vb_now_ns());
	bool due = c->cnp_due;
	vb_unlock(&c->qp->resp_lock);
	return due;
}

static bool arrived(struct vb_qp *qp, const struct vb_inbox_msg *msg, const struct vb_packet *packet)
{
	struct vb_rc_connection *c = vb_rc_of(qp);
	bool due = vb_unlikely(vb_inet_is_congested(msg->addr.traffic_class)) &&
		   note_congestion(c, msg);
	return handle(c, msg, packet) || due;
}

/* Is only an ACK due, and a post likely to follow that carries it? Then it is delayed. resp_lock is held. */
static bool may_wait(struct vb_rc_connection *c, uint64_t now)
{
	return !vb_rc_may_wait_for_events(c) &&
	       atomic_load_explicit(&c->answered, memory_order_relaxed) >= VB_ANSWERS_IN_A_ROW &&
	       !c->cnp_due && vb_rc_resp_owes_ack_alone(&c->responder) &&
	       atomic_load(&c->qp->state) == IBV_QPS_RTS && vb_delayed_ack_put(c->qp, now);
}

static void answer(struct vb_qp *qp)
{
	struct vb_rc_connection *c = vb_rc_of(qp);
	uint64_t now = vb_now_ns();
	vb_lock(&qp->sq.lock);
	if (c->requests && vb_rc_is_running(qp))
		vb_rc_go_on(c, now);
	vb_unlock(&qp->sq.lock);
	vb_lock(&qp->resp_lock);
	if (c->responder.ack_due)
		atomic_store_explicit(&c->arrived_at, now, memory_order_relaxed);
	if (vb_unlikely(!vb_rc_may_respond(c)) || may_wait(c, now))
		vb_unlock(&qp->resp_lock);
	else
		vb_rc_respond_and_unlock(c);
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
	struct vb_rc_connection *c = vb_rc_of(qp);
	vb_lock(&qp->resp_lock);
	if (c->responder.ack_due)
		atomic_store_explicit(&c->answered, 0, memory_order_relaxed);
	if (vb_likely(vb_rc_may_respond(c)))
		vb_rc_respond_and_unlock(c);
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

static void begin_responder(struct vb_rc_connection *c)
{
	const struct ibv_qp_attr *a = &c->qp->attr;
	struct vb_rc_resp_config config = {
		.to = vb_rc_peer_of(c->qp),
		.mtu = vb_mtu_bytes(a->path_mtu),
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

static int attach(struct vb_qp *qp)
{
	int err = vb_qp_route_open(qp);
	struct vb_rc_connection *c = err ? NULL : calloc(1, sizeof(*c));
	if (!c)
		return err ? err : -ENOMEM;
	c->entries = aligned_alloc(VB_CACHE_LINE,
				 vb_align_up((size_t)(qp->sq.mask + 1) * sizeof(*c->entries), VB_CACHE_LINE));
	if (!c->entries) {
		free(c);
		return -ENOMEM;
	}
	c->qp = c->execution.qp = qp;
	c->timer = (struct vb_timer){ .fire = vb_rc_timer_fired, .arg = c };
	c->timer_at = VB_RC_NEVER;
	vb_qp_route(qp, &c->route);
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
	struct vb_rc_connection *c = vb_rc_of(qp);
	const struct ibv_qp_attr *a = &qp->attr;
	vb_lock(&qp->resp_lock);
	vb_qp_route(qp, &c->route);
	c->responder.config.rnr_timer = a->min_rnr_timer;
	c->responder.config.max_rd_atomic = a->max_dest_rd_atomic;
	vb_unlock(&qp->resp_lock);
	if (!c->requests && atomic_load(&qp->state) == IBV_QPS_RTS)
		vb_rc_begin_requests(c);
	c->requester.config.max_rd_atomic = a->max_rd_atomic;
	c->requester.config.retry_count = a->retry_cnt;
	c->requester.config.rnr_retry = a->rnr_retry;
	c->requester.config.ack_timeout_ns = vb_transport_timer_ns(a->timeout);
}

/* Both locks are held. The QP's state has changed already, and packets and the timer look at it first. */
static void stop(struct vb_qp *qp)
{
	struct vb_rc_connection *c = vb_rc_of(qp);
	vb_rc_repeat_last_ack(c);
	vb_rc_end_receive(c);
	vb_rc_resp_fini(&c->responder);
}

static void unlink_qp(struct vb_qp *qp)
{
	vb_timer_cancel(&vb_rc_of(qp)->timer);
	vb_delayed_ack_drop(qp);
}

/*
 * A program's thread that posts has no reference: it may be sending. Once it has sq.lock again, it has `c` no
 * longer than that.
 */
static void await_sender(struct vb_rc_connection *c)
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
	struct vb_rc_connection *c = vb_rc_of(qp);
	await_sender(c);
	vb_roce_use(-1);
	free(c->entries);
	free(c);
	qp->path_state = NULL;
}

static void describe(struct vb_qp *qp, struct vb_record_qp *record)
{
	const struct vb_rc_connection *c = vb_rc_of(qp);
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
	const struct vb_rc_connection *c = vb_rc_of(qp);
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
	.send = vb_rc_send_posted,
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

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Unreliable connections over the wire. The sender cuts requests into packets and is done with each when its
 * last packet is sent; a long one is sent in slices. The receiver is proto/rc/uc.h's. A send error moves the
 * QP to SQE: its receives go on.
 */
#include <errno.h>
#include <stdlib.h>

#include "adapter/device/device.h"
#include "adapter/queues/request.h"
#include "adapter/progress/path.h"
#include "adapter/execution/execute.h"
#include "adapter/inspection/counts.h"
#include "adapter/queues/payload.h"
#include "adapter/queues/status.h"
#include "base/log.h"
#include "proto/psn.h"
#include "proto/rc/uc.h"
#include "roce/burst.h"
#include "roce/qp_route.h"

enum { SLICE_PACKETS = 256 };

struct connection {
	struct vb_qp *qp;
	struct vb_roce_route route;       /* changes under both locks */
	struct vb_packet_to to;
	uint32_t mtu;
	uint32_t psn, index;              /* of the next packet; its place in its request. Under sq.lock */
	bool sends;                       /* sq_psn is known */
	struct vb_uc_resp responder;
	struct vb_execution execution;
};

static struct connection *of(const struct vb_qp *qp) { return qp->path_state; }

/* ---- sending: sq.lock is held ---- */

static bool put(struct connection *c, struct vb_burst *burst, struct vb_sqe *sqe, const struct vb_request *r)
{
	struct vb_packet_out out;
	vb_request_packet(r, &c->to, c->mtu, c->psn, c->index, 0, &out);
	uint8_t *payload = vb_burst_begin(burst, &c->route, out.header, out.header_bytes, out.payload_bytes);
	if (out.payload_bytes && !vb_payload_gather(c->qp, sqe, out.payload_at, payload, out.payload_bytes))
		return false;
	vb_burst_commit(burst);
	c->psn = (c->psn + 1) & VB_PSN_MASK;
	c->index++;
	return true;
}

/* Sends up to *budget packets of the oldest request that is not sent; false if it cannot be carried out. */
static bool send_some(struct connection *c, struct vb_burst *burst, struct vb_sqe *sqe, unsigned *budget,
		      bool *done)
{
	struct vb_request r;
	*done = false;
	if (sqe->status != VB_SQE_PENDING || (!c->index && !vb_payload_is_readable(c->qp, sqe)))
		return false;
	vb_request_of_sqe(sqe, 0, &r);
	uint32_t packets = vb_request_packets(&r, c->mtu);
	for (; c->index < packets && *budget; --*budget)
		if (!put(c, burst, sqe, &r))
			return false;
	*done = c->index == packets;
	return true;
}

/* May a packet of the oldest request that is not sent go? */
static bool may_send(const struct vb_qp *qp)
{
	enum ibv_qp_state state = atomic_load(&qp->state);
	return state == IBV_QPS_RTS || (state == IBV_QPS_SQD && qp->sq.begun);
}

static void send_posted(struct vb_qp *qp)
{
	struct connection *c = of(qp);
	struct vb_sq *sq = &qp->sq;
	unsigned budget = SLICE_PACKETS;
	bool done;
	if (!c->sends || sq->sent == sq->tail)
		return;
	struct vb_burst *burst = vb_burst_take(VB_BURST_REQUESTS);
	while (sq->sent != sq->tail && budget && may_send(qp)) {
		struct vb_sqe *sqe = vb_sq_at(sq, sq->sent);
		if (vb_sqe_is_local(sqe)) {
			vb_sq_execute(qp);
			continue;
		}
		bool good = send_some(c, burst, sqe, &budget, &done);
		sq->begun = good && !done;
		if (sq->begun)
			break;
		sq->sent++;
		c->index = 0;
		if (good)
			vb_sq_complete(qp);
		else
			vb_qp_fail_sends(qp, sqe->status, vb_wc_status_text(sqe->status));
	}
	vb_burst_give(burst);
	if (sq->sent != sq->tail && may_send(qp))
		vb_progress_schedule(qp);
}

static void run(struct vb_qp *qp)
{
	if (!vb_lock_try(&qp->sq.lock)) {
		vb_progress_retry(qp);
		return;
	}
	if (may_send(qp))
		send_posted(qp);
	vb_unlock(&qp->sq.lock);
}

/* ---- receiving ---- */

/* The sender does not hear that its message is lost. resp_lock is held. */
static void explain(struct connection *c, int err)
{
	struct vb_qp *qp = c->qp;
	if (c->execution.why)
		vb_execution_explain(&c->execution, NULL);
	else if (err == -EAGAIN && vb_drop_is_news(qp, VB_DROP_NO_RECEIVE))
		vb_explain_limit(
			"receiver",
			"QP 0x%06x: no receive is posted for a message of QP 0x%06x: such are dropped",
			qp->qpn, qp->attr.dest_qp_num);
	c->execution.why = NULL;
}

/*
 * A receive whose memory cannot be written ends the QP; a message that is too long is lost like any other,
 * and the next one gets its receive. resp_lock is held.
 */
static bool is_unusable(struct connection *c)
{
	enum ibv_wc_status status = c->execution.receive_status;
	c->execution.receive_status = IBV_WC_SUCCESS;
	if (!c->execution.have_rwqe || status != IBV_WC_LOC_PROT_ERR)
		return false;
	vb_execution_end_receive(&c->execution, status);
	return true;
}

/* False: a receive is unusable. resp_lock is held. */
static bool take(struct connection *c, const struct vb_packet *packet)
{
	int err = vb_uc_resp_receive(&c->responder, packet);
	if (vb_likely(!err)) {
		vb_qp_established(c->qp);
		return true;
	}
	explain(c, err);
	return !is_unusable(c);
}

static bool arrived(struct vb_qp *qp, const struct vb_inbox_msg *msg, const struct vb_packet *packet)
{
	struct connection *c = of(qp);
	bool broken = false;
	vb_lock(&qp->resp_lock);
	if (!vb_qp_listens(qp)) {
		vb_drop(VB_DROP_NOT_READY);
	} else if (!vb_qp_route_matches(&c->route, &msg->addr)) {
		vb_qp_route_drop_stranger(qp, &c->route, &msg->addr);
	} else if (vb_unlikely(packet->opcode >> VB_OPCODE_BITS != VB_SERVICE_UC)) {
		vb_drop(VB_DROP_UNEXPECTED);
	} else {
		broken = !take(c, packet);
	}
	vb_unlock(&qp->resp_lock);
	if (vb_unlikely(broken))
		vb_qp_break(qp, -1);
	return false;
}

/* ---- the path ---- */

static bool claims(struct vb_qp *qp)
{
	return qp->type == IBV_QPT_UC;
}

static int attach(struct vb_qp *qp)
{
	int err = vb_qp_route_open(qp);
	struct connection *c = err ? NULL : calloc(1, sizeof(*c));
	if (!c)
		return err ? err : -ENOMEM;
	c->qp = c->execution.qp = qp;
	c->mtu = vb_mtu_bytes(qp->attr.path_mtu);
	c->to = (struct vb_packet_to){ .qpn = qp->attr.dest_qp_num,
				       .pkey = VB_PKEY_DEFAULT,
				       .service = VB_SERVICE_UC };
	vb_qp_route(qp, &c->route);
	struct vb_uc_resp_config config = { .mtu = c->mtu,
					    .first_psn = qp->attr.rq_psn,
					    .pkey = VB_PKEY_DEFAULT,
					    .ops = &vb_execution_ops,
					    .ctx = &c->execution };
	vb_uc_resp_init(&c->responder, &config);
	qp->path_state = c;
	vb_roce_use(1);
	return 0;
}

/* sq.lock is held. */
static void update(struct vb_qp *qp)
{
	struct connection *c = of(qp);
	vb_lock(&qp->resp_lock);
	vb_qp_route(qp, &c->route);
	vb_unlock(&qp->resp_lock);
	if (!c->sends && atomic_load(&qp->state) == IBV_QPS_RTS) {
		c->psn = qp->attr.sq_psn;
		c->sends = true;
	}
}

/* Both locks are held. */
static void stop(struct vb_qp *qp)
{
	vb_execution_end_receive(&of(qp)->execution, IBV_WC_WR_FLUSH_ERR);
}

static void detach(struct vb_qp *qp)
{
	vb_roce_use(-1);
	free(of(qp));
	qp->path_state = NULL;
}

static void count(const struct vb_qp *qp, struct vb_counts *counts)
{
	counts->unexecuted += vb_count_read(&of(qp)->responder.dropped);
}

static struct vb_path_ops uc_path = {
	.name = "UC",
	.rank = VB_PATH_WIRE,
	.claims = claims,
	.attach = attach,
	.update = update,
	.stop = stop,
	.detach = detach,
	.send = send_posted,
	.run = run,
	.arrived = arrived,
	.count = count,
};

__attribute__((constructor)) static void offer(void)
{
	vb_path_register(&uc_path);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue pairs: creation, the state machine's side effects, destruction. The table of transitions is in
 * qp_state.c.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/device/device.h"
#include "adapter/inspection/counts.h"
#include "adapter/progress/path.h"
#include "adapter/progress/progress.h"
#include "adapter/progress/qpn.h"
#include "adapter/qp_state.h"
#include "adapter/queues/queue.h"
#include "adapter/memory/segment.h"
#include "adapter/queues/counter.h"
#include "adapter/queues/tags.h"
#include "adapter/memory/window.h"
#include "adapter/start.h"
#include "adapter/xrc/xrc_remote.h"
#include "base/log.h"
#include "host/ipc/capture.h"
#include "host/memory/touch.h"

enum { MAX_QPN = 0xffffff, MAX_RETRY = 7, MAX_TIMER = 31 };

/* ---- creation ---- */

static int check_caps(const struct vb_qp_init_attr *init)
{
	const struct ibv_qp_cap *c = &init->cap;
	if (c->max_send_wr > VB_MAX_WR || c->max_send_sge > VB_MAX_SGE || c->max_inline_data > VB_MAX_INLINE)
		return -EINVAL;
	if (!init->srq && (c->max_recv_wr > VB_MAX_WR || c->max_recv_sge > VB_MAX_SGE))
		return -EINVAL;
	return init->xrcd || (init->send_cq && init->recv_cq) ? 0 : -EINVAL;
}

/* The end of each entry holds what only some types of queue pairs have. */
static uint32_t end_bytes(enum ibv_qp_type type, const struct vb_sq *sq)
{
	if (type == IBV_QPT_UD)
		return sizeof(struct vb_datagram_to);
	return type == IBV_QPT_XRC_SEND ? sizeof(uint32_t) : sq->header_room;
}

/* own: places for entries beside the program's. */
static int init_sq(struct vb_sq *sq, struct vb_pd *pd, const struct vb_qp_init_attr *init, uint32_t own)
{
	const struct ibv_qp_cap *cap = &init->cap;
	vb_lock_init(&sq->lock);
	sq->max_wr = cap->max_send_wr;
	sq->max_sge = cap->max_send_sge;
	uint32_t entries = sq->max_wr + own;
	sq->mask = vb_pow2_at_least(entries) - 1;
	uint32_t gather = sq->max_sge * sizeof(struct ibv_sge);
	uint32_t tail = gather > cap->max_inline_data ? gather : cap->max_inline_data;
	/* where the entries would be there is room for as much inline data, asked for or not */
	sq->max_inline = tail;
	sq->header_room = vb_align_up(init->max_tso_header, 8);
	sq->stride = vb_align_up(vb_align_up(sizeof(struct vb_sqe) + tail, 8) + end_bytes(init->type, sq),
				 VB_CACHE_LINE);
	int err = vb_queue_memory_take(&sq->memory, pd, entries ? (size_t)(sq->mask + 1) * sq->stride : 0);
	sq->entries = sq->memory.at;
	return err;
}

static void hold_users(struct vb_qp *qp, int by)
{
	if (qp->xrcd) {
		atomic_fetch_add(&qp->xrcd->refs, by);
		return;
	}
	atomic_fetch_add(&qp->pd->refs, by);
	atomic_fetch_add(&qp->send_cq->refs, by);
	atomic_fetch_add(&qp->recv_cq->refs, by);
	if (qp->srq)
		atomic_fetch_add(&qp->srq->refs, by);
}

static void free_queues(struct vb_qp *qp)
{
	vb_queue_memory_give(&qp->sq.memory, qp->pd);
	vb_rq_fini(&qp->rq);
	vb_tag_receiver_fini(qp);
}

/*
 * One on a queue that matches tags: its completions are the queue's, and it reads into any of the queue's
 * buffers.
 */
static int init_tags(struct vb_qp *qp, struct ibv_qp_cap *cap)
{
	qp->recv_cq = qp->srq->cq;
	if (cap->max_send_sge < qp->srq->rq.max_sge)
		cap->max_send_sge = qp->srq->rq.max_sge;
	return vb_tag_receiver_init(qp);
}

static void mark_captured(void *qp, bool is_captured)
{
	atomic_store(&((struct vb_qp *)qp)->is_captured, is_captured);
}

int vb_qp_init(struct vb_qp *qp, struct vb_pd *pd, struct vb_qp_init_attr *init)
{
	int err = check_caps(init);
	if (!err)
		err = vb_adapter_start();
	if (err)
		return err;
	memset(qp, 0, sizeof(*qp));
	if (init->srq)
		init->cap.max_recv_wr = init->cap.max_recv_sge = 0;
	qp->pd = pd;
	qp->xrcd = init->xrcd;
	qp->ctx = pd ? pd->ctx : init->xrcd->ctx;
	qp->send_cq = init->send_cq;
	qp->recv_cq = init->recv_cq;
	qp->srq = init->srq;
	qp->type = init->type;
	qp->sq_sig_all = init->sq_sig_all;
	bool tagged = qp->srq && qp->srq->tags;
	err = tagged ? init_tags(qp, &init->cap) : 0;
	if (err)
		return err;
	qp->attr.cap = init->cap;
	atomic_init(&qp->state, IBV_QPS_RESET);
	vb_lock_init(&qp->resp_lock);
	pthread_mutex_init(&qp->ctl, NULL);
	vb_list_init(&qp->srq_node);
	vb_list_init(&qp->run_node);
	atomic_init(&qp->create_flags, init->create_flags);
	err = init_sq(&qp->sq, pd, init, tagged ? VB_OWN_SENDS : 0);
	qp->attr.cap.max_inline_data = init->cap.max_inline_data = qp->sq.max_inline;
	if (!err)
		err = vb_rq_init(&qp->rq, pd, init->cap.max_recv_wr, init->cap.max_recv_sge);
	qp->rq.is_closed = qp->srq || qp->type >= IBV_QPT_XRC_SEND;
	if (!err)
		err = vb_qpn_take(qp);
	if (err) {
		free_queues(qp);
		return err;
	}
	vb_capture_follow(mark_captured, qp);
	vb_qp_count_begin(qp);
	hold_users(qp, 1);
	return 0;
}

/* ---- leaving the connected states ---- */

static void forget_completions(struct vb_qp *qp)
{
	if (qp->xrcd) {
		vb_xrc_forget(qp); /* its completions are the queues' */
		return;
	}
	vb_cq_purge(qp->recv_cq, qp);
	vb_cq_purge(qp->send_cq, qp);
}

/* Silence: no path, no queued progress, nobody in the middle of something. qp->ctl is held. */
static void disconnect(struct vb_qp *qp)
{
	const struct vb_path_ops *path = atomic_load(&qp->path);
	vb_lock(&qp->sq.lock);
	vb_lock(&qp->resp_lock);
	bool running = atomic_load(&qp->state) != IBV_QPS_ERR;
	atomic_store(&qp->state, IBV_QPS_RESET);
	if (path && running)
		path->stop(qp);
	vb_qp_count_leave(qp, path);
	vb_unlock(&qp->resp_lock);
	vb_unlock(&qp->sq.lock);
	if (qp->xrcd) {
		vb_lock(&qp->resp_lock);
		vb_srq_release(qp);
		vb_xrc_remote_forget(qp);
		vb_unlock(&qp->resp_lock);
	} else if (qp->srq) {
		vb_lock(&qp->srq->rq.lock);
		vb_list_del(&qp->srq_node);
		vb_unlock(&qp->srq->rq.lock);
	}
	if (path && path->unlink)
		path->unlink(qp);
	/*
	 * Before the drain, so that no poll picks the QP up as `hot`; again after it, for completions that
	 * polls under way have pushed.
	 */
	forget_completions(qp);
	vb_qp_drain(qp);
	if (qp->tags)
		vb_tags_forget(qp);
	forget_completions(qp);
	if (path)
		path->detach(qp);
	vb_path_unclaim(qp);
}

int vb_qp_fini(struct vb_qp *qp)
{
	if (atomic_load(&qp->mcast))
		return -EBUSY;
	struct vb_count_end end;
	pthread_mutex_lock(&qp->ctl);
	vb_qp_count_drop(qp, &end);
	disconnect(qp);
	vb_qp_count_end(qp, &end);
	vb_windows_forget(qp->qpn);
	vb_qp_detach_counters(qp);
	pthread_mutex_unlock(&qp->ctl);
	vb_async_forget(qp->ctx, &qp->async);
	free_queues(qp);
	hold_users(qp, -1);
	pthread_mutex_destroy(&qp->ctl);
	return 0;
}

/* 0 or -ENOMEM. */
static int reset(struct vb_qp *qp)
{
	int err = vb_qp_count_prepare(qp);
	if (err)
		return err;
	disconnect(qp);
	vb_windows_forget(qp->qpn);
	vb_rq_reset(&qp->rq);
	vb_lock(&qp->sq.lock);
	qp->sq.tail = qp->sq.sent = qp->sq.head = qp->sq.own_posted = qp->sq.own_done = 0;
	qp->sq.begun = false;
	atomic_store(&qp->sq.retired, 0);
	qp->after_send &= (uint8_t)~VB_AFTER_SEND_DRAIN;
	vb_unlock(&qp->sq.lock);
	qp->comm_est = false;
	atomic_store(&qp->drops_told, 0);
	qp->attr = (struct ibv_qp_attr){ .cap = qp->attr.cap };
	memset(&qp->sgid, 0, sizeof(qp->sgid));
	return 0;
}

/* ---- modify ---- */

static int refuse(int err, const char *attribute, const char *why)
{
	vb_explain("ibv_modify_qp", "%s: %s", attribute, why);
	return err;
}

static int check_ah(struct vb_qp *qp, const struct ibv_ah_attr *ah, struct in6_addr *sgid)
{
	int err = vb_ah_check(qp->ctx->device, ah, "ibv_modify_qp", sgid);
	if (!err && vb_ip_is_multicast((const struct in6_addr *)&ah->grh.dgid))
		return refuse(-EINVAL, "ah_attr.grh.dgid",
			      "a connection has one peer, and this is a multicast group");
	return err;
}

/* The one port has no alternate path. The attribute is stored if it is valid, and never used. */
static int check_alternate(struct vb_qp *qp, const struct ibv_qp_attr *a)
{
	struct in6_addr unused;
	if (a->alt_port_num != 1)
		return refuse(-EINVAL, "alt_port_num", "the device has port 1 only");
	if (a->alt_pkey_index >= VB_PKEYS)
		return refuse(-EINVAL, "alt_pkey_index", "the partition key table has one entry");
	if (a->alt_timeout > MAX_TIMER)
		return refuse(-EINVAL, "alt_timeout", "at most 31");
	return check_ah(qp, &a->alt_ah_attr, &unused);
}

static int check_timers(const struct ibv_qp_attr *a, int mask)
{
	if ((mask & IBV_QP_TIMEOUT) && a->timeout > MAX_TIMER)
		return refuse(-EINVAL, "timeout", "at most 31");
	if ((mask & IBV_QP_RETRY_CNT) && a->retry_cnt > MAX_RETRY)
		return refuse(-EINVAL, "retry_cnt", "at most 7");
	if ((mask & IBV_QP_RNR_RETRY) && a->rnr_retry > MAX_RETRY)
		return refuse(-EINVAL, "rnr_retry", "at most 7 (7: for ever)");
	if ((mask & IBV_QP_MIN_RNR_TIMER) && a->min_rnr_timer > MAX_TIMER)
		return refuse(-EINVAL, "min_rnr_timer", "at most 31");
	return 0;
}

static int check_limits(const struct ibv_qp_attr *a, int mask)
{
	/* Only remote rights have an effect. Programs pass their regions' flags, so those are accepted. */
	if ((mask & IBV_QP_ACCESS_FLAGS) && (a->qp_access_flags & ~(unsigned)VB_ACCESS_FLAGS))
		return refuse(-EINVAL, "qp_access_flags", "not all of them are enum ibv_access_flags values");
	if ((mask & IBV_QP_PORT) && a->port_num != 1)
		return refuse(-EINVAL, "port_num", "the device has port 1 only");
	if ((mask & IBV_QP_PKEY_INDEX) && a->pkey_index >= VB_PKEYS)
		return refuse(-EINVAL, "pkey_index", "the partition key table has one entry");
	if ((mask & IBV_QP_PATH_MTU) && (a->path_mtu < IBV_MTU_256 || a->path_mtu > IBV_MTU_4096))
		return refuse(-EINVAL, "path_mtu", "not an enum ibv_mtu value");
	if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) && a->max_rd_atomic > VB_MAX_RD_ATOMIC)
		return refuse(-EINVAL, "max_rd_atomic", "more than the device's max_qp_init_rd_atom");
	if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) && a->max_dest_rd_atomic > VB_MAX_RD_ATOMIC)
		return refuse(-EINVAL, "max_dest_rd_atomic", "more than the device's max_qp_rd_atom");
	if ((mask & IBV_QP_PATH_MIG_STATE) && (unsigned)a->path_mig_state > IBV_MIG_ARMED)
		return refuse(-EINVAL, "path_mig_state", "not an enum ibv_mig_state value");
	if ((mask & IBV_QP_RATE_LIMIT) && a->rate_limit > VB_MAX_RATE)
		return refuse(-EINVAL, "rate_limit", "more than the device's qp_rate_limit_max");
	if ((mask & IBV_QP_DEST_QPN) && a->dest_qp_num > MAX_QPN)
		return refuse(-EINVAL, "dest_qp_num", "QP numbers have 24 bits");
	return 0;
}

/* Their names with commas between them. */
static void attribute_names(int which, char *text, size_t size)
{
	size_t used = 0;
	*text = 0;
	for (; which && used + 1 < size; which &= which - 1) {
		int n = snprintf(text + used, size - used, "%s%s", used ? ", " : "",
				 vb_qp_attr_name(which & -which));
		used += n > 0 ? (size_t)n : 0;
	}
}

static int check_transition(struct vb_qp *qp, enum ibv_qp_state cur, enum ibv_qp_state next, int mask)
{
	char names[256];
	int which = 0;
	enum vb_transition verdict = vb_qp_transition(qp->type, cur, next, mask, &which);
	attribute_names(which, names, sizeof(names));
	switch (verdict) {
	case VB_TRANSITION_OK:
		return 0;
	case VB_TRANSITION_NONE:
		vb_explain("ibv_modify_qp", "there is no way from %s to %s", vb_qp_state_name(cur),
			   vb_qp_state_name(next));
		break;
	case VB_TRANSITION_MISSING:
		vb_explain("ibv_modify_qp", "%s to %s needs %s", vb_qp_state_name(cur),
			   vb_qp_state_name(next), names);
		break;
	case VB_TRANSITION_SURPLUS:
		vb_explain("ibv_modify_qp", "%s to %s does not take %s", vb_qp_state_name(cur),
			   vb_qp_state_name(next), names);
		break;
	}
	return -EINVAL;
}

/* *sgid becomes what IBV_QP_AV asks for. */
static int check(struct vb_qp *qp, const struct ibv_qp_attr *a, int mask, enum ibv_qp_state cur,
		 enum ibv_qp_state next, struct in6_addr *sgid)
{
	if ((mask & IBV_QP_CUR_STATE) && a->cur_qp_state != cur)
		return refuse(-EINVAL, "cur_qp_state", "the queue pair is in another state");
	int err = check_transition(qp, cur, next, mask);
	if (!err)
		err = check_limits(a, mask);
	if (!err)
		err = check_timers(a, mask);
	if (!err && (mask & IBV_QP_AV))
		err = check_ah(qp, &a->ah_attr, sgid);
	if (!err && (mask & IBV_QP_ALT_PATH))
		err = check_alternate(qp, a);
	return err;
}

/* One row per attribute that is a number and plainly copied. */
#define ATTRIBUTES(X)                                                                                 \
	X(ACCESS_FLAGS, qp_access_flags) X(PKEY_INDEX, pkey_index) X(PORT, port_num) X(QKEY, qkey)     \
	X(PATH_MTU, path_mtu) X(TIMEOUT, timeout) X(RETRY_CNT, retry_cnt) X(RNR_RETRY, rnr_retry)      \
	X(RQ_PSN, rq_psn) X(SQ_PSN, sq_psn) X(MAX_QP_RD_ATOMIC, max_rd_atomic)                         \
	X(MAX_DEST_RD_ATOMIC, max_dest_rd_atomic) X(MIN_RNR_TIMER, min_rnr_timer)                      \
	X(PATH_MIG_STATE, path_mig_state) X(DEST_QPN, dest_qp_num) X(RATE_LIMIT, rate_limit)

/* Other threads may read an attribute meanwhile: vb_qp_attr. */
static void commit(struct ibv_qp_attr *to, const struct ibv_qp_attr *from, int mask)
{
#define X(bit, member)                                                               \
	if (mask & IBV_QP_##bit)                                                     \
		__atomic_store_n(&to->member, from->member, __ATOMIC_RELAXED);
	ATTRIBUTES(X)
#undef X
	to->rq_psn &= MAX_QPN;
	to->sq_psn &= MAX_QPN;
	if (mask & IBV_QP_AV)
		to->ah_attr = from->ah_attr;
	if (mask & IBV_QP_ALT_PATH) {
		to->alt_ah_attr = from->alt_ah_attr;
		to->alt_pkey_index = from->alt_pkey_index;
		to->alt_port_num = from->alt_port_num;
		to->alt_timeout = from->alt_timeout;
	}
	if (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY)
		to->en_sqd_async_notify = from->en_sqd_async_notify;
}

static int take_path(struct vb_qp *qp)
{
	const struct vb_path_ops *path = vb_path_choose(qp);
	vb_touch_look();
	if (!path)
		return 0;
	int err = path->attach(qp);
	if (err)
		vb_path_unclaim(qp);
	else
		atomic_store(&qp->path, path);
	return err;
}

/* An event is for the drain that asks for it, and for no later one. sq.lock is held. */
static void begin_drain(struct vb_qp *qp, bool notify)
{
	if (notify && vb_sq_is_busy(&qp->sq))
		qp->after_send |= VB_AFTER_SEND_DRAIN;
	else if (notify)
		vb_async_raise(qp->ctx, IBV_EVENT_SQ_DRAINED, VB_ASYNC_QP, qp, &qp->async, 0);
}

/* Lets what was posted go, or holds it back, by the new state; tells the path. */
static void apply_state(struct vb_qp *qp, enum ibv_qp_state cur, enum ibv_qp_state next, bool notify)
{
	const struct vb_path_ops *path = atomic_load(&qp->path);
	if (!path)
		return;
	vb_lock(&qp->sq.lock);
	if (next != IBV_QPS_SQD)
		qp->after_send &= (uint8_t)~VB_AFTER_SEND_DRAIN;
	else if (cur != IBV_QPS_SQD)
		begin_drain(qp, notify);
	if (!qp->attr.max_rd_atomic)
		vb_sq_forbid_reads(qp);
	if (path->update)
		path->update(qp);
	if (next == IBV_QPS_RTS && qp->sq.sent != qp->sq.tail)
		path->send(qp);
	vb_unlock(&qp->sq.lock);
	vb_progress_schedule(qp);
}

static int move(struct vb_qp *qp, const struct ibv_qp_attr *a, int mask, enum ibv_qp_state cur,
		enum ibv_qp_state next, const struct in6_addr *sgid)
{
	struct ibv_qp_attr before = qp->attr;
	struct in6_addr sgid_before = qp->sgid;
	if (next == IBV_QPS_RESET)
		return reset(qp);
	if (next == IBV_QPS_ERR) {
		uint32_t unused = IBV_QPS_RESET;
		if (!atomic_compare_exchange_strong(&qp->state, &unused, IBV_QPS_ERR))
			vb_qp_break(qp, -1);
		return 0;
	}
	commit(&qp->attr, a, mask);
	qp->sgid = *sgid;
	int err = cur == IBV_QPS_INIT && next == IBV_QPS_RTR ? take_path(qp) : 0;
	if (err) {
		qp->attr = before;
		qp->sgid = sgid_before;
		return err;
	}
	atomic_store(&qp->qkey, qp->attr.qkey);
	/* The QP may have failed meanwhile: the error state wins. */
	uint32_t expected = cur;
	if (!atomic_compare_exchange_strong(&qp->state, &expected, next))
		return refuse(-EINVAL, "qp_state", "the queue pair has failed meanwhile");
	apply_state(qp, cur, next, (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) && a->en_sqd_async_notify);
	return 0;
}

/* LIDs are followed by what they stand for. */
static const struct ibv_qp_attr *complete(const struct vb_qp *qp, const struct ibv_qp_attr *attr, int mask,
					  struct ibv_qp_attr *room)
{
	if (vb_likely(!vb_link_is_infiniband()))
		return attr;
	*room = *attr;
	if (mask & IBV_QP_AV)
		vb_ah_complete(qp->ctx->device, &room->ah_attr);
	if (mask & IBV_QP_ALT_PATH)
		vb_ah_complete(qp->ctx->device, &room->alt_ah_attr);
	return room;
}

int vb_qp_modify(struct vb_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	struct ibv_qp_attr room;
	attr = complete(qp, attr, mask, &room);
	pthread_mutex_lock(&qp->ctl);
	enum ibv_qp_state cur = atomic_load(&qp->state);
	enum ibv_qp_state next = mask & IBV_QP_STATE ? attr->qp_state : cur;
	struct in6_addr sgid = qp->sgid;
	int err = check(qp, attr, mask, cur, next, &sgid);
	if (!err)
		err = move(qp, attr, mask, cur, next, &sgid);
	pthread_mutex_unlock(&qp->ctl);
	vb_segment_yield();
	return err;
}

void vb_qp_query(struct vb_qp *qp, struct ibv_qp_attr *attr)
{
	pthread_mutex_lock(&qp->ctl);
	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = atomic_load(&qp->state);
	vb_lock(&qp->sq.lock);
	attr->sq_draining = attr->qp_state == IBV_QPS_SQD && vb_sq_is_busy(&qp->sq);
	vb_unlock(&qp->sq.lock);
	pthread_mutex_unlock(&qp->ctl);
}

void vb_qp_fail_number(uint32_t qpn)
{
	struct vb_qp *qp = vb_qpn_get(qpn);
	if (!qp)
		return;
	vb_qp_break(qp, -1);
	vb_qp_unref(qp);
}

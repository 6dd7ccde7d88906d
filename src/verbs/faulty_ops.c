/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Faults on purpose in what inline verbs call directly (adapter/fault_injection.h). When a context is opened,
 * its tables get wrappers around the functions that they had. These are the same for all contexts.
 *
 * complete: the completion is changed on its way to the program. Its queue pair goes to the error state
 * first, so that outstanding requests are flushed. Requests that had completed behind it and were not polled
 * yet are flushed too, as a failed request would have kept them from being carried out.
 *
 * rnr: a receive that the rule matches is withheld from the adapter for its time, with all receives posted
 * behind it. So its message meets an empty queue, whichever path it comes by. To the program they are posted:
 * they take up the queue's room, and in the error state they are flushed as any others, also if nobody polls.
 * A timer sees to that.
 */
#include "verbs/faulty_ops.h"

#include <stdlib.h>
#include <string.h>

#include "adapter/fault_injection.h"
#include "adapter/queues/noted.h"
#include "adapter/queues/queue.h"
#include "base/nanoseconds.h"

static struct verbs_context below; /* the tables without the wrappers */

/* ---- posts ---- */

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int err = vb_fault_call("ibv_post_send", qp->qp_num);
	if (!err)
		return below.context.ops.post_send(qp, wr, bad);
	struct vb_noted_post noted = { .qp = vb_qp_of(qp), .err = -err, .refused = wr, .wrong = wr };
	vb_note_sends(&noted, wr);
	if (bad) /* ibv_wr_complete has no use for it */
		*bad = wr;
	return -err;
}

static int (*wr_complete_below)(struct ibv_qp_ex *qp);

static int wr_complete(struct ibv_qp_ex *qp)
{
	int err = vb_fault_call("ibv_wr_complete", qp->qp_base.qp_num);
	if (!err)
		return wr_complete_below(qp);
	qp->wr_abort(qp);
	return -err;
}

static struct ibv_qp *create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp *pub = below.create_qp_ex(context, attr);
	struct vb_verbs_qp *qp = pub ? vb_container_of(pub, struct vb_verbs_qp, pub) : NULL;
	if (qp && qp->batch) {
		wr_complete_below = qp->ex.wr_complete;
		qp->ex.wr_complete = wr_complete;
	}
	return pub;
}

/* ---- receives that are withheld ---- */

/* Of a queue pair, or of a shared receive queue. */
struct queue {
	struct ibv_qp *qp;
	struct ibv_srq *srq;
};

struct withheld {
	struct vb_list node;
	struct queue queue;
	uint64_t due_ns;
	struct ibv_recv_wr wr;
	struct ibv_sge sge[];
};

static void timer_fired(struct vb_timer *timer, uint64_t now_ns);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct vb_list withheld = VB_LIST_INIT(withheld); /* as they were posted; under lock */
static struct vb_timer timer = { .fire = timer_fired };

static bool is_same(struct queue a, struct queue b) { return a.qp == b.qp && a.srq == b.srq; }

static const struct vb_rq *rq_of(struct queue queue)
{
	return queue.qp ? &vb_qp_of(queue.qp)->rq : &vb_srq_of(queue.srq)->rq;
}

static int post_below(struct queue to, struct ibv_recv_wr *wr)
{
	struct ibv_recv_wr *bad;
	return to.qp ? below.context.ops.post_recv(to.qp, wr, &bad) :
		       below.context.ops.post_srq_recv(to.srq, wr, &bad);
}

/* How many are withheld from a queue; *last: the last one of them, or NULL. */
static uint32_t find_locked(struct queue queue, const struct withheld **last)
{
	struct withheld *k;
	uint32_t n = 0;
	*last = NULL;
	vb_list_for_each(k, &withheld, node) {
		if (!is_same(k->queue, queue))
			continue;
		*last = k;
		n++;
	}
	return n;
}

/* For the next one that is due, and soon: a queue pair may fail, and nobody poll. */
static void set_timer_locked(void)
{
	enum { SOON_NS = 10 * VB_NS_PER_MS };
	uint64_t next_ns = vb_now_ns() + SOON_NS;
	struct withheld *k;
	vb_list_for_each(k, &withheld, node)
		next_ns = vb_min_u64(next_ns, k->due_ns);
	if (!vb_list_is_empty(&withheld))
		vb_timer_set(&timer, next_ns);
}

static int withhold_locked(struct queue queue, const struct ibv_recv_wr *wr, uint64_t due_ns)
{
	struct withheld *k = malloc(sizeof(*k) + (size_t)wr->num_sge * sizeof(k->sge[0]));
	if (!k)
		return ENOMEM;
	k->queue = queue;
	k->due_ns = due_ns;
	k->wr = (struct ibv_recv_wr){ .wr_id = wr->wr_id, .sg_list = k->sge, .num_sge = wr->num_sge };
	if (wr->num_sge)
		memcpy(k->sge, wr->sg_list, (size_t)wr->num_sge * sizeof(k->sge[0]));
	vb_list_add_tail(&withheld, &k->node);
	set_timer_locked();
	return 0;
}

/* When a receive that is posted now reaches the adapter; 0: at once. */
static uint64_t due_of(struct queue queue)
{
	struct vb_fault_subject subject = { .site = VB_FAULT_RECEIVE,
					    .qp = queue.qp ? vb_fault_qp(queue.qp->qp_num) : 0 };
	struct vb_fault_bite bites[VB_FAULT_RULES];
	uint64_t late_ns = 0;
	unsigned n = vb_fault_ask(&subject, bites);
	for (unsigned i = 0; i < n; i++)
		late_ns = vb_max_u64(late_ns, bites[i].rule->time_ns);
	return late_ns == VB_FAULT_FOREVER ? late_ns : late_ns ? vb_now_ns() + late_ns : 0;
}

/* Does the adapter take no receive for this queue, whatever it is? */
static bool is_shut(struct queue queue)
{
	return queue.qp &&
	       (rq_of(queue)->is_closed || atomic_load(&vb_qp_of(queue.qp)->state) == IBV_QPS_RESET);
}

static int post_one_locked(struct queue queue, const struct ibv_recv_wr *wr)
{
	const struct vb_rq *rq = rq_of(queue);
	const struct withheld *before;
	struct ibv_recv_wr one = *wr;
	uint32_t kept = find_locked(queue, &before);
	one.next = NULL;
	if (is_shut(queue))
		return post_below(queue, &one);
	/* As the adapter would answer if the withheld receives were in its queue. */
	int err = vb_rq_refusal(rq, wr, atomic_load(&rq->tail) + kept);
	if (err) {
		vb_rq_explain(rq, queue.qp ? "ibv_post_recv" : "ibv_post_srq_recv", err);
		return err;
	}
	uint64_t due_ns = due_of(queue);
	if (before)
		due_ns = vb_max_u64(due_ns, before->due_ns);
	return due_ns ? withhold_locked(queue, wr, due_ns) : post_below(queue, &one);
}

static int post_all(struct queue queue, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int err = 0;
	pthread_mutex_lock(&lock);
	for (; wr && !err; wr = err ? wr : wr->next) {
		err = post_one_locked(queue, wr);
		if (err)
			*bad = wr;
	}
	pthread_mutex_unlock(&lock);
	return err;
}

static bool withholds_receives(void) { return vb_fault_has(1u << VB_FAULT_RNR); }

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int err = vb_fault_call("ibv_post_recv", qp->qp_num);
	if (!err)
		return withholds_receives() ? post_all((struct queue){ .qp = qp }, wr, bad) :
					      below.context.ops.post_recv(qp, wr, bad);
	struct vb_noted_post noted = { .qp = vb_qp_of(qp), .err = -err, .refused = wr, .wrong = wr };
	vb_note_receives(&noted, wr);
	*bad = wr;
	return -err;
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int err = vb_fault_call("ibv_post_srq_recv", 0);
	if (!err)
		return withholds_receives() ? post_all((struct queue){ .srq = srq }, wr, bad) :
					      below.context.ops.post_srq_recv(srq, wr, bad);
	struct vb_noted_post noted = { .srq = vb_srq_of(srq), .err = -err, .refused = wr, .wrong = wr };
	vb_note_receives(&noted, wr);
	*bad = wr;
	return -err;
}

static bool is_flushed(const struct withheld *k)
{
	return k->queue.qp && atomic_load(&vb_qp_of(k->queue.qp)->state) == IBV_QPS_ERR;
}

/*
 * Posts each receive whose time has come, or whose queue pair is in the error state. The receive is lost if
 * the program has made its shared queue too small for it meanwhile.
 */
static void post_due(uint64_t now_ns)
{
	struct withheld *k;
	pthread_mutex_lock(&lock);
	vb_list_for_each(k, &withheld, node) {
		if (k->due_ns > now_ns && !is_flushed(k))
			continue;
		vb_list_del(&k->node);
		post_below(k->queue, &k->wr);
		free(k);
	}
	set_timer_locked();
	pthread_mutex_unlock(&lock);
}

static void timer_fired(struct vb_timer *t, uint64_t now_ns) { post_due(now_ns); }

static void drop(struct queue queue)
{
	struct withheld *k;
	pthread_mutex_lock(&lock);
	vb_list_for_each(k, &withheld, node) {
		if (!is_same(k->queue, queue))
			continue;
		vb_list_del(&k->node);
		free(k);
	}
	pthread_mutex_unlock(&lock);
}

void vb_fault_forget_qp(struct ibv_qp *qp) { drop((struct queue){ .qp = qp }); }
void vb_fault_forget_srq(struct ibv_srq *srq) { drop((struct queue){ .srq = srq }); }

/* ---- completions ---- */

static uint32_t kinds_of(enum ibv_wc_opcode opcode)
{
	enum { ANY = 1 << VB_FAULT_COMPLETION_ANY };
	switch ((unsigned)opcode) {
	case IBV_WC_RECV:
	case IBV_WC_RECV_RDMA_WITH_IMM:
	case IBV_WC_TM_RECV:
	case IBV_WC_TM_NO_TAG:
		return ANY | 1u << VB_FAULT_COMPLETION_RECV;
	case IBV_WC_SEND:
	case IBV_WC_TSO:
		return ANY | 1u << VB_FAULT_COMPLETION_SEND;
	case IBV_WC_RDMA_WRITE:
	case IBV_WC_ATOMIC_WRITE:
		return ANY | 1u << VB_FAULT_COMPLETION_WRITE;
	case IBV_WC_RDMA_READ:
		return ANY | 1u << VB_FAULT_COMPLETION_READ;
	case IBV_WC_COMP_SWAP:
	case IBV_WC_FETCH_ADD:
		return ANY | 1u << VB_FAULT_COMPLETION_ATOMIC;
	}
	return ANY;
}

/* The status that the program sees. */
static enum ibv_wc_status judge(struct ibv_cq *cq, enum ibv_wc_status status, enum ibv_wc_opcode opcode,
				uint32_t qpn)
{
	struct vb_fault_subject subject = { .site = VB_FAULT_COMPLETION,
					    .completion = kinds_of(opcode),
					    .qp = vb_fault_qp(qpn) };
	struct vb_fault_bite bites[VB_FAULT_RULES];
	unsigned n = status == IBV_WC_SUCCESS ? vb_fault_ask(&subject, bites) : 0;
	if (!n)
		return status;
	bool is_recv = opcode & IBV_WC_RECV;
	vb_qp_fail_queue(qpn, is_recv);
	vb_cq_flush(vb_cq_of(cq), qpn, is_recv);
	return (enum ibv_wc_status)bites[0].rule->value;
}

/* wc[0] has failed, and so have the later ones of its queue. */
static void flush_behind(struct ibv_wc *wc, int n)
{
	for (int i = 1; i < n; i++)
		if (wc[i].qp_num == wc->qp_num && !((wc[i].opcode ^ wc->opcode) & IBV_WC_RECV) &&
		    wc[i].status == IBV_WC_SUCCESS)
			wc[i].status = IBV_WC_WR_FLUSH_ERR;
}

static bool changes_completions(void) { return vb_fault_has(1u << VB_FAULT_COMPLETE); }

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	int err = vb_fault_call("ibv_poll_cq", 0);
	if (err)
		return err;
	if (withholds_receives())
		post_due(vb_now_ns());
	int got = below.context.ops.poll_cq(cq, n, wc);
	for (int i = 0; changes_completions() && i < got; i++) {
		enum ibv_wc_status before = wc[i].status;
		wc[i].status = judge(cq, before, wc[i].opcode, wc[i].qp_num);
		if (wc[i].status != before)
			flush_behind(wc + i, got - i);
	}
	return got;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	int err = vb_fault_call("ibv_req_notify_cq", 0);
	return err ? -err : below.context.ops.req_notify_cq(cq, solicited_only);
}

/* ---- completions, one at a time ---- */

static int (*start_poll_below)(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr);
static int (*next_poll_below)(struct ibv_cq_ex *cq);

static int judge_current(struct ibv_cq_ex *ex, int err)
{
	struct vb_verbs_cq *cq = vb_container_of(ex, struct vb_verbs_cq, ex);
	if (!err && changes_completions())
		ex->status = cq->current.status =
			(uint8_t)judge(&cq->pub, ex->status, cq->current.opcode, cq->current_qpn);
	return err;
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	int err = vb_fault_call("ibv_start_poll", 0);
	if (!err && withholds_receives())
		post_due(vb_now_ns());
	return err ? -err : judge_current(ex, start_poll_below(ex, attr));
}

static int next_poll(struct ibv_cq_ex *ex) { return judge_current(ex, next_poll_below(ex)); }

static struct ibv_cq_ex *create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	struct ibv_cq_ex *ex = below.create_cq_ex(context, attr);
	if (ex) {
		start_poll_below = ex->start_poll;
		next_poll_below = ex->next_poll;
		ex->start_poll = start_poll;
		ex->next_poll = next_poll;
	}
	return ex;
}

/* ---- the tables ---- */

void vb_fault_wrap(struct verbs_context *ext)
{
	struct ibv_context_ops *ops = &ext->context.ops;
	pthread_mutex_lock(&lock);
	below = *ext;
	pthread_mutex_unlock(&lock);
	ops->post_send = post_send;
	ops->post_recv = post_recv;
	ops->post_srq_recv = post_srq_recv;
	ops->poll_cq = poll_cq;
	ops->req_notify_cq = req_notify_cq;
	ext->create_qp_ex = create_qp_ex;
	ext->create_cq_ex = create_cq_ex;
}

/* Withheld receives are the parent's. */
static void forget(void)
{
	pthread_mutex_init(&lock, NULL);
	vb_list_init(&withheld);
	memset(&timer.node, 0, sizeof(timer.node));
}

__attribute__((constructor)) static void watch_forks(void)
{
	vb_host_at_fork(forget);
}

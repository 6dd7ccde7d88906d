/* SPDX-License-Identifier: BSD-2-Clause */
#include "adapter/xrc/xrc.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "adapter/memory/arena.h"
#include "adapter/progress/progress.h"
#include "adapter/queues/queue.h"
#include "adapter/xrc/xrc_protocol.h"

/* The numbers of one of this process's slots: no queue of another process of the host has them. */
struct block {
	uint32_t slot;
	struct vb_srq *srqs[VB_SLOT_QPS]; /* NULL where none is */
};

/* Under vb_progress_lock, but for adding blocks, which grow_lock guards. */
static struct block *blocks[VB_ARENA_SLOTS];
static uint32_t nblocks, next;
static pthread_mutex_t grow_lock = PTHREAD_MUTEX_INITIALIZER;

static struct vb_srq *find_locked(uint32_t srqn, uint32_t xrcd)
{
	uint32_t i = 0;
	while (i < nblocks && blocks[i]->slot != srqn >> VB_SLOT_SHIFT)
		i++;
	struct vb_srq *srq = i < nblocks ? blocks[i]->srqs[srqn % VB_SLOT_QPS] : NULL;
	return srq && !srq->is_leaving && srq->xrcd->number == xrcd ? srq : NULL;
}

/* ---- numbers ---- */

static int add_block(void)
{
	struct block *b = nblocks < VB_ARENA_SLOTS ? calloc(1, sizeof(*b)) : NULL;
	if (!b)
		return -ENOMEM;
	b->slot = vb_slot_first();
	int err = nblocks ? vb_slot_take(&b->slot) : 0;
	if (err) {
		free(b);
		return err;
	}
	vb_lock(&vb_progress_lock);
	blocks[nblocks++] = b;
	vb_unlock(&vb_progress_lock);
	return 0;
}

/* A number that has rested: they are handed out in turn. */
static bool place(struct vb_srq *srq)
{
	vb_lock(&vb_progress_lock);
	uint32_t total = nblocks * VB_SLOT_QPS;
	for (uint32_t tried = 0; tried < total; tried++) {
		uint32_t at = next++ % total;
		struct block *b = blocks[at / VB_SLOT_QPS];
		if (b->srqs[at % VB_SLOT_QPS])
			continue;
		b->srqs[at % VB_SLOT_QPS] = srq;
		srq->number = b->slot << VB_SLOT_SHIFT | at % VB_SLOT_QPS;
		break;
	}
	vb_unlock(&vb_progress_lock);
	return srq->number;
}

int vb_xrc_number_take(struct vb_srq *srq)
{
	int err = 0;
	pthread_mutex_lock(&grow_lock);
	srq->number = 0; /* which no slot has */
	while (!err && !place(srq))
		err = add_block();
	pthread_mutex_unlock(&grow_lock);
	return err;
}

static void drop_locked(const struct vb_srq *srq)
{
	for (uint32_t i = 0; i < nblocks; i++)
		if (blocks[i]->slot == srq->number >> VB_SLOT_SHIFT)
			blocks[i]->srqs[srq->number % VB_SLOT_QPS] = NULL;
}

void vb_xrc_number_drop(const struct vb_srq *srq)
{
	vb_lock(&vb_progress_lock);
	drop_locked(srq);
	vb_unlock(&vb_progress_lock);
	while (atomic_load(&srq->cq_users)) /* vb_xrc_forget has found it just before */
		sched_yield();
}

/* True: its users only wait for a receive, and from the return on no request finds it. */
static bool leave_if_idle(struct vb_srq *srq)
{
	struct vb_list *node;
	unsigned waiting = 0;
	vb_lock(&srq->rq.lock);
	for (node = srq->starved.next; node != &srq->starved; node = node->next)
		waiting++;
	vb_lock(&vb_progress_lock);
	bool idle = srq->is_leaving = atomic_load(&srq->refs) == waiting;
	vb_unlock(&vb_progress_lock);
	vb_unlock(&srq->rq.lock);
	return idle;
}

/* With a reference. */
static struct vb_qp *next_waiting(struct vb_srq *srq)
{
	vb_lock(&srq->rq.lock);
	struct vb_qp *qp = vb_list_is_empty(&srq->starved) ?
				   NULL :
				   vb_container_of(srq->starved.next, struct vb_qp, srq_node);
	if (qp)
		vb_qp_ref(qp);
	vb_unlock(&srq->rq.lock);
	return qp;
}

/* Requests that wait in a queue that leaves run again, and find that it has gone. */
static void evict_waiting(struct vb_srq *srq)
{
	while (atomic_load(&srq->refs) || atomic_load(&srq->cq_users)) {
		struct vb_qp *qp = next_waiting(srq);
		if (!qp) {
			sched_yield(); /* it is just looking at the queue, or has just completed */
			continue;
		}
		vb_lock(&qp->resp_lock);
		if (qp->srq == srq)
			vb_srq_release(qp);
		vb_unlock(&qp->resp_lock);
		vb_progress_schedule(qp);
		vb_qp_unref(qp);
	}
}

/* It keeps its number until its CQ is purged: vb_xrc_forget finds CQs by the queues that have numbers. */
bool vb_xrc_srq_leave(struct vb_srq *srq)
{
	if (!leave_if_idle(srq))
		return false;
	evict_waiting(srq);
	vb_cq_purge_srq(srq->cq, srq);
	vb_xrc_number_drop(srq);
	atomic_fetch_sub(&srq->xrcd->refs, 1);
	atomic_fetch_sub(&srq->cq->refs, 1);
	return true;
}

/* ---- receiving queue pairs ---- */

bool vb_xrc_select(struct vb_qp *qp, uint32_t srqn)
{
	if (qp->srq && qp->srq->number == srqn)
		return true;
	vb_srq_release(qp);
	vb_lock(&vb_progress_lock);
	qp->srq = find_locked(srqn, qp->xrcd->number);
	if (qp->srq && vb_cq_is(qp->srq->cq, VB_CQ_OVERRUN)) /* the program would not hear of the message */
		qp->srq = NULL;
	if (qp->srq)
		atomic_fetch_add(&qp->srq->refs, 1);
	vb_unlock(&vb_progress_lock);
	return qp->srq;
}

uint32_t vb_xrc_pd(const struct vb_qp *qp, uint32_t srqn)
{
	vb_lock(&vb_progress_lock);
	const struct vb_srq *srq = find_locked(srqn, qp->xrcd->number);
	uint32_t pd = srq ? srq->pd->number : 0;
	vb_unlock(&vb_progress_lock);
	return pd;
}

/* The first queue from place *at on, whose CQ stays while cq_users counts the caller; NULL: there is none. */
static struct vb_srq *next_queue(uint32_t *at)
{
	struct vb_srq *srq = NULL;
	vb_lock(&vb_progress_lock);
	for (; !srq && *at < nblocks * VB_SLOT_QPS; ++*at)
		srq = blocks[*at / VB_SLOT_QPS]->srqs[*at % VB_SLOT_QPS];
	if (srq)
		atomic_fetch_add(&srq->cq_users, 1);
	vb_unlock(&vb_progress_lock);
	return srq;
}

/* vb_progress_lock comes after a CQ's lock. */
void vb_xrc_forget(struct vb_qp *qp)
{
	struct vb_srq *srq;
	for (uint32_t at = 0; (srq = next_queue(&at));) {
		vb_cq_forget(srq->cq, qp);
		atomic_fetch_sub(&srq->cq_users, 1);
	}
}

void vb_xrc_server_name(const struct vb_xrc_server *share, enum vb_xrc_what what, uint32_t number,
			char name[VB_RPC_NAME])
{
	snprintf(name, VB_RPC_NAME, "%s/%c%u", share->name, what, number >> VB_SLOT_SHIFT);
}

/* A forked child has none of its parent's queues, and other slots. */
static void forget_all(void)
{
	nblocks = next = 0; /* the blocks stay allocated */
	pthread_mutex_init(&grow_lock, NULL);
}

__attribute__((constructor)) static void watch_forks(void)
{
	vb_host_at_fork(forget_all);
}

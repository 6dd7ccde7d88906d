/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion channels. A CQ with events stands in its channel's list once, with a count; the notifier is
 * raised while the list is not empty. events_queued and events_raised (handed out) are under the channel's
 * lock, events_acked under the CQ's events_lock.
 */
#include <errno.h>

#include "adapter/object.h"
#include "adapter/progress/progress.h"
#include "base/cancel.h"

int vb_channel_init(struct vb_channel *ch)
{
	pthread_mutex_init(&ch->lock, NULL);
	vb_list_init(&ch->events);
	vb_list_init(&ch->left);
	atomic_init(&ch->refs, 0);
	return vb_notifier_init(&ch->notifier);
}

int vb_channel_fini(struct vb_channel *ch)
{
	if (atomic_load(&ch->refs))
		return -EBUSY;
	vb_notifier_fini(&ch->notifier);
	pthread_mutex_destroy(&ch->lock);
	return 0;
}

/* Readable while there are events. True: it became so just now. */
static bool settle_locked(struct vb_channel *ch)
{
	bool has = !vb_list_is_empty(&ch->events), news = has && !vb_notifier_is_raised(&ch->notifier);
	if (news)
		vb_notifier_raise(&ch->notifier);
	else if (!has)
		vb_notifier_clear(&ch->notifier);
	return news;
}

/* What a thread that led has left is for all. Leaves the lock. */
static void share_locked(struct vb_channel *ch)
{
	bool news = settle_locked(ch);
	pthread_mutex_unlock(&ch->lock);
	if (news)
		vb_notifier_wake(&ch->notifier);
}

static void queue_locked(struct vb_channel *ch, struct vb_cq *cq)
{
	if (!cq->events_queued++)
		vb_list_add_tail(&ch->events, &cq->event_node);
}

static void queue_left_locked(struct vb_channel *ch)
{
	for (struct vb_list *node; (node = vb_list_pop(&ch->left));) {
		struct vb_cq *cq = vb_container_of(node, struct vb_cq, left.node);
		if (vb_cq_take_left(cq))
			queue_locked(ch, cq);
	}
}

/* CQs take turns. */
static struct vb_cq *take_locked(struct vb_channel *ch)
{
	struct vb_list *node = vb_list_pop(&ch->events);
	if (!node)
		return NULL;
	struct vb_cq *cq = vb_container_of(node, struct vb_cq, event_node);
	if (--cq->events_queued)
		vb_list_add_tail(&ch->events, node);
	cq->events_raised++;
	return cq;
}

static struct vb_cq *take(struct vb_channel *ch, uint32_t *sequence)
{
	pthread_mutex_lock(&ch->lock);
	if (vb_list_is_empty(&ch->events))
		queue_left_locked(ch);
	struct vb_cq *cq = take_locked(ch);
	*sequence = vb_notifier_sequence(&ch->notifier);
	share_locked(ch);
	return cq;
}

/* ---- waiting ---- */

static bool has_event(void *arg)
{
	struct vb_channel *ch = arg;
	pthread_mutex_lock(&ch->lock);
	bool has = !vb_list_is_empty(&ch->events);
	pthread_mutex_unlock(&ch->lock);
	return has;
}

static void stop_leading(struct vb_channel *ch)
{
	atomic_store(&ch->is_led, false);
	vb_progress_lead_no_more();
}

static void cancelled(void *arg)
{
	struct vb_channel *ch = arg;
	stop_leading(ch);
	pthread_mutex_lock(&ch->lock);
	share_locked(ch);
}

static int wait_for_event(struct vb_channel *ch, uint32_t sequence)
{
	int err = vb_notifier_may_wait(&ch->notifier);
	if (err)
		return err;
	if (!vb_progress_lead())
		return vb_notifier_wait(&ch->notifier, sequence);
	pthread_cleanup_push(cancelled, ch);
	atomic_store(&ch->is_led, true); /* before the look at the list: pairs with vb_channel_notify */
	err = vb_progress_lead_until(has_event, ch);
	pthread_cleanup_pop(0);
	stop_leading(ch);
	return err;
}

int vb_channel_get(struct vb_channel *ch, struct vb_cq **cq)
{
	uint32_t sequence;
	int err = 0;
	while (!err && !(*cq = take(ch, &sequence)))
		err = wait_for_event(ch, sequence);
	return err;
}

/* ---- events ---- */

/* The thread that leads for the channel takes the event itself, and at once. */
void vb_channel_notify(struct vb_channel *ch, struct vb_cq *cq)
{
	bool is_mine = vb_progress_leads_for(ch);
	pthread_mutex_lock(&ch->lock);
	queue_locked(ch, cq);
	if (!is_mine)
		vb_notifier_raise(&ch->notifier);
	pthread_mutex_unlock(&ch->lock);
	if (is_mine)
		return;
	vb_notifier_wake(&ch->notifier);
	if (atomic_load(&ch->is_led))
		vb_loop_wake_waiter();
}

void vb_channel_note_left(struct vb_channel *ch, struct vb_cq *cq)
{
	pthread_mutex_lock(&ch->lock);
	if (vb_list_is_empty(&cq->left.node))
		vb_list_add_tail(&ch->left, &cq->left.node);
	pthread_mutex_unlock(&ch->lock);
}

void vb_channel_forget(struct vb_channel *ch, struct vb_cq *cq)
{
	pthread_mutex_lock(&ch->lock);
	vb_list_del(&cq->left.node);
	vb_list_del(&cq->event_node);
	cq->events_queued = 0;
	uint32_t handed_out = cq->events_raised;
	settle_locked(ch);
	pthread_mutex_unlock(&ch->lock);

	pthread_mutex_lock(&cq->events_lock);
	while ((int32_t)(handed_out - cq->events_acked) > 0)
		vb_cond_wait(&cq->events_cond, &cq->events_lock);
	pthread_mutex_unlock(&cq->events_lock);
}

void vb_cq_ack_events(struct vb_cq *cq, unsigned n)
{
	pthread_mutex_lock(&cq->events_lock);
	cq->events_acked += n;
	pthread_cond_broadcast(&cq->events_cond);
	pthread_mutex_unlock(&cq->events_lock);
}

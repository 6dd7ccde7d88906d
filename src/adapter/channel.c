/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion channels. A CQ with events stands in its channel's list once, with a count; the notifier is raised while the
 * list is not empty. events_queued and events_raised (handed out) are under the channel's lock, events_acked under the CQ's
 * events_lock.
 */
#include <errno.h>

#include "adapter/object.h"

int vb_channel_init(struct vb_channel *ch)
{
	pthread_mutex_init(&ch->lock, NULL);
	vb_list_init(&ch->events);
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

static void settle_locked(struct vb_channel *ch)
{
	if (vb_list_is_empty(&ch->events))
		vb_notifier_clear(&ch->notifier);
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
	settle_locked(ch);
	return cq;
}

int vb_channel_get(struct vb_channel *ch, struct vb_cq **cq)
{
	for (;;) {
		pthread_mutex_lock(&ch->lock);
		*cq = take_locked(ch);
		uint32_t sequence = vb_notifier_sequence(&ch->notifier);
		pthread_mutex_unlock(&ch->lock);
		if (*cq)
			return 0;
		int err = vb_notifier_wait(&ch->notifier, sequence);
		if (err)
			return err;
	}
}

void vb_channel_notify(struct vb_channel *ch, struct vb_cq *cq)
{
	pthread_mutex_lock(&ch->lock);
	if (!cq->events_queued++)
		vb_list_add_tail(&ch->events, &cq->event_node);
	vb_notifier_raise(&ch->notifier);
	pthread_mutex_unlock(&ch->lock);
	vb_notifier_wake(&ch->notifier);
}

void vb_channel_forget(struct vb_channel *ch, struct vb_cq *cq)
{
	pthread_mutex_lock(&ch->lock);
	vb_list_del(&cq->event_node);
	cq->events_queued = 0;
	uint32_t handed_out = cq->events_raised;
	settle_locked(ch);
	pthread_mutex_unlock(&ch->lock);

	pthread_mutex_lock(&cq->events_lock);
	while ((int32_t)(handed_out - cq->events_acked) > 0)
		pthread_cond_wait(&cq->events_cond, &cq->events_lock);
	pthread_mutex_unlock(&cq->events_lock);
}

void vb_cq_ack_events(struct vb_cq *cq, unsigned n)
{
	pthread_mutex_lock(&cq->events_lock);
	cq->events_acked += n;
	pthread_cond_broadcast(&cq->events_cond);
	pthread_mutex_unlock(&cq->events_lock);
}

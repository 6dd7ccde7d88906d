/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Event channels: a queue of events and a descriptor that is readable while it is not empty. The program may
 * poll the descriptor or make it non-blocking. Several threads may take events from one channel.
 */
#include <stdlib.h>
#include <string.h>

#include "rdmacm/cma.h"

struct vb_cma_channel {
	struct rdma_event_channel pub;
	struct vb_notifier notifier;
	struct vb_list events; /* vb_cma_event.node, oldest first */
	unsigned waiters;      /* threads in rdma_get_cm_event */
	bool is_destroyed;     /* by the program: who leaves last frees it */
};

static struct vb_cma_channel *channel_of(struct rdma_event_channel *pub)
{
	return vb_container_of(pub, struct vb_cma_channel, pub);
}

int vb_cma_channel_create(int least_fd, struct rdma_event_channel **out)
{
	struct vb_cma_channel *ch = calloc(1, sizeof(*ch));
	int err = ch ? vb_notifier_init(&ch->notifier) : -ENOMEM;

	if (err) {
		free(ch);
		return err;
	}
	vb_list_init(&ch->events);
	ch->pub.fd = ch->notifier.fd = vb_fd_lift(ch->notifier.fd, least_fd);
	*out = &ch->pub;
	return 0;
}

/* Takes an event out of the queue. */
static void unqueue_locked(struct vb_cma_event *event)
{
	vb_list_del(&event->node);
	vb_list_del(&event->of_owner);
}

static struct vb_cma_event *first_locked(const struct vb_cma_channel *ch)
{
	return vb_list_is_empty(&ch->events) ? NULL :
					       vb_container_of(ch->events.next, struct vb_cma_event, node);
}

static void settle_locked(struct vb_cma_channel *ch)
{
	if (vb_list_is_empty(&ch->events))
		vb_notifier_clear(&ch->notifier);
}

static bool brings_unseen_id(const struct vb_cma_event *event)
{
	return event->pub.event == RDMA_CM_EVENT_CONNECT_REQUEST;
}

static void discard_locked(struct vb_cma_event *event)
{
	if (brings_unseen_id(event))
		vb_cma_id_discard_locked(vb_cma_id_of(event->pub.id));
	free(event);
}

static void free_unless_used(struct vb_cma_channel *ch, unsigned waiters)
{
	if (waiters)
		return;
	vb_notifier_fini(&ch->notifier);
	free(ch);
}

/*
 * Ids that outlive their channel lose their events from here on. A thread that waits at it goes on waiting,
 * as it would in the kernel, until it is cancelled or interrupted. What it looks at stays until then.
 */
void vb_cma_channel_destroy(struct rdma_event_channel *channel)
{
	struct vb_cma_channel *ch = channel_of(channel);
	struct vb_list *ids;
	struct vb_cma_id *id;
	struct vb_cma_event *event;

	vb_cma_lock();
	vb_cma_ids_locked(&ids);
	vb_list_for_each(id, ids, node)
		if (id->pub.channel == channel)
			id->pub.channel = NULL;
	while ((event = first_locked(ch))) {
		unqueue_locked(event);
		discard_locked(event);
	}
	ch->is_destroyed = true;
	unsigned waiters = ch->waiters;
	vb_cma_unlock();
	free_unless_used(ch, waiters);
}

VB_EXPORT struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct rdma_event_channel *channel;

	if (vb_cma_is_faulty(__func__))
		return NULL;
	int err = vb_cma_channel_create(0, &channel);

	if (!err)
		return channel;
	(void)vb_cma_fail(-err, "no event channel: %s", strerror(-err));
	return NULL;
}

VB_EXPORT void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	if (channel)
		vb_cma_channel_destroy(channel);
}

/* ---- producing ---- */

struct vb_cma_event *vb_cma_event_create(struct vb_cma_id *id, enum rdma_cm_event_type type, int status)
{
	struct vb_cma_event *event = calloc(1, sizeof(*event));

	if (!event)
		return NULL;
	event->owner = id;
	event->pub.id = &id->pub;
	event->pub.event = type;
	event->pub.status = status;
	return event;
}

void vb_cma_event_set_private_data(struct vb_cma_event *event, const void *data, size_t len)
{
	struct rdma_cm_event *pub = &event->pub;

	if (len > sizeof(event->private_data))
		len = sizeof(event->private_data);
	if (!len)
		return;
	memcpy(event->private_data, data, len);
	if (event->owner->pub.qp_type == IBV_QPT_UD) {
		pub->param.ud.private_data = event->private_data;
		pub->param.ud.private_data_len = (uint8_t)len;
	} else {
		pub->param.conn.private_data = event->private_data;
		pub->param.conn.private_data_len = (uint8_t)len;
	}
}

void vb_cma_event_queue_locked(struct vb_cma_event *event)
{
	struct rdma_event_channel *channel = event->owner->pub.channel;

	if (!channel) {
		free(event);
		return;
	}
	vb_list_add_tail(&channel_of(channel)->events, &event->node);
	vb_list_add_tail(&event->owner->events, &event->of_owner);
	vb_notifier_raise(&channel_of(channel)->notifier);
	vb_notifier_wake(&channel_of(channel)->notifier);
}

int vb_cma_event_raise_locked(struct vb_cma_id *id, enum rdma_cm_event_type type, int status)
{
	struct vb_cma_event *event = vb_cma_event_create(id, type, status);

	if (!event)
		return -ENOMEM;
	vb_cma_event_queue_locked(event);
	return 0;
}

/* ---- an id's queued events ---- */

/* The first queued event of id, taken out; NULL: none. */
static struct vb_cma_event *pull_locked(const struct vb_cma_id *id)
{
	if (vb_list_is_empty(&id->events))
		return NULL;
	struct vb_cma_event *event = vb_container_of(id->events.next, struct vb_cma_event, of_owner);
	unqueue_locked(event);
	return event;
}

void vb_cma_event_drop_locked(struct vb_cma_id *id)
{
	struct vb_cma_event *event;

	while ((event = pull_locked(id)))
		discard_locked(event);
	if (id->pub.channel)
		settle_locked(channel_of(id->pub.channel));
}

void vb_cma_event_wait_acked_locked(struct vb_cma_id *id)
{
	while (id->events_told != id->events_acked)
		vb_cma_wait_ack_locked();
}

/* Requests take along the ids that they bring, with their events. */
static void move_locked(struct vb_cma_id *id, struct rdma_event_channel *to)
{
	struct rdma_event_channel *from = id->pub.channel;
	struct vb_list moved = VB_LIST_INIT(moved), *node;
	struct vb_cma_event *event;

	if (from == to)
		return;
	while ((event = pull_locked(id)))
		vb_list_add_tail(&moved, &event->node);
	id->pub.channel = to;
	while ((node = vb_list_pop(&moved))) {
		event = vb_container_of(node, struct vb_cma_event, node);
		vb_cma_event_queue_locked(event);
		if (brings_unseen_id(event))
			move_locked(vb_cma_id_of(event->pub.id), to);
	}
	if (from)
		settle_locked(channel_of(from));
}

static int migrate(struct vb_cma_id *id, struct rdma_event_channel *channel)
{
	struct rdma_event_channel *old = id->pub.channel;
	bool was_sync = id->sync, sync = !channel;
	int err = sync ? vb_cma_channel_create(0, &channel) : 0;

	if (err)
		return err;
	vb_cma_release_event(id);
	vb_cma_lock();
	move_locked(id, channel);
	id->sync = sync;
	vb_cma_event_wait_acked_locked(id);
	vb_cma_unlock();
	if (was_sync && old)
		vb_cma_channel_destroy(old);
	return 0;
}

VB_EXPORT int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
	if (vb_cma_is_faulty(__func__))
		return -1;
	if (!id)
		return vb_cma_fail(EINVAL, "id is NULL");
	int err = migrate(vb_cma_id_of(id), channel);
	return err ? vb_cma_fail(-err, "no channel of its own for the id: %s", strerror(-err)) : 0;
}

/* ---- consuming ---- */

/* An event handed out: its owner may not go before it is acknowledged. */
static struct vb_cma_event *take_locked(struct vb_cma_channel *ch)
{
	struct vb_cma_event *event = first_locked(ch);

	if (!event)
		return NULL;
	unqueue_locked(event);
	settle_locked(ch);
	event->owner->events_told++;
	if (brings_unseen_id(event)) {
		event->owner->backlog_left++;
		vb_cma_id_of(event->pub.id)->listener = NULL;
	}
	return event;
}

static void stop_waiting(void *arg)
{
	struct vb_cma_channel *ch = arg;

	vb_cma_lock();
	unsigned waiters = --ch->waiters;
	bool is_destroyed = ch->is_destroyed;
	vb_cma_unlock();
	if (is_destroyed)
		free_unless_used(ch, waiters);
}

/* For the next event, or until the wait fails. The thread may be cancelled here. */
static int wait_for_event(struct vb_cma_channel *ch, struct vb_cma_event **event)
{
	int err = 0;

	vb_cma_lock();
	while (!(*event = take_locked(ch)) && !err) {
		uint32_t sequence = vb_notifier_sequence(&ch->notifier);
		vb_cma_unlock();
		err = vb_notifier_wait(&ch->notifier, sequence);
		vb_cma_lock();
	}
	vb_cma_unlock();
	return *event ? 0 : err;
}

static int take(struct vb_cma_channel *ch, struct vb_cma_event **event)
{
	int err;

	vb_cma_lock();
	ch->waiters++;
	vb_cma_unlock();
	pthread_cleanup_push(stop_waiting, ch);
	err = wait_for_event(ch, event);
	pthread_cleanup_pop(1);
	return err;
}

static void acknowledge(struct vb_cma_event *event)
{
	vb_cma_lock();
	event->owner->events_acked++;
	vb_cma_wake_ack_locked();
	vb_cma_unlock();
	free(event);
}

VB_EXPORT int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **out)
{
	struct vb_cma_event *event;

	if (vb_cma_is_faulty(__func__))
		return -1;
	if (!channel || !out)
		return vb_cma_fail(EINVAL, "channel or event pointer is NULL");
	for (;;) {
		int err = take(channel_of(channel), &event);
		if (err) {
			errno = -err; /* EAGAIN and EINTR are no failures to talk about */
			return -1;
		}
		if (vb_cma_event_finish(event))
			break;
		acknowledge(event);
	}
	*out = &event->pub;
	return 0;
}

VB_EXPORT int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type type, int status,
				  uint64_t arg)
{
	if (!id)
		return vb_cma_fail(EINVAL, "id is NULL");
	if (type != RDMA_CM_EVENT_USER)
		return vb_cma_fail(EINVAL, "%s: only RDMA_CM_EVENT_USER is the program's to give",
				   rdma_event_str(type));
	vb_cma_lock();
	struct vb_cma_event *event = id->channel ? vb_cma_event_create(vb_cma_id_of(id), type, status) : NULL;
	if (event) {
		event->pub.param.arg = arg;
		vb_cma_event_queue_locked(event);
	}
	int err = event ? 0 : id->channel ? ENOMEM : EINVAL;
	vb_cma_unlock();
	return err ? vb_cma_fail(err,
				 err == EINVAL ? "the id's channel is gone" : "no memory for the event") :
		     0;
}

VB_EXPORT int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	if (vb_cma_is_faulty(__func__))
		return -1;
	if (!event)
		return vb_cma_fail(EINVAL, "event is NULL");
	acknowledge(vb_container_of(event, struct vb_cma_event, pub));
	return 0;
}

void vb_cma_event_give_locked(struct rdma_cm_event *pub, struct vb_cma_id *owner)
{
	struct vb_cma_event *event = vb_container_of(pub, struct vb_cma_event, pub);

	event->owner->events_acked++;
	event->owner = owner;
	owner->events_told++;
	vb_cma_wake_ack_locked();
}

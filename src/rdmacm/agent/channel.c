/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Event channels: a queue of events and a descriptor that is readable while the queue is not empty. The
 * program may poll the descriptor or make it non-blocking. Several threads may take events from one channel.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/loop/notifier.h"
#include "rdmacm/agent/channel.h"

/* vb_cma_channels_end_locked was called. */
static bool is_process_ending;

struct vb_cma_channel {
	struct rdma_event_channel pub;
	struct vb_notifier notifier;
	struct vb_list events; /* vb_cma_event.node, oldest first */
	unsigned waiters;      /* threads in rdma_get_cm_event */
	bool is_destroyed;     /* by the program: the last waiter frees it */
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

static void unqueue_locked(struct vb_cma_event *event)
{
	vb_list_del(&event->node);
	vb_list_del(&event->of_owner);
}

static struct vb_cma_event *pull_first_locked(struct vb_cma_channel *ch)
{
	if (vb_list_is_empty(&ch->events))
		return NULL;
	struct vb_cma_event *event = vb_container_of(ch->events.next, struct vb_cma_event, node);
	unqueue_locked(event);
	return event;
}

static void free_unless_used(struct vb_cma_channel *ch, unsigned waiters)
{
	if (waiters)
		return;
	vb_notifier_fini(&ch->notifier);
	free(ch);
}

/*
 * A thread that waits at the channel goes on waiting, as it would in the kernel, until it is cancelled or
 * interrupted. The channel's memory stays until then.
 */
void vb_cma_channel_free(struct rdma_event_channel *channel)
{
	struct vb_cma_channel *ch = channel_of(channel);

	vb_cma_lock();
	ch->is_destroyed = true;
	unsigned waiters = ch->waiters;
	vb_cma_unlock();
	free_unless_used(ch, waiters);
}

void vb_cma_channels_end_locked(void) { is_process_ending = true; }

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

/* ---- producing ---- */

VB_EXPORT const char *rdma_event_str(enum rdma_cm_event_type event)
{
#define NAME(name) [RDMA_CM_EVENT_##name] = "RDMA_CM_EVENT_" #name
	static const char *const names[] = {
		NAME(ADDR_RESOLVED),	 NAME(ADDR_ERROR),	 NAME(ROUTE_RESOLVED), NAME(ROUTE_ERROR),
		NAME(CONNECT_REQUEST),	 NAME(CONNECT_RESPONSE), NAME(CONNECT_ERROR),  NAME(UNREACHABLE),
		NAME(REJECTED),		 NAME(ESTABLISHED),	 NAME(DISCONNECTED),   NAME(DEVICE_REMOVAL),
		NAME(MULTICAST_JOIN),	 NAME(MULTICAST_ERROR),	 NAME(ADDR_CHANGE),    NAME(TIMEWAIT_EXIT),
		NAME(ADDRINFO_RESOLVED), NAME(ADDRINFO_ERROR),	 NAME(USER),	       NAME(INTERNAL),
	};
#undef NAME

	return (unsigned)event < VB_ARRAY_LEN(names) ? names[event] : "UNKNOWN EVENT";
}

bool vb_cma_event_brings_id(const struct vb_cma_event *event)
{
	return event->pub.event == RDMA_CM_EVENT_CONNECT_REQUEST;
}

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

/* ---- taking out ---- */

struct vb_cma_event *vb_cma_event_pull_locked(const struct vb_cma_id *id)
{
	if (vb_list_is_empty(&id->events))
		return NULL;
	struct vb_cma_event *event = vb_container_of(id->events.next, struct vb_cma_event, of_owner);
	unqueue_locked(event);
	return event;
}

struct vb_cma_event *vb_cma_channel_pull_locked(struct rdma_event_channel *channel)
{
	return pull_first_locked(channel_of(channel));
}

void vb_cma_channel_settle_locked(struct rdma_event_channel *channel)
{
	if (vb_list_is_empty(&channel_of(channel)->events))
		vb_notifier_clear(&channel_of(channel)->notifier);
}

/* ---- handing out ---- */

/* The owner of an event that is handed out may not go before it is acknowledged. */
static struct vb_cma_event *take_locked(struct vb_cma_channel *ch)
{
	struct vb_cma_event *event = pull_first_locked(ch);

	if (!event)
		return NULL;
	vb_cma_channel_settle_locked(&ch->pub);
	event->owner->events_taken++;
	if (vb_cma_event_brings_id(event)) {
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

/* Until there is an event, or the wait fails. The thread may be cancelled here. */
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

int vb_cma_channel_take(struct rdma_event_channel *channel, struct vb_cma_event **event)
{
	struct vb_cma_channel *ch = channel_of(channel);
	int err;

	/*
	 * Another thread of a faulty program may have destroyed the channel just before (cmtime's does).
	 * rdma-core's call then reads a closed descriptor in freed memory, and fails. This one reads the flag
	 * there, and fails as well. It must not free the channel again.
	 *
	 * Once the process has begun to end, the call does not return. On an error rping's thread would call
	 * exit(3), and its status would replace the program's. With rdma-core the process is gone by then;
	 * here exit(3) takes longer, because it ends the connections.
	 */
	vb_cma_lock();
	bool is_destroyed = ch->is_destroyed, is_late = is_destroyed && is_process_ending;
	if (!is_destroyed)
		ch->waiters++;
	vb_cma_unlock();
	while (is_late)
		pause();
	if (is_destroyed)
		return -EBADF;
	pthread_cleanup_push(stop_waiting, ch);
	err = wait_for_event(ch, event);
	pthread_cleanup_pop(1);
	return err;
}

void vb_cma_event_acknowledge(struct vb_cma_event *event)
{
	vb_cma_lock();
	event->owner->events_acked++;
	vb_cma_wake_ack_locked();
	vb_cma_unlock();
	free(event);
}

VB_EXPORT int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	if (vb_cma_is_faulty(__func__))
		return -1;
	if (!event)
		return vb_cma_fail(EINVAL, "event is NULL");
	vb_cma_event_acknowledge(vb_container_of(event, struct vb_cma_event, pub));
	return 0;
}

/* Not by rdma_ack_cm_event: a fault on purpose would fail it, and the program could not see that. */
void vb_cma_release_event(struct vb_cma_id *id)
{
	struct rdma_cm_event *event = id->pub.event;

	id->pub.event = NULL;
	if (event)
		vb_cma_event_acknowledge(vb_container_of(event, struct vb_cma_event, pub));
}

void vb_cma_event_give_locked(struct rdma_cm_event *pub, struct vb_cma_id *owner)
{
	struct vb_cma_event *event = vb_container_of(pub, struct vb_cma_event, pub);

	event->owner->events_acked++;
	event->owner = owner;
	owner->events_taken++;
	vb_cma_wake_ack_locked();
}

void vb_cma_event_wait_acked_locked(struct vb_cma_id *id)
{
	while (id->events_taken != id->events_acked)
		vb_cma_wait_ack_locked();
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* Ids and their channels: an id moves to another one, a channel ends. */
#include <string.h>

#include "rdmacm/id/id.h"

/* Ids that outlive their channel lose their events from here on. */
void vb_cma_channel_destroy(struct rdma_event_channel *channel)
{
	struct vb_cma_id *id;
	struct vb_cma_event *event;

	vb_cma_lock();
	vb_list_for_each(id, vb_cma_ids_locked(), node)
		if (id->pub.channel == channel)
			id->pub.channel = NULL;
	while ((event = vb_cma_channel_pull_locked(channel)))
		vb_cma_event_discard_locked(event);
	vb_cma_unlock();
	vb_cma_channel_free(channel);
}

VB_EXPORT void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	if (channel)
		vb_cma_channel_destroy(channel);
}

/* Requests take along the ids that they bring, with their events. */
static void move_locked(struct vb_cma_id *id, struct rdma_event_channel *to)
{
	struct rdma_event_channel *from = id->pub.channel;
	struct vb_list moved = VB_LIST_INIT(moved), *node;
	struct vb_cma_event *event;

	if (from == to)
		return;
	while ((event = vb_cma_event_pull_locked(id)))
		vb_list_add_tail(&moved, &event->node);
	id->pub.channel = to;
	while ((node = vb_list_pop(&moved))) {
		event = vb_container_of(node, struct vb_cma_event, node);
		vb_cma_event_queue_locked(event);
		if (vb_cma_event_brings_id(event))
			move_locked(vb_cma_id_of(event->pub.id), to);
	}
	if (from)
		vb_cma_channel_settle_locked(from);
}

/* To the channel that it has: a synchronous id's own one stays its own. */
int vb_cma_id_migrate(struct vb_cma_id *id, struct rdma_event_channel *channel)
{
	struct rdma_event_channel *old = id->pub.channel;
	bool was_sync = id->sync, moves = !channel || channel != old, sync = moves ? !channel : was_sync;
	int err = channel ? 0 : vb_cma_channel_create(0, &channel);

	if (err)
		return err;
	vb_cma_release_event(id);
	vb_cma_lock();
	move_locked(id, channel);
	id->sync = sync;
	vb_cma_event_wait_acked_locked(id);
	vb_cma_unlock();
	if (was_sync && old && moves)
		vb_cma_channel_destroy(old);
	return 0;
}

VB_EXPORT int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
	if (vb_cma_is_faulty(__func__))
		return -1;
	if (!id)
		return vb_cma_fail(EINVAL, "id is NULL");
	int err = vb_cma_id_migrate(vb_cma_id_of(id), channel);
	return err ? vb_cma_fail(-err, "no channel of its own for the id: %s", strerror(-err)) : 0;
}

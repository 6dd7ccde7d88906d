/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Interfaces that go, or get another link address (as a bond does that fails over). Ids on their devices get
 * an event. Whenever the network changes, the new list of interfaces is compared with the last one.
 */
#include <stdlib.h>
#include <string.h>

#include "adapter/device/device.h"
#include "rdmacm/agent/channel.h"
#include "rdmacm/id/id.h"

/* Under the lock. */
static struct vb_netif *seen;
static unsigned num_seen;

static const struct vb_netif *find(const struct vb_netif *list, unsigned count, unsigned index)
{
	for (unsigned i = 0; i < count; i++)
		if (list[i].index == index)
			return &list[i];
	return NULL;
}

static void raise_on_locked(unsigned ifindex, enum rdma_cm_event_type type)
{
	struct vb_cma_id *id;

	vb_list_for_each(id, vb_cma_ids_locked(), node) {
		if (id->ifindex != ifindex || !id->device || id->state == VB_CMA_REQUESTED ||
		    id->was_withdrawn) /* the program may not know of it (agent/deliver.c) */
			continue;
		if (type == RDMA_CM_EVENT_DEVICE_REMOVAL)
			vb_cma_groups_lost_locked(id);
		vb_cma_event_raise_locked(id, type, 0);
	}
}

static void compare_locked(const struct vb_netif *list, unsigned count)
{
	for (unsigned i = 0; i < num_seen; i++) {
		const struct vb_netif *now = find(list, count, seen[i].index);
		if (!now)
			raise_on_locked(seen[i].index, RDMA_CM_EVENT_DEVICE_REMOVAL);
		else if (memcmp(now->mac, seen[i].mac, sizeof(now->mac)) != 0)
			raise_on_locked(seen[i].index, RDMA_CM_EVENT_ADDR_CHANGE);
	}
}

static void changed(void *arg)
{
	struct vb_netif *list;
	unsigned count;

	(void)arg;
	if (vb_netif_list(&list, &count))
		return;
	vb_cma_lock();
	compare_locked(list, count);
	struct vb_netif *old = seen;
	seen = list;
	num_seen = count;
	vb_cma_unlock();
	free(old);
}

void vb_cma_interfaces_forget(void)
{
	num_seen = 0;
}

void vb_cma_interfaces_watch_locked(void)
{
	free(seen);
	seen = NULL;
	num_seen = 0;
	if (vb_netif_list(&seen, &num_seen))
		num_seen = 0;
	vb_netif_change_subscribe(changed, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ids whose next hop has no link address yet. The kernel looks for the address when it has something to send
 * there, and does not say when it has found it. So this asks again and again, until the kernel knows it or
 * the program's time is over.
 */
#include <stdlib.h>

#include "base/nanoseconds.h"
#include "rdmacm/agent/channel.h"
#include "rdmacm/id/id.h"

enum { ASK_NS = 5 * VB_NS_PER_MS, KICK_NS = VB_NS_PER_S };

struct vb_cma_neighbour {
	struct vb_list node;
	struct vb_cma_id *id;
	struct vb_route route;
	uint64_t give_up_ns, kick_ns;
};

static void ask_again(struct vb_timer *timer, uint64_t now_ns);

/* Under the lock. */
static struct vb_list awaited = VB_LIST_INIT(awaited);
static struct vb_timer timer = { .fire = ask_again };

void vb_cma_neighbour_forget_locked(struct vb_cma_id *id)
{
	if (!id->neighbour)
		return;
	vb_list_del(&id->neighbour->node);
	free(id->neighbour);
	id->neighbour = NULL;
}

/* Without memory for the event the next look tries again. */
static void resolved_locked(struct vb_cma_id *id, int status)
{
	if (!vb_cma_id_resolved_locked(id, status))
		vb_cma_neighbour_forget_locked(id);
}

/* Repeated, because the kernel gives up after some seconds. */
static void kick(struct vb_cma_neighbour *n, uint64_t now_ns)
{
	vb_route_kick(&n->route);
	n->kick_ns = now_ns + KICK_NS;
}

static void ask_again(struct vb_timer *t, uint64_t now_ns)
{
	struct vb_cma_neighbour *n;

	vb_cma_lock();
	vb_list_for_each(n, &awaited, node) {
		if (vb_route_is_ready(&n->route))
			resolved_locked(n->id, 0);
		else if (now_ns >= n->give_up_ns)
			resolved_locked(n->id, -ETIMEDOUT);
		else if (now_ns >= n->kick_ns)
			kick(n, now_ns);
	}
	if (!vb_list_is_empty(&awaited))
		vb_timer_set(t, now_ns + ASK_NS);
	vb_cma_unlock();
}

int vb_cma_neighbour_await_locked(struct vb_cma_id *id, const struct vb_route *route, int timeout_ms)
{
	uint64_t now = vb_now_ns(), wait_ns = timeout_ms > 0 ? (uint64_t)timeout_ms * VB_NS_PER_MS : 0;
	struct vb_cma_neighbour *n = malloc(sizeof(*n));

	if (!n)
		return -ENOMEM;
	*n = (struct vb_cma_neighbour){ .id = id, .route = *route, .give_up_ns = now + wait_ns };
	vb_list_add_tail(&awaited, &n->node);
	id->neighbour = n;
	id->state = VB_CMA_RESOLVING;
	kick(n, now);
	vb_timer_set(&timer, now + ASK_NS);
	return 0;
}

/* The ids keep their state: nobody resolves them in a child. */
void vb_cma_neighbour_forget_all(void)
{
	struct vb_cma_neighbour *n;

	vb_list_for_each(n, &awaited, node)
		n->id->neighbour = NULL;
	vb_list_init(&awaited);
	timer = (struct vb_timer){ .fire = ask_again };
}

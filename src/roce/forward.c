/* SPDX-License-Identifier: BSD-2-Clause */
#include "roce/forward.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/inspection/counts.h"
#include "base/list.h"

enum {
	MAX_WAITING = 2048,
	RETRY_NS = 30000,
	MAX_WAIT_NS = 500000000, /* many time slices of a receiver that shares its processor */
};

struct waiting {
	struct vb_list node;
	struct vb_inbox_addr addr;
	uint64_t since_ns;
	uint32_t slot;
	uint32_t bytes;
	uint8_t packet[];
};

static void try_again(struct vb_timer *timer, uint64_t now_ns);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct vb_list queue = VB_LIST_INIT(queue);
static atomic_uint nwaiting; /* changed under lock */
static struct vb_timer timer = { .fire = try_again };

static int put(uint32_t slot, const struct vb_inbox_addr *addr, const void *packet, size_t bytes)
{
	struct iovec iov = { (void *)(uintptr_t)packet, bytes };
	return vb_inbox_send(slot, addr, &iov, 1);
}

static bool waits_locked(uint32_t slot)
{
	struct waiting *w;
	vb_list_for_each(w, &queue, node)
		if (w->slot == slot)
			return true;
	return false;
}

static void enqueue_locked(uint32_t slot, const struct vb_inbox_msg *msg)
{
	struct waiting *w =
		atomic_load(&nwaiting) < MAX_WAITING ? malloc(sizeof(*w) + msg->payload_bytes) : NULL;
	if (!w) {
		vb_drop(VB_DROP_NO_ROOM);
		return;
	}
	w->addr = msg->addr;
	w->since_ns = vb_now_ns();
	w->slot = slot;
	w->bytes = (uint32_t)msg->payload_bytes;
	memcpy(w->packet, msg->payload, msg->payload_bytes);
	vb_list_add_tail(&queue, &w->node);
	if (atomic_fetch_add(&nwaiting, 1) == 0)
		vb_timer_set(&timer, w->since_ns + RETRY_NS);
}

void vb_forward(uint32_t slot, const struct vb_inbox_msg *msg)
{
	if (vb_likely(!atomic_load(&nwaiting)) &&
	    put(slot, &msg->addr, msg->payload, msg->payload_bytes) != -EAGAIN)
		return; /* done, or nobody has this slot */
	pthread_mutex_lock(&lock);
	if (waits_locked(slot) || put(slot, &msg->addr, msg->payload, msg->payload_bytes) == -EAGAIN)
		enqueue_locked(slot, msg);
	pthread_mutex_unlock(&lock);
}

/* Slots whose inbox was found full in this round: what waits for them behind that keeps its order. */
struct full {
	uint64_t bits[VB_SLOT_COUNT / 64];
};

static bool is_full(const struct full *f, uint32_t slot) { return f->bits[slot / 64] >> slot % 64 & 1; }
static void set_full(struct full *f, uint32_t slot) { f->bits[slot / 64] |= 1ull << slot % 64; }

static void try_all_locked(uint64_t now_ns)
{
	struct full full = { { 0 } };
	for (struct vb_list *node = queue.next, *next; node != &queue; node = next) {
		struct waiting *w = vb_container_of(node, struct waiting, node);
		next = node->next;
		bool waits = is_full(&full, w->slot) ||
			     put(w->slot, &w->addr, w->packet, w->bytes) == -EAGAIN;
		if (waits)
			set_full(&full, w->slot);
		if (waits && now_ns < w->since_ns + MAX_WAIT_NS) /* it may have come after now_ns */
			continue;
		if (waits)
			vb_drop(VB_DROP_NO_ROOM);
		vb_list_del(&w->node);
		atomic_fetch_sub(&nwaiting, 1);
		free(w);
	}
}

static void try_again(struct vb_timer *t, uint64_t now_ns)
{
	pthread_mutex_lock(&lock);
	try_all_locked(now_ns);
	bool more = atomic_load(&nwaiting);
	pthread_mutex_unlock(&lock);
	if (more)
		vb_timer_set(t, now_ns + RETRY_NS);
}

/* What waited is the parent's. */
static void forget(void)
{
	pthread_mutex_init(&lock, NULL);
	vb_list_init(&queue);
	atomic_store(&nwaiting, 0);
}

__attribute__((constructor)) static void watch_forks(void)
{
	vb_host_at_fork(forget);
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include "adapter/watcher.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A released entry rests while this many others are released before it is used again, so that stale keys stay unknown. */
enum { RESTING = 4096 };

/* Index 0 is never used. */
static struct {
	pthread_mutex_t lock;
	uint32_t fresh;         /* the next entry that was never used */
	uint32_t *queue;        /* ring of VB_KEY_COUNT released keys (tag advanced), allocated with the first release */
	uint32_t head, tail;
	unsigned generation;
} keys = { .lock = PTHREAD_MUTEX_INITIALIZER, .fresh = 1 };

const char *vb_key_fault_text(enum vb_key_fault fault)
{
	static const char *const text[] = {
#define X(name, sentence) [VB_KEY_##name] = sentence,
		VB_KEY_FAULTS(X)
#undef X
	};
	return text[fault];
}

const struct vb_watcher *vb_watcher;

const char *vb_key_story(enum vb_key_fault fault, uint32_t key, uint64_t addr, uint64_t length, unsigned access, uint32_t pd)
{
	return vb_watcher ? vb_watcher->key_story(fault, key, addr, length, access, pd) : vb_key_fault_text(fault);
}

const char *vb_rights_story(const struct vb_qp *qp, unsigned access)
{
	return vb_watcher ? vb_watcher->rights_story(qp, access) : "the target queue pair's qp_access_flags do not allow it";
}

/* A forked child starts with an empty table. */
static void follow_fork_locked(void)
{
	if (keys.generation == vb_host_generation())
		return;
	keys.generation = vb_host_generation();
	keys.fresh = 1;
	keys.head = keys.tail = 0;
}

/* A key to use next: index and tag. 0 if none is left. */
static uint32_t take_locked(void)
{
	uint32_t released = keys.tail - keys.head;
	if (keys.fresh < VB_KEY_COUNT && released <= RESTING)
		return keys.fresh++ << 8 | 1;
	return released ? keys.queue[keys.head++ % VB_KEY_COUNT] : 0;
}

int vb_key_take(uint32_t *key)
{
	pthread_mutex_lock(&keys.lock);
	follow_fork_locked();
	*key = take_locked();
	if (*key && vb_arena_open(VB_ARENA_KEYS + (uint64_t)(*key >> 8) * VB_KEY_BYTES, VB_KEY_BYTES))
		*key = 0; /* and the entry is lost */
	pthread_mutex_unlock(&keys.lock);
	return *key ? 0 : -ENOMEM;
}

struct vb_key *vb_key_entry(uint32_t key)
{
	return (struct vb_key *)vb_arena_at(VB_ARENA_KEYS) + (key >> 8) % VB_KEY_COUNT;
}

uint32_t vb_key_end(void)
{
	pthread_mutex_lock(&keys.lock);
	follow_fork_locked();
	uint32_t end = keys.fresh;
	pthread_mutex_unlock(&keys.lock);
	return end;
}

/* Whose pages may be moved: an ordinary region's. */
static bool may_move(unsigned access)
{
	return (access & VB_KEY_LOCAL) && !(access & (VB_KEY_NULL | IBV_ACCESS_ON_DEMAND));
}

void vb_key_publish(uint32_t key, const struct vb_key_meaning *m)
{
	struct vb_key *k = vb_key_entry(key);
	atomic_store_explicit(&k->pd, m->pd, memory_order_relaxed);
	atomic_store_explicit(&k->access, m->access, memory_order_relaxed);
	atomic_store_explicit(&k->qpn, m->qpn, memory_order_relaxed);
	atomic_store_explicit(&k->iova, m->iova, memory_order_relaxed);
	atomic_store_explicit(&k->length, m->length, memory_order_relaxed);
	atomic_store_explicit(&k->va, m->va, memory_order_relaxed);
	atomic_store_explicit(&k->segment, may_move(m->access) ? 0 : VB_KEY_NO_SEGMENT, memory_order_relaxed);
	atomic_store_explicit(&k->key, key, memory_order_release);
}

void vb_key_revoke(uint32_t key)
{
	/* Sequentially consistent, both: they pair with the fence at the start of a busy section. */
	atomic_store(&vb_key_entry(key)->key, 0);
	vb_arena_revise();
}

void vb_key_release(uint32_t key)
{
	uint32_t next = (key & ~0xffu) | ((key + 1) & 0xff ? (key + 1) & 0xff : 1);
	pthread_mutex_lock(&keys.lock);
	if (!keys.queue)
		keys.queue = malloc(VB_KEY_COUNT * sizeof(*keys.queue));
	if (keys.queue) /* else the entry is lost, no more */
		keys.queue[keys.tail++ % VB_KEY_COUNT] = next;
	pthread_mutex_unlock(&keys.lock);
}

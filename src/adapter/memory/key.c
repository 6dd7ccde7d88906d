/* SPDX-License-Identifier: BSD-2-Clause */
#include "adapter/memory/key.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/*
 * A released entry rests while this many others are released before it is used again, so that stale keys stay
 * unknown.
 */
enum { RESTING = 4096 };

/*
 * Entries in the order of their first use, 1, 2, ...: they lie in a row that begins anywhere. Index 0 is
 * never used.
 */
enum { USABLE = VB_KEY_COUNT - 1 };

static struct {
	pthread_mutex_t lock;
	uint32_t first;         /* the index of the first */
	uint32_t fresh;         /* the next entry that was never used */
	/* ring of VB_KEY_COUNT released keys (tag advanced), allocated with the first release */
	uint32_t *queue;
	uint32_t head, tail;
	uint16_t random[128];   /* of which this many are left */
	unsigned num_random;
	bool begun;
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

const char *(*vb_key_explain_more)(enum vb_key_fault fault, const struct vb_key_use *use);

const char *vb_key_explain(enum vb_key_fault fault, const struct vb_key_use *use)
{
	return vb_key_explain_more ? vb_key_explain_more(fault, use) : vb_key_fault_text(fault);
}

static void begin_locked(void)
{
	if (!keys.begun)
		vb_random(&keys.first, sizeof(keys.first));
	keys.begun = true;
}

/* A forked child starts with an empty table, and numbers of its own. */
static void forget(void)
{
	pthread_mutex_init(&keys.lock, NULL);
	keys.begun = false;
	keys.fresh = 1;
	keys.head = keys.tail = keys.num_random = 0;
}

__attribute__((constructor)) static void watch_forks(void)
{
	vb_host_at_fork(forget);
}

/* One system call for many. */
static uint32_t random_tag_locked(void)
{
	if (!keys.num_random) {
		vb_random(keys.random, sizeof(keys.random));
		keys.num_random = VB_ARRAY_LEN(keys.random);
	}
	return keys.random[--keys.num_random] & VB_KEY_TAG_MAX;
}

static uint32_t make_key(uint32_t index, uint32_t tag)
{
	return tag >> 8 << VB_KEY_TAG_SHIFT | index << 8 | (tag & 0xff);
}
static uint32_t tag_of(uint32_t key) { return key >> VB_KEY_TAG_SHIFT << 8 | (key & 0xff); }
static uint32_t index_of(uint32_t key) { return (key >> 8) % VB_KEY_COUNT; }

static uint32_t nth_index(uint32_t n) { return 1 + (uint32_t)(((uint64_t)keys.first + n) % USABLE); }

/* A key to use next: index and tag. 0 if none is left. */
static uint32_t take_locked(void)
{
	uint32_t released = keys.tail - keys.head;
	if (keys.fresh <= USABLE && released <= RESTING)
		return make_key(nth_index(keys.fresh++), random_tag_locked());
	return released ? keys.queue[keys.head++ % VB_KEY_COUNT] : 0;
}

int vb_key_take(uint32_t *key)
{
	pthread_mutex_lock(&keys.lock);
	begin_locked();
	*key = take_locked();
	if (*key && vb_arena_open(VB_ARENA_KEYS + (uint64_t)index_of(*key) * VB_KEY_BYTES, VB_KEY_BYTES))
		*key = 0; /* and the entry is lost */
	pthread_mutex_unlock(&keys.lock);
	return *key ? 0 : -ENOMEM;
}

struct vb_key *vb_key_entry(uint32_t key)
{
	return (struct vb_key *)vb_arena_at(VB_ARENA_KEYS) + index_of(key);
}

struct vb_key *vb_key_nth(uint32_t n) { return vb_key_entry(nth_index(n) << 8); }

uint32_t vb_key_end(void)
{
	pthread_mutex_lock(&keys.lock);
	begin_locked();
	uint32_t end = keys.fresh;
	pthread_mutex_unlock(&keys.lock);
	return end;
}

/* Whose pages may be moved: an ordinary region's. */
static bool may_move(const struct vb_key_meaning *m)
{
	return (m->access & VB_KEY_LOCAL) && !(m->access & (VB_KEY_NULL | IBV_ACCESS_ON_DEMAND)) && !m->stays;
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
	atomic_store_explicit(&k->segment, may_move(m) ? 0 : VB_KEY_NO_SEGMENT, memory_order_relaxed);
	atomic_store_explicit(&k->key, key, memory_order_release);
}

void vb_key_revoke(uint32_t key)
{
	/* Sequentially consistent, both: they pair with the fence at the start of a busy section. */
	atomic_store(&vb_key_entry(key)->key, 0);
	vb_arena_next_generation();
}

uint32_t vb_key_of_next_bind(uint32_t key)
{
	pthread_mutex_lock(&keys.lock);
	begin_locked();
	uint32_t more = 1 + random_tag_locked() % 0xff;
	pthread_mutex_unlock(&keys.lock);
	return (key & ~0xffu) | ((key + more) & 0xff);
}

void vb_key_release(uint32_t key)
{
	pthread_mutex_lock(&keys.lock);
	/* a turn would be the same tag again */
	uint32_t tag = tag_of(key), more = 1 + random_tag_locked() % VB_KEY_TAG_MAX;
	uint32_t next = make_key(index_of(key), (tag + more) & VB_KEY_TAG_MAX);
	if (!keys.queue)
		keys.queue = malloc(VB_KEY_COUNT * sizeof(*keys.queue));
	if (keys.queue) /* else the entry is lost, no more */
		keys.queue[keys.tail++ % VB_KEY_COUNT] = next;
	pthread_mutex_unlock(&keys.lock);
}

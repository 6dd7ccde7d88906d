/* SPDX-License-Identifier: BSD-2-Clause */
#include "adapter/memory/segment.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "adapter/memory/hold.h"
#include "adapter/object.h"
#include "base/log.h"
#include "base/nanoseconds.h"
#include "host/memory/memory.h"
#include "host/memory/remap.h"
#include "host/loop/share.h"

enum {
	MAX_SEGMENTS = 1024,
	MAX_WANTS = 1024,
	/* how long a slice waits for accesses in flight before it lets others work and tries again, */
	QUIESCE_NS = 2 * VB_NS_PER_MS,
	RETRY_NS = VB_NS_PER_MS,       /* after so long, */
	MAX_TRIES = 100,           /* so often */
	MAX_FORKS = 16,            /* a program that forks so often with segments keeps its memory private */
};

enum state { FREE, MOVING, READY, KEPT };

struct segment {
	enum state state;
	uint64_t serial;
	uintptr_t at;
	size_t bytes, moved;
	int fd;
	bool writable;
	unsigned users;          /* keys that name it; while MOVING: is `key` still there? */
	uint32_t key;            /* MOVING: for whom */
	unsigned piece, tries;
	struct vb_remap_plan plan;
};

/* Static: a segment's own pages may be the program's heap, and that is trapped while they move. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct segment segments[MAX_SEGMENTS];
static unsigned count;
static struct segment *moving;
static uint64_t last_serial;
static unsigned forking, forks;
static bool has_unused; /* a segment without users is still shared, since peers were at work */
static uint32_t wants[MAX_WANTS];
static unsigned wants_head, wants_tail;
static void fire(struct vb_timer *timer, uint64_t now_ns);
static struct vb_timer mover = { .fire = fire };
static void (*on_retire)(uint64_t serial);
atomic_bool vb_segment_waits;

void vb_segment_on_retire(void (*retired)(uint64_t serial)) { on_retire = retired; }

static struct segment *by_serial(uint64_t serial)
{
	for (unsigned i = 0; serial && i < MAX_SEGMENTS; i++)
		if (segments[i].state != FREE && segments[i].serial == serial)
			return &segments[i];
	return NULL;
}

static unsigned limit(void)
{
	unsigned most = vb_fd_share() / 2;
	return most < MAX_SEGMENTS ? most : MAX_SEGMENTS;
}

/* ---- keys ---- */

static void name_segment(struct vb_key *k, const struct segment *s)
{
	atomic_store_explicit(&k->segment_at, atomic_load(&k->va) - s->at, memory_order_relaxed);
	atomic_store_explicit(&k->segment, s->serial, memory_order_release);
}

static void refuse(struct vb_key *k)
{
	atomic_store(&k->segment, VB_KEY_NO_SEGMENT);
}

/* No key names the segment from here on. */
static void unname(const struct segment *s)
{
	for (uint32_t i = 1, end = vb_key_end(); i < end; i++) {
		struct vb_key *k = vb_key_nth(i);
		if (atomic_load_explicit(&k->segment, memory_order_relaxed) == s->serial)
			atomic_store(&k->segment, 0);
	}
}

/* ---- moving ---- */

static bool hold_peers(uint64_t timeout_ns)
{
	/* Sequentially consistent: pairs with the start of a busy section, after which peers look at it. */
	atomic_store(&vb_arena->moving, 1);
	if (vb_memory_quiesce_until(vb_now_ns() + timeout_ns))
		return true;
	atomic_store(&vb_arena->moving, 0);
	return false;
}

static void release_peers(void)
{
	atomic_store(&vb_arena->moving, 0);
}

/*
 * The memory is private again, or the segment is kept and works. No key names it. False: peers were at work
 * for too long, try again.
 */
static bool dissolve_locked(struct segment *s)
{
	if (moving == s)
		moving = NULL;
	s->state = KEPT;
	s->users = 0;
	if (!hold_peers(QUIESCE_NS))
		return false;
	int err = vb_remap_back(s->fd, s->plan.advice);
	release_peers();
	if (err) {
		vb_explain("memory", "%zu bytes at %p stay shared: %s", s->bytes, (void *)s->at,
			   strerror(-err));
		return true;
	}
	vb_fd_close(s->fd);
	s->state = FREE;
	count--;
	if (on_retire)
		on_retire(s->serial);
	return true;
}

static bool dissolve_unused_locked(void)
{
	has_unused = false;
	for (unsigned i = 0; count && i < MAX_SEGMENTS; i++)
		if (segments[i].state != FREE && !segments[i].users)
			has_unused |= !dissolve_locked(&segments[i]);
	return !has_unused;
}

static void finish_locked(struct segment *s)
{
	struct vb_key *k = vb_key_entry(s->key);
	moving = NULL;
	if (vb_remap_seal(s->fd, s->writable)) {
		refuse(k);
		dissolve_locked(s);
		return;
	}
	s->state = READY;
	name_segment(k, s);
}

/*
 * The next slice. It ends at the latest where the mapping that it is in does, and between two huge pages, so
 * that none has to be split.
 */
static int move_slice_locked(struct segment *s)
{
	const struct vb_remap_piece *p = &s->plan.piece[s->piece];
	uintptr_t at = s->at + s->moved;
	size_t bytes = vb_min_u64(VB_REMAP_SLICE - at % VB_REMAP_SLICE, p->at + p->bytes - at);
	if (!hold_peers(QUIESCE_NS))
		return -EAGAIN;
	int err = vb_remap_in(at, bytes, s->plan.advice, s->fd, s->moved);
	release_peers();
	if (err)
		return err;
	s->moved += bytes;
	if (at + bytes == p->at + p->bytes)
		s->piece++;
	return 0;
}

/* One step of the segment that moves. False: it must wait. */
static bool go_on_locked(void)
{
	struct segment *s = moving;
	int err = move_slice_locked(s);
	if (err == -EAGAIN && ++s->tries < MAX_TRIES)
		return false;
	if (err) {
		vb_explain("memory", "%zu bytes at %p are not mapped by peers: %s", s->bytes, (void *)s->at,
			   strerror(-err));
		refuse(vb_key_entry(s->key));
		dissolve_locked(s);
	} else if (s->moved == s->bytes) {
		finish_locked(s);
	}
	return true;
}

/* ---- starting ---- */

/*
 * 1: the range is within *s. -EPERM: it overlaps some, or touches none that could be of use. 0: there is
 * none.
 */
static int find_overlap_locked(uintptr_t at, uintptr_t end, struct segment **s)
{
	for (unsigned i = 0; count && i < MAX_SEGMENTS; i++) {
		struct segment *o = &segments[i];
		if (o->state == FREE || end <= o->at || at >= o->at + o->bytes)
			continue;
		*s = o;
		return o->state != MOVING && at >= o->at && end <= o->at + o->bytes ? 1 : -EPERM;
	}
	return 0;
}

static struct segment *free_locked(void)
{
	for (unsigned i = 0; count < limit() && i < MAX_SEGMENTS; i++)
		if (segments[i].state == FREE)
			return &segments[i];
	return NULL;
}

static int begin_locked(uint32_t key, const struct vb_key *k, uintptr_t at, size_t bytes)
{
	unsigned access = atomic_load(&k->access);
	struct segment *s = free_locked();
	if (!s)
		return -EMFILE;
	int err = vb_remap_check(at, bytes, &s->plan);
	if (!err)
		err = vb_remap_open(bytes, &s->fd);
	if (err)
		return err;
	s->state = MOVING;
	s->serial = ++last_serial;
	s->at = at;
	s->bytes = bytes;
	s->moved = 0;
	s->writable = access & VB_REMOTE_WRITES;
	s->users = 1;
	s->key = key;
	s->piece = s->tries = 0;
	count++;
	moving = s;
	return 0;
}

/* The whole pages of a region. */
static void pages_of(const struct vb_key *k, uintptr_t *at, uintptr_t *end)
{
	uint64_t va = atomic_load(&k->va), length = atomic_load(&k->length);
	*at = va & ~(vb_page_bytes() - 1);
	*end = vb_align_up(va + length, vb_page_bytes());
}

static void start_locked(uint32_t key)
{
	struct vb_key *k = vb_key_entry(key);
	uint64_t va = atomic_load(&k->va), length = atomic_load(&k->length);
	if (!key || atomic_load(&k->key) != key || atomic_load(&k->segment) || !length)
		return;
	uintptr_t at, end;
	struct segment *s;
	pages_of(k, &at, &end);
	int err = find_overlap_locked(at, end, &s);
	if (err == 1 && !vb_remap_is_at(s->fd, at - s->at, at, end - at))
		err = -EPERM; /* other memory has come to this place since */
	if (err == 1) {
		s->state = READY;
		s->users++;
		name_segment(k, s);
		return;
	}
	if (!err)
		err = begin_locked(key, k, at, end - at);
	if (err) {
		vb_explain("memory", "key 0x%x, %llu bytes at 0x%llx: not mapped by peers: %s", key,
			   (unsigned long long)length, (unsigned long long)va, strerror(-err));
		refuse(k);
	}
}

/* False: nothing more can be done now. */
static bool work_locked(void)
{
	if (forking || !vb_remap_may_now())
		return false;
	if (has_unused)
		return dissolve_unused_locked();
	if (forks >= MAX_FORKS)
		return false;
	if (moving)
		return go_on_locked();
	if (wants_head == wants_tail)
		return false;
	start_locked(wants[wants_head++ % MAX_WANTS]);
	return true;
}

static bool is_idle_locked(void)
{
	return !moving && !has_unused && wants_head == wants_tail;
}

/* One slice at a time, so that the progress thread does other work in between. */
static void fire(struct vb_timer *timer, uint64_t now_ns)
{
	pthread_mutex_lock(&lock);
	bool more = work_locked(), idle = is_idle_locked();
	bool wait = !idle && !more && (moving || has_unused) && !forking;
	pthread_mutex_unlock(&lock);
	if (!idle && (more || wait))
		vb_timer_set(timer, now_ns + (more ? 0 : RETRY_NS));
}

static void wake_mover_locked(void)
{
	if (vb_remap_way() == VB_REMAP_ALONE)
		atomic_store(&vb_segment_waits, true);
	else
		vb_timer_set(&mover, 0);
}

void vb_segment_want(uint32_t key)
{
	pthread_mutex_lock(&lock);
	if (wants_tail - wants_head < MAX_WANTS)
		wants[wants_tail++ % MAX_WANTS] = key;
	wake_mover_locked();
	pthread_mutex_unlock(&lock);
}

bool vb_segment_find(uint32_t key, struct vb_segment *out)
{
	const struct vb_key *k = vb_key_entry(key);
	pthread_mutex_lock(&lock);
	const struct segment *s = atomic_load(&k->key) == key ? by_serial(atomic_load(&k->segment)) : NULL;
	if (s)
		*out = (struct vb_segment){
			.serial = s->serial, .bytes = s->bytes, .fd = s->fd, .writable = s->writable
		};
	pthread_mutex_unlock(&lock);
	return s != NULL;
}

/* ---- calls while the caller waits ---- */

static void work_off(void *unused)
{
	pthread_mutex_lock(&lock);
	for (unsigned tries = 0; !is_idle_locked() && tries < MAX_TRIES;)
		if (!work_locked())
			tries++;
	wants_head = wants_tail; /* what could not be done here cannot later */
	if (moving)
		dissolve_locked(moving);
	pthread_mutex_unlock(&lock);
}

void vb_segment_safe_point(void)
{
	if (vb_loop_is_current() || !atomic_exchange(&vb_segment_waits, false))
		return;
	vb_remap_exclude_caller();
	vb_loop_call(work_off, NULL);
}

/* done is on the stack of a thread that may sleep in a trap, so it is written after all has been moved. */
static void dissolve_unused(void *done)
{
	pthread_mutex_lock(&lock);
	bool all = dissolve_unused_locked();
	pthread_mutex_unlock(&lock);
	*(bool *)done = all;
}

/* The calling thread waits: a peer in the middle of an access may get no processor for long. */
static void dissolve_and_wait(void)
{
	bool done = false;
	for (unsigned tries = 0; !done && tries < MAX_TRIES; tries++)
		if (vb_loop_call(dissolve_unused, &done))
			return;
	if (!done)
		vb_explain(
			"memory",
			"deregistered memory stays shared: a peer does not come to an end with its accesses");
}

/* Left by a fork, say, that could not wait for peers: no key names it any more. */
static bool is_kept_locked(const struct vb_key *k)
{
	uintptr_t at, end;
	struct segment *s;
	pages_of(k, &at, &end);
	return count && find_overlap_locked(at, end, &s) && s->state == KEPT && !s->users;
}

void vb_segment_leave(uint32_t key)
{
	struct vb_key *k = vb_key_entry(key);
	bool unused = false;
	pthread_mutex_lock(&lock);
	struct segment *s = moving && moving->key == key ? moving : by_serial(atomic_load(&k->segment));
	if (s)
		unused = --s->users == 0;
	else
		unused = is_kept_locked(k);
	atomic_store(&k->segment, 0);
	pthread_mutex_unlock(&lock);
	if (unused)
		dissolve_and_wait();
}

/* ---- forks ---- */

static void dissolve_all(void *unused)
{
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; count && i < MAX_SEGMENTS; i++) {
		struct segment *s = &segments[i];
		if (s->state == FREE)
			continue;
		unname(s);
		dissolve_locked(s);
	}
	pthread_mutex_unlock(&lock);
}

/* Nothing moves until the fork is over. */
static void before_fork(void)
{
	pthread_mutex_lock(&lock);
	bool moves_back = count;
	forking++;
	forks += moves_back;
	pthread_mutex_unlock(&lock);
	if (moves_back)
		vb_loop_call(dissolve_all, NULL);
}

static void lock_for_fork(void)
{
	pthread_mutex_lock(&lock);
	forking--;
	for (unsigned i = 0; count && i < MAX_SEGMENTS; i++)
		if (segments[i].state != FREE && vb_remap_fork_copy(segments[i].fd))
			vb_explain("fork", "%zu bytes at %p are shared with the child: no memory for a copy",
				   segments[i].bytes, (void *)segments[i].at);
}

static void in_parent(void)
{
	vb_remap_fork_drop();
	if (!is_idle_locked()) /* the timer may have fired in vain */
		wake_mover_locked();
	pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
	vb_remap_fork_restore();
	pthread_mutex_unlock(&lock); /* this thread took it before the fork */
	memset(segments, 0, sizeof(segments));
	moving = NULL;
	count = forking = forks = wants_head = wants_tail = 0;
	has_unused = false;
	atomic_store(&vb_segment_waits, false);
}

__attribute__((constructor)) static void prepare(void)
{
	static const struct vb_fork_steps steps = {
		.before = before_fork, .lock = lock_for_fork, .parent = in_parent, .child = in_child
	};
	vb_host_around_fork(VB_FORK_MEMORY, &steps);
}

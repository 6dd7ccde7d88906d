/* SPDX-License-Identifier: BSD-2-Clause */
#include "local/mapped.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/memory/hold.h"
#include "adapter/queues/queue.h"
#include "adapter/memory/segment.h"
#include "base/log.h"
#include "base/nanoseconds.h"
#include "base/tuned.h"
#include "host/memory/memory.h"
#include "local/qp.h"

enum { ASK = 1, GIVE, GONE };

enum {
	/* the peer is asked again after so many times the use, in case things have changed */
	ASK_BACKOFF = 8,
	UNMAP_NS = 100 * VB_NS_PER_MS,
	SHARES = 8, /* a peer's segments get one of so many parts of the address space */
};
#define MAX_SEGMENT_BYTES (1ull << 44)

static const char *setting(void)
{
	const char *how = getenv("VERBATIM_COPY");
	return how ? how : "";
}

bool vb_mapped_is_allowed(void)
{
	return strcmp(setting(), "link") && strcmp(setting(), "process_vm");
}

/* VERBATIM_COPY=mapped: at the first use. */
static bool is_eager(void)
{
	static _Atomic(int) eager = -1;
	int e = atomic_load_explicit(&eager, memory_order_relaxed);
	if (vb_unlikely(e < 0)) {
		e = !strcmp(setting(), "mapped");
		atomic_store_explicit(&eager, e, memory_order_relaxed);
	}
	return e;
}

void vb_mapped_open(struct vb_peer *p)
{
	p->mapped = calloc(1, sizeof(*p->mapped));
}

/* ---- asking ---- */

static void ask(struct vb_peer *p, uint32_t key)
{
	struct vb_link_segment m = { .magic = VB_LINK_MAGIC, .what = ASK, .key = key };
	atomic_fetch_add(&p->mapped->asked, 1);
	(void)vb_link_send(p->fd, &m, sizeof(m), NULL, 0);
}

static struct vb_use *use_of(struct vb_mapped *m, uint32_t key, uint64_t length)
{
	struct vb_use *u = &m->use[(key >> 8) % VB_USES];
	if (atomic_load_explicit(&u->key, memory_order_relaxed) == key)
		return u;
	atomic_store_explicit(&u->spent_ns, 0, memory_order_relaxed);
	atomic_store_explicit(&u->limit_ns, is_eager() ? 0 : VB_MOVE_NS + length / VB_MOVED_BYTES_PER_NS,
			      memory_order_relaxed);
	atomic_store_explicit(&u->asked, 0, memory_order_relaxed);
	atomic_store_explicit(&u->key, key, memory_order_relaxed);
	return u;
}

void vb_mapped_miss(struct vb_peer *p, uint32_t key, uint64_t bytes)
{
	const struct vb_key *k = &vb_key_table(p->arena)[(key >> 8) % VB_KEY_COUNT];
	uint64_t serial = atomic_load_explicit(&k->segment, memory_order_relaxed);
	if (!p->mapped || serial == VB_KEY_NO_SEGMENT)
		return;
	struct vb_use *u = use_of(p->mapped, key, atomic_load_explicit(&k->length, memory_order_relaxed));
	if (serial && atomic_exchange_explicit(&u->asked, serial, memory_order_relaxed) != serial)
		ask(p, key);
	if (serial)
		return;
	uint64_t spent = atomic_load_explicit(&u->spent_ns, memory_order_relaxed) + VB_COPY_CALL_NS +
			 bytes / VB_COPY_BYTES_PER_NS;
	atomic_store_explicit(&u->spent_ns, spent, memory_order_relaxed);
	if (vb_likely(spent < atomic_load_explicit(&u->limit_ns, memory_order_relaxed)))
		return;
	atomic_store_explicit(&u->limit_ns, spent * ASK_BACKOFF, memory_order_relaxed);
	ask(p, key);
}

/* ---- giving ---- */

static void give(struct vb_peer *p, uint32_t key)
{
	struct vb_segment s;
	if (!vb_segment_find(key, &s))
		return;
	struct vb_link_segment m = { .magic = VB_LINK_MAGIC,
				     .what = GIVE,
				     .key = key,
				     .serial = s.serial,
				     .bytes = s.bytes,
				     .writable = s.writable };
	if (!vb_link_send(p->fd, &m, sizeof(m), &s.fd, 1))
		p->mapped->given[s.serial % VB_MAPPINGS] = 1;
}

void vb_mapped_tell_gone(struct vb_peer *p, uint64_t serial)
{
	struct vb_link_segment m = { .magic = VB_LINK_MAGIC, .what = GONE, .serial = serial };
	if (p->mapped->given[serial % VB_MAPPINGS])
		(void)vb_link_send(p->fd, &m, sizeof(m), NULL, 0);
}

/* ---- taking ---- */

static bool was_asked_for(struct vb_mapped *m)
{
	if (!atomic_load(&m->asked))
		return false;
	atomic_fetch_sub(&m->asked, 1);
	return true;
}

static int map(const struct vb_peer *p, const struct vb_link_segment *m, int fd, void **base)
{
	if (p->mapped->bytes + m->bytes > vb_address_limit() / SHARES)
		return -ENOMEM;
	return vb_shm_map_segment(fd, m->bytes, m->writable, base);
}

static int take(struct vb_peer *p, const struct vb_link_segment *m, int fd)
{
	struct vb_mapping *at = &p->mapped->mapping[m->serial % VB_MAPPINGS];
	void *base;
	if (!m->serial || m->serial == VB_KEY_NO_SEGMENT || m->bytes > MAX_SEGMENT_BYTES)
		return -EPROTO;
	if (!was_asked_for(p->mapped) || atomic_load(&at->serial)) /* it is known, or another has its place */
		return 0;
	int err = map(p, m, fd, &base);
	if (err) {
		vb_explain("memory", "%llu bytes of process %d cannot be mapped: %s",
			   (unsigned long long)m->bytes, (int)p->pid, strerror(-err));
		return 0;
	}
	at->base = base;
	at->bytes = m->bytes;
	at->writable = m->writable;
	p->mapped->bytes += m->bytes;
	atomic_store(&at->serial, m->serial);
	return 0;
}

/* The number of a mapping that is hidden: of one elsewhere, so that no key leads to it. */
static uint64_t hidden(uint64_t serial) { return serial + 1; }

/*
 * Hides the mapping, waits for threads that may be using it, unmaps. One that is in use for long stays till
 * the link ends, and is not used again.
 */
static void drop(struct vb_peer *p, uint64_t serial)
{
	struct vb_mapping *at = &p->mapped->mapping[serial % VB_MAPPINGS];
	if (!serial || atomic_load(&at->serial) != serial)
		return;
	atomic_store(&at->serial, hidden(serial));
	if (!vb_memory_quiesce_until(vb_now_ns() + UNMAP_NS))
		return;
	vb_shm_unmap(at->base, at->bytes);
	p->mapped->bytes -= at->bytes;
	atomic_store(&at->serial, 0);
}

void vb_mapped_close(struct vb_peer *p)
{
	for (unsigned i = 0; p->mapped && i < VB_MAPPINGS; i++)
		if (atomic_load(&p->mapped->mapping[i].serial))
			vb_shm_unmap(p->mapped->mapping[i].base, p->mapped->mapping[i].bytes);
	free(p->mapped);
}

int vb_mapped_take_message(struct vb_peer *p, const struct vb_link_segment *m, const int *fds, int nfds)
{
	struct vb_segment known;
	if (m->magic != VB_LINK_MAGIC || nfds != (m->what == GIVE))
		return -EPROTO;
	if (!p->mapped) /* not wanted here */
		return 0;
	switch (m->what) {
	case ASK:
		if (vb_segment_find(m->key, &known))
			give(p, m->key);
		else
			vb_segment_want(m->key);
		return 0;
	case GIVE:
		return take(p, m, fds[0]);
	case GONE:
		drop(p, m->serial);
		return 0;
	default:
		return -EPROTO;
	}
}

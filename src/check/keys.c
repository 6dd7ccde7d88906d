/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What each key of this process stands for, and what the last few thousand deregistered keys stood for:
 * where they were registered and deregistered. So a refusal can name these places.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/progress/progress.h"
#include "adapter/progress/qpn.h"
#include "adapter/queues/queue.h"
#include "adapter/memory/window.h"
#include "check/check.h"

enum { BUCKETS = 4096, REMEMBERED = 4096, PLACE_BYTES = 160, STORY_BYTES = 768, RIGHTS_BYTES = 128 };

struct record {
	struct record *next;      /* in its bucket */
	struct vb_list gone;    /* in the list of deregistered ones, oldest first */
	uint32_t key, pd;
	unsigned access;
	uint64_t iova, length;
	bool is_gone;
	struct vb_trace made, ended;
};

static struct {
	pthread_mutex_t lock;
	struct record *buckets[BUCKETS];
	struct vb_list gone;
	unsigned count; /* in it */
} records = { .lock = PTHREAD_MUTEX_INITIALIZER, .gone = VB_LIST_INIT(records.gone) };

/* A forked child has none of its parent's keys. */
static void forget(void)
{
	pthread_mutex_init(&records.lock, NULL);
	memset(records.buckets, 0, sizeof(records.buckets));
	vb_list_init(&records.gone);
	records.count = 0;
}

__attribute__((constructor)) static void watch_forks(void)
{
	vb_host_at_fork(forget);
}

/* ---- the table ---- */

static struct record **bucket_of(uint32_t key) { return &records.buckets[(key ^ key >> 12) % BUCKETS]; }

/* The newest of this key. */
static struct record *find_locked(uint32_t key)
{
	struct record *p = *bucket_of(key);
	while (p && p->key != key)
		p = p->next;
	return p;
}

static void forget_oldest_locked(void)
{
	struct record *oldest = vb_container_of(vb_list_pop(&records.gone), struct record, gone);
	struct record **at = bucket_of(oldest->key);
	while (*at != oldest)
		at = &(*at)->next;
	*at = oldest->next;
	records.count--;
	free(oldest);
}

void vb_check_key_made(const struct vb_mr *mr)
{
	struct record *p = calloc(1, sizeof(*p));
	if (!p)
		return;
	*p = (struct record){ .key = mr->key,
			    .pd = mr->pd->number,
			    .access = mr->access,
			    .iova = mr->iova,
			    .length = mr->length };
	vb_list_init(&p->gone);
	vb_trace_take(&p->made);
	pthread_mutex_lock(&records.lock);
	p->next = *bucket_of(p->key);
	*bucket_of(p->key) = p;
	pthread_mutex_unlock(&records.lock);
}

void vb_check_key_gone(uint32_t key)
{
	struct vb_trace here;
	vb_trace_take(&here);
	pthread_mutex_lock(&records.lock);
	struct record *p = find_locked(key);
	if (p && !p->is_gone) {
		p->is_gone = true;
		p->ended = here;
		vb_list_add_tail(&records.gone, &p->gone);
		if (++records.count > REMEMBERED)
			forget_oldest_locked();
	}
	pthread_mutex_unlock(&records.lock);
}

/* A copy; false: nothing is known of the key. */
static bool recall(uint32_t key, struct record *out)
{
	pthread_mutex_lock(&records.lock);
	const struct record *p = find_locked(key);
	if (p)
		*out = *p;
	pthread_mutex_unlock(&records.lock);
	return p != NULL;
}

/* ---- why a key is refused ---- */

static void rights_text(unsigned access, char *text, size_t size)
{
	static const struct {
		unsigned bit;
		const char *name;
	} rights[] = {
		{ IBV_ACCESS_LOCAL_WRITE, "LOCAL_WRITE" },
		{ IBV_ACCESS_REMOTE_WRITE, "REMOTE_WRITE" },
		{ IBV_ACCESS_REMOTE_READ, "REMOTE_READ" },
		{ IBV_ACCESS_REMOTE_ATOMIC, "REMOTE_ATOMIC" },
		{ IBV_ACCESS_MW_BIND, "MW_BIND" },
		{ IBV_ACCESS_FLUSH_GLOBAL, "FLUSH_GLOBAL" },
		{ IBV_ACCESS_FLUSH_PERSISTENT, "FLUSH_PERSISTENT" },
	};
	size_t used = 0;
	*text = 0;
	for (size_t i = 0; i < VB_ARRAY_LEN(rights); i++) {
		if (!(access & rights[i].bit))
			continue;
		int n = snprintf(text + used, size - used, "%s%s", used ? " | " : "IBV_ACCESS_",
				 rights[i].name);
		used = vb_min_u64(used + (n > 0 ? (size_t)n : 0), size - 1);
	}
	if (!used)
		snprintf(text, size, "no rights");
}

static void describe_unknown(uint32_t key, char *story, size_t size)
{
	char made[PLACE_BYTES], ended[PLACE_BYTES];
	struct record p;
	if (vb_window_has_entry(key)) {
		snprintf(
			story, size,
			"key 0x%x is a memory window's, and the window is not bound with it: it was invalidated, bound "
			"anew, or never bound",
			key);
		return;
	}
	if (!key || !recall(key, &p)) {
		snprintf(story, size, "key 0x%x is no key of a region or window of this process%s", key,
			 key ? ", nor was it a region's lately" : "");
		return;
	}
	vb_check_place_text(&p.made, made, sizeof(made));
	vb_check_place_text(&p.ended, ended, sizeof(ended));
	if (p.is_gone)
		snprintf(
			story, size,
			"key 0x%x was that of the %llu bytes at 0x%llx, registered in %s and deregistered in %s",
			key, (unsigned long long)p.length, (unsigned long long)p.iova, made, ended);
	else
		snprintf(story, size, "key 0x%x is being deregistered", key);
}

/* The entry is not a region's. */
static void describe_window(enum vb_key_fault fault, const struct vb_key_use *use, char *story, size_t size)
{
	const struct vb_key *k = vb_key_entry(use->key);
	unsigned has = atomic_load(&k->access);
	char wanted[RIGHTS_BYTES], rights[RIGHTS_BYTES];
	rights_text(use->access & ~has, wanted, sizeof(wanted));
	rights_text(has, rights, sizeof(rights));
	if (fault == VB_KEY_PD)
		snprintf(
			story, size,
			"key 0x%x is a memory window's of protection domain %u, and it is used in protection domain %u",
			use->key, atomic_load(&k->pd), use->pd);
	else if (use->access & VB_KEY_LOCAL)
		snprintf(
			story, size,
			"key 0x%x is a memory window's, which peers can use and work requests of this side cannot",
			use->key);
	else if (fault == VB_KEY_ACCESS)
		snprintf(story, size, "key 0x%x lacks %s: it is a memory window's that was bound with %s",
			 use->key, wanted, rights);
	else
		snprintf(
			story, size,
			"%llu bytes at 0x%llx are not within the %llu bytes at 0x%llx that the memory window of key 0x%x shows",
			(unsigned long long)use->length, (unsigned long long)use->addr,
			(unsigned long long)atomic_load(&k->length),
			(unsigned long long)atomic_load(&k->iova), use->key);
}

static void describe_region(enum vb_key_fault fault, const struct vb_key_use *use, char *story, size_t size)
{
	const struct vb_key *k = vb_key_entry(use->key);
	unsigned has = atomic_load(&k->access);
	char made[PLACE_BYTES] = "another way", wanted[RIGHTS_BYTES], rights[RIGHTS_BYTES];
	struct record p;
	if (recall(use->key, &p))
		vb_check_place_text(&p.made, made, sizeof(made));
	rights_text(use->access & ~has, wanted, sizeof(wanted));
	rights_text(has, rights, sizeof(rights));
	if (fault == VB_KEY_PD)
		snprintf(
			story, size,
			"key 0x%x is of protection domain %u (registered in %s), and it is used in protection domain %u",
			use->key, atomic_load(&k->pd), made, use->pd);
	else if (fault == VB_KEY_ACCESS)
		snprintf(story, size, "key 0x%x lacks %s: it was registered with %s in %s", use->key, wanted,
			 rights, made);
	else
		snprintf(
			story, size,
			"%llu bytes at 0x%llx are not within the %llu bytes at 0x%llx that key 0x%x was registered for in %s",
			(unsigned long long)use->length, (unsigned long long)use->addr,
			(unsigned long long)atomic_load(&k->length),
			(unsigned long long)atomic_load(&k->iova), use->key, made);
}

static void describe_unmapped(uint32_t key, char *story, size_t size)
{
	const struct vb_key *k = vb_key_entry(key);
	char made[PLACE_BYTES] = "another way";
	struct record p;
	if (recall(key, &p))
		vb_check_place_text(&p.made, made, sizeof(made));
	snprintf(
		story, size,
		"memory of key 0x%x (%llu bytes at 0x%llx, registered in %s) is not there any more: it was unmapped, or its file cut "
		"short, and ibv_dereg_mr did not come before",
		key, (unsigned long long)atomic_load(&k->length), (unsigned long long)atomic_load(&k->va),
		made);
}

const char *vb_check_key_story(enum vb_key_fault fault, const struct vb_key_use *use)
{
	static __thread char story[STORY_BYTES];
	switch (fault) {
	case VB_KEY_UNKNOWN:
		describe_unknown(use->key, story, sizeof(story));
		return story;
	case VB_KEY_PD:
	case VB_KEY_ACCESS:
	case VB_KEY_BOUNDS:
		if (atomic_load(&vb_key_entry(use->key)->access) & VB_KEY_LOCAL)
			describe_region(fault, use, story, sizeof(story));
		else
			describe_window(fault, use, story, sizeof(story));
		return story;
	case VB_KEY_UNMAPPED:
		describe_unmapped(use->key, story, sizeof(story));
		return story;
	case VB_KEY_OK:
	case VB_KEY_QP:
		break;
	}
	return vb_key_fault_text(fault);
}

const char *vb_check_rights_story(const struct vb_qp *qp, unsigned access)
{
	static __thread char story[STORY_BYTES];
	char has[RIGHTS_BYTES], wanted[RIGHTS_BYTES];
	rights_text(vb_qp_attr(qp, qp_access_flags), has, sizeof(has));
	rights_text(access, wanted, sizeof(wanted));
	snprintf(story, sizeof(story),
		 "the target queue pair's qp_access_flags (%s) do not allow it: %s is needed", has, wanted);
	return story;
}

/* ---- the program's own lists ---- */

bool vb_check_list(struct vb_sg_list list, unsigned access, const char *what)
{
	uint64_t va;
	for (unsigned i = 0; i < list.n; i++) {
		const struct ibv_sge *s = &list.sge[i];
		struct vb_key_use use = vb_key_use_of_sge(s, access, list.pd);
		if (!s->length)
			continue;
		enum vb_key_fault fault = vb_key_check(vb_key_table(vb_arena), &use, &va);
		if (fault == VB_KEY_OK)
			continue;
		vb_check_report_here(
			VB_CHECK_LKEY, NULL, "%s, scatter/gather entry %u (0x%llx, %u bytes): %s", what, i,
			(unsigned long long)s->addr, s->length, vb_check_key_story(fault, &use));
		return false;
	}
	return true;
}

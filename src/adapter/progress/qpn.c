/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * QP numbers: this process's slots and which QP has which index in them. Numbers are handed out round-robin
 * over all slots, so that a number rests as long as possible before it names another QP; a further slot is
 * taken when three quarters are in use.
 *
 * A slot's indexes have a random order: nobody can guess a number from others. Groups are shuffled, and
 * indexes within each group, so that control blocks of QPs that were made one after another share pages.
 */
#include "adapter/progress/qpn.h"

#include <errno.h>
#include <stdlib.h>

#include "adapter/memory/arena.h"
#include "adapter/progress/prefetch.h"
#include "adapter/progress/progress.h"

enum {
	STRETCH = 512, /* numbers looked at under the lock */
	GROUP = 64,    /* indexes */
	GROUPS = VB_SLOT_QPS / GROUP,
};
_Static_assert(GROUPS <= GROUP, "as many random numbers do for either");

struct slot {
	uint32_t number;
	uint16_t order[VB_SLOT_QPS];   /* indexes as they are handed out, */
	uint16_t place_of[VB_SLOT_QPS]; /* and where each is in there */
	struct vb_qp *qps[VB_SLOT_QPS];
	struct vb_prefetch_hint hints[VB_SLOT_QPS]; /* take memory once they are used */
};

/* Under vb_progress_lock, but for adding slots, which take_lock guards. */
static struct slot *slots[VB_ARENA_SLOTS];
/* of each slot that is, or was before a fork, this process's */
static struct vb_prefetch_hint *_Atomic hints[VB_SLOT_COUNT];
static unsigned nslots, used;
static uint32_t next;
static pthread_mutex_t take_lock = PTHREAD_MUTEX_INITIALIZER;

/* Fisher's and Yates's. A byte for each place is enough: the likeliest is 5/4 as likely as the others. */
static void shuffle(uint16_t *list, unsigned count, const uint8_t *random)
{
	for (unsigned left = count; left > 1; left--) {
		unsigned at = random[left - 1] % left;
		uint16_t last = list[left - 1];
		list[left - 1] = list[at];
		list[at] = last;
	}
}

static void draw_order(struct slot *s)
{
	uint16_t groups[GROUPS];
	uint8_t random[GROUPS + 1][GROUP];
	for (unsigned g = 0; g < GROUPS; g++)
		groups[g] = (uint16_t)g;
	vb_random(random, sizeof(random));
	shuffle(groups, GROUPS, random[GROUPS]);
	for (unsigned g = 0; g < GROUPS; g++) {
		uint16_t *group = &s->order[g * GROUP];
		for (unsigned i = 0; i < GROUP; i++)
			group[i] = (uint16_t)(groups[g] * GROUP + i);
		shuffle(group, GROUP, random[g]);
	}
	for (unsigned i = 0; i < VB_SLOT_QPS; i++)
		s->place_of[s->order[i]] = (uint16_t)i;
}

static int add_slot(void)
{
	if (nslots == VB_ARENA_SLOTS)
		return -ENOMEM;
	struct slot *s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	int err = 0;
	draw_order(s);
	s->number = vb_slot_first();
	if (nslots)
		err = vb_slot_take(&s->number);
	if (err) {
		free(s);
		return err;
	}
	atomic_store(&vb_arena->slots[nslots], s->number);
	atomic_store_explicit(&hints[s->number], s->hints, memory_order_release);
	vb_lock(&vb_progress_lock);
	slots[nslots++] = s;
	vb_unlock(&vb_progress_lock);
	return 0;
}

/*
 * In a forked child: the parent's QPs are not its own. The tables stay allocated: the parent's objects may
 * still be looked at.
 */
static void forget(void)
{
	pthread_mutex_init(&take_lock, NULL);
	nslots = used = next = 0;
}

__attribute__((constructor)) static void watch_forks(void)
{
	vb_host_at_fork(forget);
}

static bool place_locked(struct vb_qp *qp)
{
	uint32_t total = nslots * VB_SLOT_QPS;
	for (uint32_t tried = 0; tried < total; tried++) {
		uint32_t at = next++ % total;
		struct slot *s = slots[at / VB_SLOT_QPS];
		uint32_t index = s->order[at % VB_SLOT_QPS];
		if (s->qps[index])
			continue;
		s->qps[index] = qp;
		qp->qpn = s->number << VB_SLOT_SHIFT | index;
		used++;
		return true;
	}
	return false;
}

static bool are_scarce(void)
{
	vb_lock(&vb_progress_lock);
	bool scarce = used >= nslots * VB_SLOT_QPS / 4 * 3;
	vb_unlock(&vb_progress_lock);
	return scarce;
}

int vb_qpn_take(struct vb_qp *qp)
{
	vb_link_show_user(); /* before a peer can know the number and ask who owns it */
	pthread_mutex_lock(&take_lock);
	int err = are_scarce() ? add_slot() : 0;
	vb_lock(&vb_progress_lock);
	bool placed = place_locked(qp);
	vb_unlock(&vb_progress_lock);
	pthread_mutex_unlock(&take_lock);
	return placed ? 0 : err ? err : -ENOMEM;
}

/* The slot that a number belongs to, as an index into slots; nslots if it is not ours. */
static unsigned slot_of(uint32_t qpn)
{
	unsigned i = 0;
	while (i < nslots && slots[i]->number != qpn >> VB_SLOT_SHIFT)
		i++;
	return i;
}

void vb_qpn_drop(struct vb_qp *qp)
{
	vb_lock(&vb_progress_lock);
	unsigned i = slot_of(qp->qpn);
	if (i < nslots) {
		slots[i]->qps[qp->qpn % VB_SLOT_QPS] = NULL;
		used--;
	}
	vb_unlock(&vb_progress_lock);
}

struct vb_qp *vb_qpn_find(uint32_t qpn)
{
	unsigned i = slot_of(qpn);
	return i < nslots ? slots[i]->qps[qpn % VB_SLOT_QPS] : NULL;
}

struct vb_prefetch_hint *vb_prefetch_hint_of(uint32_t qpn)
{
	struct vb_prefetch_hint *first =
		atomic_load_explicit(&hints[qpn >> VB_SLOT_SHIFT], memory_order_acquire);
	return first ? &first[qpn % VB_SLOT_QPS] : NULL;
}

uint32_t vb_qpn_place(uint32_t qpn)
{
	struct vb_prefetch_hint *first =
		atomic_load_explicit(&hints[qpn >> VB_SLOT_SHIFT], memory_order_acquire);
	return first ? vb_container_of(first, struct slot, hints[0])->place_of[qpn % VB_SLOT_QPS] :
		       qpn % VB_SLOT_QPS;
}

bool vb_qpn_next(uint64_t *cursor, struct vb_qp **qp)
{
	*qp = NULL;
	vb_lock(&vb_progress_lock);
	uint64_t end = (uint64_t)nslots * VB_SLOT_QPS, stop = vb_min_u64(end, *cursor + STRETCH);
	for (; *cursor < stop && !*qp; ++*cursor)
		*qp = slots[*cursor / VB_SLOT_QPS]->qps[*cursor % VB_SLOT_QPS];
	if (*qp)
		vb_qp_ref(*qp);
	vb_unlock(&vb_progress_lock);
	return *qp || *cursor < end;
}

struct vb_qp *vb_qpn_get(uint32_t qpn)
{
	vb_lock(&vb_progress_lock);
	struct vb_qp *qp = vb_qpn_find(qpn);
	if (qp && qp->ctx->generation != vb_host_generation())
		qp = NULL;
	if (qp)
		vb_qp_ref(qp);
	vb_unlock(&vb_progress_lock);
	return qp;
}

uint64_t vb_qpn_block(uint32_t qpn)
{
	return VB_ARENA_QPS + ((uint64_t)slot_of(qpn) * VB_SLOT_QPS + qpn % VB_SLOT_QPS) * VB_QP_BLOCK;
}

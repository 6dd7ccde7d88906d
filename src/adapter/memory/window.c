/* SPDX-License-Identifier: BSD-2-Clause */
#include "adapter/memory/window.h"

#include <errno.h>
#include <pthread.h>

#include "adapter/memory/hold.h"

enum {
	GRANTS = VB_REMOTE_WRITES | IBV_ACCESS_REMOTE_READ,
	/* the last says nothing of a window */
	BIND_FLAGS = GRANTS | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE,
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint bound_by_qp; /* type 2 windows that are bound now: none, mostly */

static void forget_lock(void)
{
	pthread_mutex_init(&lock, NULL);
	atomic_store(&bound_by_qp, 0);
}

__attribute__((constructor)) static void watch_forks(void)
{
	vb_host_at_fork(forget_lock);
}

static struct vb_key *entry(uint32_t key)
{
	return (struct vb_key *)vb_arena_at(VB_ARENA_KEYS) + ((key >> 8) & (VB_KEY_COUNT - 1));
}

static bool is_live(uint32_t key)
{
	return key && atomic_load_explicit(&entry(key)->key, memory_order_relaxed) == key;
}

/* From its return on no check finds the window; accesses may be under way. */
static void unbind_locked(struct vb_key *k)
{
	if (!k->region)
		return;
	vb_key_revoke((uint32_t)(k - entry(0)) << 8);
	entry(k->region)->windows--;
	k->region = 0;
	if (k->window == IBV_MW_TYPE_2)
		atomic_fetch_sub(&bound_by_qp, 1);
}

/* ---- making and ending ---- */

void vb_window_begin(uint32_t key, enum ibv_mw_type type, uint32_t pd)
{
	pthread_mutex_lock(&lock);
	entry(key)->window = type;
	entry(key)->region = 0;
	atomic_store(&entry(key)->pd, pd);
	pthread_mutex_unlock(&lock);
}

void vb_window_end(uint32_t key)
{
	struct vb_key *k = entry(key);
	pthread_mutex_lock(&lock);
	uint32_t last = atomic_load(&k->key);
	unbind_locked(k);
	k->window = 0;
	pthread_mutex_unlock(&lock);
	vb_memory_quiesce();
	vb_key_release(last ? last : key);
}

/* ---- binding ---- */

/* Why a window cannot be bound so; NULL: it can. */
static const char *why_not_window(const struct vb_key *k, const struct vb_sqe *sqe, uint32_t pd)
{
	if (!k->window || atomic_load(&k->pd) != pd)
		return "the window does not exist (any more), or is of another protection domain than the queue pair";
	if (k->window == IBV_MW_TYPE_2 && k->region)
		return "a type 2 window is bound already: invalidate it first";
	if (k->window == IBV_MW_TYPE_2 && !sqe->bind.bytes)
		return "a type 2 window cannot be bound to nothing";
	return NULL;
}

static const char *why_not_region(const struct vb_key *r, const struct vb_sqe *sqe, uint32_t pd, uint64_t *va)
{
	unsigned access = atomic_load(&r->access);
	if (r->window || !is_live(sqe->bind.region))
		return "the region does not exist (any more)";
	if (!(access & IBV_ACCESS_MW_BIND))
		return "the region was not registered with IBV_ACCESS_MW_BIND";
	if (access & IBV_ACCESS_ZERO_BASED)
		return "a window cannot show a part of a zero-based region";
	if ((sqe->imm & VB_REMOTE_WRITES) && !(access & IBV_ACCESS_LOCAL_WRITE))
		return "remote writes and atomics through the window need a region with IBV_ACCESS_LOCAL_WRITE";
	struct vb_key_use use = { .key = sqe->bind.region, .pd = pd, .access = VB_KEY_LOCAL,
				  .addr = sqe->remote_addr, .length = sqe->bind.bytes };
	enum vb_key_fault fault = vb_key_check(vb_key_table(vb_arena), &use, va);
	return fault == VB_KEY_OK ? NULL : vb_key_fault_text(fault);
}

static void bind_locked(struct vb_key *k, const struct vb_qp *qp, const struct vb_sqe *sqe, uint64_t va)
{
	struct vb_key *region = entry(sqe->bind.region);
	unsigned from_region = atomic_load(&region->access) & IBV_ACCESS_ON_DEMAND;
	region->windows++;
	k->region = sqe->bind.region;
	if (k->window == IBV_MW_TYPE_2)
		atomic_fetch_add(&bound_by_qp, 1);
	vb_key_publish(sqe->rkey, &(struct vb_key_meaning){
		.va = va,
		.iova = sqe->imm & IBV_ACCESS_ZERO_BASED ? 0 : sqe->remote_addr,
		.length = sqe->bind.bytes,
		.access = (sqe->imm & GRANTS) | from_region,
		.pd = qp->pd->number,
		.qpn = k->window == IBV_MW_TYPE_2 ? qp->qpn : 0,
	});
}

static const char *why_not(const struct vb_key *k, const struct vb_sqe *sqe, uint32_t pd, uint64_t *va)
{
	const char *why = why_not_window(k, sqe, pd);
	return why || !sqe->bind.bytes ? why : why_not_region(entry(sqe->bind.region), sqe, pd, va);
}

/*
 * A window that is bound again shows something else only after the last access through its old key. Nobody
 * waits for accesses with the lock: the peer's next request may be one to invalidate a window, which takes
 * it. So everything is looked at anew.
 */
static const char *bind_window(const struct vb_qp *qp, const struct vb_sqe *sqe)
{
	struct vb_key *k = entry(sqe->rkey);
	const char *why;
	uint64_t va = 0;
	if (sqe->imm & ~(unsigned)BIND_FLAGS)
		return "mw_access_flags are remote rights and IBV_ACCESS_ZERO_BASED only";
	pthread_mutex_lock(&lock);
	while (!(why = why_not(k, sqe, qp->pd->number, &va)) && k->region) {
		unbind_locked(k);
		pthread_mutex_unlock(&lock);
		vb_memory_quiesce();
		pthread_mutex_lock(&lock);
	}
	if (!why && sqe->bind.bytes)
		bind_locked(k, qp, sqe, va);
	pthread_mutex_unlock(&lock);
	return why;
}

/* ---- invalidation ---- */

static enum vb_key_fault invalidate(uint32_t key, uint32_t pd, uint32_t qpn)
{
	struct vb_key *k = entry(key);
	enum vb_key_fault fault = VB_KEY_OK;
	pthread_mutex_lock(&lock);
	if (!is_live(key))
		fault = VB_KEY_UNKNOWN;
	else if (k->window != IBV_MW_TYPE_2)
		fault = VB_KEY_ACCESS;
	else if (atomic_load(&k->pd) != pd)
		fault = VB_KEY_PD;
	else if (atomic_load(&k->qpn) != qpn)
		fault = VB_KEY_QP;
	else
		unbind_locked(k);
	pthread_mutex_unlock(&lock);
	return fault;
}

enum vb_key_fault vb_window_invalidate_remotely(uint32_t key, uint32_t pd, uint32_t qpn)
{
	return invalidate(key, pd, qpn);
}

static const char *invalidate_locally(const struct vb_qp *qp, uint32_t key)
{
	enum vb_key_fault fault = invalidate(key, qp->pd->number, qp->qpn);
	if (fault == VB_KEY_ACCESS)
		return "only a type 2 window can be invalidated, not a region or a type 1 window";
	if (fault != VB_KEY_OK)
		return vb_key_fault_text(fault);
	vb_memory_quiesce();
	return NULL;
}

enum ibv_wc_status vb_window_execute(const struct vb_qp *qp, const struct vb_sqe *sqe, const char **why)
{
	*why = sqe->opcode == IBV_WR_BIND_MW ? bind_window(qp, sqe) : invalidate_locally(qp, sqe->imm);
	return *why ? IBV_WC_MW_BIND_ERR : IBV_WC_SUCCESS;
}

/* ---- ends ---- */

void vb_windows_forget(uint32_t qpn)
{
	if (!atomic_load(&bound_by_qp))
		return;
	pthread_mutex_lock(&lock);
	for (uint32_t i = 1, end = vb_key_end(); i < end && atomic_load(&bound_by_qp); i++) {
		struct vb_key *k = vb_key_nth(i);
		if (k->window == IBV_MW_TYPE_2 && k->region && atomic_load(&k->qpn) == qpn)
			unbind_locked(k);
	}
	pthread_mutex_unlock(&lock);
}

bool vb_region_end(uint32_t key)
{
	pthread_mutex_lock(&lock);
	bool free = !entry(key)->windows;
	if (free)
		vb_key_revoke(key);
	pthread_mutex_unlock(&lock);
	return free;
}

bool vb_window_has_entry(uint32_t key)
{
	pthread_mutex_lock(&lock);
	bool is_window = entry(key)->window;
	pthread_mutex_unlock(&lock);
	return is_window;
}

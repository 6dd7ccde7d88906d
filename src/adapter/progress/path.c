/* SPDX-License-Identifier: BSD-2-Clause */
#include "adapter/progress/path.h"

#include "base/ticks.h"
#include "base/tuned.h"

enum { MAX_PATHS = 8 };

/* Filled by constructors, before any other thread. */
static struct vb_path_ops *paths[MAX_PATHS];
static unsigned count;
static bool (*take)(void);
atomic_bool vb_path_takes;

void vb_path_register(struct vb_path_ops *path)
{
	unsigned at = count;
	if (count == MAX_PATHS)
		return;
	for (; at && paths[at - 1]->rank > path->rank; at--)
		paths[at] = paths[at - 1];
	paths[at] = path;
	count++;
	if (path->take)
		take = path->take;
}

void vb_path_change_all(void (*change)(struct vb_path_ops *path))
{
	for (unsigned i = 0; i < count; i++)
		change(paths[i]);
}

const struct vb_path_ops *vb_path_choose(struct vb_qp *qp)
{
	for (unsigned i = 0; i < count; i++)
		if (paths[i]->claims(qp))
			return paths[i];
	return NULL;
}

void vb_path_unclaim(struct vb_qp *qp)
{
	for (unsigned i = 0; i < count; i++)
		if (paths[i]->unclaim)
			paths[i]->unclaim(qp);
}

static const struct vb_path_io *shared_io;

void vb_path_set_io(const struct vb_path_io *io) { shared_io = io; }

atomic_bool vb_path_shm_news;
static _Atomic(uint64_t) news_ticks; /* when there was news from shared memory; 0: never yet */
static _Atomic(uint64_t) network_ticks; /* when a thread that polls last looked at the network since then */

static void take_news(void)
{
	if (!atomic_load_explicit(&vb_path_shm_news, memory_order_relaxed))
		return;
	atomic_store_explicit(&vb_path_shm_news, false, memory_order_relaxed);
	atomic_store_explicit(&news_ticks, vb_ticks(), memory_order_relaxed);
}

static bool has_just_looked(void)
{
	take_news();
	uint64_t news = atomic_load_explicit(&news_ticks, memory_order_relaxed), now = news ? vb_ticks() : 0;
	if (!news || now - news > VB_NEWS_US * vb_ticks_us() || vb_loop_is_current())
		return false;
	if (now - atomic_load_explicit(&network_ticks, memory_order_relaxed) < VB_NETWORK_US * vb_ticks_us())
		return true;
	atomic_store_explicit(&network_ticks, now, memory_order_relaxed);
	return false;
}

static bool pump_network(void) { return !has_just_looked() && shared_io && shared_io->pump(); }

atomic_uint vb_path_shm_polls; /* lost counts are harmless */

static bool take_shm(void)
{
	if (!atomic_load_explicit(&vb_path_takes, memory_order_relaxed) || !take())
		return false;
	vb_path_note_shm();
	atomic_store_explicit(&vb_path_shm_polls, VB_SHM_POLLS, memory_order_relaxed);
	return true;
}

bool vb_path_pump(void)
{
	bool from_shm = take_shm();
	return pump_network() || from_shm;
}

bool vb_path_take_expected(void)
{
	unsigned polls = atomic_load_explicit(&vb_path_shm_polls, memory_order_relaxed);
	if (polls) /* another thread may have counted the last one */
		atomic_store_explicit(&vb_path_shm_polls, polls - 1, memory_order_relaxed);
	return take_shm();
}

bool vb_path_set_wakeup(bool wake) { return !shared_io || shared_io->set_wakeup(wake); }

bool vb_path_is_busy(void) { return shared_io && shared_io->is_busy(); }
bool vb_path_has_arrivals(void) { return shared_io && shared_io->has_arrivals(); }

bool vb_path_poll_all(void)
{
	bool found = false;
	for (unsigned i = 0; i < count; i++)
		found |= paths[i]->poll && paths[i]->poll();
	if (found)
		vb_path_note_shm();
	return found;
}

void vb_path_sleep(void)
{
	for (unsigned i = 0; i < count; i++)
		if (paths[i]->sleep)
			paths[i]->sleep();
}

void vb_path_ring_delayed(void)
{
	for (unsigned i = 0; i < count; i++)
		if (paths[i]->ring_delayed)
			paths[i]->ring_delayed();
}

bool vb_path_is_pending(void)
{
	for (unsigned i = 0; i < count; i++)
		if (paths[i]->is_pending && paths[i]->is_pending())
			return true;
	return false;
}

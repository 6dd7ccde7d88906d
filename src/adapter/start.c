/* SPDX-License-Identifier: BSD-2-Clause */
#include "adapter/start.h"

#include <pthread.h>

#include "adapter/inspection/inspect.h"
#include "adapter/memory/arena.h"
#include "adapter/progress/progress.h"
#include "host/memory/fence.h"
#include "host/memory/touch.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool started;

static int start_locked(void)
{
	int err = vb_host_open();
	if (!err)
		err = vb_arena_start();
	if (err)
		return err;
	atomic_store(&vb_arena->slots[0], vb_slot_first());
	atomic_store(&vb_arena->fences, vb_fence_prepare());
	vb_progress_start();
	vb_copy_allow_peers();
	vb_touch_prepare();
	vb_arena_look_for_room();
	started = true;
	return 0;
}

int vb_adapter_open(void)
{
	pthread_mutex_lock(&lock);
	int err = started ? 0 : start_locked();
	pthread_mutex_unlock(&lock);
	return err;
}

int vb_adapter_start(void)
{
	int err = vb_adapter_open();
	if (!err)
		err = vb_host_run();
	if (!err)
		vb_inspect_start();
	return err;
}

static void forget(void)
{
	started = false;
	pthread_mutex_init(&lock, NULL);
}

__attribute__((constructor)) static void watch_forks(void)
{
	vb_host_at_fork(forget);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* The first use of the network, in a process and in a forked child. */
#include <stdlib.h>

#include "adapter/start.h"
#include "host/inspect.h"
#include "rdmacm/agent/agent.h"
#include "rdmacm/id/id.h"

/* A child has none of the parent's connections, devices and timers. After what the host forgets. */
static void forget(void)
{
	vb_cma_lock_init();
	vb_cma_agent_forget();
	vb_cma_device_forget();
	vb_cma_neighbour_forget_all();
	vb_cma_interfaces_forget();
	vb_cma_id_forget();
}

/* Before any thread can hold the lock. */
__attribute__((constructor)) static void watch_forks(void)
{
	static const struct vb_fork_steps steps = { .lock = vb_cma_lock, .parent = vb_cma_unlock };

	vb_host_around_fork(VB_FORK_CM, &steps);
	vb_host_at_fork(forget);
}

static int start_locked(void)
{
	int err = vb_host_get();

	if (err)
		return err;
	err = vb_cma_agent_open_locked(vb_cma_packet_arrived);
	if (err)
		vb_host_put();
	else
		vb_cma_interfaces_watch_locked();
	return err;
}

/*
 * A program that only listens is captured from its first message on, before it opens a device. Its capture
 * begins in the progress thread, which may wait for the lock: so the lock is not held.
 */
static int start_capture(void) { return getenv(VB_CAPTURE_VARIABLE) ? vb_adapter_start() : 0; }

int vb_cma_start(void)
{
	int err = start_capture();

	if (err)
		return err;
	vb_cma_lock();
	if (!vb_cma_table_locked())
		err = start_locked();
	vb_cma_unlock();
	return err;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Start of the host's parts, and what a fork does to them.
 *
 * Start: epoll, then a slot (its sockets are watched), then the listener for inspection, then the rtnetlink
 * socket, then the progress thread. What was started stays for the life of the process. The host works
 * without its thread too; the next one who asks for the thread makes it try again.
 *
 * fork(): the host's and the loop's lock are held across it, so the child finds every table whole. The child
 * closes the host's descriptors, replaces shared mappings, makes the locks anew (their holders do not exist
 * there), forgets all other state and counts a generation. All of this is a few dozen system calls at most,
 * for the sake of children that only exec.
 */
#include "host/private.h"

#include <errno.h>
#include <pthread.h>

#include "host/ipc/capture.h"
#include "host/memory/lines.h"

enum { MAX_CHILD_HANDLERS = 64 };

static bool started;
static uint64_t references;
static void (*child_handlers[MAX_CHILD_HANDLERS])(void);
static _Atomic(const struct vb_fork_steps *) around_fork[VB_FORK_RANKS];
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static const struct vb_fork_steps *steps_of(unsigned rank)
{
	static const struct vb_fork_steps none;
	const struct vb_fork_steps *steps = atomic_load(&around_fork[rank]);
	return steps ? steps : &none;
}

static void call(void (*step)(void))
{
	if (step)
		step();
}

static void in_child(void)
{
	for (unsigned i = VB_FORK_RANKS; i--;)
		call(steps_of(i)->child);
	vb_host_unlock(); /* this thread took it before the fork */
	started = false;
	references = 0;
	vb_host_count_generation();
	vb_fd_forget();
	vb_shm_forget();
	vb_lines_forget();
	vb_loop_forget();
	vb_slot_forget();
	vb_slot_take_forget();
	vb_listener_forget();
	vb_capture_forget();
	vb_netif_forget();
	vb_setting_forget();
	vb_udp_forget();
	for (size_t i = 0; i < MAX_CHILD_HANDLERS && child_handlers[i]; i++)
		child_handlers[i]();
}

/* Other layers' steps come where the host's own locks allow them to call the host. */
static void before_fork(void)
{
	for (unsigned i = 0; i < VB_FORK_RANKS; i++)
		call(steps_of(i)->before);
	for (unsigned i = 0; i < VB_FORK_RANKS; i++)
		call(steps_of(i)->lock);
	vb_host_lock();
	vb_loop_fork_begin();
}

static void in_parent(void)
{
	vb_loop_fork_end();
	vb_host_unlock();
	for (unsigned i = VB_FORK_RANKS; i--;)
		call(steps_of(i)->parent);
}

static void register_fork_handlers(void)
{
	pthread_atfork(before_fork, in_parent, in_child);
}

void vb_host_around_fork(enum vb_fork_rank rank, const struct vb_fork_steps *steps)
{
	pthread_once(&fork_once, register_fork_handlers);
	atomic_store(&around_fork[rank], steps);
}

void vb_host_at_fork(void (*child)(void))
{
	pthread_once(&fork_once, register_fork_handlers);
	vb_host_lock();
	for (size_t i = 0; i < MAX_CHILD_HANDLERS; i++) {
		if (!child_handlers[i] || child_handlers[i] == child) {
			child_handlers[i] = child;
			break;
		}
	}
	vb_host_unlock();
}

static int start_locked(void)
{
	int err = vb_loop_open_locked();
	if (err)
		return err;
	err = vb_slot_start_locked();
	if (err) {
		vb_loop_close_locked();
		return err;
	}
	vb_inspection_start_locked(vb_slot_first());
	vb_netif_start_locked();
	started = true;
	return 0;
}

int vb_host_open(void)
{
	pthread_once(&fork_once, register_fork_handlers);
	vb_host_lock();
	int err = started ? 0 : start_locked();
	vb_host_unlock();
	return err;
}

int vb_host_run(void)
{
	vb_host_lock();
	int err = vb_loop_run_locked();
	vb_host_unlock();
	return err;
}

int vb_host_get(void)
{
	int err = vb_host_open();
	if (!err)
		err = vb_host_run();
	if (err)
		return err;
	vb_host_lock();
	references++;
	vb_host_unlock();
	return 0;
}

void vb_host_put(void)
{
	vb_host_lock();
	if (references)
		references--;
	vb_host_unlock();
}

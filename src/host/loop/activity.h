/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which processes and threads run or lack a processor, and which are stopped or asleep, as /proc and the
 * threads' clocks say.
 */
#ifndef VB_HOST_ACTIVITY_H
#define VB_HOST_ACTIVITY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/nanoseconds.h"

/* What the threads of a process do. Unknown where /proc does not show the process. */
enum vb_activity {
	VB_ACTIVITY_UNKNOWN,
	/* some thread runs, waits for a processor, or is in the middle of a call that nothing can stop */
	VB_ACTIVITY_RUNNING,
	VB_ACTIVITY_HALTED,  /* none runs: all are stopped, frozen or asleep, and so in no copy */
};
enum vb_activity vb_process_activity(pid_t pid);

/* What a wait for another process has seen of it. Starts from zero. */
struct vb_process_wait {
	uint64_t next_look_ns;
	unsigned looks, halted;
};
/*
 * To be called again and again while the process does not do what is waited for. Now and then this looks at
 * the process. True: give up. A process that could run is waited for up to ten seconds, a halted one is not.
 */
bool vb_process_wait_is_over(struct vb_process_wait *wait, pid_t pid, uint64_t now_ns);

/* What looks at a thread of this process have seen. Starts from zero, except for tid. */
struct vb_thread_looks {
	pid_t tid;
	bool slept;         /* at the last look */
	uint64_t ran_ns;    /* its processor time at the last look; 0: there was none yet */
	uint64_t first_ns;  /* and at the first */
};
/*
 * To be called every few milliseconds. True: the thread has had time for its next step. It is gone, it has
 * been asleep since the last look, or it has run for VB_THREAD_RUNS_NS since the first. A thread that lacks a
 * processor is waited for, however long that takes. Where /proc does not tell, a thread that has not run
 * counts as asleep.
 */
enum { VB_THREAD_RUNS_NS = 10 * VB_NS_PER_MS };
bool vb_thread_has_moved_on(struct vb_thread_looks *looks);

/* The processor time of a thread of this process, in ns; 0: it is gone. */
uint64_t vb_thread_ran_ns(pid_t tid);
/*
 * True: the thread wants a processor, and has run for less than enough_ns since it had run for since_ns.
 * False where /proc does not tell.
 */
bool vb_thread_lacks_processor(pid_t tid, uint64_t since_ns, uint64_t enough_ns);

#endif

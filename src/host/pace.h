/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who works, who only lacks a processor, and who waits: /proc and the threads' clocks tell it of other
 * processes and of this one's threads.
 */
#ifndef VB_HOST_PACE_H
#define VB_HOST_PACE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* What the threads of a process do, as /proc tells. Of who cannot be seen it is not known. */
enum vb_pace {
	VB_PACE_UNKNOWN,
	/* some thread runs, waits for a processor, or is in the middle of a call that nothing can stop */
	VB_PACE_RUNNING,
	VB_PACE_HALTED,  /* none: they are stopped, frozen or asleep, and so in no copy */
};
enum vb_pace vb_process_pace(pid_t pid);

/* What a wait for another process has seen of it; from zero. */
struct vb_patience {
	uint64_t next_look_ns;
	unsigned looks, halted;
};
/*
 * To be asked again and again while the process does not do what is waited for. Every now and then this looks
 * at it; true: it is not worth to wait any longer. Who has work to do and no processor is waited for, for ten
 * seconds; who is halted is not.
 */
bool vb_patience_is_over(struct vb_patience *patience, pid_t pid, uint64_t now_ns);

/* What looks at a thread of this process have seen; from zero, but tid. */
struct vb_thread_looks {
	pid_t tid;
	bool slept;         /* at the last look */
	uint64_t ran_ns;    /* its processor time at the last look; 0: there was none yet */
	uint64_t first_ns;  /* and at the first */
};
/*
 * To be asked every few milliseconds. True: the thread would have done by now what it meant to do next. It is
 * gone, it has been asleep since the last look, or it has run for VB_THREAD_RUNS_NS since the first. A thread
 * that has had no processor is not judged, however long it takes. Where /proc does not tell, a thread that
 * has not run counts as asleep.
 */
enum { VB_THREAD_RUNS_NS = 10000000 };
bool vb_thread_has_moved_on(struct vb_thread_looks *looks);

#endif

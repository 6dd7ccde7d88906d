/* SPDX-License-Identifier: BSD-2-Clause */
/* Between two looks of a thread that polls by a poll time (base/poll_time.h). */
#ifndef VB_HOST_POLL_PAUSE_H
#define VB_HOST_POLL_PAUSE_H

#include <sched.h>

#include "base/lock.h"
#include "base/poll_time.h"
#include "host/host.h"

/*
 * The caller has looked `looks` times in a row and found nothing. Pauses the processor. After each
 * VB_YIELD_EVERY_POLLS looks, and after the first if the peer may need this processor, yields it instead.
 * False: another thread has run for long meanwhile, so the caller should stop polling. If the progress thread
 * woke up meanwhile, it worked for the caller, and true is returned.
 */
static inline bool vb_poll_pause(struct vb_poll_time *t, unsigned looks)
{
	if (looks % VB_YIELD_EVERY_POLLS && !(looks == 1 && t->yields_first)) {
		vb_pause();
		return true;
	}
	uint64_t before_ns = vb_now_ns(), sleeps = vb_loop_sleeps();
	sched_yield();
	return sleeps != vb_loop_sleeps() || !vb_poll_time_met_others(t, before_ns, vb_now_ns());
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/* Between two looks of a thread that polls by a poll time (base/poll_time.h). */
#ifndef VB_HOST_POLL_PAUSE_H
#define VB_HOST_POLL_PAUSE_H

#include <sched.h>

#include "base/lock.h"
#include "base/poll_time.h"
#include "host/host.h"

/*
 * To be called after each look that found nothing; `looks` counts them from 1. Pauses the processor. After
 * each VB_YIELD_EVERY_POLLS looks it yields the processor instead, and if t->yields_first also after the
 * first look. False: another thread has used the processor for long, so the caller should stop polling. The
 * progress thread does not count as another one, because it works for the caller.
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

/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/poll_time.h"

#include "rsocket/core/rs.h"

static _Thread_local struct vb_poll_time poll_time;

uint64_t vb_rs_poll_ns(void)
{
	uint32_t fixed_us = vb_rs_config()->polling_us;

	return fixed_us == VB_RS_ADAPTIVE ? poll_time.ns : fixed_us * NS_PER_US;
}

void vb_rs_note_wait(uint64_t start_ns, bool found)
{
	vb_poll_time_learn(&poll_time, found ? vb_now_ns() - start_ns : UINT64_MAX);
}

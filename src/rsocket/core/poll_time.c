/* SPDX-License-Identifier: BSD-2-Clause */
#include "host/loop/poll_pause.h"
#include "rsocket/core/rs.h"

static _Thread_local struct vb_poll_time poll_time;

static bool is_adaptive(void) { return vb_rs_config()->polling_us == VB_RS_ADAPTIVE; }

uint64_t vb_rs_poll_end(uint64_t now_ns)
{
	return is_adaptive() ? vb_poll_time_end(&poll_time, now_ns) :
			       now_ns + vb_rs_config()->polling_us * NS_PER_US;
}

bool vb_rs_poll_pause(unsigned turn)
{
	if (is_adaptive())
		return vb_poll_pause(&poll_time, turn);
	vb_pause();
	return true;
}

void vb_rs_note_wait(uint64_t start_ns, bool found)
{
	vb_poll_time_learn(&poll_time, found ? vb_now_ns() - start_ns : UINT64_MAX);
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include "host/loop/poll_pause.h"
#include "rsocket/core/rs.h"

static _Thread_local struct vb_poll_time poll_time;

static bool is_adaptive(void) { return vb_rs_config()->polling_us == VB_RS_ADAPTIVE; }

uint64_t vb_rs_poll_end(uint64_t since_ns)
{
	return is_adaptive() ? vb_poll_time_end(&poll_time, since_ns) :
			       since_ns + vb_rs_config()->polling_us * VB_NS_PER_US;
}

bool vb_rs_poll_pause(unsigned turn)
{
	if (is_adaptive())
		return vb_poll_pause(&poll_time, turn);
	vb_pause();
	return true;
}

uint64_t vb_rs_note_event(uint64_t since_ns)
{
	uint64_t now = vb_now_ns();

	vb_poll_time_learn(&poll_time, since_ns, now);
	return now;
}

void vb_rs_note_silence(void)
{
	vb_poll_time_learn_silence(&poll_time);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * SO_KEEPALIVE: every keep_idle_s an empty write goes to the peer's adapter. If that does not answer, the
 * queue pair's retries end the connection; so TCP_KEEPINTVL and TCP_KEEPCNT have no effect.
 */
#include "rsocket/core/wake.h"
#include "rsocket/stream/stream.h"

/* When the lock was held. */
#define RETRY_NS (10 * VB_NS_PER_MS)

/* In the progress thread, which must not wait for a lock that a program may hold for long. */
static void fire(struct vb_timer *timer, uint64_t now_ns)
{
	struct vb_rs *s = timer->arg;

	if (pthread_mutex_trylock(&s->lock)) {
		vb_timer_set(timer, now_ns + RETRY_NS);
		return;
	}
	if (s->keepalive_runs && s->stream.link == VB_RS_UP) {
		vb_rs_stream_keep_alive(&s->stream);
		vb_rs_flush_locked(s);
		if (vb_rs_endpoint_progress_locked(s))
			vb_rs_wake_locked(s);
		vb_timer_set(timer, now_ns + (uint64_t)s->options.keep_idle_s * VB_NS_PER_S);
	}
	pthread_mutex_unlock(&s->lock);
}

void vb_rs_keepalive_locked(struct vb_rs *s)
{
	bool wanted = vb_rs_has_flag(s, VB_RS_KEEPS_ALIVE) && s->state == VB_RS_CONNECTED &&
		      s->stream.link == VB_RS_UP;

	s->keepalive_runs = wanted;
	if (!wanted)
		return;
	s->keepalive.fire = fire;
	s->keepalive.arg = s;
	vb_timer_set(&s->keepalive, vb_now_ns() + (uint64_t)s->options.keep_idle_s * VB_NS_PER_S);
}

void vb_rs_keepalive_stop(struct vb_rs *s)
{
	pthread_mutex_lock(&s->lock);
	s->keepalive_runs = false;
	bool was_set = s->keepalive.fire != NULL;
	pthread_mutex_unlock(&s->lock);
	if (was_set)
		vb_timer_cancel(&s->keepalive);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* The end of a connection: the peer gets all that was written, and then SHUTDOWN or DISCONNECT. */
#include "rsocket/calls.h"

/* How long a close waits for a peer that does not read, unless SO_LINGER says. */
enum { CLOSE_TIMEOUT_S = 10 };

static bool is_delivered(struct vb_rs *s)
{
	return s->stream.link != VB_RS_UP || vb_rs_stream_is_idle(&s->stream);
}

/* Signals do not end it. What is not delivered in time is lost. */
static void await_locked(struct vb_rs *s, bool (*is_ready)(struct vb_rs *s))
{
	const struct vb_rs_options *o = &s->options;
	uint64_t now = vb_now_ns(),
		 end = now + (uint64_t)(o->lingers && o->linger_s > 0 ? o->linger_s : CLOSE_TIMEOUT_S) *
				     VB_NS_PER_S;

	while (now < end && vb_rs_wait_locked(s, is_ready, end, NULL) == -EINTR)
		now = vb_now_ns();
}

static void deliver_locked(struct vb_rs *s)
{
	vb_rs_flush_locked(s);
	vb_rs_wake_locked(s);
	await_locked(s, is_delivered);
}

static bool is_accepted(struct vb_rs *s) { return s->state != VB_RS_ACCEPTING; }

/* What raccept gave is a connection to the program before the peer has confirmed it. */
static void await_accepted_locked(struct vb_rs *s)
{
	if (s->state == VB_RS_ACCEPTING)
		await_locked(s, is_accepted);
}

int vb_rs_stream_shut_locked(struct vb_rs *s, int how)
{
	await_accepted_locked(s);
	if (s->state != VB_RS_CONNECTED)
		return -ENOTCONN;
	if (how != SHUT_WR)
		vb_rs_stream_shut_reading(&s->stream);
	if (how != SHUT_RD)
		vb_rs_stream_shut_writing(&s->stream);
	if (how != SHUT_RD || s->stream.end_is_due)
		deliver_locked(s);
	else
		vb_rs_wake_locked(s); /* whoever reads; the peer is not told */
	return 0;
}

/* SO_LINGER with a time of 0 aborts the connection. */
static void disconnect_locked(struct vb_rs *s)
{
	const struct vb_rs_options *o = &s->options;
	bool aborts = o->lingers && !o->linger_s;

	if (s->channel && !aborts) /* raccept gave it */
		await_accepted_locked(s);
	if (s->state != VB_RS_CONNECTED)
		return;
	if (!aborts && s->stream.link == VB_RS_UP)
		(void)vb_rs_stream_shut_locked(s, SHUT_RDWR);
	vb_rs_stream_break(&s->stream); /* calls on it that block return */
}

void vb_rs_stream_end_locked(struct vb_rs *s)
{
	disconnect_locked(s);
	if (vb_rs_is_opening(s)) {
		s->state = VB_RS_FAILED;
		s->error = EBADF;
	}
	vb_rs_wake_locked(s);
}

void vb_rs_drop(struct vb_rs *s)
{
	pthread_mutex_lock(&s->lock);
	vb_rs_stream_end_locked(s);
	pthread_mutex_unlock(&s->lock);
	vb_rs_keepalive_stop(s);
	vb_rs_discard(s);
}

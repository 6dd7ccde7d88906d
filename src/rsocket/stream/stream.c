/* SPDX-License-Identifier: BSD-2-Clause */
/* What waits need of a stream: progress, the descriptors to sleep on, and what it is ready for. */
#include "rsocket/core/wake.h"
#include "rsocket/stream/stream.h"

bool vb_rs_stream_progress_locked(struct vb_rs *s)
{
	bool happened = s->end.cq && vb_rs_endpoint_progress_locked(s);
	/* A connection's own events are rare. Its channel is also read when its descriptor is readable. */
	bool is_due = s->state != VB_RS_CONNECTED ||
		      (!happened && vb_rs_look_is_due(&s->events_looked, VB_RS_LOOK_US));

	if (is_due && !vb_rs_has_backlog(s))
		happened |= vb_rs_events_progress_locked(s);
	if (happened)
		vb_rs_wake_locked(s);
	return happened;
}

/* ---- sleeping ---- */

/* Polls the CQ once more after arming it: what came before makes no event. False: something was there. */
static bool arm_locked(struct vb_rs *s)
{
	if (!s->end.cq || s->end.is_armed)
		return true;
	if (ibv_req_notify_cq(s->end.cq, 0))
		return true;
	s->end.is_armed = true;
	return !vb_rs_stream_progress_locked(s); /* a CQ makes one event per arming */
}

/* The order of a stream's descriptors, as bits. */
enum { ID_READABLE = 1 << 0, CQ_READABLE = 1 << 1 };

unsigned vb_rs_stream_sleep_fds_locked(struct vb_rs *s, struct pollfd fds[VB_RS_SLEEP_FDS])
{
	unsigned n = 0;

	if (!arm_locked(s))
		return 0;
	/* The thread of backlog.c reads a listener's channel, and wakes the threads that wait. */
	fds[n++] = (struct pollfd){ .fd = vb_rs_has_backlog(s) || !s->channel ? -1 : s->channel->fd,
				    .events = POLLIN };
	if (s->end.channel)
		fds[n++] = (struct pollfd){ .fd = s->end.channel->fd, .events = POLLIN };
	return n;
}

void vb_rs_stream_sleep_events_locked(struct vb_rs *s, unsigned readable)
{
	VB_UNCANCELLED;
	/* Another attempt to connect may have destroyed the endpoint that it slept on. */
	if (readable & CQ_READABLE && s->end.channel && vb_rs_cq_take_event(s->end.channel)) {
		s->end.events++;
		s->end.is_armed = false;
		vb_rs_wake_locked(s); /* other sleepers have an unarmed CQ now: they must poll and arm it */
	}
	if (readable & ID_READABLE && !vb_rs_has_backlog(s) && vb_rs_events_progress_locked(s))
		vb_rs_wake_locked(s);
}

/* ---- readiness ---- */

bool vb_rs_can_read(struct vb_rs *s)
{
	uint32_t offset;

	return s->stream.incoming != VB_RS_OPEN || vb_rs_stream_readable(&s->stream, &offset) > 0;
}

bool vb_rs_can_write(struct vb_rs *s)
{
	return !vb_rs_is_writable(s) || vb_rs_stream_room(&s->stream) > 0;
}

/* POLLHUP waits until all that came before the end was read: a program that sees it may read no more. */
static short connected_revents_locked(struct vb_rs *s, short events)
{
	uint32_t offset;
	bool has_bytes = events & POLLIN && vb_rs_stream_readable(&s->stream, &offset);
	short revents = 0;

	if (vb_rs_can_read(s))
		revents |= POLLIN | POLLRDNORM;
	if (vb_rs_can_write(s))
		revents |= POLLOUT | POLLWRNORM;
	if (s->stream.incoming != VB_RS_OPEN)
		revents |= POLLRDHUP;
	revents &= events;
	if (s->stream.link != VB_RS_UP && !has_bytes)
		revents |= s->stream.link == VB_RS_BROKEN ? POLLHUP | POLLERR : POLLHUP;
	return revents;
}

short vb_rs_stream_revents_locked(struct vb_rs *s, short events)
{
	switch (s->state) {
	case VB_RS_CONNECTED:
		return connected_revents_locked(s, events);
	case VB_RS_FAILED:
		return (short)((events & (POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM)) | POLLERR | POLLHUP);
	case VB_RS_RETIRED:
		return (short)((events & (POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM | POLLRDHUP)) | POLLHUP);
	case VB_RS_LISTENING:
		return s->num_ready ? (short)(events & (POLLIN | POLLRDNORM)) : 0;
	case VB_RS_IDLE:
	case VB_RS_BOUND:
	case VB_RS_RESOLVING_ADDRESS:
	case VB_RS_RESOLVING_ROUTE:
	case VB_RS_CONNECTING:
	case VB_RS_ACCEPTING:
		return 0;
	}
	return 0;
}

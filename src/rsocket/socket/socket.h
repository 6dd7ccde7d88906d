/* SPDX-License-Identifier: BSD-2-Clause */
/* Sockets of either kind: their numbers and lives, what has happened to them, and waiting for it. */
#ifndef VB_RSOCKET_SOCKET_H
#define VB_RSOCKET_SOCKET_H

#include "rsocket/core/wake.h"
#include "rsocket/datagram/datagram.h"
#include "rsocket/stream/stream.h"

/* ---- the table (table.c) ---- */

/* A socket without a number and with one reference. NULL: ENOMEM. */
struct vb_rs *vb_rs_create(int domain, int type);
/* Gives it its number, and the table a reference. 0 or -ENOMEM. */
int vb_rs_publish(struct vb_rs *s, int fd);
/* The socket with this number, referenced; NULL: none. */
struct vb_rs *vb_rs_get(int fd);
/* The same for public calls: with errno EBADF, or ENOTCONN if it is an ancestor's. */
struct vb_rs *vb_rs_get_checked(int fd, const char *call);
void vb_rs_put(struct vb_rs *s);
/* Drops the reference of a socket that was made and got no number. */
void vb_rs_discard(struct vb_rs *s);
/* Takes the number from it and drops the table's reference; false: another thread was faster. */
bool vb_rs_withdraw(struct vb_rs *s);

/* ---- what has happened; under the lock ---- */

/* Takes completions, sends what is due, takes a stream's events when it is time. True: something happened. */
static inline bool vb_rs_progress_locked(struct vb_rs *s)
{
	return vb_rs_is_stream(s) ? vb_rs_stream_progress_locked(s) : vb_rs_datagram_progress_locked(s);
}

/* revents of a socket, after progress. */
static inline short vb_rs_revents_locked(struct vb_rs *s, short events)
{
	return vb_rs_is_stream(s) ? vb_rs_stream_revents_locked(s, events) :
				    vb_rs_datagram_revents_locked(s, events);
}

/*
 * Gets s ready to be slept on. Returns how many descriptors become readable when something happens, put to
 * fds (-1: none there); or 0: something happened meanwhile, look again.
 */
static inline unsigned vb_rs_sleep_fds_locked(struct vb_rs *s, struct pollfd fds[VB_RS_SLEEP_FDS])
{
	return vb_rs_is_stream(s) ? vb_rs_stream_sleep_fds_locked(s, fds) :
				    vb_rs_datagram_sleep_fds_locked(s, fds);
}

/* Takes the events of those descriptors that were readable: bits, in their order. */
static inline void vb_rs_sleep_events_locked(struct vb_rs *s, unsigned readable)
{
	if (!readable)
		return;
	if (vb_rs_is_stream(s))
		vb_rs_stream_sleep_events_locked(s, readable);
	else
		vb_rs_datagram_sleep_events_locked(s);
}

/* ---- waiting (wait.c) ---- */

/* As vb_rs_sleep_fds_locked; unless 0, the sleeper is listed until vb_rs_sleep_end_locked. */
unsigned vb_rs_sleep_begin_locked(struct vb_rs *s, struct vb_rs_sleeper *sleeper,
				  struct pollfd fds[VB_RS_SLEEP_FDS]);
void vb_rs_sleep_end_locked(struct vb_rs *s, struct vb_rs_sleeper *sleeper, unsigned readable);
/* When a call that begins now gives up, however often it waits. timeout_ns: 0: never. */
static inline uint64_t vb_rs_deadline(bool may_block, uint64_t timeout_ns)
{
	if (!may_block)
		return VB_RS_AT_ONCE;
	return timeout_ns ? vb_now_ns() + timeout_ns : VB_RS_NEVER;
}

/*
 * Under the lock, which it releases while it polls and sleeps: until is_ready(s). 0, -EAGAIN from the
 * deadline on, -EINTR where a signal ends calls (base/signals.h), and always with a deadline. A thread can be
 * cancelled only while it sleeps; then it gives up its reference to s and its turn (NULL: none).
 */
int vb_rs_wait_locked(struct vb_rs *s, bool (*is_ready)(struct vb_rs *s), uint64_t deadline,
		      struct vb_rs_turn *turn);
/* The same, which is over at once if s is ready without progress. */
static inline int vb_rs_await_locked(struct vb_rs *s, bool (*is_ready)(struct vb_rs *s), uint64_t deadline,
				     struct vb_rs_turn *turn)
{
	return is_ready(s) ? 0 : vb_rs_wait_locked(s, is_ready, deadline, turn);
}
/* Waits for s->reader or s->writer, and takes it. Errors as vb_rs_wait_locked's. */
int vb_rs_turn_take_locked(struct vb_rs *s, struct vb_rs_turn *turn, uint64_t deadline);
void vb_rs_turn_give_locked(struct vb_rs *s, struct vb_rs_turn *turn);

#endif

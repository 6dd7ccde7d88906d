/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sets of sockets among ordinary descriptors: epoll for rsockets.
 *
 *	the program's number: a kernel epoll
 *	  ├── ordinary descriptors, with the program's data: the kernel serves them alone
 *	  ├── pending.eventfd: readable while a member is pending
 *	  └── inner: a kernel epoll of the members' own descriptors, edge-triggered, its data the member
 *
 * A member that something happened to is *pending* (core/pending.h): vb_rs_wake_locked makes it so, whichever
 * thread caused it, and so do events of its descriptors. A wait examines the pending members alone: progress,
 * then its events. A member without events is armed and leaves the list; one with level-triggered events
 * stays. So a wait costs what happens, not what is in the set. A set without sockets is the kernel's alone.
 *
 * An edge-triggered member is reported when more came in (bytes, requests, ends) since its last report, or
 * when there is room again after an examination or a write that found none.
 *
 * Locks: `examining` (never held while sleeping), then a socket's lock, then `pending`'s. A member is freed
 * under `examining`, off both lists. A child's copy of a set has no sockets, and passes over the events of
 * those of its maker.
 */
#ifndef VB_RSOCKET_SET_H
#define VB_RSOCKET_SET_H

#include <sys/epoll.h>

#include "rsocket/calls.h"
#include "rsocket/core/pending.h"

struct vb_rs_set {
	struct vb_numbered number;
	int first;                      /* the number that it was made with, its only one, or closed */
	atomic_int fd;                  /* first; a descriptor of its own once there were more; -1: lost */
	int inner;                      /* -1 until there is a socket */
	unsigned generation;
	pid_t maker;
	pthread_mutex_t examining;
	struct vb_list members;         /* vb_rs_member: of_set; under `examining` */
	struct vb_rs_pending pending;
	unsigned one_event_waits;
};

struct vb_rs_member {
	struct vb_list of_set;
	struct vb_rs_membership membership;
	struct vb_rs_set *set;
	struct vb_rs *socket;           /* without a reference: a socket that closes leaves its sets first */
	int number;                     /* the program's for it: one member for each (vb_repoll_ctl) */
	uint32_t interest;              /* EPOLLIN, …, EPOLLET, EPOLLONESHOT */
	epoll_data_t data;
	int fds[VB_RS_SLEEP_FDS];       /* in the inner epoll, once for all members of the socket */
	unsigned endpoints;             /* of the socket, when fds were added */
	/* what an edge-triggered program knows */
	uint64_t seen_bytes;
	unsigned seen_changes, seen_full_writes;
	bool was_full;
};

/*
 * Under the socket's lock. A descriptor that was closed is in no epoll any more, and another socket may have
 * its number.
 */
static inline void vb_rs_member_forget_closed_locked(struct vb_rs_member *m)
{
	if (m->endpoints != m->socket->endpoints)
		m->fds[1] = -1;
	m->endpoints = m->socket->endpoints;
}

/* The set with this number, referenced; NULL: none. */
struct vb_rs_set *vb_rs_set_get(int fd);
void vb_rs_set_put(struct vb_rs_set *set);
static inline bool vb_rs_set_is_inherited(const struct vb_rs_set *set)
{
	return set->generation != vb_host_generation();
}

#endif

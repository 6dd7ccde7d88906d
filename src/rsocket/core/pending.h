/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Members of sets (set.c) that something happened to are *pending* until a wait on the set examines them. A
 * socket lists its memberships, so that whoever changes it can make them pending.
 */
#ifndef VB_RSOCKET_PENDING_H
#define VB_RSOCKET_PENDING_H

#include <pthread.h>

#include "base/base.h"
#include "base/list.h"

/* Of a set. */
struct vb_rs_pending {
	pthread_mutex_t lock;
	struct vb_list members; /* struct vb_rs_membership: in_pending */
	int eventfd;            /* readable while there are any; -1: the set has no socket yet */
	bool is_signaled;
};

/* Of a socket in a set. */
struct vb_rs_membership {
	struct vb_list of_socket, in_pending;
	struct vb_rs_pending *pending;
};

void vb_rs_pending_init(struct vb_rs_pending *p);
void vb_rs_pending_destroy(struct vb_rs_pending *p);
void vb_rs_pending_add(struct vb_rs_membership *m);
void vb_rs_pending_remove(struct vb_rs_membership *m);
/* The one that has waited longest, which is pending no more; NULL: none. */
struct vb_rs_membership *vb_rs_pending_pop(struct vb_rs_pending *p);
unsigned vb_rs_pending_count(struct vb_rs_pending *p);
bool vb_rs_pending_has_any(struct vb_rs_pending *p);
/* Clears the eventfd if none is left: a program may poll the set itself. */
void vb_rs_pending_settle(struct vb_rs_pending *p);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/* Functions that the files of public calls share. */
#ifndef VB_RDMACM_CALLS_H
#define VB_RDMACM_CALLS_H

#include "rdmacm/cma.h"

/* ---- ids (create.c) ---- */

/* As vb_cma_id_create; explains as `call`. -EINVAL: there is no such port space. */
int vb_cma_create(const char *call, struct rdma_event_channel *channel, void *context,
		  enum rdma_port_space ps, enum ibv_qp_type qp_type, struct vb_cma_id **id);
/* What rdma_destroy_id does. No fault on purpose fails it: the program could not see that. */
void vb_cma_destroy(struct vb_cma_id *id);

/* ---- connections (connect.c) ---- */

/* How many bytes of private data fit into the id's request. */
size_t vb_cma_request_room(const struct vb_cma_id *id);

/* ---- QPs (qp.c) ---- */

/*
 * Remembers the number of the id's QP. The program may have put it there itself, or have taken it away.
 * Without the lock.
 */
void vb_cma_qp_note(struct vb_cma_id *id);
/* Moves the id's QP to RTR and RTS as agreed. 0 or a negative errno. Without the lock. */
int vb_cma_qp_connect(struct vb_cma_id *id);
/* To the error state, if there is a QP. Without the lock. */
void vb_cma_qp_flush(struct vb_cma_id *id);
/* The same for the QP of a connection alone: one of datagrams may serve other peers. */
void vb_cma_qp_fail(struct vb_cma_id *id);

/* ---- events (event.c) ---- */

/*
 * Synchronous ids: takes the next event as the outcome of the call that `call` names; others: 0 at once. 0 or
 * -1 with errno.
 */
int vb_cma_complete(struct vb_cma_id *id, const char *call);
/* Acknowledges the peer's response. -EINVAL: the connection has none, or is gone. */
int vb_cma_establish(struct vb_cma_id *id);

/* ---- addresses (bind.c) ---- */

/* Binds as rdma_bind_addr does. 0 or a negative errno; explains as `call`. */
int vb_cma_id_bind(struct vb_cma_id *id, const char *call, const struct vb_cma_addr *addr);
/* -EINVAL: no address; explains as `call`, which calls it `which`. */
int vb_cma_parse(const char *call, const char *which, const struct sockaddr *sa, struct vb_cma_addr *addr);

/* ---- names (lookup.c) ---- */

/* The result of a lookup that is under way will go to nobody. */
void vb_cma_lookup_forget_locked(struct vb_cma_id *id);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/* Ids (struct vb_cma_id), what they wait for, and the CM messages that make new ones. */
#ifndef VB_RDMACM_ID_H
#define VB_RDMACM_ID_H

#include "host/net/route.h"
#include "rdmacm/agent/channel.h"

const char *vb_cma_state_text(enum vb_cma_state state);
/* The state as it is now: messages and timers change it. */
enum vb_cma_state vb_cma_id_state(const struct vb_cma_id *id);
/* For explanations. */
static inline const char *vb_cma_id_state_text(const struct vb_cma_id *id)
{
	return vb_cma_state_text(vb_cma_id_state(id));
}

/* ---- their life (id.c) ---- */

/* All ids, in the order of creation. */
struct vb_list *vb_cma_ids_locked(void);
/* channel NULL: synchronous. 0 or a negative errno. */
int vb_cma_id_create(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps,
		     enum ibv_qp_type qp_type, struct vb_cma_id **id);
/* A new id for a request, on the listener's channel and in no program's hands. NULL: out of memory. */
struct vb_cma_id *vb_cma_id_create_child_locked(struct vb_cma_id *listener);
/* Frees an id that no program has seen. */
void vb_cma_id_discard_locked(struct vb_cma_id *id);
/* Ends an id's connection and events, and waits until the program has acknowledged those that it took. */
void vb_cma_id_quiesce_locked(struct vb_cma_id *id);
/* Of an id that was quiesced. */
void vb_cma_id_free(struct vb_cma_id *id);
/* Frees a pulled event; if it is a CONNECT_REQUEST, discards its id as well. */
void vb_cma_event_discard_locked(struct vb_cma_event *event);
/* In a forked child: ids keep their memory and lose their connections and ports, which are the parent's. */
void vb_cma_id_forget(void);

/* What rdma_migrate_id does, whatever faults there are. 0 or a negative errno. */
int vb_cma_id_migrate(struct vb_cma_id *id, struct rdma_event_channel *channel);
/* The channel's ids lose it, its queued events are discarded. */
void vb_cma_channel_destroy(struct rdma_event_channel *channel);

/* ---- their addresses (source.c) ---- */

void vb_cma_id_set_src_locked(struct vb_cma_id *id, const struct vb_cma_addr *addr);
void vb_cma_id_set_dst_locked(struct vb_cma_id *id, const struct vb_cma_addr *addr);
/* Ties the id to the device that has its source address. -ENODEV. */
int vb_cma_id_attach(struct vb_cma_id *id);
void vb_cma_id_detach_locked(struct vb_cma_id *id);
/* Detaches it, and its source is unknown. */
void vb_cma_id_forget_source_locked(struct vb_cma_id *id);
/*
 * The address's resolution ends with status 0 or a negative errno, and the id gets the event. -ENOMEM: it
 * cannot get it, and nothing has changed.
 */
int vb_cma_id_resolved_locked(struct vb_cma_id *id, int status);
/* Gives the id the addresses that it had before a resolution that failed. */
void vb_cma_id_unresolve(struct vb_cma_id *id);
/* Fills pub.route.path_rec. 0 or -ENOMEM. */
int vb_cma_id_set_path(struct vb_cma_id *id, const struct vb_cm_path *path);
/* The route is known: fills pub.route.path_rec, and the id gets the event. 0 or -ENOMEM. */
int vb_cma_id_route_resolved(struct vb_cma_id *id);

/* ---- neighbours (neighbour.c) ---- */

/*
 * The id is RESOLVING until the route's next hop is known or timeout_ms have passed. 0 or -ENOMEM.
 */
int vb_cma_neighbour_await_locked(struct vb_cma_id *id, const struct vb_route *route, int timeout_ms);
/* Stops waiting, if the id waits. */
void vb_cma_neighbour_forget_locked(struct vb_cma_id *id);
/* In a forked child. */
void vb_cma_neighbour_forget_all(void);

/* ---- multicast groups (group.c) ---- */

/*
 * The id becomes a member, and gets the event that says whether it did. -ENOMEM: it does not; explains as
 * `call`.
 */
int vb_cma_group_join(struct vb_cma_id *id, const char *call, const struct vb_cma_addr *addr, bool sends_only,
		      void *context);
/*
 * What is left to do with a MULTICAST_JOIN in the thread that takes it: attaches the id's QP. False: the
 * group was left meanwhile.
 */
bool vb_cma_group_joined(struct vb_cma_event *event);
/* -EADDRNOTAVAIL: the id is no member. Other errors are those of detaching its QP. */
int vb_cma_group_leave(struct vb_cma_id *id, const struct vb_cma_addr *addr);
/* Leaves all of the id's groups. Without the lock. */
void vb_cma_groups_leave(struct vb_cma_id *id);
/* The interface of the id's groups is gone: MULTICAST_ERROR for each that it is in. */
void vb_cma_groups_lost_locked(struct vb_cma_id *id);

/* ---- interfaces (interfaces.c) ---- */

/* From here on ids hear of the end of their devices' interfaces. */
void vb_cma_interfaces_watch_locked(void);
/* In a forked child. */
void vb_cma_interfaces_forget(void);

/* ---- CM messages (receive.c) ---- */

/* Requests for the id are taken from here on; and no more. */
void vb_cma_listener_add_locked(struct vb_cma_id *id);
void vb_cma_listener_remove_locked(struct vb_cma_id *id);
/* Handler of inboxes (QP 1) and ports. scope: of a port on a link-local address, its interface; else 0. */
void vb_cma_packet_arrived(void *scope, const struct vb_inbox_msg *msg);

/* ---- the first use of the network (start.c) ---- */

/* Opens the agent unless it is open. Without the lock. 0 or a negative errno. */
int vb_cma_start(void);

#endif

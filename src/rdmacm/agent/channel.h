/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The lock of librdmacm (rdmacm/cma.h), and events: each is made for an id, waits in its channel's queue,
 * and is handed out to the program.
 */
#ifndef VB_RDMACM_CHANNEL_H
#define VB_RDMACM_CHANNEL_H

#include "rdmacm/cma.h"

/* ---- the lock ---- */

void vb_cma_lock(void);
/*
 * For the end of the process, when any thread may hold the lock. False: it did not become free in a second.
 */
bool vb_cma_lock_at_exit(void);
void vb_cma_unlock(void);
/* Waits for the acknowledgement of some event; wakes those who wait for one. */
void vb_cma_wait_ack_locked(void);
void vb_cma_wake_ack_locked(void);
/* In a forked child. */
void vb_cma_lock_init(void);

/* ---- events ---- */

struct vb_cma_event {
	struct rdma_cm_event pub;
	struct vb_list node;      /* of the channel's */
	struct vb_list of_owner;
	struct vb_cma_id *owner;  /* whose destruction waits for the acknowledgement */
	struct ibv_ece ece;
	uint64_t group;           /* of multicast events (id/group.c) */
	uint8_t private_data[256];
};

/* Under the lock. NULL: out of memory. */
struct vb_cma_event *vb_cma_event_create(struct vb_cma_id *id, enum rdma_cm_event_type type, int status);
void vb_cma_event_set_private_data(struct vb_cma_event *event, const void *data, size_t len);
void vb_cma_event_queue_locked(struct vb_cma_event *event);
/*
 * Queues an event without data. -ENOMEM: there is none. A caller that can report this refuses what would have
 * led to the event.
 */
int vb_cma_event_raise_locked(struct vb_cma_id *id, enum rdma_cm_event_type type, int status);
/* A CONNECT_REQUEST: its id is in no program's hands until it is taken. */
bool vb_cma_event_brings_id(const struct vb_cma_event *event);
/* Takes out the first event that is queued for the id. NULL: none. */
struct vb_cma_event *vb_cma_event_pull_locked(const struct vb_cma_id *id);
/* From here on `owner` is the id that waits for this handed-out event's acknowledgement. */
void vb_cma_event_give_locked(struct rdma_cm_event *event, struct vb_cma_id *owner);
/* What rdma_ack_cm_event does. */
void vb_cma_event_acknowledge(struct vb_cma_event *event);
/* Waits until every event handed out for id is acknowledged. */
void vb_cma_event_wait_acked_locked(struct vb_cma_id *id);
/* Acknowledges what a synchronous id keeps in its `event`, before a call that will lead to a new one. */
void vb_cma_release_event(struct vb_cma_id *id);

/* ---- channels ---- */

/* Its descriptor has a number of at least least_fd (vb_fd_lift). 0 or a negative errno. */
int vb_cma_channel_create(int least_fd, struct rdma_event_channel **channel);
/* Takes out its first event. NULL: none. */
struct vb_cma_event *vb_cma_channel_pull_locked(struct rdma_event_channel *channel);
/* After events were pulled: makes a channel without events no longer readable. */
void vb_cma_channel_settle_locked(struct rdma_event_channel *channel);
/* Frees a channel that no id names, once no thread waits at it. */
void vb_cma_channel_free(struct rdma_event_channel *channel);
/*
 * Hands out the channel's next event, waits for it if need be. 0 or a negative errno, of which -EAGAIN and
 * -EINTR are ordinary.
 */
int vb_cma_channel_take(struct rdma_event_channel *channel, struct vb_cma_event **event);
/* The process begins to end. From now on vb_cma_channel_take does not return for a destroyed channel. */
void vb_cma_channels_end_locked(void);

#endif

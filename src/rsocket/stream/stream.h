/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Streams: a connection's endpoint, the memory that its program maps, and the events of its id. Nothing here
 * waits. Functions that return int give 0 or a negative errno.
 */
#ifndef VB_RSOCKET_STREAM_H
#define VB_RSOCKET_STREAM_H

#include "rsocket/core/rs.h"

/* ---- memory that the program maps (mapping.c) ---- */

enum { VB_RS_NOT_OFFERED = -1 };

struct vb_rs_mapping {
	struct vb_list node;
	struct ibv_mr *mr;
	uint64_t offset;
	int index;        /* of the peer's map; VB_RS_NOT_OFFERED: for local use alone */
	bool is_new;
};

/* Under the lock. As riomap; the peer does not know of it yet. */
int vb_rs_mapping_add_locked(struct vb_rs *s, void *buf, size_t len, int prot, uint64_t offset);
int vb_rs_mapping_remove_locked(struct vb_rs *s, const void *buf, size_t len);
void vb_rs_mappings_free(struct vb_rs *s);

/* ---- endpoints (endpoint.c) ---- */

/* QP, CQ and rings for s->id, receives posted, stream initialized. */
int vb_rs_endpoint_create(struct vb_rs *s);
/* And the mappings, which are registered with it. */
void vb_rs_endpoint_destroy(struct vb_rs *s);
/* Posts what the protocol asks for. payload: the program's bytes of an inline write, or NULL. */
int vb_rs_post(struct vb_rs *s, const struct vb_rs_write *w, const void *payload);
/* Under the lock: takes completions. True: there were some. */
bool vb_rs_endpoint_progress_locked(struct vb_rs *s);
/* Posts control messages that are due. True: some were. */
bool vb_rs_flush_locked(struct vb_rs *s);
/* The bytes that a call wrote last are posted. An end that waited for them goes now. */
void vb_rs_posted_locked(struct vb_rs *s);
/* The connection is lost for this reason, a positive errno, unless it has ended already. */
void vb_rs_break_locked(struct vb_rs *s, int err);

/* ---- keepalive (keepalive.c) ---- */

/* Starts or stops as the options say, if s is connected. Under the lock. */
void vb_rs_keepalive_locked(struct vb_rs *s);
/* Without the lock. */
void vb_rs_keepalive_stop(struct vb_rs *s);

/* ---- ids and their events (connection.c) ---- */

/* A channel whose descriptor is to be a socket's number. */
int vb_rs_channel_open(struct rdma_event_channel **channel);
/* Makes the id of a new stream and its channel. */
int vb_rs_id_create(struct vb_rs *s);
/* Gives a socket whose connection failed a new id. */
int vb_rs_id_renew_locked(struct vb_rs *s);
/* Gives the id of an accepted connection a channel of its own, which then is the socket's. */
int vb_rs_id_migrate(struct vb_rs *s, struct rdma_event_channel *channel);
/* Starts connecting to s->peer. */
void vb_rs_resolve_locked(struct vb_rs *s);
/* An event of its id that the thread of backlog.c took, since the connection has no channel yet. */
void vb_rs_take_event(struct vb_rs *s, const struct rdma_cm_event *event);
/* Takes the events of its channel. True: there were some. */
bool vb_rs_events_progress_locked(struct vb_rs *s);

/* ---- what waits need of a stream (stream.c); as socket/socket.h has it of sockets ---- */

bool vb_rs_stream_progress_locked(struct vb_rs *s);
unsigned vb_rs_stream_sleep_fds_locked(struct vb_rs *s, struct pollfd fds[VB_RS_SLEEP_FDS]);
void vb_rs_stream_sleep_events_locked(struct vb_rs *s, unsigned readable);
short vb_rs_stream_revents_locked(struct vb_rs *s, short events);
/* Would a read not wait? Also the end is read at once. */
bool vb_rs_can_read(struct vb_rs *s);
/* Would a write not wait? Also an error comes at once. */
bool vb_rs_can_write(struct vb_rs *s);
/* Is there a direction to write to, of a connection that stands? */
static inline bool vb_rs_is_writable(const struct vb_rs *s)
{
	return s->stream.outgoing == VB_RS_OPEN && s->stream.link == VB_RS_UP;
}
/* Why it is not writable. The first write hears of a lost connection, the next ones that there is none. */
static inline int vb_rs_write_error(struct vb_rs *s)
{
	bool is_news = s->stream.outgoing != VB_RS_SHUT && !s->write_failed;

	s->write_failed = true;
	return is_news ? -ECONNRESET : -EPIPE;
}

#endif

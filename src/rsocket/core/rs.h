/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The inside of rsockets: sockets over rdma_cm ids and RC queue pairs (streams), or over UD queue pairs and a
 * UDP socket (datagrams). Each folder uses only those below it:
 *
 *	.           the public calls, and what blocks in them
 *	socket/     sockets of either kind: their numbers and lives, waiting for them
 *	stream/     a connection: its endpoint, mappings and id; beside it
 *	datagram/   ports, destinations, what has arrived
 *	core/       struct vb_rs, waking whoever waits, defaults
 *
 * Streams and datagrams change a socket's state and wake whoever waits for it. They never wait themselves:
 * waiting makes progress, and calls that block wait.
 *
 * The number of a socket is a descriptor that it owns: its event channel's, or its UDP socket's. So no other
 * descriptor has the number, and ordinary descriptors may stand beside it in rpoll. Numbers start beyond
 * those that a program opens first: rdma-core's librspreload opens a descriptor for each socket before the
 * socket, and counts on the lower number for it, whatever our threads open and close meanwhile.
 *
 * No thread serves sockets, except listeners (backlog.c): a thread that waits polls the CQ for polling_time,
 * then arms it and sleeps in poll(2). It may find what another thread waits for. So sleepers are listed, each
 * with an eventfd, and whoever changes a socket's state writes to those of the others.
 *
 * Locks. `lock` guards all of a socket. A call that moves a stream's bytes has the turn of their direction
 * (`reader` or `writer`) throughout. It copies bytes and posts writes without `lock`, since nobody else
 * touches that part of a ring. The table's lock (socket/table.c) is taken before `lock`. A thread
 * that is cancelled (base/cancel.h) ends where it sleeps, and holds no lock of ours then. vb_rs_get gives a
 * reference. The last reference frees the socket; only rclose drops the table's.
 *
 * A fork. A child's copies of sockets do not work: calls fail with ENOTCONN, and rclose closes the
 * descriptors. The child's own sockets work.
 */
#ifndef VB_RSOCKET_RS_H
#define VB_RSOCKET_RS_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <stdatomic.h>

#include "base/base.h"
#include "base/cancel.h"
#include "base/list.h"
#include "base/log.h"
#include "base/nanoseconds.h"
#include "base/numbers.h"
#include "base/ticks.h"
#include "host/host.h"
#include "proto/rsocket/rs_stream.h"
#include "rsocket/private.h"

/* Fails a public call: explains, sets errno, gives -1. err is positive. */
#define vb_rs_fail(err, ...) (__extension__({           \
		vb_explain(__func__, __VA_ARGS__);      \
		errno = (err);                          \
		-1;                                     \
	}))

/* What a public call returns for a count or a negative errno. */
static inline ssize_t vb_rs_result(ssize_t n)
{
	if (n >= 0)
		return n;
	errno = (int)-n;
	return -1;
}

/* A deadline that is over: a call that may not wait. Beside VB_RS_NEVER. */
#define VB_RS_AT_ONCE UINT64_C(0)

/* ---- defaults: /etc/rdma/rsocket (config.c) ---- */

struct vb_rs_config {
	uint32_t polling_us;    /* how long a wait polls before it sleeps, or VB_RS_ADAPTIVE: while it pays */
	uint32_t wake_up_ms;    /* how long rpoll sleeps at most before it looks again */
	uint32_t receive_bytes, send_bytes;
	uint16_t send_queue, receive_queue, inline_bytes;
	uint32_t iomap_entries;
};

#define VB_RS_ADAPTIVE UINT32_MAX

/* Read once. */
const struct vb_rs_config *vb_rs_config(void);

/* ---- how long the calling thread polls before it sleeps (poll_time.c) ---- */

/* A wait began at since_ns, or had its last event then: when its polling ends. */
uint64_t vb_rs_poll_end(uint64_t since_ns);
/*
 * Before each turn of the polling (1, 2, …): a short pause, and now and then one for other threads. False:
 * one has run meanwhile, and the polling ends.
 */
bool vb_rs_poll_pause(unsigned turn);
/* The next event has come, whether or not it is what the wait is for. Returns the time. */
uint64_t vb_rs_note_event(uint64_t since_ns);
/* None came for as long as the wait lasted. */
void vb_rs_note_silence(void);

/* ---- sockets ---- */

/* X(NAME, what a stream socket in it is) */
#define VB_RS_STATES(X)                                   \
	X(IDLE, "new")                                    \
	X(BOUND, "bound")                                 \
	X(LISTENING, "listening")                         \
	X(RETIRED, "not listening any more")              \
	X(RESOLVING_ADDRESS, "resolving the address")     \
	X(RESOLVING_ROUTE, "resolving the route")         \
	X(CONNECTING, "connecting")                       \
	X(ACCEPTING, "being accepted")                    \
	X(CONNECTED, "connected")                         \
	X(FAILED, "not connected: the attempt failed")

enum vb_rs_state {
#define X(name, text) VB_RS_##name,
	VB_RS_STATES(X)
#undef X
};

/* What programs set and get without more effect than that, by bit. */
enum vb_rs_flag {
	VB_RS_REUSEADDR,
	VB_RS_KEEPS_ALIVE,
	VB_RS_OOBINLINE,
	VB_RS_NODELAY,
	VB_RS_V6ONLY,
	VB_RS_CORK,
	VB_RS_QUICKACK,
};

struct vb_rs_options {
	uint32_t flags;               /* 1 << enum vb_rs_flag */
	uint32_t send_bytes, receive_bytes;
	uint16_t send_queue, receive_queue, inline_bytes;
	uint32_t iomap_entries;
	bool lingers;                 /* SO_LINGER */
	int linger_s;
	int keep_idle_s, keep_interval_s, keep_count;
	uint64_t send_timeout_ns, receive_timeout_ns; /* 0: none */
	uint8_t tos;
	void *route;                  /* RDMA_ROUTE: struct ibv_path_data[] */
	uint32_t route_bytes;
};

/* What carries a connection's bytes (stream/endpoint.c). */
struct vb_rs_endpoint {
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	unsigned events;              /* taken from the channel and not acknowledged */
	bool is_armed;
	uint8_t *send_ring, *receive_ring;
	struct vb_rs_tables *tables;
	size_t send_ring_bytes, receive_ring_bytes, tables_bytes; /* mapped */
	uint32_t *unread;
	struct ibv_mr *send_mr, *receive_mr, *tables_mr;
	uint32_t max_inline;
};

/* One call at a time moves bytes in a direction. Under the socket's lock; socket/wait.c. */
struct vb_rs_turn {
	bool is_taken;
	bool is_wanted;               /* a call found it taken */
};

struct vb_rs_datagram;

struct vb_rs {
	struct vb_numbered number;    /* socket/table.c */
	int fd;
	int domain, type;
	unsigned generation;          /* vb_host_generation of the process that made it */
	atomic_int fcntl_flags;       /* O_NONBLOCK counts */
	pthread_mutex_t lock;
	struct vb_list sleepers;      /* struct vb_rs_sleeper (core/wake.h) */
	struct vb_list memberships;   /* in sets: struct vb_rs_membership (core/pending.h) */
	unsigned full_writes;         /* writes that found no room */
	unsigned changes;             /* of the connection's state, and requests that arrived */
	struct vb_rs_options options;
	int error;                    /* SO_ERROR: positive errno */

	/* streams */
	enum vb_rs_state state;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct sockaddr_storage peer; /* of rconnect */
	bool was_bound;               /* by the program */
	uint32_t least_iomap;         /* entries of its I/O map, whatever its options say */
	unsigned attempts;            /* of a resolution */
	/* when its channel was read, and when a write made progress: vb_rs_look_is_due */
	uint64_t events_looked, write_looked;
	struct vb_rs_endpoint end;
	unsigned endpoints;           /* made and destroyed */
	struct vb_rs_stream stream;
	struct vb_rs_turn reader, writer;
	bool write_failed;            /* a write was told that it cannot be done any more */
	size_t peeks_for;             /* bytes: the reader's */
	bool keepalive_runs;
	struct vb_timer keepalive;
	struct vb_list mappings;      /* riomap: struct vb_rs_mapping (stream/mapping.c) */
	bool has_new_mappings;

	/* a listener's connections that raccept has not taken yet (backlog.c); their node there */
	struct vb_list ready, in_backlog;
	unsigned num_ready, backlog;

	struct vb_rs_datagram *datagram; /* datagrams (datagram/datagram.h) */
};

static inline bool vb_rs_is_stream(const struct vb_rs *s) { return s->type == SOCK_STREAM; }
static inline bool vb_rs_is_inherited(const struct vb_rs *s) { return s->generation != vb_host_generation(); }
static inline bool vb_rs_has_flag(const struct vb_rs *s, enum vb_rs_flag flag)
{
	return s->options.flags >> flag & 1;
}
/* Does the thread of backlog.c take its events? */
static inline bool vb_rs_has_backlog(const struct vb_rs *s)
{
	return s->state == VB_RS_LISTENING || s->state == VB_RS_RETIRED;
}
static inline bool vb_rs_is_opening(const struct vb_rs *s)
{
	return s->state >= VB_RS_RESOLVING_ADDRESS && s->state <= VB_RS_ACCEPTING;
}
static inline bool vb_rs_may_block(const struct vb_rs *s, int flags)
{
	return !(s->fcntl_flags & O_NONBLOCK) && !(flags & MSG_DONTWAIT);
}

/*
 * Is it time for another look at what rarely changes? A look may be a system call. A program that polls in a
 * loop makes it once in so many microseconds, and more rarely while it moves data. One that calls now and
 * then makes it each time.
 */
enum { VB_RS_LOOK_US = 50, VB_RS_BUSY_LOOK_US = 1000 };

static inline bool vb_rs_look_is_due(uint64_t *looked, unsigned us)
{
	uint64_t now = vb_ticks();

	if (now - *looked < us * vb_ticks_us())
		return false;
	*looked = now;
	return true;
}

/* Reads and clears SO_ERROR: a positive errno or 0. */
static inline int vb_rs_take_error_locked(struct vb_rs *s)
{
	int err = s->error;

	s->error = 0;
	return err;
}

/* How many descriptors of its own a socket is slept on by. */
enum { VB_RS_SLEEP_FDS = 2 };

/* ---- completion queues (cq.c) ---- */

/* CQ and its channel for an id. */
int vb_rs_cq_create(struct rdma_cm_id *id, unsigned cqes, struct ibv_comp_channel **channel,
		    struct ibv_cq **cq);
/* Takes an event if the channel has one, without waiting. */
bool vb_rs_cq_take_event(struct ibv_comp_channel *channel);

/* ---- addresses (address.c) ---- */

/* Is it as long as its family's? NULL is not. */
bool vb_rs_is_whole_address(const struct sockaddr *addr, socklen_t len);
/* As getsockname(2): copies what fits into *len bytes, and sets *len to the whole length. */
void vb_rs_copy_address(const struct sockaddr *sa, struct sockaddr *addr, socklen_t *len);

#endif

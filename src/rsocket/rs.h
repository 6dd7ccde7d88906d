/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The inside of rsockets: sockets over rdma_cm ids and RC queue pairs (streams) or UD queue pairs and a UDP
 * socket (datagrams).
 *
 *	program ── public calls (stream.c, poll.c, option.c, …) ── struct vb_rs
 *	                                                             ├── rdma_cm id: events drive its state      (connect.c)
 *	                                                             ├── stream protocol, a pure machine          (proto/rsocket/rs_stream.h)
 *	                                                             ├── endpoint: QP, CQ, rings, tables          (endpoint.c)
 *	                                                             └── sleepers: who waits for what happens     (wait.c)
 *
 * The number of a socket is a descriptor that it owns: its event channel's, or its UDP socket's. So it is
 * nobody else's number, and ordinary descriptors may stand beside it in rpoll. Numbers begin beyond those
 * that a program opens first: who keeps a descriptor for each socket (rdma-core's librspreload does) and
 * opens it before the socket can count on the lower number for it, whatever our threads open and close
 * meanwhile.
 *
 * Whoever is there does the work: no thread serves sockets but listening ones (backlog.c). A thread that
 * waits polls the CQ for polling_time, then arms it and sleeps in poll(2). It may find what another thread
 * waits for; therefore sleepers are listed with an eventfd each, and who changes a socket's state rings those
 * of the others.
 *
 * Locks. `lock` guards all of a socket but what is said here. `reader` and `writer` are held for a whole call
 * that moves bytes, and taken before `lock`: bytes are copied, and writes posted, without `lock`, because no
 * one else touches that part of a ring. Table lock (table.c) < lock. A thread that is cancelled
 * (base/cancel.h) ends where it sleeps, without a lock of ours. vb_rs_get gives a reference; the last one to
 * go frees the socket (only rclose drops the table's).
 *
 * A fork. A child's copies of sockets are dead: calls fail with ENOTCONN, rclose gives back the descriptors.
 * New ones work.
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
#include "base/numbers.h"
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

/* ---- defaults: /etc/rdma/rsocket (config.c) ---- */

struct vb_rs_config {
	uint32_t polling_us;    /* how long a wait polls before it sleeps */
	uint32_t wake_up_ms;    /* how long rpoll sleeps at most before it looks again */
	uint32_t receive_bytes, send_bytes;
	uint16_t send_queue, receive_queue, inline_bytes;
	uint32_t iomap_entries;
};

/* Read once. */
const struct vb_rs_config *vb_rs_config(void);

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

/* What carries a connection's bytes. */
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

struct vb_rs_datagram;
struct vb_rs_mapping;

struct vb_rs {
	struct vb_numbered number;    /* table.c */
	int fd;
	int domain, type;
	unsigned generation;          /* vb_host_generation of its maker */
	atomic_int fcntl_flags;       /* O_NONBLOCK counts */
	pthread_mutex_t lock, reader, writer;
	struct vb_list sleepers;
	struct vb_list watchers;      /* memberships in sets (set.c) */
	unsigned refusals;            /* of bytes to be sent, for want of room */
	unsigned arrivals;            /* of requests and news of the connection's state */
	struct vb_rs_options options;
	int error;                    /* SO_ERROR: positive errno */

	/* streams */
	enum vb_rs_state state;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct sockaddr_storage peer; /* of rconnect */
	bool was_bound;               /* by the program */
	unsigned attempts;            /* of a resolution */
	unsigned looks;               /* at an empty CQ since the event channel was looked at */
	struct vb_rs_endpoint end;
	unsigned endpoints;           /* made and destroyed */
	struct vb_rs_stream stream;
	size_t peeks_for;             /* bytes: the reader's */
	bool keepalive_runs;
	struct vb_timer keepalive;
	struct vb_list mappings;      /* riomap: struct vb_rs_mapping (iomap.c) */
	bool has_mappings_to_send;

	/* a listener's connections that raccept has not taken yet (backlog.c); their node there */
	struct vb_list ready, in_backlog;
	unsigned num_ready, backlog;

	struct vb_rs_datagram *datagram;
};

const char *vb_rs_state_text(enum vb_rs_state state);
static inline bool vb_rs_is_stream(const struct vb_rs *s) { return s->type == SOCK_STREAM; }
static inline bool vb_rs_has_flag(const struct vb_rs *s, enum vb_rs_flag flag)
{
	return s->options.flags >> flag & 1;
}
/* Is the connection there, or was it? Then the endpoint is, too. */
static inline bool vb_rs_was_connected(const struct vb_rs *s) { return s->state == VB_RS_CONNECTED; }
/* Are its events the backlog's to take? */
static inline bool vb_rs_has_backlog(const struct vb_rs *s)
{
	return s->state == VB_RS_LISTENING || s->state == VB_RS_RETIRED;
}
static inline bool vb_rs_is_opening(const struct vb_rs *s)
{
	return s->state >= VB_RS_RESOLVING_ADDRESS && s->state <= VB_RS_ACCEPTING;
}

/* SO_ERROR, which is told once: a positive errno or 0. */
static inline int vb_rs_take_error_locked(struct vb_rs *s)
{
	int err = s->error;

	s->error = 0;
	return err;
}

/* ---- the table (table.c) ---- */

/* A socket without a number and with one reference. NULL: ENOMEM. */
struct vb_rs *vb_rs_create(int domain, int type);
/* Where numbers begin, as long as the limit allows that many descriptors. */
enum { VB_RS_FIRST_NUMBER = 256 };
/* Gives it its number, and the table a reference. 0 or -ENOMEM. */
int vb_rs_publish(struct vb_rs *s, int fd);
/* The socket with this number, referenced; NULL: none. */
struct vb_rs *vb_rs_get(int fd);
/* The same for public calls: with errno EBADF, or ENOTCONN if it is an ancestor's. */
struct vb_rs *vb_rs_get_checked(int fd, const char *call);
void vb_rs_put(struct vb_rs *s);
/* Drops the reference of a socket that was made and got no number. */
void vb_rs_discard(struct vb_rs *s);
/* Takes the number from it and drops the table's reference; false: somebody was faster. */
bool vb_rs_withdraw(struct vb_rs *s);
static inline bool vb_rs_is_inherited(const struct vb_rs *s) { return s->generation != vb_host_generation(); }

/* ---- waiting (wait.c) ---- */

struct vb_rs_sleeper {
	struct vb_list node;
	int fd; /* the thread's eventfd */
};

enum { VB_RS_SLEEP_FDS = 2 };

/* The eventfd of this thread. Negative errno. */
int vb_rs_thread_fd(void);
void vb_rs_thread_fd_clear(int fd);
/* Under the lock: wakes all who sleep on s. */
void vb_rs_wake_locked(struct vb_rs *s);
/*
 * Under the lock: gets s ready to be slept on. Returns how many descriptors are readable when there is news,
 * put to fds (-1: none there); or 0: something happened meanwhile, look again.
 */
unsigned vb_rs_sleep_fds_locked(struct vb_rs *s, struct pollfd fds[VB_RS_SLEEP_FDS]);
/* The same; and the sleeper is listed until vb_rs_sleep_end_locked. */
unsigned vb_rs_sleep_begin_locked(struct vb_rs *s, struct vb_rs_sleeper *sleeper,
				  struct pollfd fds[VB_RS_SLEEP_FDS]);
/* news: bits of the descriptors, in their order, that were readable. Under the lock. */
void vb_rs_sleep_news_locked(struct vb_rs *s, unsigned news);
void vb_rs_sleep_end_locked(struct vb_rs *s, struct vb_rs_sleeper *sleeper, unsigned news);
/*
 * Under the lock, which it gives up while it polls and sleeps: until is_ready(s). 0, -EAGAIN at once if
 * !may_block, -EAGAIN after timeout_ns (0: never), -EINTR where a signal ends calls (base/restart.h), and
 * always with a timeout. A thread that is cancelled while it sleeps, which it can be nowhere else, gives up
 * its reference to s and `held`, the reader's or writer's lock (NULL: neither).
 */
int vb_rs_wait_locked(struct vb_rs *s, bool (*is_ready)(struct vb_rs *s), bool may_block, uint64_t timeout_ns,
		      pthread_mutex_t *held);

/* ---- progress ---- */

/*
 * Under the lock: takes completions, sends what is due; a stream's events when it is time. True: something
 * happened.
 */
bool vb_rs_progress_locked(struct vb_rs *s);

/* connect.c: takes events of the id. True: something happened. */
bool vb_rs_connect_progress_locked(struct vb_rs *s);
/* Makes the id of a stream and its channel. 0 or a negative errno. */
int vb_rs_connect_open(struct vb_rs *s);
/* Gives the number of a connection that failed a new id. */
int vb_rs_connect_reopen_locked(struct vb_rs *s);

/* An event that somebody else took, of a connection that has no channel yet. */
void vb_rs_take_event(struct vb_rs *s, const struct rdma_cm_event *event);

/* Closes a socket that has no number, and drops the reference. */
void vb_rs_drop(struct vb_rs *s);
/* Is it as long as its family's? NULL is not. */
bool vb_rs_is_whole_address(const struct sockaddr *addr, socklen_t len);

/* ---- backlogs (backlog.c) ---- */

/*
 * Requests of the listener are taken from now on, up to `length` before raccept; again: another length. 0 or
 * a negative errno.
 */
int vb_rs_backlog_open_locked(struct vb_rs *s, int length);
/* The oldest connection, with a reference; NULL: none. */
struct vb_rs *vb_rs_backlog_take_locked(struct vb_rs *s);
/* A listener listens no more: its peers are refused from now on, and vb_rs_backlog_empty is due. */
void vb_rs_backlog_shut_locked(struct vb_rs *s);
/* Closes all that wait. s is shut, or was no listener. */
void vb_rs_backlog_empty(struct vb_rs *s);
/* The same; and the socket is closed. */
void vb_rs_backlog_close(struct vb_rs *s);

/* ---- sets (set.c) ---- */

/* Under the lock: something happened to s. */
void vb_rs_watchers_wake_locked(struct vb_rs *s);
/* A socket that is closed is in no set. Its number is withdrawn. */
void vb_rs_leave_sets(struct vb_rs *s);
/* 0, or -EBADF: it is no set. */
int vb_rs_set_close(int fd);

/* ---- endpoints (endpoint.c) ---- */

/* QP, CQ and rings for s->id, receives posted, stream initialized. 0 or a negative errno. */
int vb_rs_endpoint_create(struct vb_rs *s);
void vb_rs_endpoint_destroy(struct vb_rs *s);
/* CQ and its channel for an id. */
int vb_rs_cq_create(struct rdma_cm_id *id, unsigned cqes, struct ibv_comp_channel **channel,
		    struct ibv_cq **cq);
/* Takes an event if the channel has one, without waiting. */
bool vb_rs_cq_take_event(struct ibv_comp_channel *channel);
/*
 * Posts what the machine wants. payload: the bytes of an inline write that are the program's, or NULL. 0 or a
 * negative errno.
 */
int vb_rs_post(struct vb_rs *s, const struct vb_rs_write *w, const void *payload);
/* Under the lock. */
bool vb_rs_endpoint_progress_locked(struct vb_rs *s);
/* Posts control messages that are due. True: some were. */
bool vb_rs_flush_locked(struct vb_rs *s);
/* The connection is lost for this reason, a positive errno, unless it has ended already. */
void vb_rs_break_locked(struct vb_rs *s, int err);

/* ---- streams (stream.c) ---- */

/* Bytes of iov, or negative errno. */
ssize_t vb_rs_stream_read(struct vb_rs *s, const struct iovec *iov, int iovcnt, int flags);
ssize_t vb_rs_stream_write(struct vb_rs *s, const struct iovec *iov, int iovcnt, int flags);
/* Sends the entries of the I/O map that the peer does not know yet. Under the writer's lock and the lock. */
int vb_rs_send_mappings_locked(struct vb_rs *s, bool may_block);
/*
 * Before a write of either kind: waits for the connection, and tells the peer of mappings that it has not
 * heard of. No lock held.
 */
int vb_rs_prepare_write(struct vb_rs *s, bool may_block);
bool vb_rs_can_write(struct vb_rs *s);
/* An opening connection is awaited; held: as vb_rs_wait_locked's. Under the lock. 0 or a negative errno. */
int vb_rs_await_connection_locked(struct vb_rs *s, bool may_block, uint64_t timeout_ns,
				  pthread_mutex_t *held);
int vb_rs_write_error(const struct vb_rs *s);
static inline bool vb_rs_may_block(const struct vb_rs *s, int flags)
{
	return !(s->fcntl_flags & O_NONBLOCK) && !(flags & MSG_DONTWAIT);
}
void vb_rs_mappings_free(struct vb_rs *s);

/* revents of a socket, after progress. Under the lock. */
short vb_rs_revents_locked(struct vb_rs *s, short events);

/* ---- keepalive (keepalive.c) ---- */

/* Starts or stops as the options say, if s is connected. Under the lock. */
void vb_rs_keepalive_locked(struct vb_rs *s);
/* Without the lock. */
void vb_rs_keepalive_stop(struct vb_rs *s);

/* ---- datagrams (datagram.c) ---- */

int vb_rs_datagram_open(struct vb_rs *s);
void vb_rs_datagram_close(struct vb_rs *s);
int vb_rs_datagram_bind(struct vb_rs *s, const struct sockaddr *addr, socklen_t len);
int vb_rs_datagram_connect(struct vb_rs *s, const struct sockaddr *addr, socklen_t len);
ssize_t vb_rs_datagram_receive(struct vb_rs *s, const struct iovec *iov, int iovcnt, int flags,
			       struct sockaddr *src, socklen_t *len, int *msg_flags);
ssize_t vb_rs_datagram_send(struct vb_rs *s, const struct iovec *iov, int iovcnt, int flags,
			    const struct sockaddr *dest, socklen_t len);
bool vb_rs_datagram_progress_locked(struct vb_rs *s);
/* As vb_rs_sleep_begin_locked: its one descriptor, after the CQs were armed; false: look again. */
bool vb_rs_datagram_arm_locked(struct vb_rs *s, int *fd);
void vb_rs_datagram_news_locked(struct vb_rs *s);
short vb_rs_datagram_revents_locked(struct vb_rs *s, short events);
/* As shutdown(2); who waits leaves. */
void vb_rs_datagram_shut_locked(struct vb_rs *s, int how);
/* Of the one that waits longest; 0 also: none. */
size_t vb_rs_datagram_next_bytes(struct vb_rs *s);

#endif

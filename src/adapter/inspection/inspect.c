/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Inspection sessions. The progress thread alone uses them; constructors offer the sources. A session's next
 * question is read once the last one is answered. When the command hangs up, the rest of its answer is
 * dropped.
 */
#include "adapter/inspection/inspect.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "adapter/memory/arena.h"
#include "adapter/progress/progress.h"
#include "adapter/progress/qpn.h"
#include "base/log.h"
#include "host/ipc/capture.h"

enum {
	MAX_SESSIONS = 16,
	PIECE_BYTES = 64 << 10,
	/* The recorder is a process of this user, and may lack a processor. If it ends, so does the wait. */
	CALL_TIMEOUT_MS = 30000,
};

struct session {
	struct vb_watch watch;  /* fd -1: the place is free */
	struct vb_timer go_on;
	int memfd;              /* of the answer under way, or -1 */
	uint32_t kinds;         /* still to be described */
	uint64_t cursor, bytes;
	bool captures;
};

static struct session sessions[MAX_SESSIONS];
static _Atomic(vb_dump_source *) sources[VB_RECORD_KINDS];

void vb_inspect_offer(enum vb_record_kind kind, vb_dump_source *source)
{
	atomic_store(&sources[kind], source);
}

void *vb_dump_add(struct vb_dump *dump, enum vb_record_kind kind, size_t bytes)
{
	if (bytes > dump->room - dump->used)
		return NULL;
	struct vb_record *record = (struct vb_record *)(dump->bytes + dump->used);
	memset(record, 0, bytes);
	record->kind = (uint16_t)kind;
	record->bytes = (uint16_t)bytes;
	dump->used += bytes;
	return record;
}

/* ---- one session ---- */

static bool mark_cq(struct vb_registered *registered, void *is_captured)
{
	vb_cq_mark(vb_container_of(registered, struct vb_cq, registered), VB_CQ_CAPTURED,
		   *(bool *)is_captured);
	return true;
}

/* Queues that are made from now on check the host's flag themselves. */
static void mark_all(bool is_captured)
{
	uint64_t cursor = 0;
	for (struct vb_qp *qp; vb_qpn_next(&cursor, &qp);) {
		if (!qp)
			continue;
		atomic_store(&qp->is_captured, is_captured);
		vb_qp_unref(qp);
	}
	cursor = 0;
	vb_registry_look(VB_REGISTRY_CQS, &cursor, mark_cq, &is_captured);
	atomic_store(&vb_arena->captured, is_captured); /* before the translations of peers end */
	vb_arena_next_generation();
}

static void end_capture(struct session *s)
{
	vb_capture_stop();
	mark_all(false);
	s->captures = false;
}

static void close_session(struct session *s)
{
	if (s->captures)
		end_capture(s);
	vb_watch_stop(&s->watch);
	vb_timer_cancel(&s->go_on);
	vb_fd_close(s->memfd);
	vb_fd_close(s->watch.fd);
	s->memfd = s->watch.fd = -1;
}

static void answer(struct session *s, int error)
{
	struct vb_answer a = { .magic = VB_INSPECTION_MAGIC, .error = error, .bytes = s->bytes };
	vb_fd_close(s->memfd);
	s->memfd = -1;
	if (vb_link_send(s->watch.fd, &a, sizeof(a), NULL, 0))
		close_session(s);
}

/* Fills a piece with records of one kind; true once all kinds are done. */
static bool describe_kind(struct session *s, struct vb_dump *dump)
{
	unsigned kind = (unsigned)__builtin_ctz(s->kinds);
	vb_dump_source *source = atomic_load(&sources[kind]);
	if (source && source(dump, &s->cursor))
		return false;
	s->kinds &= s->kinds - 1;
	s->cursor = 0;
	return !s->kinds;
}

static void describe(struct session *s, uint64_t now_ns)
{
	static _Alignas(uint64_t) uint8_t piece[PIECE_BYTES];
	struct vb_dump dump = { .bytes = piece, .room = sizeof(piece) };
	bool done = describe_kind(s, &dump);
	int err = dump.used > VB_STATE_MAX_BYTES - s->bytes ? -EFBIG : 0;
	if (!err && dump.used)
		err = vb_inspection_write(s->memfd, piece, dump.used);
	if (!err)
		s->bytes += dump.used;
	if (err || done)
		answer(s, err);
	else
		vb_timer_set(&s->go_on, now_ns);
}

static void go_on(struct vb_timer *timer, uint64_t now_ns) { describe(timer->arg, now_ns); }

static void begin_describing(struct session *s, uint32_t kinds)
{
	s->kinds = kinds & ((1u << VB_RECORD_KINDS) - 1);
	s->bytes = s->cursor = 0;
	if (s->kinds)
		describe(s, vb_now_ns());
	else
		answer(s, 0);
}

static void begin_capture(struct session *s, const struct vb_question *q)
{
	int err = vb_capture_start(s->memfd, &q->filter, q->kinds & VB_ASK_EVENTS);
	s->captures = !err;
	if (!err)
		mark_all(true);
	s->bytes = 0;
	answer(s, err);
}

/* Anything else ends the session. A session captures once. */
static bool is_question(const struct session *s, const struct vb_question *q, ssize_t bytes)
{
	if (bytes != sizeof(*q) || q->magic != VB_INSPECTION_MAGIC || s->memfd >= 0)
		return false;
	return q->what == VB_ASK_STATE || (q->what == VB_ASK_CAPTURE && !s->captures);
}

static void question_arrived(struct vb_watch *watch, uint32_t epoll_events)
{
	struct session *s = watch->arg;
	struct vb_question q;
	int fds[VB_LINK_MAX_FDS], n = 0;
	ssize_t bytes = vb_link_recv(watch->fd, &q, sizeof(q), fds, &n);
	if (bytes == -EAGAIN)
		return;
	for (int i = 1; i < n; i++)
		vb_fd_close(fds[i]);
	if (!n || !is_question(s, &q, bytes)) {
		if (n)
			vb_fd_close(fds[0]);
		close_session(s);
		return;
	}
	s->memfd = fds[0];
	if (q.what == VB_ASK_CAPTURE)
		begin_capture(s, &q);
	else
		begin_describing(s, q.kinds);
}

/* ---- coming and going ---- */

static struct session *find_place(void)
{
	for (unsigned i = 0; i < MAX_SESSIONS; i++)
		if (sessions[i].watch.fd < 0)
			return &sessions[i];
	return NULL;
}

/* NULL: there are too many. */
static struct session *open_session(int fd)
{
	struct session *s = find_place();
	if (!s) {
		vb_fd_close(fd);
		return NULL;
	}
	*s = (struct session){ .watch = { .fd = fd, .ready = question_arrived, .arg = s },
			       .go_on = { .fire = go_on, .arg = s },
			       .memfd = -1 };
	if (!vb_watch_start(&s->watch, EPOLLIN))
		return s;
	close_session(s);
	return NULL;
}

static void accept_session(int fd, const struct vb_peer_cred *cred) { open_session(fd); }

/* In the progress thread, before the program goes on: so all that it does is captured. */
static void call(void *arg)
{
	const char *name = arg;
	int fd, err = vb_inspection_call(name, CALL_TIMEOUT_MS, &fd);
	if (err) {
		vb_explain("capture",
			   "nobody captures at the socket '%s' that " VB_CAPTURE_VARIABLE " names: error %d",
			   name, -err);
		return;
	}
	struct session *s = open_session(fd);
	if (s)
		question_arrived(&s->watch, EPOLLIN);
}

static atomic_bool has_called;

void vb_inspect_start(void)
{
	const char *name = getenv(VB_CAPTURE_VARIABLE);
	if (vb_unlikely(!atomic_load(&has_called)) && !atomic_exchange(&has_called, true) && name && *name)
		vb_loop_call(call, (void *)(uintptr_t)name);
}

/* Sessions are the parent's. */
static void forget(void)
{
	atomic_store(&has_called, false);
	for (unsigned i = 0; i < MAX_SESSIONS; i++)
		sessions[i] = (struct session){ .watch.fd = -1, .memfd = -1 };
}

__attribute__((constructor)) static void offer(void)
{
	forget();
	vb_host_at_fork(forget);
	vb_inspection_set_acceptor(accept_session);
}

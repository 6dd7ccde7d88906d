/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Visitors. All is the progress thread's alone, but for the sources, which constructors offer. A visitor that
 * asks has its answer before its next question is read; one that goes takes its answer's rest with it.
 */
#include "adapter/inspection/inspect.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "adapter/memory/arena.h"
#include "adapter/progress/progress.h"
#include "base/log.h"
#include "host/ipc/capture.h"

enum { MAX_VISITORS = 16, PIECE_BYTES = 64 << 10, CALL_PATIENCE_MS = 1000 };

struct visitor {
	struct vb_watch watch;  /* fd -1: the place is free */
	struct vb_timer go_on;
	int memfd;              /* of the answer under way, or -1 */
	uint32_t kinds;         /* not told yet */
	uint64_t cursor, bytes;
	bool captures;
};

static struct visitor visitors[MAX_VISITORS];
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

/* ---- one visitor ---- */

/* Those that are made from now on look at the flag themselves. */
static void show_all(bool is_shown)
{
	uint64_t cursor = 0;
	for (struct vb_qp *qp; vb_qpn_next(&cursor, &qp);) {
		if (!qp)
			continue;
		atomic_store(&qp->is_shown, is_shown);
		vb_qp_unref(qp);
	}
	vb_arena_next_generation();
}

static void end_capture(struct visitor *v)
{
	vb_capture_stop();
	show_all(false);
	v->captures = false;
}

static void leave(struct visitor *v)
{
	if (v->captures)
		end_capture(v);
	vb_watch_stop(&v->watch);
	vb_timer_cancel(&v->go_on);
	vb_fd_close(v->memfd);
	vb_fd_close(v->watch.fd);
	v->memfd = v->watch.fd = -1;
}

static void answer(struct visitor *v, int error)
{
	struct vb_answer a = { .magic = VB_INSPECTION_MAGIC, .error = error, .bytes = v->bytes };
	vb_fd_close(v->memfd);
	v->memfd = -1;
	if (vb_link_send(v->watch.fd, &a, sizeof(a), NULL, 0))
		leave(v);
}

/* Fills a piece with records of one kind; true once all have been told. */
static bool tell_kind(struct visitor *v, struct vb_dump *dump)
{
	unsigned kind = (unsigned)__builtin_ctz(v->kinds);
	vb_dump_source *source = atomic_load(&sources[kind]);
	if (source && source(dump, &v->cursor))
		return false;
	v->kinds &= v->kinds - 1;
	v->cursor = 0;
	return !v->kinds;
}

static void tell(struct visitor *v, uint64_t now_ns)
{
	static _Alignas(uint64_t) uint8_t piece[PIECE_BYTES];
	struct vb_dump dump = { .bytes = piece, .room = sizeof(piece) };
	bool done = tell_kind(v, &dump);
	int err = dump.used > VB_STATE_MAX_BYTES - v->bytes ? -EFBIG : 0;
	if (!err && dump.used)
		err = vb_inspection_write(v->memfd, piece, dump.used);
	if (!err)
		v->bytes += dump.used;
	if (err || done)
		answer(v, err);
	else
		vb_timer_set(&v->go_on, now_ns);
}

static void go_on(struct vb_timer *timer, uint64_t now_ns) { tell(timer->arg, now_ns); }

static void begin_telling(struct visitor *v, uint32_t kinds)
{
	v->kinds = kinds & ((1u << VB_RECORD_KINDS) - 1);
	v->bytes = v->cursor = 0;
	if (v->kinds)
		tell(v, vb_now_ns());
	else
		answer(v, 0);
}

static void begin_capture(struct visitor *v, const struct vb_capture_filter *filter)
{
	int err = vb_capture_start(v->memfd, filter);
	v->captures = !err;
	if (!err)
		show_all(true);
	v->bytes = 0;
	answer(v, err);
}

/* Questions that are none end the visit. A visitor captures once. */
static bool is_question(const struct visitor *v, const struct vb_question *q, ssize_t bytes)
{
	if (bytes != sizeof(*q) || q->magic != VB_INSPECTION_MAGIC || v->memfd >= 0)
		return false;
	return q->what == VB_ASK_STATE || (q->what == VB_ASK_CAPTURE && !v->captures);
}

static void heard(struct vb_watch *watch, uint32_t epoll_events)
{
	struct visitor *v = watch->arg;
	struct vb_question q;
	int fds[VB_LINK_MAX_FDS], n = 0;
	ssize_t bytes = vb_link_recv(watch->fd, &q, sizeof(q), fds, &n);
	if (bytes == -EAGAIN)
		return;
	for (int i = 1; i < n; i++)
		vb_fd_close(fds[i]);
	if (!n || !is_question(v, &q, bytes)) {
		if (n)
			vb_fd_close(fds[0]);
		leave(v);
		return;
	}
	v->memfd = fds[0];
	if (q.what == VB_ASK_CAPTURE)
		begin_capture(v, &q.filter);
	else
		begin_telling(v, q.kinds);
}

/* ---- coming and going ---- */

static struct visitor *find_place(void)
{
	for (unsigned i = 0; i < MAX_VISITORS; i++)
		if (visitors[i].watch.fd < 0)
			return &visitors[i];
	return NULL;
}

/* NULL: there are too many. */
static struct visitor *came(int fd)
{
	struct visitor *v = find_place();
	if (!v) {
		vb_fd_close(fd);
		return NULL;
	}
	*v = (struct visitor){ .watch = { .fd = fd, .ready = heard, .arg = v },
			       .go_on = { .fire = go_on, .arg = v },
			       .memfd = -1 };
	if (!vb_watch_start(&v->watch, EPOLLIN))
		return v;
	leave(v);
	return NULL;
}

static void visited(int fd, const struct vb_peer_cred *cred) { came(fd); }

/* In the progress thread, before the program goes on: so all that it does is captured. */
static void call(void *arg)
{
	const char *name = arg;
	int fd, err = vb_inspection_call(name, CALL_PATIENCE_MS, &fd);
	if (err) {
		vb_explain("capture",
			   "nobody captures at the socket '%s' that " VB_CAPTURE_VARIABLE " names: error %d",
			   name, -err);
		return;
	}
	struct visitor *v = came(fd);
	if (v)
		heard(&v->watch, EPOLLIN);
}

static atomic_bool has_called;

void vb_inspect_start(void)
{
	const char *name = getenv(VB_CAPTURE_VARIABLE);
	if (vb_unlikely(!atomic_load(&has_called)) && !atomic_exchange(&has_called, true) && name && *name)
		vb_loop_call(call, (void *)(uintptr_t)name);
}

/* A child's parent was visited. */
static void forget(void)
{
	atomic_store(&has_called, false);
	for (unsigned i = 0; i < MAX_VISITORS; i++)
		visitors[i] = (struct visitor){ .watch.fd = -1, .memfd = -1 };
}

__attribute__((constructor)) static void offer(void)
{
	forget();
	vb_host_at_fork(forget);
	vb_inspection_set_acceptor(visited);
}

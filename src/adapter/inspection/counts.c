/* SPDX-License-Identifier: BSD-2-Clause */
#include "adapter/inspection/counts.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/device/device.h"
#include "adapter/progress/path.h"
#include "adapter/progress/qpn.h"
#include "base/log.h"

/* Held while a queue pair's counts move, so that a sum has them once. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- one queue pair ---- */

/* Both are out of line, so that a race detector can be told of them alone. */
__attribute__((noinline)) uint64_t vb_count_read(const uint64_t *count)
{
	return __atomic_load_n(count, __ATOMIC_RELAXED);
}

__attribute__((noinline)) uint32_t vb_position_read(const uint32_t *position)
{
	return __atomic_load_n(position, __ATOMIC_ACQUIRE);
}

static void add(struct vb_counts *to, const struct vb_counts *from)
{
#define X(name, what) to->name += vb_count_read(&from->name);
	VB_COUNTS(X)
#undef X
}

static void add_past(struct vb_counts *to, const struct vb_past *from)
{
#define X(name, what) to->name += from->name;
	VB_OTHER_COUNTS(X)
#undef X
}

static void keep_others(struct vb_past *to, const struct vb_counts *from)
{
#define X(name, what) to->name += from->name;
	VB_OTHER_COUNTS(X)
#undef X
}

static void subtract(struct vb_counts *from, const struct vb_counts *what)
{
#define X(name, text) from->name -= what->name;
	VB_COUNTS(X)
#undef X
}

static void count_locked(struct vb_qp *qp, struct vb_counts *c)
{
	const struct vb_path_ops *path = atomic_load(&qp->path);
	const struct vb_traffic *done = qp->done;
	*c = (struct vb_counts){
		.sends = vb_count_read(&done[VB_TRAFFIC_SEND].requests),
		.send_bytes = vb_count_read(&done[VB_TRAFFIC_SEND].bytes),
		.writes = vb_count_read(&done[VB_TRAFFIC_WRITE].requests),
		.write_bytes = vb_count_read(&done[VB_TRAFFIC_WRITE].bytes),
		.reads = vb_count_read(&done[VB_TRAFFIC_READ].requests),
		.read_bytes = vb_count_read(&done[VB_TRAFFIC_READ].bytes),
		.atomics = vb_count_read(&done[VB_TRAFFIC_ATOMIC].requests),
		.atomic_bytes = vb_count_read(&done[VB_TRAFFIC_ATOMIC].bytes),
		.flushes = vb_count_read(&done[VB_TRAFFIC_FLUSH].requests),
		.receives = vb_count_read(&qp->received.requests),
		.receive_bytes = vb_count_read(&qp->received.bytes),
		.failed = vb_count_read(&qp->failed),
	};
	if (qp->past)
		add_past(c, qp->past);
	if (path && path->count)
		path->count(qp, c);
}

/* ---- ports ---- */

enum { MOST_PORTS = 256 }; /* others are not counted */

static struct port {
	char device[sizeof(((struct vb_device *)0)->name)];
	struct vb_counts gone; /* what queue pairs that are gone have counted */
} ports[MOST_PORTS];
static atomic_uint nports;

static struct port *port_locked(const char *device)
{
	unsigned n = atomic_load(&nports);
	for (unsigned i = 0; i < n; i++)
		if (!strcmp(ports[i].device, device))
			return &ports[i];
	if (n == MOST_PORTS)
		return NULL;
	strcpy(ports[n].device, device);
	atomic_store(&nports, n + 1);
	return &ports[n];
}

static void give_to_port_locked(const struct vb_qp *qp, const struct vb_counts *counts)
{
	struct port *p = port_locked(qp->ctx->device->name);
	if (p)
		add(&p->gone, counts);
}

static void add_living_locked(const char *device, struct vb_counts *sum)
{
	struct vb_counts counts;
	struct vb_qp *qp;
	uint64_t cursor = 0;
	while (vb_qpn_next(&cursor, &qp)) {
		if (!qp)
			continue;
		if (!strcmp(qp->ctx->device->name, device)) {
			count_locked(qp, &counts);
			add(sum, &counts);
		}
		vb_qp_unref(qp);
	}
}

bool vb_ports_look(uint64_t *cursor, vb_port_look *look, void *arg)
{
	for (; *cursor < atomic_load(&nports); ++*cursor) {
		struct port *p = &ports[*cursor];
		pthread_mutex_lock(&lock);
		struct vb_counts sum = p->gone;
		add_living_locked(p->device, &sum);
		pthread_mutex_unlock(&lock);
		if (!look(p->device, &sum, arg))
			return true;
	}
	return false;
}

/* ---- a queue pair's life ---- */

void vb_qp_count(struct vb_qp *qp, struct vb_counts *c)
{
	pthread_mutex_lock(&lock);
	count_locked(qp, c);
	pthread_mutex_unlock(&lock);
}

void vb_qp_count_begin(const struct vb_qp *qp)
{
	pthread_mutex_lock(&lock);
	port_locked(qp->ctx->device->name);
	pthread_mutex_unlock(&lock);
}

struct vb_traffic vb_qp_done_on_path(const struct vb_qp *qp, enum vb_traffic_kind kind)
{
	struct vb_traffic before = qp->past ? qp->past->done[kind] : (struct vb_traffic){ 0 };
	return (struct vb_traffic){
		.requests = vb_count_read(&qp->done[kind].requests) - before.requests,
		.bytes = vb_count_read(&qp->done[kind].bytes) - before.bytes,
	};
}

int vb_qp_count_prepare(struct vb_qp *qp)
{
	if (qp->past || !atomic_load(&qp->path))
		return 0;
	struct vb_past *past = calloc(1, sizeof(*past));
	pthread_mutex_lock(&lock);
	qp->past = past;
	pthread_mutex_unlock(&lock);
	return past ? 0 : -ENOMEM;
}

void vb_qp_count_leave(struct vb_qp *qp, const struct vb_path_ops *path)
{
	struct vb_counts left = { 0 };
	if (!path)
		return;
	pthread_mutex_lock(&lock);
	if (path->count)
		path->count(qp, &left);
	keep_others(qp->past, &left);
	memcpy(qp->past->done, qp->done, sizeof(qp->past->done));
	atomic_store(&qp->path, NULL);
	pthread_mutex_unlock(&lock);
}

void vb_qp_count_drop(struct vb_qp *qp, struct vb_count_end *end)
{
	pthread_mutex_lock(&lock);
	count_locked(qp, &end->before);
	give_to_port_locked(qp, &end->before);
	vb_qpn_drop(qp);
	end->past = qp->past ? *qp->past : (struct vb_past){ 0 };
	free(qp->past);
	qp->past = &end->past;
	pthread_mutex_unlock(&lock);
}

void vb_qp_count_end(struct vb_qp *qp, struct vb_count_end *end)
{
	struct vb_counts since;
	pthread_mutex_lock(&lock);
	count_locked(qp, &since);
	subtract(&since, &end->before);
	give_to_port_locked(qp, &since);
	qp->past = NULL;
	pthread_mutex_unlock(&lock);
}

/* ---- packets that are dropped ---- */

static _Atomic(uint64_t) drops[VB_DROP_REASONS];

void vb_drop(enum vb_drop why) { atomic_fetch_add_explicit(&drops[why], 1, memory_order_relaxed); }

bool vb_drop_is_news(struct vb_qp *qp, enum vb_drop why)
{
	return vb_is_explaining() && !(atomic_fetch_or(&qp->drops_told, 1u << why) & 1u << why);
}

void vb_drops_read(uint64_t to[VB_DROP_REASONS])
{
	for (unsigned i = 0; i < VB_DROP_REASONS; i++)
		to[i] = atomic_load_explicit(&drops[i], memory_order_relaxed);
}

/* A forked child has done nothing yet. */
static void forget(void)
{
	pthread_mutex_init(&lock, NULL);
	memset(ports, 0, sizeof(ports));
	atomic_store(&nports, 0);
	for (unsigned i = 0; i < VB_DROP_REASONS; i++)
		atomic_store(&drops[i], 0);
}

__attribute__((constructor)) static void begin(void) { vb_host_at_fork(forget); }

/* SPDX-License-Identifier: BSD-2-Clause */
/* Records of the adapter's objects. */
#include <string.h>
#include <unistd.h>

#include "adapter/memory/arena.h"
#include "adapter/device/device.h"
#include "adapter/inspection/counts.h"
#include "adapter/inspection/inspect.h"
#include "adapter/memory/key.h"
#include "adapter/progress/path.h"
#include "adapter/progress/progress.h"
#include "adapter/inspection/registry.h"
#include "adapter/progress/qpn.h"
#include "host/ipc/capture.h"
#include "host/udp/udp.h"

enum { KEYS_AT_ONCE = 16384, LOCK_TRIES = 1000 };

static bool describe_process(struct vb_dump *dump, uint64_t *cursor)
{
	struct vb_record_process *r = vb_dump_add(dump, VB_RECORD_PROCESS, sizeof(*r));
	struct vb_udp_counts udp;
	bool has_arena = vb_arena_is_made();
	if (!r)
		return true;
	vb_udp_count(&udp);
	r->pid = getpid();
	VB_RECORD_NAME(r->version, VB_VERSION);
	r->slots[0] = vb_slot_first();
	for (unsigned i = 0; has_arena && i < VB_ARRAY_LEN(r->slots); i++)
		r->slots[i] = atomic_load(&vb_arena->slots[i]);
	r->local_off = vb_local_is_off();
	r->polled = vb_progress_is_polled();
	r->packets_in = udp.packets_in;
	r->packets_out = udp.packets_out;
	r->congested = udp.congested;
	r->send_failures = udp.send_failures;
	r->arena_bytes = vb_arena_in_use();
	r->polls = vb_progress_polls();
	r->capturing = vb_capture_is_on();
	vb_capture_count(&r->captured, &r->dropped);
	r->sleeps = vb_loop_sleeps();
	r->asleep_ns = vb_loop_asleep_ns();
	vb_drops_read(r->drops);
	return false;
}

/* ---- devices ---- */

static bool describe_context(struct vb_registered *registered, void *arg)
{
	struct vb_device *dev = vb_container_of(registered, struct vb_context, registered)->device;
	struct vb_record_device *r = vb_dump_add(arg, VB_RECORD_DEVICE, sizeof(*r));
	if (!r)
		return false;
	r->serial = registered->serial;
	VB_RECORD_NAME(r->name, dev->name);
	VB_RECORD_NAME(r->interface, dev->ifname);
	r->guid = dev->guid;
	pthread_mutex_lock(&dev->lock);
	r->port_state = dev->port_state;
	r->active_mtu = vb_mtu_bytes(dev->active_mtu);
	r->gids = dev->gids;
	memcpy(r->gid, dev->gid, sizeof(r->gid));
	pthread_mutex_unlock(&dev->lock);
	return true;
}

static bool describe_devices(struct vb_dump *dump, uint64_t *cursor)
{
	return vb_registry_look(VB_REGISTRY_CONTEXTS, cursor, describe_context, dump);
}

static bool describe_port(const char *device, const struct vb_counts *counts, void *arg)
{
	struct vb_record_port *r = vb_dump_add(arg, VB_RECORD_PORT, sizeof(*r));
	if (!r)
		return false;
	VB_RECORD_NAME(r->device, device);
	r->counts = *counts;
	return true;
}

static bool describe_ports(struct vb_dump *dump, uint64_t *cursor)
{
	return vb_ports_look(cursor, describe_port, dump);
}

/* ---- protection domains ---- */

static bool describe_pd(struct vb_registered *registered, void *arg)
{
	struct vb_pd *pd = vb_container_of(registered, struct vb_pd, registered);
	struct vb_record_pd *r = vb_dump_add(arg, VB_RECORD_PD, sizeof(*r));
	if (!r)
		return false;
	r->serial = registered->serial;
	VB_RECORD_NAME(r->device, pd->ctx->device->name);
	r->context = pd->ctx->registered.serial;
	r->number = pd->number;
	r->users = atomic_load(&pd->refs);
	return true;
}

static bool describe_pds(struct vb_dump *dump, uint64_t *cursor)
{
	return vb_registry_look(VB_REGISTRY_PDS, cursor, describe_pd, dump);
}

/* ---- queues ---- */

/* Gives up soon: the thread that holds it may be waiting for this one. */
static bool try_hard(struct vb_lock *lock)
{
	for (unsigned i = 0; i < LOCK_TRIES; i++, vb_pause())
		if (vb_lock_try(lock))
			return true;
	return false;
}

static bool describe_cq(struct vb_registered *registered, void *arg)
{
	struct vb_cq *cq = vb_container_of(registered, struct vb_cq, registered);
	struct vb_record_cq *r = vb_dump_add(arg, VB_RECORD_CQ, sizeof(*r));
	if (!r)
		return false;
	r->serial = registered->serial;
	VB_RECORD_NAME(r->device, cq->ctx->device->name);
	r->busy = !try_hard(&cq->lock);
	if (!r->busy) {
		r->capacity = cq->capacity;
		r->waiting = cq->tail - cq->head;
		r->produced = cq->tail;
		r->armed = cq->armed;
		vb_unlock(&cq->lock);
	}
	r->overrun = vb_cq_is(cq, VB_CQ_OVERRUN);
	r->users = atomic_load(&cq->refs);
	r->has_channel = cq->channel != NULL;
	r->context = cq->ctx->registered.serial;
	return true;
}

static bool describe_cqs(struct vb_dump *dump, uint64_t *cursor)
{
	return vb_registry_look(VB_REGISTRY_CQS, cursor, describe_cq, dump);
}

static bool describe_srq(struct vb_registered *registered, void *arg)
{
	struct vb_srq *srq = vb_container_of(registered, struct vb_srq, registered);
	struct vb_record_srq *r = vb_dump_add(arg, VB_RECORD_SRQ, sizeof(*r));
	if (!r)
		return false;
	r->serial = registered->serial;
	VB_RECORD_NAME(r->device, srq->ctx->device->name);
	r->busy = !try_hard(&srq->rq.lock);
	if (!r->busy) {
		r->max_wr = srq->rq.max_wr;
		r->max_sge = srq->rq.max_sge;
		r->limit = srq->limit;
		r->posted = srq->rq.tail;
		r->taken = srq->rq.head;
		vb_unlock(&srq->rq.lock);
	}
	r->waiting = r->posted - r->taken;
	r->pd = srq->pd->number;
	r->number = srq->number;
	r->users = atomic_load(&srq->refs);
	return true;
}

static bool describe_srqs(struct vb_dump *dump, uint64_t *cursor)
{
	return vb_registry_look(VB_REGISTRY_SRQS, cursor, describe_srq, dump);
}

/* ---- queue pairs ---- */

/* What ibv_modify_qp sets. A thread that changes the QP may be waiting for this look to end: so try only. */
static void describe_attributes(struct vb_qp *qp, struct vb_record_qp *r)
{
	if (pthread_mutex_trylock(&qp->ctl)) {
		r->busy = 1;
		return;
	}
	bool connected = r->state != IBV_QPS_RESET && r->state != IBV_QPS_INIT;
	const struct ibv_qp_attr *a = &qp->attr;
	r->port = a->port_num;
	r->access = a->qp_access_flags;
	r->peer_qpn = a->dest_qp_num;
	r->mtu = a->path_mtu ? vb_mtu_bytes(a->path_mtu) : 0;
	r->sq_psn = a->sq_psn;
	r->rq_psn = a->rq_psn;
	if (connected && a->dest_qp_num) {
		memcpy(r->peer_gid, &a->ah_attr.grh.dgid, sizeof(r->peer_gid));
		memcpy(r->gid, &qp->sgid, sizeof(r->gid));
	}
	pthread_mutex_unlock(&qp->ctl);
}

static void describe_queues(struct vb_qp *qp, struct vb_record_qp *r)
{
	/* Positions without the locks, as other counts: so what is behind is read first. */
	r->completed = vb_position_read(&qp->sq.head);
	r->posted = vb_position_read(&qp->sq.tail);
	r->recv_taken = atomic_load(&qp->rq.head);
	r->recv_posted = atomic_load(&qp->rq.tail);
	r->max_send = qp->attr.cap.max_send_wr;
	r->max_recv = qp->attr.cap.max_recv_wr;
}

/* The path and its state stay while somebody refers to the QP. */
static void describe_path(struct vb_qp *qp, struct vb_record_qp *r)
{
	const struct vb_path_ops *path = atomic_load(&qp->path);
	if (!path)
		return;
	VB_RECORD_NAME(r->path, path->name);
	if (path->describe)
		path->describe(qp, r);
}

static void describe_qp(struct vb_qp *qp, struct vb_record_qp *r)
{
	r->qpn = qp->qpn;
	r->type = qp->type;
	r->state = atomic_load(&qp->state);
	r->pd = qp->pd ? qp->pd->number : 0;
	VB_RECORD_NAME(r->device, qp->ctx->device->name);
	r->send_cq = qp->send_cq ? qp->send_cq->registered.serial : 0;
	r->recv_cq = qp->recv_cq ? qp->recv_cq->registered.serial : 0;
	r->srq = qp->srq && !qp->xrcd ? qp->srq->registered.serial : 0;
	describe_attributes(qp, r);
	describe_queues(qp, r);
	describe_path(qp, r);
	vb_qp_count(qp, &r->counts);
}

static bool describe_qps(struct vb_dump *dump, uint64_t *cursor)
{
	while (dump->room - dump->used >= sizeof(struct vb_record_qp)) {
		struct vb_qp *qp;
		if (!vb_qpn_next(cursor, &qp))
			return false;
		if (!qp)
			return true;
		describe_qp(qp, vb_dump_add(dump, VB_RECORD_QP, sizeof(struct vb_record_qp)));
		vb_qp_unref(qp);
	}
	return true;
}

/* ---- memory ---- */

static uint32_t mapped_state(uint64_t segment)
{
	return segment == VB_KEY_NO_SEGMENT ? VB_MR_NO_PAGES : segment ? VB_MR_MAPPED : VB_MR_MAY_BE_MAPPED;
}

static void describe_key(const struct vb_key *k, uint32_t key, struct vb_record_mr *r)
{
	r->key = key;
	r->pd = atomic_load(&k->pd);
	r->access = atomic_load(&k->access) & ~(uint32_t)(VB_KEY_LOCAL | VB_KEY_NULL);
	r->null = (atomic_load(&k->access) & VB_KEY_NULL) != 0;
	r->window = atomic_load(&k->window);
	r->of = atomic_load(&k->region);
	r->qpn = atomic_load(&k->qpn);
	r->mapped = mapped_state(atomic_load(&k->segment));
	r->address = atomic_load(&k->va);
	r->iova = atomic_load(&k->iova);
	r->length = atomic_load(&k->length);
}

static bool describe_keys(struct vb_dump *dump, uint64_t *cursor)
{
	uint32_t end = vb_arena_is_made() ? vb_key_end() : 0;
	for (unsigned seen = 0; ++*cursor < end; seen++) {
		const struct vb_key *k = vb_key_nth((uint32_t)*cursor);
		uint32_t key = atomic_load(&k->key);
		struct vb_record_mr *r = key ? vb_dump_add(dump, VB_RECORD_MR, sizeof(*r)) : NULL;
		if (r)
			describe_key(k, key, r);
		if (seen == KEYS_AT_ONCE || (key && !r))
			return *cursor -= key && !r, true;
	}
	return false;
}

__attribute__((constructor)) static void offer(void)
{
	vb_inspect_offer(VB_RECORD_PROCESS, describe_process);
	vb_inspect_offer(VB_RECORD_DEVICE, describe_devices);
	vb_inspect_offer(VB_RECORD_PORT, describe_ports);
	vb_inspect_offer(VB_RECORD_QP, describe_qps);
	vb_inspect_offer(VB_RECORD_PD, describe_pds);
	vb_inspect_offer(VB_RECORD_CQ, describe_cqs);
	vb_inspect_offer(VB_RECORD_SRQ, describe_srqs);
	vb_inspect_offer(VB_RECORD_MR, describe_keys);
}

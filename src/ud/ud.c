/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The path of UD queue pairs: each send is one datagram in the format of the wire. To a QP of this host it
 * goes through shared memory (local/ud_ring.h) or, where there is none, to the inbox of the slot that the
 * destination QP number names (host/host.h), unless VERBATIM_LOCAL is off; to others, and to groups, through
 * the RoCE port. Each QP is like a network port: it checks what arrives, and drops silently what finds no QP,
 * another Q_Key, no receive, or a receive that is too short.
 *
 * Unlike a wire, a process of this host can have no room, or no link yet. A QP then holds its sends back and
 * tries again. After FIRST_LOOK_NS the progress thread looks at the receiver's process. The QP waits for one
 * that lacks a processor. For one that is stopped it does not: it drops what finds no room until a datagram
 * is taken again, so a stopped process delays the others only briefly.
 *
 * Locks: sends are done under sq.lock by whoever posts or polls, receives under resp_lock by whoever takes
 * packets.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/device/device.h"
#include "adapter/inspection/counts.h"
#include "adapter/memory/arena.h"
#include "adapter/memory/hold.h"
#include "adapter/memory/ranges.h"
#include "adapter/progress/path.h"
#include "adapter/queues/queue.h"
#include "base/inet.h"
#include "base/log.h"
#include "base/nanoseconds.h"
#include "host/ipc/capture.h"
#include "local/ud_ring.h"
#include "proto/ud.h"
#include "roce/burst.h"
#include "roce/qp_route.h"

enum {
	RETRY_NS = 30000,        /* between two tries where there was no room; later LOOK_NS */
	FIRST_LOOK_NS = 500 * VB_NS_PER_MS, /* from then to the first look at the receiver's process, */
	LOOK_NS = 10 * VB_NS_PER_MS, /* and between two */
	SLICE_DATAGRAMS = 256,   /* sent in one go, so that no lock is held for long */
	EXTRA_IOV = 2,           /* headers, padding */
};

struct datagrams {
	struct vb_qp *qp;
	uint32_t mtu;            /* bytes */
	/* There was no room at any try since then; 0: not stuck. Written under sq.lock, as what follows. */
	_Atomic(uint64_t) stuck_since_ns;
	atomic_uint stuck_slot;  /* that had none at first */
	atomic_bool blocked;     /* the oldest send waits for `retry` */
	struct vb_timer retry, look;
	/* Of the looks at the receiver, and the stuck_since_ns that they are for. */
	struct vb_process_wait patience;
	uint64_t looks_since_ns;
	_Atomic(uint64_t) given_up_since_ns; /* the stuck_since_ns that nobody waits for any more */
	/* Where the last datagram over the wire went, and the burst that it waits in; under sq.lock. */
	struct vb_roce_route route;
	struct vb_burst *burst;  /* NULL: none is taken */
	struct vb_traffic shared; /* datagrams to processes of this host; under sq.lock */
};

static struct datagrams *of(const struct vb_qp *qp) { return qp->path_state; }

/* ---- sending: sq.lock is held ---- */

/* Of the oldest send. It fails with a status and why, or it is complete. */
struct outcome {
	enum ibv_wc_status status;
	const char *why;
	bool full;               /* neither: there is no room, try again */
};

static const struct outcome done = { IBV_WC_SUCCESS, NULL, false };

static struct outcome failed(enum ibv_wc_status status, const char *why)
{
	return (struct outcome){ status, why, false };
}

static struct vb_inbox_addr address_of(const struct vb_datagram_to *to)
{
	return (struct vb_inbox_addr){
		.src = to->src,
		.dst = to->dst,
		.flow_label = to->flow_label,
		.udp_sport = VB_ROCE_PORT,
		.traffic_class = to->traffic_class,
		.hop_limit = to->hop_limit ? to->hop_limit : VB_HOP_LIMIT,
	};
}

/* A gather list of more pieces than an inbox takes, or of memory that may not be there, becomes one piece. */
static int join(struct vb_ranges *data, uint8_t joined[VB_UD_PAYLOAD_BYTES])
{
	struct vb_ranges to = { .count = 1, .bytes = data->bytes, .iov = { { joined, data->bytes } } };
	int err = vb_ranges_copy(&to, data);
	*data = to;
	return err;
}

static size_t build_header(struct vb_qp *qp, const struct vb_sqe *sqe, const struct vb_datagram_to *to,
			   uint8_t header[VB_UD_HEADER_BYTES], unsigned *pad)
{
	struct vb_ud_send send = {
		.destination_qpn = to->qpn,
		.source_qpn = qp->qpn,
		.psn = qp->attr.sq_psn + qp->sq.sent,
		.qkey = to->qkey,
		.imm = sqe->imm,
		.payload_bytes = sqe->length,
		.has_imm = sqe->opcode == IBV_WR_SEND_WITH_IMM,
		.solicited = sqe->flags & IBV_SEND_SOLICITED,
	};
	return vb_ud_build(header, &send, pad);
}

/* The oldest send is done: its data are copied, or dropped. */
static void complete(struct vb_qp *qp)
{
	qp->sq.sent++;
	vb_sq_complete(qp);
}

static void count_shared(struct vb_qp *qp, uint32_t bytes)
{
	vb_traffic_add(&of(qp)->shared, bytes);
}

static int put_on_host(struct vb_qp *qp, const struct vb_sqe *sqe, const struct vb_datagram_to *to,
		       struct vb_ranges *data)
{
	static const uint8_t zeros[4];
	uint8_t header[VB_UD_HEADER_BYTES], joined[VB_UD_PAYLOAD_BYTES];
	struct iovec iov[VB_INBOX_MAX_IOV];
	unsigned pad, n = 0;
	uint32_t slot = to->qpn >> VB_SLOT_SHIFT;
	struct vb_inbox_addr addr = address_of(to);
	int err = data->on_demand || data->count > VB_INBOX_MAX_IOV - EXTRA_IOV ? join(data, joined) : 0;
	if (err)
		return err;
	iov[n++] = (struct iovec){ header, build_header(qp, sqe, to, header, &pad) };
	for (unsigned i = 0; i < data->count; i++)
		iov[n++] = data->iov[i];
	iov[n++] = (struct iovec){ (void *)zeros, pad };
	struct vb_capture_moment moment = vb_capture_begin();
	err = vb_ud_ring_write(slot, &addr, iov, (int)n);
	bool is_in_ring = !err;
	if (err == -ENOTCONN)
		err = vb_inbox_send_from(qp->qpn >> VB_SLOT_SHIFT, slot, &addr, iov, (int)n);
	if (!err && moment.time_ns)
		vb_capture_packet(&(struct vb_capture_note){ .addr = &addr,
							     .time_ns = moment.time_ns,
							     .flags = VB_CAPTURE_OUT | VB_CAPTURE_INBOX,
							     .qpn = qp->qpn },
				  iov, n);
	vb_capture_end(moment);
	if (err)
		return err;
	count_shared(qp, sqe->length);
	complete(qp);
	if (is_in_ring)
		vb_ud_ring_publish(slot);
	return 0;
}

static bool goes_like_the_last(const struct vb_roce_route *last, const struct vb_inbox_addr *addr)
{
	return IN6_ARE_ADDR_EQUAL(&last->addr.dst, &addr->dst) &&
	       IN6_ARE_ADDR_EQUAL(&last->addr.src, &addr->src) && last->addr.flow_label == addr->flow_label &&
	       last->addr.traffic_class == addr->traffic_class && last->addr.hop_limit == addr->hop_limit;
}

static void set_route(struct datagrams *d, const struct vb_datagram_to *to)
{
	struct vb_inbox_addr addr = address_of(to);
	if (goes_like_the_last(&d->route, &addr))
		return;
	vb_burst_flush(d->burst); /* what is in it still uses the old route */
	addr.udp_sport = vb_roce_source_port(to->flow_label, d->qp->qpn, to->qpn);
	vb_roce_route_init(&d->route, &addr, vb_qp_route_ifindex(d->qp, &to->dst));
}

static int put_on_wire(struct vb_qp *qp, const struct vb_sqe *sqe, const struct vb_datagram_to *to,
		       struct vb_ranges *data)
{
	struct datagrams *d = of(qp);
	uint8_t header[VB_UD_HEADER_BYTES];
	struct vb_ranges flat;
	unsigned pad;
	set_route(d, to);
	size_t header_bytes = build_header(qp, sqe, to, header, &pad);
	vb_ranges_of_bytes(&flat, vb_burst_begin(d->burst, &d->route, header, header_bytes, data->bytes),
			   data->bytes);
	int err = vb_ranges_copy(&flat, data);
	if (err)
		return err;
	vb_burst_commit(d->burst);
	complete(qp);
	return 0;
}

static bool is_for_host(const struct vb_datagram_to *to)
{
	return to->is_local && to->qpn != VB_MULTICAST_QPN && !vb_local_is_off();
}

static struct outcome put(struct vb_qp *qp, const struct vb_sqe *sqe, struct vb_ranges *data)
{
	const struct vb_datagram_to *to = vb_sqe_to(&qp->sq, sqe);
	int err = (is_for_host(to) ? put_on_host : put_on_wire)(qp, sqe, to, data);
	if (err == -EAGAIN)
		return (struct outcome){ .full = true };
	if (err == -EFAULT)
		return failed(IBV_WC_LOC_PROT_ERR, vb_key_fault_text(VB_KEY_UNMAPPED));
	if (err) { /* nobody has the slot: it is dropped, as on a wire */
		vb_drop(VB_DROP_NO_QP);
		complete(qp);
	}
	return done;
}

static struct outcome gather_and_put(struct vb_qp *qp, struct vb_sqe *sqe)
{
	struct vb_ranges data;
	if (sqe->flags & IBV_SEND_INLINE) {
		vb_ranges_of_bytes(&data, sqe->inline_data, sqe->length);
		return put(qp, sqe, &data);
	}
	unsigned held = vb_memory_hold();
	enum vb_key_fault fault =
		vb_ranges_of_list(&data, vb_arena, vb_sg_list_of_send(qp, sqe), 0, sqe->length, 0);
	struct outcome o = fault == VB_KEY_OK ? put(qp, sqe, &data)
					      : failed(IBV_WC_LOC_PROT_ERR, vb_key_fault_text(fault));
	vb_memory_release(held);
	return o;
}

static struct outcome send_one(struct vb_qp *qp, struct vb_sqe *sqe)
{
	if (sqe->status != VB_SQE_PENDING)
		return failed(sqe->status, "its address handle is of another protection domain");
	if (sqe->length > of(qp)->mtu)
		return failed(IBV_WC_LOC_LEN_ERR, "a datagram is at most as long as the port's active_mtu");
	if (!of(qp)->burst && !is_for_host(vb_sqe_to(&qp->sq, sqe)))
		of(qp)->burst = vb_burst_take(VB_BURST_REQUESTS); /* before memory is held */
	return gather_and_put(qp, sqe);
}

static void begin_to_wait(struct datagrams *d, uint32_t slot, uint64_t now_ns)
{
	atomic_store(&d->stuck_slot, slot);
	atomic_store(&d->stuck_since_ns, now_ns);
	vb_timer_set(&d->look, now_ns + FIRST_LOOK_NS);
}

/* There is no room. False: the QP has given up waiting, and drops the datagram. */
static bool wait_for_room(struct datagrams *d, uint32_t slot)
{
	uint64_t now = vb_now_ns(), since = atomic_load(&d->stuck_since_ns);
	if (!since)
		begin_to_wait(d, slot, now);
	else if (atomic_load(&d->given_up_since_ns) == since)
		return false;
	atomic_store(&d->blocked, true);
	vb_timer_set(&d->retry, now + (since && now - since > FIRST_LOOK_NS ? LOOK_NS : RETRY_NS));
	return true;
}

/* False: the oldest has to wait. */
static bool send_oldest(struct vb_qp *qp)
{
	struct datagrams *d = of(qp);
	struct vb_sqe *sqe = vb_sq_at(&qp->sq, qp->sq.sent);
	struct outcome o = send_one(qp, sqe);
	if (o.full) {
		if (wait_for_room(d, vb_sqe_to(&qp->sq, sqe)->qpn >> VB_SLOT_SHIFT))
			return false;
		vb_drop(VB_DROP_NO_ROOM);
		complete(qp);
		return true;
	}
	atomic_store_explicit(&d->stuck_since_ns, 0, memory_order_relaxed);
	if (o.status != IBV_WC_SUCCESS) {
		qp->sq.sent++;
		vb_qp_fail_sends(qp, o.status, o.why);
	}
	return true;
}

/* Sends what has been posted, as far as it can be sent now. */
static void send_all(struct vb_qp *qp)
{
	struct vb_sq *sq = &qp->sq;
	struct datagrams *d = of(qp);
	unsigned n = 0;
	atomic_store(&d->blocked, false);
	while (n < SLICE_DATAGRAMS && sq->sent != sq->tail && atomic_load(&qp->state) == IBV_QPS_RTS &&
	       send_oldest(qp))
		n++;
	if (d->burst)
		vb_burst_give(d->burst);
	d->burst = NULL;
	if (n == SLICE_DATAGRAMS && sq->sent != sq->tail) {
		atomic_store(&d->blocked, true);
		vb_progress_schedule(qp);
	}
}

static void retry_fired(struct vb_timer *timer, uint64_t now_ns)
{
	struct datagrams *d = timer->arg;
	vb_progress_schedule(d->qp);
}

/*
 * In the progress thread, whoever polls: what is this process's part of making a link has been done before
 * the last of several looks.
 */
static void look_fired(struct vb_timer *timer, uint64_t now_ns)
{
	struct datagrams *d = timer->arg;
	uint64_t since = atomic_load(&d->stuck_since_ns);
	if (!since)
		return;
	if (d->looks_since_ns != since)
		d->patience = (struct vb_process_wait){ 0 };
	d->looks_since_ns = since;
	if (!vb_ud_ring_gives_up(atomic_load(&d->stuck_slot), &d->patience, now_ns)) {
		vb_timer_set(timer, now_ns + LOOK_NS);
		return;
	}
	vb_explain_limit(
		"UD",
		"QP 0x%06x: no room at the process of QPs 0x%03x..., which does nothing: datagrams are dropped",
		d->qp->qpn, atomic_load(&d->stuck_slot));
	atomic_store(&d->given_up_since_ns, since);
	vb_progress_schedule(d->qp);
}

/* sq.lock is held, and released. */
static void retry_and_unlock(struct vb_qp *qp)
{
	if (atomic_load(&of(qp)->blocked))
		send_all(qp);
	vb_unlock(&qp->sq.lock);
}

static void run(struct vb_qp *qp)
{
	if (vb_lock_try(&qp->sq.lock))
		retry_and_unlock(qp);
	else
		vb_progress_retry(qp);
}

/* There may be room by now. */
static enum vb_claim claim_news(struct vb_qp *qp)
{
	bool blocked = atomic_load_explicit(&of(qp)->blocked, memory_order_relaxed);
	return blocked && vb_path_claim(qp, &qp->sq.lock) ? VB_CLAIM_SENDS : VB_CLAIM_NONE;
}

static void take_news(struct vb_qp *qp, enum vb_claim claim)
{
	retry_and_unlock(qp);
}

/* ---- receiving: resp_lock is held ---- */

static void make_grh(uint8_t grh[VB_GRH_BYTES], const struct vb_inbox_msg *msg)
{
	struct vb_ud_route route = {
		.flow_label = msg->addr.flow_label,
		.traffic_class = msg->addr.traffic_class,
		.hop_limit = msg->addr.hop_limit,
	};
	memcpy(route.source, &msg->addr.src, sizeof(route.source));
	memcpy(route.destination, &msg->addr.dst, sizeof(route.destination));
	vb_ud_grh(grh, &route, msg->payload_bytes);
}

/* Into a receive that has the room. */
static enum ibv_wc_status scatter(const struct vb_rwqe *w, const struct vb_inbox_msg *msg,
				  const struct vb_ud_arrival *a)
{
	uint8_t grh[VB_GRH_BYTES];
	struct vb_ranges to, from = { .count = 2, .bytes = VB_GRH_BYTES + a->payload_bytes };
	make_grh(grh, msg);
	from.iov[0] = (struct iovec){ grh, sizeof(grh) };
	from.iov[1] = (struct iovec){ (void *)a->payload, a->payload_bytes };
	unsigned held = vb_memory_hold();
	enum vb_key_fault fault = vb_ranges_of_list(&to, vb_arena, vb_sg_list_of_receive(w), 0, from.bytes,
						    IBV_ACCESS_LOCAL_WRITE);
	if (fault == VB_KEY_OK && vb_ranges_copy(&to, &from))
		fault = VB_KEY_UNMAPPED;
	vb_memory_release(held);
	return fault == VB_KEY_OK ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR;
}

/*
 * The completion tells which header the datagram came behind (annex A17, 4.5.1). struct ibv_wc has no member
 * for it; hardware that is much in use says it in the service level, which RoCE has no other use for, and UCX
 * relies on it to find the GID in the header.
 */
static uint8_t header_kind(const struct vb_inbox_msg *msg)
{
	enum { IPV6 = 1, IPV4 = 2, UDP = 8 };
	return UDP | (vb_ip_is_v4(&msg->addr.dst) ? IPV4 : IPV6);
}

static void explain(const struct vb_qp *qp, const struct vb_rwqe *w, const struct vb_ud_arrival *a,
		    const char *why)
{
	vb_explain(
		"receiver",
		"QP 0x%06x, receive wr_id 0x%llx, %llu bytes: a datagram of QP 0x%06x needs %u, GRH included: %s",
		qp->qpn, (unsigned long long)w->wr_id, (unsigned long long)w->length, a->source_qpn,
		VB_GRH_BYTES + a->payload_bytes, why);
}

/* Nobody hears of these drops by a completion: the first is explained. */
static void explain_drop(struct vb_qp *qp, enum vb_drop why, const struct vb_ud_arrival *a)
{
	if (!vb_drop_is_news(qp, why))
		return;
	if (why == VB_DROP_QKEY)
		vb_explain_limit(
			"receiver",
			"QP 0x%06x: a datagram of QP 0x%06x has the Q_Key 0x%x, and this queue pair's is 0x%x: such are dropped",
			qp->qpn, a->source_qpn, a->qkey, atomic_load(&qp->qkey));
	else if (why == VB_DROP_NO_RECEIVE)
		vb_explain_limit(
			"receiver",
			"QP 0x%06x: no receive is posted (%u were, all are used) for a datagram of QP 0x%06x: such are dropped",
			qp->qpn, atomic_load(&(qp->srq ? &qp->srq->rq : &qp->rq)->tail), a->source_qpn);
}

/*
 * A datagram that is longer than the receive is dropped and does not consume it: else anybody who knows the
 * Q_Key could use receives up.
 */
static bool take(struct vb_qp *qp, const struct vb_ud_arrival *a, struct vb_rwqe *w)
{
	enum vb_fit fit = vb_receive_take_if_fits(qp, VB_GRH_BYTES + a->payload_bytes, w);
	if (vb_likely(fit == VB_FIT_TAKEN))
		return true;
	vb_drop(fit == VB_FIT_SHORT ? VB_DROP_TOO_LONG : VB_DROP_NO_RECEIVE);
	if (fit == VB_FIT_SHORT)
		explain(qp, w, a, "too short; the datagram is dropped");
	else
		explain_drop(qp, VB_DROP_NO_RECEIVE, a);
	return false;
}

static bool accepts(struct vb_qp *qp, const struct vb_ud_arrival *a)
{
	bool is_ready = vb_qp_listens(qp);
	if (vb_likely(is_ready && atomic_load(&qp->qkey) == a->qkey))
		return true;
	vb_drop(is_ready ? VB_DROP_QKEY : VB_DROP_NOT_READY);
	if (is_ready)
		explain_drop(qp, VB_DROP_QKEY, a);
	return false;
}

/* False: the receive was no good, which ends the QP. */
static bool receive(struct vb_qp *qp, const struct vb_inbox_msg *msg, const struct vb_ud_arrival *a)
{
	struct vb_rwqe w;
	if (!accepts(qp, a) || !take(qp, a, &w))
		return true;
	enum ibv_wc_status status = scatter(&w, msg, a);
	struct vb_cqe e = {
		.wr_id = w.wr_id,
		.status = status,
		.opcode = IBV_WC_RECV,
		.byte_len = VB_GRH_BYTES + a->payload_bytes,
		.imm = a->imm,
		.src_qp = a->source_qpn,
		.wc_flags = IBV_WC_GRH | (a->has_imm ? IBV_WC_WITH_IMM : 0),
		.sl = header_kind(msg),
		.solicited = a->solicited,
	};
	if (vb_unlikely(status != IBV_WC_SUCCESS))
		explain(qp, &w, a, "its memory is not registered for local writes");
	vb_receive_complete(qp, &e);
	return status == IBV_WC_SUCCESS;
}

static bool is_own(const struct vb_qp *qp, const struct vb_inbox_msg *msg, const struct vb_ud_arrival *a)
{
	return a->destination_qpn == VB_MULTICAST_QPN && a->source_qpn == qp->qpn &&
	       vb_netif_is_local(&msg->addr.src);
}

/*
 * A QP that sends to a group of its own hears itself, unless it asked not to. Programs that only send to a
 * group are members of it, too, and post no receives: nothing is dropped then that anybody should be told of.
 */
static bool is_unwanted(const struct vb_qp *qp)
{
	return (atomic_load_explicit(&qp->create_flags, memory_order_relaxed) &
		IBV_QP_CREATE_BLOCK_SELF_MCAST_LB) ||
	       !vb_receives_waiting(qp);
}

static bool arrived(struct vb_qp *qp, const struct vb_inbox_msg *msg, const struct vb_packet *packet)
{
	struct vb_ud_arrival a;
	if (vb_unlikely(vb_ud_parse(packet, &a))) {
		vb_drop(VB_DROP_MALFORMED);
		return false;
	}
	if (is_own(qp, msg, &a) && is_unwanted(qp))
		return false;
	vb_lock(&qp->resp_lock);
	bool good = receive(qp, msg, &a);
	vb_unlock(&qp->resp_lock);
	if (vb_unlikely(!good))
		vb_qp_break(qp, -1);
	return false;
}

/* ---- the path ---- */

static bool claims(struct vb_qp *qp)
{
	return qp->type == IBV_QPT_UD;
}

static int attach(struct vb_qp *qp)
{
	struct ibv_port_attr port;
	int err = vb_roce_open();
	struct datagrams *d = err ? NULL : calloc(1, sizeof(*d));
	if (!d)
		return err ? err : -ENOMEM;
	vb_udp_await_steering();
	vb_port_attr(qp->ctx->device, &port);
	d->qp = qp;
	d->mtu = vb_mtu_bytes(port.active_mtu);
	d->retry = (struct vb_timer){ .fire = retry_fired, .arg = d };
	d->look = (struct vb_timer){ .fire = look_fired, .arg = d };
	qp->path_state = d;
	vb_roce_use(1);
	return 0;
}

/* Arrivals look at the state. */
static void stop(struct vb_qp *qp)
{
	atomic_store(&of(qp)->blocked, false);
}

static void unlink_qp(struct vb_qp *qp)
{
	vb_timer_cancel(&of(qp)->retry);
	vb_timer_cancel(&of(qp)->look);
}

static void detach(struct vb_qp *qp)
{
	vb_roce_use(-1);
	free(of(qp));
	qp->path_state = NULL;
}

static void count(const struct vb_qp *qp, struct vb_counts *c)
{
	const struct vb_traffic *shared = &of(qp)->shared;
	c->shared += vb_count_read(&shared->requests);
	c->shared_packets += vb_count_read(&shared->requests);
	c->shared_bytes += vb_count_read(&shared->bytes);
}

static struct vb_path_ops ud_path = {
	.name = "UD",
	.rank = VB_PATH_WIRE,
	.claims = claims,
	.attach = attach,
	.stop = stop,
	.unlink = unlink_qp,
	.detach = detach,
	.send = send_all,
	.run = run,
	.claim_news = claim_news,
	.take_news = take_news,
	.take = vb_ud_ring_take,
	.arrived = arrived,
	.count = count,
};

__attribute__((constructor)) static void offer(void)
{
	vb_path_register(&ud_path);
}

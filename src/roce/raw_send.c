/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sending of raw packet queue pairs: a frame by a packet socket of the queue pair's own; checksums
 * (IBV_SEND_IP_CSUM), long TCP segments that are cut into frames (IBV_WR_TSO), and a limit to the rate.
 *
 * The limit is a bucket of bytes that fills at the rate and holds a burst. A request may go while there is
 * something in it, whatever its length: the bucket goes below zero and the next request waits, until a timer
 * lets it go. Bucket and timer: under sq.lock.
 *
 * An interface that is slower than the program holds the queue up, as a wire does: while the socket has no
 * room, the oldest request waits for the same timer, perhaps in the middle of its segment.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/device/device.h"
#include "adapter/memory/arena.h"
#include "adapter/memory/hold.h"
#include "adapter/memory/ranges.h"
#include "adapter/progress/path.h"
#include "adapter/queues/payload.h"
#include "base/log.h"
#include "base/nanoseconds.h"
#include "host/net/raw.h"
#include "roce/raw.h"
#include "wire/frame.h"

enum {
	DEFAULT_BURST = 65536,
	NO_ROOM = -1,       /* beside enum ibv_wc_status: the request waits */
	RETRY_NS = 100000,
};

struct raw {
	struct vb_qp *qp;
	int fd;
	uint32_t longest;   /* bytes of a frame */
	uint8_t *frame;     /* room for one */
	uint64_t rate;      /* bytes a second; 0: no limit */
	int64_t burst, bucket;
	uint64_t filled_ns; /* when the bucket was looked at last */
	/* of the oldest request, if it is a segment: bytes and frames that have been sent; else 0 */
	uint32_t at;
	uint16_t number;
	struct vb_timer timer;
};

static struct raw *of(const struct vb_qp *qp) { return qp->path_state; }

/* ---- the rate ---- */

static void fill(struct raw *r, uint64_t now_ns)
{
	uint64_t elapsed = now_ns - r->filled_ns;
	uint64_t most = (uint64_t)(r->burst - r->bucket); /* that go in */
	r->filled_ns = now_ns;
	if (elapsed >= VB_NS_PER_S || elapsed * r->rate / VB_NS_PER_S >= most)
		r->bucket = r->burst;
	else
		r->bucket += (int64_t)(elapsed * r->rate / VB_NS_PER_S);
}

/* May the next request go? If not, the timer comes back to it. */
static bool may_go(struct raw *r)
{
	uint64_t now_ns = vb_now_ns();
	fill(r, now_ns);
	if (r->bucket > 0)
		return true;
	vb_timer_set(&r->timer, now_ns + (uint64_t)(1 - r->bucket) * VB_NS_PER_S / r->rate + 1);
	return false;
}

static void send_all(struct vb_qp *qp);

static void time_is_up(struct vb_timer *timer, uint64_t now_ns)
{
	struct raw *r = timer->arg;
	vb_lock(&r->qp->sq.lock);
	if (atomic_load(&r->qp->path) && r->qp->sq.sent != r->qp->sq.tail)
		send_all(r->qp);
	vb_unlock(&r->qp->sq.lock);
}

/* ---- frames ---- */

/* Without a VLAN tag a frame is shorter by it than r->longest; the interface knows. */
static int send_pieces(struct raw *r, const struct iovec *iov, unsigned n)
{
	if (vb_device_has_no_link(r->qp->ctx->device))
		return IBV_WC_SUCCESS; /* the frame is lost */
	switch (vb_raw_send(r->fd, r->qp->ctx->device->ifindex, iov, n)) {
	case 0:
		return IBV_WC_SUCCESS;
	case -EAGAIN:
		return NO_ROOM;
	case -EMSGSIZE:
		return IBV_WC_LOC_LEN_ERR;
	}
	return IBV_WC_LOC_PROT_ERR;
}

static int send_bytes(struct raw *r, const void *frame, size_t bytes)
{
	struct iovec iov = { (void *)(uintptr_t)frame, bytes };
	return send_pieces(r, &iov, 1);
}

static int send_checked(struct vb_qp *qp, struct vb_sqe *sqe)
{
	struct raw *r = of(qp);
	if (!vb_payload_gather(qp, sqe, 0, r->frame, sqe->length))
		return IBV_WC_LOC_PROT_ERR;
	vb_frame_fill_checksums(r->frame, sqe->length);
	return send_bytes(r, r->frame, sqe->length);
}

/* From r->at on, up to where there is no room. */
static int send_segment(struct vb_qp *qp, struct vb_sqe *sqe)
{
	struct raw *r = of(qp);
	const uint8_t *header = vb_sqe_header(&qp->sq, sqe);
	uint32_t header_bytes = sqe->tso.header_bytes, mss = sqe->tso.mss;
	if (header_bytes + mss > r->longest)
		return IBV_WC_LOC_LEN_ERR;
	if (!vb_frame_is_tcp_header(header, header_bytes))
		return IBV_WC_LOC_QP_OP_ERR;
	int status;
	do {
		uint32_t piece = sqe->length - r->at < mss ? sqe->length - r->at : mss;
		memcpy(r->frame, header, header_bytes);
		if (piece && !vb_payload_gather(qp, sqe, r->at, r->frame + header_bytes, piece))
			return IBV_WC_LOC_PROT_ERR;
		vb_frame_cut(r->frame, header_bytes, piece, r->at, r->number,
			     r->at + piece == sqe->length);
		status = send_bytes(r, r->frame, header_bytes + piece);
		if (status != IBV_WC_SUCCESS)
			return status;
		r->at += piece;
		r->number++;
	} while (r->at < sqe->length);
	return status;
}

static int send_one(struct vb_qp *qp, struct vb_sqe *sqe)
{
	struct vb_ranges data;
	if (sqe->opcode == IBV_WR_TSO)
		return send_segment(qp, sqe);
	if (sqe->length < VB_ETHER_BYTES || sqe->length > of(qp)->longest)
		return IBV_WC_LOC_LEN_ERR;
	if (sqe->flags & IBV_SEND_IP_CSUM)
		return send_checked(qp, sqe);
	if (sqe->flags & IBV_SEND_INLINE)
		return send_bytes(of(qp), sqe->inline_data, sqe->length);
	unsigned held = vb_memory_hold();
	enum vb_key_fault fault =
		vb_ranges_of_list(&data, vb_arena, vb_sg_list_of_send(qp, sqe), 0, sqe->length, 0);
	int status =
		fault == VB_KEY_OK ? send_pieces(of(qp), data.iov, data.count) : IBV_WC_LOC_PROT_ERR;
	vb_memory_release(held);
	return status;
}

static const char *why(enum ibv_wc_status status)
{
	if (status == IBV_WC_LOC_LEN_ERR)
		return "a frame has 14 bytes to the interface's MTU and 14 more, or 18 with a VLAN tag";
	return status == IBV_WC_LOC_QP_OP_ERR ? "the header is not one of TCP over IP, up to its end" :
						"its memory is not accessible";
}

/* sq.lock is held. */
static void send_all(struct vb_qp *qp)
{
	struct vb_sq *sq = &qp->sq;
	struct raw *r = of(qp);
	while (sq->sent != sq->tail && atomic_load(&qp->state) == IBV_QPS_RTS && (!r->rate || may_go(r))) {
		struct vb_sqe *sqe = vb_sq_at(sq, sq->sent);
		int status = send_one(qp, sqe);
		if (status == NO_ROOM) {
			vb_timer_set(&r->timer, vb_now_ns() + RETRY_NS);
			return;
		}
		r->bucket -= r->rate ? sqe->length : 0;
		r->at = r->number = 0;
		sq->sent++;
		if (status == IBV_WC_SUCCESS)
			vb_sq_complete(qp);
		else
			vb_qp_fail_sends(qp, (enum ibv_wc_status)status, why((enum ibv_wc_status)status));
	}
}

/* ---- the path ---- */

static bool claims(struct vb_qp *qp)
{
	return qp->type == IBV_QPT_RAW_PACKET;
}

static struct raw *make(struct vb_qp *qp)
{
	struct raw *r = calloc(1, sizeof(*r));
	if (!r)
		return NULL;
	pthread_mutex_lock(&qp->ctx->device->lock);
	r->longest = qp->ctx->device->netif.mtu + VB_ETHER_BYTES + VB_VLAN_BYTES;
	pthread_mutex_unlock(&qp->ctx->device->lock);
	r->qp = qp;
	r->timer = (struct vb_timer){ .fire = time_is_up, .arg = r };
	r->frame = malloc(r->longest);
	if (r->frame)
		return r;
	free(r);
	return NULL;
}

static int attach(struct vb_qp *qp)
{
	struct raw *r = make(qp);
	if (!r)
		return -ENOMEM;
	int err = vb_raw_open(qp->ctx->device->ifindex, false, &r->fd);
	if (err) {
		free(r->frame);
		free(r);
		return err;
	}
	qp->path_state = r;
	return 0;
}

/* The limit as it was set. sq.lock is held. */
static void update(struct vb_qp *qp)
{
	enum { BYTES_PER_S = 1000 / 8 }; /* of a kbit/s */
	struct raw *r = of(qp);
	uint32_t burst = atomic_load(&qp->burst_bytes);
	r->rate = (uint64_t)qp->attr.rate_limit * BYTES_PER_S;
	r->burst = r->bucket = burst ? burst : DEFAULT_BURST;
	r->filled_ns = vb_now_ns();
}

static void stop(struct vb_qp *qp) { }
static void run(struct vb_qp *qp) { }

static void unlink_timer(struct vb_qp *qp)
{
	vb_timer_cancel(&of(qp)->timer);
}

static void detach(struct vb_qp *qp)
{
	vb_raw_close(of(qp)->fd);
	free(of(qp)->frame);
	free(of(qp));
	qp->path_state = NULL;
}

static struct vb_path_ops raw_path = {
	.name = "raw packet",
	.rank = VB_PATH_WIRE,
	.claims = claims,
	.attach = attach,
	.update = update,
	.stop = stop,
	.unlink = unlink_timer,
	.detach = detach,
	.send = send_all,
	.run = run,
};

__attribute__((constructor)) static void offer(void)
{
	vb_path_register(&raw_path);
}

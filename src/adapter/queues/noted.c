/* SPDX-License-Identifier: BSD-2-Clause */
#include "adapter/queues/noted.h"

#include "adapter/queues/queue.h"

/* ---- posts ---- */

/* What is behind the wrong one was not looked at. */
static bool is_last(const struct vb_noted_post *post, const void *wr)
{
	return post->err && wr == post->wrong;
}

/* err: of the request before, and then of this one. */
static struct vb_capture_event begin(const struct vb_noted_post *post, const void *wr, uint64_t wr_id,
				     int pieces, int *err)
{
	if (post->err && wr == post->refused)
		*err = post->err;
	return (struct vb_capture_event){
		.time_ns = post->time_ns,
		.qpn = post->qp ? post->qp->qpn : 0,
		.queue = post->srq ? (uint32_t)post->srq->registered.serial : 0,
		.wr_id = wr_id,
		.flags = (uint32_t)pieces << VB_EVENT_PIECES_SHIFT,
		.status = (uint32_t)*err,
	};
}

static uint32_t bytes_of(const struct ibv_sge *list, int n)
{
	uint64_t bytes = 0;
	for (int i = 0; i < n; i++)
		bytes += list[i].length;
	return (uint32_t)vb_min_u64(bytes, UINT32_MAX);
}

static void set_remote(struct vb_capture_event *e, const struct ibv_send_wr *wr)
{
	switch ((int)wr->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
	case IBV_WR_ATOMIC_WRITE:
		e->address = wr->wr.rdma.remote_addr;
		e->rkey = wr->wr.rdma.rkey;
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
	case IBV_WR_FLUSH: /* posted as these */
		e->address = wr->wr.atomic.remote_addr;
		e->rkey = wr->wr.atomic.rkey;
		break;
	}
}

void vb_note_sends(const struct vb_noted_post *post, const struct ibv_send_wr *wr)
{
	int err = 0;
	for (bool more = true; wr && more; wr = wr->next) {
		more = !is_last(post, wr);
		struct vb_capture_event e = begin(post, wr, wr->wr_id, wr->num_sge, &err);
		e.event = VB_EVENT_POST_SEND;
		e.opcode = wr->opcode;
		e.flags |= wr->send_flags & UINT16_MAX;
		e.flags |= vb_sq_signals(post->qp, wr->send_flags) ? IBV_SEND_SIGNALED : 0;
		e.bytes = more ? bytes_of(wr->sg_list, wr->num_sge) : 0;
		set_remote(&e, wr);
		vb_capture_event(&e, NULL);
	}
}

void vb_note_receives(const struct vb_noted_post *post, const struct ibv_recv_wr *wr)
{
	int err = 0;
	for (bool more = true; wr && more; wr = wr->next) {
		more = !is_last(post, wr);
		struct vb_capture_event e = begin(post, wr, wr->wr_id, wr->num_sge, &err);
		e.event = VB_EVENT_POST_RECEIVE;
		e.flags |= post->srq ? VB_EVENT_IS_SHARED : 0;
		e.bytes = more ? bytes_of(wr->sg_list, wr->num_sge) : 0;
		vb_capture_event(&e, NULL);
	}
}

void vb_note_posted_receives(struct vb_capture_moment moment, struct vb_noted_post post,
			     const struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	post.time_ns = moment.time_ns;
	post.refused = post.wrong = post.err ? *bad : NULL;
	vb_note_receives(&post, wr);
	vb_capture_end(moment);
}

/* ---- completions ---- */

static void note(enum vb_capture_event_kind kind, const struct vb_cq *cq, const struct vb_cqe *e,
		 uint32_t qpn)
{
	vb_capture_event(&(struct vb_capture_event){ .event = kind,
						     .qpn = qpn,
						     .wr_id = e->wr_id,
						     .opcode = e->opcode,
						     .flags = (e->is_recv ? VB_EVENT_IS_RECEIVE : 0) |
							      (e->is_srq ? VB_EVENT_IS_SHARED : 0),
						     .status = e->status,
						     .bytes = e->byte_len,
						     .queue = (uint32_t)cq->registered.serial },
			 NULL);
}

void vb_note_completion(const struct vb_cq *cq, const struct vb_cqe *e)
{
	note(VB_EVENT_COMPLETION, cq, e, e->qp->qpn);
}

void vb_note_polled(const struct vb_cq *cq, uint32_t first)
{
	for (uint32_t i = first; i != cq->head; i++) {
		const struct vb_cqe *e = &cq->ring[i & cq->mask];
		note(VB_EVENT_POLL, cq, e, e->qp_num);
	}
}

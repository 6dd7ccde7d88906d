/* SPDX-License-Identifier: BSD-2-Clause */
/* What carries a connection's bytes: QP, CQ, registered rings. Posting and polling. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/memory/pages.h"
#include "rsocket/core/wake.h"
#include "rsocket/stream/stream.h"

enum { BATCH = 16 };

/* ---- memory ---- */

/* Whole pages, zeroed, allocated at their first use. NULL: ENOMEM. */
static void *map_pages(size_t *bytes)
{
	*bytes = vb_align_up(*bytes, (uint64_t)sysconf(_SC_PAGESIZE));
	void *at = vb_map_pages(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return at == MAP_FAILED ? NULL : at;
}

static void unmap_pages(void *at, size_t bytes)
{
	if (at)
		vb_unmap_pages(at, bytes);
}

static int map_memory(struct vb_rs_endpoint *e, const struct vb_rs_stream_config *c)
{
	e->send_ring_bytes = c->send_bytes;
	e->receive_ring_bytes = c->receive_bytes;
	e->tables_bytes = sizeof(struct vb_rs_tables) + c->iomap_entries * sizeof(struct vb_rs_iomap);
	e->send_ring = map_pages(&e->send_ring_bytes);
	e->receive_ring = map_pages(&e->receive_ring_bytes);
	e->tables = map_pages(&e->tables_bytes);
	e->unread = calloc(c->receive_queue, sizeof(*e->unread));
	return e->send_ring && e->receive_ring && e->tables && e->unread ? 0 : -ENOMEM;
}

static int register_memory(struct vb_rs_endpoint *e, struct ibv_pd *pd)
{
	e->send_mr = ibv_reg_mr(pd, e->send_ring, e->send_ring_bytes, IBV_ACCESS_LOCAL_WRITE);
	e->receive_mr = ibv_reg_mr(pd, e->receive_ring, e->receive_ring_bytes,
				   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	e->tables_mr = ibv_reg_mr(pd, e->tables, e->tables_bytes,
				  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	return e->send_mr && e->receive_mr && e->tables_mr ? 0 : -ENOMEM;
}

/* ---- life ---- */

static uint16_t queue_size(uint16_t asked, const struct ibv_device_attr *attr)
{
	uint32_t most = vb_min_u32((uint32_t)attr->max_qp_wr, (uint32_t)attr->max_cqe / 2);

	most = vb_min_u32(most, VB_RS_MAX_QUEUE);
	return (uint16_t)(asked < VB_RS_MIN_QUEUE ? VB_RS_MIN_QUEUE : vb_min_u32(asked, most));
}

static uint32_t ring_size(uint32_t asked)
{
	enum { MOST = 1 << 30 };

	return (uint32_t)vb_align_up(asked < VB_RS_MIN_BYTES ? VB_RS_MIN_BYTES : vb_min_u32(asked, MOST),
				     VB_RS_MIN_BYTES);
}

/* Entries of the peer's tables are always written inline. */
static int create_qp(struct vb_rs *s, const struct vb_rs_stream_config *c)
{
	struct vb_rs_endpoint *e = &s->end;
	struct ibv_qp_init_attr attr = {
		.send_cq = e->cq,
		.recv_cq = e->cq,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = { .max_send_wr = c->send_queue,
			 .max_recv_wr = c->receive_queue,
			 .max_send_sge = 1,
			 .max_recv_sge = 1,
			 .max_inline_data = s->options.inline_bytes },
	};

	if (attr.cap.max_inline_data < sizeof(struct vb_rs_iomap))
		attr.cap.max_inline_data = sizeof(struct vb_rs_iomap);
	if (rdma_create_qp(s->id, NULL, &attr))
		return -errno;
	e->max_inline = s->options.inline_bytes;
	return 0;
}

/* Zero-length receives: all data go by RDMA write. */
static int post_receives(struct vb_rs *s, unsigned count)
{
	struct ibv_recv_wr wr[BATCH] = { 0 }, *bad;

	while (count) {
		unsigned n = vb_min_u32(count, BATCH);

		for (unsigned i = 0; i < n; i++)
			wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
		int err = ibv_post_recv(s->id->qp, wr, &bad);
		if (err)
			return -err;
		count -= n;
	}
	return 0;
}

static void configure(struct vb_rs *s, const struct ibv_device_attr *attr, struct vb_rs_stream_config *c)
{
	const struct vb_rs_options *o = &s->options;

	*c = (struct vb_rs_stream_config){
		.send_queue = queue_size(o->send_queue, attr),
		.receive_queue = queue_size(o->receive_queue, attr),
		.send_bytes = ring_size(o->send_bytes),
		.receive_bytes = ring_size(o->receive_bytes),
		.iomap_entries = (uint32_t)vb_max_u64(o->iomap_entries, s->least_iomap),
	};
}

static void start_stream(struct vb_rs *s, struct vb_rs_stream_config *c)
{
	struct vb_rs_endpoint *e = &s->end;

	c->tables = e->tables;
	c->unread = e->unread;
	c->tables_address = (uintptr_t)e->tables;
	c->tables_key = e->tables_mr->rkey;
	c->buffer_address = (uintptr_t)e->receive_ring;
	c->buffer_key = e->receive_mr->rkey;
	vb_rs_stream_init(&s->stream, c);
}

int vb_rs_endpoint_create(struct vb_rs *s)
{
	struct vb_rs_stream_config c;
	struct ibv_device_attr attr;

	if (!s->id->verbs || ibv_query_device(s->id->verbs, &attr))
		return -ENODEV;
	configure(s, &attr, &c);
	s->endpoints++;
	int err =
		vb_rs_cq_create(s->id, (unsigned)c.send_queue + c.receive_queue, &s->end.channel, &s->end.cq);
	if (!err)
		err = create_qp(s, &c);
	if (!err)
		err = map_memory(&s->end, &c);
	if (!err)
		err = register_memory(&s->end, s->id->pd);
	if (!err)
		err = post_receives(s, c.receive_queue);
	if (err) {
		vb_explain("rsocket", "no queue pair of %u and %u requests with rings of %u and %u bytes: %s",
			   c.send_queue, c.receive_queue, c.send_bytes, c.receive_bytes, strerror(-err));
		vb_rs_endpoint_destroy(s);
		return err;
	}
	start_stream(s, &c);
	return 0;
}

static void dereg(struct ibv_mr *mr)
{
	if (mr)
		ibv_dereg_mr(mr);
}

/* In a child the adapter's objects are the parent's, and the descriptor is a copy. */
static void release_verbs(struct vb_rs *s)
{
	struct vb_rs_endpoint *e = &s->end;

	if (vb_rs_is_inherited(s)) {
		if (e->channel)
			close(e->channel->fd);
		return;
	}
	vb_rs_mappings_free(s);
	if (s->id && s->id->qp)
		rdma_destroy_qp(s->id);
	dereg(e->send_mr);
	dereg(e->receive_mr);
	dereg(e->tables_mr);
	if (e->cq && e->events)
		ibv_ack_cq_events(e->cq, e->events);
	if (e->cq)
		ibv_destroy_cq(e->cq);
	if (e->channel)
		ibv_destroy_comp_channel(e->channel);
}

void vb_rs_endpoint_destroy(struct vb_rs *s)
{
	struct vb_rs_endpoint *e = &s->end;

	release_verbs(s);
	unmap_pages(e->send_ring, e->send_ring_bytes);
	unmap_pages(e->receive_ring, e->receive_ring_bytes);
	unmap_pages(e->tables, e->tables_bytes);
	free(e->unread);
	s->endpoints++;
	*e = (struct vb_rs_endpoint){ 0 };
}

/* ---- posting ---- */

int vb_rs_post(struct vb_rs *s, const struct vb_rs_write *w, const void *payload)
{
	const struct vb_rs_endpoint *e = &s->end;
	struct ibv_sge sge = { .length = w->bytes };
	struct ibv_send_wr *bad, wr = {
		.wr_id = w->id,
		.sg_list = &sge,
		.num_sge = w->source == VB_RS_FROM_NOTHING ? 0 : 1,
		.opcode = w->has_message ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE,
		.imm_data = htonl(w->message),
		.wr.rdma = { .remote_addr = w->remote_address, .rkey = w->remote_key },
	};

	if (payload)
		sge.addr = (uintptr_t)payload;
	else if (w->source == VB_RS_FROM_ENTRY)
		sge.addr = (uintptr_t)&w->entry;
	else
		sge.addr = (uintptr_t)e->send_ring + w->ring_offset;
	if (payload || w->source == VB_RS_FROM_ENTRY)
		wr.send_flags = IBV_SEND_INLINE;
	else
		sge.lkey = e->send_mr->lkey;
	return -ibv_post_send(s->id->qp, &wr, &bad);
}

void vb_rs_break_locked(struct vb_rs *s, int err)
{
	if (s->stream.link != VB_RS_UP)
		return;
	vb_rs_stream_break(&s->stream);
	s->error = err;
	s->changes++;
	vb_rs_wake_locked(s);
}

bool vb_rs_flush_locked(struct vb_rs *s)
{
	struct vb_rs_write w;
	bool any = false;

	if (s->state != VB_RS_CONNECTED)
		return false;
	while (vb_rs_stream_control(&s->stream, &w)) {
		int err = vb_rs_post(s, &w, NULL);

		any = true;
		if (err)
			vb_rs_break_locked(s, -err);
	}
	return any;
}

void vb_rs_posted_locked(struct vb_rs *s)
{
	vb_rs_stream_posted(&s->stream);
	if (s->stream.end_is_due)
		vb_rs_flush_locked(s);
}

/* ---- polling ---- */

static int reason_of(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_WR_FLUSH_ERR:
		return ECONNRESET;
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return ETIMEDOUT;
	default:
		return EIO;
	}
}

static void take_receive_locked(struct vb_rs *s, const struct ibv_wc *wc)
{
	enum vb_rs_direction incoming = s->stream.incoming;
	enum vb_rs_link link = s->stream.link;
	int err = wc->wc_flags & IBV_WC_WITH_IMM ? vb_rs_stream_receive(&s->stream, ntohl(wc->imm_data)) :
						   -EPROTO;

	s->changes += incoming != s->stream.incoming || link != s->stream.link;
	if (!err)
		return;
	vb_explain("rsocket", "the peer of socket %d broke the protocol: message 0x%08x", s->fd,
		   ntohl(wc->imm_data));
	vb_rs_break_locked(s, EPROTO);
}

/* Returns how many receives are to be posted again. */
static unsigned take_completion_locked(struct vb_rs *s, const struct ibv_wc *wc)
{
	bool is_receive = wc->opcode & IBV_WC_RECV;

	if (wc->status != IBV_WC_SUCCESS) {
		/* A failed completion has no opcode. All requests behind it fail as well. */
		vb_rs_break_locked(s, reason_of(wc->status));
		return 0;
	}
	if (is_receive)
		take_receive_locked(s, wc);
	else
		vb_rs_stream_sent(&s->stream, wc->wr_id);
	return is_receive;
}

bool vb_rs_endpoint_progress_locked(struct vb_rs *s)
{
	struct ibv_wc wc[BATCH];
	bool any = false;
	int n;

	do {
		unsigned receives = 0;

		n = ibv_poll_cq(s->end.cq, BATCH, wc);
		for (int i = 0; i < n; i++)
			receives += take_completion_locked(s, &wc[i]);
		any |= n > 0;
		if (receives && s->stream.link == VB_RS_UP) {
			int err = post_receives(s, receives);
			if (err)
				vb_rs_break_locked(s, -err);
		}
	} while (n == BATCH);
	if (any)
		vb_rs_flush_locked(s);
	return any;
}

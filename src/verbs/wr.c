/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Work requests built call by call (ibv_wr_post(3)): from ibv_wr_start on requests are collected, ibv_wr_complete posts them
 * all or none, ibv_wr_abort forgets them. One thread at a time builds. What goes wrong while building is remembered
 * and reported at the end.
 */
#include <stdlib.h>
#include <string.h>

#include "verbs/verbs.h"

/* Addresses of scatter entries and inline data are offsets until the batch is complete, because the arrays move. */
struct entry {
	struct ibv_send_wr wr;
	size_t first_sge;
};

struct vb_wr_batch {
	pthread_mutex_t lock;
	int err;               /* errno value of the first mistake */
	struct ibv_send_wr nowhere; /* what is set of a request for which there was no memory */
	struct entry *entries;
	struct ibv_sge *sges;
	uint8_t *bytes;        /* inline data */
	size_t nentries, entries_room, nsges, sges_room, nbytes, bytes_room;
};

static struct vb_verbs_qp *of(struct ibv_qp_ex *ex) { return vb_container_of(ex, struct vb_verbs_qp, ex); }

static void mistake(struct vb_wr_batch *b, int err, const char *why)
{
	if (err == ENOMEM)
		vb_explain_limit("ibv_wr_complete", "%s", why);
	else
		vb_explain("ibv_wr_complete", "%s", why);
	if (!b->err)
		b->err = err;
}

/* Room for `more` further elements; *array may move. */
static bool reserve(struct vb_wr_batch *b, void *array, size_t element_bytes, size_t used, size_t more, size_t *room)
{
	void **at = array;
	if (used + more <= *room)
		return true;
	size_t want = (used + more) * 2;
	void *grown = realloc(*at, want * element_bytes);
	if (!grown) {
		mistake(b, ENOMEM, "no memory for the work requests");
		return false;
	}
	*at = grown;
	*room = want;
	return true;
}

/* ---- requests ---- */

static struct entry *last(struct vb_wr_batch *b)
{
	if (b->nentries)
		return &b->entries[b->nentries - 1];
	mistake(b, EINVAL, "a setter was called before any work request");
	return NULL;
}

static struct ibv_send_wr *add(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode)
{
	struct vb_wr_batch *b = of(ex)->batch;
	if (!reserve(b, &b->entries, sizeof(*b->entries), b->nentries, 1, &b->entries_room))
		return &b->nowhere;
	struct entry *e = &b->entries[b->nentries++];
	*e = (struct entry){ .wr = { .wr_id = ex->wr_id, .opcode = opcode, .send_flags = ex->wr_flags }, .first_sge = b->nsges };
	return &e->wr;
}

static struct ibv_send_wr *add_rdma(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey, uint64_t remote_addr)
{
	struct ibv_send_wr *wr = add(ex, opcode);
	wr->wr.rdma.rkey = rkey;
	wr->wr.rdma.remote_addr = remote_addr;
	return wr;
}

static void wr_send(struct ibv_qp_ex *ex) { add(ex, IBV_WR_SEND); }
static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm) { add(ex, IBV_WR_SEND_WITH_IMM)->imm_data = imm; }

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	add_rdma(ex, IBV_WR_RDMA_READ, rkey, remote_addr);
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	add_rdma(ex, IBV_WR_RDMA_WRITE, rkey, remote_addr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, __be32 imm)
{
	add_rdma(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, remote_addr)->imm_data = imm;
}

static void add_atomic(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey, uint64_t remote_addr, uint64_t compare_add,
		       uint64_t swap)
{
	struct ibv_send_wr *wr = add(ex, opcode);
	wr->wr.atomic.remote_addr = remote_addr;
	wr->wr.atomic.rkey = rkey;
	wr->wr.atomic.compare_add = compare_add;
	wr->wr.atomic.swap = swap;
}

static void wr_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, uint64_t compare, uint64_t swap)
{
	add_atomic(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, remote_addr, compare, swap);
}

static void wr_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, uint64_t value)
{
	add_atomic(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, remote_addr, value, 0);
}

static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t rkey) { add(ex, IBV_WR_SEND_WITH_INV)->invalidate_rkey = rkey; }
static void wr_local_inv(struct ibv_qp_ex *ex, uint32_t rkey) { add(ex, IBV_WR_LOCAL_INV)->invalidate_rkey = rkey; }

static void wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	struct ibv_send_wr *wr = add(ex, IBV_WR_BIND_MW);
	wr->bind_mw.mw = mw;
	wr->bind_mw.rkey = rkey;
	wr->bind_mw.bind_info = *info;
}

static void wr_send_tso(struct ibv_qp_ex *ex, void *header, uint16_t header_bytes, uint16_t mss)
{
	struct ibv_send_wr *wr = add(ex, IBV_WR_TSO);
	wr->tso.hdr = header;
	wr->tso.hdr_sz = header_bytes;
	wr->tso.mss = mss;
}

static void set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t remote_qpn, uint32_t remote_qkey)
{
	struct entry *e = last(of(ex)->batch);
	if (!e)
		return;
	e->wr.wr.ud.ah = ah;
	e->wr.wr.ud.remote_qpn = remote_qpn;
	e->wr.wr.ud.remote_qkey = remote_qkey;
}

static void set_xrc_srqn(struct ibv_qp_ex *ex, uint32_t srqn)
{
	struct entry *e = last(of(ex)->batch);
	if (e)
		e->wr.qp_type.xrc.remote_srqn = srqn;
}

/* ---- data ---- */

static void set_sge_list(struct ibv_qp_ex *ex, size_t count, const struct ibv_sge *list)
{
	struct vb_wr_batch *b = of(ex)->batch;
	struct entry *e = last(b);
	if (!e)
		return;
	if (count > of(ex)->qp.cap.max_send_sge) {
		mistake(b, EINVAL, "more scatter/gather entries than the queue pair's max_send_sge");
		return;
	}
	if (!reserve(b, &b->sges, sizeof(*b->sges), b->nsges, count, &b->sges_room))
		return;
	if (count)
		memcpy(&b->sges[b->nsges], list, count * sizeof(*list));
	e->first_sge = b->nsges;
	e->wr.num_sge = (int)count;
	b->nsges += count;
}

static void set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	set_sge_list(ex, 1, &(struct ibv_sge){ .addr = addr, .length = length, .lkey = lkey });
}

/* The data is gathered here into one entry, so that the number of buffers does not count. */
static void set_inline_data_list(struct ibv_qp_ex *ex, size_t count, const struct ibv_data_buf *list)
{
	struct vb_wr_batch *b = of(ex)->batch;
	size_t total = 0, from = b->nbytes;
	for (size_t i = 0; i < count; i++)
		total += list[i].length;
	if (total > of(ex)->qp.cap.max_inline_data) {
		mistake(b, EINVAL, "more inline data than the queue pair's max_inline_data");
		return;
	}
	if (!reserve(b, &b->bytes, 1, b->nbytes, total, &b->bytes_room))
		return;
	for (size_t i = 0; i < count; i++) {
		if (list[i].length)
			memcpy(b->bytes + b->nbytes, list[i].addr, list[i].length);
		b->nbytes += list[i].length;
	}
	set_sge_list(ex, total ? 1 : 0, &(struct ibv_sge){ .addr = from, .length = (uint32_t)total });
	if (b->nentries)
		b->entries[b->nentries - 1].wr.send_flags |= IBV_SEND_INLINE;
}

static void set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	set_inline_data_list(ex, 1, &(struct ibv_data_buf){ .addr = addr, .length = length });
}

static void wr_atomic_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, const void *word)
{
	enum { WORD = 8 };
	add_rdma(ex, IBV_WR_ATOMIC_WRITE, rkey, remote_addr);
	set_inline_data_list(ex, 1, &(struct ibv_data_buf){ .addr = (void *)(uintptr_t)word, .length = WORD });
}

/* Placement and selectivity are one number further down (proto/request.h). */
static void wr_flush(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, size_t length, uint8_t type, uint8_t level)
{
	if (length > UINT32_MAX)
		mistake(of(ex)->batch, EINVAL, "more bytes to flush than a message can have");
	add_atomic(ex, IBV_WR_FLUSH, rkey, remote_addr, length, type | (uint64_t)level << 8);
}

/* ---- start, complete, abort ---- */

static void wr_start(struct ibv_qp_ex *ex)
{
	struct vb_wr_batch *b = of(ex)->batch;
	pthread_mutex_lock(&b->lock);
	b->err = 0;
	b->nentries = b->nsges = b->nbytes = 0;
}

/* Turns offsets into addresses and makes a list of the requests. */
static void join(struct vb_wr_batch *b)
{
	for (size_t i = 0; i < b->nentries; i++) {
		struct entry *e = &b->entries[i];
		e->wr.sg_list = b->sges + e->first_sge;
		e->wr.next = i + 1 < b->nentries ? &b->entries[i + 1].wr : NULL;
		if ((e->wr.send_flags & IBV_SEND_INLINE) && e->wr.num_sge)
			e->wr.sg_list->addr += (uintptr_t)b->bytes;
	}
}

static bool fits(const struct vb_qp *qp, size_t count)
{
	return count <= qp->sq.max_wr - (qp->sq.tail - atomic_load(&qp->sq.retired));
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct vb_verbs_qp *qp = of(ex);
	struct vb_wr_batch *b = qp->batch;
	struct ibv_send_wr *bad;
	int err = -vb_refuse_inherited(ex->qp_base.context, "ibv_wr_complete");
	if (!err && !fits(&qp->qp, b->nentries))
		mistake(b, ENOMEM, "the send queue has no room for all of the work requests");
	if (!err)
		err = b->err;
	if (!err && b->nentries) {
		join(b);
		err = qp->pub.context->ops.post_send(&qp->pub, &b->entries[0].wr, &bad); /* in front of which checks and others may be */
	}
	pthread_mutex_unlock(&b->lock);
	return err;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	pthread_mutex_unlock(&of(ex)->batch->lock);
}

/* ---- set-up ---- */

enum {
	UD_OPS = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
	UC_OPS = UD_OPS | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW,
	RC_OPS = UC_OPS | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
		 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_FLUSH,
};

static uint64_t ops_of(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_RC:
		return RC_OPS;
	case IBV_QPT_UC:
		return UC_OPS;
	case IBV_QPT_UD:
		return UD_OPS;
	case IBV_QPT_XRC_SEND:
		return RC_OPS & ~(uint64_t)(IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_FLUSH);
	case IBV_QPT_RAW_PACKET:
		return IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO;
	case IBV_QPT_XRC_RECV:
	case IBV_QPT_DRIVER:
		break;
	}
	return 0;
}

int vb_wr_batch_init(struct vb_verbs_qp *qp, uint64_t send_ops)
{
	struct ibv_qp_ex *ex = &qp->ex;
	uint64_t known = ops_of(qp->qp.type);
	if (send_ops & ~known) {
		vb_explain_limit("ibv_create_qp_ex", "send_ops_flags 0x%llx: this device knows 0x%llx only for this type of queue pair",
			   (unsigned long long)send_ops, (unsigned long long)known);
		return -EOPNOTSUPP;
	}
	qp->batch = calloc(1, sizeof(*qp->batch));
	if (!qp->batch)
		return -ENOMEM;
	pthread_mutex_init(&qp->batch->lock, NULL);
	ex->wr_send = wr_send;
	ex->wr_send_imm = wr_send_imm;
	ex->wr_rdma_read = wr_rdma_read;
	ex->wr_rdma_write = wr_rdma_write;
	ex->wr_rdma_write_imm = wr_rdma_write_imm;
	ex->wr_atomic_cmp_swp = wr_cmp_swp;
	ex->wr_atomic_fetch_add = wr_fetch_add;
	ex->wr_atomic_write = wr_atomic_write;
	ex->wr_flush = wr_flush;
	ex->wr_send_inv = wr_send_inv;
	ex->wr_local_inv = wr_local_inv;
	ex->wr_bind_mw = wr_bind_mw;
	ex->wr_send_tso = wr_send_tso;
	ex->wr_set_ud_addr = set_ud_addr;
	ex->wr_set_xrc_srqn = set_xrc_srqn;
	ex->wr_set_sge = set_sge;
	ex->wr_set_sge_list = set_sge_list;
	ex->wr_set_inline_data = set_inline_data;
	ex->wr_set_inline_data_list = set_inline_data_list;
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	return 0;
}

void vb_wr_batch_fini(struct vb_verbs_qp *qp)
{
	struct vb_wr_batch *b = qp->batch;
	if (!b)
		return;
	free(b->entries);
	free(b->sges);
	free(b->bytes);
	free(b);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Work requests built call by call (ibv_wr_post(3)). ibv_wr_start begins a batch, ibv_wr_complete posts all
 * of it or nothing, ibv_wr_abort drops it. One thread at a time builds. The first mistake is kept and
 * reported at the end.
 */
#include <stdlib.h>
#include <string.h>

#include "verbs/verbs.h"

/*
 * When the arrays grow they move, and the pointers into them are corrected. Each call uses pointers: to the
 * last request (NULL: there is none yet) and to the free places.
 */
struct vb_wr_batch {
	struct ibv_send_wr *last, *next_wr, *wrs_end;
	struct ibv_sge *next_sge, *sges_end;
	int err;                    /* errno value of the first mistake */
	bool is_single_threaded;    /* by a thread domain: the lock is left alone */
	struct vb_lock lock;
	/* each leads to the next one in the array, but for the last of a batch that is being posted */
	struct ibv_send_wr *wrs;
	struct ibv_sge *sges;
	uint8_t *bytes;             /* inline data, and headers of segments */
	size_t nbytes, bytes_room;
	struct ibv_send_wr nowhere; /* what is set of a request for which there was no memory */
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

/* ---- room ---- */

/*
 * A new array of `room` elements, of which the first `used` are copied from the old one. The caller frees
 * the old one. NULL: no memory.
 */
static void *larger(struct vb_wr_batch *b, const void *array, size_t element_bytes, size_t used, size_t room)
{
	uint8_t *grown = calloc(room, element_bytes);
	if (!grown)
		mistake(b, ENOMEM, "no memory for the work requests");
	else if (used)
		memcpy(grown, array, used * element_bytes);
	return grown;
}

static bool grow_wrs(struct vb_wr_batch *b)
{
	size_t used = (size_t)(b->next_wr - b->wrs), room = 2 * (used + 1);
	struct ibv_send_wr *wrs = larger(b, b->wrs, sizeof(*wrs), used, room);
	if (!wrs)
		return false;
	for (size_t i = 0; i + 1 < room; i++)
		wrs[i].next = &wrs[i + 1];
	free(b->wrs);
	b->wrs = wrs;
	b->next_wr = wrs + used;
	b->wrs_end = wrs + room;
	return true;
}

static bool grow_sges(struct vb_wr_batch *b, size_t more)
{
	size_t used = (size_t)(b->next_sge - b->sges), room = 2 * (used + more);
	struct ibv_sge *sges = larger(b, b->sges, sizeof(*sges), used, room);
	if (!sges)
		return false;
	for (struct ibv_send_wr *wr = b->wrs; wr < b->next_wr; wr++)
		if (wr->num_sge)
			wr->sg_list = sges + (wr->sg_list - b->sges);
	free(b->sges);
	b->sges = sges;
	b->next_sge = sges + used;
	b->sges_end = sges + room;
	return true;
}

static bool grow_bytes(struct vb_wr_batch *b, size_t more)
{
	size_t room = 2 * (b->nbytes + more);
	uint8_t *bytes = larger(b, b->bytes, 1, b->nbytes, room);
	if (!bytes)
		return false;
	for (struct ibv_send_wr *wr = b->wrs; wr < b->next_wr; wr++) {
		if (wr->num_sge && wr->sg_list->addr - (uintptr_t)b->bytes < b->nbytes)
			wr->sg_list->addr += (uintptr_t)bytes - (uintptr_t)b->bytes;
		if (wr->opcode == IBV_WR_TSO && (uintptr_t)wr->tso.hdr - (uintptr_t)b->bytes < b->nbytes)
			wr->tso.hdr = bytes + ((uintptr_t)wr->tso.hdr - (uintptr_t)b->bytes);
	}
	free(b->bytes);
	b->bytes = bytes;
	b->bytes_room = room;
	return true;
}

static inline bool has_bytes_for(struct vb_wr_batch *b, size_t more)
{
	return b->nbytes + more <= b->bytes_room || grow_bytes(b, more);
}

/* ---- requests ---- */

static inline struct ibv_send_wr *last(struct vb_wr_batch *b)
{
	if (vb_unlikely(!b->last))
		mistake(b, EINVAL, "a setter was called before any work request");
	return b->last;
}

/*
 * Members that only some requests use keep their values of the last batch, except those that
 * ibv_post_send(3) reads in other requests too.
 */
static inline struct ibv_send_wr *fill(struct ibv_qp_ex *ex, struct vb_wr_batch *b, enum ibv_wr_opcode opcode)
{
	struct ibv_send_wr *wr = b->last = b->next_wr++;
	wr->wr_id = ex->wr_id;
	wr->num_sge = 0;
	wr->opcode = opcode;
	wr->send_flags = ex->wr_flags & ~(unsigned)IBV_SEND_INLINE; /* which a setter says */
	wr->imm_data = 0;
	wr->wr.rdma.remote_addr = 0; /* of a datagram: its address handle */
	wr->wr.rdma.rkey = 0;
	wr->qp_type.xrc.remote_srqn = 0;
	return wr;
}

/* Out of line: nearly all calls find room, and need not save registers for this one. */
static __attribute__((noinline)) struct ibv_send_wr *add_with_room(struct ibv_qp_ex *ex,
								   enum ibv_wr_opcode opcode)
{
	struct vb_wr_batch *b = of(ex)->batch;
	return grow_wrs(b) ? fill(ex, b, opcode) : &b->nowhere;
}

static inline struct ibv_send_wr *add(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode)
{
	struct vb_wr_batch *b = of(ex)->batch;
	return vb_likely(b->next_wr != b->wrs_end) ? fill(ex, b, opcode) : add_with_room(ex, opcode);
}

static struct ibv_send_wr *add_rdma(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey,
				    uint64_t remote_addr)
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

static void add_atomic(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey, uint64_t remote_addr,
		       uint64_t compare_add, uint64_t swap)
{
	struct ibv_send_wr *wr = add(ex, opcode);
	wr->wr.atomic.remote_addr = remote_addr;
	wr->wr.atomic.rkey = rkey;
	wr->wr.atomic.compare_add = compare_add;
	wr->wr.atomic.swap = swap;
}

static void wr_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, uint64_t compare,
		       uint64_t swap)
{
	add_atomic(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, remote_addr, compare, swap);
}

static void wr_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, uint64_t value)
{
	add_atomic(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, remote_addr, value, 0);
}

static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	add(ex, IBV_WR_SEND_WITH_INV)->invalidate_rkey = rkey;
}
static void wr_local_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	add(ex, IBV_WR_LOCAL_INV)->invalidate_rkey = rkey;
}

static void wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey,
		       const struct ibv_mw_bind_info *info)
{
	struct ibv_send_wr *wr = add(ex, IBV_WR_BIND_MW);
	wr->bind_mw.mw = mw;
	wr->bind_mw.rkey = rkey;
	wr->bind_mw.bind_info = *info;
}

/* The header is copied, unless it is one that ibv_post_send refuses. */
static void wr_send_tso(struct ibv_qp_ex *ex, void *header, uint16_t header_bytes, uint16_t mss)
{
	struct vb_wr_batch *b = of(ex)->batch;
	struct ibv_send_wr *wr = add(ex, IBV_WR_TSO);
	if (header && header_bytes && header_bytes <= of(ex)->qp.sq.header_room) {
		if (!has_bytes_for(b, header_bytes))
			return;
		header = memcpy(b->bytes + b->nbytes, header, header_bytes);
		b->nbytes += header_bytes;
	}
	wr->tso.hdr = header;
	wr->tso.hdr_sz = header_bytes;
	wr->tso.mss = mss;
}

static void set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t remote_qpn, uint32_t remote_qkey)
{
	struct ibv_send_wr *wr = last(of(ex)->batch);
	if (!wr)
		return;
	wr->wr.ud.ah = ah;
	wr->wr.ud.remote_qpn = remote_qpn;
	wr->wr.ud.remote_qkey = remote_qkey;
}

static void set_xrc_srqn(struct ibv_qp_ex *ex, uint32_t srqn)
{
	struct ibv_send_wr *wr = last(of(ex)->batch);
	if (wr)
		wr->qp_type.xrc.remote_srqn = srqn;
}

/* ---- data ---- */

/* Room for the last request's scatter/gather list, which the caller fills. NULL: a mistake was made. */
static struct ibv_sge *add_sges(struct vb_wr_batch *b, size_t count)
{
	struct ibv_send_wr *wr = last(b);
	if (!wr || (vb_unlikely(count > (size_t)(b->sges_end - b->next_sge)) && !grow_sges(b, count)))
		return NULL;
	wr->sg_list = b->next_sge;
	wr->num_sge = (int)count;
	b->next_sge += count;
	return wr->sg_list;
}

static void set_sge_list(struct ibv_qp_ex *ex, size_t count, const struct ibv_sge *list)
{
	struct vb_wr_batch *b = of(ex)->batch;
	if (count > of(ex)->qp.attr.cap.max_send_sge) {
		mistake(b, EINVAL, "more scatter/gather entries than the queue pair's max_send_sge");
		return;
	}
	struct ibv_sge *to = add_sges(b, count);
	if (to && count)
		memcpy(to, list, count * sizeof(*list));
}

static __attribute__((noinline)) void set_sge_with_room(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr,
							uint32_t length)
{
	struct ibv_sge *to = add_sges(of(ex)->batch, 1);
	if (to)
		*to = (struct ibv_sge){ .addr = addr, .length = length, .lkey = lkey };
}

static void set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct vb_wr_batch *b = of(ex)->batch;
	struct ibv_sge *to = b->next_sge;
	struct ibv_send_wr *wr = b->last;
	if (vb_unlikely(!wr || to == b->sges_end)) {
		set_sge_with_room(ex, lkey, addr, length);
		return;
	}
	b->next_sge = to + 1;
	wr->sg_list = to;
	wr->num_sge = 1;
	*to = (struct ibv_sge){ .addr = addr, .length = length, .lkey = lkey };
}

/* Gathers the data into one entry, so that the number of buffers is not limited. */
static void set_inline_data_list(struct ibv_qp_ex *ex, size_t count, const struct ibv_data_buf *list)
{
	struct vb_wr_batch *b = of(ex)->batch;
	size_t total = 0, most = of(ex)->qp.attr.cap.max_inline_data;
	for (size_t i = 0; i < count; i++) {
		if (list[i].length > most - total) {
			mistake(b, EINVAL, "more inline data than the queue pair's max_inline_data");
			return;
		}
		total += list[i].length;
	}
	if (!has_bytes_for(b, total))
		return;
	struct ibv_sge *to = add_sges(b, total ? 1 : 0);
	if (!to)
		return;
	if (total)
		*to = (struct ibv_sge){ .addr = (uintptr_t)(b->bytes + b->nbytes),
					.length = (uint32_t)total };
	for (size_t i = 0; i < count; i++) {
		if (list[i].length)
			memcpy(b->bytes + b->nbytes, list[i].addr, list[i].length);
		b->nbytes += list[i].length;
	}
	last(b)->send_flags |= IBV_SEND_INLINE;
}

static void set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	set_inline_data_list(ex, 1, &(struct ibv_data_buf){ .addr = addr, .length = length });
}

static void wr_atomic_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, const void *word)
{
	enum { WORD = 8 };
	add_rdma(ex, IBV_WR_ATOMIC_WRITE, rkey, remote_addr);
	set_inline_data_list(ex, 1,
			     &(struct ibv_data_buf){ .addr = (void *)(uintptr_t)word, .length = WORD });
}

/* Placement and selectivity are one number further down (proto/rc/request.h). */
static void wr_flush(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, size_t length, uint8_t type,
		     uint8_t level)
{
	add_atomic(ex, IBV_WR_FLUSH, rkey, remote_addr, length, type | (uint64_t)level << 8);
}

/* ---- start, complete, abort ---- */

/*
 * A forked child may have inherited a batch that another thread was building: nobody would end it. There the
 * batch is refused in the end.
 */
static __attribute__((noinline)) void await_turn(struct ibv_qp_ex *ex, struct vb_wr_batch *b)
{
	if (!vb_is_inherited(ex->qp_base.context))
		vb_lock(&b->lock);
}

static void wr_start(struct ibv_qp_ex *ex)
{
	struct vb_wr_batch *b = of(ex)->batch;
	if (!b->is_single_threaded && vb_unlikely(!vb_lock_try(&b->lock)))
		await_turn(ex, b);
	b->err = 0;
	b->last = NULL;
	b->next_wr = b->wrs;
	b->next_sge = b->sges;
	b->nbytes = 0;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	struct vb_wr_batch *b = of(ex)->batch;
	if (!b->is_single_threaded)
		vb_unlock(&b->lock);
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct vb_wr_batch *b = of(ex)->batch;
	int err = -vb_refuse_inherited(ex->qp_base.context, "ibv_wr_complete");
	if (!err)
		err = b->err;
	if (!err && b->last) {
		b->last->next = NULL;
		/* through the table, where wrappers may stand */
		err = ex->qp_base.context->ops.post_send(&ex->qp_base, b->wrs, NULL);
		b->last->next = b->last + 1;
	}
	wr_abort(ex);
	return err;
}

/* ---- set-up ---- */

enum {
	UD_OPS = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
	UC_OPS = UD_OPS | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
		 IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW,
	RC_OPS = UC_OPS | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_READ |
		 IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
		 IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_FLUSH,
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
		vb_explain_limit(
			"ibv_create_qp_ex",
			"send_ops_flags 0x%llx: this device knows 0x%llx only for this type of queue pair",
			(unsigned long long)send_ops, (unsigned long long)known);
		return -EOPNOTSUPP;
	}
	qp->batch = calloc(1, sizeof(*qp->batch));
	if (!qp->batch)
		return -ENOMEM;
	vb_lock_init(&qp->batch->lock);
	qp->batch->is_single_threaded = vb_is_single_threaded(qp->pub.pd);
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
	free(b->wrs);
	free(b->sges);
	free(b->bytes);
	free(b);
}

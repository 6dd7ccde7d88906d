/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Work requests: lists of structures for ibv_post_send() and ibv_post_recv(), and the ibv_wr_*() calls that
 * build send requests one by one. Part of <infiniband/verbs.h>.
 *
 * A posted request's buffers belong to the device until it completes; the structures may be reused when the
 * post call returns. A list is posted up to its first bad request: the call then returns an errno value
 * (EINVAL: a bad request; ENOMEM: queue full; EOPNOTSUPP) and the last argument points to that request.
 */
#ifndef INFINIBAND_VERBS_POST_H
#define INFINIBAND_VERBS_POST_H

#include <infiniband/verbs/memory.h>
#include <infiniband/verbs/qp.h>
#include <infiniband/verbs/srq.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Bits of ibv_send_wr.send_flags. FENCE: wait for earlier reads and atomics; SIGNALED: complete even if all
 * goes well; SOLICITED: give the receiver a solicited event; INLINE: take the data now, lkeys are not looked
 * at. ibv_post_send(3)
 */
enum ibv_send_flags {
	IBV_SEND_FENCE		= 1 << 0,
	IBV_SEND_SIGNALED	= 1 << 1,
	IBV_SEND_SOLICITED	= 1 << 2,
	IBV_SEND_INLINE		= 1 << 3,
	IBV_SEND_IP_CSUM	= 1 << 4,
};

/* A piece of registered memory, length in bytes. ibv_post_send(3) */
struct ibv_sge {
	uint64_t	addr;
	uint32_t	length;
	uint32_t	lkey;
};

/* A piece of any memory, for inline data. ibv_wr_post(3) */
struct ibv_data_buf {
	void	*addr;
	size_t	length;
};

/* A send work request. opcode and the QP's type decide which members count. ibv_post_send(3) */
struct ibv_send_wr {
	uint64_t		wr_id;		/* comes back in the completion */
	struct ibv_send_wr	*next;
	struct ibv_sge		*sg_list;
	int			num_sge;
	enum ibv_wr_opcode	opcode;
	unsigned int		send_flags;	/* enum ibv_send_flags */
	__extension__ union {
		__be32		imm_data;		/* *_WITH_IMM */
		uint32_t	invalidate_rkey;	/* *_INV */
	};
	union {
		struct {
			uint64_t	remote_addr;
			uint32_t	rkey;
		} rdma;
		struct {
			uint64_t	remote_addr;	/* a multiple of 8 */
			uint64_t	compare_add;
			uint64_t	swap;
			uint32_t	rkey;
		} atomic;
		struct {
			struct ibv_ah	*ah;
			uint32_t	remote_qpn;
			uint32_t	remote_qkey;	/* with its high bit set, the QP's own is sent */
		} ud;
	} wr;
	union {
		struct {
			uint32_t	remote_srqn;
		} xrc;
	} qp_type;
	__extension__ union {
		struct {
			struct ibv_mw		*mw;
			uint32_t		rkey;
			struct ibv_mw_bind_info	bind_info;
		} bind_mw;
		struct {
			void		*hdr;
			uint16_t	hdr_sz;
			uint16_t	mss;
		} tso;
	};
};

/* A receive work request. ibv_post_recv(3) */
struct ibv_recv_wr {
	uint64_t		wr_id;
	struct ibv_recv_wr	*next;
	struct ibv_sge		*sg_list;
	int			num_sge;
};

/* Post send requests on a QP in RTS, SQD or SQE, or to be flushed in ERR. ibv_post_send(3) */
static inline int ibv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	return qp->context->ops.post_send(qp, wr, bad_wr);
}

/* Post receive requests on a QP that has no SRQ and is in INIT or later. ibv_post_recv(3) */
static inline int ibv_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	return qp->context->ops.post_recv(qp, wr, bad_wr);
}

/* Post receive requests on an SRQ. ibv_post_srq_recv(3) */
static inline int ibv_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *recv_wr,
				    struct ibv_recv_wr **bad_recv_wr)
{
	return srq->context->ops.post_srq_recv(srq, recv_wr, bad_recv_wr);
}

/* Operations on the list of a tag matching SRQ. ibv_post_srq_ops(3) */
enum ibv_ops_wr_opcode {
	IBV_WR_TAG_ADD,
	IBV_WR_TAG_DEL,
	IBV_WR_TAG_SYNC,
};

/* Complete the operation; tell the device how many unexpected messages were seen. */
enum ibv_ops_flags {
	IBV_OPS_SIGNALED	= 1 << 0,
	IBV_OPS_TM_SYNC		= 1 << 1,
};

/*
 * A list operation. handle is set by ADD and names the entry for DEL; a message matches if (tag & mask)
 * agrees.
 */
struct ibv_ops_wr {
	uint64_t		wr_id;
	struct ibv_ops_wr	*next;
	enum ibv_ops_wr_opcode	opcode;
	int			flags;		/* enum ibv_ops_flags */
	struct {
		uint32_t	unexpected_cnt;
		uint32_t	handle;
		struct {
			uint64_t	recv_wr_id;
			struct ibv_sge	*sg_list;
			int		num_sge;
			uint64_t	tag;
			uint64_t	mask;
		} add;
	} tm;
};

/* Post list operations. ibv_post_srq_ops(3) */
static inline int ibv_post_srq_ops(struct ibv_srq *srq, struct ibv_ops_wr *op, struct ibv_ops_wr **bad_op)
{
	struct verbs_context *ext = verbs_get_ctx_op(srq->context, post_srq_ops);

	if (ext)
		return ext->post_srq_ops(srq, op, bad_op);
	*bad_op = op;
	return EOPNOTSUPP;
}

/*
 * A QP that takes send requests by calls, between ibv_wr_start() and ibv_wr_complete(). wr_id and wr_flags
 * hold for the requests begun after they were set; pointers of operations that the QP was not made with are
 * invalid. ibv_wr_post(3)
 */
struct ibv_qp_ex {
	struct ibv_qp	qp_base;
	uint64_t	comp_mask;
	uint64_t	wr_id;
	unsigned int	wr_flags;	/* enum ibv_send_flags */

	void (*wr_atomic_cmp_swp)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, uint64_t compare,
				  uint64_t swap);
	void (*wr_atomic_fetch_add)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, uint64_t add);
	void (*wr_bind_mw)(struct ibv_qp_ex *qp, struct ibv_mw *mw, uint32_t rkey,
			   const struct ibv_mw_bind_info *bind_info);
	void (*wr_local_inv)(struct ibv_qp_ex *qp, uint32_t invalidate_rkey);
	void (*wr_rdma_read)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr);
	void (*wr_rdma_write)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr);
	void (*wr_rdma_write_imm)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, __be32 imm_data);
	void (*wr_send)(struct ibv_qp_ex *qp);
	void (*wr_send_imm)(struct ibv_qp_ex *qp, __be32 imm_data);
	void (*wr_send_inv)(struct ibv_qp_ex *qp, uint32_t invalidate_rkey);
	void (*wr_send_tso)(struct ibv_qp_ex *qp, void *hdr, uint16_t hdr_sz, uint16_t mss);
	void (*wr_set_ud_addr)(struct ibv_qp_ex *qp, struct ibv_ah *ah, uint32_t remote_qpn,
			       uint32_t remote_qkey);
	void (*wr_set_xrc_srqn)(struct ibv_qp_ex *qp, uint32_t remote_srqn);
	void (*wr_set_inline_data)(struct ibv_qp_ex *qp, void *addr, size_t length);
	void (*wr_set_inline_data_list)(struct ibv_qp_ex *qp, size_t num_buf,
					const struct ibv_data_buf *buf_list);
	void (*wr_set_sge)(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t addr, uint32_t length);
	void (*wr_set_sge_list)(struct ibv_qp_ex *qp, size_t num_sge, const struct ibv_sge *sg_list);
	void (*wr_start)(struct ibv_qp_ex *qp);
	int (*wr_complete)(struct ibv_qp_ex *qp);
	void (*wr_abort)(struct ibv_qp_ex *qp);
	void (*wr_atomic_write)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr,
				const void *atomic_wr);
	void (*wr_flush)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, size_t len, uint8_t type,
			 uint8_t level);
};

/* Where flushed bytes are afterwards: seen by everyone at the peer; kept over a loss of power. */
enum ibv_placement_type {
	IBV_FLUSH_GLOBAL	= 1 << 0,
	IBV_FLUSH_PERSISTENT	= 1 << 1,
};

/* What is flushed: a range, or all of the region. */
enum ibv_selectivity_level {
	IBV_FLUSH_RANGE,
	IBV_FLUSH_MR,
};

/*
 * The same QP for these calls, or NULL if it was made without IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.
 * ibv_wr_post(3)
 */
struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp);

/* Begin a batch; no other thread may post on the QP until it is completed or aborted. ibv_wr_post(3) */
static inline void ibv_wr_start(struct ibv_qp_ex *qp)
{
	qp->wr_start(qp);
}

/*
 * Post the batch: 0, or an errno value for the first thing that was wrong, and then nothing is posted.
 * ibv_wr_post(3)
 */
static inline int ibv_wr_complete(struct ibv_qp_ex *qp)
{
	return qp->wr_complete(qp);
}

/* Forget the batch. ibv_wr_post(3) */
static inline void ibv_wr_abort(struct ibv_qp_ex *qp)
{
	qp->wr_abort(qp);
}

/*
 * Begin a request of the named kind; arguments as in struct ibv_send_wr. The ibv_wr_set calls below complete
 * it.
 */
static inline void ibv_wr_atomic_cmp_swp(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr,
					 uint64_t compare, uint64_t swap)
{
	qp->wr_atomic_cmp_swp(qp, rkey, remote_addr, compare, swap);
}

static inline void ibv_wr_atomic_fetch_add(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr,
					   uint64_t add)
{
	qp->wr_atomic_fetch_add(qp, rkey, remote_addr, add);
}

static inline void ibv_wr_bind_mw(struct ibv_qp_ex *qp, struct ibv_mw *mw, uint32_t rkey,
				  const struct ibv_mw_bind_info *bind_info)
{
	qp->wr_bind_mw(qp, mw, rkey, bind_info);
}

static inline void ibv_wr_local_inv(struct ibv_qp_ex *qp, uint32_t invalidate_rkey)
{
	qp->wr_local_inv(qp, invalidate_rkey);
}

static inline void ibv_wr_rdma_read(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr)
{
	qp->wr_rdma_read(qp, rkey, remote_addr);
}

static inline void ibv_wr_rdma_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr)
{
	qp->wr_rdma_write(qp, rkey, remote_addr);
}

static inline void ibv_wr_rdma_write_imm(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr,
					 __be32 imm_data)
{
	qp->wr_rdma_write_imm(qp, rkey, remote_addr, imm_data);
}

static inline void ibv_wr_send(struct ibv_qp_ex *qp)
{
	qp->wr_send(qp);
}

static inline void ibv_wr_send_imm(struct ibv_qp_ex *qp, __be32 imm_data)
{
	qp->wr_send_imm(qp, imm_data);
}

static inline void ibv_wr_send_inv(struct ibv_qp_ex *qp, uint32_t invalidate_rkey)
{
	qp->wr_send_inv(qp, invalidate_rkey);
}

/* hdr_sz bytes of packet headers at hdr, repeated before every mss bytes of data. */
static inline void ibv_wr_send_tso(struct ibv_qp_ex *qp, void *hdr, uint16_t hdr_sz, uint16_t mss)
{
	qp->wr_send_tso(qp, hdr, hdr_sz, mss);
}

/* atomic_wr: 8 bytes, taken at once. */
static inline void ibv_wr_atomic_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr,
				       const void *atomic_wr)
{
	qp->wr_atomic_write(qp, rkey, remote_addr, atomic_wr);
}

/*
 * type: enum ibv_placement_type; level: enum ibv_selectivity_level, with IBV_FLUSH_MR address and length do
 * not count.
 */
static inline void ibv_wr_flush(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, size_t len,
	uint8_t type,
				uint8_t level)
{
	qp->wr_flush(qp, rkey, remote_addr, len, type, level);
}

/* Where the current request goes, on UD and XRC QPs. */
static inline void ibv_wr_set_ud_addr(struct ibv_qp_ex *qp, struct ibv_ah *ah, uint32_t remote_qpn,
				      uint32_t remote_qkey)
{
	qp->wr_set_ud_addr(qp, ah, remote_qpn, remote_qkey);
}

static inline void ibv_wr_set_xrc_srqn(struct ibv_qp_ex *qp, uint32_t remote_srqn)
{
	qp->wr_set_xrc_srqn(qp, remote_srqn);
}

/* The current request's data, taken at once: one buffer or several in a row. */
static inline void ibv_wr_set_inline_data(struct ibv_qp_ex *qp, void *addr, size_t length)
{
	qp->wr_set_inline_data(qp, addr, length);
}

static inline void ibv_wr_set_inline_data_list(struct ibv_qp_ex *qp, size_t num_buf,
					       const struct ibv_data_buf *buf_list)
{
	qp->wr_set_inline_data_list(qp, num_buf, buf_list);
}

/* The current request's data in registered memory: one piece or several; the list may be reused at once. */
static inline void ibv_wr_set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t addr, uint32_t length)
{
	qp->wr_set_sge(qp, lkey, addr, length);
}

static inline void ibv_wr_set_sge_list(struct ibv_qp_ex *qp, size_t num_sge, const struct ibv_sge *sg_list)
{
	qp->wr_set_sge_list(qp, num_sge, sg_list);
}

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_VERBS_POST_H */

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue pairs: creation, the state machine, attributes. Part of <infiniband/verbs.h>.
 *
 * Calls that give an int return 0 or an errno value, calls that give a pointer NULL with errno; both give
 * EOPNOTSUPP if the device lacks the verb.
 */
#ifndef INFINIBAND_VERBS_QP_H
#define INFINIBAND_VERBS_QP_H

#include <infiniband/verbs/ah.h>
#include <infiniband/verbs/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Transport services. ibv_create_qp(3), ibv_create_qp_ex(3) */
enum ibv_qp_type {
	IBV_QPT_RC		= 2,
	IBV_QPT_UC		= 3,
	IBV_QPT_UD		= 4,
	IBV_QPT_RAW_PACKET	= 8,
	IBV_QPT_XRC_SEND	= 9,
	IBV_QPT_XRC_RECV	= 10,
	IBV_QPT_DRIVER		= 255,
};

/* 1 if a mask of QP types, as in struct ibv_tso_caps, has the type. */
static inline int ibv_is_qpt_supported(uint32_t caps, enum ibv_qp_type qpt)
{
	return (caps >> qpt) & 1;
}

/* Sizes of a QP's queues in work requests and SGEs per request, and of inline data in bytes. */
struct ibv_qp_cap {
	uint32_t	max_send_wr;
	uint32_t	max_recv_wr;
	uint32_t	max_send_sge;
	uint32_t	max_recv_sge;
	uint32_t	max_inline_data;
};

/* What ibv_create_qp() makes. sq_sig_all: every send request completes, signaled or not. ibv_create_qp(3) */
struct ibv_qp_init_attr {
	void			*qp_context;
	struct ibv_cq		*send_cq;
	struct ibv_cq		*recv_cq;
	struct ibv_srq		*srq;		/* or NULL: the QP has its own receive queue */
	struct ibv_qp_cap	cap;
	enum ibv_qp_type	qp_type;
	int			sq_sig_all;
};

/* Which members of ibv_qp_init_attr_ex from pd on are valid. ibv_create_qp_ex(3) */
enum ibv_qp_init_attr_mask {
	IBV_QP_INIT_ATTR_PD		= 1 << 0,
	IBV_QP_INIT_ATTR_XRCD		= 1 << 1,
	IBV_QP_INIT_ATTR_CREATE_FLAGS	= 1 << 2,
	IBV_QP_INIT_ATTR_MAX_TSO_HEADER	= 1 << 3,
	IBV_QP_INIT_ATTR_IND_TABLE	= 1 << 4,
	IBV_QP_INIT_ATTR_RX_HASH	= 1 << 5,
	IBV_QP_INIT_ATTR_SEND_OPS_FLAGS	= 1 << 6,
};

/* Properties of a QP. SOURCE_QPN: a UD QP sends under source_qpn. ibv_create_qp_ex(3) */
enum ibv_qp_create_flags {
	IBV_QP_CREATE_BLOCK_SELF_MCAST_LB	= 1 << 1,
	IBV_QP_CREATE_SCATTER_FCS		= 1 << 8,
	IBV_QP_CREATE_CVLAN_STRIPPING		= 1 << 9,
	IBV_QP_CREATE_SOURCE_QPN		= 1 << 10,
	IBV_QP_CREATE_PCI_WRITE_END_PADDING	= 1 << 11,
};

/* The ibv_wr_*() operations that a QP is to have. ibv_wr_post(3) */
enum ibv_qp_create_send_ops_flags {
	IBV_QP_EX_WITH_RDMA_WRITE		= 1 << 0,
	IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM	= 1 << 1,
	IBV_QP_EX_WITH_SEND			= 1 << 2,
	IBV_QP_EX_WITH_SEND_WITH_IMM		= 1 << 3,
	IBV_QP_EX_WITH_RDMA_READ		= 1 << 4,
	IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP	= 1 << 5,
	IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD	= 1 << 6,
	IBV_QP_EX_WITH_LOCAL_INV		= 1 << 7,
	IBV_QP_EX_WITH_BIND_MW			= 1 << 8,
	IBV_QP_EX_WITH_SEND_WITH_INV		= 1 << 9,
	IBV_QP_EX_WITH_TSO			= 1 << 10,
	IBV_QP_EX_WITH_FLUSH			= 1 << 11,
	IBV_QP_EX_WITH_ATOMIC_WRITE		= 1 << 12,
};

/* Receive-side scaling of a QP: function, key and packet fields. */
struct ibv_rx_hash_conf {
	uint8_t		rx_hash_function;	/* enum ibv_rx_hash_function_flags */
	uint8_t		rx_hash_key_len;	/* bytes */
	uint8_t		*rx_hash_key;
	uint64_t	rx_hash_fields_mask;	/* enum ibv_rx_hash_fields */
};

/* What ibv_create_qp_ex() makes; begins as struct ibv_qp_init_attr does. */
struct ibv_qp_init_attr_ex {
	void				*qp_context;
	struct ibv_cq			*send_cq;
	struct ibv_cq			*recv_cq;
	struct ibv_srq			*srq;
	struct ibv_qp_cap		cap;
	enum ibv_qp_type		qp_type;
	int				sq_sig_all;

	uint32_t			comp_mask;	/* enum ibv_qp_init_attr_mask */
	struct ibv_pd			*pd;
	struct ibv_xrcd			*xrcd;		/* XRC_RECV, instead of pd */
	uint32_t			create_flags;	/* enum ibv_qp_create_flags */
	uint16_t			max_tso_header;	/* bytes */
	struct ibv_rwq_ind_table	*rwq_ind_tbl;
	struct ibv_rx_hash_conf		rx_hash_conf;
	uint32_t			source_qpn;
	uint64_t			send_ops_flags;	/* enum ibv_qp_create_send_ops_flags */
};

/* Which members of ibv_qp_open_attr are valid. ibv_open_qp(3) */
enum ibv_qp_open_attr_mask {
	IBV_QP_OPEN_ATTR_NUM		= 1 << 0,
	IBV_QP_OPEN_ATTR_XRCD		= 1 << 1,
	IBV_QP_OPEN_ATTR_CONTEXT	= 1 << 2,
	IBV_QP_OPEN_ATTR_TYPE		= 1 << 3,
	IBV_QP_OPEN_ATTR_RESERVED	= 1 << 4,
};

/* Which XRC_RECV QP of the domain to share. ibv_open_qp(3) */
struct ibv_qp_open_attr {
	uint32_t		comp_mask;	/* enum ibv_qp_open_attr_mask */
	uint32_t		qp_num;
	struct ibv_xrcd		*xrcd;
	void			*qp_context;
	enum ibv_qp_type	qp_type;
};

/* States of a QP (volume 1, 10.3.1). It receives from RTR on and sends in RTS. ibv_modify_qp(3) */
enum ibv_qp_state {
	IBV_QPS_RESET,
	IBV_QPS_INIT,
	IBV_QPS_RTR,
	IBV_QPS_RTS,
	IBV_QPS_SQD,
	IBV_QPS_SQE,
	IBV_QPS_ERR,
	IBV_QPS_UNKNOWN,
};

/* States of automatic path migration (volume 1, 17.2.8). */
enum ibv_mig_state {
	IBV_MIG_MIGRATED,
	IBV_MIG_REARM,
	IBV_MIG_ARMED,
};

/*
 * Which members of ibv_qp_attr are meant. Each transition requires some and allows others. ibv_modify_qp(3)
 */
enum ibv_qp_attr_mask {
	IBV_QP_STATE			= 1 << 0,
	IBV_QP_CUR_STATE		= 1 << 1,
	IBV_QP_EN_SQD_ASYNC_NOTIFY	= 1 << 2,
	IBV_QP_ACCESS_FLAGS		= 1 << 3,
	IBV_QP_PKEY_INDEX		= 1 << 4,
	IBV_QP_PORT			= 1 << 5,
	IBV_QP_QKEY			= 1 << 6,
	IBV_QP_AV			= 1 << 7,
	IBV_QP_PATH_MTU			= 1 << 8,
	IBV_QP_TIMEOUT			= 1 << 9,
	IBV_QP_RETRY_CNT		= 1 << 10,
	IBV_QP_RNR_RETRY		= 1 << 11,
	IBV_QP_RQ_PSN			= 1 << 12,
	IBV_QP_MAX_QP_RD_ATOMIC		= 1 << 13,
	IBV_QP_ALT_PATH			= 1 << 14,
	IBV_QP_MIN_RNR_TIMER		= 1 << 15,
	IBV_QP_SQ_PSN			= 1 << 16,
	IBV_QP_MAX_DEST_RD_ATOMIC	= 1 << 17,
	IBV_QP_PATH_MIG_STATE		= 1 << 18,
	IBV_QP_CAP			= 1 << 19,
	IBV_QP_DEST_QPN			= 1 << 20,
	IBV_QP_RATE_LIMIT		= 1 << 25,
};

/* Attributes of a QP. ibv_modify_qp(3), ibv_query_qp(3) */
struct ibv_qp_attr {
	enum ibv_qp_state	qp_state;
	enum ibv_qp_state	cur_qp_state;
	enum ibv_mtu		path_mtu;
	enum ibv_mig_state	path_mig_state;
	uint32_t		qkey;
	uint32_t		rq_psn;			/* 24 bits: the first that is expected */
	uint32_t		sq_psn;			/* 24 bits: the first that is sent */
	uint32_t		dest_qp_num;
	unsigned int		qp_access_flags;	/* enum ibv_access_flags, the remote ones */
	struct ibv_qp_cap	cap;
	struct ibv_ah_attr	ah_attr;
	struct ibv_ah_attr	alt_ah_attr;
	uint16_t		pkey_index;
	uint16_t		alt_pkey_index;
	uint8_t			en_sqd_async_notify;
	uint8_t			sq_draining;
	uint8_t			max_rd_atomic;		/* reads and atomics in flight, as requester */
	uint8_t			max_dest_rd_atomic;	/* the same, as responder */
	uint8_t			min_rnr_timer;		/* code, 0 to 31, of the wait that RNR NAKs ask for */
	uint8_t			port_num;
	uint8_t			timeout;		/* n: 4.096 µs * 2^n; 0: forever */
	uint8_t			retry_cnt;		/* 0 to 7 */
	uint8_t			rnr_retry;		/* 0 to 6; 7: without end */
	uint8_t			alt_port_num;
	uint8_t			alt_timeout;
	uint32_t		rate_limit;		/* kbit/s; 0: none */
};

/*
 * Rate limiting: kbit/s, the largest burst and the usual packet in bytes (0: default). comp_mask must be 0.
 */
struct ibv_qp_rate_limit_attr {
	uint32_t	rate_limit;
	uint32_t	max_burst_sz;
	uint16_t	typical_pkt_sz;
	uint32_t	comp_mask;
};

/*
 * A queue pair. state is what the last ibv_modify_qp() left; mutex and below belong to the library.
 * ibv_create_qp(3)
 */
struct ibv_qp {
	struct ibv_context	*context;
	void			*qp_context;
	struct ibv_pd		*pd;
	struct ibv_cq		*send_cq;
	struct ibv_cq		*recv_cq;
	struct ibv_srq		*srq;
	uint32_t		handle;
	uint32_t		qp_num;
	enum ibv_qp_state	state;
	enum ibv_qp_type	qp_type;
	pthread_mutex_t		mutex;
	pthread_cond_t		cond;
	uint32_t		events_completed;
};

/*
 * Make a QP in RESET; it lives until ibv_destroy_qp(). On return qp_init_attr->cap tells the sizes it got,
 * no less. EINVAL: sizes beyond the device's limits or missing CQs; ENOMEM; EOPNOTSUPP: no such type.
 * ibv_create_qp(3)
 */
struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *qp_init_attr);

/*
 * Make a QP with extensions. One with no more than a pd takes the path of ibv_create_qp().
 * ibv_create_qp_ex(3)
 */
static inline struct ibv_qp *ibv_create_qp_ex(struct ibv_context *context,
					      struct ibv_qp_init_attr_ex *qp_init_attr_ex)
{
	if (qp_init_attr_ex->comp_mask == IBV_QP_INIT_ATTR_PD)
		return ibv_create_qp(qp_init_attr_ex->pd, (struct ibv_qp_init_attr *)(void *)qp_init_attr_ex);
	return verbs_make_op_(context, create_qp_ex, context, qp_init_attr_ex);
}

/* Share an XRC_RECV QP of another process; ends with ibv_destroy_qp(). ibv_open_qp(3) */
static inline struct ibv_qp *ibv_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *qp_open_attr)
{
	return verbs_make_op_(context, open_qp, context, qp_open_attr);
}

/*
 * Change the attributes in attr_mask (enum ibv_qp_attr_mask) and, with IBV_QP_STATE, the state. On failure
 * nothing has changed. EINVAL: transition, mask or value not allowed. ibv_modify_qp(3)
 */
int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask);

/* Limit the rate of a QP in RTS. ibv_modify_qp_rate_limit(3) */
static inline int ibv_modify_qp_rate_limit(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr)
{
	return verbs_call_op_(qp->context, modify_qp_rate_limit, qp, attr);
}

/* The attributes (at least those in attr_mask) and what the QP was made with. ibv_query_qp(3) */
int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask,
		 struct ibv_qp_init_attr *init_attr);

/* Kinds of send work requests; ibv_post_send(3) tells which transport has which. */
enum ibv_wr_opcode {
	IBV_WR_RDMA_WRITE		= 0,
	IBV_WR_RDMA_WRITE_WITH_IMM	= 1,
	IBV_WR_SEND			= 2,
	IBV_WR_SEND_WITH_IMM		= 3,
	IBV_WR_RDMA_READ		= 4,
	IBV_WR_ATOMIC_CMP_AND_SWP	= 5,
	IBV_WR_ATOMIC_FETCH_AND_ADD	= 6,
	IBV_WR_LOCAL_INV		= 7,
	IBV_WR_BIND_MW			= 8,
	IBV_WR_SEND_WITH_INV		= 9,
	IBV_WR_TSO			= 10,
	IBV_WR_DRIVER1			= 11,
	IBV_WR_FLUSH			= 14,
	IBV_WR_ATOMIC_WRITE		= 15,
};

/* The name of an operation. An unknown value gives "unknown", never NULL. */
const char *ibv_wr_opcode_str(enum ibv_wr_opcode opcode);

/* What ibv_query_qp_data_in_order() is asked. */
enum ibv_query_qp_data_in_order_flags {
	IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS	= 1 << 0,
	/* without regard to the processor's own order */
	IBV_QUERY_QP_DATA_IN_ORDER_DEVICE_ONLY	= 1 << 1,
};

/* What it answers to RETURN_CAPS. */
enum ibv_query_qp_data_in_order_caps {
	IBV_QUERY_QP_DATA_IN_ORDER_WHOLE_MSG		= 1 << 0,
	/* each aligned block of 128 bytes for itself */
	IBV_QUERY_QP_DATA_IN_ORDER_ALIGNED_128_BYTES	= 1 << 1,
};

/*
 * 1 if an operation's bytes become visible in ascending order on this QP, so that a program may wait for the
 * last one, else 0; with RETURN_CAPS the bits of enum ibv_query_qp_data_in_order_caps that hold.
 * ibv_query_qp_data_in_order(3)
 */
int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags);

/*
 * Release a QP, after waiting for unacknowledged events. EBUSY: attached to a multicast group.
 * ibv_create_qp(3)
 */
int ibv_destroy_qp(struct ibv_qp *qp);

/*
 * Enhanced connection establishment: what both ends' vendors (IEEE OUI) agree on. 0 is "nothing".
 * ibv_set_ece(3)
 */
struct ibv_ece {
	uint32_t	vendor_id;
	uint32_t	options;
	uint32_t	comp_mask;
};

/* Offer options in INIT or RTR; read what became of them. ibv_set_ece(3), ibv_query_ece(3) */
int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece);
int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece);

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_VERBS_QP_H */

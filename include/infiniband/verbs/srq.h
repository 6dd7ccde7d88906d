/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Receive queues that stand alone: shared receive queues, work queues (WQ) and the tables that spread
 * packets over work queues. Part of <infiniband/verbs.h>.
 *
 * Calls that give an int return 0 or an errno value, calls that give a pointer NULL with errno; both give
 * EOPNOTSUPP if the device lacks the verb.
 */
#ifndef INFINIBAND_VERBS_SRQ_H
#define INFINIBAND_VERBS_SRQ_H

#include <infiniband/verbs/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What ibv_modify_srq() is to change. ibv_modify_srq(3) */
enum ibv_srq_attr_mask {
	IBV_SRQ_MAX_WR	= 1 << 0,
	IBV_SRQ_LIMIT	= 1 << 1,
};

/*
 * Sizes of an SRQ, and the number of requests below which IBV_EVENT_SRQ_LIMIT_REACHED is given once (0:
 * never).
 */
struct ibv_srq_attr {
	uint32_t	max_wr;
	uint32_t	max_sge;
	uint32_t	srq_limit;
};

/* What ibv_create_srq() makes. srq_limit is ignored. ibv_create_srq(3) */
struct ibv_srq_init_attr {
	void			*srq_context;
	struct ibv_srq_attr	attr;
};

/* Kinds of SRQ: for RC, UC and UD; for XRC; with tag matching. ibv_create_srq_ex(3) */
enum ibv_srq_type {
	IBV_SRQT_BASIC,
	IBV_SRQT_XRC,
	IBV_SRQT_TM,
};

/* Which members of ibv_srq_init_attr_ex from srq_type on are valid. */
enum ibv_srq_init_attr_mask {
	IBV_SRQ_INIT_ATTR_TYPE		= 1 << 0,
	IBV_SRQ_INIT_ATTR_PD		= 1 << 1,
	IBV_SRQ_INIT_ATTR_XRCD		= 1 << 2,
	IBV_SRQ_INIT_ATTR_CQ		= 1 << 3,
	IBV_SRQ_INIT_ATTR_TM		= 1 << 4,
	IBV_SRQ_INIT_ATTR_RESERVED	= 1 << 5,
};

/* Tag matching: tags in the list, and list operations in flight. */
struct ibv_tm_cap {
	uint32_t	max_num_tags;
	uint32_t	max_ops;
};

/*
 * What ibv_create_srq_ex() makes; begins as struct ibv_srq_init_attr does. xrcd and cq are for XRC, cq for
 * tags too.
 */
struct ibv_srq_init_attr_ex {
	void			*srq_context;
	struct ibv_srq_attr	attr;

	uint32_t		comp_mask;	/* enum ibv_srq_init_attr_mask */
	enum ibv_srq_type	srq_type;
	struct ibv_pd		*pd;
	struct ibv_xrcd		*xrcd;
	struct ibv_cq		*cq;
	struct ibv_tm_cap	tm_cap;
};

/* A shared receive queue. mutex, cond and events_completed belong to the library. ibv_create_srq(3) */
struct ibv_srq {
	struct ibv_context	*context;
	void			*srq_context;
	struct ibv_pd		*pd;
	uint32_t		handle;
	pthread_mutex_t		mutex;
	pthread_cond_t		cond;
	uint32_t		events_completed;
};

/*
 * Make an SRQ; it lives until ibv_destroy_srq(). On return attr tells the sizes it got, no less.
 * ibv_create_srq(3)
 */
struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *srq_init_attr);

/*
 * Make an SRQ of any kind. A basic one with no more than a pd takes the path of ibv_create_srq(), which
 * every library has. ibv_create_srq_ex(3)
 */
static inline struct ibv_srq *ibv_create_srq_ex(struct ibv_context *context,
						struct ibv_srq_init_attr_ex *srq_init_attr_ex)
{
	const uint32_t mask = srq_init_attr_ex->comp_mask;
	const int typed = (mask & IBV_SRQ_INIT_ATTR_TYPE) != 0;

	if ((mask & ~(uint32_t)IBV_SRQ_INIT_ATTR_TYPE) == IBV_SRQ_INIT_ATTR_PD &&
	    (!typed || srq_init_attr_ex->srq_type == IBV_SRQT_BASIC))
		return ibv_create_srq(srq_init_attr_ex->pd,
				      (struct ibv_srq_init_attr *)(void *)srq_init_attr_ex);
	return verbs_make_op_(context, create_srq_ex, context, srq_init_attr_ex);
}

/*
 * Change the size, arm the limit event, or both, as the mask (enum ibv_srq_attr_mask) says.
 * ibv_modify_srq(3)
 */
int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *srq_attr, int srq_attr_mask);

/* The sizes, and the limit while it is armed. ibv_query_srq(3) */
int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *srq_attr);

/* The number that XRC senders name this SRQ by. ibv_get_srq_num(3) */
static inline int ibv_get_srq_num(struct ibv_srq *srq, uint32_t *srq_num)
{
	return verbs_call_op_(srq->context, get_srq_num, srq, srq_num);
}

/* Release it, after waiting for unacknowledged events. EBUSY: a QP still uses it. ibv_create_srq(3) */
int ibv_destroy_srq(struct ibv_srq *srq);

/* Kinds of work queue. ibv_create_wq(3) */
enum ibv_wq_type {
	IBV_WQT_RQ,
};

/* Which members of ibv_wq_init_attr from create_flags on are valid. */
enum ibv_wq_init_attr_mask {
	IBV_WQ_INIT_ATTR_FLAGS		= 1 << 0,
	IBV_WQ_INIT_ATTR_RESERVED	= 1 << 1,
};

/* What a work queue does with packets. */
enum ibv_wq_flags {
	IBV_WQ_FLAGS_CVLAN_STRIPPING		= 1 << 0,
	IBV_WQ_FLAGS_SCATTER_FCS		= 1 << 1,
	IBV_WQ_FLAGS_DELAY_DROP			= 1 << 2,
	IBV_WQ_FLAGS_PCI_WRITE_END_PADDING	= 1 << 3,
	IBV_WQ_FLAGS_RESERVED			= 1 << 4,
};

/* What ibv_create_wq() makes. */
struct ibv_wq_init_attr {
	void			*wq_context;
	enum ibv_wq_type	wq_type;
	uint32_t		max_wr;
	uint32_t		max_sge;
	struct ibv_pd		*pd;
	struct ibv_cq		*cq;
	uint32_t		comp_mask;	/* enum ibv_wq_init_attr_mask */
	uint32_t		create_flags;	/* enum ibv_wq_flags */
};

/* States of a work queue; it receives in RDY. ibv_modify_wq(3) */
enum ibv_wq_state {
	IBV_WQS_RESET,
	IBV_WQS_RDY,
	IBV_WQS_ERR,
	IBV_WQS_UNKNOWN,
};

/* What ibv_modify_wq() is to change. */
enum ibv_wq_attr_mask {
	IBV_WQ_ATTR_STATE	= 1 << 0,
	IBV_WQ_ATTR_CURR_STATE	= 1 << 1,
	IBV_WQ_ATTR_FLAGS	= 1 << 2,
	IBV_WQ_ATTR_RESERVED	= 1 << 3,
};

/* The new state, the state to start from, and the flags to set among those in flags_mask. */
struct ibv_wq_attr {
	uint32_t		attr_mask;	/* enum ibv_wq_attr_mask */
	enum ibv_wq_state	wq_state;
	enum ibv_wq_state	curr_wq_state;
	uint32_t		flags;		/* enum ibv_wq_flags */
	uint32_t		flags_mask;	/* enum ibv_wq_flags */
};

/* A receive queue apart from its QP, which finds it through an indirection table. ibv_create_wq(3) */
struct ibv_wq {
	struct ibv_context	*context;
	void			*wq_context;
	struct ibv_pd		*pd;
	struct ibv_cq		*cq;
	uint32_t		wq_num;
	uint32_t		handle;
	enum ibv_wq_state	state;
	enum ibv_wq_type	wq_type;
	int (*post_recv)(struct ibv_wq *current, struct ibv_recv_wr *recv_wr,
		struct ibv_recv_wr **bad_recv_wr);
	pthread_mutex_t		mutex;
	pthread_cond_t		cond;
	uint32_t		events_completed;
	uint32_t		comp_mask;
};

/*
 * Make a work queue in RESET; it lives until ibv_destroy_wq(). The event bookkeeping is set up here, in the
 * program, since libraries leave it to the caller. ibv_create_wq(3)
 */
static inline struct ibv_wq *ibv_create_wq(struct ibv_context *context, struct ibv_wq_init_attr *wq_init_attr)
{
	struct ibv_wq *wq = verbs_make_op_(context, create_wq, context, wq_init_attr);

	if (!wq)
		return NULL;
	pthread_mutex_init(&wq->mutex, NULL);
	pthread_cond_init(&wq->cond, NULL);
	wq->events_completed = 0;
	wq->wq_context = wq_init_attr->wq_context;
	return wq;
}

/* Change state or flags of a work queue. ibv_modify_wq(3) */
static inline int ibv_modify_wq(struct ibv_wq *wq, struct ibv_wq_attr *wq_attr)
{
	return verbs_call_op_(wq->context, modify_wq, wq, wq_attr);
}

/* Release it. EBUSY: an indirection table still has it. ibv_create_wq(3) */
static inline int ibv_destroy_wq(struct ibv_wq *wq)
{
	return verbs_call_op_(wq->context, destroy_wq, wq);
}

/* Post receive requests, as ibv_post_recv() does. ibv_post_recv(3) */
static inline int ibv_post_wq_recv(struct ibv_wq *wq, struct ibv_recv_wr *recv_wr,
				   struct ibv_recv_wr **bad_recv_wr)
{
	return wq->post_recv(wq, recv_wr, bad_recv_wr);
}

/* Bits of ibv_rwq_ind_table_init_attr.comp_mask; none is defined. ibv_create_rwq_ind_table(3) */
enum ibv_ind_table_init_attr_mask {
	IBV_CREATE_IND_TABLE_RESERVED	= 1 << 0,
};

/* 2^log_ind_tbl_size receive work queues; the hash of a packet picks one. */
struct ibv_rwq_ind_table_init_attr {
	uint32_t	log_ind_tbl_size;
	struct ibv_wq	**ind_tbl;
	uint32_t	comp_mask;
};

/* An indirection table. ibv_create_rwq_ind_table(3) */
struct ibv_rwq_ind_table {
	struct ibv_context	*context;
	int			ind_tbl_handle;
	int			ind_tbl_num;
	uint32_t		comp_mask;
};

/* Make a table; it lives until ibv_destroy_rwq_ind_table(). ibv_create_rwq_ind_table(3) */
static inline struct ibv_rwq_ind_table *
ibv_create_rwq_ind_table(struct ibv_context *context, struct ibv_rwq_ind_table_init_attr *init_attr)
{
	return verbs_make_op_(context, create_rwq_ind_table, context, init_attr);
}

/* Release it. EBUSY: a QP still uses it. ibv_create_rwq_ind_table(3) */
static inline int ibv_destroy_rwq_ind_table(struct ibv_rwq_ind_table *rwq_ind_table)
{
	return verbs_call_op_(rwq_ind_table->context, destroy_rwq_ind_table, rwq_ind_table);
}

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_VERBS_SRQ_H */

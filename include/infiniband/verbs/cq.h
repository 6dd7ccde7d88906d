/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion queues: what a completion says, and three ways to learn of it: ibv_poll_cq(), the extended
 * queue's start/next/end, and events on a completion channel. Part of <infiniband/verbs.h>.
 *
 * Calls that give an int return 0 or an errno value and calls that give a pointer NULL with errno, unless
 * said otherwise.
 */
#ifndef INFINIBAND_VERBS_CQ_H
#define INFINIBAND_VERBS_CQ_H

#include <infiniband/verbs/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a work request ended. After an error, a connected QP is in the error state. ibv_poll_cq(3) */
enum ibv_wc_status {
	IBV_WC_SUCCESS,
	IBV_WC_LOC_LEN_ERR,
	IBV_WC_LOC_QP_OP_ERR,
	IBV_WC_LOC_EEC_OP_ERR,
	IBV_WC_LOC_PROT_ERR,
	IBV_WC_WR_FLUSH_ERR,
	IBV_WC_MW_BIND_ERR,
	IBV_WC_BAD_RESP_ERR,
	IBV_WC_LOC_ACCESS_ERR,
	IBV_WC_REM_INV_REQ_ERR,
	IBV_WC_REM_ACCESS_ERR,
	IBV_WC_REM_OP_ERR,
	IBV_WC_RETRY_EXC_ERR,
	IBV_WC_RNR_RETRY_EXC_ERR,
	IBV_WC_LOC_RDD_VIOL_ERR,
	IBV_WC_REM_INV_RD_REQ_ERR,
	IBV_WC_REM_ABORT_ERR,
	IBV_WC_INV_EECN_ERR,
	IBV_WC_INV_EEC_STATE_ERR,
	IBV_WC_FATAL_ERR,
	IBV_WC_RESP_TIMEOUT_ERR,
	IBV_WC_GENERAL_ERR,
	IBV_WC_TM_ERR,
	IBV_WC_TM_RNDV_INCOMPLETE,
};

/* A constant text for a status; a value out of range has a text too. ibv_poll_cq(3) */
const char *ibv_wc_status_str(enum ibv_wc_status status);

/* What was completed. Receives, and only they, have the bit IBV_WC_RECV. ibv_poll_cq(3) */
enum ibv_wc_opcode {
	IBV_WC_SEND			= 0,
	IBV_WC_RDMA_WRITE		= 1,
	IBV_WC_RDMA_READ		= 2,
	IBV_WC_COMP_SWAP		= 3,
	IBV_WC_FETCH_ADD		= 4,
	IBV_WC_BIND_MW			= 5,
	IBV_WC_LOCAL_INV		= 6,
	IBV_WC_TSO			= 7,
	IBV_WC_FLUSH			= 8,
	IBV_WC_ATOMIC_WRITE		= 9,
	IBV_WC_RECV			= 128,
	IBV_WC_RECV_RDMA_WITH_IMM	= 129,
	IBV_WC_TM_ADD			= 130,
	IBV_WC_TM_DEL			= 131,
	IBV_WC_TM_SYNC			= 132,
	IBV_WC_TM_RECV			= 133,
	IBV_WC_TM_NO_TAG		= 134,
	IBV_WC_DRIVER1			= 135,
	IBV_WC_DRIVER2			= 136,
	IBV_WC_DRIVER3			= 137,
};

/* The bit number of IBV_WC_IP_CSUM_OK. */
enum {
	IBV_WC_IP_CSUM_OK_SHIFT	= 2,
};

/*
 * Bits of ibv_wc.wc_flags: what else the completion says. GRH: a UD message's first 40 bytes hold one.
 * ibv_poll_cq(3)
 */
enum ibv_wc_flags {
	IBV_WC_GRH		= 1 << 0,
	IBV_WC_WITH_IMM		= 1 << 1,
	IBV_WC_IP_CSUM_OK	= 1 << IBV_WC_IP_CSUM_OK_SHIFT,
	IBV_WC_WITH_INV		= 1 << 3,
	IBV_WC_TM_SYNC_REQ	= 1 << 4,
	IBV_WC_TM_MATCH		= 1 << 5,
	IBV_WC_TM_DATA_VALID	= 1 << 6,
};

/*
 * A completion. With a status other than SUCCESS, only wr_id, status, qp_num and vendor_err are valid.
 * ibv_poll_cq(3)
 */
struct ibv_wc {
	uint64_t		wr_id;
	enum ibv_wc_status	status;
	enum ibv_wc_opcode	opcode;
	uint32_t		vendor_err;
	uint32_t		byte_len;	/* bytes received; a UD message's include 40 for the GRH */
	__extension__ union {
		__be32		imm_data;		/* with IBV_WC_WITH_IMM */
		uint32_t	invalidated_rkey;	/* with IBV_WC_WITH_INV */
	};
	uint32_t		qp_num;
	uint32_t		src_qp;		/* the sender, on UD */
	unsigned int		wc_flags;	/* enum ibv_wc_flags */
	uint16_t		pkey_index;
	uint16_t		slid;
	uint8_t			sl;
	uint8_t			dlid_path_bits;
};

/* A completion channel: fd becomes readable when a CQ has an event for it. ibv_create_comp_channel(3) */
struct ibv_comp_channel {
	struct ibv_context	*context;
	int			fd;
	int			refcnt;		/* CQs that report to it */
};

/*
 * A completion queue for cqe completions. mutex, cond and the counts belong to the library. ibv_create_cq(3)
 */
struct ibv_cq {
	struct ibv_context	*context;
	struct ibv_comp_channel	*channel;
	void			*cq_context;
	uint32_t		handle;
	int			cqe;
	pthread_mutex_t		mutex;
	pthread_cond_t		cond;
	uint32_t		comp_events_completed;
	uint32_t		async_events_completed;
};

/* Make a channel; it lives until ibv_destroy_comp_channel(). ibv_create_comp_channel(3) */
struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context);

/* Release it. EBUSY: a CQ still reports to it. ibv_create_comp_channel(3) */
int ibv_destroy_comp_channel(struct ibv_comp_channel *channel);

/*
 * Make a queue for at least cqe completions (cq->cqe says how many), reporting to channel unless that is
 * NULL. cq_context comes back with each event. EINVAL: cqe or comp_vector out of range. ibv_create_cq(3)
 */
struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
			     struct ibv_comp_channel *channel, int comp_vector);

/*
 * Change its size to at least cqe; what is in it stays. EINVAL: more completions are in it. ibv_resize_cq(3)
 */
int ibv_resize_cq(struct ibv_cq *cq, int cqe);

/* Release it, after waiting for unacknowledged events. EBUSY: a work queue still uses it. ibv_create_cq(3) */
int ibv_destroy_cq(struct ibv_cq *cq);

/*
 * Take up to num_entries completions out of the queue. Returns how many, or a negative value if the queue is
 * broken. Fewer than num_entries: it was empty then. ibv_poll_cq(3)
 */
static inline int ibv_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc)
{
	return cq->context->ops.poll_cq(cq, num_entries, wc);
}

/*
 * Ask for one event when the next completion arrives; with solicited_only, the next receive that its sender
 * solicited or that failed. Completions already there give none: poll again after asking.
 * ibv_req_notify_cq(3)
 */
static inline int ibv_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	return cq->context->ops.req_notify_cq(cq, solicited_only);
}

/*
 * Wait for an event on the channel and tell its queue and that queue's cq_context. Honours O_NONBLOCK on
 * channel->fd. Each event is to be acknowledged. 0 or -1 with errno. ibv_get_cq_event(3)
 */
int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context);

/* Acknowledge nevents events at once; takes a lock, so seldom is better. ibv_get_cq_event(3) */
void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents);

/* Members of a completion that an extended queue is to deliver. ibv_create_cq_ex(3) */
enum ibv_create_cq_wc_flags {
	IBV_WC_EX_WITH_BYTE_LEN				= 1 << 0,
	IBV_WC_EX_WITH_IMM				= 1 << 1,
	IBV_WC_EX_WITH_QP_NUM				= 1 << 2,
	IBV_WC_EX_WITH_SRC_QP				= 1 << 3,
	IBV_WC_EX_WITH_SLID				= 1 << 4,
	IBV_WC_EX_WITH_SL				= 1 << 5,
	IBV_WC_EX_WITH_DLID_PATH_BITS			= 1 << 6,
	IBV_WC_EX_WITH_COMPLETION_TIMESTAMP		= 1 << 7,
	IBV_WC_EX_WITH_CVLAN				= 1 << 8,
	IBV_WC_EX_WITH_FLOW_TAG				= 1 << 9,
	IBV_WC_EX_WITH_TM_INFO				= 1 << 10,
	IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK	= 1 << 11,
};

/* The members that struct ibv_wc has too. */
enum {
	IBV_WC_STANDARD_FLAGS = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM |
				IBV_WC_EX_WITH_SRC_QP | IBV_WC_EX_WITH_SLID | IBV_WC_EX_WITH_SL |
				IBV_WC_EX_WITH_DLID_PATH_BITS,
};

/* All members that this interface knows. */
enum {
	IBV_CREATE_CQ_SUP_WC_FLAGS = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
				     IBV_WC_EX_WITH_CVLAN | IBV_WC_EX_WITH_FLOW_TAG | IBV_WC_EX_WITH_TM_INFO |
				     IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
};

/* Which members of ibv_cq_init_attr_ex from flags on are valid. ibv_create_cq_ex(3) */
enum ibv_cq_init_attr_mask {
	IBV_CQ_INIT_ATTR_MASK_FLAGS	= 1 << 0,
	IBV_CQ_INIT_ATTR_MASK_PD	= 1 << 1,
};

/*
 * Promises of the program about an extended queue: one thread only; it will never overflow.
 * ibv_create_cq_ex(3)
 */
enum ibv_create_cq_attr_flags {
	IBV_CREATE_CQ_ATTR_SINGLE_THREADED	= 1 << 0,
	IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN	= 1 << 1,
};

/* What ibv_create_cq_ex() makes; the first members are ibv_create_cq()'s arguments. */
struct ibv_cq_init_attr_ex {
	uint32_t		cqe;
	void			*cq_context;
	struct ibv_comp_channel	*channel;
	uint32_t		comp_vector;
	uint64_t		wc_flags;	/* enum ibv_create_cq_wc_flags */
	uint32_t		comp_mask;	/* enum ibv_cq_init_attr_mask */
	uint32_t		flags;		/* enum ibv_create_cq_attr_flags */
	struct ibv_pd		*parent_domain;
};

/* Options of ibv_start_poll(); comp_mask must be 0. */
struct ibv_poll_cq_attr {
	uint32_t	comp_mask;
};

/* What the sender put into a tag matching header. */
struct ibv_wc_tm_info {
	uint64_t	tag;
	uint32_t	priv;
};

/*
 * An extended completion queue. It begins as struct ibv_cq does; status and wr_id are those of the
 * completion that a start or next has stopped at, the rest of which is read with the functions.
 * ibv_create_cq_ex(3)
 */
struct ibv_cq_ex {
	struct ibv_context	*context;
	struct ibv_comp_channel	*channel;
	void			*cq_context;
	uint32_t		handle;
	int			cqe;
	pthread_mutex_t		mutex;
	pthread_cond_t		cond;
	uint32_t		comp_events_completed;
	uint32_t		async_events_completed;

	uint32_t		comp_mask;
	enum ibv_wc_status	status;
	uint64_t		wr_id;
	int (*start_poll)(struct ibv_cq_ex *current, struct ibv_poll_cq_attr *attr);
	int (*next_poll)(struct ibv_cq_ex *current);
	void (*end_poll)(struct ibv_cq_ex *current);
	enum ibv_wc_opcode (*read_opcode)(struct ibv_cq_ex *current);
	uint32_t (*read_vendor_err)(struct ibv_cq_ex *current);
	uint32_t (*read_byte_len)(struct ibv_cq_ex *current);
	__be32 (*read_imm_data)(struct ibv_cq_ex *current);
	uint32_t (*read_qp_num)(struct ibv_cq_ex *current);
	uint32_t (*read_src_qp)(struct ibv_cq_ex *current);
	unsigned int (*read_wc_flags)(struct ibv_cq_ex *current);
	uint32_t (*read_slid)(struct ibv_cq_ex *current);
	uint8_t (*read_sl)(struct ibv_cq_ex *current);
	uint8_t (*read_dlid_path_bits)(struct ibv_cq_ex *current);
	uint64_t (*read_completion_ts)(struct ibv_cq_ex *current);
	uint16_t (*read_cvlan)(struct ibv_cq_ex *current);
	uint32_t (*read_flow_tag)(struct ibv_cq_ex *current);
	void (*read_tm_info)(struct ibv_cq_ex *current, struct ibv_wc_tm_info *tm_info);
	uint64_t (*read_completion_wallclock_ns)(struct ibv_cq_ex *current);
};

/*
 * Make an extended queue; ends with ibv_destroy_cq(). EOPNOTSUPP (of some libraries ENOSYS): a member in
 * wc_flags is not to be had. ibv_create_cq_ex(3)
 */
static inline struct ibv_cq_ex *ibv_create_cq_ex(struct ibv_context *context,
						 struct ibv_cq_init_attr_ex *cq_attr)
{
	return verbs_make_op_(context, create_cq_ex, context, cq_attr);
}

/* The same queue for calls that take a struct ibv_cq. */
static inline struct ibv_cq *ibv_cq_ex_to_cq(struct ibv_cq_ex *cq)
{
	return (struct ibv_cq *)(void *)cq;
}

/* What ibv_modify_cq() is to change. ibv_modify_cq(3) */
enum ibv_cq_attr_mask {
	IBV_CQ_ATTR_MODERATE	= 1 << 0,
	IBV_CQ_ATTR_RESERVED	= 1 << 1,
};

/* One event for cq_count completions or after cq_period µs, whichever is first. */
struct ibv_moderate_cq {
	uint16_t	cq_count;
	uint16_t	cq_period;
};

/* Input of ibv_modify_cq(). */
struct ibv_modify_cq_attr {
	uint32_t		attr_mask;	/* enum ibv_cq_attr_mask */
	struct ibv_moderate_cq	moderate;
};

/* Change how the queue gives events. ibv_modify_cq(3) */
static inline int ibv_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)
{
	return verbs_call_op_(cq->context, modify_cq, cq, attr);
}

/*
 * Begin to read completions: 0 stops at the first one, ENOENT means that there is none, anything else is an
 * error. After 0, and only then, ibv_end_poll() must follow. ibv_create_cq_ex(3)
 */
static inline int ibv_start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr)
{
	return cq->start_poll(cq, attr);
}

/* Go on to the next completion: 0, ENOENT at the end, or an error. */
static inline int ibv_next_poll(struct ibv_cq_ex *cq)
{
	return cq->next_poll(cq);
}

/* End what ibv_start_poll() began; what was read is gone from the queue. */
static inline void ibv_end_poll(struct ibv_cq_ex *cq)
{
	cq->end_poll(cq);
}

/*
 * Members of the current completion, as in struct ibv_wc; between start and end only. Those that have a flag
 * in enum ibv_create_cq_wc_flags may be read only if the queue was made with it. ibv_create_cq_ex(3)
 */
static inline enum ibv_wc_opcode ibv_wc_read_opcode(struct ibv_cq_ex *cq)
{
	return cq->read_opcode(cq);
}

static inline uint32_t ibv_wc_read_vendor_err(struct ibv_cq_ex *cq)
{
	return cq->read_vendor_err(cq);
}

static inline uint32_t ibv_wc_read_byte_len(struct ibv_cq_ex *cq)
{
	return cq->read_byte_len(cq);
}

static inline __be32 ibv_wc_read_imm_data(struct ibv_cq_ex *cq)
{
	return cq->read_imm_data(cq);
}

/* In host order, although it shares its reader with the immediate data. */
static inline uint32_t ibv_wc_read_invalidated_rkey(struct ibv_cq_ex *cq)
{
	return (uint32_t)cq->read_imm_data(cq);
}

static inline uint32_t ibv_wc_read_qp_num(struct ibv_cq_ex *cq)
{
	return cq->read_qp_num(cq);
}

static inline uint32_t ibv_wc_read_src_qp(struct ibv_cq_ex *cq)
{
	return cq->read_src_qp(cq);
}

static inline unsigned int ibv_wc_read_wc_flags(struct ibv_cq_ex *cq)
{
	return cq->read_wc_flags(cq);
}

static inline uint32_t ibv_wc_read_slid(struct ibv_cq_ex *cq)
{
	return cq->read_slid(cq);
}

static inline uint8_t ibv_wc_read_sl(struct ibv_cq_ex *cq)
{
	return cq->read_sl(cq);
}

static inline uint8_t ibv_wc_read_dlid_path_bits(struct ibv_cq_ex *cq)
{
	return cq->read_dlid_path_bits(cq);
}

/* When it was completed: ticks of the device's hca_core_clock, or ns of the system's clock. */
static inline uint64_t ibv_wc_read_completion_ts(struct ibv_cq_ex *cq)
{
	return cq->read_completion_ts(cq);
}

static inline uint64_t ibv_wc_read_completion_wallclock_ns(struct ibv_cq_ex *cq)
{
	return cq->read_completion_wallclock_ns(cq);
}

/* The stripped VLAN tag, the tag of the flow rule that matched, the tag matching header. */
static inline uint16_t ibv_wc_read_cvlan(struct ibv_cq_ex *cq)
{
	return cq->read_cvlan(cq);
}

static inline uint32_t ibv_wc_read_flow_tag(struct ibv_cq_ex *cq)
{
	return cq->read_flow_tag(cq);
}

static inline void ibv_wc_read_tm_info(struct ibv_cq_ex *cq, struct ibv_wc_tm_info *tm_info)
{
	cq->read_tm_info(cq, tm_info);
}

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_VERBS_CQ_H */

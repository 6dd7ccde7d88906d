/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The adapter's objects. The verbs layer embeds each in the struct that it hands to the program and owns that
 * memory; the adapter initialises (vb_X_init), uses and releases (vb_X_fini) what is inside. Names and values
 * of attributes (states, opcodes, access flags, completion statuses) are those of infiniband/verbs.h; its
 * function tables, extension tricks and version nodes stay in the verbs layer.
 *
 * Threading: every object may be used by several threads. Locks, in the order in which they may nest:
 *   ctl (mutex: create, modify, destroy)  >  qp->sq.lock  >  qp->resp_lock  >  rq/srq lock  >  channel lock
 *     >  cq->lock  >  vb_progress_lock, async locks
 * Lifetime: an object counts its users (refs). While there are any, vb_X_fini fails with -EBUSY and changes
 * nothing.
 */
#ifndef VB_ADAPTER_OBJECT_H
#define VB_ADAPTER_OBJECT_H

#include <infiniband/verbs.h>
#include <pthread.h>

#include "adapter/inspection/registry.h"
#include "base/base.h"
#include "base/list.h"
#include "base/lock.h"
#include "host/host.h"
#include "host/inspect.h"
#include "host/loop/notifier.h"
#include "host/loop/activity.h"

/* Limits that the adapter reports and enforces. */
enum {
	VB_MAX_WR        = 32768,   /* work requests per queue */
	VB_MAX_SGE       = 32,      /* scatter/gather entries per work request */
	VB_MAX_INLINE    = 1024,    /* bytes */
	VB_MAX_CQE       = 4194304,
	VB_MAX_MR        = 1048575,
	/* READs and atomics in flight per QP, each direction; as many as rdma_rxe has */
	VB_MAX_RD_ATOMIC = 128,
	VB_MAX_MSG       = 0x7fffffff, /* bytes */
	VB_MAX_TSO       = 262144,  /* bytes that are cut into frames */
	VB_MAX_TSO_HEADER = 1024,
	VB_MIN_RATE      = 1,       /* of raw packet queue pairs, kbit/s */
	VB_MAX_RATE      = 400000000,
	VB_MAX_MCAST     = 8192,    /* attachments of queue pairs to multicast groups, per process */
	VB_PKEYS         = 1,
};

struct vb_context;
struct vb_device;
struct vb_cq;
struct vb_qp;
struct vb_srq;
struct vb_xrcd;
struct vb_path_ops;
struct vb_rss;
struct vb_counter;
struct vb_tags;
struct vb_tag_receiver;
struct vb_checked_qp;
struct vb_checked_cq;

/* ---- protection domains ---- */

struct vb_pd {
	struct vb_context *ctx;
	uint32_t number; /* unique in the process, never 0 */
	atomic_uint refs;
	struct vb_registered registered;
	/* Where the memory of queues comes from; NULL: the heap. take may return VB_USE_DEFAULT. */
	void *(*take)(struct vb_pd *pd, size_t bytes, size_t alignment);
	void (*give)(struct vb_pd *pd, void *memory);
};

#define VB_USE_DEFAULT ((void *)-1)

/* A queue's memory, aligned to a cache line. pd: NULL for the heap. */
struct vb_queue_memory {
	void *at;
	uint32_t bytes;
	bool is_given; /* by pd->take */
};

int vb_queue_memory_take(struct vb_queue_memory *m, struct vb_pd *pd, size_t bytes);
void vb_queue_memory_give(struct vb_queue_memory *m, struct vb_pd *pd);

int vb_pd_init(struct vb_pd *pd, struct vb_context *ctx);
/* Another handle on a domain; its own users count on it. */
void vb_pd_init_alias(struct vb_pd *pd, struct vb_context *ctx, uint32_t number);
int vb_pd_fini(struct vb_pd *pd);

/* ---- memory regions ---- */

/* All that exist. No region has IBV_ACCESS_FLUSH_PERSISTENT (vb_execution_flush). */
enum {
	VB_ACCESS_FLAGS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
			  IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | IBV_ACCESS_FLUSH_GLOBAL |
			  IBV_ACCESS_FLUSH_PERSISTENT | IBV_ACCESS_OPTIONAL_RANGE,
	/* those by which a peer changes memory: they need IBV_ACCESS_LOCAL_WRITE, too */
	VB_REMOTE_WRITES = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
};

struct vb_mr {
	struct vb_pd *pd;
	uint64_t va;     /* where the bytes are, in this process */
	uint64_t iova;   /* the address that work requests use for them */
	uint64_t length; /* bytes; may be 0 */
	unsigned access; /* enum ibv_access_flags */
	uint32_t key;    /* lkey and rkey */
	bool is_on_stack; /* of the thread that registered it: the pages must stay where they are */
};

/*
 * -EINVAL (REMOTE_WRITE or REMOTE_ATOMIC without LOCAL_WRITE, address wraps, unknown flags), -EFAULT (not
 * mapped, or not writable though LOCAL_WRITE is asked), -ENOMEM (no key left). IBV_ACCESS_OPTIONAL_RANGE
 * flags are accepted and ignored.
 */
int vb_mr_init(struct vb_mr *mr, struct vb_pd *pd, void *addr, uint64_t length, uint64_t iova,
	       unsigned access);
/* Returns after the last access in flight has ended. -EBUSY: memory windows are bound to it. */
int vb_mr_fini(struct vb_mr *mr);
/* A region of any address: reads give zeros, and writes are dropped. */
int vb_mr_init_null(struct vb_mr *mr, struct vb_pd *pd);
/* As ibv_advise_mr: 0 or a negative errno. */
int vb_mr_advise(struct vb_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
		 const struct ibv_sge *list, uint32_t n);
/* The length of the region with this key in this domain. -ENOENT: there is none. */
int vb_mr_find(uint32_t key, uint32_t pd, uint64_t *length);
/* Changes what flags (IBV_REREG_MR_*) name; the key stays. A failure changes nothing. */
int vb_mr_change(struct vb_mr *mr, int flags, struct vb_pd *pd, void *addr, uint64_t length, unsigned access);

/* ---- memory windows ---- */

struct vb_window {
	struct vb_pd *pd;
	uint32_t key; /* the one that it had first: names the entry (adapter/memory/window.h) */
};

int vb_window_init(struct vb_window *w, struct vb_pd *pd, enum ibv_mw_type type);
/* Bound or not. Returns after the last access through it has ended. */
int vb_window_fini(struct vb_window *w);

/* ---- completion channels and asynchronous events ---- */

/* What ibv_get_cq_event hands out one by one. notifier.fd is readable while events wait. */
struct vb_channel {
	struct vb_notifier notifier;
	pthread_mutex_t lock;
	struct vb_list events; /* vb_cq.event_node */
	struct vb_list backlogs; /* vb_cq.backlog.node */
	atomic_uint refs;      /* CQs */
	atomic_bool is_led;    /* a thread that waits for its events leads (adapter/progress/progress.h) */
};

int vb_channel_init(struct vb_channel *ch);
int vb_channel_fini(struct vb_channel *ch);
/* Waits (unless fd is O_NONBLOCK: -EAGAIN) for an event; -EINTR as read(2). */
int vb_channel_get(struct vb_channel *ch, struct vb_cq **cq);

/* An asynchronous event's subject; kind says which member of ibv_async_event.element it is. */
enum vb_async_kind { VB_ASYNC_CQ, VB_ASYNC_QP, VB_ASYNC_SRQ, VB_ASYNC_PORT, VB_ASYNC_DEVICE };

/* Counts the unacknowledged events of a CQ, QP or SRQ: its destruction waits for them. */
struct vb_async_source {
	uint32_t raised, acked; /* under the context's async lock */
};

struct vb_context {
	struct vb_device *device;
	unsigned generation;   /* vb_host_generation() when it was opened */
	struct vb_notifier async_notifier; /* its fd is readable while events wait */
	pthread_mutex_t async_lock;
	pthread_cond_t async_acked;
	struct vb_list async_events;
	struct vb_list node;   /* in the device's list of contexts */
	struct vb_registered registered;
};

int vb_context_init(struct vb_context *ctx, struct vb_device *dev);
void vb_context_fini(struct vb_context *ctx);

/* Queues an event. object: the vb_cq, vb_qp or vb_srq (NULL for port and device events, number = port). */
void vb_async_raise(struct vb_context *ctx, enum ibv_event_type type, enum vb_async_kind kind, void *object,
		    struct vb_async_source *source, int port);

struct vb_async_event {
	struct vb_list node;
	enum ibv_event_type type;
	enum vb_async_kind kind;
	void *object;
	struct vb_async_source *source;
	int port;
};

/* Waits as vb_channel_get. The caller frees *event. */
int vb_async_get(struct vb_context *ctx, struct vb_async_event **event);
void vb_async_ack(struct vb_context *ctx, struct vb_async_source *source);
/* Before an object goes: drops its queued events and waits until those handed out are acknowledged. */
void vb_async_forget(struct vb_context *ctx, struct vb_async_source *source);

/* ---- completion queues ---- */

/* One completion. */
struct vb_cqe {
	uint64_t wr_id;
	struct vb_qp *qp;      /* may be gone once the completion is out of its CQ */
	uint32_t qp_num;       /* its number, filled by vb_cq_push */
	uint32_t byte_len;
	union {
		uint32_t imm;      /* network order, or the invalidated rkey */
		uint32_t flow_tag; /* of a frame: its rule's */
	};
	union {
		uint32_t src_qp;
		uint32_t cvlan;    /* of a frame: the tag that was taken out */
	};
	union {
		/*
		 * of a send: the program's entries up to this one are free again once it is polled; modulo
		 * 2^16, like own_done
		 */
		uint32_t sq_position;
		struct vb_srq *srq;   /* of a shared receive: whose it was */
		uint64_t tag;         /* with IBV_WC_TM_MATCH, which is no shared receive: the message's */
	};
	uint64_t timestamp_ns; /* 0 unless the CQ asked for it */
	uint16_t pkey_index;
	uint16_t vendor_err;
	uint8_t status;        /* enum ibv_wc_status */
	uint8_t opcode;        /* enum ibv_wc_opcode, full value: its RECV bit 7 is bit 7 here */
	uint8_t wc_flags;
	uint8_t is_recv;
	uint8_t solicited;
	uint8_t is_srq;
	uint8_t sl;            /* of a datagram over RoCE: which header it came behind (ud/ud.c) */
	uint8_t is_frame;      /* of a raw packet queue pair: what the unions say of one holds */
	uint32_t app_ctx;      /* with IBV_WC_TM_MATCH: the message's */
};
_Static_assert(sizeof(struct vb_cqe) == VB_CACHE_LINE, "a completion is one cache line");

struct vb_cq {
	struct vb_context *ctx;
	struct vb_channel *channel; /* or NULL */
	struct vb_lock lock;
	struct vb_cqe *ring;
	uint32_t mask, head, tail;  /* free-running; tail - head entries wait */
	uint32_t capacity;          /* what the program may rely on; at most mask + 1 */
	_Atomic(uint8_t) special;   /* VB_CQ_* */
	uint8_t armed;              /* 0, 1 any, 2 solicited */
	/*
	 * the program prevents overruns (IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN); on one, the oldest completion
	 * goes
	 */
	bool ignores_overrun;
	struct vb_qp *hot;          /* had the last completion: an empty poll looks at it first */
	_Atomic(struct vb_prefetch_hint *) posted; /* of the QP that was posted to last (prefetch.h) */
	struct vb_cqe spare;        /* a completion that cannot simply go into the ring (completion.h) */
	struct vb_timer overrun;    /* set when a completion was lost (cq.c) */
	atomic_uint refs;
	struct vb_list event_node;
	uint32_t events_queued, events_raised, events_acked; /* under channel->lock / events_lock */
	pthread_mutex_t events_lock;
	pthread_cond_t events_cond;
	struct vb_async_source async;
	struct vb_pd *pd;           /* where its memory comes from; NULL: the heap */
	struct vb_queue_memory memory;
	/*
	 * Moderation: how many completions share an event, and how long the first waits at most. Under lock.
	 */
	uint32_t moderate_count;    /* 0 and 1: none waits */
	uint64_t moderate_ns;
	uint32_t held;              /* completions that wait now */
	struct vb_timer moderation;
	/* The completions that were there when it was armed. Under lock, but node. */
	struct {
		uint32_t end;           /* where they end */
		uint32_t reported_head, reported_tail; /* for which the last such event was */
		uint32_t times;         /* that it was armed with some there */
		uint64_t since_ns;
		uintptr_t thread;       /* vb_lock_self of the thread that armed it */
		struct vb_thread_looks looks;
		bool is_timed;          /* timer is set */
		struct vb_timer timer;
		struct vb_list node;    /* in channel->backlogs, under its lock */
	} backlog;
	struct vb_registered registered;
	struct vb_checked_cq *checked; /* the checks' (check/check.h); NULL while there are none */
};

/* What makes pushes and polls take longer ways. */
enum {
	VB_CQ_TIMESTAMPS = 1, /* its completions have a time */
	VB_CQ_OVERRUN = 2,    /* a completion was lost: set under lock, for good */
	VB_CQ_CAPTURED = 4,   /* a capture runs (adapter/queues/noted.h) */
	VB_CQ_ANY = 0xff,
};

static inline bool vb_cq_is(const struct vb_cq *cq, unsigned what)
{
	return atomic_load_explicit(&cq->special, memory_order_relaxed) & what;
}

static inline void vb_cq_mark(struct vb_cq *cq, uint8_t what, bool is_so)
{
	if (is_so)
		atomic_fetch_or(&cq->special, what);
	else
		atomic_fetch_and(&cq->special, (uint8_t)~what);
}

/* cqe >= 1. pd: of its memory, or NULL. */
int vb_cq_init(struct vb_cq *cq, struct vb_context *ctx, struct vb_channel *channel, struct vb_pd *pd,
	       uint32_t cqe);
int vb_cq_fini(struct vb_cq *cq); /* waits for its events to be acknowledged */
int vb_cq_resize(struct vb_cq *cq, uint32_t cqe); /* -EINVAL if more completions wait than would fit */
/*
 * Takes up to n completions in order; makes progress if there is none. Returns how many, or -EIO after an
 * overrun.
 */
int vb_cq_poll(struct vb_cq *cq, uint32_t n, struct vb_cqe *out);
int vb_cq_poll_wc(struct vb_cq *cq, uint32_t n, struct ibv_wc *out);
/*
 * The next completion gives an event. Completions that are there give one, too, if the program waits without
 * polling them: most programs arm and then poll, and would else be woken for nothing. If the program has
 * polled nothing since such an event, and nothing has come, the next one is delayed (LOOK_NS): else a thread
 * that arms for each event and leaves polling to another thread would never find the channel empty.
 */
int vb_cq_arm(struct vb_cq *cq, bool solicited_only);
/* Completions share an event: `count` of them, or fewer after `period_ns`. */
void vb_cq_moderate(struct vb_cq *cq, uint32_t count, uint64_t period_ns);
void vb_cq_ack_events(struct vb_cq *cq, unsigned n);
/* For producers: vb_cq_push (adapter/queues/completion.h). */
/* Drops the completions of a QP that is being reset or destroyed; it is hot no more. */
void vb_cq_purge(struct vb_cq *cq, struct vb_qp *qp);
/* The same, but keeps its completions. */
void vb_cq_forget(struct vb_cq *cq, struct vb_qp *qp);
/* Drops the completions of an SRQ that is being destroyed. */
void vb_cq_purge_srq(struct vb_cq *cq, struct vb_srq *srq);

/* ---- receive queues: a QP's own, or an SRQ's ---- */

struct vb_rwqe {
	uint64_t wr_id;
	uint64_t length; /* sum over sge, bytes */
	uint32_t nsge;
	uint32_t pd;     /* the domain that its keys are of */
	struct ibv_sge sge[VB_MAX_SGE];
};

/*
 * An entry is free again when the completion of a receive is polled: tail - polled is at most max_wr. A
 * receive reads one cache line of this.
 */
struct vb_rq {
	struct vb_lock lock;
	uint8_t *entries;
	uint32_t stride, mask, max_wr, max_sge;
	atomic_uint tail;     /* posted, free-running; written under lock */
	/* taken; written under lock, of a QP's own queue by its responder alone (resp_lock) */
	atomic_uint head;
	atomic_uint polled;
	/* a responder waits for the next post (of an SRQ: those in vb_srq.starved) */
	atomic_bool starved;
	bool is_closed;       /* the queue pair's receives are an SRQ's */
	struct vb_pd *pd;     /* where their memory comes from */
	struct vb_queue_memory memory;
};
_Static_assert(offsetof(struct vb_rq, starved) < VB_CACHE_LINE, "one cache line");

struct vb_srq {
	struct vb_context *ctx;
	struct vb_pd *pd;
	struct vb_rq rq;
	uint32_t limit;           /* 0: not armed */
	struct vb_list starved;   /* vb_qp.srq_node of responders that wait, under rq.lock */
	atomic_uint refs;         /* queue pairs; an XRC queue's: those that work on a request for it */
	/* threads at an XRC queue's CQ that have no reference to the queue: it stays as long */
	atomic_uint cq_users;
	bool is_leaving;          /* an XRC queue's: no request finds it; under vb_progress_lock */
	struct vb_xrcd *xrcd;     /* an XRC queue's (xrc.h), with its CQ and number; else NULL */
	struct vb_cq *cq;
	uint32_t number;
	struct vb_tags *tags;     /* of one that matches tags (tags.h), with its CQ; else NULL */
	struct vb_async_source async;
	struct vb_registered registered;
};

/* attr: asked in, granted out */
int vb_srq_init(struct vb_srq *srq, struct vb_pd *pd, struct ibv_srq_attr *attr);
/*
 * Makes an SRQ that was initialised one of the domain's, with completions in cq. -ENOMEM: no number is left;
 * or it cannot be shared.
 */
int vb_xrc_srq_join(struct vb_srq *srq, struct vb_xrcd *xrcd, struct vb_cq *cq);
int vb_srq_fini(struct vb_srq *srq);
int vb_srq_modify(struct vb_srq *srq, const struct ibv_srq_attr *attr, int mask);
void vb_srq_query(struct vb_srq *srq, struct ibv_srq_attr *attr);
/* As ibv_post_srq_recv: 0 or a positive errno, *bad the first request not taken. */
int vb_srq_post_recv(struct vb_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* ---- address vectors ---- */

struct vb_ah {
	struct ibv_ah pub; /* what the program holds */
	struct vb_pd *pd;
	struct ibv_ah_attr attr;
	struct in6_addr dgid, sgid;
	bool is_local;     /* dgid was one of this host's when it was made */
};

static inline struct vb_ah *vb_ah_of(struct ibv_ah *pub) { return vb_container_of(pub, struct vb_ah, pub); }

int vb_ah_init(struct vb_ah *ah, struct vb_pd *pd, const struct ibv_ah_attr *attr);
int vb_ah_fini(struct vb_ah *ah);

/* ---- queue pairs ---- */

/*
 * Counts that only grow. Whoever holds the lock that is named with them adds; others read them at any time
 * (adapter/inspection/counts.h).
 */
struct vb_traffic {
	uint64_t requests, bytes;
};

static inline void vb_traffic_add(struct vb_traffic *t, uint64_t bytes)
{
	t->requests++;
	t->bytes += bytes;
}

/*
 * Kinds of requests that are counted apart; atomics with what is like them, 8 bytes each. NONE: this side's
 * alone, in a place of their own that nobody reads.
 */
enum vb_traffic_kind { VB_TRAFFIC_NONE, VB_TRAFFIC_FLUSH, VB_TRAFFIC_ATOMIC,
	VB_TRAFFIC_READ, VB_TRAFFIC_WRITE, VB_TRAFFIC_SEND, VB_TRAFFIC_KINDS };

/*
 * A send queue entry, as the program posted it (unless VB_SQE_OWN says that the adapter did); sge[] or
 * inline_data[] by IBV_SEND_INLINE in flags. Private to this process.
 */
struct vb_sqe {
	uint64_t wr_id;
	uint64_t remote_addr;
	uint32_t rkey;
	uint32_t imm;          /* network order, or the rkey to invalidate, or the rights of a window */
	uint32_t length;       /* bytes in all */
	uint8_t nsge;
	uint8_t opcode;        /* enum ibv_wr_opcode */
	uint8_t flags;         /* enum ibv_send_flags */
	uint8_t status;        /* enum ibv_wc_status once it is done; VB_SQE_PENDING before */
	union {
		struct {
			uint64_t compare_add, swap;
		};
		struct {
			uint64_t bytes;
			uint32_t region; /* its lkey */
		} bind;          /* of a window by its key rkey to remote_addr with rights imm */
		struct {
			uint32_t header_bytes, mss;
		} tso;           /* its header is at the end of the entry */
	};
	union {
		struct ibv_sge sge[0];
		uint8_t inline_data[0];
	};
};
_Static_assert(sizeof(struct vb_sqe) + sizeof(struct ibv_sge) == VB_CACHE_LINE && VB_MAX_SGE <= UINT8_MAX,
	       "one entry of a list, or as much inline data, fits into the first cache line");

enum { VB_SQE_PENDING = 0xff };
/* in flags, beside the program's: neither the entry's place nor its completion is the program's (tags.h) */
enum { VB_SQE_OWN = 1 << 7 };

/*
 * Where a UD send goes, copied from the work request and its address handle; at the end of the entries of UD
 * queue pairs.
 */
struct vb_datagram_to {
	struct in6_addr src, dst;
	uint32_t qpn;
	/* as at the post: the queue pair's may change while the datagram waits */
	uint32_t qkey;
	uint32_t flow_label;
	uint8_t traffic_class, hop_limit;
	bool is_local;
};

/* A send uses the first cache line of this. */
struct vb_sq {
	struct vb_lock lock;
	uint8_t *entries;
	uint16_t stride, mask, max_wr, max_inline;
	uint8_t max_sge;
	bool begun;             /* a part of the entry at `sent` has gone: in SQD the rest goes, too */
	uint32_t tail;          /* posted */
	uint32_t sent;          /* handed to the path, in order */
	uint32_t head;          /* completed, in order */
	atomic_uint retired;    /* the program's entries that are free again: a completion was polled */
	uint16_t own_posted;    /* the adapter's own entries among those up to tail, modulo 2^16 */
	uint16_t own_done;      /* among those up to head */
	/* bytes at the end of an entry for the header of a segment that is to be cut up */
	uint32_t header_room;
	struct vb_queue_memory memory;
};
_Static_assert(offsetof(struct vb_sq, header_room) <= VB_CACHE_LINE, "a cache line");
_Static_assert(2 * VB_MAX_WR - 1 <= UINT16_MAX && VB_MAX_SGE <= UINT8_MAX, "what they are has room");

struct vb_qp_init_attr {
	enum ibv_qp_type type;
	struct vb_cq *send_cq, *recv_cq; /* of an XRC_SEND QP: the same; of an XRC_RECV QP: NULL */
	struct vb_srq *srq;
	struct vb_xrcd *xrcd;            /* of an XRC_RECV QP, which has no PD; else NULL */
	struct ibv_qp_cap cap; /* asked in, granted out */
	bool sq_sig_all;
	unsigned create_flags;           /* enum ibv_qp_create_flags */
	uint32_t max_tso_header;         /* of a raw packet QP: bytes; 0: it cuts nothing up */
};

enum {
	VB_AFTER_SEND_DRAIN = 1, /* raise SQ_DRAINED when nothing is in flight */
	VB_AFTER_SEND_COUNT = 2, /* it counts (adapter/queues/counter.h) */
};

struct vb_qp {
	/*
	 * Cache lines that a message touches: one for all, one for arrivals, one for sends, one for receives,
	 * if the whole is aligned to a line.
	 */
	_Atomic(const struct vb_path_ops *) path; /* NULL until connected */
	void *path_state;
	struct vb_cq *send_cq, *recv_cq;
	struct vb_pd *pd;
	struct vb_srq *srq;       /* of an XRC_RECV QP: for now (xrc.h) */
	_Atomic(uint32_t) state;  /* enum ibv_qp_state */
	uint32_t qpn;
	enum ibv_qp_type type;
	bool sq_sig_all;
	atomic_bool is_captured;  /* a capture runs: adapter/queues/noted.h */
	/* VB_AFTER_SEND_*, under sq.lock: what a completed send calls for beside its completion */
	uint8_t after_send;
	bool counts_receives;     /* (counter.h) */
	struct vb_lock resp_lock; /* held to execute the peer's requests */
	struct vb_list run_node;  /* waiting for progress */
	atomic_uint refs;         /* threads that use it now; those that run it do not count (progress.c) */
	/* under resp_lock: a request was executed, and COMM_EST raised if that was in RTR */
	bool comm_est;
	struct vb_traffic received; /* by messages that took a receive; under resp_lock */
	struct vb_sq sq;
	/* These fill the line. Pointers have one size on all supported machines. */
	struct vb_context *ctx;
	struct vb_list srq_node;
	struct vb_checked_qp *checked; /* the checks' (check/check.h); NULL while there are none */
	/* of a raw packet QP that only spreads frames over work queues (roce/raw.h); else NULL */
	const struct vb_rss *rss;
	struct vb_rq rq;
	struct vb_tag_receiver *tags; /* if srq matches tags (tags.h); else NULL */
	struct vb_xrcd *xrcd;
	uint64_t failed;          /* requests that failed or were flushed; under sq.lock */
	struct vb_past *past;     /* the paths that it has left (adapter/inspection/counts.h); NULL: none */
	struct ibv_qp_attr attr;  /* as set, QP state aside; see vb_qp_attr. cap: granted */
	struct in6_addr sgid;     /* what attr.ah_attr.grh.sgid_index stood for when it was set */
	pthread_mutex_t ctl;
	_Atomic(uint32_t) qkey;   /* attr.qkey, for posts and arrivals */
	/* slot to which this QP takes the wire, so that no link is made to it; 0: none. Under ctl */
	uint16_t declined;
	/* bits by enum vb_drop: reasons for drops that were explained (adapter/inspection/counts.h) */
	atomic_uint drops_told;
	atomic_bool deaf;         /* datagrams have waited too long for a receive (local/ud_ring.c) */
	atomic_uint mcast;        /* multicast groups and steering rules that lead here */
	atomic_uint create_flags; /* enum ibv_qp_create_flags */
	atomic_uint burst_bytes;  /* beside attr.rate_limit; 0: the default */
	struct vb_counter *counters[4]; /* that its completions count in, or NULL (counter.h) */
	/* of an XRC_RECV QP: queues of other processes (xrc_remote.h), under resp_lock; NULL: none yet */
	struct vb_xrc_remote *remote;
	struct vb_async_source async;
	/*
	 * Requests that succeeded, by kind; under sq.lock. The last three, which are most, share a line with
	 * what a post reads first of the program's part (verbs/verbs.h).
	 */
	struct vb_traffic done[VB_TRAFFIC_KINDS];
};
_Static_assert(offsetof(struct vb_qp, resp_lock) == 64 && offsetof(struct vb_qp, sq) == 128 &&
	       offsetof(struct vb_qp, rq) % VB_CACHE_LINE == 0 &&
	       offsetof(struct vb_qp, done[VB_TRAFFIC_READ]) % VB_CACHE_LINE == 0, "lines");

/* An attribute that ibv_modify_qp may change while another thread uses the QP. */
#define vb_qp_attr(qp, member) __atomic_load_n(&(qp)->attr.member, __ATOMIC_RELAXED)

/* pd: NULL for an XRC_RECV QP. */
int vb_qp_init(struct vb_qp *qp, struct vb_pd *pd, struct vb_qp_init_attr *init);
int vb_qp_fini(struct vb_qp *qp); /* waits for its asynchronous events to be acknowledged */
/*
 * As ibv_modify_qp (0 or a negative errno): checked against the table in qp_state.h, committed only if all of
 * it is right.
 */
int vb_qp_modify(struct vb_qp *qp, const struct ibv_qp_attr *attr, int mask);
/* everything that it has; the caller picks by mask */
void vb_qp_query(struct vb_qp *qp, struct ibv_qp_attr *attr);
/*
 * Moves the QP with this number, if there is one, to the error state, as ibv_modify_qp would. The program may
 * be destroying it at the same time.
 */
VB_EXPORT void vb_qp_fail_number(uint32_t qpn);
/*
 * As ibv_post_send and ibv_post_recv: 0 or a positive errno, *bad the first request not taken. A list of
 * sends without bad: all or none.
 */
int vb_qp_post_send(struct vb_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int vb_qp_post_recv(struct vb_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

#endif

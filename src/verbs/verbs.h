/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The public layer: what a program's pointers really point to. Each public object is the head of a structure
 * that also holds the adapter's object of the same name. The program creates and destroys it.
 *
 * Lower layers return negative errno values. The calls here answer as their man pages say, by vb_fail (an
 * errno value), vb_fail_minus1 and vb_fail_null. Every refusal explains itself by a sentence (base/log.h).
 *
 * The files of this layer use each other one way. The device list and contexts are at the bottom; then
 * domains, regions (mr.c) and the memory that regions are of (dm.c, buffer.c, window.c); then queues, and
 * what is made on them. ops.c collects their functions into tables; faulty_ops.c and checked_ops.c wrap
 * them; open.c, on top, gives a new context its tables.
 *
 * fork: an object that a child inherited belongs to the parent. In the child, calls on it fail with EIO and
 * change nothing, and destroying it frees the child's copy alone. The generation of an object's context
 * shows whose it is. The child's tables get other functions (inherited.c), so that inline verbs need no
 * check.
 */
#ifndef VB_VERBS_H
#define VB_VERBS_H

#include <errno.h>
#include <infiniband/verbs.h>

#include "adapter/device/device.h"
#include "adapter/fault_injection.h"
#include "adapter/object.h"
#include "adapter/xrc/xrc.h"
#include "base/base.h"
#include "base/log.h"
#include "check/check.h"

/* After a definition: exports it at the private nodes of all releases of rdma-core. */
#define VB_PRIVATE(name) VB_PRIVATE_AS(name, #name)
#define VB_PRIVATE_AS(definition, name)                    \
	VB_SYMVER(definition, name, "@IBVERBS_PRIVATE_34"); \
	VB_SYMVER(definition, name, "IBVERBS_PRIVATE_57");  \
	VB_SYMVER(definition, name, "IBVERBS_PRIVATE_59");  \
	VB_SYMVER(definition, name, "IBVERBS_PRIVATE_64");  \
	VB_SYMVER(definition, name, "IBVERBS_PRIVATE_65")

/*
 * A null pointer follows struct ibv_device: provider libraries look there for their own operations and must
 * find none.
 */
struct vb_verbs_device {
	struct ibv_device pub;
	const void *no_provider;
	struct vb_device *dev;
	unsigned refs; /* lists and open contexts; under the list's lock */
	struct vb_list node;
};

struct vb_verbs_context {
	struct vb_context ctx;
	struct vb_list node; /* in the list of open contexts */
	/* the program's, until it closes the device, and one for each PD, CQ and channel */
	atomic_uint refs;
	struct verbs_context ext;
};

/* A domain; or a parent domain or an imported one, which are further handles on a domain (domain.c). */
struct vb_verbs_pd {
	struct ibv_pd pub;
	struct vb_pd pd;
	struct vb_list node;                       /* in the list of those that can be imported */
	struct ibv_parent_domain_init_attr parent; /* parent.pd: NULL unless it is a parent domain */
};

struct vb_verbs_td {
	struct ibv_td pub;
	atomic_uint refs; /* parent domains */
};

struct vb_verbs_mr {
	struct ibv_mr pub;
	struct vb_mr mr;
	atomic_uint *dm_regions;   /* count of the device memory that it is of; else NULL */
	atomic_uint *dmah_regions; /* count of the DMA handle that it names; else NULL */
	void *mapping;            /* of a dma-buf; else NULL */
	size_t mapping_bytes;
	bool is_fixed;            /* ibv_rereg_mr may not change its memory */
};

struct vb_verbs_mw {
	struct ibv_mw pub;
	struct vb_window window;
};

struct vb_verbs_channel {
	struct ibv_comp_channel pub;
	struct vb_channel ch;
};

struct vb_verbs_cq {
	union {
		struct ibv_cq pub;
		struct ibv_cq_ex ex;
	};
	struct vb_cq cq;
	/* held from ibv_start_poll to ibv_end_poll, unless one thread alone polls */
	pthread_mutex_t poll_lock;
	bool is_single_threaded;
	struct vb_cqe current;     /* what they have found; its QP may be destroyed meanwhile */
	uint32_t current_qpn;
};

struct vb_verbs_srq {
	struct ibv_srq pub;
	struct vb_srq srq;
};

/* Aligned to a cache line. pub is right behind qp: adapter/progress/prefetch.h fetches both. */
struct vb_verbs_qp {
	struct vb_qp qp;
	union {
		struct ibv_qp pub;
		struct ibv_qp_ex ex;
	};
	/*
	 * ibv_open_qp: the queue pair that this is a further handle on (its own qp is empty then), and how
	 * many handles that one has.
	 */
	struct vb_verbs_qp *shared;
	atomic_uint handles;
	struct vb_xrcd *through;   /* of a further handle: the domain that it was opened with; else NULL */
	/* of a handle on another process's queue pair (through, but not shared): adapter/xrc/xrc_remote.h */
	int remote;
	pthread_mutex_t asking;    /* one request at a time through it */
	/* of a raw packet queue pair with an indirection table (wq.c); else NULL */
	struct vb_verbs_rss *spread;
	struct vb_wr_batch *batch; /* NULL unless it was created with send operations (ibv_qp_to_qp_ex) */
};
_Static_assert(offsetof(struct vb_verbs_qp, pub) == sizeof(struct vb_qp), "order");

static inline struct vb_verbs_context *vb_verbs_context_of(struct ibv_context *pub)
{
	return vb_container_of(pub, struct vb_verbs_context, ext.context);
}

static inline struct vb_device *vb_device_of(struct ibv_context *pub)
{
	return vb_verbs_context_of(pub)->ctx.device;
}

enum { VB_MAX_DM_BYTES = 16 << 20 }; /* of device memory, per process */

static inline struct vb_pd *vb_pd_of(struct ibv_pd *pub)
{
	return &vb_container_of(pub, struct vb_verbs_pd, pub)->pd;
}
static inline struct vb_cq *vb_cq_of(struct ibv_cq *pub)
{
	return &vb_container_of(pub, struct vb_verbs_cq, pub)->cq;
}
static inline struct vb_qp *vb_qp_of(struct ibv_qp *pub)
{
	return &vb_container_of(pub, struct vb_verbs_qp, pub)->qp;
}
/* The same for calls that further handles on a queue pair take as well. */
static inline struct vb_qp *vb_shared_qp_of(struct ibv_qp *pub)
{
	struct vb_verbs_qp *qp = vb_container_of(pub, struct vb_verbs_qp, pub);
	return qp->shared ? &qp->shared->qp : &qp->qp;
}

/* Is it a handle on another process's queue pair? Then there is none here. */
static inline bool vb_qp_is_away(struct ibv_qp *pub)
{
	const struct vb_verbs_qp *qp = vb_container_of(pub, struct vb_verbs_qp, pub);
	return qp->through && !qp->shared;
}

static inline struct vb_srq *vb_srq_of(struct ibv_srq *pub)
{
	return &vb_container_of(pub, struct vb_verbs_srq, pub)->srq;
}

/* ---- answers ---- */

static inline int vb_fail(int negative)
{
	errno = -negative;
	return -negative;
}

static inline int vb_fail_minus1(int negative)
{
	errno = -negative;
	return -1;
}

static inline void *vb_fail_null(int negative)
{
	errno = -negative;
	return NULL;
}

/* ---- forks ---- */

static inline bool vb_is_inherited(struct ibv_context *pub)
{
	return vb_verbs_context_of(pub)->ctx.generation != vb_host_generation();
}

/* 0, or -EIO with a sentence. */
int vb_refuse_inherited(struct ibv_context *pub, const char *call);
/* The same, and what a fault does to this call (adapter/fault_injection.h): once per call, at its head. */
int vb_refuse_call(struct ibv_context *pub, const char *call);

/* ---- between the files of this layer ---- */

/* The device whose interface is still known; takes a reference. */
void vb_verbs_device_hold(struct vb_verbs_device *device);
void vb_verbs_device_release(struct vb_verbs_device *device);

/* A device that is closed while objects made on it exist stays until the last of them goes. */
void vb_verbs_context_hold(struct ibv_context *pub);
void vb_verbs_context_release(struct ibv_context *pub);
/* A child that is forked from now on finds it disabled. */
void vb_verbs_context_enlist(struct vb_verbs_context *context);

/* The device whose context has this cmd_fd or a duplicate of it, held; NULL: none of this process. */
struct ibv_device *vb_context_device_of_fd(int cmd_fd);

/* Fills the tables of a context. */
void vb_ops_fill(struct verbs_context *ext);
/* Replaces what inline verbs call directly by refusals. Async-signal-safe. */
void vb_ops_disable(struct verbs_context *ext);

/* With VERBATIM_CHECK set: puts checks in front of a context's tables, or of a completion queue's. */
void vb_checked_ops(struct verbs_context *ext);
void vb_checked_cq_ex(struct ibv_cq_ex *ex, bool is_single_threaded);

/* 0 if both are the same open device, else -EINVAL with a sentence about `what`, which is of `other`. */
int vb_check_same_context(const char *call, struct ibv_context *pub, const char *what,
			  const struct ibv_context *other);

/* ---- regions and their memory ---- */

/* Registers memory; explains as `call`. NULL with errno. */
struct ibv_mr *vb_make_mr(const char *call, struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			  unsigned access);

struct ibv_mw *vb_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int vb_dealloc_mw(struct ibv_mw *mw);
int vb_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
struct ibv_dm *vb_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr);
int vb_free_dm(struct ibv_dm *dm);
struct ibv_mr *vb_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length,
			    unsigned access);
struct ibv_mr *vb_alloc_null_mr(struct ibv_pd *pd);
int vb_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags, struct ibv_sge *list,
		 uint32_t n);

/* ---- domains ---- */

struct ibv_td *vb_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr);
int vb_dealloc_td(struct ibv_td *td);
struct ibv_pd *vb_alloc_parent_domain(struct ibv_context *context, struct ibv_parent_domain_init_attr *attr);
/*
 * Did the program promise, by a thread domain, that only one thread at a time uses what is made with pd? pd
 * may be NULL.
 */
bool vb_is_single_threaded(struct ibv_pd *pd);

struct ibv_xrcd *vb_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr);
int vb_close_xrcd(struct ibv_xrcd *xrcd);
struct vb_xrcd *vb_xrcd_of(struct ibv_xrcd *xrcd);
int vb_get_srq_num(struct ibv_srq *srq, uint32_t *number);
struct ibv_qp *vb_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr);

/* ---- raw packets, counters, queues ---- */

struct ibv_flow *vb_create_flow(struct ibv_qp *qp, struct ibv_flow_attr *attr);
int vb_destroy_flow(struct ibv_flow *flow);
struct ibv_counters *vb_create_counters(struct ibv_context *context, struct ibv_counters_init_attr *attr);
int vb_destroy_counters(struct ibv_counters *counters);
int vb_attach_counters_point_flow(struct ibv_counters *counters, struct ibv_counter_attach_attr *attr,
				  struct ibv_flow *flow);
int vb_read_counters(struct ibv_counters *counters, uint64_t *values, uint32_t n, uint32_t flags);
struct ibv_wq *vb_create_wq(struct ibv_context *context, struct ibv_wq_init_attr *attr);
int vb_modify_wq(struct ibv_wq *wq, struct ibv_wq_attr *attr);
int vb_destroy_wq(struct ibv_wq *wq);
struct ibv_rwq_ind_table *vb_create_rwq_ind_table(struct ibv_context *context,
						  struct ibv_rwq_ind_table_init_attr *attr);
int vb_destroy_rwq_ind_table(struct ibv_rwq_ind_table *table);

enum {
	VB_LOG_RWQ_TABLE = 10,
	VB_RX_HASH_KEY = 40, /* bytes */
	VB_RX_HASH_FIELDS = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_SRC_IPV6 |
			    IBV_RX_HASH_DST_IPV6 | IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP |
			    IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP,
};

/* Makes the queue pair inside one with an indirection table. */
int vb_rss_init(struct vb_verbs_qp *qp, struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
void vb_rss_fini(struct vb_verbs_qp *qp);

struct ibv_qp *vb_create_qp_ex(struct ibv_context *pub, struct ibv_qp_init_attr_ex *attr);
struct ibv_srq *vb_create_srq_ex(struct ibv_context *pub, struct ibv_srq_init_attr_ex *attr);
int vb_post_srq_ops(struct ibv_srq *srq, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad);
struct ibv_cq_ex *vb_create_cq_ex(struct ibv_context *pub, struct ibv_cq_init_attr_ex *attr);
/* Makes a CQ without its extended functions. */
struct vb_verbs_cq *vb_make_cq(struct ibv_context *pub, uint32_t cqe, void *cq_context,
			       struct ibv_comp_channel *channel, uint32_t comp_vector, struct ibv_pd *parent,
			       const char *call);

/* The work request calls of struct ibv_qp_ex (ibv_wr_post(3)) for a QP whose caps are known. */
int vb_wr_batch_init(struct vb_verbs_qp *qp, uint64_t send_ops);
void vb_wr_batch_fini(struct vb_verbs_qp *qp);

int vb_modify_qp_rate_limit(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr);
int vb_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);
int vb_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc);
int vb_query_device_ex(struct ibv_context *pub, const struct ibv_query_device_ex_input *input,
		       struct ibv_device_attr_ex *attr, size_t attr_size);
int vb_query_port(struct ibv_context *pub, uint8_t port_num, struct ibv_port_attr *attr, size_t attr_size);
int vb_query_rt_values(struct ibv_context *pub, struct ibv_values_ex *values);

#endif

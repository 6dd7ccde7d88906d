/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Work queues and indirection tables: the receiving half of raw packet queue pairs that spread frames
 * (roce/raw.h). Each work queue contains a raw packet queue pair that only receives.
 */
#include <stdlib.h>
#include <string.h>

#include "roce/raw.h"
#include "verbs/verbs.h"

struct wq {
	struct ibv_wq pub;
	struct vb_qp qp;
	atomic_uint refs; /* tables */
};

struct table {
	struct ibv_rwq_ind_table pub;
	atomic_uint refs; /* queue pairs */
	unsigned count;
	struct wq **wqs;
	struct vb_qp **queues;
};

/* Of a queue pair with a table: what the adapter reads, and the table to release. */
struct vb_verbs_rss {
	struct vb_rss rss;
	struct table *table;
};

static struct wq *of(struct ibv_wq *pub) { return vb_container_of(pub, struct wq, pub); }

/* ---- work queues ---- */

enum { KNOWN_FLAGS = IBV_WQ_FLAGS_CVLAN_STRIPPING | IBV_WQ_FLAGS_SCATTER_FCS };

/* The queue pair's flags, which have other bits. */
static unsigned flags_inside(uint32_t flags)
{
	return (flags & IBV_WQ_FLAGS_CVLAN_STRIPPING ? IBV_QP_CREATE_CVLAN_STRIPPING : 0) |
	       (flags & IBV_WQ_FLAGS_SCATTER_FCS ? IBV_QP_CREATE_SCATTER_FCS : 0);
}

static int post_recv(struct ibv_wq *wq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int err = vb_refuse_inherited(wq->context, "ibv_post_wq_recv");
	if (!err)
		return vb_qp_post_recv(&of(wq)->qp, wr, bad);
	*bad = wr;
	return -err;
}

static int check_wq(struct ibv_context *context, const struct ibv_wq_init_attr *attr)
{
	static const char call[] = "ibv_create_wq";
	int err = vb_refuse_call(context, call);
	if (err)
		return err;
	if ((attr->comp_mask & IBV_WQ_INIT_ATTR_FLAGS) && (attr->create_flags & ~(uint32_t)KNOWN_FLAGS)) {
		vb_explain_limit(
			call,
			"create_flags 0x%x: 0x%x is possible. Frames that find no receive cannot wait, since all queues hear by one socket; "
			"there is no PCI whose writes could be padded",
			attr->create_flags, KNOWN_FLAGS);
		return -EOPNOTSUPP;
	}
	if (attr->wq_type != IBV_WQT_RQ || !attr->pd || !attr->cq || !attr->max_wr ||
	    attr->max_wr > VB_MAX_WR || attr->max_sge > VB_MAX_SGE)
		vb_explain(
			call,
			"a work queue is of type IBV_WQT_RQ, with a protection domain, a completion queue, 1 to %d requests of at most %d "
			"entries",
			VB_MAX_WR, VB_MAX_SGE);
	else if (attr->comp_mask & ~(uint32_t)IBV_WQ_INIT_ATTR_FLAGS)
		vb_explain_limit(call, "comp_mask 0x%x: this device knows IBV_WQ_INIT_ATTR_FLAGS",
				 attr->comp_mask);
	else
		return 0;
	return -EINVAL;
}

struct ibv_wq *vb_create_wq(struct ibv_context *context, struct ibv_wq_init_attr *attr)
{
	int err = check_wq(context, attr);
	if (!err)
		err = vb_check_same_context("ibv_create_wq", context, "the protection domain",
					    attr->pd->context);
	if (!err)
		err = vb_check_same_context("ibv_create_wq", context, "the completion queue",
					    attr->cq->context);
	struct wq *wq = err ? NULL : calloc(1, sizeof(*wq));
	if (!wq)
		return vb_fail_null(err ? err : -ENOMEM);
	struct vb_qp_init_attr init = {
		.type = IBV_QPT_RAW_PACKET,
		.send_cq = vb_cq_of(attr->cq),
		.recv_cq = vb_cq_of(attr->cq),
		.create_flags =
			attr->comp_mask & IBV_WQ_INIT_ATTR_FLAGS ? flags_inside(attr->create_flags) : 0,
		.cap = { .max_recv_wr = attr->max_wr, .max_recv_sge = attr->max_sge ? attr->max_sge : 1 }
	};
	err = vb_qp_init(&wq->qp, vb_pd_of(attr->pd), &init);
	if (err) {
		free(wq);
		return vb_fail_null(err);
	}
	wq->pub = (struct ibv_wq){ .context = context,
				   .wq_context = attr->wq_context,
				   .pd = attr->pd,
				   .cq = attr->cq,
				   .wq_num = wq->qp.qpn,
				   .handle = wq->qp.qpn,
				   .state = IBV_WQS_RESET,
				   .wq_type = attr->wq_type,
				   .post_recv = post_recv };
	return &wq->pub;
}

static int set_state(struct wq *wq, enum ibv_qp_state state, int more)
{
	return vb_qp_modify(&wq->qp, &(struct ibv_qp_attr){ .qp_state = state, .port_num = 1 },
			    IBV_QP_STATE | more);
}

/* From RESET: takes the queue pair through its states until it receives, or back. */
static int begin(struct wq *wq)
{
	int err = set_state(wq, IBV_QPS_INIT, IBV_QP_PORT);
	if (!err)
		err = set_state(wq, IBV_QPS_RTR, 0);
	if (err)
		set_state(wq, IBV_QPS_RESET, 0);
	return err;
}

/* -EINVAL: the move does not exist. */
static int move(struct wq *wq, enum ibv_wq_state state)
{
	if (state == IBV_WQS_RDY && wq->pub.state == IBV_WQS_RESET)
		return begin(wq);
	if (state == wq->pub.state)
		return 0;
	if (state != IBV_WQS_ERR && state != IBV_WQS_RESET)
		return -EINVAL;
	return set_state(wq, state == IBV_WQS_ERR ? IBV_QPS_ERR : IBV_QPS_RESET, 0);
}

static void change_flags(struct wq *wq, uint32_t flags, uint32_t which)
{
	if (which & flags)
		atomic_fetch_or(&wq->qp.create_flags, flags_inside(which));
	else
		atomic_fetch_and(&wq->qp.create_flags, ~flags_inside(which));
}

int vb_modify_wq(struct ibv_wq *pub, struct ibv_wq_attr *attr)
{
	static const char call[] = "ibv_modify_wq";
	struct wq *wq = of(pub);
	int err = vb_refuse_call(pub->context, call);
	if (err)
		return -err;
	if (!attr->attr_mask || attr->attr_mask >= IBV_WQ_ATTR_RESERVED) {
		vb_explain(call, "attr_mask 0x%x: there are IBV_WQ_ATTR_STATE, _CURR_STATE and _FLAGS",
			   attr->attr_mask);
		return EINVAL;
	}
	if ((attr->attr_mask & IBV_WQ_ATTR_FLAGS) &&
	    (attr->flags_mask & ~(uint32_t)IBV_WQ_FLAGS_CVLAN_STRIPPING)) {
		vb_explain(call, "flags_mask 0x%x: only IBV_WQ_FLAGS_CVLAN_STRIPPING can be changed",
			   attr->flags_mask);
		return EOPNOTSUPP;
	}
	if ((attr->attr_mask & IBV_WQ_ATTR_CURR_STATE) && attr->curr_wq_state != pub->state) {
		vb_explain(call, "curr_wq_state: the work queue is in another state");
		return EINVAL;
	}
	err = attr->attr_mask & IBV_WQ_ATTR_STATE ? move(wq, attr->wq_state) : 0;
	if (!err && (attr->attr_mask & IBV_WQ_ATTR_FLAGS))
		change_flags(wq, attr->flags, attr->flags_mask);
	if (!err && !(attr->attr_mask & IBV_WQ_ATTR_STATE))
		return 0;
	if (err) {
		vb_explain(call, "from state %d to %d: %s", (int)pub->state, (int)attr->wq_state,
			   err == -EINVAL ? "there is no such way" : strerror(-err));
		return -err;
	}
	pub->state = attr->wq_state;
	return 0;
}

int vb_destroy_wq(struct ibv_wq *pub)
{
	struct wq *wq = of(pub);
	if (!vb_is_inherited(pub->context)) {
		if (atomic_load(&wq->refs)) {
			vb_explain("ibv_destroy_wq", "indirection tables still use it");
			return EBUSY;
		}
		vb_qp_fini(&wq->qp);
	}
	free(wq);
	return 0;
}

/* ---- indirection tables ---- */

static struct table *table_of(struct ibv_rwq_ind_table *pub)
{
	return vb_container_of(pub, struct table, pub);
}

static void free_table(struct table *t)
{
	free(t->wqs);
	free(t->queues);
	free(t);
}

static int check_table(struct ibv_context *context, const struct ibv_rwq_ind_table_init_attr *attr)
{
	static const char call[] = "ibv_create_rwq_ind_table";
	int err = vb_refuse_call(context, call);
	if (err)
		return err;
	if (attr->comp_mask || attr->log_ind_tbl_size > VB_LOG_RWQ_TABLE || !attr->ind_tbl) {
		vb_explain(call, "comp_mask must be 0, log_ind_tbl_size at most %d, and ind_tbl not NULL",
			   VB_LOG_RWQ_TABLE);
		return -EINVAL;
	}
	for (unsigned i = 0; i < 1u << attr->log_ind_tbl_size && !err; i++) {
		const struct ibv_wq *wq = attr->ind_tbl[i];
		err = wq ? vb_check_same_context(call, context, "a work queue", wq->context) : -EINVAL;
		if (!wq)
			vb_explain(call, "ind_tbl[%u] is NULL", i);
	}
	return err;
}

struct ibv_rwq_ind_table *vb_create_rwq_ind_table(struct ibv_context *context,
						  struct ibv_rwq_ind_table_init_attr *attr)
{
	int err = check_table(context, attr);
	struct table *t = err ? NULL : calloc(1, sizeof(*t));
	if (!t)
		return vb_fail_null(err ? err : -ENOMEM);
	t->count = 1u << attr->log_ind_tbl_size;
	t->wqs = calloc(t->count, sizeof(struct wq *));
	t->queues = calloc(t->count, sizeof(struct vb_qp *));
	if (!t->wqs || !t->queues) {
		free_table(t);
		return vb_fail_null(-ENOMEM);
	}
	for (unsigned i = 0; i < t->count; i++) {
		t->wqs[i] = of(attr->ind_tbl[i]);
		t->queues[i] = &t->wqs[i]->qp;
		atomic_fetch_add(&t->wqs[i]->refs, 1);
	}
	t->pub.context = context;
	t->pub.ind_tbl_num = t->pub.ind_tbl_handle = (int)t->queues[0]->qpn;
	return &t->pub;
}

int vb_destroy_rwq_ind_table(struct ibv_rwq_ind_table *pub)
{
	struct table *t = table_of(pub);
	if (atomic_load(&t->refs) && !vb_is_inherited(pub->context)) {
		vb_explain("ibv_destroy_rwq_ind_table", "queue pairs still use it");
		return EBUSY;
	}
	for (unsigned i = 0; i < t->count && !vb_is_inherited(pub->context); i++)
		atomic_fetch_sub(&t->wqs[i]->refs, 1);
	free_table(t);
	return 0;
}

/* ---- queue pairs that spread ---- */

static int check_rss(struct ibv_context *context, const struct ibv_qp_init_attr_ex *attr)
{
	static const char call[] = "ibv_create_qp_ex";
	enum { NEEDED = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH };
	const struct ibv_rx_hash_conf *conf = &attr->rx_hash_conf;
	if ((attr->comp_mask & ~(uint32_t)IBV_QP_INIT_ATTR_CREATE_FLAGS) != NEEDED || !attr->rwq_ind_tbl ||
	    !attr->pd)
		vb_explain(
			call,
			"a queue pair that spreads frames has IBV_QP_INIT_ATTR_PD, _IND_TABLE and _RX_HASH in comp_mask");
	else if ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) &&
		 (attr->create_flags & ~(uint32_t)IBV_QP_CREATE_BLOCK_SELF_MCAST_LB))
		vb_explain(
			call,
			"create_flags 0x%x: of these a queue pair that spreads frames has IBV_QP_CREATE_BLOCK_SELF_MCAST_LB; the others are its "
			"work queues'",
			attr->create_flags);
	else if (attr->qp_type != IBV_QPT_RAW_PACKET)
		vb_explain(call, "only raw packet queue pairs have an indirection table");
	else if (conf->rx_hash_function != IBV_RX_HASH_FUNC_TOEPLITZ ||
		 conf->rx_hash_key_len != VB_RX_HASH_KEY || !conf->rx_hash_key)
		vb_explain(call, "the hash function is IBV_RX_HASH_FUNC_TOEPLITZ with a key of %d bytes",
			   VB_RX_HASH_KEY);
	else if (conf->rx_hash_fields_mask & ~(uint64_t)VB_RX_HASH_FIELDS)
		vb_explain(call, "rx_hash_fields_mask 0x%llx: this device knows 0x%x",
			   (unsigned long long)conf->rx_hash_fields_mask, VB_RX_HASH_FIELDS);
	else if (!vb_check_same_context(call, context, "the protection domain", attr->pd->context))
		return vb_check_same_context(call, context, "the indirection table",
					     attr->rwq_ind_tbl->context);
	return -EINVAL;
}

/* It has no queues of its own. The first work queue's CQ fills the place of one. */
int vb_rss_init(struct vb_verbs_qp *qp, struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	int err = check_rss(context, attr);
	struct vb_verbs_rss *r = err ? NULL : calloc(1, sizeof(*r));
	if (!r)
		return err ? err : -ENOMEM;
	struct table *t = table_of(attr->rwq_ind_tbl);
	struct vb_qp_init_attr init = { .type = IBV_QPT_RAW_PACKET,
					.send_cq = t->queues[0]->recv_cq,
					.recv_cq = t->queues[0]->recv_cq,
					.create_flags = attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS ?
								attr->create_flags :
								0 };
	err = vb_qp_init(&qp->qp, vb_pd_of(attr->pd), &init);
	if (err) {
		free(r);
		return err;
	}
	r->rss = (struct vb_rss){ .count = t->count,
				  .queues = t->queues,
				  .fields = attr->rx_hash_conf.rx_hash_fields_mask };
	memcpy(r->rss.key, attr->rx_hash_conf.rx_hash_key, sizeof(r->rss.key));
	r->table = t;
	atomic_fetch_add(&t->refs, 1);
	qp->spread = r;
	qp->qp.rss = &r->rss;
	return 0;
}

void vb_rss_fini(struct vb_verbs_qp *qp)
{
	if (!qp->spread)
		return;
	if (!vb_is_inherited(qp->pub.context)) /* a child may have destroyed its table before */
		atomic_fetch_sub(&qp->spread->table->refs, 1);
	free(qp->spread);
}

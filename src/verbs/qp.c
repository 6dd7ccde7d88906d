/* SPDX-License-Identifier: BSD-2-Clause */
/* Queue pairs. */
#include <stdlib.h>
#include <string.h>

#include "adapter/progress/progress.h"
#include "adapter/progress/qpn.h"
#include "adapter/qp_state.h"
#include "host/memory/lines.h"
#include "host/net/raw.h"
#include "roce/mcast.h"
#include "adapter/xrc/xrc_remote.h"
#include "adapter/xrc_server.h"
#include "verbs/faulty_ops.h"
#include "verbs/verbs.h"

/* ---- creation ---- */

/* The kernel is asked once, when the queue pair is made, as a kernel driver would ask. */
static int check_raw(const char *call)
{
	int fd, err = vb_raw_open(0, false, &fd);
	if (!err)
		vb_raw_close(fd);
	else if (err == -EPERM)
		vb_explain_limit(
			call, "raw packet queue pairs need the right to open packet sockets (CAP_NET_RAW)");
	return err;
}

static int check_type(enum ibv_qp_type type, const char *call)
{
	switch (type) {
	case IBV_QPT_RC:
	case IBV_QPT_UC:
	case IBV_QPT_UD:
	case IBV_QPT_XRC_SEND:
		return 0;
	case IBV_QPT_XRC_RECV:
		vb_explain(call,
			   "an IBV_QPT_XRC_RECV queue pair is made by ibv_create_qp_ex with an XRC domain");
		return -EINVAL;
	case IBV_QPT_RAW_PACKET:
		return check_raw(call);
	case IBV_QPT_DRIVER:
		vb_explain_limit(call, "this device has no queue pairs of this type (qp_type is %d)",
				 (int)type);
		return -EOPNOTSUPP;
	}
	vb_explain(call, "qp_type %d does not exist", (int)type);
	return -EINVAL;
}

/* The queue pair reads the data of matched messages into the buffers of the SRQ's domain. */
static int check_tags(struct ibv_pd *pd, const struct ibv_qp_init_attr *attr, const char *call)
{
	if (attr->qp_type == IBV_QPT_RC && vb_srq_of(attr->srq)->pd->number == vb_pd_of(pd)->number)
		return 0;
	vb_explain(call,
		   "a shared receive queue that matches tags serves RC queue pairs of its protection domain");
	return -EINVAL;
}

static int check_users(struct ibv_pd *pd, const struct ibv_qp_init_attr *attr, const char *call)
{
	bool receives = attr->qp_type != IBV_QPT_XRC_SEND;
	if (!attr->send_cq || (receives && !attr->recv_cq)) {
		vb_explain(call, "%s is NULL: a queue pair needs completion queues for both of its queues",
			   attr->send_cq ? "recv_cq" : "send_cq");
		return -EINVAL;
	}
	int err = vb_check_same_context(call, pd->context, "send_cq", attr->send_cq->context);
	if (!err && receives)
		err = vb_check_same_context(call, pd->context, "recv_cq", attr->recv_cq->context);
	if (!err && receives && attr->srq && vb_srq_of(attr->srq)->xrcd) {
		vb_explain(call, "an XRC shared receive queue serves XRC queue pairs of its domain");
		return -EINVAL;
	}
	if (!err && receives && attr->srq)
		err = vb_check_same_context(call, pd->context, "srq", attr->srq->context);
	if (!err && receives && attr->srq && vb_srq_of(attr->srq)->tags)
		err = check_tags(pd, attr, call);
	return err;
}

static int check_caps(const struct ibv_qp_init_attr *attr, const char *call)
{
	const struct {
		const char *name;
		uint32_t asked, most;
	} caps[] = {
		{ "max_send_wr", attr->cap.max_send_wr, VB_MAX_WR },
		{ "max_send_sge", attr->cap.max_send_sge, VB_MAX_SGE },
		{ "max_recv_wr", attr->srq ? 0 : attr->cap.max_recv_wr, VB_MAX_WR },
		{ "max_recv_sge", attr->srq ? 0 : attr->cap.max_recv_sge, VB_MAX_SGE },
	};
	for (size_t i = 0; i < VB_ARRAY_LEN(caps); i++) {
		if (caps[i].asked <= caps[i].most)
			continue;
		vb_explain(call, "%s is %u, the device allows %u", caps[i].name, caps[i].asked, caps[i].most);
		return -EINVAL;
	}
	/* No query reports this limit: programs find it by trying. */
	if (attr->cap.max_inline_data > VB_MAX_INLINE) {
		vb_explain_limit(call, "max_inline_data is %u, the device allows %u",
				 attr->cap.max_inline_data, VB_MAX_INLINE);
		return -EINVAL;
	}
	return 0;
}

static int check(struct ibv_pd *pd, const struct ibv_qp_init_attr *attr, const char *call)
{
	int err = vb_refuse_call(pd->context, call);
	if (!err)
		err = check_type(attr->qp_type, call);
	if (!err)
		err = check_users(pd, attr, call);
	return err ? err : check_caps(attr, call);
}

static struct vb_verbs_qp *new_qp(void)
{
	struct vb_verbs_qp *qp = vb_lines_take(sizeof(*qp));
	return qp ? memset(qp, 0, sizeof(*qp)) : NULL;
}

static void free_qp(struct vb_verbs_qp *qp) { vb_lines_give(qp, sizeof(*qp)); }

/* Sets the program's handle. Before this ibv_open_qp does not find the queue pair by its number. */
static struct ibv_qp *hand_out(struct vb_verbs_qp *qp)
{
	atomic_store(&qp->handles, 1);
	return &qp->pub;
}

static void show(struct vb_verbs_qp *qp, struct ibv_context *context, struct ibv_pd *pd,
		 const struct ibv_qp_init_attr *attr)
{
	qp->pub.context = context;
	qp->pub.qp_context = attr->qp_context;
	qp->pub.pd = pd;
	qp->pub.send_cq = attr->send_cq;
	qp->pub.recv_cq = attr->recv_cq;
	qp->pub.srq = attr->srq;
	qp->pub.handle = qp->pub.qp_num = qp->qp.qpn;
	qp->pub.state = IBV_QPS_RESET;
	qp->pub.qp_type = attr->qp_type;
}

/* extra: what an extended attribute has beyond a plain one; or NULL. */
static struct ibv_qp *create(struct ibv_pd *pd, struct ibv_qp_init_attr *attr,
			     const struct ibv_qp_init_attr_ex *extra, const char *call)
{
	int err = check(pd, attr, call);
	if (err)
		return vb_fail_null(err);
	bool receives = attr->qp_type != IBV_QPT_XRC_SEND;
	struct vb_qp_init_attr init = {
		.type = attr->qp_type,
		.send_cq = vb_cq_of(attr->send_cq),
		.recv_cq = vb_cq_of(receives ? attr->recv_cq : attr->send_cq),
		.srq = receives && attr->srq ? vb_srq_of(attr->srq) : NULL,
		.cap = attr->cap,
		.sq_sig_all = attr->sq_sig_all,
		.create_flags =
			extra && (extra->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) ? extra->create_flags : 0,
		.max_tso_header = extra && (extra->comp_mask & IBV_QP_INIT_ATTR_MAX_TSO_HEADER) ?
					  extra->max_tso_header :
					  0,
	};
	if (!receives)
		init.cap.max_recv_wr = init.cap.max_recv_sge = 0;
	struct vb_verbs_qp *qp = new_qp();
	if (!qp)
		return vb_fail_null(-ENOMEM);
	err = vb_qp_init(&qp->qp, vb_pd_of(pd), &init);
	if (err) {
		vb_explain_limit(call, "no memory, no thread, or no queue pair number left: %s",
				 strerror(-err));
		free_qp(qp);
		return vb_fail_null(err);
	}
	attr->cap = init.cap;
	show(qp, pd->context, pd, attr);
	if (vb_check_enabled)
		vb_check_qp_begin(&qp->qp, vb_is_single_threaded(pd));
	return hand_out(qp);
}

VB_EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	return create(pd, attr, NULL, "ibv_create_qp");
}

_Static_assert(offsetof(struct ibv_qp_init_attr_ex, sq_sig_all) ==
		       offsetof(struct ibv_qp_init_attr, sq_sig_all),
	       "an extended attribute starts with a plain one");

/* It has neither queues nor a protection domain of its own. */
static int check_xrc_recv(struct ibv_context *pub, const struct ibv_qp_init_attr_ex *attr)
{
	static const char call[] = "ibv_create_qp_ex";
	if (attr->comp_mask & ~(uint32_t)(IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_CREATE_FLAGS)) {
		vb_explain(call,
			   "comp_mask 0x%x: an IBV_QPT_XRC_RECV queue pair takes IBV_QP_INIT_ATTR_XRCD only",
			   attr->comp_mask);
		return -EINVAL;
	}
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_XRCD) || !attr->xrcd) {
		vb_explain(
			call,
			"an IBV_QPT_XRC_RECV queue pair needs an XRC domain (IBV_QP_INIT_ATTR_XRCD in comp_mask)");
		return -EINVAL;
	}
	if ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr->create_flags) {
		vb_explain(call, "create_flags 0x%x: this type of queue pair has none", attr->create_flags);
		return -EOPNOTSUPP;
	}
	int err = vb_refuse_call(pub, call);
	return err ? err : vb_check_same_context(call, pub, "the XRC domain", attr->xrcd->context);
}

static struct ibv_qp *create_xrc_recv(struct ibv_context *pub, struct ibv_qp_init_attr_ex *attr)
{
	struct vb_qp_init_attr init = { .type = IBV_QPT_XRC_RECV, .xrcd = vb_xrcd_of(attr->xrcd) };
	struct vb_verbs_qp *qp = new_qp();
	if (!qp)
		return vb_fail_null(-ENOMEM);
	int err = vb_qp_init(&qp->qp, NULL, &init);
	if (err) {
		free_qp(qp);
		return vb_fail_null(err);
	}
	err = init.xrcd->share ? vb_xrc_server_number(init.xrcd->share, VB_XRC_HANDLES, qp->qp.qpn) : 0;
	if (err) {
		vb_explain("ibv_create_qp_ex", "other processes could not find it: %s", strerror(-err));
		vb_qp_fini(&qp->qp);
		free_qp(qp);
		return vb_fail_null(err);
	}
	attr->cap = init.cap;
	show(qp, pub, NULL, (struct ibv_qp_init_attr *)attr);
	qp->pub.send_cq = qp->pub.recv_cq = NULL;
	qp->pub.srq = NULL;
	return hand_out(qp);
}

static struct ibv_qp *create_rss(struct ibv_context *pub, struct ibv_qp_init_attr_ex *attr)
{
	struct vb_verbs_qp *qp = new_qp();
	if (!qp)
		return vb_fail_null(-ENOMEM);
	int err = vb_rss_init(qp, pub, attr);
	if (err) {
		free_qp(qp);
		return vb_fail_null(err);
	}
	show(qp, pub, attr->pd, (struct ibv_qp_init_attr *)attr);
	qp->pub.send_cq = qp->pub.recv_cq = NULL;
	qp->pub.srq = NULL;
	return hand_out(qp);
}

static int check_flags(const struct ibv_qp_init_attr_ex *attr)
{
	static const char call[] = "ibv_create_qp_ex";
	unsigned known = attr->qp_type == IBV_QPT_UD ? IBV_QP_CREATE_BLOCK_SELF_MCAST_LB : 0;
	if (attr->qp_type == IBV_QPT_RAW_PACKET)
		known = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB | IBV_QP_CREATE_SCATTER_FCS |
			IBV_QP_CREATE_CVLAN_STRIPPING;
	if (!(attr->create_flags & ~known))
		return 0;
	if (attr->create_flags & IBV_QP_CREATE_SOURCE_QPN)
		vb_explain_limit(
			call,
			"IBV_QP_CREATE_SOURCE_QPN: a queue pair number says which process it is of, so none can be chosen");
	else if (attr->create_flags & IBV_QP_CREATE_PCI_WRITE_END_PADDING)
		vb_explain_limit(
			call,
			"IBV_QP_CREATE_PCI_WRITE_END_PADDING: there is no PCI whose writes could be padded");
	else
		vb_explain_limit(call, "create_flags 0x%x: this type of queue pair has 0x%x",
				 attr->create_flags, known);
	return -EOPNOTSUPP;
}

static int check_tso(const struct ibv_qp_init_attr_ex *attr)
{
	static const char call[] = "ibv_create_qp_ex";
	if (attr->qp_type != IBV_QPT_RAW_PACKET) {
		vb_explain_limit(call,
				 "max_tso_header: TCP segments are cut up by raw packet queue pairs only");
		return -EOPNOTSUPP;
	}
	if (attr->max_tso_header > VB_MAX_TSO_HEADER) {
		vb_explain(call, "max_tso_header %u: at most %d", attr->max_tso_header, VB_MAX_TSO_HEADER);
		return -EINVAL;
	}
	return 0;
}

static int check_ex(struct ibv_context *pub, const struct ibv_qp_init_attr_ex *attr)
{
	static const char call[] = "ibv_create_qp_ex";
	enum {
		KNOWN = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
			IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_MAX_TSO_HEADER
	};
	if (attr->qp_type == IBV_QPT_XRC_RECV)
		return check_xrc_recv(pub, attr);
	if (attr->comp_mask & IBV_QP_INIT_ATTR_IND_TABLE) {
		int err = vb_refuse_call(pub, call);
		return err ? err : check_type(attr->qp_type, call);
	}
	if (attr->comp_mask & ~(uint32_t)KNOWN) {
		vb_explain_limit(call, "comp_mask 0x%x: this device knows 0x%x only", attr->comp_mask, KNOWN);
		return -EOPNOTSUPP;
	}
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd) {
		vb_explain(call, "no protection domain was given (IBV_QP_INIT_ATTR_PD in comp_mask)");
		return -EINVAL;
	}
	int err = attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS ? check_flags(attr) : 0;
	if (!err && (attr->comp_mask & IBV_QP_INIT_ATTR_MAX_TSO_HEADER) && attr->max_tso_header)
		err = check_tso(attr);
	return err ? err : vb_check_same_context(call, pub, "the protection domain", attr->pd->context);
}

/* ---- destruction ---- */

/* Withheld receives and checks know only queue pairs that do end. */
static int end(struct vb_verbs_qp *qp)
{
	if (atomic_load(&qp->qp.mcast))
		return -EBUSY;
	if (vb_faults_on)
		vb_fault_forget_qp(&qp->pub);
	if (vb_check_enabled)
		vb_check_qp_end(&qp->qp);
	return vb_qp_fini(&qp->qp);
}

/* A queue pair with further handles stays until the last of them is closed. */
static int drop_handle(struct vb_verbs_qp *qp)
{
	vb_lock(&vb_progress_lock);
	bool last = atomic_fetch_sub(&qp->handles, 1) == 1;
	vb_unlock(&vb_progress_lock);
	if (!last)
		return 0;
	int err = end(qp);
	if (err) {
		atomic_store(&qp->handles, 1);
		return err;
	}
	vb_check_qp_gone(qp->qp.checked);
	vb_rss_fini(qp);
	vb_wr_batch_fini(qp);
	free_qp(qp);
	return 0;
}

/* ---- creation with extensions ---- */

struct ibv_qp *vb_create_qp_ex(struct ibv_context *pub, struct ibv_qp_init_attr_ex *attr)
{
	int err = check_ex(pub, attr);
	if (err)
		return vb_fail_null(err);
	if (attr->qp_type == IBV_QPT_XRC_RECV)
		return create_xrc_recv(pub, attr);
	if (attr->comp_mask & IBV_QP_INIT_ATTR_IND_TABLE)
		return create_rss(pub, attr);
	struct ibv_qp *made = create(attr->pd, (struct ibv_qp_init_attr *)attr, attr, "ibv_create_qp_ex");
	if (!made || !(attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS))
		return made;
	struct vb_verbs_qp *qp = vb_container_of(made, struct vb_verbs_qp, pub);
	err = vb_wr_batch_init(qp, attr->send_ops_flags);
	if (!err)
		return made;
	drop_handle(qp); /* no call of the program's, which a fault could refuse */
	return vb_fail_null(err);
}

VB_EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *pub)
{
	struct vb_verbs_qp *qp = vb_container_of(pub, struct vb_verbs_qp, pub);
	return qp->batch ? &qp->ex : NULL;
}

/* ---- further handles on a receiving queue pair ---- */

static int check_open(struct ibv_context *context, const struct ibv_qp_open_attr *attr)
{
	static const char call[] = "ibv_open_qp";
	enum { NEEDED = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE };
	int err = vb_refuse_call(context, call);
	if (err)
		return err;
	if ((attr->comp_mask & ~(uint32_t)IBV_QP_OPEN_ATTR_CONTEXT) != NEEDED)
		vb_explain(
			call,
			"comp_mask is 0x%x: IBV_QP_OPEN_ATTR_NUM, _XRCD and _TYPE are needed, _CONTEXT is known",
			attr->comp_mask);
	else if (attr->qp_type != IBV_QPT_XRC_RECV)
		vb_explain(call, "only queue pairs of type IBV_QPT_XRC_RECV are shared");
	else if (!attr->xrcd)
		vb_explain(call, "xrcd is NULL");
	else
		return vb_check_same_context(call, context, "the XRC domain", attr->xrcd->context);
	return -EINVAL;
}

/* With one more handle on it. NULL: there is none, or it is being created or destroyed. */
static struct vb_verbs_qp *find_shared(uint32_t qpn, const struct vb_xrcd *xrcd)
{
	vb_lock(&vb_progress_lock);
	struct vb_qp *found = vb_qpn_find(qpn);
	struct vb_verbs_qp *qp = found ? vb_container_of(found, struct vb_verbs_qp, qp) : NULL;
	if (qp && (!found->xrcd || found->xrcd->number != xrcd->number || !atomic_load(&qp->handles)))
		qp = NULL;
	if (qp)
		atomic_fetch_add(&qp->handles, 1);
	vb_unlock(&vb_progress_lock);
	return qp;
}

/* To other processes. */
static void *open_for_others(uint32_t qpn, uint32_t number)
{
	return find_shared(qpn, &(struct vb_xrcd){ .number = number });
}

static void close_for_others(void *handle) { drop_handle(handle); }
static struct vb_qp *qp_of_others(void *handle) { return &((struct vb_verbs_qp *)handle)->qp; }

__attribute__((constructor)) static void offer_handles(void)
{
	static const struct vb_xrc_handles handles = { .open = open_for_others,
						       .close = close_for_others,
						       .qp = qp_of_others };
	vb_xrc_set_handles(&handles);
}

/* On a queue pair of this process, or of another that shares the domain. */
static int open_handle(struct vb_verbs_qp *handle, uint32_t qpn, const struct vb_xrcd *xrcd)
{
	struct ibv_qp_attr attr;
	handle->shared = find_shared(qpn, xrcd);
	if (handle->shared) {
		handle->pub = handle->shared->pub;
		return 0;
	}
	int err = vb_xrc_remote_open_qp(xrcd, qpn, &handle->remote);
	if (err)
		return err;
	err = vb_xrc_remote_query_qp(handle->remote, &attr);
	if (err) {
		vb_xrc_remote_close_qp(handle->remote);
		return err;
	}
	handle->pub.handle = handle->pub.qp_num = qpn;
	handle->pub.qp_type = IBV_QPT_XRC_RECV;
	handle->pub.state = attr.qp_state;
	pthread_mutex_init(&handle->asking, NULL);
	return 0;
}

struct ibv_qp *vb_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr)
{
	int err = check_open(context, attr);
	struct vb_verbs_qp *handle = err ? NULL : new_qp();
	if (!handle)
		return vb_fail_null(err ? err : -ENOMEM);
	err = open_handle(handle, attr->qp_num, vb_xrcd_of(attr->xrcd));
	if (err) {
		vb_explain("ibv_open_qp", "the XRC domain has no receiving queue pair 0x%06x", attr->qp_num);
		free_qp(handle);
		return vb_fail_null(-EINVAL);
	}
	handle->pub.context = context;
	handle->pub.qp_context = attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT ? attr->qp_context : NULL;
	if (handle->shared)
		handle->pub.state = atomic_load(&handle->shared->qp.state);
	atomic_fetch_add(&vb_xrcd_of(attr->xrcd)->refs, 1);
	handle->through = vb_xrcd_of(attr->xrcd);
	return &handle->pub;
}

static int close_handle(struct vb_verbs_qp *handle)
{
	int err = handle->shared ? drop_handle(handle->shared) : 0;
	if (err)
		return vb_fail(err);
	if (!handle->shared) {
		vb_xrc_remote_close_qp(handle->remote);
		pthread_mutex_destroy(&handle->asking);
	}
	atomic_fetch_sub(&handle->through->refs, 1);
	free_qp(handle);
	return 0;
}

VB_EXPORT int ibv_destroy_qp(struct ibv_qp *pub)
{
	struct vb_verbs_qp *qp = vb_container_of(pub, struct vb_verbs_qp, pub);
	if (vb_is_inherited(pub->context)) {
		vb_rss_fini(qp);
		vb_wr_batch_fini(qp);
		free_qp(qp);
		return 0;
	}
	int err = vb_fault_call("ibv_destroy_qp", pub->qp_num);
	if (err)
		return vb_fail(err);
	if (qp->through)
		return close_handle(qp);
	err = drop_handle(qp);
	if (err) {
		vb_explain(
			"ibv_destroy_qp",
			"multicast groups or steering rules still lead to it: ibv_detach_mcast, ibv_destroy_flow first");
		return vb_fail(err);
	}
	return 0;
}

/* ---- modify and query ---- */

/*
 * A reliable connection's attributes are divided between the two halves of XRC. Programs set them all; those
 * of the other half have no effect.
 */
static int applicable(enum ibv_qp_type type, int mask)
{
	if (type == IBV_QPT_XRC_SEND)
		return mask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (type == IBV_QPT_XRC_RECV)
		return mask & ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
	return mask;
}

static int away_answered(const char *call, int err)
{
	if (err == -EIO)
		vb_explain(call, "the process that has the queue pair is gone, or does not answer");
	return err ? vb_fail(err) : 0;
}

/* The structure of programs from before rate limits ends in front of that member. */
static void copy_attr(struct ibv_qp_attr *to, const struct ibv_qp_attr *from, int mask)
{
	memcpy(to, from, mask & IBV_QP_RATE_LIMIT ? sizeof(*to) : offsetof(struct ibv_qp_attr, rate_limit));
}

static int modify_away(struct ibv_qp *pub, const struct ibv_qp_attr *attr, int mask)
{
	struct vb_verbs_qp *handle = vb_container_of(pub, struct vb_verbs_qp, pub);
	struct ibv_qp_attr sent = { .rate_limit = 0 };
	copy_attr(&sent, attr, mask);
	pthread_mutex_lock(&handle->asking);
	int err = vb_xrc_remote_modify_qp(handle->remote, &sent, applicable(IBV_QPT_XRC_RECV, mask));
	pthread_mutex_unlock(&handle->asking);
	if (!err && (mask & IBV_QP_STATE))
		pub->state = attr->qp_state;
	return away_answered("ibv_modify_qp", err);
}

static int query_away(struct ibv_qp *pub, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	struct vb_verbs_qp *handle = vb_container_of(pub, struct vb_verbs_qp, pub);
	struct ibv_qp_attr now;
	pthread_mutex_lock(&handle->asking);
	int err = vb_xrc_remote_query_qp(handle->remote, &now);
	pthread_mutex_unlock(&handle->asking);
	if (err)
		return away_answered("ibv_query_qp", err);
	copy_attr(attr, &now, mask);
	*init = (struct ibv_qp_init_attr){ .qp_context = pub->qp_context,
					   .cap = attr->cap,
					   .qp_type = IBV_QPT_XRC_RECV };
	pub->state = attr->qp_state;
	return 0;
}

/* With a limit of the rate comes its burst; 0: the device's. */
static int modify_with_burst(struct vb_qp *qp, const struct ibv_qp_attr *attr, int mask, uint32_t burst)
{
	if (!(mask & IBV_QP_RATE_LIMIT))
		return vb_qp_modify(qp, attr, mask);
	unsigned before = atomic_exchange(&qp->burst_bytes, burst);
	int err = vb_qp_modify(qp, attr, mask);
	if (err)
		atomic_store(&qp->burst_bytes, before);
	return err;
}

VB_EXPORT int ibv_modify_qp(struct ibv_qp *pub, struct ibv_qp_attr *attr, int mask)
{
	int err = vb_refuse_inherited(pub->context, "ibv_modify_qp");
	if (!err && vb_qp_is_away(pub))
		return modify_away(pub, attr, mask);
	if (!err && vb_check_enabled)
		vb_check_release_sends(vb_shared_qp_of(pub));
	if (!err)
		err = vb_fault_call("ibv_modify_qp", pub->qp_num);
	if (!err)
		err = modify_with_burst(vb_shared_qp_of(pub), attr, applicable(pub->qp_type, mask), 0);
	if (err)
		return vb_fail(err);
	if (vb_check_enabled && (mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RESET)
		vb_check_qp_reset(vb_shared_qp_of(pub));
	if (mask & IBV_QP_STATE)
		pub->state = attr->qp_state;
	if (vb_faults_on && (mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RESET)
		vb_fault_forget_qp(pub);
	return 0;
}

VB_EXPORT int ibv_query_qp(struct ibv_qp *pub, struct ibv_qp_attr *attr, int mask,
			   struct ibv_qp_init_attr *init)
{
	struct vb_qp *qp = vb_shared_qp_of(pub);
	struct ibv_qp_attr now;
	int err = vb_refuse_inherited(pub->context, "ibv_query_qp");
	if (!err && vb_qp_is_away(pub))
		return query_away(pub, attr, mask, init);
	if (!err)
		err = vb_fault_call("ibv_query_qp", pub->qp_num);
	if (err)
		return vb_fail(err);
	vb_qp_query(qp, &now);
	copy_attr(attr, &now, mask);
	*init = (struct ibv_qp_init_attr){
		.qp_context = pub->qp_context,
		.send_cq = pub->send_cq,
		.recv_cq = pub->recv_cq,
		.srq = pub->srq,
		.cap = qp->attr.cap,
		.qp_type = pub->qp_type,
		.sq_sig_all = qp->sq_sig_all,
	};
	if (mask & IBV_QP_STATE)
		pub->state = attr->qp_state;
	return 0;
}

int vb_modify_qp_rate_limit(struct ibv_qp *pub, struct ibv_qp_rate_limit_attr *attr)
{
	static const char call[] = "ibv_modify_qp_rate_limit";
	struct vb_qp *qp = vb_shared_qp_of(pub);
	int err = vb_refuse_call(pub->context, call);
	if (!err && qp->type != IBV_QPT_RAW_PACKET) {
		vb_explain_limit(
			call,
			"only raw packet queue pairs have a limit (packet_pacing_caps): the pace of the others is their congestion window's");
		err = -EOPNOTSUPP;
	}
	if (!err && attr->comp_mask) {
		vb_explain(call, "comp_mask is 0x%x: it must be 0", attr->comp_mask);
		err = -EINVAL;
	}
	if (err)
		return vb_fail(err);
	err = modify_with_burst(qp, &(struct ibv_qp_attr){ .rate_limit = attr->rate_limit },
				IBV_QP_RATE_LIMIT, attr->rate_limit ? attr->max_burst_sz : 0);
	return err ? vb_fail(err) : 0;
}

/* Bytes of a message become visible in any order, except that the last ones come last. */
VB_EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	return 0;
}

/* ---- what this device does not have ---- */

/* A vendor id of 0 asks for nothing. */
VB_EXPORT int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return ece->vendor_id ? vb_fail(-EOPNOTSUPP) : 0;
}

VB_EXPORT int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	memset(ece, 0, sizeof(*ece));
	return vb_fail(-EOPNOTSUPP);
}

static struct in6_addr group_of(const union ibv_gid *gid)
{
	struct in6_addr group;
	memcpy(&group, gid, sizeof(group));
	return group;
}

VB_EXPORT int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	struct in6_addr group = group_of(gid);
	int err = vb_refuse_call(qp->context, "ibv_attach_mcast");
	if (!err)
		err = vb_mcast_attach(vb_qp_of(qp), &group);
	return err ? vb_fail(err) : 0;
}

VB_EXPORT int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	struct in6_addr group = group_of(gid);
	if (vb_is_inherited(qp->context))
		return 0;
	int err = vb_fault_call("ibv_detach_mcast", 0);
	if (err)
		return vb_fail(err);
	err = vb_mcast_detach(vb_qp_of(qp), &group);
	if (err)
		vb_explain("ibv_detach_mcast", "the queue pair is not attached to this group");
	return err ? vb_fail(err) : 0;
}

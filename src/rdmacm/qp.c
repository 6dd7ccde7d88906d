/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * QPs and SRQs of ids: their creation, with defaults for what the program left out, and their transitions
 * when the id connects.
 */
#include <stdlib.h>
#include <string.h>

#include "adapter/object.h"
#include "rdmacm/calls.h"
#include "rdmacm/id/id.h"

/* ---- attributes for a transition, as the connection stands ---- */

static enum ibv_qp_type type_of(const struct vb_cma_id *id)
{
	return id->pub.qp ? id->pub.qp->qp_type : id->pub.qp_type;
}

static bool is_reliable(const struct vb_cma_id *id)
{
	return type_of(id) != IBV_QPT_UC && !vb_cma_is_datagram(id);
}

/* Each of the two XRC types has only one half of a reliable connection. */
static bool responds(const struct vb_cma_id *id)
{
	return is_reliable(id) && type_of(id) != IBV_QPT_XRC_SEND;
}
static bool requests(const struct vb_cma_id *id)
{
	return is_reliable(id) && type_of(id) != IBV_QPT_XRC_RECV;
}

static void init_attr(const struct vb_cma_id *id, struct ibv_qp_attr *attr, int *mask)
{
	*mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	attr->pkey_index = 0;
	attr->port_num = id->pub.port_num;
	if (vb_cma_is_datagram(id)) {
		*mask |= IBV_QP_QKEY;
		attr->qkey = RDMA_UDP_QKEY;
		return;
	}
	*mask |= IBV_QP_ACCESS_FLAGS;
	attr->qp_access_flags = 0;
	if (id->conn)
		attr->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	if (id->conn && is_reliable(id) && id->agreed.responder_resources)
		attr->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
}

static void ah_attr(const struct vb_cma_id *id, struct ibv_ah_attr *ah)
{
	const struct vb_cm_path *path = &id->agreed.path;

	memset(ah, 0, sizeof(*ah));
	ah->is_global = 1;
	memcpy(ah->grh.dgid.raw, path->remote_gid, sizeof(ah->grh.dgid.raw));
	ah->grh.flow_label = path->flow_label;
	ah->grh.sgid_index = id->gid_index;
	ah->grh.hop_limit = path->hop_limit;
	ah->grh.traffic_class = path->traffic_class;
	ah->sl = path->sl;
	ah->port_num = id->pub.port_num;
}

static void rtr_attr(const struct vb_cma_id *id, struct ibv_qp_attr *attr, int *mask)
{
	*mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	ah_attr(id, &attr->ah_attr);
	attr->path_mtu = (enum ibv_mtu)id->agreed.path.mtu;
	attr->dest_qp_num = id->agreed.remote_qpn;
	attr->rq_psn = id->our_psn;
	if (!responds(id))
		return;
	*mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	attr->max_dest_rd_atomic = id->agreed.responder_resources;
	attr->min_rnr_timer = 0; /* 655 ms, as the man page of rdma_accept has it */
}

static void rts_attr(const struct vb_cma_id *id, struct ibv_qp_attr *attr, int *mask)
{
	*mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	attr->sq_psn = id->agreed.remote_psn;
	if (!is_reliable(id))
		return;
	*mask |= IBV_QP_TIMEOUT;
	attr->timeout = id->ack_timeout_set ? id->ack_timeout : id->agreed.path.local_ack_timeout;
	if (!requests(id))
		return;
	*mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	attr->retry_cnt = id->agreed.retry_count;
	attr->rnr_retry = id->agreed.rnr_retry_count;
	attr->max_rd_atomic = id->agreed.initiator_depth;
}

/* -EINVAL: the id has no connection for such a transition. */
static int transition_attr(const struct vb_cma_id *id, struct ibv_qp_attr *attr, int *mask)
{
	if (attr->qp_state == IBV_QPS_INIT) {
		init_attr(id, attr, mask);
		return 0;
	}
	if (vb_cma_is_datagram(id) || !id->agreed.remote_qpn)
		return -EINVAL;
	if (attr->qp_state == IBV_QPS_RTR)
		rtr_attr(id, attr, mask);
	else if (attr->qp_state == IBV_QPS_RTS)
		rts_attr(id, attr, mask);
	else
		return -EINVAL;
	return 0;
}

VB_EXPORT int rdma_init_qp_attr(struct rdma_cm_id *pub, struct ibv_qp_attr *attr, int *mask)
{
	if (vb_cma_is_faulty(__func__))
		return -1;
	if (!pub || !attr || !mask)
		return vb_cma_fail(EINVAL, "id, attributes or mask pointer is NULL");
	struct vb_cma_id *id = vb_cma_id_of(pub);

	if (!pub->verbs)
		return vb_cma_fail(EINVAL, "the id is bound to no device yet");
	if (transition_attr(id, attr, mask))
		return vb_cma_fail(EINVAL, "QP state %d: the id is %s", (int)attr->qp_state,
				   vb_cma_id_state_text(id));
	return 0;
}

/* ---- transitions ---- */

void vb_cma_qp_note(struct vb_cma_id *id)
{
	vb_cma_lock();
	id->qpn = id->pub.qp ? id->pub.qp->qp_num : 0;
	vb_cma_unlock();
}

static int modify(struct vb_cma_id *id, struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask, err = transition_attr(id, &attr, &mask);

	return err ? err : -ibv_modify_qp(qp, &attr, mask);
}

/* INIT once more: only now the peer's rights are known. */
int vb_cma_qp_connect(struct vb_cma_id *id)
{
	static const enum ibv_qp_state states[] = { IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS };
	int err = 0;

	vb_cma_qp_note(id);
	for (size_t i = 0; i < VB_ARRAY_LEN(states) && !err; i++)
		err = modify(id, id->pub.qp, states[i]);
	return err;
}

static int datagram_to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	int err = ibv_modify_qp(qp, &attr, IBV_QP_STATE);

	if (err)
		return -err;
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = 0;
	return -ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

/* INIT, and for datagrams RTR and RTS. */
static int prepare(struct vb_cma_id *id, struct ibv_qp *qp)
{
	int err = modify(id, qp, IBV_QPS_INIT);

	return err || !vb_cma_is_datagram(id) ? err : datagram_to_rts(qp);
}

void vb_cma_qp_flush(struct vb_cma_id *id)
{
	if (!id->pub.qp)
		return;
	if (!id->qpn)
		vb_cma_qp_note(id);
	vb_qp_fail_number(id->qpn);
}

void vb_cma_qp_fail(struct vb_cma_id *id)
{
	if (!vb_cma_is_datagram(id))
		vb_cma_qp_flush(id);
}

/* ---- completion queues that the program did not give ---- */

static int create_cq(struct rdma_cm_id *id, uint32_t entries, struct ibv_comp_channel **channel,
		     struct ibv_cq **cq)
{
	*channel = ibv_create_comp_channel(id->verbs);
	if (!*channel)
		return errno ? errno : ENOMEM;
	*cq = ibv_create_cq(id->verbs, entries ? (int)entries : 1, id, *channel, 0);
	if (*cq)
		return 0;
	int err = errno ? errno : ENOMEM;
	ibv_destroy_comp_channel(*channel);
	*channel = NULL;
	return err;
}

static void destroy_cq(struct ibv_comp_channel **channel, struct ibv_cq **cq)
{
	if (*cq && ibv_destroy_cq(*cq))
		return;
	if (*channel)
		ibv_destroy_comp_channel(*channel);
	*cq = NULL;
	*channel = NULL;
}

/*
 * Programs put CQs of their own into ids, too, and often one CQ, or one channel, for both directions. The CQ
 * of an XRC SRQ is destroyed with the SRQ.
 */
static void destroy_cqs(struct rdma_cm_id *id)
{
	if (id->send_cq == id->recv_cq)
		id->send_cq = NULL;
	if (id->send_cq_channel == id->recv_cq_channel)
		id->send_cq_channel = NULL;
	destroy_cq(&id->send_cq_channel, &id->send_cq);
	if (!id->srq || id->qp_type != IBV_QPT_XRC_RECV)
		destroy_cq(&id->recv_cq_channel, &id->recv_cq);
}

/* Those of an SRQ may all complete here; max_recv_wr means nothing then. */
static uint32_t most_receives(const struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_srq_attr srq;

	if (!attr->srq || ibv_query_srq(attr->srq, &srq) || srq.max_wr < attr->cap.max_recv_wr)
		return attr->cap.max_recv_wr;
	return srq.max_wr;
}

/* The SRQ and the completion queues that the program has not named. */
static int choose_queues(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	bool sends = attr->qp_type != IBV_QPT_XRC_RECV, receives = sends && attr->qp_type != IBV_QPT_XRC_SEND;
	int err = 0;

	if (receives && !attr->srq)
		attr->srq = id->srq;
	if (sends && !attr->send_cq && !id->send_cq)
		err = create_cq(id, attr->cap.max_send_wr, &id->send_cq_channel, &id->send_cq);
	if (!err && receives && !attr->recv_cq && !id->recv_cq)
		err = create_cq(id, most_receives(attr), &id->recv_cq_channel, &id->recv_cq);
	if (sends && !attr->send_cq)
		attr->send_cq = id->send_cq;
	if (receives && !attr->recv_cq)
		attr->recv_cq = id->recv_cq;
	return err;
}

/* ---- QPs ---- */

static int choose_pd(const struct rdma_cm_id *id, const char *call, struct ibv_pd **pd)
{
	if (!*pd)
		*pd = id->pd;
	if (*pd && (*pd)->context == id->verbs)
		return 0;
	vb_explain(call, "the protection domain is another device's than the id's");
	return EINVAL;
}

/* Receiving XRC QPs have an XRC domain, all others a protection domain. */
static int choose_domain(struct rdma_cm_id *id, const char *call, struct ibv_qp_init_attr_ex *attr)
{
	bool has_xrcd = (attr->comp_mask & IBV_QP_INIT_ATTR_XRCD) && attr->xrcd;

	if (attr->qp_type == IBV_QPT_XRC_RECV) {
		attr->xrcd = has_xrcd ? attr->xrcd : vb_cma_device_xrcd(vb_cma_id_of(id)->device);
		attr->comp_mask = (attr->comp_mask & ~(uint32_t)IBV_QP_INIT_ATTR_PD) | IBV_QP_INIT_ATTR_XRCD;
		return attr->xrcd ? 0 : errno;
	}
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD))
		attr->pd = NULL;
	attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
	return choose_pd(id, call, &attr->pd);
}

static int check_new_qp(const struct rdma_cm_id *id, const char *call)
{
	if (!id->verbs) {
		vb_explain(call, "the id is bound to no device yet: resolve or bind it to an address first");
		return EINVAL;
	}
	if (id->qp) {
		vb_explain(call, "the id has a QP already (0x%06x)", id->qp->qp_num);
		return EINVAL;
	}
	return 0;
}

static int create_qp(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	int err = choose_queues(id, attr);

	if (err)
		return err;
	struct ibv_qp *qp = ibv_create_qp_ex(id->verbs, attr);
	if (!qp)
		return errno ? errno : ENOMEM;
	err = -prepare(vb_cma_id_of(id), qp);
	if (err) {
		ibv_destroy_qp(qp);
		return err;
	}
	if (qp->pd)
		id->pd = qp->pd;
	id->qp = qp;
	vb_cma_qp_note(vb_cma_id_of(id));
	return 0;
}

/* libibverbs explains its own refusals. */
static int add_qp(struct rdma_cm_id *id, const char *call, struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp_init_attr_ex wanted = *attr;
	int err = check_new_qp(id, call);

	if (!err)
		err = choose_domain(id, call, &wanted);
	if (err)
		return err;
	err = create_qp(id, &wanted);
	if (err)
		destroy_cqs(id);
	else
		*attr = wanted;
	return err;
}

static int result(int err)
{
	if (!err)
		return 0;
	errno = err;
	return -1;
}

VB_EXPORT int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	if (vb_cma_is_faulty(__func__))
		return -1;
	if (!id || !attr)
		return vb_cma_fail(EINVAL, "id or attributes are NULL");
	return result(add_qp(id, __func__, attr));
}

static struct ibv_qp_init_attr_ex extend(const struct ibv_qp_init_attr *attr)
{
	return (struct ibv_qp_init_attr_ex){
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
	};
}

VB_EXPORT int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	if (vb_cma_is_faulty(__func__))
		return -1;
	if (!id || !attr)
		return vb_cma_fail(EINVAL, "id or attributes are NULL");
	struct ibv_qp_init_attr_ex extended = extend(attr);

	extended.comp_mask = IBV_QP_INIT_ATTR_PD;
	extended.pd = pd;
	int err = add_qp(id, __func__, &extended);
	if (err)
		return result(err);
	attr->send_cq = extended.send_cq;
	attr->recv_cq = extended.recv_cq;
	attr->srq = extended.srq;
	attr->cap = extended.cap;
	return 0;
}

VB_EXPORT void rdma_destroy_qp(struct rdma_cm_id *id)
{
	if (!id || !id->qp)
		return;
	int err = ibv_destroy_qp(id->qp);
	if (err) {
		vb_explain(__func__, "QP 0x%06x stays: %s", id->qp->qp_num, strerror(err));
		return;
	}
	id->qp = NULL;
	vb_cma_qp_note(vb_cma_id_of(id));
	destroy_cqs(id);
}

/* ---- SRQs ---- */

/* What the program left out. *made_cq: the id has a completion queue since. */
static int complete_xrc(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr, bool *made_cq)
{
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) || !attr->xrcd) {
		attr->xrcd = vb_cma_device_xrcd(vb_cma_id_of(id)->device);
		attr->comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
	}
	if (!attr->xrcd)
		return errno;
	if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ) && attr->cq)
		return 0;
	if (!id->recv_cq) {
		int err = create_cq(id, attr->attr.max_wr, &id->recv_cq_channel, &id->recv_cq);
		if (err)
			return err;
		*made_cq = true;
	}
	attr->comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
	attr->cq = id->recv_cq;
	return 0;
}

static int create_srq(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
	bool is_xrc = (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) && attr->srq_type == IBV_SRQT_XRC;
	bool made_cq = false;
	int err = is_xrc ? complete_xrc(id, attr, &made_cq) : 0;

	if (err)
		return err;
	id->srq = ibv_create_srq_ex(id->verbs, attr);
	if (id->srq) {
		id->pd = attr->pd;
		return 0;
	}
	err = errno ? errno : ENOMEM;
	if (made_cq)
		destroy_cq(&id->recv_cq_channel, &id->recv_cq);
	return err;
}

static int add_srq(struct rdma_cm_id *id, const char *call, struct ibv_srq_init_attr_ex *attr)
{
	struct ibv_srq_init_attr_ex wanted = *attr;

	if (!id->verbs || id->srq) {
		vb_explain(call, id->srq ? "the id has an SRQ already" : "the id is bound to no device yet");
		return EINVAL;
	}
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD))
		wanted.pd = NULL;
	int err = choose_pd(id, call, &wanted.pd);
	if (err)
		return err;
	wanted.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
	err = create_srq(id, &wanted);
	if (!err)
		*attr = wanted;
	return err;
}

VB_EXPORT int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
	if (vb_cma_is_faulty(__func__))
		return -1;
	if (!id || !attr)
		return vb_cma_fail(EINVAL, "id or attributes are NULL");
	return result(add_srq(id, __func__, attr));
}

VB_EXPORT int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	if (vb_cma_is_faulty(__func__))
		return -1;
	if (!id || !attr)
		return vb_cma_fail(EINVAL, "id or attributes are NULL");
	struct ibv_srq_init_attr_ex extended = {
		.srq_context = attr->srq_context, .attr = attr->attr, .pd = pd,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = id->qp_type == IBV_QPT_XRC_RECV ? IBV_SRQT_XRC : IBV_SRQT_BASIC,
	};

	int err = add_srq(id, __func__, &extended);
	if (!err)
		attr->attr = extended.attr;
	return result(err);
}

VB_EXPORT void rdma_destroy_srq(struct rdma_cm_id *id)
{
	if (!id || !id->srq)
		return;
	int err = ibv_destroy_srq(id->srq);
	if (err) {
		vb_explain(__func__, "the SRQ stays: %s", strerror(err));
		return;
	}
	id->srq = NULL;
	if (!id->qp)
		destroy_cqs(id);
}

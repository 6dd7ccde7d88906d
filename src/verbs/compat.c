/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The interface of 2006 (version node IBVERBS_1.0), whose structures were laid out differently. Each old
 * object is a structure of the old layout that ends in a pointer to the real object. Where a real object has
 * a user's context pointer (CQ, QP, SRQ), this points back to the old object, so that events can name old
 * objects.
 */
#include <stdlib.h>
#include <string.h>

#include "verbs/verbs.h"

#undef ibv_reg_mr
#undef ibv_query_port

#define OLD(name) VB_SYMVER(old_##name, "ibv_" #name, "IBVERBS_1.0")

/* ---- layouts ---- */

struct old_device {
	void *obsolete[2];
	struct ibv_device *real;
	struct _ibv_device_ops ops;
};

struct old_pd {
	struct old_context *context;
	uint32_t handle;
	struct ibv_pd *real;
};

struct old_mr {
	struct old_context *context;
	struct old_pd *pd;
	uint32_t handle, lkey, rkey;
	struct ibv_mr *real;
};

struct old_cq {
	struct old_context *context;
	void *cq_context;
	uint32_t handle;
	int cqe;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t comp_events_completed, async_events_completed;
	struct ibv_cq *real;
};

struct old_srq {
	struct old_context *context;
	void *srq_context;
	struct old_pd *pd;
	uint32_t handle;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
	struct ibv_srq *real;
};

struct old_qp {
	struct old_context *context;
	void *qp_context;
	struct old_pd *pd;
	struct old_cq *send_cq, *recv_cq;
	struct old_srq *srq;
	uint32_t handle, qp_num;
	enum ibv_qp_state state;
	enum ibv_qp_type qp_type;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
	struct ibv_qp *real;
};

struct old_ah {
	struct old_context *context;
	struct old_pd *pd;
	uint32_t handle;
	struct ibv_ah *real;
};

struct old_qp_init_attr {
	void *qp_context;
	struct old_cq *send_cq, *recv_cq;
	struct old_srq *srq;
	struct ibv_qp_cap cap;
	enum ibv_qp_type qp_type;
	int sq_sig_all;
};

struct old_send_wr {
	struct old_send_wr *next;
	uint64_t wr_id;
	struct ibv_sge *sg_list;
	int num_sge;
	enum ibv_wr_opcode opcode;
	int send_flags;
	uint32_t imm_data;
	union {
		struct {
			uint64_t remote_addr;
			uint32_t rkey;
		} rdma;
		struct {
			uint64_t remote_addr, compare_add, swap;
			uint32_t rkey;
		} atomic;
		struct {
			struct old_ah *ah;
			uint32_t remote_qpn, remote_qkey;
		} ud;
	} wr;
};

struct old_recv_wr {
	struct old_recv_wr *next;
	uint64_t wr_id;
	struct ibv_sge *sg_list;
	int num_sge;
};

/* Programs call the five that have names; the others keep the places. */
struct old_ops {
	void *before_poll[7];
	int (*poll_cq)(struct old_cq *cq, int num_entries, struct ibv_wc *wc);
	int (*req_notify_cq)(struct old_cq *cq, int solicited_only);
	void *before_post_srq[7];
	int (*post_srq_recv)(struct old_srq *srq, struct old_recv_wr *wr, struct old_recv_wr **bad);
	void *before_post_send[4];
	int (*post_send)(struct old_qp *qp, struct old_send_wr *wr, struct old_send_wr **bad);
	int (*post_recv)(struct old_qp *qp, struct old_recv_wr *wr, struct old_recv_wr **bad);
	void *after_post_recv[4];
};

struct old_context {
	struct old_device *device;
	struct old_ops ops;
	int cmd_fd, async_fd, num_comp_vectors;
	struct ibv_context *real;
};

_Static_assert(offsetof(struct old_ops, poll_cq) == 7 * sizeof(void *), "layout");
_Static_assert(offsetof(struct old_ops, post_srq_recv) == 16 * sizeof(void *), "layout");
_Static_assert(offsetof(struct old_ops, post_send) == 21 * sizeof(void *), "layout");
_Static_assert(sizeof(struct old_ops) == 27 * sizeof(void *), "layout");
_Static_assert(sizeof(struct old_send_wr) == 72 && offsetof(struct old_send_wr, wr) == 40, "layout");

/* ---- devices: the list that programs see is preceded by the real one ---- */

VB_EXPORT void old_free_device_list(struct old_device **list);
VB_EXPORT void old_free_device_list(struct old_device **list)
{
	if (!list)
		return;
	for (struct old_device **d = list; *d; d++)
		free(*d);
	ibv_free_device_list((struct ibv_device **)list[-1]);
	free(list - 1);
}
OLD(free_device_list);

VB_EXPORT struct old_device **old_get_device_list(int *num);
VB_EXPORT struct old_device **old_get_device_list(int *num)
{
	int count;
	struct ibv_device **real = ibv_get_device_list(&count);
	if (!real)
		return NULL;
	struct old_device **list = calloc((size_t)count + 2, sizeof(*list));
	if (!list) {
		ibv_free_device_list(real);
		return NULL;
	}
	*list++ = (struct old_device *)real;
	for (int i = 0; i < count; i++) {
		list[i] = calloc(1, sizeof(**list));
		if (!list[i]) {
			old_free_device_list(list);
			return NULL;
		}
		list[i]->real = real[i];
	}
	if (num)
		*num = count;
	return list;
}
OLD(get_device_list);

VB_EXPORT const char *old_get_device_name(struct old_device *device);
VB_EXPORT const char *old_get_device_name(struct old_device *device)
{
	return ibv_get_device_name(device->real);
}
OLD(get_device_name);

VB_EXPORT __be64 old_get_device_guid(struct old_device *device);
VB_EXPORT __be64 old_get_device_guid(struct old_device *device) { return ibv_get_device_guid(device->real); }
OLD(get_device_guid);

/* ---- what old programs call through the table ---- */

static int poll_cq(struct old_cq *cq, int num_entries, struct ibv_wc *wc)
{
	return ibv_poll_cq(cq->real, num_entries, wc);
}
static int req_notify_cq(struct old_cq *cq, int solicited_only)
{
	return ibv_req_notify_cq(cq->real, solicited_only);
}

static struct ibv_recv_wr new_recv_wr(const struct old_recv_wr *wr)
{
	return (struct ibv_recv_wr){ .wr_id = wr->wr_id, .sg_list = wr->sg_list, .num_sge = wr->num_sge };
}

/* Posting one by one stops at the first bad request as posting a list does. */
static int post_recv(struct old_qp *qp, struct old_recv_wr *wr, struct old_recv_wr **bad)
{
	for (; wr; wr = wr->next) {
		struct ibv_recv_wr one = new_recv_wr(wr), *unused;
		int err = ibv_post_recv(qp->real, &one, &unused);
		if (err) {
			*bad = wr;
			return err;
		}
	}
	return 0;
}

static int post_srq_recv(struct old_srq *srq, struct old_recv_wr *wr, struct old_recv_wr **bad)
{
	for (; wr; wr = wr->next) {
		struct ibv_recv_wr one = new_recv_wr(wr), *unused;
		int err = ibv_post_srq_recv(srq->real, &one, &unused);
		if (err) {
			*bad = wr;
			return err;
		}
	}
	return 0;
}

static struct ibv_send_wr new_send_wr(const struct old_qp *qp, const struct old_send_wr *wr)
{
	struct ibv_send_wr to = {
		.wr_id = wr->wr_id,
		.sg_list = wr->sg_list,
		.num_sge = wr->num_sge,
		.opcode = wr->opcode,
		.send_flags = (unsigned)wr->send_flags,
		.imm_data = wr->imm_data,
	};
	_Static_assert(sizeof(to.wr) == sizeof(wr->wr), "only the address handle differs");
	memcpy(&to.wr, &wr->wr, sizeof(to.wr));
	if (qp->qp_type == IBV_QPT_UD)
		to.wr.ud.ah = wr->wr.ud.ah->real;
	return to;
}

static int post_send(struct old_qp *qp, struct old_send_wr *wr, struct old_send_wr **bad)
{
	for (; wr; wr = wr->next) {
		struct ibv_send_wr one = new_send_wr(qp, wr), *unused;
		int err = ibv_post_send(qp->real, &one, &unused);
		if (err) {
			*bad = wr;
			return err;
		}
	}
	return 0;
}

/* ---- contexts ---- */

VB_EXPORT struct old_context *old_open_device(struct old_device *device);
VB_EXPORT struct old_context *old_open_device(struct old_device *device)
{
	struct old_context *c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->real = ibv_open_device(device->real);
	if (!c->real) {
		free(c);
		return NULL;
	}
	c->device = device;
	c->ops.poll_cq = poll_cq;
	c->ops.req_notify_cq = req_notify_cq;
	c->ops.post_srq_recv = post_srq_recv;
	c->ops.post_send = post_send;
	c->ops.post_recv = post_recv;
	c->cmd_fd = c->real->cmd_fd;
	c->async_fd = c->real->async_fd;
	c->num_comp_vectors = c->real->num_comp_vectors;
	return c;
}
OLD(open_device);

VB_EXPORT int old_close_device(struct old_context *context);
VB_EXPORT int old_close_device(struct old_context *context)
{
	int err = ibv_close_device(context->real);
	if (!err)
		free(context);
	return err;
}
OLD(close_device);

VB_EXPORT int old_query_device(struct old_context *context, struct ibv_device_attr *attr);
VB_EXPORT int old_query_device(struct old_context *context, struct ibv_device_attr *attr)
{
	return ibv_query_device(context->real, attr);
}
OLD(query_device);

VB_EXPORT int old_query_port(struct old_context *context, uint8_t port, struct _compat_ibv_port_attr *attr);
VB_EXPORT int old_query_port(struct old_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	return ibv_query_port(context->real, port, attr);
}
OLD(query_port);

VB_EXPORT int old_query_gid(struct old_context *context, uint8_t port, int index, union ibv_gid *gid);
VB_EXPORT int old_query_gid(struct old_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	return ibv_query_gid(context->real, port, index, gid);
}
OLD(query_gid);

VB_EXPORT int old_query_pkey(struct old_context *context, uint8_t port, int index, __be16 *pkey);
VB_EXPORT int old_query_pkey(struct old_context *context, uint8_t port, int index, __be16 *pkey)
{
	return ibv_query_pkey(context->real, port, index, pkey);
}
OLD(query_pkey);

/* ---- events ---- */

enum subject { ON_CQ, ON_QP, ON_SRQ, ON_PORT };

static enum subject subject_of(enum ibv_event_type type)
{
	switch (type) {
	case IBV_EVENT_CQ_ERR:
		return ON_CQ;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return ON_QP;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return ON_SRQ;
	case IBV_EVENT_DEVICE_FATAL:
	case IBV_EVENT_DEVICE_SPEED_CHANGE:
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
	case IBV_EVENT_GID_CHANGE:
	case IBV_EVENT_WQ_FATAL:
		break;
	}
	return ON_PORT;
}

VB_EXPORT int old_get_async_event(struct old_context *context, struct ibv_async_event *event);
VB_EXPORT int old_get_async_event(struct old_context *context, struct ibv_async_event *event)
{
	int err = ibv_get_async_event(context->real, event);
	if (err)
		return err;
	switch (subject_of(event->event_type)) {
	case ON_CQ:
		event->element.cq = event->element.cq->cq_context;
		break;
	case ON_QP:
		event->element.qp = event->element.qp->qp_context;
		break;
	case ON_SRQ:
		event->element.srq = event->element.srq->srq_context;
		break;
	case ON_PORT:
		break;
	}
	return 0;
}
OLD(get_async_event);

VB_EXPORT void old_ack_async_event(struct ibv_async_event *event);
VB_EXPORT void old_ack_async_event(struct ibv_async_event *event)
{
	struct ibv_async_event real = *event;
	switch (subject_of(event->event_type)) {
	case ON_CQ:
		real.element.cq = ((struct old_cq *)event->element.cq)->real;
		break;
	case ON_QP:
		real.element.qp = ((struct old_qp *)event->element.qp)->real;
		break;
	case ON_SRQ:
		real.element.srq = ((struct old_srq *)event->element.srq)->real;
		break;
	case ON_PORT:
		break;
	}
	ibv_ack_async_event(&real);
}
OLD(ack_async_event);

VB_EXPORT int old_get_cq_event(struct ibv_comp_channel *channel, struct old_cq **cq, void **cq_context);
VB_EXPORT int old_get_cq_event(struct ibv_comp_channel *channel, struct old_cq **cq, void **cq_context)
{
	struct ibv_cq *real;
	void *old;
	int err = ibv_get_cq_event(channel, &real, &old);
	if (err)
		return err;
	*cq = old;
	*cq_context = (*cq)->cq_context;
	return 0;
}
OLD(get_cq_event);

VB_EXPORT void old_ack_cq_events(struct old_cq *cq, unsigned int nevents);
VB_EXPORT void old_ack_cq_events(struct old_cq *cq, unsigned int nevents)
{
	ibv_ack_cq_events(cq->real, nevents);
}
OLD(ack_cq_events);

/* ---- protection domains, memory regions, address handles ---- */

/* Ends a create call: frees the old object if there is no real one. */
#define FINISH(object)          \
	do {                    \
		if (!(object)->real) { \
			free(object); \
			return NULL;  \
		}               \
	} while (0)

/* Ends a destroy call. */
static int destroyed(int err, void *object)
{
	if (!err)
		free(object);
	return err;
}

VB_EXPORT struct old_pd *old_alloc_pd(struct old_context *context);
VB_EXPORT struct old_pd *old_alloc_pd(struct old_context *context)
{
	struct old_pd *pd = calloc(1, sizeof(*pd));
	if (!pd)
		return NULL;
	pd->real = ibv_alloc_pd(context->real);
	FINISH(pd);
	pd->context = context;
	return pd;
}
OLD(alloc_pd);

VB_EXPORT int old_dealloc_pd(struct old_pd *pd);
VB_EXPORT int old_dealloc_pd(struct old_pd *pd) { return destroyed(ibv_dealloc_pd(pd->real), pd); }
OLD(dealloc_pd);

VB_EXPORT struct old_mr *old_reg_mr(struct old_pd *pd, void *addr, size_t length, int access);
VB_EXPORT struct old_mr *old_reg_mr(struct old_pd *pd, void *addr, size_t length, int access)
{
	struct old_mr *mr = calloc(1, sizeof(*mr));
	if (!mr)
		return NULL;
	mr->real = ibv_reg_mr(pd->real, addr, length, access);
	FINISH(mr);
	mr->context = pd->context;
	mr->pd = pd;
	mr->lkey = mr->real->lkey;
	mr->rkey = mr->real->rkey;
	return mr;
}
OLD(reg_mr);

VB_EXPORT int old_dereg_mr(struct old_mr *mr);
VB_EXPORT int old_dereg_mr(struct old_mr *mr) { return destroyed(ibv_dereg_mr(mr->real), mr); }
OLD(dereg_mr);

VB_EXPORT struct old_ah *old_create_ah(struct old_pd *pd, struct ibv_ah_attr *attr);
VB_EXPORT struct old_ah *old_create_ah(struct old_pd *pd, struct ibv_ah_attr *attr)
{
	struct old_ah *ah = calloc(1, sizeof(*ah));
	if (!ah)
		return NULL;
	ah->real = ibv_create_ah(pd->real, attr);
	FINISH(ah);
	ah->context = pd->context;
	ah->pd = pd;
	return ah;
}
OLD(create_ah);

VB_EXPORT int old_destroy_ah(struct old_ah *ah);
VB_EXPORT int old_destroy_ah(struct old_ah *ah) { return destroyed(ibv_destroy_ah(ah->real), ah); }
OLD(destroy_ah);

/* ---- completion queues ---- */

VB_EXPORT struct old_cq *old_create_cq(struct old_context *context, int cqe, void *cq_context,
				       struct ibv_comp_channel *channel, int comp_vector);
VB_EXPORT struct old_cq *old_create_cq(struct old_context *context, int cqe, void *cq_context,
				       struct ibv_comp_channel *channel, int comp_vector)
{
	struct old_cq *cq = calloc(1, sizeof(*cq));
	if (!cq)
		return NULL;
	cq->real = ibv_create_cq(context->real, cqe, cq, channel, comp_vector);
	FINISH(cq);
	cq->context = context;
	cq->cq_context = cq_context;
	cq->cqe = cq->real->cqe;
	return cq;
}
OLD(create_cq);

VB_EXPORT int old_resize_cq(struct old_cq *cq, int cqe);
VB_EXPORT int old_resize_cq(struct old_cq *cq, int cqe)
{
	int err = ibv_resize_cq(cq->real, cqe);
	cq->cqe = cq->real->cqe;
	return err;
}
OLD(resize_cq);

VB_EXPORT int old_destroy_cq(struct old_cq *cq);
VB_EXPORT int old_destroy_cq(struct old_cq *cq) { return destroyed(ibv_destroy_cq(cq->real), cq); }
OLD(destroy_cq);

/* ---- shared receive queues ---- */

VB_EXPORT struct old_srq *old_create_srq(struct old_pd *pd, struct ibv_srq_init_attr *attr);
VB_EXPORT struct old_srq *old_create_srq(struct old_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct old_srq *srq = calloc(1, sizeof(*srq));
	if (!srq)
		return NULL;
	struct ibv_srq_init_attr real = { .srq_context = srq, .attr = attr->attr };
	srq->real = ibv_create_srq(pd->real, &real);
	FINISH(srq);
	attr->attr = real.attr;
	srq->context = pd->context;
	srq->srq_context = attr->srq_context;
	srq->pd = pd;
	return srq;
}
OLD(create_srq);

VB_EXPORT int old_modify_srq(struct old_srq *srq, struct ibv_srq_attr *attr, int mask);
VB_EXPORT int old_modify_srq(struct old_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	return ibv_modify_srq(srq->real, attr, mask);
}
OLD(modify_srq);

VB_EXPORT int old_query_srq(struct old_srq *srq, struct ibv_srq_attr *attr);
VB_EXPORT int old_query_srq(struct old_srq *srq, struct ibv_srq_attr *attr)
{
	return ibv_query_srq(srq->real, attr);
}
OLD(query_srq);

VB_EXPORT int old_destroy_srq(struct old_srq *srq);
VB_EXPORT int old_destroy_srq(struct old_srq *srq) { return destroyed(ibv_destroy_srq(srq->real), srq); }
OLD(destroy_srq);

/* ---- queue pairs ---- */

static void show_qp(struct old_qp *qp, struct old_pd *pd, const struct old_qp_init_attr *attr)
{
	qp->context = pd->context;
	qp->qp_context = attr->qp_context;
	qp->pd = pd;
	qp->send_cq = attr->send_cq;
	qp->recv_cq = attr->recv_cq;
	qp->srq = attr->srq;
	qp->qp_num = qp->real->qp_num;
	qp->state = qp->real->state;
	qp->qp_type = qp->real->qp_type;
}

VB_EXPORT struct old_qp *old_create_qp(struct old_pd *pd, struct old_qp_init_attr *attr);
VB_EXPORT struct old_qp *old_create_qp(struct old_pd *pd, struct old_qp_init_attr *attr)
{
	struct old_qp *qp = calloc(1, sizeof(*qp));
	if (!qp)
		return NULL;
	struct ibv_qp_init_attr real = {
		.qp_context = qp,
		.send_cq = attr->send_cq ? attr->send_cq->real : NULL,
		.recv_cq = attr->recv_cq ? attr->recv_cq->real : NULL,
		.srq = attr->srq ? attr->srq->real : NULL,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
	};
	qp->real = ibv_create_qp(pd->real, &real);
	FINISH(qp);
	attr->cap = real.cap;
	show_qp(qp, pd, attr);
	return qp;
}
OLD(create_qp);

VB_EXPORT int old_query_qp(struct old_qp *qp, struct ibv_qp_attr *attr, int mask,
			   struct old_qp_init_attr *init);
VB_EXPORT int old_query_qp(struct old_qp *qp, struct ibv_qp_attr *attr, int mask,
			   struct old_qp_init_attr *init)
{
	struct ibv_qp_init_attr real;
	int err = ibv_query_qp(qp->real, attr, mask, &real);
	if (err)
		return err;
	qp->state = qp->real->state;
	*init = (struct old_qp_init_attr){
		.qp_context = qp->qp_context,
		.send_cq = qp->send_cq,
		.recv_cq = qp->recv_cq,
		.srq = qp->srq,
		.cap = real.cap,
		.qp_type = real.qp_type,
		.sq_sig_all = real.sq_sig_all,
	};
	return 0;
}
OLD(query_qp);

VB_EXPORT int old_modify_qp(struct old_qp *qp, struct ibv_qp_attr *attr, int mask);
VB_EXPORT int old_modify_qp(struct old_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	int err = ibv_modify_qp(qp->real, attr, mask);
	qp->state = qp->real->state;
	return err;
}
OLD(modify_qp);

VB_EXPORT int old_destroy_qp(struct old_qp *qp);
VB_EXPORT int old_destroy_qp(struct old_qp *qp) { return destroyed(ibv_destroy_qp(qp->real), qp); }
OLD(destroy_qp);

VB_EXPORT int old_attach_mcast(struct old_qp *qp, union ibv_gid *gid, uint16_t lid);
VB_EXPORT int old_attach_mcast(struct old_qp *qp, union ibv_gid *gid, uint16_t lid)
{
	return ibv_attach_mcast(qp->real, gid, lid);
}
OLD(attach_mcast);

VB_EXPORT int old_detach_mcast(struct old_qp *qp, union ibv_gid *gid, uint16_t lid);
VB_EXPORT int old_detach_mcast(struct old_qp *qp, union ibv_gid *gid, uint16_t lid)
{
	return ibv_detach_mcast(qp->real, gid, lid);
}
OLD(detach_mcast);

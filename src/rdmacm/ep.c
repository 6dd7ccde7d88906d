/* SPDX-License-Identifier: BSD-2-Clause */
/* Endpoints: an id and its QP in one call, synchronous. */
#include <stdlib.h>
#include <string.h>

#include "rdmacm/calls.h"
#include "rdmacm/id/id.h"

enum { RESOLVE_TIMEOUT_MS = 2000 };

/* Attributes of the QPs that requests of this listener get. */
static int keep_qp_attr(struct vb_cma_id *id, const struct ibv_qp_init_attr *attr)
{
	if (!attr)
		return 0;
	id->child_qp_attr = malloc(sizeof(*attr));
	if (!id->child_qp_attr) {
		vb_explain("rdma_create_ep", "no memory for the QP's attributes");
		return ENOMEM;
	}
	*id->child_qp_attr = *attr;
	id->child_qp_attr->qp_type = id->pub.qp_type;
	return 0;
}

static int prepare_passive(struct vb_cma_id *id, const struct rdma_addrinfo *res, struct ibv_pd *pd,
			   const struct ibv_qp_init_attr *attr)
{
	if (rdma_bind_addr(&id->pub, res->ai_src_addr))
		return errno;
	if (pd)
		id->pub.pd = pd;
	return keep_qp_attr(id, attr);
}

static int keep_connect_data(struct vb_cma_id *id, const struct rdma_addrinfo *res)
{
	if (!res->ai_connect_len || !res->ai_connect)
		return 0;
	if (res->ai_connect_len > vb_cma_request_room(id)) {
		vb_explain("rdma_create_ep", "%zu bytes of connection data, %zu fit", res->ai_connect_len,
			   vb_cma_request_room(id));
		return EINVAL;
	}
	id->connect_data = malloc(res->ai_connect_len);
	if (!id->connect_data) {
		vb_explain("rdma_create_ep", "no memory for the connection data");
		return ENOMEM;
	}
	memcpy(id->connect_data, res->ai_connect, res->ai_connect_len);
	id->connect_data_len = (uint8_t)res->ai_connect_len;
	return 0;
}

static int resolve_route(struct vb_cma_id *id, const struct rdma_addrinfo *res)
{
	if (!res->ai_route_len || !res->ai_route)
		return rdma_resolve_route(&id->pub, RESOLVE_TIMEOUT_MS);
	if (rdma_set_option(&id->pub, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, res->ai_route, res->ai_route_len))
		return -1;
	return vb_cma_complete(id, "rdma_create_ep");
}

static int prepare_active(struct vb_cma_id *id, const struct rdma_addrinfo *res, struct ibv_pd *pd,
			  struct ibv_qp_init_attr *attr)
{
	if (rdma_resolve_addr(&id->pub, res->ai_src_addr, res->ai_dst_addr, RESOLVE_TIMEOUT_MS) ||
	    resolve_route(id, res))
		return errno;
	if (attr)
		attr->qp_type = id->pub.qp_type;
	if (attr && rdma_create_qp(&id->pub, pd, attr))
		return errno;
	int err = keep_connect_data(id, res);
	if (err)
		rdma_destroy_qp(&id->pub);
	return err;
}

VB_EXPORT int rdma_create_ep(struct rdma_cm_id **out, struct rdma_addrinfo *res, struct ibv_pd *pd,
			     struct ibv_qp_init_attr *attr)
{
	struct vb_cma_id *id;

	if (vb_cma_is_faulty(__func__))
		return -1;
	if (!out || !res)
		return vb_cma_fail(EINVAL, "the address information, or the place for the id, is NULL");
	int err = vb_cma_create(__func__, NULL, NULL, (enum rdma_port_space)res->ai_port_space,
				(enum ibv_qp_type)res->ai_qp_type, &id);
	if (err)
		return vb_cma_result(err);
	err = res->ai_flags & RAI_PASSIVE ? prepare_passive(id, res, pd, attr) :
					    prepare_active(id, res, pd, attr);
	if (err) { /* explained by the call that failed */
		vb_cma_destroy(id);
		errno = err;
		return -1;
	}
	*out = &id->pub;
	return 0;
}

VB_EXPORT void rdma_destroy_ep(struct rdma_cm_id *id)
{
	if (!id)
		return;
	rdma_destroy_qp(id);
	rdma_destroy_srq(id);
	vb_cma_destroy(vb_cma_id_of(id));
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The tables that inline verbs call through. An operation that does not exist is a null pointer, which
 * callers check for.
 */
#include "verbs/verbs.h"

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	return vb_qp_post_send(vb_qp_of(qp), wr, bad);
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return vb_qp_post_recv(vb_qp_of(qp), wr, bad);
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return vb_srq_post_recv(vb_srq_of(srq), wr, bad);
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	return -vb_cq_arm(vb_cq_of(cq), solicited_only);
}

void vb_ops_fill(struct verbs_context *ext)
{
	ext->context.ops = (struct ibv_context_ops){
		.alloc_mw = vb_alloc_mw,
		.bind_mw = vb_bind_mw,
		.dealloc_mw = vb_dealloc_mw,
		.poll_cq = vb_poll_cq,
		.req_notify_cq = req_notify_cq,
		.post_srq_recv = post_srq_recv,
		.post_send = post_send,
		.post_recv = post_recv,
	};
	ext->free_buf = ibv_free_buf;
	ext->alloc_buf = ibv_alloc_buf;
	ext->dm_export_dmabuf_fd = ibv_dm_export_dmabuf_fd;
	ext->reg_mr_ex = ibv_reg_mr_ex;
	ext->dealloc_dmah = ibv_dealloc_dmah;
	ext->alloc_dmah = ibv_alloc_dmah;
	ext->query_port = vb_query_port;
	ext->query_rt_values = vb_query_rt_values;
	ext->create_cq_ex = vb_create_cq_ex;
	ext->query_device_ex = vb_query_device_ex;
	ext->create_qp_ex = vb_create_qp_ex;
	ext->create_srq_ex = vb_create_srq_ex;
	ext->ibv_create_flow = vb_create_flow;
	ext->ibv_destroy_flow = vb_destroy_flow;
	ext->create_counters = vb_create_counters;
	ext->destroy_counters = vb_destroy_counters;
	ext->attach_counters_point_flow = vb_attach_counters_point_flow;
	ext->read_counters = vb_read_counters;
	ext->create_wq = vb_create_wq;
	ext->modify_wq = vb_modify_wq;
	ext->destroy_wq = vb_destroy_wq;
	ext->create_rwq_ind_table = vb_create_rwq_ind_table;
	ext->destroy_rwq_ind_table = vb_destroy_rwq_ind_table;
	ext->modify_qp_rate_limit = vb_modify_qp_rate_limit;
	ext->modify_cq = vb_modify_cq;
	ext->open_xrcd = vb_open_xrcd;
	ext->close_xrcd = vb_close_xrcd;
	ext->get_srq_num = vb_get_srq_num;
	ext->post_srq_ops = vb_post_srq_ops;
	ext->open_qp = vb_open_qp;
	ext->advise_mr = vb_advise_mr;
	ext->alloc_null_mr = vb_alloc_null_mr;
	ext->alloc_dm = vb_alloc_dm;
	ext->free_dm = vb_free_dm;
	ext->reg_dm_mr = vb_reg_dm_mr;
	ext->alloc_td = vb_alloc_td;
	ext->dealloc_td = vb_dealloc_td;
	ext->alloc_parent_domain = vb_alloc_parent_domain;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Converts attributes from and to the layout of the kernel's interface, which programs that talk to the
 * kernel's ucm get.
 */
#include <infiniband/sa.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>
#include <string.h>

#include "verbs/verbs.h"

/* <infiniband/marshall.h> declared these; it is not among the headers that rdma-core 44 installs. */
VB_EXPORT void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *dst, struct ib_uverbs_ah_attr *src);
VB_EXPORT void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *dst, struct ib_uverbs_qp_attr *src);
VB_EXPORT void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *dst, struct ib_user_path_rec *src);
VB_EXPORT void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *dst, struct ibv_sa_path_rec *src);

/* Members of the same name. */
#define COPY(member) dst->member = src->member;

VB_EXPORT void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *dst, struct ib_uverbs_ah_attr *src)
{
	memcpy(dst->grh.dgid.raw, src->grh.dgid, sizeof(dst->grh.dgid.raw));
	COPY(grh.flow_label) COPY(grh.sgid_index) COPY(grh.hop_limit) COPY(grh.traffic_class)
	COPY(dlid) COPY(sl) COPY(src_path_bits) COPY(static_rate) COPY(is_global) COPY(port_num)
}

VB_EXPORT void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *dst, struct ib_uverbs_qp_attr *src)
{
	COPY(qp_state)
	COPY(cur_qp_state) COPY(path_mtu) COPY(path_mig_state) COPY(qkey) COPY(rq_psn) COPY(sq_psn)
		COPY(dest_qp_num) COPY(qp_access_flags)
			dst->cap = (struct ibv_qp_cap){ src->max_send_wr, src->max_recv_wr, src->max_send_sge,
							src->max_recv_sge, src->max_inline_data };
	ibv_copy_ah_attr_from_kern(&dst->ah_attr, &src->ah_attr);
	ibv_copy_ah_attr_from_kern(&dst->alt_ah_attr, &src->alt_ah_attr);
	COPY(pkey_index)
	COPY(alt_pkey_index) COPY(en_sqd_async_notify) COPY(sq_draining) COPY(max_rd_atomic)
		COPY(max_dest_rd_atomic) COPY(min_rnr_timer) COPY(port_num) COPY(timeout) COPY(retry_cnt)
			COPY(rnr_retry) COPY(alt_port_num) COPY(alt_timeout)
}

#define PATH_MEMBERS                                                                                   \
	COPY(dlid) COPY(slid) COPY(raw_traffic) COPY(flow_label) COPY(reversible) COPY(mtu) COPY(pkey) COPY(hop_limit) \
	COPY(traffic_class) COPY(numb_path) COPY(sl) COPY(mtu_selector) COPY(rate_selector) COPY(rate) \
	COPY(packet_life_time_selector) COPY(packet_life_time) COPY(preference)

VB_EXPORT void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *dst, struct ib_user_path_rec *src)
{
	memcpy(dst->dgid.raw, src->dgid, sizeof(dst->dgid.raw));
	memcpy(dst->sgid.raw, src->sgid, sizeof(dst->sgid.raw));
	PATH_MEMBERS
}

VB_EXPORT void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *dst, struct ibv_sa_path_rec *src)
{
	memcpy(dst->dgid, src->dgid.raw, sizeof(dst->dgid));
	memcpy(dst->sgid, src->sgid.raw, sizeof(dst->sgid));
	PATH_MEMBERS
}

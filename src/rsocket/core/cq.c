/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion queues with channels that never block. */
#include "rsocket/core/rs.h"

int vb_rs_cq_create(struct rdma_cm_id *id, unsigned cqes, struct ibv_comp_channel **channel,
		    struct ibv_cq **cq)
{
	*channel = ibv_create_comp_channel(id->verbs);
	if (!*channel)
		return -errno;
	fcntl((*channel)->fd, F_SETFL, O_NONBLOCK);
	*cq = ibv_create_cq(id->verbs, (int)cqes, NULL, *channel, 0);
	return *cq ? 0 : -errno;
}

bool vb_rs_cq_take_event(struct ibv_comp_channel *channel)
{
	struct ibv_cq *cq;
	void *context;

	return !ibv_get_cq_event(channel, &cq, &context);
}

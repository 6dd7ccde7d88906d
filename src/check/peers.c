/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two connected queue pairs of one host: the attributes of one side must fit the other's. Each side reads
 * the other's in shared memory (local/shared.h).
 */
#include <string.h>

#include "adapter/device/device.h"
#include "adapter/progress/path.h"
#include "check/check.h"
#include "local/qp.h"

static bool is_connected_to_us(const struct vb_local_qp *l)
{
	const struct vb_shm_qp *t = atomic_load(&l->theirs);
	return (atomic_load(&t->mode) & VB_SHM_RESPONDS) && atomic_load(&t->dest_qpn) == l->qp->qpn;
}

#define report(l, ...) vb_check_report(VB_CHECK_PEER, NULL, NULL, l, __VA_ARGS__)

static void compare(const struct vb_local_qp *l)
{
	const struct vb_shm_qp *t = atomic_load(&l->theirs);
	const struct ibv_qp_attr *a = &l->qp->attr;
	uint32_t psn = atomic_load(&t->psns[1]);
	unsigned mtu = atomic_load(&t->path_mtu), depth = atomic_load(&t->rd_atomic);
	struct ibv_port_attr port;
	vb_port_attr(l->qp->ctx->device, &port);
	if (psn != a->sq_psn)
		report(l,
		     "QP 0x%06x and QP 0x%06x: the one's sq_psn is 0x%06x, the other's rq_psn 0x%06x: nothing "
		     "arrives",
		     l->qp->qpn, a->dest_qp_num, a->sq_psn, psn);
	else if (mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 && a->path_mtu > mtu)
		report(l,
		     "QP 0x%06x and QP 0x%06x: the one's path_mtu is %u bytes, the other's %u: over a wire the "
		     "longer packets are refused",
		     l->qp->qpn, a->dest_qp_num, vb_mtu_bytes(a->path_mtu), vb_mtu_bytes(mtu));
	else if (a->path_mtu > port.active_mtu)
		report(l,
		     "QP 0x%06x and QP 0x%06x: path_mtu is %u bytes, and the port's active_mtu %u: over a wire "
		     "ibv_modify_qp refuses it",
		     l->qp->qpn, a->dest_qp_num, vb_mtu_bytes(a->path_mtu), vb_mtu_bytes(port.active_mtu));
	else if (l->qp->type == IBV_QPT_RC && a->max_rd_atomic > depth)
		report(l,
		     "QP 0x%06x and QP 0x%06x: the one's max_rd_atomic is %u, the other's max_dest_rd_atomic %u: "
		     "READs and atomics beyond that are refused",
		     l->qp->qpn, a->dest_qp_num, a->max_rd_atomic, depth);
}

/* NULL: it cannot be seen, or is not there. A reference is held. */
static struct vb_local_qp *find_peer(struct vb_qp *qp)
{
	const struct vb_path_ops *path = atomic_load(&qp->path);
	if (!path || strcmp(path->name, "local") || atomic_load(&qp->state) != IBV_QPS_RTS)
		return NULL;
	struct vb_local_qp *l = vb_local_of(qp);
	return vb_local_find_theirs(l) && is_connected_to_us(l) ? l : NULL;
}

bool vb_check_peer_responds(struct vb_qp *qp)
{
	struct vb_local_qp *l = find_peer(qp);
	return l && atomic_load(&l->peer->state) == VB_PEER_UP;
}

void vb_check_compare_to_peer(struct vb_qp *qp)
{
	struct vb_local_qp *l = qp->checked && !qp->checked->is_compared_to_peer ? find_peer(qp) : NULL;
	if (!l)
		return;
	qp->checked->is_compared_to_peer = true;
	compare(l);
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include "roce/deliver.h"

#include "adapter/inspection/counts.h"
#include "adapter/progress/path.h"
#include "adapter/progress/qpn.h"
#include "roce/mcast.h"
#include "roce/packet_faults.h"

/* The batch has a reference to it. */
static struct vb_qp *find_in_batch(const struct vb_roce_batch *batch, uint32_t qpn)
{
	for (unsigned i = 0; i < batch->count; i++)
		if (batch->qps[i]->qpn == qpn)
			return batch->qps[i];
	return NULL;
}

/* Takes over the reference. */
static void answer_later(struct vb_qp *qp, struct vb_roce_batch *batch)
{
	if (batch->count == VB_ROCE_BATCH_QPS)
		vb_roce_batch_end(batch);
	batch->qps[batch->count++] = qp;
}

/* Past all faults. */
static void deliver_now(const struct vb_inbox_msg *msg, unsigned ifindex, struct vb_roce_batch *batch)
{
	struct vb_packet packet;
	if (vb_packet_parse(msg->payload, msg->payload_bytes, &packet) ||
	    !vb_pkey_matches(packet.pkey, VB_PKEY_DEFAULT)) {
		vb_drop(VB_DROP_MALFORMED);
		return;
	}
	if (packet.destination_qpn == VB_MULTICAST_QPN) {
		vb_mcast_deliver(msg, ifindex, &packet);
		return;
	}
	struct vb_qp *known = find_in_batch(batch, packet.destination_qpn);
	struct vb_qp *qp = known ? known : vb_qpn_get(packet.destination_qpn);
	if (!qp) {
		vb_drop(VB_DROP_NO_QP);
		return;
	}
	const struct vb_path_ops *path = atomic_load(&qp->path);
	if (!path || !path->arrived)
		vb_drop(VB_DROP_NOT_READY);
	bool answers = path && path->arrived && path->arrived(qp, msg, &packet);
	if (known)
		return;
	if (answers)
		answer_later(qp, batch);
	else
		vb_qp_unref(qp);
}

void vb_roce_batch_end(struct vb_roce_batch *batch)
{
	for (unsigned i = 0; i < batch->count; i++) {
		const struct vb_path_ops *path = atomic_load(&batch->qps[i]->path);
		if (path)
			path->run(batch->qps[i]);
		vb_qp_unref(batch->qps[i]);
	}
	batch->count = 0;
}

void vb_roce_deliver(const struct vb_inbox_msg *msg, unsigned ifindex, struct vb_roce_batch *batch)
{
	unsigned times = vb_unlikely(vb_faults_on_wire) ? vb_roce_fault_arrives(msg) : 1;
	for (; times; times--)
		deliver_now(msg, ifindex, batch);
}

/* Is it a datagram of the sender's own queue pairs? Nothing else is taken from another user's process. */
static bool is_senders_own(const struct vb_inbox_msg *msg)
{
	struct vb_packet packet;
	return !vb_packet_parse(msg->payload, msg->payload_bytes, &packet) &&
	       vb_opcode_has(packet.row, VB_EXT_DETH) &&
	       vb_deth_source_qpn((const struct vb_deth *)vb_packet_extension(&packet, VB_EXT_DETH)) >>
			       VB_SLOT_SHIFT ==
		       msg->sender_slot;
}

/* From this process's own inbox comes what a fault held back, which it does not meet again. */
static void inbox_arrived(void *arg, const struct vb_inbox_msg *msg)
{
	struct vb_roce_batch batch = { .count = 0 };
	if (vb_unlikely(!msg->is_trusted) && !is_senders_own(msg)) {
		vb_drop(VB_DROP_FORGED);
		return;
	}
	if (vb_likely(!vb_faults_on_wire) || vb_slot_is_mine(msg->sender_slot))
		deliver_now(msg, 0, &batch);
	else
		vb_roce_deliver(msg, 0, &batch);
	vb_roce_batch_end(&batch);
}

__attribute__((constructor)) static void listen_to_inbox(void)
{
	vb_inbox_set_handler(0, inbox_arrived, NULL);
}

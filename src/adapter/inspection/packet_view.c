/* SPDX-License-Identifier: BSD-2-Clause */
#include "adapter/inspection/packet_view.h"

#include <string.h>

#include "adapter/device/device.h"
#include "adapter/queues/request.h"
#include "base/inet.h"
#include "host/udp/udp.h"
#include "wire/packet.h"
#include "wire/syndrome.h"

enum { MAX_MTU = 4096, PORT_MASK = 0x3fff };

static uint32_t mtu_of(const struct vb_qp *qp)
{
	uint32_t mtu = vb_mtu_bytes(qp->attr.path_mtu);
	return mtu >= 256 && mtu <= MAX_MTU ? mtu : MAX_MTU;
}

/* An atomic takes one PSN, whatever its entry says of its length. */
static struct vb_request request_of(const struct vb_sqe *what, uint32_t srqn)
{
	struct vb_request r;
	vb_request_of_sqe(what, srqn, &r);
	if (r.kind > VB_REQ_READ && r.kind != VB_REQ_FLUSH)
		r.length = 8;
	return r;
}

uint32_t vb_captured_packets(const struct vb_qp *qp, const struct vb_sqe *what)
{
	struct vb_request r = request_of(what, 0);
	return vb_request_packets(&r, mtu_of(qp));
}

/* ---- one packet ---- */

/* As the connection has them; a packet that comes in has them the other way round. */
static void address(const struct vb_qp *qp, bool goes_out, struct vb_inbox_addr *addr)
{
	const struct ibv_global_route *grh = &qp->attr.ah_attr.grh;
	struct in6_addr here = qp->sgid, there;
	memcpy(&there, &grh->dgid, sizeof(there));
	*addr = (struct vb_inbox_addr){
		.src = goes_out ? here : there,
		.dst = goes_out ? there : here,
		.flow_label = grh->flow_label,
		.traffic_class = grh->traffic_class,
		.hop_limit = grh->hop_limit ? grh->hop_limit : VB_HOP_LIMIT,
		.udp_sport = VB_ROCE_FIRST_SOURCE_PORT |
			     ((qp->qpn ^ qp->attr.dest_qp_num ^ qp->qpn >> 10) & PORT_MASK),
	};
}

static void note(const struct vb_captured *m, bool goes_out, const struct vb_packet_out *out,
		 const uint8_t *payload)
{
	static const uint8_t zeros[4];
	struct vb_inbox_addr addr;
	struct vb_capture_note n = { .addr = &addr,
				     .flags = VB_CAPTURE_LOCAL | (goes_out ? VB_CAPTURE_OUT : 0),
				     .qpn = m->qp->qpn,
				     .peer_pid = m->peer_pid };
	struct iovec pieces[] = {
		{ (void *)(uintptr_t)out->header, out->header_bytes },
		{ (void *)(uintptr_t)payload, out->payload_bytes },
		{ (void *)(uintptr_t)zeros, out->pad_bytes },
	};
	address(m->qp, goes_out, &addr);
	vb_capture_packet(&n, pieces, 3);
}

static struct vb_packet_to to(const struct vb_captured *m, bool goes_out)
{
	bool xrc = m->qp->type == IBV_QPT_XRC_SEND || m->qp->type == IBV_QPT_XRC_RECV;
	return (struct vb_packet_to){ .qpn = goes_out ? m->qp->attr.dest_qp_num : m->qp->qpn,
				      .pkey = VB_PKEY_DEFAULT,
				      .service = xrc ? VB_SERVICE_XRC : VB_SERVICE_RC };
}

/* ---- messages ---- */

void vb_capture_request(const struct vb_captured *m)
{
	struct vb_request r = request_of(m->what, m->srqn);
	struct vb_packet_to where = to(m, m->by_requester);
	uint32_t mtu = mtu_of(m->qp), count = vb_request_packets(&r, mtu),
		 sent = r.kind == VB_REQ_READ ? 1 : count;
	uint8_t payload[MAX_MTU];
	struct vb_packet_out out;
	for (uint32_t i = 0; i < sent; i++) {
		vb_request_packet(&r, &where, mtu, m->psn + i, i, count, &out);
		if (out.payload_bytes && !m->fetch(m->ctx, out.payload_at, out.payload_bytes, payload))
			return;
		if (i == sent - 1)
			vb_packet_out_ask(&out);
		note(m, m->by_requester, &out, payload);
	}
}

/* Begins an answer, with its AETH if the opcode has one. */
static const struct vb_opcode_row *begin_answer(const struct vb_captured *m, unsigned bits, uint32_t psn,
						uint32_t payload, uint8_t syndrome, struct vb_packet_out *out)
{
	struct vb_packet_to where = to(m, !m->by_requester);
	const struct vb_opcode_row *row = vb_packet_out_begin(out, &where, bits, psn, payload);
	if (vb_opcode_has(row, VB_EXT_AETH)) {
		struct vb_aeth *aeth = vb_packet_out_extension(out, row, VB_EXT_AETH);
		vb_aeth_set_syndrome(aeth, syndrome);
		vb_aeth_set_msn(aeth, m->msn);
	}
	return row;
}

static unsigned response_bits(uint32_t i, uint32_t count)
{
	if (i == count - 1)
		return i ? VB_OPB_READ_RESPONSE_LAST : VB_OPB_READ_RESPONSE_ONLY;
	return i ? VB_OPB_READ_RESPONSE_MIDDLE : VB_OPB_READ_RESPONSE_FIRST;
}

static void show_responses(const struct vb_captured *m, uint32_t length, uint8_t syndrome)
{
	uint32_t mtu = mtu_of(m->qp), count = length ? (length - 1) / mtu + 1 : 1;
	uint8_t payload[MAX_MTU];
	struct vb_packet_out out;
	for (uint32_t i = 0; i < count; i++) {
		uint64_t offset = (uint64_t)i * mtu;
		begin_answer(m, response_bits(i, count), m->psn + i,
			     vb_min_u32(mtu, (uint32_t)(length - offset)), syndrome, &out);
		if (out.payload_bytes && !m->fetch(m->ctx, offset, out.payload_bytes, payload))
			return;
		note(m, !m->by_requester, &out, payload);
	}
}

void vb_capture_answer(const struct vb_captured *m)
{
	uint8_t syndrome = vb_syndrome(VB_AETH_ACK, VB_AETH_NO_CREDITS);
	struct vb_request r = request_of(m->what, m->srqn);
	const struct vb_opcode_row *row;
	struct vb_packet_out out;
	switch ((enum vb_request_kind)r.kind) {
	case VB_REQ_SEND:
	case VB_REQ_WRITE:
		begin_answer(m, VB_OPB_ACKNOWLEDGE, m->psn + vb_request_packets(&r, mtu_of(m->qp)) - 1, 0,
			     syndrome, &out);
		note(m, !m->by_requester, &out, NULL);
		break;
	case VB_REQ_READ:
	case VB_REQ_ATOMIC_WRITE:
	case VB_REQ_FLUSH:
		show_responses(m, vb_request_answer_bytes(&r), syndrome);
		break;
	case VB_REQ_COMPARE_SWAP:
	case VB_REQ_FETCH_ADD:
		row = begin_answer(m, VB_OPB_ATOMIC_ACKNOWLEDGE, m->psn, 0, syndrome, &out);
		vb_atomicacketh_set_original(vb_packet_out_extension(&out, row, VB_EXT_ATOMICACKETH),
					     m->original);
		note(m, !m->by_requester, &out, NULL);
		break;
	}
}

static uint8_t syndrome_of(const struct vb_qp *qp, enum ibv_wc_status status)
{
	switch ((int)status) {
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return vb_syndrome(VB_AETH_RNR, vb_qp_attr(qp, min_rnr_timer));
	case IBV_WC_REM_ACCESS_ERR:
		return vb_syndrome(VB_AETH_NAK, VB_NAK_REMOTE_ACCESS);
	case IBV_WC_REM_INV_REQ_ERR:
		return vb_syndrome(VB_AETH_NAK, VB_NAK_INVALID_REQUEST);
	}
	return vb_syndrome(VB_AETH_NAK, VB_NAK_REMOTE_OPERATIONAL);
}

void vb_capture_nak(const struct vb_captured *m, enum ibv_wc_status status)
{
	struct vb_packet_out out;
	if (status == IBV_WC_LOC_PROT_ERR)
		return;
	begin_answer(m, VB_OPB_ACKNOWLEDGE, m->psn, 0, syndrome_of(m->qp, status), &out);
	note(m, !m->by_requester, &out, NULL);
}

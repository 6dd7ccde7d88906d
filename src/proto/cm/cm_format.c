/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages from and to the structs of cm.h, and the answers that need no connection. */
#include "proto/cm/cm_internal.h"

#define LID_PERMISSIVE 0xffff		/* RoCE has no LIDs */
#define TRANSPORT_EXTENDED 3
#define EXTENDED_TRANSPORT_XRC 1

void vb_cm_out_reset(struct vb_cm_out *out)
{
	out->num_sends = out->num_events = 0;
}

struct vb_mad *vb_cm_out_send(struct vb_cm_out *out, const struct vb_cm_route *to,
			      enum vb_cm_attribute attribute, uint64_t tid)
{
	struct vb_cm_send *send = &out->sends[out->num_sends++];

	send->to = *to;
	send->repeats = 0;
	vb_cm_msg_init(&send->mad, attribute, tid);
	return &send->mad;
}

struct vb_cm_event *vb_cm_out_event(struct vb_cm_out *out, struct vb_cm_conn *c, enum vb_cm_event_type type,
				    int status)
{
	struct vb_cm_event *ev;

	if (c->destroyed)
		return NULL;
	ev = &out->events[out->num_events++];
	memset(ev, 0, sizeof(*ev));
	ev->type = type;
	ev->status = status;
	ev->conn = c;
	return ev;
}

void vb_cm_blob_set(struct vb_cm_blob *blob, const uint8_t *bytes, size_t len)
{
	blob->len = (uint8_t)len;
	memcpy(blob->bytes, bytes, len);
}

const uint8_t *vb_cm_msg_private_data(const struct vb_cm_msg *msg, size_t *len)
{
	switch (msg->attribute) {
#define X(name, prefix, rows, id)                       \
	case VB_CM_ATTR_##name:                         \
		*len = prefix##_msg_private_data_bytes; \
		return prefix##_msg_private_data(prefix##_of(&msg->mad));
	VB_CM_MESSAGES(X)
#undef X
	}
	*len = 0;
	return msg->mad.b;
}

void vb_cm_put_req(struct vb_mad *mad, const struct vb_cm_conn *c, const struct vb_cm_req_info *info)
{
	struct vb_cm_req_msg *m = vb_cm_req_in(mad);
	const struct vb_cm_path *path = &info->path;

	vb_mad_set_attribute_modifier(mad, info->ece.attr_mod);
	vb_cm_req_msg_set_vendor_id(m, info->ece.vendor_id);
	vb_cm_req_msg_set_local_comm_id(m, c->local_comm_id);
	vb_cm_req_msg_set_service_id(m, info->service_id);
	vb_cm_req_msg_set_local_ca_guid(m, info->ca_guid);
	vb_cm_req_msg_set_local_qkey(m, info->qkey);
	vb_cm_req_msg_set_local_qpn(m, info->qpn);
	vb_cm_req_msg_set_responder_resources(m, info->responder_resources);
	vb_cm_req_msg_set_initiator_depth(m, info->initiator_depth);
	vb_cm_req_msg_set_remote_cm_response_timeout(m, info->remote_cm_response_timeout);
	vb_cm_req_msg_set_transport_service_type(m, info->transport);
	vb_cm_req_msg_set_extended_transport_type(m,
						  info->transport == VB_CM_XRC ? EXTENDED_TRANSPORT_XRC : 0);
	vb_cm_req_msg_set_flow_control(m, info->flow_control);
	vb_cm_req_msg_set_starting_psn(m, info->starting_psn);
	vb_cm_req_msg_set_local_cm_response_timeout(m, info->local_cm_response_timeout);
	vb_cm_req_msg_set_retry_count(m, info->retry_count);
	vb_cm_req_msg_set_rnr_retry_count(m, info->rnr_retry_count);
	vb_cm_req_msg_set_max_cm_retries(m, info->max_cm_retries);
	vb_cm_req_msg_set_srq(m, info->srq);
	vb_cm_req_msg_set_pkey(m, path->pkey);
	vb_cm_req_msg_set_path_mtu(m, path->mtu);
	vb_cm_req_msg_set_primary_local_lid(m, LID_PERMISSIVE);
	vb_cm_req_msg_set_primary_remote_lid(m, LID_PERMISSIVE);
	vb_cm_req_msg_set_primary_local_gid(m, path->local_gid, 16);
	vb_cm_req_msg_set_primary_remote_gid(m, path->remote_gid, 16);
	vb_cm_req_msg_set_primary_flow_label(m, path->flow_label);
	vb_cm_req_msg_set_primary_packet_rate(m, path->rate);
	vb_cm_req_msg_set_primary_traffic_class(m, path->traffic_class);
	vb_cm_req_msg_set_primary_hop_limit(m, path->hop_limit);
	vb_cm_req_msg_set_primary_sl(m, path->sl);
	vb_cm_req_msg_set_primary_subnet_local(m, path->hop_limit <= 1);
	vb_cm_req_msg_set_primary_local_ack_timeout(m, path->local_ack_timeout);
}

/* The receiver's view of the path: local and remote are exchanged. */
static void get_path(const struct vb_cm_req_msg *m, struct vb_cm_path *path)
{
	memcpy(path->local_gid, vb_cm_req_msg_primary_remote_gid(m), 16);
	memcpy(path->remote_gid, vb_cm_req_msg_primary_local_gid(m), 16);
	path->flow_label = vb_cm_req_msg_primary_flow_label(m);
	path->pkey = (uint16_t)vb_cm_req_msg_pkey(m);
	path->mtu = (uint8_t)vb_cm_req_msg_path_mtu(m);
	path->rate = (uint8_t)vb_cm_req_msg_primary_packet_rate(m);
	path->sl = (uint8_t)vb_cm_req_msg_primary_sl(m);
	path->traffic_class = (uint8_t)vb_cm_req_msg_primary_traffic_class(m);
	path->hop_limit = (uint8_t)vb_cm_req_msg_primary_hop_limit(m);
	path->packet_lifetime = 0;
	path->local_ack_timeout = (uint8_t)vb_cm_req_msg_primary_local_ack_timeout(m);
}

void vb_cm_get_req(const struct vb_mad *mad, struct vb_cm_req_info *info)
{
	const struct vb_cm_req_msg *m = vb_cm_req_of(mad);

	info->service_id = vb_cm_req_msg_service_id(m);
	info->ca_guid = vb_cm_req_msg_local_ca_guid(m);
	info->qpn = vb_cm_req_msg_local_qpn(m);
	info->starting_psn = vb_cm_req_msg_starting_psn(m);
	info->qkey = vb_cm_req_msg_local_qkey(m);
	info->transport = (enum vb_cm_transport)vb_cm_req_msg_transport_service_type(m);
	info->responder_resources = (uint8_t)vb_cm_req_msg_responder_resources(m);
	info->initiator_depth = (uint8_t)vb_cm_req_msg_initiator_depth(m);
	info->retry_count = (uint8_t)vb_cm_req_msg_retry_count(m);
	info->rnr_retry_count = (uint8_t)vb_cm_req_msg_rnr_retry_count(m);
	info->flow_control = vb_cm_req_msg_flow_control(m);
	info->srq = vb_cm_req_msg_srq(m);
	info->local_cm_response_timeout = (uint8_t)vb_cm_req_msg_local_cm_response_timeout(m);
	info->remote_cm_response_timeout = (uint8_t)vb_cm_req_msg_remote_cm_response_timeout(m);
	info->max_cm_retries = (uint8_t)vb_cm_req_msg_max_cm_retries(m);
	get_path(m, &info->path);
	info->ece.vendor_id = vb_cm_req_msg_vendor_id(m);
	info->ece.attr_mod = vb_mad_attribute_modifier(mad);
}

enum vb_cm_rej_reason vb_cm_req_fault(const struct vb_mad *mad)
{
	const struct vb_cm_req_msg *m = vb_cm_req_of(mad);
	uint32_t type = vb_cm_req_msg_transport_service_type(m), mtu = vb_cm_req_msg_path_mtu(m);

	if (type == VB_CM_RD || (type == TRANSPORT_EXTENDED &&
				 vb_cm_req_msg_extended_transport_type(m) != EXTENDED_TRANSPORT_XRC))
		return VB_CM_REJ_INVALID_TRANSPORT_TYPE;
	if (mtu < 1 || mtu > 5)
		return VB_CM_REJ_INVALID_MTU;
	return 0;
}

/* An XRC target names its QP in the field of the EE context and says "SRQ" (annex A14). */
void vb_cm_put_rep(struct vb_mad *mad, const struct vb_cm_conn *c, const struct vb_cm_rep_info *info)
{
	struct vb_cm_rep_msg *m = vb_cm_rep_in(mad);

	vb_mad_set_attribute_modifier(mad, info->ece.attr_mod);
	vb_cm_rep_msg_set_vendor_id_high(m, info->ece.vendor_id >> 16);
	vb_cm_rep_msg_set_vendor_id_middle(m, info->ece.vendor_id >> 8);
	vb_cm_rep_msg_set_vendor_id_low(m, info->ece.vendor_id);
	vb_cm_rep_msg_set_local_comm_id(m, c->local_comm_id);
	vb_cm_rep_msg_set_remote_comm_id(m, c->remote_comm_id);
	vb_cm_rep_msg_set_local_qkey(m, info->qkey);
	if (c->xrc)
		vb_cm_rep_msg_set_local_eecn(m, info->qpn);
	else
		vb_cm_rep_msg_set_local_qpn(m, info->qpn);
	vb_cm_rep_msg_set_starting_psn(m, info->starting_psn);
	vb_cm_rep_msg_set_responder_resources(m, info->responder_resources);
	vb_cm_rep_msg_set_initiator_depth(m, info->initiator_depth);
	vb_cm_rep_msg_set_target_ack_delay(m, info->target_ack_delay);
	vb_cm_rep_msg_set_failover_accepted(m, info->failover);
	vb_cm_rep_msg_set_flow_control(m, info->flow_control);
	vb_cm_rep_msg_set_rnr_retry_count(m, info->rnr_retry_count);
	vb_cm_rep_msg_set_srq(m, info->srq || c->xrc);
	vb_cm_rep_msg_set_local_ca_guid(m, info->ca_guid);
}

void vb_cm_get_rep(const struct vb_mad *mad, bool xrc, struct vb_cm_rep_info *info)
{
	const struct vb_cm_rep_msg *m = vb_cm_rep_of(mad);

	info->ca_guid = vb_cm_rep_msg_local_ca_guid(m);
	info->qpn = xrc ? vb_cm_rep_msg_local_eecn(m) : vb_cm_rep_msg_local_qpn(m);
	info->starting_psn = vb_cm_rep_msg_starting_psn(m);
	info->qkey = vb_cm_rep_msg_local_qkey(m);
	info->responder_resources = (uint8_t)vb_cm_rep_msg_responder_resources(m);
	info->initiator_depth = (uint8_t)vb_cm_rep_msg_initiator_depth(m);
	info->target_ack_delay = (uint8_t)vb_cm_rep_msg_target_ack_delay(m);
	info->failover = (uint8_t)vb_cm_rep_msg_failover_accepted(m);
	info->rnr_retry_count = (uint8_t)vb_cm_rep_msg_rnr_retry_count(m);
	info->flow_control = vb_cm_rep_msg_flow_control(m);
	info->srq = vb_cm_rep_msg_srq(m);
	info->ece.vendor_id = vb_cm_rep_msg_vendor_id_high(m) << 16 | vb_cm_rep_msg_vendor_id_middle(m) << 8 |
			      vb_cm_rep_msg_vendor_id_low(m);
	info->ece.attr_mod = vb_mad_attribute_modifier(mad);
}

void vb_cm_get_sidr_rep(const struct vb_mad *mad, struct vb_cm_sidr_rep_info *info)
{
	const struct vb_cm_sidr_rep_msg *m = vb_cm_sidr_rep_of(mad);

	info->service_id = vb_cm_sidr_rep_msg_service_id(m);
	info->qpn = vb_cm_sidr_rep_msg_qpn(m);
	info->qkey = vb_cm_sidr_rep_msg_qkey(m);
	info->ece.vendor_id = vb_cm_sidr_rep_msg_vendor_id_high(m) << 8 | vb_cm_sidr_rep_msg_vendor_id_low(m);
	info->ece.attr_mod = vb_mad_attribute_modifier(mad);
}

void vb_cm_get_request(const struct vb_cm_msg *msg, struct vb_cm_event *event)
{
	const uint8_t *data;
	size_t len;

	if (msg->attribute == VB_CM_ATTR_REQ) {
		event->type = VB_CM_EV_REQUEST;
		vb_cm_get_req(&msg->mad, &event->info.req);
	} else {
		const struct vb_cm_sidr_req_msg *m = vb_cm_sidr_req_of(&msg->mad);

		event->type = VB_CM_EV_SIDR_REQUEST;
		event->info.sidr_req.service_id = vb_cm_sidr_req_msg_service_id(m);
		event->info.sidr_req.pkey = (uint16_t)vb_cm_sidr_req_msg_pkey(m);
	}
	data = vb_cm_msg_private_data(msg, &len);
	vb_cm_blob_set(&event->private_data, data, len);
}

uint32_t vb_cm_msg_destination_id(const struct vb_cm_msg *msg)
{
	const struct vb_mad *mad = &msg->mad;

	switch (msg->attribute) {
	case VB_CM_ATTR_MRA: return vb_cm_mra_msg_remote_comm_id(vb_cm_mra_of(mad));
	case VB_CM_ATTR_REJ: return vb_cm_rej_msg_remote_comm_id(vb_cm_rej_of(mad));
	case VB_CM_ATTR_REP: return vb_cm_rep_msg_remote_comm_id(vb_cm_rep_of(mad));
	case VB_CM_ATTR_RTU: return vb_cm_rtu_msg_remote_comm_id(vb_cm_rtu_of(mad));
	case VB_CM_ATTR_DREQ: return vb_cm_dreq_msg_remote_comm_id(vb_cm_dreq_of(mad));
	case VB_CM_ATTR_DREP: return vb_cm_drep_msg_remote_comm_id(vb_cm_drep_of(mad));
	case VB_CM_ATTR_SIDR_REP: return vb_cm_sidr_rep_msg_request_id(vb_cm_sidr_rep_of(mad));
	case VB_CM_ATTR_LAP: return vb_cm_lap_msg_remote_comm_id(vb_cm_lap_of(mad));
	case VB_CM_ATTR_APR: return vb_cm_apr_msg_remote_comm_id(vb_cm_apr_of(mad));
	case VB_CM_ATTR_REQ:
	case VB_CM_ATTR_SIDR_REQ:
		break;
	}
	return 0;
}

uint32_t vb_cm_msg_sender_id(const struct vb_cm_msg *msg)
{
	const struct vb_mad *mad = &msg->mad;

	switch (msg->attribute) {
	case VB_CM_ATTR_REQ: return vb_cm_req_msg_local_comm_id(vb_cm_req_of(mad));
	case VB_CM_ATTR_MRA: return vb_cm_mra_msg_local_comm_id(vb_cm_mra_of(mad));
	case VB_CM_ATTR_REJ: return vb_cm_rej_msg_local_comm_id(vb_cm_rej_of(mad));
	case VB_CM_ATTR_REP: return vb_cm_rep_msg_local_comm_id(vb_cm_rep_of(mad));
	case VB_CM_ATTR_RTU: return vb_cm_rtu_msg_local_comm_id(vb_cm_rtu_of(mad));
	case VB_CM_ATTR_DREQ: return vb_cm_dreq_msg_local_comm_id(vb_cm_dreq_of(mad));
	case VB_CM_ATTR_DREP: return vb_cm_drep_msg_local_comm_id(vb_cm_drep_of(mad));
	case VB_CM_ATTR_SIDR_REQ: return vb_cm_sidr_req_msg_request_id(vb_cm_sidr_req_of(mad));
	case VB_CM_ATTR_LAP: return vb_cm_lap_msg_local_comm_id(vb_cm_lap_of(mad));
	case VB_CM_ATTR_APR: return vb_cm_apr_msg_local_comm_id(vb_cm_apr_of(mad));
	case VB_CM_ATTR_SIDR_REP:
		break;
	}
	return 0;
}

struct vb_cm_offer vb_cm_msg_offer(const struct vb_cm_msg *msg)
{
	struct vb_cm_offer offer = { { 0 } };

	if (msg->attribute == VB_CM_ATTR_REQ)
		offer.qpn[0] = vb_cm_req_msg_local_qpn(vb_cm_req_of(&msg->mad));
	if (msg->attribute == VB_CM_ATTR_REP) {
		offer.qpn[0] = vb_cm_rep_msg_local_qpn(vb_cm_rep_of(&msg->mad));
		offer.qpn[1] = vb_cm_rep_msg_local_eecn(vb_cm_rep_of(&msg->mad));
	}
	if (msg->attribute == VB_CM_ATTR_SIDR_REP)
		offer.qpn[0] = vb_cm_sidr_rep_msg_qpn(vb_cm_sidr_rep_of(&msg->mad));
	return offer;
}

uint64_t vb_cm_msg_service_id(const struct vb_cm_msg *msg)
{
	if (msg->attribute == VB_CM_ATTR_REQ)
		return vb_cm_req_msg_service_id(vb_cm_req_of(&msg->mad));
	if (msg->attribute == VB_CM_ATTR_SIDR_REQ)
		return vb_cm_sidr_req_msg_service_id(vb_cm_sidr_req_of(&msg->mad));
	return 0;
}

static struct vb_mad *answer(struct vb_cm_out *out, const struct vb_cm_rx *rx, enum vb_cm_attribute attribute)
{
	return vb_cm_out_send(out, &rx->from, attribute, vb_mad_transaction_id(&rx->msg.mad));
}

void vb_cm_answer_rej(struct vb_cm_out *out, const struct vb_cm_rx *rx, enum vb_cm_rej_reason reason)
{
	struct vb_cm_rej_msg *m = vb_cm_rej_in(answer(out, rx, VB_CM_ATTR_REJ));
	enum vb_cm_rejected rejected = VB_CM_REJECTED_OTHER;

	if (rx->msg.attribute == VB_CM_ATTR_REQ)
		rejected = VB_CM_REJECTED_REQ;
	else if (rx->msg.attribute == VB_CM_ATTR_REP)
		rejected = VB_CM_REJECTED_REP;
	vb_cm_rej_msg_set_local_comm_id(m, vb_cm_msg_destination_id(&rx->msg));
	vb_cm_rej_msg_set_remote_comm_id(m, vb_cm_msg_sender_id(&rx->msg));
	vb_cm_rej_msg_set_message_rejected(m, rejected);
	vb_cm_rej_msg_set_reason(m, reason);
}

void vb_cm_answer_drep(struct vb_cm_out *out, const struct vb_cm_rx *rx)
{
	struct vb_cm_drep_msg *m = vb_cm_drep_in(answer(out, rx, VB_CM_ATTR_DREP));

	vb_cm_drep_msg_set_local_comm_id(m, vb_cm_msg_destination_id(&rx->msg));
	vb_cm_drep_msg_set_remote_comm_id(m, vb_cm_msg_sender_id(&rx->msg));
}

void vb_cm_answer_apr(struct vb_cm_out *out, const struct vb_cm_rx *rx, enum vb_cm_ap_status status)
{
	struct vb_cm_apr_msg *m = vb_cm_apr_in(answer(out, rx, VB_CM_ATTR_APR));

	vb_cm_apr_msg_set_local_comm_id(m, vb_cm_msg_destination_id(&rx->msg));
	vb_cm_apr_msg_set_remote_comm_id(m, vb_cm_msg_sender_id(&rx->msg));
	vb_cm_apr_msg_set_ap_status(m, status);
}

void vb_cm_answer_sidr(struct vb_cm_out *out, const struct vb_cm_rx *rx, enum vb_cm_sidr_status status)
{
	struct vb_cm_sidr_rep_msg *m = vb_cm_sidr_rep_in(answer(out, rx, VB_CM_ATTR_SIDR_REP));

	vb_cm_sidr_rep_msg_set_request_id(m, vb_cm_msg_sender_id(&rx->msg));
	vb_cm_sidr_rep_msg_set_status(m, status);
	vb_cm_sidr_rep_msg_set_service_id(m, vb_cm_msg_service_id(&rx->msg));
}

void vb_cm_answer_unknown(const struct vb_cm_rx *rx, struct vb_cm_out *out)
{
	vb_cm_out_reset(out);
	switch (rx->msg.attribute) {
	case VB_CM_ATTR_REP:
	case VB_CM_ATTR_RTU:
		vb_cm_answer_rej(out, rx, VB_CM_REJ_INVALID_COMM_ID);
		break;
	case VB_CM_ATTR_DREQ:
		vb_cm_answer_drep(out, rx);
		break;
	case VB_CM_ATTR_LAP:
		vb_cm_answer_apr(out, rx, VB_CM_AP_INVALID_COMM_ID);
		break;
	case VB_CM_ATTR_REQ:
	case VB_CM_ATTR_MRA:
	case VB_CM_ATTR_REJ:
	case VB_CM_ATTR_DREP:
	case VB_CM_ATTR_SIDR_REQ:
	case VB_CM_ATTR_SIDR_REP:
	case VB_CM_ATTR_APR:
		break;
	}
}

void vb_cm_refuse(struct vb_cm_table *t, const struct vb_cm_rx *rx, enum vb_cm_rej_reason reason,
		  struct vb_cm_out *out)
{
	(void)t;
	vb_cm_out_reset(out);
	if (rx->msg.attribute == VB_CM_ATTR_REQ)
		vb_cm_answer_rej(out, rx, reason);
	else if (rx->msg.attribute == VB_CM_ATTR_SIDR_REQ)
		vb_cm_answer_sidr(out, rx, reason == VB_CM_REJ_INVALID_SERVICE_ID ? VB_CM_SIDR_UNSUPPORTED
										     : VB_CM_SIDR_REJECT);
}

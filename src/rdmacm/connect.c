/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Both ends of a connection: connect, establish, accept, reject, notify, disconnect.
 *
 * Once a call has sent its message, another thread may get the peer's answer and destroy the id. So an
 * asynchronous call does not touch the id after that.
 */
#include <stdlib.h>
#include <string.h>

#include "rdmacm/agent/agent.h"
#include "rdmacm/agent/packet.h"
#include "rdmacm/calls.h"
#include "rdmacm/id/id.h"
#include "wire/ip_cm.h"

enum {
	MAX_RETRIES         = 7, /* three bits */
	ACK_TIMEOUT         = 17, /* 4.096 us * 2^17, about 0.5 s */
	SIDR_REQ_DATA_BYTES = vb_cm_sidr_req_msg_private_data_bytes,
	SIDR_REP_DATA_BYTES = vb_cm_sidr_rep_msg_private_data_bytes,
	PSN_MASK            = 0xffffff,
};

/* ---- what the program asks for, completed ---- */

/* struct rdma_conn_param with its special values replaced. */
struct wanted {
	uint32_t qp_num;
	bool srq, flow_control;
	uint8_t responder_resources, initiator_depth, retry_count, rnr_retry_count;
	uint8_t data_len;
	uint8_t data[256];
};

static uint8_t at_most(uint8_t v, uint8_t max) { return v < max ? v : max; }

/* 255 asks for the most that there is, which is in *depth. */
static int settle_depth(const char *call, const char *name, uint8_t asked, uint8_t max, uint8_t *depth)
{
	if (asked == RDMA_MAX_RESP_RES)
		return 0;
	if (asked > max) {
		vb_explain(call, "%s is %u, the device allows %u", name, asked, max);
		return -EINVAL;
	}
	*depth = asked;
	return 0;
}

static int settle_depths(const struct vb_cma_id *id, const char *call, const struct rdma_conn_param *param,
			 struct wanted *w)
{
	const struct vb_cma_device *dev = id->device;

	if (vb_cma_is_datagram(id) || !param)
		return 0;
	int err = settle_depth(call, "responder_resources", param->responder_resources,
			       dev->max_responder_resources, &w->responder_resources);
	return err ? err :
		     settle_depth(call, "initiator_depth", param->initiator_depth, dev->max_initiator_depth,
				  &w->initiator_depth);
}

/* The data of rdma_getaddrinfo goes first. */
static int settle_data(const struct vb_cma_id *id, const char *call, const struct rdma_conn_param *param,
		       size_t max, struct wanted *w)
{
	size_t len = param && param->private_data ? param->private_data_len : 0;

	if (id->connect_data_len + len > max) {
		vb_explain(call, "%zu bytes of private data, %zu fit", id->connect_data_len + len, max);
		return -EINVAL;
	}
	if (id->connect_data_len)
		memcpy(w->data, id->connect_data, id->connect_data_len);
	if (len)
		memcpy(w->data + id->connect_data_len, param->private_data, len);
	w->data_len = (uint8_t)(id->connect_data_len + len);
	return 0;
}

/* In w: the greatest depths, which are also those for a NULL param. */
static int settle(const struct vb_cma_id *id, const char *call, const struct rdma_conn_param *param,
		  size_t max_data, struct wanted *w)
{
	if (!param && !id->pub.qp &&
	    !(vb_cma_is_datagram(id) && vb_cma_id_state(id) == VB_CMA_ROUTE_RESOLVED)) {
		vb_explain(call, "an id without a QP needs connection parameters");
		return -EINVAL;
	}
	int err = settle_depths(id, call, param, w);
	if (!err)
		err = settle_data(id, call, param, max_data, w);
	if (err)
		return err;
	w->flow_control = param ? param->flow_control : 1;
	w->retry_count = param ? at_most(param->retry_count, MAX_RETRIES) : MAX_RETRIES;
	w->rnr_retry_count = param ? at_most(param->rnr_retry_count, MAX_RETRIES) : MAX_RETRIES;
	w->qp_num = id->pub.qp ? id->pub.qp->qp_num : param ? param->qp_num & PSN_MASK : 0;
	w->srq = id->pub.qp ? id->pub.qp->srq != NULL : param && param->srq;
	return 0;
}

static struct vb_cm_ece machine_ece(const struct vb_cma_id *id)
{
	return (struct vb_cm_ece){ .vendor_id = id->local_ece.vendor_id & PSN_MASK,
				   .attr_mod = id->local_ece.options };
}

/* ---- connect ---- */

static uint64_t service_id(const struct vb_cma_id *id)
{
	struct vb_cm_service service = vb_cma_service(id->pub.ps, &id->dst);

	return vb_cm_service_id(&service);
}

static struct vb_cm_path path_of(const struct vb_cma_id *id)
{
	struct vb_cm_path path = {
		.pkey = VB_PKEY_DEFAULT,
		.mtu = (uint8_t)id->mtu,
		.rate = IBV_RATE_10_GBPS,
		.traffic_class = id->tos,
		.hop_limit = VB_HOP_LIMIT,
		.packet_lifetime = VB_CMA_PACKET_LIFETIME,
		.local_ack_timeout = id->ack_timeout_set ? id->ack_timeout : ACK_TIMEOUT,
	};

	memcpy(path.local_gid, &id->src.ip, sizeof(path.local_gid));
	memcpy(path.remote_gid, &id->dst.ip, sizeof(path.remote_gid));
	return path;
}

static void put_ip(uint8_t out[16], const struct vb_cma_addr *addr)
{
	if (vb_ip_is_v4(&addr->ip))
		memcpy(out, &addr->ip.s6_addr[12], 4);
	else
		memcpy(out, &addr->ip, 16);
}

/* The addresses, then the program's data. Returns how many bytes. */
static size_t connect_data(const struct vb_cma_id *id, const struct wanted *w, uint8_t *data)
{
	struct vb_ip_cm ip = { .ip_version = vb_ip_is_v4(&id->dst.ip) ? 4 : 6,
			       .source_port = id->src.port };

	put_ip(ip.source, &id->src);
	put_ip(ip.destination, &id->dst);
	vb_ip_cm_encode(&ip, data);
	memcpy(data + VB_IP_CM_BYTES, w->data, w->data_len);
	return VB_IP_CM_BYTES + w->data_len;
}

static enum vb_cm_transport transport_of(enum ibv_qp_type type)
{
	if (type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV)
		return VB_CM_XRC;
	return type == IBV_QPT_UC ? VB_CM_UC : VB_CM_RC;
}

static struct vb_cm_req_info req_info(const struct vb_cma_id *id, const struct wanted *w,
				      const struct vb_cm_path *path)
{
	return (struct vb_cm_req_info){
		.service_id = service_id(id),
		.ca_guid = id->device->guid,
		.qpn = w->qp_num,
		.starting_psn = id->our_psn,
		.transport = transport_of(id->pub.qp ? id->pub.qp->qp_type : id->pub.qp_type),
		.responder_resources = w->responder_resources,
		.initiator_depth = w->initiator_depth,
		.retry_count = w->retry_count,
		.rnr_retry_count = w->rnr_retry_count,
		.flow_control = w->flow_control,
		.srq = w->srq,
		.local_cm_response_timeout = VB_CMA_RESPONSE_TIMEOUT,
		.remote_cm_response_timeout = VB_CMA_RESPONSE_TIMEOUT,
		.max_cm_retries = VB_CMA_RETRIES,
		.path = *path,
		.ece = machine_ece(id),
	};
}

static int send_req_locked(struct vb_cma_id *id, struct vb_cm_conn *conn, const struct wanted *w,
			   const struct vb_cm_path *path, struct vb_cm_out *out)
{
	struct vb_cm_req_info info = req_info(id, w, path);
	struct vb_cm_route to = vb_cma_route_to_port(id);
	struct vb_cm_endpoint ep = vb_cma_endpoint_locked(id, &to);
	uint8_t data[VB_CM_REQ_PRIVATE_DATA_BYTES];
	size_t len = connect_data(id, w, data);
	int err = vb_cm_connect(vb_cma_table_locked(), conn, vb_now_ns(), &ep, &to, &info,
				VB_CM_DATA(data, len), out);

	if (err)
		return err;
	id->agreed = (struct vb_cma_agreement){
		.path = info.path, .responder_resources = w->responder_resources,
		.initiator_depth = w->initiator_depth, .retry_count = w->retry_count,
	};
	return 0;
}

static int send_sidr_req_locked(struct vb_cma_id *id, struct vb_cm_conn *conn, const struct wanted *w,
				struct vb_cm_out *out)
{
	struct vb_cm_sidr_info info = { .service_id = service_id(id), .pkey = VB_PKEY_DEFAULT,
					.timeout_ns = vb_cm_timeout_ns(VB_CMA_SIDR_TIMEOUT),
					.max_retries = VB_CMA_RETRIES, .peer_gid = id->dst.ip.s6_addr };
	struct vb_cm_route to = vb_cma_route_to_port(id);
	struct vb_cm_endpoint ep = vb_cma_endpoint_locked(id, &to);
	uint8_t data[SIDR_REQ_DATA_BYTES];
	size_t len = connect_data(id, w, data);

	return vb_cm_sidr_connect(vb_cma_table_locked(), conn, vb_now_ns(), &ep, &to, &info,
				  VB_CM_DATA(data, len), out);
}

static int begin_locked(struct vb_cma_id *id, struct vb_cm_conn *conn, const struct wanted *w,
			const struct vb_cm_path *path)
{
	struct vb_cm_out out;
	int err = vb_cma_is_datagram(id) ? send_sidr_req_locked(id, conn, w, &out) :
					   send_req_locked(id, conn, w, path, &out);

	if (err)
		return err;
	id->conn = conn;
	id->state = VB_CMA_CONNECTING;
	vb_cma_agent_run_locked(&out);
	return 0;
}

static int begin(struct vb_cma_id *id, const struct wanted *w)
{
	struct vb_cm_path path = path_of(id);
	struct vb_cm_conn *conn = calloc(1, sizeof(*conn));

	if (!conn)
		return -ENOMEM;
	vb_cma_lock();
	int err = begin_locked(id, conn, w, &path);
	vb_cma_unlock();
	if (err)
		free(conn);
	return err;
}

size_t vb_cma_request_room(const struct vb_cma_id *id)
{
	return (vb_cma_is_datagram(id) ? SIDR_REQ_DATA_BYTES : VB_CM_REQ_PRIVATE_DATA_BYTES) - VB_IP_CM_BYTES;
}

VB_EXPORT int rdma_connect(struct rdma_cm_id *pub, struct rdma_conn_param *param)
{
	if (vb_cma_is_faulty(__func__))
		return -1;
	if (!pub)
		return vb_cma_fail(EINVAL, "id is NULL");
	struct vb_cma_id *id = vb_cma_id_of(pub);

	if (vb_cma_id_state(id) != VB_CMA_ROUTE_RESOLVED || !id->device)
		return vb_cma_fail(EINVAL, "the id is %s; its route must be resolved first",
				   vb_cma_id_state_text(id));
	struct wanted w = { .responder_resources = id->device->max_responder_resources,
			    .initiator_depth = id->device->max_initiator_depth };
	int err = settle(id, __func__, param, vb_cma_request_room(id), &w);
	if (err)
		return vb_cma_result(err);
	bool sync = id->sync;
	vb_cma_qp_note(id);
	err = begin(id, &w);
	if (err)
		return vb_cma_fail(-err, "the request cannot be sent: %s", strerror(-err));
	return sync ? vb_cma_complete(id, __func__) : 0;
}

VB_EXPORT int rdma_establish(struct rdma_cm_id *pub)
{
	if (vb_cma_is_faulty(__func__))
		return -1;
	if (!pub)
		return vb_cma_fail(EINVAL, "id is NULL");
	struct vb_cma_id *id = vb_cma_id_of(pub);
	if (pub->qp)
		return vb_cma_fail(EINVAL, "the id has a QP, so its connection is established by itself");
	return vb_cma_establish(id) ? vb_cma_fail(EINVAL, "the id is %s and has no response to acknowledge",
				 vb_cma_id_state_text(id)) :
		     0;
}

/* ---- accept ---- */

static void fill_rep(const struct vb_cma_id *id, const struct wanted *w, struct vb_cm_rep_info *rep)
{
	*rep = (struct vb_cm_rep_info){
		.ca_guid = id->device->guid,
		.qpn = w->qp_num,
		.starting_psn = id->our_psn,
		.responder_resources = w->responder_resources,
		.initiator_depth = w->initiator_depth,
		.failover = 1,
		.rnr_retry_count = w->rnr_retry_count,
		.flow_control = w->flow_control,
		.srq = w->srq,
		.ece = machine_ece(id),
	};
}

static int send_rep_locked(struct vb_cma_id *id, const struct wanted *w, struct vb_cm_out *out)
{
	struct vb_cm_rep_info rep;

	fill_rep(id, w, &rep);
	return vb_cm_accept(vb_cma_table_locked(), id->conn, vb_now_ns(), &rep,
			    VB_CM_DATA(w->data, w->data_len), out);
}

static int send_sidr_rep_locked(struct vb_cma_id *id, const struct wanted *w, struct vb_cm_out *out)
{
	struct vb_cm_sidr_reply reply = {
		.status = VB_CM_SIDR_SUCCESS, .qpn = w->qp_num, .qkey = RDMA_UDP_QKEY, .ece = machine_ece(id)
	};

	return vb_cm_sidr_reply(vb_cma_table_locked(), id->conn, vb_now_ns(), &reply,
				VB_CM_DATA(w->data, w->data_len), out);
}

static int answer(struct vb_cma_id *id, const struct wanted *w)
{
	bool datagram = vb_cma_is_datagram(id);
	struct vb_cm_out out;
	int err = -EINVAL;

	vb_cma_lock();
	if (id->conn && id->state == VB_CMA_REQUESTED)
		err = datagram ? send_sidr_rep_locked(id, w, &out) : send_rep_locked(id, w, &out);
	if (!err) {
		id->state = datagram ? VB_CMA_CONNECTED : VB_CMA_ACCEPTED;
		vb_cma_agent_run_locked(&out);
	}
	vb_cma_unlock();
	return err;
}

/* Our QP must be ready before the peer hears that it may send. */
static int ready_qp(struct vb_cma_id *id, const struct wanted *w)
{
	vb_cma_qp_note(id);
	if (vb_cma_is_datagram(id))
		return 0;
	id->agreed.responder_resources = w->responder_resources;
	id->agreed.initiator_depth = w->initiator_depth;
	return id->pub.qp ? vb_cma_qp_connect(id) : 0;
}

VB_EXPORT int rdma_accept(struct rdma_cm_id *pub, struct rdma_conn_param *param)
{
	if (vb_cma_is_faulty(__func__))
		return -1;
	if (!pub)
		return vb_cma_fail(EINVAL, "id is NULL");
	struct vb_cma_id *id = vb_cma_id_of(pub);
	size_t max = vb_cma_is_datagram(id) ? SIDR_REP_DATA_BYTES : VB_CM_REP_PRIVATE_DATA_BYTES;

	if (vb_cma_id_state(id) != VB_CMA_REQUESTED || !id->device)
		return vb_cma_fail(EINVAL, "the id is %s; only a connection request can be accepted",
				   vb_cma_id_state_text(id));
	struct wanted w = {
		.responder_resources =
			at_most(id->agreed.responder_resources, id->device->max_responder_resources),
		.initiator_depth = at_most(id->agreed.initiator_depth, id->device->max_initiator_depth),
	};
	bool sync = id->sync, datagram = vb_cma_is_datagram(id);
	int err = settle(id, __func__, param, max, &w);
	if (err)
		return vb_cma_result(err);
	err = ready_qp(id, &w);
	if (!err)
		err = answer(id, &w);
	if (err) {
		vb_cma_qp_fail(id);
		return vb_cma_fail(-err, "the request cannot be accepted: %s", strerror(-err));
	}
	if (sync && !datagram)
		return vb_cma_complete(id, __func__);
	if (sync)
		vb_cma_release_event(id);
	if (datagram)
		vb_cma_agent_flush();
	return 0;
}

/* ---- reject ---- */

static int reject_locked(struct vb_cma_id *id, enum vb_cm_rej_reason reason, struct vb_cm_data data,
			 struct vb_cm_out *out)
{
	struct vb_cm_sidr_reply refusal = { .status = VB_CM_SIDR_REJECT };

	if (vb_cma_is_datagram(id))
		return vb_cm_sidr_reply(vb_cma_table_locked(), id->conn, vb_now_ns(), &refusal, data, out);
	return vb_cm_reject(vb_cma_table_locked(), id->conn, vb_now_ns(), reason, VB_CM_NO_DATA, data, out);
}

static int reject(struct vb_cma_id *id, enum vb_cm_rej_reason reason, const void *data, uint8_t len)
{
	struct vb_cm_out out;
	int err = -EINVAL;

	vb_cma_lock();
	if (id->conn)
		err = reject_locked(id, reason, VB_CM_DATA(data, len), &out);
	if (!err) {
		id->state = VB_CMA_FAILED;
		vb_cma_agent_run_locked(&out);
	}
	vb_cma_unlock();
	return err;
}

static int reject_checked(const char *call, struct rdma_cm_id *pub, enum vb_cm_rej_reason reason,
			  const void *data, uint8_t len)
{
	if (!pub) {
		vb_explain(call, "id is NULL");
		return vb_cma_result(-EINVAL);
	}
	struct vb_cma_id *id = vb_cma_id_of(pub);
	size_t max = vb_cma_is_datagram(id) ? SIDR_REP_DATA_BYTES : VB_CM_REJ_PRIVATE_DATA_BYTES;

	if (!data)
		len = 0;
	if (len > max) {
		vb_explain(call, "%u bytes of private data, %zu fit", len, max);
		return vb_cma_result(-EINVAL);
	}
	bool sync = id->sync;
	int err = reject(id, reason, data, len);
	if (err)
		vb_explain(call, "the id is %s and has no request to reject", vb_cma_id_state_text(id));
	else if (sync)
		vb_cma_release_event(id);
	vb_cma_agent_flush();
	return vb_cma_result(err);
}

VB_EXPORT int rdma_reject(struct rdma_cm_id *id, const void *private_data, uint8_t private_data_len)
{
	if (vb_cma_is_faulty(__func__))
		return -1;
	return reject_checked(__func__, id, VB_CM_REJ_CONSUMER_DEFINED, private_data, private_data_len);
}

VB_EXPORT int rdma_reject_ece(struct rdma_cm_id *id, const void *private_data, uint8_t private_data_len)
{
	if (vb_cma_is_faulty(__func__))
		return -1;
	return reject_checked(__func__, id, VB_CM_REJ_VENDOR_OPTION, private_data, private_data_len);
}

/* ---- notify ---- */

VB_EXPORT int rdma_notify(struct rdma_cm_id *pub, enum ibv_event_type event)
{
	struct vb_cm_out out;
	if (vb_cma_is_faulty(__func__))
		return -1;
	int err = -EINVAL;

	if (!pub)
		return vb_cma_fail(EINVAL, "id is NULL");
	if (event != IBV_EVENT_COMM_EST)
		return vb_cma_fail(EINVAL, "event %d: only IBV_EVENT_COMM_EST is news to the connection",
				   (int)event);
	struct vb_cma_id *id = vb_cma_id_of(pub);
	vb_cma_lock();
	if (id->state == VB_CMA_CONNECTED && id->conn)
		err = -EISCONN;
	else if (id->conn)
		err = vb_cm_notify_established(vb_cma_table_locked(), id->conn, vb_now_ns(), &out);
	if (!err)
		vb_cma_agent_run_locked(&out);
	vb_cma_unlock();
	return err ? vb_cma_fail(-err, "the id is %s", vb_cma_id_state_text(id)) : 0;
}

/* ---- disconnect ---- */

/* 0 also if the peer disconnected first. */
static int send_dreq(struct vb_cma_id *id)
{
	struct vb_cm_out out;
	int err = -EINVAL;

	vb_cma_lock();
	if (id->conn)
		err = vb_cm_disconnect(vb_cma_table_locked(), id->conn, vb_now_ns(), VB_CM_NO_DATA, &out);
	if (!err)
		vb_cma_agent_run_locked(&out);
	else if (id->state != VB_CMA_ACCEPTED)
		err = 0;
	vb_cma_unlock();
	return err;
}

static bool is_connection(const struct vb_cma_id *id)
{
	return !vb_cma_is_datagram(id) && id->conn &&
	       (id->state == VB_CMA_ACCEPTED || id->state == VB_CMA_CONNECTED || id->state == VB_CMA_CLOSED);
}

/*
 * Datagrams have no connection, others have it not yet or will never have it: the QP is flushed, and the peer
 * hears nothing. A synchronous id is to wait for the end, which would not come.
 */
static bool is_flush_alone(const struct vb_cma_id *id)
{
	bool datagram = vb_cma_is_datagram(id);

	if (!id->conn)
		return false;
	if (id->state == VB_CMA_FAILED && !datagram)
		return true;
	return !id->sync &&
	       (datagram || id->state == VB_CMA_CONNECTING || id->state == VB_CMA_REQUESTED);
}

VB_EXPORT int rdma_disconnect(struct rdma_cm_id *pub)
{
	if (vb_cma_is_faulty(__func__))
		return -1;
	if (!pub)
		return vb_cma_fail(EINVAL, "id is NULL");
	struct vb_cma_id *id = vb_cma_id_of(pub);

	vb_cma_qp_flush(id);
	vb_cma_lock();
	bool is_one = is_connection(id), is_done = is_flush_alone(id);
	vb_cma_unlock();
	if (is_done)
		return 0;
	if (!is_one)
		return vb_cma_fail(EINVAL, "the id is %s, there is nothing to disconnect",
				   vb_cma_id_state_text(id));
	bool sync = id->sync;
	int err = send_dreq(id);
	if (err)
		return vb_cma_fail(-err, "the id is %s", vb_cma_id_state_text(id));
	vb_cma_agent_flush();
	return sync && !id->is_end_known ? vb_cma_complete(id, __func__) : 0;
}

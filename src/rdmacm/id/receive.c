/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * CM messages from the wire. The machine takes those of its connections; a request that belongs to none makes
 * a new id, if an id listens for it.
 */
#include <infiniband/ib.h>
#include <stdlib.h>
#include <string.h>

#include "rdmacm/agent/agent.h"
#include "rdmacm/agent/message_fault.h"
#include "rdmacm/agent/packet.h"
#include "rdmacm/id/id.h"
#include "wire/ip_cm.h"

/* ---- requests ---- */

/* Under the lock: all ids that listen. */
static struct vb_list listeners = VB_LIST_INIT(listeners);

void vb_cma_listener_add_locked(struct vb_cma_id *id)
{
	id->state = VB_CMA_LISTENING;
	vb_list_add_tail(&listeners, &id->listening);
}

void vb_cma_listener_remove_locked(struct vb_cma_id *id)
{
	vb_list_del(&id->listening);
}

static void get_ip(struct vb_cma_addr *addr, uint8_t ip_version, const uint8_t bytes[16], uint16_t port)
{
	bool v4 = ip_version == 4;

	vb_cma_addr_any(v4 ? AF_INET : AF_INET6, addr);
	memcpy(v4 ? &addr->ip.s6_addr[12] : addr->ip.s6_addr, bytes, v4 ? 4 : 16);
	addr->port = port;
}

/* Both ends as the receiver sees them. -EBADMSG: no addresses in the message. */
static int addresses(const struct vb_cm_event *e, uint64_t service_id, struct vb_cma_addr *src,
		     struct vb_cma_addr *dst)
{
	struct vb_ip_cm ip;
	int err = vb_ip_cm_decode(e->private_data.bytes, e->private_data.len, &ip);

	if (err)
		return err;
	get_ip(src, ip.ip_version, ip.destination, (uint16_t)service_id);
	get_ip(dst, ip.ip_version, ip.source, ip.source_port);
	return 0;
}

static bool listens_on(const struct vb_cma_id *id, uint64_t service_id, const struct vb_cma_addr *addr)
{
	struct vb_cm_service bound = vb_cma_service(id->pub.ps, &id->src);
	if (vb_cm_service_id(&bound) != service_id)
		return false;
	if (!vb_cma_addr_is_any(&id->src))
		return memcmp(&id->src.ip, &addr->ip, sizeof(addr->ip)) == 0 &&
		       (!addr->scope || addr->scope == id->src.scope);
	bool ipv4 = vb_ip_is_v4(&id->src.ip);
	return ipv4 == vb_ip_is_v4(&addr->ip) || (!ipv4 && !id->afonly);
}

static struct vb_cma_id *find_listener_locked(uint64_t service_id, const struct vb_cma_addr *addr)
{
	struct vb_cma_id *id, *found = NULL;

	vb_list_for_each(id, &listeners, listening)
		if (listens_on(id, service_id, addr) && (!found || vb_cma_addr_is_any(&found->src)))
			found = id;
	return found;
}

/* A message does not tell the packets' lifetime, but the ACK timeout, which is about twice that. */
static int set_path(struct vb_cma_id *child, struct vb_cm_path path)
{
	path.packet_lifetime = path.local_ack_timeout ? (uint8_t)(path.local_ack_timeout - 1) : 0;
	return vb_cma_id_set_path(child, &path);
}

/* 0 or -ENOMEM. */
static int agree(struct vb_cma_id *child, const struct vb_cm_req_info *req)
{
	child->agreed = (struct vb_cma_agreement){
		.path = req->path,
		.remote_qpn = req->qpn,
		.remote_psn = req->starting_psn,
		.responder_resources = req->initiator_depth,
		.initiator_depth = req->responder_resources,
		.retry_count = req->retry_count,
		.rnr_retry_count = req->rnr_retry_count,
	};
	child->pub.qp_type = req->transport == VB_CM_UC	 ? IBV_QPT_UC :
			     req->transport == VB_CM_XRC ? IBV_QPT_XRC_RECV :
							   IBV_QPT_RC;
	return set_path(child, req->path);
}

static int adopt_locked(struct vb_cma_id *child, struct vb_cm_conn *conn, const struct vb_cm_rx *rx,
			struct vb_cm_out *out)
{
	struct vb_cm_endpoint ep = vb_cma_endpoint_locked(child, &rx->from);
	int err =
		vb_cm_request(vb_cma_table_locked(), conn, vb_now_ns(), &ep, rx, VB_CMA_PACKET_LIFETIME, out);

	if (!err)
		child->conn = conn;
	return err;
}

static void create_child_locked(struct vb_cma_id *listener, const struct vb_cm_event *preview,
			const struct vb_cma_addr *src, const struct vb_cma_addr *dst,
			const struct vb_cm_rx *rx, struct vb_cm_out *out)
{
	struct vb_cm_conn *conn = calloc(1, sizeof(*conn));
	struct vb_cma_id *child = conn ? vb_cma_id_create_child_locked(listener) : NULL;

	if (child) {
		struct vb_cma_addr ours = *src, theirs = *dst;
		if (listener->src.family == AF_IB)
			ours.family = theirs.family = AF_IB;
		vb_cma_id_set_src_locked(child, &ours);
		vb_cma_id_set_dst_locked(child, &theirs);
		int err = preview->type == VB_CM_EV_REQUEST ? agree(child, &preview->info.req) : 0;
		if (!err && !adopt_locked(child, conn, rx, out))
			return;
		vb_cma_id_discard_locked(child);
	}
	free(conn);
	vb_cm_refuse(vb_cma_table_locked(), rx, VB_CM_REJ_NO_RESOURCES, out);
}

static bool fits(const struct vb_cma_id *listener, const struct vb_cm_event *preview)
{
	if (vb_cma_is_datagram(listener))
		return preview->type == VB_CM_EV_SIDR_REQUEST;
	return preview->type == VB_CM_EV_REQUEST && preview->info.req.transport != VB_CM_RD;
}

/*
 * A request repeats its source and destination: in the private data for the program, and in the path for the
 * queue pair. Both must match the addresses of the packet that brought it. Otherwise a peer could pose as
 * another host, reach a listener on an address to which it cannot send, or point a queue pair at a third
 * host.
 */
static bool addresses_match(const struct vb_cm_rx *rx, const struct vb_cm_event *preview,
		    const struct vb_cma_addr *src, const struct vb_cma_addr *dst)
{
	struct in6_addr own = vb_cma_route_own(&rx->from), peer = vb_cma_route_peer(&rx->from);
	const struct vb_cm_path *path = &preview->info.req.path;

	if (!IN6_ARE_ADDR_EQUAL(&src->ip, &own) || !IN6_ARE_ADDR_EQUAL(&dst->ip, &peer))
		return false;
	return preview->type != VB_CM_EV_REQUEST || (!memcmp(path->local_gid, &own, sizeof(own)) &&
						     !memcmp(path->remote_gid, &peer, sizeof(peer)));
}

/* With a full backlog the request is dropped: its sender repeats it. */
static void take_request_locked(const struct vb_cm_rx *rx, uint32_t scope, struct vb_cm_out *out)
{
	uint64_t service_id = vb_cm_msg_service_id(&rx->msg);
	struct vb_cma_id *listener = NULL;
	struct vb_cma_addr src, dst;
	struct vb_cm_event preview;

	memset(out, 0, sizeof(*out));
	vb_cm_request_preview(rx, &preview);
	if (!addresses(&preview, service_id, &src, &dst) && addresses_match(rx, &preview, &src, &dst)) {
		src.scope = scope;
		listener = find_listener_locked(service_id, &src);
	}
	if (!listener || !listener->pub.channel)
		vb_cm_refuse(vb_cma_table_locked(), rx, VB_CM_REJ_INVALID_SERVICE_ID, out);
	else if (!fits(listener, &preview))
		vb_cm_refuse(vb_cma_table_locked(), rx, VB_CM_REJ_INVALID_TRANSPORT_TYPE, out);
	else if (listener->backlog_left)
		create_child_locked(listener, &preview, &src, &dst, rx, out);
	else
		vb_explain("rdma_listen", "port %u: the backlog is full, a request waits",
			   listener->src.port);
}

/* ---- messages ---- */

static struct vb_cma_fate fate_of(const struct vb_cm_rx *rx)
{
	struct in6_addr own = vb_cma_route_own(&rx->from), peer = vb_cma_route_peer(&rx->from);

	if (vb_fault_is_cut(&own, &peer))
		return (struct vb_cma_fate){ .is_lost = true };
	return vb_cma_fate_of(VB_FAULT_IN, &rx->msg, &peer);
}

static void receive(const struct vb_cm_rx *rx, uint32_t scope)
{
	struct vb_cma_fate fate = { 0 };
	struct vb_cm_out out;

	if (vb_unlikely(vb_faults_on))
		fate = fate_of(rx);
	vb_cma_lock();
	if (vb_cma_table_locked() && !fate.is_lost) {
		if (fate.refusal)
			vb_cm_refuse(vb_cma_table_locked(), rx, (enum vb_cm_rej_reason)fate.refusal, &out);
		else if (vb_cm_receive(vb_cma_table_locked(), vb_now_ns(), rx, &out) != VB_CM_HANDLED)
			take_request_locked(rx, scope, &out);
		vb_cma_agent_run_locked(&out);
	}
	vb_cma_unlock();
}

void vb_cma_packet_arrived(void *scope, const struct vb_inbox_msg *msg)
{
	uint32_t ifindex = (uint32_t)(uintptr_t)scope;
	struct vb_cm_rx rx;

	if (vb_cma_packet_parse(msg, ifindex, &rx))
		receive(&rx, ifindex);
}

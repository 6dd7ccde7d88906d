/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hostile CM messages into librdmacm, while a program with ids in all states uses it.
 *
 * Input: steps. The program creates, binds, resolves, connects, accepts, rejects, disconnects and destroys
 * ids that have no queue pair of their own, and takes events. Messages are made of those that were sent
 * before, answered, repeated or turned into others, or of nothing; they come to a bound port, to this
 * process's inbox, or over the network, and some of another user's process. Sends fail now and then, and time
 * passes.
 *
 * Invariants: an event is for an id that lives, and brings a new one only with a request; each id is told at
 * most once of its establishment, its end and its refusal; ids can be destroyed at any time, and when all
 * are, and time has passed, no timer runs and the CM machine has no connection left. What a stranger says in
 * the name of somebody else does not reach the machine, and is not answered.
 */
#include <errno.h>

#include "fake_host.h"
#include "fake_verbs.h"
#include "fuzz.h"
#include "proto/cm/gsi.h"
#include "rdmacm/agent/agent.h"
#include "wire/icrc.h"
#include "wire/ip_cm.h"

enum { MAX_IDS = 8, MAX_STEPS = 150, HEARD = 4, PORT = 7471 };

struct id {
	struct rdma_cm_id *cm;
	unsigned seen;		/* bits of events */
};

static struct {
	struct fuzz_input *in;
	struct rdma_event_channel *channel;
	struct id ids[MAX_IDS];
	struct vb_gsi_packet heard[HEARD];
	bool was_local[HEARD];	/* whether it went to somebody of this host */
	unsigned num_heard;
} w;

/* ---- events ---- */

#define BIT(event) (1u << RDMA_CM_EVENT_##event)

static struct id *find(const struct rdma_cm_id *cm)
{
	for (unsigned i = 0; i < MAX_IDS; i++)
		if (w.ids[i].cm == cm)
			return &w.ids[i];
	return NULL;
}

static struct id *place(void)
{
	return find(NULL);
}

static void take_event(void)
{
	static const unsigned once = BIT(ESTABLISHED) | BIT(DISCONNECTED) | BIT(REJECTED) | BIT(UNREACHABLE) |
				     BIT(CONNECT_ERROR) | BIT(TIMEWAIT_EXIT);
	struct rdma_cm_event *event;

	if (rdma_get_cm_event(w.channel, &event))
		return;
	enum rdma_cm_event_type type = event->event;
	struct rdma_cm_id *fresh = type == RDMA_CM_EVENT_CONNECT_REQUEST ? event->id : NULL;
	struct id *id = find(fresh ? event->listen_id : event->id);
	must(id != NULL);
	if (!fresh) {
		must(!(id->seen & once & 1u << type));
		must(type != RDMA_CM_EVENT_ESTABLISHED ||
		     !(id->seen & (BIT(DISCONNECTED) | BIT(REJECTED) | BIT(UNREACHABLE))));
		id->seen |= 1u << type;
	}
	must(rdma_ack_cm_event(event) == 0);
	if (!fresh)
		return;
	must(find(fresh) == NULL);
	if (place())
		*place() = (struct id){ .cm = fresh };
	else
		must(rdma_destroy_id(fresh) == 0);
}

/* ---- the program ---- */

static struct sockaddr_in address_of(uint32_t address, uint16_t port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET,
				     .sin_port = htons(port),
				     .sin_addr.s_addr = htonl(address) };
}

static struct rdma_cm_id *pick(void)
{
	return w.ids[take(w.in) % MAX_IDS].cm;
}

static void create(void)
{
	struct id *id = place();
	uint8_t kind = take(w.in);

	if (!id)
		return;
	*id = (struct id){ 0 };
	if (rdma_create_id(w.channel, &id->cm, NULL, kind % 4 == 0 ? RDMA_PS_UDP : RDMA_PS_TCP))
		id->cm = NULL;
	else if (kind & 16) {	/* a listener at once */
		struct sockaddr_in any = address_of(kind & 32 ? FAKE_OWN_ADDRESS : 0, PORT);
		must(rdma_bind_addr(id->cm, (struct sockaddr *)&any) == 0);
		must(rdma_listen(id->cm, kind & 3) == 0);
	} else if (kind & 64) {	/* ready to connect */
		struct sockaddr_in to = address_of(kind & 32 ? FAKE_OWN_ADDRESS : FAKE_OTHER_ADDRESS, PORT);
		(void)rdma_resolve_addr(id->cm, NULL, (struct sockaddr *)&to, 100);
		take_event();
		(void)rdma_resolve_route(id->cm, 100);
		take_event();
	}
}

static void destroy(struct id *id)
{
	if (!id->cm)
		return;
	must(rdma_destroy_id(id->cm) == 0);
	*id = (struct id){ 0 };
}

static void call(struct rdma_cm_id *cm)
{
	uint8_t choice = take(w.in), data[200] = "data";
	struct rdma_conn_param param = { .qp_num = 0x7005,
					 .retry_count = 7,
					 .rnr_retry_count = 7,
					 .private_data = data,
					 .private_data_len = take(w.in) % 200,
					 .responder_resources = choice & 15,
					 .initiator_depth = choice >> 4 };
	struct sockaddr_in to = address_of(choice & 64 ? FAKE_OWN_ADDRESS : FAKE_OTHER_ADDRESS, PORT);

	if (!cm)
		return;
	switch (choice % 10) {
	case 0: (void)rdma_bind_addr(cm, (struct sockaddr *)&to); break;
	case 1: (void)rdma_listen(cm, choice >> 5); break;
	case 2: (void)rdma_resolve_addr(cm, NULL, (struct sockaddr *)&to, 100); break;
	case 3: (void)rdma_resolve_route(cm, 100); break;
	case 4:
	case 5: (void)rdma_connect(cm, &param); break;
	case 6:
	case 7: (void)rdma_accept(cm, &param); break;
	case 8: (void)rdma_reject(cm, data, param.private_data_len); break;
	case 9: (void)(choice & 128 ? rdma_notify(cm, IBV_EVENT_COMM_EST) : rdma_disconnect(cm)); break;
	}
}

/* ---- messages ---- */

static void left(const void *bytes, size_t len)
{
	if (len != sizeof(struct vb_gsi_packet) && len != sizeof(struct vb_gsi_packet) + VB_ICRC_BYTES)
		return;
	w.was_local[w.num_heard % HEARD] = len == sizeof(struct vb_gsi_packet);
	memcpy(&w.heard[w.num_heard++ % HEARD], bytes, sizeof(struct vb_gsi_packet));
}

/* Ids where most messages have them. */
static void set_ids(struct vb_mad *mad, uint32_t local, uint32_t remote)
{
	vb_cm_rtu_msg_set_local_comm_id(vb_cm_rtu_in(mad), local);
	vb_cm_rtu_msg_set_remote_comm_id(vb_cm_rtu_in(mad), remote);
}

/* An answer to something that was sent: its ids the other way round. */
static void turn_round(struct vb_mad *mad, uint8_t choice)
{
	unsigned attribute = VB_CM_ATTR_REQ + choice % 11;
	uint32_t local = vb_cm_rtu_msg_local_comm_id(vb_cm_rtu_of(mad));
	uint32_t remote = vb_mad_attribute_id(mad) == VB_CM_ATTR_REQ ?
				  0x90001 :
				  vb_cm_rtu_msg_remote_comm_id(vb_cm_rtu_of(mad));
	uint64_t tid = vb_mad_transaction_id(mad);

	if (attribute != VB_CM_ATTR_SIDR_REP)
		vb_cm_msg_init(mad, attribute, tid);
	vb_mad_set_attribute_id(mad, attribute);
	set_ids(mad, remote, local);
}

/* From where it will be delivered (choice & 64: this host), or it would be refused. */
static void make_request(struct vb_mad *mad, uint8_t choice)
{
	struct vb_ip_cm ip = { .ip_version = 4 };
	uint8_t *data = mad->b + VB_MAD_HEADER_BYTES, from[16], to[16];

	fake_gid(choice & 64 ? FAKE_OWN_ADDRESS : FAKE_OTHER_ADDRESS, from);
	fake_gid(FAKE_OWN_ADDRESS, to);
	memcpy(ip.source, from + 12, 4);
	memcpy(ip.destination, to + 12, 4);
	vb_cm_msg_init(mad, choice & 1 ? VB_CM_ATTR_SIDR_REQ : VB_CM_ATTR_REQ, choice);
	if (choice & 1) {
		vb_cm_sidr_req_msg_set_service_id(vb_cm_sidr_req_in(mad), vb_ip_cm_service_id(0x11, PORT));
		vb_ip_cm_encode(&ip, data + 16);
	} else {
		vb_cm_req_msg_set_service_id(vb_cm_req_in(mad), vb_ip_cm_service_id(0x06, PORT));
		vb_cm_req_msg_set_local_qpn(vb_cm_req_in(mad), 0x9000 + choice);
		vb_cm_req_msg_set_path_mtu(vb_cm_req_in(mad), 3);
		memcpy(data + 56, from, sizeof(from));
		memcpy(data + 72, to, sizeof(to));
		vb_ip_cm_encode(&ip, data + 140);
	}
	vb_cm_req_msg_set_local_comm_id(vb_cm_req_in(mad), 0x90000u + choice % 8);
}

/* In a port, or the inbox. */
static void deliver(const struct vb_mad *mad, bool is_local, int port)
{
	fake_cm_message(mad, is_local ? FAKE_OWN_ADDRESS : FAKE_OTHER_ADDRESS, FAKE_OWN_ADDRESS, port);
}

/* What a decent peer would answer to what was sent last. */
static void play_along(void)
{
	unsigned last = (w.num_heard - 1) % HEARD;
	struct vb_mad mad = w.heard[last].mad;
	uint32_t qpn = 0x9000 + take(w.in);

	if (!w.num_heard)
		return;
	switch (vb_mad_attribute_id(&mad)) {
	case VB_CM_ATTR_REQ:
		turn_round(&mad, VB_CM_ATTR_REP - VB_CM_ATTR_REQ);
		vb_cm_rep_msg_set_local_qpn(vb_cm_rep_in(&mad), qpn);
		break;
	case VB_CM_ATTR_REP:
		turn_round(&mad, VB_CM_ATTR_RTU - VB_CM_ATTR_REQ);
		break;
	case VB_CM_ATTR_DREQ:
		turn_round(&mad, VB_CM_ATTR_DREP - VB_CM_ATTR_REQ);
		break;
	case VB_CM_ATTR_RTU:
		turn_round(&mad, VB_CM_ATTR_DREQ - VB_CM_ATTR_REQ);
		break;
	case VB_CM_ATTR_SIDR_REQ: {
		uint32_t id = vb_cm_sidr_req_msg_request_id(vb_cm_sidr_req_of(&mad));
		vb_cm_msg_init(&mad, VB_CM_ATTR_SIDR_REP, vb_mad_transaction_id(&mad));
		vb_cm_sidr_rep_msg_set_request_id(vb_cm_sidr_rep_in(&mad), id);
		vb_cm_sidr_rep_msg_set_qpn(vb_cm_sidr_rep_in(&mad), qpn);
		break;
	}
	}
	deliver(&mad, w.was_local[last], -1);
}

static uint64_t messages_received(void)
{
	vb_cma_lock();
	const struct vb_cm_table *table = vb_cma_table_locked();
	uint64_t received = table ? vb_cm_table_counters(table)->received : 0;
	vb_cma_unlock();
	return received;
}

static bool has_qp(uint32_t slot, uint32_t qpn)
{
	return qpn >> VB_CM_QPN_INDEX_BITS == 0 || qpn >> VB_CM_QPN_INDEX_BITS == slot;
}

static bool is_of(uint32_t slot, const struct vb_mad *mad)
{
	struct vb_cm_msg msg;

	if (vb_cm_msg_parse(mad, sizeof(*mad), &msg))
		return false;
	uint32_t id = vb_cm_msg_sender_id(&msg);
	struct vb_cm_offer offer = vb_cm_msg_offer(&msg);
	return (!id || vb_cm_id_slot(id) == slot) && has_qp(slot, offer.qpn[0]) && has_qp(slot, offer.qpn[1]);
}

/* Of another user, who has the peer's slot; under an id of that slot, or as it is. */
static void deliver_of_stranger(struct vb_mad *mad, bool has_own_id, bool is_local, int port)
{
	uint64_t received = messages_received();
	unsigned heard = w.num_heard;

	if (has_own_id)
		vb_cm_rtu_msg_set_local_comm_id(vb_cm_rtu_in(mad), vb_cm_id_make(FAKE_PEER_SLOT, 7));
	fake.sends_as_stranger = true;
	deliver(mad, is_local, port);
	fake.sends_as_stranger = false;
	must((is_local && is_of(FAKE_PEER_SLOT, mad)) ||
	     (received == messages_received() && heard == w.num_heard));
}

static void message_comes(void)
{
	uint8_t choice = take(w.in), how = take(w.in);
	struct vb_mad mad = w.heard[take(w.in) % HEARD].mad;

	if (choice & 1)
		make_request(&mad, how);
	else if (choice & 2)
		turn_round(&mad, how);
	for (unsigned i = choice >> 5; i > 0; i--)
		mad.b[take(w.in)] = take(w.in);
	int port = choice & 4 ? take(w.in) : -1;
	if ((choice & 24) == 24)
		deliver_of_stranger(&mad, how & 32, how & 64, port);
	else
		deliver(&mad, how & 64, port);
}

/* ---- the run ---- */

static void step(uint8_t what)
{
	static const int results[] = { 0, 0, -EAGAIN, -ECONNREFUSED, -ENETUNREACH };

	switch (what % 12) {
	case 0: create(); break;
	case 1:
	case 2:
	case 3: call(pick()); break;
	case 4:
	case 5: take_event(); break;
	case 6: destroy(&w.ids[take(w.in) % MAX_IDS]); break;
	case 7: fake_pass_time((uint64_t)take(w.in) << 23); break;
	case 8: fake.send_result = results[take(w.in) % VB_ARRAY_LEN(results)]; break;
	case 9: play_along(); break;
	default: message_comes(); break;
	}
}

static void come_to_rest(void)
{
	unsigned total, destroyed;

	for (unsigned i = 0; i < MAX_IDS; i++)
		destroy(&w.ids[i]);
	rdma_destroy_event_channel(w.channel);
	for (unsigned i = 0; i < 400 && fake_timers(); i++)
		fake_pass_time(UINT64_C(1000000000));
	vb_cma_lock();
	if (vb_cma_table_locked()) {
		vb_cm_table_count(vb_cma_table_locked(), &total, &destroyed);
		must(total == 0);
	}
	vb_cma_unlock();
	must(fake_timers() == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };

	memset(&w, 0, sizeof(w));
	w.in = &in;
	fake_reset();
	fake.left = left;
	w.channel = rdma_create_event_channel();
	must(w.channel != NULL);
	for (unsigned i = 0; in.left && i < MAX_STEPS; i++)
		step(take(&in));
	fake.send_result = 0;
	come_to_rest();
	return 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include "ud/gsi.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/inspection/counts.h"
#include "base/nanoseconds.h"
#include "base/outbox.h"
#include "roce/packet_faults.h"
#include "roce/receive.h"

_Static_assert((int)VB_CM_QPN_INDEX_BITS == (int)VB_SLOT_SHIFT, "both name slots");

enum {
	MAX_WAITING = 1 << 14, /* some 7 MB */
	/*
	 * Less than the packet lifetime that connections of this library are made with: beyond it, a request
	 * that was repeated may find that what it asked for has come and gone, and ask for it once more.
	 */
	MAX_AGE_NS = 250 * VB_NS_PER_MS,
	REMEMBERED = 256,      /* a power of two */
	HAND_ON_NS = 300 * VB_NS_PER_MS, /* at most */
	NAP_NS = 20000,
};

static bool is_request(unsigned attribute)
{
	return attribute == VB_CM_ATTR_REQ || attribute == VB_CM_ATTR_SIDR_REQ;
}

/* ---- sending ---- */

struct signed_packet {
	struct vb_gsi_packet packet;
	uint8_t icrc[VB_ICRC_BYTES];
};

_Static_assert(sizeof(struct signed_packet) == sizeof(struct vb_gsi_packet) + VB_ICRC_BYTES,
	       "the ICRC follows the packet");

static int send_by(struct vb_roce_route *route, struct signed_packet *wire)
{
	vb_icrc_sign(&route->icrc, NULL, wire, sizeof(*wire), 0);
	route->qpn = VB_GSI_QPN;
	return vb_roce_transmit(route, wire, sizeof(*wire), sizeof(*wire));
}

/* The flow's number decides about the source port. */
static void route_to(struct vb_roce_route *route, const struct vb_inbox_addr *addr, unsigned ifindex,
		     uint32_t flow)
{
	struct vb_inbox_addr to = *addr;
	to.udp_sport = vb_roce_source_port(flow, VB_GSI_QPN, VB_GSI_QPN);
	vb_roce_route_init(route, &to, ifindex);
}

int vb_gsi_send(const struct vb_inbox_addr *addr, unsigned ifindex, const struct vb_mad *mad,
		bool is_repeated)
{
	static atomic_uint next_psn;
	unsigned attribute = vb_mad_attribute_id(mad), psn = atomic_fetch_add(&next_psn, 1) & VB_PSN_MASK;
	struct vb_roce_route route;
	struct signed_packet wire;
	int err = vb_roce_open();

	if (err)
		return err;
	vb_gsi_packet_init(&wire.packet, mad);
	vb_bth_set_psn(&wire.packet.bth, psn);
	route_to(&route, addr, ifindex, 0);
	err = send_by(&route, &wire);
	if (err || !is_repeated || attribute != VB_CM_ATTR_REQ)
		return err;
	route_to(&route, addr, ifindex, psn);
	return send_by(&route, &wire);
}

int vb_gsi_send_to_service(const struct vb_cm_service *service, const struct vb_inbox_addr *addr,
			   const struct vb_gsi_packet *packet)
{
	struct vb_cm_service anywhere = vb_cm_service_anywhere(service);
	struct vb_cm_service_name exact = vb_cm_service_name(service), any = vb_cm_service_name(&anywhere);
	struct iovec iov = { (void *)(uintptr_t)packet, sizeof(*packet) };
	int err = vb_port_send(&exact, sizeof(exact), addr, &iov, 1);

	if (err == -ECONNREFUSED)
		err = vb_port_send(&any, sizeof(any), addr, &iov, 1);
	return err;
}

/* ---- receiving ---- */

struct arrival {
	struct vb_inbox_addr addr;
	unsigned ifindex;
	bool is_request, to_service;
	struct vb_cm_service service; /* to_service */
	uint32_t slot;                /* else */
	struct vb_gsi_packet packet;
};

/* What is for other processes of this host waits until they have room. */
static struct {
	pthread_mutex_t lock;
	struct vb_outbox outbox;
	struct vb_timer timer;
} waiting = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* To this process's own CM, as if it had come from the inbox of `slot`. False: it has none. */
static bool deliver(const struct arrival *a, uint32_t slot)
{
	struct vb_inbox_msg msg = { .addr = a->addr,
				    .payload = (const uint8_t *)&a->packet,
				    .payload_bytes = sizeof(a->packet),
				    .sender_slot = slot,
				    .sender_uid = (uid_t)-1,
				    .is_trusted = true };
	return vb_inbox_deliver(&msg);
}

/* As vb_outbox_type.send. */
static int hand_over(const void *message)
{
	const struct arrival *a = message;
	struct iovec iov = { (void *)(uintptr_t)&a->packet, sizeof(a->packet) };

	if (a->to_service)
		return vb_gsi_send_to_service(&a->service, &a->addr, &a->packet);
	return a->slot ? vb_inbox_send(a->slot, &a->addr, &iov, 1) : -ECONNREFUSED;
}

static bool is_for_same(const void *one, const void *other)
{
	const struct arrival *a = one, *b = other;

	if (a->to_service != b->to_service)
		return false;
	return a->to_service ? memcmp(&a->service, &b->service, sizeof(a->service)) == 0 : a->slot == b->slot;
}

static bool is_patient(const void *message)
{
	return ((const struct arrival *)message)->is_request;
}

/* What the CM of a listening host would answer. */
static void answer(const struct arrival *a)
{
	struct vb_inbox_addr back = { .src = a->addr.dst,
				      .dst = a->addr.src,
				      .traffic_class = a->addr.traffic_class };
	struct vb_cm_rx rx = { 0 };
	struct vb_cm_out out;

	if (vb_gsi_packet_parse(&a->packet, sizeof(a->packet), &rx.msg))
		return;
	if (a->is_request)
		vb_cm_refuse(NULL, &rx, VB_CM_REJ_INVALID_SERVICE_ID, &out);
	else
		vb_cm_answer_unknown(&rx, &out);
	for (unsigned i = 0; i < out.num_sends; i++)
		vb_gsi_send(&back, a->ifindex, &out.sends[i].mad, false);
}

/*
 * A request without a listener may repeat one that was taken before its listener went: the CM that took it
 * knows, any other refuses.
 */
static void answer_absent(const void *message)
{
	const struct arrival *a = message;

	if (!a->is_request || !deliver(a, vb_slot_first()))
		answer(a);
}

static const struct vb_outbox_type outbox_type = {
	.message_bytes = sizeof(struct arrival), .max_waiting = MAX_WAITING, .max_age_ns = MAX_AGE_NS,
	.send = hand_over, .is_for_same = is_for_same, .waits_if_absent = is_patient, .absent = answer_absent,
};

static void set_timer_locked(void)
{
	uint64_t deadline = vb_outbox_deadline(&waiting.outbox);

	if (deadline != VB_OUTBOX_NEVER)
		vb_timer_set(&waiting.timer, deadline);
}

static void pass_on(const struct arrival *a)
{
	bool is_for_slot = !a->to_service && a->slot;

	if (is_for_slot && vb_slot_is_mine(a->slot)) {
		if (!deliver(a, a->slot))
			answer(a);
		return;
	}
	if (is_for_slot)
		vb_udp_misdirected(); /* the steering looks at the slot in an id, too */
	pthread_mutex_lock(&waiting.lock);
	vb_outbox_send(&waiting.outbox, a, vb_now_ns());
	set_timer_locked();
	pthread_mutex_unlock(&waiting.lock);
}

static void try_again(struct vb_timer *timer, uint64_t now_ns)
{
	pthread_mutex_lock(&waiting.lock);
	vb_outbox_try(&waiting.outbox, now_ns);
	set_timer_locked();
	pthread_mutex_unlock(&waiting.lock);
}

/*
 * A client that gives up before it was answered says so with a REJ that names its own communication id alone.
 * So what was asked for under an id is remembered, as long as it is not overwritten: then the REJ goes where
 * the REQ went.
 */
static struct remembered {
	struct in6_addr source;
	uint32_t id;
	struct vb_cm_service service;
} remembered[REMEMBERED]; /* of the thread that receives */

static struct remembered *place_of(uint32_t id) { return &remembered[id & (REMEMBERED - 1)]; }

static void remember(const struct arrival *a, uint32_t id)
{
	*place_of(id) = (struct remembered){ .source = a->addr.src, .id = id, .service = a->service };
}

static bool recall(struct arrival *a, uint32_t id)
{
	const struct remembered *r = place_of(id);

	if (!id || r->id != id || !IN6_ARE_ADDR_EQUAL(&r->source, &a->addr.src))
		return false;
	a->service = r->service;
	return true;
}

/* A group has no QP 1, and nobody's address needs an answer. */
static bool is_unicast(const struct in6_addr *ip)
{
	static const struct in6_addr any_v4 = { .s6_addr = { [10] = 0xff, 0xff } };

	if (vb_ip_is_v4(ip))
		return !IN6_ARE_ADDR_EQUAL(ip, &any_v4) && ip->s6_addr[12] < 0xe0;
	return !IN6_IS_ADDR_MULTICAST(ip) && !IN6_IS_ADDR_UNSPECIFIED(ip);
}

static bool find_receiver(struct arrival *a, const struct vb_cm_msg *msg)
{
	uint32_t scope = IN6_IS_ADDR_LINKLOCAL(&a->addr.dst) ? a->ifindex : 0;
	uint32_t to = vb_cm_msg_destination_id(msg), from = vb_cm_msg_sender_id(msg);

	a->slot = vb_cm_id_slot(to);
	a->is_request = is_request(msg->attribute);
	if (a->is_request && !vb_cm_service_of(msg, a->addr.dst.s6_addr, scope, &a->service))
		return false;
	if (msg->attribute == VB_CM_ATTR_REQ)
		remember(a, from);
	a->to_service = a->is_request || (!to && msg->attribute == VB_CM_ATTR_REJ && recall(a, from));
	return true;
}

/* Claims to come from a local process that would have used an inbox. */
static bool is_forged(const struct vb_cm_msg *cm, const struct in6_addr *src)
{
	struct vb_cm_offer offer = vb_cm_msg_offer(cm);

	return vb_slot_is_spoofed(vb_cm_id_slot(vb_cm_msg_sender_id(cm)), src) ||
	       vb_slot_is_spoofed(offer.qpn[0] >> VB_SLOT_SHIFT, src) ||
	       vb_slot_is_spoofed(offer.qpn[1] >> VB_SLOT_SHIFT, src);
}

/* Fills in the arrival's packet. */
static bool makes_sense(const struct vb_inbox_msg *msg, struct arrival *a, struct vb_cm_msg *cm)
{
	if (msg->payload_bytes != sizeof(a->packet) || !is_unicast(&msg->addr.src) ||
	    !is_unicast(&msg->addr.dst))
		return false;
	memcpy(&a->packet, msg->payload, sizeof(a->packet));
	return !vb_gsi_packet_parse(&a->packet, sizeof(a->packet), cm);
}

static void receive(const struct vb_inbox_msg *msg, unsigned ifindex)
{
	struct arrival a = { .addr = msg->addr, .ifindex = ifindex };
	struct vb_cm_msg cm;

	if (!makes_sense(msg, &a, &cm)) {
		vb_drop(VB_DROP_MALFORMED);
		return;
	}
	if (is_forged(&cm, &msg->addr.src)) {
		vb_drop(VB_DROP_FORGED);
		return;
	}
	if (find_receiver(&a, &cm))
		pass_on(&a);
	else
		answer(&a);
}

/* Another thread that is at it may be in the middle of handing on. */
void vb_gsi_hand_on(void)
{
	uint64_t until = vb_now_ns() + HAND_ON_NS;

	while (!vb_udp_drain() && vb_now_ns() < until)
		vb_sleep_ns(NAP_NS);
}

/* ---- what comes back ---- */

static void (*_Atomic message_handler)(const struct vb_cm_msg *msg, const struct in6_addr *host);
static void (*_Atomic packet_handler)(uint32_t qpn, const struct in6_addr *host);

void vb_gsi_set_returned_handlers(void (*message)(const struct vb_cm_msg *msg, const struct in6_addr *host),
				  void (*packet)(uint32_t qpn, const struct in6_addr *host))
{
	atomic_store(&packet_handler, packet);
	atomic_store(&message_handler, message); /* which is looked at first */
}

/* The ICRC may be missing from the quotation, the message must not. */
static void take_returned(const struct in6_addr *host, const void *bytes, size_t len)
{
	struct vb_gsi_packet packet = { 0 };
	struct vb_cm_msg msg;

	if (len < VB_BTH_BYTES || !message_handler)
		return;
	memcpy(&packet, bytes, vb_min_u64(len, sizeof(packet)));
	uint32_t qpn = vb_bth_destination_qpn(&packet.bth);
	if (qpn != VB_GSI_QPN)
		packet_handler(qpn, host);
	else if (len >= sizeof(packet) && !vb_gsi_packet_parse(&packet, sizeof(packet), &msg))
		message_handler(&msg, host);
}

/* ---- life ---- */

/* The parent's messages are the parent's to deliver. */
static void forget(void)
{
	pthread_mutex_init(&waiting.lock, NULL);
	vb_outbox_init(&waiting.outbox, &outbox_type);
	memset(remembered, 0, sizeof(remembered));
}

__attribute__((constructor)) static void begin(void)
{
	vb_outbox_init(&waiting.outbox, &outbox_type);
	waiting.timer.fire = try_again;
	vb_roce_set_gsi_handler(receive);
	vb_udp_set_returned_handler(take_returned);
	vb_host_at_fork(forget);
}

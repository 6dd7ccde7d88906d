/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * QP 1: whom a message from the network is given to, and what is answered where nobody is. The host below is
 * the real one; what would go out over UDP is kept here instead.
 */
#include "child.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "adapter/inspection/counts.h"
#include "roce/packet_faults.h"
#include "roce/receive.h"
#include "ud/gsi.h"

enum { TCP = 0x0106, PORT = 7471, SENDER_ID = 0x12300045, OTHER_ID = 0x12300046, OTHER_IF = 7 };

/* ---- in place of the RoCE port ---- */

struct sent {
	struct vb_inbox_addr addr;
	unsigned ifindex;
	size_t len;
	uint8_t bytes[512];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sent last;
static atomic_uint sends;

static unsigned drops[VB_DROP_REASONS];
void vb_drop(enum vb_drop why) { drops[why]++; }

bool vb_faults_on_wire;
int vb_roce_transmit_faulty(const struct vb_roce_route *route, const void *bytes, size_t len, size_t segment)
{
	return 0;
}

static void (*gsi_arrived)(const struct vb_inbox_msg *msg, unsigned ifindex);
void vb_roce_set_gsi_handler(void (*arrived)(const struct vb_inbox_msg *msg, unsigned ifindex))
{
	gsi_arrived = arrived;
}

int vb_roce_transmit_now(const struct vb_roce_route *route, const void *bytes, size_t len, size_t segment)
{
	return vb_udp_send(&route->addr, route->ifindex, bytes, len, segment);
}

/* The linker puts it in vb_udp_set_returned_handler's place. */
void __wrap_vb_udp_set_returned_handler(void (*returned)(const struct in6_addr *host, const void *bytes,
							 size_t len));
static void (*bring_back)(const struct in6_addr *host, const void *bytes, size_t len);
void __wrap_vb_udp_set_returned_handler(void (*returned)(const struct in6_addr *host, const void *bytes,
							 size_t len))
{
	bring_back = returned;
}

/* And in vb_udp_misdirected's. */
void __wrap_vb_udp_misdirected(void);
static atomic_uint misdirected;
void __wrap_vb_udp_misdirected(void) { misdirected++; }

int vb_roce_open(void) { return 0; }
uint16_t vb_roce_source_port(uint32_t flow_label, uint32_t source_qpn, uint32_t destination_qpn)
{
	return (uint16_t)(0xc001 + flow_label % 0x1000);
}

void vb_roce_route_init(struct vb_roce_route *route, const struct vb_inbox_addr *addr, unsigned ifindex)
{
	*route = (struct vb_roce_route){ .addr = *addr, .ifindex = ifindex };
	route->icrc = (struct vb_icrc_route){ .ip_version = 4,
					      .source_port = addr->udp_sport,
					      .destination_port = VB_ROCE_PORT };
	memcpy(route->icrc.source, addr->src.s6_addr + 12, 4);
	memcpy(route->icrc.destination, addr->dst.s6_addr + 12, 4);
}

/* The linker puts it in vb_udp_send's place. */
int __wrap_vb_udp_send(const struct vb_inbox_addr *addr, unsigned ifindex, const void *bytes, size_t len,
		       size_t segment);
int __wrap_vb_udp_send(const struct vb_inbox_addr *addr, unsigned ifindex, const void *bytes, size_t len,
		       size_t segment)
{
	pthread_mutex_lock(&lock);
	last = (struct sent){ .addr = *addr, .ifindex = ifindex, .len = len };
	memcpy(last.bytes, bytes, len < sizeof(last.bytes) ? len : sizeof(last.bytes));
	pthread_mutex_unlock(&lock);
	atomic_fetch_add(&sends, 1);
	return 0;
}

/* The message that went out as number n (the first is 1), which must have been the last. */
static struct vb_cm_msg sent_message(unsigned n)
{
	struct vb_cm_msg msg;

	assert_true(WAIT_FOR(sends >= n));
	assert_int_equal(sends, n);
	pthread_mutex_lock(&lock);
	assert_int_equal(last.len, sizeof(struct vb_gsi_packet) + VB_ICRC_BYTES);
	assert_int_equal(vb_gsi_packet_parse(last.bytes, last.len - VB_ICRC_BYTES, &msg), 0);
	pthread_mutex_unlock(&lock);
	return msg;
}

/* ---- receivers ---- */

static atomic_uint at_exact, at_any, at_slot;

static void count(void *arg, const struct vb_inbox_msg *msg)
{
	struct vb_cm_msg cm;

	if (msg->sender_slot && !vb_gsi_packet_parse(msg->payload, msg->payload_bytes, &cm) &&
	    msg->addr.src.s6_addr[15] == 1 && msg->addr.dst.s6_addr[15] == 2)
		atomic_fetch_add((atomic_uint *)arg, 1);
}

static struct in6_addr v4(uint8_t last_byte)
{
	return (struct in6_addr){ .s6_addr = { [10] = 0xff, 0xff, 192, 0, 2, last_byte } };
}

static struct vb_cm_service service_at(const struct in6_addr *ip)
{
	struct vb_cm_service s = { .port_space = TCP, .port = PORT };

	memcpy(s.ip, ip, sizeof(s.ip));
	return s;
}

static void listen_at(struct vb_port *port, struct vb_cm_service service, atomic_uint *counter)
{
	struct vb_cm_service_name name = vb_cm_service_name(&service);

	memset(port, 0, sizeof(*port));
	assert_int_equal(vb_port_bind(port, &name, sizeof(name)), 0);
	assert_int_equal(vb_port_listen(port, count, counter), 0);
}

static struct vb_cm_service exact_service(void)
{
	struct in6_addr ip = v4(2);

	return service_at(&ip);
}

static struct vb_cm_service any_service(void)
{
	struct vb_cm_service exact = exact_service();

	return vb_cm_service_anywhere(&exact);
}

/* ---- what comes from the network ---- */

static struct vb_gsi_packet request(enum vb_cm_attribute attribute, uint16_t port)
{
	struct vb_gsi_packet p;
	struct vb_mad mad;

	vb_cm_msg_init(&mad, attribute, 1);
	if (attribute == VB_CM_ATTR_REQ) {
		vb_cm_req_msg_set_local_comm_id(vb_cm_req_in(&mad), SENDER_ID);
		vb_cm_req_msg_set_service_id(vb_cm_req_in(&mad), (uint64_t)TCP << 16 | port);
	} else {
		vb_cm_sidr_req_msg_set_request_id(vb_cm_sidr_req_in(&mad), SENDER_ID);
		vb_cm_sidr_req_msg_set_service_id(vb_cm_sidr_req_in(&mad), (uint64_t)TCP << 16 | port);
	}
	vb_gsi_packet_init(&p, &mad);
	return p;
}

/* A message to a communication id: RTU, DREQ and DREP have the ids at the same place. */
static struct vb_gsi_packet message_to(enum vb_cm_attribute attribute, uint32_t id)
{
	struct vb_gsi_packet p;
	struct vb_mad mad;

	vb_cm_msg_init(&mad, attribute, 1);
	vb_cm_rtu_msg_set_local_comm_id(vb_cm_rtu_in(&mad), SENDER_ID);
	vb_cm_rtu_msg_set_remote_comm_id(vb_cm_rtu_in(&mad), id);
	vb_gsi_packet_init(&p, &mad);
	return p;
}

static struct vb_inbox_msg arrival(const struct vb_gsi_packet *p)
{
	return (struct vb_inbox_msg){ .addr = { .src = v4(1), .dst = v4(2), .traffic_class = 8 },
				      .payload = (const uint8_t *)p, .payload_bytes = sizeof(*p) };
}

static void receive(const struct vb_gsi_packet *p)
{
	struct vb_inbox_msg msg = arrival(p);

	gsi_arrived(&msg, OTHER_IF);
}

static int setup(void **state)
{
	at_exact = at_any = at_slot = sends = misdirected = 0;
	vb_inbox_set_handler(VB_GSI_QPN, count, &at_slot);
	return vb_host_get();
}

static int teardown(void **state)
{
	vb_host_put();
	return 0;
}

/* ---- requests ---- */

static void request__goes_to_the_address_before_the_wildcard(void **state)
{
	struct vb_port exact, any;
	struct vb_gsi_packet p = request(VB_CM_ATTR_REQ, PORT);

	listen_at(&any, any_service(), &at_any);
	receive(&p);
	assert_true(WAIT_FOR(at_any == 1));
	assert_int_equal(misdirected, 0); /* requests come to anybody */
	listen_at(&exact, exact_service(), &at_exact);
	receive(&p);
	assert_true(WAIT_FOR(at_exact == 1));
	assert_int_equal(at_any, 1);
	assert_int_equal(sends, 0);
	vb_port_close(&exact);
	vb_port_close(&any);
}

/* It may repeat one that was taken before its listener went. */
static void request__without_a_listener_goes_to_the_cm(void **state)
{
	struct vb_gsi_packet req = request(VB_CM_ATTR_REQ, PORT);

	receive(&req);
	assert_true(WAIT_FOR(at_slot == 1));
	assert_int_equal(sends, 0);
}

static void request__nobody_listens_and_there_is_no_cm(void **state)
{
	struct vb_gsi_packet req = request(VB_CM_ATTR_REQ, PORT), sidr = request(VB_CM_ATTR_SIDR_REQ, PORT);

	vb_inbox_set_handler(VB_GSI_QPN, NULL, NULL);
	receive(&req);
	struct vb_cm_msg answer = sent_message(1);
	assert_int_equal(answer.attribute, VB_CM_ATTR_REJ);
	assert_int_equal(vb_cm_rej_msg_reason(vb_cm_rej_of(&answer.mad)), VB_CM_REJ_INVALID_SERVICE_ID);
	assert_int_equal(vb_cm_rej_msg_remote_comm_id(vb_cm_rej_of(&answer.mad)), SENDER_ID);
	struct in6_addr to = v4(1), from = v4(2);
	assert_memory_equal(&last.addr.dst, &to, sizeof(to));
	assert_memory_equal(&last.addr.src, &from, sizeof(from));
	assert_int_equal(last.addr.traffic_class, 8);
	assert_int_equal(last.ifindex, OTHER_IF);

	receive(&sidr);
	answer = sent_message(2);
	assert_int_equal(answer.attribute, VB_CM_ATTR_SIDR_REP);
	assert_int_equal(vb_cm_sidr_rep_msg_status(vb_cm_sidr_rep_of(&answer.mad)), VB_CM_SIDR_UNSUPPORTED);
	assert_int_equal(vb_cm_sidr_rep_msg_request_id(vb_cm_sidr_rep_of(&answer.mad)), SENDER_ID);
}

/* A service id that no port can have is refused at once. */
static void request__for_no_service(void **state)
{
	struct vb_gsi_packet p = request(VB_CM_ATTR_REQ, PORT);

	vb_cm_req_msg_set_service_id(vb_cm_req_in(&p.mad), 1ull << 40);
	receive(&p);
	assert_int_equal(sends, 1);
	assert_int_equal(sent_message(1).attribute, VB_CM_ATTR_REJ);
}

static void request__finds_a_listener_that_is_late(void **state)
{
	struct vb_gsi_packet p = request(VB_CM_ATTR_REQ, PORT);
	struct vb_port any;

	receive(&p);
	listen_at(&any, any_service(), &at_any);
	assert_true(WAIT_FOR(at_any == 1));
	assert_int_equal(sends, 0);
	vb_port_close(&any);
}

/* More than the port's queue holds: none is lost, none comes twice. */
static void request__waits_for_room(void **state)
{
	enum { MANY = 700 };
	struct vb_gsi_packet p = request(VB_CM_ATTR_REQ, PORT);
	struct vb_port any;

	listen_at(&any, any_service(), &at_any);
	for (unsigned i = 0; i < MANY; i++)
		receive(&p);
	assert_true(WAIT_FOR(at_any == MANY));
	usleep(20000);
	assert_int_equal(at_any, MANY);
	assert_int_equal(sends, 0);
	vb_port_close(&any);
}

/* ---- messages to an id ---- */

static void message__goes_to_the_slot_in_its_id(void **state)
{
	struct vb_gsi_packet p = message_to(VB_CM_ATTR_RTU, vb_cm_id_make(vb_slot_first(), 77));

	receive(&p);
	assert_int_equal(at_slot, 1);
	assert_int_equal(sends, 0);
	assert_int_equal(misdirected, 0);
}

/* ---- in whose name ---- */

static void take_links(int sock)
{
	CHILD_CHECK(vb_host_get() == 0);
	say(sock, vb_slot_first());
	hear(sock);
}

enum { NAMES = 4 };

/*
 * Sends four messages over UDP from this host's address. Each names a communication id or a queue pair of the
 * slot. Returns how many of them this process accepts.
 */
static unsigned count_in_the_name_of(uint32_t slot)
{
	static const struct in6_addr localhost = { .s6_addr = { [10] = 0xff, 0xff, 127, 0, 0, 1 } };
	uint32_t to = vb_cm_id_make(vb_slot_first(), 77), qpn = slot << VB_SLOT_SHIFT | 5;
	struct vb_gsi_packet rep = message_to(VB_CM_ATTR_REP, to),
			     messages[NAMES] = { message_to(VB_CM_ATTR_DREQ, to), rep, rep, rep };
	unsigned before = at_any;

	vb_cm_rtu_msg_set_local_comm_id(vb_cm_rtu_in(&messages[0].mad), vb_cm_id_make(slot, 5));
	vb_cm_rep_msg_set_local_qpn(vb_cm_rep_in(&messages[1].mad), qpn);
	vb_cm_rep_msg_set_local_eecn(vb_cm_rep_in(&messages[2].mad), qpn); /* an XRC target */
	vb_cm_msg_init(&messages[3].mad, VB_CM_ATTR_SIDR_REP, 1);
	vb_cm_sidr_rep_msg_set_request_id(vb_cm_sidr_rep_in(&messages[3].mad), to);
	vb_cm_sidr_rep_msg_set_qpn(vb_cm_sidr_rep_in(&messages[3].mad), qpn);
	for (int i = 0; i < NAMES; i++) {
		struct vb_inbox_msg msg = arrival(&messages[i]);
		msg.addr.src = localhost;
		gsi_arrived(&msg, OTHER_IF);
	}
	return at_any - before;
}

static void count_any(void *arg, const struct vb_inbox_msg *msg) { atomic_fetch_add(&at_any, 1); }

static void message__in_the_name_of_a_process_that_says_it_otherwise(void **state)
{
	struct child c = child_start(take_links);
	uint32_t slot = (uint32_t)hear(c.sock), nobodys = slot % (VB_SLOT_COUNT - 1) + 1;

	vb_inbox_set_handler(VB_GSI_QPN, count_any, NULL);
	if (vb_slot_is_mine(nobodys))
		nobodys = nobodys % (VB_SLOT_COUNT - 1) + 1;
	assert_true(WAIT_FOR(count_in_the_name_of(slot) == 0)); /* who takes links is known for a while */
	assert_int_equal(count_in_the_name_of(nobodys), NAMES);
	assert_true(drops[VB_DROP_FORGED] >= NAMES);
	assert_int_equal(child_end(&c), 0);
}

static void count_in_child(int sock)
{
	CHILD_CHECK(vb_host_get() == 0);
	say(sock, vb_slot_first());
	CHILD_CHECK(WAIT_FOR(at_slot == 1));
	say(sock, 1);
	hear(sock);
}

static void message__goes_to_another_process(void **state)
{
	struct child c = child_start(count_in_child);
	struct vb_gsi_packet p = message_to(VB_CM_ATTR_RTU, vb_cm_id_make((uint32_t)hear(c.sock), 77));

	receive(&p);
	assert_int_equal(hear(c.sock), 1);
	assert_int_equal(at_slot, 0);
	assert_int_equal(misdirected, 1); /* better it had come there at once */
	assert_int_equal(child_end(&c), 0);
}

/* What is still believed to be a connection ends; what needs no answer gets none. */
static void message__to_nobody(void **state)
{
	struct vb_gsi_packet p = message_to(VB_CM_ATTR_RTU, vb_cm_id_make(VB_SLOT_COUNT - 1, 5));

	receive(&p);
	struct vb_cm_msg answer = sent_message(1);
	assert_int_equal(answer.attribute, VB_CM_ATTR_REJ);
	assert_int_equal(vb_cm_rej_msg_reason(vb_cm_rej_of(&answer.mad)), VB_CM_REJ_INVALID_COMM_ID);
	p = message_to(VB_CM_ATTR_DREQ, vb_cm_id_make(VB_SLOT_COUNT - 1, 5));
	receive(&p);
	answer = sent_message(2);
	assert_int_equal(answer.attribute, VB_CM_ATTR_DREP);
	assert_int_equal(vb_cm_drep_msg_remote_comm_id(vb_cm_drep_of(&answer.mad)), SENDER_ID);
	p = message_to(VB_CM_ATTR_DREP, vb_cm_id_make(VB_SLOT_COUNT - 1, 5));
	receive(&p);
	p = message_to(VB_CM_ATTR_REJ, vb_cm_id_make(VB_SLOT_COUNT - 1, 5));
	receive(&p);
	misdirected = 0;
	p = message_to(VB_CM_ATTR_REJ, 0);
	receive(&p);
	assert_int_equal(misdirected, 0);
	assert_int_equal(sends, 2);
}

/*
 * A REJ that names its sender's id alone follows the REQ that it takes back; from another address it follows
 * nothing.
 */
static void given_up__goes_where_the_request_went(void **state)
{
	struct vb_gsi_packet req = request(VB_CM_ATTR_REQ, PORT), rej = message_to(VB_CM_ATTR_REJ, 0);
	struct vb_inbox_msg stranger = arrival(&rej);
	struct vb_port any;

	vb_cm_req_msg_set_local_comm_id(vb_cm_req_in(&req.mad), OTHER_ID);
	vb_cm_rej_msg_set_local_comm_id(vb_cm_rej_in(&rej.mad), OTHER_ID);
	listen_at(&any, any_service(), &at_any);
	receive(&rej);
	receive(&req);
	stranger.addr.src = v4(9);
	gsi_arrived(&stranger, 0);
	receive(&rej);
	assert_true(WAIT_FOR(at_any == 2));
	usleep(20000);
	assert_int_equal(at_any, 2);
	assert_int_equal(sends, 0);
	vb_port_close(&any);
}

/* ---- hostile input ---- */

static void expect_unanswered(const struct vb_inbox_msg *msg)
{
	gsi_arrived(msg, 0);
	assert_int_equal(at_slot, 0);
	assert_int_equal(sends, 0);
}

static void expect_dropped(const struct vb_inbox_msg *msg)
{
	unsigned before = drops[VB_DROP_MALFORMED];
	expect_unanswered(msg);
	assert_int_equal(drops[VB_DROP_MALFORMED], before + 1);
}

static void hostile__packets_are_dropped(void **state)
{
	const struct vb_gsi_packet good = message_to(VB_CM_ATTR_DREQ, vb_cm_id_make(VB_SLOT_COUNT - 1, 5));
	uint8_t longer[sizeof(good) + 4] = { 0 };
	struct vb_gsi_packet p = good;
	struct vb_inbox_msg msg = arrival(&p);

	for (size_t n = VB_BTH_BYTES; n < sizeof(p); n += 4) {
		msg.payload_bytes = n;
		expect_dropped(&msg);
	}
	memcpy(longer, &good, sizeof(good));
	msg.payload = longer;
	msg.payload_bytes = sizeof(longer);
	expect_dropped(&msg);

	msg = arrival(&p);
	vb_deth_set_qkey(&p.deth, 0x01234567);
	expect_dropped(&msg);
	p = good;
	vb_bth_set_opcode(&p.bth, VB_OPCODE(RC, SEND_ONLY));
	expect_dropped(&msg);
	p = good;
	vb_bth_set_pkey(&p.bth, 0x8001);
	expect_dropped(&msg);
	p = good;
	vb_bth_set_pad_count(&p.bth, 3);
	expect_dropped(&msg);
	p = good;
	vb_mad_set_mgmt_class(&p.mad, 3);
	expect_dropped(&msg);
	p = message_to(VB_CM_ATTR_DREQ, 0);
	expect_unanswered(&msg);
}

/* Nothing that could make this host speak to a group, or to nobody. */
static void hostile__addresses_are_dropped(void **state)
{
	const struct in6_addr bad[] = {
		{ .s6_addr = { [10] = 0xff, 0xff, 239, 1, 1, 1 } }, { .s6_addr = { [10] = 0xff, 0xff, 255, 255, 255, 255 } },
		{ .s6_addr = { [10] = 0xff, 0xff } }, { .s6_addr = { 0xff, 2, [15] = 1 } }, { .s6_addr = { 0 } },
	};
	struct vb_gsi_packet p = message_to(VB_CM_ATTR_DREQ, vb_cm_id_make(VB_SLOT_COUNT - 1, 5));

	for (size_t i = 0; i < VB_ARRAY_LEN(bad); i++) {
		struct vb_inbox_msg from = arrival(&p), to = from;
		from.addr.src = bad[i];
		expect_dropped(&from);
		to.addr.dst = bad[i];
		expect_dropped(&to);
	}
	receive(&p); /* the same message is answered otherwise */
	assert_int_equal(sends, 1);
}

/* ---- sending ---- */

static void send__is_a_whole_packet(void **state)
{
	struct vb_gsi_packet p = message_to(VB_CM_ATTR_RTU, 5);
	struct vb_inbox_addr addr = { .src = v4(2), .dst = v4(1) };
	struct vb_roce_route route;

	assert_int_equal(vb_gsi_send(&addr, 3, &p.mad, false), 0);
	struct vb_cm_msg msg = sent_message(1);
	assert_memory_equal(&msg.mad, &p.mad, sizeof(p.mad));
	assert_int_equal(last.ifindex, 3);
	assert_int_not_equal(last.addr.udp_sport, 0);
	vb_roce_route_init(&route, &last.addr, 3);
	assert_true(vb_icrc_check(&route.icrc, last.bytes, last.len, 0));
	const struct vb_bth *bth = (const struct vb_bth *)last.bytes;
	uint32_t psn = vb_bth_psn(bth);
	assert_int_equal(vb_bth_mig_req(bth), 1);
	assert_int_equal(vb_gsi_send(&addr, 3, &p.mad, false), 0);
	assert_int_equal(vb_bth_psn((const struct vb_bth *)last.bytes), (psn + 1) & VB_PSN_MASK);
}

/* The process that got it may be stopped: another port, and the kernel chooses again. */
static void send__repeated_requests_come_from_other_ports(void **state)
{
	struct vb_gsi_packet req = request(VB_CM_ATTR_REQ, PORT), rtu = message_to(VB_CM_ATTR_RTU, 5);
	struct vb_inbox_addr addr = { .src = v4(2), .dst = v4(1) };

	assert_int_equal(vb_gsi_send(&addr, 3, &req.mad, false), 0);
	uint16_t first = last.addr.udp_sport;
	assert_int_equal(vb_gsi_send(&addr, 3, &req.mad, true), 0);
	uint16_t second = last.addr.udp_sport;
	assert_int_not_equal(second, first);
	assert_int_equal(vb_gsi_send(&addr, 3, &req.mad, true), 0);
	assert_int_not_equal(last.addr.udp_sport, first);
	assert_int_not_equal(last.addr.udp_sport, second);
	assert_int_equal(vb_gsi_send(&addr, 3, &rtu.mad, true), 0);
	assert_int_equal(last.addr.udp_sport, first);
}

/* ---- what comes back ---- */

static unsigned returned;
static struct vb_cm_msg returned_msg;

static void note_returned(const struct vb_cm_msg *msg, const struct in6_addr *host)
{
	returned++;
	returned_msg = *msg;
	assert_int_equal(host->s6_addr[15], 1);
}

static uint32_t returned_qpn;
static void note_packet(uint32_t qpn, const struct in6_addr *host)
{
	returned_qpn = qpn;
	assert_int_equal(host->s6_addr[15], 1);
}

static void returned__is_told_if_it_is_whole(void **state)
{
	struct vb_gsi_packet p = request(VB_CM_ATTR_REQ, PORT);
	struct in6_addr host = v4(1);

	bring_back(&host, &p, sizeof(p)); /* nobody wants to hear it */
	vb_gsi_set_returned_handlers(note_returned, note_packet);
	for (size_t len = 0; len < sizeof(p); len++)
		bring_back(&host, &p, len);
	assert_int_equal(returned, 0);
	bring_back(&host, &p, sizeof(p));
	assert_int_equal(returned, 1);
	assert_memory_equal(&returned_msg.mad, &p.mad, sizeof(p.mad));
	vb_bth_set_destination_qpn(&p.bth, 2);
	bring_back(&host, &p, sizeof(p));
	assert_int_equal(returned, 1);
	vb_gsi_set_returned_handlers(NULL, NULL);
}

static void returned__of_a_queue_pair_is_told_by_its_receiver(void **state)
{
	struct vb_bth bth = { 0 };
	struct in6_addr host = v4(1);

	returned_qpn = 0;
	vb_bth_set_destination_qpn(&bth, 0x123456);
	bring_back(&host, &bth, sizeof(bth)); /* nobody wants to hear it */
	vb_gsi_set_returned_handlers(note_returned, note_packet);
	bring_back(&host, &bth, sizeof(bth) - 1);
	assert_int_equal(returned_qpn, 0);
	bring_back(&host, &bth, sizeof(bth));
	assert_int_equal(returned_qpn, 0x123456);
	vb_gsi_set_returned_handlers(NULL, NULL);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(request__goes_to_the_address_before_the_wildcard),
		CASE(request__without_a_listener_goes_to_the_cm),
		CASE(request__nobody_listens_and_there_is_no_cm),
		CASE(request__for_no_service),
		CASE(request__finds_a_listener_that_is_late),
		CASE(request__waits_for_room),
		CASE(message__goes_to_the_slot_in_its_id),
		CASE(message__in_the_name_of_a_process_that_says_it_otherwise),
		CASE(message__goes_to_another_process),
		CASE(message__to_nobody),
		CASE(given_up__goes_where_the_request_went),
		CASE(hostile__packets_are_dropped),
		CASE(hostile__addresses_are_dropped),
		CASE(send__is_a_whole_packet),
		CASE(send__repeated_requests_come_from_other_ports),
		CASE(returned__is_told_if_it_is_whole),
		CASE(returned__of_a_queue_pair_is_told_by_its_receiver),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

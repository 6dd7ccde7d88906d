/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The RoCE port over a UDP port of the test's own: what is sent in one go, how it is signed, and who gets
 * what comes in.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "../between.h"
#include "adapter/inspection/counts.h"
#include "adapter/progress/path.h"
#include "adapter/progress/progress.h"
#include "base/log.h"
#include "host/ipc/capture.h"
#include "roce/burst.h"
#include "roce/delayed_ack.h"
#include "roce/deliver.h"
#include "roce/forward.h"
#include "roce/packet_faults.h"
#include "roce/receive.h"
#include "wire/headers.h"

enum { HEADER = VB_BTH_BYTES, MY_SLOT = 7, OTHER_SLOT = 8, MAX_SENDS = 8 };

/* ---- the world below and beside the port ---- */

static struct {
	size_t len, segment;
	struct vb_inbox_addr addr;
	uint8_t bytes[VB_UDP_MAX_BYTES];
} sends[MAX_SENDS];
static unsigned nsends, segments;
static bool refuses_segments;
static int send_result;
static void (*port_packet)(const struct vb_udp_packet *);
static struct {
	unsigned delivered, forwarded, gsi;
	uint32_t slot;
	size_t bytes;
} got;

int vb_udp_send(const struct vb_inbox_addr *addr, unsigned ifindex, const void *bytes, size_t len,
		size_t segment)
{
	if (refuses_segments && len > segment)
		return -EOPNOTSUPP;
	if (send_result)
		return send_result;
	assert_true(nsends < MAX_SENDS);
	sends[nsends].len = len;
	sends[nsends].segment = segment;
	sends[nsends].addr = *addr;
	memcpy(sends[nsends++].bytes, bytes, len);
	return 0;
}

atomic_bool vb_capture_flag;
static struct vb_capture_note notes[MAX_SENDS];
static unsigned nnotes;

struct vb_capture_moment vb_capture_begin_now(void)
{
	return (struct vb_capture_moment){ .time_ns = vb_now_ns() };
}

void vb_capture_end_now(struct vb_capture_moment moment) {}

void vb_capture_packet(const struct vb_capture_note *note, const struct iovec *pieces, unsigned count)
{
	assert_true(nnotes < MAX_SENDS);
	notes[nnotes++] = *note;
}

void vb_udp_set_handler(void (*packet)(const struct vb_udp_packet *), void (*done)(void))
{
	port_packet = packet;
}
int vb_udp_open(void) { return 0; }
bool vb_udp_is_open(void) { return false; }

/* What polls see: a clock that goes on by steps, one of them long; packets that have come. */
static struct {
	const struct vb_path_io *io;
	uint64_t now_ns, step_ns;
	unsigned long_step_in; /* so many looks at the clock from now; 0: none */
	uint64_t packets_in;
	unsigned looks;
	bool is_progress_thread, is_receiving;
} polled;

bool vb_udp_receive(void)
{
	polled.looks++;
	return false;
}

bool vb_udp_is_receiving(void) { return polled.is_receiving; }
bool vb_udp_has_arrivals(void) { return false; }
void vb_udp_watch(bool wake) { }
uint16_t vb_udp_source_port(const struct vb_inbox_addr *addr) { return addr->udp_sport; }
unsigned vb_udp_segments(void) { return segments; }
void vb_udp_misdirected(void) { }
void vb_udp_count(struct vb_udp_counts *counts) { counts->packets_in = polled.packets_in; }
bool vb_loop_is_current(void) { return polled.is_progress_thread; }

uint64_t vb_now_ns(void)
{
	if (polled.long_step_in && !--polled.long_step_in)
		polled.now_ns += 3000000;
	return polled.now_ns += polled.step_ns;
}

void vb_delayed_ack_send(void) { }
void vb_progress_note_work(void) { }
void vb_progress_note_arrivals(void) { }
void vb_path_set_io(const struct vb_path_io *io) { polled.io = io; }

static void (*children[4])(void);
static unsigned nchildren;
void vb_host_at_fork(void (*child)(void)) { children[nchildren++] = child; }

static void in_child(void)
{
	for (unsigned i = 0; i < nchildren; i++)
		children[i]();
}

bool vb_slot_is_mine(uint32_t slot) { return slot == MY_SLOT; }

static uint32_t belied; /* a slot in whose name others speak */
bool vb_slot_is_spoofed(uint32_t slot, const struct in6_addr *src) { return slot == belied; }

static unsigned drops[VB_DROP_REASONS];
void vb_drop(enum vb_drop why) { drops[why]++; }

static void note(unsigned *count, const struct vb_inbox_msg *msg)
{
	++*count;
	got.bytes = msg->payload_bytes;
}

bool vb_faults_on_wire;
int vb_roce_transmit_faulty(const struct vb_roce_route *route, const void *bytes, size_t len, size_t segment)
{
	return 0;
}
void vb_roce_deliver(const struct vb_inbox_msg *msg, unsigned ifindex, struct vb_roce_batch *batch)
{
	note(&got.delivered, msg);
}
void vb_roce_batch_end(struct vb_roce_batch *batch) { }
static void gsi_arrived(const struct vb_inbox_msg *msg, unsigned ifindex) { note(&got.gsi, msg); }

void vb_forward(uint32_t slot, const struct vb_inbox_msg *msg)
{
	note(&got.forwarded, msg);
	got.slot = slot;
}

/* ---- helpers ---- */

static struct vb_roce_route route_to(uint8_t last_byte)
{
	struct vb_inbox_addr addr = { .udp_sport = 0xc123 };
	struct vb_roce_route route;

	addr.src.s6_addr[10] = addr.src.s6_addr[11] = addr.dst.s6_addr[10] = addr.dst.s6_addr[11] = 0xff;
	addr.src.s6_addr[12] = addr.dst.s6_addr[12] = 10;
	addr.src.s6_addr[15] = 1;
	addr.dst.s6_addr[15] = last_byte;
	vb_roce_route_init(&route, &addr, 0);
	return route;
}

static bool add(struct vb_burst *b, const struct vb_roce_route *route, size_t payload, uint8_t fill)
{
	uint8_t header[HEADER] = {
		0x04, 0, 0xff, 0xff, 0, MY_SLOT >> 4, (MY_SLOT & 15) << 4, 9, 0, 0, 0, fill
	};
	memset(vb_burst_begin(b, route, header, sizeof(header), payload), fill, payload);
	return vb_burst_commit(b);
}

/* Each segment carries the ICRC of its identification, and its payload. */
static void check_send(unsigned n, const struct vb_roce_route *route, size_t count, size_t segment,
		       size_t last)
{
	assert_true(n < nsends);
	assert_int_equal(sends[n].segment, segment);
	assert_int_equal(sends[n].len, (count - 1) * segment + last);
	for (size_t i = 0; i < count; i++)
		assert_true(vb_icrc_check(&route->icrc, sends[n].bytes + i * segment,
					  i + 1 < count ? segment : last, (uint16_t)i));
}

static int setup(void **state)
{
	memset(&got, 0, sizeof(got));
	nsends = 0;
	segments = VB_UDP_MAX_SEGMENTS;
	refuses_segments = false;
	send_result = 0;
	vb_roce_set_gsi_handler(gsi_arrived);
	return 0;
}

/* ---- sending ---- */

static void equal_packets_go_out_together(void **state)
{
	struct vb_roce_route route = route_to(2);
	struct vb_burst *b = vb_burst_take(VB_BURST_REQUESTS);
	for (uint8_t i = 0; i < 5; i++)
		add(b, &route, 100, i);
	assert_int_equal(nsends, 0);
	vb_burst_give(b);
	assert_int_equal(nsends, 1);
	check_send(0, &route, 5, HEADER + 100 + 4, HEADER + 100 + 4);
}

static void a_shorter_packet_is_the_last(void **state)
{
	struct vb_roce_route route = route_to(2);
	struct vb_burst *b = vb_burst_take(VB_BURST_REQUESTS);
	add(b, &route, 64, 1);
	add(b, &route, 63, 2); /* padded to as much */
	add(b, &route, 60, 3);
	add(b, &route, 60, 4);
	vb_burst_give(b);
	assert_int_equal(nsends, 2);
	check_send(0, &route, 3, HEADER + 64 + 4, HEADER + 60 + 4);
	check_send(1, &route, 1, HEADER + 60 + 4, HEADER + 60 + 4);
}

static void padding_is_zero(void **state)
{
	struct vb_roce_route route = route_to(2);
	struct vb_burst *b = vb_burst_take(VB_BURST_REQUESTS);
	add(b, &route, 64, 0xee);
	vb_burst_flush(b); /* leaves its bytes behind */
	add(b, &route, 61, 0xee);
	vb_burst_give(b);
	assert_int_equal(sends[1].len, HEADER + 64 + 4);
	assert_memory_equal(sends[1].bytes + HEADER + 61, "\0\0\0", 3);
}

static void a_longer_packet_begins_anew(void **state)
{
	struct vb_roce_route route = route_to(2);
	struct vb_burst *b = vb_burst_take(VB_BURST_REQUESTS);
	assert_true(add(b, &route, 60, 1));
	assert_true(add(b, &route, 60, 2));
	vb_burst_begin(b, &route, (uint8_t[HEADER]){ 0 }, HEADER, 70); /* abandoned */
	assert_true(add(b, &route, 64, 3));
	assert_true(add(b, &route, 64, 4));
	assert_false(add(b, &route, 20, 5));
	assert_int_equal(nsends, 0); /* who fills it holds a lock */
	vb_burst_give(b);
	assert_int_equal(nsends, 2);
	check_send(0, &route, 2, HEADER + 60 + 4, HEADER + 60 + 4);
	check_send(1, &route, 3, HEADER + 64 + 4, HEADER + 20 + 4);
	assert_int_equal(sends[1].bytes[HEADER], 3);
}

/* As long as none says that the burst is full, the next may be of any length. */
static void packets_grow_and_grow(void **state)
{
	enum { STEP = 512 };
	struct vb_roce_route route = route_to(2);
	struct vb_burst *b = vb_burst_take(VB_BURST_REQUESTS);
	unsigned n = 0;
	while (add(b, &route, ++n * STEP, 1))
		assert_int_equal(nsends, 0);
	vb_burst_give(b);
	assert_int_equal(nsends, n);
	for (unsigned i = 0; i < n; i++)
		check_send(i, &route, 1, HEADER + (i + 1) * STEP + 4, HEADER + (i + 1) * STEP + 4);
}

static void a_longer_packet_after_many(void **state)
{
	enum { MANY = VB_UDP_MAX_BYTES / (HEADER + 4000 + 4) - 1 };
	struct vb_roce_route route = route_to(2);
	struct vb_burst *b = vb_burst_take(VB_BURST_REQUESTS);
	for (unsigned i = 0; i < MANY; i++)
		assert_true(add(b, &route, 4000, 1));
	assert_false(add(b, &route, 4096, 2));
	assert_int_equal(nsends, 0);
	vb_burst_give(b);
	check_send(0, &route, MANY, HEADER + 4000 + 4, HEADER + 4000 + 4);
	check_send(1, &route, 1, HEADER + 4096 + 4, HEADER + 4096 + 4);
}

/* The route that a burst was begun with is its packets', whatever becomes of it meanwhile. */
static void what_goes_along_has_the_bursts_route(void **state)
{
	const uint8_t header[HEADER] = { 0 };
	struct vb_roce_route route = route_to(2), before = route;
	struct vb_burst *b = vb_burst_take(VB_BURST_REQUESTS);
	add(b, &route, 100, 1);
	route = route_to(3);
	vb_burst_send_ahead(b, header, HEADER);
	check_send(0, &before, 1, HEADER + 4, HEADER + 4);
	vb_burst_append(b, header, HEADER);
	assert_int_equal(nsends, 1);
	vb_burst_give(b);
	assert_int_equal(nsends, 2);
	check_send(1, &before, 2, HEADER + 100 + 4, HEADER + 4);
}

/* What the parent had in its bursts is not the child's to send. */
static void a_child_begins_with_empty_bursts(void **state)
{
	struct vb_roce_route route = route_to(2);
	struct vb_burst *b = vb_burst_take(VB_BURST_REQUESTS);
	add(b, &route, 60, 1);
	add(b, &route, 64, 2);
	in_child();
	assert_ptr_equal(vb_burst_take(VB_BURST_REQUESTS), b);
	add(b, &route, 100, 3);
	vb_burst_give(b);
	assert_int_equal(nsends, 1);
	check_send(0, &route, 1, HEADER + 100 + 4, HEADER + 100 + 4);
	assert_int_equal(sends[0].bytes[HEADER], 3);
}

static void flows_do_not_mix(void **state)
{
	struct vb_roce_route one = route_to(2), other = route_to(3);
	struct vb_burst *b = vb_burst_take(VB_BURST_REQUESTS);
	add(b, &one, 64, 1);
	add(b, &other, 64, 2);
	add(b, &one, 64, 3);
	vb_burst_give(b);
	assert_int_equal(nsends, 3);
	check_send(1, &other, 1, HEADER + 64 + 4, HEADER + 64 + 4);
	assert_int_equal(sends[1].addr.dst.s6_addr[15], 3);
}

static void no_more_than_the_kernel_takes(void **state)
{
	struct vb_roce_route route = route_to(2);
	struct vb_burst *b = vb_burst_take(VB_BURST_REQUESTS);
	for (int i = 0; i < VB_UDP_MAX_SEGMENTS + 1; i++)
		add(b, &route, 64, 1);
	for (int i = 0; i < 20; i++)
		add(b, &route, 4096, 2);
	vb_burst_give(b);
	check_send(0, &route, VB_UDP_MAX_SEGMENTS, HEADER + 64 + 4, HEADER + 64 + 4);
	for (unsigned i = 0; i < nsends; i++)
		assert_true(sends[i].len <= VB_UDP_MAX_BYTES);
}

static void an_abandoned_packet_is_not_sent(void **state)
{
	struct vb_roce_route route = route_to(2);
	struct vb_burst *b = vb_burst_take(VB_BURST_REQUESTS);
	add(b, &route, 64, 1);
	vb_burst_begin(b, &route, (uint8_t[HEADER]){ 0 }, HEADER, 64);
	add(b, &route, 64, 3);
	vb_burst_give(b);
	check_send(0, &route, 2, HEADER + 64 + 4, HEADER + 64 + 4);
	assert_int_equal(sends[0].bytes[HEADER + 64 + 4 + HEADER], 3);
}

static void without_segmentation_each_is_signed_for_itself(void **state)
{
	struct vb_roce_route route = route_to(2);
	struct vb_burst *b = vb_burst_take(VB_BURST_REQUESTS);
	refuses_segments = true;
	for (uint8_t i = 0; i < 3; i++)
		add(b, &route, i < 2 ? 100 : 40, i);
	vb_burst_give(b);
	assert_int_equal(nsends, 3);
	check_send(1, &route, 1, HEADER + 100 + 4, HEADER + 100 + 4);
	check_send(2, &route, 1, HEADER + 40 + 4, HEADER + 40 + 4);
}

static char said[1024];
static unsigned sentences;

static void hear(const char *call, const char *sentence)
{
	snprintf(said, sizeof(said), "%s: %s", call, sentence);
	sentences++;
}

static void send_in_vain(int err)
{
	struct vb_roce_route route = route_to(2);
	struct vb_burst *b = vb_burst_take(VB_BURST_REQUESTS);
	send_result = err;
	add(b, &route, 100, 1);
	vb_burst_give(b);
}

/* Once for each error: a connection repeats what is lost. */
static void what_the_kernel_refuses_is_explained(void **state)
{
	vb_explain_copy(hear);
	send_in_vain(-EAGAIN);
	assert_int_equal(sentences, 0);
	send_in_vain(-EMSGSIZE);
	assert_int_equal(sentences, 1);
	assert_non_null(strstr(said, strerror(EMSGSIZE)));
	assert_non_null(strstr(said, "::ffff:10.0.0.2"));
	send_in_vain(-EMSGSIZE);
	assert_int_equal(sentences, 1);
	send_in_vain(-EPERM);
	assert_int_equal(sentences, 2);
	assert_non_null(strstr(said, strerror(EPERM)));
	vb_explain_copy(NULL);
}

static void a_full_burst_says_so(void **state)
{
	struct vb_roce_route route = route_to(2);
	struct vb_burst *b = vb_burst_take(VB_BURST_REQUESTS);
	for (int i = 1; i <= VB_UDP_MAX_SEGMENTS; i++)
		assert_int_equal(add(b, &route, 64, 1), i < VB_UDP_MAX_SEGMENTS);
	vb_burst_flush(b);
	assert_true(add(b, &route, 64, 1));
	assert_false(add(b, &route, 60, 2)); /* a shorter one is the last */
	vb_burst_flush(b);
	for (unsigned i = 1; i <= VB_UDP_MAX_BYTES / (HEADER + 4096 + 4); i++)
		assert_int_equal(add(b, &route, 4096, 2), i < VB_UDP_MAX_BYTES / (HEADER + 4096 + 4));
	assert_int_equal(nsends, 2);
	vb_burst_give(b);
}

/* It leaves without the lock that the route is changed under. */
static void a_burst_goes_where_it_was_begun_for(void **state)
{
	struct vb_roce_route route = route_to(2), before = route;
	struct vb_burst *b = vb_burst_take(VB_BURST_REQUESTS);
	add(b, &route, 64, 1);
	route = route_to(3);
	vb_burst_give(b);
	check_send(0, &before, 1, HEADER + 64 + 4, HEADER + 64 + 4);
	assert_int_equal(sends[0].addr.dst.s6_addr[15], 2);
}

/* ---- receiving ---- */

/* A packet with that destination QPN as it would come in with this IPv4 identification. */
enum { FILL = 0x5a, RC_SEND_ONLY = 0x04, UD_SEND_ONLY = 0x64 };

static struct vb_udp_packet arrival_of(uint8_t opcode, struct vb_roce_route route, uint32_t qpn,
				       uint16_t ip_id)
{
	static uint8_t bytes[HEADER + 32 + 4];
	struct vb_bth bth;

	memset(bytes, FILL, sizeof(bytes));
	memset(&bth, 0, sizeof(bth));
	vb_bth_set_opcode(&bth, opcode);
	vb_bth_set_destination_qpn(&bth, qpn);
	memcpy(bytes, &bth, sizeof(bth));
	uint32_t crc = vb_icrc_begin(&route.icrc, &bth, sizeof(bytes), ip_id);
	vb_icrc_store(vb_icrc_add(crc, bytes + HEADER, 32), bytes + HEADER + 32);
	return (struct vb_udp_packet){ .addr = route.addr, .bytes = bytes, .len = sizeof(bytes) };
}

static struct vb_udp_packet arrival_by(struct vb_roce_route route, uint32_t qpn, uint16_t ip_id)
{
	return arrival_of(RC_SEND_ONLY, route, qpn, ip_id);
}

static struct vb_udp_packet arrival(uint32_t qpn, uint16_t ip_id)
{
	return arrival_by(route_to(2), qpn, ip_id);
}

static void receive(uint32_t qpn, uint16_t ip_id)
{
	struct vb_udp_packet p = arrival(qpn, ip_id);
	port_packet(&p);
}

static void each_packet_finds_its_process(void **state)
{
	receive(MY_SLOT << VB_SLOT_SHIFT | 5, 0);
	assert_int_equal(got.delivered, 1);
	assert_int_equal(got.bytes, HEADER + 32); /* without its ICRC */
	receive(OTHER_SLOT << VB_SLOT_SHIFT | 5, 0xbeef);
	assert_int_equal(got.forwarded, 1);
	assert_int_equal(got.slot, OTHER_SLOT);
	assert_int_equal(got.bytes, HEADER + 32);
	receive(1, 3);
	assert_int_equal(got.gsi, 1);
	receive(VB_MULTICAST_QPN, 3);
	assert_int_equal(got.delivered, 2);
	unsigned before = drops[VB_DROP_NO_QP];
	receive(0, 0); /* QP 0 does not exist on RoCE */
	receive(2, 0);
	assert_int_equal(got.delivered + got.forwarded + got.gsi, 4);
	assert_int_equal(drops[VB_DROP_NO_QP] - before, 2);
}

/* All bytes behind the BTH are FILL, so the datagram's source, too. */
static void datagrams_in_others_names_are_dropped(void **state)
{
	const uint32_t source_slot = (FILL << 16 | FILL << 8 | FILL) >> VB_SLOT_SHIFT,
		       qpn = MY_SLOT << VB_SLOT_SHIFT | 5;
	struct vb_udp_packet datagram = arrival_of(UD_SEND_ONLY, route_to(2), qpn, 0);
	belied = source_slot;
	port_packet(&datagram);
	assert_int_equal(got.delivered, 0);
	receive(qpn, 0); /* a connection's packet names no source */
	assert_int_equal(got.delivered, 1);
	belied = source_slot + 1;
	datagram = arrival_of(UD_SEND_ONLY, route_to(2), qpn, 0);
	port_packet(&datagram);
	assert_int_equal(got.delivered, 2);
	belied = 0;
}

/* What is known of one flow's packets is not taken for another's of the same length. */
static void flows_of_like_packets_arrive_in_turn(void **state)
{
	for (unsigned i = 0; i < 60; i++) {
		struct vb_udp_packet p =
			arrival_by(route_to((uint8_t)(2 + i / 6 % 2)), MY_SLOT << VB_SLOT_SHIFT | 5, 0);
		port_packet(&p);
		assert_int_equal(got.delivered, i + 1);
	}
}

static void damaged_packets_are_dropped(void **state)
{
	struct vb_udp_packet p = arrival(MY_SLOT << VB_SLOT_SHIFT, 77);
	uint8_t *bytes = (uint8_t *)(uintptr_t)p.bytes;
	port_packet(&p);
	assert_int_equal(got.delivered, 1);
	for (size_t i = 0; i < p.len; i++) {
		if (i == 4)
			continue; /* FECN and BECN may change under way */
		bytes[i] ^= 0x10;
		port_packet(&p);
		bytes[i] ^= 0x10;
	}
	for (size_t len = 0; len < p.len; len++) {
		struct vb_udp_packet cut = p;
		cut.len = len;
		port_packet(&cut);
	}
	assert_int_equal(got.delivered + got.forwarded + got.gsi, 1);
}

static void source_ports_are_dynamic_and_stay(void **state)
{
	/* one port per connection */
	assert_int_equal(vb_roce_source_port(0, 11, 12), vb_roce_source_port(0, 12, 11));
	assert_int_equal(vb_roce_source_port(0x12345, 1, 2), vb_roce_source_port(0x12345, 3, 4));
	assert_int_not_equal(vb_roce_source_port(0x12345, 1, 2), vb_roce_source_port(0x12346, 1, 2));
	for (uint32_t label = 0; label < 1u << 20; label += 997)
		assert_true(vb_roce_source_port(label, 5, 6) >= 0xc000);
	/* The mapping that ibv_flow_label_to_udp_sport documents. */
	assert_int_equal(vb_roce_source_port(0x12345, 0, 0), 0xc000 | ((0x12345 & 0x3fff) ^ (0x12345 >> 14)));
}

/* ---- staying awake ---- */

/* How often the progress thread looks after so many packets. */
static unsigned looks_after(unsigned packets)
{
	unsigned before = polled.looks;
	polled.is_progress_thread = true;
	polled.packets_in += packets;
	assert_false(polled.io->pump());
	polled.is_progress_thread = false;
	return polled.looks - before;
}

static void it_stays_awake_after_many_packets(void **state)
{
	vb_roce_use(1);
	polled.step_ns = 1000;
	assert_int_equal(looks_after(3), 1);
	assert_between(looks_after(100), 40, 60);
	assert_int_equal(looks_after(0), 1);
	vb_roce_use(-1);
}

/* A yield took a time slice: somebody else has the processor. */
static void it_sleeps_where_others_work(void **state)
{
	vb_roce_use(1);
	polled.step_ns = 1000;
	polled.long_step_in = 5;
	assert_between(looks_after(100), 2, 8);
	assert_int_equal(looks_after(100), 1);
	polled.now_ns += 100000000;
	assert_between(looks_after(100), 40, 60);
	vb_roce_use(-1);
}

/* ---- is a thread at it? ---- */

static void it_is_busy_while_a_thread_sends_or_receives(void **state)
{
	assert_false(polled.io->is_busy());
	struct vb_burst *burst = vb_burst_take(VB_BURST_REQUESTS);
	assert_true(polled.io->is_busy());
	vb_burst_give(burst);
	assert_false(polled.io->is_busy());
	polled.is_receiving = true;
	assert_true(polled.io->is_busy());
	polled.is_receiving = false;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(equal_packets_go_out_together, setup),
		cmocka_unit_test_setup(a_shorter_packet_is_the_last, setup),
		cmocka_unit_test_setup(padding_is_zero, setup),
		cmocka_unit_test_setup(a_longer_packet_begins_anew, setup),
		cmocka_unit_test_setup(packets_grow_and_grow, setup),
		cmocka_unit_test_setup(a_longer_packet_after_many, setup),
		cmocka_unit_test_setup(what_goes_along_has_the_bursts_route, setup),
		cmocka_unit_test_setup(a_child_begins_with_empty_bursts, setup),
		cmocka_unit_test_setup(flows_do_not_mix, setup),
		cmocka_unit_test_setup(no_more_than_the_kernel_takes, setup),
		cmocka_unit_test_setup(an_abandoned_packet_is_not_sent, setup),
		cmocka_unit_test_setup(without_segmentation_each_is_signed_for_itself, setup),
		cmocka_unit_test_setup(what_the_kernel_refuses_is_explained, setup),
		cmocka_unit_test_setup(a_full_burst_says_so, setup),
		cmocka_unit_test_setup(a_burst_goes_where_it_was_begun_for, setup),
		cmocka_unit_test_setup(it_stays_awake_after_many_packets, setup),
		cmocka_unit_test_setup(it_sleeps_where_others_work, setup),
		cmocka_unit_test_setup(it_is_busy_while_a_thread_sends_or_receives, setup),
		cmocka_unit_test_setup(each_packet_finds_its_process, setup),
		cmocka_unit_test_setup(datagrams_in_others_names_are_dropped, setup),
		cmocka_unit_test_setup(flows_of_like_packets_arrive_in_turn, setup),
		cmocka_unit_test_setup(damaged_packets_are_dropped, setup),
		cmocka_unit_test_setup(source_ports_are_dynamic_and_stay, setup),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

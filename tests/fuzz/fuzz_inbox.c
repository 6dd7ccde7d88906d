/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Anything through the inbox and through UDP 4791, into queue pairs of all services that are connected over
 * the wire.
 *
 * Input: steps. A packet is raw; or it is made up for one of the queue pairs, with a PSN near what it expects
 * or has sent, headers and lengths that are right more often than not, and keys of one of the memory zones.
 * It comes as an inbox message, whose header may be wrong, or as a UDP packet, whose ICRC may be. In between
 * the program posts, polls, moves its queue pairs, registers its memory anew, and time passes.
 *
 * Invariants: memory that is not granted does not change and does not leave (rig.h); completions come in
 * order, each once, and all of them at the end; what is sent are packets, not too many for what came in; two
 * queue pairs that have nothing to do with it go on working; no timer is left.
 */
#include <errno.h>

#include "adapter/progress/progress.h"
#include "fake_host.h"
#include "rig.h"
#include "proto/cm/gsi.h"
#include "roce/mcast.h"
#include "wire/icrc.h"
#include "wire/ip_cm.h"
#include "wire/packet.h"
#include "wire/syndrome.h"

enum { KEPT = 4, MAX_STEPS = 200, CHECK_EVERY = 8, MTU = 256, MOST_PER_STEP = 8192, VICTIMS = 3 };
enum { OWN = 0x0a000001, OTHER = 0x0a000002, LOCALHOST = 0x7f000001, GROUP = 0xe0000005, OTHER_QPN = 0x9005 };
enum { INBOX_MAGIC = 0x76620001, INBOX_HEADER_BYTES = 44, CONGESTED = 3 /* ECN */ };

static struct {
	struct fuzz_input *in;
	struct rig_qp *victims[VICTIMS];	/* RC, UC, UD */
	struct rig_qp *left, *right;
	struct vb_ah ahs[2];			/* to the other host, to this one */
	struct {
		uint8_t bytes[VB_INBOX_MAX_BYTES + 64];
		size_t len;
	} kept[KEPT];				/* packets that came before */
	unsigned num_kept;
	bool withdraws;				/* memory, before the next answers */
	uint32_t expected[VICTIMS];		/* PSNs, as far as the answers tell */
	uint32_t sent_psn;			/* of the last request that went out */
	bool is_sending;
} w;

static void post(uint8_t which);

static struct in6_addr v4(uint32_t address)
{
	struct in6_addr a = { .s6_addr = { [10] = 0xff, [11] = 0xff } };

	for (unsigned i = 0; i < 4; i++)
		a.s6_addr[12 + i] = (uint8_t)(address >> (24 - 8 * i));
	return a;
}

/* ---- what goes out ---- */

static bool is_free(struct vb_lock *lock)
{
	bool free = vb_lock_try(lock);

	if (free)
		vb_unlock(lock);
	return free;
}

/*
 * What leaves by a reliable connection does so without a lock, but for what is said last, and a short answer
 * before a long one. So another thread may work meanwhile.
 */
static void others_work_meanwhile(void)
{
	struct vb_qp *qp = &w.victims[0]->qp;

	if (w.is_sending || !is_free(&qp->sq.lock) || !is_free(&qp->resp_lock))
		return;
	w.is_sending = true;
	for (unsigned posts = take(w.in) % 4; posts > 0; posts--)
		post(0);
	rig_poll();
	w.is_sending = false;
}

static void left(const void *bytes, size_t len)
{
	struct vb_bth bth;

	rig_left(bytes, len);
	if (len < sizeof(bth))
		return;
	memcpy(&bth, bytes, sizeof(bth));
	const struct vb_opcode_row *row = vb_opcode_row((uint8_t)vb_bth_opcode(&bth));
	if (!row->name || vb_bth_opcode(&bth) >> VB_OPCODE_BITS != VB_SERVICE_RC)
		return;
	if (row->flags.request)
		w.sent_psn = vb_bth_psn(&bth);
	else if (row->operation == VB_OP_ACK && len >= row->header_bytes)
		w.expected[0] = vb_bth_psn(&bth) +
			(vb_syndrome_class(((const uint8_t *)bytes)[VB_BTH_BYTES]) == VB_AETH_ACK);
	if (vb_bth_destination_qpn(&bth) == OTHER_QPN)
		others_work_meanwhile();
}

/* ---- what comes in ---- */

/* The CM's part: what gets there is a packet for QP 1. */
static void cm(void *arg, const struct vb_inbox_msg *msg)
{
	struct vb_packet packet;

	must(msg->payload_bytes >= VB_BTH_BYTES && msg->payload_bytes <= VB_INBOX_MAX_BYTES);
	if (vb_packet_parse(msg->payload, msg->payload_bytes, &packet) == 0)
		must(packet.destination_qpn == VB_GSI_QPN);
}

static void deliver_inbox(const uint8_t *packet, size_t len, uint8_t how)
{
	static uint8_t message[INBOX_HEADER_BYTES + VB_INBOX_MAX_BYTES + 64];
	uint32_t magic = INBOX_MAGIC ^ (how & 64 ? how : 0);
	struct in6_addr src = v4(how & 16 ? LOCALHOST : OTHER), dst = v4(how & 32 ? GROUP : OWN);

	memset(message, 0, INBOX_HEADER_BYTES);
	memcpy(message, &magic, 4);
	memcpy(message + 12, &src, 16);
	memcpy(message + 28, &dst, 16);
	memcpy(message + INBOX_HEADER_BYTES, packet, len);
	size_t all = INBOX_HEADER_BYTES + len;
	fake.sends_as_stranger = (how & 6) == 6; /* another user */
	fake_inbox_message(message, how & 128 ? vb_min_u64(all, take(w.in)) : all, how == 255);
}

static void deliver_udp(uint8_t *packet, size_t len, uint8_t how)
{
	struct vb_udp_packet udp = { .addr = { .src = v4(how & 16 ? LOCALHOST : OTHER),
					       .dst = v4(how & 32 ? GROUP : OWN),
					       .traffic_class = how & 8 ? CONGESTED : 0,
					       .udp_sport = 0xc123 },
				     .bytes = packet,
				     .len = len + VB_ICRC_BYTES,
				     .ifindex = 2 };
	struct vb_icrc_route route = { .ip_version = 4,
				       .source_port = 0xc123,
				       .destination_port = VB_ROCE_PORT };
	struct vb_bth bth;

	memcpy(route.source, udp.addr.src.s6_addr + 12, 4);
	memcpy(route.destination, udp.addr.dst.s6_addr + 12, 4);
	if (len < VB_BTH_BYTES)
		return;
	memcpy(&bth, packet, sizeof(bth));
	uint32_t crc = vb_icrc_begin(&route, &bth, udp.len, how);
	vb_icrc_store(vb_icrc_add(crc, packet + VB_BTH_BYTES, len - VB_BTH_BYTES) ^ (how & 128 ? how : 0),
		      packet + len);
	fake_udp_packet(&udp);
}

static size_t make_raw(uint8_t *packet)
{
	size_t len = take(w.in);

	for (size_t i = 0; i < len; i++)
		packet[i] = take(w.in);
	return len;
}

static uint64_t some_address(uint8_t zone, uint8_t where)
{
	uint64_t base = (uintptr_t)rig_at(zone % ZONES);

	return where >= 0xf0 ? base + ZONE_BYTES - 64 + (where & 15) * 8 :
	       where >= 0xe0 ? base - 64 + (where & 15) * 8 :
			       base + where * 8;
}

static uint32_t some_rkey(uint8_t zone, uint8_t b)
{
	return b >= 0xf0 ? b : zone % ZONES < SECRET ? rig.mrs[zone % ZONES].key : 0;
}

/* Extension headers that would be refused nearly always if they were left to chance. */
static void make_headers(uint8_t *packet, const struct vb_opcode_row *row)
{
	uint8_t zone = take(w.in), where = take(w.in), key = take(w.in), length = take(w.in);

	if (vb_opcode_has(row, VB_EXT_RETH)) {
		struct vb_reth *reth = (struct vb_reth *)(packet + vb_opcode_offset(row, VB_EXT_RETH));
		vb_reth_set_address(reth, some_address(zone, where));
		vb_reth_set_rkey(reth, some_rkey(zone, key));
		vb_reth_set_length(reth, length < 128 ? length : (length & 127) * 128u);
	}
	if (vb_opcode_has(row, VB_EXT_ATOMICETH)) {
		struct vb_atomiceth *eth =
			(struct vb_atomiceth *)(packet + vb_opcode_offset(row, VB_EXT_ATOMICETH));
		vb_atomiceth_set_address(eth, some_address(zone, where));
		vb_atomiceth_set_rkey(eth, some_rkey(zone, key));
		vb_atomiceth_set_swap_or_add(eth, length);
	}
	if (vb_opcode_has(row, VB_EXT_DETH)) {
		struct vb_deth *deth = (struct vb_deth *)(packet + vb_opcode_offset(row, VB_EXT_DETH));
		vb_deth_set_qkey(deth, key < 0xf0 ? 0x1234 : key);
		vb_deth_set_source_qpn(deth, OTHER_QPN);
	}
	if (vb_opcode_has(row, VB_EXT_AETH))
		vb_aeth_set_syndrome((struct vb_aeth *)(packet + vb_opcode_offset(row, VB_EXT_AETH)),
				     key < 128 ? 31 :
				     key < 160 ? vb_syndrome(VB_AETH_NAK, key % 5) :
				     key < 192 ? vb_syndrome(VB_AETH_RNR, key) :
						 key);
}

/* A MAD for QP 1, to a service or to an id of this process, some of its bytes overwritten. */
static size_t make_mad(uint8_t *packet)
{
	uint8_t choice = take(w.in);
	struct vb_gsi_packet *gsi = (struct vb_gsi_packet *)packet;
	struct vb_ip_cm ip = { .ip_version = 4, .source = { 10, 0, 0, 2 }, .destination = { 10, 0, 0, 1 } };
	struct vb_mad mad;

	vb_cm_msg_init(&mad, VB_CM_ATTR_REQ + choice % 11, take(w.in));
	if (choice & 16 && choice % 11 == 0)
		vb_ip_cm_encode(&ip, (uint8_t *)(uintptr_t)vb_cm_req_msg_private_data(vb_cm_req_in(&mad)));
	if (choice % 11 == 0)
		vb_cm_req_msg_set_service_id(vb_cm_req_in(&mad), UINT64_C(0x1000000) |
									 (choice & 16 ? 0x060000 : 0x110000) |
									 take(w.in));
	else
		vb_cm_rtu_msg_set_remote_comm_id(
			vb_cm_rtu_in(&mad), (uint32_t)(choice & 32 ? FAKE_OWN_SLOT : take(w.in)) << 20 | 5);
	vb_cm_rtu_msg_set_local_comm_id(vb_cm_rtu_in(&mad), take(w.in) % 4);
	vb_gsi_packet_init(gsi, &mad);
	for (unsigned i = choice >> 6; i > 0; i--)
		packet[take(w.in)] = take(w.in);
	return sizeof(*gsi);
}

static uint32_t some_qpn(unsigned victim, uint8_t b)
{
	if (b < 0xe0)
		return w.victims[victim]->qp.qpn;
	if (b < 0xf0)
		return VB_QPN_MASK;
	return b < 0xf4 ? b & 1u :
			  ((uint32_t)(b < 0xf8 ? FAKE_PEER_SLOT : FAKE_OWN_SLOT) << VB_SLOT_SHIFT) + b;
}

static size_t make_packet(uint8_t *packet)
{
	static const uint8_t services[VICTIMS] = { VB_SERVICE_RC, VB_SERVICE_UC, VB_SERVICE_UD };
	static const uint8_t replies[] = { VB_OPB_ACKNOWLEDGE, VB_OPB_ACKNOWLEDGE, VB_OPB_READ_RESPONSE_ONLY,
		VB_OPB_READ_RESPONSE_FIRST, VB_OPB_READ_RESPONSE_LAST, VB_OPB_ATOMIC_ACKNOWLEDGE };
	uint8_t choice = take(w.in), opcode = take(w.in), length = take(w.in), delta = take(w.in);
	unsigned victim = choice & 1 ? 0 : choice / 2 % VICTIMS;
	unsigned bits = victim == 2  ? VB_OPB_SEND_ONLY + opcode % 2u :
			opcode & 128 ? replies[opcode % 6] :
				       opcode % 0x18;
	const struct vb_opcode_row *row = vb_opcode_row((uint8_t)(services[victim] << VB_OPCODE_BITS | bits));
	struct vb_bth *bth = (struct vb_bth *)packet;

	if (!row->name)
		return 0;
	size_t payload = !row->flags.payload ? 0 : row->flags.last ? length : MTU;
	if (choice & 64)
		payload += take(w.in) * 4u;
	memset(packet, 0, row->header_bytes);
	memset(packet + row->header_bytes, length, payload + 4);
	make_headers(packet, row);
	vb_bth_set_opcode(bth, (uint8_t)(row - vb_opcode_row(0)));
	vb_bth_set_pkey(bth, VB_PKEY_DEFAULT);
	vb_bth_set_pad_count(bth, -payload & 3);
	vb_bth_set_ack_request(bth, choice >> 3);
	vb_bth_set_destination_qpn(bth, some_qpn(victim, take(w.in)));
	uint32_t psn = row->flags.request ? w.expected[victim] : w.sent_psn;
	vb_bth_set_psn(bth, psn + (choice & 128 ? (uint32_t)(int8_t)delta : 0));
	if (row->flags.request && !(choice & 128))
		w.expected[victim]++;
	if (choice & 32)
		packet[take(w.in) % row->header_bytes] = delta;
	return row->header_bytes + payload + (-payload & 3);
}

static size_t repeat(uint8_t *packet)
{
	unsigned which = take(w.in) % KEPT;

	memcpy(packet, w.kept[which].bytes, w.kept[which].len);
	return w.kept[which].len;
}

static void keep(const uint8_t *packet, size_t len)
{
	unsigned which = w.num_kept++ % KEPT;

	memcpy(w.kept[which].bytes, packet, len);
	w.kept[which].len = len;
}

static void packet_comes(size_t (*make)(uint8_t *packet))
{
	static uint8_t packet[VB_INBOX_MAX_BYTES + 64];
	uint8_t how = take(w.in);
	size_t len = make(packet);

	if (make == make_packet)
		keep(packet, len);

	/* Most are delivered as they should be. */
	if (how < 0xc0)
		how &= 0x0f;
	if (len > VB_BTH_BYTES && vb_bth_destination_qpn((struct vb_bth *)packet) == VB_QPN_MASK)
		how |= 32;
	if (how & 1)
		deliver_inbox(packet, len, how);
	else
		deliver_udp(packet, len, how);
}

/* ---- the program ---- */

static void post(uint8_t which)
{
	struct rig_qp *q = w.victims[which % VICTIMS];

	if (which & 8)
		rig_post_receive(q, w.in);
	else
		rig_post_send(q, w.in, q->qp.type == IBV_QPT_UD ? &w.ahs[which >> 4 & 1].pub : NULL,
			      which & 32 ? w.left->qp.qpn : OTHER_QPN);
}

static void connect_victim(unsigned which)
{
	(void)rig_connect(w.victims[which], OTHER, OTHER_QPN + which, 1);
	w.expected[which] = 100;
}

static void move(uint8_t how)
{
	struct rig_qp *q = w.victims[how % VICTIMS];

	switch (how / 8 % 4) {
	case 0:
		(void)rig_move(q, IBV_QPS_ERR);
		break;
	case 1:
		(void)rig_move(q, IBV_QPS_SQD);
		break;
	case 2:
		(void)rig_move(q, IBV_QPS_RTS);
		break;
	case 3:
		if (rig_move(q, IBV_QPS_RESET) == 0)
			connect_victim(how % VICTIMS);
		break;
	}
}

static void step(uint8_t what)
{
	static const int results[] = { 0, -EAGAIN, -ECONNREFUSED, -EOPNOTSUPP };
	unsigned sent = fake.sent_packets + fake.sent_datagrams;

	switch (what % 16) {
	case 0:
	case 1:
	case 2: post(take(w.in)); break;
	case 3: fake_run(); break;
	case 4: rig_poll(); break;
	case 5: fake_pass_time((uint64_t)take(w.in) << 16); break;
	case 6: move(take(w.in)); break;
	case 7:
		w.withdraws = take(w.in) & 1;
		rig_register_again(take(w.in) % ZONES);
		break;
	case 8: fake.send_result = results[take(w.in) % VB_ARRAY_LEN(results)]; break;
	case 9: packet_comes(take(w.in) & 1 ? make_raw : make_mad); break;
	case 10: packet_comes(repeat); break;
	default: packet_comes(make_packet); break;
	}
	must(fake.sent_packets + fake.sent_datagrams - sent <= MOST_PER_STEP);
}

/* Between a READ and its answer. */
static void withdraw(void)
{
	if (!w.withdraws)
		return;
	w.withdraws = false;
	rig_register_again(OPEN);
	rig_register_again(READABLE);
}

static void set_up(struct fuzz_input *in)
{
	static const enum ibv_qp_type types[VICTIMS] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = 1, .hop_limit = 1 } };
	struct in6_addr group = v4(GROUP), other = v4(OTHER), own = v4(OWN);

	memset(&w, 0, sizeof(w));
	w.in = in;
	rig_set_up();
	fake.left = left;
	fake.is_there = false;	/* so its inbox is the way to it */
	vb_inbox_set_handler(VB_GSI_QPN, cm, NULL);
	fake.meanwhile = withdraw;
	for (unsigned i = 0; i < 2; i++) {
		memcpy(to.grh.dgid.raw, i ? &own : &other, sizeof(other));
		must(vb_ah_init(&w.ahs[i], &rig.pd, &to) == 0);
	}
	for (unsigned i = 0; i < VICTIMS; i++) {
		w.victims[i] = rig_add_qp(types[i]);
		connect_victim(i);
		must(atomic_load(&w.victims[i]->qp.state) == IBV_QPS_RTS);
	}
	must(vb_mcast_attach(&w.victims[2]->qp, &group) == 0);
	w.left = rig_add_qp(IBV_QPT_RC);
	w.right = rig_add_qp(IBV_QPT_RC);
	must(rig_connect(w.left, LOCALHOST, w.right->qp.qpn, 7) == 0 &&
	     rig_connect(w.right, LOCALHOST, w.left->qp.qpn, 7) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };
	struct in6_addr group = v4(GROUP);

	set_up(&in);
	for (unsigned i = 0; in.left && i < MAX_STEPS; i++) {
		step(take(&in));
		if (i % CHECK_EVERY == 0)
			rig_check_memory();
	}
	fake.send_result = 0;
	/* what waits for inboxes and listeners has been given up by then */
	fake_pass_time(UINT64_C(30000000000));
	rig_talk(w.left, w.right);
	must(vb_mcast_detach(&w.victims[2]->qp, &group) == 0);
	for (unsigned i = 0; i < VICTIMS; i++)
		rig_remove_qp(w.victims[i]);
	must(vb_ah_fini(&w.ahs[0]) == 0 && vb_ah_fini(&w.ahs[1]) == 0);
	rig_talk(w.left, w.right);
	rig_tear_down();
	must(fake_timers() == 0);
	return 0;
}

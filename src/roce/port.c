/* SPDX-License-Identifier: BSD-2-Clause */
#include "roce/port.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/progress/path.h"
#include "adapter/progress/progress.h"
#include "base/lock.h"
#include "host/ipc/capture.h"
#include "roce/deliver.h"
#include "roce/fault.h"
#include "roce/forward.h"
#include "roce/gsi.h"
#include "roce/delayed_ack.h"
#include "wire/cm_msg.h"
#include "wire/packet.h"

enum {
	BURSTS = 4,              /* threads that send at the same time; others wait */
	MAX_RUNS = 8,            /* sends of a burst */
	FLOW_PORT_BITS = 14,
	DEFAULT_HOP_LIMIT = 64,
	MAX_PACKET_BYTES = 4096 + 128,
	STREAM_PACKETS = 12, /* between two sleeps of the progress thread */
	LINGER_NS = 50000,
	/* a yield that takes longer let somebody else work, who may go on for a time slice; */
	CROWDED_NS = 20000,
	RESPITE_NS = 100000000, /* so for this long nobody lingers */
};

/* ---- routes ---- */

uint16_t vb_roce_source_port(uint32_t flow_label, uint32_t source_qpn, uint32_t destination_qpn)
{
	uint32_t mix = flow_label & 0xfffff;
	if (!mix) {
		uint64_t both = (uint64_t)source_qpn * destination_qpn;
		mix = (uint32_t)(both ^ both >> 20 ^ both >> 40) & 0xfffff;
	}
	uint32_t low = mix & ((1u << FLOW_PORT_BITS) - 1), high = mix >> FLOW_PORT_BITS;
	return (uint16_t)(VB_ROCE_FIRST_SOURCE_PORT | ((low ^ high) & ((1u << FLOW_PORT_BITS) - 1)));
}

static void icrc_route(struct vb_icrc_route *icrc, const struct vb_inbox_addr *addr)
{
	bool ipv4 = IN6_IS_ADDR_V4MAPPED(&addr->dst);
	unsigned skip = ipv4 ? 12 : 0;
	memset(icrc, 0, sizeof(*icrc));
	icrc->ip_version = ipv4 ? 4 : 6;
	memcpy(icrc->source, addr->src.s6_addr + skip, sizeof(addr->src) - skip);
	memcpy(icrc->destination, addr->dst.s6_addr + skip, sizeof(addr->dst) - skip);
	icrc->source_port = addr->udp_sport;
	icrc->destination_port = VB_ROCE_PORT;
}

void vb_roce_route_init(struct vb_roce_route *route, const struct vb_inbox_addr *addr, unsigned ifindex)
{
	route->addr = *addr;
	route->addr.udp_sport = vb_udp_source_port(addr);
	if (!route->addr.hop_limit)
		route->addr.hop_limit = DEFAULT_HOP_LIMIT;
	route->ifindex = ifindex;
	route->qpn = 0;
	route->is_returnable = false;
	icrc_route(&route->icrc, &route->addr);
}

bool vb_roce_route_returnable(const struct vb_roce_route *route, struct vb_roce_route *returnable)
{
	uint16_t port = vb_udp_returnable_port(IN6_IS_ADDR_V4MAPPED(&route->addr.dst));
	if (!port)
		return false;
	*returnable = *route;
	returnable->is_returnable = true;
	returnable->addr.udp_sport = port;
	icrc_route(&returnable->icrc, &returnable->addr);
	return true;
}

/* ---- sending ---- */

/* The kernel counts the identifications of what it cuts. */
__attribute__((cold, noinline)) static void note_departure(const struct vb_roce_route *route,
							   uint64_t time_ns, const uint8_t *bytes, size_t len,
							   size_t segment)
{
	struct vb_capture_note note = { .addr = &route->addr,
					.time_ns = time_ns,
					.flags = VB_CAPTURE_OUT | VB_CAPTURE_HAS_ICRC,
					.qpn = route->qpn };
	for (size_t at = 0; at < len; at += segment, note.ip_id++) {
		struct iovec packet = { (void *)(uintptr_t)(bytes + at), vb_min_u64(segment, len - at) };
		vb_capture_packet(&note, &packet, 1);
	}
}

__attribute__((cold)) static int send_returnable(const struct vb_roce_route *route, const void *bytes,
						 size_t len, size_t segment)
{
	return len > segment ? -EOPNOTSUPP : vb_udp_send_returnable(&route->addr, route->ifindex, bytes, len);
}

int vb_roce_transmit_now(const struct vb_roce_route *route, const void *bytes, size_t len, size_t segment)
{
	uint64_t time_ns = vb_capture_is_on() ? vb_now_ns() : 0;
	int err = vb_likely(!route->is_returnable) ?
			  vb_udp_send(&route->addr, route->ifindex, bytes, len, segment) :
			  send_returnable(route, bytes, len, segment);
	if (!err && vb_capture_is_on())
		note_departure(route, time_ns, bytes, len, segment);
	return err;
}

int vb_roce_transmit(const struct vb_roce_route *route, const void *bytes, size_t len, size_t segment)
{
	return vb_unlikely(vb_faults_on_wire) ? vb_roce_transmit_faulty(route, bytes, len, segment)
					      : vb_roce_transmit_now(route, bytes, len, segment);
}

/* What one send takes. */
struct run {
	size_t bytes, segment; /* in all; of each packet but the last, which may be shorter */
};

/*
 * Packets of one length, the last of which may be shorter, are one send. A longer one begins another, behind
 * those: whoever fills a burst holds a lock, and has to send when he has let go of it.
 */
struct vb_burst {
	struct vb_lock lock;
	const struct vb_roce_route *flow; /* what it was when the burst was begun is in `route` */
	struct vb_roce_route route;
	struct vb_icrc_known known; /* route's */
	size_t at, bytes, segment; /* of the last run: where it begins; what is committed */
	unsigned count, most;      /* its packets; most: that one send takes */
	bool closed;               /* the last packet was shorter */
	unsigned num_earlier;
	struct run earlier[MAX_RUNS - 1];
	size_t open_bytes; /* of the packet that was begun, ICRC included */
	size_t open_body;  /* of these, before the padding */
	uint8_t data[VB_UDP_MAX_BYTES + MAX_PACKET_BYTES];
};

static struct vb_burst bursts[BURSTS];

/* The kernel numbers the packets of one send, and only these. */
static void send_singly(struct vb_burst *b, uint8_t *data, const struct run *run)
{
	for (size_t at = 0; at < run->bytes;) {
		size_t n = vb_min_u64(run->bytes - at, run->segment);
		vb_icrc_sign(&b->route.icrc, &b->known, data + at, n, 0);
		if (vb_roce_transmit(&b->route, data + at, n, n) == -EAGAIN)
			return; /* the rest would meet the same */
		at += n;
	}
}

static void send_run(struct vb_burst *b, uint8_t *data, const struct run *run)
{
	vb_progress_is_working();
	if (vb_roce_transmit(&b->route, data, run->bytes, run->segment) == -EOPNOTSUPP)
		send_singly(b, data, run);
}

void vb_burst_flush(struct vb_burst *b)
{
	uint8_t *data = b->data;
	if (!b->count)
		return;
	for (unsigned i = 0; vb_unlikely(i < b->num_earlier); data += b->earlier[i++].bytes)
		send_run(b, data, &b->earlier[i]);
	send_run(b, data, &(struct run){ b->bytes, b->segment });
	b->at = b->bytes = b->count = b->num_earlier = 0;
	b->closed = false;
}

static bool fits(const struct vb_burst *b, const struct vb_roce_route *route, size_t bytes)
{
	return !b->count || (route == b->flow && !b->closed && b->at + b->bytes + bytes <= sizeof(b->data) &&
			     (bytes <= b->segment ? b->bytes + bytes <= VB_UDP_MAX_BYTES && b->count < b->most
						  : b->num_earlier < MAX_RUNS - 1));
}

/* The packet at hand is longer than those before it. */
static void begin_run(struct vb_burst *b)
{
	b->earlier[b->num_earlier++] = (struct run){ b->bytes, b->segment };
	b->at += b->bytes;
	b->bytes = b->count = 0;
}

/* It is often the one before. */
static void take_route(struct vb_burst *b, const struct vb_roce_route *route)
{
	if (memcmp(&b->route.icrc, &route->icrc, sizeof(route->icrc)))
		b->known = (struct vb_icrc_known){ 0 };
	b->route = *route;
}

uint8_t *vb_burst_begin(struct vb_burst *b, const struct vb_roce_route *route, const void *header,
			size_t header_bytes, size_t payload_bytes)
{
	size_t body = header_bytes + payload_bytes, bytes = vb_align_up(body, 4) + VB_ICRC_BYTES;
	if (!fits(b, route, bytes))
		vb_burst_flush(b);
	if (!b->count) {
		take_route(b, route);
		b->most = vb_udp_segments();
	}
	b->flow = route;
	b->open_bytes = bytes;
	b->open_body = body;
	uint8_t *packet = b->data + b->at + b->bytes;
	memcpy(packet, header, header_bytes);
	return packet + header_bytes;
}

bool vb_burst_commit(struct vb_burst *b)
{
	uint8_t *packet = b->data + b->at + b->bytes;
	memset(packet + b->open_body, 0, b->open_bytes - VB_ICRC_BYTES - b->open_body);
	if (b->count && b->open_bytes > b->segment)
		begin_run(b);
	vb_icrc_sign(&b->route.icrc, &b->known, packet, b->open_bytes, (uint16_t)b->count);
	if (!b->count)
		b->segment = b->open_bytes;
	b->closed = b->open_bytes < b->segment;
	b->bytes += b->open_bytes;
	b->count++;
	return !b->closed && b->at + b->bytes + b->segment <= VB_UDP_MAX_BYTES && b->count < b->most &&
	       b->num_earlier < MAX_RUNS - 1;
}

struct vb_burst *vb_burst_take(void)
{
	for (unsigned i = 0;; i = (i + 1) % BURSTS) {
		if (vb_lock_try(&bursts[i].lock))
			return &bursts[i];
		if (i == BURSTS - 1)
			sched_yield();
	}
}

void vb_burst_give(struct vb_burst *b)
{
	vb_burst_flush(b);
	vb_unlock(&b->lock);
}

/* ---- receiving: one thread at a time ---- */

static bool icrc_is_ignored; /* VERBATIM_ICRC=ignore: peers that leave it out are listened to */
static struct vb_icrc_solver solver;
/* of the packet that is looked at, and those joined with it; often that of the one before */
static struct vb_inbox_addr arrival_addr;
static struct vb_icrc_route arrival_route;
static struct vb_icrc_known arrival_known;
static _Thread_local struct vb_roce_batch batch; /* of what the thread that receives has taken */

static void turn_to(const struct vb_inbox_addr *addr)
{
	if (!memcmp(&arrival_addr, addr, sizeof(*addr)))
		return;
	arrival_addr = *addr;
	icrc_route(&arrival_route, addr);
	arrival_known = (struct vb_icrc_known){ 0 };
}

static bool is_intact(const struct vb_udp_packet *p, uint16_t *id)
{
	*id = (uint16_t)p->index; /* a sender that has the kernel cut its packets starts at 0 */
	if (p->index == 0)
		turn_to(&p->addr);
	if (p->len < VB_BTH_BYTES + VB_ICRC_BYTES || p->len > MAX_PACKET_BYTES)
		return false;
	if (icrc_is_ignored)
		return true;
	return vb_icrc_check_any_ip_id(&solver, &arrival_route, &arrival_known, p->bytes, p->len, id);
}

static void pass_on(uint32_t slot, const struct vb_inbox_msg *msg)
{
	vb_udp_misdirected();
	vb_forward(slot, msg);
}

/*
 * One that is for another process, that process notes when it has it; and QP 1, whoever its messages are
 * handed to.
 */
__attribute__((cold, noinline)) static void note_arrival(const struct vb_udp_packet *p, bool intact,
							 uint16_t id)
{
	if (p->len < VB_BTH_BYTES + VB_ICRC_BYTES)
		return;
	uint32_t qpn = vb_bth_destination_qpn((const struct vb_bth *)p->bytes);
	struct vb_capture_note note = { .addr = &p->addr,
					.flags = VB_CAPTURE_HAS_ICRC | (intact ? 0 : VB_CAPTURE_BAD_ICRC),
					.qpn = qpn,
					.ip_id = id };
	struct iovec packet = { (void *)(uintptr_t)p->bytes, p->len };
	if (qpn == VB_MULTICAST_QPN || vb_slot_is_mine(qpn >> VB_SLOT_SHIFT))
		vb_capture_packet(&note, &packet, 1);
}

/* A datagram in the name of a process of this host that would have sent it within the host. */
static bool is_forged(const struct vb_udp_packet *p)
{
	if (p->bytes[0] >> VB_OPCODE_BITS != VB_SERVICE_UD ||
	    p->len < VB_BTH_BYTES + sizeof(struct vb_deth) + VB_ICRC_BYTES ||
	    vb_bth_destination_qpn((const struct vb_bth *)p->bytes) == VB_MULTICAST_QPN)
		return false;
	return vb_slot_is_spoofed(vb_deth_source_qpn((const struct vb_deth *)(p->bytes + VB_BTH_BYTES)) >>
					 VB_SLOT_SHIFT,
				 &p->addr.src);
}

static void packet_arrived(const struct vb_udp_packet *p)
{
	uint16_t id;
	bool intact = is_intact(p, &id);
	if (vb_capture_is_on())
		note_arrival(p, intact, id);
	if (!intact || is_forged(p))
		return;
	struct vb_inbox_msg msg = {
		.addr = p->addr,
		.payload = p->bytes,
		.payload_bytes = p->len - VB_ICRC_BYTES,
		.sender_uid = (uid_t)-1,
		.is_trusted = true,
	};
	uint32_t qpn = vb_bth_destination_qpn((const struct vb_bth *)p->bytes), slot = qpn >> VB_SLOT_SHIFT;
	if (qpn == VB_GSI_QPN)
		vb_gsi_receive(&msg, p->ifindex);
	else if (qpn == VB_MULTICAST_QPN || vb_slot_is_mine(slot))
		vb_roce_take(&msg, &batch);
	else if (slot)
		pass_on(slot, &msg);
}

static void batch_done(void)
{
	vb_progress_has_taken();
	vb_roce_batch_end(&batch);
}

/* ---- polling ---- */

static atomic_int users;

void vb_roce_use(int by) { atomic_fetch_add(&users, by); }

/*
 * The progress thread waits awake; true: packets came. Says until when it is not to do so again, if others
 * want the processor.
 */
static bool await_packets(uint64_t *respite_until)
{
	uint64_t before = vb_now_ns(), until = before + LINGER_NS;
	bool found = false;
	while (before < until && !(found = vb_udp_receive())) {
		sched_yield();
		uint64_t now = vb_now_ns();
		if (now - before > CROWDED_NS) {
			*respite_until = now + RESPITE_NS;
			return vb_udp_receive();
		}
		before = now;
	}
	return found;
}

/*
 * The progress thread is about to sleep. To be woken costs both sides more than the next packets of a stream
 * take to come, so after many packets it waits for them awake, unless that costs it its turn. True: some
 * came.
 */
static bool linger(void)
{
	static uint64_t seen, respite_until; /* the progress thread's */
	struct vb_udp_counts counts;
	vb_udp_count(&counts);
	bool is_stream = counts.packets_in - seen >= STREAM_PACKETS;
	seen = counts.packets_in;
	return is_stream && vb_now_ns() >= respite_until && await_packets(&respite_until);
}

static bool pump(void)
{
	if (!atomic_load_explicit(&users, memory_order_relaxed))
		return false;
	vb_delayed_ack_send();
	return vb_udp_receive() || (vb_loop_is_current() && linger());
}

/* Threads that poll for others' sake alone do not look here. */
static bool watch(bool wake)
{
	wake |= !atomic_load_explicit(&users, memory_order_relaxed);
	vb_udp_watch(wake);
	return wake;
}

static bool is_sending(void)
{
	for (unsigned i = 0; i < BURSTS; i++)
		if (vb_lock_is_taken(&bursts[i].lock))
			return true;
	return false;
}

static bool is_busy(void) { return vb_udp_is_receiving() || is_sending(); }

static const struct vb_path_io io = { .pump = pump, .watch = watch, .is_busy = is_busy };

/* ---- opening ---- */

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;

static int open_locked(void)
{
	const char *icrc = getenv("VERBATIM_ICRC");
	icrc_is_ignored = icrc && !strcmp(icrc, "ignore");
	vb_udp_set_handler(packet_arrived, batch_done);
	return vb_udp_open();
}

int vb_roce_open(void)
{
	pthread_mutex_lock(&open_lock);
	int err = vb_udp_is_open() ? 0 : open_locked();
	pthread_mutex_unlock(&open_lock);
	return err;
}

/* A thread of the parent may have held it; what the parent's bursts held is its own to send. */
static void forget(void)
{
	pthread_mutex_init(&open_lock, NULL);
	for (unsigned i = 0; i < BURSTS; i++) {
		vb_lock_init(&bursts[i].lock);
		bursts[i].at = bursts[i].bytes = bursts[i].count = bursts[i].num_earlier = 0;
		bursts[i].closed = false;
	}
	batch.count = 0;
	atomic_store(&users, 0);
}

__attribute__((constructor)) static void offer(void)
{
	vb_path_set_io(&io);
	vb_host_at_fork(forget);
}

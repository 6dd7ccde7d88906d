/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Unreliable connections and datagrams under a simulated network (sim.h), one seed a run.
 *
 * Theory of operation. Some hosts. Flows of UC messages, SENDs and WRITEs, each from one host to another; and
 * on each host a UD queue pair that sends to all. Senders have no state but PSNs; the oracle counts which
 * packets of which message arrive intact.
 *
 *	flow: messages 0, 1, 2, ... --cut into packets--> network --> responder: receives, memory
 *
 * The oracle. A message that is delivered is whole, and ends as it was posted. Where packets arrive in the
 * order of sending, messages are delivered in order, once, and all of those, and only those, of which each
 * packet arrived and which the receiver allows. Where they do not, none is delivered more often than its
 * first packet arrived. Memory holds nothing but what WRITEs of the flow put there, each byte where it
 * belongs; WRITEs that are refused leave no trace and do not end anything. A receive of a shared queue is
 * taken only while its message is under way. A datagram is delivered as often as it arrives, to the queue
 * pair that it names, if the Q_Key is right.
 *
 * usage: sim_unreliable [FIRST_SEED [COUNT]]; sim_unreliable -v SEED [MESSAGES] for a trace.
 */
#include <errno.h>
#include <stdio.h>

#include "proto/psn.h"
#include "proto/rc/uc.h"
#include "proto/ud.h"
#include "sim.h"

enum { MAX_FLOWS = 6, MAX_MESSAGES = 120, MEMORY = 16384, LONGEST = 6000, BASE = 0x4000, RKEY = 5,
	FLOW_QPN = 100, UD_QPN = 500 };
enum {
	UD_MTU = 1024,
	UD_ID_BYTES = 8,
	QKEY = 0x1111,
	MAX_DATAGRAMS = MAX_MESSAGES,
	AVERAGE_PAUSE = 50 * 1000
};

struct profile {
	const char *name;
	struct sim_network network;
	bool ordered;		/* packets arrive in the order of sending, once */
	bool scarce;		/* receives are not always posted */
};

static const struct profile profiles[] = {
	{ "clean", { .delay = 20 * US }, .ordered = true },
	{ "1 % loss", { .loss = 10, .delay = 20 * US }, .ordered = true },
	{ "20 % loss", { .loss = 200, .delay = 20 * US }, .ordered = true },
	{ "losses in runs", { .runs = 20, .delay = 20 * US }, .ordered = true },
	{ "slow link with a short queue", { .delay = 20 * US, .per_byte_ps = 20000, .queue = 20 }, .ordered = true },
	{ "partitions", { .delay = 20 * US, .cuts = 5 }, .ordered = true },
	{ "corruption", { .corruption = 50, .delay = 20 * US }, .ordered = true },
	{ "no receives posted", { .loss = 20, .delay = 20 * US }, .ordered = true, .scarce = true },
	{ "reordering and doubling", { .doubling = 100, .late = 100, .delay = 20 * US, .jitter = 30 * US } },
	{ "everything", { .loss = 30, .runs = 5, .doubling = 50, .corruption = 20, .late = 50, .delay = 50 * US, .jitter = 50 * US,
	  .far = 4, .per_byte_ps = 2000, .queue = 60, .cuts = 1 }, .scarce = true },
};

struct message {
	struct vb_request request;
	uint32_t psn, packets;
	unsigned arrived;	/* packets, in all */
	unsigned firsts;	/* arrivals of the first one */
	unsigned delivered;	/* ends that the receiver saw */
	bool refused;
};

struct flow {
	unsigned index, from, to;
	uint32_t mtu, psn;
	struct message messages[MAX_MESSAGES];
	unsigned num_posted, to_post;
	uint64_t post_at;
	struct vb_uc_resp resp;
	bool has_receive;		/* a receive is taken */
	uint8_t receive[LONGEST + UD_MTU];
	uint64_t received;		/* bytes of it that are filled */
	int last;			/* the message that was delivered last */
	uint8_t memory[MEMORY];
};

struct datagram {
	unsigned from, to;
	struct vb_ud_send send;
	unsigned arrived, delivered;
};

static struct world {
	const struct profile *profile;
	unsigned num_hosts, num_flows;
	struct flow flows[MAX_FLOWS];
	struct datagram datagrams[MAX_DATAGRAMS];
	unsigned num_datagrams, to_send;
	uint64_t datagram_at;
} w;

static struct {
	uint64_t messages, delivered, datagrams;
} totals[VB_ARRAY_LEN(profiles)];

/* The first four bytes of a message are its number. */
static uint8_t byte_of(unsigned index, unsigned number, uint64_t offset)
{
	if (offset < 4)
		return (uint8_t)(number >> (8 * offset));
	uint32_t v = (uint32_t)offset * 2654435761u ^ (index * MAX_MESSAGES + number + 1) * 40503u;
	return (uint8_t)(v >> 13 ^ v >> 5);
}

static bool is_message(const uint8_t *bytes, unsigned index, unsigned number, uint64_t length)
{
	for (uint64_t i = 0; i < length; i++)
		if (bytes[i] != byte_of(index, number, i))
			return false;
	return true;
}

/*
 * --- UC: the receiver
 * ------------------------------------------------------------------------------------------
 */

static int receive_take(void *ctx, const struct vb_packet *packet)
{
	struct flow *flow = ctx;

	CHECK(!flow->has_receive, "flow %u takes a second receive", flow->index);
	if (w.profile->scarce && sim_pick(2))
		return -EAGAIN;
	flow->has_receive = true;
	return 0;
}

static int receive_place(void *ctx, uint64_t offset, const void *bytes, size_t len)
{
	struct flow *flow = ctx;

	CHECK(flow->has_receive, "flow %u has no receive", flow->index);
	if (offset + len > LONGEST)
		return -EMSGSIZE;
	memcpy(flow->receive + offset, bytes, len);
	flow->received = offset + len;
	return 0;
}

/* Which message it is; the immediate data of a WRITE, or the bytes. */
static unsigned number_of(const struct flow *flow, const struct vb_received *received)
{
	uint32_t number;

	if (received->is_write)
		return received->tail_value;
	CHECK(received->bytes >= sizeof(number), "flow %u: a message of %llu bytes", flow->index,
	      (unsigned long long)received->bytes);
	memcpy(&number, flow->receive, sizeof(number));
	return number;
}

static void receive_done(void *ctx, const struct vb_received *received)
{
	struct flow *flow = ctx;
	unsigned number = number_of(flow, received);

	CHECK(flow->has_receive && number < flow->num_posted, "flow %u: message %u of nobody", flow->index,
	      number);
	struct message *m = &flow->messages[number];
	const struct vb_request *r = &m->request;
	CHECK(received->bytes == r->length && received->is_write == (r->kind == VB_REQ_WRITE) &&
		      received->tail == r->tail && received->tail_value == (r->tail ? r->tail_value : 0) &&
		      received->solicited == r->solicited,
	      "flow %u: message %u ends wrongly", flow->index, number);
	const uint8_t *bytes = received->is_write ? flow->memory + (r->remote_addr - BASE) : flow->receive;
	CHECK(is_message(bytes, flow->index, number, r->length), "flow %u: message %u is wrong", flow->index,
	      number);
	CHECK(!m->refused, "flow %u: message %u should have been refused", flow->index, number);
	CHECK(!w.profile->ordered || (int)number > flow->last, "flow %u: message %u after %d", flow->index,
	      number, flow->last);
	flow->last = (int)number;
	flow->has_receive = false;
	m->delivered++;
}

/* Every other flow has its receives from a queue that others use. */
static bool is_shared(const struct flow *flow) { return flow->index % 2; }

static bool receive_lost(void *ctx)
{
	struct flow *flow = ctx;

	CHECK(flow->has_receive, "flow %u loses no receive", flow->index);
	flow->has_receive = !is_shared(flow);
	return is_shared(flow);
}

static int check(void *ctx, uint32_t rkey, uint64_t addr, uint64_t len, enum vb_access access)
{
	if (access != VB_ACCESS_WRITE)
		return -EACCES;
	if (!len)
		return 0;
	return rkey == RKEY && addr >= BASE && addr - BASE <= MEMORY && len <= MEMORY - (addr - BASE) ?
		       0 :
		       -EACCES;
}

static int write_memory(void *ctx, uint32_t rkey, uint64_t addr, const void *bytes, size_t len)
{
	struct flow *flow = ctx;

	if (check(ctx, rkey, addr, len, VB_ACCESS_WRITE))
		return -EACCES;
	memcpy(flow->memory + (addr - BASE), bytes, len);
	return 0;
}

static const struct vb_responder_ops ops = { .receive_take = receive_take, .receive_place = receive_place,
	.receive_done = receive_done, .receive_lost = receive_lost, .check = check, .write = write_memory };

/* Notes the arrival with the message that the PSN belongs to. */
static void count_arrival(struct flow *flow, uint32_t psn)
{
	for (unsigned i = 0; i < flow->num_posted; i++) {
		struct message *m = &flow->messages[i];
		uint32_t index = (psn - m->psn) & VB_PSN_MASK;
		if (index >= m->packets)
			continue;
		m->arrived++;
		m->firsts += index == 0;
		return;
	}
	sim_broken("flow %u: a packet that nobody sent", flow->index);
}

static void receive_connected(struct flow *flow, const struct vb_packet *packet)
{
	count_arrival(flow, packet->psn);
	uint64_t dropped = flow->resp.dropped;
	bool executed = !vb_uc_resp_receive(&flow->resp, packet);
	CHECK(flow->resp.dropped == dropped + !executed, "flow %u: neither executed nor dropped",
	      flow->index);
	CHECK(!is_shared(flow) || !flow->has_receive || flow->resp.message.state != VB_NO_MESSAGE,
	      "flow %u keeps a receive that others may need", flow->index);
}

/*
 * --- UC: the sender
 * --------------------------------------------------------------------------------------------
 */

static struct vb_request random_request(unsigned number)
{
	struct vb_request r = { .kind = sim_pick(2) ? VB_REQ_SEND : VB_REQ_WRITE,
				.rkey = RKEY,
				.solicited = sim_pick(2),
				.tail = sim_pick(2) ? VB_TAIL_IMM : VB_TAIL_NONE,
				.length = 4 + sim_pick(sim_pick(3) ? 600 : LONGEST - 4) };

	r.remote_addr = BASE + sim_pick(MEMORY - r.length + 1);
	r.tail_value = r.tail ? number : 0;
	if (r.kind == VB_REQ_WRITE && sim_happens(50))
		r.rkey++;
	if (r.kind == VB_REQ_WRITE && sim_happens(50))
		r.remote_addr = BASE + MEMORY - 2;
	if (r.kind == VB_REQ_SEND && sim_happens(50))
		r.length = LONGEST + 1 + sim_pick(500);
	return r;
}

static void send_message(struct flow *flow, unsigned number)
{
	const struct message *m = &flow->messages[number];
	struct vb_packet_to to = { .qpn = FLOW_QPN + flow->index,
				   .pkey = VB_PKEY_DEFAULT,
				   .service = VB_SERVICE_UC };

	for (uint32_t i = 0; i < m->packets; i++) {
		uint8_t bytes[SIM_PACKET_BYTES];
		struct vb_packet_out out;
		vb_request_packet(&m->request, &to, flow->mtu, (m->psn + i) & VB_PSN_MASK, i, 0, &out);
		memcpy(bytes, out.header, out.header_bytes);
		for (uint32_t k = 0; k < out.payload_bytes; k++)
			bytes[out.header_bytes + k] = byte_of(flow->index, number, out.payload_at + k);
		memset(bytes + out.header_bytes + out.payload_bytes, 0, out.pad_bytes);
		sim_send(flow->from, flow->to, bytes, out.header_bytes + out.payload_bytes + out.pad_bytes);
	}
}

static void post(struct flow *flow)
{
	unsigned number = flow->num_posted++;
	struct message *m = &flow->messages[number];

	m->request = random_request(number);
	CHECK(vb_request_check(&m->request, VB_SERVICE_UC) == 0, "flow %u: message %u is none", flow->index,
	      number);
	m->refused = m->request.kind == VB_REQ_WRITE ? check(NULL, m->request.rkey, m->request.remote_addr,
							     m->request.length, VB_ACCESS_WRITE) != 0 :
						       m->request.length > LONGEST;
	m->packets = vb_request_packets(&m->request, flow->mtu);
	m->psn = flow->psn;
	flow->psn = (flow->psn + m->packets) & VB_PSN_MASK;
	send_message(flow, number);
	flow->post_at =
		flow->num_posted < flow->to_post ? sim.now + sim_pick_time(AVERAGE_PAUSE) : UINT64_MAX;
}

/*
 * --- UD
 * --------------------------------------------------------------------------------------------------------
 */

static void send_datagram(void)
{
	unsigned number = w.num_datagrams++;
	struct datagram *d = &w.datagrams[number];
	uint8_t bytes[SIM_PACKET_BYTES];
	unsigned pad;

	d->from = sim_pick(w.num_hosts);
	d->to = sim_pick(w.num_hosts);
	d->send = (struct vb_ud_send){ .destination_qpn = UD_QPN + d->to,
				       .source_qpn = UD_QPN + d->from,
				       .psn = number,
				       .qkey = sim_happens(100) ? QKEY + 1 : QKEY,
				       .has_imm = sim_pick(2),
				       .solicited = sim_pick(2),
				       .payload_bytes = UD_ID_BYTES + sim_pick(UD_MTU - UD_ID_BYTES + 1) };
	d->send.imm = d->send.has_imm ? (uint32_t)sim_random() : 0;
	size_t header = vb_ud_build(bytes, &d->send, &pad);
	for (uint32_t i = 0; i < d->send.payload_bytes; i++)
		bytes[header + i] = byte_of(MAX_FLOWS + d->from, number, i);
	memset(bytes + header + d->send.payload_bytes, 0, pad);
	sim_send(d->from, d->to, bytes, header + d->send.payload_bytes + pad);
	w.datagram_at = w.num_datagrams < w.to_send ? sim.now + sim_pick_time(AVERAGE_PAUSE) : UINT64_MAX;
}

static void check_grh(const struct sim_arrival *a, size_t len)
{
	struct vb_ud_route route = { .traffic_class = 3, .flow_label = 0x12345, .hop_limit = 64 };
	struct vb_grh grh;

	route.source[0] = (uint8_t)(0x20 + a->from);
	route.destination[0] = (uint8_t)(0x20 + a->to);
	vb_ud_grh(grh.b, &route, len);
	CHECK(vb_grh_ip_version(&grh) == 6 && vb_grh_flow_label(&grh) == route.flow_label &&
		      vb_grh_traffic_class(&grh) == 3 && vb_grh_hop_limit(&grh) == 64 &&
		      memcmp(vb_grh_source_gid(&grh), route.source, 16) == 0 &&
		      memcmp(vb_grh_destination_gid(&grh), route.destination, 16) == 0 &&
		      vb_grh_payload_length(&grh) > len,
	      "a GRH says something else");
}

static void receive_datagram(const struct sim_arrival *a, size_t len)
{
	struct vb_ud_arrival ud;
	uint32_t number = a->packet.psn;

	CHECK(number < w.num_datagrams && vb_ud_parse(&a->packet, &ud) == 0, "datagram %u is none", number);
	struct datagram *d = &w.datagrams[number];
	CHECK(d->to == a->to && d->from == a->from && ud.destination_qpn == UD_QPN + a->to,
	      "datagram %u went astray", number);
	d->arrived++;
	check_grh(a, len);
	if (ud.qkey != QKEY)
		return;
	CHECK(ud.payload_bytes == d->send.payload_bytes && ud.source_qpn == d->send.source_qpn &&
		      ud.has_imm == d->send.has_imm && ud.imm == d->send.imm &&
		      ud.solicited == d->send.solicited,
	      "datagram %u: headers", number);
	CHECK(is_message(ud.payload, MAX_FLOWS + d->from, number, ud.payload_bytes), "datagram %u is wrong",
	      number);
	d->delivered++;
}

/*
 * --- the run
 * ---------------------------------------------------------------------------------------------------
 */

static void set_up(void)
{
	w.num_flows = 1 + sim_pick(MAX_FLOWS);
	for (unsigned i = 0; i < w.num_flows; i++) {
		struct flow *flow = &w.flows[i];
		memset(flow, 0, sizeof(*flow));
		flow->index = i;
		flow->from = sim_pick(w.num_hosts);
		flow->to = (flow->from + 1 + sim_pick(w.num_hosts - 1)) % w.num_hosts;
		flow->mtu = 256u << sim_pick(3);
		flow->psn = sim_pick(2) ? VB_PSN_MASK - sim_pick(50) : (uint32_t)sim_random() & VB_PSN_MASK;
		flow->to_post = w.to_send;
		flow->post_at = sim.now;
		flow->last = -1;
		vb_uc_resp_init(&flow->resp, &(struct vb_uc_resp_config){ .mtu = flow->mtu,
									  .first_psn = flow->psn,
									  .pkey = VB_PKEY_DEFAULT,
									  .ops = &ops,
									  .ctx = flow });
	}
	memset(w.datagrams, 0, sizeof(w.datagrams));
	w.num_datagrams = 0;
	w.datagram_at = sim.now;
}

static void take_arrivals(void)
{
	struct sim_arrival a;

	while (sim_next_arrival() <= sim.now) {
		if (!sim_arrive(&a))
			continue;
		unsigned qpn = a.packet.destination_qpn;
		size_t len =
			(size_t)(a.packet.payload - a.packet.bytes) + (a.packet.payload_bytes + 3u) / 4 * 4;
		if (qpn >= UD_QPN)
			receive_datagram(&a, len);
		else
			receive_connected(&w.flows[qpn - FLOW_QPN], &a.packet);
	}
}

static void live(void)
{
	for (;;) {
		uint64_t next = vb_min_u64(sim_next_arrival(), w.datagram_at);
		for (unsigned i = 0; i < w.num_flows; i++)
			next = vb_min_u64(next, w.flows[i].post_at);
		if (next == UINT64_MAX)
			return;
		sim.now = next > sim.now ? next : sim.now;
		take_arrivals();
		for (unsigned i = 0; i < w.num_flows; i++)
			if (w.flows[i].post_at <= sim.now)
				post(&w.flows[i]);
		if (w.datagram_at <= sim.now)
			send_datagram();
	}
}

/*
 * --- the oracle
 * ------------------------------------------------------------------------------------------------
 */

/* WRITEs without immediate data end unseen. */
static bool is_reported(const struct vb_request *r)
{
	return r->kind == VB_REQ_SEND || r->tail == VB_TAIL_IMM;
}

static void check_message(const struct flow *flow, unsigned number)
{
	const struct message *m = &flow->messages[number];

	CHECK(m->delivered <= m->firsts, "flow %u: message %u delivered %u times, arrived %u", flow->index,
	      number, m->delivered, m->firsts);
	if (!w.profile->ordered)
		return;
	CHECK(m->arrived <= m->packets && m->delivered <= 1, "flow %u: message %u twice", flow->index,
	      number);
	bool is_due = m->arrived == m->packets && !m->refused && is_reported(&m->request);
	CHECK(is_due ? m->delivered || w.profile->scarce : !m->delivered,
	      "flow %u: message %u: %u of %u packets, delivered %u", flow->index, number, m->arrived,
	      m->packets, m->delivered);
}

/* May a WRITE have put this byte there? */
static bool is_written(const struct flow *flow, unsigned at)
{
	for (unsigned i = 0; i < flow->num_posted; i++) {
		const struct vb_request *r = &flow->messages[i].request;
		uint64_t offset = BASE + at - r->remote_addr;
		if (r->kind == VB_REQ_WRITE && !flow->messages[i].refused && flow->messages[i].arrived &&
		    offset < r->length && flow->memory[at] == byte_of(flow->index, i, offset))
			return true;
	}
	return false;
}

static void check_flow(const struct flow *flow)
{
	for (unsigned i = 0; i < flow->num_posted; i++)
		check_message(flow, i);
	for (unsigned i = 0; i < MEMORY; i++)
		CHECK(!flow->memory[i] || is_written(flow, i),
		      "flow %u: byte %u of the memory comes from nowhere", flow->index, i);
}

static void check_datagram(const struct datagram *d)
{
	CHECK(d->delivered == (d->send.qkey == QKEY ? d->arrived : 0),
	      "datagram %u arrived %u times, delivered %u", d->send.psn, d->arrived, d->delivered);
}

static void add_up(unsigned at)
{
	for (unsigned i = 0; i < w.num_flows; i++) {
		totals[at].messages += w.flows[i].num_posted;
		for (unsigned k = 0; k < w.flows[i].num_posted; k++)
			totals[at].delivered += w.flows[i].messages[k].delivered;
	}
	totals[at].datagrams += w.num_datagrams;
}

static bool run(uint64_t seed, unsigned size)
{
	unsigned at = (unsigned)(seed % VB_ARRAY_LEN(profiles));

	w.profile = &profiles[at];
	w.num_hosts = 2 + (unsigned)(seed / VB_ARRAY_LEN(profiles) % (SIM_HOSTS - 1));
	w.to_send = size;
	sim_begin(seed, &w.profile->network, w.num_hosts);
	if (setjmp(sim.failure))
		return false;
	set_up();
	live();
	for (unsigned i = 0; i < w.num_flows; i++)
		check_flow(&w.flows[i]);
	for (unsigned i = 0; i < w.num_datagrams; i++)
		check_datagram(&w.datagrams[i]);
	add_up(at);
	return true;
}

static bool report(void)
{
	for (unsigned i = 0; i < VB_ARRAY_LEN(profiles); i++)
		printf("# %-36s %8llu messages, %8llu delivered, %8llu datagrams\n", profiles[i].name,
		       (unsigned long long)totals[i].messages, (unsigned long long)totals[i].delivered,
		       (unsigned long long)totals[i].datagrams);
	return true;
}

int main(int argc, char **argv)
{
	return sim_main(argc, argv, "unreliable", MAX_MESSAGES, run, report);
}

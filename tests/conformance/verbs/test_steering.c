/* SPDX-License-Identifier: BSD-2-Clause */
/* Which frames rules take: each kind of specification and of rule; and what work queues are chosen by. */
#include "raw.h"

#include "../../kernel.h"
#include "../../unit/netns.h"

#include <netinet/in.h>
#include <netinet/udp.h>

static bool has_own_network; /* whose loopback may be changed */
#define NOT_OWN "there is no network namespace here, whose loopback could be changed"

/* ---- frames ---- */

struct frame {
	bool is_v6, is_tcp, is_multicast;
	uint8_t tos, ttl, from, to; /* the last bytes of the addresses */
	uint16_t port;              /* to the next one */
	uint32_t label;
};

static void put16(uint8_t *at, uint16_t v) { at[0] = (uint8_t)(v >> 8), at[1] = (uint8_t)v; }

static void build_frame(uint8_t *f, const struct frame *what)
{
	static const uint8_t v6[16] = { 0xfd, 1 };
	uint8_t *ip = f + 14, *ports = ip + (what->is_v6 ? 40 : 20),
		protocol = what->is_tcp ? IPPROTO_TCP : IPPROTO_UDP;
	memset(f, 0, FRAME);
	memcpy(f, "\x02\x50\x56\x11\x22\x33\x02\x00\x00\x00\x00\x01", 12);
	f[0] |= what->is_multicast;
	put16(f + 12, what->is_v6 ? 0x86dd : 0x0800);
	if (what->is_v6) {
		uint32_t first = htonl(6u << 28 | (uint32_t)what->tos << 20 | what->label);
		memcpy(ip, &first, 4);
		put16(ip + 4, FRAME - 14 - 40);
		ip[6] = protocol;
		ip[7] = what->ttl;
		memcpy(ip + 8, v6, 16);
		memcpy(ip + 24, v6, 16);
		ip[23] = what->from;
		ip[39] = what->to;
	} else {
		ip[0] = 0x45;
		ip[1] = what->tos;
		put16(ip + 2, FRAME - 14);
		ip[8] = what->ttl;
		ip[9] = protocol;
		memcpy(ip + 12, "\x0a\x01\x01\x00\x0a\x02\x02\x00", 8);
		ip[15] = what->from;
		ip[19] = what->to;
	}
	put16(ports, what->port);
	put16(ports + 2, what->port + 1);
	if (what->is_tcp)
		ports[12] = 0x50;
}

static void send_one(struct world *w, struct ibv_qp *sender, const struct frame *what)
{
	struct ibv_sge sge = sge_at(w, 0, FRAME);
	struct ibv_send_wr *bad, wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };
	build_frame(w->buffer, what);
	assert_errno(0, ibv_post_send(sender, &wr, &bad));
	assert_int_equal(next_wc(sender->send_cq).status, IBV_WC_SUCCESS);
}

/* ---- specifications ---- */

struct one_spec {
	struct ibv_flow_attr attr;
	union {
		struct ibv_flow_spec_ipv4 ip4;
		struct ibv_flow_spec_ipv4_ext ip4_ext;
		struct ibv_flow_spec_ipv6 ip6;
		struct ibv_flow_spec_tcp_udp ports;
		struct ibv_flow_spec_esp esp;
		struct ibv_flow_spec_tunnel tunnel;
		struct ibv_flow_spec_mpls mpls;
		/* which would be aligned, and so not directly behind */
		uint8_t handle[sizeof(struct ibv_flow_spec_action_handle)];
	};
};
_Static_assert(offsetof(struct one_spec, ip4) == sizeof(struct ibv_flow_attr), "directly behind");

static struct one_spec rule_of(unsigned type, size_t bytes)
{
	struct one_spec r = {
		.attr = { .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof(r), .num_of_specs = 1, .port = 1 }
	};
	r.ip4.type = type;
	r.ip4.size = (uint16_t)bytes;
	return r;
}

static struct one_spec ip4_rule(void)
{
	struct one_spec r = rule_of(IBV_FLOW_SPEC_IPV4, sizeof(r.ip4));
	r.ip4.val.dst_ip = htonl(0x0a020207);
	r.ip4.mask.dst_ip = 0xffffffff;
	return r;
}

static struct one_spec ip4_ext_rule(void)
{
	struct one_spec r = rule_of(IBV_FLOW_SPEC_IPV4_EXT, sizeof(r.ip4_ext));
	r.ip4_ext.val.proto = IPPROTO_UDP;
	r.ip4_ext.mask.proto = 0xff;
	r.ip4_ext.val.tos = 0x20;
	r.ip4_ext.mask.tos = 0xf0;
	r.ip4_ext.val.ttl = 9;
	r.ip4_ext.mask.ttl = 0xff;
	return r;
}

static struct one_spec ip6_rule(void)
{
	struct one_spec r = rule_of(IBV_FLOW_SPEC_IPV6, sizeof(r.ip6));
	r.ip6.val.dst_ip[15] = 7;
	r.ip6.mask.dst_ip[15] = 0xff;
	r.ip6.val.flow_label = htonl(0x12345);
	r.ip6.mask.flow_label = htonl(0xfffff);
	r.ip6.val.traffic_class = 0x20;
	r.ip6.mask.traffic_class = 0xff;
	return r;
}

static struct one_spec tcp_rule(void)
{
	struct one_spec r = rule_of(IBV_FLOW_SPEC_TCP, sizeof(r.ports));
	r.ports.val.dst_port = htons(81);
	r.ports.mask.dst_port = 0xffff;
	return r;
}

static void flow__each_specification(void **state)
{
	struct world *w = *state;
	const struct {
		struct one_spec (*rule)(void);
		struct frame taken, left[3];
	} cases[] = {
		{ ip4_rule, { .to = 7 }, { { .to = 8 }, { .to = 7, .is_v6 = true }, { .from = 7 } } },
		{ ip4_ext_rule, { .tos = 0x2c, .ttl = 9 }, { { .tos = 0x3c, .ttl = 9 }, { .tos = 0x2c, .ttl = 8 }, { .tos = 0x2c, .ttl = 9, .is_tcp = true } } },
		{ ip6_rule, { .is_v6 = true, .to = 7, .tos = 0x20, .label = 0x12345 },
		  { { .is_v6 = true, .to = 6, .tos = 0x20, .label = 0x12345 }, { .is_v6 = true, .to = 7, .tos = 0x20, .label = 0x12344 },
		    { .is_v6 = true, .to = 7, .tos = 0x21, .label = 0x12345 } } },
		{ tcp_rule, { .is_tcp = true, .port = 80 }, { { .is_tcp = true, .port = 81 }, { .port = 80 }, { .is_v6 = true, .port = 80 } } },
	};
	struct ibv_qp *sender = make_sender(w), *qp = make_raw(w);
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct one_spec r = cases[i].rule();
		struct ibv_flow *flow = ibv_create_flow(qp, &r.attr);
		assert_non_null(flow);
		post_at(w, qp, 2);
		for (int k = 0; k < 3; k++)
			send_one(w, sender, &cases[i].left[k]);
		nothing_more(w);
		send_one(w, sender, &cases[i].taken);
		assert_int_equal(next_wc(w->cq).wr_id, 2);
		assert_memory_equal((uint8_t *)w->buffer + 2 * SLOT, w->buffer, FRAME);
		assert_errno(0, ibv_destroy_flow(flow));
	}
	assert_errno(0, ibv_destroy_qp(qp));
	destroy_sender(sender);
}

static void flow__specifications_refused(void **state)
{
	static const struct {
		unsigned type;
		size_t bytes;
	} never[] = {
		{ IBV_FLOW_SPEC_ESP, sizeof(struct ibv_flow_spec_esp) },
		{ IBV_FLOW_SPEC_VXLAN_TUNNEL, sizeof(struct ibv_flow_spec_tunnel) },
		{ IBV_FLOW_SPEC_MPLS, sizeof(struct ibv_flow_spec_mpls) },
		{ IBV_FLOW_SPEC_ACTION_HANDLE, sizeof(struct ibv_flow_spec_action_handle) },
		{ IBV_FLOW_SPEC_INNER | IBV_FLOW_SPEC_IPV4, sizeof(struct ibv_flow_spec_ipv4) },
	};
	struct world *w = *state;
	struct ibv_qp *qp = make_raw(w);
	for (size_t i = 0; i < COUNT(never); i++) {
		struct one_spec r = rule_of(never[i].type, never[i].bytes);
		assert_null_errno(EOPNOTSUPP, ibv_create_flow(qp, &r.attr));
	}
	struct one_spec r = ip4_rule();
	r.attr.type = IBV_FLOW_ATTR_ALL_DEFAULT;
	assert_null_errno(EINVAL, ibv_create_flow(qp, &r.attr)); /* it has specifications */
	r.attr.type = IBV_FLOW_ATTR_SNIFFER + 1;
	assert_null_errno(EINVAL, ibv_create_flow(qp, &r.attr));
	r.attr.type = IBV_FLOW_ATTR_NORMAL;
	r.attr.comp_mask = 1;
	assert_null_errno(EINVAL, ibv_create_flow(qp, &r.attr));
	r = rule_of(IBV_FLOW_SPEC_ACTION_COUNT, sizeof(struct ibv_flow_spec_counter_action));
	assert_null_errno(EINVAL, ibv_create_flow(qp, &r.attr)); /* in which counters? */
	assert_errno(0, ibv_destroy_qp(qp));
}

/* ---- kinds of rules ---- */

static struct ibv_flow *rest(struct ibv_qp *qp, enum ibv_flow_attr_type type)
{
	struct ibv_flow_attr attr = { .type = type, .size = sizeof(attr), .port = 1 };
	struct ibv_flow *flow = ibv_create_flow(qp, &attr);
	assert_non_null(flow);
	return flow;
}

/* The rest goes to those for it, multicast first; a sniffer sees all. */
static void flow__for_the_rest(void **state)
{
	struct world *w = *state;
	struct ibv_qp *sender = make_sender(w), *qps[4];
	struct one_spec r = ip4_rule();
	for (int i = 0; i < 4; i++)
		qps[i] = make_raw(w);
	struct ibv_flow *flows[] = {
		ibv_create_flow(qps[0], &r.attr),
		rest(qps[1], IBV_FLOW_ATTR_MC_DEFAULT),
		rest(qps[2], IBV_FLOW_ATTR_ALL_DEFAULT),
		rest(qps[3], IBV_FLOW_ATTR_SNIFFER),
	};
	static const struct {
		struct frame frame;
		int taker;
	} cases[] = { { { .to = 7, .is_multicast = true }, 0 },
		      { { .to = 8, .is_multicast = true }, 1 },
		      { { .to = 8 }, 2 } };
	for (size_t i = 0; i < COUNT(cases); i++) {
		unsigned seen = 0;
		for (int k = 0; k < 4; k++)
			if (k == 3 || k == cases[i].taker)
				post_at(w, qps[k], 2u + (unsigned)k);
		send_one(w, sender, &cases[i].frame);
		for (int k = 0; k < 2; k++)
			seen |= 1u << next_wc(w->cq).wr_id;
		assert_int_equal(seen, 1u << (2 + cases[i].taker) | 1u << 5);
		nothing_more(w);
	}
	for (int i = 0; i < 4; i++) {
		assert_errno(0, ibv_destroy_flow(flows[i]));
		assert_errno(0, ibv_destroy_qp(qps[i]));
	}
	destroy_sender(sender);
}

static void flow__that_does_not_trap(void **state)
{
	struct world *w = *state;
	struct ibv_qp *sender = make_sender(w), *a = make_raw(w), *b = make_raw(w);
	struct one_spec r = ip4_rule();
	r.attr.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
	struct ibv_flow *first = ibv_create_flow(a, &r.attr);
	r.attr.flags = 0;
	r.attr.priority = 1;
	struct ibv_flow *second = ibv_create_flow(b, &r.attr);
	assert_true(first && second);
	post_at(w, a, 2);
	post_at(w, b, 3);
	send_one(w, sender, &(struct frame){ .to = 7 });
	assert_int_equal(next_wc(w->cq).wr_id + next_wc(w->cq).wr_id, 5);
	assert_errno(0, ibv_destroy_flow(first));
	assert_errno(0, ibv_destroy_flow(second));
	assert_errno(0, ibv_destroy_qp(a));
	assert_errno(0, ibv_destroy_qp(b));
	destroy_sender(sender);
}

static void flow__for_as_many_as_there_are(void **state)
{
	enum { MANY = 40 };
	struct world *w = *state;
	struct ibv_qp *sender = make_sender(w), *qps[MANY];
	struct ibv_flow *flows[MANY];
	uint64_t seen = 0;
	for (unsigned i = 0; i < MANY; i++) {
		struct ibv_sge sge = sge_at(w, SLOT, SLOT);
		struct ibv_recv_wr *bad, wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 };
		qps[i] = make_raw(w);
		flows[i] = rest(qps[i], IBV_FLOW_ATTR_SNIFFER);
		assert_errno(0, ibv_post_recv(qps[i], &wr, &bad));
	}
	send_one(w, sender, &(struct frame){ .to = 7 });
	for (unsigned i = 0; i < MANY; i++)
		seen |= UINT64_C(1) << next_wc(w->cq).wr_id;
	assert_int_equal(seen, (UINT64_C(1) << MANY) - 1);
	for (unsigned i = 0; i < MANY; i++) {
		assert_errno(0, ibv_destroy_flow(flows[i]));
		assert_errno(0, ibv_destroy_qp(qps[i]));
	}
	destroy_sender(sender);
}

/* ---- the end of a rule ---- */

enum { LONG_FRAME = 60000, TRIES = 200 };

struct flood {
	struct ibv_qp *sender;
	struct ibv_mr *mr;
	atomic_bool is_over;
};

static void *flood(void *arg)
{
	struct flood *f = arg;
	while (!atomic_load(&f->is_over)) {
		struct ibv_sge sge = { .addr = (uintptr_t)f->mr->addr,
				       .length = LONG_FRAME,
				       .lkey = f->mr->lkey };
		struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };
		struct ibv_wc wc;
		(void)ibv_post_send(f->sender, &wr, &bad);
		(void)ibv_poll_cq(f->sender->send_cq, 1, &wc);
	}
	return NULL;
}

/* Another rule keeps the frames coming, and long ones take their time on their way. */
static void flow__gives_nothing_after_its_end(void **state)
{
	struct world *w = *state;
	struct ibv_qp *other = make_raw(w), *qp = make_raw(w);
	struct flood f = { .sender = make_sender(w) };
	struct ibv_flow *others = rest(other, IBV_FLOW_ATTR_SNIFFER);
	void *frame = calloc(1, LONG_FRAME);
	pthread_t thread;
	unsigned late = 0;
	f.mr = ibv_reg_mr(w->pd, frame, LONG_FRAME, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(f.mr);
	struct ibv_sge sge = { .addr = (uintptr_t)frame, .length = LONG_FRAME, .lkey = f.mr->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = 7, .sg_list = &sge, .num_sge = 1 };
	struct ibv_wc wc;
	build_frame(frame, &(struct frame){ .to = 7 });
	assert_int_equal(pthread_create(&thread, NULL, flood, &f), 0);
	for (int i = 0; i < TRIES; i++) {
		struct ibv_flow *flow = rest(qp, IBV_FLOW_ATTR_SNIFFER);
		assert_errno(0, ibv_post_recv(qp, &wr, &bad));
		assert_int_equal(next_wc(w->cq).wr_id, 7);
		for (int k = 0; k < DEPTH; k++)
			assert_errno(0, ibv_post_recv(qp, &wr, &bad));
		assert_errno(0, ibv_destroy_flow(flow));
		while (ibv_poll_cq(w->cq, 1, &wc) > 0)
			;
		usleep(200);
		late += ibv_poll_cq(w->cq, 1, &wc) > 0;
		assert_errno(0, set_state(qp, IBV_QPS_ERR));
		while (ibv_poll_cq(w->cq, 1, &wc) > 0)
			;
		assert_errno(0, set_state(qp, IBV_QPS_RESET));
		struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
		assert_errno(0, ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PORT));
		assert_errno(0, set_state(qp, IBV_QPS_RTR));
	}
	atomic_store(&f.is_over, true);
	pthread_join(thread, NULL);
	assert_errno(0, ibv_destroy_flow(others));
	assert_errno(0, ibv_destroy_qp(other));
	assert_errno(0, ibv_destroy_qp(qp));
	destroy_sender(f.sender);
	assert_errno(0, ibv_dereg_mr(f.mr));
	free(frame);
	assert_int_equal(late, 0);
}

/* ---- what the kernel joins ---- */

enum { LOOP_MTU = 1500, STREAM = 200000, FULL_FRAMES = 500, BOX = 2048, BOXES = 256 };

static uint8_t byte_at(size_t at) { return (uint8_t)(at * 7 + at / 251); }

/* A queue pair with many receives that hears the loopback, whose MTU is an Ethernet's. */
struct ear {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct ibv_flow *flow;
	uint8_t *boxes;
};

static void post_box(struct ear *e, uint64_t i)
{
	struct ibv_sge sge = { .addr = (uintptr_t)e->boxes + i * BOX, .length = BOX, .lkey = e->mr->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 };
	assert_errno(0, ibv_post_recv(e->qp, &wr, &bad));
}

static struct ear make_ear(struct world *w, struct one_spec rule)
{
	struct ear e = { .boxes = malloc(BOX * BOXES) };
	assert_non_null(e.cq = ibv_create_cq(w->ctx, BOXES, NULL, NULL, 0));
	struct ibv_qp_init_attr_ex attr = raw_attr(w, e.cq, e.cq);
	attr.cap.max_recv_wr = BOXES;
	e.qp = make_raw_of(w, &attr);
	assert_non_null(e.mr = ibv_reg_mr(w->pd, e.boxes, BOX * BOXES, IBV_ACCESS_LOCAL_WRITE));
	for (unsigned i = 0; i < BOXES; i++)
		post_box(&e, i);
	assert_int_equal(system("ip link set lo mtu 1500"), 0);
	assert_non_null(e.flow = ibv_create_flow(e.qp, &rule.attr));
	return e;
}

static void end_ear(struct ear *e)
{
	assert_errno(0, ibv_destroy_flow(e->flow));
	assert_errno(0, ibv_destroy_qp(e->qp));
	assert_errno(0, ibv_destroy_cq(e->cq));
	assert_errno(0, ibv_dereg_mr(e->mr));
	free(e->boxes);
	assert_int_equal(system("ip link set lo mtu 65536"), 0);
}

static struct one_spec rule_to_port(unsigned type, uint16_t port)
{
	struct one_spec r = rule_of(type, sizeof(r.ports));
	r.ports.val.dst_port = port;
	r.ports.mask.dst_port = 0xffff;
	return r;
}

static int bound(int type, struct sockaddr_in *at)
{
	socklen_t bytes = sizeof(*at);
	int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
	*at = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	assert_int_equal(bind(fd, (struct sockaddr *)at, sizeof(*at)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)at, &bytes), 0);
	return fd;
}

/* The next frame: one that fits the wire, whose checksums are right. */
static const uint8_t *next_frame(struct ear *e, struct ibv_wc *wc)
{
	*wc = next_wc(e->cq);
	assert_int_equal(wc->status, IBV_WC_SUCCESS);
	assert_true(wc->byte_len <= 14 + LOOP_MTU);
	assert_true(wc->wc_flags & IBV_WC_IP_CSUM_OK);
	return e->boxes + wc->wr_id * BOX;
}

struct writing {
	int fd;
	atomic_bool is_over;
};

static void *write_stream(void *arg)
{
	static uint8_t data[STREAM];
	struct writing *x = arg;
	for (size_t i = 0; i < STREAM; i++)
		data[i] = byte_at(i);
	for (size_t at = 0; !atomic_load(&x->is_over); at %= STREAM) {
		ssize_t n = write(x->fd, data + at, STREAM - at);
		if (n <= 0)
			break;
		at += (size_t)n;
	}
	return NULL;
}

static void *read_all(void *arg)
{
	static uint8_t data[65536];
	while (read(*(int *)arg, data, sizeof(data)) > 0)
		;
	return NULL;
}

static uint32_t get32(const uint8_t *at)
{
	return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* TCP gives its interface long segments to be cut, with checksums left open. Some frames may be lost. */
static void frames__of_tcp_as_on_a_wire(void **state)
{
	if (!has_own_network)
		SKIP(NOT_OWN);
	if (!kernel_tells_joined())
		SKIP(NO_JOINED);
	struct world *w = *state;
	ibv_destroy_qp(make_raw(w)); /* or there is no right to packet sockets */
	struct sockaddr_in at;
	struct writing ours = { .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) };
	int listener = bound(SOCK_STREAM, &at);
	struct ear e = make_ear(w, rule_to_port(IBV_FLOW_SPEC_TCP, at.sin_port));
	pthread_t writer, reader;
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(connect(ours.fd, (struct sockaddr *)&at, sizeof(at)), 0);
	int theirs = accept(listener, NULL, NULL);
	assert_int_equal(pthread_create(&writer, NULL, write_stream, &ours), 0);
	assert_int_equal(pthread_create(&reader, NULL, read_all, &theirs), 0);
	uint32_t first = 0;
	for (unsigned full = 0; full < FULL_FRAMES;) {
		struct ibv_wc wc;
		const uint8_t *f = next_frame(&e, &wc), *tcp = f + 34;
		size_t header = 34 + (size_t)(tcp[12] >> 4) * 4, bytes = wc.byte_len - header;
		if (tcp[13] & 2) /* SYN */
			first = get32(tcp + 4) + 1;
		for (size_t i = 0; i < bytes; i++)
			assert_int_equal(f[header + i], byte_at((get32(tcp + 4) - first + i) % STREAM));
		full += wc.byte_len == 14 + LOOP_MTU;
		post_box(&e, wc.wr_id);
	}
	atomic_store(&ours.is_over, true);
	assert_int_equal(pthread_join(writer, NULL), 0);
	close(ours.fd);
	assert_int_equal(pthread_join(reader, NULL), 0);
	close(theirs);
	close(listener);
	end_ear(&e);
}

/* A process may send many datagrams at once, as this library does with its packets. */
static void frames__of_udp_as_on_a_wire(void **state)
{
	enum { EACH = 1000, REST = 300, COUNT_OF = 5, ALL = (COUNT_OF - 1) * EACH + REST };
	if (!has_own_network)
		SKIP(NOT_OWN);
	if (!kernel_tells_joined_datagrams())
		SKIP(NO_JOINED_DATAGRAMS);
	struct world *w = *state;
	ibv_destroy_qp(make_raw(w)); /* or there is no right to packet sockets */
	struct sockaddr_in at, from;
	int theirs = bound(SOCK_DGRAM, &at), ours = bound(SOCK_DGRAM, &from), each = EACH;
	uint8_t data[ALL];
	struct ear e = make_ear(w, rule_to_port(IBV_FLOW_SPEC_UDP, at.sin_port));
	for (size_t i = 0; i < ALL; i++)
		data[i] = byte_at(i);
	assert_int_equal(setsockopt(ours, SOL_UDP, UDP_SEGMENT, &each, sizeof(each)), 0);
	assert_int_equal(sendto(ours, data, ALL, 0, (struct sockaddr *)&at, sizeof(at)), ALL);
	for (unsigned i = 0; i < COUNT_OF; i++) {
		struct ibv_wc wc;
		const uint8_t *f = next_frame(&e, &wc);
		size_t bytes = i < COUNT_OF - 1 ? EACH : REST;
		assert_int_equal(wc.byte_len, 42 + bytes);
		assert_int_equal(f[16] << 8 | f[17], 28 + bytes);
		assert_int_equal(f[38] << 8 | f[39], 8 + bytes);
		assert_memory_equal(f + 42, data + i * EACH, bytes);
	}
	close(ours);
	close(theirs);
	end_ear(&e);
}

/* ---- an interface that is slower than the program ---- */

enum { TCP_BYTES = 14 + 20 + 20 };

/* How many frames the loopback has sent. */
static unsigned long long frames_sent(void)
{
	unsigned long long n = 0;
	char line[256];
	FILE *f = fopen("/proc/net/dev", "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		(void)sscanf(line, " lo: %*u %*u %*u %*u %*u %*u %*u %*u %*u %llu", &n);
	fclose(f);
	return n;
}

/* The address is nobody's: no answer to a frame is counted. */
static void tcp_header(uint8_t *h)
{
	uint8_t whole[FRAME];
	build_frame(whole, &(struct frame){ .to = 7, .is_tcp = true });
	memcpy(h, whole, TCP_BYTES);
}

/* Single frames, and segments, all of more bytes than a socket holds. */
static void post__waits_for_the_interface(void **state)
{
	enum { SINGLE = 200, SEGMENTS = 3, MSS = 1000, EACH = 100 };
	struct world *w = *state;
	struct ibv_qp_init_attr_ex attr = raw_attr(w, w->cq, w->cq);
	attr.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
	attr.max_tso_header = TCP_BYTES;
	struct ibv_qp *qp = make_raw_of(w, &attr);
	uint8_t *data = calloc(1, EACH * MSS), header[TCP_BYTES];
	struct ibv_mr *mr = ibv_reg_mr(w->pd, data, EACH * MSS, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(mr);
	if (!has_own_network || system("tc qdisc add dev lo root tbf rate 20mbit burst 20kb limit 10mb 2>/dev/null")) {
		print_message("# skipped: no interface can be made slow here (tc)\n");
	} else {
		struct ibv_sge sge = { .addr = (uintptr_t)data, .length = MSS, .lkey = mr->lkey };
		struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };
		unsigned long long before = frames_sent();
		build_frame(data, &(struct frame){ .to = 7 });
		for (int i = 0; i < SINGLE; i++) {
			assert_errno(0, ibv_post_send(qp, &wr, &bad));
			assert_int_equal(next_wc(w->cq).status, IBV_WC_SUCCESS);
		}
		tcp_header(header);
		sge.length = EACH * MSS;
		wr.opcode = IBV_WR_TSO;
		wr.tso = (__typeof__(wr.tso)){ .hdr = header, .hdr_sz = TCP_BYTES, .mss = MSS };
		for (int i = 0; i < SEGMENTS; i++)
			assert_errno(0, ibv_post_send(qp, &wr, &bad));
		drain(w->cq, SEGMENTS);
		for (int i = 0; i < 5000 && frames_sent() - before < SINGLE + SEGMENTS * EACH; i++)
			usleep(1000);
		assert_int_equal(frames_sent() - before, SINGLE + SEGMENTS * EACH);
		assert_int_equal(system("tc qdisc del dev lo root"), 0);
	}
	assert_errno(0, ibv_destroy_qp(qp));
	assert_errno(0, ibv_dereg_mr(mr));
	free(data);
}

static void counters__read_from_a_cache(void **state)
{
	struct world *w = *state;
	struct ibv_counters_init_attr none = { 0 };
	struct ibv_counters *counters = ibv_create_counters(w->ctx, &none);
	uint64_t value = 5;
	assert_non_null(counters);
	assert_errno(0, ibv_read_counters(counters, &value, 1, IBV_READ_COUNTERS_ATTR_PREFER_CACHED));
	assert_int_equal(value, 0);
	assert_errno(0, ibv_destroy_counters(counters));
}

/* ---- spreading ---- */

enum { QUEUES = 4, FLOWS = 16 };

struct spread {
	struct ibv_wq *wqs[QUEUES];
	struct ibv_rwq_ind_table *table;
	struct ibv_qp *qp;
	struct ibv_flow *flow;
};

static struct ibv_wq *make_wq(struct world *w, unsigned id)
{
	struct ibv_wq_init_attr attr = {
		.wq_type = IBV_WQT_RQ, .max_wr = 64, .max_sge = 1, .pd = w->pd, .cq = w->cq
	};
	struct ibv_wq_attr ready = { .attr_mask = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE,
				     .wq_state = IBV_WQS_RDY,
				     .curr_wq_state = IBV_WQS_RESET };
	struct ibv_sge sge = sge_at(w, (size_t)(id + 2) * SLOT, SLOT);
	struct ibv_recv_wr *bad, wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };
	struct ibv_wq *wq = ibv_create_wq(w->ctx, &attr);
	assert_non_null(wq);
	assert_int_equal(wq->state, IBV_WQS_RESET);
	assert_errno(0, ibv_modify_wq(wq, &ready));
	assert_errno(EINVAL, ibv_modify_wq(wq, &ready)); /* it is not in RESET any more */
	for (int i = 0; i < 3 * FLOWS; i++)
		assert_errno(0, ibv_post_wq_recv(wq, &wr, &bad));
	return wq;
}

static struct ibv_qp *make_spreader(struct world *w, struct spread *s, uint64_t fields)
{
	static uint8_t key[40];
	for (unsigned i = 0; i < sizeof(key); i++)
		key[i] = (uint8_t)(i * 37 + 11);
	struct ibv_qp_init_attr_ex attr = { .qp_type = IBV_QPT_RAW_PACKET,
					    .pd = w->pd,
					    .rwq_ind_tbl = s->table,
					    .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE |
							 IBV_QP_INIT_ATTR_RX_HASH,
					    .rx_hash_conf = { .rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,
							      .rx_hash_key_len = sizeof(key),
							      .rx_hash_key = key,
							      .rx_hash_fields_mask = fields } };
	return ibv_create_qp_ex(w->ctx, &attr);
}

/* The queues that frames go to which differ in one thing; a flow stays where it is. */
static unsigned queues_of(struct world *w, struct ibv_qp *sender, const struct frame *like, bool varies_port,
			  bool varies_source)
{
	unsigned used = 0;
	for (unsigned i = 0; i < FLOWS; i++) {
		struct frame f = *like;
		f.to = (uint8_t)(varies_port || varies_source ? 1 : i);
		f.port = (uint16_t)(varies_port ? 2 * i : 100);
		f.from = (uint8_t)(varies_source ? i : 1);
		send_one(w, sender, &f);
		uint64_t queue = next_wc(w->cq).wr_id;
		send_one(w, sender, &f);
		assert_int_equal(next_wc(w->cq).wr_id, queue);
		used |= 1u << queue;
	}
	return (unsigned)__builtin_popcount(used);
}

static void spread__by_field(void **state)
{
	static const struct {
		uint64_t field;
		struct frame like;
		bool varies_port, varies_source;
	} cases[] = {
		{ IBV_RX_HASH_DST_IPV4, { 0 }, false, false }, { IBV_RX_HASH_SRC_IPV4, { 0 }, false, true },
		{ IBV_RX_HASH_DST_IPV6, { .is_v6 = true }, false, false }, { IBV_RX_HASH_SRC_IPV6, { .is_v6 = true }, false, true },
		{ IBV_RX_HASH_SRC_PORT_TCP, { .is_tcp = true }, true, false }, { IBV_RX_HASH_DST_PORT_TCP, { .is_tcp = true }, true, false },
		{ IBV_RX_HASH_SRC_PORT_UDP, { 0 }, true, false }, { IBV_RX_HASH_DST_PORT_UDP, { .is_v6 = true }, true, false },
	};
	struct world *w = *state;
	struct spread s = { 0 };
	struct ibv_qp *sender = make_sender(w);
	for (size_t i = 0; i < COUNT(cases); i++) {
		for (unsigned k = 0; k < QUEUES; k++)
			s.wqs[k] = make_wq(w, k);
		struct ibv_rwq_ind_table_init_attr attr = { .log_ind_tbl_size = 2, .ind_tbl = s.wqs };
		assert_non_null(s.table = ibv_create_rwq_ind_table(w->ctx, &attr));
		assert_null_errno(EINVAL, make_spreader(w, &s, cases[i].field | IBV_RX_HASH_IPSEC_SPI));
		assert_null_errno(EINVAL, make_spreader(w, &s, cases[i].field | IBV_RX_HASH_INNER));
		assert_non_null(s.qp = make_spreader(w, &s, cases[i].field));
		s.flow = rest(s.qp, IBV_FLOW_ATTR_ALL_DEFAULT);
		assert_true(queues_of(w, sender, &cases[i].like, cases[i].varies_port,
				      cases[i].varies_source) > 1);
		bool other_port = !cases[i].varies_port; /* what is not hashed does not count */
		assert_int_equal(queues_of(w, sender, &cases[i].like, other_port, false), 1);
		assert_errno(0, ibv_destroy_flow(s.flow));
		assert_errno(0, ibv_destroy_qp(s.qp));
		assert_errno(0, ibv_destroy_rwq_ind_table(s.table));
		for (unsigned k = 0; k < QUEUES; k++)
			assert_errno(0, ibv_destroy_wq(s.wqs[k]));
	}
	destroy_sender(sender);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(flow__each_specification),
		WORLD_TEST(flow__specifications_refused),
		WORLD_TEST(flow__for_the_rest),
		WORLD_TEST(flow__that_does_not_trap),
		WORLD_TEST(flow__for_as_many_as_there_are),
		WORLD_TEST(flow__gives_nothing_after_its_end),
		WORLD_TEST(frames__of_tcp_as_on_a_wire),
		WORLD_TEST(frames__of_udp_as_on_a_wire),
		WORLD_TEST(post__waits_for_the_interface),
		WORLD_TEST(counters__read_from_a_cache),
		WORLD_TEST(spread__by_field),
	};
	has_own_network = netns_enter(); /* else what others send is part of the rest */
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Datagram sockets (proto/rsocket/rs_datagram.h) that talk to each other over a mail bag, one seed a run.
 *
 * Theory of operation. Some sockets of one IP version, each with a name and a queue pair. What they send goes
 * into the bag, over UDP or to a queue pair; from there it is taken in any order, lost, or taken twice.
 * Sockets are closed and come again under the same name with another queue pair, and strangers send what they
 * like over UDP.
 *
 *	send ─▶ known? ─▶ UD header + id ──┐
 *	         └ not ─▶ UDP header + id ─┴─▶ bag ─▶ the queue pair that is named, or the UDP name ─▶ ids
 *
 * The oracle. An id reaches the socket that it was for, with its sender's name, no more often than it was in
 * the bag. Answers are no more than data. When nothing is lost any more, one datagram each way makes two
 * sockets know each other, whatever they believed before.
 *
 * usage: sim_rs_datagram [FIRST_SEED [COUNT]]; sim_rs_datagram -v SEED [DATAGRAMS] for a trace.
 */
#include <stdio.h>
#include <string.h>

#include "proto/rsocket/rs_datagram.h"
#include "sim.h"

enum {
	MAX_SOCKETS = 5,
	MAX_SENT = 300,
	MAX_BAG = 2 * MAX_SENT,
	LETTER_BYTES = 64,
	ID_BYTES = 4,
	STRANGER = MAX_SOCKETS
};

struct socket {
	struct vb_rs_name name;
	uint32_t qpn;
	struct vb_rs_peer peers[MAX_SOCKETS + 1]; /* the last is of strangers */
};

struct letter {
	unsigned from, to;
	bool is_udp;
	uint32_t qpn; /* that it is for */
	size_t bytes;
	uint8_t data[LETTER_BYTES];
};

static struct {
	unsigned num_sockets;
	struct socket sockets[MAX_SOCKETS];
	uint32_t next_qpn;
	unsigned num_sent;
	struct sent { unsigned from, to, in_bag, arrived; bool by_qp; } sent[MAX_SENT];
	unsigned bag_size;
	struct letter bag[MAX_BAG];
	unsigned heard, answered;
} w;

static struct { uint64_t sent, arrived, by_qp; } totals;

static void put(const struct letter *l)
{
	if (w.bag_size < MAX_BAG)
		w.bag[w.bag_size++] = *l;
}

/* ---- sockets ---- */

static void open_socket(struct socket *s)
{
	s->qpn = w.next_qpn++;
	memset(s->peers, 0, sizeof(s->peers));
}

/*
 * What was said over UDP, by the old one and to it, is not on its way any longer than it takes to close a
 * socket and open another.
 */
static void open_anew(unsigned i)
{
	for (unsigned k = 0; k < w.bag_size;)
		if (w.bag[k].is_udp && (w.bag[k].from == i || w.bag[k].to == i))
			w.bag[k] = w.bag[--w.bag_size];
		else
			k++;
	open_socket(&w.sockets[i]);
}

static void send_udp(unsigned from, unsigned to, enum vb_rs_udp_op op, const void *data, size_t bytes)
{
	struct letter l = { .from = from, .to = to, .is_udp = true };
	struct vb_rs_udp h;
	uint32_t header = vb_rs_udp_header_make(&w.sockets[from].name, w.sockets[from].qpn, op, &h);

	memcpy(l.data, h.b, header);
	if (bytes)
		memcpy(l.data + header, data, bytes);
	l.bytes = header + bytes;
	put(&l);
}

static void send_datagram(unsigned from, unsigned to)
{
	uint32_t id = w.num_sent, qpn = w.sockets[from].peers[to].qpn;
	struct letter l = { .from = from, .to = to, .qpn = qpn };

	if (w.num_sent == MAX_SENT || w.bag_size == MAX_BAG)
		return;
	w.sent[w.num_sent++] = (struct sent){ .from = from, .to = to, .in_bag = 1, .by_qp = qpn };
	if (!qpn) {
		send_udp(from, to, VB_RS_UDP_DATA, &id, sizeof(id));
		return;
	}
	l.bytes = vb_rs_ud_header_make(&w.sockets[from].name, l.data);
	memcpy(l.data + l.bytes, &id, sizeof(id));
	l.bytes += sizeof(id);
	put(&l);
}

/* ---- arrivals ---- */

static void arrived(const struct letter *l, const uint8_t *data, size_t bytes)
{
	uint32_t id;

	if (l->from == STRANGER)
		return;
	CHECK(bytes == ID_BYTES, "%zu bytes of data", bytes);
	memcpy(&id, data, sizeof(id));
	CHECK(id < w.num_sent && w.sent[id].from == l->from && w.sent[id].to == l->to,
	      "datagram %u went astray", id);
	CHECK(++w.sent[id].arrived <= w.sent[id].in_bag, "datagram %u arrives too often", id);
	totals.arrived++;
}

static void take_udp(const struct letter *l)
{
	struct socket *s = &w.sockets[l->to];
	struct vb_rs_udp h;
	uint32_t header = vb_rs_udp_header_parse(l->data, l->bytes, vb_rs_name_is_ipv4(&s->name), &h);

	CHECK(header || l->from == STRANGER, "a message of ours is not known again");
	if (!header)
		return;
	CHECK(header <= l->bytes, "a header of %u bytes in %zu", header, l->bytes);
	if (!vb_rs_peer_learn(&s->peers[l->from], &h))
		return;
	w.heard++;
	arrived(l, l->data + header, l->bytes - header);
	if (l->from == STRANGER)
		return;
	w.answered++;
	send_udp(l->to, l->from, VB_RS_UDP_CONTROL, NULL, 0);
}

static void take_packet(const struct letter *l)
{
	struct vb_rs_name from;
	uint32_t header = vb_rs_ud_header_parse(l->data, l->bytes, &from);

	if (w.sockets[l->to].qpn != l->qpn)
		return; /* nobody's any more */
	CHECK(header && !memcmp(&from, &w.sockets[l->from].name, sizeof(from)),
	      "a packet without its sender's name");
	arrived(l, l->data + header, l->bytes - header);
}

static void take(unsigned i, bool leaves_it)
{
	struct letter l = w.bag[i];

	if (!leaves_it)
		w.bag[i] = w.bag[--w.bag_size];
	if (l.is_udp)
		take_udp(&l);
	else
		take_packet(&l);
}

/* ---- what happens ---- */

static void lose(unsigned i) { w.bag[i] = w.bag[--w.bag_size]; }

/* Another one of the same datagram. */
static void take_twice(unsigned i)
{
	const struct letter *l = &w.bag[i];
	uint32_t id;

	if (l->from != STRANGER && l->bytes >= ID_BYTES) {
		memcpy(&id, l->data + l->bytes - ID_BYTES, sizeof(id));
		if (id < w.num_sent && w.sent[id].from == l->from && w.sent[id].to == l->to)
			w.sent[id].in_bag++;
	}
	take(i, true);
}

static void strange_letter(void)
{
	struct letter l = { .from = STRANGER,
			    .to = sim_pick(w.num_sockets),
			    .is_udp = true,
			    .bytes = sim_pick(LETTER_BYTES + 1) };
	struct vb_rs_udp h;

	for (unsigned i = 0; i < LETTER_BYTES; i++)
		l.data[i] = (uint8_t)sim_random();
	if (sim_pick(2)) {
		uint32_t header = vb_rs_udp_header_make(
			&w.sockets[l.to].name, (uint32_t)sim_random() & 0xffffff, VB_RS_UDP_DATA, &h);
		memcpy(l.data, h.b, header);
		l.data[sim_pick(header)] ^= (uint8_t)(1u << sim_pick(8));
	}
	put(&l);
}

static void something_happens(void)
{
	unsigned from = sim_pick(w.num_sockets),
		 to = (from + 1 + sim_pick(w.num_sockets - 1)) % w.num_sockets;

	switch (sim_pick(12)) {
	case 0:
		strange_letter();
		break;
	case 1:
		if (w.bag_size)
			lose(sim_pick(w.bag_size));
		break;
	case 2:
		if (w.bag_size)
			take_twice(sim_pick(w.bag_size));
		break;
	case 3:
		if (!sim_pick(4))
			open_anew(from);
		break;
	case 4: case 5: case 6: case 7:
		send_datagram(from, to);
		break;
	default:
		if (w.bag_size)
			take(sim_pick(w.bag_size), false);
	}
}

static void empty_the_bag(void)
{
	while (w.bag_size)
		take(sim_pick(w.bag_size), false);
}

static void expect_to_arrive(unsigned from, unsigned to)
{
	unsigned id = w.num_sent;

	send_datagram(from, to);
	empty_the_bag();
	CHECK(w.sent[id].by_qp, "%u does not know %u", from, to);
	CHECK(w.sent[id].arrived == 1, "%u does not reach %u", from, to);
	totals.by_qp++;
}

static void come_to_rest(void)
{
	empty_the_bag();
	w.num_sent = 0; /* room for what follows */
	for (unsigned a = 0; a < w.num_sockets; a++)
		for (unsigned b = 0; b < a; b++) {
			send_datagram(a, b);
			send_datagram(b, a);
			empty_the_bag();
			expect_to_arrive(a, b);
			expect_to_arrive(b, a);
		}
}

static void begin(uint64_t seed)
{
	static const struct sim_network none;
	bool ipv4;

	memset(&w, 0, sizeof(w));
	sim_begin(seed, &none, 1);
	w.num_sockets = 2 + sim_pick(MAX_SOCKETS - 1);
	w.next_qpn = 1;
	ipv4 = sim_pick(2);
	for (unsigned i = 0; i < w.num_sockets; i++) {
		struct vb_rs_name *name = &w.sockets[i].name;
		*name = (struct vb_rs_name){ .ip = { ipv4 ? 0 : 0xfd, [15] = (uint8_t)i },
					     .port = (uint16_t)(1000 + i) };
		if (ipv4)
			name->ip[10] = name->ip[11] = 0xff;
		open_socket(&w.sockets[i]);
	}
}

static bool run(uint64_t seed, unsigned size)
{
	begin(seed);
	if (setjmp(sim.failure))
		return false;
	for (unsigned i = 0; i < 3 * size && w.num_sent < MAX_SENT; i++)
		something_happens();
	totals.sent += w.num_sent;
	come_to_rest();
	CHECK(w.answered <= w.heard, "%u answers to %u messages", w.answered, w.heard);
	return true;
}

static bool report(void)
{
	printf("# %lu datagrams sent, %lu arrived; %lu times two sockets knew each other\n",
	       (unsigned long)totals.sent, (unsigned long)totals.arrived, (unsigned long)totals.by_qp);
	return totals.arrived > totals.sent / 4;
}

int main(int argc, char **argv)
{
	return sim_main(argc, argv, "rs_datagram", 200, run, report);
}

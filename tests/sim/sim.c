/* SPDX-License-Identifier: BSD-2-Clause */
#include "chance.h"
#include "sim.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "wire/icrc.h"
#include "../packet_line.h"

enum { MAX_IN_FLIGHT = 4096 };

struct in_flight {
	uint64_t arrives, number;
	unsigned from, to;
	size_t len;
	uint8_t bytes[SIM_PACKET_BYTES];
};

struct link {
	uint64_t free_at, delay;
	uint64_t loses_until;	/* a run of losses */
};

struct sim sim;

static struct {
	const struct sim_network *network;
	uint64_t random;
	unsigned hosts;
	struct link links[SIM_HOSTS][SIM_HOSTS];
	struct {
		uint64_t from, to;
		unsigned side;	/* bits of hosts */
	} cuts[SIM_CUTS];
	struct in_flight pool[MAX_IN_FLIGHT];
	struct in_flight *queue[MAX_IN_FLIGHT];	/* a heap by time of arrival */
	struct in_flight *spare[MAX_IN_FLIGHT];
	unsigned num_queued, num_spare;
} net;

/* ---- chance and failure ---- */

uint64_t sim_random(void)
{
	return chance_next(&net.random);
}

unsigned sim_pick(unsigned n) { return (unsigned)((sim_random() >> 32) % n); }
uint64_t sim_pick_time(uint64_t ns) { return ns ? sim_random() % ns : 0; }
bool sim_happens(unsigned per_thousand) { return per_thousand && sim_pick(1000) < per_thousand; }

void sim_broken(const char *format, ...)
{
	static char why[256];
	va_list args;

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	sim.why = why;
	longjmp(sim.failure, 1);
}

/* ---- set-up ---- */

static void cut_somewhere(unsigned i)
{
	net.cuts[i].from = sim_pick_time(20 * MS);
	net.cuts[i].to = net.cuts[i].from + sim_pick_time(30 * MS);
	/* Some hosts on one side; with two hosts that is everybody from everybody. */
	net.cuts[i].side = 1 + sim_pick((1u << net.hosts) - 2);
}

void sim_begin(uint64_t seed, const struct sim_network *network, unsigned hosts)
{
	net.random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	net.network = network;
	net.hosts = hosts;
	net.num_queued = 0;
	net.num_spare = MAX_IN_FLIGHT;
	for (unsigned i = 0; i < MAX_IN_FLIGHT; i++)
		net.spare[i] = &net.pool[i];
	sim.now = MS;
	sim.sent = sim.lost = 0;
	for (unsigned i = 0; i < SIM_HOSTS; i++)
		sim.silent_from[i] = sim.silent_to[i] = UINT64_MAX;
	for (unsigned a = 0; a < hosts; a++)
		for (unsigned b = 0; b < hosts; b++)
			net.links[a][b] =
				(struct link){ .delay = network->delay *
							(1 + (network->far ? sim_pick(network->far) : 0)) };
	for (unsigned i = 0; i < network->cuts; i++)
		cut_somewhere(i);
}

/* ---- the queue ---- */

static void swap(unsigned a, unsigned b)
{
	struct in_flight *t = net.queue[a];
	net.queue[a] = net.queue[b];
	net.queue[b] = t;
}

/* At the same time: in the order of sending. */
static bool is_before(const struct in_flight *a, const struct in_flight *b)
{
	return a->arrives != b->arrives ? a->arrives < b->arrives : a->number < b->number;
}

static void queue_push(struct in_flight *f)
{
	unsigned at = net.num_queued++;

	for (net.queue[at] = f; at && is_before(net.queue[at], net.queue[(at - 1) / 2]); at = (at - 1) / 2)
		swap(at, (at - 1) / 2);
}

static struct in_flight *queue_pop(void)
{
	struct in_flight *first = net.queue[0];
	unsigned at = 0;

	net.queue[0] = net.queue[--net.num_queued];
	for (;;) {
		unsigned least = at, left = 2 * at + 1;
		for (unsigned child = left; child < left + 2; child++)
			if (child < net.num_queued && is_before(net.queue[child], net.queue[least]))
				least = child;
		if (least == at)
			return first;
		swap(at, least);
		at = least;
	}
}

/* ---- links ---- */

static struct vb_icrc_route route_of(unsigned from, unsigned to)
{
	return (struct vb_icrc_route){ .ip_version = 4,
				       .source = { 10, 0, 0, (uint8_t)from },
				       .destination = { 10, 0, 0, (uint8_t)to },
				       .source_port = 50000,
				       .destination_port = 4791 };
}

static bool is_silent(unsigned host)
{
	return sim.now >= sim.silent_from[host] && sim.now < sim.silent_to[host];
}

static bool is_cut(unsigned from, unsigned to)
{
	for (unsigned i = 0; i < net.network->cuts; i++)
		if (sim.now >= net.cuts[i].from && sim.now < net.cuts[i].to &&
		    (net.cuts[i].side >> from ^ net.cuts[i].side >> to) & 1)
			return true;
	return is_silent(from);
}

static bool is_lost(struct link *link, unsigned from, unsigned to)
{
	const struct sim_network *n = net.network;

	if (n->one_way && from > to)
		return false;
	if (sim.now >= link->loses_until && sim_happens(n->runs))
		link->loses_until = sim.now + sim_pick_time(20 * n->delay);
	return sim.now < link->loses_until || sim_happens(n->loss);
}

/* When a packet that is sent now has left the link; 0 if the queue is full. */
static uint64_t pass_link(struct link *link, size_t len)
{
	uint64_t takes = len * net.network->per_byte_ps / 1000;

	if (!takes)
		return sim.now;
	if (link->free_at < sim.now)
		link->free_at = sim.now;
	if (link->free_at - sim.now > net.network->queue * takes)
		return 0;
	link->free_at += takes;
	return link->free_at;
}

static void launch(unsigned from, unsigned to, const uint8_t *bytes, size_t len, uint64_t leaves)
{
	const struct sim_network *n = net.network;

	if (net.num_spare == 0)
		return;
	struct in_flight *f = net.spare[--net.num_spare];
	f->arrives = leaves + net.links[from][to].delay + sim_pick_time(n->jitter);
	if (sim_happens(n->late))
		f->arrives += sim_pick_time(10 * n->delay);
	f->number = sim.sent;
	f->from = from;
	f->to = to;
	f->len = len;
	memcpy(f->bytes, bytes, len);
	if (sim_happens(n->corruption))
		f->bytes[sim_pick((unsigned)len)] ^= (uint8_t)(1 << sim_pick(8));
	queue_push(f);
}

static void trace(unsigned from, unsigned to, const uint8_t *bytes, size_t len)
{
	char line[VB_WIRE_LINE_BYTES];

	vb_wire_packet_line(bytes, len, line, sizeof(line));
	printf("# %10llu  host %u to %u: %s\n", (unsigned long long)sim.now, from, to, line);
}

void sim_send(unsigned from, unsigned to, const uint8_t *bytes, size_t len)
{
	uint8_t packet[SIM_PACKET_BYTES];
	struct vb_icrc_route route = route_of(from, to);
	struct link *link = &net.links[from][to];
	struct vb_bth bth;

	if (sim.verbose)
		trace(from, to, bytes, len);
	CHECK(len + VB_ICRC_BYTES <= sizeof(packet), "a packet of %zu bytes", len);
	memcpy(packet, bytes, len);
	memcpy(&bth, bytes, sizeof(bth));
	uint32_t crc = vb_icrc_begin(&route, &bth, len + VB_ICRC_BYTES, 0);
	vb_icrc_store(vb_icrc_add(crc, bytes + VB_BTH_BYTES, len - VB_BTH_BYTES), packet + len);
	len += VB_ICRC_BYTES;
	sim.sent++;
	uint64_t leaves = pass_link(link, len);
	if (is_cut(from, to) || leaves == 0 || is_lost(link, from, to)) {
		sim.lost++;
		if (sim.verbose)
			printf("# %10llu  lost\n", (unsigned long long)sim.now);
		return;
	}
	launch(from, to, packet, len, leaves);
	if (sim_happens(net.network->doubling))
		launch(from, to, packet, len, leaves);
}

uint64_t sim_next_arrival(void) { return net.num_queued ? net.queue[0]->arrives : UINT64_MAX; }

bool sim_arrive(struct sim_arrival *out)
{
	if (sim_next_arrival() > sim.now)
		return false;
	struct in_flight *f = queue_pop();
	struct vb_icrc_route route = route_of(f->from, f->to);
	net.spare[net.num_spare++] = f;	/* its bytes stay until something is sent */
	out->from = f->from;
	out->to = f->to;
	return !is_silent(f->to) && vb_icrc_check(&route, f->bytes, f->len, 0) &&
	       vb_packet_parse(f->bytes, f->len - VB_ICRC_BYTES, &out->packet) == 0;
}

/* ---- main ---- */

/* The smallest that still fails. */
static unsigned shrink(uint64_t seed, unsigned most, bool (*run)(uint64_t seed, unsigned size))
{
	unsigned size = most;

	for (unsigned less = most - 1; less > 0; less--)
		if (!run(seed, less))
			size = less;
	return size;
}

static int fail(const char *name, uint64_t seed, unsigned size)
{
	printf("not ok 1 - %s simulation\n# seed %llu at %llu ns: %s\n# again: %s -v %llu %u\n", name,
	       (unsigned long long)seed, (unsigned long long)sim.now, sim.why, program_invocation_name,
	       (unsigned long long)seed, size);
	return 1;
}

int sim_main(int argc, char **argv, const char *name, unsigned most,
	     bool (*run)(uint64_t seed, unsigned size), bool (*report)(void))
{
	uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 0) : 1,
		 count = argc > 2 ? strtoull(argv[2], NULL, 0) : 200;

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("1..1\n");
	if (argc > 2 && strcmp(argv[1], "-v") == 0) {
		unsigned size = argc > 3 ? (unsigned)atoi(argv[3]) : most;
		sim.verbose = true;
		if (!run(count, size))
			return fail(name, count, size);
		printf("ok 1 - %s simulation\n", name);
		return 0;
	}
	for (uint64_t seed = first; seed < first + count; seed++) {
		if (run(seed, most))
			continue;
		unsigned size = shrink(seed, most, run);
		(void)run(seed, size);
		return fail(name, seed, size);
	}
	bool ok = report();
	printf("%s 1 - %s simulation, %llu seeds\n", ok ? "ok" : "not ok", name, (unsigned long long)count);
	return !ok;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two programs on two hosts that connect through librdmacm, over a network that loses, delays, doubles and
 * cuts off, and with peers that die. Both hosts are this process: what it sends to the other one comes back
 * as if the other had sent it. So each message goes through the whole library, twice.
 *
 * A run is a script of steps, made from its seed: a call of the interface on some id, a message that arrives,
 * time that passes, a misfortune of the network or of the host: neighbours that are silent, an interface that
 * goes or changes, queue pairs that refuse. Then the network heals, the programs answer what they were asked,
 * and all comes to rest.
 *
 * What must hold: events come to ids that live, at most once, and in an order that makes sense; what an id is
 * told of, it is told of exactly once for each thing that led to it; at rest nobody waits for anything; both
 * ends of a connection think alike of it, unless one has died; and when all ids are destroyed, no timer runs
 * and nothing is left of any connection. Many seeds bring each type of event.
 *
 * usage: sim_rdmacm [-v] FIRST [COUNT]: the seeds; -v tells the steps. A failure is cut down to the steps
 * that it needs.
 */
#include "sim_rdmacm.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "adapter/device/device.h"

enum { MAX_STEPS = 400, REST_S = 120, LONGEST_CUT_MS = 6000, SHORTEST_SCRIPT = 100, MANY_SEEDS = 500 };

struct world world;

/* ---- the run ---- */

static void take_step(const struct step *s)
{
	struct id *id = &world.ids[s->who % MAX_IDS];

	for (unsigned i = 0; i < MAX_IDS && !id->cm; i++) /* an id that there is */
		id = &world.ids[(s->who + i) % MAX_IDS];
	switch (s->what % 16) {
	case 0: id_create(s); break;
	case 1:
	case 2:
	case 3:
	case 4:
	case 5: id_call(id, s); break;
	case 6: events_take(s->how % CHANNELS, s->more & 1); break;
	case 7:
	case 8:
	case 9:
		for (unsigned i = 0; i < 20 && events_take(i % CHANNELS, s->more & 1); i++)
			;
		break;
	case 10:
		if (s->how % 6 == 0)
			id_destroy(id);
		break;
	case 11:
		if (s->more % 4 == 0)
			world.cut_until_ns = fake.now_ns + (uint64_t)s->how * LONGEST_CUT_MS / 255 * MS;
		break;
	case 12: network_pass_time((uint64_t)s->how * 10 * MS); break;
	case 13: host_change(s); break;
	default: network_pass_time((uint64_t)s->how * MS / 4); break;
	}
}

/* What is left to be answered. */
static void do_duties(void)
{
	for (unsigned i = 0; i < MAX_IDS; i++) {
		struct id *id = &world.ids[i];
		if (!id->cm || id->dead)
			continue;
		if (id->kind == PASSIVE && !id->answered && !(id->seen & ENDS))
			id_accept(id);
		if ((id->seen & BIT(CONNECT_RESPONSE)) && !id->established && !(id->seen & ENDS))
			id_establish(id);
		if ((id->seen & BIT(DISCONNECTED)) && !id->disconnected)
			id_disconnect(id);
	}
}

static void come_to_rest(void)
{
	world.healed = true;
	fake.has_silent_neighbours = false;
	for (unsigned i = 0; i < REST_S * 4; i++) {
		for (unsigned c = 0; c < CHANNELS; c++)
			while (events_take(c, true))
				;
		do_duties();
		network_pass_time(250 * MS);
	}
}

static bool is_open(const struct id *id)
{
	if (id->seen & ENDS)
		return false;
	return id->kind == ACTIVE && !id->cm->qp ? id->established : (id->seen & BIT(ESTABLISHED)) != 0;
}

/*
 * A connection is open at both ends or at none. A request that is repeated after its server has disconnected
 * makes another server's id, so the client may have had more than one.
 */
static void check_pair(uint32_t tag)
{
	int clients = 0, servers = 0;

	for (unsigned i = 0; i < MAX_IDS; i++) {
		const struct id *id = &world.ids[i];
		if (id->cm && id->tag == tag && !id->datagram && is_open(id))
			(*(id->kind == ACTIVE ? &clients : &servers))++;
	}
	must(clients == servers);
}

static void check_told(const struct id *id)
{
	must(!id->news.removals && !id->news.changes && !id->news.lost_groups &&
	     id->news.user_seen == id->news.user_written);
	for (unsigned i = 0; i < GROUPS; i++)
		must(!id->groups[i].number || id->groups[i].is_told);
	must(id->kind != ACTIVE || (id->seen & BIT(ROUTE_RESOLVED)));
}

/* Its client gave up before it was accepted. Nothing tells of that but rdma_accept, which fails. */
static bool was_withdrawn(const struct id *id) { return id->kind == PASSIVE && !id->accepted; }

static void check_rest(void)
{
	for (unsigned i = 0; i < MAX_IDS; i++) {
		const struct id *id = &world.ids[i];
		if (id->cm)
			check_told(id);
		if (!id->cm || id->dead || id->rejected || id->kind == LISTENER)
			continue;
		tell("id %u at rest: %x", i, id->seen);
		if (id->connected)
			must(id->seen & (ENDS | BIT(CONNECT_RESPONSE) | BIT(ESTABLISHED)));
		if (id->accepted && !id->datagram)
			must(id->seen & (ENDS | BIT(ESTABLISHED)));
		if (id->disconnected && !was_withdrawn(id))
			must(id->seen & ENDS);
		if (id->seen & BIT(DISCONNECTED))
			must(id->seen & BIT(TIMEWAIT_EXIT));
		if (!id->tag || id->datagram)
			continue;
		if (!tag_is_alone(id->tag))
			check_pair(id->tag);
	}
}

static void check_empty(void)
{
	unsigned total = 0, destroyed;

	for (unsigned i = 0; i < MAX_IDS; i++)
		id_destroy(&world.ids[i]);
	for (unsigned c = 0; c < CHANNELS; c++) {
		must(!events_take(c, false));
		rdma_destroy_event_channel(world.channels[c]);
	}
	for (unsigned i = 0; i < 400; i++)
		network_pass_time(UINT64_C(1000) * MS);
	vb_cma_lock();
	if (vb_cma_table_locked())
		vb_cm_table_count(vb_cma_table_locked(), &total, &destroyed);
	vb_cma_unlock();
	must(total == 0);
	must(fake_timers() == 0);
}

static void watch_interfaces(void)
{
	struct vb_device **devices;
	unsigned count;

	must(vb_device_list(&devices, &count) == 0 && count);
	must(vb_context_init(&world.watcher, devices[0]) == 0);
	for (unsigned i = 0; i < count; i++)
		vb_device_put(devices[i]);
	free(devices);
}

static void run(uint64_t seed, const struct step *steps, unsigned count)
{
	memset(&world.flying, 0, sizeof(world.flying));
	world.next_random = (unsigned)seed * 2654435761u + 1;
	world.loss = seed % 4 * 10;
	world.doubling = seed % 3 * 10;
	world.refusals = seed % 5 * 5;
	fake_reset();
	fake_is_both_hosts = true;
	fake.left = network_left;
	watch_interfaces();
	for (unsigned c = 0; c < CHANNELS; c++)
		must((world.channels[c] = rdma_create_event_channel()));
	id_create(&(struct step){ .how = 2, .more = 0 });
	id_create(&(struct step){ .how = 3, .more = 0 });
	for (unsigned i = 0; i < count; i++)
		take_step(&steps[i]);
	come_to_rest();
	check_rest();
	check_empty();
}

/* ---- seeds ---- */

/* In a process of its own, which starts without ids. True: all held. */
static bool holds(uint64_t seed, const struct step *steps, unsigned count, bool quiet)
{
	int status;

	fflush(NULL);
	pid_t pid = fork();
	must(pid >= 0);
	if (pid == 0) {
		world.verbose = !quiet;
		if (quiet && !freopen("/dev/null", "w", stderr))
			_exit(2);
		run(seed, steps, count);
		fflush(NULL);
		_exit(0);
	}
	must(waitpid(pid, &status, 0) == pid);
	return status == 0;
}

static unsigned make_script(uint64_t seed, struct step *steps)
{
	uint64_t x = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15);
	unsigned count = SHORTEST_SCRIPT + seed % (MAX_STEPS - SHORTEST_SCRIPT);

	for (unsigned i = 0; i < count; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		steps[i] = (struct step){ (uint8_t)(x >> 8), (uint8_t)(x >> 16), (uint8_t)(x >> 24),
					  (uint8_t)(x >> 32) };
		steps[i].who %= 2 + seed % (MAX_IDS - 2); /* few ids are used more */
	}
	return count;
}

/* Leaves out what the failure does not need: halves first, single steps last. */
static unsigned cut_down(uint64_t seed, struct step *steps, unsigned count)
{
	struct step fewer[MAX_STEPS];

	for (unsigned part = count / 2; part; part /= 2)
		for (unsigned at = 0; at + part <= count;) {
			memcpy(fewer, steps, at * sizeof(*steps));
			memcpy(fewer + at, steps + at + part, (count - at - part) * sizeof(*steps));
			if (holds(seed, fewer, count - part, true)) {
				at += part;
				continue;
			}
			count -= part;
			memcpy(steps, fewer, count * sizeof(*steps));
		}
	return count;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	events_begin_tally();
	bool verbose = argc > 1 && !strcmp(argv[1], "-v");
	struct step steps[MAX_STEPS];

	argv += verbose;
	argc -= verbose;
	uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	uint64_t count = verbose ? 1 : argc > 2 ? strtoull(argv[2], NULL, 0) : 1000;
	printf("1..1\n");
	for (uint64_t seed = first; seed < first + count; seed++) {
		unsigned n = make_script(seed, steps);
		if (holds(seed, steps, n, !verbose))
			continue;
		n = cut_down(seed, steps, n);
		printf("not ok 1 - rdma_cm simulation\n# seed %llu fails, in %u steps:\n",
		       (unsigned long long)seed, n);
		holds(seed, steps, n, false);
		printf("# again: %s -v %llu\n", program_invocation_name, (unsigned long long)seed);
		return 1;
	}
	bool all = events_have_all_come() || count < MANY_SEEDS;
	printf("%sok 1 - rdma_cm simulation: %llu seeds from %llu\n", all ? "" : "not ",
	       (unsigned long long)count, (unsigned long long)first);
	return !all;
}

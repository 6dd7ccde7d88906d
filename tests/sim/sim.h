/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What simulations share: chance from a seed, failures that unwind a run, and a bad network.
 *
 * The network joins hosts, each with each by two links of their own, one a direction:
 *
 *	host a --> [ queue | rate ] --> delay of the pair, jitter --> host b
 *
 * Links lose (at random, or in runs), double, delay, reorder and corrupt packets. A cut separates hosts from
 * the others for a time; a host may be silent from some time on, to some time. Packets travel as bytes with
 * an ICRC, which catches corruption: what sim_arrival hands out is what was sent, if not in order or once.
 *
 * One world per process, one thread. Same seed, same run.
 */
#ifndef VB_SIM_H
#define VB_SIM_H

#include <setjmp.h>

#include "wire/packet.h"

enum { SIM_HOSTS = 6, SIM_CUTS = 6, SIM_PACKET_BYTES = 4096 + 128 };

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)

struct sim_network {
	unsigned loss, doubling, corruption, late;	/* per thousand packets */
	unsigned runs;					/* per thousand packets, begins of losses in a row */
	uint64_t delay, jitter;				/* ns */
	unsigned far;					/* delays of pairs differ up to so many times */
	uint64_t per_byte_ps;				/* rate limit; 0: none */
	unsigned queue;					/* packets that wait for a link */
	unsigned cuts;					/* times that the network falls apart */
	bool one_way;					/* only the first host of each pair loses packets */
};

/* A packet that has arrived; its bytes are good until the next arrival. */
struct sim_arrival {
	unsigned from, to;	/* hosts */
	struct vb_packet packet;
};

extern struct sim {
	uint64_t now;
	const char *why;		/* of the failure */
	bool verbose;
	uint64_t sent, lost;
	uint64_t silent_from[SIM_HOSTS], silent_to[SIM_HOSTS];
	jmp_buf failure;
} sim;

/* A new world at time 1 ms. */
void sim_begin(uint64_t seed, const struct sim_network *network, unsigned hosts);

/* ---- chance ---- */

uint64_t sim_random(void);
unsigned sim_pick(unsigned n);
uint64_t sim_pick_time(uint64_t ns);
bool sim_happens(unsigned per_thousand);

/* ---- failure ---- */

__attribute__((format(printf, 1, 2), noreturn)) void sim_broken(const char *format, ...);

#define CHECK(what, ...) ((what) ? (void)0 : sim_broken(__VA_ARGS__))

/*
 * The main of a simulation. NAME [FIRST_SEED [COUNT]] runs seeds; NAME -v SEED [SIZE] traces one. run(seed,
 * size): false if sim.why says what failed; size: the most requests of each kind, by which a failure is
 * shrunk. report prints totals, false: they are bad.
 */
int sim_main(int argc, char **argv, const char *name, unsigned most,
	     bool (*run)(uint64_t seed, unsigned size), bool (*report)(void));

/* ---- network ---- */

/* BTH to padding. */
void sim_send(unsigned from, unsigned to, const uint8_t *bytes, size_t len);
/* When the next packet arrives; UINT64_MAX: none is under way. */
uint64_t sim_next_arrival(void);
/*
 * Takes the next packet that has arrived by now; false: none has, or it was damaged, which sim_next_arrival
 * tells apart.
 */
bool sim_arrive(struct sim_arrival *out);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Up to a thousand hosts around one switch, in simulated time (sim_fabric.c).
 *
 *	host a ── [ rate | delay ] ──▶ switch ── [ queue | rate | delay ] ──▶ host b
 *
 * Each host has a link of its own, and each link two directions. Towards the switch a host waits until its
 * link has room, as a program does whose socket's buffer is full. From the switch on, what finds no room in
 * the queue is lost. The queue marks packets by RED: none up to mark_from bytes, all from mark_all on, and in
 * between ever more. Delays differ by a jitter, without which flows that send in step with the queue lose
 * less than others. Packets of a link stay in order.
 *
 * Events happen in the order of their times. One world per process, one thread. Same seed, same run.
 */
#ifndef VB_FABRIC_H
#define VB_FABRIC_H

#include "base/heap.h"
#include "proto/rc/request.h"

enum {
	FABRIC_HOSTS = 1024,
	FABRIC_OVERHEAD = 66, /* bytes of a packet on the wire beside BTH to padding */
};

struct fabric_link {
	uint64_t per_byte_ps, delay_ns, jitter_ns;
	uint32_t queue, mark_from, mark_all; /* bytes; mark_all 0: nothing is marked */
	uint32_t loss;                       /* packets of 100,000, each way */
};

/* Something that happens at a time. The owner embeds it. */
struct fabric_event {
	struct vb_heap_node node;
	void (*happen)(struct fabric_event *event);
};

struct fabric_packet {
	struct fabric_event event;
	struct fabric_packet *next_free;
	void *connection;
	unsigned from, to;
	uint32_t bytes;    /* BTH to padding */
	bool is_answer, is_marked;
	uint8_t header[VB_MAX_HEADER_BYTES];
};

extern struct fabric {
	uint64_t now;      /* ns */
	uint64_t lost, packets;
} fabric;

/* A new world at time 1 ms. arrive: takes packets at their hosts, and must not keep them. */
void fabric_begin(uint64_t seed, unsigned hosts, const struct fabric_link *link,
		  void (*arrive)(const struct fabric_packet *packet));
/* Nothing happens any more. Before the owners of events are freed; fabric_begin does it as well. */
void fabric_end(void);
void fabric_set_link(unsigned host, const struct fabric_link *link);
uint64_t fabric_random(uint64_t below);

/* Makes an event happen at a time, and no other that was set before. */
void fabric_set(struct fabric_event *event, uint64_t at_ns);
/* The next event happens; false: there is none until then. */
bool fabric_step(uint64_t until_ns);

/* Has the host's link room? If not, `room` happens when it has. */
bool fabric_has_room(unsigned host, struct fabric_event *room);
void fabric_send(unsigned from, unsigned to, void *connection, bool is_answer,
		 const struct vb_packet_out *out);

#endif

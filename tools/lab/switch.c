/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads frames from taps, has links.h decide what becomes of each, and writes them where and when they
 * arrive. While all links are plain, frames go on at once, in segments as long as the hosts' kernels make
 * them. Else the kernels cut them, so that each packet has a fate of its own.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../command.h"
#include "base/clock.h"
#include "base/heap.h"
#include "frame.h"
#include "links.h"
#include "switch.h"
#include "tap.h"

/* A frame is as long as a segment can be that an interface has not cut yet. */
enum { FRAME_BYTES = LAB_VNET_HEADER + 14 + 65536, BURST = 64 };
enum {
	AROUND_BYTES = 24, /* of Ethernet around a frame: preamble, checksum, gap */
	MEMORY_BYTES = 256 << 20, /* of packets under way; further ones are lost */
};

struct packet {
	struct vb_heap_node due; /* at the end of the way that it is on */
	struct lab_hop hop;
	size_t size;
	uint8_t frame[];
};

struct fabric {
	struct lab_links links;
	struct vb_heap under_way;
	size_t memory;
	unsigned ports;
	struct pollfd fds[LAB_HOSTS_MAX + 1]; /* interfaces, -1 if a host is down; behind them, orders */
};

static uint64_t now_ns(void) { return vb_clock_ns(CLOCK_MONOTONIC); }

/* ---- packets ---- */

static void send_to(struct fabric *f, unsigned port, const uint8_t *frame, size_t size)
{
	/* What an interface has no room for is lost, as in any network. */
	if (f->fds[port].fd >= 0 && write(f->fds[port].fd, frame, size) < 0 && errno == EBADFD)
		errno = 0; /* the host has ended; reading says so, too */
}

static struct packet *new_packet(struct fabric *f, struct lab_hop hop, const uint8_t *frame, size_t size)
{
	struct packet *p = f->memory + size <= MEMORY_BYTES ? malloc(sizeof(*p) + size) : NULL;

	if (!p)
		return NULL;
	*p = (struct packet){ .hop = hop, .size = size };
	memcpy(p->frame, frame, size);
	f->memory += size;
	return p;
}

static void drop(struct fabric *f, struct packet *p)
{
	f->memory -= p->size;
	free(p);
}

/* A second one that arrives at the end of the same way. */
static void duplicate(struct fabric *f, const struct packet *p, uint64_t at)
{
	struct packet *copy = new_packet(f, p->hop, p->frame, p->size);

	if (copy)
		vb_heap_insert(&f->under_way, &copy->due, at);
}

/* From where it is at this time, over ways that take none, to where it has arrived or must wait. */
static void pass_on(struct fabric *f, struct packet *p, uint64_t now)
{
	struct lab_way *way;
	struct lab_fate fate;

	while ((way = lab_links_next(&f->links, &p->hop))) {
		lab_way_pass(way, now, p->size - LAB_VNET_HEADER + AROUND_BYTES,
			     lab_frame_can_mark(p->frame, p->size), &fate);
		if (!fate.copies) {
			drop(f, p);
			return;
		}
		if (fate.is_marked)
			lab_frame_mark(p->frame, p->size);
		if (fate.is_corrupt)
			lab_frame_corrupt(p->frame, p->size, fate.bit);
		if (fate.copies > 1)
			duplicate(f, p, fate.at_ns[1]);
		if (fate.at_ns[0] > now) {
			vb_heap_insert(&f->under_way, &p->due, fate.at_ns[0]);
			return;
		}
	}
	send_to(f, p->hop.to, p->frame, p->size);
	drop(f, p);
}

static void pass_due(struct fabric *f)
{
	uint64_t now = now_ns();
	struct vb_heap_node *first;

	while ((first = vb_heap_first(&f->under_way)) && first->key <= now) {
		struct packet *p = vb_container_of(first, struct packet, due);
		uint64_t at = first->key;
		vb_heap_remove(&f->under_way, first);
		pass_on(f, p, at);
	}
}

static void send_over(struct fabric *f, unsigned from, unsigned to, const uint8_t *frame, size_t size,
		      uint64_t now)
{
	struct packet *p;

	if (f->links.are_plain && !vb_heap_first(&f->under_way)) {
		send_to(f, to, frame, size);
		return;
	}
	p = new_packet(f, (struct lab_hop){ .from = from, .to = to }, frame, size);
	if (p)
		pass_on(f, p, now);
}

/* To the host that the destination MAC names; to all others if it names none. */
static void forward(struct fabric *f, unsigned from, const uint8_t *frame, size_t size, uint64_t now)
{
	const uint8_t *mac = frame + LAB_VNET_HEADER;
	unsigned host = mac[5] - 1u;
	uint8_t named[6];

	lab_host_mac(host, named);
	if (host < f->ports && host != from && memcmp(mac, named, sizeof(named)) == 0) {
		send_over(f, from, host, frame, size, now);
		return;
	}
	for (unsigned port = 0; port < f->ports; port++)
		if (port != from)
			send_over(f, from, port, frame, size, now);
}

static void take_frames(struct fabric *f, unsigned port)
{
	static uint8_t frame[FRAME_BYTES];
	uint64_t now = now_ns();
	ssize_t n = 1;

	for (int i = 0; i < BURST && n > 0; i++) {
		n = read(f->fds[port].fd, frame, sizeof(frame));
		if (n >= LAB_VNET_HEADER + 14)
			forward(f, port, frame, (size_t)n, now);
	}
	if (n < 0 && errno != EAGAIN && errno != EINTR) { /* its host has ended */
		close(f->fds[port].fd);
		f->fds[port].fd = -1;
	}
}

/* ---- orders ---- */

/* A host has come, with its interface, or gone. */
static void take_port(struct fabric *f, struct lab_message *m)
{
	unsigned host;

	if (m->size != sizeof(host))
		return;
	memcpy(&host, m->data, sizeof(host));
	if (f->fds[host].fd >= 0)
		close(f->fds[host].fd);
	f->fds[host].fd = m->n_fds == 1 ? m->fds[0] : -1;
	m->n_fds = 0;
	if (f->fds[host].fd >= 0)
		lab_tap_segment(f->fds[host].fd, f->links.are_plain);
}

static void set_links(struct fabric *f, const char *text, int caller)
{
	char why[LAB_WHY_BYTES];

	if (!lab_links_order(&f->links, text, why)) {
		lab_send_text(caller, LAB_FAILED, why);
		return;
	}
	for (unsigned port = 0; port < f->ports; port++)
		if (f->fds[port].fd >= 0)
			lab_tap_segment(f->fds[port].fd, f->links.are_plain);
	lab_send_text(caller, LAB_TEXT, "");
}

static void describe_links(struct fabric *f, int caller)
{
	char name[64], rule[256], *text = NULL;
	size_t size = 0;
	const struct lab_way *way;
	FILE *out = open_memstream(&text, &size);

	for (unsigned i = 0; out && lab_links_each(&f->links, &i, name, &way);) {
		lab_rule_text(&way->rule, rule, sizeof(rule));
		fprintf(out, "%s|%s|%llu|%llu|%llu|%llu|%llu|%llu|%llu\n", name, rule,
			(unsigned long long)way->passed, (unsigned long long)way->lost,
			(unsigned long long)way->overflowed, (unsigned long long)way->duplicated,
			(unsigned long long)way->reordered, (unsigned long long)way->corrupted,
			(unsigned long long)way->marked);
	}
	if (out && fclose(out) == 0)
		lab_send_text(caller, LAB_TEXT, text);
	free(text);
}

static void take_order(struct fabric *f)
{
	static const struct timeval limit = { 0, 100000 };
	struct lab_message m;

	if (!lab_receive(f->fds[f->ports].fd, &m))
		_exit(0);
	/* a client that does not read must not hold packets up */
	if (m.kind == LAB_LINK || m.kind == LAB_LINKS)
		setsockopt(m.n_fds ? m.fds[0] : -1, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (m.kind == LAB_READY || m.kind == LAB_DOWN)
		take_port(f, &m);
	else if (m.kind == LAB_LINK && m.n_fds == 1)
		set_links(f, m.data, m.fds[0]);
	else if (m.kind == LAB_LINKS && m.n_fds == 1)
		describe_links(f, m.fds[0]);
	lab_message_free(&m);
}

/* ---- the loop ---- */

/* Until something comes, or a packet is due. */
static int wait_for_news(struct fabric *f)
{
	const struct vb_heap_node *first = vb_heap_first(&f->under_way);
	struct timespec wait;
	uint64_t now, left;

	if (!first)
		return poll(f->fds, f->ports + 1, -1);
	now = now_ns();
	left = first->key > now ? first->key - now : 0;
	wait = vb_timespec_of_ns(left);
	return ppoll(f->fds, f->ports + 1, &wait, NULL);
}

void lab_switch_run(const struct lab_plan *plan, int orders)
{
	static struct fabric f = { .under_way = VB_HEAP_INIT };
	char why[LAB_WHY_BYTES];

	prctl(PR_SET_NAME, "lab-switch");
	prctl(PR_SET_TIMERSLACK, 1);
	f.ports = plan->topology.hosts;
	if (!lab_links_open(&f.links, &plan->topology))
		_exit(EXIT_OURS);
	for (char **setting = plan->settings; setting && *setting; setting++)
		if (!lab_links_order(&f.links, *setting, why))
			_exit(EXIT_OURS);
	for (unsigned port = 0; port < f.ports; port++)
		f.fds[port] = (struct pollfd){ -1, POLLIN, 0 };
	f.fds[f.ports] = (struct pollfd){ orders, POLLIN, 0 };
	for (;;) {
		int n = wait_for_news(&f);
		if (n < 0 && errno != EINTR)
			_exit(EXIT_OURS);
		pass_due(&f);
		if (n > 0 && f.fds[f.ports].revents)
			take_order(&f);
		for (unsigned port = 0; n > 0 && port < f.ports; port++)
			if (f.fds[port].fd >= 0 && f.fds[port].revents)
				take_frames(&f, port);
	}
}

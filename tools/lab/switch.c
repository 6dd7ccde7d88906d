/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads frames from taps, has links.h decide what becomes of each packet, and writes them where and when they
 * arrive. Hosts' kernels do not cut frames into packets. While all links are plain, frames go on as they are.
 * Else each of their packets has a fate of its own, and those that arrive together are one frame again.
 */
#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "../command.h"
#include "base/clock.h"
#include "base/heap.h"
#include "cut.h"
#include "frame.h"
#include "links.h"
#include "switch.h"

/* A frame is as long as one can be that a kernel has not cut. */
enum { FRAME_BYTES = LAB_FRAME_IP + 65536 };
enum { BURST = 64, BURST_BYTES = 256 << 10 /* from one host at a time */ };
enum {
	AROUND_BYTES = 24, /* of Ethernet around a frame: preamble, checksum, gap */
	MEMORY_BYTES = 256 << 20, /* of packets under way; further ones are lost */
};

/* A frame of which packets are under way. */
struct frame {
	unsigned users;
	struct lab_cut cut;
	uint8_t bytes[];
};

struct packet {
	struct vb_heap_node due; /* at the end of the way that it is on */
	struct lab_hop hop;
	struct frame *of;
	unsigned number;
	bool is_marked;
};

/* Packets of one frame that follow each other and have arrived at a host. */
struct run {
	struct frame *of; /* NULL: none */
	unsigned port, first, count;
	bool is_marked;
};

struct fabric {
	struct lab_links links;
	struct vb_heap under_way;
	size_t memory;
	struct run arrived; /* not written yet */
	unsigned ports;
	struct pollfd fds[LAB_HOSTS_MAX + 1]; /* interfaces, -1 if a host is down; behind them, orders */
};

static uint64_t now_ns(void) { return vb_clock_ns(CLOCK_MONOTONIC); }

/* ---- memory ---- */

static void *take_memory(struct fabric *f, size_t bytes)
{
	void *memory = f->memory + bytes <= MEMORY_BYTES ? malloc(bytes) : NULL;

	f->memory += memory ? bytes : 0;
	return memory;
}

static void give_memory(struct fabric *f, void *memory, size_t bytes)
{
	f->memory -= bytes;
	free(memory);
}

/* One that the caller uses; without contents. */
static struct frame *new_frame(struct fabric *f, size_t size)
{
	struct frame *frame = take_memory(f, sizeof(*frame) + size);

	if (frame)
		*frame = (struct frame){ .users = 1, .cut.size = size };
	return frame;
}

static void put_frame(struct fabric *f, struct frame *frame)
{
	if (--frame->users == 0)
		give_memory(f, frame, sizeof(*frame) + frame->cut.size);
}

static struct packet *new_packet(struct fabric *f, struct packet is)
{
	struct packet *p = take_memory(f, sizeof(*p));

	if (p) {
		*p = is;
		p->of->users++;
	}
	return p;
}

static void drop(struct fabric *f, struct packet *p)
{
	put_frame(f, p->of);
	give_memory(f, p, sizeof(*p));
}

/* ---- writing ---- */

static void send_to(struct fabric *f, unsigned port, const struct iovec *iov, int iovcnt)
{
	/* What an interface has no room for is lost, as in any network. */
	if (f->fds[port].fd >= 0 && writev(f->fds[port].fd, iov, iovcnt) < 0 && errno == EBADFD)
		errno = 0; /* the host has ended; reading says so, too */
}

static void make_run(const struct run *r, struct lab_run *run)
{
	lab_cut_run(&r->of->cut, r->of->bytes, r->first, r->count, run);
	if (r->is_marked)
		lab_frame_mark(run->begin, run->begin_bytes);
}

static void write_arrived(struct fabric *f)
{
	struct run *r = &f->arrived;
	struct iovec iov[2];
	struct lab_run run;

	if (!r->of)
		return;
	make_run(r, &run);
	iov[0] = (struct iovec){ run.begin, run.begin_bytes };
	iov[1] = (struct iovec){ r->of->bytes + run.rest_at, run.rest_bytes };
	send_to(f, r->port, iov, 2);
	put_frame(f, r->of);
	r->of = NULL;
}

/* Written together with those that follow it, or before the next that does not. */
static void arrive(struct fabric *f, const struct packet *p)
{
	struct run *r = &f->arrived;

	if (r->of == p->of && r->port == p->hop.to && r->first + r->count == p->number &&
	    r->is_marked == p->is_marked) {
		r->count++;
		return;
	}
	write_arrived(f);
	*r = (struct run){ p->of, p->hop.to, p->number, 1, p->is_marked };
	r->of->users++;
}

/* ---- packets ---- */

/* A second one that arrives at the end of the same way. */
static void duplicate(struct fabric *f, const struct packet *p, uint64_t at)
{
	struct packet *copy = new_packet(f, *p);

	if (copy)
		vb_heap_insert(&f->under_way, &copy->due, at);
}

/* The packet becomes a frame of its own. False: there is no memory for it. */
static bool corrupt(struct fabric *f, struct packet *p, uint64_t bit)
{
	struct lab_run run;
	struct frame *own;

	make_run(&(struct run){ p->of, p->hop.to, p->number, 1, p->is_marked }, &run);
	own = new_frame(f, run.begin_bytes + run.rest_bytes);
	if (!own)
		return false;
	memcpy(own->bytes, run.begin, run.begin_bytes);
	memcpy(own->bytes + run.begin_bytes, p->of->bytes + run.rest_at, run.rest_bytes);
	lab_frame_corrupt(own->bytes, own->cut.size, bit);
	lab_cut_read(&own->cut, own->bytes, own->cut.size);
	put_frame(f, p->of);
	p->of = own;
	p->number = 0;
	p->is_marked = false;
	return true;
}

/* From where it is at this time, over ways that take none, to where it has arrived or must wait. */
static void pass_on(struct fabric *f, struct packet *p, uint64_t now)
{
	struct lab_way *way;
	struct lab_fate fate;

	while ((way = lab_links_next(&f->links, &p->hop))) {
		lab_way_pass(way, now, lab_cut_bytes(&p->of->cut, p->number) + AROUND_BYTES,
			     !p->is_marked && lab_frame_can_mark(p->of->bytes, p->of->cut.size), &fate);
		p->is_marked |= fate.is_marked;
		if (!fate.copies || (fate.is_corrupt && !corrupt(f, p, fate.bit))) {
			drop(f, p);
			return;
		}
		if (fate.copies > 1)
			duplicate(f, p, fate.at_ns[1]);
		if (fate.at_ns[0] > now) {
			vb_heap_insert(&f->under_way, &p->due, fate.at_ns[0]);
			return;
		}
	}
	arrive(f, p);
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
	write_arrived(f);
}

static void send_over(struct fabric *f, unsigned from, unsigned to, const uint8_t *frame, size_t size,
		      uint64_t now)
{
	struct packet is = { .hop = { .from = from, .to = to } }, *p;

	if (f->links.are_plain && !vb_heap_first(&f->under_way)) {
		send_to(f, to, &(struct iovec){ (void *)frame, size }, 1);
		return;
	}
	is.of = new_frame(f, size);
	if (!is.of)
		return;
	memcpy(is.of->bytes, frame, size);
	lab_cut_read(&is.of->cut, frame, size);
	for (; is.number < is.of->cut.packets; is.number++) {
		p = new_packet(f, is);
		if (p)
			pass_on(f, p, now);
	}
	put_frame(f, is.of);
	write_arrived(f);
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
	size_t bytes = 0;
	ssize_t n = 1;

	for (int i = 0; i < BURST && bytes < BURST_BYTES && n > 0; i++) {
		n = read(f->fds[port].fd, frame, sizeof(frame));
		if (n >= LAB_FRAME_IP)
			forward(f, port, frame, (size_t)n, now);
		bytes += n > 0 ? (size_t)n : 0;
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
}

static void set_links(struct fabric *f, const char *text, int caller)
{
	char why[LAB_WHY_BYTES];

	if (lab_links_order(&f->links, text, why))
		lab_send_text(caller, LAB_TEXT, "");
	else
		lab_send_text(caller, LAB_FAILED, why);
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
	mallopt(M_TRIM_THRESHOLD, MEMORY_BYTES); /* frames come and go all the time */
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

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reliable connections under a simulated network, one seed a run.
 *
 * Theory of operation. Two hosts, joined by a link each way; between them a few connections. Each of a
 * connection's two ends has a requester and a responder, posts random requests and checks everything that
 * happens to it:
 *
 *	         host 0                                            host 1
 *	  end 0: requester ---\                              /--- responder  end 1
 *	         responder <-\ \--> link 0 (queue, rate) ---/ /-- requester
 *	                      \---- link 1 (queue, rate) <---/
 *
 * The links lose, double, delay, reorder and corrupt packets, queue them at a rate, and are cut for a while,
 * as the seed's profile says. Packets travel as bytes with an ICRC, which catches corruption.
 *
 * The oracle. An end's memory is changed only by its peer's requests, in their order; so the poster keeps a
 * shadow of it, brought up to date when a request is posted, and knows every READ's and atomic's answer in
 * advance. (A READ may be executed twice, so what changes its range later is posted with a fence.) SENDs are
 * compared as they are placed: their bytes follow from their number. At the end all memory must be as its
 * shadow. A packet that was ignored must have left the machine as it was, bit for bit.
 *
 * usage: sim_rc [FIRST_SEED [COUNT]]; sim_rc -v SEED [REQUESTS] for a trace of one run, cut to so many
 * requests per end. A failure is run again with fewer requests while it still fails, and prints what to call.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/rc_responder.h"
#include "wire/icrc.h"
#include "wire/text.h"

enum { MAX_CONNECTIONS = 4, MAX_REQUESTS = 320, SLOTS = 16, MEMORY = 32768, MAX_MESSAGE = 24576, ATOMIC_AREA = 64 };
enum { MAX_IN_FLIGHT = 4096, PACKET_BYTES = VB_RC_BUFFER_BYTES + VB_ICRC_BYTES, MAX_STEPS = 400000,
	BASE = 0x10000, RKEY = 77 };

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)

struct profile {
	const char *name;
	unsigned loss, doubling, corruption, late;	/* per thousand packets */
	uint64_t delay, jitter;				/* ns */
	uint64_t per_byte_ps;				/* rate limit; 0: none */
	unsigned queue;					/* packets that wait for the link */
	unsigned cuts;					/* times that the network is gone */
	unsigned receives;				/* receives that wait at most; 0: as many as are needed */
	unsigned buffers;				/* for packets out of order, in all */
	unsigned deepest;				/* max_rd_atomic at most */
	bool refused;					/* a request of each end is one that the peer must refuse */
	bool dies;					/* one host falls silent for good */
	bool thrifty;					/* few packets may be sent again per packet lost */
};

static const struct profile profiles[] = {
	{ "clean", .delay = 20 * US, .buffers = 256, .deepest = 16, .thrifty = true },
	{ "1 % loss", .loss = 10, .delay = 20 * US, .buffers = 1024, .deepest = 16, .thrifty = true },
	{ "5 % loss", .loss = 50, .delay = 50 * US, .jitter = 2 * US, .buffers = 512, .deepest = 16 },
	{ "20 % loss", .loss = 200, .delay = 20 * US, .buffers = 256, .deepest = 4 },
	{ "loss and a peer that keeps nothing", .loss = 50, .delay = 20 * US, .deepest = 16 },
	{ "reordering and doubling", .doubling = 100, .late = 100, .delay = 20 * US, .jitter = 60 * US,
		.buffers = 64, .deepest = 16 },
	{ "corruption", .corruption = 80, .doubling = 20, .delay = 100 * US, .buffers = 64, .deepest = 2 },
	{ "slow link with a short queue", .delay = 200 * US, .per_byte_ps = 8000, .queue = 40, .buffers = 256,
		.deepest = 4 },
	{ "no receives posted", .loss = 20, .doubling = 20, .delay = 20 * US, .receives = 2, .buffers = 64,
		.deepest = 16 },
	{ "partitions", .loss = 20, .delay = 30 * US, .cuts = 3, .buffers = 64, .deepest = 1 },
	{ "everything", .loss = 50, .doubling = 50, .corruption = 20, .late = 50, .delay = 100 * US,
		.jitter = 100 * US,
	  .per_byte_ps = 2000, .queue = 100, .cuts = 1, .receives = 3, .buffers = 16, .deepest = 3 },
	{ "refused requests", .loss = 50, .doubling = 30, .late = 30, .delay = 20 * US, .buffers = 64,
		.deepest = 4, .refused = true },
	{ "death", .loss = 20, .delay = 20 * US, .buffers = 64, .deepest = 4, .dies = true },
};

/* A request as its poster remembers it. */
struct posted {
	struct vb_request request;
	bool refused;
	uint8_t *got, *expected;	/* answers of READs and atomics */
};

struct end {
	unsigned index, host;
	uint32_t qpn, mtu;
	struct vb_rc_req req;
	struct vb_rc_resp resp;
	struct vb_rc_slot slots[SLOTS];
	struct posted posted[MAX_REQUESTS];
	unsigned num_posted, num_done, to_post;
	int refused_at;			/* -1: none */
	bool failed, is_idle;
	uint64_t post_at, receive_at;
	unsigned receives;		/* posted and not taken */
	unsigned received;		/* messages that ended a receive */
	unsigned receiving;		/* which of the peer's requests the taken receive gets */
	uint8_t memory[MEMORY], shadow[MEMORY];	/* own; of the peer's, as its own requests leave it */
	struct end *peer;
};

struct in_flight {
	uint64_t arrives, number;
	unsigned to;			/* host */
	struct end *end;
	size_t len;
	uint8_t bytes[PACKET_BYTES];
};

static struct world {
	uint64_t seed, random, now;
	const struct profile *profile;
	unsigned num_ends, most_requests;
	struct end ends[2 * MAX_CONNECTIONS];
	struct in_flight pool[MAX_IN_FLIGHT];
	struct in_flight *queue[MAX_IN_FLIGHT];	/* a heap by time of arrival */
	struct in_flight *spare[MAX_IN_FLIGHT];
	unsigned num_queued, num_spare, waiting[2];
	uint64_t link_free[2];
	uint64_t cut_from[4], cut_to[4], dead_from;
	unsigned buffers, most_buffers;
	bool verbose;
	uint64_t sent, lost, again;
	jmp_buf failure;
	char why[256];
} w;

static struct {
	uint64_t sent, lost, again, steps;
} totals[VB_ARRAY_LEN(profiles)];

/* --- chance and failure ---------------------------------------------------------------------------------------- */

static uint64_t next_random(void)
{
	w.random ^= w.random << 13;
	w.random ^= w.random >> 7;
	w.random ^= w.random << 17;
	return w.random * UINT64_C(0x2545f4914f6cdd1d);
}

static unsigned pick(unsigned n) { return (unsigned)((next_random() >> 32) % n); }
static uint64_t pick_time(uint64_t ns) { return ns ? next_random() % ns : 0; }
static bool happens(unsigned per_thousand) { return per_thousand && pick(1000) < per_thousand; }

__attribute__((format(printf, 1, 2), noreturn)) static void broken(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(w.why, sizeof(w.why), format, args);
	va_end(args);
	longjmp(w.failure, 1);
}

#define CHECK(what, ...)                                                                                              \
	do {                                                                                                          \
		if (!(what))                                                                                          \
			broken(__VA_ARGS__);                                                                          \
	} while (0)

/* The bytes of a request follow from who posted it, its number and the offset. */
static uint8_t byte_of(const struct end *poster, unsigned number, uint64_t offset)
{
	uint32_t v = (uint32_t)offset * 2654435761u ^ (poster->index * MAX_REQUESTS + number + 1) * 40503u;
	return (uint8_t)(v >> 13 ^ v >> 5);
}

static void fill(uint8_t *to, const struct end *poster, unsigned number, uint64_t offset, size_t len)
{
	for (size_t i = 0; i < len; i++)
		to[i] = byte_of(poster, number, offset + i);
}

/* --- network --------------------------------------------------------------------------------------------------- */

static const struct vb_icrc_route route = { .ip_version = 4, .source = { 10, 0, 0, 1 },
					    .destination = { 10, 0, 0, 2 },
					    .source_port = 50000, .destination_port = 4791 };

static void swap(unsigned a, unsigned b)
{
	struct in_flight *t = w.queue[a];
	w.queue[a] = w.queue[b];
	w.queue[b] = t;
}

/* At the same time: in the order of sending. */
static bool is_before(const struct in_flight *a, const struct in_flight *b)
{
	return a->arrives != b->arrives ? a->arrives < b->arrives : a->number < b->number;
}

static void queue_push(struct in_flight *f)
{
	unsigned at = w.num_queued++;

	for (w.queue[at] = f; at && is_before(w.queue[at], w.queue[(at - 1) / 2]); at = (at - 1) / 2)
		swap(at, (at - 1) / 2);
}

static struct in_flight *queue_pop(void)
{
	struct in_flight *first = w.queue[0];
	unsigned at = 0;

	w.queue[0] = w.queue[--w.num_queued];
	for (;;) {
		unsigned least = at, left = 2 * at + 1;
		for (unsigned child = left; child < left + 2; child++)
			if (child < w.num_queued && is_before(w.queue[child], w.queue[least]))
				least = child;
		if (least == at)
			return first;
		swap(at, least);
		at = least;
	}
}

static bool is_cut(unsigned from)
{
	for (unsigned i = 0; i < w.profile->cuts; i++)
		if (w.now >= w.cut_from[i] && w.now < w.cut_to[i])
			return true;
	return w.profile->dies && w.now >= w.dead_from && from == 1;
}

/* When a packet that is sent now has left the link; 0 if the queue is full. */
static uint64_t pass_link(unsigned from, size_t len)
{
	uint64_t *free_at = &w.link_free[from], takes = len * w.profile->per_byte_ps / 1000;

	if (!takes)
		return w.now;
	if (*free_at < w.now)
		*free_at = w.now;
	if (*free_at - w.now > w.profile->queue * takes)
		return 0;
	*free_at += takes;
	return *free_at;
}

static void launch(struct end *to, unsigned from, const uint8_t *bytes, size_t len, uint64_t leaves)
{
	if (w.num_spare == 0)
		return;
	struct in_flight *f = w.spare[--w.num_spare];
	f->arrives = leaves + w.profile->delay + pick_time(w.profile->jitter);
	if (happens(w.profile->late))
		f->arrives += pick_time(10 * w.profile->delay);
	f->number = w.sent;
	f->to = !from;
	f->end = to;
	f->len = len;
	memcpy(f->bytes, bytes, len);
	if (happens(w.profile->corruption))
		f->bytes[pick((unsigned)len)] ^= (uint8_t)(1 << pick(8));
	queue_push(f);
}

static void transmit(struct end *from, uint8_t *bytes, size_t len)
{
	struct vb_bth bth;
	char line[VB_WIRE_LINE_BYTES];

	if (w.verbose) {
		vb_wire_packet_line(bytes, len, line, sizeof(line));
		printf("# %10llu  end %u sends %s\n", (unsigned long long)w.now, from->index, line);
	}
	memcpy(&bth, bytes, sizeof(bth));
	uint32_t crc = vb_icrc_begin(&route, &bth, len + VB_ICRC_BYTES, 0);
	vb_icrc_store(vb_icrc_add(crc, bytes + VB_BTH_BYTES, len - VB_BTH_BYTES), bytes + len);
	len += VB_ICRC_BYTES;
	w.sent++;
	uint64_t leaves = pass_link(from->host, len);
	if (is_cut(from->host) || leaves == 0 || happens(w.profile->loss)) {
		w.lost++;
		if (w.verbose)
			printf("# %10llu  lost\n", (unsigned long long)w.now);
		return;
	}
	launch(from->peer, from->host, bytes, len, leaves);
	if (happens(w.profile->doubling))
		launch(from->peer, from->host, bytes, len, leaves);
}

/* --- responder's side ------------------------------------------------------------------------------------------ */

static bool uses_receive(const struct vb_request *r)
{
	return r->kind == VB_REQ_SEND || (r->kind == VB_REQ_WRITE && r->tail == VB_TAIL_IMM);
}

static int receive_take(void *ctx)
{
	struct end *end = ctx;

	if (end->receives == 0)
		return -EAGAIN;
	end->receives--;
	while (end->receiving < end->peer->num_posted && !uses_receive(&end->peer->posted[end->receiving].request))
		end->receiving++;
	CHECK(end->receiving < end->peer->num_posted, "end %u takes a receive for nothing", end->index);
	return 0;
}

static int receive_place(void *ctx, uint64_t offset, const void *bytes, size_t len)
{
	struct end *end = ctx;
	const struct vb_request *r = &end->peer->posted[end->receiving].request;

	CHECK(offset + len <= r->length, "end %u: SEND %u is too long", end->index, end->receiving);
	for (size_t i = 0; i < len; i++)
		CHECK(((const uint8_t *)bytes)[i] == byte_of(end->peer, end->receiving, offset + i),
		      "end %u: SEND %u is wrong at %llu", end->index, end->receiving,
		      (unsigned long long)(offset + i));
	return 0;
}

static void receive_done(void *ctx, const struct vb_received *received)
{
	struct end *end = ctx;
	const struct vb_request *r = &end->peer->posted[end->receiving].request;

	CHECK(received->bytes == r->length, "end %u: message %u has %llu bytes", end->index, end->receiving,
	      (unsigned long long)received->bytes);
	CHECK(received->is_write == (r->kind == VB_REQ_WRITE), "end %u: message %u is of another kind",
		end->index, end->receiving);
	CHECK(received->tail == r->tail && received->tail_value == (r->tail ? r->tail_value : 0),
		"end %u: message %u ends wrongly",
	      end->index, end->receiving);
	CHECK(received->solicited == r->solicited, "end %u: message %u: solicited", end->index, end->receiving);
	end->receiving++;
	end->received++;
}

static int check(void *ctx, uint32_t rkey, uint64_t addr, uint64_t len, enum vb_access access)
{
	if (!len)
		return 0;
	return rkey == RKEY && addr >= BASE && addr - BASE <= MEMORY && len <= MEMORY - (addr - BASE) ? 0 : -EACCES;
}

static int write_memory(void *ctx, uint32_t rkey, uint64_t addr, const void *bytes, size_t len)
{
	struct end *end = ctx;

	if (check(ctx, rkey, addr, len, VB_ACCESS_WRITE))
		return -EACCES;
	memcpy(end->memory + (addr - BASE), bytes, len);
	return 0;
}

static uint64_t execute_atomic(uint8_t *at, uint8_t kind, uint64_t swap_or_add, uint64_t compare)
{
	uint64_t old, now;

	memcpy(&old, at, 8);
	now = kind == VB_REQ_FETCH_ADD ? old + swap_or_add : old == compare ? swap_or_add : old;
	memcpy(at, &now, 8);
	return old;
}

static int atomic(void *ctx, uint32_t rkey, uint64_t addr, uint8_t kind, uint64_t swap_or_add,
		  uint64_t compare, uint64_t *original)
{
	struct end *end = ctx;

	*original = execute_atomic(end->memory + (addr - BASE), kind, swap_or_add, compare);
	return 0;
}

static int invalidate(void *ctx, uint32_t rkey) { return 0; }

static void *buffer_take(void *ctx)
{
	if (w.buffers >= w.profile->buffers)
		return NULL;
	if (++w.buffers > w.most_buffers)
		w.most_buffers = w.buffers;
	return malloc(VB_RC_BUFFER_BYTES);
}

static void buffer_give(void *ctx, void *buffer)
{
	w.buffers--;
	free(buffer);
}

static const struct vb_responder_ops ops = {
	.receive_take = receive_take,
	.receive_place = receive_place,
	.receive_done = receive_done,
	.check = check,
	.write = write_memory,
	.atomic = atomic,
	.invalidate = invalidate,
};

/* --- requester's side ------------------------------------------------------------------------------------------ */

static int place(void *ctx, uint32_t position, uint64_t offset, const void *bytes, size_t len)
{
	struct end *end = ctx;
	struct posted *p = &end->posted[position];

	CHECK(position >= end->num_done && position < end->num_posted && p->got, "end %u: an answer to %u",
		end->index, position);
	CHECK(offset + len <= p->request.length, "end %u: an answer beyond the end of %u", end->index, position);
	memcpy(p->got + offset, bytes, len);
	return 0;
}

static uint32_t random_length(const struct end *end)
{
	switch (pick(6)) {
	case 0: return 0;
	case 1: return pick(64);
	case 2: return end->mtu * (1 + pick(4));
	case 3: return pick(MAX_MESSAGE);
	}
	return pick(3 * end->mtu);
}

static struct vb_request random_request(struct end *end)
{
	struct vb_request r = { .kind = (uint8_t)pick(5), .rkey = RKEY, .solicited = pick(2), .fence = happens(50) };

	if (r.kind > VB_REQ_READ) {
		r.length = 8;
		r.remote_addr = BASE + 8 * pick(ATOMIC_AREA / 8);
		r.compare = pick(2) ? 0 : next_random();
		memcpy(&r.swap_or_add, end->shadow + (r.remote_addr - BASE), 8);
		r.compare = pick(2) ? r.swap_or_add : next_random();
		r.swap_or_add = next_random();
		return r;
	}
	r.length = random_length(end);
	r.remote_addr = BASE + pick(MEMORY - r.length + 1);
	if (r.kind == VB_REQ_SEND)
		r.tail = (uint8_t)pick(3);
	if (r.kind == VB_REQ_WRITE)
		r.tail = (uint8_t)pick(2);
	r.tail_value = r.tail ? (uint32_t)next_random() : 0;
	return r;
}

static bool overlaps(const struct vb_request *a, const struct vb_request *b)
{
	return a->remote_addr < b->remote_addr + b->length && b->remote_addr < a->remote_addr + a->length;
}

/* A READ that is not done may be executed again: what changes its range has to wait for it. */
static bool needs_fence(const struct end *end, const struct vb_request *r)
{
	if (r->kind == VB_REQ_SEND || r->kind == VB_REQ_READ)
		return false;
	for (unsigned i = end->num_done; i < end->num_posted; i++)
		if (end->posted[i].request.kind == VB_REQ_READ && overlaps(&end->posted[i].request, r))
			return true;
	return false;
}

/* What the request will do to the peer's memory, and what the answer will be. */
static void foresee(struct end *end, unsigned number)
{
	struct posted *p = &end->posted[number];
	struct vb_request *r = &p->request;
	uint8_t *at = end->shadow + (r->remote_addr - BASE);

	if (vb_request_is_answered(r)) {
		p->got = calloc(1, r->length + 1);
		p->expected = calloc(1, r->length + 1);
	}
	if (end->refused_at >= 0 && number >= (unsigned)end->refused_at)
		return;
	if (r->kind == VB_REQ_WRITE)
		fill(at, end, number, 0, r->length);
	else if (r->kind == VB_REQ_READ)
		memcpy(p->expected, at, r->length);
	else if (r->kind != VB_REQ_SEND) {
		uint64_t old = execute_atomic(at, r->kind, r->swap_or_add, r->compare);
		memcpy(p->expected, &old, 8);
	}
}

static void refuse(struct vb_request *r)
{
	static const struct vb_request refused[] = {
		{ .kind = VB_REQ_WRITE, .length = 5000, .rkey = RKEY + 1, .remote_addr = BASE },
		{ .kind = VB_REQ_READ, .length = 5000, .rkey = RKEY, .remote_addr = BASE + MEMORY - 100 },
		{ .kind = VB_REQ_FETCH_ADD, .length = 8, .rkey = RKEY, .remote_addr = BASE - 8 },
		{ .kind = VB_REQ_READ, .length = 1, .rkey = 0, .remote_addr = UINT64_MAX },
	};

	*r = refused[pick(VB_ARRAY_LEN(refused))];
}

static void post(struct end *end)
{
	unsigned burst = 1 + pick(8);

	while (burst-- && end->num_posted < end->to_post && !end->failed) {
		struct posted *p = &end->posted[end->num_posted];
		p->request = random_request(end);
		if ((int)end->num_posted == end->refused_at)
			refuse(&p->request);
		p->request.fence |= needs_fence(end, &p->request);
		if (vb_rc_req_post(&end->req, &p->request))
			break;
		if (end->num_posted != (unsigned)end->refused_at)
			foresee(end, end->num_posted);
		else
			p->got = calloc(1, p->request.length + 1);
		end->num_posted++;
	}
	end->post_at = end->num_posted < end->to_post ? w.now + pick_time(200 * US) : UINT64_MAX;
}

static void post_receives(struct end *end)
{
	end->receive_at = UINT64_MAX;
	if (end->receives >= w.profile->receives)
		return;
	end->receives++;
	end->receive_at = w.now + pick_time(400 * US);
}

/* A peer that has refused something answers no READ again whose answer was lost. */
static bool is_expected(const struct end *end, const struct vb_rc_completion *c)
{
	if (w.profile->dies)
		return c->status == VB_RC_RETRY_EXCEEDED;
	if (c->status == VB_RC_RETRY_EXCEEDED)
		return (int)c->position < end->refused_at &&
			vb_request_is_answered(&end->posted[c->position].request);
	return (int)c->position == end->refused_at && c->status == VB_RC_REMOTE_ACCESS;
}

static void complete(struct end *end, const struct vb_rc_completion *c)
{
	struct posted *p = &end->posted[c->position];

	CHECK(c->position == end->num_done && c->position < end->num_posted,
		"end %u: %u completes instead of %u", end->index,
	      c->position, end->num_done);
	if (w.verbose)
		printf("# %10llu  end %u: %u: %s\n", (unsigned long long)w.now, end->index, c->position,
			vb_rc_status_text(c->status));
	if (c->status != VB_RC_SUCCESS) {
		CHECK(is_expected(end, c), "end %u: %u fails: %s", end->index, c->position,
			vb_rc_status_text(c->status));
		end->failed = true;
		return;
	}
	CHECK((int)c->position != end->refused_at, "end %u: %u was not refused", end->index, c->position);
	CHECK(!p->expected || memcmp(p->got, p->expected, p->request.length) == 0,
		"end %u: wrong answer to %u", end->index, c->position);
	end->num_done++;
}

/* --- the run --------------------------------------------------------------------------------------------------- */

static void send_packet(struct end *end, const struct vb_packet_out *out, bool is_response)
{
	uint8_t bytes[PACKET_BYTES];
	size_t len = out->header_bytes;

	CHECK(len + out->payload_bytes + out->pad_bytes <= VB_RC_BUFFER_BYTES, "end %u: packet too long", end->index);
	memcpy(bytes, out->header, len);
	if (is_response && out->payload_bytes) {
		CHECK(check(end, out->rkey, out->payload_at, out->payload_bytes, VB_ACCESS_READ) == 0,
			"end %u: READ outside", end->index);
		memcpy(bytes + len, end->memory + (out->payload_at - BASE), out->payload_bytes);
	} else if (out->payload_bytes) {
		CHECK(out->position < end->num_posted, "end %u: data of %u", end->index, out->position);
		fill(bytes + len, end, out->position, out->payload_at, out->payload_bytes);
	}
	len += out->payload_bytes;
	memset(bytes + len, 0, out->pad_bytes);
	transmit(end, bytes, len + out->pad_bytes);
}

static void work(struct end *end)
{
	struct vb_packet_out out;
	struct vb_rc_completion c;

	if (w.now >= end->post_at)
		post(end);
	if (w.now >= end->receive_at)
		post_receives(end);
	if (w.now >= vb_rc_req_deadline(&end->req))
		vb_rc_req_expire(&end->req, w.now);
	while (vb_rc_resp_write(&end->resp, &out))
		send_packet(end, &out, true);
	while (vb_rc_req_write(&end->req, w.now, &out))
		send_packet(end, &out, false);
	while (vb_rc_req_next_completion(&end->req, &c))
		complete(end, &c);
}

static void deliver(struct in_flight *f)
{
	static struct vb_rc_req req;
	static struct vb_rc_resp resp;
	struct end *end = f->end;
	struct vb_packet packet;

	if (!vb_icrc_check(&route, f->bytes, f->len, 0) || vb_packet_parse(f->bytes, f->len - VB_ICRC_BYTES, &packet))
		return;
	if (packet.row->flags.request) {
		resp = end->resp;
		if (vb_rc_resp_receive(&end->resp, &packet) == VB_RC_IGNORED)
			CHECK(memcmp(&resp, &end->resp, sizeof(resp)) == 0,
				"end %u: an ignored request left traces", end->index);
	} else {
		req = end->req;
		if (vb_rc_req_receive(&end->req, w.now, &packet) == VB_RC_IGNORED)
			CHECK(memcmp(&req, &end->req, sizeof(req)) == 0,
				"end %u: an ignored reply left traces", end->index);
	}
	CHECK(end->req.next - end->req.una <= VB_RC_WINDOW, "end %u: window", end->index);
	if (w.profile->receives && end->receive_at == UINT64_MAX && end->receives < w.profile->receives)
		end->receive_at = w.now + pick_time(400 * US);
}

static bool is_finished(const struct end *end) { return end->failed || end->num_done == end->to_post; }

static uint64_t wakes_at(const struct end *end)
{
	uint64_t at = vb_min_u64(end->post_at, end->receive_at);

	if (end->failed)
		at = UINT64_MAX;
	return vb_min_u64(at, vb_rc_req_deadline(&end->req));
}

static void set_up_end(struct end *end, struct end *peer, uint32_t mtu, unsigned depth, uint32_t psn,
		       uint32_t peer_psn)
{
	const struct profile *p = w.profile;
	struct vb_packet_to to = { .qpn = peer->index + 100, .pkey = VB_PKEY_DEFAULT, .service = VB_SERVICE_RC };

	end->mtu = mtu;
	end->peer = peer;
	end->to_post = 1 + pick(pick(8) ? 64 : MAX_REQUESTS);
	if (end->to_post > w.most_requests)
		end->to_post = w.most_requests;
	end->refused_at = p->refused ? (int)pick(end->to_post) : -1;
	end->receives = p->receives ? 0 : MAX_REQUESTS;
	end->receive_at = p->receives ? 0 : UINT64_MAX;
	vb_rc_req_init(&end->req, &(struct vb_rc_req_config){ .to = to, .mtu = mtu, .first_psn = psn,
		.max_window = 4u << pick(9),
		.max_rd_atomic = (uint8_t)depth, .retry_count = 7, .rnr_retry = VB_RNR_RETRY_FOREVER,
		.ack_timeout_ns = p->dies || p->refused ? 8 * MS : 0, .place = place, .ctx = end },
			end->slots, SLOTS);
	vb_rc_resp_init(&end->resp, &(struct vb_rc_resp_config){ .to = to, .mtu = mtu, .first_psn = peer_psn,
		.max_rd_atomic = (uint8_t)depth, .rnr_timer = (uint8_t)(1 + pick(12)), .ops = &ops,
		.buffer_take = buffer_take, .buffer_give = buffer_give, .ctx = end });
}

static void set_up(void)
{
	unsigned connections = 1 + pick(MAX_CONNECTIONS);

	w.num_ends = 2 * connections;
	for (unsigned i = 0; i < w.num_ends; i++) {
		memset(&w.ends[i], 0, sizeof(w.ends[i]));
		w.ends[i].index = i;
		w.ends[i].host = i % 2;
	}
	for (unsigned i = 0; i < w.num_ends; i += 2) {
		uint32_t mtu = pick(4) ? 256u : 256u << pick(5), psns[2];
		for (unsigned k = 0; k < 2; k++)
			psns[k] = pick(2) ? VB_PSN_MASK - pick(200) : (uint32_t)next_random() & VB_PSN_MASK;
		unsigned depth = 1 + pick(w.profile->deepest);
		set_up_end(&w.ends[i], &w.ends[i + 1], mtu, depth, psns[0], psns[1]);
		set_up_end(&w.ends[i + 1], &w.ends[i], mtu, depth, psns[1], psns[0]);
	}
	for (unsigned i = 0; i < w.profile->cuts; i++) {
		w.cut_from[i] = pick_time(20 * MS);
		w.cut_to[i] = w.cut_from[i] + pick_time(30 * MS);
	}
	w.dead_from = pick_time(2 * MS);
}

/* Both ends of connections whose peer died have to notice, or to be done. */
static void check_end_state(void)
{
	CHECK(w.num_ends > 0, "nothing ran");
	for (unsigned i = 0; i < w.num_ends; i++) {
		struct end *end = &w.ends[i];
		w.again += end->req.packets_again;
		if (w.profile->dies)
			continue;
		CHECK(end->refused_at < 0 ? !end->failed : end->failed, "end %u: failed", i);
		CHECK(memcmp(end->shadow, end->peer->memory, MEMORY) == 0,
			"end %u: memory of end %u is not what it wrote", i,
		      end->peer->index);
		unsigned messages = 0, executed = end->refused_at < 0 ? end->num_done : (unsigned)end->refused_at;
		for (unsigned k = 0; k < executed; k++)
			messages += uses_receive(&end->posted[k].request);
		CHECK(end->peer->received == messages, "end %u: %u messages sent, %u received", i, messages,
			end->peer->received);
	}
}

static bool is_over(void)
{
	for (unsigned i = 0; i < w.num_ends; i++)
		if (!is_finished(&w.ends[i]))
			return false;
	return true;
}

static unsigned live(void)
{
	unsigned steps;

	for (steps = 0; !is_over(); steps++) {
		CHECK(steps < MAX_STEPS, "no end in sight");
		uint64_t next = w.num_queued ? w.queue[0]->arrives : UINT64_MAX;
		for (unsigned i = 0; i < w.num_ends; i++)
			next = vb_min_u64(next, wakes_at(&w.ends[i]));
		CHECK(next != UINT64_MAX, "stuck");
		w.now = next > w.now ? next : w.now;
		while (w.num_queued && w.queue[0]->arrives <= w.now) {
			struct in_flight *f = queue_pop();
			if (!is_cut(f->to) || !w.profile->dies)
				deliver(f);
			w.spare[w.num_spare++] = f;
			if (!w.num_queued || w.queue[0]->end != f->end)
				work(f->end);
		}
		for (unsigned i = 0; i < w.num_ends; i++)
			if (wakes_at(&w.ends[i]) <= w.now)
				work(&w.ends[i]);
	}
	return steps;
}

static void tear_down(void)
{
	for (unsigned i = 0; i < w.num_ends; i++) {
		vb_rc_resp_fini(&w.ends[i].resp);
		for (unsigned k = 0; k < MAX_REQUESTS; k++) {
			free(w.ends[i].posted[k].got);
			free(w.ends[i].posted[k].expected);
		}
	}
	w.num_ends = 0;
}

static bool run(uint64_t seed, unsigned most_requests)
{
	unsigned at = (unsigned)(seed % VB_ARRAY_LEN(profiles)), steps;

	w.seed = seed;
	w.random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	w.profile = &profiles[at];
	w.most_requests = most_requests;
	w.now = MS;
	w.sent = w.lost = w.again = 0;
	w.link_free[0] = w.link_free[1] = 0;
	w.buffers = w.num_queued = 0;
	w.num_spare = MAX_IN_FLIGHT;
	for (unsigned i = 0; i < MAX_IN_FLIGHT; i++)
		w.spare[i] = &w.pool[i];
	if (setjmp(w.failure)) {
		tear_down();
		return false;
	}
	set_up();
	steps = live();
	check_end_state();
	tear_down();
	if (w.buffers)
		broken("%u buffers are missing", w.buffers);
	totals[at].sent += w.sent;
	totals[at].lost += w.lost;
	totals[at].again += w.again;
	totals[at].steps += steps;
	return true;
}

/* Fewer requests, as long as that still fails. */
static void shrink_and_report(uint64_t seed)
{
	unsigned requests = MAX_REQUESTS;

	for (unsigned less = requests - 1; less > 0; less--)
		if (!run(seed, less))
			requests = less;
	run(seed, requests);
	printf("# seed %llu (%s) at %llu ns: %s\n# replay: sim_rc -v %llu %u\nnot ok 1 - rc simulation\n",
		(unsigned long long)seed,
	       w.profile->name, (unsigned long long)w.now, w.why, (unsigned long long)seed, requests);
}

static bool report_totals(void)
{
	bool ok = true;

	for (unsigned i = 0; i < VB_ARRAY_LEN(profiles); i++) {
		if (!totals[i].sent)
			continue;
		printf("# %-36s %8llu packets, %6llu lost, %6llu sent again\n", profiles[i].name,
			(unsigned long long)totals[i].sent,
		       (unsigned long long)totals[i].lost, (unsigned long long)totals[i].again);
		/* Two are needed: packets that tell of others, ACKs above all, are lost as well. */
		if (profiles[i].thrifty && totals[i].again > 2 * totals[i].lost)
			ok = false;
	}
	return ok;
}

int main(int argc, char **argv)
{
	uint64_t first = 1, count = 200;

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("1..1\n");
	if (argc > 2 && strcmp(argv[1], "-v") == 0) {
		w.verbose = true;
		bool ok = run(strtoull(argv[2], NULL, 0), argc > 3 ? (unsigned)atoi(argv[3]) : MAX_REQUESTS);
		printf(ok ? "ok 1 - rc simulation\n" : "# %s\nnot ok 1 - rc simulation\n", w.why);
		return !ok;
	}
	if (argc > 1)
		first = strtoull(argv[1], NULL, 0);
	if (argc > 2)
		count = strtoull(argv[2], NULL, 0);
	for (uint64_t seed = first; seed < first + count; seed++)
		if (!run(seed, MAX_REQUESTS)) {
			shrink_and_report(seed);
			return 1;
		}
	bool ok = report_totals();
	printf("%s 1 - rc simulation, %llu seeds\n", ok ? "ok" : "# a lost packet costs too many\nnot ok",
		(unsigned long long)count);
	return !ok;
}

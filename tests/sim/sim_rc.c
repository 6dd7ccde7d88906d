/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reliable connections under a simulated network (sim.h), one seed a run.
 *
 * Theory of operation. Some hosts; between pairs of them a few connections. Each of a connection's two ends
 * has a requester and a responder, posts random requests and checks everything that happens to it:
 *
 *	         one host                                     another
 *	  end 0: requester ---\                          /--- responder  end 1
 *	         responder <-\ \--> links (queue, rate) --/ /-- requester
 *	                      \---- links (queue, rate) <--/
 *
 * A host may die, and come back later: connections to it fail for want of answers, all others must not
 * notice; and those that failed are made again, with new PSNs and, on the host that died, new QP numbers.
 *
 * The oracle. An end's memory is changed only by its peer's requests, in their order; so the poster keeps a
 * shadow of it, brought up to date when a request is posted, and knows every READ's and atomic's answer in
 * advance. (A READ may be executed twice, so what changes its range later is posted with a fence.) SENDs are
 * compared as they are placed: their bytes follow from their number. A flush finds its range as the shadow
 * was when it was posted. At the end all memory must be as its shadow. A packet that was ignored must have
 * left the machine as it was, bit for bit.
 *
 * A host also has words that atomics of all connections to it meet in. Each such atomic carries an operand of
 * its own, by which its execution is known: it must happen once, between posting and completion, and the
 * answer must be what it found. So there is an order, the words' own, that agrees with what everybody saw.
 *
 * usage: sim_rc [FIRST_SEED [COUNT]]; sim_rc -v SEED [REQUESTS] for a trace of one run, cut to so many
 * requests per end. A failure is run again with fewer requests while it still fails, and prints what to call.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/rc/rc_responder.h"
#include "sim.h"

enum {
	MAX_CONNECTIONS = 5,
	MAX_REQUESTS = 320,
	ENTRIES = 16,
	MEMORY = 32768,
	MAX_MESSAGE = 24576,
	ATOMIC_AREA = 64,
	WORDS = 4
};
enum {
	MAX_STEPS = 400000,
	BASE = 0x10000,
	SHARED = BASE + MEMORY,
	RKEY = 77,
	FIRST_QPN = 100,
	QPN_STEP = 64
};
enum { FEW = 200 };	/* packets sent again that may be chance */

struct profile {
	const char *name;
	struct sim_network network;
	/* receives that wait at most; 0: as many as are needed */
	unsigned receives;
	unsigned buffers;				/* for packets out of order, in all */
	unsigned deepest;				/* max_rd_atomic at most */
	bool credits;					/* ACKs say how many receives there are */
	/* a request of each end is one that the peer must refuse */
	bool refused;
	bool dies;					/* one host falls silent for good */
	bool returns;					/* but not for good */
	bool thrifty;					/* few packets may be sent again per packet lost */
};

static const struct profile profiles[] = {
	{ "clean", { .delay = 20 * US }, .buffers = 256, .deepest = 16, .thrifty = true },
	{ "1 % loss", { .loss = 10, .delay = 20 * US }, .buffers = 1024, .deepest = 16, .thrifty = true },
	{ "5 % loss", { .loss = 50, .delay = 50 * US, .jitter = 2 * US }, .buffers = 512, .deepest = 16 },
	{ "20 % loss", { .loss = 200, .delay = 20 * US }, .buffers = 256, .deepest = 4 },
	{ "loss one way", { .loss = 100, .delay = 20 * US, .one_way = true }, .buffers = 256, .deepest = 16 },
	{ "losses in runs", { .runs = 5, .delay = 30 * US }, .buffers = 256, .deepest = 16 },
	{ "loss and a peer that keeps nothing", { .loss = 50, .delay = 20 * US }, .deepest = 16 },
	{ "reordering and doubling", { .doubling = 100, .late = 100, .delay = 20 * US, .jitter = 60 * US }, .buffers = 64,
	  .deepest = 16 },
	{ "corruption", { .corruption = 80, .doubling = 20, .delay = 100 * US }, .buffers = 64, .deepest = 2 },
	{ "slow link with a short queue", { .delay = 200 * US, .per_byte_ps = 8000, .queue = 40 }, .buffers = 256, .deepest = 4 },
	{ "near and far", { .loss = 20, .late = 10, .delay = 5 * US, .far = 200, .per_byte_ps = 800, .queue = 100 }, .buffers = 512,
	  .deepest = 16 },
	{ "no receives posted", { .loss = 20, .doubling = 20, .delay = 20 * US }, .receives = 2, .buffers = 64, .deepest = 16 },
	{ "credits", { .delay = 20 * US }, .receives = 3, .credits = true, .buffers = 64, .deepest = 16 },
	{ "credits and losses", { .loss = 50, .doubling = 50, .late = 50, .delay = 20 * US }, .receives = 2, .credits = true,
	  .buffers = 64, .deepest = 4 },
	{ "partitions", { .loss = 20, .delay = 30 * US, .cuts = 4 }, .buffers = 64, .deepest = 1 },
	{ "everything", { .loss = 50, .runs = 2, .doubling = 50, .corruption = 20, .late = 50, .delay = 100 * US, .jitter = 100 * US,
	  .far = 5, .per_byte_ps = 2000, .queue = 100, .cuts = 2 }, .receives = 3, .buffers = 16,
	  .deepest = 3 },
	{ "refused requests", { .loss = 50, .doubling = 30, .late = 30, .delay = 20 * US }, .buffers = 64, .deepest = 4,
	  .refused = true },
	{ "death", { .loss = 20, .delay = 20 * US }, .buffers = 64, .deepest = 4, .dies = true },
	{ "death and return", { .loss = 20, .doubling = 50, .late = 50, .delay = 50 * US, .jitter = 50 * US }, .buffers = 64,
	  .deepest = 4, .dies = true, .returns = true },
};

/* A request as its poster remembers it. */
struct posted {
	struct vb_request request;
	uint8_t *got, *expected;	/* answers of READs and atomics; what a flush finds */
	/*
	 * an atomic on a shared word: expected is known when it has been executed; is_executed: of flushes
	 * too
	 */
	bool is_shared, is_executed;
};

struct end {
	unsigned index, host;
	uint32_t qpn, mtu;
	struct vb_rc_req req;
	struct vb_rc_resp resp;
	struct vb_rc_entry entries[ENTRIES];
	struct posted posted[MAX_REQUESTS];
	unsigned num_posted, num_done, to_post;
	int refused_at;			/* -1: none */
	bool failed;
	bool has_news;			/* something has arrived */
	bool gone;			/* with its host */
	uint64_t remade_at;		/* when the connection is made again */
	uint64_t post_at, receive_at;
	unsigned receives;		/* posted and not taken */
	unsigned received;		/* messages that ended a receive */
	unsigned receiving;		/* which of the peer's requests the taken receive gets */
	uint8_t memory[MEMORY], shadow[MEMORY];	/* own; of the peer's, as its own requests leave it */
	struct end *peer;
};

static struct world {
	const struct profile *profile;
	unsigned num_hosts, num_ends, most_requests;
	struct end ends[2 * MAX_CONNECTIONS];
	uint64_t words[SIM_HOSTS][WORDS];
	uint32_t next_operand;
	unsigned dead;			/* host */
	uint64_t reborn_at;		/* UINT64_MAX: never, or it was */
	unsigned buffers, most_buffers;
	uint64_t again;
} w;

static struct {
	uint64_t sent, lost, again, steps;
} totals[VB_ARRAY_LEN(profiles)];

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

/*
 * --- responder's side
 * ------------------------------------------------------------------------------------------
 */

static bool uses_receive(const struct vb_request *r)
{
	return r->kind == VB_REQ_SEND || (r->kind == VB_REQ_WRITE && r->tail == VB_TAIL_IMM);
}

static int receive_take(void *ctx, const struct vb_packet *packet)
{
	struct end *end = ctx;

	if (end->receives == 0)
		return -EAGAIN;
	end->receives--;
	while (end->receiving < end->peer->num_posted &&
	       !uses_receive(&end->peer->posted[end->receiving].request))
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
	CHECK(received->solicited == r->solicited, "end %u: message %u: solicited", end->index,
	      end->receiving);
	end->receiving++;
	end->received++;
}

static bool is_shared(uint64_t addr) { return addr >= SHARED && addr - SHARED < 8 * WORDS; }

static int check(void *ctx, uint32_t rkey, uint64_t addr, uint64_t len, enum vb_access access)
{
	if (!len)
		return 0;
	if (rkey != RKEY)
		return -EACCES;
	if (access == VB_ACCESS_ATOMIC && is_shared(addr))
		return 0;
	return addr >= BASE && addr - BASE <= MEMORY && len <= MEMORY - (addr - BASE) ? 0 : -EACCES;
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
	if (kind == VB_REQ_ATOMIC_WRITE)
		compare = old;
	now = kind == VB_REQ_FETCH_ADD ? old + swap_or_add : old == compare ? swap_or_add : old;
	memcpy(at, &now, 8);
	return old;
}

/* Whose it is, the operand says. */
static void note_execution(struct end *end, const struct vb_atomic *op, uint64_t found)
{
	const struct end *poster = end->peer;
	unsigned number = poster->num_done;

	while (number < poster->num_posted && poster->posted[number].request.swap_or_add != op->swap_or_add)
		number++;
	CHECK(number < poster->num_posted && (int)number != poster->refused_at,
	      "end %u executes an atomic that nobody waits for", end->index);
	struct posted *p = &end->peer->posted[number];
	CHECK(!p->is_executed, "end %u executes atomic %u twice", end->index, number);
	CHECK(p->request.remote_addr == op->addr && p->request.kind == op->kind,
	      "end %u executes another atomic than %u", end->index, number);
	p->is_executed = true;
	memcpy(p->expected, &found, 8);
}

static int atomic(void *ctx, const struct vb_atomic *op, uint64_t *original)
{
	struct end *end = ctx;
	bool shared = is_shared(op->addr);
	uint8_t *at = shared ? (uint8_t *)&w.words[end->host][(op->addr - SHARED) / 8] :
			       end->memory + (op->addr - BASE);

	*original = execute_atomic(at, op->kind, op->swap_or_add, op->compare);
	if (shared)
		note_execution(end, op, *original);
	return 0;
}

static int invalidate(void *ctx, uint32_t rkey) { return 0; }

/* The oldest one that has not been executed: they go in order. */
static struct posted *find_flush(struct end *poster)
{
	for (unsigned i = poster->num_done; i < poster->num_posted; i++)
		if (poster->posted[i].request.kind == VB_REQ_FLUSH && !poster->posted[i].is_executed)
			return &poster->posted[i];
	return NULL;
}

static int flush(void *ctx, uint32_t rkey, uint64_t addr, uint64_t len, uint32_t how)
{
	struct end *end = ctx;

	if (check(ctx, rkey, addr, len, VB_ACCESS_READ))
		return -EACCES;
	struct posted *p = find_flush(end->peer);
	CHECK(p && p->request.remote_addr == addr && p->request.compare == len &&
		      p->request.swap_or_add == how,
	      "end %u flushes what nobody asked for", end->index);
	CHECK(memcmp(end->memory + (addr - BASE), p->expected, len) == 0,
	      "end %u flushes before what was written, or behind it", end->index);
	p->is_executed = true;
	return 0;
}

static unsigned count_receives(void *ctx)
{
	const struct end *end = ctx;
	return end->receives;
}

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
	.flush = flush,
};

/*
 * --- requester's side
 * ------------------------------------------------------------------------------------------
 */

static int place(void *ctx, uint32_t position, uint64_t offset, const void *bytes, size_t len)
{
	struct end *end = ctx;
	struct posted *p = &end->posted[position];

	CHECK(position >= end->num_done && position < end->num_posted && p->got, "end %u: an answer to %u",
		end->index, position);
	CHECK(offset + len <= p->request.length, "end %u: an answer beyond the end of %u", end->index,
	      position);
	memcpy(p->got + offset, bytes, len);
	return 0;
}

static uint32_t random_length(const struct end *end)
{
	switch (sim_pick(6)) {
	case 0: return 0;
	case 1: return sim_pick(64);
	case 2: return end->mtu * (1 + sim_pick(4));
	case 3: return sim_pick(MAX_MESSAGE);
	}
	return sim_pick(3 * end->mtu);
}

/* An atomic write's data follow from its number, as a WRITE's. */
static void aim_rarer(struct vb_request *r)
{
	if (r->kind == VB_REQ_ATOMIC_WRITE) {
		r->length = 8;
		r->remote_addr = BASE + 8 * sim_pick(ATOMIC_AREA / 8);
		return;
	}
	r->compare = sim_pick(4) ? sim_pick(MAX_MESSAGE) : 0;
	r->remote_addr = BASE + sim_pick(MEMORY - (uint32_t)r->compare + 1);
	r->swap_or_add = vb_flush(1 + sim_pick(2), sim_pick(2));
}

static struct vb_request random_request(struct end *end)
{
	struct vb_request r = {
		.kind = (uint8_t)sim_pick(7), .rkey = RKEY, .solicited = sim_pick(2), .fence = sim_happens(50)
	};

	if (r.kind > VB_REQ_FETCH_ADD) {
		aim_rarer(&r);
		return r;
	}
	if (r.kind > VB_REQ_READ && sim_pick(2)) {
		unsigned word = sim_pick(WORDS);
		r.length = 8;
		r.remote_addr = SHARED + 8 * word;
		r.compare = sim_pick(4) ? w.words[end->peer->host][word] : sim_random();
		r.swap_or_add = (uint64_t)++w.next_operand << 24;
		return r;
	}
	if (r.kind > VB_REQ_READ) {
		r.length = 8;
		r.remote_addr = BASE + 8 * sim_pick(ATOMIC_AREA / 8);
		r.compare = sim_pick(2) ? 0 : sim_random();
		memcpy(&r.swap_or_add, end->shadow + (r.remote_addr - BASE), 8);
		r.compare = sim_pick(2) ? r.swap_or_add : sim_random();
		r.swap_or_add = sim_random();
		return r;
	}
	r.length = random_length(end);
	r.remote_addr = BASE + sim_pick(MEMORY - r.length + 1);
	if (r.kind == VB_REQ_SEND)
		r.tail = (uint8_t)sim_pick(3);
	if (r.kind == VB_REQ_WRITE)
		r.tail = (uint8_t)sim_pick(2);
	r.tail_value = r.tail ? (uint32_t)sim_random() : 0;
	return r;
}

static bool overlaps(const struct vb_request *a, const struct vb_request *b)
{
	return a->remote_addr < b->remote_addr + b->length && b->remote_addr < a->remote_addr + a->length;
}

/* A READ that is not done may be executed again: what changes its range has to wait for it. */
static bool needs_fence(const struct end *end, const struct vb_request *r)
{
	if (r->kind == VB_REQ_SEND || r->kind == VB_REQ_READ || r->kind == VB_REQ_FLUSH)
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
		p->expected = calloc(1, (r->kind == VB_REQ_FLUSH ? r->compare : r->length) + 1);
	}
	p->is_shared = r->kind > VB_REQ_READ && is_shared(r->remote_addr);
	if (p->is_shared)
		return;
	if (end->refused_at >= 0 && number >= (unsigned)end->refused_at)
		return;
	if (r->kind == VB_REQ_WRITE || r->kind == VB_REQ_ATOMIC_WRITE)
		fill(at, end, number, 0, r->length);
	else if (r->kind == VB_REQ_READ)
		memcpy(p->expected, at, r->length);
	else if (r->kind == VB_REQ_FLUSH)
		memcpy(p->expected, at, r->compare);
	else if (r->kind != VB_REQ_SEND) {
		uint64_t old = execute_atomic(at, r->kind, r->swap_or_add, r->compare);
		memcpy(p->expected, &old, 8);
	}
}

static void refuse(struct vb_request *r)
{
	const struct vb_request refused[] = {
		{ .kind = VB_REQ_WRITE, .length = 5000, .rkey = RKEY + 1, .remote_addr = BASE },
		{ .kind = VB_REQ_READ, .length = 5000, .rkey = RKEY, .remote_addr = BASE + MEMORY - 100 },
		{ .kind = VB_REQ_FETCH_ADD, .length = 8, .rkey = RKEY, .remote_addr = BASE - 8 },
		{ .kind = VB_REQ_READ, .length = 1, .rkey = 0, .remote_addr = UINT64_MAX },
		{ .kind = VB_REQ_ATOMIC_WRITE, .length = 8, .rkey = RKEY, .remote_addr = BASE + MEMORY },
		{ .kind = VB_REQ_FLUSH, .rkey = RKEY + 1, .remote_addr = BASE, .compare = 100, .swap_or_add = vb_flush(1, 0) },
	};

	*r = refused[sim_pick(VB_ARRAY_LEN(refused))];
}

static void post(struct end *end)
{
	unsigned burst = 1 + sim_pick(8);

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
	end->post_at = end->num_posted < end->to_post ? sim.now + sim_pick_time(200 * US) : UINT64_MAX;
}

static void post_receives(struct end *end)
{
	end->receive_at = UINT64_MAX;
	if (end->receives >= w.profile->receives)
		return;
	end->receives++;
	end->receive_at = sim.now + sim_pick_time(400 * US);
}

/* A peer that has refused something answers no READ again whose answer was lost. */
static bool is_expected(const struct end *end, const struct vb_rc_completion *c)
{
	if (end->peer->gone)
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
	if (sim.verbose)
		printf("# %10llu  end %u: %u: %s\n", (unsigned long long)sim.now, end->index, c->position,
			vb_rc_status_text(c->status));
	if (c->status != VB_RC_SUCCESS) {
		CHECK(is_expected(end, c), "end %u: %u fails: %s", end->index, c->position,
			vb_rc_status_text(c->status));
		end->failed = true;
		return;
	}
	CHECK((int)c->position != end->refused_at, "end %u: %u was not refused", end->index, c->position);
	CHECK((!p->is_shared && p->request.kind != VB_REQ_FLUSH) || p->is_executed,
	      "end %u: %u completes and was not executed", end->index, c->position);
	CHECK(!p->expected || memcmp(p->got, p->expected, p->request.length) == 0,
		"end %u: wrong answer to %u", end->index, c->position);
	end->num_done++;
}

/*
 * --- the run
 * ---------------------------------------------------------------------------------------------------
 */

static void send_packet(struct end *end, const struct vb_packet_out *out, bool is_response)
{
	uint8_t bytes[VB_RC_BUFFER_BYTES];
	size_t len = out->header_bytes;

	CHECK(len + out->payload_bytes + out->pad_bytes <= sizeof(bytes), "end %u: packet too long",
	      end->index);
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
	sim_send(end->host, end->peer->host, bytes, len + out->pad_bytes);
}

static void work(struct end *end)
{
	struct vb_packet_out out;
	struct vb_rc_completion c;

	end->has_news = false;
	if (sim.now >= end->post_at)
		post(end);
	if (sim.now >= end->receive_at)
		post_receives(end);
	if (sim.now >= vb_rc_req_deadline(&end->req))
		vb_rc_req_expire(&end->req, sim.now);
	while (vb_rc_resp_write(&end->resp, &out))
		send_packet(end, &out, true);
	while (vb_rc_req_write(&end->req, sim.now, &out))
		send_packet(end, &out, false);
	while (vb_rc_req_next_completion(&end->req, &c))
		complete(end, &c);
}

static void receive_request(struct end *end, const struct vb_packet *packet)
{
	static struct vb_rc_resp before;

	before = end->resp;
	if (vb_rc_resp_receive(&end->resp, packet) == VB_RC_IGNORED)
		CHECK(memcmp(&before, &end->resp, sizeof(before)) == 0,
		      "end %u: an ignored request left traces", end->index);
}

static void receive_reply(struct end *end, const struct vb_packet *packet)
{
	static struct vb_rc_req before;

	before = end->req;
	if (vb_rc_req_receive(&end->req, sim.now, packet) == VB_RC_IGNORED)
		CHECK(memcmp(&before, &end->req, sizeof(before)) == 0, "end %u: an ignored reply left traces",
		      end->index);
}

/* NULL: there is no such queue pair, or it is connected to another host. */
static struct end *find(const struct sim_arrival *a)
{
	for (unsigned i = 0; i < w.num_ends; i++) {
		struct end *end = &w.ends[i];
		if (!end->gone && end->host == a->to && end->qpn == a->packet.destination_qpn &&
		    end->peer->host == a->from)
			return end;
	}
	return NULL;
}

static void deliver(struct end *end, const struct vb_packet *packet)
{
	if (packet->row->flags.request)
		receive_request(end, packet);
	else
		receive_reply(end, packet);
	CHECK(end->req.next - end->req.una <= VB_RC_WINDOW, "end %u: window", end->index);
	CHECK(end->resp.kept_count <= w.buffers && w.buffers <= w.profile->buffers, "end %u: buffers",
	      end->index);
	if (w.profile->receives && end->receive_at == UINT64_MAX && end->receives < w.profile->receives)
		end->receive_at = sim.now + sim_pick_time(400 * US);
}

static bool is_finished(const struct end *end)
{
	return end->gone || end->failed || end->num_done == end->to_post;
}

static uint64_t wakes_at(const struct end *end)
{
	uint64_t at = vb_min_u64(end->post_at, end->receive_at);

	if (end->gone)
		return UINT64_MAX;
	if (end->failed)
		at = UINT64_MAX;
	return vb_min_u64(at, vb_rc_req_deadline(&end->req));
}

static void set_up_end(struct end *end, struct end *peer, uint32_t mtu, unsigned depth, uint32_t psn,
		       uint32_t peer_psn)
{
	const struct profile *p = w.profile;
	struct vb_packet_to to = { .qpn = peer->qpn, .pkey = VB_PKEY_DEFAULT, .service = VB_SERVICE_RC };

	end->mtu = mtu;
	end->peer = peer;
	end->remade_at = UINT64_MAX;
	end->to_post = 1 + sim_pick(sim_pick(8) ? 64 : MAX_REQUESTS);
	if (end->to_post > w.most_requests)
		end->to_post = w.most_requests;
	end->refused_at = p->refused ? (int)sim_pick(end->to_post) : -1;
	end->receives = p->receives ? 0 : MAX_REQUESTS;
	end->receive_at = p->receives ? 0 : UINT64_MAX;
	vb_rc_req_init(&end->req, &(struct vb_rc_req_config){ .to = to, .mtu = mtu, .first_psn = psn,
		.max_window = 4u << sim_pick(9),
		.max_rd_atomic = (uint8_t)depth, .retry_count = 7, .rnr_retry = VB_RNR_RETRY_FOREVER,
		.ack_timeout_ns = p->dies || p->refused ? 8 * MS : 0, .place = place, .ctx = end },
			end->entries, ENTRIES);
	vb_rc_resp_init(&end->resp,
			&(struct vb_rc_resp_config){ .to = to,
						     .mtu = mtu,
						     .first_psn = peer_psn,
						     .receives = p->credits ? count_receives : NULL,
						     .max_rd_atomic = (uint8_t)depth,
						     .rnr_timer = (uint8_t)(1 + sim_pick(12)),
						     .ops = &ops,
						     .buffer_take = buffer_take,
						     .buffer_give = buffer_give,
						     .ctx = end });
}

static void connect(struct end *a, struct end *b)
{
	uint32_t mtu = sim_pick(4) ? 256u : 256u << sim_pick(5), psns[2];
	unsigned depth = 1 + sim_pick(w.profile->deepest);

	for (unsigned k = 0; k < 2; k++)
		psns[k] = sim_pick(2) ? VB_PSN_MASK - sim_pick(200) : (uint32_t)sim_random() & VB_PSN_MASK;
	set_up_end(a, b, mtu, depth, psns[0], psns[1]);
	set_up_end(b, a, mtu, depth, psns[1], psns[0]);
}

static void begin_end(unsigned index, unsigned host, uint32_t qpn)
{
	struct end *end = &w.ends[index];

	memset(end, 0, sizeof(*end));
	end->index = index;
	end->host = host;
	end->qpn = qpn;
}

static void set_up(void)
{
	unsigned connections = 1 + sim_pick(MAX_CONNECTIONS);

	w.num_ends = 2 * connections;
	for (unsigned i = 0; i < w.num_ends; i += 2) {
		unsigned host = sim_pick(w.num_hosts);
		begin_end(i, host, FIRST_QPN + i);
		begin_end(i + 1, (host + 1 + sim_pick(w.num_hosts - 1)) % w.num_hosts, FIRST_QPN + i + 1);
		connect(&w.ends[i], &w.ends[i + 1]);
	}
	w.dead = w.ends[1].host;
	w.reborn_at = UINT64_MAX;
	if (w.profile->dies)
		sim.silent_from[w.dead] = sim.now + sim_pick_time(4 * MS);
	if (w.profile->returns)
		w.reborn_at = sim.silent_to[w.dead] = sim.silent_from[w.dead] + sim_pick_time(200 * MS);
}

/* Both ends of connections whose peer died have to notice, or to be done. */
static void check_end_state(void)
{
	CHECK(w.num_ends > 0, "nothing ran");
	for (unsigned i = 0; i < w.num_ends; i++) {
		struct end *end = &w.ends[i];
		if (end->gone || end->peer->gone)
			continue;
		CHECK(end->refused_at < 0 ? !end->failed : end->failed, "end %u: failed", i);
		CHECK(memcmp(end->shadow, end->peer->memory, MEMORY) == 0,
			"end %u: memory of end %u is not what it wrote", i,
		      end->peer->index);
		unsigned messages = 0,
			 executed = end->refused_at < 0 ? end->num_done : (unsigned)end->refused_at;
		for (unsigned k = 0; k < executed; k++)
			messages += uses_receive(&end->posted[k].request);
		CHECK(end->peer->received == messages, "end %u: %u messages sent, %u received", i, messages,
			end->peer->received);
	}
}

static bool is_over(void)
{
	for (unsigned i = 0; i < w.num_ends; i++)
		if (!is_finished(&w.ends[i]) || (w.profile->returns && w.ends[i].gone))
			return false;
	return true;
}

/* ---- death ---- */

static void end_end(struct end *end)
{
	w.again += end->req.packets_resent;
	vb_rc_resp_fini(&end->resp);
	for (unsigned k = 0; k < MAX_REQUESTS; k++) {
		free(end->posted[k].got);
		free(end->posted[k].expected);
	}
	memset(end->posted, 0, sizeof(end->posted));
}

static void let_host_die(void)
{
	for (unsigned i = 0; i < w.num_ends; i++)
		w.ends[i].gone |= w.ends[i].host == w.dead && w.ends[i].remade_at == UINT64_MAX;
}

/* Once the survivor has given up, the host is back, and old packets are gone from the network. */
static void plan_to_remake(struct end *end)
{
	if (end->gone || !end->peer->gone || end->remade_at != UINT64_MAX || !is_finished(end) ||
	    !w.profile->returns)
		return;
	end->remade_at = (sim.now > w.reborn_at ? sim.now : w.reborn_at) + 2 * MS;
}

static void remake(struct end *end)
{
	struct end *peer = end->peer;

	end_end(end);
	end_end(peer);
	begin_end(end->index, end->host, end->qpn);
	begin_end(peer->index, peer->host, peer->qpn + QPN_STEP);
	connect(end, peer);
}

static void watch_over(struct end *end)
{
	plan_to_remake(end);
	if (sim.now >= end->remade_at)
		remake(end);
}

/* ---- life ---- */

static uint64_t next_event(void)
{
	uint64_t next = sim_next_arrival();

	for (unsigned i = 0; i < w.num_ends; i++)
		next = vb_min_u64(next, vb_min_u64(wakes_at(&w.ends[i]), w.ends[i].remade_at));
	return sim.now < sim.silent_from[w.dead] ? vb_min_u64(next, sim.silent_from[w.dead]) : next;
}

/* What arrives at the same time is looked at before anything is answered. */
static void take_arrivals(void)
{
	struct sim_arrival a;

	while (sim_next_arrival() <= sim.now) {
		struct end *end = sim_arrive(&a) ? find(&a) : NULL;
		if (!end)
			continue;
		deliver(end, &a.packet);
		end->has_news = true;
	}
}

static unsigned live(void)
{
	unsigned steps;
	bool died = false;

	for (steps = 0; !is_over(); steps++) {
		CHECK(steps < MAX_STEPS, "no end in sight");
		uint64_t next = next_event();
		CHECK(next != UINT64_MAX, "stuck");
		sim.now = next > sim.now ? next : sim.now;
		if (!died && sim.now >= sim.silent_from[w.dead]) {
			died = true;
			let_host_die();
		}
		take_arrivals();
		for (unsigned i = 0; i < w.num_ends; i++) {
			if (w.ends[i].has_news || wakes_at(&w.ends[i]) <= sim.now)
				work(&w.ends[i]);
			watch_over(&w.ends[i]);
		}
	}
	return steps;
}

static void tear_down(void)
{
	for (unsigned i = 0; i < w.num_ends; i++)
		end_end(&w.ends[i]);
	w.num_ends = 0;
}

static bool run(uint64_t seed, unsigned most_requests)
{
	unsigned at = (unsigned)(seed % VB_ARRAY_LEN(profiles)), steps;

	memset(w.words, 0, sizeof(w.words));
	w.profile = &profiles[at];
	w.most_requests = most_requests;
	w.num_hosts = 2 + (unsigned)(seed / VB_ARRAY_LEN(profiles) % (SIM_HOSTS - 1));
	w.next_operand = w.buffers = 0;
	w.again = 0;
	sim_begin(seed, &w.profile->network, w.num_hosts);
	if (setjmp(sim.failure)) {
		tear_down();
		return false;
	}
	set_up();
	steps = live();
	check_end_state();
	tear_down();
	if (w.buffers) {
		sim.why = "buffers are missing";
		return false;
	}
	totals[at].sent += sim.sent;
	totals[at].lost += sim.lost;
	totals[at].again += w.again;
	totals[at].steps += steps;
	return true;
}

static bool report_totals(void)
{
	bool ok = true;

	for (unsigned i = 0; i < VB_ARRAY_LEN(profiles); i++) {
		if (!totals[i].sent)
			continue;
		printf("# %-36s %8llu packets, %6llu lost, %6llu sent again\n", profiles[i].name,
		       (unsigned long long)totals[i].sent, (unsigned long long)totals[i].lost,
		       (unsigned long long)totals[i].again);
		/* Two are needed: packets that tell of others, ACKs above all, are lost as well. */
		if (profiles[i].thrifty && totals[i].again > 2 * totals[i].lost + FEW) {
			printf("# a lost packet costs too many\n");
			ok = false;
		}
	}
	return ok;
}

int main(int argc, char **argv)
{
	return sim_main(argc, argv, "rc", MAX_REQUESTS, run, report_totals);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A hostile process at the other end of a link: it rewrites the memory that it shares - control block, ring,
 * byte streams, bells, datagrams, keys - at any step, also in the middle of a copy and between two looks at
 * the same, and says anything on the link, while the responder and the requester of a queue pair that is
 * connected to it work, and one for datagrams.
 *
 * Input: how the link begins, then steps. Half of them do what a decent peer would do (publish a request,
 * acknowledge, feed a stream), so that the others meet work in progress.
 *
 * Invariants: memory that the peer was not given does not change, and does not get to it; completions come in
 * order, each once, and all of them when the queue pair is given up; nothing is written to the peer's arena
 * (it is mapped read-only); two other queue pairs go on working; all timers end with the link.
 */
#include "adapter/memory/key.h"
#include "adapter/progress/progress.h"
#include "adapter/progress/qpn.h"
#include "fake_host.h"
#include "local/mapped.h"
#include "local/shared.h"
#include "proto/ud.h"
#include "rig.h"

enum {
	MAX_STEPS = 200,
	CHECK_EVERY = 8,
	PEER_INDEX = 5,
	PEER_QPN = FAKE_PEER_SLOT << VB_SLOT_SHIFT | PEER_INDEX
};
enum { RING_MASK = 15, ENTRY_BYTES = 128, KEYS = 4 };
enum { LOCALHOST = 0x7f000001 };

#define BELLS  VB_ARENA_HEAP
#define RING   (VB_ARENA_HEAP + 0x4000)
#define STAGES (VB_ARENA_HEAP + 0x10000)
#define MAIL   (STAGES + 2 * VB_STAGE_BYTES)
#define END    (MAIL + VB_UD_RING_BYTES)

static struct {
	struct rig_qp *victim, *left, *right;
	struct rig_qp *ear;	/* for datagrams */
	struct vb_ah to_peer;
	uint32_t mailed;	/* lines */
	struct fuzz_input *in;
	uint32_t position;	/* what a decent peer would publish next */
	uint32_t bells;
	bool interferes;	/* in the middle of the next copy */
	unsigned loads;		/* so many loads from now on; 0: not */
} w;

static struct vb_arena_head *head(void) { return (struct vb_arena_head *)fake_arena; }
static void *at(uint64_t offset) { return fake_arena + offset; }
static struct vb_shm_qp *block(void) { return at(VB_ARENA_QPS + PEER_INDEX * VB_QP_BLOCK); }
static struct vb_key *keys(void) { return at(VB_ARENA_KEYS); }

/* What the victim shows. */
static const struct vb_shm_qp *shown(void) { return vb_arena_at(vb_qpn_block(w.victim->qp.qpn)); }
static uint32_t epoch(void) { return atomic_load(&shown()->mode) >> 8; }

/* ---- the decent peer ---- */

static void be_decent(uint8_t rnr_retry)
{
	struct vb_shm_qp *b = block();
	uint32_t own = (atomic_load(&b->mode) >> 8) + 1;

	memset(b, 0, sizeof(*b));
	b->dest_qpn = w.victim->qp.qpn;
	b->pd = 1;
	b->access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		    IBV_ACCESS_REMOTE_ATOMIC;
	b->psns[0] = b->psns[1] = 100;
	b->ring_mask = RING_MASK;
	b->ring = RING;
	b->entry_bytes = ENTRY_BYTES;
	b->stages[0] = STAGES;
	b->stages[1] = STAGES + VB_STAGE_BYTES;
	b->rd_atomic = 4;
	b->rnr_retry = rnr_retry;
	b->bound_epoch = epoch();
	b->mode = (own & 0xffff) << 8 | VB_SHM_RESPONDS | VB_SHM_REQUESTS;
	memset(at(RING), 0, (RING_MASK + 1) * ENTRY_BYTES);
	w.position = 0;
}

static void make_arena(void)
{
	memset(fake_arena, 0, sizeof(struct vb_arena_head));
	memset(keys(), 0, KEYS * sizeof(struct vb_key));
	memset(block(), 0, VB_QP_BLOCK);
	memset(at(VB_ARENA_HEAP), 0, END - VB_ARENA_HEAP);
	head()->magic = VB_ARENA_MAGIC;
	head()->version = VB_LINK_VERSION;
	head()->nonce = 77;
	head()->slots[0] = FAKE_PEER_SLOT;
	keys()[1].pd = 1;
	keys()[1].access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			   IBV_ACCESS_REMOTE_ATOMIC;
	keys()[1].iova = keys()[1].va = FAKE_MEMORY;
	keys()[1].length = FAKE_MEMORY_BYTES;
	keys()[1].key = 0x101;
	w.bells = 0;
}

static void ring(uint32_t qpn)
{
	struct vb_shm_bells *bells = at(BELLS);

	bells->bell[w.bells % VB_BELLS] = (uint64_t)(w.bells + 1) << 32 | qpn;
	bells->tail = ++w.bells;
}

/* Further ahead than the ring of bells is long. */
static void ring_a_lap(void)
{
	w.bells += VB_BELLS + 5;
	ring(w.victim->qp.qpn);
	head()->asleep = take(w.in);
}

static uint32_t some_rkey(uint8_t b)
{
	return b % 8 < SECRET ? rig.mrs[b % 8].key : b;
}

/* Where in the victim's memory: within a zone, or across an end of it. */
static uint64_t some_address(uint8_t zone, uint8_t where)
{
	uint64_t base = (uintptr_t)rig_at(zone % ZONES);

	if (where >= 0xf0)
		return base + ZONE_BYTES - 64 + (where & 15) * 8;
	return where >= 0xe0 ? base - 64 + (where & 15) * 8 : base + where * 8;
}

static uint32_t some_length(uint8_t b) { return b < 128 ? b : (b & 127) * 128u; }

static void publish(void)
{
	static const uint8_t opcodes[] = { IBV_WR_SEND,
					   IBV_WR_SEND_WITH_IMM,
					   IBV_WR_RDMA_WRITE,
					   IBV_WR_RDMA_WRITE_WITH_IMM,
					   IBV_WR_RDMA_READ,
					   IBV_WR_ATOMIC_CMP_AND_SWP,
					   IBV_WR_ATOMIC_FETCH_AND_ADD };
	struct vb_shm_entry *s = at(RING + (w.position & RING_MASK) * ENTRY_BYTES);
	uint8_t opcode = take(w.in), zone = take(w.in), shape = take(w.in);

	unsigned flags = (shape & 7) | (zone & 16 ? VB_SHM_ACKS : 0), nsge = shape & 16 ? 2 :
									     shape & 32 ? take(w.in) :
											  1;

	opcode = opcode < 240 ? opcodes[opcode % 7] : opcode;
	s->length = some_length(take(w.in));
	s->remote_addr = some_address(zone, take(w.in)) + (shape & 64 ? 4 : 0);
	s->rkey = shape & 8 ? some_rkey(take(w.in)) : zone % ZONES < SECRET ? rig.mrs[zone % ZONES].key : 0;
	s->imm = shape;
	s->executed = zone & 32 ? take(w.in) : w.position + shape;
	if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		s->atomic.compare_add = shape;
	else if (!(flags & VB_SHM_INLINE))
		for (unsigned i = 0; i < 2; i++)
			s->sge[i] = (struct ibv_sge){ .addr = FAKE_MEMORY + take(w.in) * 256u, .lkey = 0x101,
				.length = i || shape & 16 ? take(w.in) : s->length };
	w.position++;
	atomic_store(&s->head, vb_shm_head(w.position, opcode, flags, nsge));
	ring(w.victim->qp.qpn);
}

/* Of the victim's requests: so many more, all right or not. */
static void acknowledge(void)
{
	struct vb_shm_qp *b = block();
	uint8_t more = take(w.in), status = take(w.in);
	uint32_t done = vb_shm_ack_consumed(b->ack) + (more < 240 ? more % 4 : more);

	b->ack = vb_shm_ack(done, epoch(), status < 200 ? 0 : status);
	ring(w.victim->qp.qpn);
}

static void feed_streams(void)
{
	struct vb_shm_qp *b = block();
	unsigned stream = take(w.in) % 2;

	b->put[stream] += take(w.in) * 128u;
	b->taken[stream] =
		take(w.in) & 1 ? atomic_load(&shown()->put[stream]) : b->taken[stream] + take(w.in);
	ring(w.victim->qp.qpn);
}

static struct vb_shm_datagram *record_at(uint32_t line)
{
	return at(MAIL + line % VB_UD_RING_LINES * VB_CACHE_LINE);
}

/* A datagram for the ear, in one of eight cases for another. */
static size_t make_datagram(uint8_t *packet, uint8_t shape)
{
	uint8_t length = take(w.in);
	struct vb_ud_send send = { .destination_qpn = shape % 8 ? w.ear->qp.qpn : take(w.in),
				   .source_qpn = PEER_QPN,
				   .qkey = 0x1234,
				   .payload_bytes = shape & 8 ? length * 16u : length };
	unsigned pad;
	size_t header = vb_ud_build(packet, &send, &pad);

	memset(packet + header, length | 1, send.payload_bytes + pad);
	return header + send.payload_bytes + pad;
}

static uint64_t some_value(void);

static void write_datagram(void)
{
	struct vb_shm_bells *bells = at(BELLS);
	uint8_t packet[VB_INBOX_MAX_BYTES], shape = take(w.in);
	uint32_t bytes = (uint32_t)make_datagram(packet, shape), lines = (48 + bytes + 63) / 64,
		 start = w.mailed;

	if (start % VB_UD_RING_LINES + lines > VB_UD_RING_LINES)
		w.mailed += VB_UD_RING_LINES - start % VB_UD_RING_LINES;
	memcpy(record_at(w.mailed)->packet, packet, bytes);
	record_at(w.mailed + lines)->head = 0;
	record_at(w.mailed)->head = vb_ud_ring_head(w.mailed, shape & 16 ? (uint32_t)some_value() : bytes);
	if (start != w.mailed)
		record_at(start)->head = vb_ud_ring_head(start, VB_UD_RING_WRAP);
	w.mailed += lines;
	bells->ud_ring = shape & 32 ? some_value() : MAIL;
	if (!(shape & 64))
		ring(VB_BELL_FOR_ALL);
}

static void mail(uint8_t how)
{
	struct vb_shm_bells *bells = at(BELLS);

	switch (how % 4) {
	case 0:
	case 1: write_datagram(); break;
	case 2: rig_post_receive(w.ear, w.in); break;
	case 3: rig_post_send(w.ear, w.in, &w.to_peer.pub, PEER_QPN); break;
	}
	if (how & 64)
		bells->ud_ring_taken = how & 32 ? (uint32_t)some_value() : bells->ud_ring_taken + how % 32;
}

/* ---- the other one ---- */

static uint64_t some_value(void)
{
	uint8_t kind = take(w.in);

	switch (kind % 8) {
	case 0: return take(w.in);
	case 1: return take32(w.in);
	case 2: return (uint64_t)take32(w.in) << 32 | take32(w.in);
	case 3: return UINT64_MAX - take(w.in);
	case 4: return VB_ARENA_HEAP + take(w.in) * 4096u;
	case 5: return VB_ARENA_MOST - take(w.in) * 64u;
	case 6: return (uint64_t)1 << kind / 8 * 2;
	}
	return epoch() << 8 | take(w.in);
}

static void store(uint64_t offset, unsigned width, uint64_t value)
{
	offset &= ~(uint64_t)(width - 1);
	memcpy(at(offset), &value, width);
}

static void scribble(void)
{
	uint8_t where = take(w.in);
	unsigned width = 1u << take(w.in) % 4, offset = take(w.in);

	switch (where % 8) {
	case 0:
	case 1:
		store(VB_ARENA_QPS + PEER_INDEX * VB_QP_BLOCK + offset * 4 % VB_QP_BLOCK, width,
		      some_value());
		break;
	case 2:
	case 3:
		store(RING + (w.position & RING_MASK) * ENTRY_BYTES + offset % ENTRY_BYTES, width,
		      some_value());
		break;
	case 4:
		store(VB_ARENA_KEYS + offset % (KEYS * VB_KEY_BYTES), width, some_value());
		break;
	case 5:
		store(BELLS + offset * 8 % sizeof(struct vb_shm_bells), width, some_value());
		break;
	case 6:
		store(offset * 8 % sizeof(struct vb_arena_head), width, some_value());
		break;
	case 7:
		store(VB_ARENA_HEAP + offset * 1024, width, some_value());
		break;
	}
}

/* In the middle of a copy: the steps are taken from the input then. */
static void interfere(void)
{
	if (!w.interferes)
		return;
	w.interferes = false;
	scribble();
	if (take(w.in) & 1)
		acknowledge();
	if (take(w.in) & 1)
		block()->mode = 0;
}

#ifdef __clang__
#define UNTRACED __attribute__((no_sanitize("coverage")))
#else
#define UNTRACED
#endif

/*
 * Before any load of the library from the peer's arena, where the compiler tells of them (clang,
 * -fsanitize-coverage=trace-loads): so what was looked at once may be another thing at the second look.
 */
static void interrupt(void)
{
	w.loads = 0;
	scribble();
	if (take(w.in) & 1)
		w.loads = 1 + take(w.in) % 4;
}

#define TRACED_LOAD(bytes)                                                                              \
	void __sanitizer_cov_load##bytes(const uint8_t *address);                                       \
	UNTRACED void __sanitizer_cov_load##bytes(const uint8_t *address)                               \
	{                                                                                               \
		if (w.loads && address >= fake_arena_seen && address < fake_arena_seen + VB_ARENA_MOST && \
		    --w.loads == 0)                                                                     \
			interrupt();                                                                    \
	}
TRACED_LOAD(1)
TRACED_LOAD(2)
TRACED_LOAD(4)
TRACED_LOAD(8)
TRACED_LOAD(16)

static void say_something(void)
{
	static uint8_t message[64];
	static const uint8_t lengths[] = { sizeof(struct vb_link_hello), 16, 0, 64 };
	uint8_t len = take(w.in);

	for (unsigned i = 0; i < 16; i++)
		message[take(w.in) % sizeof(message)] = take(w.in);
	fake_link_message(message, len < 128 ? lengths[len % 4] : len % 64, take(w.in) % 4);
}

static void say_ready(bool can_copy)
{
	struct {
		uint64_t magic;
		uint32_t can_copy, reserved;
	} ready = { VB_LINK_MAGIC, can_copy, 0 };

	fake_link_message(&ready, sizeof(ready), 0);
}

/* What is given unasked is not taken. */
static void make_it_ask(void)
{
	for (unsigned i = 0; i < atomic_load(&vb_npeers); i++)
		if (vb_peers[i]->nonce == head()->nonce)
			vb_mapped_miss(vb_peers[i], 0x101, 1);
}

/*
 * Of its memory or ours: asked for, given, gone; the key's entry names what may have been given, with a place
 * that may be anywhere.
 */
static void say_segment(void)
{
	uint8_t what = take(w.in), which = take(w.in);
	struct vb_link_segment m = { .magic = VB_LINK_MAGIC,
				     .what = what % 5,
				     .key = which & 8 ? some_rkey(which) : 0x101,
				     .serial = which % 4,
				     .bytes = what & 32 ? which : FAKE_MEMORY_BYTES,
				     .writable = !(what & 64) };

	keys()[1].segment = which >> 4 & 3;
	keys()[1].segment_at = which & 4 ? (uint64_t)take(w.in) << take(w.in) % 64 : 0;
	if (!(what & 16))
		make_it_ask();
	fake_link_message(&m, sizeof(m), what & 128 ? which >> 6 : m.what == 2);
}

static void begin_link(uint8_t how)
{
	fake.can_copy = how & 1;
	if (how & 2)
		say_something();
	if (!(how & 4))
		fake_link_hello();
	if (!(how & 8))
		say_ready(how & 1);
	for (unsigned n = how >> 6; n; n--)
		say_segment();
}

/* ---- this side ---- */

static void reconnect(uint8_t how)
{
	if (rig_move(w.victim, IBV_QPS_RESET))
		return;
	(void)rig_connect(w.victim, LOCALHOST, PEER_QPN, how % 8);
	if (how & 8)
		be_decent(how & 16 ? 7 : 1);
}

static void ring_or_mail(uint8_t how)
{
	if (how & 128)
		mail(how);
	else if (how & 1)
		ring_a_lap();
	else
		ring(w.left->qp.qpn + take(w.in));
}

static void step(uint8_t what)
{
	switch (what % 20) {
	case 0:
	case 1: publish(); break;
	case 2: acknowledge(); break;
	case 3: feed_streams(); break;
	case 4:
	case 5:
	case 6: scribble(); break;
	case 7: fake_run(); break;
	case 8: rig_poll(); break;
	case 9:
	case 10: rig_post_send(w.victim, w.in, NULL, 0); break;
	case 11: rig_post_receive(w.victim, w.in); break;
	case 12: fake_pass_time((uint64_t)take(w.in) << 18); break;
	case 13:
		w.interferes = true;
		w.loads = take(w.in) % 64;
		break;
	case 14:
		ring_or_mail(take(w.in));
		break;
	case 15:
		fake.memory_result = take(w.in) & 128 ? -14 : 0;	/* EFAULT */
		rig_register_again(take(w.in) % ZONES);
		break;
	case 16: reconnect(take(w.in)); break;
	case 17: (void)rig_move(w.victim, take(w.in) & 1 ? IBV_QPS_SQD : IBV_QPS_ERR); break;
	case 18: begin_link(take(w.in)); break;
	case 19:
		if (take(w.in) & 1)
			fake_link_hang_up();
		else
			be_decent(take(w.in) % 8);
		break;
	}
}

static void add_ah(void)
{
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = 1, .hop_limit = 1,
		.dgid.raw = { [10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1 } } };

	must(vb_ah_init(&w.to_peer, &rig.pd, &to) == 0);
}

static void set_up(struct fuzz_input *in)
{
	uint8_t how = take(in);

	memset(&w, 0, sizeof(w));
	w.in = in;
	rig_set_up();
	fake.meanwhile = interfere;
	make_arena();
	w.left = rig_add_qp(IBV_QPT_RC);
	w.right = rig_add_qp(IBV_QPT_RC);
	w.victim = rig_add_qp(IBV_QPT_RC);
	w.ear = rig_add_qp(IBV_QPT_UD);
	must(rig_connect(w.ear, LOCALHOST, 0, 0) == 0);
	add_ah();
	must(rig_connect(w.left, LOCALHOST, w.right->qp.qpn, 7) == 0 &&
	     rig_connect(w.right, LOCALHOST, w.left->qp.qpn, 7) == 0);
	if (how & 16)
		fake_link_accept();
	(void)rig_connect(w.victim, LOCALHOST, PEER_QPN, how >> 5);
	be_decent(how & 64 ? 7 : 2);
	begin_link(how);
	fake_run();
}

/* What has left through the streams. */
static void check_streams(void)
{
	for (unsigned i = 0; i < 2; i++) {
		uint64_t offset = atomic_load(&shown()->stages[i]);
		if (offset)
			must(!rig_is_secret(vb_arena_at(offset), VB_STAGE_BYTES));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };

	set_up(&in);
	for (unsigned i = 0; in.left && i < MAX_STEPS; i++) {
		step(take(&in));
		if (i % CHECK_EVERY == 0)
			rig_check_memory();
	}
	w.interferes = false;
	w.loads = 0;
	fake.patience = 1;
	check_streams();
	must(!rig_is_secret(fake_memory, sizeof(fake_memory)));
	fake_run();
	rig_talk(w.left, w.right);
	rig_remove_qp(w.victim);
	rig_remove_qp(w.ear);
	must(vb_ah_fini(&w.to_peer) == 0);
	fake_link_hang_up();
	fake_pass_time(1000000000);
	rig_talk(w.left, w.right);
	rig_tear_down();
	must(fake_timers() == 0);
	return 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hostile processes talk to this one by every way in: links, inspections, calls, inboxes. The whole adapter
 * runs on the real host layer, with the kernel's sockets, descriptors and credentials. fuzz_peer and
 * fuzz_inbox go deeper behind two of these ways, without a kernel.
 *
 *	kin        a process of this user: links, inspections, an RPC server; descriptors of all kinds come
 *	           with its messages; datagrams. What it shares (an arena, a ring of captured packets) changes
 *	           at any step
 *	stranger   a process of another user, where this one may become another: it tries the same ways in,
 *	           and sends datagrams
 *	friend     a process that uses the library as it should, connected to this one
 *
 * These processes make the connections, so that the kernel says whose they are, and hand them to this one,
 * which speaks on them.
 *
 * Input: steps. Messages are right more often than not, so that the rest meets links and inspections that
 * have begun.
 *
 * Invariants: a stranger learns nothing from links, inspections and calls. Whatever it sends, queue pairs
 * that it does not belong to and their memory stay as they are, and no datagram comes in another's name.
 * Nothing is kept of a connection that has ended: descriptors, mappings, shared memory, clients. The
 * friend's messages go both ways throughout.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../kernel.h"
#include "adapter/progress/progress.h"
#include "host/ipc/rpc.h"
#include "local/mapped.h"
#include "local/shared.h"
#include "program.h"
#include "wire/opcode.h"
#include "wire/packet.h"

enum { MAX_STEPS = 64, CONNECTIONS = 6, MAX_SAID = 40000, OTHER_USER = 65533, INBOX_MAGIC = 0x76620001 };
enum { KIN_SLOT = 4000, STRANGER_SLOT, EMPTY_SLOT, HOSTILE_INDEX = 5, KIN_INDEX = 7, STRANGE_INDEX = 9 };
enum { MOST_ARENA = 64 << 20, MOST_FDS = 128 };

static const char desk_name[] = "verbatim/fuzz/desk", port_name[] = "fuzz";

/* ---- this process ---- */

static struct {
	struct fuzz_input *in;
	struct connection {
		int fd;              /* -1: none */
		enum door { LINK, VISIT, DESK } door;
		bool is_strange;
	} connections[CONNECTIONS];
	struct end victim;               /* connected to the hostile arena's queue pair */
	int bell;                        /* this process's own, as it gave it; or -1 */
	int kept;                        /* what went with a message last; or -1 */
	unsigned baseline_fds;
	bool counts_fds;                 /* the kernel closes those that nobody has room for */
} w = { .bell = -1, .kept = -1 };

static struct actor kin, stranger, friend;
static struct vb_arena_head *arena; /* the hostile one */
static struct vb_capture_ring *ring;
static uint8_t *shared;             /* pages that all of them have */

/* RC: of a process of this host that says nothing, and of another host; UC */
static struct end calm[3];
static struct end ear;                   /* UD */
static int kin_listener = -1;
static atomic_int guests;
static uint8_t calm_bytes[ZONE_BYTES];
static struct vb_mr calm_mr;
static struct vb_port port;

/* ---- time: goes as fast as the kernel's, and jumps ---- */

static _Atomic uint64_t jumped_ns;
uint64_t __real_vb_now_ns(void);
uint64_t __wrap_vb_now_ns(void);

uint64_t __wrap_vb_now_ns(void)
{
	return __real_vb_now_ns() + atomic_load(&jumped_ns);
}

static void nothing(void *arg) { }

/* What has come by now is dealt with. */
static void settle(void)
{
	for (int i = 0; i < 2; i++)
		must(vb_loop_call(nothing, NULL) == 0);
}

static void jump(void)
{
	atomic_fetch_add(&jumped_ns, 250000000);
	vb_loop_wake();
	settle();
}

/* ---- behind the doors ---- */

static void *come(void *owner)
{
	guests++;
	return &guests;
}

/* Sees and says as many bytes as there are; none for some. */
static size_t ask(void *guest, const void *request, size_t bytes, void *reply)
{
	must(guest == &guests && bytes && bytes <= VB_RPC_MAX_BYTES);
	memcpy(reply, request, bytes);
	return *(const uint8_t *)request % 8 ? bytes : 0;
}

static void leave(void *guest) { guests--; }

static const struct vb_rpc_ops desk_ops = { come, ask, leave };

/* A port's messages, of whomever. */
static void port_hears(void *arg, const struct vb_inbox_msg *msg)
{
	must(msg->payload_bytes >= VB_BTH_BYTES && msg->payload_bytes <= VB_INBOX_MAX_BYTES);
	must(msg->is_trusted || (msg->sender_slot == STRANGER_SLOT && msg->sender_uid == OTHER_USER));
}

/* ---- what is said ---- */

static uint8_t said[MAX_SAID + UINT8_MAX];

/* With these things, or in one of four cases with others; some bytes overwritten in one of two. */
static void say(struct connection *c, size_t bytes, const uint8_t *things, unsigned n)
{
	uint8_t how = take(w.in), others[MOST_THINGS];
	int fds[MOST_THINGS];

	for (unsigned pokes = how & 1 ? 1 + how / 64 : 0; pokes && bytes; pokes--)
		said[take(w.in) % bytes] = take(w.in);
	if ((how & 6) == 6) {
		n = take(w.in) % (MOST_THINGS + 1);
		for (unsigned i = 0; i < n; i++)
			others[i] = take(w.in);
		things = others;
	}
	if ((how & 24) == 24)
		bytes = how & 32 ? take(w.in) : bytes + take(w.in);
	for (unsigned i = 0; i < n; i++) {
		fds[i] = make_thing(things[i]);
		if (fds[i] < 0)
			fds[i] = make_thing(BELL); /* this kernel has no such thing */
	}
	send_with(c->fd, NULL, said, bytes, fds, n);
	for (unsigned i = 0; i < n; i++) {
		close(w.kept);
		w.kept = fds[i];
	}
}

static void say_hello(struct connection *c)
{
	struct vb_link_hello hello = { .magic = VB_LINK_MAGIC,
				       .version = VB_LINK_VERSION,
				       .first_slot = KIN_SLOT,
				       .nonce = arena->nonce,
				       .bells = VB_ARENA_HEAP,
				       .arena_bytes = VB_ARENA_LEAST,
				       .arena_address = (uintptr_t)arena };

	memcpy(said, &hello, sizeof(hello));
	say(c, sizeof(hello), (uint8_t[]){ ARENA, BELL, BELL }, 3);
}

static void say_ready(struct connection *c)
{
	uint64_t ready[2] = { VB_LINK_MAGIC, take(w.in) & 1 };

	memcpy(said, ready, sizeof(ready));
	say(c, sizeof(ready), NULL, 0);
}

static void say_segment(struct connection *c)
{
	uint8_t what = take(w.in), which = take(w.in);
	struct vb_link_segment m = { .magic = VB_LINK_MAGIC,
				     .what = what % 5,
				     .key = which & 1 ? program.mr.key : which,
				     .serial = which % 4,
				     .bytes = SEGMENT_BYTES,
				     .writable = what >> 7 };

	memcpy(said, &m, sizeof(m));
	say(c, sizeof(m), (uint8_t[]){ SEGMENT }, m.what == 2);
}

static void ask_question(struct connection *c)
{
	uint8_t what = take(w.in);
	struct vb_question q = { .magic = VB_INSPECTION_MAGIC,
				 .what = what & 1 ? VB_ASK_CAPTURE : VB_ASK_STATE,
				 .kinds = what & 2 ? UINT32_MAX : what,
				 .filter = { .snap = what & 4 ? 64 : UINT32_MAX,
					     .qpn = what & 8 ? ear.qp.qpn : 0,
					     .opcodes = { UINT64_MAX, UINT64_MAX } } };

	memcpy(said, &q, sizeof(q));
	say(c, sizeof(q), (uint8_t[]){ what & 1 ? RING : what & 16 ? SEGMENT : 7 }, 1);
}

static void say_anything(struct connection *c)
{
	size_t bytes = take(w.in) * (take(w.in) & 1 ? 160u : 1u);

	if (bytes > MAX_SAID)
		bytes = MAX_SAID;
	memset(said, take(w.in), bytes);
	say(c, bytes, NULL, 0);
}

/* Keeps a bell of this process's, and nothing else. A stranger is told nothing. */
static void listen_to(struct connection *c)
{
	static uint8_t heard[VB_RPC_MAX_BYTES];
	int fds[VB_LINK_MAX_FDS], n = 0;
	ssize_t bytes = vb_link_recv(c->fd, heard, sizeof(heard), fds, &n);

	must(!c->is_strange || bytes <= 0);
	for (int i = 0; i < n; i++) {
		if (i == 1 && w.bell < 0)
			w.bell = fds[i];
		else
			vb_fd_close(fds[i]);
	}
}

/* ---- coming and going ---- */

static struct vb_name name_of(enum door door)
{
	struct vb_name name = { .un.sun_family = AF_UNIX };

	if (door == LINK)
		return vb_name_of_link(vb_slot_first());
	if (door == VISIT)
		return vb_name_of_inspection(vb_slot_first());
	memcpy(name.un.sun_path + 1, desk_name, sizeof(desk_name) - 1);
	name.bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + sizeof(desk_name));
	return name;
}

static struct connection *place(uint8_t which) { return &w.connections[which % CONNECTIONS]; }

static void go(struct connection *c)
{
	if (c->fd >= 0) {
		for (int i = 0; i < 4 && c->is_strange; i++)
			listen_to(c);
		vb_fd_close(c->fd);
	}
	c->fd = -1;
}

static void come_to(struct connection *c, uint8_t how)
{
	struct actor *who = how & 4 && stranger.slot ? &stranger : &kin;

	go(c);
	*c = (struct connection){ .door = how % 4 % 3, .is_strange = who == &stranger };
	c->fd = have_socket(who, CONNECT, name_of(c->door));
}

/* This process's connection to the hostile one. */
static void be_visited(struct connection *c)
{
	go(c);
	*c = (struct connection){ .door = LINK };
	c->fd = accept4(kin_listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

static void speak(uint8_t which)
{
	struct connection *c = place(which);
	uint8_t what = which / 8;

	if (c->fd < 0)
		come_to(c, what);
	if (c->fd < 0)
		return;
	if (what % 8 == 7)
		say_anything(c);
	else if (c->door == VISIT)
		ask_question(c);
	else if (c->door == DESK)
		say_anything(c);
	else if (what % 8 < 3)
		say_hello(c);
	else if (what % 8 < 5)
		say_ready(c);
	else
		say_segment(c);
}

/* ---- datagrams ---- */

static struct in6_addr v4(uint32_t address)
{
	struct in6_addr a = { .s6_addr = { [10] = 0xff, [11] = 0xff } };

	for (unsigned i = 0; i < 4; i++)
		a.s6_addr[12 + i] = (uint8_t)(address >> (24 - 8 * i));
	return a;
}

/* Of a stranger, for a queue pair that is not to hear him; or a datagram, which may be anybody's. */
static size_t make_packet(uint8_t *packet, uint8_t choice, bool is_strange)
{
	static const uint8_t opcodes[] = { VB_OPCODE(RC, SEND_ONLY), VB_OPCODE(RC, WRITE_ONLY),
					   VB_OPCODE(UC, SEND_ONLY), VB_OPCODE(UD, SEND_ONLY) };
	const struct end *ends[] = { &calm[choice >> 7], &calm[choice >> 7], &calm[2], &ear };
	unsigned kind = is_strange ? choice % 4 : 3;
	const struct vb_opcode_row *row = vb_opcode_row(opcodes[kind]);
	struct vb_bth *bth = (struct vb_bth *)packet;

	memset(packet, 0, row->header_bytes);
	memset(packet + row->header_bytes, 0xee, 8);
	vb_bth_set_opcode(bth, opcodes[kind]);
	vb_bth_set_pkey(bth, VB_PKEY_DEFAULT);
	vb_bth_set_ack_request(bth, 1);
	vb_bth_set_destination_qpn(bth, ends[kind]->qp.qpn);
	if (vb_opcode_has(row, VB_EXT_RETH)) {
		struct vb_reth *reth = (struct vb_reth *)(packet + vb_opcode_offset(row, VB_EXT_RETH));
		vb_reth_set_address(reth, (uintptr_t)calm_bytes);
		vb_reth_set_rkey(reth, calm_mr.key);
		vb_reth_set_length(reth, 8);
	}
	if (vb_opcode_has(row, VB_EXT_DETH)) {
		static const uint32_t slots[] = { KIN_SLOT, STRANGER_SLOT, EMPTY_SLOT, STRANGER_SLOT };
		struct vb_deth *deth = (struct vb_deth *)(packet + vb_opcode_offset(row, VB_EXT_DETH));
		vb_deth_set_qkey(deth, QKEY);
		vb_deth_set_source_qpn(deth, slots[is_strange ? choice / 4 % 4 : 0] << VB_SLOT_SHIFT |
						     (is_strange ? STRANGE_INDEX : KIN_INDEX));
	}
	return row->header_bytes + 8u;
}

static struct vb_name name_of_port(void)
{
	struct vb_name name = { .un.sun_family = AF_UNIX };
	int n = snprintf(name.un.sun_path + 1, sizeof(name.un.sun_path) - 1, "verbatim/port/%s", port_name);

	name.bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
	return name;
}

static void send_datagram(uint8_t how)
{
	static struct order o;
	struct {
		uint32_t magic, flow_label, rest;
		struct in6_addr src, dst;
	} header = { .magic = INBOX_MAGIC, .src = v4(how & 2 ? FAR_AWAY : LOCALHOST), .dst = v4(LOCALHOST) };
	struct actor *who = how & 1 && stranger.slot ? &stranger : &kin;
	uint8_t more = take(w.in);

	o = (struct order){ .op = SEND,
			    .with_descriptor = how & 4,
			    .name = how & 8 ? name_of_port() : vb_name_of_inbox(vb_slot_first()) };
	memcpy(o.message, &header, sizeof(header));
	o.bytes =
		(uint32_t)(sizeof(header) + make_packet(o.message + sizeof(header), more, who == &stranger));
	for (unsigned pokes = who == &stranger && how & 16 ? how >> 5 : 0; pokes; pokes--)
		o.message[take(w.in) % o.bytes] = take(w.in);
	if ((how & 48) == 32)
		o.bytes = more & 64 ? take(w.in) : sizeof(o.message) - take(w.in);
	tell(who, &o);
}

/* In nobody's name but that of who may send it. */
static void hear_datagrams(void)
{
	struct vb_cqe c;

	while (vb_cq_poll(&ear.cq, 1, &c) == 1) {
		must(c.status == IBV_WC_SUCCESS);
		must(c.src_qp == (KIN_SLOT << VB_SLOT_SHIFT | KIN_INDEX) ||
		     c.src_qp >> VB_SLOT_SHIFT == STRANGER_SLOT);
		receive_into(&ear, program.closed + DATAGRAMS_AT, program.closed_mr.key, 256);
	}
}

/* ---- shared memory ---- */

static struct vb_shm_qp *block(void)
{
	return (void *)((uint8_t *)arena + VB_ARENA_QPS + HOSTILE_INDEX * VB_QP_BLOCK);
}

static uint64_t some_value(void)
{
	uint8_t kind = take(w.in);

	if (kind < 64)
		return kind;
	if (kind < 128)
		return (uint64_t)take32(w.in) << 32 | take32(w.in);
	return kind < 192 ? UINT64_MAX - take(w.in) : UINT64_C(1) << kind % 64;
}

/* Busy words stay even: who waits for an odd one of a process that lives waits for seconds. */
static void scribble(void)
{
	uint8_t where = take(w.in), offset = take(w.in);
	uint64_t value = some_value();

	switch (where % 5) {
	case 0: memcpy((uint8_t *)arena + offset * 8 % sizeof(*arena), &value, 8); break;
	case 1:
		if (offset % 64 * 8 != offsetof(struct vb_shm_qp, busy))
			memcpy((uint8_t *)block() + offset % 64 * 8, &value, 8);
		break;
	case 2: memcpy((uint8_t *)arena + VB_ARENA_KEYS + offset % 16 * 8, &value, 8); break;
	case 3: memcpy((uint8_t *)arena + VB_ARENA_HEAP + offset * 8, &value, 8); break;
	case 4: atomic_store(offset & 1 ? &ring->tail : &ring->head, value); break;
	}
}

/* Who maps it would meet SIGBUS. */
static void resize_kept(void)
{
	(void)!ftruncate(w.kept, take(w.in) * 4096);
}

static void make_arena(void)
{
	memset(arena, 0, sizeof(*arena));
	memset(block(), 0, VB_QP_BLOCK);
	memset((uint8_t *)arena + VB_ARENA_KEYS, 0, 128);
	memset((uint8_t *)arena + VB_ARENA_HEAP, 0, sizeof(struct vb_shm_bells));
	memset(ring, 0, sizeof(*ring));
	arena->magic = VB_ARENA_MAGIC;
	arena->version = VB_LINK_VERSION;
	arena->nonce = 77;
	arena->slots[0] = KIN_SLOT;
	arena->asleep = 2;
	block()->mode = 1 << 8 | VB_SHM_RESPONDS;
	block()->dest_qpn = w.victim.qp.qpn;
	ring->bytes = VB_CAPTURE_MIN_BYTES;
}

/* ---- the program ---- */

static void poll_victim(void)
{
	struct vb_cqe c;

	while (vb_cq_poll(&w.victim.cq, 1, &c) == 1)
		w.victim.done++;
	must(w.victim.done <= w.victim.posted);
}

/* In the progress thread, which does not wait for the other end's word. */
static void connect_victim(void *arg)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	(void)vb_qp_modify(&w.victim.qp, &attr, IBV_QP_STATE);
	w.victim.posted = w.victim.done = 0;
	(void)connect_end(&w.victim, LOCALHOST, KIN_SLOT << VB_SLOT_SHIFT | HOSTILE_INDEX);
}

static void post_something(uint8_t what)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ };

	if (what % 4 == 3)
		receive_into(&w.victim, program.zone, program.mr.key, 256);
	else
		post(&w.victim, opcodes[what % 4], program.zone, program.mr.key, what, (uintptr_t)shared,
		     take(w.in));
}

static void register_again(void)
{
	must(vb_mr_fini(&program.mr) == 0);
	must(vb_mr_init(&program.mr, &program.pd, program.zone, ZONE_BYTES, (uintptr_t)program.zone, ALL) ==
	     0);
}

static void ring_bell(void)
{
	uint64_t value = some_value();

	if (w.bell >= 0)
		(void)!write(w.bell, &value, sizeof(value));
}

static void step(uint8_t what)
{
	switch (what % 16) {
	case 0:
	case 1:
	case 2:
	case 3: speak(take(w.in)); break;
	case 4: come_to(place(what / 16), take(w.in)); break;
	case 5: go(place(what / 16)); break;
	case 6:
	case 7: send_datagram(take(w.in)); break;
	case 8: scribble(); break;
	case 9: settle(); break;
	case 10: if (place(what / 16)->fd >= 0) listen_to(place(what / 16)); break;
	case 11: must(vb_loop_call(connect_victim, NULL) == 0); break;
	case 12: be_visited(place(what / 16)); break;
	case 13: post_something(take(w.in)); break;
	case 14: what & 32 ? resize_kept() : what & 16 ? register_again() : jump(); break;
	case 15: ring_bell(); break;
	}
	poll_victim();
	hear_datagrams();
}

/* ---- nothing stays ---- */

/* What a descriptor is of, as the kernel calls it; NULL: there is none of this number. */
static const char *target_of(int fd)
{
	static char path[32], target[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(path, target, sizeof(target) - 1);
	target[n > 0 ? n : 0] = 0;
	return n > 0 ? target : NULL;
}

/* Of an abstract one; of others what they are. */
static const char *name_of_socket(int fd)
{
	static struct sockaddr_un name;
	socklen_t bytes = sizeof(name) - 1;

	memset(&name, 0, sizeof(name));
	if (getsockname(fd, (struct sockaddr *)&name, &bytes))
		return "";
	return name.sun_family == AF_UNIX    ? name.sun_path + !name.sun_path[0] :
	       name.sun_family == AF_NETLINK ? "netlink" :
					       "internet";
}

/* A socket for sending comes with the flow that is the first to need it. */
static bool is_for_sending(int fd) { return !strcmp(name_of_socket(fd), "internet"); }

/*
 * Without those of this process's own memory, which come when it is moved and go when it is moved back, and
 * without those for sending, which are few.
 */
static unsigned count_fds(void)
{
	unsigned n = 0, sending = 0;

	for (int fd = 0; fd < MOST_FDS; fd++) {
		const char *target = target_of(fd);
		sending += target && is_for_sending(fd);
		n += target && !strstr(target, "verbatim-memory") && !strstr(target, "userfaultfd") &&
		     !is_for_sending(fd);
	}
	must(sending < 32);
	return n;
}

/* But those that this process itself has of the arena and the ring. */
static unsigned count_mappings(void)
{
	static char line[4096];
	unsigned n = 0;
	FILE *maps = fopen("/proc/self/maps", "re");

	must(maps);
	while (fgets(line, sizeof(line), maps))
		n += strstr(line, "/memfd:hostile") != NULL;
	fclose(maps);
	return n - 2;
}

static bool is_clean(void)
{
	/* One of the two links that there may be to the friend comes and goes. */
	return guests == 0 && (!w.counts_fds || count_fds() <= w.baseline_fds + 1) && count_mappings() == 0;
}

/* Before it breaks off. */
static void say_what_is_left(void)
{
	fprintf(stderr, "%d guests, %u mappings, %u descriptors where there were %u:\n", (int)guests,
		count_mappings(), count_fds(), w.baseline_fds);
	for (int fd = 0; fd < MOST_FDS; fd++)
		if (target_of(fd))
			fprintf(stderr, "%d %s %s\n", fd, target_of(fd), name_of_socket(fd));
}

static void expect_clean(void)
{
	bool clean = is_clean();

	for (unsigned tries = 0; !clean && tries < 2000; tries++) {
		jump();
		if (tries > 10)
			usleep(1000);
		clean = is_clean();
	}
	if (!clean)
		say_what_is_left();
	must(clean);
	must(vb_arena_in_use() < MOST_ARENA);
}

static void expect_calm(void)
{
	static const uint8_t untouched[ZONE_BYTES];
	struct vb_cqe c;

	for (unsigned i = 0; i < VB_ARRAY_LEN(calm); i++) {
		must(atomic_load(&calm[i].qp.state) == IBV_QPS_RTS);
		must(vb_cq_poll(&calm[i].cq, 1, &c) == 0);
	}
	must(memcmp(calm_bytes, untouched, sizeof(untouched)) == 0);
}

/* ---- once ---- */

static void *map(int *fd, size_t bytes)
{
	*fd = memfd_of(bytes, MFD_ALLOW_SEALING, F_SEAL_SHRINK | F_SEAL_GROW);
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, *fd, 0);
	must(at != MAP_FAILED);
	return at;
}

static void start_others(void)
{
	arena = map(&arena_fd, VB_ARENA_LEAST);
	ring = map(&ring_fd, CAPTURE_BYTES);
	shared = mmap(NULL, SEGMENT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	must(shared != MAP_FAILED);
	kin = start_actor(obey, 0);
	stranger = start_actor(obey, OTHER_USER);
	friend = start_actor(be_friend, 0);
}

static void start_calm_ends(void)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC };

	must(vb_mr_init(&calm_mr, &program.closed_pd, calm_bytes, sizeof(calm_bytes), (uintptr_t)calm_bytes,
			ALL) == 0);
	for (unsigned i = 0; i < VB_ARRAY_LEN(calm); i++) {
		add_end(&calm[i], types[i], &program.closed_pd);
		must(connect_end(&calm[i], i == 1 ? FAR_AWAY : LOCALHOST,
				 EMPTY_SLOT << VB_SLOT_SHIFT | (1 + i)) == 0);
		for (int n = 0; n < 4; n++)
			receive_into(&calm[i], calm_bytes, calm_mr.key, 256);
	}
}

static void start(void)
{
	struct vb_rpc_server *desk;

	start_others();
	open_program();
	must(settle_down(&kin, KIN_SLOT));
	if (!settle_down(&stranger, STRANGER_SLOT))
		printf("# no stranger: this process cannot become another user\n");
	w.counts_fds = kernel_drops_descriptors();
	if (!w.counts_fds)
		printf("# descriptors are not counted: " STAY_OPEN "\n");
	struct vb_name nobody = vb_name_of_inbox(EMPTY_SLOT);
	must(socket_at(BIND, &nobody) >= 0);
	kin_listener = have_socket(&kin, LISTEN, vb_name_of_link(KIN_SLOT));
	must(kin_listener >= 0);
	must(vb_rpc_open(desk_name, &desk_ops, NULL, &desk) == 0);
	must(vb_port_bind(&port, port_name, sizeof(port_name) - 1) == 0 &&
	     vb_port_listen(&port, port_hears, NULL) == 0);
	start_calm_ends();
	add_end(&ear, IBV_QPT_UD, &program.closed_pd);
	must(connect_end(&ear, LOCALHOST, 0) == 0);
	for (int n = 0; n < 8; n++)
		receive_into(&ear, program.closed + DATAGRAMS_AT, program.closed_mr.key, 256);
	meet_friend(&friend);
	for (unsigned i = 0; i < CONNECTIONS; i++)
		w.connections[i].fd = -1;
	w.baseline_fds = count_fds();
}

/* ---- each time ---- */

static void hang_up(void)
{
	struct connection rest = { .fd = -1 };

	for (unsigned i = 0; i < CONNECTIONS; i++)
		go(&w.connections[i]);
	do
		be_visited(&rest);
	while (rest.fd >= 0);
	if (w.bell >= 0)
		vb_fd_close(w.bell);
	close(w.kept);
	w.bell = w.kept = -1;
}

static void give_up_victim(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	if (vb_qp_modify(&w.victim.qp, &attr, IBV_QP_STATE) == 0) {
		for (unsigned tries = 0; w.victim.done < w.victim.posted; tries++) {
			must(tries < 100000);
			settle();
			poll_victim();
		}
	}
	remove_end(&w.victim);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };

	if (kin_listener < 0)
		start();
	w.in = &in;
	add_end(&w.victim, IBV_QPT_RC, &program.pd);
	make_arena();
	for (unsigned i = 0; in.left && i < MAX_STEPS; i++)
		step(take(&in));
	give_up_victim();
	hang_up();
	expect_clean();
	hear_datagrams();
	expect_calm();
	write_to_friend();
	return 0;
}

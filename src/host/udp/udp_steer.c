/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Steering. All processes' sockets on port 4791 form a group in the kernel, in the order of their binding.
 * When one closes, the last one moves to its place. The group has one classic BPF program. It gets a packet
 * from the BTH on and returns the place of the socket that receives it; a place that does not exist means:
 * any, by a hash of the flow. The kernel does not say which process is where. So the program also knows
 * probes: datagrams that came by the loopback interface, begin with a magic number, and go to the place that
 * they name. Whoever gets one answers with its slots (udp_probe.c).
 *
 * A process learns the table when it begins to use the wire, or gets a packet that is another's. One whose
 * peers are all on this host learns none: each of N processes would probe N.
 *
 * Learning, once per IP version: a temporary socket sends probes for places 0, 1, 2, ... and collects
 * answers. A probe for a place that does not exist reaches any process, and so does each one while the group
 * has no program. A process is at the lowest place that it answered for. If all answers are from one process
 * of several, the group may have no program: then one that knows only probes is attached, and learning starts
 * once more. In the end the program with all slots is attached, for all processes. It replaces what others
 * attached: the last one to learn knows best.
 *
 * The kernel's table in /proc tells how many sockets the group has. If fewer processes have answered, one
 * may be waiting for a processor: the learner repeats the round and waits twice as long. After MAX_REPEATS it
 * does without the missing ones, which may be stopped. A process that joins while this one learns may attach
 * its table first, and lose it to this one's. So the learner counts the sockets again after attaching.
 *
 * A wrong table (a process came or went, an answer was lost) costs speed. The packet's receiver forwards it
 * to the owner's inbox and reports it here (vb_udp_misdirected). Then the table is learned again; more and
 * more rarely while that changes nothing.
 *
 * Any process of this host may probe. It gets one answer, at a loopback address, with what anybody can find
 * out by binding names (slots are abstract sockets). An answer counts if it comes from port 4791 of the
 * loopback address, which is of this user or of root, and repeats the random number of this attempt.
 *
 * Only the progress thread uses the state, except for what says when to learn.
 */
#include "host/net/holder.h"
#include "host/udp/udp_private.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/nanoseconds.h"

enum {
	MAX_PLACES = 512,
	FIRST_PLACES = 4,       /* probed at least; without /proc, doubled while each has its own process */
	MAX_STEERED = 1024,     /* slots in the program: two instructions each, of 4096 */
	ANSWERS_PER_LOOK = 16,
	COLLECT_NS = 20 * VB_NS_PER_MS, /* for answers, in the first round */
	MAX_REPEATS = 4,        /* 620 ms in all */
	WAIT_NS = VB_NS_PER_S,   /* for the first table */
	WAIT_LOOK_NS = 100 * VB_NS_PER_US,
	MIN_PAUSE_NS = 100 * VB_NS_PER_MS,
	MAX_PAUSE_SHIFT = 7,
	NO_PLACE = UINT16_MAX,
};

#define ANY_SOCKET UINT32_MAX

/* ---- the program ---- */

struct table {
	uint16_t place_of[VB_SLOT_COUNT];
};

struct program {
	struct sock_filter code[2 * MAX_STEERED + 48];
	unsigned short length;
};

static void emit(struct program *p, struct sock_filter instruction) { p->code[p->length++] = instruction; }

/* Goes on if A is value, else skips `others` instructions. */
static void emit_unless_skip(struct program *p, uint32_t value, uint8_t others)
{
	emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, others));
}

static void emit_load(struct program *p, uint32_t offset)
{
	emit(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset));
}

static void emit_return(struct program *p, uint32_t place)
{
	emit(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, place));
}

/* A load beyond the packet's end returns 0, a place like any other. */
static void emit_probes(struct program *p)
{
	emit_load(p, offsetof(struct vb_udp_probe, magic[0]));
	emit_unless_skip(p, VB_PROBE_MAGIC, 6);
	emit_load(p, offsetof(struct vb_udp_probe, magic[1]));
	emit_unless_skip(p, VB_PROBE_STEER_MAGIC, 4);
	emit_load(p, (uint32_t)(SKF_AD_OFF + SKF_AD_IFINDEX));
	emit_unless_skip(p, VB_LOOPBACK_IFINDEX, 2);
	emit_load(p, offsetof(struct vb_udp_probe, place));
	emit(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_A, 0));
}

static void emit_and(struct program *p, uint32_t mask)
{
	emit(p, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask));
}

static void emit_shift(struct program *p, uint32_t bits)
{
	emit(p, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, bits));
}

static void emit_skip(struct program *p, uint32_t instructions)
{
	emit(p, (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA, instructions));
}

/*
 * Leaves the slot in A. The destination QP is the lower 24 bits of the BTH's second word, the slot their
 * upper half. CM messages are all for QP 1; but for those that ask for a service they name the receiver's
 * communication id, whose upper bits are its slot (proto/cm/gsi.h). A slot that is nobody's comes to any
 * socket.
 */
static void emit_slot(struct program *p)
{
	enum { BTH_DESTINATION = 4, ATTRIBUTE = 36, FIRST_ID = 44, SECOND_ID = 48, ID_SHIFT = 20 };
	enum { QPN_MASK = 0xffffff, CM_QPN = 1, SIDR_REQ = 0x17, SIDR_REP = 0x18 };
	emit_load(p, BTH_DESTINATION);
	emit_and(p, QPN_MASK);
	emit_unless_skip(p, CM_QPN, 8);
	emit(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_H | BPF_ABS, ATTRIBUTE));
	emit_unless_skip(p, SIDR_REQ, 1);
	emit_return(p, ANY_SOCKET);
	emit_unless_skip(p, SIDR_REP, 2);
	emit_load(p, FIRST_ID);
	emit_skip(p, 1);
	emit_load(p, SECOND_ID);
	emit_skip(p, 3);
	/* any other QP */
	emit_shift(p, VB_SLOT_SHIFT);
	emit_and(p, VB_SLOT_COUNT - 1);
	emit_skip(p, 1);
	/* a communication id */
	emit_shift(p, ID_SHIFT);
}

static void emit_slots(struct program *p, const struct table *t)
{
	unsigned steered = 0;
	emit_slot(p);
	for (uint32_t slot = 1; slot < VB_SLOT_COUNT && steered < MAX_STEERED; slot++) {
		if (t->place_of[slot] == NO_PLACE)
			continue;
		emit_unless_skip(p, slot, 1);
		emit_return(p, t->place_of[slot]);
		steered++;
	}
}

/* t NULL: probes alone. */
static void attach_program(int receiver, const struct table *t)
{
	static struct program p;
	p.length = 0;
	emit_probes(&p);
	if (t)
		emit_slots(&p, t);
	emit_return(&p, ANY_SOCKET);
	vb_udp_attach(receiver, SO_ATTACH_REUSEPORT_CBPF, p.code, p.length);
}

/* ---- learning ---- */

struct learner {
	bool ipv4;
	struct vb_watch watch;      /* fd -1: not learning */
	struct vb_timer timeout;
	uint64_t cookie;
	uint32_t places;            /* probed in this round */
	uint32_t answers, processes; /* of this round */
	unsigned repeats;           /* rounds that ended without all processes' answers */
	bool is_second_try;
	struct table now, last;
};

static void answers_ready(struct vb_watch *w, uint32_t epoll_events);
static void answers_are_late(struct vb_timer *t, uint64_t now_ns);

static struct learner learners[] = {
	{ .ipv4 = true, .watch = { .fd = -1, .ready = answers_ready }, .timeout.fire = answers_are_late },
	{ .ipv4 = false, .watch = { .fd = -1, .ready = answers_ready }, .timeout.fire = answers_are_late },
};

static void begin(struct vb_timer *t, uint64_t now_ns);
static struct vb_timer begin_timer = { .fire = begin };

/* Why and whether the table is learned. */
enum steering {
	UNASKED,    /* nobody has asked for the table yet: see vb_udp_await_steering */
	SETTLED,
	RELEARNS,   /* the table is wrong: begin_timer is set, or learning goes on */
	OPENED,     /* a socket was opened that no table has yet: begin_timer is set */
	LEARNS_NEW, /* the table of that socket is learned */
};
static _Atomic(enum steering) steering;
static _Atomic uint64_t not_before_ns;
static unsigned pause_shift;
static bool changed; /* what one of the learners found */

static const struct in6_addr *loopback(bool ipv4)
{
	static const struct in6_addr v4 = { .s6_addr = { [10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1 } };
	return ipv4 ? &v4 : &in6addr_loopback;
}

static int open_learner(struct learner *l)
{
	union vb_ip_address address = vb_ip_address(loopback(l->ipv4), l->ipv4, 0);
	vb_host_lock();
	int fd =
		vb_fd_own(socket(l->ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	vb_host_unlock();
	if (fd < 0)
		return -errno;
	l->watch.fd = fd;
	if (bind(fd, &address.any, vb_ip_address_bytes(l->ipv4)) < 0)
		return -errno;
	return vb_watch_start(&l->watch, EPOLLIN);
}

static bool is_learning(void) { return learners[0].watch.fd >= 0 || learners[1].watch.fd >= 0; }

/*
 * After the last of the two: notes when to learn again at the earliest. A socket that was opened meanwhile
 * has set begin_timer.
 */
static void note_end(void)
{
	enum steering now = atomic_load(&steering);
	if (now == OPENED)
		return;
	pause_shift = changed ? 0 : pause_shift + (pause_shift < MAX_PAUSE_SHIFT);
	changed = false;
	atomic_store(&not_before_ns, vb_now_ns() + ((uint64_t)MIN_PAUSE_NS << pause_shift));
	atomic_compare_exchange_strong(&steering, &now, SETTLED);
}

static void end(struct learner *l)
{
	vb_timer_cancel(&l->timeout);
	vb_watch_stop(&l->watch);
	vb_fd_close(l->watch.fd);
	l->watch.fd = -1;
	if (!is_learning())
		note_end();
}

/* How many sockets the group has; 0 where the kernel's table cannot be read. */
static unsigned count_sockets(const struct learner *l)
{
	static struct vb_holder holders[MAX_PLACES];
	static const struct in6_addr any_v4 = { .s6_addr = { [10] = 0xff, [11] = 0xff } };
	unsigned found = vb_holders_of_udp(l->ipv4, VB_ROCE_PORT, holders, MAX_PLACES), n = 0;
	for (unsigned i = 0; i < found; i++)
		n += IN6_ARE_ADDR_EQUAL(&holders[i].address, l->ipv4 ? &any_v4 : &in6addr_any);
	return n;
}

static void begin_round(struct learner *l)
{
	union vb_ip_address to = vb_ip_address(loopback(l->ipv4), l->ipv4, VB_ROCE_PORT);
	struct vb_udp_probe probe = { .magic = { htonl(VB_PROBE_MAGIC), htonl(VB_PROBE_STEER_MAGIC) } };

	vb_random(&l->cookie, sizeof l->cookie);
	probe.cookie = l->cookie;
	l->places = (uint32_t)vb_max_u64(l->places, count_sockets(l));
	l->answers = l->processes = 0;
	memset(&l->now, 0xff, sizeof l->now);
	for (uint32_t place = 0; place < l->places; place++) {
		probe.place = htonl(place);
		sendto(l->watch.fd, &probe, sizeof probe, MSG_DONTWAIT | MSG_NOSIGNAL, &to.any,
		       vb_ip_address_bytes(l->ipv4));
	}
	vb_timer_set(&l->timeout, vb_now_ns() + ((uint64_t)COLLECT_NS << l->repeats));
}

static void begin_learner(struct learner *l)
{
	if (vb_udp_receiver(l->ipv4) < 0 || l->watch.fd >= 0)
		return;
	l->places = FIRST_PLACES;
	l->repeats = 0;
	l->is_second_try = false;
	if (open_learner(l) < 0)
		end(l);
	else
		begin_round(l);
}

static void begin(struct vb_timer *t, uint64_t now_ns)
{
	enum steering opened = OPENED;
	atomic_compare_exchange_strong(&steering, &opened, LEARNS_NEW);
	begin_learner(&learners[0]);
	begin_learner(&learners[1]);
	if (!is_learning())
		note_end();
}

/* With a program, a process gets the probe for its place; without one, all probes come to one process. */
static bool may_lack_program(const struct learner *l)
{
	return l->processes <= 1 && (l->answers == 0 || l->answers == l->places);
}

static bool lacks_answers(const struct learner *l, unsigned sockets)
{
	return l->processes < sockets && l->repeats < MAX_REPEATS;
}

/* False: a process has joined meanwhile, whose own table this one may have replaced. */
static bool attach_table(const struct learner *l)
{
	attach_program(vb_udp_receiver(l->ipv4), &l->now);
	return !lacks_answers(l, count_sockets(l));
}

static void end_round(struct learner *l)
{
	unsigned sockets = count_sockets(l);
	if (!sockets && l->processes == l->places && l->places < MAX_PLACES) {
		l->places *= 2;
		begin_round(l);
	} else if (may_lack_program(l) && !l->is_second_try && sockets != 1) {
		l->is_second_try = true;
		attach_program(vb_udp_receiver(l->ipv4), NULL);
		begin_round(l);
	} else if (lacks_answers(l, sockets) || !attach_table(l)) {
		l->repeats++;
		begin_round(l);
	} else {
		changed |= memcmp(&l->now, &l->last, sizeof l->now) != 0;
		l->last = l->now;
		end(l);
	}
}

/* Notes a slot of the process at a place; true if nothing was known of it. */
static bool note_slot(struct learner *l, uint16_t slot, uint32_t place)
{
	if (slot == 0 || slot >= VB_SLOT_COUNT)
		return false;
	bool fresh = l->now.place_of[slot] == NO_PLACE;
	if (fresh || place < l->now.place_of[slot])
		l->now.place_of[slot] = (uint16_t)place;
	return fresh;
}

static bool is_for(const struct learner *l, const struct vb_udp_answer *a, size_t bytes)
{
	return bytes > sizeof a->head && a->head.magic[0] == htonl(VB_PROBE_ANSWER_MAGIC) &&
	       a->head.magic[1] == htonl(VB_PROBE_STEER_MAGIC) && a->head.cookie == l->cookie &&
	       ntohl(a->head.place) < l->places &&
	       bytes == sizeof a->head + (uint64_t)ntohl(a->head.slot_count) * sizeof a->slots[0];
}

static void take_answer(struct learner *l, const struct vb_udp_answer *a)
{
	uint32_t place = ntohl(a->head.place);
	l->answers++;
	l->processes += note_slot(l, ntohs(a->slots[0]), place);
	for (uint32_t i = 1; i < ntohl(a->head.slot_count); i++)
		note_slot(l, ntohs(a->slots[i]), place);
}

static bool comes_from_port(const struct learner *l, const union vb_ip_address *from)
{
	union vb_ip_address expected = vb_ip_address(loopback(l->ipv4), l->ipv4, VB_ROCE_PORT);
	if (l->ipv4)
		return from->v4.sin_port == expected.v4.sin_port &&
		       from->v4.sin_addr.s_addr == expected.v4.sin_addr.s_addr;
	return from->v6.sin6_port == expected.v6.sin6_port &&
	       IN6_ARE_ADDR_EQUAL(&from->v6.sin6_addr, &expected.v6.sin6_addr);
}

/* True: all probes of this round are answered. Reads a bounded number: anybody may send here. */
static bool take_answers(struct learner *l, unsigned most)
{
	static struct vb_udp_answer answer;
	for (; most && l->answers < l->places; most--) {
		union vb_ip_address from;
		socklen_t from_bytes = sizeof from;
		ssize_t n = recvfrom(l->watch.fd, &answer, sizeof answer, MSG_DONTWAIT, &from.any,
				     &from_bytes);
		if (n < 0)
			break;
		if (comes_from_port(l, &from) && is_for(l, &answer, (size_t)n))
			take_answer(l, &answer);
	}
	return l->answers == l->places;
}

static void answers_ready(struct vb_watch *w, uint32_t epoll_events)
{
	struct learner *l = vb_container_of(w, struct learner, watch);
	if (take_answers(l, ANSWERS_PER_LOOK))
		end_round(l);
}

/* This thread may be late itself, while the answers are there. */
static void answers_are_late(struct vb_timer *t, uint64_t now_ns)
{
	struct learner *l = vb_container_of(t, struct learner, timeout);
	take_answers(l, l->places);
	end_round(l);
}

/* ---- when ---- */

/* At once, while the other IP version is learned, too, and before a stale table would be. */
static void learn_new(void)
{
	atomic_store(&steering, OPENED);
	vb_timer_set(&begin_timer, vb_now_ns());
}

static void ask(void)
{
	enum steering unasked = UNASKED;
	if (atomic_compare_exchange_strong(&steering, &unasked, OPENED))
		learn_new();
}

void vb_udp_steer_opened(void)
{
	if (atomic_load(&steering) != UNASKED)
		learn_new();
}

/*
 * Once the table is learned, packets that come directly overtake those that another process still forwards.
 * Unreliable connections drop what was overtaken, so their packets should come only afterwards.
 */
void vb_udp_await_steering(void)
{
	uint64_t until = vb_now_ns() + WAIT_NS;
	ask();
	while (atomic_load(&steering) >= OPENED && !vb_loop_is_current() && vb_now_ns() < until)
		vb_sleep_ns(WAIT_LOOK_NS);
}

void vb_udp_misdirected(void)
{
	enum steering settled = SETTLED;
	if (vb_likely(atomic_load_explicit(&steering, memory_order_relaxed) > SETTLED))
		return;
	ask();
	if (atomic_compare_exchange_strong(&steering, &settled, RELEARNS))
		vb_timer_set(&begin_timer, atomic_load(&not_before_ns));
}

void vb_udp_steer_forget(void)
{
	learners[0].watch.fd = learners[1].watch.fd = -1;
	atomic_store(&steering, UNASKED);
	atomic_store(&not_before_ns, 0);
	pause_shift = 0;
	changed = false;
}

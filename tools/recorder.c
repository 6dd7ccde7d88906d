/* SPDX-License-Identifier: BSD-2-Clause */
#include "recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "command.h"
#include "frame.h"
#include "latency.h"
#include "process_name.h"

enum { MAX_PACKET = 65536, LATEST_MS = 10000, HEAD_BYTES = sizeof(struct vb_capture_packet) };
enum { COMMENT = 256, PEER = 96, PEERS = 256 };

struct source {
	int fd;                         /* -1: it has ended, or a mistake was found */
	bool answered;                  /* that it is captured */
	bool refused;                   /* it is given up, for a reason that was printed: not asked again */
	pid_t pid;
	uint32_t slot;
	char name[PROCESS_NAME];
	uint32_t interface;
	struct vb_capture_ring *ring;   /* NULL: it has ended, and all was taken out */
	uint64_t tail, written, dropped_told;
	uint64_t dropped;               /* of a ring that is gone */
	uint64_t complete_ns;           /* records of times before this are all in the ring */
};

/* Out of a ring. */
struct record {
	union {
		struct vb_capture_packet packet;
		struct vb_capture_event event;  /* packet.len is 0 */
	};
	uint8_t bytes[];
};

/* A record that waits for its turn. */
struct waiting {
	uint64_t time_ns, order;
	unsigned source;
	struct record *record;
};

struct recorder {
	struct recorder_options options;
	struct pcapng file;
	FILE *out;
	struct source *sources;         /* in the order of their coming, those that have ended, too */
	struct pollfd *polls;           /* of those that have not ended, and one more */
	unsigned *polled;               /* which source each of these is */
	unsigned count, source_room;
	struct waiting *waiting;
	size_t nwaiting, room;
	uint64_t order, written;
	uint64_t realtime_ns;           /* at the beginning of CLOCK_MONOTONIC */
	/* the names of processes at the other ends of shared memory, by their pid modulo PEERS */
	struct {
		pid_t pid;
		char name[PROCESS_NAME];
	} peers[PEERS];
};

/* A place for one more source, and for its part of a poll. */
static struct source *next_source(struct recorder *r)
{
	if (r->count == r->source_room) {
		r->source_room = r->source_room ? r->source_room * 2 : 64;
		r->sources = realloc(r->sources, r->source_room * sizeof(*r->sources));
		r->polls = realloc(r->polls, (r->source_room + 1) * sizeof(*r->polls));
		r->polled = realloc(r->polled, r->source_room * sizeof(*r->polled));
		if (!r->sources || !r->polls || !r->polled)
			exit(complain("out of memory"));
	}
	return &r->sources[r->count];
}

struct recorder *recorder_open(const struct recorder_options *options)
{
	struct recorder *r = calloc(1, sizeof(*r));

	if (!r)
		exit(complain("out of memory"));
	r->options = *options;
	if (!r->options.named)
		r->options.named = options->path;
	r->out = strcmp(options->path, "-") == 0 ? stdout : fopen(options->path, "wbe");
	if (!r->out) {
		complain("%s: %s", options->path, strerror(errno));
		free(r);
		return NULL;
	}
	next_source(r); /* allocates all arrays: polling uses them before there is a source */
	r->realtime_ns = vb_clock_ns(CLOCK_REALTIME) - vb_clock_ns(CLOCK_MONOTONIC);
	pcapng_begin(&r->file, r->out, "verbatim " VB_VERSION);
	return r;
}

/* ---- sources ---- */

static struct vb_capture_ring *make_ring(uint64_t bytes, int *memfd)
{
	size_t size = VB_CAPTURE_DATA + bytes;
	struct vb_capture_ring *ring = MAP_FAILED;

	*memfd = memfd_create("verbatim-capture", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	/* All of it is there from the beginning, so that no writer can meet a lack of memory. */
	if (*memfd >= 0 && ftruncate(*memfd, (off_t)size) == 0 && fallocate(*memfd, 0, 0, (off_t)size) == 0 &&
	    fcntl(*memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
		ring = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, *memfd, 0);
	if (ring == MAP_FAILED)
		return NULL;
	ring->magic = VB_CAPTURE_MAGIC;
	ring->bytes = bytes;
	return ring;
}

bool recorder_add(struct recorder *r, int fd, const struct process *who, const char **why)
{
	struct vb_question q = {
		.magic = VB_INSPECTION_MAGIC, .what = VB_ASK_CAPTURE, .kinds = VB_ASK_EVENTS,
		.filter = r->options.filter,
	};
	struct process p = { .fd = fd };
	char interface[96];
	int memfd = -1;
	struct source *s = next_source(r);
	struct vb_capture_ring *ring = make_ring(r->options.ring_bytes, &memfd);

	*why = ring ? NULL
	     : errno == EMFILE ? "no descriptor for its packets (ulimit -n)" : "no memory for its packets";
	if (ring && process_question(&p, &q, memfd))
		*why = "it cannot be asked";
	if (memfd >= 0)
		close(memfd);
	if (*why) {
		if (ring)
			munmap(ring, VB_CAPTURE_DATA + r->options.ring_bytes);
		close(fd);
		return false;
	}
	*s = (struct source){ .fd = fd, .pid = who->pid, .slot = who->slot, .ring = ring };
	snprintf(s->name, sizeof(s->name), "%s", who->name);
	snprintf(interface, sizeof(interface), "%s[%d]", who->name, (int)who->pid);
	s->interface = pcapng_interface(&r->file, interface, "process on verbatim; "
					"local traffic is shown as the packets that it stands for", 0);
	if (r->options.latency)
		latency_begin(r->options.latency, r->count, interface);
	r->count++;
	return true;
}

bool recorder_has(const struct recorder *r, const struct process *p)
{
	for (unsigned i = 0; i < r->count; i++)
		if (r->sources[i].pid == p->pid && r->sources[i].slot == p->slot &&
		    (r->sources[i].fd >= 0 || r->sources[i].refused))
			return true;
	return false;
}

bool recorder_captured(const struct recorder *r)
{
	for (unsigned i = 0; i < r->count; i++)
		if (r->sources[i].answered || r->sources[i].tail)
			return true;
	return false;
}

unsigned recorder_live(const struct recorder *r)
{
	unsigned n = 0;

	for (unsigned i = 0; i < r->count; i++)
		n += r->sources[i].fd >= 0;
	return n;
}

unsigned recorder_asked(const struct recorder *r)
{
	unsigned n = 0;

	for (unsigned i = 0; i < r->count; i++)
		n += r->sources[i].fd >= 0 && !r->sources[i].answered;
	return n;
}

static void end_source(struct source *s, const char *why)
{
	if (why)
		complain("%s[%d]: %s", s->name, (int)s->pid, why);
	s->refused = why;
	close(s->fd);
	s->fd = -1;
}

/* An answer, or the end of the process. */
static void hear(struct source *s)
{
	struct vb_answer a;
	ssize_t n = recv(s->fd, &a, sizeof(a), MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0)
		end_source(s, s->answered ? NULL : "it ended, or refused to answer");
	else if (n != sizeof(a) || a.magic != VB_INSPECTION_MAGIC || s->answered)
		end_source(s, "its answer is of another version");
	else if (a.error)
		end_source(s, a.error == -EBUSY ? "it is captured by another already" : "it refuses");
	else
		s->answered = true;
}

/* ---- rings ---- */

static void copy_out(const struct recorder *r, const struct source *s, uint64_t at, void *to, size_t n)
{
	const uint8_t *data = (const uint8_t *)s->ring + VB_CAPTURE_DATA;
	size_t offset = at & (r->options.ring_bytes - 1), room = r->options.ring_bytes - offset;
	size_t first = n < room ? n : room;

	memcpy(to, data + offset, first);
	memcpy((uint8_t *)to + first, data, n - first);
}

static struct waiting *next_place(struct recorder *r)
{
	if (r->nwaiting == r->room) {
		r->room = r->room ? r->room * 2 : 1024;
		r->waiting = realloc(r->waiting, r->room * sizeof(*r->waiting));
		if (!r->waiting)
			exit(complain("out of memory"));
	}
	return &r->waiting[r->nwaiting++];
}

static bool is_event(const struct record *record) { return !record->event.is_packet; }

static bool makes_sense(const struct record *head)
{
	if (is_event(head))
		return head->event.kept <= VB_EVENT_TEXT;
	return head->packet.kept <= head->packet.len && head->packet.len <= MAX_PACKET;
}

static bool is_wanted(const struct recorder *r, const struct record *head)
{
	return is_event(head) || (head->packet.flags & VB_CAPTURE_OUT ? r->options.out : r->options.in);
}

/* One record out of a ring that has `there` bytes; 0: nonsense, else how long it was there. */
static uint64_t take_one(struct recorder *r, unsigned index, uint64_t there)
{
	struct source *s = &r->sources[index];
	struct record head, *record;

	if (there < HEAD_BYTES)
		return 0;
	copy_out(r, s, s->tail, &head, HEAD_BYTES);
	uint32_t kept = head.packet.kept; /* at the same place in both */
	uint64_t bytes = HEAD_BYTES + ((kept + UINT64_C(7)) & ~UINT64_C(7));
	if (!makes_sense(&head) || bytes > there)
		return 0;
	if (!is_wanted(r, &head))
		return bytes;
	record = malloc(sizeof(*record) + kept);
	if (!record)
		exit(complain("out of memory"));
	*record = head;
	copy_out(r, s, s->tail + HEAD_BYTES, record->bytes, kept);
	*next_place(r) = (struct waiting){
		.time_ns = head.packet.time_ns, .order = r->order++, .source = index, .record = record
	};
	return bytes;
}

static void take_ring(struct recorder *r, unsigned index)
{
	struct source *s = &r->sources[index];
	uint64_t head = atomic_load_explicit(&s->ring->head, memory_order_acquire);
	bool good = head - s->tail <= r->options.ring_bytes;

	while (good && s->tail != head) {
		uint64_t bytes = take_one(r, index, head - s->tail);
		good = bytes != 0;
		s->tail += bytes;
	}
	/* Pairs with the writer's acquire. */
	atomic_store_explicit(&s->ring->tail, s->tail, memory_order_release);
	if (!good && s->fd >= 0)
		end_source(s, "what it writes makes no sense");
}

static void take_rings(struct recorder *r)
{
	for (unsigned i = 0; i < r->count; i++)
		if (r->sources[i].ring)
			take_ring(r, i);
}

/* How many records a process had no room for. */
static uint64_t dropped_by(const struct source *s)
{
	return s->ring ? atomic_load_explicit(&s->ring->dropped, memory_order_relaxed) : s->dropped;
}

static void free_ring(const struct recorder *r, struct source *s)
{
	s->dropped = dropped_by(s);
	if (s->ring)
		munmap(s->ring, VB_CAPTURE_DATA + r->options.ring_bytes);
	s->ring = NULL;
}

/* Of those that have ended: a program may start many, one after the other. */
static void free_ended_rings(struct recorder *r)
{
	for (unsigned i = 0; i < r->count; i++) {
		struct source *s = &r->sources[i];
		if (s->fd >= 0 || !s->ring)
			continue;
		take_ring(r, i);
		free_ring(r, s);
	}
}

/* ---- the file ---- */

static int by_time(const void *a, const void *b)
{
	const struct waiting *x = a, *y = b;

	if (x->time_ns != y->time_ns)
		return x->time_ns < y->time_ns ? -1 : 1;
	return x->order < y->order ? -1 : 1;
}

/* A process that is captured, too, may have ended since. */
static void find_name(const struct recorder *r, pid_t pid, char name[PROCESS_NAME])
{
	unsigned i = 0;

	while (i < r->count && r->sources[i].pid != pid)
		i++;
	if (i < r->count)
		strcpy(name, r->sources[i].name);
	else
		process_name(pid, name);
}

/* As a part of the comment. */
static void name_peer(struct recorder *r, pid_t pid, char peer[PEER])
{
	unsigned at = (unsigned)pid % PEERS;

	if (!pid)
		return;
	char name[PROCESS_NAME];
	if (r->peers[at].pid != pid) {
		find_name(r, pid, name);
		strcpy(r->peers[at].name, name);
	}
	r->peers[at].pid = pid;
	snprintf(peer, PEER, ", peer %s[%d]", r->peers[at].name, (int)pid);
}

static void comment_on(struct recorder *r, const struct source *s, const struct vb_capture_packet *p,
		       char comment[COMMENT])
{
	const char *way = p->flags & VB_CAPTURE_LOCAL ? "through shared memory"
			: p->flags & VB_CAPTURE_INBOX ? "handed over within this host" : "over UDP";
	char qp[24] = "", peer[PEER] = "";

	if (p->qpn)
		snprintf(qp, sizeof(qp), ", QP 0x%06x", p->qpn);
	const char *fate = p->flags & VB_CAPTURE_BAD_ICRC ? "; dropped: its ICRC is wrong"
			 : p->flags & VB_CAPTURE_LOST ? "; lost on purpose" : "";

	if (p->flags & VB_CAPTURE_LOCAL)
		name_peer(r, (pid_t)(p->peer_pid_high << 16 | p->ip_id), peer);
	snprintf(comment, COMMENT, "%s %s[%d], %s%s%s%s", p->flags & VB_CAPTURE_OUT ? "from" : "to", s->name,
		 (int)s->pid, way, qp, peer, fate);
}

/* What is behind the record's head in the ring is as it is in the file. */
static void write_event(struct recorder *r, const struct source *s, const struct record *record)
{
	const struct vb_capture_event *e = &record->event;

	pcapng_event(&r->file, s->interface, r->realtime_ns + e->time_ns, &e->event,
		     sizeof(*e) - offsetof(struct vb_capture_event, event), record->bytes, e->kept);
}

static void write_packet(struct recorder *r, struct source *s, const struct record *record)
{
	static struct frame frame;
	const struct vb_capture_packet *p = &record->packet;
	uint64_t dropped = dropped_by(s);
	char comment[COMMENT];

	frame_make(&frame, p, record->bytes);
	comment_on(r, s, p, comment);
	pcapng_packet(&r->file, &(struct pcapng_packet){
		.interface = s->interface, .time_ns = r->realtime_ns + p->time_ns,
		.bytes = frame.bytes, .kept = frame.kept, .len = frame.len,
		.goes_out = p->flags & VB_CAPTURE_OUT, .dropped = dropped - s->dropped_told,
		.comment = comment });
	s->dropped_told = dropped;
	s->written++;
	r->written++;
}

static void tell_latency(struct latency *l, const struct waiting *w)
{
	if (is_event(w->record))
		latency_event(l, w->source, &w->record->event);
	else
		latency_packet(l, w->source, &w->record->packet, w->record->bytes);
}

static void write_one(struct recorder *r, const struct waiting *w)
{
	struct source *s = &r->sources[w->source];

	if (is_event(w->record))
		write_event(r, s, w->record);
	else
		write_packet(r, s, w->record);
	if (r->options.latency)
		tell_latency(r->options.latency, w);
}

uint64_t recorder_written(const struct recorder *r)
{
	return r->written;
}

static bool is_enough(const struct recorder *r)
{
	return r->options.max_packets && r->written >= r->options.max_packets;
}

/* Writes what is older than a time. */
static void write_before(struct recorder *r, uint64_t time_ns)
{
	size_t n = 0;

	if (r->nwaiting)
		qsort(r->waiting, r->nwaiting, sizeof(*r->waiting), by_time);
	for (; n < r->nwaiting && r->waiting[n].time_ns < time_ns; n++) {
		if (!is_enough(r))
			write_one(r, &r->waiting[n]);
		free(r->waiting[n].record);
	}
	if (n)
		memmove(r->waiting, r->waiting + n, (r->nwaiting - n) * sizeof(*r->waiting));
	r->nwaiting -= n;
}

/*
 * Before which time all records have come. A thread that loses its processor between looking at the clock and
 * noting what happened holds the others up until it goes on, but not for ever.
 */
static uint64_t complete_time(const struct recorder *r, uint64_t now)
{
	uint64_t longest = LATEST_MS * VB_NS_PER_MS, least = now;
	uint64_t latest = now > longest ? now - longest : 0; /* the machine may just have started */

	for (unsigned i = 0; i < r->count; i++)
		if (r->sources[i].fd >= 0 && r->sources[i].complete_ns < least)
			least = r->sources[i].complete_ns;
	return least > latest ? least : latest;
}

/* The look at the clock comes first, and the look into the rings last. */
static void take_and_write(struct recorder *r)
{
	uint64_t now = vb_clock_ns(CLOCK_MONOTONIC);

	atomic_thread_fence(memory_order_seq_cst);
	for (unsigned i = 0; i < r->count; i++)
		if (r->sources[i].ring && atomic_load(&r->sources[i].ring->noting) == 0)
			r->sources[i].complete_ns = now;
	take_rings(r);
	write_before(r, complete_time(r, now));
	fflush(r->out); /* for who reads along */
}

/* poll takes no more of them than there may be descriptors, whereas all that have ended may be more. */
static unsigned list_live(struct recorder *r)
{
	unsigned n = 0;

	for (unsigned i = 0; i < r->count; i++) {
		if (r->sources[i].fd < 0)
			continue;
		r->polls[n] = (struct pollfd){ .fd = r->sources[i].fd, .events = POLLIN };
		r->polled[n++] = i;
	}
	return n;
}

bool recorder_step(struct recorder *r, int fd, int wait_ms)
{
	unsigned live = list_live(r);

	r->polls[live] = (struct pollfd){ .fd = fd, .events = POLLIN };
	bool news = poll(r->polls, live + 1, wait_ms) > 0;
	take_and_write(r); /* of those that have ended, too: before that is noticed */
	for (unsigned i = 0; news && i < live; i++)
		if (r->polls[i].revents && r->sources[r->polled[i]].fd >= 0)
			hear(&r->sources[r->polled[i]]);
	free_ended_rings(r);
	return is_enough(r) || ferror(r->out);
}

static uint64_t finish_source(struct recorder *r, unsigned index)
{
	struct source *s = &r->sources[index];
	uint64_t dropped = dropped_by(s);

	pcapng_statistics(&r->file, s->interface, vb_clock_ns(CLOCK_REALTIME), s->written + dropped, dropped);
	if (r->options.latency)
		latency_end(r->options.latency, index, dropped);
	if (s->fd >= 0)
		close(s->fd);
	free_ring(r, s);
	return dropped;
}

int recorder_close(struct recorder *r, bool quiet)
{
	uint64_t dropped = 0;
	bool failed;

	take_rings(r);
	write_before(r, UINT64_MAX);
	for (unsigned i = 0; i < r->count; i++)
		dropped += finish_source(r, i);
	failed = ferror(r->out) != 0;
	failed |= (r->out == stdout ? fflush(stdout) : fclose(r->out)) != 0;
	if (failed)
		complain("%s: it could not be written", r->options.named);
	if (!quiet || dropped)
		fprintf(stderr, "verbatim: %" PRIu64 " packets of %u process%s in %s%s", r->written, r->count,
			r->count == 1 ? "" : "es", r->options.named, dropped ? "" : "\n");
	if (dropped)
		fprintf(stderr, "; %" PRIu64 " dropped for want of room (--buffer)\n", dropped);
	free(r->sources);
	free(r->polls);
	free(r->polled);
	free(r->waiting);
	free(r);
	return failed;
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include "local/peer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "adapter/memory/segment.h"
#include "adapter/peer.h"
#include "adapter/progress/qpn.h"
#include "adapter/queues/queue.h"
#include "base/log.h"
#include "base/nanoseconds.h"
#include "host/loop/activity.h"
#include "host/loop/rseq.h"
#include "host/loop/share.h"
#include "local/mapped.h"
#include "local/qp.h"

enum {
	CONNECT_TRIES = 1000, /* 1 ms apart */
	AGREE_NAP_NS = 20000,
	LOOK_NS = 10 * VB_NS_PER_MS,
	GRACE_NS = 200 * VB_NS_PER_MS, /* from a peer's death to the failure of what it left open */
};
#define LATE_NS (10 * VB_NS_PER_S) /* for a peer that runs, and is late */

/* The second message on a link: what the sender found out about copying. */
struct ready {
	uint64_t magic;
	uint32_t can_copy;
	uint32_t reserved;
};

/* Each is here before it can be UP at its own end. */
struct vb_peer *vb_peers[VB_MAX_PEERS];
atomic_uint vb_npeers;

/*
 * Under peers_lock, which comes before vb_progress_lock: which peer to use for which slot, and how many QPs
 * are on the wire to its owner.
 */
static pthread_mutex_t peers_lock = PTHREAD_MUTEX_INITIALIZER;
static struct vb_peer *by_slot[VB_SLOT_COUNT];
static uint32_t declined[VB_SLOT_COUNT];
static struct vb_peer *_Atomic self; /* written there, read anywhere */
static atomic_uint nlinks; /* with descriptors */

static struct {
	void (*died)(void *arg, uint32_t slot);
	void *arg;
} subscriber;

void vb_peer_death_subscribe(void (*died)(void *arg, uint32_t slot), void *arg)
{
	subscriber.arg = arg;
	subscriber.died = died;
}

/* ---- descriptors ---- */

/* -EMFILE: the other descriptors are the program's. */
static int take_share(void)
{
	if ((atomic_fetch_add(&nlinks, 1) + 1) * VB_LINK_FDS <= vb_fd_share())
		return 0;
	atomic_fetch_sub(&nlinks, 1);
	return -EMFILE;
}

/* ---- life ---- */

static bool forced_to_link(void)
{
	const char *how = getenv("VERBATIM_COPY");
	return how && !strcmp(how, "link");
}

static bool forced_to_process_vm(void)
{
	const char *how = getenv("VERBATIM_COPY");
	return how && !strcmp(how, "process_vm");
}

static struct vb_peer *peer_new(int fd, pid_t pid)
{
	struct vb_peer *p = calloc(1, sizeof(*p));
	uint64_t bells = p ? vb_arena_alloc(sizeof(struct vb_shm_bells)) : 0;
	if (!bells) {
		free(p);
		return NULL;
	}
	p->fd = fd;
	p->pid = pid;
	p->eventfd = p->waiter_eventfd = -1;
	p->out = vb_arena_at(bells);
	atomic_init(&p->refs, 1);
	atomic_init(&p->state, VB_PEER_CONNECTING);
	vb_list_init(&p->qps);
	return p;
}

/*
 * A peer that was cut looks at these whenever it runs again, and `cut` must stop it then: they stay as they
 * are for good.
 */
static void free_what_it_reads(struct vb_peer *p)
{
	if (atomic_load(&p->is_cut))
		return;
	if (p->ud_ring.ring)
		vb_arena_free((uint64_t)(p->ud_ring.ring - (uint8_t *)vb_arena), VB_UD_RING_BYTES);
	vb_arena_free((uint64_t)((char *)p->out - (char *)vb_arena), sizeof(*p->out));
}

void vb_peer_put(struct vb_peer *p)
{
	if (atomic_fetch_sub(&p->refs, 1) != 1)
		return;
	vb_mapped_close(p);
	if (p->arena && p != self)
		vb_shm_unmap(p->arena, p->arena_bytes);
	if (p->fd >= 0) {
		vb_fd_close(p->fd);
		atomic_fetch_sub(&nlinks, 1);
	}
	vb_fd_close(p->eventfd);
	vb_fd_close(p->waiter_eventfd);
	free_what_it_reads(p);
	free(p);
}

static int listen_to(struct vb_peer *p)
{
	vb_lock(&vb_progress_lock);
	unsigned n = atomic_load(&vb_npeers);
	bool fits = n < VB_MAX_PEERS - 1 || p == self;
	if (fits) {
		vb_peers[n] = p;
		atomic_store(&vb_npeers, n + 1);
	}
	vb_unlock(&vb_progress_lock);
	return fits ? 0 : -ENOSPC;
}

static void listen_no_more_locked(struct vb_peer *p)
{
	unsigned n = atomic_load(&vb_npeers);
	for (unsigned i = 0; i < n; i++) {
		if (vb_peers[i] != p)
			continue;
		vb_peers[i] = vb_peers[n - 1];
		atomic_store(&vb_npeers, n - 1);
		return;
	}
}

/* ---- hello ---- */

static int send_hello(struct vb_peer *p)
{
	struct vb_link_hello h = {
		.magic = VB_LINK_MAGIC,
		.version = VB_LINK_VERSION,
		.first_slot = vb_slot_first(),
		.nonce = vb_arena->nonce,
		.bells = (uint64_t)((char *)p->out - (char *)vb_arena),
		.arena_bytes = vb_arena_bytes(),
		.arena_address = (uintptr_t)vb_arena,
	};
	int fds[3] = { vb_arena_fd(), vb_loop_eventfd(), vb_loop_waiter_eventfd() };
	return vb_link_send(p->fd, &h, sizeof(h), fds, 3);
}

const void *vb_peer_range(const struct vb_peer *p, uint64_t offset, uint64_t bytes)
{
	if (offset < VB_ARENA_HEAP || offset > p->arena_bytes || bytes > p->arena_bytes - offset ||
	    offset % VB_CACHE_LINE)
		return NULL;
	return (const char *)p->arena + offset;
}

/*
 * Can this process copy from the peer's memory, and write it as guard.h says? Its nonce, at the address that
 * it told, tells.
 */
static bool try_copy(const struct vb_peer *p, const struct vb_link_hello *h)
{
	uint64_t nonce = 0;
	size_t done;
	struct iovec here = { &nonce, sizeof(nonce) };
	struct iovec there = { (void *)(uintptr_t)(h->arena_address + offsetof(struct vb_arena_head, nonce)),
			       sizeof(nonce) };
	return p->pid > 0 && vb_rseq() &&
	       !vb_copy_from_peer(p->pid, &here, 1, &there, 1, NULL, &done) && nonce == p->nonce;
}

/* Does a queue pair take the wire to one of its slots? */
static bool is_declined_locked(const struct vb_peer *p, uint32_t first_slot)
{
	bool is_one = declined[first_slot];
	for (unsigned i = 0; i < VB_ARENA_SLOTS && !is_one; i++) {
		uint32_t slot = atomic_load(&p->arena->slots[i]);
		is_one = slot < VB_SLOT_COUNT && declined[slot];
	}
	return is_one;
}

static int agree_locked(struct vb_peer *p, uint32_t first_slot)
{
	int err = is_declined_locked(p, first_slot) ? -ECONNREFUSED : listen_to(p);
	if (!err && !by_slot[first_slot])
		by_slot[first_slot] = p;
	return err;
}

static int agree(struct vb_peer *p, uint32_t first_slot)
{
	pthread_mutex_lock(&peers_lock);
	int err = agree_locked(p, first_slot);
	pthread_mutex_unlock(&peers_lock);
	return err;
}

/* Keeps fds[1] and fds[2], which it replaces by -1. */
static int take_hello(struct vb_peer *p, const struct vb_link_hello *h, int *fds, int nfds)
{
	const void *arena;
	if (p->hello_seen || h->magic != VB_LINK_MAGIC || h->version != VB_LINK_VERSION || nfds != 3 ||
	    h->arena_bytes < VB_ARENA_LEAST || h->arena_bytes > VB_ARENA_MOST ||
	    !vb_link_is_eventfd(fds[1]) || !vb_link_is_eventfd(fds[2]))
		return -EPROTO;
	int err = vb_shm_map_peer(fds[0], h->arena_bytes, &arena);
	if (err)
		return err;
	p->hello_seen = true;
	p->arena = arena;
	p->arena_bytes = h->arena_bytes;
	p->nonce = h->nonce;
	p->eventfd = fds[1];
	p->waiter_eventfd = fds[2];
	fds[1] = fds[2] = -1;
	p->in = vb_peer_range(p, h->bells, sizeof(*p->in));
	if (p->arena->magic != VB_ARENA_MAGIC || p->arena->version != VB_LINK_VERSION ||
	    p->arena->nonce != h->nonce || !p->in || !h->first_slot || h->first_slot >= VB_SLOT_COUNT)
		return -EPROTO;
	err = agree(p, h->first_slot);
	if (err)
		return err;
	vb_arena_look_for_room(); /* this peer is known by then */
	p->copy = !forced_to_link() && try_copy(p, h) ? VB_COPY_PROCESS_VM : VB_COPY_LINK;
	struct ready r = { VB_LINK_MAGIC, p->copy == VB_COPY_PROCESS_VM, 0 };
	return vb_link_send(p->fd, &r, sizeof(r), NULL, 0);
}

void vb_peer_wake_qps_locked(struct vb_peer *p)
{
	struct vb_local_qp *l;
	vb_list_for_each(l, &p->qps, node)
		vb_progress_schedule_locked(l->qp);
}

/*
 * Bells that were due before the link was UP: for the QPs that there are, and one for all, as one that was
 * reset meanwhile may have been sent to.
 */
static void ring_all_locked(struct vb_peer *p)
{
	struct vb_local_qp *l;
	vb_list_for_each(l, &p->qps, node)
		vb_peer_ring(p, l->qp->attr.dest_qp_num);
	vb_peer_ring(p, VB_BELL_FOR_ALL);
}

static int take_ready(struct vb_peer *p, const struct ready *r)
{
	if (!p->hello_seen || r->magic != VB_LINK_MAGIC || atomic_load(&p->state) != VB_PEER_CONNECTING)
		return -EPROTO;
	if (!r->can_copy)
		p->copy = VB_COPY_LINK;
	if (p->copy == VB_COPY_PROCESS_VM && vb_mapped_is_allowed())
		vb_mapped_open(p);
	atomic_store(&p->state, VB_PEER_UP);
	vb_lock(&vb_progress_lock);
	vb_peer_wake_qps_locked(p);
	ring_all_locked(p);
	vb_unlock(&vb_progress_lock);
	vb_loop_wake();
	return 0;
}

/* ---- death ---- */

/*
 * The slots that the dead process had, as its arena says: at worst it says nonsense about itself. A link that
 * never was UP may have been declined by a process that lives on, with connections that took the wire.
 */
static void report_death(const struct vb_peer *p)
{
	for (unsigned i = 0; subscriber.died && i < VB_ARENA_SLOTS; i++) {
		uint32_t slot = atomic_load(&p->arena->slots[i]);
		if (slot && slot < VB_SLOT_COUNT)
			subscriber.died(subscriber.arg, slot);
	}
}

struct vb_qp *vb_peer_next_qp(struct vb_peer *p, enum vb_peer_end step)
{
	struct vb_local_qp *l;
	struct vb_qp *found = NULL;
	vb_lock(&vb_progress_lock);
	vb_list_for_each(l, &p->qps, node) {
		if (l->end >= step)
			continue;
		l->end = step;
		found = l->qp;
		vb_qp_ref(found);
		/* the next call finds those first that are still to come */
		vb_list_del(&l->node);
		vb_list_add_tail(&p->qps, &l->node);
		break;
	}
	vb_unlock(&vb_progress_lock);
	return found;
}

static void fail_qps(struct vb_timer *timer, uint64_t now_ns)
{
	struct vb_peer *p = timer->arg;
	for (struct vb_qp *qp; (qp = vb_peer_next_qp(p, VB_PEER_FAILED));) {
		vb_qp_peer_lost(qp);
		vb_qp_unref(qp);
	}
	vb_peer_put(p);
}

static void (*death_handler)(struct vb_peer *p, bool was_up);

void vb_peer_set_death_handler(void (*died)(struct vb_peer *p, bool was_up)) { death_handler = died; }

/*
 * Errors come a little later, as they would on a wire: programs that are just finishing, too, rarely expect
 * one among their last completions.
 */
static void die(struct vb_peer *p)
{
	bool was_up = atomic_exchange(&p->state, VB_PEER_DEAD) == VB_PEER_UP;
	vb_watch_stop(&p->watch);
	vb_lock(&vb_progress_lock);
	listen_no_more_locked(p);
	vb_unlock(&vb_progress_lock);
	pthread_mutex_lock(&peers_lock);
	for (unsigned i = 0; i < VB_SLOT_COUNT; i++)
		if (by_slot[i] == p)
			by_slot[i] = NULL;
	pthread_mutex_unlock(&peers_lock);
	death_handler(p, was_up);
	if (was_up)
		report_death(p);
	p->grace = (struct vb_timer){ .fire = fail_qps, .arg = p };
	vb_timer_set(&p->grace, vb_now_ns() + GRACE_NS);
}

static void cut(struct vb_peer *p)
{
	if (atomic_exchange(&p->is_cut, true))
		return;
	atomic_store(&p->out->cut, 1);
	atomic_fetch_add(&vb_arena->cuts, 1); /* behind it: a thread that sees this looks there */
	vb_link_end(p->fd);
}

static struct vb_peer *next_uncut(uint64_t nonce)
{
	struct vb_peer *found = NULL;
	vb_lock(&vb_progress_lock);
	for (unsigned i = 0; !found && i < atomic_load(&vb_npeers); i++) {
		if (vb_peers[i] != self && vb_peers[i]->nonce == nonce &&
		    !atomic_load(&vb_peers[i]->is_cut)) {
			found = vb_peers[i];
			atomic_fetch_add(&found->refs, 1);
		}
	}
	vb_unlock(&vb_progress_lock);
	return found;
}

void vb_peer_cut(struct vb_peer *peer)
{
	if (peer != self)
		cut(peer); /* its link may have ended already, and is not listed then */
	for (struct vb_peer *p; (p = next_uncut(peer->nonce));) {
		cut(p);
		vb_peer_put(p);
	}
}

bool vb_peer_is_dead(const struct vb_peer *p)
{
	return atomic_load(&p->state) == VB_PEER_DEAD || (p->fd >= 0 && vb_link_has_hung_up(p->fd));
}

/* ---- the link's descriptor ---- */

static int take_message(struct vb_peer *p, const void *msg, size_t bytes, int *fds, int nfds)
{
	if (bytes == sizeof(struct vb_link_hello))
		return take_hello(p, msg, fds, nfds);
	if (bytes == sizeof(struct ready))
		return take_ready(p, msg);
	if (bytes == sizeof(struct vb_link_segment))
		return vb_mapped_take_message(p, msg, fds, nfds);
	return -EPROTO;
}

/* Why a link ends, if that is not because its peer's process has. */
static void explain_end(const struct vb_peer *p, int err)
{
	static atomic_bool said;
	bool is_up = atomic_load(&p->state) == VB_PEER_UP;
	if (err == -EPROTO || err == -EMSGSIZE)
		vb_explain(
			"link",
			"process %d says what this version of verbatim does not understand: the link to it ends",
			(int)p->pid);
	else if (err == -EPIPE && !is_up && !atomic_exchange(&said, true))
		vb_explain_limit(
			"link",
			"no memory is shared with process %d, which has hung up: it may not, cannot, or takes the wire already",
			(int)p->pid);
	else if (err != -EPIPE && err != -ECONNREFUSED)
		vb_link_explain_lack(err);
}

static void link_readable(struct vb_watch *w, uint32_t events)
{
	struct vb_peer *p = w->arg;
	union {
		struct vb_link_hello hello;
		struct ready ready;
		struct vb_link_segment segment;
	} msg;
	int fds[VB_LINK_MAX_FDS], nfds = VB_LINK_MAX_FDS;
	ssize_t n = vb_link_recv(p->fd, &msg, sizeof(msg), fds, &nfds);
	if (n == -EAGAIN || n == -EINTR)
		return;
	int err = n < 0 ? (int)n : n == 0 ? -EPIPE : take_message(p, &msg, n, fds, nfds);
	for (int i = 0; n > 0 && i < nfds; i++)
		vb_fd_close(fds[i]);
	/* a segment, which can do without being mapped */
	if (err == -EMFILE && atomic_load(&p->state) == VB_PEER_UP)
		return vb_link_explain_lack(err);
	if (!err)
		return;
	explain_end(p, err);
	die(p);
}

static int start(struct vb_peer *p)
{
	p->watch = (struct vb_watch){ .fd = p->fd, .ready = link_readable, .arg = p };
	int err = send_hello(p);
	return err ? err : vb_watch_start(&p->watch, EPOLLIN);
}

/* Made and greeted, or else the descriptor is closed, and *peer as before. */
static int peer_start(int fd, pid_t pid, struct vb_peer **peer)
{
	int err = take_share();
	struct vb_peer *p = err ? NULL : peer_new(fd, pid);
	if (!p) {
		vb_fd_close(fd);
		if (!err)
			atomic_fetch_sub(&nlinks, 1);
		return err ? err : -ENOMEM;
	}
	err = start(p);
	if (err)
		vb_peer_put(p);
	else
		*peer = p;
	return err;
}

static void accepted(int fd, const struct vb_peer_cred *cred)
{
	struct vb_peer *p;
	if (!vb_arena || vb_links_are_refused()) {
		vb_fd_close(fd);
		return;
	}
	int err = peer_start(fd, cred->pid, &p);
	if (err && err != -EPIPE)
		vb_link_explain_lack(err);
}

/* ---- finding ---- */

/* This process as its own peer. */
static struct vb_peer *self_locked(void)
{
	if (self)
		return self;
	struct vb_peer *p = peer_new(-1, vb_copy_self());
	if (!p)
		return NULL;
	p->arena = vb_arena;
	p->arena_bytes = vb_arena_bytes();
	p->nonce = vb_arena->nonce;
	p->in = p->out;
	p->copy = forced_to_link()	 ? VB_COPY_LINK :
		  forced_to_process_vm() ? VB_COPY_PROCESS_VM :
					   VB_COPY_SAME;
	atomic_store(&p->state, VB_PEER_UP);
	self = p;
	(void)listen_to(p);
	return p;
}

static bool owns_slot(const struct vb_peer *p, uint32_t slot)
{
	for (unsigned i = 0; i < VB_ARENA_SLOTS; i++)
		if (atomic_load(&p->arena->slots[i]) == slot)
			return true;
	return false;
}

/*
 * Without those whose death the progress thread has not noticed yet: another process may have their slot by
 * now.
 */
static bool is_in(const struct vb_peer *p, enum vb_peer_state state)
{
	return p && atomic_load(&p->state) == state && !vb_peer_is_dead(p);
}

/*
 * A link that this process has agreed to: a further slot of the same process, or one of two links that both
 * have made at the same time.
 */
static struct vb_peer *find_owner_locked(uint32_t slot, enum vb_peer_state state)
{
	struct vb_peer *found = NULL;
	vb_lock(&vb_progress_lock);
	for (unsigned i = 0; !found && i < atomic_load(&vb_npeers); i++)
		if (vb_peers[i] != self && owns_slot(vb_peers[i], slot) && is_in(vb_peers[i], state))
			found = vb_peers[i];
	vb_unlock(&vb_progress_lock);
	return found;
}

static struct vb_peer *find_in_state_locked(uint32_t slot, enum vb_peer_state state)
{
	return is_in(by_slot[slot], state) ? by_slot[slot] : find_owner_locked(slot, state);
}

static int connect_locked(uint32_t slot, int tries, struct vb_peer **peer)
{
	struct vb_peer_cred cred;
	int fd;
	int err = vb_link_connect(slot, &fd, &cred);
	for (; err == -EAGAIN && tries > 1; tries--) { /* its queue of connections is full */
		vb_sleep_ns(VB_NS_PER_MS);
		err = vb_link_connect(slot, &fd, &cred);
	}
	if (err)
		return err;
	err = peer_start(fd, cred.pid, peer);
	if (!err)
		by_slot[slot] = *peer;
	return err == -EPIPE ? -EPERM : err; /* it has hung up by now */
}

static struct vb_peer *known_locked(uint32_t slot)
{
	struct vb_peer *up = find_in_state_locked(slot, VB_PEER_UP);
	return up ? up : find_in_state_locked(slot, VB_PEER_CONNECTING);
}

/* tries: to connect; 0: what there is. */
static int find_locked(uint32_t slot, int tries, struct vb_peer **peer)
{
	bool is_own = vb_slot_is_mine(slot);
	*peer = is_own ? self : known_locked(slot);
	if (*peer)
		return 0;
	if (!tries || declined[slot] || vb_links_are_refused())
		return -ECONNREFUSED;
	if (!is_own)
		return connect_locked(slot, tries, peer);
	*peer = self_locked();
	return *peer ? 0 : -ENOMEM;
}

static int get_locked(uint32_t slot, int tries, struct vb_peer **peer)
{
	if (!slot || slot >= VB_SLOT_COUNT)
		return -ECONNREFUSED;
	int err = find_locked(slot, tries, peer);
	if (!err)
		atomic_fetch_add(&(*peer)->refs, 1);
	return err;
}

int vb_peer_try(uint32_t slot, struct vb_peer **peer)
{
	if (pthread_mutex_trylock(&peers_lock))
		return -EAGAIN;
	int err = get_locked(slot, 1, peer);
	pthread_mutex_unlock(&peers_lock);
	return err;
}

/*
 * Waits for the peer's agreement until until_ns, and up to LATE_NS longer while the peer may lack only a
 * processor. The progress thread does not wait: it is the one that hears the peer.
 */
static void await_agreement(const struct vb_peer *p, uint64_t until_ns)
{
	struct vb_process_wait patience = { 0 };
	uint64_t now = vb_now_ns();
	for (; atomic_load(&p->state) == VB_PEER_CONNECTING && !vb_loop_is_current() &&
	       now < until_ns + LATE_NS;
	     now = vb_now_ns()) {
		if (now > until_ns && !vb_link_has_news(p->fd) &&
		    vb_process_wait_is_over(&patience, p->pid, now))
			return;
		vb_sleep_ns(now > until_ns ? LOOK_NS : AGREE_NAP_NS);
	}
}

/* Else the link has ended, for both. */
static bool has_agreed(const struct vb_peer *p, uint64_t until_ns)
{
	await_agreement(p, until_ns);
	if (atomic_load(&p->state) == VB_PEER_CONNECTING) {
		vb_explain_limit(
			"link",
			"process %d does not answer, as if it were stopped: this connection takes the wire",
			(int)p->pid);
		vb_link_end(p->fd);
	}
	return atomic_load(&p->state) == VB_PEER_UP;
}

/* One lock covers the look for a link and the declining: this process agrees to no link between the two. */
static int get_or_decline(uint32_t slot, int tries, struct vb_peer **peer)
{
	pthread_mutex_lock(&peers_lock);
	int err = get_locked(slot, tries, peer);
	if (err)
		declined[slot]++;
	pthread_mutex_unlock(&peers_lock);
	return err;
}

struct vb_peer *vb_peer_choose(uint32_t slot)
{
	uint64_t until = vb_now_ns() + VB_PEER_AGREE_NS;
	struct vb_peer *p;
	for (int tries = CONNECT_TRIES;; tries = 0) {
		int err = get_or_decline(slot, tries, &p);
		if (err && err != -ECONNREFUSED && err != -EPERM)
			vb_link_explain_lack(err);
		if (err)
			return NULL;
		if (has_agreed(p, until))
			return p;
		vb_peer_put(p);
	}
}

void vb_peer_decline_no_more(uint32_t slot)
{
	pthread_mutex_lock(&peers_lock);
	if (declined[slot]) /* not in a forked child */
		declined[slot]--;
	pthread_mutex_unlock(&peers_lock);
}

const struct vb_shm_qp *vb_peer_block(const struct vb_peer *p, uint32_t qpn)
{
	for (unsigned i = 0; i < VB_ARENA_SLOTS; i++) {
		if (atomic_load(&p->arena->slots[i]) != qpn >> VB_SLOT_SHIFT)
			continue;
		uint64_t index = (uint64_t)i * VB_SLOT_QPS + qpn % VB_SLOT_QPS;
		return (const void *)((const char *)p->arena + VB_ARENA_QPS + index * VB_QP_BLOCK);
	}
	return NULL;
}

/* ---- bells ---- */

static void wake_owner(const struct vb_peer *p, bool leader)
{
	if (p != self)
		vb_eventfd_ring(leader ? p->waiter_eventfd : p->eventfd);
	else if (leader)
		vb_loop_wake_waiter();
	else
		vb_loop_wake();
}

void vb_peer_ring(struct vb_peer *p, uint32_t qpn)
{
	if (vb_unlikely(atomic_load_explicit(&p->state, memory_order_acquire) != VB_PEER_UP))
		return;
	/*
	 * Sequentially consistent, before the load of asleep: pairs with the peer's store of asleep before it
	 * looks at tail.
	 */
	uint32_t at = atomic_fetch_add(&p->out->tail, 1);
	atomic_store_explicit(&p->out->bell[at % VB_BELLS], (uint64_t)(at + 1) << 32 | qpn,
			      memory_order_release);
	vb_peer_wake(p);
}

void vb_peer_wake(struct vb_peer *p)
{
	uint32_t asleep = atomic_load(&p->arena->asleep);
	if (vb_likely(!asleep || asleep == atomic_load_explicit(&p->rung, memory_order_relaxed)))
		return;
	/* in this order: a thread that stops in between leaves it to the next one */
	wake_owner(p, asleep & VB_ASLEEP_LEADER);
	atomic_store_explicit(&p->rung, asleep, memory_order_relaxed);
}

const struct vb_shm_qp *vb_peers_find_block(uint32_t qpn, struct vb_peer **peer)
{
	for (unsigned i = 0; i < atomic_load(&vb_npeers); i++) {
		const struct vb_shm_qp *block = vb_peer_block(vb_peers[i], qpn);
		if (!block)
			continue;
		*peer = vb_peers[i];
		atomic_fetch_add(&vb_peers[i]->refs, 1);
		return block;
	}
	return NULL;
}

/* ---- segments ---- */

/* All but this process, with references; how many. */
static unsigned list_others(struct vb_peer **peers)
{
	unsigned n = 0;
	vb_lock(&vb_progress_lock);
	for (unsigned i = 0; i < atomic_load(&vb_npeers); i++) {
		if (vb_peers[i] == self)
			continue;
		peers[n++] = vb_peers[i];
		atomic_fetch_add(&vb_peers[i]->refs, 1);
	}
	vb_unlock(&vb_progress_lock);
	return n;
}

/* Tells all that have mappings and are UP; in the progress thread, where they end. */
static void segment_retired(uint64_t serial)
{
	static struct vb_peer *peers[VB_MAX_PEERS];
	unsigned n = list_others(peers);
	for (unsigned i = 0; i < n; i++) {
		if (peers[i]->mapped && atomic_load(&peers[i]->state) == VB_PEER_UP)
			vb_mapped_tell_gone(peers[i], serial);
		vb_peer_put(peers[i]);
	}
}

/* A forked child has no peers. What the parent had stays allocated: its QPs may still be looked at. */
static void forget(void)
{
	pthread_mutex_init(&peers_lock, NULL);
	memset(by_slot, 0, sizeof(by_slot));
	memset(declined, 0, sizeof(declined));
	atomic_store(&nlinks, 0);
	atomic_store(&vb_npeers, 0);
	self = NULL;
}

__attribute__((constructor)) static void prepare(void)
{
	vb_link_set_acceptor(accepted);
	vb_segment_on_retire(segment_retired);
	vb_host_at_fork(forget);
}

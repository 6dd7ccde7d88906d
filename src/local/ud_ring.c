/* SPDX-License-Identifier: BSD-2-Clause */
#include "local/ud_ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/progress/path.h"
#include "adapter/progress/progress.h"
#include "adapter/progress/qpn.h"
#include "adapter/queues/queue.h"
#include "base/nanoseconds.h"
#include "local/peer.h"

enum {
	/*
	 * datagrams to an inbox, before the slot is asked for a link once more: it may have another owner by
	 * then
	 */
	ASK_AGAIN = 1024,
	AGAIN_NS = VB_NS_PER_MS,      /* between two looks at what waits for a receive */
	MAX_WAIT_NS = 100 * VB_NS_PER_MS,  /* many time slices of its program */
	TAKE_BATCH = 16,  /* of one peer's, before the next one's */
	/* looked at per round, so that a poll costs the same with one peer and with a thousand */
	TAKE_PEERS = 8,
	BTH_BYTES = 12,
	GSI_QPN = 1,
};

/* ---- ways to slots ---- */

struct way {
	struct vb_lock lock;
	/* with a reference, which the end of the link takes back; NULL: not asked for, or there is no link */
	struct vb_peer *peer;
	unsigned to_inbox;    /* so many more go there */
	uint32_t bytes;       /* of the datagram that is written and not published */
};

static struct way *_Atomic ways; /* by slot; made when first needed, for good */

static struct way *way_to(uint32_t slot)
{
	struct way *all = atomic_load_explicit(&ways, memory_order_acquire), *none = NULL;
	if (vb_unlikely(!all)) {
		all = calloc(VB_SLOT_COUNT, sizeof(*all));
		if (all && !atomic_compare_exchange_strong(&ways, &none, all)) {
			free(all);
			all = none;
		}
	}
	return all && slot && slot < VB_SLOT_COUNT ? &all[slot] : NULL;
}

/* 0: w->peer is the one. Without a link there is its inbox, which also tells if there is nobody. */
static int ask(struct way *w, uint32_t slot)
{
	if (w->to_inbox) {
		w->to_inbox--;
		return -ENOTCONN;
	}
	int err = vb_peer_try(slot, &w->peer);
	if (!err || err == -EAGAIN)
		return err;
	w->peer = NULL;
	w->to_inbox = ASK_AGAIN;
	return -ENOTCONN;
}

static int find(struct way *w, uint32_t slot)
{
	int err = w->peer ? 0 : ask(w, slot);
	if (err)
		return err;
	switch (atomic_load_explicit(&w->peer->state, memory_order_acquire)) {
	case VB_PEER_UP:
		return 0;
	case VB_PEER_CONNECTING:
		return -EAGAIN;
	default:
		return -ENOTCONN;
	}
}

/* A link that never came up will not the next time. */
static void give_back(struct vb_peer *p, bool was_up)
{
	struct way *all = atomic_load(&ways);
	for (uint32_t slot = 0; all && slot < VB_SLOT_COUNT; slot++) {
		struct way *w = &all[slot];
		vb_lock(&w->lock);
		bool is_its = w->peer == p;
		if (is_its) {
			w->peer = NULL;
			w->to_inbox = was_up ? 0 : ASK_AGAIN;
		}
		vb_unlock(&w->lock);
		if (is_its)
			vb_peer_put(p);
	}
}

/* ---- putting: under the ring's lock ---- */

static uint32_t lines_of(uint32_t packet_bytes)
{
	return (uint32_t)vb_align_up(offsetof(struct vb_shm_datagram, packet) + packet_bytes, VB_CACHE_LINE) /
	       VB_CACHE_LINE;
}

static uint32_t place_of(uint32_t position) { return position % VB_UD_RING_LINES * VB_CACHE_LINE; }
static struct vb_shm_datagram *record_at(const struct vb_ud_ring *m, uint32_t position)
{
	return (void *)(m->ring + place_of(position));
}

/* The peer learns of it by looking at all. */
static int make_ring(struct vb_peer *p)
{
	uint64_t offset = vb_arena_alloc(VB_UD_RING_BYTES);
	if (!offset)
		return -ENOTCONN;
	p->ud_ring.ring = vb_arena_at(offset);
	atomic_store(&p->out->ud_ring, offset);
	vb_peer_ring(p, VB_BELL_FOR_ALL);
	return 0;
}

static void write_record(struct vb_shm_datagram *d, const struct vb_inbox_addr *addr, const struct iovec *iov,
			 int iovcnt)
{
	uint8_t *to = d->packet;
	d->src = addr->src;
	d->dst = addr->dst;
	d->flow_label = addr->flow_label;
	d->udp_sport = addr->udp_sport;
	d->traffic_class = addr->traffic_class;
	d->hop_limit = addr->hop_limit;
	for (int i = 0; i < iovcnt; i++) {
		memcpy(to, iov[i].iov_base, iov[i].iov_len);
		to += iov[i].iov_len;
	}
}

/* The next record's position. A record that does not fit before the ring's end starts at its beginning. */
static uint32_t start_of(const struct vb_ud_ring *m, uint32_t lines)
{
	uint32_t at = m->put % VB_UD_RING_LINES;
	return at + lines > VB_UD_RING_LINES ? m->put + VB_UD_RING_LINES - at : m->put;
}

static int write_next(struct vb_peer *p, const struct vb_inbox_addr *addr, const struct iovec *iov,
		      int iovcnt, uint32_t bytes)
{
	struct vb_ud_ring *m = &p->ud_ring;
	int err = m->ring ? 0 : make_ring(p);
	if (err)
		return err;
	uint32_t lines = lines_of(bytes), start = start_of(m, lines), needed = start - m->put + lines + 1;
	uint32_t under_way = m->put - atomic_load_explicit(&p->in->ud_ring_taken, memory_order_acquire);
	if (under_way > VB_UD_RING_LINES || needed > VB_UD_RING_LINES - under_way)
		return -EAGAIN;
	write_record(record_at(m, start), addr, iov, iovcnt);
	return 0;
}

static void publish(struct vb_ud_ring *m, uint32_t bytes)
{
	uint32_t lines = lines_of(bytes), start = start_of(m, lines);
	atomic_store_explicit(&record_at(m, start + lines)->head, 0, memory_order_relaxed);
	/* Sequentially consistent: pairs with the peer's store of asleep before it looks here. */
	atomic_store(&record_at(m, start)->head, vb_ud_ring_head(start, bytes));
	if (start != m->put)
		atomic_store(&record_at(m, m->put)->head, vb_ud_ring_head(m->put, VB_UD_RING_WRAP));
	m->put = start + lines;
}

int vb_ud_ring_write(uint32_t slot, const struct vb_inbox_addr *addr, const struct iovec *iov, int iovcnt)
{
	struct way *w = way_to(slot);
	size_t bytes = 0;
	for (int i = 0; i < iovcnt; i++)
		bytes += iov[i].iov_len;
	if (!w || bytes > VB_INBOX_MAX_BYTES)
		return -ENOTCONN;
	vb_lock(&w->lock);
	int err = find(w, slot);
	if (!err) {
		vb_lock(&w->peer->ud_ring.lock);
		w->bytes = (uint32_t)bytes;
		err = write_next(w->peer, addr, iov, iovcnt, w->bytes);
		if (!err)
			return 0;
		vb_unlock(&w->peer->ud_ring.lock);
	}
	vb_unlock(&w->lock);
	return err;
}

void vb_ud_ring_publish(uint32_t slot)
{
	struct way *w = way_to(slot);
	struct vb_peer *p = w->peer;
	publish(&p->ud_ring, w->bytes);
	vb_unlock(&p->ud_ring.lock);
	vb_peer_wake(p);
	vb_unlock(&w->lock);
}

bool vb_ud_ring_gives_up(uint32_t slot, struct vb_process_wait *patience, uint64_t now_ns)
{
	struct way *w = way_to(slot);
	pid_t pid = 0;
	if (!w)
		return true;
	vb_lock(&w->lock);
	if (w->peer)
		pid = w->peer->pid;
	vb_unlock(&w->lock);
	return vb_process_wait_is_over(patience, pid, now_ns);
}

/* ---- taking ---- */

static struct vb_lock taking = VB_LOCK_INIT;
static struct vb_peer *senders[VB_SLOT_COUNT + 1]; /* whose rings are known; under `taking` */
static atomic_uint nsenders;
static unsigned next_sender;
static atomic_bool is_news; /* a peer may have a ring that is not known yet */

static uint8_t packet[VB_INBOX_MAX_BYTES]; /* under `taking` */

void vb_ud_ring_look_locked(struct vb_peer *p)
{
	if (!atomic_load(&p->in->ud_ring) || atomic_load(&p->ud_ring.arrivals))
		return;
	atomic_store(&is_news, true);
	atomic_store(&vb_path_takes, true);
}

static void know(struct vb_peer *p)
{
	uint64_t offset = atomic_load(&p->in->ud_ring);
	unsigned n = atomic_load(&nsenders);
	const uint8_t *ring = offset ? vb_peer_range(p, offset, VB_UD_RING_BYTES) : NULL;
	if (!ring || atomic_load(&p->ud_ring.arrivals) || n == VB_ARRAY_LEN(senders))
		return;
	atomic_store(&p->ud_ring.arrivals, ring);
	senders[n] = p;
	atomic_store(&nsenders, n + 1);
}

static void look_for_rings(void)
{
	atomic_store(&is_news, false);
	vb_lock(&vb_progress_lock);
	for (unsigned i = 0; i < atomic_load(&vb_npeers); i++)
		know(vb_peers[i]);
	vb_unlock(&vb_progress_lock);
}

/* Where the next one is expected. */
static const struct vb_shm_datagram *next_record(const struct vb_ud_ring *m)
{
	const uint8_t *ring = atomic_load_explicit(&m->arrivals, memory_order_relaxed);
	return (const void *)(ring + place_of(atomic_load_explicit(&m->taken, memory_order_relaxed)));
}

/* What its head says; 0: nothing is there. */
static uint32_t next_bytes(const struct vb_ud_ring *m)
{
	uint32_t at = atomic_load_explicit(&m->taken, memory_order_relaxed);
	uint64_t head = atomic_load(&next_record(m)->head); /* sequentially consistent: pairs with put */
	return head >> 32 == (uint32_t)(at + 1) ? (uint32_t)head : 0;
}

bool vb_ud_ring_is_waiting_locked(const struct vb_peer *p)
{
	return atomic_load(&p->ud_ring.arrivals) && !atomic_load(&p->ud_ring.broken) &&
	       !atomic_load(&p->ud_ring.waits) && next_bytes(&p->ud_ring);
}

static bool is_sound(const struct vb_ud_ring *m, uint32_t bytes)
{
	return bytes >= BTH_BYTES && bytes <= sizeof(packet) &&
	       atomic_load(&m->taken) % VB_UD_RING_LINES + lines_of(bytes) <= VB_UD_RING_LINES;
}

static void copy_record(const struct vb_ud_ring *m, uint32_t bytes, struct vb_inbox_msg *msg)
{
	const struct vb_shm_datagram *d = next_record(m);
	memcpy(packet, d->packet, bytes);
	*msg = (struct vb_inbox_msg){
		.addr = { .src = d->src,
			  .dst = d->dst,
			  .flow_label = d->flow_label & 0xfffff,
			  .udp_sport = d->udp_sport,
			  .traffic_class = d->traffic_class,
			  .hop_limit = d->hop_limit },
		.payload = packet,
		.payload_bytes = bytes,
		.sender_uid = (uid_t)-1,
		.is_trusted = true, /* linked processes are of one user */
	};
}

static void have_taken(struct vb_peer *p, uint32_t lines)
{
	uint32_t taken = atomic_load_explicit(&p->ud_ring.taken, memory_order_relaxed) + lines;
	atomic_store_explicit(&p->ud_ring.taken, taken, memory_order_relaxed);
	atomic_store_explicit(&p->out->ud_ring_taken, taken, memory_order_release);
}

/* ---- waiting for a receive ---- */

static struct {
	uint32_t qpn, room; /* a queue pair, and so many receives that it still has for this batch */
} known;

static void look_again(struct vb_timer *timer, uint64_t now_ns);
static struct vb_timer again = { .fire = look_again };

/* It has nothing posted: does the datagram wait? */
static bool may_wait(struct vb_ud_ring *m, struct vb_qp *qp)
{
	uint64_t now = vb_now_ns();
	if (atomic_load_explicit(&qp->deaf, memory_order_relaxed))
		return false;
	if (!m->waits_since_ns)
		m->waits_since_ns = now;
	if (now - m->waits_since_ns > MAX_WAIT_NS) {
		atomic_store(&qp->deaf, true);
		return false;
	}
	atomic_store(&m->waits, true);
	vb_timer_set(&again, now + AGAIN_NS);
	return true;
}

static bool finds_none(struct vb_ud_ring *m, struct vb_qp *qp)
{
	if (qp->type != IBV_QPT_UD || !vb_qp_listens(qp))
		return false;
	known.room = vb_receives_waiting(qp);
	known.qpn = qp->qpn;
	if (!known.room)
		return may_wait(m, qp);
	known.room--;
	if (vb_unlikely(atomic_load_explicit(&qp->deaf, memory_order_relaxed)))
		atomic_store(&qp->deaf, false);
	return false;
}

static bool must_wait(struct vb_ud_ring *m, uint32_t qpn)
{
	bool waits = false;
	if (qpn == known.qpn && known.room) {
		known.room--;
		return false;
	}
	struct vb_qp *qp = vb_qpn_get(qpn);
	if (qp) {
		waits = finds_none(m, qp);
		vb_qp_unref(qp);
	}
	if (!waits) {
		m->waits_since_ns = 0;
		atomic_store(&m->waits, false);
	}
	return waits;
}

/* ---- one after another ---- */

/* False: there is none. */
static bool take_one(struct vb_peer *p, bool is_last_look)
{
	struct vb_ud_ring *m = &p->ud_ring;
	struct vb_inbox_msg msg;
	uint32_t bytes = atomic_load_explicit(&m->broken, memory_order_relaxed) ? 0 : next_bytes(m);
	if (bytes == VB_UD_RING_WRAP) {
		have_taken(p, VB_UD_RING_LINES - atomic_load(&m->taken) % VB_UD_RING_LINES);
		return true;
	}
	if (bytes && !is_sound(m, bytes))
		atomic_store(&m->broken, true);
	if (!bytes || atomic_load_explicit(&m->broken, memory_order_relaxed))
		return false;
	copy_record(m, bytes, &msg);
	uint32_t qpn = vb_inbox_qpn(&msg);
	if (!is_last_look && must_wait(m, qpn))
		return false;
	have_taken(p, lines_of(bytes));
	if (qpn != GSI_QPN) /* connections are made by inboxes, where the kernel tells who speaks */
		vb_inbox_deliver(&msg);
	return true;
}

static bool take_some(struct vb_peer *p)
{
	unsigned n = 0;
	known.room = 0;
	while (n < TAKE_BATCH && take_one(p, false))
		n++;
	return n;
}

bool vb_ud_ring_take(void)
{
	bool found = false;
	if (!vb_lock_try(&taking))
		return false;
	if (vb_unlikely(atomic_load_explicit(&is_news, memory_order_relaxed)))
		look_for_rings();
	unsigned count = atomic_load(&nsenders);
	for (unsigned i = 0; i < count && i < TAKE_PEERS; i++) {
		next_sender = next_sender + 1 < count ? next_sender + 1 : 0;
		found |= take_some(senders[next_sender]);
	}
	vb_unlock(&taking);
	if (found)
		vb_progress_note_arrivals();
	return found;
}

/*
 * At all that wait, as nobody else looks at these for certain (vb_ud_ring_is_waiting_locked leaves them out).
 * One that goes on waiting sets the timer again.
 */
static void look_again(struct vb_timer *timer, uint64_t now_ns)
{
	bool found = false;
	if (!vb_lock_try(&taking)) {
		vb_timer_set(timer, now_ns + AGAIN_NS);
		return;
	}
	for (unsigned i = 0; i < atomic_load(&nsenders); i++)
		if (atomic_load(&senders[i]->ud_ring.waits))
			found |= take_some(senders[i]);
	vb_unlock(&taking);
	if (found)
		vb_progress_note_arrivals();
}

static void forget_sender(struct vb_peer *p)
{
	unsigned n = atomic_load(&nsenders);
	for (unsigned i = 0; i < n; i++) {
		if (senders[i] != p)
			continue;
		senders[i] = senders[n - 1];
		atomic_store(&nsenders, n - 1);
		return;
	}
}

void vb_ud_ring_end(struct vb_peer *p, bool was_up)
{
	vb_lock(&taking);
	if (p->in)
		know(p);
	if (atomic_load(&p->ud_ring.arrivals)) {
		for (unsigned n = 0; n < VB_UD_RING_LINES && take_one(p, true); n++)
			;
		forget_sender(p);
	}
	vb_unlock(&taking);
	give_back(p, was_up);
}

/* A forked child has no peers. */
static void forget(void)
{
	vb_lock_init(&taking);
	atomic_store(&nsenders, 0);
	atomic_store(&is_news, false);
	atomic_store(&vb_path_takes, false);
	atomic_store(&ways, NULL);
	memset(&again.node, 0, sizeof(again.node));
}

__attribute__((constructor)) static void watch_forks(void)
{
	vb_host_at_fork(forget);
}

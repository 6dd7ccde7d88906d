/* SPDX-License-Identifier: BSD-2-Clause */
#include "host/ipc/capture.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/lock.h"
#include "base/log.h"

enum { BTH_BYTES = 12, DESTINATION_QPN_AT = 5 };

atomic_bool vb_capture_flag;

static struct vb_lock lock = VB_LOCK_INIT;
static struct vb_capture_ring *ring; /* NULL: no capture */
static uint64_t ring_bytes;
static struct vb_capture_filter filter;
static bool wants_events;
static uint64_t head, packets, dropped, noting;
static atomic_uint serial;

/* ---- the ring ---- */

/* May wrap. The writer owns what the reader has read. */
static void put(uint64_t at, const void *bytes, size_t n)
{
	uint8_t *data = (uint8_t *)ring + VB_CAPTURE_DATA;
	size_t offset = at & (ring_bytes - 1), first = vb_min_u64(n, ring_bytes - offset);
	memcpy(data + offset, bytes, first);
	memcpy(data, (const uint8_t *)bytes + first, n - first);
}

/* An impossible tail leaves no room. */
static bool has_room(size_t bytes)
{
	/* pairs with the reader's release */
	uint64_t used = head - atomic_load_explicit(&ring->tail, memory_order_acquire);
	return used <= ring_bytes && bytes <= ring_bytes - used;
}

enum { HEAD_BYTES = sizeof(struct vb_capture_packet) };

/* False: there is no room. record: the head of a packet or an event, with `left` bytes in the pieces. */
static bool write_locked(const void *record, uint32_t left, const struct iovec *pieces, unsigned count)
{
	uint64_t at = head + HEAD_BYTES, bytes = HEAD_BYTES + vb_align_up(left, 8);
	if (!has_room(bytes)) {
		atomic_store_explicit(&ring->dropped, ++dropped, memory_order_relaxed);
		return false;
	}
	put(head, record, HEAD_BYTES);
	for (unsigned i = 0; i < count && left; i++) {
		uint32_t n = (uint32_t)vb_min_u64(pieces[i].iov_len, left);
		put(at, pieces[i].iov_base, n);
		at += n;
		left -= n;
	}
	head += bytes;
	atomic_store_explicit(&ring->head, head, memory_order_release); /* pairs with the reader's acquire */
	return true;
}

/* ---- moments ---- */

/* Sequentially consistent: a client that does not see it has looked at the clock before this thread does. */
static uint64_t begin_locked(void)
{
	atomic_store(&ring->noting, ++noting);
	atomic_thread_fence(memory_order_seq_cst);
	return vb_now_ns();
}

/* Behind the head that the records have moved. */
static void end_locked(void)
{
	atomic_store_explicit(&ring->noting, --noting, memory_order_release);
}

struct vb_capture_moment vb_capture_begin_now(void)
{
	struct vb_capture_moment moment = { 0 };
	vb_lock(&lock);
	if (ring)
		moment = (struct vb_capture_moment){ begin_locked(), vb_capture_serial() };
	vb_unlock(&lock);
	return moment;
}

void vb_capture_end_now(struct vb_capture_moment moment)
{
	vb_lock(&lock);
	if (ring && moment.capture == vb_capture_serial())
		end_locked();
	vb_unlock(&lock);
}

/* ---- notes ---- */

/* The first piece holds the BTH. */
static bool is_wanted_locked(uint32_t qpn, const struct iovec *pieces)
{
	const uint8_t *bth = pieces[0].iov_base;
	uint32_t to = (uint32_t)bth[DESTINATION_QPN_AT] << 16 | (uint32_t)bth[DESTINATION_QPN_AT + 1] << 8 |
		      bth[DESTINATION_QPN_AT + 2];
	return (filter.opcodes[bth[0] / 64] >> bth[0] % 64 & 1) &&
	       (!filter.qpn || filter.qpn == qpn || filter.qpn == to);
}

static struct vb_capture_packet describe(const struct vb_capture_note *note)
{
	struct vb_capture_packet p = {
		.time_ns = note->time_ns,
		.flow_label = note->addr->flow_label,
		.source_port = note->addr->udp_sport,
		.ip_id = note->peer_pid ? (uint16_t)note->peer_pid : note->ip_id,
		.peer_pid_high = (uint8_t)(note->peer_pid >> 16),
		.traffic_class = note->addr->traffic_class,
		.hop_limit = note->addr->hop_limit,
		.flags = (uint8_t)note->flags,
		.qpn = note->qpn,
	};
	memcpy(p.source, &note->addr->src, sizeof(p.source));
	memcpy(p.destination, &note->addr->dst, sizeof(p.destination));
	return p;
}

void vb_capture_packet(const struct vb_capture_note *note, const struct iovec *pieces, unsigned count)
{
	struct vb_capture_packet p = describe(note);
	for (unsigned i = 0; i < count; i++)
		p.len += (uint32_t)pieces[i].iov_len;
	if (!count || pieces[0].iov_len < BTH_BYTES)
		return;
	vb_lock(&lock);
	if (ring && is_wanted_locked(note->qpn, pieces)) {
		uint64_t now_ns = begin_locked();
		if (!p.time_ns)
			p.time_ns = now_ns;
		p.kept = vb_min_u32(p.len, filter.snap);
		packets += write_locked(&p, p.kept, pieces, count);
		atomic_store_explicit(&ring->packets, packets, memory_order_relaxed);
		end_locked();
	}
	vb_unlock(&lock);
}

void vb_capture_event(const struct vb_capture_event *event, const char *text)
{
	struct vb_capture_event e = *event;
	struct iovec piece = { (void *)(uintptr_t)text, text ? strnlen(text, VB_EVENT_TEXT) : 0 };
	e.is_packet = 0;
	e.kept = (uint32_t)piece.iov_len;
	vb_lock(&lock);
	if (ring && wants_events && (!filter.qpn || !e.qpn || filter.qpn == e.qpn)) {
		uint64_t now_ns = begin_locked();
		if (!e.time_ns)
			e.time_ns = now_ns;
		write_locked(&e, e.kept, &piece, 1);
		end_locked();
	}
	vb_unlock(&lock);
}

void vb_capture_sentence(const char *by, const char *sentence)
{
	char text[VB_EVENT_TEXT + 1];
	snprintf(text, sizeof(text), "%s: %s", by, sentence);
	vb_capture_event(&(struct vb_capture_event){ .event = VB_EVENT_SENTENCE }, text);
}

/* ---- life ---- */

void vb_capture_forget(void)
{
	vb_lock_init(&lock);
	ring = NULL;
	atomic_store(&vb_capture_flag, false);
	vb_explain_copy(NULL);
}

/* Maps the ring in a memfd; its data follows the first page. */
static int map_ring(int memfd, struct vb_capture_ring **out, uint64_t *bytes)
{
	size_t size = vb_shm_size(memfd);
	void *at;
	*bytes = size > VB_CAPTURE_DATA ? size - VB_CAPTURE_DATA : 0;
	if (*bytes < VB_CAPTURE_MIN_BYTES || *bytes > VB_CAPTURE_MAX_BYTES || *bytes & (*bytes - 1))
		return -EINVAL;
	int err = vb_shm_map_segment(memfd, size, true, &at);
	if (!err)
		*out = at;
	return err;
}

int vb_capture_start(int memfd, const struct vb_capture_filter *wanted, bool has_events)
{
	struct vb_capture_ring *mapped;
	uint64_t bytes;
	int err = map_ring(memfd, &mapped, &bytes);
	if (err)
		return err;
	vb_lock(&lock);
	bool is_free = !ring;
	if (is_free) {
		ring = mapped;
		ring_bytes = bytes;
		filter = *wanted;
		wants_events = has_events;
		head = packets = dropped = noting = 0;
		atomic_fetch_add(&serial, 1);
		atomic_store(&vb_capture_flag, true);
	}
	vb_unlock(&lock);
	if (!is_free)
		vb_shm_unmap(mapped, VB_CAPTURE_DATA + bytes);
	else if (has_events)
		vb_explain_copy(vb_capture_sentence);
	return is_free ? 0 : -EBUSY;
}

void vb_capture_stop(void)
{
	atomic_store(&vb_capture_flag, false);
	vb_explain_copy(NULL);
	vb_lock(&lock);
	struct vb_capture_ring *last = ring;
	ring = NULL;
	vb_unlock(&lock);
	if (last)
		vb_shm_unmap(last, VB_CAPTURE_DATA + ring_bytes);
}

unsigned vb_capture_serial(void) { return atomic_load_explicit(&serial, memory_order_relaxed); }

void vb_capture_count(uint64_t *noted, uint64_t *lost)
{
	vb_lock(&lock);
	*noted = packets;
	*lost = dropped;
	vb_unlock(&lock);
}

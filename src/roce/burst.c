/* SPDX-License-Identifier: BSD-2-Clause */
#include "roce/burst.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#include "adapter/progress/progress.h"
#include "base/lock.h"
#include "proto/rc/request.h"
#include "roce/packet_faults.h"

enum {
	BURSTS = 4,   /* of each kind: threads that send at the same time; others wait */
	MAX_RUNS = 8, /* sends of a burst */
};

/* What one send takes. */
struct run {
	size_t bytes, segment; /* in all; of each packet but the last, which may be shorter */
};

/*
 * One send has packets of one length; the last may be shorter. A longer packet begins another send of the
 * same burst. The burst cannot be sent at that moment: the thread that fills it holds a lock, and sends after
 * it has released the lock.
 */
struct vb_burst {
	struct vb_lock lock;
	const struct vb_roce_route *flow; /* what it was when the burst was begun is in `route` */
	struct vb_roce_route route;
	struct vb_icrc_known known; /* route's */
	size_t at, bytes, segment; /* of the last run: where it begins; what is committed */
	unsigned count, most;      /* its packets; most: that one send takes */
	bool closed;               /* the last packet was shorter */
	unsigned num_earlier;
	struct run earlier[MAX_RUNS - 1];
	size_t open_bytes; /* of the packet that was begun, ICRC included */
	size_t open_body;  /* of these, before the padding */
	uint8_t data[VB_UDP_MAX_BYTES + VB_ROCE_PACKET_BYTES];
};

static struct vb_burst bursts[VB_BURST_KINDS * BURSTS];

/* The kernel numbers the packets of one send, and only these. As vb_udp_send. */
static int send_one(const struct vb_roce_route *route, struct vb_icrc_known *known, uint8_t *packet, size_t n)
{
	vb_icrc_sign(&route->icrc, known, packet, n, 0);
	return vb_roce_transmit(route, packet, n, n);
}

static void send_singly(struct vb_burst *b, uint8_t *data, const struct run *run)
{
	for (size_t at = 0; at < run->bytes;) {
		size_t n = vb_min_u64(run->bytes - at, run->segment);
		if (send_one(&b->route, &b->known, data + at, n) == -EAGAIN)
			return; /* the rest would meet the same */
		at += n;
	}
}

static void send_run(struct vb_burst *b, uint8_t *data, const struct run *run)
{
	vb_progress_note_work();
	if (vb_roce_transmit(&b->route, data, run->bytes, run->segment) == -EOPNOTSUPP)
		send_singly(b, data, run);
}

void vb_burst_flush(struct vb_burst *b)
{
	uint8_t *data = b->data;
	if (!b->count)
		return;
	for (unsigned i = 0; vb_unlikely(i < b->num_earlier); data += b->earlier[i++].bytes)
		send_run(b, data, &b->earlier[i]);
	send_run(b, data, &(struct run){ b->bytes, b->segment });
	b->at = b->bytes = b->count = b->num_earlier = 0;
	b->closed = false;
}

static bool fits(const struct vb_burst *b, const struct vb_roce_route *route, size_t bytes)
{
	return !b->count || (route == b->flow && !b->closed && b->at + b->bytes + bytes <= sizeof(b->data) &&
			     (bytes <= b->segment ? b->bytes + bytes <= VB_UDP_MAX_BYTES && b->count < b->most
						  : b->num_earlier < MAX_RUNS - 1));
}

/* The packet at hand is longer than those before it. */
static void begin_run(struct vb_burst *b)
{
	b->earlier[b->num_earlier++] = (struct run){ b->bytes, b->segment };
	b->at += b->bytes;
	b->bytes = b->count = 0;
}

/* It is often the one before. */
static void take_route(struct vb_burst *b, const struct vb_roce_route *route)
{
	if (memcmp(&b->route.icrc, &route->icrc, sizeof(route->icrc)))
		b->known = (struct vb_icrc_known){ 0 };
	b->route = *route;
}

static size_t bytes_of(size_t body) { return vb_align_up(body, 4) + VB_ICRC_BYTES; }

static uint8_t *open_packet(struct vb_burst *b, const void *header, size_t header_bytes, size_t body)
{
	b->open_bytes = bytes_of(body);
	b->open_body = body;
	uint8_t *packet = b->data + b->at + b->bytes;
	memcpy(packet, header, header_bytes);
	return packet + header_bytes;
}

uint8_t *vb_burst_begin(struct vb_burst *b, const struct vb_roce_route *route, const void *header,
			size_t header_bytes, size_t payload_bytes)
{
	size_t body = header_bytes + payload_bytes;
	if (!fits(b, route, bytes_of(body)))
		vb_burst_flush(b);
	if (!b->count) {
		take_route(b, route);
		b->most = vb_udp_segments();
	}
	b->flow = route;
	return open_packet(b, header, header_bytes, body);
}

bool vb_burst_commit(struct vb_burst *b)
{
	uint8_t *packet = b->data + b->at + b->bytes;
	memset(packet + b->open_body, 0, b->open_bytes - VB_ICRC_BYTES - b->open_body);
	if (b->count && b->open_bytes > b->segment)
		begin_run(b);
	vb_icrc_sign(&b->route.icrc, &b->known, packet, b->open_bytes, (uint16_t)b->count);
	if (!b->count)
		b->segment = b->open_bytes;
	b->closed = b->open_bytes < b->segment;
	b->bytes += b->open_bytes;
	b->count++;
	return !b->closed && b->at + b->bytes + b->segment <= VB_UDP_MAX_BYTES && b->count < b->most &&
	       b->num_earlier < MAX_RUNS - 1;
}

struct vb_burst *vb_burst_take(enum vb_burst_kind kind)
{
	struct vb_burst *of_kind = &bursts[kind * BURSTS];
	for (unsigned i = 0;; i = (i + 1) % BURSTS) {
		if (vb_lock_try(&of_kind[i].lock))
			return &of_kind[i];
		if (i == BURSTS - 1)
			sched_yield();
	}
}

void vb_burst_give(struct vb_burst *b)
{
	vb_burst_flush(b);
	vb_unlock(&b->lock);
}

void vb_burst_send_ahead(const struct vb_burst *b, const void *header, size_t header_bytes)
{
	uint8_t packet[VB_MAX_HEADER_BYTES + VB_ICRC_BYTES];
	struct vb_icrc_known known = { 0 };
	memcpy(packet, header, header_bytes);
	vb_progress_note_work();
	send_one(&b->route, &known, packet, header_bytes + VB_ICRC_BYTES);
}

void vb_burst_append(struct vb_burst *b, const void *header, size_t header_bytes)
{
	if (!fits(b, b->flow, bytes_of(header_bytes)))
		vb_burst_flush(b);
	open_packet(b, header, header_bytes, header_bytes);
	vb_burst_commit(b);
}

bool vb_bursts_are_used(void)
{
	for (unsigned i = 0; i < VB_ARRAY_LEN(bursts); i++)
		if (vb_lock_is_taken(&bursts[i].lock))
			return true;
	return false;
}

/* What the parent's bursts held is its own to send. */
static void forget(void)
{
	for (unsigned i = 0; i < VB_ARRAY_LEN(bursts); i++) {
		vb_lock_init(&bursts[i].lock);
		bursts[i].at = bursts[i].bytes = bursts[i].count = bursts[i].num_earlier = 0;
		bursts[i].closed = false;
	}
}

__attribute__((constructor)) static void watch_forks(void)
{
	vb_host_at_fork(forget);
}

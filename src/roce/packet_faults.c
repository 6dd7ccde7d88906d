/* SPDX-License-Identifier: BSD-2-Clause */
#include "roce/packet_faults.h"

#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/lock.h"
#include "base/nanoseconds.h"
#include "host/ipc/capture.h"
#include "roce/forward.h"
#include "wire/cm_msg.h"
#include "wire/packet.h"

enum {
	MAX_HELD = 1 << 14,       /* packets; what is beyond is lost */
	OVERTAKE_NS = 10 * VB_NS_PER_MS, /* a packet that nobody overtakes goes on after that */
};

/* ---- what a packet is ---- */

static uint32_t classes_of(const struct vb_opcode_row *row)
{
	enum { ALL = 1 << VB_FAULT_OF_ALL, REQUEST = ALL | 1 << VB_FAULT_OF_REQUEST | 1 << VB_FAULT_OF_DATA,
	       ANSWER = ALL | 1 << VB_FAULT_OF_DATA };
	switch ((enum vb_operation)row->operation) {
	case VB_OP_SEND:
		return REQUEST | 1u << VB_FAULT_OF_SEND;
	case VB_OP_WRITE:
	case VB_OP_ATOMIC_WRITE:
		return REQUEST | 1u << VB_FAULT_OF_WRITE;
	case VB_OP_READ:
		return REQUEST | 1u << VB_FAULT_OF_READ;
	case VB_OP_ATOMIC:
		return REQUEST | 1u << VB_FAULT_OF_ATOMIC;
	case VB_OP_FLUSH:
		return REQUEST;
	case VB_OP_READ_RESPONSE:
		return ANSWER | 1u << VB_FAULT_OF_READ;
	case VB_OP_ATOMIC_ACK:
		return ANSWER | 1u << VB_FAULT_OF_ATOMIC;
	case VB_OP_ACK:
		return ALL | 1u << VB_FAULT_OF_ACK;
	case VB_OP_CNP:
		break;
	}
	return ALL;
}

/* A datagram says whose it is. */
static uint32_t source_of(const struct vb_roce_route *route, const struct vb_packet *packet)
{
	if (route->qpn || !vb_opcode_has(packet->row, VB_EXT_DETH))
		return route->qpn;
	return vb_deth_source_qpn((const struct vb_deth *)vb_packet_extension(packet, VB_EXT_DETH));
}

static bool is_reliable(uint8_t opcode)
{
	unsigned service = opcode >> VB_OPCODE_BITS;
	return service == VB_SERVICE_RC || service == VB_SERVICE_XRC;
}

/* qpn: of this process's queue pair. */
static struct vb_fault_subject subject_of(const struct vb_packet *packet, enum vb_fault_direction direction,
					  uint32_t qpn, const struct in6_addr *peer)
{
	bool is_cm = packet->destination_qpn == VB_GSI_QPN;
	struct vb_fault_subject s = {
		.site = VB_FAULT_PACKET,
		.direction = direction,
		.packets = is_cm ? 1u << VB_FAULT_OF_CM | 1u << VB_FAULT_OF_ALL : classes_of(packet->row),
		.qp = vb_fault_qp(qpn),
		.peer = peer->s6_addr,
	};
	s.is_repeat = is_reliable(packet->opcode) &&
		      vb_fault_repeats(direction, !packet->row->flags.request, s.qp, packet->psn);
	return s;
}

/* What all rules together do to a packet. */
struct effect {
	bool is_lost, is_corrupt, is_doubled, is_overtaken;
	uint64_t late_ns, random;
};

static struct effect effect_of(struct vb_fault_subject *subject)
{
	struct vb_fault_bite bites[VB_FAULT_RULES];
	struct effect f = { 0 };
	unsigned n = vb_fault_ask(subject, bites);
	for (unsigned i = 0; i < n; i++) {
		unsigned kind = bites[i].rule->kind;
		f.is_lost |= kind == VB_FAULT_DROP;
		f.is_doubled |= kind == VB_FAULT_DUPLICATE;
		f.is_overtaken |= kind == VB_FAULT_REORDER;
		if (kind == VB_FAULT_CORRUPT) {
			f.is_corrupt = true;
			f.random = bites[i].random;
		}
		if (kind == VB_FAULT_DELAY)
			f.late_ns = vb_max_u64(f.late_ns, vb_fault_delay_ns(&bites[i]));
	}
	return f;
}

/* ---- for captures ---- */

/* What faults do to a packet that is captured. qpn: this process's end; 0: unknown. */
static struct vb_capture_event event_of(const struct vb_packet *packet, uint32_t qpn, const struct effect *f)
{
	return (struct vb_capture_event){ .event = VB_EVENT_FAULT,
					  .qpn = qpn,
					  .opcode = packet->opcode,
					  .flags = (f->is_corrupt ? VB_EVENT_FAULT_CHANGED : 0) |
						   (f->is_doubled ? VB_EVENT_FAULT_TWICE : 0),
					  .bytes = packet->psn,
					  .queue = packet->destination_qpn };
}

/* After the packet itself was noted. */
static void note_effect(const struct vb_capture_event *e)
{
	if (vb_capture_is_on() && e->flags & ~VB_EVENT_FAULT_IN)
		vb_capture_event(e, NULL);
}

/* ---- what is held back ---- */

struct held {
	struct vb_list node;
	uint64_t due_ns, since_ns;
	struct vb_capture_event event;
	bool is_overtaken;         /* or goes as soon as another one to the same queue pair has gone */
	bool is_arrival;
	unsigned copies;
	uint32_t qpn;              /* where it goes */
	struct vb_inbox_addr addr; /* an arrival's */
	struct vb_roce_route route; /* else */
	size_t bytes;
	uint8_t packet[];
};

static void timer_fired(struct vb_timer *timer, uint64_t now_ns);

static struct vb_lock lock;
/* by the time that they are due, equal ones as they came; under lock */
static struct vb_list queue = VB_LIST_INIT(queue);
static unsigned nheld, novertaken; /* packets in it; of these, those that wait to be overtaken */
static struct vb_timer timer = { .fire = timer_fired };

static void release_one(const struct held *h)
{
	struct vb_inbox_msg msg = { .addr = h->addr,
				    .payload = h->packet,
				    .payload_bytes = h->bytes,
				    .sender_uid = (uid_t)-1,
				    .is_trusted = true };
	if (h->is_arrival)
		vb_forward(h->qpn >> VB_SLOT_SHIFT, &msg);
	else
		vb_roce_transmit_now(&h->route, h->packet, h->bytes, h->bytes);
}

static void release(struct held *h)
{
	h->event.flags |= VB_EVENT_FAULT_LATE;
	h->event.address = vb_now_ns() - h->since_ns;
	if (h->is_arrival)
		note_effect(&h->event); /* its inbox notes it once more */
	for (unsigned i = 0; i < h->copies; i++)
		release_one(h);
	if (!h->is_arrival)
		note_effect(&h->event);
	free(h);
}

static struct held *first_locked(void)
{
	return vb_list_is_empty(&queue) ? NULL : vb_container_of(queue.next, struct held, node);
}

/* Under the lock: of two threads the one that sets the timer last knows the first packet. */
static void set_timer_locked(uint64_t not_before_ns)
{
	const struct held *first = first_locked();
	if (first)
		vb_timer_set(&timer, vb_max_u64(first->due_ns, not_before_ns));
}

static void enqueue(struct held *h)
{
	vb_lock(&lock);
	struct vb_list *behind = queue.prev;
	while (behind != &queue && vb_container_of(behind, struct held, node)->due_ns > h->due_ns)
		behind = behind->prev;
	vb_list_add_tail(behind->next, &h->node); /* before what follows */
	nheld++;
	novertaken += h->is_overtaken;
	set_timer_locked(0);
	vb_unlock(&lock);
}

/* What becomes of a packet that no fault loses. */
struct parting {
	unsigned now;       /* so many of it go on at once */
	struct held *later; /* what is held back of it, or NULL */
	bool is_lost;       /* there is no room to hold it back */
};

/* Of a doubled packet that is late one copy is in time, unless nothing goes on now. */
static struct parting part(const uint8_t *packet, size_t bytes, uint32_t qpn, const struct effect *f)
{
	uint64_t now = vb_now_ns(), thaw = vb_fault_frozen_until(), due = vb_max_u64(now + f->late_ns, thaw);
	unsigned copies = 1 + f->is_doubled, late = thaw > now ? copies : 1;
	if (!f->is_overtaken && due <= now)
		return (struct parting){ .now = copies };
	vb_lock(&lock);
	bool has_room = nheld < MAX_HELD;
	vb_unlock(&lock);
	struct held *h = has_room ? malloc(sizeof(*h) + bytes) : NULL;
	if (!h)
		return (struct parting){ .now = copies - late, .is_lost = true };
	*h = (struct held){ .due_ns = f->is_overtaken ? due + OVERTAKE_NS : due,
			    .since_ns = now,
			    .is_overtaken = f->is_overtaken,
			    .copies = late,
			    .qpn = qpn,
			    .bytes = bytes };
	memcpy(h->packet, packet, bytes);
	return (struct parting){ .now = copies - late, .later = h };
}

static struct held *find_overtaken_locked(uint32_t overtaker)
{
	struct held *h;
	if (!overtaker || !novertaken)
		return NULL;
	vb_list_for_each(h, &queue, node)
		if (h->is_overtaken && h->qpn == overtaker)
			return h;
	return NULL;
}

/* The first that is due, or that a packet to this queue pair has overtaken; NULL: none. */
static struct held *take(uint64_t now_ns, uint32_t overtaker)
{
	vb_lock(&lock);
	struct held *found = first_locked();
	if (found && found->due_ns > now_ns)
		found = find_overtaken_locked(overtaker);
	if (found) {
		vb_list_del(&found->node);
		nheld--;
		novertaken -= found->is_overtaken;
	}
	vb_unlock(&lock);
	return found;
}

static void release_due(uint64_t now_ns, uint32_t overtaker)
{
	struct held *h;
	while ((h = take(now_ns, overtaker)))
		release(h);
}

/* What was held back before a freeze waits for its end, too. */
static void timer_fired(struct vb_timer *t, uint64_t now_ns)
{
	uint64_t thaw = vb_fault_frozen_until();
	if (thaw <= now_ns)
		release_due(now_ns, 0);
	vb_lock(&lock);
	set_timer_locked(thaw);
	vb_unlock(&lock);
}

/* ---- on the way out ---- */

/* Behind the BTH, of which the ICRC does not cover all. */
static void change_a_bit(uint8_t *packet, size_t bytes, uint64_t random)
{
	uint64_t bit = random % ((bytes - VB_BTH_BYTES) * 8);
	packet[VB_BTH_BYTES + bit / 8] ^= (uint8_t)(1u << bit % 8);
}

static int depart(const struct vb_roce_route *route, uint8_t *bytes, size_t len)
{
	struct vb_packet packet;
	int err = 0;
	if (vb_fault_is_cut(&route->addr.src, &route->addr.dst)) {
		vb_roce_note_loss(route, bytes, len);
		return 0;
	}
	if (vb_packet_parse(bytes, len - VB_ICRC_BYTES, &packet))
		return vb_roce_transmit_now(route, bytes, len, len);
	struct vb_fault_subject subject =
		subject_of(&packet, VB_FAULT_OUT, source_of(route, &packet), &route->addr.dst);
	struct effect f = effect_of(&subject);
	if (f.is_lost) {
		vb_roce_note_loss(route, bytes, len);
		return 0;
	}
	if (f.is_corrupt)
		change_a_bit(bytes, len, f.random);
	struct vb_capture_event event = event_of(&packet, route->qpn, &f);
	struct parting p = part(bytes, len, packet.destination_qpn, &f);
	for (; p.now; p.now--)
		err = vb_roce_transmit_now(route, bytes, len, len);
	if (p.is_lost) {
		vb_roce_note_loss(route, bytes, len);
		return err;
	}
	if (p.later) {
		p.later->route = *route;
		p.later->event = event;
		enqueue(p.later);
		return 0;
	}
	note_effect(&event);
	release_due(0, packet.destination_qpn);
	return err;
}

/* One by one, so each has the IPv4 identification 0 instead of its place among the others. */
int vb_roce_transmit_faulty(const struct vb_roce_route *route, const void *bytes, size_t len, size_t segment)
{
	uint8_t packet[VB_ROCE_PACKET_BYTES];
	int err = 0;
	for (size_t at = 0; at < len && !err; at += segment) {
		size_t n = vb_min_u64(segment, len - at);
		if (n > sizeof(packet))
			return vb_roce_transmit_now(route, bytes, len, segment);
		memcpy(packet, (const uint8_t *)bytes + at, n);
		if (at)
			vb_icrc_sign(&route->icrc, NULL, packet, n, 0);
		err = depart(route, packet, n);
	}
	return err;
}

/* ---- on the way in ---- */

/* A packet that is changed on its way is one whose ICRC is wrong: it is dropped. */
unsigned vb_roce_fault_arrives(const struct vb_inbox_msg *msg)
{
	struct vb_packet packet;
	struct effect f = { .is_lost = vb_fault_is_cut(&msg->addr.dst, &msg->addr.src) };
	if (vb_packet_parse(msg->payload, msg->payload_bytes, &packet))
		return !f.is_lost;
	if (!f.is_lost) {
		struct vb_fault_subject subject =
			subject_of(&packet, VB_FAULT_IN, packet.destination_qpn, &msg->addr.src);
		f = effect_of(&subject);
	}
	struct vb_capture_event event = event_of(&packet, packet.destination_qpn, &f);
	event.flags |= VB_EVENT_FAULT_IN;
	if (f.is_lost || f.is_corrupt) {
		event.flags |= VB_EVENT_FAULT_LOST;
		note_effect(&event);
		return 0;
	}
	struct parting p = packet.destination_qpn == VB_MULTICAST_QPN ?
				   (struct parting){ .now = 1 + f.is_doubled } :
				   part(msg->payload, msg->payload_bytes, packet.destination_qpn, &f);
	if (p.later) {
		p.later->is_arrival = true;
		p.later->addr = msg->addr;
		p.later->event = event;
		enqueue(p.later);
		return p.now;
	}
	if (p.is_lost) {
		event.flags |= VB_EVENT_FAULT_LOST;
		note_effect(&event);
		return p.now;
	}
	note_effect(&event);
	release_due(0, packet.destination_qpn);
	return p.now;
}

/* What is held is the parent's to let go. */
static void forget(void)
{
	vb_lock_init(&lock);
	vb_list_init(&queue);
	nheld = novertaken = 0;
}

__attribute__((constructor)) static void watch_forks(void)
{
	vb_host_at_fork(forget);
}

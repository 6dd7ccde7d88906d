/* SPDX-License-Identifier: BSD-2-Clause */
#include "proto/rsocket/rs_stream.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>

/* Write ids: the kind, and the bytes of the send ring that its completion frees. */
enum kind { SENT_DATA, SENT_CONTROL, SENT_DISCONNECT };
enum { KIND_SHIFT = 32 };

static uint64_t make_id(enum kind kind, uint32_t ring_bytes)
{
	return (uint64_t)kind << KIND_SHIFT | ring_bytes;
}

static uint32_t half(const struct vb_rs_stream *s) { return s->config.receive_bytes / 2; }

void vb_rs_stream_init(struct vb_rs_stream *s, const struct vb_rs_stream_config *config)
{
	*s = (struct vb_rs_stream){
		.config = *config,
		.requests_free = config->send_queue - VB_RS_CONTROLS,
		.controls_free = VB_RS_CONTROLS,
		.granted = config->receive_bytes / 2,
	};
}

/* ---- offers ---- */

void vb_rs_stream_offer(const struct vb_rs_stream *s, struct vb_rs_offer *offer)
{
	const struct vb_rs_stream_config *c = &s->config;

	*offer = (struct vb_rs_offer){ 0 };
	vb_rs_offer_set_version(offer, VB_RS_VERSION);
	vb_rs_offer_set_flags(offer,
			      VB_RS_FLAG_IOMAP | (vb_rs_host_is_big_endian() ? VB_RS_FLAG_BIG_ENDIAN : 0));
	vb_rs_offer_set_credits(offer, c->receive_queue);
	vb_rs_offer_set_iomap_size(offer, vb_rs_iomap_code(c->iomap_entries));
	vb_rs_offer_set_segments_address(offer, c->tables_address);
	vb_rs_offer_set_segments_key(offer, c->tables_key);
	vb_rs_offer_set_num_segments(offer, VB_RS_SEGMENTS);
	vb_rs_offer_set_buffer_address(offer, c->buffer_address);
	vb_rs_offer_set_buffer_key(offer, c->buffer_key);
	vb_rs_offer_set_buffer_bytes(offer, half(s));
}

/* Two segments are granted at a time, and each needs an entry. */
static bool is_workable(const struct vb_rs_offer *o)
{
	return vb_rs_offer_num_segments(o) >= VB_RS_SEGMENTS && vb_rs_offer_num_segments(o) <= UINT16_MAX;
}

int vb_rs_stream_take_offer(struct vb_rs_stream *s, const void *bytes, size_t len)
{
	struct vb_rs_offer o;

	if (len < sizeof(o.b))
		return -EPROTO;
	memcpy(o.b, bytes, sizeof(o.b));
	if (vb_rs_offer_version(&o) != VB_RS_VERSION)
		return -ENOTSUP;
	if (!is_workable(&o))
		return -EPROTO;
	uint32_t flags = vb_rs_offer_flags(&o);
	s->swaps = !(flags & VB_RS_FLAG_BIG_ENDIAN) == vb_rs_host_is_big_endian();
	s->peer_tables = vb_rs_offer_segments_address(&o);
	s->peer_key = vb_rs_offer_segments_key(&o);
	s->peer_segments = vb_rs_offer_num_segments(&o);
	s->peer_iomap =
		flags & VB_RS_FLAG_IOMAP ? vb_rs_iomap_entries((uint8_t)vb_rs_offer_iomap_size(&o)) : 0;
	s->next_grant = 1; /* the offer had the first */
	s->allowed = (uint16_t)vb_rs_offer_credits(&o);
	s->target = (struct vb_rs_segment){ vb_rs_offer_buffer_address(&o), vb_rs_offer_buffer_key(&o),
					    vb_rs_offer_buffer_bytes(&o) };
	s->next_target = 1;
	return 0;
}

/* ---- sending ---- */

/* The next segment, once the peer has written it. Empties the entry, to notice the next write to it. */
static void load_target(struct vb_rs_stream *s)
{
	volatile struct vb_rs_segment *entry = &s->config.tables->segments[s->next_target];
	struct vb_rs_segment copy = { .bytes = entry->bytes };

	s->credit_came = copy.bytes != 0;
	if (!s->credit_came)
		return;
	/* the peer's WRITE may be in progress; `bytes` is the last that it writes */
	atomic_thread_fence(memory_order_acquire);
	copy.address = entry->address;
	copy.key = entry->key;
	entry->bytes = 0;
	s->target = copy;
	s->next_target = (s->next_target + 1) % VB_RS_SEGMENTS;
}

static uint32_t low_water(const struct vb_rs_stream *s)
{
	return vb_min_u32(VB_RS_LOW_WATER, s->config.send_bytes / 2);
}

uint32_t vb_rs_stream_direct_room(const struct vb_rs_stream *s)
{
	uint32_t unused = s->config.send_bytes - s->ring_used;

	if (s->link != VB_RS_UP || s->outgoing != VB_RS_OPEN || !s->requests_free || s->is_full)
		return 0;
	return vb_min_u32(unused, s->config.send_bytes - s->ring_next);
}

uint32_t vb_rs_stream_room(struct vb_rs_stream *s)
{
	uint32_t room = vb_rs_stream_direct_room(s);

	if (!room || s->sent == s->allowed)
		return 0;
	if (!s->target.bytes && s->credit_came)
		load_target(s);
	return vb_min_u32(room, vb_min_u32(s->target.bytes, VB_RS_MOST_BYTES));
}

/* Takes a request of the send queue, and the ring's bytes unless the write is inline. */
static void take_request(struct vb_rs_stream *s, uint32_t bytes, bool is_inline, struct vb_rs_write *out)
{
	uint32_t ring_bytes = is_inline ? 0 : bytes;

	out->source = VB_RS_FROM_RING;
	out->bytes = bytes;
	out->ring_offset = s->ring_next;
	out->id = make_id(SENT_DATA, ring_bytes);
	s->requests_free--;
	s->ring_used += ring_bytes;
	s->ring_next += ring_bytes;
	if (s->ring_next == s->config.send_bytes)
		s->ring_next = 0;
	if (s->config.send_bytes - s->ring_used < low_water(s))
		s->is_full = true;
}

void vb_rs_stream_send(struct vb_rs_stream *s, uint32_t bytes, bool is_inline, struct vb_rs_write *out)
{
	assert(bytes && bytes <= s->target.bytes && s->sent != s->allowed);
	take_request(s, bytes, is_inline, out);
	out->remote_address = s->target.address;
	out->remote_key = s->target.key;
	out->has_message = true;
	out->message = vb_rs_message_make(VB_RS_DATA, bytes);
	s->target.address += bytes;
	s->target.bytes -= bytes;
	s->sent++;
	s->is_posting = true;
}

void vb_rs_stream_send_direct(struct vb_rs_stream *s, uint32_t bytes, bool is_inline,
			      const struct vb_rs_iomap *to, uint64_t offset, struct vb_rs_write *out)
{
	take_request(s, bytes, is_inline, out);
	out->remote_address = to->segment.address + (offset - to->offset);
	out->remote_key = to->segment.key;
	out->has_message = false;
	out->message = 0;
	s->is_posting = true;
}

static bool copy_iomap(volatile struct vb_rs_iomap *entry, uint64_t offset, struct vb_rs_iomap *out)
{
	out->offset = entry->offset;
	out->segment.address = entry->segment.address;
	out->segment.key = entry->segment.key;
	out->segment.bytes = entry->segment.bytes;
	return offset >= out->offset && offset - out->offset < out->segment.bytes;
}

bool vb_rs_stream_find_iomap(const struct vb_rs_stream *s, uint64_t offset, struct vb_rs_iomap *out)
{
	for (uint32_t i = 0; i < s->config.iomap_entries; i++)
		if (copy_iomap(&s->config.tables->iomap[i], offset, out))
			return true;
	return false;
}

bool vb_rs_stream_has_credit(const struct vb_rs_stream *s)
{
	return s->link == VB_RS_UP && s->outgoing == VB_RS_OPEN && s->requests_free && s->sent != s->allowed;
}

bool vb_rs_stream_send_iomap(struct vb_rs_stream *s, uint32_t index, const struct vb_rs_iomap *entry,
			     struct vb_rs_write *out)
{
	assert(index < s->peer_iomap);
	if (!vb_rs_stream_has_credit(s))
		return false;
	take_request(s, sizeof(*entry), true, out);
	out->source = VB_RS_FROM_ENTRY;
	out->entry.iomap = *entry;
	if (s->swaps) {
		out->entry.iomap.offset = __builtin_bswap64(entry->offset);
		vb_rs_segment_swap(&out->entry.iomap.segment);
	}
	out->remote_address =
		s->peer_tables + s->peer_segments * sizeof(struct vb_rs_segment) + index * sizeof(*entry);
	out->remote_key = s->peer_key;
	out->has_message = true;
	out->message = vb_rs_message_make(VB_RS_IOMAP, index);
	s->sent++;
	return true;
}

void vb_rs_stream_sent(struct vb_rs_stream *s, uint64_t id)
{
	switch ((enum kind)(id >> KIND_SHIFT)) {
	case SENT_DATA:
		s->requests_free++;
		s->ring_used -= (uint32_t)id;
		if (s->ring_used <= s->config.send_bytes / 2)
			s->is_full = false;
		return;
	case SENT_DISCONNECT:
		if (s->link == VB_RS_UP)
			s->link = VB_RS_CLOSED;
		s->controls_free++;
		return;
	case SENT_CONTROL:
		s->controls_free++;
		return;
	}
}

/* ---- control messages ---- */

/* May the next half be granted? The peer must have used up the entry that it goes to, too. */
static bool grant_is_due(const struct vb_rs_stream *s)
{
	uint64_t in_use = s->granted / half(s) - s->received / half(s);

	return s->granted + half(s) <= s->consumed + s->config.receive_bytes && in_use < s->peer_segments;
}

static bool credit_is_due(const struct vb_rs_stream *s)
{
	return (uint16_t)(s->finished - s->credited) >= s->config.receive_queue / 2;
}

static void message_only(struct vb_rs_write *out, enum kind kind, uint32_t message)
{
	*out = (struct vb_rs_write){
		.id = make_id(kind, 0), .source = VB_RS_FROM_NOTHING, .has_message = true, .message = message
	};
}

static void make_credit(struct vb_rs_stream *s, struct vb_rs_write *out)
{
	message_only(out, SENT_CONTROL,
		     vb_rs_message_make(VB_RS_CREDIT, (uint16_t)(s->finished + s->config.receive_queue)));
	s->credited = s->finished;
}

/* The CREDIT message also brings credits. */
static void make_grant(struct vb_rs_stream *s, struct vb_rs_write *out)
{
	struct vb_rs_segment *entry = &out->entry.segment;

	make_credit(s, out);
	out->source = VB_RS_FROM_ENTRY;
	out->bytes = sizeof(*entry);
	*entry = (struct vb_rs_segment){ s->config.buffer_address + s->granted % s->config.receive_bytes,
					 s->config.buffer_key, half(s) };
	if (s->swaps)
		vb_rs_segment_swap(entry);
	out->remote_address = s->peer_tables + s->next_grant * sizeof(*entry);
	out->remote_key = s->peer_key;
	s->granted += half(s);
	s->next_grant = (s->next_grant + 1) % s->peer_segments;
}

static void make_end(struct vb_rs_stream *s, struct vb_rs_write *out)
{
	bool is_last = s->end_message == VB_RS_DISCONNECT || s->incoming == VB_RS_ENDED;

	message_only(out, is_last ? SENT_DISCONNECT : SENT_CONTROL,
		     vb_rs_message_make(VB_RS_CONTROL, s->end_message));
	s->end_is_due = false;
}

/* An empty write without a message: only the peer's adapter answers. */
static void make_keepalive(struct vb_rs_stream *s, struct vb_rs_write *out)
{
	message_only(out, SENT_CONTROL, 0);
	out->has_message = false;
	s->keepalive_due = false;
}

bool vb_rs_stream_control(struct vb_rs_stream *s, struct vb_rs_write *out)
{
	if (s->link != VB_RS_UP || !s->controls_free)
		return false;
	if (grant_is_due(s))
		make_grant(s, out);
	else if (credit_is_due(s))
		make_credit(s, out);
	else if (s->end_is_due && !s->is_posting)
		make_end(s, out);
	else if (s->keepalive_due)
		make_keepalive(s, out);
	else
		return false;
	s->controls_free--;
	return true;
}

bool vb_rs_stream_is_idle(const struct vb_rs_stream *s)
{
	return !vb_rs_stream_has_unacked(s) && s->controls_free == VB_RS_CONTROLS && !s->end_is_due;
}

/* ---- receiving ---- */

static int receive_data(struct vb_rs_stream *s, uint32_t bytes)
{
	if (bytes > s->granted - s->received || s->num_unread == s->config.receive_queue)
		return -EPROTO;
	if (!bytes) {
		s->finished++;
		return 0;
	}
	s->config.unread[(s->unread_first + s->num_unread++) % s->config.receive_queue] = bytes;
	s->received += bytes;
	return 0;
}

static void receive_control(struct vb_rs_stream *s, uint32_t what)
{
	if (what == VB_RS_DISCONNECT) {
		s->incoming = s->outgoing = VB_RS_ENDED;
		s->link = VB_RS_PEER_CLOSED;
	} else if (what == VB_RS_SHUTDOWN) {
		s->incoming = VB_RS_ENDED;
		if (s->outgoing != VB_RS_OPEN && !s->end_is_due) /* else the peer does not know yet */
			s->link = VB_RS_PEER_CLOSED;
	}
}

int vb_rs_stream_receive(struct vb_rs_stream *s, uint32_t message)
{
	uint32_t value = vb_rs_message_value(message);

	if (s->link == VB_RS_PEER_CLOSED || s->link == VB_RS_BROKEN)
		return 0;
	switch (vb_rs_message_type(message)) {
	case VB_RS_DATA:
		return receive_data(s, value);
	case VB_RS_CREDIT:
		s->allowed = (uint16_t)value;
		s->credit_came = true;
		return 0;
	case VB_RS_IOMAP:
		s->finished++; /* returns its credit: there is nothing to read */
		return 0;
	case VB_RS_CONTROL:
		receive_control(s, value);
		return 0;
	default:
		return -EPROTO;
	}
}

uint32_t vb_rs_stream_peek(const struct vb_rs_stream *s, uint64_t skip, uint32_t *offset)
{
	uint64_t waiting = s->received - s->consumed;

	*offset = (uint32_t)((s->consumed + skip) % s->config.receive_bytes);
	return skip < waiting ? (uint32_t)vb_min_u64(waiting - skip, s->config.receive_bytes - *offset) : 0;
}

uint32_t vb_rs_stream_readable(const struct vb_rs_stream *s, uint32_t *offset)
{
	return vb_rs_stream_peek(s, 0, offset);
}

bool vb_rs_stream_is_full(const struct vb_rs_stream *s)
{
	bool has_room = s->granted != s->received || grant_is_due(s);
	uint16_t credits_used = (uint16_t)(s->finished + s->num_unread - s->credited);

	return !has_room || (credits_used >= s->config.receive_queue && !credit_is_due(s));
}

void vb_rs_stream_consume(struct vb_rs_stream *s, uint32_t bytes)
{
	assert(bytes <= s->received - s->consumed);
	s->consumed += bytes;
	while (bytes) {
		uint32_t *first = &s->config.unread[s->unread_first];
		uint32_t n = vb_min_u32(*first, bytes);

		bytes -= n;
		*first -= n;
		if (*first)
			return;
		s->unread_first = (s->unread_first + 1) % s->config.receive_queue;
		s->num_unread--;
		s->finished++;
	}
}

/* ---- ends ---- */

static void plan_end(struct vb_rs_stream *s, enum vb_rs_control end_message)
{
	s->end_is_due = true;
	s->end_message = end_message;
}

void vb_rs_stream_shut_reading(struct vb_rs_stream *s)
{
	if (s->incoming != VB_RS_OPEN)
		return;
	s->incoming = VB_RS_SHUT;
	if (s->outgoing != VB_RS_OPEN)
		plan_end(s, VB_RS_DISCONNECT);
}

void vb_rs_stream_shut_writing(struct vb_rs_stream *s)
{
	if (s->outgoing != VB_RS_OPEN)
		return;
	s->outgoing = VB_RS_SHUT;
	plan_end(s, s->incoming == VB_RS_OPEN ? VB_RS_SHUTDOWN : VB_RS_DISCONNECT);
}

void vb_rs_stream_break(struct vb_rs_stream *s)
{
	s->incoming = s->outgoing = VB_RS_ENDED;
	s->link = VB_RS_BROKEN;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A hostile peer of an rsocket, whatever its user does at the same time.
 *
 * Input: the peer's offer, then steps: messages that it sends, bytes that it writes into our tables,
 * completions, and the user's writes, reads, direct writes, mappings and shutdowns.
 *
 * Invariants: those of proto/rsocket/rs_stream.h; what is posted stays inside our send ring and what is
 * readable inside our receive ring; a refused message changes nothing; writes go only where the peer's offer
 * and tables said.
 */
#include <errno.h>

#include "fuzz.h"
#include "proto/rsocket/rs_stream.h"

enum { RING = 1024, QUEUE = 20, IOMAP = 3, MAX_STEPS = 2000 };

static struct vb_rs_stream s;
static uint32_t unread[QUEUE];
static union {
	struct vb_rs_tables t;
	uint8_t room[sizeof(struct vb_rs_tables) + IOMAP * sizeof(struct vb_rs_iomap)];
} tables;
static uint64_t ids[QUEUE];
static unsigned num_ids;

static void check(void)
{
	uint64_t sum = 0;

	must(s.consumed <= s.received && s.received <= s.granted && s.granted <= s.consumed + RING);
	must(s.num_unread <= QUEUE && s.unread_first < QUEUE);
	for (uint32_t i = 0; i < s.num_unread; i++) {
		uint32_t bytes = unread[(s.unread_first + i) % QUEUE];
		must(bytes > 0);
		sum += bytes;
	}
	must(sum == s.received - s.consumed);
	must(s.requests_free <= QUEUE - VB_RS_CONTROLS && s.controls_free <= VB_RS_CONTROLS);
	must(s.requests_free + s.controls_free + num_ids == QUEUE);
	must(s.ring_used <= RING && s.ring_next < RING);
	must(s.link == VB_RS_UP || s.link == VB_RS_CLOSED ||
	     (s.incoming != VB_RS_OPEN && s.outgoing != VB_RS_OPEN));
}

static void post(const struct vb_rs_write *w)
{
	must(num_ids < QUEUE);
	ids[num_ids++] = w->id;
	if (w->source == VB_RS_FROM_RING)
		must(w->bytes > 0 && w->bytes <= RING);
	if (w->source == VB_RS_FROM_NOTHING)
		must(w->bytes == 0);
}

static void complete(void)
{
	if (!num_ids)
		return;
	vb_rs_stream_sent(&s, ids[0]);
	memmove(ids, ids + 1, --num_ids * sizeof(ids[0]));
}

static void control(void)
{
	struct vb_rs_write w;

	while (vb_rs_stream_control(&s, &w))
		post(&w);
}

static void receive(struct fuzz_input *in)
{
	uint8_t choice = take(in);
	uint32_t message = choice & 1 ? take32(in) :
					vb_rs_message_make((enum vb_rs_message)(choice >> 5),
							   take(in) * (choice & 2 ? 16u : 1u));
	struct vb_rs_stream before = s;

	if (vb_rs_stream_receive(&s, message)) {
		must(memcmp(&before, &s, sizeof(s)) == 0);
		if (choice & 4)
			vb_rs_stream_break(&s);
	}
}

static void user_write(struct fuzz_input *in)
{
	uint32_t room = vb_rs_stream_room(&s), n = 1 + take(in) * 3u;
	bool is_inline = take(in) & 1;
	struct vb_rs_write w;

	if (!room)
		return;
	must(s.outgoing == VB_RS_OPEN && s.link == VB_RS_UP);
	n = n < room ? n : room;
	vb_rs_stream_send(&s, n, is_inline, &w);
	must(is_inline || w.ring_offset + w.bytes <= RING);
	must(vb_rs_message_type(w.message) == VB_RS_DATA && vb_rs_message_value(w.message) == n);
	post(&w);
	vb_rs_stream_posted(&s);
}

static void user_read(struct fuzz_input *in)
{
	uint32_t offset, n = vb_rs_stream_readable(&s, &offset), want = 1 + take(in) * 5u;

	must(offset < RING && offset + n <= RING);
	must(n <= s.received - s.consumed);
	if (n)
		vb_rs_stream_consume(&s, want < n ? want : n);
	(void)vb_rs_stream_peek(&s, take(in), &offset);
	must(offset < RING);
}

static void user_write_directly(struct fuzz_input *in)
{
	uint64_t offset = take(in);
	struct vb_rs_iomap to;
	struct vb_rs_write w;

	if (take(in) & 1)
		offset = (uint64_t)take32(in) << 32 | take32(in);
	if (!vb_rs_stream_direct_room(&s) || !vb_rs_stream_find_iomap(&s, offset, &to))
		return;
	must(offset >= to.offset && offset - to.offset < to.segment.bytes);
	vb_rs_stream_send_direct(&s, 1, false, &to, offset, &w);
	must(w.remote_key == to.segment.key && w.remote_address == to.segment.address + (offset - to.offset));
	post(&w);
	vb_rs_stream_posted(&s);
}

static void user_maps(struct fuzz_input *in)
{
	struct vb_rs_iomap entry = { take(in), { 0x1000, 5, 100 } };
	uint32_t n = vb_rs_stream_peer_iomap(&s);
	struct vb_rs_write w;

	if (n && vb_rs_stream_send_iomap(&s, take32(in) % n, &entry, &w))
		post(&w);
}

static void begin(struct fuzz_input *in)
{
	struct vb_rs_stream_config c = {
		.send_queue = QUEUE,
		.receive_queue = QUEUE,
		.send_bytes = RING,
		.receive_bytes = RING,
		.iomap_entries = IOMAP,
		.tables = &tables.t,
		.unread = unread,
		.tables_address = 0x1000,
		.buffer_address = 0x100000,
	};
	struct vb_rs_offer o;
	uint8_t changes = take(in);

	memset(&tables, 0, sizeof(tables));
	num_ids = 0;
	vb_rs_stream_init(&s, &c);
	vb_rs_stream_offer(&s, &o);
	for (unsigned i = changes % 8; i > 0; i--)
		o.b[take(in) % sizeof(o.b)] = take(in);
	if (vb_rs_stream_take_offer(&s, o.b, changes & 0x80 ? take(in) % (sizeof(o.b) + 1) : sizeof(o.b)))
		vb_rs_stream_break(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };

	begin(&in);
	for (unsigned i = 0; in.left && i < MAX_STEPS; i++) {
		switch (take(&in) % 12) {
		case 0:
		case 1: receive(&in); break;
		case 2: tables.room[take(&in) % sizeof(tables)] = take(&in); break;
		case 3: complete(); break;
		case 4: control(); break;
		case 5: user_write(&in); break;
		case 6:
		case 7: user_read(&in); break;
		case 8: user_write_directly(&in); break;
		case 9: user_maps(&in); break;
		case 10: vb_rs_stream_keep_alive(&s); break;
		case 11:
			if (take(&in) % 16 == 0)
				vb_rs_stream_shut_writing(&s);
			else if (take(&in) % 16 == 0)
				vb_rs_stream_shut_reading(&s);
			break;
		}
		check();
	}
	return 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two ends of the stream protocol of rsockets, joined as a reliable connection joins them: writes arrive in
 * order, each completes some time after it arrived. Users write, read, shut directions, map memory and write
 * it directly, at random times and sizes.
 *
 * Checked: writes stay inside what was offered; what is read is what was written, in order, from the first
 * byte to the end; direct writes land before what follows them; no end refuses what the other says; and when
 * both have nothing to do any more, all that was written has been read, all work has completed, and each end
 * knows that it is over.
 */
#include <stdio.h>

#include "proto/rsocket/rs_stream.h"
#include "sim.h"

enum { MAX_RING = 16384, MAX_IOMAP = 4, MAPPED = 4096, MAX_QUEUE = 64, MAX_INLINE = 100, MAX_STAMPS = 512 };

struct flight {
	struct vb_rs_write write;
	uint8_t bytes[MAX_INLINE]; /* of an entry, or the program's */
	bool is_copied, has_arrived;
};

/* Memory of an end, as the other addresses it. */
struct end {
	struct vb_rs_stream s;
	struct vb_rs_stream_config config;
	union {
		struct vb_rs_tables t;
		uint8_t room[sizeof(struct vb_rs_tables) + MAX_IOMAP * sizeof(struct vb_rs_iomap)];
	} tables;
	uint8_t send_ring[MAX_RING], receive_ring[MAX_RING], mapped[MAPPED];
	uint32_t unread[MAX_QUEUE];
	struct flight flights[MAX_QUEUE]; /* a ring */
	unsigned first, num;
	uint64_t written, read, to_write;
	unsigned inline_bytes;
	uint64_t stamps[MAX_STAMPS]; /* direct writes: each says how many bytes were written before it */
	unsigned num_stamps;
};

static struct end ends[2];
static uint64_t bytes_moved, worlds;

enum { TABLES_AT = 0x10000, RING_AT = 0x100000, MAPPED_AT = 0x200000 };

static uint8_t byte_at(unsigned end, uint64_t place)
{
	return (uint8_t)(((place + end) * UINT64_C(0x9e3779b97f4a7c15)) >> 56);
}

/* ---- the connection ---- */

static void post(unsigned from, const struct vb_rs_write *w, const uint8_t *payload)
{
	struct end *e = &ends[from];

	CHECK(e->num < e->config.send_queue, "the send queue overflows");
	struct flight *f = &e->flights[(e->first + e->num++) % MAX_QUEUE];
	*f = (struct flight){ .write = *w, .is_copied = payload || w->source == VB_RS_FROM_ENTRY };
	if (w->source == VB_RS_FROM_ENTRY)
		memcpy(f->bytes, &w->entry, w->bytes);
	else if (payload)
		memcpy(f->bytes, payload, w->bytes);
	else
		CHECK(w->bytes == 0 || w->ring_offset + w->bytes <= e->config.send_bytes,
		      "a write from outside the send ring");
	CHECK(w->source != VB_RS_FROM_NOTHING || !w->bytes, "bytes from nowhere");
}

static uint8_t *memory_at(struct end *e, uint64_t address, uint32_t bytes, uint32_t key)
{
	CHECK(key == 7, "a wrong key");
	if (address >= TABLES_AT && address + bytes <= TABLES_AT + sizeof(e->tables))
		return (uint8_t *)&e->tables + (address - TABLES_AT);
	if (address >= RING_AT && address + bytes <= RING_AT + e->config.receive_bytes)
		return e->receive_ring + (address - RING_AT);
	CHECK(address >= MAPPED_AT && address + bytes <= MAPPED_AT + MAPPED, "a write to %llx",
	      (unsigned long long)address);
	return e->mapped + (address - MAPPED_AT);
}

static void arrive(unsigned from, struct flight *f)
{
	struct end *to = &ends[!from];
	const struct vb_rs_write *w = &f->write;

	/* As an adapter does, the ring is read now: nobody may have changed it since the write was posted. */
	if (w->bytes)
		memcpy(memory_at(to, w->remote_address, w->bytes, w->remote_key),
		       f->is_copied ? f->bytes : ends[from].send_ring + w->ring_offset, w->bytes);
	f->has_arrived = true;
	if (w->has_message)
		CHECK(vb_rs_stream_receive(&to->s, w->message) == 0, "message %08x is refused", w->message);
}

static bool deliver_one(unsigned from)
{
	struct end *e = &ends[from];

	for (unsigned i = 0; i < e->num; i++) {
		struct flight *f = &e->flights[(e->first + i) % MAX_QUEUE];
		if (!f->has_arrived) {
			arrive(from, f);
			return true;
		}
	}
	return false;
}

static bool complete_one(unsigned from)
{
	struct end *e = &ends[from];

	if (!e->num || !e->flights[e->first].has_arrived)
		return false;
	vb_rs_stream_sent(&e->s, e->flights[e->first].write.id);
	e->first = (e->first + 1) % MAX_QUEUE;
	e->num--;
	return true;
}

static void flush(unsigned i)
{
	struct vb_rs_write w;

	while (vb_rs_stream_control(&ends[i].s, &w))
		post(i, &w, NULL);
}

/* ---- users ---- */

static void fill(unsigned i, uint8_t *at, uint32_t n)
{
	for (uint32_t k = 0; k < n; k++)
		at[k] = byte_at(i, ends[i].written + k);
}

static bool write_some(unsigned i)
{
	struct end *e = &ends[i];
	uint32_t room = vb_rs_stream_room(&e->s);
	uint8_t bytes[MAX_INLINE];
	struct vb_rs_write w;

	if (!room || e->written == e->to_write)
		return false;
	uint32_t n = 1 + sim_pick(sim_pick(3) ? room : vb_min_u32(room, 100));
	n = (uint32_t)vb_min_u64(n, e->to_write - e->written);
	CHECK(!vb_rs_stream_is_full(&ends[!i].s), "the full end %u gets more", !i);
	bool is_inline = n <= e->inline_bytes;
	vb_rs_stream_send(&e->s, n, is_inline, &w);
	fill(i, is_inline ? bytes : e->send_ring + w.ring_offset, n);
	e->written += n;
	post(i, &w, is_inline ? bytes : NULL);
	vb_rs_stream_posted(&e->s);
	return true;
}

static bool read_some(unsigned i)
{
	struct end *e = &ends[i];
	uint32_t offset, n = vb_rs_stream_readable(&e->s, &offset);

	if (!n)
		return false;
	CHECK(offset + n <= e->config.receive_bytes, "readable bytes outside the ring");
	n = 1 + sim_pick(n);
	for (uint32_t k = 0; k < n; k++)
		CHECK(e->receive_ring[offset + k] == byte_at(!i, e->read + k), "byte %llu of end %u is wrong",
		      (unsigned long long)(e->read + k), i);
	e->read += n;
	bytes_moved += n;
	vb_rs_stream_consume(&e->s, n);
	flush(i);
	return true;
}

/* The peer's user gets an entry of our memory. */
static bool map_some(unsigned i)
{
	struct end *e = &ends[i];
	struct vb_rs_iomap entry = { 100, { MAPPED_AT, 7, MAPPED } };
	struct vb_rs_write w;

	if (!vb_rs_stream_peer_iomap(&e->s))
		return false;
	if (!vb_rs_stream_send_iomap(&e->s, sim_pick(vb_rs_stream_peer_iomap(&e->s)), &entry, &w))
		return false;
	post(i, &w, NULL);
	return true;
}

/* Says in the peer's memory how much we have written: it must be there before what is written next. */
static bool write_directly(unsigned i)
{
	struct end *e = &ends[i];
	struct vb_rs_iomap to;
	struct vb_rs_write w;

	if (e->num_stamps == MAX_STAMPS || vb_rs_stream_direct_room(&e->s) < sizeof(e->written) ||
	    !vb_rs_stream_find_iomap(&e->s, 100, &to))
		return false;
	bool is_inline = sizeof(e->written) <= e->inline_bytes;
	vb_rs_stream_send_direct(&e->s, sizeof(e->written), is_inline, &to, 100, &w);
	if (!is_inline)
		memcpy(e->send_ring + w.ring_offset, &e->written, sizeof(e->written));
	e->stamps[e->num_stamps++] = e->written;
	post(i, &w, is_inline ? (const uint8_t *)&e->written : NULL);
	vb_rs_stream_posted(&e->s);
	return true;
}

static void check_stamps(unsigned i)
{
	const struct end *e = &ends[i], *peer = &ends[!i];
	unsigned k = peer->num_stamps;
	uint64_t seen;

	memcpy(&seen, e->mapped, sizeof(seen));
	while (k && peer->stamps[k - 1] >= e->read)
		k--;
	CHECK(!k || seen >= peer->stamps[k - 1], "a direct write is late");
}

static bool shut(unsigned i)
{
	struct end *e = &ends[i];

	if (e->written < e->to_write || e->s.outgoing != VB_RS_OPEN)
		return false;
	vb_rs_stream_shut_writing(&e->s);
	flush(i);
	return true;
}

/* ---- a world ---- */

static void begin(unsigned size)
{
	for (unsigned i = 0; i < 2; i++) {
		struct end *e = &ends[i];

		memset(e, 0, sizeof(*e));
		e->config = (struct vb_rs_stream_config){
			.send_queue = (uint16_t)(VB_RS_MIN_QUEUE + sim_pick(MAX_QUEUE - VB_RS_MIN_QUEUE)),
			.receive_queue = (uint16_t)(VB_RS_MIN_QUEUE + sim_pick(MAX_QUEUE - VB_RS_MIN_QUEUE)),
			.send_bytes = VB_RS_MIN_BYTES * (1 + sim_pick(MAX_RING / VB_RS_MIN_BYTES)),
			.receive_bytes = VB_RS_MIN_BYTES * (1 + sim_pick(MAX_RING / VB_RS_MIN_BYTES)),
			.iomap_entries = sim_pick(MAX_IOMAP + 1),
			.tables = &e->tables.t,
			.unread = e->unread,
			.tables_address = TABLES_AT,
			.buffer_address = RING_AT,
			.tables_key = 7,
			.buffer_key = 7,
		};
		e->inline_bytes = sim_pick(3) ? sim_pick(MAX_INLINE + 1) : 0;
		e->to_write = sim_pick(4) ? sim_pick(200 * size) : 0;
		vb_rs_stream_init(&e->s, &e->config);
	}
	for (unsigned i = 0; i < 2; i++) {
		struct vb_rs_offer o;

		vb_rs_stream_offer(&ends[!i].s, &o);
		CHECK(vb_rs_stream_take_offer(&ends[i].s, o.b, sizeof(o.b)) == 0, "the offer is refused");
	}
	flush(0);
	flush(1);
}

static bool step(void)
{
	unsigned i = sim_pick(2);

	check_stamps(i);
	switch (sim_pick(10)) {
	case 0:
	case 1:
	case 2: return write_some(i);
	case 3:
	case 4: return read_some(i);
	case 5: return deliver_one(i);
	case 6: return complete_one(i) && (flush(i), true);
	case 7: return sim_happens(20) ? map_some(i) : deliver_one(i);
	case 8: return sim_happens(100) && write_directly(i);
	default: return shut(i);
	}
}

/* Everything that can happen happens, in turn. */
static bool settle_step(bool reads)
{
	bool any = false;

	for (unsigned i = 0; i < 2; i++) {
		any |= deliver_one(i);
		any |= complete_one(i);
		flush(i);
		any |= reads && read_some(i);
		any |= write_some(i);
		any |= shut(i);
	}
	return any;
}

/* While nobody reads, all arrives that is written or has room. */
static void check_filled(void)
{
	for (unsigned i = 0; i < 2; i++)
		CHECK(ends[!i].written == ends[!i].to_write || vb_rs_stream_is_full(&ends[i].s),
		      "end %u would wait for more in vain", i);
}

static void check_end(void)
{
	for (unsigned i = 0; i < 2; i++) {
		struct end *e = &ends[i];

		CHECK(e->written == e->to_write, "end %u is stuck: %llu of %llu bytes written", i,
		      (unsigned long long)e->written, (unsigned long long)e->to_write);
		CHECK(e->read == ends[!i].written, "end %u has read %llu of %llu bytes", i,
		      (unsigned long long)e->read, (unsigned long long)ends[!i].written);
		CHECK(e->s.link != VB_RS_UP && e->s.incoming != VB_RS_OPEN,
		      "end %u does not know that it is over", i);
		CHECK(e->num == 0 && vb_rs_stream_is_idle(&e->s) && !e->s.ring_used,
		      "end %u has work left", i);
	}
}

static bool run(uint64_t seed, unsigned size)
{
	static const struct sim_network none;

	sim_begin(seed, &none, 2);
	if (setjmp(sim.failure))
		return false;
	begin(size);
	unsigned steps = sim_pick(60 * size + 1);
	for (unsigned n = 0; n < steps; n++)
		step();
	while (settle_step(false))
		;
	check_filled();
	while (settle_step(true))
		;
	check_end();
	worlds++;
	return true;
}

static bool report(void)
{
	printf("# %llu worlds, %llu bytes\n", (unsigned long long)worlds, (unsigned long long)bytes_moved);
	return bytes_moved > 0;
}

int main(int argc, char **argv)
{
	return sim_main(argc, argv, "sim_rs_stream", 200, run, report);
}

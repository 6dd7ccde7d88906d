/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that the peer writes directly. riomap registers it; before the next transfer its place is written
 * into the peer's I/O map. riowrite looks its target up in our map. An entry that was unmapped stays in the
 * peer's map, with a key that is not valid any more.
 */
#include <string.h>

#include "rsocket/calls.h"

/* ---- mapping ---- */

/* Both ends' offers are known while a connection is being accepted. */
static int check_locked(struct vb_rs *s, size_t len, int prot)
{
	if (!vb_rs_is_stream(s))
		return -EOPNOTSUPP;
	if (prot & ~(PROT_WRITE | PROT_NONE) || !len || len > UINT32_MAX)
		return -EINVAL;
	if (s->state == VB_RS_ACCEPTING)
		return 0;
	uint64_t deadline = vb_rs_deadline(vb_rs_may_block(s, 0), s->options.send_timeout_ns);
	return vb_rs_await_connection_locked(s, deadline, NULL);
}

VB_EXPORT off_t riomap(int socket, void *buf, size_t len, int prot, int flags, off_t offset)
{
	VB_DEFERRED;
	struct vb_rs *s = vb_rs_get_checked(socket, __func__);
	int err;

	if (!s)
		return -1;
	if (offset == -1)
		offset = (off_t)(uintptr_t)buf;
	pthread_mutex_lock(&s->lock);
	err = check_locked(s, len, prot);
	if (!err)
		err = vb_rs_mapping_add_locked(s, buf, len, prot, (uint64_t)offset);
	pthread_mutex_unlock(&s->lock);
	vb_rs_put(s);
	return err ? (off_t)vb_rs_result(err) : offset;
}

VB_EXPORT int riounmap(int socket, void *buf, size_t len)
{
	VB_DEFERRED;
	struct vb_rs *s = vb_rs_get_checked(socket, __func__);

	if (!s)
		return -1;
	pthread_mutex_lock(&s->lock);
	int err = vb_rs_mapping_remove_locked(s, buf, len);
	pthread_mutex_unlock(&s->lock);
	vb_rs_put(s);
	return (int)vb_rs_result(err);
}

/* ---- announcing mappings to the peer ---- */

static bool can_announce(struct vb_rs *s)
{
	return !vb_rs_is_writable(s) || vb_rs_stream_has_credit(&s->stream);
}

static struct vb_rs_mapping *next_to_announce(struct vb_rs *s)
{
	struct vb_rs_mapping *m;

	vb_list_for_each(m, &s->mappings, node)
		if (m->is_new)
			return m;
	return NULL;
}

static int announce_locked(struct vb_rs *s, struct vb_rs_mapping *m)
{
	struct vb_rs_iomap entry = {
		.offset = m->offset,
		.segment = { .address = (uintptr_t)m->mr->addr,
			     .key = m->mr->rkey,
			     .bytes = (uint32_t)m->mr->length },
	};
	struct vb_rs_write w;

	if (!vb_rs_stream_send_iomap(&s->stream, (uint32_t)m->index, &entry, &w))
		return vb_rs_write_error(s);
	m->is_new = false;
	return vb_rs_post(s, &w, NULL);
}

/* The list may change during each wait. */
static int announce_all_locked(struct vb_rs *s, uint64_t deadline)
{
	struct vb_rs_mapping *m;

	while (next_to_announce(s)) {
		int err = vb_rs_await_locked(s, can_announce, deadline, &s->writer);

		m = next_to_announce(s);
		if (!err && m)
			err = announce_locked(s, m);
		if (err)
			return err;
	}
	s->has_new_mappings = false;
	return 0;
}

static int prepare_write_locked(struct vb_rs *s, uint64_t deadline)
{
	int err = vb_rs_await_connection_locked(s, deadline, &s->writer);

	/* A program that only writes hears of its peer's end by this. */
	if (!err && vb_rs_look_is_due(&s->write_looked, VB_RS_BUSY_LOOK_US))
		vb_rs_progress_locked(s);
	if (!err && s->has_new_mappings)
		err = announce_all_locked(s, deadline);
	return err;
}

/*
 * A long write is cut. The first pieces are short, so that the peer can start early; but not while it has
 * earlier bytes to take.
 */
enum { FIRST_PIECE = 4096, LONGEST_PIECE = 65536 };

int vb_rs_begin_write(struct vb_rs *s, int flags, struct vb_rs_writing *w)
{
	pthread_mutex_lock(&s->lock);
	w->deadline = vb_rs_deadline(vb_rs_may_block(s, flags), s->options.send_timeout_ns);
	int err = vb_rs_turn_take_locked(s, &s->writer, w->deadline);
	if (!err && (err = prepare_write_locked(s, w->deadline)))
		vb_rs_turn_give_locked(s, &s->writer);
	w->most = vb_rs_stream_has_unacked(&s->stream) ? LONGEST_PIECE : FIRST_PIECE;
	pthread_mutex_unlock(&s->lock);
	return err;
}

void vb_rs_next_piece(struct vb_rs_writing *w)
{
	if (w->most < LONGEST_PIECE)
		w->most *= 2;
}

void vb_rs_end_write(struct vb_rs *s)
{
	pthread_mutex_lock(&s->lock);
	vb_rs_posted_locked(s);
	vb_rs_turn_give_locked(s, &s->writer);
	pthread_mutex_unlock(&s->lock);
}

/* ---- riowrite ---- */

static bool can_write_directly(struct vb_rs *s)
{
	return !vb_rs_is_writable(s) || vb_rs_stream_direct_room(&s->stream) > 0;
}

static int await_direct_room_locked(struct vb_rs *s, uint64_t deadline)
{
	int err = vb_rs_await_locked(s, can_write_directly, deadline, &s->writer);

	if (err)
		return err;
	return vb_rs_is_writable(s) ? 0 : vb_rs_write_error(s);
}

static void reserve_locked(struct vb_rs *s, const struct vb_rs_iomap *map, uint64_t offset, size_t most,
			   struct vb_rs_write *w, bool *is_inline)
{
	uint64_t wanted = vb_min_u64(most, map->segment.bytes - (offset - map->offset));
	uint64_t bytes = vb_min_u64(wanted, vb_rs_stream_direct_room(&s->stream));
	*is_inline = bytes == wanted && bytes <= s->end.max_inline; /* as in stream_io.c */
	vb_rs_stream_send_direct(&s->stream, (uint32_t)bytes, *is_inline, map, offset, w);
}

/* One piece. Bytes, 0: nothing is mapped there; or a negative errno. */
static ssize_t write_piece(struct vb_rs *s, const uint8_t *from, size_t most, uint64_t offset,
			   uint64_t deadline)
{
	struct vb_rs_iomap map;
	struct vb_rs_write w;
	bool is_inline = false;

	pthread_mutex_lock(&s->lock);
	vb_rs_posted_locked(s);
	vb_rs_progress_locked(s);
	bool found = vb_rs_stream_find_iomap(&s->stream, offset, &map);
	int err = found ? await_direct_room_locked(s, deadline) : 0;
	if (found && !err)
		reserve_locked(s, &map, offset, most, &w, &is_inline);
	pthread_mutex_unlock(&s->lock);
	if (err || !found)
		return err;
	if (!is_inline)
		memcpy(s->end.send_ring + w.ring_offset, from, w.bytes);
	err = vb_rs_post(s, &w, is_inline ? from : NULL);
	if (!err)
		return w.bytes;
	pthread_mutex_lock(&s->lock);
	vb_rs_break_locked(s, -err);
	pthread_mutex_unlock(&s->lock);
	return err;
}

static ssize_t write_all(struct vb_rs *s, const uint8_t *from, size_t count, uint64_t offset, int flags)
{
	struct vb_rs_writing w;
	size_t done = 0;
	ssize_t n = vb_rs_begin_write(s, flags, &w);

	if (n)
		return n;
	while (done < count) {
		n = write_piece(s, from + done, vb_min_u64(w.most, count - done), offset + done, w.deadline);
		if (n <= 0)
			break;
		done += (size_t)n;
		vb_rs_next_piece(&w);
	}
	vb_rs_end_write(s);
	return n < 0 && !done ? n : (ssize_t)done;
}

VB_EXPORT size_t riowrite(int socket, const void *buf, size_t count, off_t offset, int flags)
{
	VB_DEFERRED;
	struct vb_rs *s = vb_rs_get_checked(socket, __func__);
	ssize_t n;

	if (!s)
		return (size_t)-1;
	n = vb_rs_is_stream(s) ? write_all(s, buf, count, (uint64_t)offset, flags) : -EOPNOTSUPP;
	vb_rs_put(s);
	return (size_t)vb_rs_result(n);
}

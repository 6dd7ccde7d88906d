/* SPDX-License-Identifier: BSD-2-Clause */
/* Moving the bytes of a stream. */
#include <string.h>

#include "rsocket/calls.h"

/* A place in a list of buffers. */
struct cursor {
	const struct iovec *at;
	size_t offset;
	size_t left;   /* bytes in all */
	bool discards; /* MSG_TRUNC: of a read, which fills no buffer */
};

static struct cursor cursor_of(const struct iovec *iov, int iovcnt)
{
	struct cursor c = { .at = iov };

	for (int i = 0; i < iovcnt; i++)
		c.left += iov[i].iov_len;
	return c;
}

/* The bytes from here to the end of a buffer. */
static size_t contiguous(struct cursor *c)
{
	while (c->left && c->offset == c->at->iov_len) {
		c->at++;
		c->offset = 0;
	}
	return c->left ? c->at->iov_len - c->offset : 0;
}

/* n: contiguous bytes; 0: NULL. */
static uint8_t *here(struct cursor *c, size_t *n)
{
	*n = contiguous(c);
	return *n ? (uint8_t *)c->at->iov_base + c->offset : NULL;
}

static void advance(struct cursor *c, size_t n)
{
	c->offset += n;
	c->left -= n;
}

/* Exactly one of to and from. */
static void copy(struct cursor *c, uint8_t *to, const uint8_t *from, size_t bytes)
{
	while (bytes) {
		size_t n;
		uint8_t *at = here(c, &n);

		if (n > bytes)
			n = bytes;
		if (to) {
			memcpy(to, at, n);
			to += n;
		} else {
			memcpy(at, from, n);
			from += n;
		}
		advance(c, n);
		bytes -= n;
	}
}

/* Into the buffers of a read. */
static void take(struct cursor *c, const uint8_t *from, size_t bytes)
{
	if (!c->discards) {
		copy(c, NULL, from, bytes);
		return;
	}
	while (bytes) {
		size_t n = vb_min_u64(bytes, contiguous(c));

		advance(c, n);
		bytes -= n;
	}
}

/* ---- writing ---- */

static int await_room_locked(struct vb_rs *s, uint64_t deadline)
{
	int err = vb_rs_await_locked(s, vb_rs_can_write, deadline, &s->writer);

	s->full_writes += err != 0;
	if (err)
		return err;
	return vb_rs_is_writable(s) ? 0 : vb_rs_write_error(s);
}

/* Takes room for the next piece. Returns its bytes; *payload: the program's own if they go inline. */
static uint32_t reserve_locked(struct vb_rs *s, struct cursor *c, size_t most, struct vb_rs_write *w,
			       uint8_t **payload)
{
	size_t together, wanted = vb_min_u64(most, c->left),
			   bytes = vb_min_u64(wanted, vb_rs_stream_room(&s->stream));
	uint8_t *at = here(c, &together);
	/*
	 * A piece that the end of the ring cuts must use ring bytes: inline it would be cut again at the same
	 * place, for ever.
	 */
	bool is_inline = bytes == wanted && bytes <= s->end.max_inline && bytes <= together;

	*payload = is_inline ? at : NULL;
	vb_rs_stream_send(&s->stream, (uint32_t)bytes, is_inline, w);
	return (uint32_t)bytes;
}

/* In the writer's turn, without the lock. */
static int put(struct vb_rs *s, struct cursor *c, const struct vb_rs_write *w, const uint8_t *payload)
{
	if (payload)
		advance(c, w->bytes);
	else
		copy(c, s->end.send_ring + w->ring_offset, NULL, w->bytes);
	int err = vb_rs_post(s, w, payload);
	if (!err)
		return 0;
	pthread_mutex_lock(&s->lock);
	vb_rs_break_locked(s, -err);
	pthread_mutex_unlock(&s->lock);
	return -ECONNRESET;
}

static int write_piece(struct vb_rs *s, struct cursor *c, const struct vb_rs_writing *writing)
{
	struct vb_rs_write w;
	uint8_t *payload = NULL;

	pthread_mutex_lock(&s->lock);
	vb_rs_posted_locked(s);
	int err = await_room_locked(s, writing->deadline);
	if (!err)
		reserve_locked(s, c, writing->most, &w, &payload);
	pthread_mutex_unlock(&s->lock);
	return err ? err : put(s, c, &w, payload);
}

ssize_t vb_rs_stream_write(struct vb_rs *s, const struct iovec *iov, int iovcnt, int flags)
{
	struct cursor c = cursor_of(iov, iovcnt);
	struct vb_rs_writing w;
	size_t total = c.left;
	int err = vb_rs_begin_write(s, flags, &w);

	if (err)
		return err;
	while (!err && c.left) {
		err = write_piece(s, &c, &w);
		vb_rs_next_piece(&w);
	}
	vb_rs_end_write(s);
	return err && c.left == total ? err : (ssize_t)(total - c.left);
}

/* ---- reading ---- */

/*
 * Where to read next. 0 bytes and no error: the end. A call that has read bytes returns them. It leaves the
 * connection's error to the next call, which then does not take a lost connection for a finished one.
 */
static int await_bytes_locked(struct vb_rs *s, bool has_read, uint64_t deadline, uint32_t *bytes,
			      uint32_t *offset)
{
	*bytes = vb_rs_stream_readable(&s->stream, offset);
	if (*bytes)
		return 0;
	int err = vb_rs_wait_locked(s, vb_rs_can_read, deadline, &s->reader);
	if (err)
		return err;
	*bytes = vb_rs_stream_readable(&s->stream, offset);
	/* no bytes: it is the end */
	return *bytes || has_read || s->stream.link != VB_RS_BROKEN ? 0 : -vb_rs_take_error_locked(s);
}

static int read_piece(struct vb_rs *s, struct cursor *c, bool has_read, uint64_t deadline)
{
	uint32_t bytes, offset;

	pthread_mutex_lock(&s->lock);
	int err = await_bytes_locked(s, has_read, deadline, &bytes, &offset);
	pthread_mutex_unlock(&s->lock);
	if (err || !bytes)
		return err;
	bytes = (uint32_t)vb_min_u64(bytes, c->left);
	take(c, s->end.receive_ring + offset, bytes);
	pthread_mutex_lock(&s->lock);
	vb_rs_stream_consume(&s->stream, bytes);
	vb_rs_flush_locked(s);
	pthread_mutex_unlock(&s->lock);
	return (int)vb_min_u64(bytes, INT32_MAX);
}

static bool can_peek_all(struct vb_rs *s)
{
	return s->stream.incoming != VB_RS_OPEN || s->stream.received - s->stream.consumed >= s->peeks_for ||
	       vb_rs_stream_is_full(&s->stream);
}

/* Consumes nothing. Copies what has come; with `all` it waits first, as long as more can come. */
static ssize_t peek(struct vb_rs *s, struct cursor *c, uint64_t deadline, bool all)
{
	uint32_t bytes, offset;
	size_t total = 0;

	pthread_mutex_lock(&s->lock);
	int err = await_bytes_locked(s, false, deadline, &bytes, &offset);
	s->peeks_for = c->left;
	if (!err)
		(void)vb_rs_wait_locked(s, can_peek_all, all ? deadline : VB_RS_AT_ONCE, &s->reader);
	while (!err && c->left && (bytes = vb_rs_stream_peek(&s->stream, total, &offset))) {
		bytes = (uint32_t)vb_min_u64(bytes, c->left);
		take(c, s->end.receive_ring + offset, bytes);
		total += bytes;
	}
	pthread_mutex_unlock(&s->lock);
	return err ? err : (ssize_t)total;
}

/* Waits for the first piece, and takes what is there with it; with MSG_WAITALL it waits for all of it. */
static ssize_t read_pieces(struct vb_rs *s, struct cursor *c, uint64_t deadline, bool all)
{
	size_t total = c->left;
	int n = 1;

	while (c->left && n > 0) {
		bool has_read = c->left != total;

		n = read_piece(s, c, has_read, all || !has_read ? deadline : VB_RS_AT_ONCE);
	}
	return n < 0 && c->left == total ? n : (ssize_t)(total - c->left);
}

static int begin_read(struct vb_rs *s, int flags, uint64_t *deadline)
{
	pthread_mutex_lock(&s->lock);
	*deadline = vb_rs_deadline(vb_rs_may_block(s, flags), s->options.receive_timeout_ns);
	int err = vb_rs_turn_take_locked(s, &s->reader, *deadline);
	if (!err && (err = vb_rs_await_connection_locked(s, *deadline, &s->reader)))
		vb_rs_turn_give_locked(s, &s->reader);
	pthread_mutex_unlock(&s->lock);
	return err;
}

static void end_read(struct vb_rs *s)
{
	pthread_mutex_lock(&s->lock);
	vb_rs_turn_give_locked(s, &s->reader);
	pthread_mutex_unlock(&s->lock);
}

ssize_t vb_rs_stream_read(struct vb_rs *s, const struct iovec *iov, int iovcnt, int flags)
{
	struct cursor c = cursor_of(iov, iovcnt);
	uint64_t deadline;
	ssize_t n = begin_read(s, flags, &deadline);

	if (n)
		return n;
	c.discards = flags & MSG_TRUNC;
	if (c.left)
		n = flags & MSG_PEEK ? peek(s, &c, deadline, flags & MSG_WAITALL) :
				       read_pieces(s, &c, deadline, flags & MSG_WAITALL);
	end_read(s);
	return n;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The stream protocol of rsockets, one end of a connection, from the exchange of offers on. It moves no bytes
 * and holds no buffer: it says what to write where, and takes the messages that came.
 *
 *	our send ring ──RDMA writes with DATA messages──▶ the peer's receive ring, into the half that it granted
 *	our tables    ◀─RDMA writes with CREDIT messages── the next half; with IOMAP messages: memory for riowrite
 *
 * Our receive ring has two halves. A half is granted as one segment. It is granted again once its bytes, and
 * those of the half before it, are consumed. So bytes follow each other around the ring, and at most two
 * segments are granted at a time. Segments fill the entries of the peer's list in order, around it.
 *
 * A DATA or IOMAP message also takes a credit, one for each receive that the peer has. The credit returns
 * when the message is consumed, by a CREDIT message with the number of the last message that may come (16
 * bits that wrap). CREDIT and CONTROL messages take no credit: each end may have VB_RS_CONTROLS of them in
 * flight, and a peer without a receive for one answers with an RNR NAK.
 *
 * States. `link` is UP until the peer's DISCONNECT came (PEER_CLOSED), ours was delivered (CLOSED), or
 * something failed (BROKEN). Each direction ends separately:
 *
 *	event                        incoming     outgoing     link         to be sent
 *	SHUTDOWN comes               ENDED        -            PEER_CLOSED if outgoing is SHUT and the peer knows
 *	DISCONNECT comes             ENDED        ENDED        PEER_CLOSED
 *	shut writing                 -            SHUT         -            SHUTDOWN; DISCONNECT if incoming is not OPEN
 *	shut reading                 SHUT         -            -            DISCONNECT if outgoing is not OPEN
 *	shut both                    SHUT         SHUT         -            DISCONNECT
 *	DISCONNECT delivered         -            -            CLOSED
 *	failure                      ENDED        ENDED        BROKEN
 *
 * What has arrived can be read in any state. Invariants: consumed <= received <= granted <= consumed + ring;
 * bytes of unread messages = received - consumed; at most receive_queue messages are unread; what is in
 * flight fits the ring and the send queue.
 *
 * A peer is not trusted. A message that breaks the rules gives -EPROTO and changes nothing. An entry of the
 * tables that the peer writes is copied once, and only the copy is checked and used. Addresses and keys in it
 * are the peer's own memory, which the peer's adapter guards.
 *
 * The caller serializes all calls.
 */
#ifndef VB_PROTO_RS_STREAM_H
#define VB_PROTO_RS_STREAM_H

#include "wire/rsocket.h"

enum {
	VB_RS_SEGMENTS  = 2,    /* in our list */
	VB_RS_CONTROLS  = 4,    /* CREDIT and CONTROL messages in flight */
	VB_RS_MIN_QUEUE = 16,
	VB_RS_MAX_QUEUE = 0xfffe,
	VB_RS_LOW_WATER = 2048, /* with fewer free bytes the send ring is full */
	VB_RS_MIN_BYTES = 256,  /* of a ring; multiples of it */
};

/* What the peer writes into: the list of segments, then the I/O map. */
struct vb_rs_tables {
	struct vb_rs_segment segments[VB_RS_SEGMENTS];
	struct vb_rs_iomap iomap[];
};

struct vb_rs_stream_config {
	uint16_t send_queue, receive_queue;  /* work requests, MIN_QUEUE..MAX_QUEUE */
	uint32_t send_bytes, receive_bytes;  /* rings: multiples of MIN_BYTES */
	uint32_t iomap_entries;              /* of our tables */
	volatile struct vb_rs_tables *tables; /* all zero */
	uint32_t *unread;                    /* receive_queue numbers, for the protocol's use */
	uint64_t tables_address, buffer_address; /* as the peer addresses them */
	uint32_t tables_key, buffer_key;
};

enum vb_rs_direction { VB_RS_OPEN, VB_RS_SHUT, VB_RS_ENDED };
enum vb_rs_link { VB_RS_UP, VB_RS_PEER_CLOSED, VB_RS_CLOSED, VB_RS_BROKEN };

struct vb_rs_stream {
	struct vb_rs_stream_config config;
	enum vb_rs_link link;
	enum vb_rs_direction incoming, outgoing;

	/* sending */
	struct vb_rs_segment target;   /* what is left of the segment in use */
	unsigned next_target;          /* the entry of our list that comes after it */
	bool credit_came;              /* since the entry was seen empty */
	uint16_t sent, allowed;        /* numbers of messages */
	uint32_t requests_free;        /* of the send queue, without those of control messages */
	uint32_t controls_free;
	uint32_t ring_next, ring_used; /* bytes of the send ring */
	/* until half of it is free again, so that a writer that waits does not send small pieces */
	bool is_full;
	bool is_posting;               /* a write of bytes was made, and may not have been posted yet */

	/* receiving */
	uint64_t granted, received, consumed; /* bytes since the beginning */
	uint16_t finished, credited;   /* messages consumed; the same when credits were sent last */
	uint32_t unread_first, num_unread;

	/* the peer's tables */
	uint64_t peer_tables;
	uint32_t peer_key, peer_segments, peer_iomap;
	unsigned next_grant;           /* the entry of its list to fill next */
	bool swaps;                    /* it has the other byte order */

	/* control messages that are due */
	bool end_is_due, keepalive_due;
	enum vb_rs_control end_message;
};

/* Where the bytes of a write are. */
enum vb_rs_source { VB_RS_FROM_RING, VB_RS_FROM_ENTRY, VB_RS_FROM_NOTHING };

/*
 * An RDMA write. Control messages may be posted before a write of bytes that was made earlier. But the end of
 * the stream is not made before vb_rs_stream_posted has said that these were.
 */
struct vb_rs_write {
	uint64_t id;                   /* for vb_rs_stream_sent */
	uint64_t remote_address;
	uint32_t remote_key;
	uint32_t bytes;
	enum vb_rs_source source;
	uint32_t ring_offset;          /* FROM_RING: where in the send ring, contiguous */
	union {                        /* FROM_ENTRY */
		struct vb_rs_segment segment;
		struct vb_rs_iomap iomap;
	} entry;
	bool has_message;              /* immediate data */
	uint32_t message;
};

void vb_rs_stream_init(struct vb_rs_stream *s, const struct vb_rs_stream_config *config);
/* Our offer: the private data of REQ or REP. */
void vb_rs_stream_offer(const struct vb_rs_stream *s, struct vb_rs_offer *offer);
/* The peer's offer, once. -ENOTSUP: another version; -EPROTO: too short, or numbers that cannot work. */
int vb_rs_stream_take_offer(struct vb_rs_stream *s, const void *offer, size_t len) VB_MUST_USE;

/* ---- sending ---- */

/* How many bytes the next write may carry; 0: not now, or never again (outgoing is not OPEN). */
uint32_t vb_rs_stream_room(struct vb_rs_stream *s);
/* bytes: 1..room. is_inline: the bytes are the program's and need no ring. */
void vb_rs_stream_send(struct vb_rs_stream *s, uint32_t bytes, bool is_inline, struct vb_rs_write *out);
/* The same for memory that the peer maps (riowrite), which takes no credit. */
uint32_t vb_rs_stream_direct_room(const struct vb_rs_stream *s);
void vb_rs_stream_send_direct(struct vb_rs_stream *s, uint32_t bytes, bool is_inline,
			      const struct vb_rs_iomap *to, uint64_t offset, struct vb_rs_write *out);
/* What vb_rs_stream_send or vb_rs_stream_send_direct made is posted. */
static inline void vb_rs_stream_posted(struct vb_rs_stream *s) { s->is_posting = false; }
/* Copies the entry of our map that holds this offset. False: none. */
bool vb_rs_stream_find_iomap(const struct vb_rs_stream *s, uint64_t offset, struct vb_rs_iomap *out);
/* Entries that may be written to the peer's map. */
static inline uint32_t vb_rs_stream_peer_iomap(const struct vb_rs_stream *s) { return s->peer_iomap; }
/* May a DATA or IOMAP message be sent? */
bool vb_rs_stream_has_credit(const struct vb_rs_stream *s);
/* Writes an entry of the peer's map, index < peer_iomap. False: no credit now. */
bool vb_rs_stream_send_iomap(struct vb_rs_stream *s, uint32_t index, const struct vb_rs_iomap *entry,
			     struct vb_rs_write *out);
/* A write completed, whatever its status. */
void vb_rs_stream_sent(struct vb_rs_stream *s, uint64_t id);
/* The next control message that is due and may be sent. False: none. */
bool vb_rs_stream_control(struct vb_rs_stream *s, struct vb_rs_write *out);
/* Are there bytes that the peer's adapter has not acknowledged? */
static inline bool vb_rs_stream_has_unacked(const struct vb_rs_stream *s)
{
	return s->requests_free != (uint32_t)s->config.send_queue - VB_RS_CONTROLS;
}
/* Is nothing in flight, and nothing due? */
bool vb_rs_stream_is_idle(const struct vb_rs_stream *s);

/* ---- receiving ---- */

/* A message came, the immediate data of a receive. 0 or -EPROTO. */
int vb_rs_stream_receive(struct vb_rs_stream *s, uint32_t message) VB_MUST_USE;
/* Bytes that wait at *offset of the receive ring, contiguous. */
uint32_t vb_rs_stream_readable(const struct vb_rs_stream *s, uint32_t *offset);
/* The same from `skip` bytes on. */
uint32_t vb_rs_stream_peek(const struct vb_rs_stream *s, uint64_t skip, uint32_t *offset);
/*
 * Can the peer send no more before something is consumed here? It has no room or no credits left, and neither
 * is due to it.
 */
bool vb_rs_stream_is_full(const struct vb_rs_stream *s);
/* The caller has copied these bytes, at most `readable`. */
void vb_rs_stream_consume(struct vb_rs_stream *s, uint32_t bytes);

/* ---- ends ---- */

void vb_rs_stream_shut_reading(struct vb_rs_stream *s);
void vb_rs_stream_shut_writing(struct vb_rs_stream *s);
/* The connection is lost, or the peer broke the rules. */
void vb_rs_stream_break(struct vb_rs_stream *s);
/* Makes a write due that finds out whether the peer is alive. */
static inline void vb_rs_stream_keep_alive(struct vb_rs_stream *s) { s->keepalive_due = true; }

#endif

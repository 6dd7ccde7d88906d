/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The stream protocol of rsockets, one end of a connection, from the exchange of offers on. It moves no bytes
 * and holds no buffer: it says what to write where, and takes what came in.
 *
 *	our send ring ──RDMA writes with DATA messages──▶ the peer's receive ring, into the half that it granted
 *	our tables    ◀─RDMA writes with CREDIT messages── the next half; with IOMAP messages: memory for riowrite
 *
 * Our receive ring has two halves. A half is granted as one segment, and granted again once its bytes, and
 * those of the half before it, are consumed; so bytes follow each other around the ring and two segments are
 * under way at most. Segments are written to the peer's list in turn. A message also needs a credit, one for
 * each receive that the peer has: DATA and IOMAP take one, and it returns when the message was consumed, by a
 * CREDIT that names the last message that may come (16 bits that wrap). CREDIT and CONTROL need none:
 * VB_RS_CONTROLS of each end may be under way, and a peer that has no receive for them says RNR.
 *
 * States. `link` is UP until the peer's DISCONNECT came (GONE), ours was delivered (LEFT), or something broke
 * (BROKEN). The two directions end for themselves:
 *
 *	event                        incoming     outgoing     link    to be sent
 *	SHUTDOWN comes               ENDED        -            GONE if outgoing is SHUT and the peer was told
 *	DISCONNECT comes             ENDED        ENDED        GONE
 *	shut writing                 -            SHUT         -       SHUTDOWN; DISCONNECT if incoming is not OPEN
 *	shut reading                 SHUT         -            -       DISCONNECT if outgoing is not OPEN
 *	shut both                    SHUT         SHUT         -       DISCONNECT
 *	DISCONNECT delivered         -            -            LEFT
 *	failure                      ENDED        ENDED        BROKEN
 *
 * What has arrived can be read in any state. Invariants: consumed <= received <= granted <= consumed + ring;
 * bytes of unread messages = received - consumed; at most receive_queue messages are unread; what is under
 * way fits the ring and the send queue.
 *
 * A peer is not trusted: messages that break the rules are -EPROTO and change nothing; of the tables it
 * writes each entry is copied once and then judged. Addresses and keys in them are the peer's own memory,
 * which its adapter guards.
 *
 * The caller serializes all calls.
 */
#ifndef VB_PROTO_RS_STREAM_H
#define VB_PROTO_RS_STREAM_H

#include "wire/rsocket.h"

enum {
	VB_RS_SEGMENTS  = 2,    /* in our list */
	VB_RS_CONTROLS  = 4,    /* CREDIT and CONTROL messages under way */
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
	uint32_t *unread;                    /* receive_queue numbers, for the machine's use */
	uint64_t tables_address, buffer_address; /* as the peer addresses them */
	uint32_t tables_key, buffer_key;
};

enum vb_rs_direction { VB_RS_OPEN, VB_RS_SHUT, VB_RS_ENDED };
enum vb_rs_link { VB_RS_UP, VB_RS_GONE, VB_RS_LEFT, VB_RS_BROKEN };

struct vb_rs_stream {
	struct vb_rs_stream_config config;
	enum vb_rs_link link;
	enum vb_rs_direction incoming, outgoing;

	/* sending */
	struct vb_rs_segment target;   /* what is left of the segment in use */
	unsigned next_target;          /* the entry of our list that comes after it */
	bool has_news;                 /* a CREDIT came since the entry was seen empty */
	uint16_t sent, allowed;        /* numbers of messages */
	uint32_t requests_free;        /* of the send queue, without those of control messages */
	uint32_t controls_free;
	uint32_t ring_next, ring_used; /* bytes of the send ring */
	/* until half of it is free again: a writer that waits is not to cut its data into crumbs */
	bool is_full;

	/* receiving */
	uint64_t granted, received, consumed; /* bytes since the beginning */
	uint16_t finished, promised;   /* messages consumed; as much when credits went out last */
	uint32_t unread_first, num_unread;

	/* the peer's tables */
	uint64_t peer_tables;
	uint32_t peer_key, peer_segments, peer_iomap;
	unsigned next_grant;           /* entry of its list */
	bool swaps;                    /* it has the other byte order */

	/* what CONTROL has to say */
	bool has_farewell, keepalive_due;
	enum vb_rs_control farewell;
};

/* What a write carries. */
enum vb_rs_source { VB_RS_FROM_RING, VB_RS_FROM_ENTRY, VB_RS_FROM_NOTHING };

/* An RDMA write to be posted, in the order in which they are made. */
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
/* Our offer, for the private data of REQ or REP. */
void vb_rs_stream_offer(const struct vb_rs_stream *s, struct vb_rs_offer *offer);
/* The peer's, once. -ENOTSUP: another version; -EPROTO: too short, or numbers that cannot work. */
int vb_rs_stream_meet(struct vb_rs_stream *s, const void *offer, size_t len) VB_MUST_USE;

/* ---- sending ---- */

/* How many bytes the next write may carry; 0: not now, or never again (outgoing is not OPEN). */
uint32_t vb_rs_stream_room(struct vb_rs_stream *s);
/* bytes: 1..room. is_inline: the bytes are the program's and need no ring. */
void vb_rs_stream_send(struct vb_rs_stream *s, uint32_t bytes, bool is_inline, struct vb_rs_write *out);
/* The same for memory that the peer maps (riowrite), which takes no credit. */
uint32_t vb_rs_stream_direct_room(const struct vb_rs_stream *s);
void vb_rs_stream_send_direct(struct vb_rs_stream *s, uint32_t bytes, bool is_inline,
			      const struct vb_rs_iomap *to, uint64_t offset, struct vb_rs_write *out);
/* The peer's entry that has this offset, a copy; false: none. */
bool vb_rs_stream_find_iomap(const struct vb_rs_stream *s, uint64_t offset, struct vb_rs_iomap *out);
/* Entries that may be written to the peer's map. */
static inline uint32_t vb_rs_stream_peer_iomap(const struct vb_rs_stream *s) { return s->peer_iomap; }
/* May a message go out that is no control message? */
bool vb_rs_stream_has_credit(const struct vb_rs_stream *s);
/* Writes an entry of it, index < peer_iomap. False: no credit now. */
bool vb_rs_stream_send_iomap(struct vb_rs_stream *s, uint32_t index, const struct vb_rs_iomap *entry,
			     struct vb_rs_write *out);
/* A write completed, whatever its status. */
void vb_rs_stream_sent(struct vb_rs_stream *s, uint64_t id);
/* The next control message that is due, for which there is room; false: none. */
bool vb_rs_stream_control(struct vb_rs_stream *s, struct vb_rs_write *out);
/* Nothing is under way or due. */
bool vb_rs_stream_is_quiet(const struct vb_rs_stream *s);

/* ---- receiving ---- */

/* The immediate data of a receive. 0 or -EPROTO. */
int vb_rs_stream_receive(struct vb_rs_stream *s, uint32_t message) VB_MUST_USE;
/* Bytes that wait at *offset of the receive ring, contiguous. */
uint32_t vb_rs_stream_readable(const struct vb_rs_stream *s, uint32_t *offset);
/* The same from `skip` bytes on. */
uint32_t vb_rs_stream_peek(const struct vb_rs_stream *s, uint64_t skip, uint32_t *offset);
/*
 * The peer can send no more before something is consumed here: it has neither room nor credits left, nor gets
 * any.
 */
bool vb_rs_stream_is_full(const struct vb_rs_stream *s);
/* bytes <= readable: they were copied. */
void vb_rs_stream_consume(struct vb_rs_stream *s, uint32_t bytes);

/* ---- ends ---- */

void vb_rs_stream_shut_reading(struct vb_rs_stream *s);
void vb_rs_stream_shut_writing(struct vb_rs_stream *s);
/* The connection below is lost, or the peer broke the rules. */
void vb_rs_stream_break(struct vb_rs_stream *s);
/* Something is to be sent, so that a dead peer is noticed. */
static inline void vb_rs_stream_keep_alive(struct vb_rs_stream *s) { s->keepalive_due = true; }

#endif

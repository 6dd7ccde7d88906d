/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The requester of a reliable connection (IB vol. 1, 9.7) as a pure machine: it cuts requests into packets,
 * handles the replies, sends lost packets again, and says which requests are complete.
 *
 * Positions. Requests are numbered 0, 1, 2, ... (32 bits, wrapping) in the order of vb_rc_req_post; they
 * complete in that order.
 *
 * PSNs. Every request has a range of PSNs, one per packet, or one per response of a READ. All state is three
 * counts and a bitmap:
 *
 *	una          acked              next             end
 *	 |-------------|------------------|----------------|
 *	 only READ and   in flight:        posted, not
 *	 atomic answers  nothing known     sent
 *	 may be missing
 *
 * una: everything before is done. acked: the responder executed everything before, as an ACK, a NAK for
 * acked, or any response showed. Answers may come in any order: a bit per PSN from una on records which have
 * come, and each is placed at once by its PSN. next - una never exceeds the window, but for what the path
 * carries while a hole is being filled, and never VB_RC_WINDOW.
 *
 * Resending. A half-open range [resend_from, resend_end) of PSNs; a walk through it skips what is not missing
 * any more. Three causes:
 *   - answers missing before acked (the specification's implied NAK): a READ request of its own asks for the
 *     missing run, as the specification allows for duplicates; for each hole once, until the RTO expires;
 *   - a NAK for a sequence error at E, or an RTO that expires with acked = E: E alone, first. A responder that
 *     keeps what arrives out of order then acknowledges far beyond E or names the next hole; one that drops it
 *     acknowledges E, and gets 2, 4, 8, ... packets, and next time 8 at once. One that keeps packets gets more
 *     and more at once, too, after some holes: each round trip names one hole, and there may be hundreds.
 *     While that continues (recovering) nothing new is sent, unless the responder is known to keep packets.
 *     Then as many more may be in flight as the path carries, since what went behind the hole has mostly
 *     arrived;
 *   - an RNR NAK: as before, after its timer.
 * What is sent again may be lost again, and no NAK reports that: after somewhat more than a round trip it is
 * repeated (a probe), a few times. Only then does the RTO expire, which reduces the window and, after the ACK
 * timeout, uses up a retry.
 *
 * Large READs are sent as several READ requests, none of which asks for more than the window has room for: so
 * what is in flight is bounded for READs too. Each of these requests counts against max_rd_atomic.
 *
 * Failure. A NAK, used up retries or the caller's vb_rc_req_break name a position. What is before it still
 * completes; then that request fails, and after that the machine sends nothing more. A NAK may also refuse an
 * answer that is missing before acked: the responder was asked for it again and does not have it any more.
 *
 * A congestion notification packet cuts the window as a loss at a queue does, once per round trip.
 *
 * Credits. If the responder's ACKs say how many receives it has, a message that takes a receive and has no
 * credit sends its first packet alone, with nothing else in flight. Its ACK shows that there was a receive,
 * and the rest follows. Messages are counted as the responder counts them, so each READ request counts.
 *
 * What it leaves out: alternate paths.
 *
 * Who owns what. The caller owns the struct, the entries and the data. Payload is named by (position, offset,
 * bytes) each time that it is sent, so data must stay unchanged until its request completes. Threading: none;
 * one of the caller's locks covers the machine. A packet that is ignored has changed nothing.
 *
 * Usage: after vb_rc_req_post, vb_rc_req_receive and vb_rc_req_expire: vb_rc_req_write until false,
 * vb_rc_req_next_completion until false, then sleep until vb_rc_req_deadline.
 */
#ifndef VB_PROTO_RC_REQUESTER_H
#define VB_PROTO_RC_REQUESTER_H

#include "proto/psn.h"
#include "proto/rc/rc_window.h"
#include "proto/rc/request.h"

enum { VB_RC_WINDOW = 2048, VB_RC_MAX_RD_ATOMIC = 128, VB_RNR_RETRY_FOREVER = 7 };

#define VB_RC_NEVER UINT64_MAX

/* X(NAME, text) */
#define VB_RC_STATUSES(X)                                               \
	X(SUCCESS, "success")                                           \
	X(REMOTE_INVALID_REQUEST, "remote invalid request")             \
	X(REMOTE_ACCESS, "remote access error")                         \
	X(REMOTE_OPERATIONAL, "remote operational error")               \
	X(RETRY_EXCEEDED, "retries used up without an answer")          \
	X(RNR_RETRY_EXCEEDED, "peer never had a receive posted")        \
	X(LOCAL, "local memory not accessible")                         \
	X(LOCAL_OPERATION, "no READ or atomic may be sent")             \
	X(BAD_RESPONSE, "a response of the wrong length")

enum vb_rc_status {
#define X(name, text) VB_RC_##name,
	VB_RC_STATUSES(X)
#undef X
};

enum vb_rc_verdict {
	VB_RC_IGNORED,	/* nothing has changed */
	VB_RC_TAKEN,
	VB_RC_BROKEN,	/* this packet ended the connection, or found it ended */
};

/* max_rd_atomic, the retry counts and timeouts may be changed between calls. */
struct vb_rc_req_config {
	struct vb_packet_to to;
	uint32_t mtu;			/* 256, 512, 1024, 2048 or 4096 */
	uint32_t first_psn;
	uint32_t max_window;		/* packets, 4 to VB_RC_WINDOW */
	uint8_t max_rd_atomic;		/* 0 to VB_RC_MAX_RD_ATOMIC; 0: READs and atomics fail */
	uint8_t retry_count, rnr_retry;	/* rnr_retry 7: without end */
	uint64_t ack_timeout_ns;	/* 0: never give up */
	/*
	 * Puts an answer's bytes into the request's data: of an atomic, the 8 bytes of the old value as this
	 * host stores a number. Negative errno: the request fails with VB_RC_LOCAL.
	 */
	int (*place)(void *ctx, uint32_t position, uint64_t offset, const void *bytes, size_t len);
	void *ctx;
};

/* A posted request with its PSNs. One cache line. */
struct vb_rc_entry {
	struct vb_request request;
	uint64_t first, end;
};

struct vb_rc_req {
	struct vb_rc_req_config config;
	struct vb_rc_entry *entries;
	uint32_t mask;
	/* positions: reported complete <= complete <= that of next <= posted */
	uint32_t reported, head, sending, tail;
	uint64_t una, acked, next, end;
	uint64_t resend_from, resend_end;
	uint64_t holes_asked;		/* missing answers before it were requested again */
	uint64_t recover_end, burst_end; /* recovering while acked < recover_end */
	/* Losses before it were found in one round trip, and cut the window once at most. */
	uint64_t cut_end;
	uint32_t lost;			/* of these, so far */
	bool is_cut;
	uint64_t nak_psn;		/* the last sequence NAK's, while recovering from it */
	uint32_t burst;
	uint64_t asked;			/* after the last packet that asks for an ACK */
	uint64_t rto_end;		/* after what had been sent when the RTO expired last */
	/* What the responder does with packets out of order, as its last ACKs while recovering showed. */
	enum { VB_RC_PEER_UNKNOWN, VB_RC_PEER_KEEPS, VB_RC_PEER_DROPS } peer;
	uint32_t messages;		/* begun, as the responder counts them (MSN) */
	uint32_t credit_end;		/* the responder has receives for those before it, */
	bool has_credits;		/* if its ACKs carry credits */
	bool failing, broken, failure_reported;
	uint8_t failure;		/* enum vb_rc_status */
	uint8_t retries, rnr_retries;	/* used since the last progress */
	uint32_t failure_position;
	/* deadlines, VB_RC_NEVER if none; rnr_until 0: not waiting */
	uint64_t rto_at, timeout_at, rnr_until;
	uint64_t pace_at;		/* when the pace lets more go; VB_RC_NEVER: it delays nothing */
	uint64_t resent_at;		/* when something was sent again last */
	uint64_t probe_at;		/* when that counts as lost again */
	uint8_t probes;			/* since the last progress */
	uint64_t timed_psn, timed_at;	/* the packet whose round trip is measured; 0: none */
	bool is_timed_again;		/* it was sent before */
	struct vb_rc_window window;
	struct {
		uint64_t first, end;
	} reads[VB_RC_MAX_RD_ATOMIC];	/* READ and atomic requests as they were sent, oldest first */
	uint8_t reads_head, reads_count;
	uint64_t answered[VB_RC_WINDOW / 64];
	/* Statistics, which the engine does not read. */
	uint64_t packets_resent, timeouts, rnr_naks, sequence_naks, fatal_naks;
};

struct vb_rc_completion {
	uint32_t position;
	enum vb_rc_status status;
};

/* entries: a power of two of them, which limits the requests that are posted and not complete. */
void vb_rc_req_init(struct vb_rc_req *req, const struct vb_rc_req_config *config, struct vb_rc_entry *entries,
		    uint32_t num_entries);

/* -EAGAIN: no entry free; -EINVAL: not a request for RC. */
int vb_rc_req_post(struct vb_rc_req *req, const struct vb_request *request) VB_MUST_USE;

/* The caller completes the next position itself: it counts as complete and reported. Only while idle. */
void vb_rc_req_skip(struct vb_rc_req *req);

/* The next packet to send now, if there is one. */
bool vb_rc_req_write(struct vb_rc_req *req, uint64_t now, struct vb_packet_out *out);

/* An ACK, NAK, READ response or atomic answer of the peer, or a congestion notification packet. */
enum vb_rc_verdict vb_rc_req_receive(struct vb_rc_req *req, uint64_t now, const struct vb_packet *packet);

/* When vb_rc_req_expire must be called at the latest, or VB_RC_NEVER. */
uint64_t vb_rc_req_deadline(const struct vb_rc_req *req);
void vb_rc_req_expire(struct vb_rc_req *req, uint64_t now);

bool vb_rc_req_next_completion(struct vb_rc_req *req, struct vb_rc_completion *out);

/* The request at position, which is not complete, fails. */
void vb_rc_req_break(struct vb_rc_req *req, uint32_t position, enum vb_rc_status status);

const char *vb_rc_status_text(enum vb_rc_status status);

static inline bool vb_rc_req_is_idle(const struct vb_rc_req *req) { return req->head == req->tail; }

#endif

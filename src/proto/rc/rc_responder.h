/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The responder of a reliable connection (IB vol. 1, 9.7) as a pure machine: it executes requests in the
 * order of their PSNs, each exactly once, and answers.
 *
 * What arrives is compared with `expected`, the PSN that comes next:
 *   - that one is checked whole and then executed; after it, what had been kept behind it;
 *   - a later one is kept, if the caller gives memory for it, and dropped if not; the first makes a NAK for a
 *     sequence error;
 *   - an earlier one is a duplicate: a SEND or WRITE is acknowledged again and not executed; a READ is
 *     answered again if it lies within one of the last max_rd_atomic READs; an atomic with the result that was
 *     saved then.
 * A packet that does not fit its place, memory that may not be touched, too many READs: a NAK, after which
 * nothing is executed any more (the NAK is repeated when requests arrive). The same behind a SEND whose key
 * is not to be invalidated, but with that one's ACK. No receive posted: an RNR NAK, and the packet counts as
 * not arrived.
 *
 * Output, in this order: answers to duplicates; answers to READs and atomics, oldest first; then one ACK for
 * all that was executed, or the NAK. So an ACK never overtakes an answer that was due before it, which would
 * look like the loss of that.
 *
 * Memory is touched through ops, only in the course of vb_rc_resp_receive, each access checked when it is
 * made. READ data is named by (rkey, address, bytes) when it is sent; if it cannot be had any more the caller
 * says so by vb_rc_resp_fault.
 *
 * Who owns what. The caller owns the struct and the memory behind it. Kept packets lie in buffers that
 * buffer_take gives and vb_rc_resp_fini returns: at most VB_RC_KEPT per connection, and as many in all as the
 * caller likes. No timers, no allocation. Threading: none; one lock of the caller covers the machine. A
 * packet that is ignored has changed nothing.
 *
 * Usage: vb_rc_resp_receive for each packet, then vb_rc_resp_write until false.
 */
#ifndef VB_PROTO_RC_RESPONDER_H
#define VB_PROTO_RC_RESPONDER_H

#include "proto/rc/message.h"
#include "proto/rc/rc_requester.h"

enum { VB_RC_KEPT = 512 };	/* packets beyond the expected one */

/* A packet with the longest headers and payload. */
#define VB_RC_BUFFER_BYTES (VB_MAX_HEADER_BYTES + 4096)

struct vb_rc_resp_config {
	struct vb_packet_to to;
	uint32_t mtu;
	uint32_t first_psn;		/* the peer's */
	uint8_t max_rd_atomic;		/* 0 to VB_RC_MAX_RD_ATOMIC */
	uint8_t rnr_timer;		/* code; may be changed between calls */
	const struct vb_responder_ops *ops;
	/*
	 * How many receives are posted, for the credits in ACKs; NULL: they carry none, and the peer sends as
	 * it likes.
	 */
	unsigned (*receives)(void *ctx);
	/* VB_RC_BUFFER_BYTES, or NULL: then packets out of order are dropped. */
	void *(*buffer_take)(void *ctx);
	void (*buffer_give)(void *ctx, void *buffer);
	void *ctx;
};

/* A READ or atomic that was executed; what is to be sent of it is [sent, end). */
struct vb_rc_saved {
	uint64_t first, end, sent;
	uint64_t address;		/* of the data of PSN `first`; of an atomic nothing */
	uint64_t original;		/* atomics: the result */
	uint32_t rkey, length, srqn;
	bool is_atomic;
};

struct vb_rc_resp {
	struct vb_rc_resp_config config;
	uint64_t expected;
	uint32_t msn;
	struct vb_message message;
	bool ack_due, nak_due, broken;
	bool is_replaying;		/* what was written last answers a duplicate */
	/* what was executed last is a SEND or WRITE: no answer of its own acknowledges it */
	bool last_by_ack;
	uint8_t nak_syndrome;
	uint64_t nak_psn;		/* what the NAK is, or was last, about; 0: none */
	struct vb_rc_saved saved[VB_RC_MAX_RD_ATOMIC];	/* a ring; the newest before saved_next */
	/* free-running: answers of [saved_unsent, saved_next) are to be sent */
	uint32_t saved_next, saved_unsent;
	struct vb_rc_saved replays[VB_RC_MAX_RD_ATOMIC];
	uint8_t replays_head, replays_count;
	uint32_t kept_count;
	struct vb_rc_kept *kept[VB_RC_KEPT];	/* by PSN */
};

/* config->ops and what it points to must outlive the machine. */
void vb_rc_resp_init(struct vb_rc_resp *resp, const struct vb_rc_resp_config *config);
/* Gives back all buffers. */
void vb_rc_resp_fini(struct vb_rc_resp *resp);

/*
 * A request of the peer. VB_RC_BROKEN: the NAK in nak_syndrome is to be sent and the connection to be ended.
 */
enum vb_rc_verdict vb_rc_resp_receive(struct vb_rc_resp *resp, const struct vb_packet *packet);

/*
 * The next packet to go out, if there is one. Payload of a READ response: payload_bytes at payload_at in
 * rkey's region.
 */
bool vb_rc_resp_write(struct vb_rc_resp *resp, struct vb_packet_out *out);

/* Is all that vb_rc_resp_write would give now one ACK, about packets that have all been executed? */
static inline bool vb_rc_resp_owes_ack_alone(const struct vb_rc_resp *resp)
{
	return resp->ack_due && !resp->nak_due && !resp->broken && !resp->replays_count &&
	       resp->saved_unsent == resp->saved_next && !resp->kept_count;
}

/* Was the request that is expected refused, so that a receive that is taken is that one's? */
static inline bool vb_rc_resp_has_refused_next(const struct vb_rc_resp *resp)
{
	return resp->broken && resp->nak_psn == resp->expected;
}

/*
 * Makes the last ACK due once more: for a peer that may have missed it when there will soon be nobody to
 * repeat it. False: there is none, or it goes out anyway.
 */
bool vb_rc_resp_ack_again(struct vb_rc_resp *resp);

/*
 * The data of the READ response just written cannot be read any more: it is not sent, a NAK is. That ends the
 * connection, unless it was an answer to a duplicate: most likely the requester has had that one, and its
 * owner has done with the memory. Else the NAK tells it.
 */
void vb_rc_resp_fault(struct vb_rc_resp *resp, const struct vb_packet_out *out);

#endif

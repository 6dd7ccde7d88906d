/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The responder of a reliable connection (IB vol. 1, 9.7) as a pure machine: it executes requests in the
 * order of their PSNs, each exactly once, and answers.
 *
 * What arrives is compared with `expected`, the PSN that comes next:
 *   - that packet is checked as a whole and then executed; after it, packets that were kept behind it. An
 *     atomic is kept until the READs before it are answered (10.8.3);
 *   - a later one is kept, if the caller gives memory for it, and dropped if not; the first causes a NAK for a
 *     sequence error;
 *   - an earlier one is a duplicate: a SEND or WRITE is acknowledged again and not executed; a READ is answered
 *     again if it lies within one of the last max_rd_atomic READs; an atomic is answered with its saved result.
 * A packet that does not fit its place, an access that is not permitted, too many READs: a NAK, after which
 * nothing is executed any more (the NAK is repeated when requests arrive). The same follows a SEND whose key
 * cannot be invalidated, but with an ACK of that SEND in place of a NAK. No receive posted: an RNR NAK, and
 * the packet counts as not arrived.
 *
 * Output, in this order: answers to duplicates; answers to READs and atomics, oldest first; then one ACK for
 * all that was executed, or the NAK. So an ACK never overtakes an answer that was due before it; to the
 * requester, that answer would seem lost.
 *
 * Memory is accessed through ops, and each access is checked when it is made: within vb_rc_resp_receive, and
 * within vb_rc_resp_write where an atomic has waited. READ data is named by (rkey, address, bytes) when it is
 * sent, and read before the next call. If it is not accessible then, the caller calls vb_rc_resp_fault.
 *
 * A NAK for a sequence error goes once, as most requesters begin anew at the packet that it names. One that
 * was seen to send that packet alone hears it again, each time that it asks for an ACK.
 *
 * Who owns what. The caller owns the struct and the memory behind it. Kept packets lie in buffers that
 * buffer_take gives and vb_rc_resp_fini returns: at most VB_RC_KEPT per connection; the caller limits their
 * total. No timers, no allocation. Threading: none; one of the caller's locks covers the machine. A packet
 * that is ignored has changed nothing.
 *
 * Usage: vb_rc_resp_receive for each packet, then vb_rc_resp_write until false.
 */
#ifndef VB_PROTO_RC_RESPONDER_H
#define VB_PROTO_RC_RESPONDER_H

#include "proto/psn.h"
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
	/* How many receives are posted, for the credits in ACKs. NULL: ACKs carry none. */
	unsigned (*receives)(void *ctx);
	/* VB_RC_BUFFER_BYTES, or NULL: then packets out of order are dropped. */
	void *(*buffer_take)(void *ctx);
	void (*buffer_give)(void *ctx, void *buffer);
	void *ctx;
};

/* A READ or atomic that was executed; its answers [sent, end) are still to be sent. */
struct vb_rc_saved {
	uint64_t first, end, sent;
	uint64_t address;		/* of the data of PSN `first`; not of an atomic */
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
	bool is_replaying;		/* the last packet written answers a duplicate */
	/* the last request executed is a SEND or WRITE: only an ACK acknowledges it */
	bool last_by_ack;
	uint8_t nak_syndrome;
	uint64_t nak_psn;		/* the PSN of the NAK that is due, or of the last; 0: none */
	/* the PSN that filled the last hole, until a later packet has shown what the peer resends; 0: none */
	uint64_t filled;
	bool peer_selects;		/* it sends again what a NAK names, and nothing else */
	struct vb_rc_saved saved[VB_RC_MAX_RD_ATOMIC];	/* a ring; the newest before saved_next */
	/* free-running: answers of [saved_unsent, saved_next) are to be sent */
	uint32_t saved_next, saved_unsent;
	struct vb_rc_saved replays[VB_RC_MAX_RD_ATOMIC];
	uint8_t replays_head, replays_count;
	bool waits_for_reads;		/* the expected packet is kept until READs are answered */
	uint32_t kept_count;
	struct vb_rc_kept *kept[VB_RC_KEPT];	/* by PSN */
	/* Statistics, which the engine does not read. A NAK that is sent again does not count again. */
	uint64_t rnr_naks, sequence_naks, fatal_naks, duplicates, early;
};

/* config->ops and what it points to must outlive the machine. */
void vb_rc_resp_init(struct vb_rc_resp *resp, const struct vb_rc_resp_config *config);
/* Gives back all buffers. */
void vb_rc_resp_fini(struct vb_rc_resp *resp);

/* A request of the peer. VB_RC_BROKEN: the caller sends the NAK, and ends the connection. */
enum vb_rc_verdict vb_rc_resp_receive(struct vb_rc_resp *resp, const struct vb_packet *packet);

/*
 * The next packet to send, if there is one. Payload of a READ response: payload_bytes at payload_at in rkey's
 * region. May execute what has waited for READs, and break as vb_rc_resp_receive does: then broken is set.
 */
bool vb_rc_resp_write(struct vb_rc_resp *resp, struct vb_packet_out *out);

/* Has the responder executed a request, or part of one? Duplicates and packets out of order do not count. */
static inline bool vb_rc_resp_has_begun(const struct vb_rc_resp *resp)
{
	return resp->expected != vb_psn_first(resp->config.first_psn);
}

/* Would vb_rc_resp_write give one ACK and nothing else, with no packet kept? */
static inline bool vb_rc_resp_owes_ack_alone(const struct vb_rc_resp *resp)
{
	return resp->ack_due && !resp->nak_due && !resp->broken && !resp->replays_count &&
	       resp->saved_unsent == resp->saved_next && !resp->kept_count;
}

/* Was the expected request refused? Then a receive that is taken belongs to it. */
static inline bool vb_rc_resp_has_refused_next(const struct vb_rc_resp *resp)
{
	return resp->broken && resp->nak_psn == resp->expected;
}

/*
 * Makes the last ACK due again: the peer may have missed it, and this process may soon be gone. False: there
 * was none, or it is due anyway.
 */
bool vb_rc_resp_ack_again(struct vb_rc_resp *resp);

/*
 * The data of the READ response just written is not accessible any more: the caller does not send it, and a
 * NAK becomes due. That ends the connection, unless the response answers a duplicate: then the requester
 * most likely had it before, and the memory's owner has no more use for it. If not, the NAK reports the
 * failure.
 */
void vb_rc_resp_fault(struct vb_rc_resp *resp, const struct vb_packet_out *out);

#endif

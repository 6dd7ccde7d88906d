/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The responder of a reliable connection over the wire. resp_lock is held where nothing else is said.
 *
 * A responder that has refused a request repeats its NAK while the QP is in the error state: the first one
 * may be lost. A responder that leaves RTR and RTS without an error repeats its last ACK at once: it will not
 * be there when the peer asks.
 */
#include "adapter/execution/refusal.h"
#include "base/log.h"
#include "roce/burst.h"
#include "roce/rc.h"
#include "wire/syndrome.h"

/* Repetitions: where one packet in five is lost, one connection in ten million ends badly. */
enum { LAST_ACKS = 9 };

static struct vb_burst *begin_answers(struct vb_rc_connection *c)
{
	struct vb_burst *burst = vb_burst_take(VB_BURST_ANSWERS);
	struct vb_packet_out out;
	if (vb_likely(!c->cnp_due))
		return burst;
	c->cnp_due = false;
	vb_cnp_build(&c->responder.config.to, &out);
	vb_burst_begin(burst, &c->route, out.header, out.header_bytes, 0);
	vb_burst_commit(burst);
	return burst;
}

/*
 * Writes the answers that are due into one burst and returns it; NULL if there are none. *n counts the
 * slice's packets: it goes up by those written here, to VB_RC_SLICE_PACKETS at most. A full burst sets
 * answers_more.
 */
static struct vb_burst *fill_answers(struct vb_rc_connection *c, unsigned *n)
{
	struct vb_packet_out out;
	struct vb_burst *burst = c->cnp_due ? begin_answers(c) : NULL;
	c->answers_more = false;
	for (; *n < VB_RC_SLICE_PACKETS && !c->answers_more && vb_rc_resp_write(&c->responder, &out); ++*n) {
		if (!burst)
			burst = begin_answers(c);
		uint8_t *payload =
			vb_burst_begin(burst, &c->route, out.header, out.header_bytes, out.payload_bytes);
		if (!out.payload_bytes || vb_execution_read(&c->execution, out.srqn, out.rkey, out.payload_at,
							    payload, out.payload_bytes))
			c->answers_more = !vb_burst_commit(burst);
		else
			vb_rc_resp_fault(&c->responder, &out);
	}
	vb_execution_release_queue(&c->execution);
	return burst;
}

/* What the responder has refused, if it has; an ACK that ends the connection is none. */
static const struct vb_refusal *refusal_of(const struct vb_rc_connection *c)
{
	uint8_t syndrome = c->responder.nak_syndrome;
	bool refuses = c->responder.broken && vb_syndrome_class(syndrome) == VB_AETH_NAK;
	return refuses ? vb_refusal_of(vb_syndrome_value(syndrome)) : NULL;
}

static enum ibv_wc_status status_of_receive(const struct vb_rc_connection *c)
{
	const struct vb_refusal *refusal = refusal_of(c);
	if (c->execution.receive_status != IBV_WC_SUCCESS)
		return c->execution.receive_status;
	return refusal && vb_rc_resp_has_refused_next(&c->responder) ? refusal->receive : IBV_WC_WR_FLUSH_ERR;
}

void vb_rc_end_receive(struct vb_rc_connection *c)
{
	vb_execution_end_receive(&c->execution, status_of_receive(c));
}

/*
 * The responder has refused a request for good: says so. A receive that was at fault ends when the queue
 * pair stops, in the error state. The event if that receive does not tell it, or -1.
 */
static int note_refusal(struct vb_rc_connection *c)
{
	const struct vb_refusal *refusal = refusal_of(c);
	bool is_reported = c->execution.have_rwqe && status_of_receive(c) != IBV_WC_WR_FLUSH_ERR;
	vb_execution_explain(
		&c->execution,
		"it breaks the rules of the connection (opcode, length, an atomic's alignment, path MTU or number of READs)");
	return is_reported || !refusal ? -1 : refusal->event;
}

/* True, once: the responder has refused a request for good. Its NAK has been sent. */
static bool refuses(struct vb_rc_connection *c, int *event)
{
	if (vb_likely(!c->responder.broken) || c->has_refused)
		return false;
	c->has_refused = true;
	*event = note_refusal(c);
	return true;
}

static void send_answers(struct vb_rc_connection *c, struct vb_burst *burst)
{
	c->is_answering = true;
	vb_unlock(&c->qp->resp_lock);
	vb_burst_give(burst);
	vb_lock(&c->qp->resp_lock);
	c->is_answering = false;
}

void vb_rc_respond_and_unlock(struct vb_rc_connection *c)
{
	struct vb_qp *qp = c->qp;
	struct vb_burst *burst;
	unsigned n = 0;
	int event = -1;
	c->answers_more = true;
	while (!c->is_answering && c->answers_more && n < VB_RC_SLICE_PACKETS && vb_rc_may_respond(c)) {
		c->answers_ack_alone = !c->cnp_due && vb_rc_resp_owes_ack_alone(&c->responder);
		burst = fill_answers(c, &n);
		if (burst)
			send_answers(c, burst);
	}
	vb_rc_note_owed_ack(c);
	bool breaks = !c->is_answering && refuses(c, &event);
	vb_unlock(&qp->resp_lock);
	if (vb_unlikely(breaks))
		vb_qp_break(qp, event);
	else if (n == VB_RC_SLICE_PACKETS)
		vb_progress_schedule(qp);
}

/* Each in a burst of its own: what is lost on the way may be a whole burst. */
void vb_rc_repeat_last_ack(struct vb_rc_connection *c)
{
	unsigned repetitions = 0, n = 0;
	do {
		struct vb_burst *burst = fill_answers(c, &n);
		if (burst)
			vb_burst_give(burst);
	} while (repetitions++ < LAST_ACKS && vb_rc_resp_ack_again(&c->responder));
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include "proto/rc/message.h"

#include <errno.h>

/* The arguments of vb_message_execute as one. */
struct work {
	struct vb_message *message;
	const struct vb_responder_ops *ops;
	void *ctx;
	const struct vb_packet *packet;
};

static bool is_in_place(const struct work *w)
{
	if (w->packet->row->flags.first)
		return w->message->state == VB_NO_MESSAGE;
	return w->message->state == (w->packet->row->operation == VB_OP_SEND ? VB_IN_SEND : VB_IN_WRITE);
}

static int take_receive(const struct work *w)
{
	if (w->message->has_receive)
		return 0;
	int rc = w->ops->receive_take(w->ctx, w->packet);
	w->message->has_receive = rc == 0;
	return rc;
}

static uint32_t rkey_to_invalidate(const struct vb_packet *packet)
{
	return vb_ieth_rkey((const struct vb_ieth *)vb_packet_extension(packet, VB_EXT_IETH));
}

/* The end of a message that uses a receive. */
static void finish_receive(const struct work *w, uint64_t bytes, bool is_refused)
{
	const struct vb_packet *packet = w->packet;
	struct vb_received received = { .bytes = bytes,
					.is_refused = is_refused,
					.solicited = packet->solicited,
					.is_write = packet->row->operation == VB_OP_WRITE };

	if (vb_opcode_has(packet->row, VB_EXT_IMMDT)) {
		received.tail = VB_TAIL_IMM;
		memcpy(&received.tail_value, vb_packet_extension(packet, VB_EXT_IMMDT), 4);
	} else if (vb_opcode_has(packet->row, VB_EXT_IETH)) {
		received.tail = VB_TAIL_INVALIDATE;
		received.tail_value = rkey_to_invalidate(packet);
	}
	w->message->has_receive = false;
	w->ops->receive_done(w->ctx, &received);
}

static void advance(const struct work *w, uint64_t bytes, bool is_refused)
{
	const struct vb_opcode_row *row = w->packet->row;

	w->message->offset = bytes;
	w->message->state = row->flags.last		 ? VB_NO_MESSAGE :
			    row->operation == VB_OP_SEND ? VB_IN_SEND :
							   VB_IN_WRITE;
	if (row->flags.last && row->flags.receive)
		finish_receive(w, bytes, is_refused);
}

static int execute_send(const struct work *w)
{
	const struct vb_packet *packet = w->packet;
	uint64_t offset = packet->row->flags.first ? 0 : w->message->offset,
		 bytes = offset + packet->payload_bytes;

	if (bytes > VB_MAX_MESSAGE_BYTES)
		return -EINVAL;
	int rc = take_receive(w);
	if (rc == 0 && packet->payload_bytes)
		rc = w->ops->receive_place(w->ctx, offset, packet->payload, packet->payload_bytes);
	if (rc)
		return rc;
	bool is_refused = vb_opcode_has(packet->row, VB_EXT_IETH) &&
			  w->ops->invalidate(w->ctx, rkey_to_invalidate(packet));
	advance(w, bytes, is_refused);
	return is_refused ? VB_MESSAGE_IS_LAST : 0;
}

/* Where a WRITE goes. */
struct target {
	uint64_t address;
	uint32_t rkey, length;
};

static int find_target(const struct work *w, struct target *target)
{
	if (!w->packet->row->flags.first) {
		*target = (struct target){ w->message->address, w->message->rkey, w->message->length };
		return 0;
	}
	const struct vb_reth *reth = (const struct vb_reth *)vb_packet_extension(w->packet, VB_EXT_RETH);
	*target = (struct target){ vb_reth_address(reth), vb_reth_rkey(reth), vb_reth_length(reth) };
	if (target->length > VB_MAX_MESSAGE_BYTES)
		return -EINVAL;
	return w->ops->check(w->ctx, target->rkey, target->address, target->length, VB_ACCESS_WRITE);
}

/*
 * Does the queue pair permit the operation, and is there a receive if it needs one? Checked before keys
 * (9.7.4.1).
 */
static int prepare_write(const struct work *w)
{
	int rc = 0;

	if (!w->packet->row->flags.receive)
		return 0;
	if (w->packet->row->flags.first)
		rc = w->ops->check(w->ctx, 0, 0, 0, VB_ACCESS_WRITE);
	return rc ? rc : take_receive(w);
}

static int execute_write(const struct work *w)
{
	const struct vb_packet *packet = w->packet;
	uint64_t offset = packet->row->flags.first ? 0 : w->message->offset,
		 bytes = offset + packet->payload_bytes;
	struct target target;
	int rc = prepare_write(w);

	if (rc == 0)
		rc = find_target(w, &target);
	if (rc == 0 && (packet->row->flags.last ? bytes != target.length : bytes >= target.length))
		rc = -EINVAL;
	if (rc == 0 && packet->payload_bytes)
		rc = w->ops->write(w->ctx, target.rkey, target.address + offset, packet->payload,
			packet->payload_bytes);
	if (rc)
		return rc;
	w->message->address = target.address;
	w->message->rkey = target.rkey;
	w->message->length = target.length;
	advance(w, bytes, false);
	return 0;
}

int vb_message_execute(struct vb_message *message, const struct vb_responder_ops *ops, void *ctx,
		       uint32_t mtu, const struct vb_packet *packet)
{
	struct work w = { message, ops, ctx, packet };

	if (!vb_packet_fits(packet, mtu) || !is_in_place(&w))
		return -EINVAL;
	return packet->row->operation == VB_OP_SEND ? execute_send(&w) : execute_write(&w);
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include "proto/rc/uc.h"

void vb_uc_resp_init(struct vb_uc_resp *resp, const struct vb_uc_resp_config *config)
{
	*resp = (struct vb_uc_resp){ .config = *config, .expected = config->first_psn & VB_PSN_MASK };
}

/* The message that is under way is lost, if one is. */
static void drop_message(struct vb_uc_resp *resp)
{
	const struct vb_responder_ops *ops = resp->config.ops;

	resp->message.state = VB_NO_MESSAGE;
	if (resp->message.has_receive && ops->receive_lost && ops->receive_lost(resp->config.ctx))
		resp->message.has_receive = false;
}

int vb_uc_resp_receive(struct vb_uc_resp *resp, const struct vb_packet *packet)
{
	if (packet->opcode >> VB_OPCODE_BITS != VB_SERVICE_UC ||
	    !vb_pkey_matches(packet->pkey, resp->config.pkey))
		return -EINVAL;
	if (packet->psn != resp->expected || packet->row->flags.first)
		drop_message(resp);
	resp->expected = (packet->psn + 1) & VB_PSN_MASK;
	int err = vb_message_execute(&resp->message, resp->config.ops, resp->config.ctx, resp->config.mtu,
				     packet);
	if (err) {
		drop_message(resp);
		resp->dropped++;
	}
	return err;
}

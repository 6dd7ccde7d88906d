/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/agent/message_fault.h"

struct vb_cma_fate vb_cma_fate_of(enum vb_fault_direction direction, const struct vb_cm_msg *msg,
				  const struct in6_addr *peer)
{
	bool is_request = msg->attribute == VB_CM_ATTR_REQ || msg->attribute == VB_CM_ATTR_SIDR_REQ;
	struct vb_fault_subject subject = {
		.site = VB_FAULT_MESSAGE,
		.direction = direction,
		.message = msg->attribute,
		.port = is_request ? (uint16_t)vb_cm_msg_service_id(msg) : 0,
		.peer = peer->s6_addr,
	};
	struct vb_fault_bite bites[VB_FAULT_RULES];
	struct vb_cma_fate fate = { 0 };
	unsigned n = vb_fault_ask(&subject, bites);
	for (unsigned i = 0; i < n; i++) {
		if (bites[i].rule->kind == VB_FAULT_LOSE)
			fate.is_lost = true;
		else if (!fate.refusal)
			fate.refusal = (unsigned)bites[i].rule->value;
	}
	return fate;
}

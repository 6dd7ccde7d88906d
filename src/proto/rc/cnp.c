/* SPDX-License-Identifier: BSD-2-Clause */
#include "proto/rc/cnp.h"

enum { RESERVED_BYTES = 16 };

bool vb_cnp_is_due(struct vb_cnp *cnp, uint64_t now)
{
	if (now < cnp->next_at)
		return false;
	cnp->next_at = now + VB_CNP_PAUSE_NS;
	return true;
}

void vb_cnp_build(const struct vb_packet_to *to, struct vb_packet_out *out)
{
	struct vb_bth *bth = (struct vb_bth *)out->header;

	memset(out, 0, sizeof(*out));
	vb_bth_set_opcode(bth, VB_OPCODE_CNP);
	vb_bth_set_mig_req(bth, 1);
	vb_bth_set_pkey(bth, to->pkey);
	vb_bth_set_becn(bth, 1);
	vb_bth_set_destination_qpn(bth, to->qpn);
	out->header_bytes = VB_BTH_BYTES + RESERVED_BYTES;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Headers of messages to a receiver that matches tags, first in the payload (struct ibv_tmh and struct
 * ibv_rvh of the interface). A rendezvous request has both; what may follow is the sender's.
 */
#ifndef VB_WIRE_TAG_H
#define VB_WIRE_TAG_H

#include "wire/field.h"

/* Tag matching header. */
#define VB_TMH_ROWS(F, B, P, O)         \
	F(P, O, opcode, 0, 0, 8)        \
	F(P, O, app_ctx, 4, 0, 32)      \
	F(P, O, tag, 8, 0, 64)

/* Rendezvous header: where the sender has the data. */
#define VB_RVH_ROWS(F, B, P, O)         \
	F(P, O, address, 0, 0, 64)      \
	F(P, O, rkey, 8, 0, 32)         \
	F(P, O, length, 12, 0, 32)

VB_FIELD_ACCESSORS(vb_tmh, 16, 0, VB_TMH_ROWS)
VB_FIELD_ACCESSORS(vb_rvh, 16, 0, VB_RVH_ROWS)

enum {
	VB_TMH_BYTES = 16,
	VB_RENDEZVOUS_BYTES = VB_TMH_BYTES + 16,
	VB_RENDEZVOUS_MAX_BYTES = 64, /* of a request, with what follows its headers */
};

#endif

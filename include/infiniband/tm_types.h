/* SPDX-License-Identifier: BSD-2-Clause */
/* Headers that senders put before messages to a tag matching SRQ, as on the wire. ibv_post_srq_ops(3) */
#ifndef _TM_TYPES_H
#define _TM_TYPES_H

#include <linux/types.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a message is: without tag, a rendezvous request, the end of a rendezvous, or data with a tag. */
enum ibv_tmh_op {
	IBV_TMH_NO_TAG,
	IBV_TMH_RNDV,
	IBV_TMH_FIN,
	IBV_TMH_EAGER,
};

/* The tag matching header, first in every message. app_ctx comes out in the completion; reserved is 0. */
struct ibv_tmh {
	uint8_t	opcode;		/* enum ibv_tmh_op */
	uint8_t	reserved[3];
	__be32	app_ctx;
	__be64	tag;
};

/*
 * The rendezvous header, after it in an IBV_TMH_RNDV message: where the receiver may read the len bytes of
 * data.
 */
struct ibv_rvh {
	__be64	va;
	__be32	rkey;
	__be32	len;
};

#ifdef __cplusplus
}
#endif

#endif /* _TM_TYPES_H */

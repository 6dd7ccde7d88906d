/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Moving bytes between gather/scatter lists of two processes (adapter/memory/ranges.h). Lists are translated
 * through the key table of the process that owns them, which is the access check; all of it happens inside a
 * busy section.
 */
#ifndef VB_LOCAL_COPY_H
#define VB_LOCAL_COPY_H

#include "adapter/memory/ranges.h"
#include "local/qp.h"

/*
 * A range, or a gather/scatter list, of the peer's memory: by where this process has it mapped, if it has,
 * else by the peer's addresses. The range was checked (vb_key_check said va); the list is checked as by
 * vb_ranges_of_list, for the peer to give or to take.
 */
void vb_peer_bytes(struct vb_ranges *out, struct vb_peer *peer, uint32_t rkey, uint64_t va, uint64_t bytes,
		   bool writes);
enum vb_key_fault vb_peer_list(struct vb_ranges *out, struct vb_peer *peer, struct vb_sg_list list,
			       uint64_t skip, uint64_t bytes, bool writes);

/*
 * Copies between ranges of this process and of the peer, which are equally long; the last bytes become
 * visible last. 0, or what vb_copy_from_peer and vb_copy_to_peer return. -EAGAIN: the peer's memory is being
 * moved, try again soon. -ECANCELED: the peer has ended the link. -ESRCH: the link has ended.
 */
int vb_copy_out(const struct vb_peer *peer, struct vb_ranges *theirs, const struct vb_ranges *ours);
int vb_copy_in(const struct vb_peer *peer, const struct vb_ranges *ours, const struct vb_ranges *theirs);

/* ---- byte streams, for links that cannot copy between processes ---- */

/* How much can be taken from the peer's stream now; UINT64_MAX: its counters make no sense. */
uint64_t vb_stream_available(struct vb_local_qp *l, enum vb_stream stream);
/* How much can be put into ours now; UINT64_MAX likewise. */
uint64_t vb_stream_room(struct vb_local_qp *l, enum vb_stream stream);
/*
 * At most what is available. -EPROTO: the peer's stream is not where it should be; -EFAULT: our memory is not
 * there.
 */
int vb_stream_take(struct vb_local_qp *l, enum vb_stream stream, const struct vb_ranges *to);
/*
 * At most what there is room for. -ENOMEM: no memory for the stream; -EFAULT: what it comes from is not
 * there.
 */
int vb_stream_put(struct vb_local_qp *l, enum vb_stream stream, const struct vb_ranges *from);

#endif

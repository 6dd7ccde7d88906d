/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Moving bytes between gather/scatter lists of two processes (adapter/ranges.h). Lists are translated through the key table of the
 * process that owns them, which is the access check; all of it happens inside a busy section.
 */
#ifndef VB_LOCAL_COPY_H
#define VB_LOCAL_COPY_H

#include "adapter/ranges.h"
#include "local/qp.h"

/*
 * Copies between ranges of this process and of the peer, which are equally long; the last bytes become visible last. 0, or what
 * vb_copy_from_peer and vb_copy_to_peer return.
 */
int vb_copy_out(const struct vb_peer *peer, struct vb_ranges *theirs, const struct vb_ranges *ours);
int vb_copy_in(const struct vb_peer *peer, const struct vb_ranges *ours, const struct vb_ranges *theirs);

/* ---- byte streams, for links that cannot copy between processes ---- */

/* How much can be taken from the peer's stream now; UINT64_MAX: its counters make no sense. */
uint64_t vb_stream_available(struct vb_local_qp *l, enum vb_stream stream);
/* How much can be put into ours now; UINT64_MAX likewise. */
uint64_t vb_stream_room(struct vb_local_qp *l, enum vb_stream stream);
/* At most what is available. False: the peer's stream is not where it should be. */
bool vb_stream_take(struct vb_local_qp *l, enum vb_stream stream, const struct vb_ranges *to);
/* At most what there is room for. False: no memory for the stream. */
bool vb_stream_put(struct vb_local_qp *l, enum vb_stream stream, const struct vb_ranges *from);

#endif

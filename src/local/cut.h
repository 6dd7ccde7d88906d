/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ending links to peers that do not run. A process that revokes an access waits for the busy sections that
 * are open (local/shared.h). A peer in such a section may be stopped by SIGSTOP, a debugger or a freezer, for
 * ever.
 *
 *	section open ---- it ends, or its process does ----> (go on)
 *	     |------ no thread of the process runs ------\
 *	     |------ it is open for far too long ---------+--> CUT, go on
 *
 * CUT: the link's flag is set, cuts is counted, and the link is shut down, so that each side takes the other
 * for dead. What the peer still does in the open section has no effect:
 *
 *	copies from or to a mapping        sees the flag when it runs again, and stops (host/memory/touch.h)
 *	was about to copy by process_vm    likewise (host/ipc/guard.h)
 *	reads, or executes, from an entry  sees the flag before it completes or acknowledges anything; ring
 *	                                   and streams stay as they are until it has left the section
 *	                                   (local.c), so no other bytes come into its memory
 *
 * All links to that process are cut: the two ends of a connection may go by different ones. The one that the
 * section belongs to is cut even if it has ended already. Nothing else ever gets the memory of the flag.
 */
#ifndef VB_LOCAL_CUT_H
#define VB_LOCAL_CUT_H

#include "local/peer.h"

/*
 * Behind a revocation, before the look for users of what was revoked: pairs with vb_busy_begin, and with
 * vb_doorbell_ring.
 */
void vb_fence_users(void);

/*
 * Waits until a busy section that was open at the call has ended, or its process has, or the link to it was
 * cut. peer: NULL for a section of this process, which is waited for without a limit. False: the deadline
 * came first. vb_progress_lock is not held.
 */
bool vb_cut_or_await(const _Atomic(uint32_t) *busy, struct vb_peer *peer, uint64_t deadline_ns);

/* Has the peer cut the link? Then this side reports nothing of the section that is open, or just was. */
static inline bool vb_is_cut_by(const struct vb_peer *peer)
{
	return vb_unlikely(atomic_load_explicit(&peer->arena->cuts, memory_order_acquire)) &&
	       atomic_load_explicit(&peer->in->cut, memory_order_relaxed);
}

#endif

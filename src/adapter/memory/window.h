/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory windows: keys of their own onto a part of a region, bound and invalidated by work requests (IB vol.
 * 1, 10.6.7).
 *
 *	         bind (type 1: again and again; type 2: once)
 *	INVALID ------------------------------> BOUND
 *	       <------------------------------
 *	         bind of no bytes (type 1); invalidation by this side or the peer (type 2)
 *
 * A window is an entry of the key table. Of type 1 it is good for all queue pairs of its domain, and each
 * bind makes a new key; of type 2 for the one that bound it alone (type 2B), with the tag that the program
 * chose. What a bound window shows stays: its region can be neither changed nor deregistered. The window's
 * state is under one lock of the process. Its object is in object.h.
 */
#ifndef VB_ADAPTER_WINDOW_H
#define VB_ADAPTER_WINDOW_H

#include "adapter/memory/key.h"
#include "adapter/object.h"

/* Makes an entry that was taken a window of domain pd, which is not bound. */
void vb_window_begin(uint32_t key, enum ibv_mw_type type, uint32_t pd);
/*
 * Gives its entry back, by the key that it had first, bound or not. Returns after the last access through it
 * has ended.
 */
void vb_window_end(uint32_t key);

/*
 * Executes a work request of the send queue of qp: IBV_WR_BIND_MW, IBV_WR_LOCAL_INV.
 * IBV_WC_SUCCESS, or IBV_WC_MW_BIND_ERR with a sentence. After an invalidation the last access through the
 * key has ended. sq.lock is held.
 */
enum ibv_wc_status vb_window_execute(const struct vb_qp *qp, const struct vb_sqe *sqe, const char **why);
/* The peer of queue pair qpn asks for it. Only that peer uses the key, and its accesses are over. */
enum vb_key_fault vb_window_invalidate_remotely(uint32_t key, uint32_t pd, uint32_t qpn);
/* Type 2 windows that were bound on a queue pair end with it. */
void vb_windows_forget(uint32_t qpn);

/* Is this, with whatever tag, the key of a window that exists? */
bool vb_window_has_entry(uint32_t key);

/* Revokes a region's key, unless windows are bound to it: then false. */
bool vb_region_end(uint32_t key);

#endif

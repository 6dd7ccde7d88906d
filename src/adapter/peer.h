/* SPDX-License-Identifier: BSD-2-Clause */
/* What librdmacm and the wire ask of the adapter beyond the public calls. */
#ifndef VB_ADAPTER_PEER_H
#define VB_ADAPTER_PEER_H

#include "host/host.h"
#include "host/activity.h"

/*
 * Has died(arg, slot) called for each slot of a process that was linked to this one and is gone, however it
 * ended. Called from the progress thread with no adapter or host lock held, before that process's QPs are
 * failed; it may call anything but must not block. One subscriber per process, kept for its life; a second
 * call replaces the first. A link that this process closed itself is no death.
 */
VB_EXPORT void vb_peer_death_subscribe(void (*died)(void *arg, uint32_t slot), void *arg);

/*
 * Puts a packet, from the BTH on and without ICRC, into memory that the process with that slot reads, if
 * there is a link to it or can be one. At most VB_INBOX_MAX_IOV pieces. Any thread; makes the link, without
 * waiting for it, at first. -EAGAIN: no room, or no link yet: nothing was sent, try again. -ENOTCONN: it has
 * none with this process, its inbox is the way to it.
 */
int vb_peer_ud_ring(uint32_t slot, const struct vb_inbox_addr *addr, const struct iovec *iov, int iovcnt);
/*
 * There has been no room for long: is it not worth to wait for the process any longer (host/ipc/guard.h)? The
 * progress thread asks, which then has done its own part of making the link.
 */
bool vb_peer_ud_ring_is_vain(uint32_t slot, struct vb_process_wait *patience, uint64_t now_ns);

/*
 * Moves the QP with this number to the error state, as ibv_modify_qp would, if there still is one: for those
 * who know a QP that the program may be destroying at the same time.
 */
VB_EXPORT void vb_qp_fail_number(uint32_t qpn);

/*
 * Has changed(arg) called when interfaces, their addresses or link addresses have changed, after the devices
 * have followed. From the progress thread, without locks. One subscriber per process; a second call replaces
 * the first.
 */
VB_EXPORT void vb_netif_change_subscribe(void (*changed)(void *arg), void *arg);

/*
 * The pages of a region, named by its lkey, move to where peers can map them (adapter/memory/segment.h) when
 * a peer has used them for a while, and not already when a connection is made: for regions of connections
 * that may be short. Until it is deregistered.
 */
VB_EXPORT void vb_segment_when_asked(uint32_t key);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Datagrams between processes of one host (and within one): a ring of lines in the sender's arena for each
 * link, made for the first datagram. Its format is in local/shared.h.
 *
 *	sender                                         receiver
 *	writes a record, its head last ------------->  sees tag == expected position + 1, copies the record, then looks at it
 *	sees that there is room        <-------------  writes ud_ring_taken: how far it has come
 *
 * A sender finds its way to a slot once and keeps it: the link, or the slot's inbox where there can be no
 * link. Datagrams wait while the link is being made, so that none overtakes another.
 *
 * A datagram that finds no receive is dropped, as on a wire. But a program without a processor cannot post
 * one. So its first such datagram waits for a while, and the ring behind it waits as well.
 *
 * Locks: a sender holds the way's lock, and in it the ring's. The thread that takes datagrams holds one lock
 * for the whole process, which comes before vb_progress_lock and the locks of queue pairs. Other threads wait
 * for it only when a link ends.
 */
#ifndef VB_LOCAL_UD_RING_H
#define VB_LOCAL_UD_RING_H

#include "base/lock.h"
#include "host/loop/activity.h"
#include "local/shared.h"

struct vb_peer;

/* Of one link. */
struct vb_ud_ring {
	/* Outgoing; under `lock`. */
	struct vb_lock lock;
	uint8_t *ring;                      /* in our arena; NULL: not made yet */
	uint32_t put;                       /* lines written */
	/* Incoming; written under the receivers' lock. */
	const uint8_t *_Atomic arrivals;    /* the peer's ring; NULL: not known */
	_Atomic(uint32_t) taken;            /* lines read */
	atomic_bool waits;                  /* for a receive */
	uint64_t waits_since_ns;            /* 0: it does not */
	atomic_bool broken;                 /* it held what is no record: it is not looked at again */
};

/*
 * Writes a packet, from the BTH on and without ICRC, to memory that the process with that slot reads, if
 * there is a link to it or can be one. At most VB_INBOX_MAX_IOV pieces. Any thread; makes the link, without
 * waiting for it, at first. 0: it is written, and the caller must publish it at once: the locks of the way
 * and the ring are held until then. -EAGAIN: no room, or no link yet: nothing was written, try again.
 * -ENOTCONN: it has none with this process, its inbox is the way to it.
 */
int vb_ud_ring_write(uint32_t slot, const struct vb_inbox_addr *addr, const struct iovec *iov, int iovcnt);
/*
 * Shows the process what was written. The sender completes its send before that, so the completion is there
 * before any answer.
 */
void vb_ud_ring_publish(uint32_t slot);
/*
 * There has been no room for long: is it not worth waiting for the process any longer (host/loop/activity.h)?
 * The progress thread asks, which has done its own part of making the link by then.
 */
bool vb_ud_ring_gives_up(uint32_t slot, struct vb_process_wait *patience, uint64_t now_ns);

/* The peer has rung for all: it may have a ring that is not known yet. vb_progress_lock is held. */
void vb_ud_ring_look_locked(struct vb_peer *peer);
/* Takes datagrams, some of each peer's; true if there were some. No lock held. */
bool vb_ud_ring_take(void);
/* Is there something to be taken? vb_progress_lock is held. */
bool vb_ud_ring_is_waiting_locked(const struct vb_peer *peer);
/*
 * The link has ended, and its bells are not heard any more: takes what is left in the ring, and the
 * references of its ways. No lock held.
 */
void vb_ud_ring_end(struct vb_peer *peer, bool was_up);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Links to other processes of this host, and to this process itself. A peer here is one link: a SEQPACKET
 * connection that identifies the other process and passes the arenas' memfds and segments. Its hang-up says
 * that the other process has died. Two processes that connect to each other at the same time have two links.
 * That costs a mapping and is harmless, because bells only say where to look.
 *
 *	CONNECTING --- hello and ready received ---> UP --- hang-up ---> DEAD
 *	     \------------- anything wrong, hang-up ----------------------^
 *
 * A process needs descriptors and address space for a hello. Without them, or if it refuses the other, it
 * hangs up. Else it *agrees* by its ready, and no longer ends the link for such a reason. So if a link is UP
 * at one end, both ends have agreed, and it gets UP at the other, too, unless a process dies. A peer that is
 * stopped does not answer: the process that waits for it ends the link.
 *
 * The two ends of a connection choose its path at different times (vb_peer_choose), and what a process has
 * changes. So that both choose the same path, a slot is *declined* while a queue pair of this process takes
 * the wire to it: this process then agrees to no link with the slot's owner, so neither end gets one. This
 * end chooses, when the other end
 *
 *	has a link with this one       the link: this end waits for what is missing, a ready that is on its way
 *	has declined this process      the wire: it hangs up on each link
 *	has not chosen yet             the link, if one gets UP now; else the wire, and this end declines, as above
 *	has not chosen, and is stopped the wire, likewise
 *
 * A hostile peer harms only its own connections, whatever it says or leaves out. If it claims another's
 * slots, it can keep this process from a link to these. It could do the same by stopping their processes.
 *
 * Ownership: the link itself holds a reference until it is DEAD, each attached QP one. The arena's mapping
 * lives as long as the peer. Threading: state changes happen in the progress thread; bells are rung by any
 * thread; peers and their QPs are listed under vb_progress_lock.
 */
#ifndef VB_LOCAL_PEER_H
#define VB_LOCAL_PEER_H

#include "local/ud_ring.h"
#include "adapter/progress/progress.h"
#include "base/nanoseconds.h"

enum {
	VB_PEER_AGREE_NS = 800 * VB_NS_PER_MS,
	VB_MAX_PEERS = VB_SLOT_COUNT + 1, /* this process itself included */
};

enum vb_peer_state { VB_PEER_CONNECTING, VB_PEER_UP, VB_PEER_DEAD };

/* How far a QP has come after its peer's death. */
enum vb_peer_end { VB_PEER_ALIVE, VB_PEER_DRAINED, VB_PEER_FAILED };

/* How bytes get from one process to the other. */
enum vb_copy {
	VB_COPY_SAME,       /* one address space */
	VB_COPY_PROCESS_VM, /* by mappings where there are some, else process_vm_readv/writev, both ways */
	VB_COPY_LINK,       /* through byte streams in the arenas: each side moves its own bytes */
};

struct vb_peer {
	_Atomic(enum vb_peer_state) state;
	enum vb_copy copy;
	atomic_uint refs;
	pid_t pid;
	int fd;                          /* the link; -1: this process itself */
	/* to ring: its progress thread, or the thread that leads; -1 until UP */
	int eventfd, waiter_eventfd;
	const struct vb_arena_head *arena;
	uint64_t arena_bytes;
	uint64_t nonce;
	struct vb_shm_bells *out;        /* in our arena */
	const struct vb_shm_bells *in;   /* in theirs */
	uint32_t heard;                  /* position of the next bell in `in`; under vb_progress_lock */
	uint32_t vain_looks;             /* for that bell, by those that want to sleep; likewise */
	/* where the bells ended when all QPs were looked at for one that did not come; likewise */
	uint32_t overlooked;
	atomic_uint rung;                /* the value of their asleep for which we rang */
	bool hello_seen;
	atomic_bool is_cut;              /* by this side */
	struct vb_ud_ring ud_ring;
	/* what of its memory is mapped (local/mapped.h), or NULL; set before UP */
	struct vb_mapped *mapped;
	struct vb_watch watch;
	struct vb_timer grace;           /* from its death to the failure of its QPs */
	struct vb_list qps;              /* vb_local_qp.node, under vb_progress_lock */
};

/*
 * Sets what is called when a peer has died, before its QPs fail: in the progress thread, without a lock. Set
 * by a constructor.
 */
void vb_peer_set_death_handler(void (*died)(struct vb_peer *peer, bool was_up));

/*
 * How a connection goes to the process that owns a slot: by this link, made now if need be, with a reference;
 * or NULL: by the wire, and then the slot is declined until vb_peer_decline_no_more. Waits until the other
 * end has agreed, which its progress thread does at once, or has hung up; for VB_PEER_AGREE_NS, and for
 * ten seconds where it is not stopped, but does not get a processor.
 */
struct vb_peer *vb_peer_choose(uint32_t slot);
void vb_peer_decline_no_more(uint32_t slot);
/*
 * Finds or makes the link to the process that owns a slot, and takes a reference; for callers that cannot
 * wait. -EAGAIN: it takes longer. -ECONNREFUSED: there is no such process, or one of the two refuses links.
 * -EPERM: the two may not share memory. Else: what this process lacks.
 */
int vb_peer_try(uint32_t slot, struct vb_peer **peer);
void vb_peer_put(struct vb_peer *peer);

/* Would a bell have to wake it? A hint. */
static inline bool vb_peer_is_asleep(const struct vb_peer *peer)
{
	return atomic_load_explicit(&peer->arena->asleep, memory_order_relaxed) != 0;
}
/* Tells the peer to look at its QP qpn. The memory that it will look at was written before. */
void vb_peer_ring(struct vb_peer *peer, uint32_t qpn);
/* Wakes it if it is asleep, for what was written by a sequentially consistent store before. */
void vb_peer_wake(struct vb_peer *peer);
/*
 * The control block of one of the peer's QPs; NULL if the peer does not own that number. Its arena is mapped,
 * as when it is UP.
 */
const struct vb_shm_qp *vb_peer_block(const struct vb_peer *peer, uint32_t qpn);
/* A range of the peer's arena, or NULL if it is not wholly within the heap. */
const void *vb_peer_range(const struct vb_peer *peer, uint64_t offset, uint64_t bytes);
/*
 * Ends all links to the process that this one leads to, for both sides: this one does not wait for it
 * (local/cut.h). vb_progress_lock is not held.
 */
void vb_peer_cut(struct vb_peer *peer);
/* Also true when the link has hung up and the progress thread has not noticed yet. */
bool vb_peer_is_dead(const struct vb_peer *peer);

/* Those whose arena is mapped, in no order. Under vb_progress_lock. */
extern struct vb_peer *vb_peers[VB_MAX_PEERS];
extern atomic_uint vb_npeers;
/* All QPs that are attached to the peer have something to look at. vb_progress_lock is held. */
void vb_peer_wake_qps_locked(struct vb_peer *peer);
/* The next of its QPs that has not come so far yet, and now counts as such; with a reference. NULL: none. */
struct vb_qp *vb_peer_next_qp(struct vb_peer *peer, enum vb_peer_end step);
/*
 * The control block of QP qpn, by whichever link its process has to us, and that link with a reference (also
 * in *peer); NULL: no link shows it, and so its process cannot reach our memory. vb_progress_lock is held.
 */
const struct vb_shm_qp *vb_peers_find_block(uint32_t qpn, struct vb_peer **peer);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Links to other processes of this host, and to this process itself. A peer here is one link: a SEQPACKET connection that shows
 * who the other is and passes the arenas' memfds; nothing else travels on it, and its hang-up is the news of the other's death.
 * Two processes that connect to each other at the same time have two links; that costs a mapping and harms nothing, because bells
 * only say where to look.
 *
 *	CONNECTING --- hello and ready received ---> UP --- hang-up ---> DEAD
 *	     \------------- anything wrong, hang-up ----------------------^
 *
 * Ownership: the link itself holds a reference until it is DEAD, each attached QP one. The arena's mapping lives as long as the
 * peer. Threading: state changes happen in the progress thread; bells are rung by any thread; peers and their QPs are listed under
 * vb_progress_lock.
 */
#ifndef VB_LOCAL_PEER_H
#define VB_LOCAL_PEER_H

#include "local/mail.h"
#include "adapter/progress.h"

enum { VB_PEER_PATIENCE_NS = 500000000 };

enum vb_peer_state { VB_PEER_CONNECTING, VB_PEER_UP, VB_PEER_DEAD };

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
	int eventfd, waiter_eventfd;     /* to ring: its progress thread, or the thread that leads; -1 until UP */
	const struct vb_arena_head *arena;
	uint64_t arena_bytes;
	uint64_t nonce;
	struct vb_shm_bells *out;        /* in our arena */
	const struct vb_shm_bells *in;   /* in theirs */
	uint32_t heard;                  /* bells taken from in; under vb_progress_lock */
	atomic_uint rung;                /* the value of their asleep for which we rang */
	bool hello_seen;
	atomic_bool is_cut;              /* by this side */
	struct vb_mail mail;
	struct vb_mapped *mapped;        /* what of its memory is mapped (local/mapped.h), or NULL; set before UP */
	atomic_bool offer_due;           /* a QP was connected: our memory is offered when it has been moved */
	struct vb_watch watch;
	struct vb_timer grace;           /* from its death to the failure of its QPs */
	struct vb_list qps;              /* vb_local_qp.node, under vb_progress_lock */
};

/*
 * The link to the process that owns a slot, made now if need be, with a reference. -ECONNREFUSED: there is no such process, or it
 * refuses links; -EPERM: the two may not share memory; these the other end finds as well. Else: what keeps this process from having a link.
 */
int vb_peer_get(uint32_t slot, struct vb_peer **peer);
/* The same, for who cannot wait: -EAGAIN, it takes longer. */
int vb_peer_try(uint32_t slot, struct vb_peer **peer);
void vb_peer_put(struct vb_peer *peer);
/*
 * Waits until the other end has agreed to a link, which its progress thread does at once, or has hung up: then false. True, too, if it
 * says nothing for VB_PEER_PATIENCE_NS, or this is the progress thread, which has to hear it.
 */
bool vb_peer_agrees(const struct vb_peer *peer);

/* Would a bell have to wake it? A hint. */
static inline bool vb_peer_is_asleep(const struct vb_peer *peer)
{
	return atomic_load_explicit(&peer->arena->asleep, memory_order_relaxed) != 0;
}
/* Tells the peer to look at its QP qpn. The memory that it will look at was written before. */
void vb_peer_ring(struct vb_peer *peer, uint32_t qpn);
/* Wakes it if it is asleep, for what was written by a sequentially consistent store before. */
void vb_peer_wake(struct vb_peer *peer);
/* The control block of one of the peer's QPs; NULL if the peer does not own that number. Its arena is mapped, as when it is UP. */
const struct vb_shm_qp *vb_peer_block(const struct vb_peer *peer, uint32_t qpn);
/* A range of the peer's arena, or NULL if it is not wholly within the heap. */
const void *vb_peer_range(const struct vb_peer *peer, uint64_t offset, uint64_t bytes);
/* Ends all links to the process that this one leads to, for both sides: this one does not wait for it (local/cut.h). vb_progress_lock is not held. */
void vb_peer_cut(struct vb_peer *peer);
/* Also true when the link has hung up and the progress thread has not noticed yet. */
bool vb_peer_is_dead(const struct vb_peer *peer);

/* All peers whose arena is mapped, but this process, with references; how many. */
unsigned vb_peers_list(struct vb_peer **peers, unsigned max);

/* Takes what bells there are and queues the QPs; true if there were some. vb_progress_lock is held. */
bool vb_peers_listen(void);
/* Are there bells, or datagrams? */
bool vb_peers_are_ringing(void);
/* Those that are listened to, one by one: NULL behind the last. vb_progress_lock is held. */
struct vb_peer *vb_peers_at(unsigned i);
/*
 * The control block of QP qpn, by whichever link its process has to us, and that link with a reference (also in *peer); NULL: no link shows
 * it, and so its process cannot reach our memory. vb_progress_lock is held.
 */
const struct vb_shm_qp *vb_peers_find_block(uint32_t qpn, struct vb_peer **peer);

#endif

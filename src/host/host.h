/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The machine below the adapter: everything here is a system call in the end, and nothing above this folder
 * makes one on its own account. What it models: one process's presence on one host (network namespace):
 *
 *   slots    this process's shares of the QP number space. A slot is two abstract Unix sockets that carry its number:
 *            a datagram socket, the inbox, and a SEQPACKET listener for links. The kernel is the registry: binding
 *            takes a slot atomically and the slot dies with its process.
 *   ports    further abstract datagram sockets (bound rdma_cm ports) that share the inbox's format and handler type.
 *   shm      sealed memfds: written by their owner alone, mapped read-only by peers.
 *   copy     process_vm_readv/writev between processes.
 *   netif    interfaces and their addresses, with change notices.
 *   loop     the progress thread: descriptors, timers and the adapter's pass.
 *
 * Handlers that are "set once" (pass, inbox handlers, link acceptor, netif watcher) survive a fork.
 *
 * Functions return 0 or a negative errno. All are thread-safe unless they say otherwise. Callbacks run in the
 * progress thread with no host lock held; they may call anything here. Time is CLOCK_MONOTONIC in ns.
 */
#ifndef VB_HOST_H
#define VB_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/base.h"
#include "base/heap.h"
#include "host/net/address.h"

/*
 * A QP number is a slot number and an index: slot << VB_SLOT_SHIFT | index. Slot 0 is never taken: it holds
 * QP 0 and 1.
 */
#define VB_SLOT_BITS  12
#define VB_SLOT_SHIFT 12
#define VB_SLOT_COUNT (1u << VB_SLOT_BITS)
#define VB_SLOT_QPS   (1u << VB_SLOT_SHIFT)

/* ---- life ---- */

/*
 * Takes a slot, so that this process has numbers to give: the host without its thread, for which nothing
 * arrives and no time passes. -EMFILE, -ENOMEM, -EADDRNOTAVAIL (no free slot).
 */
int vb_host_open(void);
/* Its thread, if it has none yet. -EAGAIN: there can be none now. */
int vb_host_run(void);
/*
 * Takes a reference on this process's host; the first one opens it and starts the progress thread (all
 * signals blocked, named "verbatim"). What vb_host_open and vb_host_run say. The host stays for the life of
 * the process once started (vb_host_put only counts): a program that opens and closes a device in a loop
 * keeps its slot. In a forked child the parent's host is forgotten without a trace in the parent (descriptors
 * closed, shared mappings replaced by private zero pages), and the next vb_host_get starts a new one.
 */
VB_EXPORT int vb_host_get(void);
VB_EXPORT void vb_host_put(void);

/*
 * Counts the forks above this process: changes in a child. Objects remember it to notice that they were
 * inherited.
 */
VB_EXPORT unsigned vb_host_generation(void);

/*
 * VERBATIM_LOCAL=off: this process speaks to all others, those of its own host and itself included, as to
 * another host, over UDP. It refuses links, so its peers come to the same answer. Read from the environment
 * once, at the latest when the host starts; a forked child reads it anew. Needs no started host. Cheap.
 */
VB_EXPORT bool vb_local_is_off(void);
/* From now on, whatever the setting says; before the host starts. */
void vb_local_turn_off(void);
/*
 * VERBATIM_LINK=infiniband: ports say that they are InfiniBand's, and have LIDs. Read once, a forked child
 * reads it anew. Cheap.
 */
bool vb_link_is_infiniband(void);

/*
 * A file of text as a string. -EFBIG: it does not fit; -EINVAL: it holds zero bytes; or why it cannot be
 * read.
 */
int vb_file_read(const char *path, char *text, size_t size);
/* The first line of a file; false: there is none. */
bool vb_file_line(const char *path, char *line, size_t room);
/* The number in a file of /proc or /sys; 0: there is none. */
unsigned long long vb_file_number(const char *path);

/*
 * Registers a function that a forked child runs (in the atfork handler: only async-signal-safe work). At most
 * 64; again: no effect.
 */
VB_EXPORT void vb_host_at_fork(void (*child)(void));
/*
 * What the thread that forks does before, with no lock of the host's held and the progress thread at work;
 * afterwards in the parent; and, before anything else of the library, in the child. Set once.
 */
void vb_host_around_fork(void (*before)(void), void (*parent)(void), void (*child)(void));

/*
 * Descriptors that functions of this header return (links, accepted or received descriptors, memfds) are the
 * host's: a forked child closes those that are still open. So close them with vb_fd_close alone, and never in
 * a child that inherited their number (compare vb_host_generation). vb_fd_own gives the host a descriptor
 * that was made elsewhere.
 */
void vb_fd_own(int fd);
void vb_fd_close(int fd);
/*
 * Gives a descriptor that nobody knows yet a number of at least `least`, which it returns; it stays where it
 * is if the limit forbids that.
 */
VB_EXPORT int vb_fd_lift(int fd, int least);
/*
 * An epoll set of the libraries' own, closed on exec. Its number is at least what vb_fd_keep_sets_above was
 * told last. -1 and errno.
 */
VB_EXPORT int vb_epoll_open(void);
VB_EXPORT void vb_fd_keep_sets_above(int least);

/* ---- clock ---- */
VB_EXPORT uint64_t vb_now_ns(void);

/* Lets other threads run for a while. */
VB_EXPORT void vb_sleep_ns(uint64_t ns);

/* Fills buf from getrandom(2), without blocking. */
VB_EXPORT void vb_random(void *buf, size_t bytes);

/* ---- loop: the progress thread ---- */

struct vb_watch {
	int fd;
	void (*ready)(struct vb_watch *watch, uint32_t epoll_events);
	void *arg;
	/* private to the loop */
	uint32_t serial;
};

/*
 * Watches w->fd (level-triggered EPOLL* events); w stays the caller's and must stay valid until
 * vb_watch_stop. For a watch that is started already it changes the events. -ENOTCONN: the host was not
 * started.
 */
VB_EXPORT int vb_watch_start(struct vb_watch *w, uint32_t epoll_events);
/*
 * After it returns no callback of w runs or will run (called from within a callback: it returns at once).
 * Waits for a running callback: the caller must hold no lock that the callback takes. A watch that never ran
 * is left alone.
 */
VB_EXPORT void vb_watch_stop(struct vb_watch *w);

struct vb_timer {
	void (*fire)(struct vb_timer *timer, uint64_t now_ns);
	void *arg;
	/* private to the loop; start from zero */
	struct vb_heap_node node;
};

/*
 * (Re)arms t; one-shot. Cheap; wakes the progress thread only if t becomes the earliest. Ignored while t is
 * being cancelled.
 */
VB_EXPORT void vb_timer_set(struct vb_timer *t, uint64_t deadline_ns);
/*
 * After it returns t is not armed and its callback does not run (from within a callback: does not wait).
 * Locks: see vb_watch_stop.
 */
VB_EXPORT void vb_timer_cancel(struct vb_timer *t);

/* Makes the progress thread run its pass soon (eventfd write; async-signal-safe). */
VB_EXPORT void vb_loop_wake(void);
/* The eventfd behind vb_loop_wake: peers get it to ring (write 8 bytes). Valid while the host lives. */
VB_EXPORT int vb_loop_eventfd(void);
/*
 * A second eventfd, for a thread that waits in the progress thread's stead, one at a time: what wakes it, for
 * peers; the same for this process; and the wait, until it has been written (0), or -EINTR after a signal
 * handler without SA_RESTART, as read(2). A cancellation point.
 */
VB_EXPORT int vb_loop_waiter_eventfd(void);
VB_EXPORT void vb_loop_wake_waiter(void);
VB_EXPORT int vb_loop_wait(void);
/* Rings another process's eventfd, got over a link. */
void vb_eventfd_ring(int fd);
/* True in the progress thread. */
VB_EXPORT bool vb_loop_is_current(void);

/*
 * The adapter's pass, run by the progress thread after each wake-up's descriptors and timers. It returns when
 * it wants to run again at the latest: a deadline in ns, 0 for at once, UINT64_MAX for "only when woken". One
 * function, set once.
 */
void vb_loop_set_pass(uint64_t (*pass)(uint64_t now_ns));

/*
 * Has the progress thread call function(arg), and waits until it has returned. Meanwhile no signal handler
 * runs in the calling thread and it touches no memory but what function does. From the progress thread itself
 * it is a plain call. The caller must hold no lock that the progress thread may want. -ENOTCONN: the host was
 * not started; nothing was called.
 */
VB_EXPORT int vb_loop_call(void (*function)(void *arg), void *arg);
/* In the progress thread: does another thread wait in vb_loop_call now? */
bool vb_loop_has_caller(void);

/* ---- slots, inboxes, ports ---- */

/* Takes one more slot; *slot in 1 … VB_SLOT_COUNT-1. The host's first slot is vb_slot_first(). */
int vb_slot_take(uint32_t *slot);
VB_EXPORT uint32_t vb_slot_first(void);
/* Is this slot one of this process's? */
VB_EXPORT bool vb_slot_is_mine(uint32_t slot);

/*
 * The addressing that an inbox message carries in place of IP and UDP headers. IPv4 addresses are v4-mapped.
 */
struct vb_inbox_addr {
	struct in6_addr src, dst;
	uint32_t flow_label;
	uint16_t udp_sport;
	uint8_t traffic_class;
	uint8_t hop_limit;
};

/*
 * A received message: payload is a RoCEv2 packet from the BTH on, without ICRC. Hostile input: only its size
 * limit and the header were checked. sender_slot is the slot whose inbox socket sent it, 0 if the sender is
 * no slot's inbox.
 *
 * is_believed: the sender is one who may bring messages of others (this process's user, root, who has the
 * RoCE port), or it came by a way that only these have. Else it claims to be of this host, sender_slot is not
 * 0, and the receiver has to see that it speaks of nothing but what belongs to that slot's user.
 */
struct vb_inbox_msg {
	struct vb_inbox_addr addr;
	const uint8_t *payload;
	size_t payload_bytes;
	uint32_t sender_slot;
	uid_t sender_uid; /* the kernel's word (SCM_CREDENTIALS), of messages from inboxes; else (uid_t)-1 */
	bool is_believed;
};

/* The largest payload: a packet of MTU 4096 with all headers that can stand before its data. */
enum { VB_INBOX_MAX_BYTES = 4096 + 128, VB_INBOX_MAX_IOV = 15 };

typedef void vb_inbox_handler(void *arg, const struct vb_inbox_msg *msg);

/*
 * What is done with packets for QP qpn_low (1: CM) and, for qpn_low 0, all other QPs. Set once per kind
 * before traffic.
 */
VB_EXPORT void vb_inbox_set_handler(uint32_t qpn, vb_inbox_handler *handler, void *arg);

/* The BTH's destination QP. */
static inline uint32_t vb_inbox_qpn(const struct vb_inbox_msg *msg)
{
	return (uint32_t)msg->payload[5] << 16 | (uint32_t)msg->payload[6] << 8 | msg->payload[7];
}

/*
 * Gives a message to the handler that the BTH's destination QP has, in this thread; at least a BTH long.
 * False: it has none.
 */
bool vb_inbox_deliver(const struct vb_inbox_msg *msg);

/*
 * Sends from this process's first inbox. -EAGAIN (receiver's queue full, often after only 10 messages;
 * nothing was sent), -ECONNREFUSED (no such slot), -EMSGSIZE, -EINVAL (more than VB_INBOX_MAX_IOV pieces).
 * Never blocks.
 */
VB_EXPORT int vb_inbox_send(uint32_t slot, const struct vb_inbox_addr *addr, const struct iovec *iov,
			    int iovcnt);
/*
 * The same from the inbox of one of this process's slots, of which the message speaks: the receiver believes
 * others of no other.
 */
int vb_inbox_send_from(uint32_t from, uint32_t slot, const struct vb_inbox_addr *addr,
		       const struct iovec *iov, int iovcnt);

/* A bound port: the name is any byte string up to VB_PORT_NAME_MAX bytes, unique in the network namespace. */
enum { VB_PORT_NAME_MAX = 92 }; /* what a socket address has room for */

struct vb_port {
	struct vb_watch watch;
	vb_inbox_handler *handler;
	void *arg;
	/* private */
	unsigned generation;
};

/* -EADDRINUSE if the name is taken. Before vb_port_listen senders get -ECONNREFUSED. */
VB_EXPORT int vb_port_bind(struct vb_port *port, const void *name, size_t name_bytes);
/* Starts delivering messages to handler. After an error the port is good for vb_port_close alone. */
VB_EXPORT int vb_port_listen(struct vb_port *port, vb_inbox_handler *handler, void *arg);
VB_EXPORT void vb_port_close(struct vb_port *port);
/*
 * As vb_inbox_send, to the port with that name; it comes from this process's first inbox (so the receiver can
 * answer by slot).
 */
VB_EXPORT int vb_port_send(const void *name, size_t name_bytes, const struct vb_inbox_addr *addr,
			   const struct iovec *iov, int iovcnt);
/* Does any process hold the name, listening or not? */
VB_EXPORT bool vb_port_is_bound(const void *name, size_t name_bytes);

/* ---- links: SEQPACKET connections between processes ---- */

/*
 * Of all that processes show each other: arenas, and what goes over links. It is part of the links' names:
 * processes of builds that would not understand each other find no link, and take the wire.
 */
enum { VB_LINK_VERSION = 6 };

struct vb_peer_cred {
	pid_t pid; /* in this process's pid namespace; 0 if it is not visible there */
	uid_t uid;
};

/*
 * Connects to the process that owns a slot (non-blocking descriptor, CLOEXEC). -ECONNREFUSED: no such
 * process, or it refuses links. -EPERM: one that may not share memory with this one, such as another user's;
 * if it is that one which finds so, it hangs up. -EAGAIN: its backlog is full, try later. Else: what this
 * process lacks.
 */
int vb_link_connect(uint32_t slot, int *fd, struct vb_peer_cred *cred);
/*
 * Peers see the user who this process was when it last listened. If it is another one now, this makes them
 * see that. Cheap.
 */
void vb_link_show_user(void);
/*
 * Did somebody else say what came over UDP from this address, and names this slot as its sender's? A process
 * of this host that takes links sends nothing but connections that way to its own host. Whoever receives from
 * UDP asks, one thread at a time.
 */
bool vb_slot_is_belied(uint32_t slot, const struct in6_addr *src);
/* Is it a slot of a process of this user, who takes links from some? */
VB_EXPORT bool vb_slot_is_of(uint32_t slot, uid_t user);
/*
 * From here on nobody gets a new link to this process, as with VERBATIM_LOCAL=off; those that there are stay.
 * Not in a forked child.
 */
void vb_links_refuse(void);
bool vb_links_are_refused(void);
/* With VERBATIM_DEBUG, once: this process lacks what links to all others would take. */
void vb_link_explain_lack(int err);
/* Who gets accepted connections (peers of other users were already turned away). The handler owns fd. */
void vb_link_set_acceptor(void (*accepted)(int fd, const struct vb_peer_cred *cred));

/*
 * Is what came over a link an eventfd, and not what would block or kill who writes to it? True where /proc
 * does not tell.
 */
bool vb_link_is_eventfd(int fd);

/* Both ends find that the other one has hung up. The descriptor stays. */
void vb_link_end(int fd);
/* Has the other end gone? Asks the kernel; for those who cannot wait for the progress thread to notice. */
bool vb_link_has_hung_up(int fd);
/* Is there something that the progress thread has not heard yet, be it that? */
bool vb_link_has_news(int fd);

#define VB_LINK_MAX_FDS 4
/* One message with up to VB_LINK_MAX_FDS descriptors. -EAGAIN, -EPIPE, … */
int vb_link_send(int fd, const void *msg, size_t bytes, const int *fds, int nfds);
/*
 * Returns the bytes of one message (0: hang-up) or a negative errno (-EAGAIN; -EMSGSIZE: it was longer than
 * bytes and is lost; -EMFILE: this process could not take all of its descriptors, and it is lost). fds has
 * room for VB_LINK_MAX_FDS, or is NULL; descriptors come CLOEXEC and are the caller's; surplus ones are
 * closed.
 */
ssize_t vb_link_recv(int fd, void *msg, size_t bytes, int *fds, int *nfds);

/* ---- visits: connections from programs that look into this process (inspect.h) ---- */

/*
 * Who gets them, from processes of this user alone; messages go as over links. The handler owns fd. Set once.
 */
void vb_inspection_set_acceptor(void (*accepted)(int fd, const struct vb_peer_cred *cred));
/*
 * The other way round: calls at an abstract socket of a process of this user, and waits for its first
 * message.
 */
int vb_inspection_call(const char *name, unsigned patience_ms, int *fd);
/* Appends to a memfd that a visitor passed. -EPERM: it is none. Does not block. */
int vb_inspection_write(int memfd, const void *bytes, size_t n);

/* ---- shared memory ---- */

/*
 * A memfd of `bytes` (sparse: only touched pages cost), mapped here and sealed so that nobody can shrink,
 * grow or newly map it writable (F_SEAL_SHRINK|GROW|FUTURE_WRITE|SEAL). Pages start as zero, and read-only.
 * Unmapped in a forked child (see above).
 */
int vb_shm_create(size_t bytes, const char *name, int *fd, void **addr);
/* Is so much address space left in one piece? */
bool vb_shm_has_room(size_t bytes);
/* Lets this process write to whole pages of it. 0 or -ENOMEM. */
int vb_shm_open(void *addr, size_t bytes);
/*
 * Maps a peer's memfd read-only after checking that it is a memfd of exactly `bytes` that can't shrink. The
 * caller keeps fd.
 */
int vb_shm_map_peer(int fd, size_t bytes, const void **addr);
/* The same, writable if asked for: -EACCES or -EPERM if the memfd does not allow that. */
int vb_shm_map_segment(int fd, size_t bytes, bool writable, void **addr);
void vb_shm_unmap(const void *addr, size_t bytes);
/* What a descriptor's file has now; 0: nothing, or it has no size. */
size_t vb_shm_size(int fd);

/*
 * Is [addr, addr+bytes) mapped, and (writable) can it be written? 0 or -EFAULT. Costs O(mappings), checks
 * writability at the two ends.
 */
int vb_mem_check(const void *addr, size_t bytes, bool writable);

/* ---- copies between processes ---- */

/*
 * Moves bytes as process_vm_readv/writev do, all of it or nothing known: returns 0, -EFAULT (some address is
 * not mapped here or there; *done says how much was moved), -ESRCH (the process is gone), -EPERM. Any iovec
 * counts and sizes (split inside); it ends with the shorter of the two lists.
 */
int vb_copy_from_peer(pid_t pid, const struct iovec *local, size_t nlocal, const struct iovec *remote,
		      size_t nremote, size_t *done);
/*
 * -ECANCELED: once *stop is not 0 nothing is written any more (host/ipc/guard.h); NULL, for this process's
 * own memory: nothing says so.
 */
int vb_copy_to_peer(pid_t pid, const struct iovec *local, size_t nlocal, const struct iovec *remote,
		    size_t nremote, const _Atomic(uint32_t) *stop, size_t *done);
/* This process's number, as vb_copy_* take it. */
pid_t vb_copy_self(void);
/*
 * Lets peers of the same user copy from and to this process where Yama's ptrace_scope is 1 (prctl
 * PR_SET_PTRACER). Idempotent.
 */
void vb_copy_allow_peers(void);

/* ---- interfaces ---- */

enum { VB_NETIF_NAME = 16, VB_NETIF_MAX_ADDRS = 256 };

struct vb_netif_addr {
	struct in6_addr ip; /* IPv4 as ::ffff:a.b.c.d */
	uint8_t prefix_len; /* of the address family's own length */
};

struct vb_netif {
	char name[VB_NETIF_NAME];
	unsigned index;      /* ifindex */
	unsigned mtu;        /* bytes */
	uint8_t mac[6];
	bool loopback, up, running;
	uint32_t speed_mbps; /* 0: unknown */
	unsigned naddrs;
	/* as the kernel orders them: IPv4 first, then IPv6; see vb_netif_list */
	struct vb_netif_addr addrs[VB_NETIF_MAX_ADDRS];
};

/*
 * A malloc'ed array of the usable interfaces (loopback, Ethernet that is up, any that has an address): by
 * ifindex, loopback last.
 */
VB_EXPORT int vb_netif_list(struct vb_netif **list, unsigned *count);
/*
 * Calls changed(arg) from the progress thread after addresses, links or MTUs changed (rtnetlink groups). Once
 * per process.
 */
VB_EXPORT int vb_netif_watch(void (*changed)(void *arg), void *arg);
/*
 * Is this one of this network namespace's own addresses (loopback 127/8 included)? Served from a cache that
 * netif changes refresh; refreshed on each miss.
 */
VB_EXPORT bool vb_netif_is_local(const struct in6_addr *ip);

#endif

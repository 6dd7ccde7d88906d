/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the adapter and librdmacm need of the kernel. The folder models one process on one host (network
 * namespace). Its rooms, each of which uses only those after it:
 *
 *   (life.c) starts the parts below, and forgets them in a forked child.
 *   udp      UDP port 4791 (udp/udp.h).
 *   ipc      slots: this process's shares of the QP number space. A slot is two abstract Unix sockets that carry its
 *            number: a datagram socket, the inbox, and a SEQPACKET listener for links. The kernel is the registry:
 *            binding takes a slot atomically, and the slot ends with its process.
 *            ports: further abstract datagram sockets (bound rdma_cm ports), with the inbox's format and handler type.
 *            copies between processes (process_vm_readv, process_vm_writev).
 *   net      interfaces and their addresses, with change notices; routes.
 *   memory   sealed memfds, which their owner alone writes and peers map read-only; mappings.
 *   loop     the host's lock, clock and descriptors; the progress thread: descriptors, timers, the adapter's pass.
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
 * Starts the host without its thread: it takes a slot, so that this process has QP numbers. Nothing is
 * received and no timer fires yet. -EMFILE, -ENOMEM, -EADDRNOTAVAIL (no free slot).
 */
int vb_host_open(void);
/* Starts the progress thread, unless it runs. -EAGAIN: no thread can be had now. */
int vb_host_run(void);
/*
 * Takes a reference on this process's host. The first one opens it and starts the progress thread (named
 * "verbatim"; it blocks all signals). Errors as of vb_host_open and vb_host_run. Once started, the host stays
 * for the life of the process (vb_host_put only counts): a program that opens and closes a device in a loop
 * keeps its slot. A forked child forgets the parent's host, which the parent does not notice: the child
 * closes the descriptors and replaces shared mappings by private zero pages. The child's next vb_host_get
 * starts a new host.
 */
VB_EXPORT int vb_host_get(void);
VB_EXPORT void vb_host_put(void);

/*
 * The number of forks above this process, which differs in a child. Objects remember it to notice that they
 * were inherited.
 */
VB_EXPORT unsigned vb_host_generation(void);

/*
 * VERBATIM_LOCAL=off: this process uses UDP with all others, also with those of its own host and with itself.
 * It refuses links, so its peers use UDP too. Read from the environment once, at the latest when the host
 * starts; a forked child reads it anew. Needs no started host. Cheap.
 */
VB_EXPORT bool vb_local_is_off(void);
/* Overrides the setting. To be called before the host starts. */
void vb_local_turn_off(void);
/*
 * VERBATIM_LINK=infiniband: ports report an InfiniBand link layer, and have LIDs. Read once; a forked child
 * reads it anew. Cheap.
 */
bool vb_link_is_infiniband(void);

/*
 * Reads a text file as a string. -EFBIG: it does not fit. -EINVAL: it holds zero bytes. Else the error of the
 * read.
 */
int vb_file_read(const char *path, char *text, size_t size);
/* The first line of a file; false: there is none. */
bool vb_file_line(const char *path, char *line, size_t room);
/*
 * What follows `key` and blanks in the first line that begins with the key, cut to what fits. The file may be
 * of any length, as /proc/PID/status is, which names all groups. -ENODATA: there is no such line. Allocates
 * nothing.
 */
int vb_file_field(const char *path, const char *key, char *value, size_t room);
/* The number in a file of /proc or /sys; 0: there is none. */
unsigned long long vb_file_number(const char *path);

/*
 * Registers a function that a forked child runs, in the atfork handler: only async-signal-safe work. At most
 * 64. Registering one again has no effect.
 */
VB_EXPORT void vb_host_at_fork(void (*child)(void));
/*
 * What the thread that forks does around the fork, each if it is not NULL. It may wait for the progress
 * thread in `before` alone, since a callback there may wait for any lock.
 */
struct vb_fork_steps {
	void (*before)(void); /* no lock is held */
	void (*lock)(void);   /* locks that stay held across the fork; the host's own follow */
	void (*parent)(void); /* in the parent afterwards: unlocks */
	void (*child)(void);  /* in the child, before anything else of the library: the same */
};
/* Whose steps; their locks are taken in this order. */
enum vb_fork_rank { VB_FORK_CM, VB_FORK_MEMORY, VB_FORK_RANKS };
/* Once for each rank. The steps stay the caller's. */
VB_EXPORT void vb_host_around_fork(enum vb_fork_rank rank, const struct vb_fork_steps *steps);

/*
 * The host owns the descriptors that functions of this header return (links, accepted or received
 * descriptors, memfds): a forked child closes those that are still open. So close them only with vb_fd_close,
 * and never in a child that inherited their number (compare vb_host_generation). vb_fd_own gives the host a
 * new descriptor, raises it (vb_fd_raise) and returns its number.
 */
int vb_fd_own(int fd);
void vb_fd_close(int fd);
/*
 * Moves a new descriptor to a number of at least `least` and returns that number. If the limit forbids it,
 * the descriptor keeps its number.
 */
VB_EXPORT int vb_fd_lift(int fd, int least);
/*
 * The libraries' own descriptors leave the low numbers to the program. Some programs can use no others:
 * those with select(2), event loops with a table, netcat with its 16. vb_fd_raise moves a new descriptor to
 * a number of at least VB_FD_LEAST, or of what vb_fd_keep_above was called with last, if the limit allows
 * it. A negative number and its errno stay as they are.
 */
enum { VB_FD_LEAST = 256 };
VB_EXPORT int vb_fd_raise(int fd);
VB_EXPORT void vb_fd_keep_above(int least);
/* An epoll set for the libraries' own use, raised, closed on exec. -1 and errno. */
VB_EXPORT int vb_epoll_open(void);

/* ---- clock ---- */
VB_EXPORT uint64_t vb_now_ns(void);

/* Sleeps for about so long. */
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
 * Watches w->fd for EPOLL* events (level-triggered). The caller keeps w valid until vb_watch_stop. For a
 * watch that runs already it changes the events. -ENOTCONN: the host was not started.
 */
VB_EXPORT int vb_watch_start(struct vb_watch *w, uint32_t epoll_events);
/*
 * After it returns no callback of w runs or will run. It waits for a running callback, so the caller must
 * hold no lock that the callback takes; within a callback it returns at once. A watch that never ran may be
 * passed.
 */
VB_EXPORT void vb_watch_stop(struct vb_watch *w);

struct vb_timer {
	void (*fire)(struct vb_timer *timer, uint64_t now_ns);
	void *arg;
	/* private to the loop; start from zero */
	struct vb_heap_node node;
};

/*
 * Arms t, or changes its deadline; it fires once. Cheap: wakes the progress thread only if t becomes the
 * earliest. Ignored while t is being cancelled.
 */
VB_EXPORT void vb_timer_set(struct vb_timer *t, uint64_t deadline_ns);
/*
 * After it returns t is not armed and its callback does not run (from within a callback: does not wait).
 * Locks: see vb_watch_stop.
 */
VB_EXPORT void vb_timer_cancel(struct vb_timer *t);

/*
 * Makes the progress thread run its pass soon. A system call only if that thread sleeps. Async-signal-safe.
 */
VB_EXPORT void vb_loop_wake(void);
/* The eventfd behind vb_loop_wake, which peers get and write to. Valid while the host lives. */
VB_EXPORT int vb_loop_eventfd(void);
/*
 * A second eventfd, for a thread that waits in place of the progress thread, one at a time. Peers write to
 * the eventfd; this process calls vb_loop_wake_waiter. vb_loop_wait returns 0 once it was written, or -EINTR
 * after a signal handler without SA_RESTART, as read(2) does. It is a cancellation point.
 */
VB_EXPORT int vb_loop_waiter_eventfd(void);
VB_EXPORT void vb_loop_wake_waiter(void);
VB_EXPORT int vb_loop_wait(void);
/* Writes to another process's eventfd, received over a link. */
void vb_eventfd_ring(int fd);
/* True in the progress thread. */
VB_EXPORT bool vb_loop_is_current(void);
/* How often that thread, or one in vb_loop_wait, has slept, and how long in all. */
VB_EXPORT uint64_t vb_loop_sleeps(void);
uint64_t vb_loop_asleep_ns(void);

/*
 * The adapter's pass, which the progress thread runs after the descriptors and timers of each wake-up. It
 * returns when it wants to run again at the latest: a deadline in ns, 0 for at once, UINT64_MAX for "only
 * when woken". Set once.
 */
void vb_loop_set_pass(uint64_t (*pass)(uint64_t now_ns));

/*
 * Makes the progress thread call function(arg), and waits until that returns. Meanwhile the calling thread
 * runs no signal handler and touches no memory. In the progress thread itself it is a plain call. The caller
 * must hold no lock that the progress thread may want. -ENOTCONN: the host was not started, and nothing was
 * called.
 */
VB_EXPORT int vb_loop_call(void (*function)(void *arg), void *arg);
/* Does a thread wait in vb_loop_call now? For the progress thread. */
bool vb_loop_has_caller(void);

/* ---- slots, inboxes, ports ---- */

/* Takes one more slot; *slot in 1 … VB_SLOT_COUNT-1. The host's first slot is vb_slot_first(). */
int vb_slot_take(uint32_t *slot);
VB_EXPORT uint32_t vb_slot_first(void);
/* Is this slot one of this process's? */
VB_EXPORT bool vb_slot_is_mine(uint32_t slot);
/* This process's slots, the first one first; list has room for VB_SLOT_COUNT. Returns how many. */
uint32_t vb_slot_list(uint16_t *list);

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
 * is_trusted: the sender may forward messages of others (it is this process's user, root, or the holder of
 * the RoCE port), or the message came by a way that only these have. Else its source is an address of this
 * host, sender_slot is not 0, and the receiver must check that it names nothing but what belongs to that
 * slot's user.
 */
struct vb_inbox_msg {
	struct vb_inbox_addr addr;
	const uint8_t *payload;
	size_t payload_bytes;
	uint32_t sender_slot;
	uid_t sender_uid; /* the kernel's word (SCM_CREDENTIALS), of messages from inboxes; else (uid_t)-1 */
	bool is_trusted;
};

/* The largest payload: a packet of MTU 4096 with all headers that can stand before its data. */
enum { VB_INBOX_MAX_BYTES = 4096 + 128, VB_INBOX_MAX_IOV = 15 };

typedef void vb_inbox_handler(void *arg, const struct vb_inbox_msg *msg);

/*
 * Who gets packets for QP 1 (qpn 1: CM) and for all other QPs (qpn 0). Set once for each of the two, before
 * traffic.
 */
VB_EXPORT void vb_inbox_set_handler(uint32_t qpn, vb_inbox_handler *handler, void *arg);

/* The BTH's destination QP. */
static inline uint32_t vb_inbox_qpn(const struct vb_inbox_msg *msg)
{
	return (uint32_t)msg->payload[5] << 16 | (uint32_t)msg->payload[6] << 8 | msg->payload[7];
}

/*
 * Calls the handler for the BTH's destination QP, in this thread. The message is at least a BTH long. False:
 * there is no handler.
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
 * The same from the inbox of one of this process's slots. Receivers that do not trust this process accept
 * only messages about the slot that they come from.
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

/* -EADDRINUSE if the name is taken. Before vb_port_listen senders get -EPERM. */
VB_EXPORT int vb_port_bind(struct vb_port *port, const void *name, size_t name_bytes);
/* Starts delivering messages to handler. After an error only vb_port_close may follow. */
VB_EXPORT int vb_port_listen(struct vb_port *port, vb_inbox_handler *handler, void *arg);
VB_EXPORT void vb_port_close(struct vb_port *port);
/*
 * As vb_inbox_send, to the port with that name. The message comes from this process's first inbox, so the
 * receiver can answer by slot.
 */
VB_EXPORT int vb_port_send(const void *name, size_t name_bytes, const struct vb_inbox_addr *addr,
			   const struct iovec *iov, int iovcnt);
/* Does any process hold the name, listening or not? */
VB_EXPORT bool vb_port_is_bound(const void *name, size_t name_bytes);

/* ---- links: SEQPACKET connections between processes ---- */

/*
 * The version of all that processes share: arenas, and messages over links. It is part of the links' names,
 * so processes of incompatible builds find no link, and take the wire.
 */
enum { VB_LINK_VERSION = 8 };

struct vb_peer_cred {
	pid_t pid; /* in this process's pid namespace; 0 if it is not visible there */
	uid_t uid;
};

/*
 * Connects to the process that owns a slot (non-blocking descriptor, CLOEXEC). -ECONNREFUSED: no such
 * process, or it refuses links. -EPERM: it may not share memory with this one, as another user's; a peer that
 * finds so itself hangs up. -EAGAIN: its backlog is full, try later. Else: what this process lacks.
 */
int vb_link_connect(uint32_t slot, int *fd, struct vb_peer_cred *cred);
/*
 * Peers see the user that this process had when it last listened. If the user has changed, this makes them
 * see the new one. Cheap.
 */
void vb_link_show_user(void);
/*
 * Is a message over UDP from this address forged, that names this slot as its sender's? A process of this
 * host that takes links sends its own host nothing by UDP but packets of connections. For the thread that
 * receives from UDP.
 */
bool vb_slot_is_spoofed(uint32_t slot, const struct in6_addr *src);
/* Does a process of this user have the slot, and listen for links? */
VB_EXPORT bool vb_slot_is_of(uint32_t slot, uid_t user);
/*
 * From now on this process accepts no new link, as with VERBATIM_LOCAL=off. Existing links stay. A forked
 * child accepts links again.
 */
void vb_links_refuse(void);
bool vb_links_are_refused(void);
/* Says once, with VERBATIM_DEBUG, that this process lacks the resources for links to all others. */
void vb_link_explain_lack(int err);
/* Who gets accepted connections. Peers of other users were refused already. The handler owns fd. */
void vb_link_set_acceptor(void (*accepted)(int fd, const struct vb_peer_cred *cred));

/*
 * Is a descriptor that came over a link an eventfd? Others could block or kill a process that writes to them.
 * True where /proc does not tell.
 */
bool vb_link_is_eventfd(int fd);

/* Hangs up, for both ends. The descriptor stays open. */
void vb_link_end(int fd);
/* Has the other end hung up? Asks the kernel, so it may know before the progress thread does. */
bool vb_link_has_hung_up(int fd);
/* Is there a message, or a hang-up, that the progress thread has not read yet? */
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

/* ---- inspection sessions: connections of programs that look into this process (inspect.h) ---- */

/*
 * Who gets them. They come only from processes of this user; messages go as over links. The handler owns fd.
 * Set once.
 */
void vb_inspection_set_acceptor(void (*accepted)(int fd, const struct vb_peer_cred *cred));
/*
 * The other way round: connects to an abstract socket of a process of this user, and waits for its first
 * message. -EPERM: it is another user's. -ETIMEDOUT: it says nothing.
 */
int vb_inspection_call(const char *name, unsigned wait_ms, int *fd);
/* Appends to a memfd that the inspecting program passed. -EPERM: it is none. Does not block. */
int vb_inspection_write(int memfd, const void *bytes, size_t n);

/* ---- shared memory ---- */

/*
 * A memfd of `bytes` (sparse: only touched pages cost), mapped here and sealed so that nobody can shrink,
 * grow or newly map it writable (F_SEAL_SHRINK|GROW|FUTURE_WRITE|SEAL). Pages start as zero, and read-only. A
 * forked child has private zero pages there. -EFBIG: files may not be so long (RLIMIT_FSIZE).
 */
int vb_shm_create(size_t bytes, const char *name, int *fd, void **addr);
/* The same, without a memfd: memory that no other process can map. */
int vb_shm_create_alone(size_t bytes, void **addr);
/* Is there one free piece of address space of so many bytes? */
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
/* The present size of a descriptor's file; 0: it is empty, or has no size. */
size_t vb_shm_size(int fd);

/*
 * Is [addr, addr+bytes) mapped, and (writable) can it be written? 0 or -EFAULT. Costs O(mappings), and checks
 * writability only at the two ends.
 */
int vb_mem_check(const void *addr, size_t bytes, bool writable);

/* ---- copies between processes ---- */

/*
 * Copies as process_vm_readv/writev do, up to the end of the shorter of the two lists, which may be of any
 * length. 0, -EFAULT (some address is not mapped here or there; *done is what was copied before it), -ESRCH
 * (the process is gone), -EPERM. Once *stop is not 0 nothing more is copied (host/ipc/guard.h): -ECANCELED.
 * stop is NULL for this process's own memory.
 */
int vb_copy_from_peer(pid_t pid, const struct iovec *local, size_t nlocal, const struct iovec *remote,
		      size_t nremote, const _Atomic(uint32_t) *stop, size_t *done);
int vb_copy_to_peer(pid_t pid, const struct iovec *local, size_t nlocal, const struct iovec *remote,
		    size_t nremote, const _Atomic(uint32_t) *stop, size_t *done);
/* This process's PID, as vb_copy_* take it. */
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
 * Lets the next vb_netif_list() ask the kernel again. A caller that misses an address calls this, as the
 * kernel's message about a new address may still be on its way.
 */
VB_EXPORT void vb_netif_expire(void);
/*
 * Calls changed(arg) from the progress thread after addresses, links or MTUs changed (rtnetlink groups). Once
 * per process.
 */
VB_EXPORT int vb_netif_watch(void (*changed)(void *arg), void *arg);
/*
 * Is it an address of this network namespace (127/8 included)? Answered from a cache, which changes of
 * interfaces and misses refresh.
 */
VB_EXPORT bool vb_netif_is_local(const struct in6_addr *ip);

#endif

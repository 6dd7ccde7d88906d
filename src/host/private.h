/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of this folder share, by rooms from the lowest on. */
#ifndef VB_HOST_PRIVATE_H
#define VB_HOST_PRIVATE_H

#include <errno.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/list.h"
#include "base/nanoseconds.h"
#include "host/host.h"
#include "host/kernel.h"

/*
 * Of each part: its start, under the host lock, and ..._forget, by which a forked child forgets it
 * (async-signal-safe). life.c calls them.
 */

/* ---- loop ---- */

/*
 * The one lock of everything that a fork must find whole: it is held across fork(). Sections are short, never
 * block on another process and call nobody's callback. Descriptors are made and marked under it, so that no
 * fork comes between.
 */
void vb_host_lock(void);
void vb_host_unlock(void);
/* In a forked child. */
void vb_host_count_generation(void);

int vb_loop_open_locked(void);
void vb_loop_close_locked(void);
/* Again: no effect. */
int vb_loop_run_locked(void);
void vb_loop_fork_begin(void);
void vb_loop_fork_end(void);
void vb_loop_forget(void);
/*
 * True if the watch whose callback runs now was stopped since the callback began: its owner may have freed
 * it.
 */
bool vb_loop_callback_is_stopped(void);

/* Does this process or the kernel lack something for now, that a descriptor takes? */
static inline bool vb_is_short(int err)
{
	return err == -EMFILE || err == -ENFILE || err == -ENOMEM || err == -ENOBUFS || err == -ENOSPC;
}
/* The pause before it is tried again. */
enum { VB_SHORT_NS = 250 * VB_NS_PER_MS };
void vb_fd_close_locked(int fd);
void vb_fd_forget(void);
void vb_setting_forget(void);

/* ---- memory, net ---- */

void vb_shm_forget(void);

void vb_netif_start_locked(void);
void vb_netif_forget(void);

/*
 * recvmsg and recvmmsg as system calls. The C library's are cancellation points, which costs time and could
 * end a thread that holds locks. The second does not wait. In sandboxes that forbid recvmmsg it uses recvmsg.
 */
ssize_t vb_receive_message(int fd, struct msghdr *m, int flags);
int vb_receive_messages(int fd, struct mmsghdr *m, unsigned n, int flags);

/* ---- ipc: slots and inboxes ---- */

/* An abstract socket address. */
struct vb_name {
	struct sockaddr_un un;
	socklen_t bytes;
};

/* -EINVAL: the text is empty or too long. */
int vb_name_of_text(const char *text, struct vb_name *name);
struct vb_name vb_name_of_inbox(uint32_t slot);
struct vb_name vb_name_of_link(uint32_t slot);
struct vb_name vb_name_of_inspection(uint32_t slot);
/* The slot number in an inbox's name; 0 unless it is exactly one. */
uint32_t vb_name_parse_inbox(const struct sockaddr_un *un, socklen_t bytes);

/* From now on the slot is this process's. The first one stays vb_slot_first. */
void vb_slot_add(uint32_t slot, int inbox);
/* The descriptor of a slot's inbox; -1: the slot is not this process's. */
int vb_slot_inbox(uint32_t slot);
void vb_slot_forget(void);

int vb_slot_start_locked(void);
void vb_slot_take_forget(void);

/*
 * A bound datagram socket that receives credentials. refuses: senders get -ECONNREFUSED until the socket is
 * disconnected. The host owns the descriptor.
 */
int vb_inbox_open_locked(const struct vb_name *name, bool refuses, int *fd);
/*
 * Receives some waiting messages of a watched inbox; handler NULL: by QP number to the handlers of
 * vb_inbox_set_handler.
 */
void vb_inbox_receive(int fd, vb_inbox_handler *handler, void *arg);
/*
 * May a user forward messages of others to dst, or does he speak only for himself? (sender.c) For the
 * progress thread.
 */
bool vb_sender_is_trusted(const struct ucred *sender, const struct in6_addr *dst);
/* Has this process a socket of its own at UDP port 4791? Then no other user receives for it. */
void vb_sender_note_port(bool ipv4, bool ours);

/* ---- ipc: links ---- */

/*
 * Who is at the other end of a socket? -EPERM: a process that may not share memory with this one; -EMFILE, …:
 * this process cannot find out.
 */
int vb_link_check_peer(int fd, struct vb_peer_cred *peer);

/* A listener for SEQPACKET connections from processes of the same user. */
struct vb_listener {
	struct vb_list all; /* of those that listen */
	struct vb_watch watch;
	struct vb_timer retry;
	void (*accepted)(int fd, const struct vb_peer_cred *cred); /* owns fd */
	/* a socket that takes the listener's place when this process is out of descriptors; -1: none */
	int spare;
	bool is_paused;  /* it has: for a while connections are refused */
	bool is_named;   /* the socket in use has the name */
	struct vb_name name;
	bool admits_root; /* and not only processes of this user */
};

void vb_listener_init(struct vb_listener *l, void (*accepted)(int fd, const struct vb_peer_cred *cred));
/* Takes the name, and listens or, where !listens, only holds it. The descriptor, watch.fd, is the host's. */
int vb_listener_open_locked(struct vb_listener *l, const struct vb_name *name, bool listens);
/* The kernel hangs up on all who connect. The name stays taken. */
void vb_listener_shut_locked(struct vb_listener *l);
void vb_listener_close_locked(struct vb_listener *l);
void vb_listener_forget(void);

int vb_link_socket_locked(int *fd);
/* The descriptor of a listener that nobody watches yet; !listens: it only holds the name. */
int vb_listen_locked(const struct vb_name *name, bool listens, int *fd);
/* -EPERM: it was refused, as those of other users; else as accept(2). */
int vb_link_accept(int listener, int *fd, struct vb_peer_cred *cred);
/* Gives an accepted link to the acceptor, if there is one. */
void vb_link_accepted(int fd, const struct vb_peer_cred *cred);
/* As vb_link_connect, to a listener by its name. */
int vb_link_connect_to(const struct vb_name *name, int *fd, struct vb_peer_cred *cred);

/*
 * Inspection sessions (inspection.c). No error where they cannot be had; for what this process lacks now, it
 * tries again later.
 */
void vb_inspection_start_locked(uint32_t slot);

/* ---- udp ---- */

void vb_udp_forget(void);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of this room share. */
#ifndef VB_HOST_UDP_PRIVATE_H
#define VB_HOST_UDP_PRIVATE_H

#include <linux/filter.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host/private.h"
#include "host/udp/udp.h"
#include "host/udp/udp_probe.h"

/* Linux's, where the C library's headers lack them. */
#ifndef IPV6_FLOWINFO
#define IPV6_FLOWINFO 11
#endif
#ifndef IPV6_MULTICAST_ALL
#define IPV6_MULTICAST_ALL 29
#endif
#ifndef IPV6_FLOWINFO_SEND
#define IPV6_FLOWINFO_SEND 33
#endif
#ifndef IP_MULTICAST_ALL
#define IP_MULTICAST_ALL 49
#endif
#ifndef UDP_NO_CHECK6_RX
#define UDP_NO_CHECK6_RX 102
#endif
#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

/* An integer option that the kernel may not know. */
static inline void vb_udp_set_option(int fd, int level, int name, int value)
{
	setsockopt(fd, level, name, &value, sizeof value);
}

/*
 * Attaches a classic BPF program; option: SO_ATTACH_*. Its description has padding, and valgrind looks at all
 * that the kernel is given.
 */
static inline void vb_udp_attach(int fd, int option, struct sock_filter *code, uint16_t instructions)
{
	struct sock_fprog program;
	memset(&program, 0, sizeof program);
	program.len = instructions;
	program.filter = code;
	setsockopt(fd, SOL_SOCKET, option, &program, sizeof program);
}

/* The system call: the C library's is a cancellation point (see vb_receive_message). */
static inline ssize_t vb_udp_sendmsg(int fd, const struct msghdr *m, int flags)
{
#ifdef SYS_sendmsg
	return syscall(SYS_sendmsg, fd, m, flags);
#else
	return sendmsg(fd, m, flags);
#endif
}

/* The same for one piece and an address, which takes the kernel less time. */
static inline ssize_t vb_udp_sendto(int fd, const struct iovec *piece, int flags, const void *to,
				    socklen_t to_bytes)
{
#ifdef SYS_sendto
	return syscall(SYS_sendto, fd, piece->iov_base, piece->iov_len, flags, to, to_bytes);
#else
	return sendto(fd, piece->iov_base, piece->iov_len, flags, to, to_bytes);
#endif
}

/*
 * The sending part of vb_udp_count and of vb_udp_forget.
 */
void vb_udp_count_sent(struct vb_udp_counts *counts);
void vb_udp_send_forget(void);

/*
 * Watches a sending socket for ICMP errors and passes them to the handler of vb_udp_set_returned_handler.
 * Does nothing if the kernel cannot report them. w must live as long as the socket.
 */
void vb_udp_returned_watch_locked(struct vb_watch *w, int fd, bool ipv4);

/* Joins a new receiving socket to the present groups. */
void vb_udp_rejoin_locked(bool ipv4);
void vb_udp_member_forget(void);

/* The receiving socket, or why there is none, a negative errno. */
int vb_udp_receiver(bool ipv4);
/* Another user has the port, or this process lacks something: udp.c tries again. */
static inline bool vb_udp_may_come(int err) { return err == -EADDRINUSE || vb_is_short(err); }
void vb_udp_set_receiver(bool ipv4, int fd);
/* Receives. The callback of the sockets' watches. */
void vb_udp_socket_ready(struct vb_watch *w, uint32_t epoll_events);
void vb_udp_receive_forget(void);

/* Steering. To be called when a socket was opened. */
void vb_udp_steer_opened(void);
void vb_udp_steer_forget(void);

/* The first byte of probes, and of no RoCE packet. */
enum { VB_UDP_NO_ROCE = 0xff };

struct vb_udp_answer {
	struct vb_udp_probe head;
	uint16_t slots[VB_SLOT_COUNT]; /* slot_count of them are sent, the first one stands for the process */
};

/* True if p was a probe. The answer is sent through fd. */
bool vb_udp_answer_probe(int fd, const struct vb_udp_packet *p);

#endif

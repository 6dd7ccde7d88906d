/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * UDP port 4791, which all processes of a network namespace share (SO_REUSEPORT). A classic BPF filter steers
 * a packet to the process that owns the slot in its destination QP number. The filter may be stale, so the
 * receiver must still check whose packet it is, and forward others' packets to their inboxes. Another user's
 * socket cannot join the group. Then this process has no socket to receive with (it tries again from time to
 * time) and receives only what the group's owner forwards.
 *
 * Packets are sent through other sockets, one per source port (RoCEv2 puts a flow's entropy there),
 * unconnected and with DF set: the IPv4 identification is 0, and 0, 1, 2, ... over the segments of one send.
 *
 * Addresses are v4-mapped for IPv4. All functions may be called by any thread.
 */
#ifndef VB_HOST_UDP_H
#define VB_HOST_UDP_H

#include "host/host.h"

enum {
	VB_ROCE_FIRST_SOURCE_PORT = 0xc000, /* and all from there on: a flow's entropy */
	VB_UDP_MAX_SEGMENTS = 64,
	VB_UDP_MAX_BYTES = 65000,  /* of one vb_udp_send */
};

struct vb_udp_packet {
	struct vb_inbox_addr addr;
	const uint8_t *bytes;      /* BTH to ICRC; valid during the call. Hostile input. */
	size_t len;
	unsigned ifindex;          /* where it came in */
	/* 0, or its place among packets that the kernel joined: only the bytes differ from the one before */
	unsigned index;
};

/*
 * `packet` gets packets, batch_done follows each batch of them. Both run in the thread that called
 * vb_udp_receive or in the progress thread. `packet` never runs in two threads at once, but another thread
 * may receive while one is in batch_done. Set once, before vb_udp_open.
 */
void vb_udp_set_handler(void (*packet)(const struct vb_udp_packet *packet), void (*batch_done)(void));

/*
 * Opens the sockets, once per process; the progress thread watches them. 0 even if another user has the port.
 */
VB_EXPORT int vb_udp_open(void);
bool vb_udp_is_open(void);
/*
 * Waits until the kernel delivers this process's packets to it directly (udp_steer.c). The first call after
 * the sockets were opened takes some ms, and up to 1 s if other processes do not answer. The progress thread
 * learns the table, so the caller must hold no lock that this thread takes. In the progress thread itself the
 * function returns at once.
 */
VB_EXPORT void vb_udp_await_steering(void);
/*
 * Receives a bounded number of packets. False: none was seen, or another thread is receiving. Made for
 * polling: it rarely looks at the IP version that had nothing last.
 */
bool vb_udp_receive(void);
/* A hint: a thread is receiving. */
bool vb_udp_is_receiving(void);
/* A hint: datagrams wait to be received. A system call. */
bool vb_udp_has_arrivals(void);
/*
 * Receives what has arrived, as far as one call can. False: another thread is receiving. For code that is
 * about to report that nothing arrived.
 */
bool vb_udp_drain(void);
/* Shall the progress thread wake up for packets? (Not while a program polls.) Cheap if nothing changes. */
void vb_udp_watch(bool wake);

/*
 * The source port for packets of a flow: the wanted one, addr->udp_sport, if a socket can be had for it, else
 * one that exists already. Opens the socket, which sends fastest with this addressing. The result goes into
 * vb_inbox_addr.udp_sport of what is sent.
 */
uint16_t vb_udp_source_port(const struct vb_inbox_addr *addr);
/* 0: there is a socket to send from; else why there is none. */
int vb_udp_prepare(const struct vb_inbox_addr *addr);

/*
 * Sends datagrams of `segment` bytes each, the last one possibly shorter, from addr->udp_sport to
 * VB_ROCE_PORT with addr's source address, traffic class and hop limit. ifindex: the interface for link-local
 * and multicast destinations, else 0. Waits some milliseconds at most. -EAGAIN: no room, nothing was sent.
 * -EOPNOTSUPP: this host never sends several segments at once; send them one by one. -EMSGSIZE: longer than
 * the path allows. Else the error of sendmsg.
 */
int vb_udp_send(const struct vb_inbox_addr *addr, unsigned ifindex, const void *bytes, size_t len,
		size_t segment);
/*
 * Segments that one vb_udp_send may have: VB_UDP_MAX_SEGMENTS, or 1 (no UDP_SEGMENT here, or
 * VERBATIM_GSO=off, read once per process).
 */
unsigned vb_udp_segments(void);

/*
 * Gets datagrams that were returned because nobody has the port there, in the progress thread: the host that
 * one was sent to, and as much of it as ICMP quotes. Anybody on the network can forge that.
 */
void vb_udp_set_returned_handler(void (*returned)(const struct in6_addr *host, const void *bytes,
						  size_t len));

/*
 * IP multicast membership of this process on an interface, counted. 0 or a negative errno: -ENOTCONN (not
 * open), -EINVAL (no such group), -ENODEV (no such interface), -ENOBUFS (net.ipv4.igmp_max_memberships, by
 * default 20 groups of IPv4).
 */
VB_EXPORT int vb_udp_join(const struct in6_addr *group, unsigned ifindex);
VB_EXPORT void vb_udp_leave(const struct in6_addr *group, unsigned ifindex);

/*
 * The handler got a packet for another process's slot, so steering is stale: it will be learned again soon.
 * Cheap.
 */
void vb_udp_misdirected(void);

/* Since the start, for counters and tests. */
struct vb_udp_counts {
	uint64_t packets_in, packets_out, congested, send_failures;
};
void vb_udp_count(struct vb_udp_counts *counts);

#endif

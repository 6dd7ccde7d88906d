/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * UDP port 4791, which all processes of a network namespace share (SO_REUSEPORT). A classic BPF filter steers
 * a packet to the process that owns the slot in its destination QP number; it may be stale, so the receiver
 * still has to look whose packet it is and pass strangers' on to their inbox. Another user's socket cannot
 * join the group: then this process has no socket of its own to receive with (it tries again from time to
 * time) and lives on what the group's owner forwards.
 *
 * Sending goes through sockets of their own, one per source port (RoCEv2 puts a flow's entropy there),
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
	/*
	 * 0, or its place among packets that the kernel joined: all else but the bytes is as in the one
	 * before
	 */
	unsigned index;
	bool congested;            /* ECN: congestion experienced */
};

/*
 * Who gets packets; batch_done is called after each batch of them. Both run in the thread that called
 * vb_udp_receive or in the progress thread; `packet` never in two threads at once, but while one thread is in
 * batch_done another may receive. Set once, before vb_udp_open.
 */
void vb_udp_set_handler(void (*packet)(const struct vb_udp_packet *packet), void (*batch_done)(void));

/*
 * Opens the sockets once per process and has the progress thread watch them. 0 even if another user has the
 * port.
 */
VB_EXPORT int vb_udp_open(void);
bool vb_udp_is_open(void);
/*
 * Takes a bounded number of packets. False: none was seen, or another thread is at it. Made for polling: the
 * IP version that had nothing last is looked at now and then only.
 */
bool vb_udp_receive(void);
/* A hint: a thread is in the middle of it. */
bool vb_udp_is_receiving(void);
/*
 * Takes what has arrived, as far as one call can; false: another thread is at it. For those who are about to
 * say that nothing came.
 */
bool vb_udp_drain(void);
/* Shall the progress thread wake up for packets? (Not while a program polls.) Cheap if nothing changes. */
void vb_udp_watch(bool wake);

/*
 * The source port that packets of a flow will have: the wanted one, addr->udp_sport, if a socket can be had
 * for it, else one that exists already. Opens the socket, which sends fastest with this addressing. The
 * result goes into vb_inbox_addr.udp_sport of what is sent.
 */
uint16_t vb_udp_source_port(const struct vb_inbox_addr *addr);
/* Is there a socket to send from? Else what is missing. */
int vb_udp_prepare(const struct vb_inbox_addr *addr);

/*
 * Sends datagrams of `segment` bytes each, the last one possibly shorter, from addr->udp_sport to
 * VB_ROCE_PORT with addr's source address, traffic class and hop limit. ifindex: the way out for link-local
 * and multicast destinations, else 0. Never blocks for long. -EAGAIN: no room, nothing was sent. -EOPNOTSUPP:
 * more than one segment cannot be sent at once here, now or later; send them one by one. -EMSGSIZE: longer
 * than the path allows. Else what sendmsg returns.
 */
int vb_udp_send(const struct vb_inbox_addr *addr, unsigned ifindex, const void *bytes, size_t len,
		size_t segment);
/*
 * Segments that one vb_udp_send may have: VB_UDP_MAX_SEGMENTS, or 1 (no UDP_SEGMENT here, or
 * VERBATIM_GSO=off, read once per process).
 */
unsigned vb_udp_segments(void);

/*
 * A datagram whose sender wants to know if there is nobody on the port: it leaves from a port of its own,
 * addr->udp_sport having to be the answer of vb_udp_returnable_port (0: not possible here). Errors as of
 * vb_udp_send.
 */
uint16_t vb_udp_returnable_port(bool ipv4);
int vb_udp_send_returnable(const struct vb_inbox_addr *addr, unsigned ifindex, const void *bytes, size_t len);
/*
 * Hears in the progress thread what came back: the host that it was sent to, and as much of the datagram as
 * ICMP quotes. Anybody on the network may have made it up.
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
 * The handler got a packet for another process's slot: so steering is stale and shall be learned again some
 * time soon. Cheap.
 */
void vb_udp_misdirected(void);

/* Since the start, for counters and tests. */
struct vb_udp_counts {
	uint64_t packets_in, packets_out, congested, send_failures;
};
void vb_udp_count(struct vb_udp_counts *counts);

#endif

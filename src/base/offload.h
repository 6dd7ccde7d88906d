/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Work that a kernel has left to an interface, as taps and packet sockets tell it before a frame (struct
 * virtio_net_hdr). A frame begins with its Ethernet header.
 */
#ifndef VB_OFFLOAD_H
#define VB_OFFLOAD_H

#include <linux/virtio_net.h>
#include <netinet/in.h>

#include "base/inet.h"

/* Of Linux 6.2, later than the headers of Debian 12 know. */
#ifndef VIRTIO_NET_HDR_GSO_UDP_L4
#define VIRTIO_NET_HDR_GSO_UDP_L4 5
#endif

/* The protocol of the packets that the frame is to be cut into. 0: it is one packet, or of no known kind. */
static inline uint8_t vb_offload_protocol(const struct virtio_net_hdr *left)
{
	switch (left->gso_type & ~VIRTIO_NET_HDR_GSO_ECN) {
	case VIRTIO_NET_HDR_GSO_TCPV4:
	case VIRTIO_NET_HDR_GSO_TCPV6:
		return IPPROTO_TCP;
	case VIRTIO_NET_HDR_GSO_UDP_L4:
		return IPPROTO_UDP;
	}
	return 0;
}

/*
 * Fills in the checksum that was left open; the sum of its pseudo-header stands in its place. False: none
 * was, or it does not lie within the frame.
 */
static inline bool vb_offload_fill_checksum(const struct virtio_net_hdr *left, uint8_t *frame, size_t bytes)
{
	size_t start = left->csum_start, at = start + left->csum_offset;
	if (!(left->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) || at + 2 > bytes)
		return false;
	uint16_t sum = vb_inet_checksum(frame + start, bytes - start);
	sum = sum ? sum : 0xffff; /* which is the same number; 0 would mean that there is none */
	frame[at] = (uint8_t)(sum >> 8);
	frame[at + 1] = (uint8_t)sum;
	return true;
}

#endif

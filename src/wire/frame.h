/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ethernet frames with IP inside, as adapters work on them: checksums, the frame check sequence, and a long
 * TCP segment cut into frames. All of it is pure: bytes in, bytes out; a frame that is not what a function is
 * for is told by its answer.
 */
#ifndef VB_WIRE_FRAME_H
#define VB_WIRE_FRAME_H

#include "base/base.h"

enum { VB_ETHER_BYTES = 14, VB_VLAN_BYTES = 4, VB_FCS_BYTES = 4, VB_ETHER_VLAN = 0x8100 };

/*
 * Where the parts of a frame are. l4: 0 unless it has a whole TCP or UDP header that is no later fragment's.
 */
struct vb_frame_layout {
	uint16_t ip, l4;     /* offsets */
	uint8_t ip_version;  /* 4, 6 or 0 */
	uint8_t protocol;    /* of l4 */
	size_t end;          /* behind the IP packet; the rest is padding */
};

/* False: no IP packet, or one that is cut off. */
bool vb_frame_find(const uint8_t *frame, size_t bytes, struct vb_frame_layout *at);

/* Puts the IPv4 header's checksum and TCP's or UDP's where they belong. False: there is no IP packet. */
bool vb_frame_fill_checksums(uint8_t *frame, size_t bytes);
/* Are the IPv4 header's checksum and TCP's or UDP's there, and right? */
bool vb_frame_checksums_are_right(const uint8_t *frame, size_t bytes);

/* As it follows the frame on the wire. */
void vb_frame_check_sequence(const void *frame, size_t bytes, uint8_t out[VB_FCS_BYTES]);

/* Is this the header of a TCP segment over IP, from the Ethernet header to the end of TCP's? */
bool vb_frame_is_tcp_header(const uint8_t *header, size_t bytes);
/* Bytes of all headers of a whole TCP segment, or UDP datagram, over IP; 0: it is none of this protocol. */
size_t vb_frame_header_bytes(const uint8_t *frame, size_t bytes, uint8_t protocol);
/*
 * Cuts one frame from a long TCP segment, or from several UDP datagrams that were joined. On entry `frame` is
 * the long one's headers and behind them this frame's piece of the payload; the call changes the headers, and
 * computes the checksums. at: the piece's offset in the payload; number: the frame's, from 0; last: it ends
 * the segment.
 */
void vb_frame_cut(uint8_t *frame, size_t header_bytes, size_t piece_bytes, uint32_t at, uint16_t number,
		  bool last);
/* The same without checksums; the payload is somewhere else. */
void vb_frame_cut_header(uint8_t *header, size_t header_bytes, size_t piece_bytes, uint32_t at,
			 uint16_t number, bool last);

#endif

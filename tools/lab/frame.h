/* SPDX-License-Identifier: BSD-2-Clause */
/* Ethernet frames as a tap gives them, behind the header of LAB_VNET_HEADER bytes. Pure. */
#ifndef VB_TOOLS_LAB_FRAME_H
#define VB_TOOLS_LAB_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	LAB_VNET_HEADER = 10, /* struct virtio_net_hdr */
	LAB_FRAME_IP    = LAB_VNET_HEADER + 14,
};

/* Gives the IP header its checksum, if it has one. */
void lab_frame_sum_ip(uint8_t *frame, size_t size);

/* Can the packet carry a mark of congestion? That is, is it one of an ECN-capable transport's. */
bool lab_frame_can_mark(const uint8_t *frame, size_t size);
/* Marks one that can: congestion experienced. */
void lab_frame_mark(uint8_t *frame, size_t size);
/* Flips a bit behind the Ethernet header, after what checksum the sender has left to its interface. */
void lab_frame_corrupt(uint8_t *frame, size_t size, uint64_t bit);

#endif

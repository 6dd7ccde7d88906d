/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Frames that a host's kernel has not cut into packets (segmentation offload): which packets they are made
 * of, and frames of some of these packets. So each packet has a fate of its own, and those that go on
 * together take one call. Pure. A frame comes from a host and is not trusted.
 */
#ifndef VB_TOOLS_LAB_CUT_H
#define VB_TOOLS_LAB_CUT_H

#include <stddef.h>
#include <stdint.h>

struct lab_cut {
	size_t size;         /* of the frame, LAB_VNET_HEADER included, as of all that follows */
	unsigned packets;    /* 1: the frame is a packet, or one that is not understood and goes as a whole */
	size_t headers;      /* bytes before its payload */
	size_t transport;    /* where its TCP or UDP header begins, */
	size_t checksum;     /* and has its checksum, which is not computed yet */
	size_t step;         /* payload bytes of each packet but the last */
};

void lab_cut_read(struct lab_cut *cut, const uint8_t *frame, size_t size);
/* Bytes of the packet with this number, without LAB_VNET_HEADER. */
size_t lab_cut_bytes(const struct lab_cut *cut, unsigned number);

enum { LAB_RUN_HEADERS = 256 };

/* Packets that follow each other, as one frame: what begins it, and which bytes of the uncut frame end it. */
struct lab_run {
	uint8_t begin[LAB_RUN_HEADERS];
	size_t begin_bytes, rest_at, rest_bytes;
};

void lab_cut_run(const struct lab_cut *cut, const uint8_t *frame, unsigned first, unsigned count,
		 struct lab_run *run);

#endif

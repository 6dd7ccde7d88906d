/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writes pcapng files (draft-ietf-opsawg-pcapng) of IP packets: a section, an interface for each process,
 * packets with direction and comment, events, and at the end each interface's statistics. Times are ns since
 * 1970. Errors stay in the stream (ferror).
 */
#ifndef VB_TOOLS_PCAPNG_H
#define VB_TOOLS_PCAPNG_H

#include <stdint.h>
#include <stdio.h>

/* Blocks, and what they may say. */
#define PCAPNG_SECTION    0x0a0d0d0au
#define PCAPNG_INTERFACE  1u
#define PCAPNG_STATISTICS 5u
#define PCAPNG_PACKET     6u
#define PCAPNG_EVENT      0x80007662u /* one of those that are for local use: readers skip it */
#define PCAPNG_BYTE_ORDER 0x1a2b3c4du
#define PCAPNG_RAW_IP     101u /* a link type */

struct pcapng {
	FILE *out;
	uint32_t interfaces;
};

struct pcapng_packet {
	uint32_t interface;
	uint64_t time_ns;
	const void *bytes;
	uint32_t kept, len;      /* bytes that are there, and that there were */
	int goes_out;
	uint64_t dropped;        /* on this interface since the packet before */
	const char *comment;     /* or NULL */
};

void pcapng_begin(struct pcapng *p, FILE *out, const char *application);
/* snap: the most bytes of a packet that are kept; 0: no limit. Returns its number. */
uint32_t pcapng_interface(struct pcapng *p, const char *name, const char *description, uint32_t snap);
void pcapng_packet(struct pcapng *p, const struct pcapng_packet *packet);
/* An event on an interface: a fixed part, a multiple of 4 bytes, and text. */
void pcapng_event(struct pcapng *p, uint32_t interface, uint64_t time_ns, const void *fixed, uint32_t n,
		  const void *text, uint32_t text_bytes);
void pcapng_statistics(struct pcapng *p, uint32_t interface, uint64_t time_ns, uint64_t received,
		       uint64_t dropped);

#endif

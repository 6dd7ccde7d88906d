/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What processes that share UDP port 4791 ask each other (udp_steer.c), and whoever wants to know whether one
 * of them has it.
 */
#ifndef VB_HOST_UDP_PROBE_H
#define VB_HOST_UDP_PROBE_H

#include <stdint.h>

/*
 * Begins with an opcode that no RoCE packet has here (manufacturers' own). Big endian, for the BPF program.
 */
#define VB_PROBE_MAGIC        0xff766270u
#define VB_PROBE_ANSWER_MAGIC 0xff766261u
#define VB_PROBE_STEER_MAGIC  0x73746565u

/* In network order. Of an answer, the head: slot_count numbers of 16 bits follow. */
struct vb_udp_probe {
	uint32_t magic[2];
	uint32_t place;
	uint32_t slot_count;
	uint64_t cookie; /* of the learner's, repeated */
};
enum { VB_LOOPBACK_IFINDEX = 1 }; /* by which probes come in */
_Static_assert(sizeof(struct vb_udp_probe) == 24, "what the BPF program looks at");

#endif

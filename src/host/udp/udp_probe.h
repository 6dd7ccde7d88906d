/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Probes between processes that share UDP port 4791 (udp_steer.c). `verbatim doctor` sends them too, to see
 * whether such a process has the port.
 */
#ifndef VB_HOST_UDP_PROBE_H
#define VB_HOST_UDP_PROBE_H

#include <stdint.h>

/* The first byte is an opcode that no RoCE packet has here (manufacturer specific). */
#define VB_PROBE_MAGIC        0xff766270u
#define VB_PROBE_ANSWER_MAGIC 0xff766261u
#define VB_PROBE_STEER_MAGIC  0x73746565u

enum { VB_LOOPBACK_IFINDEX = 1 }; /* where probes come in */

/* In network order. Of an answer, the head: slot_count numbers of 16 bits follow. */
struct vb_udp_probe {
	uint32_t magic[2];
	uint32_t place;
	uint32_t slot_count;
	uint64_t cookie; /* the prober's, repeated in the answer */
};
_Static_assert(sizeof(struct vb_udp_probe) == 24, "what the BPF program looks at");

#endif

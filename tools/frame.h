/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A captured packet as an IP packet. What the process did not see of a packet is put as it must have been: no
 * options, DF, the right lengths and checksums; the ICRC, where it goes without, is computed.
 */
#ifndef VB_TOOLS_FRAME_H
#define VB_TOOLS_FRAME_H

#include <stddef.h>

#include "host/inspect.h"

enum { FRAME_BYTES = 40 + 8 + 65536 + 8 };

struct frame {
	uint32_t kept, len;
	uint8_t bytes[FRAME_BYTES];
};

/* packet->kept bytes, at most 65536, from the BTH on. */
void frame_make(struct frame *frame, const struct vb_capture_packet *packet, const void *bytes);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets and MADs as one line of text, for logs and tests. Always ends with a zero; cut if the buffer is too
 * small.
 */
#ifndef VB_TESTS_PACKET_LINE_H
#define VB_TESTS_PACKET_LINE_H

#include "base/base.h"

/* A line long enough for any packet. */
#define VB_WIRE_LINE_BYTES 1536

/*
 * packet: from the BTH on, without ICRC. E.g. "UD SEND_ONLY pkey=0xffff destination_qpn=0x1 psn=0x7 DETH{
 * qkey=0x80010000 source_qpn=0x1 } CM RTU tid=0x12 local_comm_id=0x3001 remote_comm_id=0x5002", or "...
 * payload=64". Fields that are zero are left out. Returns the length of the line.
 */
size_t vb_wire_packet_line(const void *packet, size_t len, char *line, size_t size);

/* mad: any bytes; others than CM messages are named by class and attribute. */
size_t vb_wire_mad_line(const void *mad, size_t len, char *line, size_t size);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>

#include "frame.h"

#include "base/offload.h"

enum {
	HEADER = LAB_VNET_HEADER,
	IP = LAB_FRAME_IP,
	V4_BYTES = 20,
	V6_BYTES = 40,
	ECT_0 = 2,
	ECT_1 = 1,
	CE = 3,
};

static unsigned type_of(const uint8_t *frame, size_t size)
{
	unsigned type = size < IP ? 0 : frame[HEADER + 12] << 8 | frame[HEADER + 13];

	size_t least = type == 0x0800 ? IP + V4_BYTES : IP + V6_BYTES;

	return (type == 0x0800 || type == 0x86dd) && size >= least ? type : 0;
}

/* The two bits of ECN. */
static unsigned ecn_of(const uint8_t *frame, size_t size)
{
	switch (type_of(frame, size)) {
	case 0x0800:
		return frame[IP + 1] & 3;
	case 0x86dd:
		return frame[IP + 1] >> 4 & 3;
	}
	return 0;
}

bool lab_frame_can_mark(const uint8_t *frame, size_t size)
{
	unsigned ecn = ecn_of(frame, size);

	return ecn == ECT_0 || ecn == ECT_1;
}

static void put_sum(uint8_t *at, uint16_t sum)
{
	at[0] = (uint8_t)(sum >> 8);
	at[1] = (uint8_t)sum;
}

void lab_frame_sum_ip(uint8_t *frame, size_t size)
{
	uint8_t *ip = frame + IP;
	size_t header = (size_t)(ip[0] & 15) * 4;

	if (type_of(frame, size) != 0x0800)
		return;
	header = header <= size - IP ? header : V4_BYTES;
	put_sum(ip + 10, 0);
	put_sum(ip + 10, vb_inet_checksum(ip, header));
}

void lab_frame_mark(uint8_t *frame, size_t size)
{
	frame[IP + 1] |= type_of(frame, size) == 0x86dd ? CE << 4 : CE;
	lab_frame_sum_ip(frame, size);
}

void lab_frame_corrupt(uint8_t *frame, size_t size, uint64_t bit)
{
	struct virtio_net_hdr left;

	if (size <= IP)
		return;
	memcpy(&left, frame, HEADER);
	if (vb_offload_fill_checksum(&left, frame + HEADER, size - HEADER))
		memset(frame, 0, HEADER);
	bit %= (uint64_t)(size - IP) * 8;
	frame[IP + bit / 8] ^= (uint8_t)(1 << bit % 8);
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>

#include "cut.h"
#include "frame.h"

#include "base/offload.h"
#include "wire/frame.h"

static struct virtio_net_hdr offload_of(const uint8_t *frame)
{
	struct virtio_net_hdr offload;

	memcpy(&offload, frame, LAB_VNET_HEADER);
	return offload;
}

void lab_cut_read(struct lab_cut *cut, const uint8_t *frame, size_t size)
{
	struct virtio_net_hdr offload = offload_of(frame);
	uint8_t protocol = vb_offload_protocol(&offload);
	struct vb_frame_layout at;
	size_t headers;

	*cut = (struct lab_cut){ .size = size, .packets = 1 };
	if (!(offload.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) || !offload.gso_size || !protocol)
		return;
	headers = vb_frame_header_bytes(frame + LAB_VNET_HEADER, size - LAB_VNET_HEADER, protocol);
	if (!headers || !vb_frame_find(frame + LAB_VNET_HEADER, size - LAB_VNET_HEADER, &at) ||
	    offload.csum_start != at.l4 || (size_t)at.l4 + offload.csum_offset + 2 > headers ||
	    LAB_VNET_HEADER + headers > LAB_RUN_HEADERS || LAB_VNET_HEADER + headers == size)
		return;
	cut->headers = LAB_VNET_HEADER + headers;
	cut->transport = LAB_VNET_HEADER + (size_t)at.l4;
	cut->checksum = cut->transport + offload.csum_offset;
	cut->step = offload.gso_size;
	cut->packets = (unsigned)((size - cut->headers + cut->step - 1) / cut->step);
}

static size_t payload_bytes(const struct lab_cut *cut, unsigned first, unsigned count)
{
	return vb_min_u64(cut->size - cut->headers - first * cut->step, count * cut->step);
}

size_t lab_cut_bytes(const struct lab_cut *cut, unsigned number)
{
	size_t bytes = cut->packets == 1 ? cut->size : cut->headers + payload_bytes(cut, number, 1);

	return bytes - LAB_VNET_HEADER;
}

/* The sender has summed up what goes into the checksum beside these bytes; that has their number in it. */
static void change_length(uint8_t *checksum, size_t from, size_t to)
{
	uint32_t sum = (uint32_t)checksum[0] << 8 | checksum[1];
	uint16_t changed = vb_inet_fold(sum + (~from & 0xffff) + (to & 0xffff));

	checksum[0] = (uint8_t)(changed >> 8);
	checksum[1] = (uint8_t)changed;
}

static void put_headers(const struct lab_cut *cut, unsigned first, unsigned count, struct lab_run *run)
{
	vb_frame_cut_header(run->begin + LAB_VNET_HEADER, cut->headers - LAB_VNET_HEADER, run->rest_bytes,
			    (uint32_t)(first * cut->step), (uint16_t)first, first + count == cut->packets);
	lab_frame_sum_ip(run->begin, cut->headers);
	change_length(run->begin + cut->checksum, cut->size - cut->transport,
		      cut->headers - cut->transport + run->rest_bytes);
	if (count == 1) {
		struct virtio_net_hdr offload = offload_of(run->begin);
		offload.gso_type = VIRTIO_NET_HDR_GSO_NONE;
		offload.gso_size = 0;
		memcpy(run->begin, &offload, LAB_VNET_HEADER);
	}
}

void lab_cut_run(const struct lab_cut *cut, const uint8_t *frame, unsigned first, unsigned count,
		 struct lab_run *run)
{
	bool is_whole = count == cut->packets;

	run->begin_bytes = is_whole ? vb_min_u64(cut->size, LAB_RUN_HEADERS) : cut->headers;
	run->rest_at = run->begin_bytes + first * cut->step;
	run->rest_bytes = is_whole ? cut->size - run->begin_bytes : payload_bytes(cut, first, count);
	memcpy(run->begin, frame, run->begin_bytes);
	if (!is_whole)
		put_headers(cut, first, count, run);
}

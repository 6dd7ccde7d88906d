/* SPDX-License-Identifier: BSD-2-Clause */
/* Frames in a lab: marks, corruption, and the packets of those that are not cut. */
#include <linux/virtio_net.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "lab/cut.h"
#include "lab/frame.h"

/* ---- marks and corruption ---- */

enum { IP = LAB_FRAME_IP, FRAME = IP + 20 + 8 + 10 };

/* An IPv4 packet whose header checksum is right. */
static void fill_v4(uint8_t frame[FRAME], uint8_t ecn)
{
	static const uint8_t header[20] = {
		0x45, 0, 0, 38, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 99, 0, 1, 10, 99, 0, 2,
	};
	uint32_t sum = 0;

	memset(frame, 0, FRAME);
	frame[22] = 8;
	memcpy(frame + IP, header, sizeof(header));
	frame[IP + 1] = ecn;
	for (unsigned i = 0; i < 20; i += 2)
		sum += (uint32_t)(frame[IP + i] << 8 | frame[IP + i + 1]);
	sum = ~(sum + (sum >> 16)) & 0xffff;
	frame[IP + 10] = (uint8_t)(sum >> 8);
	frame[IP + 11] = (uint8_t)sum;
}

static void frame__marks(void **state)
{
	uint8_t frame[FRAME], wanted[FRAME];

	for (uint8_t ecn = 0; ecn < 4; ecn++) {
		fill_v4(frame, ecn);
		assert_int_equal(lab_frame_can_mark(frame, FRAME), ecn == 1 || ecn == 2);
	}
	fill_v4(frame, 2);
	fill_v4(wanted, 3);
	lab_frame_mark(frame, FRAME);
	assert_memory_equal(frame, wanted, FRAME);
	memset(frame, 0, FRAME);
	assert_false(lab_frame_can_mark(frame, FRAME));
	frame[22] = 0x86;
	frame[23] = 0xdd;
	frame[IP] = 0x60;
	frame[IP + 1] = 0x2f;
	assert_false(lab_frame_can_mark(frame, IP + 39));
}

static void frame__corrupts_one_bit(void **state)
{
	uint8_t frame[FRAME], before[FRAME];
	unsigned bits = 0;

	fill_v4(before, 0);
	memcpy(frame, before, FRAME);
	lab_frame_corrupt(frame, FRAME, 12345678901ull);
	for (unsigned i = 0; i < FRAME; i++)
		bits += (unsigned)__builtin_popcount(frame[i] ^ before[i]);
	assert_int_equal(bits, 1);
	assert_memory_equal(frame, before, IP);
}

/* ---- frames that are not cut ---- */

enum { STEP = 1000, UNCUT = 3500, PIECES = 4, TCP_BYTES = 32, MOST_HEADERS = IP + 40 + TCP_BYTES };
enum { FIN_PSH = 0x09, CWR = 0x80, ACK = 0x10 };

struct uncut {
	uint8_t frame[MOST_HEADERS + UNCUT];
	size_t size, ip_bytes, transport, headers, checksum;
	bool is_v6, is_udp;
};

static void put(uint8_t *at, unsigned value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

static unsigned get(const uint8_t *at) { return (unsigned)at[0] << 8 | at[1]; }

static uint32_t add_up(uint32_t sum, const uint8_t *at, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sum += i % 2 ? at[i] : (uint32_t)at[i] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* Of the addresses, the protocol and the length, which TCP and UDP checksums are of, too. */
static uint32_t pseudo(const struct uncut *u, const uint8_t *frame, size_t bytes)
{
	size_t addresses = u->is_v6 ? 32 : 8;

	return add_up((u->is_udp ? 17 : 6) + (uint32_t)bytes, frame + u->transport - addresses, addresses);
}

static void fill_uncut(struct uncut *u, bool is_v6, bool is_udp)
{
	struct virtio_net_hdr offload = { .flags = VIRTIO_NET_HDR_F_NEEDS_CSUM, .gso_size = STEP };

	*u = (struct uncut){ .is_v6 = is_v6, .is_udp = is_udp, .ip_bytes = is_v6 ? 40 : 20 };
	u->transport = IP + u->ip_bytes;
	u->headers = u->transport + (is_udp ? 8 : TCP_BYTES);
	u->size = u->headers + UNCUT;
	u->checksum = u->transport + (is_udp ? 6 : 16);
	offload.gso_type = is_udp ? 5 : is_v6 ? VIRTIO_NET_HDR_GSO_TCPV6 : VIRTIO_NET_HDR_GSO_TCPV4;
	offload.csum_start = (uint16_t)(u->transport - LAB_VNET_HEADER);
	offload.csum_offset = (uint16_t)(u->checksum - u->transport);
	memcpy(u->frame, &offload, LAB_VNET_HEADER);
	for (size_t i = IP; i < u->size; i++)
		u->frame[i] = (uint8_t)(i * 7 + i / 256);
	put(u->frame + IP - 2, is_v6 ? 0x86dd : 0x0800);
	u->frame[IP] = is_v6 ? 0x60 : 0x45;
	u->frame[IP + 1] = is_v6 ? 0x20 : 0x02; /* ECT(0) */
	u->frame[IP + (is_v6 ? 6 : 9)] = is_udp ? 17 : 6;
	if (!is_v6)
		put(u->frame + IP + 6, 0x4000); /* not to be fragmented */
	put(u->frame + IP + (is_v6 ? 4 : 2), (unsigned)(u->size - (is_v6 ? u->transport : IP)));
	put(u->frame + u->transport + 4, is_udp ? (unsigned)(u->size - u->transport) : 0xffff);
	if (!is_udp) {
		put(u->frame + u->transport + 6, 0xff00);
		u->frame[u->transport + 12] = TCP_BYTES / 4 << 4;
		u->frame[u->transport + 13] = FIN_PSH | CWR | ACK;
	}
	put(u->frame + u->checksum, pseudo(u, u->frame, u->size - u->transport));
}

static size_t join_run(const struct uncut *u, const struct lab_cut *cut, unsigned first, unsigned count,
		       uint8_t *to)
{
	struct lab_run run;

	lab_cut_run(cut, u->frame, first, count, &run);
	memcpy(to, run.begin, run.begin_bytes);
	memcpy(to + run.begin_bytes, u->frame + run.rest_at, run.rest_bytes);
	return run.begin_bytes + run.rest_bytes;
}

static void expect_ip(const struct uncut *u, const uint8_t *frame, size_t size, unsigned first)
{
	if (u->is_v6) {
		assert_int_equal(get(frame + IP + 4), size - u->transport);
		return;
	}
	assert_int_equal(get(frame + IP + 2), size - IP);
	assert_int_equal(get(frame + IP + 4), (get(u->frame + IP + 4) + first) & 0xffff);
	assert_int_equal(add_up(0, frame + IP, 20), 0xffff);
}

static void expect_tcp(const struct uncut *u, const uint8_t *frame, unsigned first, unsigned count)
{
	const uint8_t *tcp = frame + u->transport;
	uint32_t sequence = 0xffffff00u + first * STEP;
	uint8_t flags = (uint8_t)(ACK | (first ? 0 : CWR) | (first + count == PIECES ? FIN_PSH : 0));

	assert_int_equal(get(tcp + 4) << 16 | get(tcp + 6), sequence);
	assert_int_equal(tcp[13], flags);
	assert_memory_equal(tcp + 18, u->frame + u->transport + 18, TCP_BYTES - 18);
}

static void expect_run(const struct uncut *u, const struct lab_cut *cut, unsigned first, unsigned count)
{
	uint8_t frame[MOST_HEADERS + UNCUT];
	size_t size = join_run(u, cut, first, count, frame), bytes = size - u->headers;
	struct virtio_net_hdr offload;

	assert_int_equal(bytes, (first + count == PIECES ? UNCUT : (first + count) * STEP) - first * STEP);
	assert_memory_equal(frame + u->headers, u->frame + u->headers + first * STEP, bytes);
	memcpy(&offload, frame, LAB_VNET_HEADER);
	assert_int_equal(offload.gso_size, count == 1 ? 0 : STEP);
	assert_int_equal(offload.gso_type != VIRTIO_NET_HDR_GSO_NONE, count > 1);
	assert_int_equal(offload.flags, VIRTIO_NET_HDR_F_NEEDS_CSUM);
	expect_ip(u, frame, size, first);
	if (u->is_udp)
		assert_int_equal(get(frame + u->transport + 4), size - u->transport);
	else
		expect_tcp(u, frame, first, count);
	assert_int_equal(get(frame + u->checksum) % 0xffff, pseudo(u, frame, size - u->transport) % 0xffff);
}

static void cut__each_run_of_packets_is_a_frame(void **state)
{
	for (unsigned kind = 0; kind < 4; kind++) {
		struct uncut u;
		struct lab_cut cut;
		fill_uncut(&u, kind & 1, kind & 2);
		lab_cut_read(&cut, u.frame, u.size);
		assert_int_equal(cut.packets, PIECES);
		for (unsigned first = 0; first < PIECES; first++) {
			size_t payload = first == PIECES - 1 ? UNCUT - first * STEP : STEP;
			assert_int_equal(lab_cut_bytes(&cut, first), u.headers - LAB_VNET_HEADER + payload);
			for (unsigned count = 1; first + count <= PIECES && count < PIECES; count++)
				expect_run(&u, &cut, first, count);
		}
	}
}

static void expect_whole(const struct uncut *u, size_t size)
{
	uint8_t frame[MOST_HEADERS + UNCUT];
	struct lab_cut cut;

	lab_cut_read(&cut, u->frame, size);
	assert_int_equal(join_run(u, &cut, 0, cut.packets, frame), size);
	assert_memory_equal(frame, u->frame, size);
}

static void cut__all_packets_are_the_frame_as_it_was(void **state)
{
	struct uncut u;

	for (unsigned kind = 0; kind < 4; kind++) {
		fill_uncut(&u, kind & 1, kind & 2);
		for (size_t size = LAB_VNET_HEADER + 14; size <= u.size; size++)
			expect_whole(&u, size);
	}
}

/* What a host makes up is one packet. */
static void expect_one(const struct uncut *u)
{
	struct lab_cut cut;

	lab_cut_read(&cut, u->frame, u->size);
	assert_int_equal(cut.packets, 1);
	assert_int_equal(lab_cut_bytes(&cut, 0), u->size - LAB_VNET_HEADER);
	expect_whole(u, u->size);
}

static void cut__what_is_not_understood_is_one_packet(void **state)
{
	static const struct {
		size_t at;
		uint8_t value;
	} wrong[] = {
		{ 0, 0 },        /* its checksum is not left open, */
		{ 8, 40 },       /* or is not in its header */
		{ 1, 77 },       /* no kind of frame that is cut */
		{ 6, 4 },        /* the transport's header begins within the IP header, */
		{ 7, 0x80 },     /* or behind the frame */
		{ IP - 1, 6 },   /* not IP */
		{ IP, 0x4f },    /* a longer IPv4 header */
		{ IP, 0x65 },    /* the other version */
		{ IP + 6, 0x20 }, /* a fragment */
		{ IP + 9, 17 },  /* another protocol */
		{ IP + 20 + 12, 0x40 }, /* a TCP header that is too short, */
		{ IP + 20 + 12, 0xf0 }, /* or has no payload behind it */
	};
	struct uncut u;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		fill_uncut(&u, false, false);
		u.size = i + 1 == sizeof(wrong) / sizeof(wrong[0]) ? u.transport + 60 : u.size;
		u.frame[wrong[i].at] = wrong[i].value;
		expect_one(&u);
	}
	fill_uncut(&u, false, true);
	memset(u.frame + 4, 0, 2); /* no size of a packet */
	expect_one(&u);
}

static void cut__a_packet_is_summed_up_before_it_is_corrupted(void **state)
{
	for (unsigned kind = 0; kind < 4; kind++) {
		uint8_t frame[MOST_HEADERS + UNCUT];
		struct uncut u;
		struct lab_cut cut;
		fill_uncut(&u, kind & 1, kind & 2);
		lab_cut_read(&cut, u.frame, u.size);
		size_t size = join_run(&u, &cut, 1, 1, frame);
		lab_frame_corrupt(frame, size, 0);
		frame[IP] ^= 1;
		uint32_t sum = pseudo(&u, frame, size - u.transport);
		assert_int_equal(add_up(sum, frame + u.transport, size - u.transport), 0xffff);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frame__marks),
		cmocka_unit_test(frame__corrupts_one_bit),
		cmocka_unit_test(cut__each_run_of_packets_is_a_frame),
		cmocka_unit_test(cut__all_packets_are_the_frame_as_it_was),
		cmocka_unit_test(cut__what_is_not_understood_is_one_packet),
		cmocka_unit_test(cut__a_packet_is_summed_up_before_it_is_corrupted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

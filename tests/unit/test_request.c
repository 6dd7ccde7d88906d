/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>

#include "packets.h"
#include "proto/psn.h"

static void psn_expand__nearest(void **state)
{
	(void)state;
	assert_int_equal(vb_psn_expand(VB_PSN_BASE + 5, 7), VB_PSN_BASE + 7);
	assert_int_equal(vb_psn_expand(VB_PSN_BASE + 5, 3), VB_PSN_BASE + 3);
	assert_int_equal(vb_psn_expand(VB_PSN_BASE + 5, 0xffffff), VB_PSN_BASE - 1);
	assert_int_equal(vb_psn_expand(VB_PSN_BASE + 0xfffffe, 1), VB_PSN_BASE + 0x1000001);
	assert_int_equal(vb_psn_expand(VB_PSN_BASE, 0x7fffff), VB_PSN_BASE + 0x7fffff);
	assert_int_equal(vb_psn_expand(VB_PSN_BASE, 0x800000), VB_PSN_BASE - 0x800000);
}

static void packet_parse__refuses(void **state)
{
	uint8_t bytes[64] = { 0x04, 0x30, 0xff, 0xff };	/* SEND_ONLY, three bytes of padding */
	struct vb_packet p;

	(void)state;
	assert_int_equal(vb_packet_parse(bytes, 16, &p), 0);
	assert_int_equal(p.payload_bytes, 1);
	assert_int_equal(vb_packet_parse(bytes, 12, &p), -EBADMSG);	/* padding longer than the payload */
	assert_int_equal(vb_packet_parse(bytes, 8, &p), -EBADMSG);
	assert_int_equal(vb_packet_parse(bytes, 18, &p), -EBADMSG);
	bytes[1] = 0x01;	/* another transport version */
	assert_int_equal(vb_packet_parse(bytes, 16, &p), -EBADMSG);
	bytes[1] = 0;
	bytes[0] = 0x1f;	/* no such opcode */
	assert_int_equal(vb_packet_parse(bytes, 16, &p), -EBADMSG);
	bytes[0] = 0x11;	/* ACKNOWLEDGE has no payload */
	assert_int_equal(vb_packet_parse(bytes, 16, &p), 0);
	assert_int_equal(vb_packet_parse(bytes, 20, &p), -EBADMSG);
	assert_int_equal(vb_packet_parse(bytes, 12, &p), -EBADMSG);
}

/* For every opcode and length: what parses lies inside its bytes. */
static void packet_parse__every_opcode_and_length(void **state)
{
	uint8_t bytes[64] = { 0 };
	struct vb_packet p;

	(void)state;
	for (unsigned opcode = 0; opcode < 256; opcode++)
		for (unsigned pad = 0; pad < 4; pad++)
			for (size_t len = 0; len <= sizeof(bytes); len++) {
				bytes[0] = (uint8_t)opcode;
				bytes[1] = (uint8_t)(pad << 4);
				if (vb_packet_parse(bytes, len, &p))
					continue;
				assert_ptr_equal(p.payload, bytes + p.row->header_bytes);
				assert_int_equal(p.row->header_bytes + p.payload_bytes + pad, len);
			}
}

static void packet_fits__by_place(void **state)
{
	struct test_packet t;

	(void)state;
	assert_true(vb_packet_fits(response(&t, VB_OPB_SEND_ONLY, 0, 0), 256));
	assert_true(vb_packet_fits(response(&t, VB_OPB_SEND_ONLY, 0, 256), 256));
	assert_false(vb_packet_fits(response(&t, VB_OPB_SEND_ONLY, 0, 257), 256));
	assert_true(vb_packet_fits(response(&t, VB_OPB_SEND_MIDDLE, 0, 256), 256));
	assert_false(vb_packet_fits(response(&t, VB_OPB_SEND_MIDDLE, 0, 255), 256));
	assert_false(vb_packet_fits(response(&t, VB_OPB_SEND_FIRST, 0, 260), 256));
	assert_false(vb_packet_fits(response(&t, VB_OPB_SEND_LAST, 0, 0), 256));
	assert_true(vb_packet_fits(response(&t, VB_OPB_SEND_LAST, 0, 1), 256));
}

static void pkey_matches__one_full_member(void **state)
{
	(void)state;
	assert_true(vb_pkey_matches(0xffff, 0xffff));
	assert_true(vb_pkey_matches(0x7fff, 0xffff));
	assert_false(vb_pkey_matches(0x7fff, 0x7fff));
	assert_false(vb_pkey_matches(0xffff, 0x8001));
}

static void assert_packets(const struct vb_request *r, uint32_t mtu, const char *const *names)
{
	struct vb_packet_out out;
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; names[i]; i++) {
		vb_request_packet(r, to_peer(), mtu, 0xfffffe + i, i, 0, &out);
		assert_string_equal(name_of(&out), names[i]);
		assert_int_equal(psn_of(&out), (0xfffffe + i) & VB_PSN_MASK);
		assert_int_equal(out.payload_at, sum);
		assert_int_equal((out.payload_bytes + out.pad_bytes) % 4, 0);
		sum += out.payload_bytes;
		assert_int_equal(vb_bth_solicited((struct vb_bth *)out.header),
				 !names[i + 1] && r->solicited);
	}
	assert_int_equal(vb_request_packets(r, mtu), i);
	assert_int_equal(sum, r->length);
}

static void request_packet__segmentation(void **state)
{
	struct vb_request r = { .kind = VB_REQ_SEND, .length = 0, .solicited = true };

	(void)state;
	assert_packets(&r, 1024, (const char *[]){ "SEND_ONLY", NULL });
	r.length = 1024;
	assert_packets(&r, 1024, (const char *[]){ "SEND_ONLY", NULL });
	r.length = 1025;
	r.tail = VB_TAIL_IMM;
	assert_packets(&r, 1024, (const char *[]){ "SEND_FIRST", "SEND_LAST_IMM", NULL });
	r.length = 3 * 256;
	r.tail = VB_TAIL_INVALIDATE;
	assert_packets(&r, 256, (const char *[]){ "SEND_FIRST", "SEND_MIDDLE", "SEND_LAST_INV", NULL });
	r.kind = VB_REQ_WRITE;
	r.tail = VB_TAIL_NONE;
	assert_packets(&r, 256, (const char *[]){ "WRITE_FIRST", "WRITE_MIDDLE", "WRITE_LAST", NULL });
	r.tail = VB_TAIL_IMM;
	assert_packets(&r, 256, (const char *[]){ "WRITE_FIRST", "WRITE_MIDDLE", "WRITE_LAST_IMM", NULL });
	assert_packets(&r, 4096, (const char *[]){ "WRITE_ONLY_IMM", NULL });
}

static void request_packet__headers(void **state)
{
	struct vb_request r = { .kind = VB_REQ_WRITE, .length = 9, .remote_addr = 0x1122334455667788,
		.rkey = 0xa0b0c0d0,
				.tail = VB_TAIL_IMM };
	struct vb_packet_out out;

	(void)state;
	memcpy(&r.tail_value, "\x01\x02\x03\x04", 4);
	vb_request_packet(&r, to_peer(), 1024, 7, 0, 0, &out);
	assert_int_equal(out.header_bytes, 32);
	assert_int_equal(out.pad_bytes, 3);
	assert_int_equal(vb_reth_address(reth_of(&out)), 0x1122334455667788);
	assert_int_equal(vb_reth_rkey(reth_of(&out)), 0xa0b0c0d0);
	assert_int_equal(vb_reth_length(reth_of(&out)), 9);
	assert_memory_equal(out.header + 28, "\x01\x02\x03\x04", 4);

	r = (struct vb_request){ .kind = VB_REQ_READ, .length = 10000, .remote_addr = 0x1000, .rkey = 5 };
	vb_request_packet(&r, to_peer(), 1024, 7, 8, 100, &out);
	assert_int_equal(vb_reth_address(reth_of(&out)), 0x1000 + 8 * 1024);
	assert_int_equal(vb_reth_length(reth_of(&out)), 10000 - 8 * 1024);
	vb_request_packet(&r, to_peer(), 1024, 7, 8, 1, &out);
	assert_int_equal(vb_reth_length(reth_of(&out)), 1024);
	assert_int_equal(out.payload_bytes, 0);
}

static void request_check__what_a_service_has(void **state)
{
	struct vb_request r = { .kind = VB_REQ_READ };

	(void)state;
	assert_int_equal(vb_request_check(&r, VB_SERVICE_RC), 0);
	assert_int_equal(vb_request_check(&r, VB_SERVICE_UC), -EINVAL);
	r.tail = VB_TAIL_IMM;
	assert_int_equal(vb_request_check(&r, VB_SERVICE_RC), -EINVAL);
	r = (struct vb_request){ .kind = VB_REQ_FETCH_ADD, .length = 4 };
	assert_int_equal(vb_request_check(&r, VB_SERVICE_RC), -EINVAL);
	r = (struct vb_request){ .kind = VB_REQ_WRITE, .tail = VB_TAIL_INVALIDATE };
	assert_int_equal(vb_request_check(&r, VB_SERVICE_RC), -EINVAL);
	r = (struct vb_request){ .kind = VB_REQ_SEND, .length = VB_MAX_MESSAGE_BYTES + 1 };
	assert_int_equal(vb_request_check(&r, VB_SERVICE_RC), -EINVAL);
	r.length--;
	assert_int_equal(vb_request_check(&r, VB_SERVICE_UC), 0);
	assert_int_equal(vb_request_packets(&r, 256), 1 << 23);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(psn_expand__nearest),
		cmocka_unit_test(packet_parse__refuses),
		cmocka_unit_test(packet_parse__every_opcode_and_length),
		cmocka_unit_test(packet_fits__by_place),
		cmocka_unit_test(pkey_matches__one_full_member),
		cmocka_unit_test(request_packet__segmentation),
		cmocka_unit_test(request_packet__headers),
		cmocka_unit_test(request_check__what_a_service_has),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

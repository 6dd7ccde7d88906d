/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>

#include "wire/cm_msg.h"
#include "wire/ip_cm.h"

static struct vb_mad rtu_mad(void)
{
	struct vb_mad mad;

	vb_cm_msg_init(&mad, VB_CM_ATTR_RTU, 0x1122334455667788);
	vb_cm_rtu_msg_set_local_comm_id(vb_cm_rtu_in(&mad), 1);
	vb_cm_rtu_msg_set_remote_comm_id(vb_cm_rtu_in(&mad), 2);
	return mad;
}

static void msg_parse__takes_a_good_message(void **state)
{
	struct vb_mad mad = rtu_mad();
	struct vb_cm_msg msg;

	(void)state;
	assert_memory_equal(mad.b, "\1\7\2\3\0\0\0\0\x11\x22\x33\x44\x55\x66\x77\x88\0\x14\0\0\0\0\0\0", 24);
	assert_int_equal(vb_cm_msg_parse(mad.b, sizeof(mad.b), &msg), 0);
	assert_int_equal(msg.attribute, VB_CM_ATTR_RTU);
	assert_memory_equal(&msg.mad, &mad, sizeof(mad));
}

static void msg_parse__refuses_lengths(void **state)
{
	struct vb_mad mad = rtu_mad();
	struct vb_cm_msg msg;

	(void)state;
	assert_int_equal(vb_cm_msg_parse(mad.b, 255, &msg), -EBADMSG);
	assert_int_equal(vb_cm_msg_parse(mad.b, 0, &msg), -EBADMSG);
	assert_int_equal(vb_cm_msg_parse(mad.b, 257, &msg), -EBADMSG);
}

static void msg_parse__refuses_foreign_headers(void **state)
{
	static const struct { unsigned at; uint8_t value; } wrong[] = {
		{ 0, 2 }, { 1, 3 }, { 2, 1 }, { 3, 1 }, { 3, 0x83 }, { 16, 1 }, { 17, 0x0f }, { 17, 0x1b },
	};
	struct vb_cm_msg msg, before;

	(void)state;
	memset(&msg, 0x5a, sizeof(msg));
	before = msg;
	for (unsigned i = 0; i < VB_ARRAY_LEN(wrong); i++) {
		struct vb_mad mad = rtu_mad();

		mad.b[wrong[i].at] = wrong[i].value;
		assert_int_equal(vb_cm_msg_parse(mad.b, sizeof(mad.b), &msg), -EBADMSG);
		assert_memory_equal(&msg, &before, sizeof(msg));
	}
}

static void msg_parse__refuses_missing_ids(void **state)
{
	struct vb_mad mad = rtu_mad();
	struct vb_cm_msg msg;

	(void)state;
	vb_cm_rtu_msg_set_local_comm_id(vb_cm_rtu_in(&mad), 0);
	assert_int_equal(vb_cm_msg_parse(mad.b, sizeof(mad.b), &msg), -EBADMSG);
	mad = rtu_mad();
	vb_cm_rtu_msg_set_remote_comm_id(vb_cm_rtu_in(&mad), 0);
	assert_int_equal(vb_cm_msg_parse(mad.b, sizeof(mad.b), &msg), -EBADMSG);
}

static void msg_parse__refuses_lengths_inside_beyond_their_field(void **state)
{
	struct vb_mad mad;
	struct vb_cm_msg msg;

	(void)state;
	vb_cm_msg_init(&mad, VB_CM_ATTR_REJ, 0);
	vb_cm_rej_msg_set_reject_info_length(vb_cm_rej_in(&mad), 72);
	assert_int_equal(vb_cm_msg_parse(mad.b, sizeof(mad.b), &msg), 0);
	vb_cm_rej_msg_set_reject_info_length(vb_cm_rej_in(&mad), 73);
	assert_int_equal(vb_cm_msg_parse(mad.b, sizeof(mad.b), &msg), -EBADMSG);
	vb_cm_msg_init(&mad, VB_CM_ATTR_SIDR_REP, 0);
	vb_cm_sidr_rep_msg_set_request_id(vb_cm_sidr_rep_in(&mad), 5);
	vb_cm_sidr_rep_msg_set_additional_info_length(vb_cm_sidr_rep_in(&mad), 73);
	assert_int_equal(vb_cm_msg_parse(mad.b, sizeof(mad.b), &msg), -EBADMSG);
}

static void names__of_values_and_of_none(void **state)
{
	(void)state;
	assert_string_equal(vb_cm_attribute_name(0x10), "REQ");
	assert_string_equal(vb_cm_attribute_name(0x1a), "APR");
	assert_string_equal(vb_cm_attribute_name(0x1b), "?");
	assert_string_equal(vb_cm_rej_reason_name(28), "consumer reject");
	assert_string_equal(vb_cm_rej_reason_name(34), "?");
	assert_string_equal(vb_cm_sidr_status_name(1), "service id not supported");
}

static void private_data__has_the_sizes_of_the_book(void **state)
{
	(void)state;
	assert_int_equal(vb_cm_req_msg_private_data_bytes, 92);
	assert_int_equal(vb_cm_mra_msg_private_data_bytes, 222);
	assert_int_equal(vb_cm_rej_msg_private_data_bytes, 148);
	assert_int_equal(vb_cm_rep_msg_private_data_bytes, 196);
	assert_int_equal(vb_cm_rtu_msg_private_data_bytes, 224);
	assert_int_equal(vb_cm_dreq_msg_private_data_bytes, 220);
	assert_int_equal(vb_cm_drep_msg_private_data_bytes, 224);
	assert_int_equal(vb_cm_sidr_req_msg_private_data_bytes, 216);
	assert_int_equal(vb_cm_sidr_rep_msg_private_data_bytes, 136);
}

static void service_id__carries_port_space_and_port(void **state)
{
	uint8_t space;
	uint16_t port;

	(void)state;
	assert_true(vb_ip_cm_service_id(0x06, 7174) == 0x0000000001061c06);
	assert_true(vb_ip_cm_service_id_parse(0x0000000001111c06, &space, &port));
	assert_int_equal(space, 0x11);
	assert_int_equal(port, 0x1c06);
	assert_false(vb_ip_cm_service_id_parse(0x0000000002061c06, &space, &port));
	assert_false(vb_ip_cm_service_id_parse(0x1000000001061c06, &space, &port));
}

/* Member by member: the struct has padding. */
static void assert_same_header(const struct vb_ip_cm *a, const struct vb_ip_cm *b)
{
	assert_int_equal(a->ip_version, b->ip_version);
	assert_int_equal(a->source_port, b->source_port);
	assert_memory_equal(a->source, b->source, sizeof(a->source));
	assert_memory_equal(a->destination, b->destination, sizeof(a->destination));
}

static void ip_cm__ipv4_takes_the_last_four_bytes(void **state)
{
	struct vb_ip_cm ip = { .ip_version = 4, .source_port = 0x1234, .source = { 10, 0, 0, 1 },
			       .destination = { 10, 0, 0, 2 } }, back;
	uint8_t bytes[36];

	(void)state;
	vb_ip_cm_encode(&ip, bytes);
	assert_memory_equal(
		bytes, "\0\x40\x12\x34\0\0\0\0\0\0\0\0\0\0\0\0\x0a\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\x0a\0\0\2",
		36);
	assert_int_equal(vb_ip_cm_decode(bytes, 36, &back), 0);
	assert_same_header(&back, &ip);
}

static void ip_cm__ipv6_round_trip(void **state)
{
	struct vb_ip_cm ip = { .ip_version = 6, .source_port = 65535 }, back;
	uint8_t bytes[36];

	(void)state;
	memcpy(ip.source, "0123456789abcdef", 16);
	memcpy(ip.destination, "fedcba9876543210", 16);
	vb_ip_cm_encode(&ip, bytes);
	assert_int_equal(bytes[1], 0x60);
	assert_int_equal(vb_ip_cm_decode(bytes, 92, &back), 0);
	assert_same_header(&back, &ip);
}

static void ip_cm__refuses_other_versions_and_short_data(void **state)
{
	uint8_t bytes[36] = { 0, 0x40 };
	struct vb_ip_cm ip;

	(void)state;
	assert_int_equal(vb_ip_cm_decode(bytes, 36, &ip), 0);
	assert_int_equal(vb_ip_cm_decode(bytes, 35, &ip), -EBADMSG);
	bytes[1] = 0x50;
	assert_int_equal(vb_ip_cm_decode(bytes, 36, &ip), -EBADMSG);
	bytes[1] = 0x40;
	bytes[0] = 0x10;
	assert_int_equal(vb_ip_cm_decode(bytes, 36, &ip), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(msg_parse__takes_a_good_message),
		cmocka_unit_test(msg_parse__refuses_lengths),
		cmocka_unit_test(msg_parse__refuses_foreign_headers),
		cmocka_unit_test(msg_parse__refuses_missing_ids),
		cmocka_unit_test(msg_parse__refuses_lengths_inside_beyond_their_field),
		cmocka_unit_test(names__of_values_and_of_none),
		cmocka_unit_test(private_data__has_the_sizes_of_the_book),
		cmocka_unit_test(service_id__carries_port_space_and_port),
		cmocka_unit_test(ip_cm__ipv4_takes_the_last_four_bytes),
		cmocka_unit_test(ip_cm__ipv6_round_trip),
		cmocka_unit_test(ip_cm__refuses_other_versions_and_short_data),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

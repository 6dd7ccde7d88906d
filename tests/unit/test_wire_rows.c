/* SPDX-License-Identifier: BSD-2-Clause */
/* Every row of every header and message: inside its header, no overlap, round trip, neighbours untouched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "wire/cm_msg.h"
#include "wire/headers.h"
#include "wire/ip_cm.h"
#include "wire/rsocket.h"
#include "wire/tag.h"

typedef void check_table(const struct vb_field_table *t);

VB_FIELD_TABLE(vb_tmh, 0, VB_TMH_ROWS);
VB_FIELD_TABLE(vb_rvh, 0, VB_RVH_ROWS);

static void each_table(check_table *check)
{
	const struct vb_field_table *const *tables;
	unsigned n = vb_header_field_tables(&tables);

	for (unsigned i = 0; i < n; i++)
		check(tables[i]);
	n = vb_cm_field_tables(&tables);
	for (unsigned i = 0; i < n; i++)
		check(tables[i]);
	check(vb_ip_cm_fields);
	for (unsigned i = 0; i < 4; i++)
		check(vb_rs_field_tables[i]);
	check(&vb_tmh_table);
	check(&vb_rvh_table);
}

static uint32_t lcg(uint32_t *state)
{
	return *state = *state * 1664525u + 1013904223u;
}

static void fill(uint8_t *p, size_t n, uint32_t seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(lcg(&seed) >> 24);
}

static void check_bounds(const struct vb_field_table *t)
{
	assert_true(t->num_rows > 0);
	for (unsigned i = 0; i < t->num_rows; i++) {
		const struct vb_field_row *r = &t->rows[i];

		assert_true(r->bit < 8 && r->width > 0);
		assert_true(r->byte * 8u + r->bit + r->width <= t->length * 8u);
		if (!r->is_bytes)
			assert_true(r->bit + r->width <= 64);
	}
}

static void rows__inside_their_header(void **state)
{
	(void)state;
	each_table(check_bounds);
}

static void check_overlap(const struct vb_field_table *t)
{
	uint8_t used[256 * 8] = { 0 };

	for (unsigned i = 0; i < t->num_rows; i++) {
		const struct vb_field_row *r = &t->rows[i];

		for (unsigned b = r->byte * 8u + r->bit; b < r->byte * 8u + r->bit + r->width; b++) {
			if (used[b])
				fail_msg("%s.%s overlaps at bit %u", t->name, r->name, b);
			used[b] = 1;
		}
	}
}

static void rows__do_not_overlap(void **state)
{
	(void)state;
	each_table(check_overlap);
}

static void set_row(const struct vb_field_row *r, uint8_t *p, const uint8_t *bytes, uint64_t number)
{
	if (r->is_bytes)
		vb_field_set_bytes(p + r->byte, r->width / 8, bytes, r->width / 8);
	else
		vb_field_set(p + r->byte, r->bit, r->width, number);
}

/* Bits of `now` that differ from `was` lie inside the row. */
static void assert_outside_untouched(const struct vb_field_table *t, const struct vb_field_row *r,
				     const uint8_t *was, const uint8_t *now)
{
	unsigned from = r->byte * 8u + r->bit;

	for (unsigned b = 0; b < t->length * 8u; b++)
		if ((b < from || b >= from + r->width) && (was[b / 8] ^ now[b / 8]) >> (7 - b % 8) & 1)
			fail_msg("%s.%s changes bit %u", t->name, r->name, b);
}

static void check_round_trip(const struct vb_field_table *t)
{
	uint8_t was[256], now[256], bytes[256];
	uint32_t seed = 7;

	for (unsigned i = 0; i < t->num_rows * 8u; i++) {
		const struct vb_field_row *r = &t->rows[i / 8];
		uint64_t number = (uint64_t)lcg(&seed) << 32 | lcg(&seed);
		uint64_t mask = r->width >= 64 ? UINT64_MAX : (UINT64_C(1) << r->width) - 1;

		fill(was, sizeof(was), i);
		fill(bytes, sizeof(bytes), i + 1000);
		memcpy(now, was, sizeof(now));
		set_row(r, now, bytes, number);
		assert_outside_untouched(t, r, was, now);
		if (r->is_bytes)
			assert_memory_equal(now + r->byte, bytes, r->width / 8);
		else
			assert_true(vb_field_get(now + r->byte, r->bit, r->width) == (number & mask));
	}
}

static void rows__round_trip_and_leave_neighbours(void **state)
{
	(void)state;
	each_table(check_round_trip);
}

static void bytes__short_source_is_followed_by_zeros(void **state)
{
	struct vb_mad mad;
	struct vb_cm_rtu_msg *m = vb_cm_rtu_in(&mad);
	static const uint8_t zeros[224 - 3];

	(void)state;
	memset(&mad, 0xff, sizeof(mad));
	vb_cm_rtu_msg_set_private_data(m, "abc", 3);
	assert_memory_equal(vb_cm_rtu_msg_private_data(m), "abc", 3);
	assert_memory_equal(vb_cm_rtu_msg_private_data(m) + 3, zeros, sizeof(zeros));
	assert_int_equal(vb_cm_rtu_msg_remote_comm_id(m), 0xffffffff);
}

static void bytes__long_source_is_cut(void **state)
{
	struct vb_immdt imm;

	(void)state;
	vb_immdt_set_data(&imm, "abcdef", 6);
	assert_memory_equal(imm.b, "abcd", 4);
}

/* Places that the specification gives, against the accessors. */
static void accessors__use_the_places_of_the_book(void **state)
{
	struct vb_bth bth = { { 0x64, 0xf0, 0x12, 0x34, 0xc0, 0xab, 0xcd, 0xef, 0x80, 0x01, 0x02, 0x03 } };
	struct vb_mad mad = { { 0 } };
	struct vb_cm_req_msg *req = vb_cm_req_in(&mad);
	const uint8_t *body = mad.b + 24;

	(void)state;
	assert_int_equal(vb_bth_opcode(&bth), 0x64);
	assert_int_equal(vb_bth_solicited(&bth), 1);
	assert_int_equal(vb_bth_mig_req(&bth), 1);
	assert_int_equal(vb_bth_pad_count(&bth), 3);
	assert_int_equal(vb_bth_transport_version(&bth), 0);
	assert_int_equal(vb_bth_pkey(&bth), 0x1234);
	assert_int_equal(vb_bth_fecn(&bth), 1);
	assert_int_equal(vb_bth_becn(&bth), 1);
	assert_int_equal(vb_bth_destination_qpn(&bth), 0xabcdef);
	assert_int_equal(vb_bth_ack_request(&bth), 1);
	assert_int_equal(vb_bth_psn(&bth), 0x010203);

	vb_cm_req_msg_set_local_qpn(req, 0x123456);
	vb_cm_req_msg_set_responder_resources(req, 0x78);
	vb_cm_req_msg_set_remote_cm_response_timeout(req, 20);
	vb_cm_req_msg_set_transport_service_type(req, 3);
	vb_cm_req_msg_set_path_mtu(req, 5);
	vb_cm_req_msg_set_rnr_retry_count(req, 7);
	vb_cm_req_msg_set_private_data(req, "x", 1);
	assert_memory_equal(body + 32, "\x12\x34\x56\x78", 4);
	assert_int_equal(body[43], 20 << 3 | 3 << 1);
	assert_int_equal(body[50], 5 << 4 | 7);
	assert_int_equal(body[140], 'x');
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows__inside_their_header),
		cmocka_unit_test(rows__do_not_overlap),
		cmocka_unit_test(rows__round_trip_and_leave_neighbours),
		cmocka_unit_test(bytes__short_source_is_followed_by_zeros),
		cmocka_unit_test(bytes__long_source_is_cut),
		cmocka_unit_test(accessors__use_the_places_of_the_book),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

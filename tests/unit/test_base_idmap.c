/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>

#include "base/idmap.h"

static void fill(struct vb_idmap *m, uint32_t count)
{
	uint32_t id;
	assert_int_equal(vb_idmap_init(m, count), 0);
	for (uint32_t i = 0; i < count; i++) {
		assert_int_equal(vb_idmap_take_lowest(m, &id), 0);
		assert_int_equal(id, i);
	}
}

static void idmap_take_lowest__fills_up_and_reuses_the_lowest(void **state)
{
	static const uint32_t counts[] = { 1, 63, 64, 65, 200 };
	struct vb_idmap m;
	uint32_t id;

	for (size_t i = 0; i < VB_ARRAY_LEN(counts); i++) {
		fill(&m, counts[i]);
		assert_int_equal(vb_idmap_take_lowest(&m, &id), -ENOSPC);
		assert_int_equal(vb_idmap_take_rotating(&m, &id), -ENOSPC);
		vb_idmap_put(&m, counts[i] / 2);
		assert_int_equal(vb_idmap_take_lowest(&m, &id), 0);
		assert_int_equal(id, counts[i] / 2);
		vb_idmap_destroy(&m);
	}
}

static void idmap_take_rotating__reuses_as_late_as_possible(void **state)
{
	enum { COUNT = 130 };
	struct vb_idmap m;
	uint32_t id;

	assert_int_equal(vb_idmap_init(&m, COUNT), 0);
	for (uint32_t i = 0; i < 3 * COUNT; i++) {
		assert_int_equal(vb_idmap_take_rotating(&m, &id), 0);
		assert_int_equal(id, i % COUNT);
		vb_idmap_put(&m, id);
	}
	vb_idmap_destroy(&m);
}

static void idmap_take_rotating__finds_the_only_free_id(void **state)
{
	struct vb_idmap m;
	uint32_t id;

	fill(&m, 200);
	for (uint32_t only = 0; only < 200; only += 7) {
		vb_idmap_put(&m, only);
		assert_int_equal(vb_idmap_take_rotating(&m, &id), 0);
		assert_int_equal(id, only);
	}
	vb_idmap_destroy(&m);
}

static void idmap_take__refuses_taken_and_foreign_ids(void **state)
{
	struct vb_idmap m;
	uint32_t id;

	assert_int_equal(vb_idmap_init(&m, 10), 0);
	assert_int_equal(vb_idmap_take(&m, 0), 0);
	assert_int_equal(vb_idmap_take(&m, 0), -EBUSY);
	assert_int_equal(vb_idmap_take(&m, 10), -EINVAL);
	assert_true(vb_idmap_is_taken(&m, 0));
	assert_false(vb_idmap_is_taken(&m, 1));
	assert_false(vb_idmap_is_taken(&m, 10));
	assert_int_equal(vb_idmap_take_lowest(&m, &id), 0);
	assert_int_equal(id, 1);
	assert_int_equal(m.taken, 2);
	vb_idmap_destroy(&m);
	assert_int_equal(vb_idmap_init(&m, 0), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(idmap_take_lowest__fills_up_and_reuses_the_lowest),
		cmocka_unit_test(idmap_take_rotating__reuses_as_late_as_possible),
		cmocka_unit_test(idmap_take_rotating__finds_the_only_free_id),
		cmocka_unit_test(idmap_take__refuses_taken_and_foreign_ids),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

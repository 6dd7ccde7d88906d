/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>

#include "base/list.h"
#include "base/lock.h"

struct item {
	int value;
	struct vb_list all;
};

static void fill(struct vb_list *head, struct item *items, int n)
{
	for (int i = 0; i < n; i++) {
		items[i].value = i;
		vb_list_add_tail(head, &items[i].all);
	}
}

static void list_for_each__allows_removal_nesting_and_break(void **state)
{
	struct vb_list head = VB_LIST_INIT(head);
	struct item items[4], *outer, *inner;
	int pairs = 0, last = -1;

	fill(&head, items, 4);
	vb_list_for_each(outer, &head, all) {
		vb_list_for_each(inner, &head, all)
			pairs++;
		if (outer->value % 2)
			vb_list_del(&outer->all);
	}
	assert_int_equal(pairs, 4 + 4 + 3 + 3);
	vb_list_for_each(outer, &head, all) {
		last = outer->value;
		if (last == 0)
			continue;
		break;
	}
	assert_int_equal(last, 2);
	assert_ptr_equal(outer, &items[2]);
}

static void list_pop__is_first_in_first_out(void **state)
{
	struct vb_list head = VB_LIST_INIT(head);
	struct item items[3];

	fill(&head, items, 3);
	for (int i = 0; i < 3; i++)
		assert_ptr_equal(vb_list_pop(&head), &items[i].all);
	assert_null(vb_list_pop(&head));
	assert_true(vb_list_is_empty(&head));
}

static struct vb_lock counter_lock = VB_LOCK_INIT;
static long counter;

static void *count(void *unused)
{
	for (int i = 0; i < 100000; i++) {
		vb_lock(&counter_lock);
		counter++;
		vb_unlock(&counter_lock);
	}
	return NULL;
}

static void lock__excludes(void **state)
{
	pthread_t threads[3];
	for (size_t i = 0; i < VB_ARRAY_LEN(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, count, NULL), 0);
	for (size_t i = 0; i < VB_ARRAY_LEN(threads); i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(counter, 300000);
	vb_lock(&counter_lock);
	assert_false(vb_lock_try(&counter_lock));
	vb_unlock(&counter_lock);
}

static void pow2_at_least__rounds_up(void **state)
{
	static const uint32_t pairs[][2] = {
		{ 0, 1 }, { 1, 1 }, { 2, 2 }, { 3, 4 }, { 4, 4 }, { 5, 8 }, { 1u << 31, 1u << 31 }
	};
	for (size_t i = 0; i < VB_ARRAY_LEN(pairs); i++)
		assert_int_equal(vb_pow2_at_least(pairs[i][0]), pairs[i][1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(list_for_each__allows_removal_nesting_and_break),
		cmocka_unit_test(list_pop__is_first_in_first_out),
		cmocka_unit_test(lock__excludes),
		cmocka_unit_test(pow2_at_least__rounds_up),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

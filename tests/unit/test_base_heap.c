/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "base/heap.h"

static uint64_t pop(struct vb_heap *h)
{
	struct vb_heap_node *n = vb_heap_first(h);
	assert_non_null(n);
	uint64_t key = n->key;
	vb_heap_remove(h, n);
	assert_false(vb_heap_contains(h, n));
	return key;
}

static void heap__gives_keys_in_order(void **state)
{
	struct vb_heap h = VB_HEAP_INIT;
	struct vb_heap_node nodes[500] = { 0 };
	unsigned seed = 7;
	uint64_t last = 0;

	for (size_t i = 0; i < VB_ARRAY_LEN(nodes); i++)
		vb_heap_insert(&h, &nodes[i], (uint64_t)rand_r(&seed) % 1000);
	for (size_t i = 0; i < VB_ARRAY_LEN(nodes); i++) {
		uint64_t key = pop(&h);
		assert_true(key >= last);
		last = key;
	}
	assert_null(vb_heap_first(&h));
}

/* Random insertions and removals from anywhere, compared with a plain search. */
static void heap__agrees_with_a_search(void **state)
{
	enum { N = 64, STEPS = 20000 };
	struct vb_heap h = VB_HEAP_INIT;
	struct vb_heap_node nodes[N] = { 0 };
	unsigned seed = 11;

	for (int step = 0; step < STEPS; step++) {
		struct vb_heap_node *n = &nodes[rand_r(&seed) % N];
		if (vb_heap_contains(&h, n))
			vb_heap_remove(&h, n);
		else
			vb_heap_insert(&h, n, (uint64_t)rand_r(&seed) % 100);

		uint64_t least = UINT64_MAX;
		for (int i = 0; i < N; i++)
			if (vb_heap_contains(&h, &nodes[i]))
				least = vb_min_u64(least, nodes[i].key);
		assert_int_equal(vb_heap_first(&h) ? vb_heap_first(&h)->key : UINT64_MAX, least);
	}
}

static void heap_remove__of_a_node_not_queued_does_nothing(void **state)
{
	struct vb_heap h = VB_HEAP_INIT;
	struct vb_heap_node queued = { 0 }, zeroed = { 0 };

	vb_heap_insert(&h, &queued, 1);
	vb_heap_remove(&h, &zeroed);
	assert_ptr_equal(vb_heap_first(&h), &queued);
	vb_heap_remove(&h, &queued);
	vb_heap_remove(&h, &queued);
	assert_null(vb_heap_first(&h));
}

static void heap_forget__unqueues_all_nodes(void **state)
{
	struct vb_heap h = VB_HEAP_INIT;
	struct vb_heap_node old[3] = { 0 }, fresh = { 0 };

	for (size_t i = 0; i < VB_ARRAY_LEN(old); i++)
		vb_heap_insert(&h, &old[i], i);
	vb_heap_forget(&h);
	assert_null(vb_heap_first(&h));
	vb_heap_insert(&h, &fresh, 9);
	for (size_t i = 0; i < VB_ARRAY_LEN(old); i++) {
		assert_false(vb_heap_contains(&h, &old[i]));
		vb_heap_remove(&h, &old[i]);
	}
	vb_heap_insert(&h, &old[1], 5);
	assert_int_equal(pop(&h), 5);
	assert_int_equal(pop(&h), 9);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(heap__gives_keys_in_order),
		cmocka_unit_test(heap__agrees_with_a_search),
		cmocka_unit_test(heap_remove__of_a_node_not_queued_does_nothing),
		cmocka_unit_test(heap_forget__unqueues_all_nodes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

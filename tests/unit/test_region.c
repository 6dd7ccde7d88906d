/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory regions: what their keys' entries say that peers read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "adapter/memory/key.h"
#include "adapter/object.h"

enum { BYTES = 4096, ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE };

static uint8_t elsewhere[BYTES];
static struct vb_pd pd = { .number = 1 }, other = { .number = 2 };

/* May a peer have the pages moved to where it can map them? */
static bool may_move(const struct vb_mr *mr)
{
	return atomic_load(&vb_key_entry(mr->key)->segment) != VB_KEY_NO_SEGMENT;
}

static struct vb_mr registered(void *addr)
{
	struct vb_mr mr;
	assert_int_equal(vb_mr_init(&mr, &pd, addr, BYTES, (uintptr_t)addr, ACCESS), 0);
	return mr;
}

static void change_domain(struct vb_mr *mr)
{
	assert_int_equal(vb_mr_change(mr, IBV_REREG_MR_CHANGE_PD, &other, NULL, 0, 0), 0);
}

static void change_place(struct vb_mr *mr, void *addr)
{
	assert_int_equal(vb_mr_change(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, addr, BYTES, 0), 0);
}

/* Failures are the main thread's. */
struct found {
	bool registered, in_another_domain, moved_away, moved_back;
};

static void *on_a_stack(void *arg)
{
	struct found *f = arg;
	uint8_t here[BYTES];
	struct vb_mr mr = registered(here);
	f->registered = may_move(&mr);
	change_domain(&mr);
	f->in_another_domain = may_move(&mr);
	change_place(&mr, elsewhere);
	f->moved_away = may_move(&mr);
	change_place(&mr, here);
	f->moved_back = may_move(&mr);
	assert_int_equal(vb_mr_fini(&mr), 0);
	return NULL;
}

/* The kernel wakes threads by words there. */
static void pages__of_a_stack_stay(void **state)
{
	struct found f;
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, on_a_stack, &f), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_false(f.registered);
	assert_false(f.in_another_domain);
	assert_true(f.moved_away);
	assert_false(f.moved_back);
}

static void pages__of_others_may_move(void **state)
{
	struct vb_mr mr = registered(elsewhere);
	assert_true(may_move(&mr));
	change_domain(&mr);
	assert_true(may_move(&mr));
	assert_int_equal(vb_mr_fini(&mr), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pages__of_a_stack_stay),
		cmocka_unit_test(pages__of_others_may_move),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

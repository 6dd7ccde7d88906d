/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that brings the libraries with a module and closes it, as DAPL's registry does: their progress
 * thread goes on.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <infiniband/verbs.h>

static const char *paths[2];

static void open_a_device(void *library)
{
	struct ibv_device **(*get_list)(int *) =
		(struct ibv_device * *(*)(int *)) dlsym(library, "ibv_get_device_list");
	struct ibv_context *(*open)(struct ibv_device *) =
		(struct ibv_context * (*)(struct ibv_device *)) dlsym(library, "ibv_open_device");
	int (*close)(struct ibv_context *) =
		(int (*)(struct ibv_context *))dlsym(library, "ibv_close_device");
	int count;
	struct ibv_device **list = get_list(&count);
	assert_non_null(list);
	assert_true(count > 0);
	struct ibv_context *ctx = open(list[0]);
	assert_non_null(ctx);
	assert_int_equal(close(ctx), 0);
}

static void dlclose__leaves_it_loaded(void **state)
{
	for (int i = 0; i < 2; i++) {
		void *library = dlopen(paths[i], RTLD_NOW);
		assert_non_null(library);
		if (i == 0)
			open_a_device(library);
		assert_int_equal(dlclose(library), 0);
		library = dlopen(paths[i], RTLD_NOW | RTLD_NOLOAD);
		assert_non_null(library);
		if (i == 0)
			open_a_device(library);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(dlclose__leaves_it_loaded) };
	if (argc != 3)
		return 99;
	paths[0] = argv[1];
	paths[1] = argv[2];
	return cmocka_run_group_tests(tests, NULL, NULL);
}

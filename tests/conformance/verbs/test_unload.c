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

typedef struct ibv_device **get_list_fn(int *count);
typedef void free_list_fn(struct ibv_device **list);
typedef struct ibv_context *open_fn(struct ibv_device *device);
typedef int close_fn(struct ibv_context *ctx);

static void open_a_device(void *library)
{
	get_list_fn *get_list = (get_list_fn *)dlsym(library, "ibv_get_device_list");
	free_list_fn *free_list = (free_list_fn *)dlsym(library, "ibv_free_device_list");
	open_fn *open = (open_fn *)dlsym(library, "ibv_open_device");
	close_fn *close = (close_fn *)dlsym(library, "ibv_close_device");
	int count;
	struct ibv_device **list = get_list(&count);
	assert_non_null(list);
	assert_true(count > 0);
	struct ibv_context *ctx = open(list[0]);
	assert_non_null(ctx);
	assert_int_equal(close(ctx), 0);
	free_list(list);
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

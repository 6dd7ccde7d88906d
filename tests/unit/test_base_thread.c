/* SPDX-License-Identifier: BSD-2-Clause */
#include <malloc.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/thread.h"

/* Of the C library: it gives threads that allocate at the same time one each. */
static unsigned heaps(void)
{
	char *text = NULL;
	size_t bytes;
	unsigned n = 0;
	FILE *file = open_memstream(&text, &bytes);
	assert_non_null(file);
	assert_int_equal(malloc_info(0, file), 0);
	fclose(file);
	for (const char *at = text; (at = strstr(at, "<heap nr=")); at++)
		n++;
	free(text);
	return n;
}

static sem_t may_allocate, has_allocated, may_end;

static void *allocate(void *arg)
{
	void *volatile memory;
	sem_wait(&may_allocate);
	memory = malloc(64);
	free(memory);
	sem_post(&has_allocated);
	sem_wait(&may_end);
	return arg;
}

static void thread__has_its_memory_once_it_is_started(void **state)
{
	pthread_t thread;
	void *result;
	sem_init(&may_allocate, 0, 0);
	sem_init(&has_allocated, 0, 0);
	sem_init(&may_end, 0, 0);
	assert_int_equal(vb_thread_start(&thread, allocate, &thread), 0);
	unsigned before = heaps();
	sem_post(&may_allocate);
	sem_wait(&has_allocated);
	assert_int_equal(heaps(), before);
	sem_post(&may_end);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_ptr_equal(result, &thread);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(thread__has_its_memory_once_it_is_started),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

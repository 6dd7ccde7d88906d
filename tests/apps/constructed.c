/* SPDX-License-Identifier: BSD-2-Clause */
/* A library with a constructor, which runs with the loader's lock: it calls back (sysfs_calls.c). */
#include <dlfcn.h>
#include <stdint.h>

__attribute__((constructor)) static void construct(void)
{
	void (*call)(void) = (void (*)(void))(uintptr_t)dlsym(RTLD_DEFAULT, "in_constructor");

	if (call)
		call();
}

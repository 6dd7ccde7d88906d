/* SPDX-License-Identifier: BSD-2-Clause */
/* For tests that need a process of their own, as the system starts one. */
#ifndef VB_TEST_AGAIN_H
#define VB_TEST_AGAIN_H

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

/*
 * This program once more in place of this process, with one argument. Where Meson starts tests with an
 * emulator, the kernel cannot start them without it. Returns only if it fails.
 */
static inline void run_again(const char *argument)
{
	char self[PATH_MAX] = "";
	const char *emulator = getenv("MESON_EXE_WRAPPER");
	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return;
	if (emulator)
		execl(emulator, emulator, self, argument, (char *)NULL);
	else
		execl(self, self, argument, (char *)NULL);
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * LD_PRELOAD: a program that ends says "held" on standard error and waits for a line on standard input. So
 * there is a moment at which all that it does is done, and it can be looked at.
 */
#include <unistd.h>

__attribute__((destructor)) static void hold(void)
{
	char c;

	if (write(STDERR_FILENO, "held\n", 5) == 5)
		while (read(STDIN_FILENO, &c, 1) == 1 && c != '\n')
			;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs a program, and then prints its peak of resident memory, shared pages included. Nothing else is in this
 * program, because a child process starts with its parent's peak. usage: peak PROGRAM [ARGUMENT...]
 */
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

extern char **environ;

int main(int argc, char **argv)
{
	struct rusage used;
	pid_t child;
	int status, err = argc > 1 ? posix_spawnp(&child, argv[1], NULL, NULL, argv + 1, environ) : EINVAL;

	if (err) {
		fprintf(stderr, "peak: %s\n", strerror(err));
		return 1;
	}
	while (wait4(child, &status, 0, &used) < 0)
		if (errno != EINTR)
			return 1;
	printf("peak_bytes %lld\n", (long long)used.ru_maxrss << 10);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* verbatim man: the pages of this library, which man(1) finds only behind rdma-core's of the same names. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "command.h"

enum { WORDS = 32 };

int command_man(int argc, char **argv)
{
	const char *words[WORDS + 5] = { "man", "-M" };
	char folder[PATH_MAX];
	int count = 3;

	/* All other options are man(1)'s. */
	if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
		print_help(argv[0]);
		return 0;
	}
	if (argc > WORDS)
		return complain("man takes %d words at most", WORDS - 1);
	if (!find_pages(folder))
		return EXIT_OURS;
	words[2] = folder;
	if (argc < 2) {
		words[count++] = "7";
		words[count++] = "verbatim";
	}
	for (int i = 1; i < argc; i++)
		words[count++] = argv[i];
	give_signals_back();
	execvp(words[0], (char **)words);
	int error = errno;
	complain("man: %s; the pages are in %s", strerror(error), folder);
	return error == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_EXEC;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The libraries are found from the place of this executable (lib/ beside it in a build tree, ../lib/verbatim when installed), never from
 * a path fixed at build time, so that a copied or relocated tree keeps working.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "command.h"

/* The folder of this executable, without a trailing slash; false where neither /proc nor the exec name helps. */
static bool own_folder(char folder[PATH_MAX])
{
	const char *name = (const char *)getauxval(AT_EXECFN);
	ssize_t len = readlink("/proc/self/exe", folder, PATH_MAX - 1);

	if (len > 0)
		folder[len] = '\0';
	else if (!name || !realpath(name, folder))
		return false;
	*strrchr(folder, '/') = '\0';
	return true;
}

bool find_libraries(char libdir[PATH_MAX])
{
	static const char *const places[] = { "lib", "../" VB_LIBDIR "/verbatim" };
	char folder[PATH_MAX];
	char path[PATH_MAX + 64];

	if (!own_folder(folder)) {
		complain("cannot tell where this command is installed");
		return false;
	}
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s/libibverbs.so.1", folder, places[i]);
		if (access(path, R_OK) != 0)
			continue;
		*strrchr(path, '/') = '\0';
		if (realpath(path, libdir))
			return true;
	}
	complain("no libibverbs.so.1 in %s/lib or %s/../lib/verbatim", folder, folder);
	return false;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The libraries and the man pages are found from the place of this executable (lib/ and man/ beside
 * it in a build tree, ../lib/verbatim and ../share/verbatim/man when installed), never from a path
 * fixed at build time, so that a copied or relocated tree keeps working.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "command.h"

bool find_command_folder(char folder[PATH_MAX])
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

/*
 * Finds the folder that holds a file, in two places relative to this executable. If neither has it, says so
 * and returns false.
 */
static bool find(const char *const places[2], const char *file, char found[PATH_MAX])
{
	char folder[PATH_MAX], path[2 * PATH_MAX];

	if (!find_command_folder(folder)) {
		complain("cannot tell where this command is installed");
		return false;
	}
	for (size_t i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%s/%s", folder, places[i], file);
		if (access(path, R_OK) != 0)
			continue;
		*strrchr(path, '/') = '\0';
		if (realpath(path, found))
			return true;
	}
	complain("no %s in %s/%s or %s/%s", file, folder, places[0], folder, places[1]);
	return false;
}

bool find_libraries(char libdir[PATH_MAX])
{
	static const char *const places[] = { "lib", "../" VB_LIBDIR "/verbatim" };

	return find(places, "libibverbs.so.1", libdir);
}

bool find_pages(char folder[PATH_MAX])
{
	static const char *const places[] = { "man/man3", "../share/verbatim/man/man3" };

	if (!find(places, "ibv_post_send.3", folder))
		return false;
	*strrchr(folder, '/') = '\0';
	return true;
}

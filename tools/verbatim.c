/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The `verbatim` command. Each sub-command is a row of `commands`.
 *
 * The libraries are found from the place of this executable (lib/ beside it in a build tree, ../lib/verbatim when
 * installed), never from a path fixed at build time, so that a copied or relocated tree keeps working.
 *
 * Exit statuses of `run` follow env(1): 125 when verbatim itself fails, 126 when the program was found and cannot be
 * executed, 127 when it was not found; otherwise the process becomes the program.
 */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

enum {
	EXIT_OURS = 125,
	EXIT_CANNOT_EXEC = 126,
	EXIT_NOT_FOUND = 127,
};

struct command {
	const char *name;
	const char *args;
	const char *summary;
	int (*run)(int argc, char **argv); /* argv[0] is the sub-command's name */
};

static int run_program(int argc, char **argv);

static const struct command commands[] = {
	{ "run", "[--] PROGRAM [ARG]...", "run an RDMA program on verbatim's libraries", run_program },
};

static const size_t command_count = sizeof(commands) / sizeof(commands[0]);

static void print_usage(FILE *out)
{
	fprintf(out, "usage: verbatim COMMAND [ARG]...\n\n");
	for (size_t i = 0; i < command_count; i++)
		fprintf(out, "  %s %s\n      %s\n", commands[i].name, commands[i].args, commands[i].summary);
	fprintf(out, "  --version\n  --help\n");
}

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

/* The folder that holds libibverbs.so.1, canonical; false with a message when there is none. */
static bool find_libraries(char libdir[PATH_MAX])
{
	static const char *const places[] = { "lib", "../lib/verbatim" };
	char folder[PATH_MAX];
	char path[PATH_MAX + 64];

	if (!own_folder(folder)) {
		fprintf(stderr, "verbatim: cannot tell where this command is installed\n");
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
	fprintf(stderr, "verbatim: no libibverbs.so.1 in %s/lib or %s/../lib/verbatim\n", folder, folder);
	return false;
}

/* Puts libdir before whatever LD_LIBRARY_PATH holds. */
static bool prepend_library_path(const char *libdir)
{
	const char *old = getenv("LD_LIBRARY_PATH");
	char *value;
	bool done;

	if (strpbrk(libdir, ":;")) {
		fprintf(stderr, "verbatim: the path %s holds a ':' or ';' and cannot be searched for libraries\n", libdir);
		return false;
	}
	if (asprintf(&value, "%s%s%s", libdir, old && *old ? ":" : "", old ? old : "") < 0) {
		fprintf(stderr, "verbatim: out of memory\n");
		return false;
	}
	done = setenv("LD_LIBRARY_PATH", value, 1) == 0;
	free(value);
	if (!done)
		fprintf(stderr, "verbatim: out of memory\n");
	return done;
}

/* True if executing the file raises privileges, so that the dynamic loader will ignore LD_LIBRARY_PATH. */
static bool raises_privileges(const char *path)
{
	struct stat st;

	if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
		return false;
	if ((st.st_mode & S_ISUID) && st.st_uid != geteuid())
		return true;
	if ((st.st_mode & S_ISGID) && st.st_gid != getegid())
		return true;
	return geteuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0;
}

/* Finds the file that execvp will take; false when there is none. */
static bool search_path(const char *program, char path[PATH_MAX])
{
	const char *dir = getenv("PATH");
	int len;

	if (strchr(program, '/'))
		return snprintf(path, PATH_MAX, "%s", program) < PATH_MAX;
	for (; dir && *dir; dir += len, dir += *dir == ':') {
		len = (int)strcspn(dir, ":");
		if (snprintf(path, PATH_MAX, "%.*s/%s", len ? len : 1, len ? dir : ".", program) >= PATH_MAX)
			continue;
		if (access(path, X_OK) == 0)
			return true;
	}
	return false;
}

static void warn_if_libraries_ignored(const char *program)
{
	const char *debug = getenv("VERBATIM_DEBUG");
	char path[PATH_MAX];

	if (!debug || strcmp(debug, "0") == 0 || *debug == '\0')
		return;
	if (search_path(program, path) && raises_privileges(path))
		fprintf(stderr, "verbatim: %s raises privileges (set-ID bit or file capabilities): the loader ignores "
			"LD_LIBRARY_PATH, so it will not run on verbatim\n", path);
}

static int exec_failed(const char *program, int error)
{
	fprintf(stderr, "verbatim: '%s': %s\n", program, strerror(error));
	return error == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_EXEC;
}

static int run_program(int argc, char **argv)
{
	char libdir[PATH_MAX];
	int first = 1;

	if (first < argc && strcmp(argv[first], "--") == 0) {
		first++;
	} else if (first < argc && argv[first][0] == '-') {
		fprintf(stderr, "verbatim: run has no option '%s'\n", argv[first]);
		return EXIT_OURS;
	}
	if (first == argc) {
		fprintf(stderr, "verbatim: run needs a program\n");
		return EXIT_OURS;
	}
	if (!find_libraries(libdir) || !prepend_library_path(libdir))
		return EXIT_OURS;
	warn_if_libraries_ignored(argv[first]);
	execvp(argv[first], argv + first);
	return exec_failed(argv[first], errno);
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : NULL;

	if (!name) {
		print_usage(stderr);
		return EXIT_OURS;
	}
	if (strcmp(name, "--help") == 0 || strcmp(name, "help") == 0) {
		print_usage(stdout);
		return 0;
	}
	if (strcmp(name, "--version") == 0) {
		printf("verbatim %s\n", VB_VERSION);
		return 0;
	}
	for (size_t i = 0; i < command_count; i++)
		if (strcmp(name, commands[i].name) == 0)
			return commands[i].run(argc - 1, argv + 1);
	fprintf(stderr, "verbatim: no command '%s' (see verbatim --help)\n", name);
	return EXIT_OURS;
}

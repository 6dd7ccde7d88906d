/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbatim run. Exit statuses follow env(1): 125 when verbatim itself fails, 126 when the program was found
 * and cannot be executed, 127 when it was not found; otherwise the process becomes the program.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "command.h"
#include "faults.h"
#include "recorder.h"

/* Puts libdir, or a file in it, or a word, before whatever the variable holds. */
static bool prepend(const char *variable, const char *libdir, const char *file)
{
	const char *old = getenv(variable);
	char *value;
	bool done;

	if (asprintf(&value, "%s%s%s%s", libdir, file, old && *old ? ":" : "", old ? old : "") < 0) {
		complain("out of memory");
		return false;
	}
	done = setenv(variable, value, 1) == 0;
	free(value);
	if (!done)
		complain("out of memory");
	return done;
}

static bool prepend_library_path(const char *libdir)
{
	if (strpbrk(libdir, ":;")) {
		complain("the path %s holds a ':' or ';' and cannot be searched for libraries", libdir);
		return false;
	}
	return prepend("LD_LIBRARY_PATH", libdir, "");
}

/* Spaces separate the names in LD_PRELOAD, too. */
static bool prepend_preload(const char *libdir)
{
	if (!strchr(libdir, ' '))
		return prepend("LD_PRELOAD", libdir, "/libverbatim-sockets.so");
	complain("the path %s holds a space and cannot be preloaded from", libdir);
	return false;
}

static bool is_debugging(void)
{
	const char *debug = getenv("VERBATIM_DEBUG");

	return debug && *debug && strcmp(debug, "0") != 0;
}

static bool is_sysfs_off(void)
{
	const char *setting = getenv("VERBATIM_SYSFS");

	return setting && strcmp(setting, "off") == 0;
}

/*
 * The answers about files that devices would have (src/answers): in every program, where they can be
 * preloaded. AddressSanitizer's runtime wants to be the first of a program's libraries, where it has no
 * reason to: that check is left out, unless the user has something to say about it.
 */
static bool prepend_answers(const char *libdir)
{
	const char *asan = getenv("ASAN_OPTIONS");
	char path[PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s/libverbatim-answers.so", libdir);
	if (is_sysfs_off() || access(path, R_OK) != 0)
		return true;
	if (strchr(path, ' ')) { /* separates names in LD_PRELOAD */
		if (is_debugging())
			complain("the path %s holds a space: "
				 "the devices will not be seen in /sys/class/infiniband", libdir);
		return true;
	}
	return prepend("LD_PRELOAD", libdir, "/libverbatim-answers.so") &&
	       ((asan && strstr(asan, "verify_asan_link_order")) ||
		prepend("ASAN_OPTIONS", "verify_asan_link_order=0", ""));
}

bool raises_privileges(const char *path)
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

bool is_executable(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

bool search_path(const char *program, char path[PATH_MAX])
{
	const char *dir = getenv("PATH");
	int len;

	if (strchr(program, '/'))
		return snprintf(path, PATH_MAX, "%s", program) < PATH_MAX;
	if (!dir)
		dir = "/bin:/usr/bin"; /* as execvp has it */
	for (; dir && *dir; dir += len, dir += *dir == ':') {
		len = (int)strcspn(dir, ":");
		if (snprintf(path, PATH_MAX, "%.*s/%s", len ? len : 1, len ? dir : ".", program) >= PATH_MAX)
			continue;
		if (is_executable(path))
			return true;
	}
	return false;
}

static void warn_if_libraries_ignored(const char *program)
{
	char path[PATH_MAX];

	if (is_debugging() && search_path(program, path) && raises_privileges(path))
		complain("%s raises privileges (set-ID bit or file capabilities): the loader ignores "
			"LD_LIBRARY_PATH, so it will not run on verbatim", path);
}

static int exec_failed(const char *program, int error)
{
	complain("'%s': %s", program, strerror(error));
	return error == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_EXEC;
}

/* ---- options: each is a variable of the libraries' (verbatim(7)) ---- */

static const struct {
	const char *name, *variable;
	const char *value; /* unless the option has one */
} flags[] = {
	{ "debug", "VERBATIM_DEBUG", "1" },
	{ "check", "VERBATIM_CHECK", "1" },
	{ "wire", "VERBATIM_LOCAL", "off" },
	{ "infiniband", "VERBATIM_LINK", "infiniband" },
	{ "no-gso", "VERBATIM_GSO", "off" },
	{ "ignore-icrc", "VERBATIM_ICRC", "ignore" },
	{ "no-sysfs", "VERBATIM_SYSFS", "off" },
};

/* Is value one of the words between bars? */
static bool is_among(const char *value, const char *values)
{
	size_t len = strlen(value);

	for (const char *word = values; len && *word; word += strcspn(word, "|"), word += *word == '|')
		if (strcspn(word, "|") == len && strncmp(word, value, len) == 0)
			return true;
	return false;
}

static bool wants_sockets; /* --sockets */
static struct captured_run captured;

static bool set_variable(const char *variable, const char *value)
{
	if (setenv(variable, value, 1) == 0)
		return true;
	complain("out of memory");
	return false;
}

/*
 * What cannot be read is said here instead of by each library of each process. Of a file it is what the file
 * holds now: a pipe can be read once, and programs change their folder.
 */
static bool take_faults(const char *expression)
{
	struct vb_fault_plan plan;
	char *text;
	bool good;

	if (!check_faults(expression, &plan, &text))
		return false;
	good = set_variable("VERBATIM_FAULTS", text);
	free(text);
	return good;
}

static bool take_copy(const char *value)
{
	static const char ways[] = "mapped|process_vm|link";

	if (is_among(value, ways))
		return set_variable("VERBATIM_COPY", value);
	complain("--copy takes one of %s", ways);
	return false;
}

/* Standard output is the program's. */
static bool take_path(const char **path, const char *name, const char *value)
{
	*path = value;
	return (*value && strcmp(value, "-") != 0) || refuse_value(name, value);
}

static bool take_option(void *context, const char *name, const char *value)
{
	for (size_t i = 0; i < VB_ARRAY_LEN(flags); i++)
		if (strcmp(name, flags[i].name) == 0)
			return set_variable(flags[i].variable, value ? value : flags[i].value);
	if (strcmp(name, "sockets") == 0)
		return wants_sockets = true;
	if (strcmp(name, "copy") == 0)
		return take_copy(value);
	if (strcmp(name, "faults") == 0)
		return take_faults(value);
	if (strcmp(name, "capture") == 0)
		return take_path(&captured.options.path, name, value);
	if (strcmp(name, "timeline") == 0)
		return take_path(&captured.page, name, value);
	if (strcmp(name, "latency") != 0)
		return recorder_option(&captured.options, name, value);
	captured.wants_latency = true;
	return !value || take_path(&captured.picture, name, value);
}

static bool is_captured(void)
{
	return captured.options.path || captured.page || captured.wants_latency;
}

/* The place of the program in argv; -1 after a message. */
static int find_program(int argc, char **argv)
{
	int at = take_options(argc, argv, OPTIONS_FIRST, take_option, NULL);

	if (at != argc)
		return at;
	complain("run needs a program");
	return -1;
}

/* Where no library can answer, mounts do. */
static void show_devices(const char *program)
{
	if (is_sysfs_off() || !needs_mounts(program) || mount_sysfs() || !is_debugging())
		return;
	complain("%s makes its system calls itself, and cannot be shown the devices in /sys: %s", program,
		 strerror(errno));
}

static int become(char **argv)
{
	show_devices(argv[0]);
	give_signals_back();
	execvp(argv[0], argv);
	return exec_failed(argv[0], errno);
}

int command_run(int argc, char **argv)
{
	char libdir[PATH_MAX];
	int first;

	recorder_defaults(&captured.options);
	first = find_program(argc, argv);
	if (first < 0 || !find_libraries(libdir) || !prepend_library_path(libdir) ||
	    !prepend_answers(libdir) || (wants_sockets && !prepend_preload(libdir)))
		return EXIT_OURS;
	warn_if_libraries_ignored(argv[first]);
	return is_captured() ? run_captured(&captured, argv + first, become) : become(argv + first);
}

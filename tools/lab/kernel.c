/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel.h"

enum { MAP_BYTES = 4096 };

/* ---- why not ---- */

/* The number in a file, or behind a word at the beginning of a line of it; -1: there is none. */
static long number_in(const char *path, const char *word)
{
	FILE *f = fopen(path, "re");
	char line[256];
	long number = -1;

	while (f && number < 0 && fgets(line, sizeof(line), f))
		if (strncmp(line, word, strlen(word)) == 0)
			number = strtol(line + strlen(word), NULL, 10);
	if (f)
		fclose(f);
	return number;
}

static bool are_same(const char *one, const char *other)
{
	struct stat a, b;

	return stat(one, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Mounts are listed as they are seen from this process's root: in a folder that is no mount, none is "/". */
static bool is_root_mounted(void)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	bool is_mounted = !f; /* not known */
	char *line = NULL, place[3];
	size_t room = 0;

	while (!is_mounted && getline(&line, &room, f) > 0)
		is_mounted = sscanf(line, "%*s %*s %*s %*s %2s", place) == 1 && strcmp(place, "/") == 0;
	free(line);
	if (f)
		fclose(f);
	return is_mounted;
}

/* Only root sees the root of the first process. */
static bool is_in_chroot(void)
{
	return !is_root_mounted() || (are_same("/proc/1/ns/mnt", "/proc/self/ns/mnt") &&
				      access("/proc/1/root/.", X_OK) == 0 && !are_same("/proc/1/root/.", "/"));
}

/* What forbids namespaces to this user, and what helps. */
static const char *reason_of(int error)
{
	if (number_in("/proc/sys/user/max_user_namespaces", "") == 0)
		return "user.max_user_namespaces is 0: sysctl -w user.max_user_namespaces=10000";
	if (error == ENOSPC || error == EUSERS)
		return "as many namespaces as this user may have are there: see /proc/sys/user";
	if (is_in_chroot())
		return "in a chroot nobody may make user namespaces: run this outside of it";
	if (number_in("/proc/sys/kernel/unprivileged_userns_clone", "") == 0)
		return "only root may make user namespaces: sysctl -w kernel.unprivileged_userns_clone=1";
	if (number_in("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "") == 1)
		return "AppArmor restricts user namespaces, as in Ubuntu since 24.04: "
		       "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or run this as root";
	if (number_in("/proc/self/status", "Seccomp:") == 2)
		return "a filter of system calls is in force, such as Docker's: "
		       "docker run --security-opt seccomp=unconfined --security-opt systempaths=unconfined "
		       "--device /dev/net/tun";
	return NULL;
}

void lab_explain(char text[LAB_TEXT_BYTES], const char *step, int error)
{
	const char *reason = NULL;

	if (error == EPERM || error == EACCES || error == ENOSPC || error == EUSERS)
		reason = reason_of(error);
	snprintf(text, LAB_TEXT_BYTES, "%s: %s%s%s", step, strerror(error), reason ? "\n  " : "",
		 reason ? reason : "");
}

/* ---- users ---- */

static bool write_file(pid_t pid, const char *name, const char *text)
{
	char path[64];
	int fd;
	bool written;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	written = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	close(fd);
	return written;
}

/* All that there are here, each as itself. */
static void map_all(const char *own_map, char map[MAP_BYTES])
{
	unsigned inside, count;
	size_t n = 0;
	FILE *f = fopen(own_map, "re");

	map[0] = '\0';
	while (f && fscanf(f, "%u %*u %u", &inside, &count) == 2 && n + 64 < MAP_BYTES)
		n += (size_t)snprintf(map + n, MAP_BYTES - n, "%u %u %u\n", inside, inside, count);
	if (f)
		fclose(f);
}

static bool map_ids(pid_t child, const char *file, const char *own_map, unsigned own)
{
	char map[MAP_BYTES];

	map_all(own_map, map);
	if (write_file(child, file, map))
		return true;
	snprintf(map, sizeof(map), "%u %u 1\n", own, own);
	return write_file(child, file, map);
}

bool lab_map_users(pid_t child)
{
	if (!map_ids(child, "uid_map", "/proc/self/uid_map", geteuid()))
		return false;
	if (map_ids(child, "gid_map", "/proc/self/gid_map", getegid()))
		return true;
	/* An unprivileged process may do it once nobody there can leave a group. */
	return write_file(child, "setgroups", "deny") &&
	       map_ids(child, "gid_map", "/proc/self/gid_map", getegid());
}

/* ---- capabilities ---- */

void lab_keep_capabilities(void)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

	if (syscall(SYS_capget, &header, data) != 0)
		return;
	for (unsigned i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
		data[i].inheritable = data[i].permitted;
	if (syscall(SYS_capset, &header, data) != 0)
		return;
	for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Device files that are not there, for programs that look for them behind the library's back: UCX takes a device only if
 * /dev/infiniband/uverbsN is a character device that it may read and write.
 *
 * `verbatim run` preloads this. It interposes the calls that look at a file without opening it. The kernel is always asked
 * first and what it finds is true: only where it has no such file is the answer that of /dev/null, which no program that
 * talks to these libraries will open. No state, any thread; nothing is allocated.
 */
/* Both sizes of file offsets are served, so neither may stand for the other. */
#undef _FILE_OFFSET_BITS
#include "base/base.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char stand_in[] = "/dev/null";

static bool is_device_file(const char *path)
{
	static const char start[] = "/dev/infiniband/uverbs";
	if (strncmp(path, start, sizeof(start) - 1))
		return false;
	const char *number = path + sizeof(start) - 1;
	return *number && !number[strspn(number, "0123456789")];
}

/* Worth a second call with the stand-in? errno is the first one's. */
static bool is_missing(int result, const char *path)
{
	return result && errno == ENOENT && is_device_file(path);
}

/* The function of this name that would be called without this library. */
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

VB_EXPORT int stat(const char *path, struct stat *st)
{
	__typeof__(&stat) next = NEXT(stat);
	int result = next(path, st);
	return is_missing(result, path) ? next(stand_in, st) : result;
}

VB_EXPORT int stat64(const char *path, struct stat64 *st)
{
	__typeof__(&stat64) next = NEXT(stat64);
	int result = next(path, st);
	return is_missing(result, path) ? next(stand_in, st) : result;
}

/* What programs that were linked before glibc 2.33 call. */
int __xstat(int version, const char *path, struct stat *st);
int __xstat64(int version, const char *path, struct stat64 *st);

VB_EXPORT int __xstat(int version, const char *path, struct stat *st)
{
	__typeof__(&__xstat) next = NEXT(__xstat);
	int result = next(version, path, st);
	return is_missing(result, path) ? next(version, stand_in, st) : result;
}

VB_EXPORT int __xstat64(int version, const char *path, struct stat64 *st)
{
	__typeof__(&__xstat64) next = NEXT(__xstat64);
	int result = next(version, path, st);
	return is_missing(result, path) ? next(version, stand_in, st) : result;
}

VB_EXPORT int access(const char *path, int mode)
{
	__typeof__(&access) next = NEXT(access);
	int result = next(path, mode);
	return is_missing(result, path) ? next(stand_in, mode) : result;
}

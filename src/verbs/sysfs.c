/* SPDX-License-Identifier: BSD-2-Clause */
/* Helpers for programs that read sysfs themselves. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "verbs/verbs.h"

/* No public header declares these. */
VB_EXPORT const char *ibv_get_sysfs_path(void);
VB_EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);
VB_EXPORT int ibv_read_ibdev_sysfs_file(char *buf, size_t size, void *sysfs_dev, const char *fmt, ...);

static char sysfs_path[256] = "/sys";

/* SYSFS_PATH names another place, as for every library that uses sysfs. */
static void find_path(void)
{
	const char *path = getuid() == geteuid() ? getenv("SYSFS_PATH") : NULL;
	if (!path || !*path)
		return;
	size_t n = (size_t)snprintf(sysfs_path, sizeof(sysfs_path), "%s", path);
	while (n < sizeof(sysfs_path) && n > 1 && sysfs_path[n - 1] == '/')
		sysfs_path[--n] = 0;
}

VB_EXPORT const char *ibv_get_sysfs_path(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, find_path);
	return sysfs_path;
}

/* Returns the bytes read, without the newline at the end, or -1. buf is terminated. */
VB_EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	char path[512];
	if (!size || snprintf(path, sizeof(path), "%s/%s", dir, file) >= (int)sizeof(path))
		return vb_fail_minus1(-EINVAL);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	ssize_t n = read(fd, buf, size - 1);
	close(fd);
	if (n < 0)
		return -1;
	if (n && buf[n - 1] == '\n')
		n--;
	buf[n] = 0;
	return (int)n;
}

/* The devices of this library have no directory there. */
VB_EXPORT int ibv_read_ibdev_sysfs_file(char *buf, size_t size, void *sysfs_dev, const char *fmt, ...)
{
	return vb_fail_minus1(-ENOENT);
}
VB_PRIVATE(ibv_read_ibdev_sysfs_file);

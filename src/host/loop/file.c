/* SPDX-License-Identifier: BSD-2-Clause */
/* Small text files, mostly of /proc and /sys. */
#include "host/host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cancel.h"

/* Reads until the file ends or size is used up; how many bytes, or a negative errno. */
static ssize_t read_all(int fd, char *text, size_t size)
{
	size_t used = 0;
	ssize_t n;
	do {
		n = read(fd, text + used, size - used);
		used += n > 0 ? (size_t)n : 0;
	} while ((n > 0 && used < size) || (n < 0 && errno == EINTR));
	return n < 0 ? -errno : (ssize_t)used;
}

static ssize_t read_file(const char *path, char *text, size_t size)
{
	VB_UNCANCELLED;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	ssize_t n = read_all(fd, text, size);
	close(fd);
	return n;
}

int vb_file_read(const char *path, char *text, size_t size)
{
	ssize_t n = read_file(path, text, size);
	if (n < 0)
		return (int)n;
	if ((size_t)n == size)
		return -EFBIG;
	text[n] = '\0';
	return memchr(text, 0, (size_t)n) ? -EINVAL : 0;
}

bool vb_file_line(const char *path, char *line, size_t room)
{
	ssize_t n = read_file(path, line, room - 1);
	if (n < 0)
		return false;
	line[n] = 0;
	line[strcspn(line, "\n")] = 0;
	return true;
}

unsigned long long vb_file_number(const char *path)
{
	char line[32];
	return vb_file_line(path, line, sizeof(line)) ? strtoull(line, NULL, 10) : 0;
}

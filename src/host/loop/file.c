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

struct field {
	const char *key;
	char *value;
	size_t room, used;
	size_t matched; /* characters of the key that the line begins with */
	bool is_other;  /* it begins with something else */
};

/* True: the line has ended, and it was the one. */
static bool take_char(struct field *f, char c)
{
	bool is_in_value = !f->is_other && !f->key[f->matched];
	if (c == '\n') {
		f->matched = 0;
		f->is_other = false;
		return is_in_value;
	}
	if (!is_in_value) {
		f->is_other |= c != f->key[f->matched];
		f->matched += !f->is_other;
	} else if (f->used + 1 < f->room && (f->used || (c != ' ' && c != '\t'))) {
		f->value[f->used++] = c;
	}
	return false;
}

static int find_field(int fd, struct field *f)
{
	char part[1024];
	ssize_t n;
	while ((n = read_all(fd, part, sizeof(part))) > 0)
		for (ssize_t i = 0; i < n; i++)
			if (take_char(f, part[i]))
				return 0;
	return n < 0 ? (int)n : take_char(f, '\n') ? 0 : -ENODATA;
}

int vb_file_field(const char *path, const char *key, char *value, size_t room)
{
	VB_UNCANCELLED;
	struct field f = { .key = key, .value = value, .room = room };
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	int err = find_field(fd, &f);
	close(fd);
	value[f.used] = 0;
	return err;
}

unsigned long long vb_file_number(const char *path)
{
	char line[32];
	return vb_file_line(path, line, sizeof(line)) ? strtoull(line, NULL, 10) : 0;
}

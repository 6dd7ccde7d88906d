/* SPDX-License-Identifier: BSD-2-Clause */
#include "host/memory/vma.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/base.h"
#include "base/cancel.h"

enum { LINE_BYTES = 4400 }; /* a path of 4 KiB and what stands before it */

static struct {
	int fd;
	size_t at, end;
	char buffer[32768];
} in;
static char line[LINE_BYTES];

static int next_char(void)
{
	if (in.at == in.end) {
		ssize_t n;
		do
			n = read(in.fd, in.buffer, sizeof in.buffer);
		while (n < 0 && errno == EINTR);
		if (n <= 0)
			return -1;
		in.at = 0;
		in.end = (size_t)n;
	}
	return (unsigned char)in.buffer[in.at++];
}

/* The next line without its end, cut to what fits. */
static bool next_line(void)
{
	size_t n = 0;
	int c = next_char();
	if (c < 0)
		return false;
	for (; c >= 0 && c != '\n'; c = next_char())
		if (n < sizeof line - 1)
			line[n++] = (char)c;
	line[n] = 0;
	return true;
}

/* Parses a number of base 10 or 16, and moves *at behind it. */
static uint64_t number(const char **at, unsigned base)
{
	uint64_t n = 0;
	for (;; ++*at) {
		unsigned c = (unsigned char)**at;
		unsigned digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : base;
		if (digit >= base)
			return n;
		n = n * base + digit;
	}
}

static bool skip(const char **at, char c)
{
	if (**at != c)
		return false;
	++*at;
	return true;
}

/* start-end perms offset major:minor inode path */
static bool parse_header(struct vb_vma *v)
{
	const char *at = line;
	*v = (struct vb_vma){ .start = number(&at, 16) };
	if (at == line || !skip(&at, '-'))
		return false;
	v->end = number(&at, 16);
	if (!skip(&at, ' ') || strnlen(at, 5) < 5)
		return false;
	v->prot = (at[0] == 'r' ? PROT_READ : 0) | (at[1] == 'w' ? PROT_WRITE : 0) |
		  (at[2] == 'x' ? PROT_EXEC : 0);
	v->shared = at[3] == 's';
	at += 5;
	v->offset = number(&at, 16);
	skip(&at, ' ');
	unsigned major = (unsigned)number(&at, 16);
	skip(&at, ':');
	v->device = makedev(major, (unsigned)number(&at, 16));
	skip(&at, ' ');
	v->inode = number(&at, 10);
	while (skip(&at, ' '))
		;
	v->is_stack = !strncmp(at, "[stack", 6);
	v->is_aio = !strncmp(at, "/[aio]", 6);
	return true;
}

static unsigned flag_of(const char name[2])
{
	static const char plain[][2] = { { 'r', 'd' }, { 'w', 'r' }, { 'm', 'r' }, { 'm', 'w' },
					 { 'm', 'e' }, { 'a', 'c' }, { 's', 'd' }, { 'n', 'r' } };
	if (!memcmp(name, "hg", 2))
		return VB_VMA_HUGE;
	if (!memcmp(name, "nh", 2))
		return VB_VMA_NO_HUGE;
	if (!memcmp(name, "dd", 2))
		return VB_VMA_NO_DUMP;
	for (size_t i = 0; i < VB_ARRAY_LEN(plain); i++)
		if (!memcmp(name, plain[i], 2))
			return 0;
	return VB_VMA_SPECIAL;
}

/* Reads up to the line of flags, the last of a mapping. False: there is none. */
static bool read_flags(struct vb_vma *v)
{
	while (next_line()) {
		if (strncmp(line, "VmFlags:", 8))
			continue;
		for (const char *at = line + 8; *at;) {
			if (skip(&at, ' '))
				continue;
			if (!at[1])
				break;
			v->flags |= flag_of(at);
			at += 2;
		}
		return true;
	}
	return false;
}

int vb_vma_each(bool flags, bool (*visit)(void *arg, const struct vb_vma *vma), void *arg)
{
	VB_UNCANCELLED;
	struct vb_vma v;
	int err = 0;
	in.at = in.end = 0;
	in.fd = open(flags ? "/proc/self/smaps" : "/proc/self/maps", O_RDONLY | O_CLOEXEC);
	if (in.fd < 0)
		return -errno;
	while (next_line()) {
		if (!parse_header(&v) || (flags && !read_flags(&v))) {
			err = -EPROTO;
			break;
		}
		if (!visit(arg, &v))
			break;
	}
	close(in.fd);
	return err;
}

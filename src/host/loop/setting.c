/* SPDX-License-Identifier: BSD-2-Clause */
/* Settings from the environment that several layers must agree on: read once, and again in a forked child. */
#include "host/private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cancel.h"

enum answer { UNKNOWN, NO, YES };

/* Has the variable this value? */
struct setting {
	const char *variable, *value;
	_Atomic(enum answer) answer;
};

static struct setting local_off = { "VERBATIM_LOCAL", "off", UNKNOWN },
		      infiniband = { "VERBATIM_LINK", "infiniband", UNKNOWN };
static bool is_turned_off;

static bool read_setting(struct setting *s, bool anyway)
{
	enum answer a = atomic_load_explicit(&s->answer, memory_order_relaxed);
	if (vb_unlikely(a == UNKNOWN)) {
		const char *value = getenv(s->variable);
		enum answer unknown = UNKNOWN;
		a = anyway || (value && !strcmp(value, s->value)) ? YES : NO;
		/* another thread read it before */
		if (!atomic_compare_exchange_strong(&s->answer, &unknown, a))
			a = unknown;
	}
	return a == YES;
}

bool vb_local_is_off(void) { return read_setting(&local_off, is_turned_off); }
bool vb_link_is_infiniband(void) { return read_setting(&infiniband, false); }

void vb_local_turn_off(void)
{
	is_turned_off = true;
	vb_setting_forget();
}

void vb_setting_forget(void)
{
	atomic_store(&local_off.answer, UNKNOWN);
	atomic_store(&infiniband.answer, UNKNOWN);
}

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

int vb_file_read(const char *path, char *text, size_t size)
{
	VB_UNCANCELLED;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -errno : read_all(fd, text, size);
	if (fd >= 0)
		close(fd);
	if (n < 0)
		return (int)n;
	if ((size_t)n == size)
		return -EFBIG;
	text[n] = '\0';
	return memchr(text, 0, (size_t)n) ? -EINVAL : 0;
}

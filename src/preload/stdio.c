/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Streams over sockets. libc's stdio reads and writes without this library's functions. So a stream on an
 * rsocket is one with functions of its own (fopencookie), and fileno returns the rsocket's number.
 */
#include "preload/preload.h"

VB_EXPORT int __dprintf_chk(int fd, int flag, const char *format, ...);
VB_EXPORT int __vdprintf_chk(int fd, int flag, const char *format, va_list args);

/* The streams that there are; few. */
struct cookie {
	struct cookie *next;
	FILE *stream;
	int fd;
};

static struct cookie *cookies;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static ssize_t read_cookie(void *cookie, char *buf, size_t n)
{
	return read(((struct cookie *)cookie)->fd, buf, n);
}

/* Returns how much was written. Less: an error; a part alone is none. */
static size_t write_all(int fd, const char *text, size_t n)
{
	size_t done = 0;

	while (done < n) {
		ssize_t m = write(fd, text + done, n - done);

		if (m < 0)
			break;
		done += (size_t)m;
	}
	return done;
}

static ssize_t write_cookie(void *cookie, const char *buf, size_t n)
{
	return (ssize_t)write_all(((struct cookie *)cookie)->fd, buf, n);
}

/* As of a socket: flushing a stream with bytes that are not read yet is no error then. */
static int seek_cookie(void *cookie, off64_t *offset, int whence)
{
	errno = ESPIPE;
	return -1;
}

static int close_cookie(void *cookie)
{
	struct cookie *c = cookie, **at;
	int fd = c->fd;

	pthread_mutex_lock(&lock);
	for (at = &cookies; *at; at = &(*at)->next) {
		if (*at != c)
			continue;
		*at = c->next;
		break;
	}
	pthread_mutex_unlock(&lock);
	free(c);
	return close(fd);
}

void vb_stdio_forked(void)
{
	pthread_mutex_init(&lock, NULL);
}

VB_EXPORT FILE *fdopen(int fd, const char *mode)
{
	static const cookie_io_functions_t functions = { .read = read_cookie,
							 .write = write_cookie,
							 .seek = seek_cookie,
							 .close = close_cookie };
	struct vb_sock *v = vb_sock_rdma(fd);
	struct cookie *c;

	if (!v)
		return vb_real()->fdopen(fd, mode);
	vb_sock_put(v);
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->fd = fd;
	c->stream = fopencookie(c, mode, functions);
	if (!c->stream) {
		free(c);
		return NULL;
	}
	pthread_mutex_lock(&lock);
	c->next = cookies;
	cookies = c;
	pthread_mutex_unlock(&lock);
	return c->stream;
}

VB_EXPORT int fileno(FILE *stream)
{
	int fd = -1;

	pthread_mutex_lock(&lock);
	for (struct cookie *c = cookies; c && fd < 0; c = c->next)
		if (c->stream == stream)
			fd = c->fd;
	pthread_mutex_unlock(&lock);
	return fd < 0 ? vb_real()->fileno(stream) : fd;
}

VB_EXPORT int fileno_unlocked(FILE *stream)
{
	return fileno(stream);
}

/* ---- dprintf ---- */

VB_EXPORT int vdprintf(int fd, const char *format, va_list args)
{
	struct vb_sock *v = vb_sock_rdma(fd);
	char *text;

	if (!v)
		return vb_real()->vdprintf(fd, format, args);
	vb_sock_put(v);
	int n = vasprintf(&text, format, args);
	if (n < 0)
		return n;
	bool is_whole = write_all(fd, text, (size_t)n) == (size_t)n;
	free(text);
	return is_whole ? n : -1;
}

VB_EXPORT int dprintf(int fd, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	int n = vdprintf(fd, format, args);
	va_end(args);
	return n;
}

VB_EXPORT int __vdprintf_chk(int fd, int flag, const char *format, va_list args)
{
	return vdprintf(fd, format, args);
}

VB_EXPORT int __dprintf_chk(int fd, int flag, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	int n = vdprintf(fd, format, args);
	va_end(args);
	return n;
}

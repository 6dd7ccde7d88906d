/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "channel.h"

enum { LONGEST_MESSAGE = 8 << 20, BACKLOG = 128 };

struct header {
	uint32_t kind, size;
};

/* ---- messages ---- */

static bool send_rest(int fd, const char *data, size_t size)
{
	while (size > 0) {
		ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		data += n;
		size -= (size_t)n;
	}
	return true;
}

bool lab_send(int fd, enum lab_kind kind, const void *data, size_t size, const int *fds, int n_fds)
{
	struct header header = { kind, (uint32_t)size };
	struct iovec pieces[2] = { { &header, sizeof(header) }, { (void *)data, size } };
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(LAB_FDS * sizeof(int))];
	} control = { .bytes = { 0 } };
	struct msghdr msg = { .msg_iov = pieces, .msg_iovlen = size > 0 ? 2 : 1 };
	ssize_t sent;

	if (n_fds > 0) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE((size_t)n_fds * sizeof(int));
		*CMSG_FIRSTHDR(&msg) = (struct cmsghdr){
			CMSG_LEN((size_t)n_fds * sizeof(int)), SOL_SOCKET, SCM_RIGHTS,
		};
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&msg)), fds, (size_t)n_fds * sizeof(int));
	}
	do
		sent = sendmsg(fd, &msg, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	sent -= (ssize_t)sizeof(header);
	return sent >= 0 && send_rest(fd, (const char *)data + sent, size - (size_t)sent);
}

bool lab_send_text(int fd, enum lab_kind kind, const char *text)
{
	return lab_send(fd, kind, text, strlen(text), NULL, 0);
}

static void take_fds(struct msghdr *msg, struct lab_message *m)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(msg);

	if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
		return;
	m->n_fds = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
	memcpy(m->fds, CMSG_DATA(c), (size_t)m->n_fds * sizeof(int));
}

static bool receive_all(int fd, struct msghdr *msg, int flags)
{
	ssize_t n;

	do
		n = recvmsg(fd, msg, MSG_WAITALL | flags);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)msg->msg_iov->iov_len;
}

bool lab_receive(int fd, struct lab_message *m)
{
	struct header header;
	struct iovec piece = { &header, sizeof(header) };
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(LAB_FDS * sizeof(int))];
	} control;
	struct msghdr msg = { .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control.bytes,
			      .msg_controllen = sizeof(control.bytes) };
	bool whole = receive_all(fd, &msg, MSG_CMSG_CLOEXEC);

	*m = (struct lab_message){ 0 };
	if (!whole)
		return false;
	take_fds(&msg, m);
	if (header.size <= LONGEST_MESSAGE)
		m->data = malloc(header.size + 1);
	m->kind = header.kind;
	m->size = header.size;
	piece = (struct iovec){ m->data, m->size };
	msg = (struct msghdr){ .msg_iov = &piece, .msg_iovlen = 1 };
	if (!m->data || (m->size > 0 && !receive_all(fd, &msg, 0))) {
		lab_message_free(m);
		return false;
	}
	m->data[m->size] = '\0';
	return true;
}

void lab_message_free(struct lab_message *m)
{
	for (int i = 0; i < m->n_fds; i++)
		close(m->fds[i]);
	free(m->data);
	*m = (struct lab_message){ 0 };
}

/* ---- names ---- */

/*
 * An abstract name: it is gone when the last process is that has the socket, so that a lab leaves no file.
 * The kernel's numbers are those of this user namespace, and so is the name.
 */
static socklen_t name_of(const char *lab, struct sockaddr_un *un)
{
	int n;

	*un = (struct sockaddr_un){ .sun_family = AF_UNIX };
	n = snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1, "verbatim-lab/%u/%s", (unsigned)geteuid(),
		     lab);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

int lab_listen(const char *lab)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un un;

	if (fd >= 0 && bind(fd, (struct sockaddr *)&un, name_of(lab, &un)) != 0) {
		close(fd);
		return -1;
	}
	return fd;
}

bool lab_accept_callers(int listener) { return listen(listener, BACKLOG) == 0; }

bool lab_is_ours(int fd, pid_t *peer)
{
	struct ucred who;
	socklen_t bytes = sizeof(who);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) < 0)
		return false;
	errno = EPERM;
	if (who.uid != geteuid())
		return false;
	*peer = who.pid;
	return true;
}

bool lab_is_inside(void) { return access(LAB_SOCKET, F_OK) == 0; }

int lab_connect(const char *lab)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un un = { .sun_family = AF_UNIX, .sun_path = LAB_SOCKET };
	socklen_t len = sizeof(un);
	bool is_inside = lab_is_inside();
	int error;
	pid_t peer;

	if (fd < 0)
		return -1;
	if (!is_inside)
		len = name_of(lab, &un);
	if (connect(fd, (struct sockaddr *)&un, len) == 0 && (is_inside || lab_is_ours(fd, &peer)))
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

void lab_each(void (*found)(void *context, const char *lab), void *context)
{
	char line[512], prefix[64];
	FILE *f = fopen("/proc/net/unix", "re");
	const char *at;

	snprintf(prefix, sizeof(prefix), "@verbatim-lab/%u/", (unsigned)geteuid());
	while (f && fgets(line, sizeof(line), f)) {
		unsigned flags = 0; /* of a socket that listens: __SO_ACCEPTCON */
		line[strcspn(line, "\n")] = '\0';
		at = strstr(line, prefix);
		if (at && sscanf(line, "%*s %*s %*s %x", &flags) == 1 && (flags & 0x10000) &&
		    lab_is_name(at + strlen(prefix)))
			found(context, at + strlen(prefix));
	}
	if (f)
		fclose(f);
}

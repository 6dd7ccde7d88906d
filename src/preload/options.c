/* SPDX-License-Identifier: BSD-2-Clause */
/* What a program has set on a socket, for its rsocket. */
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "preload/preload.h"

static void copy_option(int fd, int level, int name, vb_set_option set, int to)
{
	char value[64];
	socklen_t len = sizeof(value);

	if (!vb_real()->getsockopt(fd, level, name, value, &len))
		(void)set(to, level, name, value, len);
}

/* The kernel reports twice the size that was set. */
static void copy_size(int fd, int name, vb_set_option set, int to)
{
	int value = 0;
	socklen_t len = sizeof(value);

	if (vb_real()->getsockopt(fd, SOL_SOCKET, name, &value, &len))
		return;
	value /= 2;
	(void)set(to, SOL_SOCKET, name, &value, sizeof(value));
}

void vb_copy_options(const struct vb_sock *v, int fd, vb_set_option set, int to)
{
	static const struct {
		int level, name;
	} copied[] = {
		{ SOL_SOCKET, SO_REUSEADDR },    { SOL_SOCKET, SO_KEEPALIVE },  { SOL_SOCKET, SO_OOBINLINE },
		{ SOL_SOCKET, SO_LINGER },       { SOL_SOCKET, SO_RCVTIMEO },   { SOL_SOCKET, SO_SNDTIMEO },
		{ SOL_SOCKET, SO_PRIORITY },     { IPPROTO_TCP, TCP_NODELAY },  { IPPROTO_TCP, TCP_KEEPIDLE },
		{ IPPROTO_TCP, TCP_KEEPINTVL },  { IPPROTO_TCP, TCP_KEEPCNT },  { IPPROTO_TCP, TCP_USER_TIMEOUT },
		{ IPPROTO_IP, IP_TOS },          { IPPROTO_IPV6, IPV6_V6ONLY }, { IPPROTO_IPV6, IPV6_TCLASS },
	};

	for (size_t i = 0; i < VB_ARRAY_LEN(copied); i++)
		copy_option(fd, copied[i].level, copied[i].name, set, to);
	if (v->has_send_size)
		copy_size(fd, SO_SNDBUF, set, to);
	if (v->has_receive_size)
		copy_size(fd, SO_RCVBUF, set, to);
}

void vb_set_up(const struct vb_sock *v, int fd, int rs)
{
	vb_copy_options(v, fd, rsetsockopt, rs);
	vb_apply_sizes(rs);
}

bool vb_is_nonblocking(int fd)
{
	return vb_real()->fcntl(fd, F_GETFL) & O_NONBLOCK;
}

uint64_t vb_timeout_of(int fd, int name)
{
	struct timeval tv = { 0 };
	socklen_t len = sizeof(tv);

	if (vb_real()->getsockopt(fd, SOL_SOCKET, name, &tv, &len) || (!tv.tv_sec && !tv.tv_usec) ||
	    tv.tv_sec > VB_RS_LONGEST_S)
		return VB_RS_NEVER;
	return vb_ns_of_timeval(tv);
}

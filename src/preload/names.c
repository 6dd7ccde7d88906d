/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names and options. The kernel's socket knows them all; what the rsocket can do with one, it is told as
 * well.
 */
#include <netinet/in.h>

#include "preload/preload.h"

/* An IPv6 socket shows IPv4 addresses as mapped ones. */
static void tell(const struct vb_sock *v, const struct sockaddr_storage *name, struct sockaddr *addr,
		 socklen_t *len)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)name;
	struct sockaddr_in6 mapped = { .sin6_family = AF_INET6, .sin6_port = in->sin_port };
	const void *from = name;
	socklen_t whole = name->ss_family == AF_INET ? sizeof(*in) : sizeof(mapped);

	if (v->domain == AF_INET6 && name->ss_family == AF_INET) {
		mapped.sin6_addr.s6_addr[10] = mapped.sin6_addr.s6_addr[11] = 0xff;
		memcpy(&mapped.sin6_addr.s6_addr[12], &in->sin_addr, sizeof(in->sin_addr));
		from = &mapped;
		whole = sizeof(mapped);
	}
	memcpy(addr, from, *len < whole ? *len : whole);
	*len = whole;
}

static int name_of(struct vb_sock *v, int (*get)(int, struct sockaddr *, socklen_t *), struct sockaddr *addr,
		   socklen_t *len)
{
	struct sockaddr_storage name;
	socklen_t whole = sizeof(name);
	int result = get(v->rs, (struct sockaddr *)&name, &whole), err = errno;

	if (!result)
		tell(v, &name, addr, len);
	vb_sock_put(v);
	errno = err;
	return result;
}

VB_EXPORT int getpeername(int fd, struct sockaddr *addr, socklen_t *len)
{
	struct vb_sock *v = vb_sock_rdma(fd);

	return v ? name_of(v, rgetpeername, addr, len) : vb_real()->getpeername(fd, addr, len);
}

VB_EXPORT int getsockname(int fd, struct sockaddr *addr, socklen_t *len)
{
	struct vb_sock *v = vb_sock_rdma(fd);

	return v ? name_of(v, rgetsockname, addr, len) : vb_real()->getsockname(fd, addr, len);
}

VB_EXPORT int getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
	struct vb_sock *v = vb_sock_rdma(fd);

	if (!v)
		return vb_real()->getsockopt(fd, level, name, value, len);
	bool is_rdmas =
		v->type == SOCK_DGRAM || level == SOL_RDMA || (level == SOL_SOCKET && name == SO_ERROR);
	int result = is_rdmas ? rgetsockopt(v->rs, level, name, value, len) :
				vb_real()->getsockopt(fd, level, name, value, len);
	int err = errno;
	vb_sock_put(v);
	errno = err;
	return result;
}

static int set(struct vb_sock *v, int fd, int level, int name, const void *value, socklen_t len)
{
	/* Nothing would tell the program when its buffers are free. */
	if (level == SOL_SOCKET && name == SO_ZEROCOPY && v->kind != VB_TCP) {
		errno = EOPNOTSUPP;
		return -1;
	}
	if (v->kind == VB_RDMA && (v->type == SOCK_DGRAM || level == SOL_RDMA))
		return rsetsockopt(v->rs, level, name, value, len);
	int result = vb_real()->setsockopt(fd, level, name, value, len), err = errno;
	if (level == SOL_SOCKET && (name == SO_SNDBUF || name == SO_RCVBUF) && !result)
		*(name == SO_SNDBUF ? &v->has_send_size : &v->has_receive_size) = true;
	if (!result && v->rs >= 0 && v->generation == vb_generation())
		(void)rsetsockopt(v->rs, level, name, value, len);
	errno = err;
	return result;
}

VB_EXPORT int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	struct vb_sock *v = vb_sock_get(fd);

	if (!v)
		return vb_real()->setsockopt(fd, level, name, value, len);
	int result = set(v, fd, level, name, value, len), err = errno;
	vb_sock_put(v);
	errno = err;
	return result;
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include "host/route.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ANY_PORT = 9 }; /* discard: connecting a datagram socket needs one and sends nothing */

static socklen_t destination(const struct in6_addr *dst, uint32_t scope, struct sockaddr_storage *ss)
{
	struct sockaddr_in *sin = (struct sockaddr_in *)ss;
	struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)ss;

	memset(ss, 0, sizeof(*ss));
	if (IN6_IS_ADDR_V4MAPPED(dst)) {
		sin->sin_family = AF_INET;
		sin->sin_port = htons(ANY_PORT);
		memcpy(&sin->sin_addr, &dst->s6_addr[12], 4);
		return sizeof(*sin);
	}
	sin6->sin6_family = AF_INET6;
	sin6->sin6_port = htons(ANY_PORT);
	sin6->sin6_addr = *dst;
	sin6->sin6_scope_id = scope;
	return sizeof(*sin6);
}

static void local_end(const struct sockaddr_storage *ss, struct in6_addr *src)
{
	if (ss->ss_family == AF_INET6) {
		*src = ((const struct sockaddr_in6 *)ss)->sin6_addr;
		return;
	}
	memset(src, 0, sizeof(*src));
	memset(&src->s6_addr[10], 0xff, 2);
	memcpy(&src->s6_addr[12], &((const struct sockaddr_in *)ss)->sin_addr, 4);
}

int vb_route_source(const struct in6_addr *dst, uint32_t scope, struct in6_addr *src)
{
	struct sockaddr_storage ss;
	socklen_t len = destination(dst, scope, &ss);
	int err = 0, fd = socket(ss.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&ss, len) != 0)
		err = -errno;
	len = sizeof(ss);
	if (!err && getsockname(fd, (struct sockaddr *)&ss, &len) != 0)
		err = -errno;
	close(fd);
	if (!err)
		local_end(&ss, src);
	return err;
}

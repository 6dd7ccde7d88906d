/* SPDX-License-Identifier: BSD-2-Clause */
#include "host/net/privilege.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/cancel.h"
#include "host/host.h"

enum { DEFAULT_START = 1024 };

static unsigned unprivileged_start(void)
{
	unsigned start = DEFAULT_START;
	char text[32];
	if (!vb_file_read("/proc/sys/net/ipv4/ip_unprivileged_port_start", text, sizeof(text)))
		sscanf(text, "%u", &start);
	return start;
}

/*
 * Only the kernel knows whether the process has the capability for this network namespace. It checks that
 * before it checks whether the port is free. So with the capability there is a socket at the port for a
 * moment.
 */
static bool kernel_lets_bind(bool ipv4, uint16_t port)
{
	union vb_ip_address address = vb_ip_address(&in6addr_any, ipv4, port);
	int fd = socket(ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	bool is_let = bind(fd, &address.any, vb_ip_address_bytes(ipv4)) == 0 || errno != EACCES;
	close(fd);
	return is_let;
}

bool vb_may_bind_port(uint16_t port)
{
	VB_UNCANCELLED;
	return port >= unprivileged_start() || kernel_lets_bind(true, port) || kernel_lets_bind(false, port);
}

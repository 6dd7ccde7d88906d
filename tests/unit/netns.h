/* SPDX-License-Identifier: BSD-2-Clause */
/* For tests that want the network to themselves. */
#ifndef VB_TEST_NETNS_H
#define VB_TEST_NETNS_H

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static inline void netns_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		fprintf(stderr, "# %s: %s\n", path, strerror(errno));
	close(fd);
}

/* A line of a user map: this user is root inside. */
static inline void netns_map(const char *path, unsigned id)
{
	char line[64];
	snprintf(line, sizeof line, "0 %u 1", id);
	netns_write(path, line);
}

/*
 * Moves the process, which has no threads yet, to a network namespace of its own with nothing but a loopback
 * interface, up. False, with the reason printed, where that is not allowed.
 */
static inline bool netns_enter(void)
{
	struct ifreq r = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	unsigned uid = geteuid(), gid = getegid();
	/* Root needs no user namespace, which a process with threads (a sanitizer's) cannot enter. */
	if (unshare(CLONE_NEWNET) < 0) {
		if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0) {
			printf("# no network namespace: %s\n", strerror(errno));
			return false;
		}
		netns_write("/proc/self/setgroups", "deny");
		netns_map("/proc/self/uid_map", uid);
		netns_map("/proc/self/gid_map", gid);
	}
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool up = ioctl(s, SIOCSIFFLAGS, &r) == 0;
	if (!up)
		printf("# loopback stays down: %s\n", strerror(errno));
	close(s);
	return up;
}

/*
 * Adds an IPv6 address to an interface and waits until packets reach it. `ip` ends before the kernel has
 * added the route, and packets sent until then are lost.
 */
static inline bool netns_add_v6(const char *address, const char *interface)
{
	char command[300];

	snprintf(command, sizeof(command),
		 "ip -6 addr replace %s/64 dev %s nodad && for i in $(seq 200); do"
		 " [ -z \"$(ip -6 route show table local %s dev %s)\" ] || exit 0; sleep 0.05; done; exit 1",
		 address, interface, address, interface);
	return system(command) == 0;
}

/*
 * Adds an Ethernet (two ends of a cable, both here) with addresses 10.9.0.1 and fd09::1, which are the
 * interface "wire". False, with the reason printed, where that is not possible.
 */
static inline bool netns_add_wire(void)
{
	if (if_nametoindex("wire"))
		return true;
	int status = system(
		"exec 2>&1; ip link add wire type veth peer name other && ip link set wire up && ip link set other up &&"
		" ip addr add 10.9.0.1/24 dev wire");
	if (status != 0)
		printf("# no veth: ip failed with %#x\n", status);
	return status == 0 && netns_add_v6("fd09::1", "wire");
}

#define NETNS_LINK_LOCAL "fe80::9:1"

static inline bool netns_add_link_local(const char *interface)
{
	return netns_add_v6(NETNS_LINK_LOCAL, interface);
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/ipv6.h>
#include <net/if_arp.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tap.h"

/* Of Linux 6.2, later than the headers of Debian 12 know. */
#ifndef TUN_F_USO4
#define TUN_F_USO4 0x20
#define TUN_F_USO6 0x40
#endif

enum { V4_PREFIX = 24, V6_PREFIX = 64, TRY_MS = 2, MOST_TRIES = 2500 };

/* ---- the device ---- */

/* Checksums are computed where bits may have changed since, that is, nowhere. */
static void leave_work(int tap)
{
	unsigned tcp = TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN, udp = TUN_F_USO4 | TUN_F_USO6;

	if (ioctl(tap, TUNSETOFFLOAD, TUN_F_CSUM | tcp | udp) != 0)
		ioctl(tap, TUNSETOFFLOAD, TUN_F_CSUM | tcp);
}

static int open_device(int status)
{
	struct ifreq ifr = { .ifr_name = "eth0", .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR };
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		lab_give_up(status, "open /dev/net/tun (of the kernel's module tun; "
				    "in a container: docker run --device /dev/net/tun)");
	if (ioctl(fd, TUNSETIFF, &ifr) != 0)
		lab_give_up(status, "make a tap interface");
	leave_work(fd);
	return fd;
}

/* ---- its settings ---- */

static void set(int status, int fd, unsigned long request, void *value, const char *what)
{
	if (ioctl(fd, request, value) != 0)
		lab_give_up(status, "set %s", what);
}

static void raise_interface(int status, int fd, const char *name)
{
	struct ifreq ifr = { 0 };

	strcpy(ifr.ifr_name, name);
	set(status, fd, SIOCGIFFLAGS, &ifr, "flags");
	ifr.ifr_flags |= IFF_UP;
	set(status, fd, SIOCSIFFLAGS, &ifr, "an interface up");
}

static void set_v4(int status, int fd, unsigned host)
{
	struct ifreq ifr = { .ifr_name = "eth0" };
	struct sockaddr_in *addr = (struct sockaddr_in *)&ifr.ifr_addr;
	char text[LAB_NAME_BYTES];

	lab_host_v4(host, text);
	addr->sin_family = AF_INET;
	inet_pton(AF_INET, text, &addr->sin_addr);
	set(status, fd, SIOCSIFADDR, &ifr, "an IPv4 address");
	addr->sin_addr.s_addr = htonl(~0u << (32 - V4_PREFIX));
	set(status, fd, SIOCSIFNETMASK, &ifr, "a netmask");
}

/*
 * Waits until packets reach the address. The kernel adds its route some time after the address was set; on a
 * busy machine that takes long.
 */
static void await_v6(int fd, const struct in6_addr *addr)
{
	struct sockaddr_in6 own = { .sin6_family = AF_INET6, .sin6_addr = *addr };
	struct pollfd arrival = { .fd = fd, .events = POLLIN };
	socklen_t len = sizeof(own);
	bool bound = false;

	for (unsigned tries = 0; tries < MOST_TRIES; tries++) {
		if (!bound && bind(fd, (struct sockaddr *)&own, len) == 0)
			bound = getsockname(fd, (struct sockaddr *)&own, &len) == 0;
		if (bound)
			(void)!sendto(fd, "", 1, 0, (struct sockaddr *)&own, len);
		if (poll(&arrival, 1, TRY_MS) > 0)
			return;
	}
}

/* A kernel without IPv6 has hosts without it. */
static void set_v6(int status, unsigned host)
{
	struct in6_ifreq ifr = { .ifr6_prefixlen = V6_PREFIX, .ifr6_ifindex = (int)if_nametoindex("eth0") };
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	char text[LAB_NAME_BYTES];

	if (fd < 0)
		return;
	lab_host_v6(host, text);
	inet_pton(AF_INET6, text, &ifr.ifr6_addr);
	set(status, fd, SIOCSIFADDR, &ifr, "an IPv6 address");
	await_v6(fd, &ifr.ifr6_addr);
	close(fd);
}

/* Addresses need not wait for an answer of nobody's. */
static void check_no_duplicates(void)
{
	int fd = open("/proc/sys/net/ipv6/conf/eth0/accept_dad", O_WRONLY | O_CLOEXEC);

	if (fd >= 0 && write(fd, "0", 1) < 0)
		errno = 0; /* IPv6 addresses wait a second */
	if (fd >= 0)
		close(fd);
}

static void set_link(const struct lab_plan *plan, unsigned host, int status, int fd)
{
	struct ifreq ifr = { .ifr_name = "eth0", .ifr_hwaddr.sa_family = ARPHRD_ETHER };

	lab_host_mac(host, (uint8_t *)ifr.ifr_hwaddr.sa_data);
	set(status, fd, SIOCSIFHWADDR, &ifr, "a MAC");
	ifr.ifr_mtu = (int)plan->mtu;
	set(status, fd, SIOCSIFMTU, &ifr, "an MTU");
}

int lab_tap_open(const struct lab_plan *plan, unsigned host, int status)
{
	int tap = open_device(status), fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		lab_give_up(status, "open a socket");
	check_no_duplicates();
	set_link(plan, host, status, fd);
	raise_interface(status, fd, "lo");
	set_v4(status, fd, host);
	raise_interface(status, fd, "eth0");
	set_v6(status, host);
	close(fd);
	return tap;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Interfaces and addresses from getifaddrs(3), and their changes from rtnetlink. The last list of interfaces
 * is cached until there is a change. Where the kernel refuses rtnetlink groups, lists are not cached, and the
 * cache of addresses expires by time.
 */
#include "base/nanoseconds.h"
#include "host/private.h"

#include <errno.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netpacket/packet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* ---- one interface ---- */

/* False if ifa holds no IP address. */
static bool address_of(const struct ifaddrs *ifa, struct in6_addr *ip)
{
	if (!ifa->ifa_addr)
		return false;
	if (ifa->ifa_addr->sa_family == AF_INET)
		*ip = vb_ip_from_v4(&((const struct sockaddr_in *)ifa->ifa_addr)->sin_addr);
	else if (ifa->ifa_addr->sa_family == AF_INET6)
		*ip = ((const struct sockaddr_in6 *)ifa->ifa_addr)->sin6_addr;
	else
		return false;
	return true;
}

static uint8_t prefix_of(const struct ifaddrs *ifa)
{
	const uint8_t *mask;
	size_t bytes;
	unsigned bits = 0;

	if (!ifa->ifa_netmask)
		return 0;
	if (ifa->ifa_addr->sa_family == AF_INET) {
		mask = (const uint8_t *)&((const struct sockaddr_in *)ifa->ifa_netmask)->sin_addr;
		bytes = 4;
	} else {
		mask = (const uint8_t *)&((const struct sockaddr_in6 *)ifa->ifa_netmask)->sin6_addr;
		bytes = 16;
	}
	for (size_t i = 0; i < bytes; i++)
		bits += (unsigned)__builtin_popcount(mask[i]);
	return (uint8_t)bits;
}

/* Addresses are ordered: IPv4, then link-local IPv6, then other IPv6; the kernel's order within each. */
static unsigned address_class(const struct in6_addr *ip)
{
	return vb_ip_is_v4(ip) ? 0 : IN6_IS_ADDR_LINKLOCAL(ip) ? 1 : 2;
}

static void add_address(struct vb_netif *nif, const struct in6_addr *ip, uint8_t prefix_len)
{
	if (nif->naddrs == VB_NETIF_MAX_ADDRS)
		return;
	unsigned at = nif->naddrs;
	for (unsigned i = 0; i < nif->naddrs; i++)
		if (IN6_ARE_ADDR_EQUAL(&nif->addrs[i].ip, ip))
			return;
	while (at && address_class(&nif->addrs[at - 1].ip) > address_class(ip))
		at--;
	memmove(&nif->addrs[at + 1], &nif->addrs[at], (nif->naddrs - at) * sizeof nif->addrs[0]);
	nif->addrs[at] = (struct vb_netif_addr){ .ip = *ip, .prefix_len = prefix_len };
	nif->naddrs++;
}

static struct ifreq request_of(const char *name)
{
	struct ifreq r = { 0 };
	memcpy(r.ifr_name, name, strnlen(name, sizeof r.ifr_name - 1));
	return r;
}

static unsigned read_mtu(int sock, const char *name)
{
	struct ifreq r = request_of(name);
	return ioctl(sock, SIOCGIFMTU, &r) == 0 && r.ifr_mtu > 0 ? (unsigned)r.ifr_mtu : 1500;
}

/* Drivers that have no link tell a number all the same: 10 Gbit/s of veth, 10 Mbit/s of tun. */
static bool tells_a_constant(int sock, const char *name)
{
	static const char drivers[][sizeof((struct ethtool_drvinfo){ 0 }.driver)] = { "veth", "tun" };
	struct ethtool_drvinfo info = { .cmd = ETHTOOL_GDRVINFO };
	struct ifreq r = request_of(name);
	r.ifr_data = (char *)&info;
	if (ioctl(sock, SIOCETHTOOL, &r) < 0)
		return false;
	for (size_t i = 0; i < VB_ARRAY_LEN(drivers); i++)
		if (!strncmp(info.driver, drivers[i], sizeof info.driver))
			return true;
	return false;
}

/*
 * 0 where the driver does not know. The first call tells how many words a mask of modes has, negated, and the
 * second wants to hear that. The files of /sys may be those of another network namespace.
 */
static uint32_t read_speed(int sock, const char *name)
{
	enum { MASKS = 3, MOST_WORDS = 127 };
	union {
		struct ethtool_link_settings head;
		char room[sizeof(struct ethtool_link_settings) + MASKS * MOST_WORDS * sizeof(uint32_t)];
	} link = { .head.cmd = ETHTOOL_GLINKSETTINGS };
	struct ifreq r = request_of(name);
	r.ifr_data = (char *)&link;
	if (tells_a_constant(sock, name) || ioctl(sock, SIOCETHTOOL, &r) < 0 ||
	    link.head.link_mode_masks_nwords >= 0)
		return 0;
	int8_t words = (int8_t)-link.head.link_mode_masks_nwords;
	link.head = (struct ethtool_link_settings){ .cmd = ETHTOOL_GLINKSETTINGS,
						    .link_mode_masks_nwords = words };
	if (ioctl(sock, SIOCETHTOOL, &r) < 0 || link.head.speed > INT32_MAX)
		return 0;
	return link.head.speed;
}

/* ---- the list ---- */

static bool is_link(const struct ifaddrs *ifa)
{
	return ifa->ifa_addr && ifa->ifa_addr->sa_family == AF_PACKET;
}

/*
 * The name of an address is its label, such as "eth0:1". The interface's name is what precedes the colon.
 */
static bool has_name(const struct ifaddrs *ifa, const char *name)
{
	size_t n = strcspn(ifa->ifa_name, ":");
	return strlen(name) == n && memcmp(ifa->ifa_name, name, n) == 0;
}

static void fill(struct vb_netif *nif, int sock, const struct ifaddrs *link, const struct ifaddrs *all)
{
	const struct sockaddr_ll *ll = (const struct sockaddr_ll *)link->ifa_addr;
	struct in6_addr ip;

	memset(nif, 0, sizeof *nif);
	snprintf(nif->name, sizeof nif->name, "%s", link->ifa_name);
	nif->index = (unsigned)ll->sll_ifindex;
	nif->mtu = read_mtu(sock, nif->name);
	if (ll->sll_halen == sizeof nif->mac)
		memcpy(nif->mac, ll->sll_addr, sizeof nif->mac);
	nif->loopback = link->ifa_flags & IFF_LOOPBACK;
	nif->up = link->ifa_flags & IFF_UP;
	nif->running = link->ifa_flags & IFF_RUNNING;
	nif->speed_mbps = nif->up ? read_speed(sock, nif->name) : 0;
	for (const struct ifaddrs *ifa = all; ifa; ifa = ifa->ifa_next)
		if (has_name(ifa, nif->name) && address_of(ifa, &ip))
			add_address(nif, &ip, prefix_of(ifa));
}

/* Loopback, whatever has an address, and Ethernet that is up. */
static bool is_usable(const struct vb_netif *nif, const struct ifaddrs *link)
{
	const struct sockaddr_ll *ll = (const struct sockaddr_ll *)link->ifa_addr;
	return nif->loopback || nif->naddrs || (ll->sll_hatype == ARPHRD_ETHER && nif->up);
}

static int by_index_loopback_last(const void *a, const void *b)
{
	const struct vb_netif *x = a, *y = b;
	if (x->loopback != y->loopback)
		return x->loopback - y->loopback;
	return (x->index > y->index) - (x->index < y->index);
}

static int read_list(struct vb_netif **list, unsigned *count)
{
	struct ifaddrs *all;
	if (getifaddrs(&all) < 0)
		return -errno;
	unsigned n = 0, links = 0;
	for (const struct ifaddrs *ifa = all; ifa; ifa = ifa->ifa_next)
		links += is_link(ifa);
	struct vb_netif *nifs = malloc((links + 1) * sizeof *nifs);
	int sock = nifs ? socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1; /* for ioctls */
	if (sock < 0) {
		int err = nifs ? -errno : -ENOMEM;
		free(nifs);
		freeifaddrs(all);
		return err;
	}
	for (const struct ifaddrs *ifa = all; ifa; ifa = ifa->ifa_next) {
		if (!is_link(ifa))
			continue;
		fill(&nifs[n], sock, ifa, all);
		n += is_usable(&nifs[n], ifa);
	}
	close(sock);
	freeifaddrs(all);
	qsort(nifs, n, sizeof *nifs, by_index_loopback_last);
	*list = nifs;
	*count = n;
	return 0;
}

/* ---- local addresses ---- */

enum { REFRESH_NS = 10 * VB_NS_PER_MS, EXPIRE_NS = 100 * VB_NS_PER_MS };

static struct {
	struct in6_addr *ips; /* sorted */
	size_t count;
	uint64_t read_at_ns; /* 0: never */
} cache; /* under the host lock */

static atomic_bool cache_is_stale;
/* Under the host lock: the cached list is outdated; the rtnetlink socket works. */
static bool list_is_stale, has_notices;

static int compare_ips(const void *a, const void *b) { return memcmp(a, b, sizeof(struct in6_addr)); }

static void cache_read_locked(uint64_t now)
{
	struct ifaddrs *all;
	size_t n = 0;

	/* before reading: what changes meanwhile makes it stale again */
	atomic_store(&cache_is_stale, false);
	cache.read_at_ns = now;
	if (getifaddrs(&all) < 0)
		return;
	for (const struct ifaddrs *ifa = all; ifa; ifa = ifa->ifa_next)
		n++;
	struct in6_addr *ips = malloc((n + 1) * sizeof *ips);
	if (ips) {
		n = 0;
		for (const struct ifaddrs *ifa = all; ifa; ifa = ifa->ifa_next)
			n += address_of(ifa, &ips[n]);
		qsort(ips, n, sizeof *ips, compare_ips);
		free(cache.ips);
		cache.ips = ips;
		cache.count = n;
	}
	freeifaddrs(all);
}

static bool cache_has_locked(const struct in6_addr *ip)
{
	return cache.count && bsearch(ip, cache.ips, cache.count, sizeof *ip, compare_ips);
}

bool vb_netif_is_local(const struct in6_addr *ip)
{
	if (vb_ip_is_loopback(ip))
		return true;
	uint64_t now = vb_now_ns();
	vb_host_lock();
	uint64_t age = cache.read_at_ns ? now - cache.read_at_ns : UINT64_MAX;
	if (atomic_load(&cache_is_stale) || age == UINT64_MAX || (!has_notices && age > EXPIRE_NS)) {
		cache_read_locked(now);
		age = 0;
	}
	bool found = cache_has_locked(ip);
	if (!found && age > REFRESH_NS) {
		cache_read_locked(now);
		found = cache_has_locked(ip);
	}
	vb_host_unlock();
	return found;
}

/* ---- changes ---- */

static _Atomic(void (*)(void *)) changed_handler;
static void *_Atomic changed_arg;

static bool is_change(const struct nlmsghdr *h)
{
	return h->nlmsg_type == RTM_NEWLINK || h->nlmsg_type == RTM_DELLINK ||
	       h->nlmsg_type == RTM_NEWADDR || h->nlmsg_type == RTM_DELADDR;
}

/* Reads and marks at once: whoever lists interfaces sees the notice in the socket, or the mark. */
static ssize_t receive_notices(int fd, void *bytes, size_t size)
{
	vb_host_lock();
	ssize_t n = recv(fd, bytes, size, MSG_DONTWAIT);
	int err = n < 0 ? errno : 0;
	list_is_stale |= err != EAGAIN;
	vb_host_unlock();
	return n < 0 ? -err : n;
}

/* An overrun (ENOBUFS) lost messages, and so counts as a change. */
static bool read_changes(int fd)
{
	static union {
		struct nlmsghdr header;
		char bytes[16384];
	} buffer; /* the progress thread's alone */
	bool changed = false;

	for (;;) {
		ssize_t n = receive_notices(fd, &buffer, sizeof buffer);
		if (n == -ENOBUFS) {
			changed = true;
			continue;
		}
		if (n <= 0)
			return changed;
		unsigned left = (unsigned)n;
		for (const struct nlmsghdr *h = &buffer.header; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left))
			changed |= is_change(h);
	}
}

static void tell_changes(void)
{
	atomic_store(&cache_is_stale, true);
	void (*changed)(void *) = atomic_load(&changed_handler);
	if (changed)
		changed(atomic_load(&changed_arg));
}

static void notices_ready(struct vb_watch *w, uint32_t epoll_events)
{
	if (read_changes(w->fd))
		tell_changes();
}

static struct vb_watch notices = { .fd = -1, .ready = notices_ready };

int vb_netif_watch(void (*changed)(void *arg), void *arg)
{
	atomic_store(&changed_arg, arg);
	atomic_store(&changed_handler, changed);
	return 0;
}

static int subscribe_locked(void)
{
	struct sockaddr_nl groups = { .nl_family = AF_NETLINK,
				      .nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR };
	int fd = vb_fd_own(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
	if (fd < 0)
		return -errno;
	notices.fd = fd;
	int err = bind(fd, (const struct sockaddr *)&groups, sizeof groups) < 0 ? -errno : 0;
	if (!err)
		err = vb_watch_start(&notices, EPOLLIN);
	if (err) {
		vb_fd_close_locked(fd);
		notices.fd = -1;
		return err;
	}
	has_notices = true;
	atomic_store(&cache_is_stale, true); /* they may be older than the subscription */
	list_is_stale = true;
	return 0;
}

/* Changes until now were not told. */
static void subscribe_again(struct vb_timer *t, uint64_t now_ns)
{
	vb_host_lock();
	vb_netif_start_locked();
	bool is_new = has_notices;
	vb_host_unlock();
	if (is_new)
		tell_changes();
}

static struct vb_timer again = { .fire = subscribe_again };

void vb_netif_start_locked(void)
{
	if (vb_is_short(subscribe_locked()))
		vb_timer_set(&again, vb_now_ns() + VB_SHORT_NS);
}

void vb_netif_forget(void)
{
	has_notices = false;
	atomic_store(&cache_is_stale, true);
}

/* ---- the cached list ---- */

static struct {
	struct vb_netif *list; /* NULL: none */
	unsigned count;
} last; /* under the host lock */

static int copy_of(const struct vb_netif *from, unsigned n, struct vb_netif **list, unsigned *count)
{
	struct vb_netif *copy = malloc((n + 1) * sizeof *copy);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, from, n * sizeof *copy);
	*list = copy;
	*count = n;
	return 0;
}

static bool has_unread_locked(void)
{
	char byte;
	return recv(notices.fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) >= 0 || errno != EAGAIN;
}

/*
 * The kernel queues notices before the call that makes a change returns. But of an IPv6 address that is not
 * probed (IFA_F_NODAD) it tells a little later: who misses one calls vb_netif_expire.
 */
static bool last_holds_locked(void)
{
	return has_notices && last.list && !has_unread_locked() && !list_is_stale;
}

void vb_netif_expire(void)
{
	vb_host_lock();
	list_is_stale = true;
	vb_host_unlock();
}

static int renew_locked(void)
{
	struct vb_netif *list = NULL;
	unsigned count = 0;
	list_is_stale = false; /* before reading: what changes meanwhile makes it stale again */
	int err = read_list(&list, &count);
	if (err) {
		list_is_stale = true;
		return err;
	}
	free(last.list);
	last.list = list;
	last.count = count;
	return 0;
}

int vb_netif_list(struct vb_netif **list, unsigned *count)
{
	vb_host_lock();
	int err = last_holds_locked() ? 0 : renew_locked();
	if (!err)
		err = copy_of(last.list, last.count, list, count);
	vb_host_unlock();
	return err;
}

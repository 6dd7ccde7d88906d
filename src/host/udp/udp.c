/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The receiving sockets, one per IP version on port 4791, and when they wake the progress thread. Sockets and
 * the watches' wish are written under the host lock.
 */
#include "host/net/holder.h"
#include "host/udp/udp_private.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/log.h"

enum { RECEIVE_BUFFER_BYTES = 16 << 20 };

/* [0] IPv6, [1] IPv4 */
static struct vb_watch watches[2] = { { .ready = vb_udp_socket_ready }, { .ready = vb_udp_socket_ready } };
static atomic_bool is_open, wants_wake = true;

/* ---- opening ---- */

struct option {
	int level, name, value;
	bool required;
};

static const struct option ipv4_options[] = {
	{ SOL_SOCKET, SO_REUSEPORT, 1, true }, { IPPROTO_IP, IP_PKTINFO, 1, true },
	{ IPPROTO_IP, IP_RECVTOS, 1, false }, { IPPROTO_IP, IP_RECVTTL, 1, false },
	{ IPPROTO_IP, IP_MULTICAST_ALL, 0, false },
};

static const struct option ipv6_options[] = {
	{ SOL_SOCKET, SO_REUSEPORT, 1, true }, { IPPROTO_IPV6, IPV6_V6ONLY, 1, true },
	{ IPPROTO_IPV6, IPV6_RECVPKTINFO, 1, true }, { IPPROTO_IPV6, IPV6_RECVTCLASS, 1, false },
	{ IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1, false }, { IPPROTO_IPV6, IPV6_FLOWINFO, 1, false },
	{ IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0, false },
	{ IPPROTO_UDP, UDP_NO_CHECK6_RX, 1, false }, /* RoCE senders may leave the checksum out: there is the ICRC */
};

static const struct option common_options[] = {
	{ IPPROTO_UDP, UDP_GRO, 1, false },
	{ SOL_SOCKET, SO_RCVBUF, RECEIVE_BUFFER_BYTES, false }, { SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES, false },
};

static int set_options(int fd, const struct option *options, size_t count)
{
	for (const struct option *o = options; o < options + count; o++)
		if (setsockopt(fd, o->level, o->name, &o->value, sizeof o->value) < 0 && o->required)
			return -errno;
	return 0;
}

static int set_receive_options(int fd, bool ipv4)
{
	int err = ipv4 ? set_options(fd, ipv4_options, VB_ARRAY_LEN(ipv4_options))
		       : set_options(fd, ipv6_options, VB_ARRAY_LEN(ipv6_options));
	return err ? err : set_options(fd, common_options, VB_ARRAY_LEN(common_options));
}

static int bind_receiver(int fd, bool ipv4)
{
	union vb_ip_address address = vb_ip_address(&in6addr_any, ipv4, VB_ROCE_PORT);
	int err = set_receive_options(fd, ipv4);
	if (!err && bind(fd, &address.any, vb_ip_address_bytes(ipv4)) < 0)
		err = -errno;
	return err;
}

static int open_receiver_locked(bool ipv4)
{
	int fd = vb_fd_own(socket(ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (fd < 0)
		return -errno;
	int err = bind_receiver(fd, ipv4);
	watches[ipv4].fd = fd;
	if (!err)
		err = vb_watch_start(&watches[ipv4], wants_wake ? EPOLLIN : 0);
	if (err) {
		vb_fd_close_locked(fd);
		return err;
	}
	return fd;
}

__attribute__((cold)) static void explain_taken(bool ipv4)
{
	static bool is_reported;
	struct vb_holder holder;
	char owner[VB_OWNER_TEXT];
	if (is_reported || !vb_holders_of_udp(ipv4, VB_ROCE_PORT, &holder, 1))
		return;
	is_reported = true;
	vb_owner_of_sockets(&holder.inode, 1, holder.uid, owner);
	vb_explain(
		"host",
		"UDP port %d is held by %s: what comes over the wire comes there first, to be read, and is handed on if that is a "
		"process on verbatim",
		VB_ROCE_PORT, holder.inode ? owner : "the kernel (rdma_rxe)");
}

static int try_receiver_locked(bool ipv4)
{
	int fd = open_receiver_locked(ipv4);
	vb_udp_set_receiver(ipv4, fd);
	if (fd == -EADDRINUSE && vb_is_explaining())
		explain_taken(ipv4);
	if (fd >= 0) {
		vb_udp_rejoin_locked(ipv4);
		vb_udp_steer_opened();
	}
	return fd;
}

static void retry(struct vb_timer *t, uint64_t now_ns);
static struct vb_timer retry_timer = { .fire = retry };

/* One IP version is enough: a machine may have only one. */
static int open_locked(void)
{
	bool any = false, again = false;
	for (int ipv4 = 1; ipv4 >= 0; ipv4--) {
		int fd = vb_udp_receiver(ipv4);
		if (fd < 0)
			fd = try_receiver_locked(ipv4);
		any |= fd >= 0 || fd == -EADDRINUSE;
		again |= vb_udp_may_come(fd);
	}
	if (again)
		vb_timer_set(&retry_timer, vb_now_ns() + VB_SHORT_NS);
	if (any)
		atomic_store(&is_open, true);
	return any ? 0 : vb_udp_receiver(true);
}

static void retry(struct vb_timer *t, uint64_t now_ns)
{
	vb_host_lock();
	open_locked();
	vb_host_unlock();
}

int vb_udp_open(void)
{
	if (is_open)
		return 0;
	vb_host_lock();
	int err = is_open ? 0 : open_locked();
	vb_host_unlock();
	return err;
}

bool vb_udp_is_open(void) { return atomic_load_explicit(&is_open, memory_order_relaxed); }

/*
 * An event mask of 0, because vb_watch_stop would wait for a callback that runs, which may want the caller's
 * locks.
 */
void vb_udp_watch(bool wake)
{
	if (atomic_load_explicit(&wants_wake, memory_order_relaxed) == wake)
		return;
	vb_host_lock();
	atomic_store(&wants_wake, wake);
	for (int ipv4 = 1; ipv4 >= 0; ipv4--)
		if (vb_udp_receiver(ipv4) >= 0)
			vb_watch_start(&watches[ipv4], wake ? EPOLLIN : 0);
	vb_host_unlock();
}

/* ---- fork ---- */

void vb_udp_forget(void)
{
	vb_udp_receive_forget();
	vb_udp_member_forget();
	atomic_store(&is_open, false);
	atomic_store(&wants_wake, true);
	vb_udp_send_forget();
	vb_udp_steer_forget();
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a kernel, or what stands in for one (an emulator of single programs, a sandbox), cannot do: found out
 * by trying, so that a test can say why it is left out.
 */
#ifndef VB_TEST_KERNEL_H
#define VB_TEST_KERNEL_H

#include <errno.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

/*
 * Ends a case that cannot be run here. In TAP, cmocka's skip() is a failure; so the case passes, and is
 * counted by what it says.
 */
#define SKIP(why)                                                              \
	do {                                                                   \
		fprintf(stderr, "# %s: skipped: %s\n", __func__, why);         \
		return;                                                        \
	} while (0)

/* execve() says ENOEXEC. */
#define NO_PROGRAMS "programs of this architecture are not started here"

#define NO_COPIES "processes cannot copy from each other here (process_vm_readv)"
static inline bool kernel_copies(void)
{
	char from = 1, to = 0;
	struct iovec here = { &to, 1 }, there = { &from, 1 };
	return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1;
}

#define NOT_TOLD "this kernel does not tell whether memory is there (madvise succeeds where there is none)"
static inline bool kernel_tells_what_is_mapped(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *hole = mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(hole, page);
	return madvise(hole, page, MADV_POPULATE_READ) < 0;
}

#define STAY_OPEN "descriptors that find no room beside the sender's name stay open here"
static inline bool kernel_drops_descriptors(void)
{
	int pair[2], before, after, on = 1;
	char byte = 0, name[CMSG_SPACE(sizeof(struct ucred))];
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { .header = { .cmsg_len = CMSG_LEN(sizeof(int)),
				  .cmsg_level = SOL_SOCKET,
				  .cmsg_type = SCM_RIGHTS } };
	struct iovec iov = { &byte, 1 };
	struct msghdr with = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
	};
	struct msghdr without = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = name, .msg_controllen = sizeof(name)
	};
	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) ||
	    setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)))
		return true;
	memcpy(CMSG_DATA(&control.header), &pair[0], sizeof(int));
	close(before = dup(pair[0]));
	bool passed = sendmsg(pair[0], &with, 0) == 1 && recvmsg(pair[1], &without, 0) == 1;
	close(after = dup(pair[0]));
	close(pair[0]);
	close(pair[1]);
	return passed && before == after;
}

#define NO_FLOW_LABELS "IPv6 packets come without their flow labels here"
static inline bool kernel_tells_flow_labels(void)
{
	int s = socket(AF_INET6, SOCK_DGRAM, 0), on = 1;
	bool told = !setsockopt(s, IPPROTO_IPV6, 11 /* IPV6_FLOWINFO */, &on, sizeof(on));
	close(s);
	return told;
}

#define NO_STEERING "packets are not steered between the sockets of a port here (SO_ATTACH_REUSEPORT_CBPF)"
static inline bool kernel_steers(void)
{
	struct { uint16_t code; uint8_t jt, jf; uint32_t k; } all = { 0x06 /* ret */, 0, 0, 0 };
	struct { unsigned short len; void *filter; } program = { 1, &all };
	int s = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
	bool attached = !setsockopt(s, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) &&
			!setsockopt(s, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof(program));
	close(s);
	return attached;
}

/* True also without the right to a packet socket: then none is asked for. */
static inline bool packet_sockets_have(int option)
{
	int s = socket(AF_PACKET, SOCK_RAW, 0), on = 1;
	bool have = s < 0 || !setsockopt(s, SOL_PACKET, option, &on, sizeof(on));
	close(s);
	return have;
}

#define NO_VLAN_TAGS "packet sockets do not tell the VLAN tags of frames here (PACKET_AUXDATA)"
static inline bool kernel_tells_vlan_tags(void) { return packet_sockets_have(8 /* PACKET_AUXDATA */); }

#define NO_JOINED "packet sockets do not tell of frames that are not cut yet here (PACKET_VNET_HDR)"
static inline bool kernel_tells_joined(void) { return packet_sockets_have(15 /* PACKET_VNET_HDR */); }

#define NO_SPEEDS "the speeds of interfaces are not told here (SIOCETHTOOL)"
/* The loopback has none, which is another error than that of a kernel without the question. */
static inline bool kernel_tells_speeds(void)
{
	uint32_t link[32] = { 0x4c /* ETHTOOL_GLINKSETTINGS */ };
	struct ifreq r = { .ifr_name = "lo", .ifr_data = (char *)link };
	int s = socket(AF_INET, SOCK_DGRAM, 0);
	bool told = !ioctl(s, SIOCETHTOOL, &r) || errno == EOPNOTSUPP;
	close(s);
	return told;
}

/* It cannot be tried in short. */
#define NO_JOINED_DATAGRAMS "packet sockets do not tell of datagrams that are not cut yet before Linux 6.2"
static inline bool kernel_tells_joined_datagrams(void)
{
	struct utsname u;
	unsigned major = 0, minor = 0;
	uname(&u);
	sscanf(u.release, "%u.%u", &major, &minor);
	return kernel_tells_joined() && (major > 6 || (major == 6 && minor >= 2));
}

#define NO_TIMEOUTS "a socket's timeouts cannot be asked for here (SO_RCVTIMEO)"
static inline bool kernel_tells_timeouts(void)
{
	struct timeval set = { .tv_sec = 5 }, told = { 0 };
	int s = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t bytes = sizeof(told);
	bool same = !setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &set, sizeof(set)) &&
		    !getsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &told, &bytes) && told.tv_sec == set.tv_sec;
	close(s);
	return same;
}

#define NO_MTU "the MTU of a route cannot be asked for here (IP_MTU)"
static inline bool kernel_tells_mtu(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = 9,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int s = socket(AF_INET, SOCK_DGRAM, 0), mtu = 0;
	socklen_t bytes = sizeof(mtu);
	bool told = !connect(s, (struct sockaddr *)&to, sizeof(to)) &&
		    !getsockopt(s, IPPROTO_IP, IP_MTU, &mtu, &bytes) && mtu > 0;
	close(s);
	return told;
}

#endif

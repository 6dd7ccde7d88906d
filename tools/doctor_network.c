/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the wire needs: interfaces, UDP port 4791, buffers, groups, and a firewall that lets packets through.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "command.h"
#include "describe.h"
#include "doctor.h"
#include "adapter/device/device.h"
#include "host/net/holder.h"
#include "host/host.h"
#include "host/udp/udp_probe.h"

enum {
	MAX_HOLDERS = 256,
	ROCE_PORT = 4791,
	WANTED_BUFFER = 16 << 20,
	PACKET_WAIT_MS = 300,
	GROUPS = 64,
	DGRAMS = 64,
};

/* ---- interfaces ---- */

/*
 * Its device with both MTUs, in bytes: its own, and the path MTU that packets of the wire then have. An
 * address may have a label that begins with the interface's name, such as eth0:1.
 */
static void describe_interface(const char *label, char *text, size_t room)
{
	struct ifreq r = { 0 };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(r.ifr_name, sizeof(r.ifr_name), "%.*s", (int)strcspn(label, ":"), label);
	if (fd >= 0 && ioctl(fd, SIOCGIFMTU, &r) == 0)
		snprintf(text, room, "vb_%s (MTU %d, path MTU %u)", r.ifr_name, r.ifr_mtu,
			 128u << vb_mtu_for((unsigned)r.ifr_mtu));
	else
		snprintf(text, room, "vb_%s (MTU unknown)", r.ifr_name);
	if (fd >= 0)
		close(fd);
}

void check_interfaces(struct finding *f)
{
	struct ifaddrs *all, *a;
	char names[480] = "", text[64];
	bool loopback = false;

	if (getifaddrs(&all))
		return found(f, "unknown: %s", strerror(errno));
	for (a = all; a; a = a->ifa_next) {
		bool usable = a->ifa_addr &&
			      (a->ifa_addr->sa_family == AF_INET || a->ifa_addr->sa_family == AF_INET6) &&
			      (a->ifa_flags & IFF_UP);
		loopback |= usable && (a->ifa_flags & IFF_LOOPBACK);
		if (!usable)
			continue;
		describe_interface(a->ifa_name, text, sizeof(text));
		if (!strstr(names, text) && strlen(names) + strlen(text) + 2 < sizeof(names))
			snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s",
				 names[0] ? ", " : "", text);
	}
	freeifaddrs(all);
	found(f, "%s", names[0] ? names : "none with an address is up");
	if (loopback)
		return;
	means(f, names[0] ? FINDING_NOTE : FINDING_BAD, "127.0.0.1 is no address of a device");
	mend(f, "ip link set lo up");
}

/* ---- the port ---- */

/* The sockets that have the port, of both IP versions. */
static unsigned find_holders(struct vb_holder holders[MAX_HOLDERS])
{
	unsigned n = vb_holders_of_udp(true, ROCE_PORT, holders, MAX_HOLDERS);

	return n + vb_holders_of_udp(false, ROCE_PORT, holders + n, MAX_HOLDERS - n);
}

static int bind_port(int family, int *fd)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(ROCE_PORT) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(ROCE_PORT) };
	int one = 1;

	*fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (*fd < 0)
		return errno;
	setsockopt(*fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
	if (family == AF_INET6)
		setsockopt(*fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	return bind(*fd, family == AF_INET ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6,
		    family == AF_INET ? sizeof(v4) : sizeof(v6)) ? errno : 0;
}

/* A packet to the port of this host. */
static bool packet_arrives(int fd)
{
	struct sockaddr_in to = {
		.sin_family = AF_INET, .sin_port = htons(ROCE_PORT), .sin_addr = { htonl(INADDR_LOOPBACK) },
	};
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool arrived = s >= 0 && sendto(s, "doctor", 6, 0, (struct sockaddr *)&to, sizeof(to)) == 6 &&
		       poll(&p, 1, PACKET_WAIT_MS) == 1;

	if (s >= 0)
		close(s);
	return arrived;
}

/*
 * Does whoever has the port say that it is a process on verbatim? Such a one answers what others ask to learn
 * who is where (host/udp/udp_probe.h). Any other program can answer, too.
 */
static bool holder_answers(void)
{
	struct vb_udp_probe question = { .magic = { htonl(VB_PROBE_MAGIC), htonl(VB_PROBE_STEER_MAGIC) } };
	struct vb_udp_probe answer = { 0 };
	struct sockaddr_in to = {
		.sin_family = AF_INET, .sin_port = htons(ROCE_PORT), .sin_addr = { htonl(INADDR_LOOPBACK) },
	};
	struct pollfd p = { .fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), .events = POLLIN };
	bool answers = p.fd >= 0 && connect(p.fd, (struct sockaddr *)&to, sizeof(to)) == 0 &&
		       send(p.fd, &question, sizeof(question), 0) == sizeof(question) &&
		       poll(&p, 1, PACKET_WAIT_MS) == 1 &&
		       recv(p.fd, &answer, sizeof(answer), 0) == sizeof(answer) &&
		       answer.magic[0] == htonl(VB_PROBE_ANSWER_MAGIC);

	if (p.fd >= 0)
		close(p.fd);
	return answers;
}

static void explain_taken(struct finding *f, const struct vb_holder *holder)
{
	char owner[VB_OWNER_TEXT];

	if (holder && !holder->inode) {
		found(f, "it is held by the kernel (rdma_rxe)");
		means(f, FINDING_BAD,
		      "nothing comes from other hosts, nor from processes with VERBATIM_LOCAL=off");
		mend(f, "take the kernel's device away: rdma link delete rxe0; "
			"or use a network namespace of your own");
		return;
	}
	vb_owner_of_sockets(holder ? &holder->inode : NULL, holder != NULL, holder ? holder->uid : (uid_t)-1,
			    owner);
	if (holder_answers()) {
		found(f, "it is held by another user, who says that it is for verbatim: %s", owner);
		means(f, FINDING_BAD,
		      "within this host all works; what comes over the wire comes to that process, which can "
		      "read, change and drop it, and hands it on only if it is what it says");
		mend(f, "unless you trust that user: use a network namespace of your own");
		return;
	}
	found(f, "it is held by another program: %s", owner);
	means(f, FINDING_BAD,
	      "nothing comes from other hosts, nor from processes of other users or with VERBATIM_LOCAL=off; "
	      "and that program can read what was to come");
	mend(f, "end that program (ss -aunp sport = :%d), or use a network namespace of your own", ROCE_PORT);
}

void check_port(struct finding *f)
{
	struct vb_holder holders[MAX_HOLDERS];
	unsigned count = find_holders(holders);
	int fd = -1, err = bind_port(AF_INET, &fd);

	if (err == EADDRINUSE) {
		explain_taken(f, count ? holders : NULL);
	} else if (err) {
		found(f, "it cannot be had: %s", strerror(err));
		means(f, FINDING_BAD, "nothing comes from other hosts");
		mend(f, "let the sandbox allow UDP sockets");
	} else if (count) {
		found(f, "%u sockets of this user's processes share it", count);
	} else if (packet_arrives(fd)) {
		found(f, "it is free, and packets to 127.0.0.1 arrive");
	} else {
		found(f, "it is free, but a packet to 127.0.0.1 does not arrive");
		means(f, FINDING_BAD, "nothing arrives over the wire");
		mend(f, "let UDP port %d through the firewall, and see that lo is up", ROCE_PORT);
	}
	if (fd >= 0)
		close(fd);
}

/* ---- slots ---- */

static bool can_bind(int type, const char *kind, unsigned slot)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	int n = snprintf(un.sun_path + 1, sizeof(un.sun_path) - 1, "verbatim/%s/%u", kind, slot);
	socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
	bool can = fd >= 0 && bind(fd, (struct sockaddr *)&un, len) == 0;

	if (fd >= 0)
		close(fd);
	return can;
}

/* As a process would take it that begins to use a device. */
static bool is_slot_free(unsigned slot)
{
	char link[16];

	snprintf(link, sizeof(link), "link/%d", VB_LINK_VERSION);
	return can_bind(SOCK_DGRAM, "slot", slot) && can_bind(SOCK_SEQPACKET, link, slot);
}

void check_slots(struct finding *f)
{
	static unsigned long inodes[2 * VB_SLOT_COUNT];
	char owner[VB_OWNER_TEXT];
	unsigned taken, count = vb_holders_of_slots(VB_LINK_VERSION, inodes, VB_SLOT_COUNT, &taken);
	unsigned slot = VB_SLOT_COUNT - 1;

	while (slot && !is_slot_free(slot))
		slot--;
	if (slot) {
		found(f, "%u of %u are taken", taken, VB_SLOT_COUNT - 1);
		return;
	}
	vb_owner_of_sockets(inodes, count, (uid_t)-1, owner);
	found(f, "none is free: %u of %u are taken, most by %s", taken, VB_SLOT_COUNT - 1, owner);
	means(f, FINDING_BAD, "no device can be opened (EADDRNOTAVAIL)");
	mend(f, "end what holds them (ss -xlp src @verbatim/*), or use a network namespace of your own");
}

/* ---- the kernel ---- */

void check_kernel_rdma(struct finding *f)
{
	DIR *folder = opendir("/sys/class/infiniband");
	const struct dirent *entry;
	char names[200] = "";

	while (folder && (entry = readdir(folder)))
		if (entry->d_name[0] != '.' && strlen(names) + strlen(entry->d_name) + 3 < sizeof(names))
			snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s",
				 names[0] ? ", " : "", entry->d_name);
	if (folder)
		closedir(folder);
	if (names[0])
		found(f, "the kernel has %s; programs on verbatim do not see these", names);
	else
		found(f, "no device of the kernel's");
}

/* ---- the firewall ---- */

/* The rules as the tools show them; false: they cannot be read. The caller frees *rules. */
static bool read_rules(char **rules)
{
	size_t bytes = 0, n;
	char piece[4096];
	FILE *out = open_memstream(rules, &bytes);
	FILE *tool = popen("PATH=$PATH:/usr/sbin:/sbin; exec 2>/dev/null; if command -v nft >/dev/null; then "
			   "nft list ruleset; else iptables-save && ip6tables-save; fi", "re");

	while (tool && (n = fread(piece, 1, sizeof(piece), tool)) > 0)
		fwrite(piece, 1, n, out);
	fclose(out);
	return tool && pclose(tool) == 0;
}

static bool forbids(const char *rule)
{
	return strstr(rule, "drop") || strstr(rule, "reject") || strstr(rule, "DROP") ||
	       strstr(rule, "REJECT");
}

/* What nft counts beside a rule is no port. */
static bool is_count(const char *rule, const char *at)
{
	static const char *const words[] = { "packets ", "bytes " };
	bool found = false;

	for (size_t i = 0; i < VB_ARRAY_LEN(words); i++) {
		size_t n = strlen(words[i]);
		found |= (size_t)(at - rule) >= n && strncmp(at - n, words[i], n) == 0;
	}
	return found;
}

/* The whole number, of UDP. */
static bool names_port(const char *rule)
{
	static const char port[] = "4791";
	bool found = false;

	for (const char *at = strstr(rule, port); at; at = strstr(at + 1, port))
		found |= (at == rule || !isdigit((unsigned char)at[-1])) &&
			 !isdigit((unsigned char)at[sizeof(port) - 1]) && !is_count(rule, at);
	return found && (strstr(rule, "udp") || !strstr(rule, "tcp"));
}

/* An input chain whose policy is to drop. */
static bool drops_by_default(const char *rule)
{
	return (strstr(rule, "hook input") && strstr(rule, "policy drop")) || strstr(rule, ":INPUT DROP");
}

static void judge_rules(struct finding *f, char *rules)
{
	char suspicious[300] = "";
	bool closed = false, opened = false;

	for (char *rule = strtok(rules, "\n"); rule; rule = strtok(NULL, "\n")) {
		closed |= drops_by_default(rule);
		opened |= names_port(rule) && !forbids(rule);
		if (names_port(rule) && forbids(rule))
			snprintf(suspicious, sizeof(suspicious), "%s", rule + strspn(rule, " \t"));
	}
	if (suspicious[0])
		found(f, "a rule is about the port: %s", suspicious);
	else if (closed && !opened)
		found(f, "what comes in is dropped unless a rule says otherwise, and none names port %d",
		      ROCE_PORT);
	else
		return found(f, "no rule that drops UDP port %d", ROCE_PORT);
	means(f, FINDING_BAD, "packets of other hosts may not arrive");
	mend(f, "allow them, such as by: nft add rule inet filter input udp dport %d accept", ROCE_PORT);
}

void check_firewall(struct finding *f)
{
	char *rules = NULL;

	if (read_rules(&rules))
		judge_rules(f, rules);
	else
		found(f, "its rules cannot be read (root can, where nft or iptables is installed)");
	free(rules);
}

/* ---- limits ---- */

/* What a socket really gets. */
static int granted_buffer(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), bytes = WANTED_BUFFER;
	socklen_t size = sizeof(bytes);

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes));
	if (getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, &size))
		bytes = -1;
	close(fd);
	return bytes / 2; /* the kernel counts its own share as well */
}

void check_socket_buffers(struct finding *f)
{
	int bytes = granted_buffer();

	found(f, "a socket gets %d of %d KiB (net.core.rmem_max)", bytes >> 10, WANTED_BUFFER >> 10);
	if (bytes >= WANTED_BUFFER)
		return;
	means(f, FINDING_NOTE, "over the wire, bursts may be lost and sent again");
	mend(f, "sysctl net.core.rmem_max=%d net.core.wmem_max=%d", WANTED_BUFFER, WANTED_BUFFER);
}

void check_inbox_queue(struct finding *f)
{
	long n = read_number("/proc/sys/net/unix/max_dgram_qlen");

	found(f, "%ld messages (net.unix.max_dgram_qlen)", n);
	if (n < 0)
		return found(f, "its length is unknown");
	if (n >= DGRAMS)
		return;
	means(f, FINDING_NOTE,
	      "datagrams (UD) between processes of this host wait when more than that are under way");
	mend(f, "sysctl net.unix.max_dgram_qlen=512");
}

void check_multicast(struct finding *f)
{
	long n = read_number("/proc/sys/net/ipv4/igmp_max_memberships");

	if (n < 0)
		return found(f, "the limit is unknown");
	found(f, "%ld of IPv4 per process (net.ipv4.igmp_max_memberships)", n);
	if (n >= GROUPS)
		return;
	means(f, FINDING_NOTE, "joining more groups of IPv4 fails");
	mend(f, "sysctl net.ipv4.igmp_max_memberships=%d", 1024);
}

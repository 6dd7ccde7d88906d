/* SPDX-License-Identifier: BSD-2-Clause */
#include "host/net/holder.h"

#include <ctype.h>
#include <dirent.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/utf8.h"
#include "host/host.h"

/* Linux's, where the C library's headers lack them. */
enum { SHOW_UID = 0x40, DIAG_UID = 7 };

/* ---- tables ---- */

/* The kernel prints addresses as words of its own byte order. */
static bool read_address(const char *hex, bool ipv4, struct in6_addr *address)
{
	*address = (struct in6_addr){ .s6_addr = { [10] = 0xff, [11] = 0xff } };
	for (unsigned at = ipv4 ? 12 : 0; at < sizeof(*address); at += 4, hex += 8) {
		unsigned word;
		if (sscanf(hex, "%8x", &word) != 1)
			return false;
		memcpy(&address->s6_addr[at], &word, sizeof(word));
	}
	return true;
}

static bool read_row(const char *line, bool ipv4, uint16_t port, struct vb_holder *holder)
{
	char address[33];
	unsigned local;
	return sscanf(line, "%*d: %32[0-9A-Fa-f]:%x %*s %*s %*s %*s %*s %u %*d %lu", address, &local,
		      &holder->uid, &holder->inode) == 4 &&
	       local == port && strlen(address) == (ipv4 ? 8 : 32) &&
	       read_address(address, ipv4, &holder->address);
}

unsigned vb_holders_of_udp(bool ipv4, uint16_t port, struct vb_holder *list, unsigned max)
{
	VB_UNCANCELLED;
	FILE *table = fopen(ipv4 ? "/proc/self/net/udp" : "/proc/self/net/udp6", "re");
	char line[512];
	unsigned n = 0;
	while (table && n < max && fgets(line, sizeof(line), table))
		n += read_row(line, ipv4, port, &list[n]);
	if (table)
		fclose(table);
	return n;
}

/* Names count per type of socket. False: no name that a slot goes with. */
static bool read_slot(const char *line, unsigned version, unsigned *kind, unsigned *slot,
		      unsigned long *inode)
{
	unsigned type, v;
	*kind = 0;
	if (sscanf(line, "%*s %*s %*s %*s %x %*s %lu @verbatim/slot/%u", &type, inode, slot) == 3)
		return type == SOCK_DGRAM;
	*kind = 1;
	return sscanf(line, "%*s %*s %*s %*s %x %*s %lu @verbatim/link/%u/%u", &type, inode, &v, slot) == 4 &&
	       type == SOCK_SEQPACKET && v == version;
}

/* One of each name: accepted connections have their listener's, too. */
unsigned vb_holders_of_slots(unsigned version, unsigned long *inodes, unsigned count, unsigned *slots)
{
	VB_UNCANCELLED;
	FILE *table = fopen("/proc/self/net/unix", "re");
	char line[512];
	unsigned kind, slot, n = 0;
	unsigned long inode;
	memset(inodes, 0, 2 * count * sizeof(*inodes));
	while (table && fgets(line, sizeof(line), table))
		if (read_slot(line, version, &kind, &slot, &inode) && slot < count &&
		    !inodes[2 * slot + kind])
			inodes[2 * slot + kind] = inode;
	if (table)
		fclose(table);
	*slots = 0;
	for (slot = 0; slot < count; slot++)
		*slots += inodes[2 * slot] || inodes[2 * slot + 1];
	for (unsigned i = 0; i < 2 * count; i++)
		if (inodes[i])
			inodes[n++] = inodes[i];
	return n;
}

void vb_holders_of_links(unsigned version, uint64_t *slots, unsigned count)
{
	enum { LISTENS = 0x10000 };
	VB_UNCANCELLED;
	FILE *table = fopen("/proc/self/net/unix", "re");
	char line[512];
	unsigned flags, v, slot;
	while (table && fgets(line, sizeof(line), table))
		if (sscanf(line, "%*s %*s %*s %x %*s %*s %*s @verbatim/link/%u/%u", &flags, &v, &slot) == 3 &&
		    (flags & LISTENS) && v == version && slot < count)
			slots[slot / 64] |= UINT64_C(1) << slot % 64;
	if (table)
		fclose(table);
}

/* ---- processes ---- */

static int compare(const void *a, const void *b)
{
	unsigned long x = *(const unsigned long *)a, y = *(const unsigned long *)b;
	return (x > y) - (x < y);
}

/* How many of some sockets, sorted, a process has; none if this one may not see. */
static unsigned count_sockets(const char *pid, const unsigned long *inodes, unsigned count)
{
	char path[300], target[64];
	snprintf(path, sizeof(path), "/proc/%s/fd", pid);
	DIR *folder = opendir(path);
	const struct dirent *entry;
	unsigned n = 0;
	while (folder && (entry = readdir(folder))) {
		unsigned long inode;
		ssize_t bytes = readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1);
		target[bytes > 0 ? bytes : 0] = '\0';
		n += sscanf(target, "socket:[%lu]", &inode) == 1 &&
		     bsearch(&inode, inodes, count, sizeof(inode), compare);
	}
	if (folder)
		closedir(folder);
	return n;
}

/* The process that has most of them; 0: none is seen to have any. */
static pid_t find_process(const unsigned long *inodes, unsigned count)
{
	DIR *folder = opendir("/proc");
	const struct dirent *entry;
	unsigned most = 0;
	pid_t found = 0;
	while (folder && (entry = readdir(folder))) {
		unsigned n = isdigit((unsigned char)entry->d_name[0]) ?
				     count_sockets(entry->d_name, inodes, count) :
				     0;
		if (n > most) {
			most = n;
			found = (pid_t)atoi(entry->d_name);
		}
	}
	if (folder)
		closedir(folder);
	return found;
}

/* ---- the user of a Unix socket: Linux 5.3 ---- */

static uid_t uid_in(const struct nlmsghdr *h, size_t bytes)
{
	if (!NLMSG_OK(h, bytes) || h->nlmsg_type != SOCK_DIAG_BY_FAMILY ||
	    h->nlmsg_len < NLMSG_LENGTH(sizeof(struct unix_diag_msg)))
		return (uid_t)-1;
	size_t left = h->nlmsg_len - NLMSG_LENGTH(sizeof(struct unix_diag_msg));
	const struct rtattr *a =
		(const void *)((const char *)NLMSG_DATA(h) + NLMSG_ALIGN(sizeof(struct unix_diag_msg)));
	for (; RTA_OK(a, left); a = RTA_NEXT(a, left)) {
		uid_t uid;
		if (a->rta_type == DIAG_UID && RTA_PAYLOAD(a) >= sizeof(uid))
			return *(const uid_t *)memcpy(&uid, RTA_DATA(a), sizeof(uid));
	}
	return (uid_t)-1;
}

static uid_t user_of(unsigned long inode)
{
	struct {
		struct nlmsghdr header;
		struct unix_diag_req ask;
	} request = {
		.header = { .nlmsg_len = sizeof(request),
			    .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			    .nlmsg_flags = NLM_F_REQUEST },
		.ask = { .sdiag_family = AF_UNIX,
			 .udiag_states = UINT32_MAX,
			 .udiag_ino = (uint32_t)inode,
			 .udiag_show = SHOW_UID,
			 .udiag_cookie = { UINT32_MAX, UINT32_MAX } },
	};
	union {
		struct nlmsghdr header;
		char bytes[4096];
	} answer;
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	ssize_t n = fd >= 0 && send(fd, &request, sizeof(request), 0) >= 0 ?
			    recv(fd, &answer, sizeof(answer), 0) :
			    -1;
	if (fd >= 0)
		close(fd);
	return n > 0 ? uid_in(&answer.header, (size_t)n) : (uid_t)-1;
}

/* ---- both ---- */

/* 0: nobody listens. */
static unsigned long listener_of(const char *name)
{
	enum { LISTENS = 0x10000 };
	FILE *table = fopen("/proc/self/net/unix", "re");
	char line[512], path[110];
	unsigned long inode, found = 0;
	unsigned flags;
	while (table && !found && fgets(line, sizeof(line), table))
		if (sscanf(line, "%*s %*s %*s %x %*s %*s %lu @%109s", &flags, &inode, path) == 3 &&
		    (flags & LISTENS) && strcmp(path, name) == 0)
			found = inode;
	if (table)
		fclose(table);
	return found;
}

void vb_holder_of_name(const char *name, pid_t *pid, uid_t *uid)
{
	VB_UNCANCELLED;
	unsigned long inode = listener_of(name);
	*pid = inode ? find_process(&inode, 1) : 0;
	*uid = inode ? user_of(inode) : (uid_t)-1;
}

void vb_owner_of_sockets(const unsigned long *inodes, unsigned count, uid_t user, char text[VB_OWNER_TEXT])
{
	VB_UNCANCELLED;
	unsigned long *sorted = calloc(count + 1, sizeof(*sorted));
	char path[64], name[32] = "?", ids[64];
	if (sorted) {
		memcpy(sorted, inodes, count * sizeof(*sorted));
		qsort(sorted, count, sizeof(*sorted), compare);
	}
	pid_t pid = sorted ? find_process(sorted, count) : 0;
	free(sorted);
	if (pid) {
		snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
		if (!vb_file_field(path, "Uid:", ids, sizeof(ids)))
			sscanf(ids, "%*u %u", &user);
		if (vb_file_field(path, "Name:", name, sizeof(name)))
			strcpy(name, "?");
		vb_clean_text(name);
		snprintf(text, VB_OWNER_TEXT, "process %d (%s) of user %u", (int)pid, name, (unsigned)user);
		return;
	}
	if (user == (uid_t)-1 && count)
		user = user_of(inodes[0]);
	if (user == (uid_t)-1)
		snprintf(text, VB_OWNER_TEXT, "a process that this one may not see");
	else
		snprintf(text, VB_OWNER_TEXT, "user %u (which process, root and that user can see)",
			 (unsigned)user);
}

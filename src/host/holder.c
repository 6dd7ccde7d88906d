/* SPDX-License-Identifier: BSD-2-Clause */
#include "host/holder.h"

#include <stdio.h>
#include <string.h>

#include "base/cancel.h"

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
	return sscanf(line, "%*d: %32[0-9A-Fa-f]:%x %*s %*s %*s %*s %*s %u %*d %lu", address, &local, &holder->uid, &holder->inode) == 4 &&
	       local == port && strlen(address) == (ipv4 ? 8 : 32) && read_address(address, ipv4, &holder->address);
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

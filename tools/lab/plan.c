/* SPDX-License-Identifier: BSD-2-Clause */
/* Names and addresses of hosts. */
#include <stdlib.h>
#include <string.h>

#include "lab.h"

void lab_host_v4(unsigned host, char text[LAB_NAME_BYTES])
{
	snprintf(text, LAB_NAME_BYTES, "10.99.0.%u", host + 1);
}

void lab_host_v6(unsigned host, char text[LAB_NAME_BYTES])
{
	snprintf(text, LAB_NAME_BYTES, "fd99::%x", host + 1);
}

void lab_host_mac(unsigned host, uint8_t mac[6])
{
	const uint8_t of_lab[6] = { 0x02, 0x56, 0x42, 0, 0, (uint8_t)(host + 1) };

	memcpy(mac, of_lab, sizeof(of_lab));
}

int lab_find_host(const struct lab_plan *plan, const char *name)
{
	char v4[LAB_NAME_BYTES], v6[LAB_NAME_BYTES];

	for (unsigned host = 0; host < plan->topology.hosts; host++) {
		lab_host_v4(host, v4);
		lab_host_v6(host, v6);
		if (strcmp(name, plan->topology.names[host]) == 0 || strcmp(name, v4) == 0 ||
		    strcmp(name, v6) == 0)
			return (int)host;
	}
	return -1;
}

bool lab_is_name(const char *name)
{
	size_t len = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_");

	return len > 0 && len < LAB_NAME_BYTES && !name[len];
}

bool lab_is_host_verb(const char *verb)
{
	static const char *const verbs[] = { "kill", "start", "pause", "resume" };

	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (strcmp(verbs[i], verb) == 0)
			return true;
	return false;
}

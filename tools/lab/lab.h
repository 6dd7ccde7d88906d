/* SPDX-License-Identifier: BSD-2-Clause */
/* What a lab is made of: its hosts, and the limits and names that all of its parts know. */
#ifndef VB_TOOLS_LAB_LAB_H
#define VB_TOOLS_LAB_LAB_H

#include <limits.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "links.h"

enum {
	LAB_HOSTS_MAX = 250,
	LAB_NAME_BYTES = 32,
	LAB_TEXT_BYTES = 1024, /* of what has failed */
	LAB_MTU = 1500,
	LAB_MTU_MIN = 1280,
	LAB_MTU_MAX = 9000,
};

/* Where a host finds its lab's socket. */
#define LAB_FOLDER "/run/verbatim-lab"
#define LAB_SOCKET LAB_FOLDER "/socket"
#define LAB_PROGRAMS LAB_FOLDER "/bin" /* its own, such as ssh */

#define LAB_DEFAULT_NAME "lab"

struct lab_plan {
	char name[LAB_NAME_BYTES];
	struct lab_topology topology;
	unsigned mtu;
	char **settings; /* of links, from the beginning: "LINK SETTING..." and in the end NULL; or NULL */
};

/* The addresses of host number i, from 0, and its MAC end with i+1. */
void lab_host_v4(unsigned host, char text[LAB_NAME_BYTES]);
void lab_host_v6(unsigned host, char text[LAB_NAME_BYTES]);
void lab_host_mac(unsigned host, uint8_t mac[6]);
/* The number of the host with this name or address; -1: there is none. */
int lab_find_host(const struct lab_plan *plan, const char *name);
/* Something that may become of a host: "kill", "start", "pause" or "resume". */
bool lab_is_host_verb(const char *verb);
/* Letters, digits, '-' and '_'. */
bool lab_is_name(const char *name);

/* Tells the other end why, and ends this process, whose death ends what it holds. */
void lab_give_up(int status_fd, const char *fmt, ...) __attribute__((format(printf, 2, 3), noreturn));

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/* A process of another user, who knows the names of inboxes and the format of their messages. */
#ifndef STRANGER_H
#define STRANGER_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
	OTHER_USER = 65533,
	NOT_POSSIBLE = 77, /* exit status: this process cannot become another user */
	INBOX_MAGIC = 0x76620001,
};

#define NO_OTHER_USER "this process cannot become another user"

/* The number of a slot that was free and is now this process's, in name; 0: none. */
static uint32_t take_slot(int *fd)
{
	for (uint32_t slot = 4000; slot; slot--) {
		struct sockaddr_un un = { .sun_family = AF_UNIX };
		int n = snprintf(un.sun_path + 1, sizeof(un.sun_path) - 1, "verbatim/slot/%u", slot);
		*fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		if (bind(*fd, (struct sockaddr *)&un,
			 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)) == 0)
			return slot;
		close(*fd);
	}
	return 0;
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages with descriptors over the stream sockets of a lab, and the sockets' names. */
#ifndef VB_TOOLS_LAB_CHANNEL_H
#define VB_TOOLS_LAB_CHANNEL_H

#include <stddef.h>

#include "lab.h"

enum lab_kind {
	/* from a command to the lab */
	LAB_EXEC = 1, /* struct lab_exec, then strings; with the three standard descriptors */
	LAB_SIGNAL, /* int: for the program's process group */
	LAB_DESCRIBE,
	LAB_LINK, /* text: a link's name and settings; the session adds its caller's descriptor */
	LAB_LINKS, /* the same, for a list */
	LAB_HOST, /* text: what is to become of a host, and its name; likewise */
	/* from the lab, and between its processes */
	LAB_READY, /* a host brings its interface and its socket; or the lab is there */
	LAB_DOWN, /* unsigned: this host has ended */
	LAB_GO, /* it is wanted, and may live on */
	LAB_TEXT,
	LAB_ENDED, /* int: as wait(2) has it */
	LAB_FAILED, /* text */
	LAB_NO_EXEC, /* int: errno */
};

enum { LAB_FDS = 3 };

struct lab_message {
	enum lab_kind kind;
	size_t size;
	char *data; /* on the heap, with a zero behind it */
	int fds[LAB_FDS], n_fds;
};

struct lab_exec {
	char host[LAB_NAME_BYTES];
	uint32_t n_args, n_env; /* strings that follow, after the working directory */
	bool has_terminal; /* the first descriptor is to be the controlling terminal */
	bool any_folder; /* it may begin elsewhere where there is no such directory */
};

/*
 * False: the other end is gone. Several processes may send to one socket if their messages are short: each
 * goes out as a whole.
 */
bool lab_send(int fd, enum lab_kind kind, const void *data, size_t size, const int *fds, int n_fds);
bool lab_send_text(int fd, enum lab_kind kind, const char *text);
/* False: the other end is gone, or sends what is no message. The caller frees data and closes the fds. */
bool lab_receive(int fd, struct lab_message *message);
void lab_message_free(struct lab_message *message);

/* A listening socket that the labs' user finds by the lab's name; -1 with errno. */
int lab_listen(const char *lab);
/* Begins to accept, as the process that others learn of. */
bool lab_accept_callers(int listener);
/* Is this process a host's? */
bool lab_is_inside(void);
/* Connects to a lab of this user's; -1 with errno. From within a host: to its own lab, whatever the name. */
int lab_connect(const char *lab);
/* Calls for each name of a lab of this network namespace. */
void lab_each(void (*found)(void *context, const char *lab), void *context);
/* Is the process at the other end this user's? Its number, 0 if it is not of this namespace; else errno. */
bool lab_is_ours(int fd, pid_t *peer);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Other processes, forked by the target before it starts the library: the kernel is to say of a connection,
 * or of a datagram, that it is theirs. They do as they are told, and end with the target. A connection that
 * one has made is handed to the target, which speaks on it.
 *
 * And what processes hand each other: descriptors of all kinds.
 */
#ifndef VB_FUZZ_ACTORS_H
#define VB_FUZZ_ACTORS_H

#include <sys/types.h>

#include "fuzz.h"
#include "host/inspect.h"
#include "host/private.h"

enum order_op {
	/* of link, visit or desk; BIND: of a slot's inbox, from which it sends then */
	CONNECT, LISTEN, BIND,
	SEND,
};

struct order {
	enum order_op op;
	bool with_descriptor;
	uint32_t bytes;          /* of message */
	struct vb_name name;
	uint8_t message[VB_INBOX_MAX_BYTES + 128];
};

struct actor {
	int sock;
	uint32_t slot;           /* whose inbox it has; 0: it is not there */
};

/* body: what it does; user: who it is then, 0: this one. It ends at once where it cannot become that one. */
struct actor start_actor(void (*body)(int sock), uid_t user);
/* Does what it is told. */
void obey(int sock);
/* It takes a slot's inbox. False: it has ended. */
bool settle_down(struct actor *a, uint32_t slot);
/* The descriptor of what was ordered, to be closed by vb_fd_close; or -1. */
int tell(struct actor *a, const struct order *o);
int have_socket(struct actor *a, enum order_op op, struct vb_name name);
/* The same of this process itself. */
int socket_at(enum order_op op, const struct vb_name *name);
/* There is something to be read. */
void await(int fd);

enum { SEGMENT_BYTES = 1 << 16, CAPTURE_BYTES = VB_CAPTURE_DATA + VB_CAPTURE_MIN_BYTES, MOST_THINGS = 6 };

/* What messages of the library come with, and things that they do not. */
enum thing { ARENA, BELL, SEGMENT, RING, OTHER_THINGS, THINGS = 19 };

/* The target's own, of which duplicates are handed out; set by it. */
extern int arena_fd, ring_fd;

/* A memfd by the name "hostile". */
int memfd_of(size_t bytes, unsigned flags, int seals);
/* A descriptor, to be closed once it has been sent. */
int make_thing(unsigned thing);
/* to: NULL, where the other end is connected. With so many descriptors, at most MOST_THINGS. */
void send_with(int fd, const struct vb_name *to, const void *bytes, size_t n, const int *fds, unsigned nfds);

#endif

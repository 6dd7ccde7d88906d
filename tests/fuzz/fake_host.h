/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The host layer (host/host.h, host/udp/udp.h) without a kernel: one thread, a clock that the fuzz target
 * moves, and another process that is nothing but the memory and the messages which the target makes up for
 * it. So everything above the host runs as it is, and an input always does the same.
 *
 * The other process. It owns slot FAKE_PEER_SLOT. Its arena is `fake_arena`, which the library sees through a
 * read-only mapping, so that a store there is a crash. Its own memory is `fake_memory`, at address
 * FAKE_MEMORY of its address space: copies between processes that name anything else fail as the kernel lets
 * them fail.
 */
#ifndef VB_FAKE_HOST_H
#define VB_FAKE_HOST_H

#include "adapter/memory/arena.h"
#include "host/ipc/rpc.h"
#include "host/udp/udp.h"

enum { FAKE_OWN_SLOT = 7, FAKE_PEER_SLOT = 9, FAKE_MEMORY_BYTES = 1 << 16 };

#define FAKE_MEMORY UINT64_C(0x7700000000)
/* Where the peer says that its arena is. */
#define FAKE_ARENA  UINT64_C(0x9900000000)

extern uint8_t *fake_arena;
/* The same, as the library has it. */
extern const uint8_t *fake_arena_seen;
extern uint8_t fake_memory[FAKE_MEMORY_BYTES];

struct fake_host {
	uint64_t now_ns;
	bool can_copy;		/* copies between the processes are allowed */
	bool is_there;		/* the peer can be connected to */
	bool has_hung_up;
	unsigned patience;	/* how often the kernel is asked whether the peer lives, until it does not */
	/*
	 * Called in the middle of copies, the library's work half done, and between a packet's arrival and
	 * the end of its batch.
	 */
	void (*meanwhile)(void);
	/* Called for each range of this process that is read for somebody else, or written. */
	void (*touched)(const void *at, size_t bytes, bool written);
	/* Called for what leaves through UDP or to an inbox. */
	void (*left)(const void *bytes, size_t len);
	void (*connecting)(void);	/* called while a queue pair gets its path over the wire */
	int (*sleep)(void);	/* a leader sleeps: vb_loop_wait; NULL: it is interrupted */
	unsigned rings;		/* of eventfds of the peer */
	void (*ringing)(void);	/* called once, while a thread rings one */
	size_t segment;		/* of the packets that leave through UDP in one go */
	unsigned sent_datagrams, sent_packets;
	int send_result;	/* of both */
	int link_result;	/* of messages to the peer on a link */
	int memory_result;	/* whether memory is mapped */
	uint64_t address_limit;	/* 0: none */
	bool sends_as_stranger;	/* the sender of inbox messages is another user */
	bool has_silent_neighbours;
	bool threads_lack_processor;
	bool has_no_ethernet;
	uint8_t mac;		/* the last byte of the Ethernet's address, but for a constant */
	uint8_t ip;		/* the last byte of its IPv4 address, but for 1 */
};

extern struct fake_host fake;

/* The thread is one of the program's, not the progress thread. */
extern bool fake_is_program;

/* Between inputs: the clock goes on, all else is as at the start. Library objects must be gone. */
void fake_reset(void);
/* The progress thread's passes, until it would sleep; at most so many as make no difference any more. */
void fake_run(void);
/* Moves the clock, and fires what is due on the way. */
void fake_pass_time(uint64_t ns);
/* How many timers are armed. */
unsigned fake_timers(void);

/*
 * A message of the peer on the link, with descriptors: its arena's and an eventfd's. Nothing happens without
 * a link.
 */
void fake_link_message(const void *bytes, size_t len, int num_fds);
/* The peer connects, unless there is a link already. */
void fake_link_accept(void);
void fake_link_hang_up(void);
bool fake_link_is_open(void);
/* The peer's message that a link begins with. */
void fake_link_hello(void);

/* The desk that was opened last; NULL: none is open. */
extern const struct vb_rpc_ops *fake_desk_ops;
extern void *fake_desk_owner;

/* A datagram for the inbox, as it comes from the socket. */
void fake_inbox_message(const void *bytes, size_t len, bool truncated);
/* The same for one of the ports that listen, if there are any. */
void fake_port_message(unsigned which, const void *bytes, size_t len);
/* Whoever watches the interfaces looks at them. */
void fake_interfaces_changed(void);
/* A packet on UDP 4791. */
void fake_udp_packet(const struct vb_udp_packet *packet);

#endif

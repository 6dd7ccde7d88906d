/* SPDX-License-Identifier: BSD-2-Clause */
/* The words of the fault language, and what each stands for. */
#ifndef VB_FAULTS_WORDS_H
#define VB_FAULTS_WORDS_H

#include "base/base.h"

/* X(KIND, word, what it does) */
#define VB_FAULT_KINDS(X)                                                                          \
	X(DROP, "drop", "packets are lost")                                                        \
	X(DELAY, "delay", "packets come later, and so may be overtaken")                           \
	X(DUPLICATE, "duplicate", "packets come twice")                                            \
	X(REORDER, "reorder", "packets are overtaken by the next one")                             \
	X(CORRUPT, "corrupt", "a bit of a packet changes, so that its ICRC is wrong")              \
	X(FREEZE, "freeze", "for some time nothing goes out or comes in, and then all of it does") \
	X(STALL, "stall", "a call takes longer")                                                   \
	X(FAIL, "fail", "a call fails with an errno")                                              \
	X(COMPLETE, "complete", "a completion has an error status, and its queue pair is in the error state") \
	X(RNR, "rnr", "a receive is not ready when its message comes")                             \
	X(LINK, "link", "the link goes down, and up again")                                        \
	X(EVENT, "event", "an asynchronous event of port or device")                               \
	X(LOSE, "lose", "a message of the connection manager is lost")                             \
	X(REFUSE, "refuse", "a connection is refused")                                             \
	X(VANISH, "vanish", "peers are there no more, and nobody says so")

enum vb_fault_kind {
#define X(kind, word, text) VB_FAULT_##kind,
	VB_FAULT_KINDS(X)
#undef X
	VB_FAULT_NKINDS,
};

/* Which packets. X(WHAT, word, in words) */
#define VB_FAULT_PACKET_WORDS(X)                                        \
	X(DATA, "data", "packets of requests and of answers with data") \
	X(REQUEST, "request", "packets of requests")                    \
	X(SEND, "send", "packets of SENDs")                             \
	X(WRITE, "write", "packets of WRITEs")                          \
	X(READ, "read", "READ requests and their answers' packets")     \
	X(ATOMIC, "atomic", "atomics and their answers")                \
	X(ACK, "ack", "acknowledgements")                               \
	X(CM, "cm", "connection manager's packets")                     \
	X(ALL, "all", "packets")

enum vb_fault_packets {
#define X(what, word, text) VB_FAULT_OF_##what,
	VB_FAULT_PACKET_WORDS(X)
#undef X
};

/* Which completions. X(WHAT, word, in words) */
#define VB_FAULT_COMPLETION_WORDS(X)                    \
	X(ANY, "any", "completions")                    \
	X(SEND, "send", "completions of sends")         \
	X(WRITE, "write", "completions of RDMA writes") \
	X(READ, "read", "completions of RDMA reads")    \
	X(ATOMIC, "atomic", "completions of atomics")   \
	X(RECV, "recv", "completions of receives")

enum vb_fault_completion {
#define X(what, word, text) VB_FAULT_COMPLETION_##what,
	VB_FAULT_COMPLETION_WORDS(X)
#undef X
};

/* Calls that can fail. of_qp: they are counted for each queue pair. */
struct vb_fault_verb {
	const char *name;
	bool of_qp;
};

/* A name that stands for a value; prefixes such as IBV_WC_ may be left out. */
struct vb_fault_word {
	const char *name;
	int value;
};

struct vb_fault_words {
	const char *prefix;
	const struct vb_fault_word *words;
	unsigned count;
};

extern const struct vb_fault_words vb_fault_errnos, vb_fault_statuses, vb_fault_events, vb_fault_messages,
	vb_fault_reasons, vb_fault_packet_words, vb_fault_completion_words, vb_fault_kind_words;
extern const struct vb_fault_verb vb_fault_verbs[];
extern const unsigned vb_fault_nverbs;

/* Upper and lower case, '-' and '_' are the same. NULL: none is called so. */
const struct vb_fault_word *vb_fault_word_find(const struct vb_fault_words *words, const char *name,
					       size_t bytes);
const struct vb_fault_verb *vb_fault_verb_find(const char *name, size_t bytes);
/* "?" for a value without a name. */
const char *vb_fault_word_of(const struct vb_fault_words *words, int value);
bool vb_fault_word_is(const char *word, const char *name, size_t bytes);

#endif

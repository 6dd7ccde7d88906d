/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Inspection: the formats in which processes report their state to the `verbatim` command.
 *
 * Each process listens on the abstract SEQPACKET socket "verbatim/visit/N", N being its first slot. An
 * inspecting program of the same user (the client) sends a struct vb_question, with one memfd; the progress
 * thread answers. So inspection costs nothing while nobody asks. A process whose program spins answers too, a
 * stopped one does not. With VERBATIM_CAPTURE=NAME in its environment a process connects to the abstract
 * socket NAME when it starts. The listener there is then the client, and the process waits a short while for
 * its question.
 *
 *	VB_ASK_STATE     the process appends records to the memfd, then sends a struct vb_answer
 *	VB_ASK_CAPTURE   the memfd is a struct vb_capture_ring; a struct vb_answer says whether the process fills it now,
 *	                 until the connection ends
 *
 * Records come in any order, and later versions may lengthen them: a reader takes as many bytes of each as it
 * knows, and skips kinds that it does not know. Everything is in the host's byte order. It is hostile input
 * to the reader: names may lack their terminator.
 */
#ifndef VB_HOST_INSPECT_H
#define VB_HOST_INSPECT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define VB_INSPECTION_MAGIC 0x3174697369764256ull /* "VBvisit1" */
#define VB_INSPECTION_NAME  "verbatim/visit/"     /* followed by the slot */
#define VB_CAPTURE_VARIABLE "VERBATIM_CAPTURE"

enum { VB_ASK_STATE = 1, VB_ASK_CAPTURE = 2 };
enum { VB_ASK_EVENTS = 1 }; /* a capture holds events, too */

struct vb_capture_filter {
	uint32_t snap;           /* bytes of a packet that are kept; from the BTH on */
	uint32_t qpn;            /* packets from or to it; 0: of any */
	uint64_t opcodes[4];     /* bit n of 256: BTH opcode n is wanted */
};

struct vb_question {
	uint64_t magic;
	uint32_t what;           /* VB_ASK_* */
	uint32_t kinds;          /* VB_ASK_STATE: bit n: records of kind n; VB_ASK_CAPTURE: VB_ASK_EVENTS */
	struct vb_capture_filter filter; /* VB_ASK_CAPTURE */
};
_Static_assert(sizeof(struct vb_question) == 56, "layout");

struct vb_answer {
	uint64_t magic;
	/* 0 or a negative errno: -EFBIG: there is more than VB_STATE_MAX_BYTES; -EBUSY: captured already */
	int32_t error;
	uint32_t reserved;
	uint64_t bytes;          /* of records */
};
_Static_assert(sizeof(struct vb_answer) == 24, "layout");

enum { VB_STATE_MAX_BYTES = 256 << 20, VB_RECORD_MAX = 2048 };

/*
 * X(name, what is counted): what queue pairs have done since they were made. Requests and their bytes count
 * once they have succeeded. Within a host there are no packets, retries or NAKs: what stands for them counts.
 * A queue pair keeps its traffic where it completes requests, and the others apart.
 */
#define VB_TRAFFIC_COUNTS(X)                                                                    \
	X(sends, "SENDs")                                                                       \
	X(send_bytes, "bytes of SENDs")                                                         \
	X(writes, "WRITEs")                                                                     \
	X(write_bytes, "bytes of WRITEs")                                                       \
	X(reads, "READs")                                                                       \
	X(read_bytes, "bytes of READs")                                                         \
	X(atomics, "atomics, and WRITEs that are atomic")                                       \
	X(atomic_bytes, "bytes of atomics: 8 each")                                             \
	X(receives, "messages that took a receive")                                             \
	X(receive_bytes, "bytes of these messages")

#define VB_OTHER_COUNTS(X)                                                                      \
	X(failed, "requests that failed or were flushed")                                       \
	X(shared, "of all requests: carried out in shared memory")                              \
	X(shared_bytes, "bytes of these")                                                       \
	X(shared_packets, "packets that a wire would have carried for them, one way")           \
	X(resent, "packets that were sent more than once")                                      \
	X(timeouts, "times that a peer was silent for longer than the ACK timeout")             \
	X(rnr_received, "RNR NAKs that came")                                                   \
	X(sequence_received, "NAKs for a sequence error that came")                             \
	X(naks_received, "NAKs that ended the connection")                                      \
	X(rnr_sent, "times that a request found no receive")                                    \
	X(sequence_sent, "NAKs for a sequence error that were sent")                            \
	X(naks_sent, "requests that were refused for good")                                     \
	X(duplicates, "requests that came again")                                               \
	X(early, "packets that came before one that they follow")                               \
	X(unexecuted, "packets of UC that could not be carried out, or whose message lacks one") \
	X(flushes, "FLUSHes")

#define VB_COUNTS(X) VB_TRAFFIC_COUNTS(X) VB_OTHER_COUNTS(X)

struct vb_counts {
#define X(name, what) uint64_t name;
	VB_COUNTS(X)
#undef X
};

/* X(NAME, word, why): packets that a process has dropped. */
#define VB_DROPS(X)                                                                             \
	X(BAD_ICRC, "bad_icrc", "no RoCE packet, or its ICRC is wrong")                         \
	X(FORGED, "forged", "it says to be of a process that did not send it")                  \
	X(MALFORMED, "malformed", "its headers make no sense, or its partition is another")     \
	X(NO_QP, "no_qp", "there is no such queue pair")                                        \
	X(NOT_READY, "not_ready", "the queue pair takes no packets in its state")               \
	X(STRANGER, "stranger", "it is not from the address that the queue pair is connected to") \
	X(UNEXPECTED, "unexpected", "the connection has no use for it: late, or out of place")  \
	X(QKEY, "qkey", "a datagram with another Q_Key")                                        \
	X(NO_RECEIVE, "no_receive", "a datagram or frame for which no receive was posted")      \
	X(TOO_LONG, "too_long", "a datagram that is longer than the receive")                   \
	X(NO_ROOM, "no_room", "the process that it is for takes nothing for too long")

enum vb_drop {
#define X(name, word, why) VB_DROP_##name,
	VB_DROPS(X)
#undef X
	VB_DROP_REASONS
};

/* X(NAME, what it describes) */
#define VB_RECORDS(X)            \
	X(PROCESS, process)      \
	X(DEVICE, device)        \
	X(QP, qp)                \
	X(CQ, cq)                \
	X(SRQ, srq)              \
	X(MR, mr)                \
	X(CM_ID, cm_id)          \
	X(PD, pd)                \
	X(PORT, port)

enum vb_record_kind {
	VB_RECORD_NONE,
#define X(name, struct_name) VB_RECORD_##name,
	VB_RECORDS(X)
#undef X
	VB_RECORD_KINDS
};

struct vb_record {
	uint16_t kind;
	uint16_t bytes;          /* with this header; a multiple of 8 */
	uint32_t reserved;
};

struct vb_record_process {
	struct vb_record head;
	int64_t pid;             /* in its own namespace */
	char version[16];
	uint32_t slots[64];      /* 0: none */
	uint32_t local_off;      /* VERBATIM_LOCAL=off */
	uint32_t polled;         /* a thread polls in a loop */
	uint64_t packets_in, packets_out, congested, send_failures; /* of UDP */
	uint64_t arena_bytes;    /* shared memory in use */
	uint64_t polls;          /* rounds of polling that found no completion at once; modulo 2^32 */
	uint64_t captured, dropped; /* packets, and packets or events, by the capture that runs */
	uint64_t capturing;      /* one runs */
	/* how often the progress thread, or a thread in its place, has slept, and how long in all */
	uint64_t sleeps, asleep_ns;
	uint64_t drops[VB_DROP_REASONS]; /* packets; further reasons come behind these */
};

/* An open device. */
struct vb_record_device {
	struct vb_record head;
	uint64_t serial;         /* of the opening */
	char name[64], interface[16];
	uint64_t guid;           /* network order */
	uint32_t port_state;     /* enum ibv_port_state */
	uint32_t active_mtu;     /* bytes */
	uint32_t gids;           /* in the table below */
	uint32_t reserved;
	uint8_t gid[64][16];
};

struct vb_record_qp {
	struct vb_record head;
	uint32_t qpn, peer_qpn;
	uint32_t type, state;    /* enum ibv_qp_type, ibv_qp_state */
	uint32_t pd;             /* its number; 0: none (XRC) */
	uint32_t access;         /* enum ibv_access_flags */
	uint32_t mtu;            /* bytes; 0: not set */
	uint32_t port;
	uint32_t sq_psn, rq_psn;
	uint8_t gid[16], peer_gid[16];
	char device[64];
	char path[16];           /* who carries it: "local", "rc", ...; empty: not connected */
	char copy[16];           /* of the local path: how bytes move */
	int64_t peer_pid;        /* of the local path; 0: unknown */
	uint64_t send_cq, recv_cq, srq; /* serials; 0: none */
	uint32_t max_send, max_recv;
	uint32_t posted, completed; /* sends, modulo 2^32 */
	uint32_t recv_posted, recv_taken;
	uint64_t again;          /* packets sent more than once */
	uint32_t retries;        /* used since the last progress */
	uint32_t busy;           /* it is being changed: the record leaves out what changes */
	struct vb_counts counts;
};

struct vb_record_cq {
	struct vb_record head;
	uint64_t serial;
	char device[64];
	uint32_t capacity, waiting; /* completions */
	uint32_t produced;       /* modulo 2^32 */
	uint32_t armed;          /* 0, 1 for any, 2 for solicited completions */
	uint32_t overrun;
	uint32_t users;          /* queue pairs and XRC queues; each queue of a pair counts */
	uint32_t has_channel, busy;
	uint64_t context;        /* its device's opening */
};

struct vb_record_srq {
	struct vb_record head;
	uint64_t serial;
	char device[64];
	uint32_t max_wr, max_sge, limit, waiting; /* receives */
	uint32_t posted, taken;  /* modulo 2^32 */
	uint32_t pd, number;     /* number: of an XRC queue, else 0 */
	uint32_t users, busy;
};

enum { VB_MR_NO_PAGES, VB_MR_MAY_BE_MAPPED, VB_MR_MAPPED };

struct vb_record_mr {
	struct vb_record head;
	uint32_t key, pd;
	uint32_t access;         /* enum ibv_access_flags */
	uint32_t window;         /* 0: a region; 1, 2: a memory window of this type */
	/* of a bound window: the region's key; of a region: how many windows are bound */
	uint32_t of;
	uint32_t qpn;            /* the only one that it is for; 0: any */
	uint32_t mapped;         /* VB_MR_*: can peers map its pages? */
	uint32_t null;           /* it stands for no memory */
	uint64_t address, iova, length;
};

struct vb_record_cm_id {
	struct vb_record head;
	uint64_t serial;
	char state[64], device[64];
	uint32_t port_space, qp_type; /* enum rdma_port_space, ibv_qp_type */
	uint32_t qpn;
	uint32_t is_sync;
	uint8_t source[16], destination[16]; /* IPv4 as ::ffff:a.b.c.d */
	uint32_t source_scope, destination_scope;
	uint16_t source_port, destination_port; /* host order */
	uint32_t events_told, events_acked;
	uint32_t kernel_state;   /* enum rdma_cm_state of Linux, the nearest */
};

struct vb_record_pd {
	struct vb_record head;
	uint64_t serial;
	char device[64];
	uint64_t context;        /* its device's opening */
	uint32_t number, users;
};

/* The port of a device: the sum of its queue pairs' counts, those that are gone included. */
struct vb_record_port {
	struct vb_record head;
	char device[64];
	struct vb_counts counts;
};

#define X(name, struct_name)                                                                    \
	_Static_assert(sizeof(struct vb_record_##struct_name) % 8 == 0, "a multiple of 8");     \
	_Static_assert(sizeof(struct vb_record_##struct_name) <= VB_RECORD_MAX, "fits");
VB_RECORDS(X)
#undef X

/* ---- capture ---- */

/*
 * A ring that one process fills and the client empties. The writer puts a whole record, of a packet or an
 * event, and then moves head; the reader moves tail. A record that finds no room is counted. head and tail
 * count bytes since the start, modulo 2^64. A record may wrap.
 */
#define VB_CAPTURE_MAGIC 0x3172756374704256ull

enum { VB_CAPTURE_DATA = 4096, VB_CAPTURE_MIN_BYTES = 1 << 16, VB_CAPTURE_MAX_BYTES = 1 << 30 };

struct vb_capture_ring {
	uint64_t magic;
	uint64_t bytes;          /* of data: a power of two */
	uint64_t reserved[6];
	_Atomic(uint64_t) head;  /* written by the process */
	_Atomic(uint64_t) packets, dropped;
	/*
	 * Threads of the process that have looked at the clock for a record which is not there yet. What the
	 * client does not find, having found 0 here, is later than the client's own look at the clock before.
	 */
	_Atomic(uint64_t) noting;
	uint64_t reserved2[4];
	_Atomic(uint64_t) tail;  /* written by the client */
	uint64_t reserved3[7];
	/* data at VB_CAPTURE_DATA */
};
_Static_assert(sizeof(struct vb_capture_ring) == 192, "layout");

enum {
	VB_CAPTURE_OUT = 1,      /* else in */
	/*
	 * This packet stands for a message through shared memory. PSNs count such packets alone. Its ip_id
	 * holds the low bits of the peer's pid; a pid of 0 is unknown.
	 */
	VB_CAPTURE_LOCAL = 2,
	VB_CAPTURE_INBOX = 4,    /* between processes of this host, as a datagram */
	VB_CAPTURE_HAS_ICRC = 8, /* the last 4 bytes of len are the ICRC that it had; else it goes without */
	VB_CAPTURE_BAD_ICRC = 16, /* it was wrong, and the packet was dropped */
	VB_CAPTURE_LOST = 32,    /* on purpose, by a fault: it did not leave */
};

/* Followed by kept bytes of the packet, padded to a multiple of 8. */
struct vb_capture_packet {
	uint64_t time_ns;        /* CLOCK_MONOTONIC */
	uint32_t len, kept;      /* from the BTH on; len is not 0 */
	uint8_t source[16], destination[16];
	uint32_t flow_label;
	uint16_t source_port, ip_id;
	uint8_t traffic_class, hop_limit, flags;
	uint8_t peer_pid_high;   /* of VB_CAPTURE_LOCAL: bits 16 and up of the pid in ip_id */
	uint32_t qpn;            /* this process's end; 0: unknown */
};
_Static_assert(sizeof(struct vb_capture_packet) == 64, "layout");

/* X(NAME, value, what it is) */
#define VB_CAPTURE_EVENTS(X)                                            \
	X(POST_SEND, 1, "the program posts a send")                     \
	X(POST_RECEIVE, 2, "it posts a receive")                        \
	X(COMPLETION, 3, "a completion enters its queue")               \
	X(POLL, 4, "the program polls it")                              \
	X(SENTENCE, 5, "the library explains, or a check finds a mistake") \
	X(CM, 6, "the program gets an event of the connection manager") \
	X(FAULT, 7, "a fault on purpose changes what becomes of a packet")

enum vb_capture_event_kind {
#define X(name, value, what) VB_EVENT_##name = (value),
	VB_CAPTURE_EVENTS(X)
#undef X
};

enum {
	VB_EVENT_IS_RECEIVE = 1,    /* flags of COMPLETION and POLL: else a send */
	VB_EVENT_IS_SHARED = 2,     /* and of POST_RECEIVE: to, or from, a shared receive queue */
	VB_EVENT_PIECES_SHIFT = 16, /* flags of posts: the number of pieces from this bit on */
	VB_EVENT_TEXT = 1024,       /* bytes of text at most */
};

/*
 * flags of FAULT. It is about the last packet before it with the same direction, destination, opcode and PSN.
 * A packet that did not leave has no such event, but VB_CAPTURE_LOST.
 */
enum {
	VB_EVENT_FAULT_IN = 1,      /* of an arrival */
	VB_EVENT_FAULT_LOST = 2,    /* an arrival that went no further */
	VB_EVENT_FAULT_CHANGED = 4, /* a bit of it */
	VB_EVENT_FAULT_TWICE = 8,   /* it went, or was delivered, two times */
	VB_EVENT_FAULT_LATE = 16,   /* it was held back */
};

/* Followed by kept bytes of text, padded to a multiple of 8. From `event` on it is as in the file. */
struct vb_capture_event {
	uint64_t time_ns;        /* CLOCK_MONOTONIC */
	uint32_t is_packet;      /* 0: in a packet's place for len */
	uint32_t kept;
	uint32_t event;          /* enum vb_capture_event_kind */
	uint32_t qpn;            /* 0: none, or unknown */
	uint64_t wr_id;
	uint32_t opcode;         /* enum ibv_wr_opcode, ibv_wc_opcode or rdma_cm_event_type; FAULT: BTH's */
	/* VB_EVENT_*; of POST_SEND beside these enum ibv_send_flags, SIGNALED also if sq_sig_all says so */
	uint32_t flags;
	/* of a post: the errno value with which it was refused; of a completion: enum ibv_wc_status */
	uint32_t status;
	uint32_t bytes;          /* of FAULT: the packet's PSN */
	/* of POST_SEND: what it is for in the peer's memory; of FAULT: ns for which it was held back */
	uint64_t address;
	uint32_t rkey;
	/* serial of the completion queue, or shared receive queue; 0: none. Of FAULT: the destination QP */
	uint32_t queue;
};
_Static_assert(sizeof(struct vb_capture_event) == sizeof(struct vb_capture_packet) &&
		       offsetof(struct vb_capture_event, is_packet) ==
			       offsetof(struct vb_capture_packet, len) &&
		       offsetof(struct vb_capture_event, kept) == offsetof(struct vb_capture_packet, kept),
	       "what a head is can be told, and how long its record is");

#endif

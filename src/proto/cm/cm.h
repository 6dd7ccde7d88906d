/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The InfiniBand connection manager (IB vol. 1 ch. 12) as a pure machine: REQ/REP/RTU, REJ, MRA, DREQ/DREP,
 * SIDR.
 *
 * What it models. One struct vb_cm_conn is one side of one connection (or of one SIDR exchange). Every input
 * - a call of the user, a received MAD, an expired timer - is one step in the rectangle input x state of
 * cm_states.c. A struct vb_cm_table holds the connections of a process: it finds the one that a MAD is for,
 * answers what belongs to none, notices stale connections and keeps the timers.
 *
 * What it leaves out. No I/O, clock, threads, randomness: time is an argument in nanoseconds of any monotonic
 * clock, comm ids, PSNs and transaction numbers come from the caller. Listeners live above: a REQ that fits
 * no connection is handed back as VB_CM_NEW_REQUEST. Alternate paths are refused (LAP is answered by APR "not
 * supported"). Peers that are killed are noticed if they are probed (cm_keepalive.c).
 *
 * Who owns what. The caller owns the memory of connections and of `out`. A connection is in the table from
 * vb_cm_connect/vb_cm_sidr_connect/vb_cm_request until VB_CM_EV_RELEASE names it; before that its memory must
 * not be freed or moved. vb_cm_destroy gives it up: the machine may go on alone (repeating a DREQ, sitting
 * out TIMEWAIT, repeating a REJ), reports nothing more to the user, and ends with VB_CM_EV_RELEASE, often in
 * the same call.
 *
 * Threading: none. One lock of the caller covers a table and all its connections.
 *
 * Invariants. A refused call (negative return) or a refused MAD changes nothing. Each event happens at most
 * once per connection. Each call fills `out` anew; the caller then sends out->sends (in order; losing one is
 * harmless) and delivers out->events (in order).
 *
 * Usage: active vb_cm_connect .. EV_REP .. vb_cm_establish .. vb_cm_disconnect .. EV_DISCONNECTED ..
 * EV_TIMEWAIT_EXIT
 *        passive  vb_cm_receive = VB_CM_NEW_REQUEST, vb_cm_request (EV_REQUEST), vb_cm_accept .. EV_ESTABLISHED ..
 *                 EV_DISCONNECTED, vb_cm_disconnect (answers with DREP) .. EV_TIMEWAIT_EXIT
 *        both     vb_cm_destroy .. EV_RELEASE;  timers: vb_cm_deadline, vb_cm_expire until it returns false
 */
#ifndef VB_PROTO_CM_H
#define VB_PROTO_CM_H

#include "base/heap.h"
#include "base/list.h"
#include "wire/cm_msg.h"

/* ---- addressing ---- */

/* Where a MAD goes, in a form that only the transport below knows. The machine copies it. */
struct vb_cm_route {
	uint64_t opaque[8];
};

/* A received MAD. src_gid is what the transport knows of the sender; all zero if it knows nothing. */
struct vb_cm_rx {
	struct vb_cm_route from;	/* where an answer goes */
	uint8_t src_gid[16];
	struct vb_cm_msg msg;		/* by vb_cm_msg_parse: a private, validated copy */
};

struct vb_cm_send {
	struct vb_cm_route to;
	struct vb_mad mad;
	uint32_t repeats;		/* the communication id whose message was sent before; 0: it is new */
};

/* ---- events to the user ---- */

/* X(NAME, name) */
#define VB_CM_EVENTS(X)                                                                              \
	X(REQUEST, "request")			/* vb_cm_request took a REQ: info.req */             \
	X(SIDR_REQUEST, "sidr request")		/* vb_cm_request took a SIDR_REQ: info.sidr_req */   \
	X(REP, "rep")				/* active: the peer accepted: info.rep; now vb_cm_establish */ \
	X(ESTABLISHED, "established")		/* passive: RTU came, or vb_cm_notify_established */ \
	X(REJECTED, "rejected")			/* before ESTABLISHED: status is the REJ reason */   \
	X(UNREACHABLE, "unreachable")		/* retries used up or peer died: status is -ETIMEDOUT/-ECONNRESET */ \
	X(DISCONNECTED, "disconnected")		/* status 0; -ETIMEDOUT: DREQ never answered; -ECONNRESET: died */ \
	X(TIMEWAIT_EXIT, "timewait exit")	/* the QP number may be used again */                \
	X(SIDR_REP, "sidr rep")			/* status is the SIDR status: info.sidr_rep */       \
	X(RELEASE, "release")			/* destroyed and done: the memory belongs to the caller again */

enum vb_cm_event_type {
#define X(name, text) VB_CM_EV_##name,
	VB_CM_EVENTS(X)
#undef X
	VB_CM_EV_COUNT
};

/* Transport service of a REQ. */
enum vb_cm_transport { VB_CM_RC = 0, VB_CM_UC = 1, VB_CM_RD = 2, VB_CM_XRC = 3 };

/* The path of a connection as a REQ describes it. Exponents n stand for 4.096 us * 2^n, 0..31. */
struct vb_cm_path {
	uint8_t local_gid[16], remote_gid[16];
	uint32_t flow_label;		/* 20 bits */
	uint16_t pkey;
	uint8_t mtu;			/* 1..5: 256..4096 bytes */
	uint8_t rate;			/* as enum ibv_rate */
	uint8_t sl, traffic_class, hop_limit;
	uint8_t packet_lifetime;	/* exponent; kept here, not on the wire */
	uint8_t local_ack_timeout;	/* exponent */
};

/* Enhanced connection establishment: zero when unused. */
struct vb_cm_ece {
	uint32_t vendor_id;		/* 24 bits */
	uint32_t attr_mod;
};

/* What a REQ says about the sender's side: argument of vb_cm_connect, content of VB_CM_EV_REQUEST. */
struct vb_cm_req_info {
	uint64_t service_id;
	uint64_t ca_guid;
	/* 0: the connection has no QP of its own (it is never stale) */
	uint32_t qpn;
	uint32_t starting_psn;		/* the receiver's QP sends this one first */
	uint32_t qkey;
	enum vb_cm_transport transport;
	uint8_t responder_resources, initiator_depth;
	uint8_t retry_count, rnr_retry_count;	/* 0..7 */
	bool flow_control, srq;
	uint8_t local_cm_response_timeout;	/* exponent: within which the sender of the REQ answers */
	uint8_t remote_cm_response_timeout;	/* exponent: how long it waits for answers (plus the path) */
	uint8_t max_cm_retries;			/* 0..15: repetitions of one message */
	/* in VB_CM_EV_REQUEST: seen from the receiver (local = ours) */
	struct vb_cm_path path;
	struct vb_cm_ece ece;
};

/* What a REP says about the sender's side: argument of vb_cm_accept, content of VB_CM_EV_REP. */
struct vb_cm_rep_info {
	uint64_t ca_guid;
	uint32_t qpn, starting_psn, qkey;
	uint8_t responder_resources, initiator_depth;
	uint8_t target_ack_delay;	/* exponent */
	uint8_t failover;		/* 0 accepted, 1 not supported, 2 refused */
	uint8_t rnr_retry_count;
	bool flow_control, srq;
	struct vb_cm_ece ece;
};

struct vb_cm_sidr_req_info {
	uint64_t service_id;
	uint16_t pkey;
};

struct vb_cm_sidr_rep_info {
	uint64_t service_id;
	uint32_t qpn, qkey;
	struct vb_cm_ece ece;
};

/* Private data, or additional information of a REJ or SIDR_REP. */
struct vb_cm_blob {
	uint8_t len;
	uint8_t bytes[VB_CM_MAX_PRIVATE_DATA];
};

/* The same as an argument: lent for the call. */
struct vb_cm_data {
	const void *bytes;
	size_t len;
};
#define VB_CM_DATA(bytes, len) ((struct vb_cm_data){ bytes, len })
#define VB_CM_NO_DATA	       VB_CM_DATA(NULL, 0)

struct vb_cm_conn;

struct vb_cm_event {
	enum vb_cm_event_type type;
	int status;
	struct vb_cm_conn *conn;	/* RELEASE: its owner's again, the machine no longer reads it */
	union {
		struct vb_cm_req_info req;
		struct vb_cm_rep_info rep;
		struct vb_cm_sidr_req_info sidr_req;
		struct vb_cm_sidr_rep_info sidr_rep;
	} info;
	/*
	 * The whole field of the message, trailing zeros included (the format carries no length); empty where
	 * no message caused the event.
	 */
	struct vb_cm_blob private_data;
	struct vb_cm_blob additional;	/* REJECTED, SIDR_REP */
};

#define VB_CM_MAX_SENDS  2
#define VB_CM_MAX_EVENTS 2

/* The effects of one call. */
struct vb_cm_out {
	unsigned num_sends, num_events;
	struct vb_cm_send sends[VB_CM_MAX_SENDS];
	struct vb_cm_event events[VB_CM_MAX_EVENTS];
};

/* ---- the machine of one connection ---- */

/* X(NAME, name). LISTEN is outside. LINGER: over, and kept to answer a repeated message once more. */
#define VB_CM_STATES(X)                                                                                      \
	X(IDLE, "IDLE") X(REQ_SENT, "REQ_SENT") X(MRA_REQ_RCVD, "MRA_REQ_RCVD") X(REP_RCVD, "REP_RCVD")      \
	X(MRA_REP_SENT, "MRA_REP_SENT") X(REQ_RCVD, "REQ_RCVD") X(MRA_REQ_SENT, "MRA_REQ_SENT")              \
	X(REP_SENT, "REP_SENT") X(MRA_REP_RCVD, "MRA_REP_RCVD") X(ESTABLISHED, "ESTABLISHED")                \
	X(DREQ_SENT, "DREQ_SENT") X(DREQ_RCVD, "DREQ_RCVD") X(TIMEWAIT, "TIMEWAIT")                          \
	X(SIDR_REQ_SENT, "SIDR_REQ_SENT") X(SIDR_REQ_RCVD, "SIDR_REQ_RCVD") X(LINGER, "LINGER") X(CLOSED, "CLOSED")

enum vb_cm_state {
#define X(name, text) VB_CM_##name,
	VB_CM_STATES(X)
#undef X
	VB_CM_STATE_COUNT
};

struct vb_cm_hash_node {
	struct vb_cm_hash_node *next, **pprev;	/* pprev NULL: in no chain */
};

/* What is known of a peer process that is probed. */
struct vb_cm_keepalive {
	bool is_in_doubt;			/* messages came back, and none arrived since; */
	uint64_t doubted_ns, returned_ns;	/* when the first and the last came back */
	/* when all connections with it were probed at once; 0: never */
	uint64_t all_probed_ns;
};

/*
 * Callers zero it before the first call (IDLE), read what is marked so, write `user` alone, and embed or
 * allocate it as they like. One struct serves one connection: CLOSED is the end.
 */
struct vb_cm_conn {
	void *user;				/* the caller's; survives destroy */
	enum vb_cm_state state;			/* read */
	uint32_t local_comm_id, remote_comm_id;	/* read; remote is 0 while unknown */
	uint32_t local_qpn, remote_qpn;		/* read */
	uint8_t peer_gid[16];			/* read; all zero: messages are accepted from anywhere */
	struct vb_cm_route route;		/* read; where messages go */
	uint64_t service_id;			/* read */

	/* The machine's own. */
	bool destroyed, active, sidr, xrc, auto_drep;
	bool probes_peer, is_gone;		/* is_gone: the peer's host reports that nobody is there */
	uint8_t retries_left, max_retries;
	uint8_t returned;			/* how often ICMP returned the unanswered message */
	uint64_t tid;
	uint64_t ca_guid;
	uint64_t timeout_ns;			/* until an unanswered message is repeated */
	uint64_t asked_ns;			/* when that message was made */
	uint64_t timewait_ns, linger_ns;
	uint32_t remote_psn;
	bool has_last;
	struct vb_mad last;			/* the message to repeat */

	struct vb_cm_keepalive keepalive;		/* a prober's */
	struct vb_cm_hash_node by_id, by_remote, by_qpn, by_host;
	struct vb_heap_node timer;
	struct vb_list all, destroyed_list;
	struct vb_list siblings;		/* established ones with the same process, in a ring */
};

#define VB_CM_NEVER UINT64_MAX

/* ---- the table of a process ---- */

struct vb_cm_config {
	/* exponent: what an MRA asks for when a repeated message meets a slow user */
	uint8_t mra_service_timeout;
	/* destroyed connections kept at most; the oldest goes first. 0: none */
	uint32_t max_lingering;
	uint64_t sidr_linger_ns;	/* how long a SIDR_REP is kept for repeated SIDR_REQs */
};

/* Counters; they only grow. X(name) */
#define VB_CM_COUNTERS(X)       \
	X(received) X(duplicates) X(ignored) X(unknown_id) X(wrong_peer) X(stale) X(retransmits) X(timeouts) X(evicted)

struct vb_cm_counters {
#define X(name) uint64_t name;
	VB_CM_COUNTERS(X)
#undef X
};

struct vb_cm_table;	/* internals in cm_internal.h */

/*
 * hash_seed: random, so that peers cannot choose ids of one hash chain. NULL when memory is out. The only
 * allocation of this module; freed by vb_cm_table_destroy, which forgets all connections without a word to
 * anyone (their memory stays the caller's).
 */
struct vb_cm_table *vb_cm_table_create(const struct vb_cm_config *config, uint64_t hash_seed) VB_MUST_USE;
void vb_cm_table_destroy(struct vb_cm_table *t);

const struct vb_cm_counters *vb_cm_table_counters(const struct vb_cm_table *t);
/* Connections in the table, and how many of them are destroyed ones. */
void vb_cm_table_count(const struct vb_cm_table *t, unsigned *total, unsigned *destroyed);
/*
 * Iteration in no particular order (destroyed ones included); NULL begins, NULL ends. Nothing may change
 * between.
 */
struct vb_cm_conn *vb_cm_table_next(const struct vb_cm_table *t, const struct vb_cm_conn *previous);
/* By local comm id; NULL when there is none or it is destroyed. */
struct vb_cm_conn *vb_cm_table_find(const struct vb_cm_table *t, uint32_t local_comm_id);
/* Is the comm id in use, maybe by a destroyed one? Then no connection can begin under it. */
bool vb_cm_table_has(const struct vb_cm_table *t, uint32_t local_comm_id);

/* ---- time ---- */

/* 4.096 us * 2^exponent; exponents above 31 count as 31. */
uint64_t vb_cm_timeout_ns(uint8_t exponent);

/* When vb_cm_expire is due; VB_CM_NEVER if no timer runs. */
uint64_t vb_cm_deadline(const struct vb_cm_table *t);
/* Handles one expired timer; false if none was due. Call until false. */
bool vb_cm_expire(struct vb_cm_table *t, uint64_t now_ns, struct vb_cm_out *out);

/* ---- received MADs ---- */

enum vb_cm_verdict {
	VB_CM_HANDLED,		/* done, or rightly ignored; do what `out` says */
	/* a REQ for a listener: vb_cm_request on a fresh connection, or vb_cm_refuse */
	VB_CM_NEW_REQUEST,
	VB_CM_NEW_SIDR_REQUEST,	/* the same for a SIDR_REQ */
};

/*
 * The comm id that a message is addressed to; 0 for REQ and SIDR_REQ (they go to a service id) and for a REJ
 * whose sender does not know it. For forwarding a MAD that arrived at the wrong process.
 */
uint32_t vb_cm_msg_destination_id(const struct vb_cm_msg *msg);
/* The comm id by which its sender knows itself; 0 if it names none. */
uint32_t vb_cm_msg_sender_id(const struct vb_cm_msg *msg);
/*
 * The queue pairs that its sender offers in a REQ, REP or SIDR_REP; 0: none. The second one is that of an XRC
 * target, which a REP names in another field.
 */
struct vb_cm_offer {
	uint32_t qpn[2];
};
struct vb_cm_offer vb_cm_msg_offer(const struct vb_cm_msg *msg);
/* Service id of a REQ or SIDR_REQ, else 0. */
uint64_t vb_cm_msg_service_id(const struct vb_cm_msg *msg);

enum vb_cm_verdict vb_cm_receive(struct vb_cm_table *t, uint64_t now_ns, const struct vb_cm_rx *rx,
				 struct vb_cm_out *out);
/*
 * Answers a NEW_REQUEST (REJ with `reason`) or NEW_SIDR_REQUEST (SIDR_REP with the status that fits: invalid
 * service id: 1, else 2) without a connection. Needs no table: t may be NULL.
 */
void vb_cm_refuse(struct vb_cm_table *t, const struct vb_cm_rx *rx, enum vb_cm_rej_reason reason,
		  struct vb_cm_out *out);
/*
 * Answers a message to a comm id that nobody has, so that the sender ends what it believes to be a
 * connection.
 */
void vb_cm_answer_unknown(const struct vb_cm_rx *rx, struct vb_cm_out *out);
/*
 * What a NEW_REQUEST or NEW_SIDR_REQUEST says, before a connection is allocated for it: the event that
 * vb_cm_request will produce (conn is NULL).
 */
void vb_cm_request_preview(const struct vb_cm_rx *rx, struct vb_cm_event *event);

/* ---- calls of the user ---- */
/*
 * All return 0, or -EINVAL (arguments out of range, or illegal in this state), -EEXIST (comm id in use); then
 * nothing changed and out is empty.
 */

struct vb_cm_endpoint {
	uint32_t comm_id;	/* not 0; unique in the table; not reused soon (take ids from a counter) */
	uint64_t tid;		/* transaction id of the messages that this side begins; any number */
	void *user;
	/* a DREQ is answered at once; else vb_cm_disconnect or vb_cm_destroy answers it */
	bool auto_drep;
	/* probes a peer that is another verbatim process: nothing else reports its death */
	bool probes_peer;
};

/*
 * Begins a connection: sends REQ to `to`. peer_gid check: answers must come from info->path.remote_gid unless
 * that is all zero or their sender is unknown. private_data: at most VB_CM_REQ_PRIVATE_DATA_BYTES (92, of
 * which the IP CM header takes 36: vb_ip_cm_encode).
 */
int vb_cm_connect(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns,
		  const struct vb_cm_endpoint *ep, const struct vb_cm_route *to,
		  const struct vb_cm_req_info *info, struct vb_cm_data private_data, struct vb_cm_out *out);

/*
 * Takes a NEW_REQUEST or NEW_SIDR_REQUEST into a fresh connection; out carries VB_CM_EV_REQUEST or
 * _SIDR_REQUEST. packet_lifetime (exponent) sizes TIMEWAIT. ep->tid is ignored.
 */
int vb_cm_request(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns,
		  const struct vb_cm_endpoint *ep, const struct vb_cm_rx *rx, uint8_t packet_lifetime,
		  struct vb_cm_out *out);

/* Makes the peer wait longer (service_timeout: exponent) while the user considers its REQ or REP. */
int vb_cm_mra(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns, uint8_t service_timeout,
	      struct vb_cm_data private_data, struct vb_cm_out *out);

/* Passive: sends REP (private data up to 196 bytes), repeats it until RTU. */
int vb_cm_accept(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns,
		 const struct vb_cm_rep_info *info, struct vb_cm_data private_data, struct vb_cm_out *out);

/*
 * Refuses a REQ or a REP: REJ with additional information (up to 72 bytes) and private data (up to 148).
 * Legal from REQ_RCVD/MRA_REQ_SENT (REQ), REP_RCVD/MRA_REP_SENT and REP_SENT/MRA_REP_RCVD (the whole
 * handshake).
 */
int vb_cm_reject(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns, enum vb_cm_rej_reason reason,
		 struct vb_cm_data additional, struct vb_cm_data private_data, struct vb_cm_out *out);

/* Active, after EV_REP: sends RTU (private data up to 224 bytes). The connection is established. */
int vb_cm_establish(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns,
		    struct vb_cm_data private_data, struct vb_cm_out *out);

/*
 * Passive, REP sent: data came before RTU, so RTU was lost or overtaken. EV_ESTABLISHED. -EINVAL elsewhere.
 */
int vb_cm_notify_established(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns,
			     struct vb_cm_out *out);

/*
 * Ends a connection (DREQ, repeated until DREP), or answers the peer's DREQ (DREP) after EV_DISCONNECTED.
 * Private data up to 220 (DREQ) or 224 (DREP) bytes.
 */
int vb_cm_disconnect(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns,
		     struct vb_cm_data private_data, struct vb_cm_out *out);

/*
 * Repeats the DREQ of a connection that waits for the answer, before its time: for a process that ends and
 * cannot repeat it in time. False: no DREQ is open.
 */
bool vb_cm_repeat_dreq(struct vb_cm_conn *c, struct vb_cm_out *out);
/* The same for the DREP with which a connection has ended, in case it was lost. False: there was none. */
bool vb_cm_repeat_drep(struct vb_cm_conn *c, struct vb_cm_out *out);

/*
 * Gives a connection up in any state, and never fails. Sends the peer what the specification requires (REJ
 * before ESTABLISHED, DREQ after). No event but VB_CM_EV_RELEASE follows.
 */
void vb_cm_destroy(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns, struct vb_cm_out *out);

/*
 * The peer's process is known to be dead: UNREACHABLE before ESTABLISHED, DISCONNECTED after (status
 * -ECONNRESET); nothing is sent. Also for destroyed connections.
 */
void vb_cm_peer_died(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns, struct vb_cm_out *out);

/*
 * ICMP returned a message of this process, maybe forged: nobody takes messages at its destination. msg is
 * the quoted message, host its destination. It counts if it is the very REQ or SIDR_REQ that waits for its
 * first answer, or the DREQ of a connection that is over anyway. The third time that is UNREACHABLE or
 * DISCONNECTED, with -EHOSTUNREACH. A message of an established connection that probes its peer raises a
 * doubt (cm_keepalive.c); DISCONNECTED follows when the doubt has lasted. Anything else changes nothing.
 */
void vb_cm_returned(struct vb_cm_table *t, uint64_t now_ns, const struct vb_cm_msg *msg,
		    const uint8_t host[16], struct vb_cm_out *out);

/* The same for a data packet to the queue pair of a connection's peer. */
void vb_cm_packet_returned(struct vb_cm_table *t, uint64_t now_ns, uint32_t remote_qpn,
			   const uint8_t host[16]);

/*
 * The caller did not send a repetition (vb_cm_send.repeats): earlier messages still wait for room in the
 * peer's queue. The peer is slow, not gone, so the connection keeps its last try. It gives up 68 s after it
 * made the message, as a kernel's CM does.
 */
void vb_cm_held_back(struct vb_cm_table *t, uint64_t now_ns, uint32_t repeats);

/*
 * SIDR: asks for the QP of a UD service (private data up to 216 bytes); timeout_ns per try, max_retries more
 * tries. Answer: EV_SIDR_REP or EV_UNREACHABLE. peer_gid may be NULL (not checked).
 */
struct vb_cm_sidr_info {
	uint64_t service_id;
	uint16_t pkey;
	uint64_t timeout_ns;	/* at least 1 */
	uint8_t max_retries;	/* 0..15 */
	const uint8_t *peer_gid;
};

int vb_cm_sidr_connect(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns,
		       const struct vb_cm_endpoint *ep, const struct vb_cm_route *to,
		       const struct vb_cm_sidr_info *info, struct vb_cm_data private_data,
		       struct vb_cm_out *out);

/* Answers a SIDR_REQ: status SUCCESS with QPN and Q_Key, or a refusal (private data up to 136 bytes). */
struct vb_cm_sidr_reply {
	enum vb_cm_sidr_status status;
	uint32_t qpn, qkey;
	struct vb_cm_ece ece;
	struct vb_cm_data additional; /* up to 72 bytes */
};

int vb_cm_sidr_reply(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns,
		     const struct vb_cm_sidr_reply *reply, struct vb_cm_data private_data,
		     struct vb_cm_out *out);

/* ---- names (never NULL; "?" outside the lists) ---- */

const char *vb_cm_state_name(enum vb_cm_state state);
const char *vb_cm_event_name(enum vb_cm_event_type type);

#endif

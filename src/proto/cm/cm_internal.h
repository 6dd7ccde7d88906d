/* SPDX-License-Identifier: BSD-2-Clause */
/* Between the files of the CM machine: the rectangle, one step in it, the messages, the table's inside. */
#ifndef VB_PROTO_CM_INTERNAL_H
#define VB_PROTO_CM_INTERNAL_H

#include "proto/cm/cm.h"

/* ---- the rectangle (cm_states.c) ---- */

/* Rows. RX_APR stands for all answers to a LAP, which is never sent here. */
#define VB_CM_INPUTS(X)                                                                           \
	X(CONNECT) X(SIDR_CONNECT) X(REQUEST) X(SIDR_REQUEST) X(MRA) X(ACCEPT) X(REJECT) X(ESTABLISH) X(NOTIFY) \
	X(DISCONNECT) X(SIDR_REPLY) X(DESTROY) X(PEER_DIED) X(STALE)                              \
	X(RX_REQ) X(RX_MRA_REQ) X(RX_MRA_REP) X(RX_REJ) X(RX_REP) X(RX_RTU) X(RX_DREQ) X(RX_DREP) \
	X(RX_SIDR_REQ) X(RX_SIDR_REP) X(RX_LAP) X(RX_APR) X(TIMER)

enum vb_cm_input {
#define X(name) VB_CM_IN_##name,
	VB_CM_INPUTS(X)
#undef X
	VB_CM_INPUT_COUNT
};

/* One step: the input's content, and where its effects go. Only what the input has is set. */
struct vb_cm_step {
	struct vb_cm_table *t;
	uint64_t now_ns;
	struct vb_cm_out *out;
	const struct vb_cm_rx *rx;
	const struct vb_cm_endpoint *ep;
	const struct vb_cm_route *to;
	const struct vb_cm_req_info *req;
	const struct vb_cm_rep_info *rep;
	const struct vb_cm_sidr_info *sidr;
	const struct vb_cm_sidr_rep_info *sidr_rep;
	enum vb_cm_rej_reason reason;
	enum vb_cm_sidr_status sidr_status;
	struct vb_cm_data private_data, additional;
	uint8_t service_timeout, packet_lifetime;
	int status;		/* of the event that a failure causes */
	uint64_t mra_wait_ns;	/* set by a received MRA */
};

/* Does what a move is for; true: go to its next state, false: to its other one. */
typedef bool vb_cm_action(struct vb_cm_conn *c, struct vb_cm_step *s);

enum vb_cm_move_kind {
	VB_CM_MOVE_ILLEGAL,
	VB_CM_MOVE_IGNORE,
	VB_CM_MOVE_DUPLICATE,
	VB_CM_MOVE_STAY,
	VB_CM_MOVE_GO
};

struct vb_cm_move {
	enum vb_cm_move_kind kind;
	vb_cm_action *action;		/* STAY and GO */
	enum vb_cm_state next, other;	/* GO */
};

/* Every cell of input x state. */
const struct vb_cm_move *vb_cm_move(enum vb_cm_input input, enum vb_cm_state state);

/* The longest wait that a peer may ask for, as an exponent (69 s). */
#define VB_CM_MAX_PEER_TIMEOUT 24

/* Takes one step and settles timers, indexes and release. -EINVAL: illegal, nothing changed. */
int vb_cm_step(struct vb_cm_conn *c, enum vb_cm_input input, struct vb_cm_step *s);

/* ---- actions (cm_actions.c); names as in the rectangle ---- */

vb_cm_action vb_cm_do_nothing, vb_cm_do_send_req, vb_cm_do_send_sidr_req, vb_cm_do_take_req,
	vb_cm_do_take_sidr_req, vb_cm_do_mra_req, vb_cm_do_mra_rep, vb_cm_do_send_rep, vb_cm_do_reject,
	vb_cm_do_abort, vb_cm_do_send_rtu, vb_cm_do_established, vb_cm_do_send_dreq, vb_cm_do_send_drep,
	vb_cm_do_send_sidr_rep, vb_cm_do_unreachable, vb_cm_do_mra_received, vb_cm_do_rejected,
	vb_cm_do_rep_received, vb_cm_do_dreq_received, vb_cm_do_dreq_before_rtu, vb_cm_do_dreq_crossed,
	vb_cm_do_disconnected, vb_cm_do_sidr_rep_received, vb_cm_do_repeat_rtu, vb_cm_do_stale_req,
	vb_cm_do_stale_rep, vb_cm_do_answer_dreq, vb_cm_do_answer_lap, vb_cm_do_retry, vb_cm_do_retry_dreq,
	vb_cm_do_timewait_exit, vb_cm_do_probe, vb_cm_do_peer_unknown;

/* Sends the kept message again. */
void vb_cm_repeat(struct vb_cm_conn *c, struct vb_cm_step *s);

/* ---- messages (cm_format.c) ---- */

void vb_cm_out_reset(struct vb_cm_out *out);
/* Appends to out->sends. The MAD is zeroed but for its header. */
struct vb_mad *vb_cm_out_send(struct vb_cm_out *out, const struct vb_cm_route *to,
			      enum vb_cm_attribute attribute, uint64_t tid);
/* Appends an event; NULL (and none) if the user has given the connection up. */
struct vb_cm_event *vb_cm_out_event(struct vb_cm_out *out, struct vb_cm_conn *c, enum vb_cm_event_type type,
				    int status);
void vb_cm_blob_set(struct vb_cm_blob *blob, const uint8_t *bytes, size_t len);
/* The private data of any message, the whole field. */
const uint8_t *vb_cm_msg_private_data(const struct vb_cm_msg *msg, size_t *len);

void vb_cm_put_req(struct vb_mad *mad, const struct vb_cm_conn *c, const struct vb_cm_req_info *info);
void vb_cm_get_req(const struct vb_mad *mad, struct vb_cm_req_info *info);
/* Why no user could accept this REQ; 0 if nothing is wrong with it. */
enum vb_cm_rej_reason vb_cm_req_fault(const struct vb_mad *mad);
void vb_cm_put_rep(struct vb_mad *mad, const struct vb_cm_conn *c, const struct vb_cm_rep_info *info);
void vb_cm_get_rep(const struct vb_mad *mad, bool xrc, struct vb_cm_rep_info *info);
void vb_cm_get_sidr_rep(const struct vb_mad *mad, struct vb_cm_sidr_rep_info *info);
/* The event of a REQ or SIDR_REQ, but for conn. */
void vb_cm_get_request(const struct vb_cm_msg *msg, struct vb_cm_event *event);

/* Answers from no connection. */
void vb_cm_answer_rej(struct vb_cm_out *out, const struct vb_cm_rx *rx, enum vb_cm_rej_reason reason);
void vb_cm_answer_drep(struct vb_cm_out *out, const struct vb_cm_rx *rx);
void vb_cm_answer_apr(struct vb_cm_out *out, const struct vb_cm_rx *rx, enum vb_cm_ap_status status);
void vb_cm_answer_sidr(struct vb_cm_out *out, const struct vb_cm_rx *rx, enum vb_cm_sidr_status status);

/* ---- the table's inside (cm_conns.c) ---- */

#define VB_CM_HASH_CHAINS 4096	/* a power of two */

struct vb_cm_table {
	struct vb_cm_config config;
	uint64_t hash_seed;
	struct vb_cm_counters counters;
	struct vb_heap timers;
	struct vb_list all, destroyed;		/* destroyed: oldest first */
	unsigned num_all, num_destroyed;
	struct vb_cm_hash_node *by_id[VB_CM_HASH_CHAINS];
	struct vb_cm_hash_node *by_remote[VB_CM_HASH_CHAINS];
	struct vb_cm_hash_node *by_qpn[VB_CM_HASH_CHAINS];
	struct vb_cm_hash_node *by_host[VB_CM_HASH_CHAINS];	/* probers only */
};

bool vb_cm_gid_is_zero(const uint8_t gid[16]);

void vb_cm_conns_add(struct vb_cm_table *t, struct vb_cm_conn *c);
void vb_cm_conns_mark_destroyed(struct vb_cm_table *t, struct vb_cm_conn *c);
/* Takes a destroyed one out and appends its EV_RELEASE. */
void vb_cm_conns_release(struct vb_cm_table *t, struct vb_cm_conn *c, struct vb_cm_out *out);
/* Releases the oldest destroyed one if there are too many. */
void vb_cm_conns_evict(struct vb_cm_table *t, struct vb_cm_out *out);
/* By what identifies a repeated REQ or SIDR_REQ: the sender's comm id at its address. */
void vb_cm_conns_index_remote(struct vb_cm_table *t, struct vb_cm_conn *c);
/* By the peer's QP, while it is in use; does nothing without QPN or address. */
void vb_cm_conns_index_qpn(struct vb_cm_table *t, struct vb_cm_conn *c);
void vb_cm_conns_unindex_qpn(struct vb_cm_conn *c);
void vb_cm_conns_unindex_remote(struct vb_cm_conn *c);
void vb_cm_conns_index_host(struct vb_cm_table *t, struct vb_cm_conn *c);
void vb_cm_conns_unindex_host(struct vb_cm_conn *c);

/* Destroyed ones included. */
struct vb_cm_conn *vb_cm_conns_by_id(const struct vb_cm_table *t, uint32_t local_comm_id);
struct vb_cm_conn *vb_cm_conns_by_remote(const struct vb_cm_table *t, bool sidr, const uint8_t gid[16],
					 uint32_t remote_comm_id);
struct vb_cm_conn *vb_cm_conns_by_qpn(const struct vb_cm_table *t, const uint8_t gid[16], uint32_t qpn);
/* The probers of a host, one for each of its processes; previous NULL: the first. */
struct vb_cm_conn *vb_cm_conns_next_prober(const struct vb_cm_table *t, const uint8_t gid[16],
					  const struct vb_cm_conn *previous);

/* ---- peers that die silently (cm_keepalive.c) ---- */

/* The connection is established from now on, or no longer. */
void vb_cm_keepalive_begin(struct vb_cm_table *t, struct vb_cm_conn *c);
void vb_cm_keepalive_end(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns);
/* It has sent a probe: the next sibling is the prober. */
void vb_cm_keepalive_probed(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns);
/* Until an established connection probes; VB_CM_NEVER: a sibling does. */
uint64_t vb_cm_keepalive_pause_ns(const struct vb_cm_conn *c, uint64_t now_ns);
/* These three take a connection in any state. Its peer sent a message; */
void vb_cm_keepalive_heard(const struct vb_cm_table *t, const struct vb_cm_conn *c);
/* the peer's host knows no such connection; */
void vb_cm_keepalive_unknown(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns);
/* ICMP has returned a message or packet of the connection. */
void vb_cm_keepalive_returned(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns);

#endif

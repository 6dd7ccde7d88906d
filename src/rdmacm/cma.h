/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The inside of librdmacm: identifiers (rdma_cm_id), event channels, and the agent that joins them to the
 * pure CM machine (proto/cm/cm.h), to this process's inbox and to its bound ports.
 *
 *   program ── public calls ── ids ── agent ── CM machine
 *                    │                  │ └── timer of the progress thread
 *                 channels ◄─ events ───┘ └── MADs by inbox (slots) and ports (listeners)
 *
 * Rooms. Each uses only those below it:
 *
 *   .          the public calls
 *   id/        ids, what they wait for, and the CM messages that make new ones
 *   agent/     the lock, channels with their events, and the machine that leads to events and MADs
 *   address/   addresses, devices, ports: they know no ids
 *
 * Who owns what. An id owns its bound port, its path record and, from connect or request to its destruction,
 * one connection of the machine (malloc'ed; the machine gives it back by VB_CM_EV_RELEASE, often after the id
 * is gone). A channel owns the events queued on it. An event that was handed out belongs to the program until
 * rdma_ack_cm_event.
 *
 * Threading. One mutex (vb_cma_lock) guards ids, channels, events and the machine; CM traffic is rare and
 * every section is short. No call into libibverbs is made under it, because the adapter reports dead peers to
 * us from inside. The devices have a mutex of their own. The progress thread and inspection look at state,
 * addresses, device and QP number. These are written under the lock, and read without it only by the caller
 * that writes them. Public fields of an id are written by the thread that calls with that id, as in every
 * implementation of this interface: QP transitions happen in rdma_get_cm_event, rdma_accept,
 * rdma_disconnect, never in the progress thread.
 *
 * A fork. Ids and channels made before it stay usable for local calls only. The child's first use of the
 * network begins an agent of its own.
 */
#ifndef VB_RDMACM_CMA_H
#define VB_RDMACM_CMA_H

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "proto/cm/cm.h"
#include "rdmacm/address/address.h"
#include "rdmacm/fail.h"

/* Exponents n of the CM (4.096 us * 2^n). */
enum {
	VB_CMA_RESPONSE_TIMEOUT = 18, /* about 1 s until a message is repeated */
	/*
	 * About 4.3 s for a SIDR_REQ, as a kernel's CM waits. A kernel that has answered a SIDR_REQ takes its
	 * repetition for a new request, and the program there gets another event.
	 */
	VB_CMA_SIDR_TIMEOUT     = 20,
	VB_CMA_RETRIES          = 15,
	VB_CMA_PACKET_LIFETIME  = 16,
};

/* X(NAME, what an id in it is) */
#define VB_CMA_STATES(X)                                  \
	X(IDLE, "neither bound nor resolved")             \
	X(BOUND, "bound to an address")                   \
	X(RESOLVING, "resolving its address")             \
	X(ADDR_RESOLVED, "resolved to an address")        \
	X(ROUTE_RESOLVED, "resolved to a route")          \
	X(CONNECTING, "connecting")                       \
	X(LISTENING, "listening")                         \
	X(REQUESTED, "a connection request not answered") \
	X(ACCEPTED, "accepted and not yet established")   \
	X(CONNECTED, "connected")                         \
	X(CLOSED, "disconnected")                         \
	X(FAILED, "refused or unreachable")

enum vb_cma_state {
#define X(name, text) VB_CMA_##name,
	VB_CMA_STATES(X)
#undef X
};

struct vb_cma_event;
struct vb_cma_neighbour;
struct vb_cma_lookup;

/* What both sides agreed on, and what the QP's transitions need. "Our" numbers are this side's. */
struct vb_cma_agreement {
	struct vb_cm_path path;
	uint32_t remote_qpn;
	uint32_t remote_psn;                          /* what the peer's QP expects first */
	uint8_t responder_resources, initiator_depth; /* ours */
	uint8_t retry_count, rnr_retry_count;         /* for our sends */
};

struct vb_cma_id {
	struct rdma_cm_id pub;
	struct vb_list node;        /* of all ids, in the order of creation */
	uint64_t serial;
	struct vb_list listening;   /* of those that listen */
	struct vb_list events;      /* queued on the channel for it, oldest first */
	enum vb_cma_state state;
	bool sync;                  /* its channel is its own and calls wait */

	struct vb_cma_device *device;
	uint8_t gid_index;
	unsigned ifindex;           /* of the device's interface */
	enum ibv_mtu mtu;           /* of the device's port, and of the path from the resolution on */
	struct vb_cma_addr src, dst; /* as in pub.route.addr */
	struct vb_cma_addr asked_src; /* src before it was resolved; its family is 0 if it was unbound */
	struct vb_cma_neighbour *neighbour; /* RESOLVING: what it waits for */
	struct vb_cma_lookup *lookup; /* of a name, under way (lookup.c) */
	struct rdma_addrinfo *found; /* by the last one */
	struct vb_list groups;      /* memberships (id/group.c) */
	struct vb_cma_port *port;
	struct vb_cma_port *reservation; /* of the number that was chosen for a reusable id */

	/* options */
	uint8_t tos, ack_timeout;
	bool ack_timeout_set, reuseaddr, afonly;

	/* connection */
	struct vb_cm_conn *conn;
	uint32_t qpn;               /* of pub.qp, which the program may destroy unnoticed; 0: none seen */
	uint32_t our_psn;           /* what our QP expects first, whoever moves it and whenever */
	struct vb_cma_agreement agreed;
	bool qp_failed;             /* our QP refused the connection: the program knows of its end */
	bool is_end_known;          /* DISCONNECTED was handed out */
	/* its request ended before the program answered it: the program does not hear of it */
	bool was_withdrawn;
	struct ibv_ece local_ece, remote_ece;

	/* listening */
	unsigned backlog_left;      /* requests that may still be queued unseen */

	/* of an id that a request makes */
	struct vb_cma_id *listener; /* while its CONNECT_REQUEST is queued */
	struct vb_cma_event *request; /* its CONNECT_REQUEST, until that is queued */

	/* endpoints of rdma_create_ep */
	struct ibv_qp_init_attr *child_qp_attr;
	void *connect_data;
	uint8_t connect_data_len;

	unsigned events_taken, events_acked;
};

static inline struct vb_cma_id *vb_cma_id_of(struct rdma_cm_id *pub)
{
	return vb_container_of(pub, struct vb_cma_id, pub);
}

static inline bool vb_cma_is_datagram(const struct vb_cma_id *id) { return id->pub.qp_type == IBV_QPT_UD; }

/* The way from the id's device to a GID. */
static inline void vb_cma_fill_ah(const struct vb_cma_id *id, const union ibv_gid *dgid,
				  struct ibv_ah_attr *ah)
{
	ah->is_global = 1;
	ah->grh.dgid = *dgid;
	ah->grh.sgid_index = id->gid_index;
	ah->grh.hop_limit = VB_HOP_LIMIT;
	ah->grh.traffic_class = id->tos;
	ah->port_num = id->pub.port_num;
}

#endif

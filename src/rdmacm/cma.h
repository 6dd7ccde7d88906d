/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The inside of librdmacm: identifiers (rdma_cm_id), event channels, and the agent that joins them to the
 * pure CM machine (proto/cm/cm.h), to this process's inbox and to its bound ports.
 *
 *   program ── public calls ── ids ── agent ── CM machine
 *                    │                  │ └── timer of the progress thread
 *                 channels ◄─ events ───┘ └── MADs by inbox (slots) and ports (listeners)
 *
 * Who owns what. An id owns its bound port, its path record and, from connect or request to its destruction,
 * one connection of the machine (malloc'ed; the machine gives it back by VB_CM_EV_RELEASE, often after the id
 * is gone). A channel owns the events queued on it; an event handed out belongs to the program until
 * rdma_ack_cm_event.
 *
 * Threading. One mutex (vb_cma_lock) guards ids, channels, events and the machine; CM traffic is rare and
 * every section is short. No call into libibverbs is made under it, because the adapter reports dead peers to
 * us from inside. The devices have a mutex of their own. What others look at, the progress thread and whoever
 * looks into the process (state, addresses, device, QP number), is written under the lock, and read without
 * it only where the caller is the one that writes it. Public fields of an id are written by the thread that
 * calls with that id, as in every implementation of this interface: QP transitions happen in
 * rdma_get_cm_event, rdma_accept, rdma_disconnect, never in the progress thread.
 *
 * A fork. Ids and channels made before it stay usable for local calls only; the child's first use of the
 * network begins an agent of its own.
 */
#ifndef VB_RDMACM_CMA_H
#define VB_RDMACM_CMA_H

#include <errno.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "adapter/fault_injection.h"
#include "base/base.h"
#include "base/list.h"
#include "base/log.h"
#include "host/host.h"
#include "host/loop/notifier.h"
#include "host/net/privilege.h"
#include "host/net/route.h"
#include "proto/cm/gsi.h"

/* Fails a public call: explains, sets errno, gives -1. err is positive. */
#define vb_cma_fail(err, ...) (__extension__({          \
		vb_explain(__func__, __VA_ARGS__);      \
		errno = (err);                          \
		-1;                                     \
	}))

/* Does a fault on purpose make this public call fail? errno says how. Once per call, at its head. */
static inline bool vb_cma_is_faulty(const char *call)
{
	int err = vb_fault_call(call, 0);

	if (vb_unlikely(err))
		errno = -err;
	return err;
}

/* What a public call returns for 0 or a negative errno. */
static inline int vb_cma_result(int err)
{
	if (!err)
		return 0;
	errno = -err;
	return -1;
}

/* ---- addresses ---- */

/*
 * An IP endpoint; IPv4 as ::ffff:a.b.c.d. family is that of the sockaddr it came from and goes back to: also
 * AF_IB, where the address is a GID, which with RoCEv2 is an IP address, and the port the lower end of a
 * service id.
 */
struct vb_cma_addr {
	struct in6_addr ip;
	uint32_t scope; /* interface index of a link-local address, else 0 */
	uint16_t port;  /* host order */
	sa_family_t family;
	uint16_t port_space; /* AF_IB: of the service id; 0: that of the id */
};

/* -EINVAL: NULL or not AF_INET, AF_INET6 or AF_IB. */
int vb_cma_addr_parse(const struct sockaddr *sa, struct vb_cma_addr *addr);
void vb_cma_addr_format(const struct vb_cma_addr *addr, struct sockaddr_storage *ss);
void vb_cma_addr_any(sa_family_t family, struct vb_cma_addr *addr);
bool vb_cma_addr_is_any(const struct vb_cma_addr *addr);
bool vb_cma_ip_is_v4(const struct in6_addr *ip);
bool vb_cma_ip_is_multicast(const struct in6_addr *ip);
/* 127/8 or ::1. */
bool vb_cma_ip_is_loopback(const struct in6_addr *ip);
/*
 * Is it an answer of rdma_getaddrinfo's, or a copy of one, that means this host rather than one of its
 * devices?
 */
bool vb_cma_addrinfo_is_host(const struct sockaddr *sa);

enum { VB_CMA_TEXT = 64 };
/* "[::1]:7471" for explanations; returns text. */
const char *vb_cma_addr_text(const struct vb_cma_addr *addr, char text[VB_CMA_TEXT]);

/* ---- devices ---- */

/* An opened device: kept open for the life of the process, as the man page of rdma_get_devices promises. */
struct vb_cma_device {
	struct vb_list node;
	struct ibv_context *verbs;
	struct ibv_pd *pd; /* the default protection domain of ids on this device */
	struct ibv_xrcd *xrcd; /* the XRC domain likewise; NULL until it is needed */
	uint8_t max_responder_resources, max_initiator_depth;
	uint64_t guid;     /* host order */
};

/* Where an address lives. */
struct vb_cma_source {
	struct vb_cma_device *device;
	uint8_t port_num;
	uint8_t gid_index;
	enum ibv_mtu mtu;
	unsigned ifindex;
};

/* The device, port and GID of a local address. -ENODEV if it has none; -ENOMEM. */
int vb_cma_device_find(const struct vb_cma_addr *addr, struct vb_cma_source *source);
struct vb_cma_device *vb_cma_device_of(const struct ibv_context *verbs);
/* The domain that ties receiving XRC QPs to SRQs, unless the program brings its own. NULL with errno. */
struct ibv_xrcd *vb_cma_device_xrcd(struct vb_cma_device *dev);

/* ---- bound ports ---- */

struct vb_cma_port;

/*
 * Takes (port space, address); a port number 0 is chosen and written to addr. afonly: an IPv6 wildcard leaves
 * IPv4 alone. -EADDRINUSE, -ENOMEM, …. Never under the lock, nor is its close.
 */
int vb_cma_port_bind(enum rdma_port_space ps, struct vb_cma_addr *addr, bool afonly,
		     struct vb_cma_port **port);
int vb_cma_port_listen(struct vb_cma_port *port);
void vb_cma_port_close(struct vb_cma_port *port);
/* The port as a service of the network (proto/cm/gsi.h). */
struct vb_cm_service vb_cma_service(enum rdma_port_space ps, const struct vb_cma_addr *addr);
/* A number in the ephemeral range. */
uint16_t vb_cma_port_random(void);

/* ---- ids ---- */

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

struct vb_cma_channel;
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
	struct vb_list groups;      /* memberships (mcast.c) */
	struct vb_cma_port *port;

	/* options */
	uint8_t tos, ack_timeout;
	bool ack_timeout_set, reuseaddr, afonly;

	/* connection */
	struct vb_cm_conn *conn;
	uint32_t qpn;               /* of pub.qp, which the program may destroy behind our back; 0: none */
	uint32_t our_psn;           /* what our QP expects first, whoever moves it and whenever */
	struct vb_cma_agreement agreed;
	bool qp_failed;             /* our QP refused the connection: what follows from that is not news */
	bool disconnect_told;       /* DISCONNECTED was handed out */
	/* its request ended before the program answered it: the program is told nothing of it */
	bool was_withdrawn;
	struct ibv_ece local_ece, remote_ece;

	/* listening */
	unsigned backlog_left;      /* requests that may still be queued unseen */
	struct vb_cma_id *listener; /* of an id whose CONNECT_REQUEST is queued */

	/* endpoints of rdma_create_ep */
	struct ibv_qp_init_attr *child_qp_attr;
	struct ibv_pd *child_pd;
	void *connect_data;
	uint8_t connect_data_len;

	unsigned events_told, events_acked;
};

static inline struct vb_cma_id *vb_cma_id_of(struct rdma_cm_id *pub)
{
	return vb_container_of(pub, struct vb_cma_id, pub);
}

const char *vb_cma_state_text(enum vb_cma_state state);
/* The state as it is now: messages and timers change it. */
enum vb_cma_state vb_cma_id_state(const struct vb_cma_id *id);
/* For explanations. */
static inline const char *vb_cma_id_state_text(const struct vb_cma_id *id)
{
	return vb_cma_state_text(vb_cma_id_state(id));
}
static inline bool vb_cma_is_datagram(const struct vb_cma_id *id) { return id->pub.qp_type == IBV_QPT_UD; }

/* channel NULL: synchronous. 0 or a negative errno. */
int vb_cma_id_create(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps,
		     enum ibv_qp_type qp_type, struct vb_cma_id **id);
/*
 * Under the lock: a new id for a request, on the listener's channel and in no program's hands. NULL: out of
 * memory.
 */
struct vb_cma_id *vb_cma_id_create_child_locked(struct vb_cma_id *listener);
/* Under the lock: gives up an id that no program has seen. */
void vb_cma_id_discard_locked(struct vb_cma_id *id);
/* Ties the id to the device that has its source address. -ENODEV. */
int vb_cma_id_attach(struct vb_cma_id *id);
void vb_cma_id_set_src_locked(struct vb_cma_id *id, const struct vb_cma_addr *addr);
void vb_cma_id_set_dst_locked(struct vb_cma_id *id, const struct vb_cma_addr *addr);
/* Binds as rdma_bind_addr does. 0 or a negative errno; explains as `call`. */
int vb_cma_id_bind(struct vb_cma_id *id, const char *call, const struct vb_cma_addr *addr);
/* Back to what it was before the resolution that failed. */
void vb_cma_id_unresolve(struct vb_cma_id *id);
/*
 * Under the lock: the end of a resolution, status 0 or a negative errno. -ENOMEM: it cannot be told, and
 * nothing has changed.
 */
int vb_cma_id_resolved_locked(struct vb_cma_id *id, int status);
/* The route is known: fills the path record and says so. 0 or -ENOMEM. */
int vb_cma_id_route_resolved(struct vb_cma_id *id);
/* The way from the id's device to a GID. */
void vb_cma_fill_ah(const struct vb_cma_id *id, const union ibv_gid *dgid, struct ibv_ah_attr *ah);
/* Fills pub.route.path_rec (one path) from the id's addresses. */
int vb_cma_id_fill_path(struct vb_cma_id *id);

/* ---- neighbours ---- */

/*
 * Under the lock: the id is RESOLVING until the route's next hop is known or timeout_ms have passed. 0 or
 * -ENOMEM.
 */
int vb_cma_neighbour_await_locked(struct vb_cma_id *id, const struct vb_route *route, int timeout_ms);
/* Stops waiting, if the id waits. */
void vb_cma_neighbour_forget_locked(struct vb_cma_id *id);

/* ---- names ---- */

/* Whoever looks up a name for the id does so in vain. */
void vb_cma_lookup_forget_locked(struct vb_cma_id *id);

/* ---- interfaces ---- */

/* From here on ids hear of the end of their devices' interfaces. */
void vb_cma_interfaces_watch_locked(void);

/* ---- multicast ---- */

/* Leaves all of the id's groups. Without the lock. */
void vb_cma_groups_leave(struct vb_cma_id *id);
/* The interface of the id's groups is gone: MULTICAST_ERROR for each that it is in. */
void vb_cma_groups_lost_locked(struct vb_cma_id *id);
/*
 * What is left to do with a MULTICAST_JOIN in the thread that takes it: the id's QP is attached. False: it
 * was left meanwhile.
 */
bool vb_cma_group_joined(struct vb_cma_event *event);

/* ---- events and channels ---- */

struct vb_cma_event {
	struct rdma_cm_event pub;
	struct vb_list node;      /* of the channel's */
	struct vb_list of_owner;
	struct vb_cma_id *owner;  /* whose destruction waits for the acknowledgement */
	struct ibv_ece ece;
	uint64_t group;           /* of multicast events (mcast.c) */
	uint8_t private_data[256];
};

/* Under the lock. NULL: out of memory. */
struct vb_cma_event *vb_cma_event_create(struct vb_cma_id *id, enum rdma_cm_event_type type, int status);
void vb_cma_event_set_private_data(struct vb_cma_event *event, const void *data, size_t len);
void vb_cma_event_queue_locked(struct vb_cma_event *event);
/*
 * Queues an event without data. -ENOMEM: there is none; those who have a caller to tell refuse what would
 * have led to it.
 */
int vb_cma_event_raise_locked(struct vb_cma_id *id, enum rdma_cm_event_type type, int status);
/* Drops the id's queued events; ids of requests among them are discarded. */
void vb_cma_event_drop_locked(struct vb_cma_id *id);
/* From here on `owner` is the id that waits for this handed-out event's acknowledgement. */
void vb_cma_event_give_locked(struct rdma_cm_event *event, struct vb_cma_id *owner);
/* Waits until every event handed out for id is acknowledged. */
void vb_cma_event_wait_acked_locked(struct vb_cma_id *id);
/*
 * What is left to do with an event in the thread that takes it (event.c); false: it is no news, take the
 * next.
 */
bool vb_cma_event_finish(struct vb_cma_event *event);

/* Its descriptor has a number of at least least_fd (vb_fd_lift). 0 or a negative errno. */
int vb_cma_channel_create(int least_fd, struct rdma_event_channel **channel);
void vb_cma_channel_destroy(struct rdma_event_channel *channel);

/*
 * Synchronous ids: takes the next event as the outcome of the call that `call` names; others: 0 at once. 0 or
 * -1 with errno.
 */
int vb_cma_complete(struct vb_cma_id *id, const char *call);
/* Before a call that will produce a new event on a synchronous id. */
void vb_cma_release_event(struct vb_cma_id *id);

/* ---- the agent ---- */

void vb_cma_lock(void);
/*
 * For the end of the process, which may have come in the middle of anything: false if the lock is not to be
 * had.
 */
bool vb_cma_lock_at_exit(void);
void vb_cma_unlock(void);
/* Waits for the acknowledgement of some event; wakes those who wait for one. */
void vb_cma_wait_ack_locked(void);
void vb_cma_wake_ack_locked(void);

/* Starts the agent unless it runs. Without the lock. */
int vb_cma_agent_start(void);
struct vb_cm_table *vb_cma_table_locked(void);
/* Under the lock, after a call of the machine: delivers its events, sends its MADs, sets the timer. */
void vb_cma_agent_run_locked(const struct vb_cm_out *out);
/*
 * Under the lock, which it gives up now and then: the process ends. Waits a short while for peers on the
 * network to answer the DREQs that they got, and repeats these, because nobody will do so later.
 */
void vb_cma_agent_take_leave_locked(void);
/*
 * Where calls end that say a connection's last word: the program may leave by _exit next, and the word shall
 * not go with it (ud/gsi.h). Without the lock.
 */
void vb_cma_agent_hand_on(void);
void vb_cma_ids_locked(struct vb_list **ids);
/*
 * An endpoint for vb_cm_connect, vb_cm_request: a fresh comm id of this process's first slot. peer: where
 * messages go.
 */
struct vb_cm_endpoint vb_cma_endpoint_locked(void *user, const struct vb_cm_route *peer);
/* The route of the first MAD to whoever listens at id's destination. */
struct vb_cm_route vb_cma_route_to_port(const struct vb_cma_id *id);

/* An event of the machine (event.c). */
void vb_cma_deliver_locked(const struct vb_cm_event *event);
/* Requests for the id are taken from here on; and no more. */
void vb_cma_listener_add_locked(struct vb_cma_id *id);
void vb_cma_listener_remove_locked(struct vb_cma_id *id);
/* A request from the wire (listen.c). */
void vb_cma_take_request_locked(const struct vb_cm_rx *rx, struct vb_cm_out *out);

/* ---- QPs ---- */

/* Moves the id's QP to RTR and RTS as agreed. 0 or a negative errno. Without the lock. */
int vb_cma_qp_connect(struct vb_cma_id *id);
/* INIT, and for datagrams RTR and RTS. */
int vb_cma_qp_prepare(struct vb_cma_id *id, struct ibv_qp *qp);
/* To the error state, if there is a QP. */
void vb_cma_qp_fail(struct vb_cma_id *id);

/* Exponents n of the CM (4.096 us * 2^n). */
enum {
	VB_CMA_RESPONSE_TIMEOUT = 18, /* about 1 s until a message is repeated */
	VB_CMA_RETRIES          = 15,
	VB_CMA_PACKET_LIFETIME  = 16,
	VB_CMA_ACK_TIMEOUT      = 17, /* about 0.5 s */
	VB_CMA_MRA_TIMEOUT      = 22, /* about 17 s of patience for a program that thinks */
	VB_CMA_MAX_BACKLOG      = 16384,
	VB_CMA_HOP_LIMIT        = 64,
	VB_CMA_PKEY             = 0xffff,
};

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The connection manager: sockets' ways (addresses, ports, listen, connect, accept) of connecting queue
 * pairs. Link with -lrdmacm. rdma_cm(7)
 *
 * An rdma_cm_id is to RDMA what a socket is to IP. Calls on it start something; how it went is told by an
 * event on the id's channel. An id made with a null channel is synchronous instead: calls return when the
 * thing is done, and the event is at id->event until the next call. Ids may be used from any thread, each by
 * one at a time.
 *
 * Calls that give an int give 0, or -1 with errno; calls that give a pointer NULL with errno. Each says
 * below which errors are its own. All give EINVAL for a NULL pointer, and for an id that has not got so far
 * or is past it; all that make something ENOMEM, EMFILE or EAGAIN if no memory, descriptor or thread is
 * left. On a synchronous id, a call also fails with what its event would tell.
 */
#ifndef RDMA_CMA_H
#define RDMA_CMA_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <infiniband/sa.h>
#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Kinds of events; rdma_get_cm_event(3) tells which call each one answers. */
enum rdma_cm_event_type {
	RDMA_CM_EVENT_ADDR_RESOLVED,
	RDMA_CM_EVENT_ADDR_ERROR,
	RDMA_CM_EVENT_ROUTE_RESOLVED,
	RDMA_CM_EVENT_ROUTE_ERROR,
	RDMA_CM_EVENT_CONNECT_REQUEST,
	RDMA_CM_EVENT_CONNECT_RESPONSE,
	RDMA_CM_EVENT_CONNECT_ERROR,
	RDMA_CM_EVENT_UNREACHABLE,
	RDMA_CM_EVENT_REJECTED,
	RDMA_CM_EVENT_ESTABLISHED,
	RDMA_CM_EVENT_DISCONNECTED,
	RDMA_CM_EVENT_DEVICE_REMOVAL,
	RDMA_CM_EVENT_MULTICAST_JOIN,
	RDMA_CM_EVENT_MULTICAST_ERROR,
	RDMA_CM_EVENT_ADDR_CHANGE,
	RDMA_CM_EVENT_TIMEWAIT_EXIT,
	RDMA_CM_EVENT_ADDRINFO_RESOLVED,
	RDMA_CM_EVENT_ADDRINFO_ERROR,
	RDMA_CM_EVENT_USER,
	RDMA_CM_EVENT_INTERNAL,	/* given to no program */
};

/*
 * Port spaces: TCP is for RC, UDP for UD, IPOIB for UD shared with IP over InfiniBand, IB for any.
 * rdma_create_id(3)
 */
enum rdma_port_space {
	RDMA_PS_IPOIB	= 0x0002,
	RDMA_PS_TCP	= 0x0106,
	RDMA_PS_UDP	= 0x0111,
	RDMA_PS_IB	= 0x013F,
};

/* How a port space and a port make an IB service identifier, and the identifiers' prefixes. */
#define RDMA_IB_IP_PS_MASK	0xFFFFFFFFFFFF0000ULL
#define RDMA_IB_IP_PORT_MASK	0x000000000000FFFFULL
#define RDMA_IB_IP_PS_TCP	0x0000000001060000ULL
#define RDMA_IB_IP_PS_UDP	0x0000000001110000ULL
#define RDMA_IB_PS_IB		0x00000000013F0000ULL

/* The queue key of every UD queue pair and multicast group of RDMA_PS_UDP. */
#define RDMA_UDP_QKEY	0x01234567

/* GIDs and partition of a resolved address. */
struct rdma_ib_addr {
	union ibv_gid	sgid;
	union ibv_gid	dgid;
	__be16		pkey;
};

/* Both ends' addresses; the family decides which name of each union is meant. */
struct rdma_addr {
	__extension__ union {
		struct sockaddr		src_addr;
		struct sockaddr_in	src_sin;
		struct sockaddr_in6	src_sin6;
		struct sockaddr_storage	src_storage;
	};
	__extension__ union {
		struct sockaddr		dst_addr;
		struct sockaddr_in	dst_sin;
		struct sockaddr_in6	dst_sin6;
		struct sockaddr_storage	dst_storage;
	};
	union {
		struct rdma_ib_addr	ibaddr;
	} addr;
};

/* The way to the other end: num_paths records at path_rec, owned by the id. */
struct rdma_route {
	struct rdma_addr	addr;
	struct ibv_sa_path_rec	*path_rec;
	int			num_paths;
};

/* A channel for events; fd becomes readable when one is waiting. rdma_create_event_channel(3) */
struct rdma_event_channel {
	int	fd;
};

/*
 * An identifier of one end of a connection, a listener, or a datagram end. verbs is set once it is bound to
 * a device; qp, srq, the queues and their channels by rdma_create_qp() and rdma_create_srq().
 * rdma_create_id(3)
 */
struct rdma_cm_id {
	struct ibv_context		*verbs;
	struct rdma_event_channel	*channel;
	void				*context;	/* the program's */
	struct ibv_qp			*qp;
	struct rdma_route		route;
	enum rdma_port_space		ps;
	uint8_t				port_num;
	struct rdma_cm_event		*event;		/* of a synchronous id */
	struct ibv_comp_channel		*send_cq_channel;
	struct ibv_cq			*send_cq;
	struct ibv_comp_channel		*recv_cq_channel;
	struct ibv_cq			*recv_cq;
	struct ibv_srq			*srq;
	struct ibv_pd			*pd;
	enum ibv_qp_type		qp_type;
};

/* In rdma_conn_param: as many reads and atomics as both devices can do. */
enum {
	RDMA_MAX_RESP_RES	= 0xFF,
	RDMA_MAX_INIT_DEPTH	= 0xFF,
};

/*
 * Parameters of a connection. The two depths count reads and atomics in flight, from the peer and to it. How
 * much private data fits depends on the call and port space. rdma_connect(3), rdma_accept(3)
 */
struct rdma_conn_param {
	const void	*private_data;
	uint8_t		private_data_len;	/* bytes; in an event, it may count padding too */
	uint8_t		responder_resources;
	uint8_t		initiator_depth;
	uint8_t		flow_control;
	uint8_t		retry_count;		/* 0 to 7; the connecting side's counts */
	uint8_t		rnr_retry_count;	/* 0 to 6; 7: without end */
	uint8_t		srq;			/* this and qp_num: only for an id without its own QP */
	uint32_t	qp_num;
};

/* What a datagram end learns of its peer: how to reach it. */
struct rdma_ud_param {
	const void		*private_data;
	uint8_t			private_data_len;
	struct ibv_ah_attr	ah_attr;
	uint32_t		qp_num;
	uint32_t		qkey;
};

/*
 * An event about id; a CONNECT_REQUEST's id is new and listen_id is the listener. status: 0, a negative
 * errno value, or, after a rejection, the peer's reason. param.ud is for RDMA_PS_UDP and IPOIB.
 * rdma_get_cm_event(3)
 */
struct rdma_cm_event {
	struct rdma_cm_id	*id;
	struct rdma_cm_id	*listen_id;
	enum rdma_cm_event_type	event;
	int			status;
	union {
		struct rdma_conn_param	conn;
		struct rdma_ud_param	ud;
		uint64_t		arg;	/* of RDMA_CM_EVENT_USER */
	} param;
};

/*
 * Bits of rdma_addrinfo.ai_flags: for listening; numeric node; do not resolve routes; ai_family is a demand;
 * ask the subnet's administration, or the system's names (the default).
 */
#define RAI_PASSIVE	0x00000001
#define RAI_NUMERICHOST	0x00000002
#define RAI_NOROUTE	0x00000004
#define RAI_FAMILY	0x00000008
#define RAI_SA		0x00000010
#define RAI_DNS		0x00000020

/* What rdma_getaddrinfo() finds, and its hints. Lengths are in bytes; ai_next leads through a list. */
struct rdma_addrinfo {
	int			ai_flags;
	int			ai_family;	/* AF_INET, AF_INET6, AF_IB */
	int			ai_qp_type;	/* enum ibv_qp_type */
	int			ai_port_space;	/* enum rdma_port_space */
	socklen_t		ai_src_len;
	socklen_t		ai_dst_len;
	struct sockaddr		*ai_src_addr;
	struct sockaddr		*ai_dst_addr;
	char			*ai_src_canonname;
	char			*ai_dst_canonname;
	size_t			ai_route_len;
	void			*ai_route;	/* struct ibv_path_data[] */
	size_t			ai_connect_len;
	void			*ai_connect;	/* private data for the connection */
	struct rdma_addrinfo	*ai_next;
};

/* Which members of rdma_cm_join_mc_attr_ex are valid. rdma_join_multicast_ex(3) */
enum rdma_cm_join_mc_attr_mask {
	RDMA_CM_JOIN_MC_ATTR_ADDRESS	= 1 << 0,
	RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS	= 1 << 1,
	RDMA_CM_JOIN_MC_ATTR_RESERVED	= 1 << 2,
};

/* Ways to be a member of a multicast group: to send and receive, or to send only. Values, not bits. */
enum rdma_cm_mc_join_flags {
	RDMA_MC_JOIN_FLAG_FULLMEMBER,
	RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
	RDMA_MC_JOIN_FLAG_RESERVED,
};

/* Which group to join, and how. */
struct rdma_cm_join_mc_attr_ex {
	uint32_t	comp_mask;	/* enum rdma_cm_join_mc_attr_mask */
	uint32_t	join_flags;	/* enum rdma_cm_mc_join_flags */
	struct sockaddr	*addr;
};

/* Make a channel; it lives until rdma_destroy_event_channel(). ENFILE. rdma_create_event_channel(3) */
struct rdma_event_channel *rdma_create_event_channel(void);

/* Release it, after its ids. rdma_destroy_event_channel(3) */
void rdma_destroy_event_channel(struct rdma_event_channel *channel);

/*
 * Wait for an event on the channel. The event lives until rdma_ack_cm_event(). EAGAIN: channel->fd is
 * non-blocking, and there is no event; EINTR: a signal handler ran. rdma_get_cm_event(3)
 */
int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event);

/* Give an event back. Destroying an id waits until its events are given back. rdma_ack_cm_event(3) */
int rdma_ack_cm_event(struct rdma_cm_event *event);

/* A constant text for an event; a value out of range has a text too. rdma_event_str(3) */
const char *rdma_event_str(enum rdma_cm_event_type event);

/*
 * Make an id that reports to channel, or a synchronous one with NULL; it lives until rdma_destroy_id().
 * EINVAL: no such port space. rdma_create_id(3)
 */
int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
		   enum rdma_port_space ps);

/* End whatever the id is doing and release it, after its queue pair. rdma_destroy_id(3) */
int rdma_destroy_id(struct rdma_cm_id *id);

/*
 * Make a synchronous id for an address: resolved and routed, or bound if res has RAI_PASSIVE. With
 * qp_init_attr a queue pair is made too (for a listener: for each request), in pd or the default domain.
 * ETIMEDOUT: the next hop does not answer; else as rdma_bind_addr(), rdma_resolve_addr() and
 * rdma_create_qp(). rdma_create_ep(3)
 */
int rdma_create_ep(struct rdma_cm_id **id, struct rdma_addrinfo *res, struct ibv_pd *pd,
		   struct ibv_qp_init_attr *qp_init_attr);

/* Release an id with its queue pair and SRQ. rdma_destroy_ep(3) */
void rdma_destroy_ep(struct rdma_cm_id *id);

/*
 * Move an id's events to channel, or make it synchronous with NULL. Waits for events not given back.
 * rdma_migrate_id(3)
 */
int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel);

/*
 * Give the id a local address: the wildcard, or one of a device, to which it is then bound. Port 0 takes a
 * free one. EADDRNOTAVAIL: not an address of this host; ENODEV: no device has it; EADDRINUSE: another id
 * has the port; EACCES: the port is a privileged one. rdma_bind_addr(3)
 */
int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr);

/*
 * Find the device and the addresses that lead to dst_addr, from src_addr unless that is NULL, and bind the
 * id to them. Answer: ADDR_RESOLVED or ADDR_ERROR within timeout_ms. ENETUNREACH, EHOSTUNREACH: there is no
 * route; for src_addr as rdma_bind_addr(). rdma_resolve_addr(3)
 */
int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src_addr, struct sockaddr *dst_addr,
		      int timeout_ms);

/*
 * Find the path to the resolved address. Answer: ROUTE_RESOLVED or ROUTE_ERROR within timeout_ms.
 * rdma_resolve_route(3)
 */
int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms);

/*
 * Make the id's queue pair, in pd (of the id's device) or, with NULL, the default domain, with queues of its
 * own where the attributes name none. It is moved through its states by the calls here; receives may be
 * posted at once. EINVAL also for more than the device has; EOPNOTSUPP: a type or feature that it has not.
 * rdma_create_qp(3)
 */
int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *qp_init_attr);
int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *qp_init_attr);

/* Release the id's queue pair and the queues that were made with it. rdma_destroy_qp(3) */
void rdma_destroy_qp(struct rdma_cm_id *id);

/*
 * For programs with a queue pair of their own: the attributes and mask for moving it to qp_attr->qp_state,
 * once the connection has got that far. EINVAL also for states but INIT, RTR and RTS. rdma_init_qp_attr(3)
 */
int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *qp_attr, int *qp_attr_mask);

/*
 * Connect to the resolved address; conn_param may be NULL. Answer: ESTABLISHED (for an id without queue pair
 * CONNECT_RESPONSE), REJECTED, UNREACHABLE or CONNECT_ERROR. EINVAL also for too much private data, for
 * depths that the device does not have, and without both a queue pair and conn_param. rdma_connect(3)
 */
int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *conn_param);

/*
 * Finish after CONNECT_RESPONSE, when the program's own queue pair can send. EINVAL also for an id with a
 * queue pair of rdma_create_qp(). rdma_establish(3)
 */
int rdma_establish(struct rdma_cm_id *id);

/*
 * Take requests at the bound address, up to backlog of them waiting. Answers: CONNECT_REQUEST. EADDRINUSE:
 * another id listens at the port already. rdma_listen(3)
 */
int rdma_listen(struct rdma_cm_id *id, int backlog);

/*
 * On a synchronous listener: wait for a request and give its id. EAGAIN: listen->channel->fd is
 * non-blocking, and none is there; EINTR: a signal handler ran. rdma_get_request(3)
 */
int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **id);

/*
 * Accept a request, on the id that it brought; conn_param may be NULL. Answer: ESTABLISHED. EINVAL as
 * rdma_connect(); else what ibv_modify_qp() refuses. rdma_accept(3)
 */
int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *conn_param);

/*
 * Refuse a request, for no reason or for its ECE options; the peer gets REJECTED with the data. EINVAL also
 * for too much of it. rdma_reject(3)
 */
int rdma_reject(struct rdma_cm_id *id, const void *private_data, uint8_t private_data_len);
int rdma_reject_ece(struct rdma_cm_id *id, const void *private_data, uint8_t private_data_len);

/*
 * Tell of IBV_EVENT_COMM_EST: data arrived before the peer's last message did, so the connection stands.
 * EINVAL also for other events; EISCONN: the message has come after all. rdma_notify(3)
 */
int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event);

/* End a connection; its queue pair goes to the error state. Both ends get DISCONNECTED. rdma_disconnect(3) */
int rdma_disconnect(struct rdma_cm_id *id);

/*
 * Join the group addr and attach the queue pair to it. Answer: MULTICAST_JOIN or MULTICAST_ERROR, with
 * context as its private_data and how to send to the group in param.ud. rdma_join_multicast(3),
 * rdma_join_multicast_ex(3)
 */
int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context);
int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *mc_join_attr,
	void *context);

/* Detach the queue pair and leave the group. EADDRNOTAVAIL: no member of it. rdma_leave_multicast(3) */
int rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *addr);

/* Ports of both ends in network order, 0 if there is none. rdma_get_src_port(3), rdma_get_dst_port(3) */
__be16 rdma_get_src_port(struct rdma_cm_id *id);
__be16 rdma_get_dst_port(struct rdma_cm_id *id);

/*
 * Addresses of both ends, inside the id; family 0 if there is none. rdma_get_local_addr(3),
 * rdma_get_peer_addr(3)
 */
static inline struct sockaddr *rdma_get_local_addr(struct rdma_cm_id *id)
{
	return &id->route.addr.src_addr;
}

static inline struct sockaddr *rdma_get_peer_addr(struct rdma_cm_id *id)
{
	return &id->route.addr.dst_addr;
}

/*
 * The devices that ids can be bound to, opened, ended by NULL; *num_devices may be had too.
 * rdma_get_devices(3)
 */
struct ibv_context **rdma_get_devices(int *num_devices);

/* Release the array; the devices stay open for the library. rdma_free_devices(3) */
void rdma_free_devices(struct ibv_context **list);

/* Levels of options. rdma_set_option(3) */
enum {
	RDMA_OPTION_ID	= 0,
	RDMA_OPTION_IB	= 1,
};

/*
 * Options of level RDMA_OPTION_ID: type of service (uint8_t), port in use by others too (int), IPv6 only
 * (int), and the QP's local ACK timeout as in ibv_qp_attr.timeout (uint8_t).
 */
enum {
	RDMA_OPTION_ID_TOS		= 0,
	RDMA_OPTION_ID_REUSEADDR	= 1,
	RDMA_OPTION_ID_AFONLY		= 2,
	RDMA_OPTION_ID_ACK_TIMEOUT	= 3,
};

/* Option of level RDMA_OPTION_IB: paths to use instead of resolving the route (struct ibv_path_data[]). */
enum {
	RDMA_OPTION_IB_PATH	= 1,
};

/*
 * Set an option; optlen is the size of what optval points to. EINVAL also for another size and for a value
 * out of range; ENOSYS: no such option. rdma_set_option(3)
 */
int rdma_set_option(struct rdma_cm_id *id, int level, int optname, void *optval, size_t optlen);

/*
 * Addresses (and, without RAI_NOROUTE, routes) for a node and service, as getaddrinfo(3) finds them. The
 * list lives until rdma_freeaddrinfo(). 0, -1 with errno, or an EAI_ value. rdma_getaddrinfo(3)
 */
int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints,
		     struct rdma_addrinfo **res);
void rdma_freeaddrinfo(struct rdma_addrinfo *res);

/*
 * The same without waiting: ADDRINFO_RESOLVED or ADDRINFO_ERROR says when it is done, and rdma_query_addrinfo
 * gives what was found. EBUSY: the id has a look-up under way; EOPNOTSUPP: RAI_SA. rdma_resolve_addrinfo(3),
 * rdma_query_addrinfo(3)
 */
int rdma_resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service,
	const struct rdma_addrinfo *hints);
int rdma_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info);

/*
 * Put an event of the program's own, RDMA_CM_EVENT_USER, on the id's channel. EINVAL also for other events.
 * rdma_write_cm_event(3)
 */
int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status, uint64_t arg);

/*
 * Enhanced connection establishment for programs with a queue pair of their own: what to send with the
 * request or reply, and what came. EINVAL also for an id with a queue pair of rdma_create_qp().
 * rdma_set_local_ece(3), rdma_get_remote_ece(3)
 */
int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece);
int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece);

#ifdef __cplusplus
}
#endif

#endif /* RDMA_CMA_H */

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Options. Those of a datagram socket go to its UDP socket as well, which may refuse them. Sizes can be set
 * until the queue pair is made: when a connection is requested or accepted.
 */
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "base/clock.h"
#include "rsocket/calls.h"

enum { LARGEST_BUFFER = 1 << 29, MOST_ROUTES = 16 };

/* What a value is. */
enum kind {
	FLAG,          /* bit `detail` of the flags */
	INTEGER,       /* int at `detail` in the options, at least 1 */
	BUFFER,        /* uint32_t: twice what is asked, as SO_SNDBUF says */
	QUEUE,         /* uint16_t, before the queue pair is made */
	IOMAP_SIZE,
	ROUTE,
	LINGER,
	TIME,
	ERROR,
	SEGMENT,       /* TCP_MAXSEG */
	SOCKET_TYPE, SOCKET_DOMAIN, SOCKET_PROTOCOL, SOCKET_LISTENS,
	SERVICE_TYPE,  /* IP_TOS */
	CONGESTION,    /* TCP_CONGESTION: a name */
	IGNORED,       /* has no effect here */
};

#define AT(member) offsetof(struct vb_rs_options, member)

static const struct option {
	int level, name;
	enum kind kind;
	size_t detail;
} options[] = {
	{ SOL_SOCKET, SO_REUSEADDR, FLAG, VB_RS_REUSEADDR },
	{ SOL_SOCKET, SO_KEEPALIVE, FLAG, VB_RS_KEEPS_ALIVE },
	{ SOL_SOCKET, SO_OOBINLINE, FLAG, VB_RS_OOBINLINE },
	{ SOL_SOCKET, SO_RCVBUF, BUFFER, AT(receive_bytes) },
	{ SOL_SOCKET, SO_SNDBUF, BUFFER, AT(send_bytes) },
	{ SOL_SOCKET, SO_LINGER, LINGER, 0 },
	{ SOL_SOCKET, SO_ERROR, ERROR, 0 },
	{ SOL_SOCKET, SO_TYPE, SOCKET_TYPE, 0 },
	{ SOL_SOCKET, SO_DOMAIN, SOCKET_DOMAIN, 0 },
	{ SOL_SOCKET, SO_PROTOCOL, SOCKET_PROTOCOL, 0 },
	{ SOL_SOCKET, SO_ACCEPTCONN, SOCKET_LISTENS, 0 },
	{ SOL_SOCKET, SO_RCVTIMEO, TIME, AT(receive_timeout_ns) },
	{ SOL_SOCKET, SO_SNDTIMEO, TIME, AT(send_timeout_ns) },
	{ SOL_SOCKET, SO_PRIORITY, IGNORED, 0 },
	{ SOL_SOCKET, SO_REUSEPORT, IGNORED, 0 },
	{ SOL_SOCKET, SO_BROADCAST, IGNORED, 0 },
	{ IPPROTO_TCP, TCP_NODELAY, FLAG, VB_RS_NODELAY },
	{ IPPROTO_TCP, TCP_CORK, FLAG, VB_RS_CORK },
	{ IPPROTO_TCP, TCP_QUICKACK, FLAG, VB_RS_QUICKACK },
	{ IPPROTO_TCP, TCP_MAXSEG, SEGMENT, 0 },
	{ IPPROTO_TCP, TCP_KEEPIDLE, INTEGER, AT(keep_idle_s) },
	{ IPPROTO_TCP, TCP_KEEPINTVL, INTEGER, AT(keep_interval_s) },
	{ IPPROTO_TCP, TCP_KEEPCNT, INTEGER, AT(keep_count) },
	{ IPPROTO_TCP, TCP_USER_TIMEOUT, IGNORED, 0 },
	{ IPPROTO_TCP, TCP_DEFER_ACCEPT, IGNORED, 0 },
	{ IPPROTO_TCP, TCP_CONGESTION, CONGESTION, 0 },
	{ IPPROTO_IP, IP_TOS, SERVICE_TYPE, 0 },
	{ IPPROTO_IPV6, IPV6_V6ONLY, FLAG, VB_RS_V6ONLY },
	{ IPPROTO_IPV6, IPV6_TCLASS, SERVICE_TYPE, 0 },
	{ SOL_RDMA, RDMA_SQSIZE, QUEUE, AT(send_queue) },
	{ SOL_RDMA, RDMA_RQSIZE, QUEUE, AT(receive_queue) },
	{ SOL_RDMA, RDMA_INLINE, QUEUE, AT(inline_bytes) },
	{ SOL_RDMA, RDMA_IOMAPSIZE, IOMAP_SIZE, 0 },
	{ SOL_RDMA, RDMA_ROUTE, ROUTE, 0 },
};

static const struct option *find(int level, int name)
{
	for (size_t i = 0; i < VB_ARRAY_LEN(options); i++)
		if (options[i].level == level && options[i].name == name)
			return &options[i];
	return NULL;
}

static void *member(struct vb_rs *s, const struct option *o) { return (char *)&s->options + o->detail; }

/* Is the queue pair made, or being made? */
static bool is_fixed(const struct vb_rs *s)
{
	return vb_rs_is_stream(s) && (s->state == VB_RS_CONNECTED || vb_rs_is_opening(s));
}

/* ---- setting ---- */

static int set_flag_locked(struct vb_rs *s, enum vb_rs_flag flag, int on)
{
	int level_name = flag == VB_RS_REUSEADDR ? RDMA_OPTION_ID_REUSEADDR : RDMA_OPTION_ID_AFONLY;

	if (on)
		s->options.flags |= 1u << flag;
	else
		s->options.flags &= ~(1u << flag);
	/* A bound id cannot change any more, which is no error. */
	if (s->id && (flag == VB_RS_REUSEADDR || flag == VB_RS_V6ONLY) && s->state == VB_RS_IDLE)
		(void)rdma_set_option(s->id, RDMA_OPTION_ID, level_name, &on, sizeof(on));
	if (flag == VB_RS_KEEPS_ALIVE && vb_rs_is_stream(s))
		vb_rs_keepalive_locked(s);
	return 0;
}

static int set_integer_locked(struct vb_rs *s, const struct option *o, int value)
{
	if (value <= 0)
		return -EINVAL;
	*(int *)member(s, o) = value;
	if (s->keepalive_runs)
		vb_rs_keepalive_locked(s);
	return 0;
}

static int set_buffer(struct vb_rs *s, const struct option *o, int value)
{
	if (is_fixed(s) || s->end.cq)
		return 0; /* too late; as in the kernel, a size is only a request */
	uint32_t asked = value < VB_RS_LOW_WATER ? VB_RS_LOW_WATER :
			 value > LARGEST_BUFFER	 ? LARGEST_BUFFER :
						   (uint32_t)value;
	*(uint32_t *)member(s, o) = asked * 2;
	return 0;
}

static int set_queue(struct vb_rs *s, const struct option *o, int value)
{
	if (is_fixed(s) || value < 0)
		return -EINVAL;
	*(uint16_t *)member(s, o) = (uint16_t)(value > VB_RS_MAX_QUEUE ? VB_RS_MAX_QUEUE : value);
	return 0;
}

static int set_iomap_size(struct vb_rs *s, int value)
{
	if (is_fixed(s) || value < 0)
		return -EINVAL;
	s->options.iomap_entries = vb_rs_iomap_entries(vb_rs_iomap_code((uint32_t)value));
	return 0;
}

static int set_route(struct vb_rs *s, const void *val, socklen_t len)
{
	if (is_fixed(s) || !len || len % sizeof(struct ibv_path_data) ||
	    len > MOST_ROUTES * sizeof(struct ibv_path_data))
		return -EINVAL;
	void *route = malloc(len);
	if (!route)
		return -ENOMEM;
	memcpy(route, val, len);
	free(s->options.route);
	s->options.route = route;
	s->options.route_bytes = len;
	return 0;
}

static int set_linger(struct vb_rs *s, const void *val, socklen_t len)
{
	struct linger l;

	if (len < sizeof(l))
		return -EINVAL;
	memcpy(&l, val, sizeof(l));
	s->options.lingers = l.l_onoff != 0;
	s->options.linger_s = l.l_linger < 0 ? INT_MAX : l.l_linger; /* as the kernel has it: without end */
	return 0;
}

static int set_time(struct vb_rs *s, const struct option *o, const void *val, socklen_t len)
{
	struct timeval tv;

	if (len < sizeof(tv))
		return -EINVAL;
	memcpy(&tv, val, sizeof(tv));
	if (tv.tv_sec < 0 || tv.tv_usec < 0 || tv.tv_usec >= 1000000)
		return -EDOM;
	bool is_endless = tv.tv_sec > VB_RS_LONGEST_S;
	*(uint64_t *)member(s, o) = is_endless ? 0 : vb_ns_of_timeval(tv);
	return 0;
}

static int set_service_type(struct vb_rs *s, int value)
{
	s->options.tos = value == -1 ? 0 : (uint8_t)value; /* IPV6_TCLASS: -1 is the default */
	if (s->datagram)
		vb_rs_dests_renew(s);
	if (s->id)
		(void)rdma_set_option(s->id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &s->options.tos,
				      sizeof(s->options.tos));
	return 0;
}

static int set_locked(struct vb_rs *s, const struct option *o, const void *val, socklen_t len)
{
	int value = 0;

	switch (o->kind) {
	case LINGER:
		return set_linger(s, val, len);
	case TIME:
		return set_time(s, o, val, len);
	case ROUTE:
		return set_route(s, val, len);
	case CONGESTION: /* the path's own serves all */
		return len ? 0 : -EINVAL;
	default:
		break;
	}
	if (len < sizeof(value))
		return -EINVAL;
	memcpy(&value, val, sizeof(value));
	switch (o->kind) {
	case FLAG:
		return set_flag_locked(s, (enum vb_rs_flag)o->detail, value);
	case INTEGER:
		return set_integer_locked(s, o, value);
	case BUFFER:
		return set_buffer(s, o, value);
	case QUEUE:
		return set_queue(s, o, value);
	case IOMAP_SIZE:
		return set_iomap_size(s, value);
	case SERVICE_TYPE:
		return set_service_type(s, value);
	case SEGMENT: /* always the path's MTU */
	case IGNORED:
		return 0;
	default:
		return -ENOPROTOOPT;
	}
}

VB_EXPORT int rsetsockopt(int socket, int level, int optname, const void *optval, socklen_t optlen)
{
	VB_DEFERRED;
	struct vb_rs *s = vb_rs_get_checked(socket, __func__);
	const struct option *o = find(level, optname);
	int err = 0;

	if (!s)
		return -1;
	if (!optval)
		err = -EFAULT;
	else if (!vb_rs_is_stream(s) && level != SOL_RDMA)
		err = setsockopt(s->fd, level, optname, optval, optlen) ? -errno : 0;
	if (!err && !o && (vb_rs_is_stream(s) || level == SOL_RDMA)) {
		vb_explain(__func__, "level %d, option %d is not one of those of rsockets", level, optname);
		err = -ENOTSUP;
	}
	if (!err && o) {
		pthread_mutex_lock(&s->lock);
		err = set_locked(s, o, optval, optlen);
		pthread_mutex_unlock(&s->lock);
	}
	vb_rs_put(s);
	return (int)vb_rs_result(err);
}

/* ---- getting ---- */

static void path_of(const struct ibv_sa_path_rec *rec, struct ibv_path_data *data)
{
	enum { EXACTLY = 2 << 6, LABEL_SHIFT = 8 };
	struct ibv_path_record *p = &data->path;

	memset(data, 0, sizeof(*data));
	p->dgid = rec->dgid;
	p->sgid = rec->sgid;
	p->dlid = rec->dlid;
	p->slid = rec->slid;
	p->flowlabel_hoplimit = htonl(ntohl(rec->flow_label) << LABEL_SHIFT | rec->hop_limit);
	p->tclass = rec->traffic_class;
	p->reversible_numpath = (uint8_t)(rec->reversible << 7 | 1);
	p->pkey = rec->pkey;
	p->qosclass_sl = htons(rec->sl);
	p->mtu = (uint8_t)(rec->mtu | EXACTLY);
	p->rate = (uint8_t)(rec->rate | EXACTLY);
	p->packetlifetime = (uint8_t)(rec->packet_life_time | EXACTLY);
	data->flags = rec->preference;
}

static int get_route(struct vb_rs *s, void *val, socklen_t *len)
{
	struct ibv_path_data data;

	if (s->options.route) {
		if (*len < s->options.route_bytes)
			return -EINVAL;
		memcpy(val, s->options.route, s->options.route_bytes);
		*len = s->options.route_bytes;
		return 0;
	}
	if (*len < sizeof(data))
		return -EINVAL;
	*len = 0;
	if (s->id && s->id->route.num_paths) {
		path_of(s->id->route.path_rec, &data);
		memcpy(val, &data, sizeof(data));
		*len = sizeof(data);
	}
	return 0;
}

static int put_value(void *val, socklen_t *len, const void *value, socklen_t bytes)
{
	memcpy(val, value, *len < bytes ? *len : bytes);
	*len = *len < bytes ? *len : bytes;
	return 0;
}

static int get_time(struct vb_rs *s, const struct option *o, void *val, socklen_t *len)
{
	uint64_t ns = *(uint64_t *)member(s, o);
	struct timeval tv = { .tv_sec = (time_t)(ns / VB_NS_PER_S),
			      .tv_usec = (suseconds_t)(ns % VB_NS_PER_S / VB_NS_PER_US) };

	return put_value(val, len, &tv, sizeof(tv));
}

static int get_linger(struct vb_rs *s, void *val, socklen_t *len)
{
	struct linger l = { .l_onoff = s->options.lingers, .l_linger = s->options.linger_s };

	return put_value(val, len, &l, sizeof(l));
}

/* Programs show it (iperf3), so it says whose control it is. */
static int get_congestion(void *val, socklen_t *len)
{
	enum { NAME_BYTES = 16 }; /* TCP_CA_NAME_MAX of the kernel */
	static const char name[NAME_BYTES] = "verbatim";

	return put_value(val, len, name, sizeof(name));
}

static int max_segment(const struct vb_rs *s)
{
	enum { UNKNOWN = 2048 };

	return s->id && s->id->route.num_paths ? 128 << s->id->route.path_rec->mtu : UNKNOWN;
}

static int number_of(struct vb_rs *s, const struct option *o)
{
	switch (o->kind) {
	case FLAG:
		return vb_rs_has_flag(s, (enum vb_rs_flag)o->detail);
	case INTEGER:
		return *(int *)member(s, o);
	case BUFFER:
		return (int)*(uint32_t *)member(s, o);
	case QUEUE:
		return *(uint16_t *)member(s, o);
	case IOMAP_SIZE:
		return (int)s->options.iomap_entries;
	case SERVICE_TYPE:
		return s->options.tos;
	case SEGMENT:
		return max_segment(s);
	case ERROR:
		return vb_rs_take_error_locked(s);
	case SOCKET_TYPE:
		return s->type;
	case SOCKET_DOMAIN:
		return s->domain;
	case SOCKET_PROTOCOL:
		return vb_rs_is_stream(s) ? IPPROTO_TCP : IPPROTO_UDP;
	case SOCKET_LISTENS:
		return s->state == VB_RS_LISTENING;
	default:
		return 0;
	}
}

static int get_locked(struct vb_rs *s, const struct option *o, void *val, socklen_t *len)
{
	switch (o->kind) {
	case ROUTE:
		return get_route(s, val, len);
	case TIME:
		return get_time(s, o, val, len);
	case LINGER:
		return get_linger(s, val, len);
	case CONGESTION:
		return get_congestion(val, len);
	default:
		break;
	}
	if (*len < sizeof(int))
		return -EINVAL;
	int number = number_of(s, o);
	return put_value(val, len, &number, sizeof(number));
}

/* Does a datagram socket's UDP socket know its value? */
static bool is_the_kernels(const struct vb_rs *s, int level, const struct option *o)
{
	return !vb_rs_is_stream(s) && level != SOL_RDMA && (!o || o->kind == IGNORED);
}

VB_EXPORT int rgetsockopt(int socket, int level, int optname, void *optval, socklen_t *optlen)
{
	VB_DEFERRED;
	struct vb_rs *s = vb_rs_get_checked(socket, __func__);
	const struct option *o = find(level, optname);
	int err = -ENOTSUP;

	if (!s)
		return -1;
	if (!optval || !optlen) {
		err = -EFAULT;
	} else if (is_the_kernels(s, level, o)) {
		err = getsockopt(s->fd, level, optname, optval, optlen) ? -errno : 0;
	} else if (o) {
		pthread_mutex_lock(&s->lock);
		err = get_locked(s, o, optval, optlen);
		pthread_mutex_unlock(&s->lock);
	}
	vb_rs_put(s);
	return (int)vb_rs_result(err);
}

/* ---- bytes that wait ---- */

VB_EXPORT int vb_rs_count_bytes(int socket, int *unread, int *unsent)
{
	VB_DEFERRED;
	struct vb_rs *s = vb_rs_get_checked(socket, __func__);
	struct vb_cma_addr src;
	struct vb_rs_port *port;
	const uint8_t *data;

	if (!s)
		return -1;
	pthread_mutex_lock(&s->lock);
	vb_rs_progress_locked(s);
	*unread = vb_rs_is_stream(s) ? (int)(s->stream.received - s->stream.consumed) :
				       (int)vb_rs_datagram_next_locked(s, &src, &data, &port);
	*unsent = (int)s->stream.ring_used;
	pthread_mutex_unlock(&s->lock);
	vb_rs_put(s);
	return 0;
}

/* ---- errors that wait ---- */

VB_EXPORT void vb_rs_leave_error(int socket, int err)
{
	VB_DEFERRED;
	struct vb_rs *s = vb_rs_get_checked(socket, __func__);

	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	if (!s->error)
		s->error = err;
	pthread_mutex_unlock(&s->lock);
	vb_rs_put(s);
}

/* ---- rfcntl ---- */

static int control(struct vb_rs *s, int cmd, int arg)
{
	switch (cmd) {
	case F_GETFL:
		return s->fcntl_flags | O_RDWR;
	case F_SETFL:
		s->fcntl_flags = arg & (O_NONBLOCK | O_APPEND | O_ASYNC);
		return 0;
	case F_GETFD:
		return fcntl(s->fd, F_GETFD);
	case F_SETFD:
		return fcntl(s->fd, F_SETFD, arg);
	default:
		errno = ENOTSUP;
		return -1;
	}
}

VB_EXPORT int rfcntl(int socket, int cmd, ...)
{
	VB_DEFERRED;
	struct vb_rs *s = vb_rs_get_checked(socket, __func__);
	int arg = 0;

	if (!s)
		return -1;
	if (cmd == F_SETFL || cmd == F_SETFD) {
		va_list args;

		va_start(args, cmd);
		arg = va_arg(args, int);
		va_end(args);
	}
	int result = control(s, cmd, arg);
	vb_rs_put(s);
	return result;
}

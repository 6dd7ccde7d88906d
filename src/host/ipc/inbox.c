/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Inboxes and ports: abstract datagram sockets. Each message is a header, below, and a RoCEv2 packet from the
 * BTH on. All messages leave from one of the process's inboxes, whose name tells the receiver the sender's
 * slot. Only the progress thread receives (its buffers are static). A port that does not listen yet is
 * connected to a socket that has gone.
 */
#include "host/ipc/capture.h"
#include "host/private.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/cancel.h"

/* In the host's byte order: both ends are on one host. */
struct inbox_header {
	uint32_t magic;
	uint32_t flow_label;
	uint16_t udp_sport;
	uint8_t traffic_class;
	uint8_t hop_limit;
	struct in6_addr src, dst;
};
_Static_assert(sizeof(struct inbox_header) == 44, "inbox header");

enum {
	INBOX_MAGIC = 0x76620001, /* "vb", format 1 */
	BTH_BYTES = 12,
	BATCH = 16,
	BATCHES_PER_ROUND = 4,
	BUFFER_BYTES = 4 << 20,
};

/* Handlers: [0] of QPs, [1] of QP 1. arg is stored before handler. */
static struct {
	_Atomic(vb_inbox_handler *) handler;
	void *_Atomic arg;
} qp_handlers[2];

void vb_inbox_set_handler(uint32_t qpn, vb_inbox_handler *handler, void *arg)
{
	unsigned kind = qpn == 1;
	atomic_store(&qp_handlers[kind].arg, arg);
	atomic_store(&qp_handlers[kind].handler, handler);
}

/* ---- sending ---- */

static int send_to(uint32_t from, const struct vb_name *to, const struct vb_inbox_addr *addr,
		   const struct iovec *iov, int iovcnt)
{
	VB_UNCANCELLED;
	int fd = vb_slot_inbox(from);
	struct inbox_header header = {
		.magic = INBOX_MAGIC, .flow_label = addr->flow_label, .udp_sport = addr->udp_sport,
		.traffic_class = addr->traffic_class, .hop_limit = addr->hop_limit,
		.src = addr->src, .dst = addr->dst,
	};
	struct iovec all[VB_INBOX_MAX_IOV + 1] = { { &header, sizeof header } };
	size_t bytes = 0;

	if (fd < 0)
		return -ENOTCONN;
	if (iovcnt < 0 || iovcnt > VB_INBOX_MAX_IOV)
		return -EINVAL;
	for (int i = 0; i < iovcnt; i++) {
		all[i + 1] = iov[i];
		bytes += iov[i].iov_len;
	}
	if (bytes < BTH_BYTES || bytes > VB_INBOX_MAX_BYTES)
		return -EMSGSIZE;
	struct msghdr m = { .msg_name = (void *)&to->un, .msg_namelen = to->bytes,
			    .msg_iov = all, .msg_iovlen = (size_t)iovcnt + 1 };
	if (sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
		return 0;
	return errno == ENOBUFS ? -EAGAIN : -errno;
}

int vb_inbox_send_from(uint32_t from, uint32_t slot, const struct vb_inbox_addr *addr,
		       const struct iovec *iov, int iovcnt)
{
	struct vb_name name = vb_name_of_inbox(slot);
	return send_to(from, &name, addr, iov, iovcnt);
}

int vb_inbox_send(uint32_t slot, const struct vb_inbox_addr *addr, const struct iovec *iov, int iovcnt)
{
	return vb_inbox_send_from(vb_slot_first(), slot, addr, iov, iovcnt);
}

/* ---- receiving ---- */

/*
 * One received message. The control buffer has no room for descriptors, so the kernel closes those that a
 * peer passes.
 */
struct received {
	struct inbox_header header;
	struct sockaddr_un from;
	struct iovec iov[2];
	__attribute__((aligned(_Alignof(struct cmsghdr)))) char control[CMSG_SPACE(sizeof(struct ucred))];
	VB_ALIGNED_LINE uint8_t payload[VB_INBOX_MAX_BYTES];
};

static struct received buffers[BATCH];
static struct mmsghdr headers[BATCH];

static void prepare_buffers(void)
{
	for (unsigned i = 0; i < BATCH; i++) {
		struct received *r = &buffers[i];
		r->iov[0] = (struct iovec){ &r->header, sizeof r->header };
		r->iov[1] = (struct iovec){ r->payload, sizeof r->payload };
		headers[i].msg_hdr = (struct msghdr){
			.msg_name = &r->from,
			.msg_namelen = sizeof r->from,
			.msg_iov = r->iov,
			.msg_iovlen = 2,
			.msg_control = r->control,
			.msg_controllen = sizeof r->control,
		};
	}
}

static struct ucred sender_of(struct msghdr *m)
{
	struct ucred cred = { .uid = (uid_t)-1 };
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS &&
		    c->cmsg_len >= CMSG_LEN(sizeof cred)) {
			memcpy(&cred, CMSG_DATA(c), sizeof cred);
			break;
		}
	}
	return cred;
}

/*
 * Only trusted senders forward messages of other hosts. Others must have a slot, and a source address of this
 * host.
 */
static bool is_acceptable(struct vb_inbox_msg *msg, const struct ucred *sender)
{
	msg->is_trusted = vb_slot_is_mine(msg->sender_slot) || vb_sender_is_trusted(sender, &msg->addr.dst);
	return msg->is_trusted || (msg->sender_slot && vb_netif_is_local(&msg->addr.src));
}

/* False if the message is to be dropped. */
static bool parse(struct received *r, const struct mmsghdr *m, struct vb_inbox_msg *msg)
{
	if ((m->msg_hdr.msg_flags & MSG_TRUNC) || m->msg_len < sizeof r->header + BTH_BYTES ||
	    r->header.magic != INBOX_MAGIC)
		return false;
	struct ucred sender = sender_of((struct msghdr *)&m->msg_hdr);
	*msg = (struct vb_inbox_msg){
		.addr = { .src = r->header.src,
			  .dst = r->header.dst,
			  .flow_label = r->header.flow_label & 0xfffff,
			  .udp_sport = r->header.udp_sport,
			  .traffic_class = r->header.traffic_class,
			  .hop_limit = r->header.hop_limit },
		.payload = r->payload,
		.payload_bytes = m->msg_len - sizeof r->header,
		.sender_slot = vb_name_parse_inbox(&r->from, m->msg_hdr.msg_namelen),
		.sender_uid = sender.uid,
	};
	return is_acceptable(msg, &sender);
}

__attribute__((cold, noinline)) static void note_arrival(const struct vb_inbox_msg *msg)
{
	struct vb_capture_note note = { .addr = &msg->addr,
					.flags = VB_CAPTURE_INBOX,
					.qpn = vb_inbox_qpn(msg) };
	struct iovec packet = { (void *)(uintptr_t)msg->payload, msg->payload_bytes };
	vb_capture_packet(&note, &packet, 1);
}

bool vb_inbox_deliver(const struct vb_inbox_msg *msg)
{
	if (vb_capture_is_on())
		note_arrival(msg);
	bool is_cm = vb_inbox_qpn(msg) == 1;
	vb_inbox_handler *handler = atomic_load(&qp_handlers[is_cm].handler);
	if (handler)
		handler(atomic_load(&qp_handlers[is_cm].arg), msg);
	return handler;
}

/* False once the socket's owner stopped its watch: handler and arg may be gone with it. */
static bool deliver(struct received *r, const struct mmsghdr *m, vb_inbox_handler *handler, void *arg)
{
	struct vb_inbox_msg msg;
	if (!parse(r, m, &msg))
		return true;
	if (!handler) {
		vb_inbox_deliver(&msg);
	} else {
		if (vb_capture_is_on())
			note_arrival(&msg);
		handler(arg, &msg);
	}
	return !vb_loop_callback_is_stopped();
}

void vb_inbox_receive(int fd, vb_inbox_handler *handler, void *arg)
{
	VB_UNCANCELLED;
	for (unsigned batch = 0; batch < BATCHES_PER_ROUND; batch++) {
		prepare_buffers();
		int n = vb_receive_messages(fd, headers, BATCH, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		for (int i = 0; i < n; i++)
			if (!deliver(&buffers[i], &headers[i], handler, arg))
				return;
		if (n < BATCH)
			return;
	}
}

/* ---- sockets ---- */

/* A connected datagram socket receives from its peer alone, and this one's is gone. */
static int refuse_all(int s)
{
	struct sockaddr_un nobody = { .sun_family = AF_UNIX };
	socklen_t bytes = sizeof nobody;
	int err = 0, peer = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (peer < 0)
		return -errno;
	if (bind(peer, (struct sockaddr *)&nobody, sizeof nobody.sun_family) < 0 ||
	    getsockname(peer, (struct sockaddr *)&nobody, &bytes) < 0 ||
	    connect(s, (struct sockaddr *)&nobody, bytes) < 0)
		err = -errno;
	close(peer);
	return err;
}

int vb_inbox_open_locked(const struct vb_name *name, bool refuses, int *fd)
{
	int one = 1, buffer = BUFFER_BYTES;
	int s = vb_fd_own(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (s < 0)
		return -errno;
	/* before it has a name, and before SO_PASSCRED, which would give it one */
	int err = refuses ? refuse_all(s) : 0;
	if (err) {
		vb_fd_close_locked(s);
		return err;
	}
	setsockopt(s, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
	setsockopt(s, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
	if (setsockopt(s, SOL_SOCKET, SO_PASSCRED, &one, sizeof one) < 0 ||
	    bind(s, (const struct sockaddr *)&name->un, name->bytes) < 0) {
		err = -errno;
		vb_fd_close_locked(s);
		return err;
	}
	*fd = s;
	return 0;
}

/* ---- ports ---- */

static int port_name(const void *name, size_t name_bytes, struct vb_name *out)
{
	static const char prefix[] = "\0verbatim/port/";
	enum { head = sizeof prefix - 1 };
	_Static_assert(head + VB_PORT_NAME_MAX <= sizeof out->un.sun_path, "port names fit");
	if (name_bytes > VB_PORT_NAME_MAX)
		return -EINVAL;
	*out = (struct vb_name){ .un.sun_family = AF_UNIX };
	memcpy(out->un.sun_path, prefix, head);
	memcpy(out->un.sun_path + head, name, name_bytes);
	out->bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + head + name_bytes);
	return 0;
}

static void port_ready(struct vb_watch *w, uint32_t epoll_events)
{
	struct vb_port *port = vb_container_of(w, struct vb_port, watch);
	vb_inbox_receive(w->fd, port->handler, port->arg);
}

int vb_port_bind(struct vb_port *port, const void *name, size_t name_bytes)
{
	struct vb_name n;
	int fd = -1, err = port_name(name, name_bytes, &n);
	if (err)
		return err;
	vb_host_lock();
	err = vb_inbox_open_locked(&n, true, &fd);
	vb_host_unlock();
	if (err)
		return err;
	*port = (struct vb_port){ .watch = { .fd = fd, .ready = port_ready },
				  .generation = vb_host_generation() };
	return 0;
}

int vb_port_listen(struct vb_port *port, vb_inbox_handler *handler, void *arg)
{
	VB_UNCANCELLED;
	struct sockaddr none = { .sa_family = AF_UNSPEC };
	if (port->generation != vb_host_generation())
		return -EBADF;
	if (connect(port->watch.fd, &none, sizeof none) < 0)
		return -errno;
	port->handler = handler;
	port->arg = arg;
	return vb_watch_start(&port->watch, EPOLLIN);
}

void vb_port_close(struct vb_port *port)
{
	if (port->generation == vb_host_generation()) {
		vb_watch_stop(&port->watch);
		vb_fd_close(port->watch.fd);
	}
	port->watch.fd = -1;
}

int vb_port_send(const void *name, size_t name_bytes, const struct vb_inbox_addr *addr,
		 const struct iovec *iov, int iovcnt)
{
	struct vb_name n;
	int err = port_name(name, name_bytes, &n);
	return err ? err : send_to(vb_slot_first(), &n, addr, iov, iovcnt);
}

bool vb_port_is_bound(const void *name, size_t name_bytes)
{
	VB_UNCANCELLED;
	struct vb_name n;
	int fd = -1, refused = 1;
	if (port_name(name, name_bytes, &n) == 0)
		fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0)
		refused = connect(fd, (const struct sockaddr *)&n.un, n.bytes) < 0 && errno == ECONNREFUSED;
	if (fd >= 0)
		close(fd);
	return !refused;
}

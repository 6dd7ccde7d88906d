/* SPDX-License-Identifier: BSD-2-Clause */
/* A server (rpc.h) and its thread, which alone touches what the server consists of until it is joined. */
#include "host/ipc/rpc.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/list.h"
#include "base/nanoseconds.h"
#include "base/thread.h"
#include "base/waits.h"
#include "host/ipc/rights.h"
#include "host/loop/activity.h"
#include "host/net/holder.h"
#include "host/private.h"

enum {
	LOOK_MS = 100,     /* from one look at a server that does not answer to the next */
	MAX_LOOKS = 50,    /* in all */
	MAX_HALTED = 15,   /* in a row that find no thread of its process running */
	ACCEPT_RETRY_NS = 10 * VB_NS_PER_MS,
	/* from one look to the next whether a server shall end: the program may have closed what tells it */
	END_LOOK_MS = 1000,
};

/* Each descriptor of the server's epoll set, and whose it is. */
struct source {
	enum { LISTENER, STOP, CLIENT } kind;
	int fd;
};

struct vb_rpc_server {
	struct source listener, stop;
	struct vb_list clients;
	const struct vb_rpc_ops *ops;
	void *owner;
	int epfd;
	atomic_bool ends;
	pthread_t thread;
	_Alignas(16) uint8_t request[VB_RPC_MAX_BYTES];
	_Alignas(16) uint8_t reply[VB_RPC_MAX_BYTES];
};

struct client {
	struct source source;
	struct vb_list node;
	void *arg;
};

static int watch(struct vb_rpc_server *s, struct source *source)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = source };
	return vb_epoll_ctl(s->epfd, EPOLL_CTL_ADD, source->fd, &event) < 0 ? -errno : 0;
}

/* ---- clients ---- */

static void remove_client(struct vb_rpc_server *s, struct client *c)
{
	vb_list_del(&c->node);
	if (c->arg)
		s->ops->disconnect(c->arg);
	vb_fd_close(c->source.fd);
	free(c);
}

static void add_client(struct vb_rpc_server *s, int fd)
{
	struct client *c = calloc(1, sizeof(*c));
	if (!c) {
		vb_fd_close(fd);
		return;
	}
	c->source = (struct source){ .kind = CLIENT, .fd = fd };
	c->arg = s->ops->connect(s->owner);
	vb_list_add_tail(&s->clients, &c->node);
	if (!c->arg || watch(s, &c->source))
		remove_client(s, c);
}

/* What cannot be accepted for now would wake the thread again at once: sleep a little. */
static void accept_client(struct vb_rpc_server *s)
{
	struct vb_peer_cred cred;
	int fd, err = vb_link_accept(s->listener.fd, &fd, &cred);
	if (!err)
		add_client(s, fd);
	else if (vb_is_short(err))
		vb_sleep_ns(ACCEPT_RETRY_NS);
}

static void serve(struct vb_rpc_server *s, struct client *c)
{
	ssize_t n = vb_link_recv(c->source.fd, s->request, sizeof(s->request), NULL, NULL);
	if (n == -EAGAIN)
		return;
	size_t bytes = n > 0 ? s->ops->call(c->arg, s->request, (size_t)n, s->reply) : 0;
	if (n <= 0 || (bytes && vb_link_send(c->source.fd, s->reply, bytes, NULL, 0)))
		remove_client(s, c);
}

static void serve_source(struct vb_rpc_server *s, struct source *source)
{
	if (source->kind == LISTENER)
		accept_client(s);
	else if (source->kind == CLIENT)
		serve(s, vb_container_of(source, struct client, source));
}

/* One event at a time: serving a client may free it, and no fetched event may point to a freed one. */
static void *run(void *arg)
{
	struct vb_rpc_server *s = arg;
	while (!atomic_load(&s->ends)) {
		struct epoll_event event;
		int n = vb_epoll_wait(s->epfd, &event, 1, END_LOOK_MS);
		if (n == 1)
			serve_source(s, event.data.ptr);
		else if (n < 0 && errno != EINTR) /* the program has closed the set: do not spin */
			vb_sleep_ns(ACCEPT_RETRY_NS);
	}
	while (!vb_list_is_empty(&s->clients))
		remove_client(s, vb_container_of(s->clients.next, struct client, node));
	return NULL;
}

/* ---- servers ---- */

static int open_descriptors_locked(struct vb_rpc_server *s, const struct vb_name *name)
{
	s->epfd = vb_fd_own(vb_epoll_open());
	int err = s->epfd < 0 ? -errno : 0;
	s->stop = (struct source){ .kind = STOP, .fd = vb_fd_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) };
	if (!err && s->stop.fd < 0)
		err = -errno;
	if (!err)
		err = vb_listen_locked(name, true, &s->listener.fd);
	return err;
}

static void give_up(struct vb_rpc_server *s)
{
	vb_fd_close(s->listener.fd);
	vb_fd_close(s->stop.fd);
	vb_fd_close(s->epfd);
	free(s);
}

static int start(struct vb_rpc_server *s, const char *text)
{
	struct vb_name name;
	int err = vb_name_of_text(text, &name);
	if (err)
		return err;
	vb_host_lock();
	err = open_descriptors_locked(s, &name);
	vb_host_unlock();
	if (!err)
		err = watch(s, &s->listener);
	if (!err)
		err = watch(s, &s->stop);
	return err ? err : vb_thread_start(&s->thread, run, s);
}

int vb_rpc_open(const char *name, const struct vb_rpc_ops *ops, void *owner, struct vb_rpc_server **server)
{
	struct vb_rpc_server *s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->listener = (struct source){ .kind = LISTENER, .fd = -1 };
	s->stop.fd = s->epfd = -1;
	s->ops = ops;
	s->owner = owner;
	vb_list_init(&s->clients);
	int err = start(s, name);
	if (err)
		give_up(s);
	else
		*server = s;
	return err;
}

void vb_rpc_close(struct vb_rpc_server *s)
{
	VB_UNCANCELLED;
	atomic_store(&s->ends, true);
	vb_eventfd_ring(s->stop.fd);
	pthread_join(s->thread, NULL);
	give_up(s);
}

/* Any process can take any name, so it matters whose the name is. */
static bool may_be_called(const char *name)
{
	pid_t pid;
	uid_t uid;
	vb_holder_of_name(name, &pid, &uid);
	return uid == geteuid() && vb_process_may_share(pid);
}

/* The kernel's list of Unix sockets ends each line with the socket's name, an abstract one's after an @. */
bool vb_rpc_exists(const char *prefix, const char *except)
{
	VB_UNCANCELLED;
	char line[256];
	FILE *list = fopen("/proc/self/net/unix", "re");
	bool found = false;
	while (list && !found && fgets(line, sizeof(line), list)) {
		const char *name = strchr(line, '@');
		line[strcspn(line, "\n")] = 0;
		found = name && !strncmp(name + 1, prefix, strlen(prefix)) && strcmp(name + 1, except) &&
			may_be_called(name + 1);
	}
	if (list)
		fclose(list);
	return found;
}

/* ---- the client's side ---- */

int vb_rpc_connect(const char *text, int *fd)
{
	struct vb_peer_cred cred;
	struct vb_name name;
	int err = vb_name_of_text(text, &name);
	return err ? err : vb_link_connect_to(&name, fd, &cred);
}

static bool is_halted(int fd)
{
	struct ucred server;
	socklen_t bytes = sizeof(server);
	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &server, &bytes) &&
	       vb_process_activity(server.pid) == VB_ACTIVITY_HALTED;
}

/* False: nothing has come within LOOK_MS. */
static bool await_bytes(int fd)
{
	uint64_t now = vb_now_ns(), deadline = now + LOOK_MS * VB_NS_PER_MS;
	for (; now < deadline; now = vb_now_ns()) {
		struct pollfd there = { .fd = fd, .events = POLLIN };
		if (vb_poll(&there, 1, (int)((deadline - now) / VB_NS_PER_MS) + 1) == 1)
			return true;
	}
	return false;
}

static ssize_t await_answer(int fd, void *answer, size_t room)
{
	unsigned looks = 0, halted = 0;
	while (looks < MAX_LOOKS && halted < MAX_HALTED) {
		ssize_t n = await_bytes(fd) ? vb_link_recv(fd, answer, room, NULL, NULL) : -EAGAIN;
		if (n != -EAGAIN)
			return n ? n : -EPIPE;
		looks++;
		halted = is_halted(fd) ? halted + 1 : 0;
	}
	shutdown(fd, SHUT_RDWR); /* or a late answer would pass for the next one */
	return -ETIMEDOUT;
}

ssize_t vb_rpc_call(int fd, const void *message, size_t bytes, void *answer, size_t room)
{
	VB_UNCANCELLED;
	int err = vb_link_send(fd, message, bytes, NULL, 0);
	return err ? err : await_answer(fd, answer, room);
}

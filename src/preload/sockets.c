/* SPDX-License-Identifier: BSD-2-Clause */
/* Our sockets by number, and what a fork or the end of the process does to them. */
#include "preload/preload.h"

static void finish(struct vb_numbered *n);

static struct vb_numbers socks = { .object_bytes = sizeof(struct vb_sock),
				   .finish = finish,
				   .lock = VB_LOCK_INIT };
static atomic_int highest = -1; /* number */
static unsigned generation;
static pid_t process;

unsigned vb_generation(void) { return generation; }

bool vb_is_borrowed_process(void) { return process && getpid() != process; }

static void forked(void)
{
	generation++;
	process = getpid();
	vb_numbers_forked(&socks);
	vb_connect_forked();
	vb_stdio_forked();
	for (int fd = 0; fd <= highest; fd++) {
		struct vb_sock *v = vb_sock_get(fd);

		if (!v)
			continue;
		pthread_mutex_init(&v->lock, NULL);
		vb_sock_put(v);
	}
}

static void __attribute__((constructor)) begin(void)
{
	process = getpid();
	pthread_atfork(NULL, NULL, forked);
	(void)vb_real();
}

/* Delivers what was written, as the kernel does for a process that ends. */
static void __attribute__((destructor)) end(void)
{
	for (int fd = 0; fd <= highest; fd++) {
		struct vb_sock *v = vb_sock_get(fd);

		if (!v)
			continue;
		if (v->kind == VB_RDMA && v->generation == generation)
			vb_sock_forget(fd);
		vb_sock_put(v);
	}
}

static void finish(struct vb_numbered *n)
{
	struct vb_sock *v = vb_container_of(n, struct vb_sock, number);

	if (v->rs >= 0)
		rclose(v->rs);
	free(v->memberships);
	pthread_mutex_destroy(&v->lock);
}

void vb_sock_add(struct vb_sock *v, int fd)
{
	int before = highest;

	vb_sock_forget(fd); /* closed by a system call */
	if (vb_numbers_publish(&socks, &v->number, fd))
		return; /* it stays without RDMA */
	while (before < fd && !atomic_compare_exchange_weak(&highest, &before, fd))
		;
}

struct vb_sock *vb_sock_create(int fd, int domain, int type, enum vb_kind kind, int rs)
{
	struct vb_numbered *n = vb_numbers_create(&socks);
	struct vb_sock *v = n ? vb_container_of(n, struct vb_sock, number) : NULL;

	if (!v)
		return NULL;
	v->domain = domain;
	v->type = type;
	v->kind = kind;
	v->rs = rs;
	v->generation = generation;
	pthread_mutex_init(&v->lock, NULL);
	vb_sock_add(v, fd);
	return v;
}

struct vb_sock *vb_sock_get(int fd)
{
	struct vb_numbered *n = vb_numbers_get(&socks, fd);

	return n ? vb_container_of(n, struct vb_sock, number) : NULL;
}

void vb_sock_put(struct vb_sock *v)
{
	vb_numbers_put(&socks, &v->number);
}

void vb_sock_forget(int fd)
{
	struct vb_sock *v = vb_sock_get(fd);

	if (!v)
		return;
	(void)vb_numbers_withdraw(&socks, &v->number, fd);
	vb_sock_put(v);
}

struct vb_sock *vb_sock_rdma(int fd)
{
	struct vb_sock *v = vb_sock_get(fd);

	if (!v || v->kind == VB_RDMA)
		return v;
	vb_sock_put(v);
	return NULL;
}

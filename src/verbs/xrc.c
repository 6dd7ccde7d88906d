/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC domains, and further handles on receiving queue pairs. A domain is private, or named by a file's
 * inode. Whoever opens a named domain with that file shares it: in this process, and by
 * adapter/xrc/xrc_protocol.h in other processes of this user.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "adapter/xrc_server.h"
#include "verbs/verbs.h"

struct domain {
	struct vb_list node;
	const struct vb_device *device;
	dev_t dev;
	ino_t ino;
	struct vb_xrc_server share;
	unsigned handles;
};

struct vb_verbs_xrcd {
	struct ibv_xrcd pub;
	struct vb_xrcd xrcd;
	struct domain *domain; /* NULL: private */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct vb_list domains = VB_LIST_INIT(domains);
static uint32_t last;

static struct vb_verbs_xrcd *of(struct ibv_xrcd *pub)
{
	return vb_container_of(pub, struct vb_verbs_xrcd, pub);
}
struct vb_xrcd *vb_xrcd_of(struct ibv_xrcd *pub) { return &of(pub)->xrcd; }

/* ---- domains by inode ---- */

static struct domain *find_locked(const struct vb_device *device, const struct stat *file)
{
	struct domain *d;
	vb_list_for_each(d, &domains, node)
		if (d->device == device && d->dev == file->st_dev && d->ino == file->st_ino)
			return d;
	return NULL;
}

/* oflags as for open(2): must the domain exist, or must it not? */
static int check_existence(bool exists, int oflags)
{
	if (exists && (oflags & O_CREAT) && (oflags & O_EXCL)) {
		vb_explain("ibv_open_xrcd", "the file's inode names a domain already, and oflags has O_EXCL");
		return -EEXIST;
	}
	if (!exists && !(oflags & O_CREAT)) {
		vb_explain("ibv_open_xrcd", "the file's inode names no domain yet, and oflags lacks O_CREAT");
		return -EAGAIN;
	}
	return 0;
}

/* The first handle of this process. */
static int make_locked(struct vb_context *ctx, const struct stat *file, int oflags, struct domain **domain)
{
	struct domain *d = calloc(1, sizeof(*d));
	bool others = false;
	if (!d)
		return -ENOMEM;
	d->device = ctx->device;
	d->dev = file->st_dev;
	d->ino = file->st_ino;
	snprintf(d->share.name, sizeof(d->share.name), "verbatim/xrcd/%llx.%llx/%.24s",
		 (unsigned long long)d->dev, (unsigned long long)d->ino, ctx->device->name);
	int err = vb_xrc_server_open(&d->share, ++last, &others);
	if (!err && (err = check_existence(others, oflags)))
		vb_xrc_server_close(&d->share);
	if (err) {
		free(d);
		return err;
	}
	vb_list_add_tail(&domains, &d->node);
	*domain = d;
	return 0;
}

static int open_locked(struct vb_context *ctx, const struct stat *file, int oflags, struct domain **domain)
{
	struct domain *d = find_locked(ctx->device, file);
	int err = d ? check_existence(true, oflags) : make_locked(ctx, file, oflags, &d);
	if (err)
		return err;
	d->handles++;
	*domain = d;
	return 0;
}

static void close_locked(struct domain *domain)
{
	if (!domain || --domain->handles)
		return;
	vb_list_del(&domain->node);
	vb_xrc_server_close(&domain->share);
	free(domain);
}

/* ---- the calls ---- */

static int check(struct ibv_context *context, const struct ibv_xrcd_init_attr *attr)
{
	enum { NEEDED = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS };
	int err = vb_refuse_call(context, "ibv_open_xrcd");
	if (err)
		return err;
	if (attr->comp_mask != NEEDED)
		vb_explain(
			"ibv_open_xrcd",
			"comp_mask is 0x%x: IBV_XRCD_INIT_ATTR_FD and IBV_XRCD_INIT_ATTR_OFLAGS are needed, and known",
			attr->comp_mask);
	else if (attr->oflags & ~(O_CREAT | O_EXCL))
		vb_explain("ibv_open_xrcd", "oflags 0x%x: O_CREAT and O_EXCL are known",
			   (unsigned)attr->oflags);
	else if (attr->fd == -1 && !(attr->oflags & O_CREAT))
		vb_explain("ibv_open_xrcd", "a domain without a file (fd -1) can only be created (O_CREAT)");
	else
		return 0;
	return -EINVAL;
}

static int name(struct vb_verbs_xrcd *x, const struct ibv_xrcd_init_attr *attr)
{
	struct stat file;
	if (attr->fd != -1 && fstat(attr->fd, &file))
		return -errno;
	pthread_mutex_lock(&lock);
	int err = 0;
	if (attr->fd == -1)
		x->xrcd.number = ++last;
	else
		err = open_locked(x->xrcd.ctx, &file, attr->oflags, &x->domain);
	if (!err && x->domain) {
		x->xrcd.number = x->domain->share.xrcd.number;
		x->xrcd.share = &x->domain->share;
	}
	pthread_mutex_unlock(&lock);
	return err;
}

struct ibv_xrcd *vb_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr)
{
	int err = check(context, attr);
	struct vb_verbs_xrcd *x = err ? NULL : calloc(1, sizeof(*x));
	if (!x)
		return vb_fail_null(err ? err : -ENOMEM);
	x->pub.context = context;
	x->xrcd.ctx = &vb_verbs_context_of(context)->ctx;
	err = name(x, attr);
	if (err) {
		free(x);
		return vb_fail_null(err);
	}
	vb_verbs_context_hold(context);
	return &x->pub;
}

int vb_close_xrcd(struct ibv_xrcd *pub)
{
	struct vb_verbs_xrcd *x = of(pub);
	unsigned users = atomic_load(&x->xrcd.refs);
	if (!vb_is_inherited(pub->context)) {
		if (users) {
			vb_explain("ibv_close_xrcd", "%u shared receive queues and queue pairs still use it",
				   users);
			return EBUSY;
		}
		pthread_mutex_lock(&lock);
		close_locked(x->domain);
		pthread_mutex_unlock(&lock);
	}
	vb_verbs_context_release(pub->context);
	free(x);
	return 0;
}

int vb_get_srq_num(struct ibv_srq *pub, uint32_t *number)
{
	struct vb_srq *srq = vb_srq_of(pub);
	if (!srq->xrcd) {
		vb_explain("ibv_get_srq_num", "only XRC shared receive queues have a number");
		return EINVAL;
	}
	*number = srq->number;
	return 0;
}

/* ---- forks ---- */

static void forget(void)
{
	struct domain *d;
	pthread_mutex_init(&lock, NULL);
	vb_list_for_each(d, &domains, node)
		vb_list_del(&d->node);
}

__attribute__((constructor)) static void watch_forks(void)
{
	vb_host_at_fork(forget);
}

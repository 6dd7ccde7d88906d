/* SPDX-License-Identifier: BSD-2-Clause */
/* Which pages may be moved (remap.h), and which not now, as something may have pinned them. */
#include "host/memory/movable.h"

#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host/kernel.h"
#include "host/memory/memory.h"
#include "host/memory/remap.h"
#include "host/memory/vma.h"
#include "host/private.h"

/* ---- the thread that waits ---- */

enum { MAX_EXCLUDED = 64,
	THREAD_BYTES = 4096 /* as much as the C library's struct of a thread takes at most */ };

static struct {
	unsigned n;
	bool overflow;
	struct vb_remap_piece block[MAX_EXCLUDED];
} excluded;

static void exclude(uintptr_t at, size_t bytes)
{
	if (excluded.n < MAX_EXCLUDED)
		excluded.block[excluded.n++] = (struct vb_remap_piece){ at, bytes };
	else
		excluded.overflow = true;
}

static int exclude_module(struct dl_phdr_info *module, size_t size, void *unused)
{
	for (unsigned i = 0; i < module->dlpi_phnum; i++)
		if (module->dlpi_phdr[i].p_type == PT_TLS && module->dlpi_tls_data)
			exclude((uintptr_t)module->dlpi_tls_data, module->dlpi_phdr[i].p_memsz);
	return 0;
}

void vb_remap_exclude_caller(void)
{
	if (vb_remap_way() != VB_REMAP_ALONE)
		return;
	excluded.n = 0;
	excluded.overflow = false;
	exclude((uintptr_t)pthread_self(), THREAD_BYTES); /* glibc's pthread_t is that struct's address */
	dl_iterate_phdr(exclude_module, NULL);
}

static bool is_excluded(uintptr_t at, size_t bytes)
{
	if (vb_remap_way() != VB_REMAP_ALONE)
		return false;
	for (unsigned i = 0; i < excluded.n; i++)
		if (at < excluded.block[i].at + excluded.block[i].bytes && excluded.block[i].at < at + bytes)
			return true;
	return excluded.overflow;
}

/* ---- pinned pages ---- */

/* A kernel may not count it. */
static bool is_memory_pinned(void)
{
	char text[32];
	int err = vb_file_field("/proc/self/status", "VmPin:", text, sizeof text);
	return err ? err != -ENODATA : strcmp(text, "0 kB") != 0;
}

static bool pins(int proc_fd, const char *name)
{
	char target[64];
	int fd = 0;
	for (const char *c = name; *c; c++) {
		if (*c < '0' || *c > '9')
			return false; /* "." and ".." */
		fd = fd * 10 + (*c - '0');
	}
	int flags = fcntl(fd, F_GETFL);
	if (flags >= 0 && (flags & O_DIRECT))
		return true;
	ssize_t n = readlinkat(proc_fd, name, target, sizeof target - 1);
	if (n < 0)
		return false;
	target[n] = 0;
	return strstr(target, "[io_uring]") != NULL;
}

/* As the kernel fills it in for getdents64. */
struct entry {
	uint64_t inode, next;
	unsigned short bytes;
	unsigned char type;
	char name[];
};

static bool a_file_pins(void)
{
	static char entries[8192] __attribute__((aligned(8)));
	int dir = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool found = dir < 0;
	long n = 0;
	while (!found && (n = syscall(SYS_getdents64, dir, entries, sizeof entries)) > 0) {
		for (long at = 0; at < n && !found;) {
			const struct entry *e = (const void *)(entries + at);
			found = pins(dir, e->name);
			at += e->bytes;
		}
	}
	if (dir >= 0)
		close(dir);
	return found || n < 0;
}

static bool note_aio(void *arg, const struct vb_vma *v)
{
	*(bool *)arg |= v->is_aio;
	return !v->is_aio;
}

bool vb_may_be_pinned(void)
{
	bool aio = false;
	return is_memory_pinned() || a_file_pins() || vb_vma_each(false, note_aio, &aio) || aio;
}

/* ---- what may be moved ---- */

struct check {
	uintptr_t at, end;
	struct vb_remap_plan *plan;
	int err;
};

static bool check_vma(void *arg, const struct vb_vma *v)
{
	struct check *c = arg;
	struct vb_remap_plan *p = c->plan;
	if (v->end <= c->at)
		return true;
	unsigned advice = v->flags & (VB_VMA_HUGE | VB_VMA_NO_HUGE | VB_VMA_NO_DUMP);
	if (v->start > c->at)
		c->err = -EFAULT;
	else if (v->shared || v->inode || v->is_stack || v->prot != (PROT_READ | PROT_WRITE) ||
		 (v->flags & VB_VMA_SPECIAL) || p->pieces == VB_REMAP_PIECES ||
		 (p->pieces && advice != p->advice))
		c->err = -EPERM;
	if (c->err)
		return false;
	uintptr_t end = v->end < c->end ? v->end : c->end;
	p->advice = advice;
	p->piece[p->pieces++] = (struct vb_remap_piece){ c->at, end - c->at };
	c->at = end;
	return c->at < c->end;
}

int vb_remap_check(uintptr_t at, size_t bytes, struct vb_remap_plan *plan)
{
	struct check c = { .at = at, .end = at + bytes, .plan = plan };
	plan->pieces = plan->advice = 0;
	if (!bytes || (at | bytes) % vb_page_bytes() || at + bytes < at)
		return -EINVAL;
	if (is_excluded(at, bytes))
		return -EPERM;
	int err = vb_vma_each(true, check_vma, &c);
	if (!err)
		err = c.err;
	return err ? err : c.at < c.end ? -EFAULT : 0;
}

static void find_stack(uintptr_t *low, uintptr_t *high)
{
	pthread_attr_t attr;
	void *at;
	size_t bytes;
	*high = 1;
	if (syscall(SYS_gettid) == getpid() || pthread_getattr_np(pthread_self(), &attr))
		return;
	if (!pthread_attr_getstack(&attr, &at, &bytes)) {
		*low = (uintptr_t)at;
		*high = (uintptr_t)at + bytes;
	}
	pthread_attr_destroy(&attr);
}

bool vb_remap_is_own_stack(const void *addr, size_t bytes)
{
	static _Thread_local uintptr_t low, high;
	uintptr_t at = (uintptr_t)addr;
	if (vb_unlikely(!high))
		find_stack(&low, &high);
	return at < high && at + bytes > low;
}

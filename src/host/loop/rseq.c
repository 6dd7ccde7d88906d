/* SPDX-License-Identifier: BSD-2-Clause */
#include "host/loop/rseq.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

_Atomic(ptrdiff_t) vb_rseq_offset;

#ifdef VB_RSEQ_SIGNATURE

enum { ALIGNMENT = 32, UNREGISTER = 1 };

/* Where glibc has none: this file's own, one for each thread. */
static pthread_key_t own;
static bool has_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The kernel writes to an area as long as it is registered. */
static void end_area(void *a)
{
	if (!syscall(SYS_rseq, a, sizeof(struct vb_rseq_area), UNREGISTER, VB_RSEQ_SIGNATURE))
		free(a);
}

static void look_for_glibc(void)
{
	const ptrdiff_t *offset = dlsym(RTLD_DEFAULT, "__rseq_offset");
	const unsigned *size = dlsym(RTLD_DEFAULT, "__rseq_size");
	if (offset && size && *size)
		atomic_store(&vb_rseq_offset, *offset);
	else
		has_key = !pthread_key_create(&own, end_area);
}

static struct vb_rseq_area *register_own(void)
{
	struct vb_rseq_area *a = aligned_alloc(ALIGNMENT, sizeof(*a));
	if (a)
		*a = (struct vb_rseq_area){ .cpu_id = -1 };
	if (!a || syscall(SYS_rseq, a, sizeof(*a), 0, VB_RSEQ_SIGNATURE)) {
		free(a);
		return NULL;
	}
	if (!pthread_setspecific(own, a))
		return a;
	end_area(a);
	return NULL;
}

static struct vb_rseq_area *find_area(void)
{
	pthread_once(&once, look_for_glibc);
	ptrdiff_t offset = atomic_load(&vb_rseq_offset);
	if (offset || !has_key)
		return offset ? (void *)((char *)vb_thread_pointer() + offset) : NULL;
	struct vb_rseq_area *a = pthread_getspecific(own);
	return a ? a : register_own();
}

uint64_t *vb_rseq_find(void)
{
	int error = errno;
	struct vb_rseq_area *a = find_area();
	errno = error;
	return a && a->cpu_id >= 0 ? &a->sequence : NULL;
}

#else
uint64_t *vb_rseq_find(void) { return NULL; }
#endif

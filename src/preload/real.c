/* SPDX-License-Identifier: BSD-2-Clause */
/* libc's functions that ours override, and which library calls. */
#include <dlfcn.h>
#include <link.h>

#include "preload/preload.h"

static struct vb_real real;
static atomic_bool is_loaded;

const struct vb_real *vb_real(void)
{
	if (vb_likely(atomic_load_explicit(&is_loaded, memory_order_acquire)))
		return &real;
	/* Constructors of other libraries may call this before ours. To do it twice does no harm. */
#define X(name) real.name = (__typeof__(&(name)))dlsym(RTLD_NEXT, #name);
	VB_REAL_CALLS(X)
#undef X
	atomic_store_explicit(&is_loaded, true, memory_order_release);
	return &real;
}

static struct {
	uintptr_t from, to;
} ours[2];

static int note_range(struct dl_phdr_info *info, size_t size, void *unused)
{
	static const char *const names[] = { "/libibverbs.so.1", "/librdmacm.so.1" };

	for (size_t i = 0; i < VB_ARRAY_LEN(names); i++) {
		if (!strstr(info->dlpi_name, names[i]))
			continue;
		for (int k = 0; k < info->dlpi_phnum; k++) {
			const ElfW(Phdr) *p = &info->dlpi_phdr[k];
			if (p->p_type != PT_LOAD || !(p->p_flags & PF_X))
				continue;
			ours[i].from = info->dlpi_addr + p->p_vaddr;
			ours[i].to = ours[i].from + p->p_memsz;
		}
	}
	return 0;
}

static void find_ranges(void)
{
	dl_iterate_phdr(note_range, NULL);
}

bool vb_is_our_library(const void *address)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	uintptr_t at = (uintptr_t)address;

	pthread_once(&once, find_ranges);
	return (at >= ours[0].from && at < ours[0].to) || (at >= ours[1].from && at < ours[1].to);
}

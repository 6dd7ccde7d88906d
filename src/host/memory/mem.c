/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What may be done with an address, asked of the kernel without a signal handler and without changing a byte:
 *   mapped    msync(MS_ASYNC) does nothing since Linux 2.6.19 but walk the mappings and report holes
 *   readable  rt_sigprocmask with an invalid `how` reads the new mask before it looks at `how`
 *   writable  FUTEX_WAKE_OP with "or 0" is an atomic read-modify-write; it wakes nobody but waiters for words below -2048
 * The first and the last page are asked for as such, those between them only whether they are mapped.
 */
#include "host/memory/memory.h"
#include "host/private.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { KERNEL_SIGSET_BYTES = 8, NO_SUCH_HOW = -1 };

/* A mask at 0 would be none. */
static bool is_readable(uintptr_t addr)
{
	uintptr_t mask = addr < KERNEL_SIGSET_BYTES ? KERNEL_SIGSET_BYTES :
						      addr & ~(uintptr_t)(KERNEL_SIGSET_BYTES - 1);
	return syscall(SYS_rt_sigprocmask, NO_SUCH_HOW, mask, NULL, KERNEL_SIGSET_BYTES) == 0 ||
	       errno != EFAULT;
}

static bool can_be_modified(uintptr_t addr)
{
	static uint32_t nobody_waits_here;
	const int or_zero =
		(int)((uint32_t)FUTEX_OP_OR << 28 | (uint32_t)FUTEX_OP_CMP_LT << 24 | 0u << 12 | 0x800u);
	return syscall(SYS_futex, &nobody_waits_here, FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 0, 0L,
		       addr & ~(uintptr_t)3, or_zero) >= 0 ||
	       errno != EFAULT;
}

/* Memory that is being moved (host/memory/remap.h) cannot be modified in that way for the moment; who
 * populates it waits until it is there. */
static bool is_writable(uintptr_t addr)
{
	return can_be_modified(addr) ||
	       madvise((void *)(addr & ~(vb_page_bytes() - 1)), 1, MADV_POPULATE_WRITE) == 0;
}

static bool is_mapped(uintptr_t start, uintptr_t end)
{
	return msync((void *)start, end - start, MS_ASYNC) == 0;
}

/* What can be modified can be read, too. */
static bool is_usable(uintptr_t addr, bool writable)
{
	return writable ? is_writable(addr) : is_readable(addr);
}

static bool are_usable(uintptr_t first, uintptr_t last, bool writable)
{
	uintptr_t page = vb_page_bytes(), second_page = (first & ~(page - 1)) + page,
		  last_page = last & ~(page - 1);
	return is_usable(first, writable) && (last < second_page || is_usable(last, writable)) &&
	       (last_page <= second_page || is_mapped(second_page, last_page));
}

int vb_mem_check(const void *addr, size_t bytes, bool writable)
{
	uintptr_t first = (uintptr_t)addr, last = first + bytes - 1;
	int saved_errno = errno;

	if (!bytes)
		return 0;
	bool ok = last >= first && are_usable(first, last, writable);
	errno = saved_errno;
	return ok ? 0 : -EFAULT;
}

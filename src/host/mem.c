/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What may be done with an address, asked of the kernel without a signal handler and without changing a byte:
 *   mapped    msync(MS_ASYNC) does nothing since Linux 2.6.19 but walk the mappings and report holes
 *   readable  rt_sigprocmask with an invalid `how` reads the new mask before it looks at `how`
 *   writable  FUTEX_WAKE_OP with "or 0" is an atomic read-modify-write; it wakes nobody but waiters for words below -2048
 */
#include "host/private.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { KERNEL_SIGSET_BYTES = 8, NO_SUCH_HOW = -1 };

static bool is_readable(uintptr_t addr)
{
	return syscall(SYS_rt_sigprocmask, NO_SUCH_HOW, addr & ~(uintptr_t)7, NULL, KERNEL_SIGSET_BYTES) == 0 ||
	       errno != EFAULT;
}

static bool is_writable(uintptr_t addr)
{
	static uint32_t nobody_waits_here;
	const int or_zero = (int)((uint32_t)FUTEX_OP_OR << 28 | (uint32_t)FUTEX_OP_CMP_LT << 24 | 0u << 12 | 0x800u);
	return syscall(SYS_futex, &nobody_waits_here, FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 0, 0L,
		       addr & ~(uintptr_t)3, or_zero) >= 0 ||
	       errno != EFAULT;
}

static bool is_mapped(uintptr_t first, uintptr_t last)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = first & ~(page - 1);
	return msync((void *)start, last - start + 1, MS_ASYNC) == 0;
}

static bool is_usable(uintptr_t addr, bool writable)
{
	return is_readable(addr) && (!writable || is_writable(addr));
}

int vb_mem_check(const void *addr, size_t bytes, bool writable)
{
	uintptr_t first = (uintptr_t)addr, last = first + bytes - 1;
	int saved_errno = errno;

	if (!bytes)
		return 0;
	bool ok = last >= first && is_mapped(first, last) && is_usable(first, writable) && is_usable(last, writable);
	errno = saved_errno;
	return ok ? 0 : -EFAULT;
}

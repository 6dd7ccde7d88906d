/* SPDX-License-Identifier: BSD-2-Clause */
#include "host/ipc/guard.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host/loop/rseq.h"

#ifdef VB_RSEQ_SIGNATURE

/*
 * The sequence from 1 to 2 is restarted at 4. The system call is its last instruction, so a thread that has
 * entered the kernel has left it. Returns what the kernel does: a count or a negative errno.
 */
#if defined(__x86_64__)
static __attribute__((noinline)) long copy_unless(long number, uint64_t *sequence,
						  const _Atomic(uint32_t) *stop,
						  long pid, const struct iovec *local, unsigned long nlocal,
						  const struct iovec *remote, unsigned long nremote)
{
	long result = number;
	register long r10 __asm__("r10") = (long)remote;
	register long r8 __asm__("r8") = (long)nremote;
	register long r9 __asm__("r9") = 0;
	__asm__ volatile(".pushsection .data.rel.ro, \"aw\"\n\t"
			 ".balign 32\n"
			 "3:\t.long 0, 0\n\t"
			 ".quad 1f, 2f - 1f, 4f\n\t"
			 ".popsection\n\t"
			 "lea 3b(%%rip), %%rcx\n\t"
			 "mov %%rcx, %[sequence]\n"
			 "1:\tcmpl $0, %[stop]\n\t"
			 "jne 5f\n\t"
			 "syscall\n"
			 "2:\tjmp 6f\n\t"
			 ".long " VB_RSEQ_SIGNATURE_TEXT "\n"
						  "4:\tmov %[again], %%eax\n\t"
						  "cltq\n\t"
						  "jmp 6f\n"
						  "5:\tmov %[cancelled], %%eax\n\t"
						  "cltq\n"
						  "6:"
			 : "+a"(result), [sequence] "=m"(*sequence)
			 : [stop] "m"(*stop), "D"(pid), "S"(local), "d"(nlocal), "r"(r10), "r"(r8),
			   "r"(r9), [again] "i"(-EAGAIN), [cancelled] "i"(-ECANCELED)
			 : "rcx", "r11", "cc", "memory");
	return result;
}
#else
static __attribute__((noinline)) long copy_unless(long number, uint64_t *sequence,
						  const _Atomic(uint32_t) *stop,
						  long pid, const struct iovec *local, unsigned long nlocal,
						  const struct iovec *remote, unsigned long nremote)
{
	register long x0 __asm__("x0") = pid;
	register long x1 __asm__("x1") = (long)local;
	register long x2 __asm__("x2") = (long)nlocal;
	register long x3 __asm__("x3") = (long)remote;
	register long x4 __asm__("x4") = (long)nremote;
	register long x5 __asm__("x5") = 0;
	register long x8 __asm__("x8") = number;
	__asm__ volatile(".pushsection .data.rel.ro, \"aw\"\n\t"
			 ".balign 32\n"
			 "3:\t.long 0, 0\n\t"
			 ".quad 1f, 2f - 1f, 4f\n\t"
			 ".popsection\n\t"
			 "adrp x9, 3b\n\t"
			 "add x9, x9, :lo12:3b\n\t"
			 "str x9, %[sequence]\n"
			 "1:\tldr w9, %[stop]\n\t"
			 "cbnz w9, 5f\n\t"
			 "svc #0\n"
			 "2:\tb 6f\n\t"
			 ".inst " VB_RSEQ_SIGNATURE_TEXT "\n"
						  "4:\tmov x0, %[again]\n\t"
						  "b 6f\n"
						  "5:\tmov x0, %[cancelled]\n"
						  "6:"
			 : "+r"(x0), [sequence] "=m"(*sequence)
			 : [stop] "Q"(*stop), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5),
			   "r"(x8), [again] "i"(-EAGAIN), [cancelled] "i"(-ECANCELED)
			 : "x9", "cc", "memory");
	return x0;
}
#endif

#else
static long copy_unless(long number, uint64_t *sequence, const _Atomic(uint32_t) *stop, long pid,
			const struct iovec *local, unsigned long nlocal, const struct iovec *remote,
			unsigned long nremote)
{
	return -EPERM;
}
#endif

ssize_t vb_guarded_copy(bool writes, pid_t pid, const struct iovec *local, unsigned long nlocal,
			const struct iovec *remote, unsigned long nremote, const _Atomic(uint32_t) *stop)
{
	long number = writes ? SYS_process_vm_writev : SYS_process_vm_readv;
	uint64_t *sequence = vb_rseq();
	long n = -EPERM;
	if (sequence)
		do
			n = copy_unless(number, sequence, stop, pid, local, nlocal, remote, nremote);
		while (n == -EAGAIN);
	if (n >= 0)
		return n;
	errno = (int)-n;
	return -1;
}

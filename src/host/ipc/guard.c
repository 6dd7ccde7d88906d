/* SPDX-License-Identifier: BSD-2-Clause */
#include "host/ipc/guard.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cancel.h"

/* ---- the thread's restartable sequences ---- */

/* The kernel's struct rseq as of Linux 4.18, in plain types. */
enum { ALIGNMENT = 32, UNREGISTER = 1 };
struct area {
	uint32_t cpu_id_start;
	int32_t cpu_id; /* negative: not registered */
	uint64_t sequence;
	uint32_t flags;
	uint32_t reserved[3];
};

/*
 * From 2.35 on glibc registers one for each thread, at this distance from the thread pointer. 0: it does not,
 * as users can choose.
 */
static ptrdiff_t glibc_offset;
/* Where glibc has none: this file's own, one for each thread. */
static pthread_key_t own;
static bool has_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#if defined(__x86_64__)
#define SIGNATURE 0x53053053
static void *thread_pointer(void)
{
	void *at;
	__asm__("mov %%fs:0, %0" : "=r"(at));
	return at;
}
#elif defined(__aarch64__)
#define SIGNATURE 0xd428bc00
static void *thread_pointer(void) { return __builtin_thread_pointer(); }
#endif

#ifdef SIGNATURE

/* The kernel checks that these four bytes precede the address to which it sends an interrupted thread. */
#define TEXT_OF(number) #number
#define TEXT(number)    TEXT_OF(number)

/* The kernel writes to an area as long as it is registered. */
static void end_area(void *a)
{
	if (!syscall(SYS_rseq, a, sizeof(struct area), UNREGISTER, SIGNATURE))
		free(a);
}

static void look_for_glibc(void)
{
	const ptrdiff_t *offset = dlsym(RTLD_DEFAULT, "__rseq_offset");
	const unsigned *size = dlsym(RTLD_DEFAULT, "__rseq_size");
	if (offset && size && *size)
		glibc_offset = *offset;
	else
		has_key = !pthread_key_create(&own, end_area);
}

static struct area *register_own(void)
{
	struct area *a = aligned_alloc(ALIGNMENT, sizeof(*a));
	if (a)
		*a = (struct area){ .cpu_id = -1 };
	if (!a || syscall(SYS_rseq, a, sizeof(*a), 0, SIGNATURE)) {
		free(a);
		return NULL;
	}
	if (!pthread_setspecific(own, a))
		return a;
	end_area(a);
	return NULL;
}

/* The calling thread's area; NULL: it can have none. */
static struct area *find_area(void)
{
	pthread_once(&once, look_for_glibc);
	struct area *a = glibc_offset ? (void *)((char *)thread_pointer() + glibc_offset) :
			 has_key      ? pthread_getspecific(own) :
					NULL;
	if (!a && has_key)
		a = register_own();
	return a && a->cpu_id >= 0 ? a : NULL;
}

/*
 * The sequence from 1 to 2 is restarted at 4. The system call is its last instruction, so a thread that has
 * entered the kernel has left it. Returns what the kernel does: a count or a negative errno.
 */
#if defined(__x86_64__)
static __attribute__((noinline)) long write_unless(uint64_t *sequence, const _Atomic(uint32_t) *stop,
						   long pid, const struct iovec *local, unsigned long nlocal,
						   const struct iovec *remote, unsigned long nremote)
{
	long result = SYS_process_vm_writev;
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
			 ".long " TEXT(SIGNATURE) "\n"
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
static __attribute__((noinline)) long write_unless(uint64_t *sequence, const _Atomic(uint32_t) *stop,
						   long pid, const struct iovec *local, unsigned long nlocal,
						   const struct iovec *remote, unsigned long nremote)
{
	register long x0 __asm__("x0") = pid;
	register long x1 __asm__("x1") = (long)local;
	register long x2 __asm__("x2") = (long)nlocal;
	register long x3 __asm__("x3") = (long)remote;
	register long x4 __asm__("x4") = (long)nremote;
	register long x5 __asm__("x5") = 0;
	register long x8 __asm__("x8") = SYS_process_vm_writev;
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
			 ".inst " TEXT(SIGNATURE) "\n"
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
static struct area *find_area(void) { return NULL; }
static long write_unless(uint64_t *sequence, const _Atomic(uint32_t) *stop, long pid,
			 const struct iovec *local, unsigned long nlocal, const struct iovec *remote,
			 unsigned long nremote)
{
	return -EPERM;
}
#endif

bool vb_guard_is_there(void)
{
	int error = errno;
	bool is_there = find_area() != NULL;
	errno = error;
	return is_there;
}

ssize_t vb_guarded_write(pid_t pid, const struct iovec *local, unsigned long nlocal,
			 const struct iovec *remote, unsigned long nremote, const _Atomic(uint32_t) *stop)
{
	struct area *a = find_area();
	long n = -EPERM;
	if (a) {
		do
			n = write_unless(&a->sequence, stop, pid, local, nlocal, remote, nremote);
		while (n == -EAGAIN);
		a->sequence = 0;
	}
	if (n >= 0)
		return n;
	errno = (int)-n;
	return -1;
}

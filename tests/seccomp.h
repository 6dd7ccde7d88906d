/* SPDX-License-Identifier: BSD-2-Clause */
/* System calls that are forbidden, as in a sandbox. */
#ifndef VB_TEST_SECCOMP_H
#define VB_TEST_SECCOMP_H

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>

/*
 * From here on the system call has that answer (SECCOMP_RET_*), for this process. False: there is no seccomp.
 */
static inline bool answer_with(unsigned syscall_number, unsigned answer)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, syscall_number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, answer),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };
	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
	       !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

static inline bool forbid_with(unsigned syscall_number, unsigned error)
{
	return answer_with(syscall_number, SECCOMP_RET_ERRNO | error);
}

static inline bool forbid(unsigned syscall_number) { return forbid_with(syscall_number, EPERM); }

#endif

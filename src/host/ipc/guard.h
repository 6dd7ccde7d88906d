/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writing another process's memory, unless that process has forbidden it by a word in memory.
 *
 * Between the load of the word and process_vm_writev a debugger, a freezer or SIGSTOP can stop a thread for
 * any time. So the two are one restartable sequence (rseq(2)): a thread that was interrupted after the load,
 * and has not entered the kernel, goes back and loads again. Within the call nothing stops it before its
 * bytes are written.
 */
#ifndef VB_HOST_GUARD_H
#define VB_HOST_GUARD_H

#include "host/host.h"

/*
 * Can the calling thread do this? It takes Linux 4.18 on x86-64 or arm64, and that nobody else uses the
 * thread's restartable sequences against glibc's rules.
 */
bool vb_guard_is_there(void);

/*
 * process_vm_writev(2) with one difference: once *stop is not 0 it writes nothing, and errno is ECANCELED.
 * Without vb_guard_is_there errno is EPERM.
 */
ssize_t vb_guarded_write(pid_t pid, const struct iovec *local, unsigned long nlocal,
			 const struct iovec *remote, unsigned long nremote, const _Atomic(uint32_t) *stop);

#endif

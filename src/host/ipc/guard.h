/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reading and writing another process's memory, unless that process has forbidden it by a word in memory.
 *
 * Between the load of the word and the system call a debugger, a freezer or SIGSTOP can stop a thread for any
 * time. So the two are one restartable sequence (host/loop/rseq.h): a thread that was interrupted after the
 * load, and has not entered the kernel, goes back and loads again. Within the call nothing stops it before
 * its bytes are copied.
 */
#ifndef VB_HOST_GUARD_H
#define VB_HOST_GUARD_H

#include "host/host.h"

/*
 * process_vm_writev(2), or process_vm_readv(2), with one difference: once *stop is not 0 it copies nothing,
 * and errno is ECANCELED. If the thread can have no restartable
 * sequences (vb_rseq) errno is EPERM.
 */
ssize_t vb_guarded_copy(bool writes, pid_t pid, const struct iovec *local, unsigned long nlocal,
			const struct iovec *remote, unsigned long nremote, const _Atomic(uint32_t) *stop);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writing another process's memory, unless that one has said that it must not be written any more.
 *
 * A look at its word and process_vm_writev are two steps, and a thread can be stopped between them for as
 * long as it pleases a debugger, a freezer or SIGSTOP. So the two are one restartable sequence (rseq(2)): a
 * thread that was interrupted behind the look, and has not entered the kernel, goes back and looks again.
 * Within the call nothing stops it before its bytes are written.
 */
#ifndef VB_HOST_GUARD_H
#define VB_HOST_GUARD_H

#include "host/host.h"

/*
 * Can the calling thread do this? Linux 4.18, x86-64 and arm64, and nobody else uses the thread's restartable
 * sequences against glibc's rules.
 */
bool vb_guard_is_there(void);

/*
 * process_vm_writev(2) with one difference: once *stop is not 0 nothing is written, and errno is ECANCELED.
 * Only where vb_guard_is_there; EPERM else.
 */
ssize_t vb_guarded_write(pid_t pid, const struct iovec *local, unsigned long nlocal,
			 const struct iovec *remote, unsigned long nremote, const _Atomic(uint32_t) *stop);

#endif

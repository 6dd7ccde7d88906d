/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The trap that remap.h speaks of: whoever touches a trapped range sleeps until it is woken. Without
 * userfaultfd there is none (VB_REMAP_ALONE), and these functions do nothing and succeed.
 */
#ifndef VB_HOST_TRAP_H
#define VB_HOST_TRAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* mode: UFFDIO_REGISTER_MODE_*. Negative errno. */
int vb_trap_begin(uintptr_t at, size_t bytes, uint64_t mode);
/* Traps writes to a range, or does so no longer. -ENOENT: it is no trapped one any more. */
int vb_trap_protect(uintptr_t at, size_t bytes, bool on);
/*
 * Is this still the empty range that was trapped? The program may have unmapped it meanwhile, or mapped
 * something else there.
 */
bool vb_trap_holds(uintptr_t at, size_t bytes);
/* Wakes whoever sleeps there. */
void vb_trap_wake(uintptr_t at, size_t bytes);
/* Ends the trap, and wakes. */
void vb_trap_end(uintptr_t at, size_t bytes);

#endif

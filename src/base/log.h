/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Failed calls explain themselves: with VERBATIM_DEBUG set (to anything but "" or "0") when the library is
 * loaded, vb_explain("ibv_create_qp", "max_send_wr is %u, the device allows %u", …) prints one line on
 * standard error:
 *
 *	verbatim: ibv_create_qp: max_send_wr is 70000, the device allows 32768
 *
 * Otherwise it costs one predictable branch and its arguments are not evaluated. Thread-safe; errno is kept.
 *
 * vb_explain_limit is the same for refusals that correct programs meet: those that probe what the device has,
 * or post until a queue is full. A listener gets only the sentences of vb_explain, which are mistakes.
 */
#ifndef VB_LOG_H
#define VB_LOG_H

#include "base/base.h"

extern VB_EXPORT atomic_bool vb_debug_enabled;

static inline bool vb_is_explaining(void)
{
	return vb_unlikely(atomic_load_explicit(&vb_debug_enabled, memory_order_relaxed));
}

#define vb_explain(call, ...)                                   \
	do {                                                    \
		if (vb_is_explaining())                         \
			vb_explain_line((call), __VA_ARGS__);   \
	} while (0)

#define vb_explain_limit(call, ...)                             \
	do {                                                    \
		if (vb_is_explaining())                         \
			vb_explain_limit_line((call), __VA_ARGS__); \
	} while (0)

/* What the macros call. Control characters are replaced and long lines cut (1 KiB). */
VB_EXPORT void vb_explain_line(const char *call, const char *fmt, ...)
	__attribute__((cold, format(printf, 2, 3)));
VB_EXPORT void vb_explain_limit_line(const char *call, const char *fmt, ...)
	__attribute__((cold, format(printf, 2, 3)));

/*
 * From now on calls listener with each sentence of vb_explain, in the thread of the failed call, which may
 * hold locks. Sentences are then printed only if VERBATIM_DEBUG is set. Set once, by a constructor.
 */
void vb_explain_listen(void (*listener)(const char *call, const char *sentence));

/*
 * The same, of all sentences, for a capture: from now on, and until it is called with NULL. A call that is
 * under way may still come.
 */
void vb_explain_copy(void (*listener)(const char *call, const char *sentence));

/* Writes to standard error, and ignores failures. errno is kept. */
void vb_say(const char *text, size_t bytes);

#endif

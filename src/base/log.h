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
 * Some refusals are met by programs that do nothing wrong: who asks what the device has, or posts until a
 * queue is full. These are vb_explain_limit's, and for the rest the same. A listener hears of the others,
 * which are somebody's mistake.
 */
#ifndef VB_LOG_H
#define VB_LOG_H

#include "base/base.h"

extern VB_EXPORT bool vb_debug_enabled;

#define vb_explain(call, ...)                                   \
	do {                                                    \
		if (vb_unlikely(vb_debug_enabled))              \
			vb_explain_line((call), __VA_ARGS__);   \
	} while (0)

#define vb_explain_limit(call, ...)                             \
	do {                                                    \
		if (vb_unlikely(vb_debug_enabled))              \
			vb_explain_limit_line((call), __VA_ARGS__); \
	} while (0)

/* What the macros call. Control characters are replaced and long lines cut (1 KiB). */
VB_EXPORT void vb_explain_line(const char *call, const char *fmt, ...)
	__attribute__((cold, format(printf, 2, 3)));
VB_EXPORT void vb_explain_limit_line(const char *call, const char *fmt, ...)
	__attribute__((cold, format(printf, 2, 3)));

/*
 * Is called with each sentence of vb_explain by the thread that met it, which may hold locks. From then on
 * sentences are printed only if VERBATIM_DEBUG is set. Set once, by a constructor.
 */
void vb_explain_listen(void (*listener)(const char *call, const char *sentence));

/* Writes to standard error at once, whatever becomes of it. errno is kept. */
void vb_say(const char *text, size_t bytes);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/* Settings from the environment that several layers must agree on: read once, and again in a forked child. */
#include "host/private.h"

#include <stdlib.h>
#include <string.h>

enum answer { UNKNOWN, NO, YES };

static _Atomic(enum answer) local_off;

bool vb_local_is_off(void)
{
	enum answer a = atomic_load_explicit(&local_off, memory_order_relaxed);
	if (vb_unlikely(a == UNKNOWN)) {
		const char *value = getenv("VERBATIM_LOCAL");
		enum answer unknown = UNKNOWN;
		a = value && !strcmp(value, "off") ? YES : NO;
		if (!atomic_compare_exchange_strong(&local_off, &unknown, a)) /* another thread read it before */
			a = unknown;
	}
	return a == YES;
}

void vb_setting_forget(void)
{
	atomic_store(&local_off, UNKNOWN);
}

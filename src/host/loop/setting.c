/* SPDX-License-Identifier: BSD-2-Clause */
/* Settings from the environment that several layers must agree on: read once, and again in a forked child. */
#include "host/private.h"

#include <stdlib.h>
#include <string.h>

enum answer { UNKNOWN, NO, YES };

/* A variable and the value that turns the setting on. */
struct setting {
	const char *variable, *value;
	_Atomic(enum answer) answer;
};

static struct setting local_off = { "VERBATIM_LOCAL", "off", UNKNOWN },
		      infiniband = { "VERBATIM_LINK", "infiniband", UNKNOWN };
static bool is_turned_off;

static bool read_setting(struct setting *s, bool anyway)
{
	enum answer a = atomic_load_explicit(&s->answer, memory_order_relaxed);
	if (vb_unlikely(a == UNKNOWN)) {
		const char *value = getenv(s->variable);
		enum answer unknown = UNKNOWN;
		a = anyway || (value && !strcmp(value, s->value)) ? YES : NO;
		/* another thread was first */
		if (!atomic_compare_exchange_strong(&s->answer, &unknown, a))
			a = unknown;
	}
	return a == YES;
}

bool vb_local_is_off(void) { return read_setting(&local_off, is_turned_off); }
bool vb_link_is_infiniband(void) { return read_setting(&infiniband, false); }

void vb_local_turn_off(void)
{
	is_turned_off = true;
	vb_setting_forget();
}

void vb_setting_forget(void)
{
	atomic_store(&local_off.answer, UNKNOWN);
	atomic_store(&infiniband.answer, UNKNOWN);
}

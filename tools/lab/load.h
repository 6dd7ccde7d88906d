/* SPDX-License-Identifier: BSD-2-Clause */
/* Scenarios in files, and options of commands that make a lab. */
#ifndef VB_TOOLS_LAB_LOAD_H
#define VB_TOOLS_LAB_LOAD_H

#include "scenario.h"

/* False after a message. To be freed in any case. */
bool lab_load(struct lab_scenario *s, const char *path);

/* What the command line says of a lab; what is 0 or NULL is not said. */
struct lab_wishes {
	const char *name, *topology;
	unsigned hosts, mtu;
	bool has_seed;
	uint64_t seed;
};

/* Takes one of the options --hosts, --topology, --mtu, --seed and --name; false after a message. */
bool lab_take_wish(struct lab_wishes *wishes, const char *name, const char *value);
/* They count more than the file's. */
void lab_apply_wishes(const struct lab_wishes *wishes, struct lab_plan *plan);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/* Where there is no toml++ to build with. */
#include <stdio.h>

#include "toml.h"

struct lab_toml *lab_toml_parse(const char *text, size_t size, unsigned *line, char *why, size_t why_bytes)
{
	*line = 0;
	snprintf(why, why_bytes, "this verbatim was built without toml++ (libtomlplusplus-dev), which reads such files");
	return NULL;
}

void lab_toml_free(struct lab_toml *document) {}

/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../command.h"
#include "load.h"

enum { FILE_BYTES = 4 << 20 };

/* A file's text; NULL after a message. */
static char *read_file(const char *path, size_t *size)
{
	FILE *f = fopen(path, "re");
	char *text = f ? malloc(FILE_BYTES) : NULL;

	*size = text ? fread(text, 1, FILE_BYTES, f) : 0;
	if (!text || ferror(f))
		complain("%s: %s", path, strerror(errno));
	else if (*size == FILE_BYTES)
		complain("%s: it has more than %d bytes", path, FILE_BYTES - 1);
	else {
		fclose(f);
		return text;
	}
	if (f)
		fclose(f);
	free(text);
	return NULL;
}

bool lab_load(struct lab_scenario *s, const char *path)
{
	char why[LAB_TEXT_BYTES];
	size_t size;
	char *text = read_file(path, &size);
	bool loaded;

	*s = (struct lab_scenario){ 0 };
	if (!text)
		return false;
	loaded = lab_scenario_parse(s, path, text, size, why);
	free(text);
	if (!loaded)
		complain("%s", why);
	return loaded;
}

/* ---- options ---- */

/* Digits alone: strtoull would take a sign, and makes a large number of a negative one. */
static bool read_number(const char *value, uint64_t *number)
{
	errno = 0;
	*number = strtoull(value, NULL, 10);
	return *value && !value[strspn(value, "0123456789")] && !errno;
}

static bool take_number(const char *name, const char *value, unsigned least, unsigned most, unsigned *number)
{
	uint64_t n;

	if (!read_number(value, &n) || n < least || n > most) {
		complain("--%s takes a number from %u to %u", name, least, most);
		return false;
	}
	*number = (unsigned)n;
	return true;
}

bool lab_take_wish(struct lab_wishes *w, const char *name, const char *value)
{
	if (strcmp(name, "hosts") == 0)
		return take_number(name, value, 1, LAB_HOSTS_MAX, &w->hosts);
	if (strcmp(name, "mtu") == 0)
		return take_number(name, value, LAB_MTU_MIN, LAB_MTU_MAX, &w->mtu);
	if (strcmp(name, "seed") == 0)
		return (w->has_seed = read_number(value, &w->seed)) || refuse_value(name, value);
	if (strcmp(name, "topology") == 0)
		return (w->topology = value);
	w->name = value;
	return lab_is_name(value) || refuse_value(name, value);
}

void lab_apply_wishes(const struct lab_wishes *w, struct lab_plan *plan)
{
	if (w->name)
		strcpy(plan->name, w->name);
	if (w->mtu)
		plan->mtu = w->mtu;
	if (w->has_seed)
		plan->topology.seed = w->seed;
}

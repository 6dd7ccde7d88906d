/* SPDX-License-Identifier: BSD-2-Clause */
/* verbatim timeline: a page that shows captures. */
#include "timeline/timeline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"
#include "pcapng.h"
#include "timeline/page.h"
#include "timeline/shorten.h"

bool timeline_may_write(const char *page)
{
	struct stat st;
	uint32_t first = 0;
	bool is_file = strcmp(page, "-") != 0 && stat(page, &st) == 0 && S_ISREG(st.st_mode);
	FILE *file = is_file ? fopen(page, "rbe") : NULL;
	bool is_capture = file && fread(&first, sizeof(first), 1, file) == 1 && first == PCAPNG_SECTION;

	if (file)
		fclose(file);
	if (is_capture)
		complain("%s is a capture, which a page would overwrite", page);
	return !is_capture;
}

static bool write_page(const char *path, const struct shortened *s)
{
	FILE *out = strcmp(path, "-") == 0 ? stdout : fopen(path, "wbe");
	bool failed;

	if (!out) {
		complain("%s: %s", path, strerror(errno));
		return false;
	}
	timeline_write_page(out, s->bytes, s->used);
	failed = ferror(out) != 0;
	failed |= (out == stdout ? fflush(stdout) : fclose(out)) != 0;
	if (failed)
		complain("%s: it could not be written", path);
	return !failed;
}

/* Of what was read well, or not. */
static int finish(const char *page, struct shortened *s, bool good)
{
	good = good && write_page(page, s);
	free(s->bytes);
	return good ? 0 : EXIT_OURS;
}

int timeline_make(const char *page, char *const *captures, int count)
{
	struct shortened s = { .bytes = NULL };
	bool good = timeline_may_write(page);

	for (int i = 0; good && i < count; i++)
		good = shorten_file(&s, captures[i], captures[i]);
	return finish(page, &s, good);
}

int timeline_make_of(const char *page, const char *capture, const char *name)
{
	struct shortened s = { .bytes = NULL };

	return finish(page, &s, timeline_may_write(page) && shorten_file(&s, capture, name));
}

static bool take_option(void *context, const char *name, const char *value) { return false; }

int command_timeline(int argc, char **argv)
{
	int first = take_options(argc, argv, OPTIONS_ANYWHERE, take_option, NULL);

	if (first < 0)
		return EXIT_OURS;
	if (argc - first < 2)
		return complain("timeline needs a capture to read and a page to write ('-': standard output)");
	if (strcmp(argv[argc - 1], "-") == 0 && isatty(STDOUT_FILENO))
		return complain("a page is not for a terminal");
	return timeline_make(argv[argc - 1], argv + first, argc - first - 1);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Latencies as a picture: for each operation and size a histogram over a scale of time that all share, whose
 * steps are powers, with the percentiles; and a bar for where the time went.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "command.h"
#include "latency.h"
#include "timeline/page.h"

enum { WIDTH = 960, LEFT = 24, PLOT = 912, TOP = 56, GROUP = 150, BARS = 55, BARS_AT = 36, COLUMNS = 228,
       SHARE_AT = 122, SHARE = 8 };

/* Of the whole picture; in log10 of ns. */
struct scale {
	double least, most;
};

static double log_of(uint64_t ns) { return ns ? log10((double)ns) : 0; }

static double x_of(const struct scale *s, double log_ns)
{
	return LEFT + PLOT * (log_ns - s->least) / (s->most - s->least);
}

/* As XML has it; it is printable (base/utf8.h). */
static void write_name(FILE *out, const char *name)
{
	for (; *name; name++) {
		if (strchr("<>&", *name))
			fprintf(out, "&#%d;", *name);
		else
			fputc(*name, out);
	}
}

/* ---- one group ---- */

static void sum_columns(const struct histogram *h, const struct scale *s, uint64_t columns[COLUMNS])
{
	memset(columns, 0, COLUMNS * sizeof(*columns));
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		double x = x_of(s, log_of(histogram_value(h, i))) - LEFT;
		int column = (int)(x * COLUMNS / PLOT);
		if (h->buckets[i])
			columns[column < 0 ? 0 : column >= COLUMNS ? COLUMNS - 1 : column] += h->buckets[i];
	}
}

static void draw_histogram(FILE *out, const struct histogram *h, const struct scale *s, double top)
{
	uint64_t columns[COLUMNS], most = 1;

	sum_columns(h, s, columns);
	for (unsigned i = 0; i < COLUMNS; i++)
		most = columns[i] > most ? columns[i] : most;
	for (unsigned i = 0; i < COLUMNS; i++) {
		double height = BARS * (double)columns[i] / (double)most;
		if (!columns[i])
			continue;
		height = height < 1 ? 1 : height; /* a single one is seen, too */
		fprintf(out, "<rect class=\"bar\" x=\"%.1f\" y=\"%.1f\" width=\"3\" height=\"%.1f\">"
			"<title>%" PRIu64 "</title></rect>\n", LEFT + (double)PLOT * i / COLUMNS,
			top + BARS_AT + BARS - height, height, columns[i]);
	}
	fprintf(out, "<path class=\"axis\" d=\"M%d %.1fh%d\"/>\n", LEFT, top + BARS_AT + BARS, PLOT);
}

static void draw_percentiles(FILE *out, const struct histogram *h, const struct scale *s, double top)
{
	char text[32];

	for (unsigned i = 0; i < LATENCY_PERCENTILES; i++) {
		uint64_t ns = histogram_percentile(h, latency_percentiles[i].per_mille);
		double x = x_of(s, log_of(ns));
		latency_text(ns, text);
		fprintf(out, "<path class=\"mark\" d=\"M%.1f %.1fv%d\"><title>%s: %s</title></path>\n", x,
			top + BARS_AT, BARS + 5, latency_percentiles[i].name, text);
	}
}

static void draw_shares(FILE *out, const struct latency_group *g, double top)
{
	double all = 0, x = LEFT;
	char text[32];

	for (unsigned i = 0; i < LATENCY_PIECES; i++)
		all += (double)g->sums_ns[i];
	for (unsigned i = 0; i < LATENCY_PIECES && all > 0; i++) {
		double width = PLOT * (double)g->sums_ns[i] / all;
		latency_text(g->sums_ns[i] / g->histogram.count, text);
		fprintf(out, "<rect class=\"piece%u\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\">"
			"<title>%s: %s</title></rect>\n", i, x, top + SHARE_AT, width, SHARE,
			latency_pieces[i], text);
		x += width;
	}
}

static void draw_heading(FILE *out, const struct latency_process *p, const struct latency_group *g,
			 double top)
{
	char sizes[32], text[32];

	latency_sizes(g, sizes);
	fprintf(out, "<text class=\"name\" x=\"%d\" y=\"%.1f\">%s, %s bytes · %" PRIu64 " · ", LEFT, top + 14,
		timeline_work_name(g->opcode), sizes, g->histogram.count);
	write_name(out, p->name);
	fprintf(out, "</text>\n<text x=\"%d\" y=\"%.1f\">", LEFT, top + 30);
	for (unsigned i = 0; i < LATENCY_PERCENTILES; i++) {
		latency_text(histogram_percentile(&g->histogram, latency_percentiles[i].per_mille), text);
		fprintf(out, "%s%s %s", i ? " · " : "", latency_percentiles[i].name, text);
	}
	fputs("</text>\n", out);
}

/* ---- the picture ---- */

typedef void drawer(const struct latency_process *p, const struct latency_group *g, void *arg);

/* Those that have times. */
static void each(const struct latency *l, drawer *draw, void *arg)
{
	for (unsigned i = 0; i < l->count; i++)
		for (unsigned k = 0; l->processes[i] && k < l->processes[i]->group_count; k++)
			if (l->processes[i]->groups[k]->histogram.count)
				draw(l->processes[i], l->processes[i]->groups[k], arg);
}

struct drawing {
	FILE *out;
	struct scale scale;
	unsigned count;
};

static void measure(const struct latency_process *p, const struct latency_group *g, void *arg)
{
	struct drawing *d = arg;
	const struct histogram *h = &g->histogram;
	unsigned least = 0;

	while (!h->buckets[least])
		least++;
	d->scale.least = fmin(d->scale.least, floor(log_of(histogram_value(h, least)) * 2) / 2);
	d->scale.most = fmax(d->scale.most, ceil(log_of(h->max) * 2) / 2);
	d->count++;
}

static void draw_group(const struct latency_process *p, const struct latency_group *g, void *arg)
{
	struct drawing *d = arg;
	double top = TOP + GROUP * d->count++;

	draw_heading(d->out, p, g, top);
	draw_histogram(d->out, &g->histogram, &d->scale, top);
	draw_percentiles(d->out, &g->histogram, &d->scale, top);
	draw_shares(d->out, g, top);
	for (int power = (int)ceil(d->scale.least); power <= d->scale.most; power++) {
		char text[32];
		latency_text((uint64_t)llround(pow(10, power)), text);
		fprintf(d->out, "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
			x_of(&d->scale, power), top + BARS_AT + BARS + 18, text);
	}
}

static const char style[] =
	"<style>svg{background:#fff;font:13px sans-serif}text{fill:#222}.name{font-weight:bold}"
	".tick{font-size:11px;text-anchor:middle;fill:#555}.bar{fill:#0072b2}.axis{stroke:#888;fill:none}"
	".mark{stroke:#d55e00;fill:none}.piece0{fill:#e69f00}.piece1{fill:#56b4e9}.piece2{fill:#009e73}"
	"@media(prefers-color-scheme:dark){svg{background:#111}text{fill:#eee}.tick{fill:#aaa}"
	".bar{fill:#56b4e9}}</style>\n";

static void draw_all(const struct latency *l, FILE *out)
{
	struct drawing d = { .out = out, .scale = { .least = 18, .most = 0 } };

	each(l, measure, &d);
	if (d.scale.most <= d.scale.least)
		d.scale.most = d.scale.least + 1;
	fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%u\">\n%s", WIDTH,
		TOP + GROUP * d.count, style);
	fprintf(out, "<text class=\"name\" x=\"%d\" y=\"22\">%s</text>\n", LEFT,
		d.count ? "From post to completion" : "No send had a completion");
	for (unsigned i = 0; i < LATENCY_PIECES; i++)
		fprintf(out, "<rect class=\"piece%u\" x=\"%u\" y=\"34\" width=\"10\" height=\"10\"/>"
			"<text x=\"%u\" y=\"43\">%s</text>\n", i, LEFT + 110 * i, LEFT + 110 * i + 14,
			latency_pieces[i]);
	d.count = 0;
	each(l, draw_group, &d);
	fputs("</svg>\n", out);
}

bool latency_draw(const struct latency *l, const char *path)
{
	FILE *out = fopen(path, "wbe");
	bool failed = !out;

	if (out) {
		draw_all(l, out);
		failed = ferror(out) != 0;
		failed |= fclose(out) != 0;
	}
	if (failed)
		complain("%s: it could not be written", path);
	return !failed;
}

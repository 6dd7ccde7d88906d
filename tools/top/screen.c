/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The screen: a head of lines, and the table as row.c prints it, of which the lines in view are shown. All of
 * it is drawn anew each time; curses sends the terminal what differs.
 */
#include "top/screen.h"

#include <curses.h>
#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/waits.h"
#include "command.h"

enum { HEAD_LINES = 3, ESCAPE = 27, TOO_SMALL_FOR_HEAD = HEAD_LINES + 3 };

/* What keys change. */
struct view {
	struct top_screen *screen;
	struct top_choice choice;
	unsigned scrolled;       /* lines above those in view */
	unsigned shown, page;    /* lines there are; lines that fit */
	bool is_paused, shows_help, is_over;
	enum { TYPING_NOTHING, TYPING_FILTER, TYPING_PERIOD } typing;
	char typed[TOP_TEXT];
	char message[TOP_TEXT];
	int widths[TOP_VIEWS][ROW_FIELDS];
};

static const struct {
	const char *key, *text;
} help[] = {
	{ "q", "quit" },
	{ "Tab", "queue pairs, or processes" },
	{ "< >", "sort by the column before or behind" },
	{ "r", "the other way round" },
	{ "/", "only lines with a text; empty: all" },
	{ "t", "only lines with trouble, or all" },
	{ "d", "seconds between two looks" },
	{ "p", "pause, or go on" },
	{ "Space", "look now" },
	{ "arrows, PgUp, PgDn, Home, End", "scroll" },
};

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- drawing ---- */

enum { PLAIN, BAD };

static int bad_look(void) { return has_colors() ? COLOR_PAIR(BAD) | A_BOLD : A_BOLD | A_UNDERLINE; }

static void put_line(int y, const char *text, int look)
{
	if (y < 0 || y >= LINES)
		return;
	move(y, 0);
	clrtoeol();
	attrset(look);
	addnstr(text, (int)text_that_fits(text, COLS));
	if (look & A_REVERSE)
		for (int x = getcurx(stdscr); getcury(stdscr) == y && x < COLS; x++)
			addch(' ');
	attrset(A_NORMAL);
}

static void draw_title(const struct view *v)
{
	const struct top *top = &v->screen->top;
	char text[512];

	snprintf(text, sizeof(text), "verbatim top: %u processes, %u queue pairs, every %g s%s, by %s%s%s%s%s",
		 top->lines[TOP_PROCESSES].count, top->lines[TOP_QPS].count, v->screen->period_s,
		 v->is_paused ? " (paused)" : "", top_sort_name(v->choice.sort),
		 v->choice.is_reversed ? " reversed" : "", v->choice.only_trouble ? ", only trouble" : "",
		 v->choice.filter[0] ? ", only " : "", v->choice.filter);
	put_line(0, text, A_BOLD);
}

static void draw_sums(const struct view *v)
{
	const struct top_line *sum = &v->screen->top.sum;
	char requests[SCALED], messages[SCALED], out[SCALED], in[SCALED], queued[SCALED], text[256];

	scale_number(requests, sum->requests);
	scale_number(messages, sum->messages);
	scale_number(out, sum->out);
	scale_number(in, sum->in);
	scale_number(queued, sum->queued);
	snprintf(text, sizeof(text), "per second: %s requests, %s messages, %sB out, %sB in; %s queued", requests,
		 messages, out, in, queued);
	put_line(1, text, A_NORMAL);
}

static void draw_message(const struct view *v)
{
	char text[2 * TOP_TEXT + 16];

	if (v->typing == TYPING_NOTHING)
		snprintf(text, sizeof(text), "%s", v->message[0] ? v->message : "q quits, h helps");
	else
		snprintf(text, sizeof(text), "%s: %s", v->typing == TYPING_FILTER ? "only lines with" : "seconds",
			 v->typed);
	put_line(2, text, v->typing == TYPING_NOTHING ? A_NORMAL : A_BOLD);
	curs_set(v->typing != TYPING_NOTHING);
	if (v->typing != TYPING_NOTHING)
		move(2, vb_min_u32((uint32_t)strlen(text), (uint32_t)COLS - 1));
}

static void draw_help(int y)
{
	char text[128];

	for (size_t i = 0; i < VB_ARRAY_LEN(help); i++) {
		snprintf(text, sizeof(text), "  %-30s %s", help[i].key, help[i].text);
		put_line(y++, text, A_NORMAL);
	}
}

/* The table as text, a heading and a line for each of the chosen; NULL: no memory. */
static char *print_table(struct view *v, const struct top_line **chosen)
{
	struct table table = { .widths = v->widths[v->choice.view] };
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	for (unsigned i = 0; out && chosen[i]; i++)
		top_row(table_row(&table), chosen[i], v->choice.view);
	if (out) {
		table_print(&table, "", out);
		fclose(out);
	}
	table_free(&table);
	return text;
}

static void keep_in_view(struct view *v, unsigned shown, int top)
{
	v->shown = shown;
	v->page = LINES - top - 1 > 1 ? (unsigned)(LINES - top - 1) : 1;
	if (v->scrolled + v->page > v->shown)
		v->scrolled = v->shown > v->page ? v->shown - v->page : 0;
}

static void draw_lines(const struct view *v, const struct top_line **chosen, char *text, int y)
{
	char *rest = text, *line = strsep(&rest, "\n");

	put_line(y++, line ? line : "", A_REVERSE);
	for (unsigned i = 0; rest && chosen[i] && y < LINES; i++) {
		line = strsep(&rest, "\n");
		if (line && i >= v->scrolled)
			put_line(y++, line, chosen[i]->is_bad ? bad_look() : (int)A_NORMAL);
	}
}

static void draw_table(struct view *v, int y)
{
	const struct top_line **chosen = top_choose(&v->screen->top, &v->choice);
	char *text = chosen ? print_table(v, chosen) : NULL;
	unsigned shown = 0;

	while (chosen && chosen[shown])
		shown++;
	keep_in_view(v, shown, y);
	if (!text)
		put_line(y, "out of memory", A_BOLD);
	else if (shown)
		draw_lines(v, chosen, text, y);
	else
		put_line(y, v->choice.filter[0] || v->choice.only_trouble ? "no line is so" :
									    "no process here uses verbatim",
			 A_NORMAL);
	free(text);
	free(chosen);
}

static void draw(struct view *v)
{
	int y = LINES >= TOO_SMALL_FOR_HEAD ? HEAD_LINES : 0;

	erase();
	if (v->shows_help)
		draw_help(y);
	else
		draw_table(v, y);
	if (y) {
		draw_title(v);
		draw_sums(v);
	}
	if (y || v->typing != TYPING_NOTHING)
		draw_message(v);
	wnoutrefresh(stdscr);
	doupdate();
}

/* ---- keys ---- */

static void begin_typing(struct view *v, int what)
{
	v->typing = what;
	v->typed[0] = v->message[0] = '\0';
}

static void end_typing(struct view *v)
{
	double period_s;

	if (v->typing == TYPING_FILTER)
		snprintf(v->choice.filter, sizeof(v->choice.filter), "%s", v->typed);
	else if (take_seconds(v->typed, &period_s))
		v->screen->period_s = period_s;
	else
		snprintf(v->message, sizeof(v->message), "this is no time: %.40s", v->typed);
	v->typing = TYPING_NOTHING;
}

static void type(struct view *v, int key)
{
	size_t n = strlen(v->typed);

	if (key == '\n' || key == '\r' || key == KEY_ENTER)
		end_typing(v);
	else if (key == ESCAPE)
		v->typing = TYPING_NOTHING;
	else if (key == KEY_BACKSPACE || key == 127 || key == '\b')
		v->typed[n ? n - 1 : 0] = '\0';
	else if (key >= ' ' && key < 127 && n + 1 < sizeof(v->typed))
		v->typed[n] = (char)key, v->typed[n + 1] = '\0';
}

static void scroll_by(struct view *v, long lines)
{
	long at = (long)v->scrolled + lines;

	v->scrolled = at < 0 ? 0 : (unsigned)at; /* draw stops at the end */
}

static void sort_by_next(struct view *v, int step)
{
	v->choice.sort = (v->choice.sort + TOP_SORTINGS + (unsigned)step) % TOP_SORTINGS;
	v->scrolled = 0;
}

static bool scrolls(struct view *v, int key)
{
	switch (key) {
	case KEY_UP:
		return scroll_by(v, -1), true;
	case KEY_DOWN:
		return scroll_by(v, 1), true;
	case KEY_PPAGE:
		return scroll_by(v, -(long)v->page), true;
	case KEY_NPAGE:
		return scroll_by(v, v->page), true;
	case KEY_HOME:
		return v->scrolled = 0, true;
	case KEY_END:
		return v->scrolled = v->shown, true;
	}
	return false;
}

/* True: it asks for a look. */
static bool take_key(struct view *v, int key)
{
	v->message[0] = '\0';
	if (v->typing != TYPING_NOTHING) {
		type(v, key);
		return false;
	}
	if (scrolls(v, key))
		return false;
	bool was_helped = v->shows_help;
	v->shows_help = false;
	switch (key) {
	case 'q':
	case 'Q':
		v->is_over = true;
		break;
	case 'h':
	case '?':
		v->shows_help = !was_helped;
		break;
	case '\t':
		v->choice.view = (v->choice.view + 1) % TOP_VIEWS;
		v->scrolled = 0;
		break;
	case '<':
		sort_by_next(v, -1);
		break;
	case '>':
		sort_by_next(v, 1);
		break;
	case 'r':
	case 'R':
		v->choice.is_reversed = !v->choice.is_reversed;
		break;
	case 't':
		v->choice.only_trouble = !v->choice.only_trouble;
		break;
	case '/':
		begin_typing(v, TYPING_FILTER);
		break;
	case 'd':
		begin_typing(v, TYPING_PERIOD);
		break;
	case 'p':
		v->is_paused = !v->is_paused;
		break;
	case ' ':
		return true;
	case ESCAPE:
	case KEY_RESIZE:
		break;
	default:
		snprintf(v->message, sizeof(v->message), "there is no such key; h helps");
	}
	return false;
}

/* ---- the screen ---- */

static bool begin(void)
{
	setlocale(LC_CTYPE, "");
	set_escdelay(50);
	if (!newterm(NULL, stdout, stdin))
		return false;
	cbreak();
	noecho();
	keypad(stdscr, TRUE);
	nodelay(stdscr, TRUE);
	leaveok(stdscr, FALSE);
	if (has_colors()) {
		start_color();
		use_default_colors();
		init_pair(BAD, COLOR_RED, -1);
	}
	return true;
}

/* Keys until a time, or until one asks for a look; false: the terminal has gone. */
static bool take_keys(struct view *v, double until_s)
{
	for (;;) {
		double left_s = until_s - now_s();
		struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };
		int key;
		bool looks = false;
		while (!looks && !v->is_over && (key = getch()) != ERR)
			looks = take_key(v, key);
		draw(v);
		if (looks || v->is_over || (left_s <= 0 && !v->is_paused))
			return true;
		int ms = v->is_paused ? -1 : (int)(left_s * 1000) + 1;
		if (vb_poll(&p, 1, ms) < 0 && errno != EINTR)
			return false;
		if (p.revents & (POLLHUP | POLLERR | POLLNVAL))
			return false;
	}
}

const char *top_screen_lacks(void)
{
	return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) ? NULL : "";
}

int top_screen_run(struct top_screen *screen)
{
	struct view *v = calloc(1, sizeof(*v));
	bool good = v && begin();

	if (!v)
		return complain("out of memory");
	v->screen = screen;
	v->choice.view = TOP_QPS;
	if (!good)
		complain("the terminal (TERM=%s) is not one that curses knows", getenv("TERM") ? getenv("TERM") : "");
	while (good && !v->is_over) {
		double next_s = now_s() + screen->period_s;
		good = screen->look(&screen->top, screen->arg) && take_keys(v, next_s);
	}
	if (stdscr)
		endwin();
	free(v);
	return good ? 0 : 1;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* What the sub-commands share. Each is a row of the table in verbatim.c and has a file of its own. */
#ifndef VB_TOOLS_COMMAND_H
#define VB_TOOLS_COMMAND_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/base.h"

enum {
	EXIT_OURS = 125,
	EXIT_CANNOT_EXEC = 126,
	EXIT_NOT_FOUND = 127,
};

/* Each gets its own name as argv[0] and gives the command's exit status. */
int command_run(int argc, char **argv);
int command_ps(int argc, char **argv);
int command_show(int argc, char **argv);
int command_stats(int argc, char **argv);
int command_top(int argc, char **argv);
int command_doctor(int argc, char **argv);
int command_capture(int argc, char **argv);
int command_timeline(int argc, char **argv);
int command_faults(int argc, char **argv);
int command_man(int argc, char **argv);
int command_lab(int argc, char **argv);
int command_lab_up(int argc, char **argv);
int command_lab_run(int argc, char **argv);
int command_lab_exec(int argc, char **argv);
int command_lab_shell(int argc, char **argv);
int command_lab_ssh(int argc, char **argv);
int command_lab_ls(int argc, char **argv);
int command_lab_link(int argc, char **argv);
int command_lab_host(int argc, char **argv);
int command_lab_down(int argc, char **argv);

/* Prints "verbatim: ..." on standard error; gives EXIT_OURS. */
int complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* What was printed so far; false after a message: it cannot be written. */
bool flush_output(void);
/* Signals that main handles in another way are as this command found them: for a program that it becomes. */
void give_signals_back(void);
/* Does whoever started this command ignore a signal, such as nohup(1) SIGHUP? */
bool is_ignored(int number);

/* Usage and options of a command, on standard output; of "lab", what its commands are. */
void print_help(const char *command);
/* The options alone, a line each. */
void print_options(const char *command);

enum option_order {
	OPTIONS_ANYWHERE,
	OPTIONS_FIRST, /* what follows the first other word is another program's */
};

/* Takes an option, whose value is NULL if it has none. False after a message. */
typedef bool option_taker(void *context, const char *name, const char *value);

/*
 * Gives the options of the command argv[0] to `take`, one after the other; --help prints help and ends the
 * process. Returns the place of the first other word, behind which all others are then; -1 after a message.
 */
int take_options(int argc, char **argv, enum option_order order, option_taker *take, void *context);
/* Says that an option cannot have this value; false. */
bool refuse_value(const char *name, const char *value);
/* A time in seconds, more than 0. */
bool take_seconds(const char *text, double *seconds);

/* The folder of this executable, without a slash behind; false where neither /proc nor its name helps. */
bool find_command_folder(char folder[PATH_MAX]);
/* The folder that holds libibverbs.so.1, canonical; false with a message when there is none. */
bool find_libraries(char libdir[PATH_MAX]);
/* The folder of the man pages, likewise. */
bool find_pages(char folder[PATH_MAX]);

/* A file, and one that this user may execute. */
bool is_executable(const char *path);
/* The file that execvp will take for a program; false when there is none. */
bool search_path(const char *program, char path[PATH_MAX]);
/* True if executing the file raises privileges, so that the dynamic loader will ignore LD_LIBRARY_PATH. */
bool raises_privileges(const char *path);
/* True if a program makes its system calls itself: a static one, or one of Go's. */
bool needs_mounts(const char *program);
/* Shows the devices below /sys to this process and what it becomes. False with errno, maybe halfway. */
bool mount_sysfs(void);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What this machine allows. Each check is a function that finds something out by trying it, where that can be
 * done without harm, and reports once: what was found, what that means, and how it can be mended. Nothing is
 * left changed.
 */
#ifndef VB_TOOLS_DOCTOR_H
#define VB_TOOLS_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>

enum finding_status {
	FINDING_OK,
	FINDING_NOTE, /* works, but slower or with a limit */
	FINDING_BAD,  /* something does not work */
};

struct finding {
	const char *name;
	enum finding_status status;
	char found[512], means[512], mend[512]; /* the last two are empty if all is well */
};

typedef void doctor_check(struct finding *f);

doctor_check check_libraries, check_other_libraries, check_settings, check_cpus, check_descriptors,
	check_threads, check_address_space, check_seccomp, check_memory_limit;
doctor_check check_memfd, check_userfaultfd, check_process_vm, check_abstract_sockets, check_slots, check_shm;
doctor_check check_interfaces, check_port, check_kernel_rdma, check_firewall, check_socket_buffers,
	check_inbox_queue, check_multicast;

/* Of a program that is to run; its name. */
void check_program(struct finding *f, const char *program);

void found(struct finding *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void means(struct finding *f, enum finding_status status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void mend(struct finding *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The number in a file such as /proc/sys/...; -1: there is none. */
long read_number(const char *path);
/* The first line of a file, without its end; false: there is none. */
bool read_line(const char *path, char *line, size_t room);

#endif

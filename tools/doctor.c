/* SPDX-License-Identifier: BSD-2-Clause */
#include "doctor.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "command.h"
#include "row.h"

static const struct {
	const char *name;
	doctor_check *check;
} checks[] = {
	{ "libraries", check_libraries },
	{ "other libraries", check_other_libraries },
	{ "settings", check_settings },
	{ "processors", check_cpus },
	{ "descriptors", check_descriptors },
	{ "threads", check_threads },
	{ "address space", check_address_space },
	{ "system calls", check_seccomp },
	{ "memory limit", check_memory_limit },
	{ "shared memory", check_memfd },
	{ "/dev/shm", check_shm },
	{ "mapped memory", check_userfaultfd },
	{ "copies between processes", check_process_vm },
	{ "abstract sockets", check_abstract_sockets },
	{ "slots", check_slots },
	{ "interfaces", check_interfaces },
	{ "UDP port 4791", check_port },
	{ "kernel's RDMA", check_kernel_rdma },
	{ "firewall", check_firewall },
	{ "UDP buffers", check_socket_buffers },
	{ "inbox queue", check_inbox_queue },
	{ "multicast groups", check_multicast },
};

static const char *const status_names[] = {
	[FINDING_OK] = "ok", [FINDING_NOTE] = "note", [FINDING_BAD] = "bad",
};

void found(struct finding *f, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(f->found, sizeof(f->found), fmt, args);
	va_end(args);
}

void means(struct finding *f, enum finding_status status, const char *fmt, ...)
{
	va_list args;

	f->status = status;
	va_start(args, fmt);
	vsnprintf(f->means, sizeof(f->means), fmt, args);
	va_end(args);
}

void mend(struct finding *f, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(f->mend, sizeof(f->mend), fmt, args);
	va_end(args);
}

bool read_line(const char *path, char *line, size_t room)
{
	FILE *file = fopen(path, "re");
	bool done = file && fgets(line, (int)room, file);

	if (file)
		fclose(file);
	if (done)
		line[strcspn(line, "\n")] = '\0';
	return done;
}

long read_number(const char *path)
{
	char line[64], *end;
	long number;

	if (!read_line(path, line, sizeof(line)))
		return -1;
	number = strtol(line, &end, 10);
	return end == line ? -1 : number;
}

/* ---- output ---- */

/* Names of others' processes and rules may be in it, and cut ones. */
static void clean(struct finding *f)
{
	vb_clean_text(f->found);
	vb_clean_text(f->means);
	vb_clean_text(f->mend);
}

static void print_json(const struct finding *list, size_t count, enum finding_status worst)
{
	printf("{\"status\":\"%s\",\"checks\":[", status_names[worst]);
	for (size_t i = 0; i < count; i++) {
		printf("%s{\"name\":", i ? "," : "");
		json_text(stdout, list[i].name);
		printf(",\"status\":\"%s\",\"found\":", status_names[list[i].status]);
		json_text(stdout, list[i].found);
		fputs(",\"means\":", stdout);
		json_text(stdout, list[i].means);
		fputs(",\"mend\":", stdout);
		json_text(stdout, list[i].mend);
		fputc('}', stdout);
	}
	puts("]}");
}

static void print_text(const struct finding *list, size_t count, enum finding_status worst)
{
	static const char *const verdicts[] = {
		[FINDING_OK] = "All is well.",
		[FINDING_NOTE] = "verbatim works here; see the notes for what would be better.",
		[FINDING_BAD] = "Something does not work here, or cannot be relied upon.",
	};

	for (size_t i = 0; i < count; i++) {
		const struct finding *f = &list[i];
		printf("%-5s %s: %s\n", status_names[f->status], f->name, f->found);
		if (f->means[0])
			printf("      so:   %s\n", f->means);
		if (f->mend[0])
			printf("      mend: %s\n", f->mend);
	}
	printf("%s\n", verdicts[worst]);
}

static bool take_option(void *json, const char *name, const char *value) { return *(bool *)json = true; }

int command_doctor(int argc, char **argv)
{
	struct finding list[VB_ARRAY_LEN(checks) + 1] = { 0 };
	enum finding_status worst = FINDING_OK;
	size_t count = VB_ARRAY_LEN(checks);
	bool json = false;
	int program = take_options(argc, argv, OPTIONS_ANYWHERE, take_option, &json);

	if (program < 0)
		return EXIT_OURS;
	if (program + 1 < argc)
		return complain("doctor takes one program: '%s' is too much", argv[program + 1]);
	for (size_t i = 0; i < count; i++) {
		list[i].name = checks[i].name;
		checks[i].check(&list[i]);
	}
	if (program < argc) {
		list[count].name = "program";
		check_program(&list[count++], argv[program]);
	}
	for (size_t i = 0; i < count; i++) {
		worst = list[i].status > worst ? list[i].status : worst;
		clean(&list[i]);
	}
	(json ? print_json : print_text)(list, count, worst);
	return worst == FINDING_BAD;
}

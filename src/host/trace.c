/* SPDX-License-Identifier: BSD-2-Clause */
#include "host/trace.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cancel.h"

/* ---- taking ---- */

/* Where this library's code is. */
static uintptr_t own_start, own_end;

static int note_own(struct dl_phdr_info *info, size_t size, void *arg)
{
	uintptr_t here = (uintptr_t)note_own;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t start = info->dlpi_addr + p->p_vaddr;
		if (p->p_type != PT_LOAD || here - start >= p->p_memsz)
			continue;
		own_start = start;
		own_end = start + p->p_memsz;
		return 1;
	}
	return 0;
}

void vb_trace_prepare(void)
{
	void *frame;
	dl_iterate_phdr(note_own, NULL);
	backtrace(&frame, 1);
}

static bool is_own(const void *frame)
{
	return (uintptr_t)frame - own_start < own_end - own_start;
}

void vb_trace_take(struct vb_trace *trace)
{
	enum { OWN_FRAMES = 12 };
	void *all[VB_TRACE_FRAMES + OWN_FRAMES];
	int n = backtrace(all, VB_TRACE_FRAMES + OWN_FRAMES), i = 0;
	while (i < n && !is_own(all[i])) /* those of a sanitizer's backtrace */
		i++;
	while (i < n && is_own(all[i]))
		i++;
	for (trace->count = 0; i < n && trace->count < VB_TRACE_FRAMES; i++)
		trace->frames[trace->count++] = all[i];
}

/* ---- names, by libdw ---- */

/* As elfutils' libdwfl.h has it. */
struct dwfl_callbacks {
	void *find_elf;
	int (*find_debuginfo)(void *module, void **userdata, const char *name, uint64_t base,
			      const char *file, const char *link, uint32_t crc, char **found);
	void *section_address;
	char **debuginfo_path;
};

static struct {
	bool tried;
	void *session;
	void *(*begin)(const struct dwfl_callbacks *);
	int (*report_process)(void *, pid_t);
	int (*report_end)(void *, void *, void *);
	void *(*module_of)(void *, uint64_t);
	const char *(*function_of)(void *, uint64_t);
	void *(*line_of)(void *, uint64_t);
	const char *(*line_info)(void *, uint64_t *, int *, int *, uint64_t *, uint64_t *);
} dw;

/* Only the program's own files are read. Nothing is searched elsewhere, such as on the network. */
static int find_nothing(void *module, void **userdata, const char *name, uint64_t base, const char *file,
			const char *link, uint32_t crc, char **found)
{
	return -1;
}

static bool load(void *library, const char *name, void *to)
{
	void *symbol = dlsym(library, name);
	memcpy(to, &symbol, sizeof(symbol));
	return symbol != NULL;
}

static void open_session(void *library)
{
	static struct dwfl_callbacks callbacks = { .find_debuginfo = find_nothing };
	if (!load(library, "dwfl_linux_proc_find_elf", &callbacks.find_elf) ||
	    !load(library, "dwfl_begin", &dw.begin) ||
	    !load(library, "dwfl_linux_proc_report", &dw.report_process) ||
	    !load(library, "dwfl_report_end", &dw.report_end) ||
	    !load(library, "dwfl_addrmodule", &dw.module_of) ||
	    !load(library, "dwfl_module_addrname", &dw.function_of) ||
	    !load(library, "dwfl_module_getsrc", &dw.line_of) ||
	    !load(library, "dwfl_lineinfo", &dw.line_info))
		return;
	void *session = dw.begin(&callbacks);
	if (session && !dw.report_process(session, getpid()) && !dw.report_end(session, NULL, NULL))
		dw.session = session;
}

static void *module_of(uint64_t at)
{
	if (!dw.tried) {
		dw.tried = true;
		void *library = dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
		if (library)
			open_session(library);
	}
	return dw.session ? dw.module_of(dw.session, at) : NULL;
}

/* ---- text ---- */

static const char *base_name(const char *path)
{
	const char *slash = path ? strrchr(path, '/') : NULL;
	return slash ? slash + 1 : path;
}

static bool is_in(const void *frame, const char *file)
{
	Dl_info info;
	return dladdr((const char *)frame - 1, &info) && info.dli_fname &&
	       !strncmp(base_name(info.dli_fname), file, strlen(file));
}

bool vb_trace_is_of(const struct vb_trace *trace, const char *file)
{
	return trace->count && is_in(trace->frames[0], file);
}

/*
 * The line of an inline verb is in its header, such as infiniband/verbs.h or rdma/rdma_verbs.h, and not in
 * the program.
 */
static bool is_verb(const char *file)
{
	size_t n = file ? strlen(file) : 0;
	return n > 2 && !strcmp(file + n - 2, ".h") &&
	       (strstr(file, "/infiniband/") || strstr(file, "/rdma/rdma_"));
}

/* at: within the calling instruction. */
static int frame_text(uint64_t at, char *text, size_t size)
{
	Dl_info info = { 0 };
	void *module = module_of(at), *line = module ? dw.line_of(module, at) : NULL;
	const char *function = module ? dw.function_of(module, at) : NULL;
	int number = 0;
	const char *file = line ? dw.line_info(line, NULL, &number, NULL, NULL, NULL) : NULL;
	bool found = dladdr((void *)(uintptr_t)at, &info);
	if (!function && found)
		function = info.dli_sname;
	if (function && is_verb(file))
		return snprintf(text, size, "%s", function);
	if (function && file)
		return snprintf(text, size, "%s (%s:%d)", function, base_name(file), number);
	if (function && found && info.dli_saddr)
		return snprintf(text, size, "%s+0x%llx (%s)", function,
				(unsigned long long)(at + 1 - (uintptr_t)info.dli_saddr),
				base_name(info.dli_fname));
	if (found)
		return snprintf(text, size, "%s+0x%llx%s%s", base_name(info.dli_fname),
				(unsigned long long)(at + 1 - (uintptr_t)info.dli_fbase), function ? " " : "",
				function ? function : "");
	return snprintf(text, size, "0x%llx", (unsigned long long)at + 1);
}

void vb_trace_text(const struct vb_trace *trace, unsigned most, char *text, size_t size)
{
	VB_UNCANCELLED;
	size_t used = 0;
	*text = 0;
	for (unsigned i = 0; i < trace->count && i < most && used + 1 < size; i++) {
		/* the callers of main or of a thread's function are of no use */
		if (i && is_in(trace->frames[i], "libc.so"))
			return;
		int n = snprintf(text + used, size - used, "%s", i ? " < " : "");
		used += n > 0 ? (size_t)n : 0;
		if (used + 1 >= size)
			return;
		n = frame_text((uintptr_t)trace->frames[i] - 1, text + used, size - used);
		used += n > 0 ? (size_t)n : 0;
	}
}

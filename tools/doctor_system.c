/* SPDX-License-Identifier: BSD-2-Clause */
/* The libraries, the program, processors and limits. */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check/words.h"
#include "command.h"
#include "doctor.h"
#include "faults.h"
#include "host/loop/share.h"

enum { NEEDED_DESCRIPTORS = 20, ENOUGH_PEERS = 64, ENOUGH_DESCRIPTORS = 1024, LITTLE_MEMORY_MIB = 256 };
#define LEAST_SPACE   (1ull << 30) /* a process's own memory to show, and its libraries */
#define SPACE_FOR_TWO (32ull << 30) /* of two peers */

void check_libraries(struct finding *f)
{
	char libdir[PATH_MAX];

	if (find_libraries(libdir)) {
		found(f, "%.400s, version %s", libdir, VB_VERSION);
		return;
	}
	found(f, "they are not where this command looks for them");
	means(f, FINDING_BAD, "verbatim run starts nothing");
	mend(f, "install verbatim as a whole, or run the command in its build tree");
}

/*
 * Where the dynamic loader finds libibverbs.so.1 now; empty: nowhere. In a child, so that no library stays.
 */
static void find_loaded(char path[PATH_MAX])
{
	int ends[2];
	ssize_t n;
	pid_t child;

	path[0] = '\0';
	if (pipe(ends))
		return;
	child = fork();
	if (child == 0) {
		struct link_map *map = NULL;
		void *library = dlopen("libibverbs.so.1", RTLD_LAZY);
		if (library && dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 &&
		    write(ends[1], map->l_name, strlen(map->l_name)) < 0)
			_exit(1);
		_exit(0);
	}
	close(ends[1]);
	n = child > 0 ? read(ends[0], path, PATH_MAX - 1) : 0;
	path[n > 0 ? n : 0] = '\0';
	close(ends[0]);
	if (child > 0)
		waitpid(child, NULL, 0);
}

static bool is_below(const char *path, const char *folder)
{
	size_t len = strlen(folder);

	return strncmp(path, folder, len) == 0 && path[len] == '/';
}

void check_other_libraries(struct finding *f)
{
	const char *preload = getenv("LD_PRELOAD");
	char path[PATH_MAX], ours[PATH_MAX], real[PATH_MAX];

	find_loaded(path);
	if (preload &&
	    (strstr(preload, "libibverbs") || strstr(preload, "librdmacm") || strstr(preload, "rspreload"))) {
		found(f, "LD_PRELOAD is %.300s", preload);
		means(f, FINDING_NOTE,
		      "what it names comes before verbatim's libraries, even under verbatim run");
		mend(f, "unset LD_PRELOAD, unless it is meant so");
	} else if (!path[0]) {
		found(f, "there is no other libibverbs.so.1: programs start under verbatim run alone");
	} else if (realpath(path, real) && find_libraries(ours) && is_below(real, ours)) {
		found(f, "programs get verbatim's libraries without verbatim run too");
	} else {
		found(f, "programs get %.300s unless they are started by verbatim run", path);
	}
}

static bool are_faults_wrong(const char *setting, char why[VB_SETTING_TEXT])
{
	struct vb_fault_plan plan;
	struct vb_fault_error error;
	const char *problem;
	char *text = faults_text(setting, &problem);
	bool wrong = !text || vb_fault_parse(text, strlen(text), &plan, &error) != 0;

	if (!text)
		snprintf(why, VB_SETTING_TEXT, "VERBATIM_FAULTS: %.150s: %s; so every call fails",
			 setting + (*setting == '@'), problem);
	else if (wrong)
		snprintf(why, VB_SETTING_TEXT, "VERBATIM_FAULTS: at character %zu: %s; so every call fails",
			 error.at + 1, error.why);
	free(text);
	return wrong;
}

static bool is_unreadable(const char *name, char why[VB_SETTING_TEXT])
{
	const char *path = getenv(name);

	if (!path || !*path || access(path, R_OK) == 0)
		return false;
	snprintf(why, VB_SETTING_TEXT, "%s: %.150s: %s", name, path, strerror(errno));
	return true;
}

enum { ODD_TEXT = 2 * VB_SETTING_TEXT }; /* what is found odd of the settings */

static void add_sentence(char odd[ODD_TEXT], const char *sentence)
{
	size_t used = strlen(odd);

	snprintf(odd + used, ODD_TEXT - used, "%s%s", used ? "; " : "", sentence);
}

void check_settings(struct finding *f)
{
	const char *faults = getenv("VERBATIM_FAULTS");
	char set[400] = "", why[VB_SETTING_TEXT], odd[ODD_TEXT] = "";

	for (char **e = environ; *e; e++) {
		if (strncmp(*e, "VERBATIM_", 9) != 0)
			continue;
		if (vb_setting_is_unknown(*e, why))
			add_sentence(odd, why);
		if (strlen(set) + strlen(*e) + 2 < sizeof(set))
			snprintf(set + strlen(set), sizeof(set) - strlen(set), "%s%s", set[0] ? " " : "", *e);
	}
	if (faults && *faults && are_faults_wrong(faults, why))
		add_sentence(odd, why);
	if (is_unreadable("VERBATIM_SOCKETS_CONFIG", why))
		add_sentence(odd, why);
	found(f, "%s", set[0] ? set : "none in the environment");
	if (!odd[0])
		return;
	means(f, FINDING_NOTE, "%s", odd);
	mend(f, "look it up in verbatim(7)");
}

/* Of the cgroup, in processors; 0: no limit is known. */
static double cpu_quota(void)
{
	char line[128];
	double quota, period;

	if (read_line("/sys/fs/cgroup/cpu.max", line, sizeof(line)) &&
	    sscanf(line, "%lf %lf", &quota, &period) == 2 && period > 0)
		return quota / period;
	return 0;
}

void check_cpus(struct finding *f)
{
	cpu_set_t set;
	int n = sched_getaffinity(0, sizeof(set), &set) ? 1 : CPU_COUNT(&set);
	double quota = cpu_quota();

	if (quota > 0)
		found(f, "%d, of which this container may use %.1f", n, quota);
	else
		found(f, "%d", n);
	if (n > 1 && (quota <= 0 || quota >= 2))
		return;
	means(f, FINDING_NOTE,
	      "two programs that poll share one processor: each waits for the other's time slice");
	mend(f, "give them two processors, or use programs that wait for events");
}

/* How many of so many can be had now. */
static int descriptors_to_be_had(int wanted)
{
	int fds[NEEDED_DESCRIPTORS], n = 0;

	while (n < wanted && (fds[n] = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0)) >= 0)
		n++;
	for (int i = 0; i < n; i++)
		close(fds[i]);
	return n;
}

void check_descriptors(struct finding *f)
{
	struct rlimit limit;
	unsigned peers = vb_fd_share() / VB_LINK_FDS;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return found(f, "the limit is unknown");
	found(f, "%llu (RLIMIT_NOFILE); RLIMIT_MEMLOCK does not matter", (unsigned long long)limit.rlim_cur);
	if (descriptors_to_be_had(NEEDED_DESCRIPTORS) < NEEDED_DESCRIPTORS)
		means(f, FINDING_BAD, "a process needs some %d to open a device and connect, besides its own",
		      NEEDED_DESCRIPTORS);
	else if (peers < ENOUGH_PEERS)
		means(f, FINDING_NOTE,
		      "a process shares memory with %u others at most; "
		      "connections to further ones take the wire", peers);
	else
		return;
	mend(f, "ulimit -n %d", ENOUGH_DESCRIPTORS);
}

static void *do_nothing(void *arg) { return arg; }

void check_threads(struct finding *f)
{
	pthread_t thread;
	int err = pthread_create(&thread, NULL, do_nothing, NULL);

	if (!err) {
		pthread_join(thread, NULL);
		return found(f, "a process can have more than one");
	}
	found(f, "a process can have no second one: %s", strerror(err));
	means(f, FINDING_BAD,
	      "devices open, but queue pairs and connections need a thread: they are refused with EAGAIN");
	mend(f, "raise ulimit -u (RLIMIT_NPROC), or pids.max of the control group");
}

static bool has_space(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return false;
	munmap(p, bytes);
	return true;
}

void check_address_space(struct finding *f)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY)
		found(f, "no limit (RLIMIT_AS)");
	else
		found(f, "%llu MiB (RLIMIT_AS)", (unsigned long long)limit.rlim_cur >> 20);
	if (has_space(SPACE_FOR_TWO))
		return;
	if (has_space(LEAST_SPACE / 2))
		means(f, FINDING_NOTE,
		      "there is no room for the memory of other processes: "
		      "connections within this host take the wire");
	else
		means(f, FINDING_BAD,
		      "there is no room for what a process shows to its peers: no device opens");
	mend(f, "ulimit -v unlimited");
}

static int status_field(const char *name)
{
	char line[256];
	int value = -1;
	FILE *file = fopen("/proc/self/status", "re");

	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, name, strlen(name)) == 0)
			value = atoi(line + strlen(name));
	if (file)
		fclose(file);
	return value;
}

void check_seccomp(struct finding *f)
{
	int mode = status_field("Seccomp:");

	if (mode == 2)
		found(f, "a seccomp filter is in force; what it forbids shows in the checks below");
	else
		found(f, "no seccomp filter");
}

void check_memory_limit(struct finding *f)
{
	char line[64];
	bool there = read_line("/sys/fs/cgroup/memory.max", line, sizeof(line)) ||
		     read_line("/sys/fs/cgroup/memory/memory.limit_in_bytes", line, sizeof(line));
	unsigned long long mib = there && strcmp(line, "max") != 0 ? strtoull(line, NULL, 10) >> 20 : 0;

	if (!mib || mib > 1ull << 40)
		return found(f, "none of a container");
	found(f, "%llu MiB for this container", mib);
	if (mib >= LITTLE_MEMORY_MIB)
		return;
	means(f, FINDING_NOTE, "queues and mapped regions count as this container's memory");
	mend(f, "give it %d MiB", LITTLE_MEMORY_MIB);
}

/* ---- a program ---- */

enum program_kind {
	PROGRAM_DYNAMIC, /* or no ELF file, such as a script */
	PROGRAM_STATIC,
	PROGRAM_MUSL,    /* of another C library */
	PROGRAM_FOREIGN, /* of other processors, or of fewer bits */
};

/* The loader that a program names; "": none does it; "?": not known. */
static void find_loader(FILE *file, const ElfW(Ehdr) *header, char loader[PATH_MAX])
{
	ElfW(Phdr) program;
	size_t n = 0;

	strcpy(loader, "?");
	if (header->e_phentsize != sizeof(program) || fseek(file, (long)header->e_phoff, SEEK_SET) != 0)
		return;
	for (unsigned i = 0; i < header->e_phnum && fread(&program, sizeof(program), 1, file) == 1; i++) {
		if (program.p_type != PT_INTERP)
			continue;
		if (fseek(file, (long)program.p_offset, SEEK_SET) == 0)
			n = fread(loader, 1, vb_min_u64(program.p_filesz, PATH_MAX - 1), file);
		loader[n ? n : 1] = '\0';
		return;
	}
	loader[0] = '\0';
}

/* The beginning of an ELF file; false: it is another. */
static bool read_header(FILE *file, ElfW(Ehdr) *header)
{
	return file && fread(header, sizeof(*header), 1, file) == 1 &&
	       memcmp(header->e_ident, ELFMAG, SELFMAG) == 0;
}

static bool is_foreign(const ElfW(Ehdr) *header)
{
	FILE *self = fopen("/proc/self/exe", "re");
	ElfW(Ehdr) own;
	bool foreign = read_header(self, &own) && (own.e_ident[EI_CLASS] != header->e_ident[EI_CLASS] ||
						   own.e_machine != header->e_machine);

	if (self)
		fclose(self);
	return foreign;
}

static enum program_kind kind_of(const char *path)
{
	FILE *file = fopen(path, "re");
	ElfW(Ehdr) header;
	char loader[PATH_MAX] = "?";
	enum program_kind kind = PROGRAM_DYNAMIC;

	if (read_header(file, &header)) {
		find_loader(file, &header, loader);
		if (is_foreign(&header))
			kind = PROGRAM_FOREIGN;
		else if (!*loader)
			kind = PROGRAM_STATIC;
		else if (strstr(loader, "ld-musl"))
			kind = PROGRAM_MUSL;
	}
	if (file)
		fclose(file);
	return kind;
}

void check_program(struct finding *f, const char *program)
{
	char path[PATH_MAX];
	enum program_kind kind;

	if (!search_path(program, path) || !is_executable(path)) {
		found(f, "%.200s is not to be found, or not executable", program);
		means(f, FINDING_BAD, "it cannot be run");
		return;
	}
	kind = kind_of(path);
	if (raises_privileges(path)) {
		found(f, "%.300s raises privileges (set-ID bit or file capabilities)", path);
		means(f, FINDING_BAD, "the loader ignores LD_LIBRARY_PATH, so it does not run on verbatim");
		mend(f, "run a copy without the bits, or run it as a user for whom they change nothing");
	} else if (kind == PROGRAM_FOREIGN) {
		found(f, "%.300s is for other processors, or has other addresses than 64-bit ones", path);
		means(f, FINDING_BAD, "it cannot load these libraries, so it does not run on verbatim");
		mend(f, "build it for this machine");
	} else if (kind == PROGRAM_MUSL) {
		found(f, "%.300s is a program of musl", path);
		means(f, FINDING_BAD, "it cannot load these libraries, so it does not run on verbatim");
		mend(f, "build it with glibc");
	} else if (kind == PROGRAM_STATIC) {
		found(f, "%.300s is linked statically", path);
		means(f, FINDING_BAD, "it has its libraries within it, so it does not run on verbatim");
		mend(f, "link it dynamically");
	} else {
		found(f, "%.300s can run on verbatim", path);
	}
}

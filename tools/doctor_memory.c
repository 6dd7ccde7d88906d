/* SPDX-License-Identifier: BSD-2-Clause */
/* Ways of moving memory between processes. */
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "doctor.h"
#include "host/kernel.h"

void check_memfd(struct finding *f)
{
	int fd = memfd_create("verbatim-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int err = 0;
	bool old = false;

	if (fd < 0 || ftruncate(fd, 4096) < 0) {
		err = errno;
	} else if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE) < 0) {
		old = errno == EINVAL;
		err = old ? 0 : errno;
	}
	if (fd >= 0)
		close(fd);
	if (err) {
		found(f, "memfd_create with seals fails: %s", strerror(err));
		means(f, FINDING_BAD, "no device can be opened");
		mend(f, "let the sandbox allow memfd_create(2), and fcntl(2) with F_ADD_SEALS");
		return;
	}
	found(f, "sealed memfds can be made%s",
	      old ? "; the kernel is older than 5.1, so a descriptor that cannot write stands in for a seal"
		  : "");
}

void check_shm(struct finding *f)
{
	struct statvfs s;

	if (statvfs("/dev/shm", &s))
		found(f, "there is none, and it is not needed: shared memory has no files");
	else
		found(f, "its size (%llu MiB) does not matter: shared memory has no files",
		      (unsigned long long)s.f_blocks * s.f_frsize >> 20);
}

static int open_userfaultfd(void)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK), device;

	if (fd >= 0)
		return fd;
	device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	if (device < 0)
		return -1;
	fd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
	close(device);
	return fd;
}

/* As the libraries need it. */
static bool has_write_protection(int fd)
{
	struct uffdio_api api = {
		.api = UFFD_API,
		.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM,
	};

	return ioctl(fd, UFFDIO_API, &api) == 0;
}

void check_userfaultfd(struct finding *f)
{
	int fd = open_userfaultfd(), err = errno;

	if (fd >= 0 && has_write_protection(fd)) {
		found(f, "userfaultfd of the full kind: peers map registered memory");
		close(fd);
		return;
	}
	if (fd >= 0) {
		found(f, "userfaultfd cannot protect shared memory from writes: "
			 "Linux 5.19 can, on 64-bit ARM 6.10");
		close(fd);
	} else {
		found(f, "userfaultfd of the full kind: %s (vm.unprivileged_userfaultfd is %ld)",
		      strerror(err), read_number("/proc/sys/vm/unprivileged_userfaultfd"));
		mend(f, "sysctl vm.unprivileged_userfaultfd=1, or give the user access to /dev/userfaultfd "
			"(in a container: --device /dev/userfaultfd)");
	}
	means(f, FINDING_NOTE,
	      "peers of this host map memory of programs with one thread only; for the others each READ and "
	      "WRITE is a system call (process_vm_readv), at some 1 us more");
}

/* A process that is no parent of this one copies from it, as peers do. Returns its errno. */
static int copy_by_another(void)
{
	static volatile uint64_t secret = 0x766572626174696d;
	int status;
	pid_t self = getpid(), child = fork();

	if (child == 0) {
		uint64_t copy = 0;
		struct iovec to = { &copy, sizeof(copy) };
		struct iovec from = { (void *)(uintptr_t)&secret, sizeof(secret) };
		ssize_t n = process_vm_readv(self, &to, 1, &from, 1, 0);
		_exit(n == sizeof(copy) && copy == secret ? 0 : n < 0 && errno ? errno : EIO);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
		return EIO;
	return WEXITSTATUS(status);
}

void check_process_vm(struct finding *f)
{
	long scope = read_number("/proc/sys/kernel/yama/ptrace_scope");
	int err;

	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY); /* as the libraries do */
	err = copy_by_another();
	prctl(PR_SET_PTRACER, 0);
	if (!err) {
		found(f, "process_vm_readv works%s",
		      scope == 1 ? " (Yama's ptrace_scope is 1, for which the libraries ask)" : "");
		return;
	}
	found(f, "process_vm_readv fails: %s", strerror(err));
	means(f, FINDING_NOTE,
	      "peers of this host copy through buffers, each byte twice, where memory cannot be mapped");
	if (scope > 1)
		mend(f, "sysctl kernel.yama.ptrace_scope=1 (it is %ld)", scope);
	else
		mend(f, "let the sandbox allow process_vm_readv(2) and process_vm_writev(2) (in a container: "
			"--cap-add SYS_PTRACE, or another seccomp profile)");
}

/* The name is random: two processes of one network namespace can have the same pid. */
void check_abstract_sockets(struct finding *f)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), err = 0;
	uint64_t number = 0;

	getrandom(&number, sizeof(number), GRND_NONBLOCK);
	snprintf(un.sun_path + 1, sizeof(un.sun_path) - 1, "verbatim/doctor/%016" PRIx64, number);
	if (fd < 0 || bind(fd, (struct sockaddr *)&un, sizeof(un)) < 0 ||
	    connect(fd, (struct sockaddr *)&un, sizeof(un)) < 0)
		err = errno;
	if (fd >= 0)
		close(fd);
	if (!err) {
		found(f, "processes of this network namespace can find each other");
		return;
	}
	found(f, "abstract Unix sockets: %s", strerror(err));
	means(f, FINDING_BAD, "no device can be opened");
	mend(f, "let the sandbox (seccomp, AppArmor, Landlock) allow sockets of AF_UNIX with abstract names");
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pair.h"

#define DEVICE "vb_lo"

void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	fprintf(stderr, "\n");
	va_end(args);
	exit(1);
}

void check(bool good, const char *what)
{
	if (!good)
		die("%s: %s", what, strerror(errno));
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

uint64_t now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

uint64_t cpu_ns(void)
{
	return clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double median(double *values, size_t count)
{
	qsort(values, count, sizeof(*values), by_value);
	return values[count / 2];
}

void figure(const char *name, double value)
{
	printf("%s %.6g\n", name, value);
	fflush(stdout);
}

/* ---- processes ---- */

void *shared_memory(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	check(memory != MAP_FAILED, "shared memory");
	return memory;
}

/* The number of the arrival with which this meeting is complete, which wakes those that sleep. */
static unsigned arrive(struct meeting *meeting, unsigned parties)
{
	unsigned mine = atomic_fetch_add(&meeting->arrived, 1), complete = (mine / parties + 1) * parties;

	if (mine + 1 == complete)
		syscall(SYS_futex, &meeting->arrived, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	return complete;
}

void meet(struct meeting *meeting, unsigned parties)
{
	unsigned complete = arrive(meeting, parties), now;

	while ((now = atomic_load(&meeting->arrived)) < complete)
		syscall(SYS_futex, &meeting->arrived, FUTEX_WAIT, now, NULL, NULL, 0);
}

void meet_spinning(struct meeting *meeting, unsigned parties)
{
	unsigned complete = arrive(meeting, parties);

	while (atomic_load(&meeting->arrived) < complete)
		;
}

/* For a signal handler, too. */
static void judge(int status)
{
	static const char words[] = "a child failed\n";

	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return;
	(void)!write(STDERR_FILENO, words, sizeof(words) - 1);
	_exit(1);
}

/* A child that fails ends its parent, which may be waiting for it somewhere, and so the other children. */
static void child_ended(int signal)
{
	int before = errno;

	(void)signal;
	for (int status; waitpid(-1, &status, WNOHANG) > 0;)
		judge(status);
	errno = before;
}

void fork_child(void (*body)(unsigned number), unsigned number)
{
	struct sigaction action = { .sa_handler = child_ended, .sa_flags = SA_RESTART | SA_NOCLDSTOP };
	pid_t parent = getpid(), child;

	check(sigaction(SIGCHLD, &action, NULL) == 0, "sigaction");
	child = fork();
	check(child >= 0, "fork");
	if (child > 0)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() == parent) {
		body(number);
		exit(0);
	}
	_exit(1);
}

void await_children(void)
{
	signal(SIGCHLD, SIG_DFL);
	for (int status; wait(&status) > 0;)
		judge(status);
}

void use_cpu(int cpu)
{
	cpu_set_t set;

	if (cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	check(sched_setaffinity(0, sizeof(set), &set) == 0, "sched_setaffinity");
}

/* ---- verbs ---- */

void open_device(struct device *device)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_port_attr port;

	*device = (struct device){ 0 };
	for (int i = 0; i < count && !device->context; i++)
		if (strcmp(ibv_get_device_name(list[i]), DEVICE) == 0)
			device->context = ibv_open_device(list[i]);
	if (!device->context)
		die("no device " DEVICE);
	ibv_free_device_list(list);
	check(ibv_query_port(device->context, 1, &port) == 0, "ibv_query_port");
	device->mtu = port.active_mtu;
	check(ibv_query_gid(device->context, 1, 0, &device->gid) == 0, "ibv_query_gid");
	device->pd = ibv_alloc_pd(device->context);
	check(device->pd, "ibv_alloc_pd");
}

struct ibv_qp *make_qp(struct device *device, struct ibv_cq *cq, unsigned depth, bool signal_all)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = signal_all,
		.pd = device->pd,
		.cap = { .max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 1, .max_recv_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND
	};
	struct ibv_qp *qp = ibv_create_qp_ex(device->context, &init);

	check(qp, "ibv_create_qp_ex");
	initialize_qp(qp);
	return qp;
}

void initialize_qp(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

	check(ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
	      "to INIT");
}

void connect_qp(struct device *device, struct ibv_qp *qp, uint32_t peer_qpn)
{
	struct ibv_qp_attr to_receive = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = device->mtu,
		.dest_qp_num = peer_qpn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = device->gid, .hop_limit = 64 } }
	};
	/* 4.096 us * 2^21, eight times: `make check` runs these on busy machines, too */
	struct ibv_qp_attr to_send = {
		.qp_state = IBV_QPS_RTS, .timeout = 21, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1
	};

	/* what only a responder has, and only a requester: an XRC queue pair is one of them */
	int responder = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	    requester = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	if (qp->qp_type == IBV_QPT_XRC_SEND)
		responder = 0;
	if (qp->qp_type == IBV_QPT_XRC_RECV)
		requester = 0;

	check(ibv_modify_qp(qp, &to_receive,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    responder) == 0,
	      "to RTR");
	check(ibv_modify_qp(qp, &to_send, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN | requester) == 0,
	      "to RTS");
}

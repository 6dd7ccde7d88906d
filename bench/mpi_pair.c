/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two ranks of an MPI library, each on a CPU of its own: the typical latency of a message, one way, and the
 * bandwidth of windows of messages. bench.py compiles it with each library's mpicc.
 * usage: mpirun -np 2 mpi_pair latency|bandwidth BYTES ITERATIONS CPU CPU
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES = 101, WINDOW = 64, NS_PER_S = 1000000000 };

static int rank, bytes;
static char *out, *in;

static void ping_pong(int rounds)
{
	for (int i = 0; i < rounds; i++) {
		if (!rank)
			MPI_Send(out, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
		MPI_Recv(in, bytes, MPI_BYTE, !rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (rank)
			MPI_Send(out, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
	}
}

/* A window is over when its receiver says so. */
static void window(void)
{
	MPI_Request requests[WINDOW];

	for (int i = 0; i < WINDOW; i++)
		if (rank)
			MPI_Irecv(in, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &requests[i]);
		else
			MPI_Isend(out, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &requests[i]);
	MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
	if (rank)
		MPI_Send(out, 0, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
	else
		MPI_Recv(in, 0, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void latency(int iterations)
{
	double batch_ns[BATCHES];
	int rounds = iterations / BATCHES + 1;

	ping_pong(rounds);
	for (int i = 0; i < BATCHES; i++) {
		double start = MPI_Wtime();

		ping_pong(rounds);
		batch_ns[i] = (MPI_Wtime() - start) * NS_PER_S / rounds / 2;
	}
	qsort(batch_ns, BATCHES, sizeof(*batch_ns), by_value);
	if (!rank)
		printf("latency_ns %.6g\n", batch_ns[BATCHES / 2]);
}

static void bandwidth(int iterations)
{
	int windows = iterations / WINDOW + 1;

	window();
	double start = MPI_Wtime();
	for (int i = 0; i < windows; i++)
		window();
	if (!rank)
		printf("bytes_per_s %.6g\n", (double)windows * WINDOW * bytes / (MPI_Wtime() - start));
}

int main(int argc, char **argv)
{
	cpu_set_t cpu;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (argc != 6)
		MPI_Abort(MPI_COMM_WORLD, 1);
	CPU_ZERO(&cpu);
	CPU_SET(atoi(argv[4 + rank % 2]), &cpu);
	sched_setaffinity(0, sizeof(cpu), &cpu);
	bytes = atoi(argv[2]);
	out = calloc(1, bytes);
	in = calloc(1, bytes);
	(strcmp(argv[1], "latency") ? bandwidth : latency)(atoi(argv[3]));
	MPI_Finalize();
	return 0;
}

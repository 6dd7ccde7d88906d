/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A benchmark of messages between two ranks and of collectives among all, by size. Every byte of each
 * operation is compared. Prints a table with times, and one line when all ranks agree.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 256 << 10, MOST_MESSAGE = 1 << 20, ROUNDS = 5, WINDOW = 16 };

static int rank, ranks;
static uint8_t *out, *in;

static void fail(const char *what, int size, int at)
{
	fprintf(stderr, "%s: wrong at %d of %d\n", what, at, size);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Of what `sender` has for `receiver` in this round; -1: for all. */
static uint8_t pattern(int sender, int receiver, int round, int i)
{
	return (uint8_t)(sender * 31 + receiver * 57 + round * 101 + i * 13 + (i >> 8));
}

static void fill(uint8_t *at, int sender, int receiver, int round, int size)
{
	for (int i = 0; i < size; i++)
		at[i] = pattern(sender, receiver, round, i);
}

static void compare(const char *what, const uint8_t *at, int sender, int receiver, int round, int size)
{
	for (int i = 0; i < size; i++)
		if (at[i] != pattern(sender, receiver, round, i))
			fail(what, size, i);
}

/* ---- two ranks ---- */

/* Rank 0's message goes to a peer and comes back. The time of one way, in us. */
static double ping_pong(int peer, int size)
{
	double us = 0;
	for (int round = 0; round < ROUNDS; round++) {
		int to = rank ? 0 : peer;
		if (!rank)
			fill(out, 0, peer, round, size);
		memset(in, 0, size);
		double from = MPI_Wtime();
		if (rank)
			MPI_Recv(in, size, MPI_BYTE, 0, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Send(rank ? in : out, size, MPI_BYTE, to, round, MPI_COMM_WORLD);
		if (!rank)
			MPI_Recv(in, size, MPI_BYTE, peer, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		us += (MPI_Wtime() - from) * 1e6 / 2;
		compare("ping-pong", in, 0, peer, round, size);
	}
	return us / ROUNDS;
}

/* Many messages at a time, each compared. The rate in MB/s. */
static double stream(int peer, int size)
{
	MPI_Request requests[WINDOW];
	double from = MPI_Wtime();
	for (int i = 0; i < WINDOW; i++) {
		uint8_t *at = (rank ? in : out) + (size_t)i * size;
		if (!rank)
			fill(at, 0, peer, i, size);
		if (rank)
			MPI_Irecv(at, size, MPI_BYTE, 0, i, MPI_COMM_WORLD, &requests[i]);
		else
			MPI_Isend(at, size, MPI_BYTE, peer, i, MPI_COMM_WORLD, &requests[i]);
	}
	MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
	for (int i = 0; rank && i < WINDOW; i++)
		compare("stream", in + (size_t)i * size, 0, peer, i, size);
	return (double)WINDOW * size / (MPI_Wtime() - from) / 1e6;
}

/* ---- all ranks ---- */

static void barrier(int round, int size) { MPI_Barrier(MPI_COMM_WORLD); }

static void bcast(int round, int size)
{
	int root = round % ranks;
	if (rank == root)
		fill(in, root, -1, round, size);
	MPI_Bcast(in, size, MPI_BYTE, root, MPI_COMM_WORLD);
	compare("bcast", in, root, -1, round, size);
}

static void gather(int round, int size)
{
	int root = round % ranks;
	fill(out, rank, root, round, size);
	MPI_Gather(out, size, MPI_BYTE, in, size, MPI_BYTE, root, MPI_COMM_WORLD);
	for (int i = 0; rank == root && i < ranks; i++)
		compare("gather", in + (size_t)i * size, i, root, round, size);
}

static void scatter(int round, int size)
{
	int root = round % ranks;
	for (int i = 0; rank == root && i < ranks; i++)
		fill(out + (size_t)i * size, root, i, round, size);
	MPI_Scatter(out, size, MPI_BYTE, in, size, MPI_BYTE, root, MPI_COMM_WORLD);
	compare("scatter", in, root, rank, round, size);
}

static void all_gather(int round, int size)
{
	fill(out, rank, -1, round, size);
	MPI_Allgather(out, size, MPI_BYTE, in, size, MPI_BYTE, MPI_COMM_WORLD);
	for (int i = 0; i < ranks; i++)
		compare("all-gather", in + (size_t)i * size, i, -1, round, size);
}

static void all_to_all(int round, int size)
{
	for (int i = 0; i < ranks; i++)
		fill(out + (size_t)i * size, rank, i, round, size);
	MPI_Alltoall(out, size, MPI_BYTE, in, size, MPI_BYTE, MPI_COMM_WORLD);
	for (int i = 0; i < ranks; i++)
		compare("all-to-all", in + (size_t)i * size, i, rank, round, size);
}

/* Element i of rank r: (r + 1) * (i + round). The number of elements. */
static int fill_values(int round, int size)
{
	int count = size / (int)sizeof(int64_t);
	for (int i = 0; i < count; i++)
		((int64_t *)out)[i] = (int64_t)(rank + 1) * (i + round);
	return count;
}

static void compare_sums(const char *what, int round, int count)
{
	for (int i = 0; i < count; i++)
		if (((int64_t *)in)[i] != (int64_t)(i + round) * ranks * (ranks + 1) / 2)
			fail(what, count, i);
}

static void reduce(int round, int size)
{
	int root = round % ranks, count = fill_values(round, size);
	MPI_Reduce(out, in, count, MPI_INT64_T, MPI_SUM, root, MPI_COMM_WORLD);
	if (rank == root)
		compare_sums("reduce", round, count);
}

static void all_reduce(int round, int size)
{
	int count = fill_values(round, size);
	MPI_Allreduce(out, in, count, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	compare_sums("all-reduce", round, count);
}

static const struct collective {
	const char *name;
	void (*run)(int round, int size);
	int is_without_data;
} collectives[] = {
	{ "barrier", barrier, 1 },	{ "bcast", bcast },	      { "gather", gather },
	{ "scatter", scatter },		{ "reduce", reduce },	      { "all-reduce", all_reduce },
	{ "all-gather", all_gather },	{ "all-to-all", all_to_all },
};

static void measure(const struct collective *c, int size)
{
	double us = 0, most;
	for (int round = 0; round < ROUNDS; round++) {
		memset(in, 0xee, (size_t)size * ranks);
		MPI_Barrier(MPI_COMM_WORLD);
		double from = MPI_Wtime();
		c->run(round, size);
		us += (MPI_Wtime() - from) * 1e6;
	}
	MPI_Reduce(&us, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
	if (!rank)
		printf("%-12s %8d bytes %12.1f us\n", c->name, size, most / ROUNDS);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	size_t room = (size_t)MOST * ranks > (size_t)WINDOW * MOST_MESSAGE ? (size_t)MOST * ranks
									     : (size_t)WINDOW * MOST_MESSAGE;
	out = malloc(room);
	in = malloc(room);
	for (int peer = 1; peer < ranks; peer++)
		for (int size = 1; size <= MOST_MESSAGE; size *= 4) {
			MPI_Barrier(MPI_COMM_WORLD);
			if (rank && rank != peer)
				continue;
			double us = ping_pong(peer, size), rate = stream(peer, size);
			if (!rank)
				printf("0 to %-7d %8d bytes %12.1f us %8.1f MB/s\n", peer, size, us, rate);
		}
	for (unsigned c = 0; c < sizeof(collectives) / sizeof(collectives[0]); c++)
		for (int size = 8; size <= MOST; size *= 8) {
			measure(&collectives[c], size);
			if (collectives[c].is_without_data)
				break;
		}
	MPI_Barrier(MPI_COMM_WORLD);
	if (!rank)
		printf("%d ranks agree\n", ranks);
	MPI_Finalize();
	return 0;
}

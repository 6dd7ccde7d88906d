/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A ring and an all-reduce, every byte compared: what an MPI library sends in one way (small, eager) and in
 * another (large, rendezvous by RDMA). Prints one line when all ranks agree.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static const int sizes[] = { 0, 1, 64, 1000, 8192, 70000, 1 << 20, 4 << 20 };
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]), ELEMENTS = 100000 };

static uint8_t pattern(int sender, int size, int i)
{
	return (uint8_t)(sender * 31 + size * 7 + i * 13 + (i >> 8));
}

static void fail(const char *what, int size, int at)
{
	fprintf(stderr, "%s: wrong at %d of %d\n", what, at, size);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Each rank sends to the next and receives from the one before. */
static void ring(int rank, int ranks, int size)
{
	int before = (rank + ranks - 1) % ranks;
	uint8_t *out = malloc(size + 1), *in = calloc(1, size + 1);
	for (int i = 0; i < size; i++)
		out[i] = pattern(rank, size, i);
	MPI_Status status;
	MPI_Sendrecv(out, size, MPI_BYTE, (rank + 1) % ranks, size, in, size, MPI_BYTE, before, size,
		     MPI_COMM_WORLD, &status);
	int got;
	MPI_Get_count(&status, MPI_BYTE, &got);
	if (got != size)
		fail("ring, length", size, got);
	for (int i = 0; i < size; i++)
		if (in[i] != pattern(before, size, i))
			fail("ring", size, i);
	free(out);
	free(in);
}

static void all_reduce(int rank, int ranks, int count)
{
	int64_t *values = malloc(count * sizeof(*values)), *sums = malloc(count * sizeof(*sums));
	for (int i = 0; i < count; i++)
		values[i] = (int64_t)(rank + 1) * i;
	MPI_Allreduce(values, sums, count, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < count; i++)
		if (sums[i] != (int64_t)i * ranks * (ranks + 1) / 2)
			fail("all-reduce", count, i);
	free(values);
	free(sums);
}

int main(int argc, char **argv)
{
	int rank, ranks;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < SIZES; i++)
			ring(rank, ranks, sizes[i]);
	for (int count = 1; count <= ELEMENTS; count *= 10)
		all_reduce(rank, ranks, count);
	MPI_Barrier(MPI_COMM_WORLD);
	if (!rank)
		printf("%d ranks agree\n", ranks);
	MPI_Finalize();
	return 0;
}

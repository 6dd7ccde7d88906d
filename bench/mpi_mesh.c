/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What mesh.c does, by an MPI library: ranks that all send to all. The next message to a peer goes when the
 * last one has gone and the peer's of that round is here. bench.py compiles it with the library's mpicc.
 * usage: mpirun -np RANKS mpi_mesh
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 200 };

struct message {
	unsigned short from, to;
	unsigned round;
};

/* Requests 2 * peer and 2 * peer + 1: what is sent to it and what it sends. */
static MPI_Request *requests;
static struct message *out, *in;
static int rank, ranks;
static unsigned *rounds;

static void begin_round(int peer)
{
	out[peer] = (struct message){ (unsigned short)rank, (unsigned short)peer, rounds[peer] };
	MPI_Irecv(&in[peer], sizeof(in[peer]), MPI_BYTE, peer, 0, MPI_COMM_WORLD, &requests[2 * peer + 1]);
	MPI_Isend(&out[peer], sizeof(out[peer]), MPI_BYTE, peer, 0, MPI_COMM_WORLD, &requests[2 * peer]);
}

/* Returns whether that was the last round with this peer. */
static int end_round(int peer)
{
	if (in[peer].from != peer || in[peer].to != rank || in[peer].round != rounds[peer])
		MPI_Abort(MPI_COMM_WORLD, 1);
	if (++rounds[peer] == ROUNDS)
		return 1;
	begin_round(peer);
	return 0;
}

static void carry(void)
{
	int *done = calloc(2 * ranks, sizeof(*done)), count, finished = 0;

	for (int peer = 0; peer < ranks; peer++) {
		rounds[peer] = 0;
		if (peer != rank)
			begin_round(peer);
	}
	while (finished < ranks - 1) {
		MPI_Waitsome(2 * ranks, requests, &count, done, MPI_STATUSES_IGNORE);
		for (int i = 0; i < count; i++) {
			int peer = done[i] / 2;

			if (requests[2 * peer] == MPI_REQUEST_NULL &&
			    requests[2 * peer + 1] == MPI_REQUEST_NULL && rounds[peer] < ROUNDS)
				finished += end_round(peer);
		}
	}
	free(done);
}

int main(int argc, char **argv)
{
	double start;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	requests = calloc(2 * ranks, sizeof(*requests));
	out = calloc(ranks, sizeof(*out));
	in = calloc(ranks, sizeof(*in));
	rounds = calloc(ranks, sizeof(*rounds));
	for (int i = 0; i < 2 * ranks; i++)
		requests[i] = MPI_REQUEST_NULL;
	carry();  /* not measured: libraries connect with the first message */
	MPI_Barrier(MPI_COMM_WORLD);
	start = MPI_Wtime();
	carry();
	MPI_Barrier(MPI_COMM_WORLD);
	if (!rank)
		printf("messages_per_s %.6g\n", (double)ranks * (ranks - 1) * ROUNDS / (MPI_Wtime() - start));
	MPI_Finalize();
	return 0;
}

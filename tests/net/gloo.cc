/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libgloo's collective operations over its ibverbs transport, every number compared. Prints one line when all went well.
 * usage: gloo RANK RANKS DIRECTORY DEVICE; in the directory, which is the same for all, the ranks meet.
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include <gloo/allgather_ring.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier_all_to_all.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>

using Context = std::shared_ptr<gloo::Context>;
using Numbers = std::vector<int64_t>;

static void compare(const char *what, int count, const Numbers &found, int64_t (*expected)(int at, int ranks, int count), int ranks)
{
	for (int i = 0; i < (int)found.size(); i++) {
		if (found[i] == expected(i, ranks, count))
			continue;
		fprintf(stderr, "%s: wrong at %d of %d\n", what, i, count);
		exit(1);
	}
}

static Numbers numbers_of(int rank, int count)
{
	Numbers numbers(count);
	for (int i = 0; i < count; i++)
		numbers[i] = (rank + 1) * (int64_t)i;
	return numbers;
}

static int64_t sum(int at, int ranks, int) { return (int64_t)at * ranks * (ranks + 1) / 2; }
static int64_t of_rank_0(int at, int, int) { return at; }
static int64_t gathered(int at, int, int count) { return (at / count + 1) * (int64_t)(at % count); }

/*
 * Nobody waits for the end of the last sends, and a buffer that goes before has an assertion. So neither algorithms nor their numbers go:
 * the process ends with them, when all ranks have said that they are done.
 */
template <class Algorithm, class... Args> static void run(Args &&...args)
{
	(new Algorithm(std::forward<Args>(args)...))->run();
}

static Numbers &keep(Numbers &&numbers)
{
	return *new Numbers(std::move(numbers));
}

template <class Algorithm> static void all_reduce(const char *what, const Context &context, int count)
{
	Numbers &numbers = keep(numbers_of(context->rank, count));
	run<Algorithm>(context, std::vector<int64_t *>{ numbers.data() }, count);
	compare(what, count, numbers, sum, context->size);
}

static void all_operations(const Context &context, int count)
{
	all_reduce<gloo::AllreduceRingChunked<int64_t>>("all-reduce by a ring", context, count);
	all_reduce<gloo::AllreduceHalvingDoubling<int64_t>>("all-reduce by halves", context, count);

	Numbers &numbers = keep(numbers_of(context->rank, count));
	run<gloo::BroadcastOneToAll<int64_t>>(context, std::vector<int64_t *>{ numbers.data() }, count, 0);
	compare("broadcast", count, numbers, of_rank_0, context->size);

	Numbers &own = keep(numbers_of(context->rank, count)), &all = keep(Numbers((size_t)count * context->size));
	run<gloo::AllgatherRing<int64_t>>(context, std::vector<const int64_t *>{ own.data() }, all.data(), count);
	compare("all-gather", count, all, gathered, context->size);
	run<gloo::BarrierAllToAll>(context);
}

/* What ranks meet in. Connecting takes it by reference, since 2025 by shared pointer. */
struct Meeting {
	std::shared_ptr<gloo::rendezvous::Store> store;

	operator gloo::rendezvous::Store &() const { return *store; }
	operator std::shared_ptr<gloo::rendezvous::Store>() const { return store; }
};

static void meet_at_the_end(gloo::rendezvous::Store &store, const Context &context)
{
	std::vector<std::string> all;

	for (int rank = 0; rank < context->size; rank++)
		all.push_back("done." + std::to_string(rank));
	store.set(all[context->rank], { 1 });
	store.wait(all);
}

int main(int argc, char **argv)
{
	if (argc != 5)
		return 99;
	auto context = std::make_shared<gloo::rendezvous::Context>(atoi(argv[1]), atoi(argv[2]));
	gloo::transport::ibverbs::attr attr = { argv[4], 1, 0 };
	auto device = gloo::transport::ibverbs::CreateDevice(attr);
	Meeting meeting = { std::make_shared<gloo::rendezvous::FileStore>(argv[3]) };

	context->connectFullMesh(meeting, device);
	for (int count : { 1, 1000, 100000, 1000000 })
		all_operations(context, count);
	meet_at_the_end(meeting, context);
	printf("rank %d of %d has all numbers\n", context->rank, context->size);
	fflush(stdout);
	_exit(0);
}

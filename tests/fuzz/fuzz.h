/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the fuzz targets share: reading the input, and breaking off.
 *
 * Each target is one LLVMFuzzerTestOneInput. Without -fsanitize=fuzzer, replay.c gives it a main that runs
 * files, folders of files, and inputs made from seeds, so that `make check` needs no clang.
 */
#ifndef VB_FUZZ_H
#define VB_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An input that is used up reads as zeros. */
struct fuzz_input {
	const uint8_t *at;
	size_t left;
};

static inline uint8_t take(struct fuzz_input *in)
{
	if (in->left == 0)
		return 0;
	in->left--;
	return *in->at++;
}

static inline uint32_t take32(struct fuzz_input *in)
{
	uint32_t v = take(in);
	for (unsigned i = 0; i < 3; i++)
		v = v << 8 | take(in);
	return v;
}

/* An invariant that no input may break. */
#define must(holds) ((holds) ? (void)0 : fuzz_broken(#holds, __FILE__, __LINE__))

__attribute__((noreturn, cold)) static inline void fuzz_broken(const char *what, const char *file, int line)
{
	fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
	abort();
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A main for fuzz targets without libFuzzer. usage: TARGET [-r COUNT] [FILE|FOLDER]...; -r: so many inputs
 * made from seeds 1, 2, ...
 */
#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>

#include "fuzz.h"

enum { MAX_BYTES = 1 << 16 };

static uint8_t bytes[MAX_BYTES];
static unsigned ran;

static void run(size_t len)
{
	/* In memory of its own size, so that a sanitizer sees reads beyond the end. */
	uint8_t *copy = malloc(len ? len : 1);

	memcpy(copy, bytes, len);
	LLVMFuzzerTestOneInput(copy, len);
	free(copy);
	ran++;
}

static bool run_file(const char *path)
{
	FILE *file = fopen(path, "rb");

	if (!file)
		return false;
	size_t len = fread(bytes, 1, sizeof(bytes), file);
	fclose(file);
	run(len);
	return true;
}

static bool run_folder(const char *path)
{
	char name[4096];
	bool ok = true;
	DIR *folder = opendir(path);

	if (!folder)
		return false;
	for (struct dirent *entry; (entry = readdir(folder));) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
		ok &= run_file(name);
	}
	closedir(folder);
	return ok;
}

static bool run_path(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && (S_ISDIR(st.st_mode) ? run_folder(path) : run_file(path));
}

/* Bytes that are small, large or of a few values more often than chance would make them. */
static void run_seed(uint64_t seed)
{
	uint64_t random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	size_t len;

	for (len = 0; len < 64 + seed % 1024; len++) {
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		uint8_t byte = (uint8_t)(random >> 24);
		bytes[len] = random >> 40 & 1 ? byte & 7 : byte;
	}
	run(len);
}

int main(int argc, char **argv)
{
	bool ok = true;

	printf("1..1\n");
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "-r") == 0 && i + 1 < argc) {
			uint64_t count = strtoull(argv[++i], NULL, 0);
			for (uint64_t seed = 1; seed <= count; seed++)
				run_seed(seed);
		} else if (!run_path(argv[i])) {
			printf("# cannot read %s\n", argv[i]);
			ok = false;
		}
	}
	printf("%s 1 - %u inputs\n", ok ? "ok" : "not ok", ran);
	return !ok;
}

#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# The pure layers call nothing but memory functions, a checksum and each other, and may ask which instructions
# the processor has: no I/O, clock, threads or randomness. usage: purity.sh ARCHIVE
set -u
allowed='^(vb_.*|mem(cpy|move|set|cmp|chr)|malloc|calloc|free|crc32_gzip_refl|__cpu_model|str(cmp|len)|vsnprintf|inet_(ntop|pton)|__assert_fail|_GLOBAL_OFFSET_TABLE_|__stack_chk_fail|__(mem|vsn)\w+_chk|__gcov_.*|__(a|ub|t)san_.*)$'

echo "1..1"
symbols=$(nm -u "$1") || { echo "not ok 1 - nm $1"; exit 1; }
strangers=$(awk 'NF == 2 { print $2 }' <<< "$symbols" | sort -u | grep -Ev "$allowed")
if [[ -n $strangers ]]; then
	sed 's/^/# calls /' <<< "$strangers"
	echo "not ok 1 - wire and proto call only memory functions"
	exit 1
fi
echo "ok 1 - wire and proto call only memory functions"

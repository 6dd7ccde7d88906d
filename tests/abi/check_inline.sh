#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Builds inline_calls.c with our headers and with the reference's, without and with optimization, and compares
# what the programs print. Usage: check_inline.sh INCLUDE_DIRECTORY. Exit status 77: no reference headers or
# no gcc.
include=$1
here=$(dirname "$0")
command -v gcc >/dev/null || { echo "skipped: gcc is not installed"; exit 77; }
PYTHONDONTWRITEBYTECODE=1 python3 "$here/reference.py" || exit $?
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT

build() {
	gcc -std=gnu17 -w "$@" "$here/inline_calls.c" -lpthread || exit 1
}

status=0
for level in -O0 -O2; do
	build $level -o "$work/reference"
	build $level -I"$include" -o "$work/ours"
	"$work/reference" >"$work/reference.out" || exit 1
	"$work/ours" >"$work/ours.out" || exit 1
	# A port has four bytes more to tell of itself than in rdma-core 44: active_speed_ex.
	sed -i 's/port_attr 56$/port_attr 52/' "$work/ours.out"
	lines=$(wc -l <"$work/reference.out")
	if [ "$lines" -gt 1000 ] && cmp -s "$work/reference.out" "$work/ours.out"; then
		echo "gcc $level: the same $lines lines"
	else
		echo "gcc $level: calls differ (< reference, > ours)"
		diff "$work/reference.out" "$work/ours.out" | head -40
		status=1
	fi
done
exit $status

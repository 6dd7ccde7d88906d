#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Builds the two libraries with link-time optimisation, as some distributions do, and compares their symbols
# with those of the usual build. Usage: check_lto.sh SOURCE_DIRECTORY LIBRARY_DIRECTORY. Exit status 77: gcc
# is not installed.
source=$1 libraries=$2
command -v gcc >/dev/null || { echo "skipped: gcc is not installed"; exit 77; }
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT

exports() {
	nm -D --defined-only "$1" | awk '{ print $3 }' | sort
}

CC=gcc CFLAGS='' LDFLAGS='' meson setup "$work/build" "$source" -Db_lto=true >"$work/log" 2>&1 &&
	ninja -C "$work/build" lib/libibverbs.so.1 lib/librdmacm.so.1 >>"$work/log" 2>&1 ||
	{ tail -20 "$work/log"; exit 1; }
status=0
for library in libibverbs librdmacm; do
	exports "$libraries/$library.so.1" >"$work/usual"
	exports "$work/build/lib/$library.so.1" >"$work/lto"
	if [ -s "$work/usual" ] && cmp -s "$work/usual" "$work/lto"; then
		echo "$library: the same $(wc -l <"$work/usual") symbols"
	else
		echo "$library: the symbols differ (< usual, > with link-time optimisation)"
		diff "$work/usual" "$work/lto" | head -20
		status=1
	fi
done
exit $status

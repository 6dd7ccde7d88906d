#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Whole programs, compiled with our headers and with the reference's, run on the reference's libraries and on
# ours: every combination must work, and answers that need no device must be the same everywhere. Usage:
# check_programs.sh INCLUDE_DIRECTORY LIBRARY_DIRECTORY PROGRAM.c... An empty LIBRARY_DIRECTORY leaves our
# libraries out.
include=$1
libraries=$2
shift 2
here=$(dirname "$0")
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
count=0
failed=0
seen=

report() {
	count=$((count + 1))
	[ "$1" = ok ] || failed=$((failed + 1))
	echo "$1 $count - $2"
	[ "$1" = ok ] || sed 's/^/# /' "$work/log" | tail -20
}

# try HEADERS LIBRARIES PROGRAM: one test line; without a device, only the reference's libraries may skip
try() {
	name=$(basename "$3" .c)
	label="$name: $1 headers, $2 libraries"
	headers=$1
	whose=$2
	source=$3
	path=
	set --
	[ "$headers" = our ] && set -- "-I$include"
	[ "$whose" = our ] && set -- "$@" "-L$libraries" && path=$libraries
	if ! gcc "$@" -o "$work/$name" "$source" -l:librdmacm.so.1 -l:libibverbs.so.1 -lpthread >"$work/log" 2>&1; then
		report "not ok" "$label"
		return
	fi
	LD_LIBRARY_PATH=$path timeout 60 "$work/$name" >"$work/out" 2>"$work/log"
	result=$?
	cat "$work/out" >>"$work/log"
	case $result/$whose in
	0/*) report ok "$label" ;;
	77/reference) report ok "$label # SKIP no RDMA device" ;;
	*) report "not ok" "$label (exit status $result)" ;;
	esac
	compare "$name" "$label"
}

# compare PROGRAM LABEL: the rates of the program "names" against the first run's
compare() {
	[ "$1" = names ] || return 0
	grep '^rate ' "$work/out" >"$work/rates"
	[ -n "$seen" ] || cp "$work/rates" "$work/rates.first"
	seen=$2
	if diff "$work/rates.first" "$work/rates" >"$work/log" && [ -s "$work/rates" ]; then
		report ok "$2: the same rates"
	else
		report "not ok" "$2: the same rates"
	fi
}

command -v gcc >/dev/null || { echo "1..0 # SKIP gcc is not installed"; exit 0; }
if reason=$(PYTHONDONTWRITEBYTECODE=1 python3 "$here/reference.py"); then
	reference=yes
elif [ -z "$libraries" ]; then
	echo "1..0 # SKIP ${reason#skipped: }"
	exit 0
fi
for program; do
	if [ -n "$reference" ]; then
		try our reference "$program"
		[ -z "$libraries" ] || try reference our "$program"
	fi
	[ -z "$libraries" ] || try our our "$program"
done
echo "1..$count"
[ "$failed" -eq 0 ] && [ "$count" -gt 0 ]

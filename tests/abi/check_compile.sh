#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Compiles every public header alone, and whole programs, as C and as C++, with every compiler that is there.
# Usage: check_compile.sh INCLUDE_DIRECTORY PROGRAM.c...
include=$1
shift
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
count=0
failed=0

# attempt FILE COMPILER OPTIONS...: one test line
attempt() {
	file=$1
	shift
	count=$((count + 1))
	if "$@" -I"$include" -fsyntax-only "$file" >"$work/log" 2>&1; then
		echo "ok $count - $name, $1 $2"
	else
		failed=$((failed + 1))
		echo "not ok $count - $name, $1 $2"
		sed 's/^/# /' "$work/log" | head -20
	fi
}

# skip COMPILER
skip() {
	count=$((count + 1))
	echo "ok $count - $name # SKIP $1 is not installed"
}

# all_languages FILE OPTIONS...: FILE, known as $name, is C that is C++ too
all_languages() {
	source=$1
	shift
	for compiler in gcc clang; do
		command -v $compiler >/dev/null || { skip $compiler; continue; }
		for std in gnu99 gnu17; do
			attempt "$source" $compiler -std=$std -x c -Wall -Wextra -Wpedantic -Werror "$@"
		done
	done
	for compiler in g++ clang++; do
		command -v $compiler >/dev/null || { skip $compiler; continue; }
		for std in gnu++11 gnu++17; do
			attempt "$source" $compiler -std=$std -x c++ -Wall -Wextra -Werror "$@"
		done
	done
}

for path in "$include"/infiniband/*.h "$include"/infiniband/verbs/*.h "$include"/rdma/*.h; do
	name=${path#"$include"/}
	echo "#include <$name>" >"$work/alone.c"
	# These two exist to tell that they are obsolete.
	case $name in
	infiniband/arch.h | infiniband/sa-kern-abi.h) all_languages "$work/alone.c" -Wno-error ;;
	*) all_languages "$work/alone.c" ;;
	esac
done
for program; do
	name=$(basename "$program")
	all_languages "$program"
done

echo "1..$count"
[ "$failed" -eq 0 ] && [ "$count" -gt 0 ]

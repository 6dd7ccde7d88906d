#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Builds and runs the tests in a build directory and ends with one line that counts every case of every suite.
# usage: check.sh BUILD_DIR [meson test options, such as --suite unit]
set -u
cd "$(dirname "$0")/.." || exit 1
build=$1
shift

if ! meson configure "$build" -Dtests=true || ! ninja -C "$build" -j "$(nproc)"; then
	echo "0 passed, 1 failed, 0 skipped"
	exit 1
fi
# What tests write stays in the build tree.
TMPDIR=$(realpath "$build")/tmp
export TMPDIR XDG_RUNTIME_DIR=$TMPDIR
mkdir -p -m 1777 "$TMPDIR"
# Time limits are there to end what hangs; a busy machine takes several times as long as the one that they were written on.
meson test -C "$build" --no-rebuild --print-errorlogs --timeout-multiplier 4 --num-processes "$(nproc)" "$@"
ran=$?
/usr/bin/env python3 scripts/count_cases.py "$build/meson-logs/testlog.json" $ran

#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Builds and runs tests in a build directory and ends with one line that counts every case of every suite.
# Tiers: "quick" is `make check`; "long" is what `make check-all` runs beyond it. With --since REVISION only
# tests run that depend on what has changed since a revision of git. usage: check.sh BUILD_DIR TIER...
# [--since REVISION] [-- MESON_TEST_OPTION...]
set -u
cd "$(dirname "$0")/.." || exit 1
build=$1
shift
tiers=() since=
while [[ ${1:---} != -- ]]; do
	case $1 in
	--since) since=$2 && shift 2 ;;
	*) tiers+=("$1") && shift ;;
	esac
done
[[ $# -eq 0 ]] || shift

if ! meson configure "$build" -Dtests=true || ! ninja -C "$build" -j "$(nproc)"; then
	# Nothing could be built there any more without cmocka.
	pkg-config --exists cmocka || meson configure "$build" -Dtests=false
	echo "0 passed, 1 failed, 0 skipped"
	exit 1
fi
# What a test does not write to a /tmp of its own stays in the build tree.
TMPDIR=$(realpath "$build")/tmp
export TMPDIR XDG_RUNTIME_DIR=$TMPDIR VERBATIM_TEST_RUN=$$.$SECONDS.$RANDOM
mkdir -p -m 1777 "$TMPDIR"
# Each test has limits of its own for what hangs. Meson's end a test that does not keep them, on a busy
# machine, too.
read -r load _ </proc/loadavg
busy=$((${load%.*} / $(nproc)))
patience=$((10 * (1 + busy)))
# Most tests wait most of their time. On a busy machine, where each gets a small share of the processors, there
# are up to 5 for each processor. Where they cannot be isolated they run one at a time, or they would meet.
at_once=$(($(nproc) * (2 + (busy < 12 ? busy : 12) / 4)))
[[ $(tests/isolated.sh printenv VERBATIM_TEST_ISOLATED) != *no ]] || at_once=1
# Tests have no network beyond themselves.
[[ " ${tiers[*]} " != *" long "* ]] || tests/interop/kernel.sh "$(realpath "$build")/interop" ||
	echo "The kernel for the interop tests cannot be had."
logs=()
scripts/machine_state.py >"$TMPDIR/state"
for tier in "${tiers[@]}"; do
	[[ $tier == quick ]] && suite=() || suite=(--suite "$tier")
	if [[ $since ]]; then
		names=$(scripts/tests_since.py "$build" "$since" --no-suite long) || {
			echo "0 passed, 1 failed, 0 skipped"
			exit 1
		}
		[[ $names ]] || continue
		set -- $names
	fi
	rm -f "$build/meson-logs/$tier.json"
	meson test -C "$build" --no-rebuild --print-errorlogs --logbase "$tier" --timeout-multiplier $patience \
		--num-processes $at_once "${suite[@]}" "$@"
	logs+=("$build/meson-logs/$tier.json" $?)
done
scripts/machine_state.py "$TMPDIR/state" >"$build/meson-logs/machine.json"
/usr/bin/env python3 scripts/count_cases.py "${logs[@]}" "$build/meson-logs/machine.json" $?

# SPDX-License-Identifier: BSD-2-Clause
# For tests in shell: each case is a line of TAP; at the end count says how many there were, failed whether
# one did.
count=0 failed=0
check() { # NAME EXPECTED ACTUAL
	count=$((count + 1))
	if [[ $2 == "$3" ]]; then
		echo "ok $count - $1"
	else
		echo "not ok $count - $1"
		printf '# expected: %q\n# found:    %q\n' "$2" "$3"
		failed=1
	fi
}
skip() { # NAME REASON
	count=$((count + 1))
	echo "ok $count - $1 # SKIP $2"
}

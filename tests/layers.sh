#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Checks that #includes point down the list of layers only, and that the pure layers (wire, proto) reach no
# system header that does I/O, tells time or starts threads, not even through a header that they include.
# usage: layers.sh SOURCE_ROOT
set -u
cd "$1/src" || exit 99

declare -A rank=([base]=0 [host]=1 [wire]=2 [faults]=3 [proto]=4 [adapter]=5 [local]=6 [roce]=6 [ud]=7 [check]=8 [verbs]=9 [rdmacm]=10 [rsocket]=11 [preload]=12 [answers]=2 [vendors]=1)
impure='^(sys/.*|pthread\.h|time\.h|stdio\.h)$'

# includes FILE: one "kind target" per line, kind being q for "..." and s for <...>
includes() {
	sed -nE 's/^[ \t]*#[ \t]*include[ \t]*"([^"]+)".*/q \1/p; s/^[ \t]*#[ \t]*include[ \t]*<([^>]+)>.*/s \1/p' "$1"
}

# The layer that FILE's quoted include TARGET belongs to: same folder, or a path from src.
layer_of() {
	local file=$1 target=$2
	if [[ -e ${file%/*}/$target ]]; then
		echo "${file%%/*}"
	else
		echo "${target%%/*}"
	fi
}

check_direction() {
	local file=$1 from=${1%%/*} kind target to
	while read -r kind target; do
		[[ $kind == q ]] || continue
		to=$(layer_of "$file" "$target")
		[[ -v rank[$to] ]] || continue
		if (( rank[$to] > rank[$from] )) || { [[ $from != "$to" ]] && (( rank[$to] == rank[$from] )); }; then
			echo "# src/$file includes $target, which is not below $from"
			return 1
		fi
	done < <(includes "$file")
}

# impure_through FILE TRAIL: prints the chain to the first impure header
impure_through() {
	local file=$1 trail=$2 kind target next
	[[ -v seen[$file] ]] && return 0
	seen[$file]=1
	while read -r kind target; do
		if [[ $kind == s ]]; then
			[[ $target =~ $impure ]] && { echo "# $trail -> <$target>"; return 1; }
			continue
		fi
		next=$target
		[[ -e ${file%/*}/$target ]] && next=${file%/*}/$target
		[[ -e $next ]] || continue
		impure_through "$next" "$trail -> $next" || return 1
	done < <(includes "$file")
}

count=0 failed=0
report() { # STATUS NAME
	count=$((count + 1))
	if [[ $1 == 0 ]]; then
		echo "ok $count - $2"
	else
		echo "not ok $count - $2"
		failed=1
	fi
}

for layer in base host wire faults proto adapter local roce ud check verbs rdmacm rsocket preload answers vendors; do
	[[ -d $layer ]] || continue
	bad=0
	for file in "$layer"/*.[ch] "$layer"/*/*.[ch]; do
		[[ -e $file ]] || continue
		check_direction "$file" || bad=1
	done
	report $bad "$layer includes only what is below it"
done
for layer in wire proto; do
	bad=0
	for file in "$layer"/*.[ch] "$layer"/*/*.[ch]; do
		[[ -e $file ]] || continue
		unset seen
		declare -A seen=()
		impure_through "$file" "src/$file" || bad=1
	done
	report $bad "$layer is pure"
done
echo "1..$count"
exit $failed

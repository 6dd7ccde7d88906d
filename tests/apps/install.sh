#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# What `make install` leaves: nothing that shadows rdma-core, a command that finds its libraries wherever the tree
# stands, pkg-config files that a program can be built with.
# usage: install.sh BUILD_DIR
set -u
build=$(realpath "$1")
work=$(mktemp -d "$build/install.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
unset LD_LIBRARY_PATH

count=0 failed=0
check() { # NAME COMMAND...
	local name=$1
	shift
	count=$((count + 1))
	if "$@" >"$work/log" 2>&1; then
		echo "ok $count - $name"
	else
		echo "not ok $count - $name"
		sed 's/^/# /' "$work/log"
		failed=1
	fi
}

check install env DESTDIR="$work" meson install -C "$build" --no-rebuild
root=$(dirname "$(dirname "$(find "$work" -path '*/bin/verbatim')")")
private=$root/lib/verbatim

only_ours() {
	local rest
	rest=$(cd "$root" && find . ! -type d ! -path './lib/verbatim/*' ! -path './include/verbatim/*' \
		! -path './bin/verbatim' ! -path './lib/pkgconfig/verbatim-*.pc' \
		! -path './share/verbatim/man/*' ! -path './share/man/man?/verbatim*.?' \
		! -path './share/bash-completion/completions/verbatim')
	[[ -z $rest ]] || { echo "$rest"; return 1; }
}
check install__shadows_nothing only_ours
for library in ibverbs rdmacm; do
	check "install__lib$library.so.1" test -e "$private/lib$library.so.1"
	check "install__lib$library.so" test -L "$private/lib$library.so"
	check "install__lib$library.pc" test -e "$private/pkgconfig/lib$library.pc"
	check "install__verbatim-$library.pc" test -e "$root/lib/pkgconfig/verbatim-$library.pc"
done
check install__libverbatim-sockets.so test -e "$private/libverbatim-sockets.so"
check run__sockets "$root/bin/verbatim" run --sockets true
for header in infiniband/verbs.h rdma/rdma_cma.h rdma/rdma_verbs.h; do
	check "install__$header" test -e "$root/include/verbatim/$header"
done

cat >"$work/program.c" <<'C'
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
int main(void)
{
	int count = -1;
	struct ibv_device **devices = ibv_get_device_list(&count);
	struct rdma_event_channel *channel = rdma_create_event_channel();
	if (!devices || count < 1 || !channel)
		return 1;
	rdma_destroy_event_channel(channel);
	ibv_free_device_list(devices);
	return 0;
}
C
compile() { # PKG_CONFIG_PATH PACKAGE...
	local path=$1 flags
	shift
	flags=$(PKG_CONFIG_PATH=$path pkg-config --define-variable=prefix="$root" --cflags --libs "$@") || return 1
	echo "$flags"
	[[ $flags == *"$private"* ]] || return 1
	${CC:-cc} "$work/program.c" -o "$work/program" $flags
}
check build__verbatim_names compile "$root/lib/pkgconfig" verbatim-rdmacm verbatim-ibverbs
check run__verbatim_names "$root/bin/verbatim" run "$work/program"
check build__opt_in compile "$private/pkgconfig" librdmacm libibverbs
check run__opt_in "$root/bin/verbatim" run "$work/program"
check version_check env PKG_CONFIG_PATH="$private/pkgconfig" pkg-config --atleast-version=1.14 libibverbs
echo "1..$count"
exit $failed

#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# What `make install` leaves: nothing that shadows rdma-core, a command that finds its libraries wherever the
# tree stands, pkg-config files that a program can be built with. usage: install.sh BUILD_DIR
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
private=$(dirname "$(find "$root/lib" -name libibverbs.so.1)")
libdir=$(dirname "$private")

only_ours() {
	local rest
	rest=$(cd "$root" && find . ! -type d ! -path './lib/*verbatim/*' ! -path './include/verbatim/*' \
		! -path './bin/verbatim' ! -path './lib/*pkgconfig/verbatim-*.pc' \
		! -path './share/verbatim/man/*' ! -path './share/doc/verbatim/*' ! -path './share/bash-completion/completions/verbatim' ! -path './share/man/man?/verbatim*.?')
	[[ -z $rest ]] || { echo "$rest"; return 1; }
}
check install__shadows_nothing only_ours
for library in ibverbs rdmacm; do
	check "install__lib$library.so.1" test -e "$private/lib$library.so.1"
	check "install__lib$library.so" test -L "$private/lib$library.so"
	check "install__lib$library.pc" test -e "$private/pkgconfig/lib$library.pc"
	check "install__verbatim-$library.pc" test -e "$libdir/pkgconfig/verbatim-$library.pc"
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
compile() { # PREFIX PKG_CONFIG_PATH PACKAGE...
	local prefix=$1 path=$2 flags
	shift 2
	flags=$(PKG_CONFIG_PATH=$path pkg-config --define-variable=prefix="$prefix" --cflags --libs "$@") || return 1
	echo "$flags"
	[[ $flags == *"${private#"$root"}"* ]] || return 1
	eval "${CC:-cc} '$work/program.c' -o '$work/program' $flags"
}
ln -s "$root" "$work/a prefix"
check build__prefix_with_spaces compile "$work/a prefix" "$libdir/pkgconfig" verbatim-rdmacm verbatim-ibverbs
check build__verbatim_names compile "$root" "$libdir/pkgconfig" verbatim-rdmacm verbatim-ibverbs
check run__verbatim_names "$root/bin/verbatim" run "$work/program"
check build__opt_in compile "$root" "$private/pkgconfig" librdmacm libibverbs
check run__opt_in "$root/bin/verbatim" run "$work/program"
# A CMake project that looks for rdma-core in either of the usual ways is pointed here by the environment
# alone.
cmake_project() { # NAME VARIABLE...
	local name=$1
	shift
	mkdir -p "$work/cmake/$name"
	cp "$work/program.c" "$work/cmake/$name/"
	cat >"$work/cmake/$name/CMakeLists.txt"
	env "$@" cmake -S "$work/cmake/$name" -B "$work/cmake/$name/build" && cmake --build "$work/cmake/$name/build" || return 1
	grep -rq "$private" "$work/cmake/$name/build/CMakeCache.txt" && "$root/bin/verbatim" run "$work/cmake/$name/build/program"
}
if type -P cmake >/dev/null; then
	# Staged files are not where their pkg-config files say.
	mkdir "$work/pc"
	for file in "$private"/pkgconfig/*.pc; do
		sed "s|^prefix=.*|prefix=$root|" "$file" >"$work/pc/${file##*/}"
	done
	check cmake__pkg_check_modules cmake_project modules PKG_CONFIG_PATH="$work/pc" <<'CMAKE'
cmake_minimum_required(VERSION 3.10)
project(program C)
find_package(PkgConfig REQUIRED)
pkg_check_modules(RDMA REQUIRED librdmacm libibverbs)
add_executable(program program.c)
target_include_directories(program PRIVATE ${RDMA_INCLUDE_DIRS})
target_link_directories(program PRIVATE ${RDMA_LIBRARY_DIRS})
target_link_libraries(program ${RDMA_LIBRARIES})
CMAKE
	check cmake__find_library cmake_project library CMAKE_LIBRARY_PATH="$private" CMAKE_INCLUDE_PATH="$root/include/verbatim" <<'CMAKE'
cmake_minimum_required(VERSION 3.10)
project(program C)
find_path(VERBS_INCLUDE infiniband/verbs.h)
find_library(VERBS ibverbs REQUIRED)
find_library(CM rdmacm REQUIRED)
add_executable(program program.c)
target_include_directories(program PRIVATE ${VERBS_INCLUDE})
target_link_libraries(program ${CM} ${VERBS})
CMAKE
else
	for name in cmake__pkg_check_modules cmake__find_library; do
		count=$((count + 1))
		echo "ok $count - $name # SKIP cmake is not installed"
	done
fi
check version_check env PKG_CONFIG_PATH="$private/pkgconfig" pkg-config --atleast-version=1.14 libibverbs
echo "1..$count"
exit $failed

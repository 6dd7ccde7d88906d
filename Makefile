# SPDX-License-Identifier: BSD-2-Clause
# A thin front over Meson and Ninja: the build itself is described in meson.build.

BUILD  ?= build
PREFIX ?= /usr/local
JOBS   ?= $(shell nproc)
# An absolute path, which may have spaces in it.
prefix  = $(if $(filter /%,$(firstword $(PREFIX))),$(PREFIX),$(CURDIR)/$(PREFIX))
VERSION = $(shell sed -n "s/^  version: '\(.*\)',/\1/p" meson.build)

# Tests are built where cmocka is installed; `make check` insists on them.
have_cmocka = $(shell pkg-config --exists cmocka 2>/dev/null && echo true || echo false)
sanitized   = --suite unit --suite sim --suite fuzz --suite conformance

.PHONY: all with-tests docs check check-all check-interop check-aarch64 check-programs soak mix hammer demo bench check-asan check-tsan install uninstall dist release check-install clean

all: $(BUILD)/build.ninja
	@ninja -C $(BUILD) -j $(JOBS)

$(BUILD)/build.ninja:
	@meson setup $(BUILD) --prefix "$(prefix)" -Dtests=$(have_cmocka)

# For what runs tests by itself.
with-tests: $(BUILD)/build.ninja
	@$(have_cmocka) || { echo "The tests need cmocka (libcmocka-dev)." >&2; exit 1; }
	@meson configure $(BUILD) -Dtests=true

# check: what finds most faults, in minutes; SINCE=REV: of it what depends on what has changed since a
# revision of git. check-all: everything. check-interop: with the kernel's rdma_rxe alone.
SINCE ?=
check check-all check-interop:
	-@scripts/setup.sh tests $(filter long,$(tiers_of_$@))
	@[ -e $(BUILD)/build.ninja ] || meson setup $(BUILD) --prefix "$(prefix)"
	@scripts/check.sh $(BUILD) $(tiers_of_$@)
tiers_of_check         = quick $(SINCE:%=--since %)
tiers_of_check-all     = quick long
tiers_of_check-interop = long -- interop

# Simulations, SEEDS of each from FROM on.
SEEDS ?= 20000
FROM  ?= 1
sims   = sim/sim_cm sim/sim_rc sim/sim_rs_stream sim/sim_rs_datagram sim/sim_unreliable fuzz/sim_rdmacm
soak: with-tests
	@ninja -C $(BUILD) -j $(JOBS) $(sims:%=tests/%)
	@for sim in $(sims); do echo "# $$sim: $(SEEDS) seeds from $(FROM)"; $(BUILD)/tests/$$sim $(FROM) $(SEEDS) || exit 1; done

# Random traffic of connections on every path, SEEDS seeds of each from FROM on.
mix: with-tests
	@ninja -C $(BUILD) -j $(JOBS) tests/conformance/rc/test_rc_mix
	VERBATIM_TEST_SEED=$(FROM) VERBATIM_TEST_MIX=$(SEEDS) $(BUILD)/tests/conformance/rc/test_rc_mix

# Registered memory under threads, system calls, forks and a peer: so many regions. `make check` does some
# hundred.
REGIONS ?= 1000000
hammer: with-tests
	@ninja -C $(BUILD) -j $(JOBS) tests/conformance/rc/test_rc_hammer
	VERBATIM_TEST_HAMMER=$(REGIONS) $(BUILD)/tests/conformance/rc/test_rc_hammer 'processes, mapped'

# No mistake is found in programs but those that they make.
check-programs: all
	python3 tests/apps/programs.py $(BUILD) --check
	@for suite in net cm software; do echo "# tests/net/$$suite.py"; python3 tests/net/$$suite.py $(BUILD) --check || exit 1; done
	VERBATIM_CHECK=1,fatal python3 tests/apps/sockets.py $(BUILD)
	VERBATIM_CHECK=1 python3 tests/apps/rdma_core_suite.py $(BUILD)

demo:
	@scripts/setup.sh
	@$(MAKE) --no-print-directory all
	@python3 scripts/demo.py $(BUILD)

# The pictures of the documents, by verbatim's own tools, from the examples.
docs:
	-@scripts/setup.sh docs
	@$(MAKE) --no-print-directory all
	@scripts/pictures.py $(BUILD) docs/pictures

# BENCH: parts and options of bench/bench.py, such as BENCH='local --rounds 9' or BENCH=--quick.
BENCH ?=
bench:
	-@scripts/setup.sh bench
	@$(MAKE) --no-print-directory all
	@python3 bench/bench.py $(BUILD) $(BENCH)

check-asan: export ASAN_OPTIONS ?= detect_leaks=1:abort_on_error=0
check-asan: export UBSAN_OPTIONS ?= halt_on_error=1:print_stacktrace=1
check-asan:
	@[ -e $(BUILD)-asan/build.ninja ] || meson setup $(BUILD)-asan -Db_sanitize=address,undefined -Db_lundef=false
	@scripts/check.sh $(BUILD)-asan quick -- $(sanitized)

check-tsan: export TSAN_OPTIONS ?= halt_on_error=1:die_after_fork=0:atexit_sleep_ms=0:suppressions=$(CURDIR)/tests/tsan.supp
check-tsan:
	@[ -e $(BUILD)-tsan/build.ninja ] || meson setup $(BUILD)-tsan -Db_sanitize=thread -Db_lundef=false
	@scripts/check.sh $(BUILD)-tsan quick -- $(sanitized)

# The suites that need no programs of this machine's under qemu-user, and Debian's programs in guests with its
# arm64 kernels.
arm = $(abspath $(BUILD)-aarch64)
check-aarch64:
	-@scripts/setup.sh aarch64
	@tests/interop/arm64.sh $(arm)/guests
	@[ -e $(arm)/build.ninja ] || { echo "[binaries]"; echo "exe_wrapper = ['$(arm)/guests/qemu-aarch64']"; } >$(arm)/guests/machine.ini
	@[ -e $(arm)/build.ninja ] || meson setup $(arm) -Dtoml=disabled --cross-file cross/aarch64-linux-gnu.ini --cross-file $(arm)/guests/machine.ini \
		-Disal=$$(scripts/release.py $(arm) --isal aarch64)
	@scripts/check.sh $(arm) quick

# The prefix is written into the pkg-config files only, so setting it late is cheap.
install: all
	@meson configure $(BUILD) -Dprefix="$(prefix)" -Dlibdir=lib
	@ninja -C $(BUILD) -j $(JOBS)
	@meson install -C $(BUILD) --no-rebuild

# DESTDIR may have spaces in it, too.
installed = bin/verbatim include/verbatim lib/verbatim \
	$(addprefix lib/pkgconfig/,verbatim-ibverbs.pc verbatim-rdmacm.pc) \
	$(addprefix share/,verbatim doc/verbatim bash-completion/completions/verbatim) \
	$(addprefix share/,$(wildcard man/man[17]/verbatim*.[17]))
uninstall:
	@for path in $(installed); do rm -rf "$(DESTDIR)$(prefix)/$$path" || exit 1; done

# The sources of a release: what is committed, as one archive.
dist:
	@mkdir -p $(BUILD)
	@git archive --format=tar.gz --prefix=verbatim-$(VERSION)/ -o $(BUILD)/verbatim-$(VERSION).tar.gz HEAD
	@echo $(BUILD)/verbatim-$(VERSION).tar.gz

# Releases that run where they are unpacked, prebuilt, for RELEASES: x86_64, aarch64.
RELEASES ?= $(shell uname -m)
release:
	-@scripts/setup.sh release
	@mkdir -p $(BUILD)
	@scripts/release.py $(BUILD) $(RELEASES)

# The Debian package in a fresh Debian 12, a release in a home directory, prebuilt ones in fresh Debians, the
# recipes of docs/ci.md. Root, a network, some minutes.
check-install: all
	-@scripts/setup.sh install release
	@tests/install/install.py $(BUILD)

clean:
	rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-tsan $(BUILD)-aarch64

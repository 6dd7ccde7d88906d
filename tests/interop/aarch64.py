#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""This library on 64-bit ARM: Debian's programs and tests of ours in guests (guest.py) with Debian's kernels
of 4 and 16 KiB pages.

What qemu-user cannot do is there: userfaultfd, membarrier, process_vm_readv, restartable sequences, a
kernel's own pages. Programs run against each other in the guest, through shared memory and over UDP.

usage: aarch64.py BUILD_DIR [PATTERN...]     BUILD_DIR: of the cross build (cross/aarch64-linux-gnu.ini)
"""
import contextlib
import os
import re
import sys

import paths  # noqa: F401
import harness
import hosts
import programs
import suite
from guest import ARM64, Guest, GuestEndpoint, GuestFailure, add_tap, prepare

LIMIT_S = 240.0
ITERATIONS = 50
KERNELS = {"4k": "Debian 12's kernel, pages of 4 KiB", "16k": "Debian 13's kernel, pages of 16 KiB"}

# Tests of ours: what depends on the kernel or on pages. A pattern picks cases of a conformance program.
UNIT = (
    "base_lock",
    "host_copy",
    "host_rpc",
    "host_fence",
    "host_guard",
    "host_life",
    "host_link",
    "host_loop",
    "host_remap",
    "host_shm",
    "host_slot",
    "host_touch",
    "host_udp",
    "local_choice",
    "local_peer",
)
CONFORMANCE = (
    ("rc/test_rc_memory", ""),
    ("rc/test_rc_regions", ""),
    ("rc/test_rc_send", "two processes"),
    ("rc/test_rc_one_sided", "two processes"),
    ("rc/test_rc_death", "mapped"),
    ("verbs/test_verbs_fork", ""),
    ("verbs/test_verbs_objects", ""),
    ("verbs/test_verbs_domains", ""),
)
TEST_LIMIT_S = 900


def cases():
    yield programs.Case(
        "ibv_devinfo", client="ibv_devinfo -d {dev}", client_shows=(r"PORT_ACTIVE", r"fw_ver:\s+verbatim")
    )
    yield programs.pingpong("ibv_rc_pingpong", "-n 200 -c", limit_s=LIMIT_S)
    yield programs.rping("-C 20", limit_s=LIMIT_S)
    yield programs.rping("-C 5 -S 65535", limit_s=LIMIT_S)
    yield programs.perftest("ib_write_bw", iterations=ITERATIONS, limit_s=LIMIT_S)
    yield programs.perftest("ib_send_lat", iterations=ITERATIONS, limit_s=LIMIT_S)
    yield programs.stream("rstream", "-T v -I 20 -C 5 -S 5000", limit_s=LIMIT_S)


class ArmEndpoint(GuestEndpoint):
    """Programs run on our libraries in the guest."""

    settings = ""

    def start(self, build, command, log_path):
        return super().start(
            build, f"{self.settings} {os.path.join(build, 'verbatim')} run {command}".strip(), log_path
        )


class ArmWireEndpoint(ArmEndpoint):
    settings = "env VERBATIM_LOCAL=off"


class Aarch64(suite.Suite):
    NAME = "aarch64"

    def parts(self):
        return tuple(self.part(pages) for pages in KERNELS)

    def part(self, pages):
        def run():
            self.with_guest(pages)

        run.__name__ = KERNELS[pages]
        return run

    def with_guest(self, pages):
        directory = os.path.join(self.build, "guests")
        prepare(directory, ARM64)
        with hosts.Network() as network:
            here = network.host("here")
            try:
                with contextlib.closing(
                    Guest(os.path.join(directory, pages), here, add_tap(here), machine=ARM64)
                ) as guest:
                    guest.set_up_network()
                    self.all_cases(guest, KERNELS[pages])
            except GuestFailure as failure:
                self.add(f"{KERNELS[pages]}: the guest lives", str(failure))

    def all_cases(self, guest, kernel):
        print(
            f"# {kernel}: {guest.run('uname', '-r').strip()}, {guest.run('getconf', 'PAGE_SIZE').strip()} bytes a page"
        )
        for line in guest.run(os.path.join(self.build, "verbatim"), "doctor").splitlines():
            print(f"# {line}")
        for name in UNIT:
            self.run_test(guest, kernel, f"unit/test_{name}", "")
        for name, pattern in CONFORMANCE:
            self.run_test(guest, kernel, f"conformance/{name}", pattern)
        self.run_programs(guest, kernel)

    def run_test(self, guest, kernel, test, pattern):
        """One of our test programs; each of its cases counts."""
        title = f"{os.path.basename(test)} {pattern}".strip()
        if not self.selected(f"{title} {kernel}"):
            return
        command = [
            "env",
            "CMOCKA_MESSAGE_OUTPUT=TAP",
            os.path.join(self.build, "tests", test),
            *([pattern] if pattern else []),
        ]
        status, output = guest.call("run", command, TEST_LIMIT_S, limit_s=2 * TEST_LIMIT_S)
        with open(
            os.path.join(self.log_dir, f"{os.path.basename(test)}.{kernel.split()[-2]}.log"),
            "w",
            encoding="utf-8",
        ) as log:
            log.write(output)
        if status == 77:
            self.report.add(
                f"{title}, {kernel}", harness.Outcome("skip", harness.last_words(output).strip(" ()"))
            )
            return
        results = re.findall(r"^(not ok|ok) \d+ (# SKIP )?-? ?(.*)", output, re.MULTILINE)
        for verdict, skipped, name in results:
            outcome = "skip" if skipped else "ok" if verdict == "ok" else "FAIL"
            self.report.add(
                f"{title}: {name}, {kernel}",
                harness.Outcome(outcome, "as the test says" if outcome == "skip" else ""),
            )
        if status and not any(verdict == "not ok" and not skipped for verdict, skipped, _ in results):
            self.add(f"{title}, {kernel}", f"ended with {status}{harness.last_words(output)}")

    def run_programs(self, guest, kernel):
        table = guest.run(os.path.join(self.build, "verbatim"), "run", "ibv_devinfo", "-v", "-d", "vb_eth0")
        gid = hosts.gid_index(table, guest.v4)
        for label, kind in {"locally": ArmEndpoint, "over the wire": ArmWireEndpoint}.items():
            end = kind("arm64", "vb_eth0", guest.v4, gid, guest=guest)
            for case in cases():
                if self.selected(f"{case.name} {label} {kernel}"):
                    self.report.add(
                        f"{case.name} {label}, {kernel}",
                        harness.run_case(self.build, case, end, self.log_dir),
                    )


if __name__ == "__main__":
    sys.exit(suite.run(Aarch64, __doc__))

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""scripts/setup.sh among made-up commands: what it installs, by whom, and what it says where it cannot.
Speaks TAP. setup.sh looks for this machine's libraries and headers, so the cases expect commands alone.
usage: setup_test.py PATH_OF_SETUP
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from cases import Skip, run_cases

SETUP = sys.argv[1]
# What it calls; each but env notes its arguments.
STAND_INS = {
    "id": "echo $USER_NUMBER",
    "sudo": 'note "$@"; exec "$@"',
    "apt-get": 'note "$@"',
    "apt-cache": 'case " $ABSENT all " in *" $2 "* | " all all "*) exit 1 ;; esac',
    "dpkg": 'note "$@"',
    "dnf": "exit 9",
    "zypper": "exit 9",
    "pacman": "exit 9",
    "apk": "exit 9",
}
NOTE = 'note() { echo "${0##*/} $*" >>"$NOTES"; }\n'
ARM64_LIBRARY = "/usr/lib/aarch64-linux-gnu/pkgconfig/cmocka.pc"


class Run:
    """setup.sh, with these stand-ins as its only commands; then the machine's, if asked."""

    def __init__(self, commands, *args, user=0, absent="", and_machine=False):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            commands_folder, notes = folder / "bin", folder / "notes"
            commands_folder.mkdir()
            notes.touch()
            (commands_folder / "env").symlink_to(shutil.which("env"))
            for name in commands.split():
                path = commands_folder / name
                path.write_text(f"#!/bin/bash\n{NOTE}{STAND_INS[name]}\n")
                path.chmod(0o755)
            path = str(commands_folder) + (":" + os.environ["PATH"] if and_machine else "")
            done = subprocess.run(
                ["/bin/bash", SETUP, *args],
                env={"PATH": path, "NOTES": str(notes), "USER_NUMBER": str(user), "ABSENT": absent},
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
            self.status, self.out, self.err = done.returncode, done.stdout, done.stderr
            self.notes = notes.read_text(encoding="utf-8").splitlines()

    def installed(self):
        lines = [n.split() for n in self.notes if n.startswith("apt-get install")]
        return [word for line in lines for word in line[2:] if not word.startswith("-")]


def expect(condition, run):
    if not condition:
        raise AssertionError(f"status {run.status}, said {run.out!r} {run.err!r}, called {run.notes}")


def installs_what_is_missing():
    run = Run("id apt-get apt-cache")
    packages = run.installed()
    expect(run.status == 0 and run.notes[0] == "apt-get update -q", run)
    expect({"meson", "ninja-build", "pkg-config", "g++", "gcc", "perftest"} <= set(packages), run)
    expect(len(packages) == len(set(packages)) and "tmux" not in packages, run)
    expect(f"Installing: {' '.join(packages)}\n" in run.out, run)


def installs_what_tests_need():
    run = Run("id apt-get apt-cache", "tests", "long")
    expect({"meson", "tmux", "tshark", "ceph-mon"} <= set(run.installed()), run)


def leaves_out_what_a_release_has_not():
    run = Run("id apt-get apt-cache", absent="perftest meson")
    expect(run.status == 0 and "ninja-build" in run.installed(), run)
    expect(not {"perftest", "meson"} & set(run.installed()), run)
    expect("This release has no meson perftest: cases that need them are skipped.\n" in run.out, run)


def a_release_without_any_of_them_installs_nothing():
    run = Run("id apt-get apt-cache", absent="all")
    expect(run.status == 0 and not run.installed() and "This release has no " in run.out, run)


def asks_for_rights():
    run = Run("id sudo apt-get apt-cache", user=1000)
    expect(run.status == 0 and "meson" in run.installed(), run)
    asked = [n[len("sudo ") :] for n in run.notes if n.startswith("sudo ")]
    expect(asked[0] == "apt-get update -q" and asked[-1].startswith("env DEBIAN_FRONTEND="), run)
    expect(len(asked) == len([n for n in run.notes if n.startswith("apt-get ")]), run)


def without_rights_says_what_is_missing():
    run = Run("id apt-get apt-cache", user=1000)
    expect(run.status == 1 and not run.notes, run)
    expect("ninja-build" in run.err and "needs root or sudo" in run.err, run)


def tells_others_names():
    for manager, line, there, not_there in (
        ("dnf", "sudo dnf install ", "meson ninja-build pkgconf-pkg-config gcc-c++ iproute", "g++ iproute2"),
        ("zypper", "sudo zypper install ", "meson ninja gcc-c++ iproute2", "g++ ninja-build"),
        ("pacman", "sudo pacman -S --needed ", "meson ninja pkgconf rdma-core", "g++ rdmacm-utils"),
        ("apk", "sudo apk add ", "meson ninja-build g++ rdma-core", "ibverbs-utils rdmacm-utils"),
    ):
        run = Run(f"id sudo {manager}", user=1000)
        expect(run.status == 1 and not run.notes and line in run.err, run)
        words = set(run.err.split(line)[1].split())
        expect(set(there.split()) <= words and not words & {"-", *not_there.split()}, run)


def tells_the_rest_debians_names():
    run = Run("id sudo", user=1000)
    expect(run.status == 1 and not run.notes, run)
    expect("equivalents of these packages of Debian's" in run.err and "ninja-build" in run.err, run)


def asks_for_the_other_architecture():
    if os.path.exists(ARM64_LIBRARY):
        raise Skip("this machine has libraries of arm64 already")
    run = Run("id apt-get apt-cache dpkg", "aarch64")
    expect(run.notes.index("dpkg --add-architecture arm64") < run.notes.index("apt-get update -q"), run)
    expect("libcmocka-dev:arm64" in run.installed(), run)


def with_nothing_missing_does_nothing():
    run = Run("id apt-get apt-cache", absent="all", user=1000, and_machine=True)
    if "This release has no " in run.out:
        raise Skip("this machine has not everything")
    expect(run.status == 0 and not run.notes and not run.out and not run.err, run)


CASES = (
    installs_what_is_missing,
    installs_what_tests_need,
    leaves_out_what_a_release_has_not,
    a_release_without_any_of_them_installs_nothing,
    asks_for_rights,
    without_rights_says_what_is_missing,
    tells_others_names,
    tells_the_rest_debians_names,
    asks_for_the_other_architecture,
    with_nothing_missing_does_nothing,
)


if __name__ == "__main__":
    sys.exit(run_cases(CASES))

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What tests must leave as it was: settings of the kernel, interfaces, network namespaces, processes, and
files of ours in /tmp, /run and /dev/shm. (That the sources stay as they are, tests/isolated.sh sees to.)
Prints this state, or, with an earlier one, how it has changed: as a test in a log of Meson's.

usage: machine_state.py [EARLIER_STATE] >STATE_OR_LOG
"""
import json
import os
import pathlib
import re
import subprocess
import sys

MARK = "VERBATIM_TEST_RUN"  # in the environment of each process of a run, with a value of its own
# Settings that change by themselves, or with any program.
VOLATILE = re.compile(
    r"/(random|pty|keys|sched_domain)/|/(acct|ns_last_pid|tainted|hung_task_\w+|perf_event_max_sample_rate)$"
)
FOLDERS = ("/tmp", "/run", "/dev/shm")
OURS = re.compile(r"verbatim|ompi|ucx|mpich|hydra|dat\.conf", re.IGNORECASE)
# What any program leaves that uses the library on this machine: the devices' tree of a user. Tests
# have a /dev/shm of their own.
TREE = re.compile(r"^verbatim-\d+$")


def said(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    except FileNotFoundError:
        return []


def settings():
    """Of the kernel, but for those of network namespaces, which tests have their own of."""
    found = []
    for top in ("kernel", "vm", "user"):
        for folder, _, names in os.walk(f"/proc/sys/{top}"):
            for name in names:
                path = os.path.join(folder, name)
                if VOLATILE.search(path):
                    continue
                try:
                    found.append(
                        f"{path} = {pathlib.Path(path).read_text(encoding='utf-8', errors='replace').strip()}"
                    )
                except OSError:
                    pass
    return found


def processes(run):
    """Those of the run, but for the one that asks."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            environment = (path / "environ").read_bytes().split(b"\0")
            command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"{MARK}={run}".encode() in environment and int(path.name) not in (os.getpid(), os.getppid()):
            found.append(f"{path.name}: {command}")
    return found


def files():
    return [
        os.path.join(folder, name)
        for folder in FOLDERS
        if os.path.isdir(folder)
        for name in os.listdir(folder)
        if OURS.search(name) and not TREE.search(name)
    ]


def state():
    return {
        "settings": settings(),
        "interfaces": [line.split(":")[1].strip() for line in said("ip", "-oneline", "link")],
        "network namespaces": said("ip", "netns"),
        "processes": processes(os.environ.get(MARK, "")),
        "files": files(),
    }


def differences(before, after):
    for what, rows in after.items():
        for sign, only in (("-", set(before[what]) - set(rows)), ("+", set(rows) - set(before[what]))):
            yield from (f"# {what}: {sign} {row}" for row in sorted(only))


def main():
    if len(sys.argv) < 2:
        json.dump(state(), sys.stdout)
        return 0
    with open(sys.argv[1], encoding="utf-8") as file:
        changes = list(differences(json.load(file), state()))
    text = "\n".join([f"{'not ok' if changes else 'ok'} 1 - machine__is_as_it_was", *changes, "1..1", ""])
    print(
        json.dumps(
            {
                "name": "verbatim:machine / machine",
                "result": "FAIL" if changes else "OK",
                "stdout": text,
                "stderr": "",
            }
        )
    )
    return 1 if changes else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs programs in the guest for guest.py: one request, one answer, each a line of JSON on the control port.

The programs are Debian's own on Debian's libraries. Their output stays in the guest's memory and is asked
for. When the other end hangs up, or fails, the guest powers off. """
import json
import os
import pathlib
import re
import select
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "apps"))
import harness  # noqa: E402

PORT = "vport*p1"
POLL_S = 0.05
LOGS = "/tmp"


class GuestProgram(harness.Program):
    """A program on the kernel's RDMA: it listens on TCP, or the kernel knows an id of it that does."""

    def argv(self, build, prefix):
        return self.command.split()

    def listens(self, port=0):
        return super().listens(port) or (self._has_listening_id() and self._sleeps())

    def _has_listening_id(self):
        known = subprocess.run(
            ["rdma", "resource", "show", "cm_id"], capture_output=True, text=True, check=False
        ).stdout
        return bool(re.search(rf"state LISTEN .*pid {self.process.pid} ", known))

    def _sleeps(self):
        """The id's state changes before the call that listens is done. That call never sleeps
        interruptibly; a program that waits for events does."""
        try:
            status = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8")
        except OSError:
            return False
        return status.rpartition(") ")[2].startswith("S")


class Agent:
    """The requests. Each takes and returns what JSON can carry."""

    def __init__(self):
        self.programs = []

    def run(self, command, limit_s=60):
        """A command to its end: (exit status, output)."""
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit_s,
            check=False,
        )
        return done.returncode, done.stdout.decode(errors="replace")

    def start(self, command):
        self.programs.append(GuestProgram("", command, os.path.join(LOGS, f"{len(self.programs)}.log")))
        return len(self.programs) - 1

    def wait(self, program, seconds):
        return self.programs[program].wait(harness.Limit(seconds))

    def wait_ready(self, program, shows, port):
        self.programs[program].wait_ready(shows, port)

    def end(self, program, how):
        return self.programs[program].end(how)

    def output(self, program):
        return self.programs[program].output()


def serve(port):
    agent = Agent()
    for asked in os.fdopen(port, "rb", closefd=False):
        request = json.loads(asked)
        try:
            answer = {"result": getattr(agent, request["call"])(*request["arguments"])}
        except (OSError, subprocess.SubprocessError) as failure:
            answer = {"failure": str(failure)}
        line = json.dumps(answer).encode() + b"\n"
        while line:
            line = line[os.write(port, line) :]


def open_port():
    """The control port, once it is there and its other end is."""
    while not (found := [*pathlib.Path("/dev").glob(PORT)]):
        time.sleep(POLL_S)
    port = os.open(found[0], os.O_RDWR)
    polled = select.poll()
    polled.register(port, 0)
    while polled.poll(0):
        time.sleep(POLL_S)
    return port


if __name__ == "__main__":
    os.environ.update(
        PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", HOME="/root", LANG="C.UTF-8"
    )
    try:
        serve(open_port())
    finally:
        pathlib.Path("/proc/sysrq-trigger").write_text("o", encoding="ascii")
        time.sleep(30)

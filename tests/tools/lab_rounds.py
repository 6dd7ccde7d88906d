#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""verbatim lab, again and again: an ordinary user makes eight hosts, rping goes between all pairs of them, and
nothing is left. In each fifth round a process of the lab is killed in the middle.

usage: lab_rounds.py BUILD_DIR [ROUNDS]
"""
import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import time

import paths  # noqa: F401
import harness
from lab import ENV, LIMIT_S, ORDINARY_USER, VERBATIM, impossible, lab_process, marked, nothing_left
from look import Failure, expect

HOSTS = 8
KILLED_EACH = 5
# A server may not listen yet when the first client comes.
CLIENT = (
    "for h in {others}; do n=0; until timeout 60 {verbatim} run rping -c -C 2 -a $h >/dev/null 2>&1; "
    "do n=$((n + 1)); [ $n -lt 100 ] || exit 1; sleep 0.1; done; done"
)


def user():
    """What makes a command an ordinary user's: nothing, if this is one or nobody else can read the build."""
    as_other = ("setpriv", f"--reuid={ORDINARY_USER}", f"--regid={ORDINARY_USER}", "--clear-groups")
    sees_build = subprocess.run([*as_other, VERBATIM, "--version"], check=False, capture_output=True)
    return () if os.getuid() or sees_build.returncode else as_other


USER = user()


def lab(*args):
    done = lab_process(*args, prefix=USER)
    expect(done.returncode, 0, f"exit status of lab {' '.join(args)} ({done.stderr.strip()})")


@contextlib.contextmanager
def running(host, *command):
    """Runs a command in a host; ends it with the block."""
    words = [*USER, VERBATIM, "lab", "exec", host, *command]
    with subprocess.Popen(words, env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as one:
        try:
            yield one
        finally:
            one.kill()


def kill_one(chance):
    time.sleep(chance.uniform(0, 0.5))
    pid, name = chance.choice([(pid, name) for pid, name in marked().items() if "lab" in name])
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return name


def one_round(chance, is_killed):
    """The seconds that `lab up` took, and what was killed."""
    names = [f"h{n + 1}" for n in range(HOSTS)]
    begun, killed = time.monotonic(), None
    lab("up", f"--hosts={HOSTS}")
    took_s = time.monotonic() - begun
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(running(name, VERBATIM, "run", "rping", "-s", "-P"))
        # One host's after another: a server of rping's loses a request that comes while it takes one.
        for name in names[:1] if is_killed else names:
            others = " ".join(other for other in names if other != name)
            script = CLIENT.format(others=others, verbatim=VERBATIM)
            with running(name, "sh", "-c", script) as client:
                if is_killed:
                    killed = kill_one(chance)
                elif harness.wait(client, LIMIT_S):
                    raise Failure(f"{name} did not reach all others")
        if is_killed:
            lab_process("down", prefix=USER)  # of what is still there
        else:
            lab("down")
    nothing_left()
    return took_s, killed


def main():
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 50
    if missing := harness.missing_programs("rping", "setpriv"):
        print(f"1..0 # SKIP {missing[0]} is not installed")
        return 0
    if why := impossible(lab_process("up", "--hosts=1", prefix=USER)):
        print(f"1..0 # SKIP {why}")
        return 0
    lab("down")
    print(f"1..{rounds}", flush=True)
    chance, times = random.Random(1), []
    for n in range(1, rounds + 1):
        try:
            took_s, killed = one_round(chance, n % KILLED_EACH == 0)
        except Failure as failure:
            print(f"not ok {n} - {failure}", flush=True)
            return 1
        times.append(took_s)
        print(f"ok {n} - {f'{killed} was killed' if killed else 'all pairs'}", flush=True)
    print(f"# {HOSTS} hosts, {'an ordinary user' if USER or os.getuid() else 'root'}: up in "
          f"{statistics.median(times):.2f} s by the median, {max(times):.2f} s at most", flush=True)  # fmt: skip
    return 0


if __name__ == "__main__":
    harness.isolate()
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""SIGKILL to one of two programs in the middle of ib_write_bw, over and over: the other must end by itself
with an error completion, and the next pair must run.

Both sides send (-b), so that the survivor, whichever it is, has work of its own outstanding. The server is
the victim in even rounds, the client in odd ones; the moment is random (the seed is printed and can be given
again). usage: kill.py BUILD_DIR [--rounds N] [--seed N] """
import argparse
import os
import random
import signal
import sys
import time

import harness

TRAFFIC = "ib_write_bw -F -N -b -d {dev} -x {gid} -p {port} -s 65536 -D 300"
HEALTHY = harness.Case(
    "next pair",
    server="ib_write_bw -F -d {dev} -x {gid} -p {port} -n 200",
    client="ib_write_bw -F -d {dev} -x {gid} -p {port} -n 200 {addr}",
    client_shows=(r"^ *65536 +200 ",),
)
TRAFFIC_LIMIT_S = 60.0
SURVIVOR_LIMIT_S = 60.0
ERROR_COMPLETION = ("Completion with error", "Failed status")


def cpu_ticks(program):
    """CPU time used so far, in clock ticks; none where the program has ended."""
    try:
        with open(f"/proc/{program.process.pid}/stat", encoding="ascii", errors="replace") as stat:
            fields = stat.read().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def wait_for_traffic(programs):
    """Both have burnt a quarter of a second of CPU time: they post and poll (connecting takes next to
    none)."""
    enough = os.sysconf("SC_CLK_TCK") // 4
    start = [cpu_ticks(program) for program in programs]
    limit = harness.Limit(TRAFFIC_LIMIT_S)
    while limit.left():
        if any(program.process.poll() is not None for program in programs):
            return False
        if all(cpu_ticks(program) - ticks >= enough for program, ticks in zip(programs, start)):
            return True
        time.sleep(0.01)
    return False


def kill_one(build, endpoint, log_dir, number, delay):
    """One round."""
    programs = []
    try:
        reason = kill_one_of(build, endpoint, log_dir, number, delay, programs)
    finally:
        for program in programs:
            program.end()
    outputs = [program.output() for program in programs]
    return harness.Outcome("FAIL" if reason else "ok", reason, *outputs)


def kill_one_of(build, endpoint, log_dir, number, delay, programs):
    """Starts the two, adding them to the list; the reason why the round failed, or ""."""
    command = TRAFFIC.format(**vars(endpoint) | {"port": harness.free_port()})
    for role, text in (("server", command), ("client", f"{command} {endpoint.addr}")):
        programs.append(harness.Program(build, text, os.path.join(log_dir, f"{number}.{role}.log")))
        if role == "server":
            programs[0].wait_ready()
    if not wait_for_traffic(programs):
        return "no traffic: " + " / ".join(harness.last_words(program.output()) for program in programs)
    time.sleep(delay)
    victim, survivor = programs if number % 2 == 0 else reversed(programs)
    os.kill(victim.process.pid, signal.SIGKILL)
    status = survivor.wait(harness.Limit(SURVIVOR_LIMIT_S))
    role = "client" if number % 2 == 0 else "server"
    if status is None or status <= 0:
        return f"surviving {role} {harness.describe_exit(status)}"
    if not any(text in survivor.output() for text in ERROR_COMPLETION):
        return (
            f"surviving {role} ended with {status} without an error completion"
            f"{harness.last_words(survivor.output())}"
        )
    return ""


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    options = parser.parse_args()
    harness.isolate()
    report = harness.Report()
    if harness.missing_programs("ib_write_bw"):
        report.add("kill", harness.Outcome("skip", "ib_write_bw is not installed"))
        return report.finish()
    harness.require_library(options.build)
    print(f"# seed {options.seed}")
    dice = random.Random(options.seed)
    log_dir = harness.log_directory(options.build, "kill")
    endpoint = harness.endpoints()[0]
    for number in range(options.rounds):
        delay = dice.uniform(0.0, 0.5)
        victim = "client" if number % 2 else "server"
        outcome = kill_one(options.build, endpoint, log_dir, number, delay)
        outcome.reason += (
            f"\n# again: {sys.argv[0]} {options.build} --seed {options.seed}" if outcome.reason else ""
        )
        report.add(f"kill the {victim} after {delay:.3f} s, round {number}", outcome)
        if number % 5 == 4:
            report.add(
                f"a new pair runs after round {number}",
                harness.run_case(options.build, HEALTHY, endpoint, log_dir),
            )
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())

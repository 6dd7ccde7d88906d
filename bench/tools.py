# SPDX-License-Identifier: BSD-2-Clause
"""Runs the programs that measure: perftest on this library, and its peers, which get nothing of it."""
import dataclasses
import functools
import os
import re
import shlex

import paths  # noqa: F401
import figures
import harness
import programs
from experiment import Failed, NotMeasured
from guest import GuestEndpoint

MIB = 1 << 20
LIMIT_S = 120.0
UCX = {"UCX_LOG_LEVEL": "error", "UCX_WARN_UNUSED_ENV_VARS": "n"}


def two_cpus():
    """Two that this process may use, as far apart in the list of CPUs as siblings are not; one twice if there
    is but one."""
    cpus = sorted(os.sched_getaffinity(0))
    return cpus[0], next((cpu for cpu in cpus[1:] if cpu not in siblings(cpus[0])), cpus[-1])


def siblings(cpu):
    try:
        with open(
            f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", encoding="ascii"
        ) as listed:
            parts = [part.split("-") for part in listed.read().strip().split(",")]
    except OSError:
        return {cpu}
    return {number for part in parts for number in range(int(part[0]), int(part[-1]) + 1)}


class BareProgram(harness.Program):
    """A program that knows nothing of this library."""

    def argv(self, build, prefix):
        return [*prefix, *shlex.split(self.command)]


class BareEndpoint(harness.Endpoint):
    def start(self, build, command, log_path):
        return BareProgram(build, command, log_path, self.prefix)


def bare(end, **environment):
    """The same endpoint for a program of others, as all are in a guest unless they are told otherwise."""
    if isinstance(end, GuestEndpoint):
        return end
    prefix = (*end.prefix, "env", *(f"{name}={value}" for name, value in environment.items()))
    return BareEndpoint(end.label, end.dev, end.addr, end.gid, prefix)


def through(end, *prefix):
    """The same endpoint with its programs started through something more."""
    return dataclasses.replace(end, prefix=(*end.prefix, *prefix))


def pinned(end):
    """(server's, client's) endpoint, each on a CPU of its own."""
    return tuple(through(end, "taskset", "-c", str(cpu)) for cpu in two_cpus())


def as_ordinary_user(end):
    """The same endpoint for a user without privileges, who may neither move nor trace memory at will."""
    user = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    return end if os.geteuid() else through(end, *user)


class Tools:
    """Each method returns a run for an Experiment. `ends`: the server's and the client's endpoint."""

    def __init__(self, build, log_dir, programs_of=None):
        """programs_of: the build whose programs of this directory run; its own by default."""
        self.build = build
        self.log_dir = log_dir
        self.programs_of = programs_of or build

    def pair(self, case, ends, server_says=False):
        """The client's output, or the server's."""
        outcome = harness.run_case(self.build, case, ends[0], self.log_dir, ends[1])
        if outcome.status == "skip":
            raise NotMeasured(outcome.reason)
        if outcome.status == "FAIL":
            raise Failed(f"{case.name}: {outcome.reason}")
        return outcome.server_output if server_says else outcome.client_output

    def perftest(self, ends, program, options, iterations, server_says=False):
        case = programs.perftest(program, options, iterations=iterations, limit_s=LIMIT_S)
        return functools.partial(self.pair, case, ends, server_says)

    def ucx(self, ends, test, size, iterations, transports="posix", **environment):
        command = f"{harness.ucx_perftest()} -f -p {{port}} -t {test} -s {size} -n {iterations} -w {max(10, iterations // 20)}"
        case = harness.Case(f"{test} {size}", server=command, client=f"{command} {{addr}}", limit_s=LIMIT_S)
        settings = {"UCX_TLS": transports, **UCX, **environment}
        return functools.partial(self.pair, case, [bare(end, **settings) for end in ends])

    def iperf3(self, ends, seconds, size=None):
        case = harness.Case(
            f"iperf3 {size or ''}",
            server="iperf3 -s -1 -p {port}",
            limit_s=LIMIT_S,
            client=f"iperf3 -c {{addr}} -p {{port}} -t {seconds} -f k" + (f" -l {size}" if size else ""),
        )
        return functools.partial(self.pair, case, [bare(end) for end in ends])

    def udp_ping_pong(self, ends, size, rounds, options=""):
        command = f"{shlex.quote(self.own('udp_pingpong'))} {options} -p {{port}} -s {size} -n {rounds}"
        case = harness.Case(
            f"udp_pingpong {options} {size}",
            server=command,
            client=f"{command} {{addr}}",
            limit_s=LIMIT_S,
            server_ready="^ready$",
        )
        return functools.partial(self.pair, case, [bare(end) for end in ends])

    def udp_stream(self, ends, mib):
        command = f"{shlex.quote(self.own('udp_stream'))} -p {{port}} -n {mib}"
        case = harness.Case(
            "udp_stream",
            server=command,
            client=f"{command} {{addr}}",
            limit_s=LIMIT_S,
            server_ready="^ready$",
        )
        return functools.partial(self.pair, case, [bare(end) for end in ends])

    def own_program(self, end, name, *arguments):
        """A program of this directory, which is both its server and its client."""
        case = harness.Case(name, client=shlex.join([self.own(name), *map(str, arguments)]), limit_s=LIMIT_S)
        return functools.partial(self.pair, case, (end, end))

    def own(self, name):
        return os.path.join(self.programs_of, "bench", name)


# ---- figures in outputs: each takes the output of a run, and fails where it is not there ----


def _number(pattern, output, what):
    found = re.search(pattern, output, re.MULTILINE)
    if not found:
        raise Failed(f"no {what} in the output{harness.last_words(output)}")
    return float(found.group(1))


def named(name):
    """A figure of a program of ours."""
    return lambda output: _number(rf"^{name} (\S+)$", output, name)


def _of_perftest(figure, size, what):
    def read(output):
        value = figure(output, size)
        if not value:  # a run that was too short says 0.00
            raise Failed(f"no {what} in the output{harness.last_words(output)}")
        return value

    return read


def latency(size):
    """perftest's typical latency in its own unit: µs, or cycles with -C."""
    return _of_perftest(figures.latency_us, size, "typical latency")


def bandwidth(size):
    return _of_perftest(figures.bandwidth_bytes, size, "bandwidth")


def message_rate(size):
    return _of_perftest(figures.message_rate, size, "message rate")


def ucx_latency_ns(output):
    """The median."""
    return _number(r"^ +\d+ +([\d.]+) +[\d.]+ +[\d.]+ ", output, "latency of UCX") * 1e3


def ucx_bandwidth(output):
    """The overall one."""
    return _number(r"^ +\d+ +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+ +([\d.]+)", output, "bandwidth of UCX") * MIB


def tcp_bandwidth(output):
    """What the receiver got."""
    return _number(r"([\d.]+) Kbits/sec +receiver", output, "bandwidth of iperf3") * 1e3 / 8


def udp_latency_ns(output):
    return _number(r"^\d+ bytes: ([\d.]+) us", output, "latency of UDP") * 1e3

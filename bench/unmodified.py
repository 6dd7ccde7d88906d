# SPDX-License-Identifier: BSD-2-Clause
"""The part `programs`: Debian's unmodified programs on this library, each beside the same program on what it
would take without: its own shared memory, or TCP. The MPI libraries are Debian's, too; they run mpi_*.c."""
import errno
import functools
import os
import pathlib
import re
import shlex
import shutil
import subprocess

import paths  # noqa: F401
import harness
import svg
import tools
from experiment import Experiment, Failed, NotMeasured, Row, at_least, at_most
from rows import KIB, LOOPBACK, MIB, WIRE_MTU, size_name

ROUNDS = 20000
RANKS = 64
BANDWIDTH_ITERATIONS = {64 * KIB: 10000, MIB: 1000}
WIRE_ITERATIONS = {64 * KIB: 2000, MIB: 200}
# Half a cache line's round trip: from there on two processors are far from each other, or have other work.
FAR_NS, BUSY_NS = 50, 1000
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
RC, UD = "rc_v,self", "ud_v,self"


def placement(bench):
    """Where the two processors lie, which all of this part hangs on; prints it."""
    output = bench.tools.own_program(LOOPBACK, "cacheline", *tools.two_cpus())()
    half_round_ns = tools.named("half_round_ns")(output)
    word = "busy" if half_round_ns > BUSY_NS else "far" if half_round_ns > FAR_NS else "near"
    print(f"The two processors are {word}: a cache line takes {half_round_ns:.0f} ns one way.\n")
    return {"half_round_ns": half_round_ns, "placement": word}


def experiments(bench, network):
    a, b = network.host("a"), network.host("b")
    network.join(a, b, mtu=WIRE_MTU)
    end = a.endpoint(bench.tools.build)
    one_host = tuple(tools.through(end, "taskset", "-c", str(cpu)) for cpu in tools.two_cpus())
    yield from ucx_rows(bench, one_host)
    yield from mpi_rows(bench, end)
    yield from libfabric_rows(bench, one_host)
    yield from rsocket_rows(bench, end)


# ---- UCX ----


def ucx_rows(bench, ends):
    for transports, test, ratio in ((RC, "tag_lat", 2), (RC, "ucp_put_lat", 3), (UD, "tag_lat", 4)):
        yield beside(
            f"ucx_perftest {test} over {transports.split(',')[0]}, 8 B",
            "ns",
            ucx_run(bench, ends, f"-t {test}", on_verbatim(transports)),
            ucx_run(bench, [tools.bare(end) for end in ends], f"-t {test}", {"UCX_TLS": "posix"}),
            "UCX posix",
            tools.ucx_latency_ns,
            at_most(ratio),
        )
    test = "-t am_lat -d {where}"
    yield beside(
        "ucx_perftest am_lat over rc_v, 8 B",
        "ns",
        ucx_run(bench, ends, test.format(where="{dev}:1 -x rc_verbs"), {}),
        ucx_run(bench, [tools.bare(end) for end in ends], test.format(where="memory -x posix"), {}),
        "UCX posix",
        tools.ucx_latency_ns,
        at_most(2),
    )


def on_verbatim(transports):
    return {"UCX_TLS": transports, "UCX_NET_DEVICES": "{dev}:1"}


def with_environment(environment, command):
    settings = " ".join(f"{name}={value}" for name, value in {**tools.UCX, **environment}.items())
    return f"env {settings} {command}"


def ucx_run(bench, ends, options, environment):
    command = with_environment(
        environment, f"{harness.ucx_perftest()} -f -p {{port}} {options} -s 8 -n {ROUNDS} -w {ROUNDS // 20}"
    )
    name = " ".join([options, *environment.values()])
    case = harness.Case(name, server=command, client=f"{command} {{addr}}", limit_s=tools.LIMIT_S)
    return functools.partial(bench.tools.pair, case, ends)


def beside(what, unit, ours, peers, peer_name, read, goal):
    """One row: the same program both ways, whose outputs are read alike."""
    row = Row(
        what,
        unit,
        lambda outputs: read(outputs["verbatim"]),
        goal,
        lambda outputs: read(outputs["peer"]),
        peer_name,
    )
    return Experiment({"verbatim": ours, "peer": peers}, (row,))


# ---- MPI ----


def mpi_rows(bench, end):
    for name, library, own, ratio in (
        ("Open MPI", "openmpi", {"UCX_TLS": "posix,cma,self"}, 2),
        ("MPICH", "mpich", {}, 3),
    ):
        peer = "UCX posix+cma" if own else "its own shared memory"
        for size in (8, 4 * KIB):
            yield beside(
                f"{name} over rc_v: latency, {size_name(size)}",
                "ns",
                mpi_pair(bench, end, library, "latency", size, ROUNDS, None),
                mpi_pair(bench, end, library, "latency", size, ROUNDS, own),
                peer,
                tools.named("latency_ns"),
                at_most(ratio),
            )
        for size, iterations in BANDWIDTH_ITERATIONS.items():
            yield beside(
                f"{name} over rc_v: bandwidth, {size_name(size)}",
                "B/s",
                mpi_pair(bench, end, library, "bandwidth", size, iterations, None),
                mpi_pair(bench, end, library, "bandwidth", size, iterations, own),
                peer,
                tools.named("bytes_per_s"),
                at_least(1),
            )
    yield beside(
        f"Open MPI over rc_v: {RANKS} ranks, all to all, messages",
        "/s",
        mpi_run(bench, end, "openmpi", "mesh", (), None, RANKS, CALM),
        mpi_run(bench, end, "openmpi", "mesh", (), {"UCX_TLS": "posix,self"}, RANKS),
        "UCX posix",
        tools.named("messages_per_s"),
        at_least(1),
    )


# Ranks of MPICH reach each other by shared memory unless they are told that they have none.
LAUNCH = {
    "openmpi": (
        "mpirun.openmpi --oversubscribe --bind-to none --mca pml ucx --mca osc ucx --mca pml_ucx_tls any "
        "--mca pml_ucx_devices any",
        {},
    ),
    "mpich": ("mpirun.mpich", {"MPIR_CVAR_NOLOCAL": "1"}),
}


def mpi_pair(bench, end, library, test, size, iterations, own):
    return mpi_run(bench, end, library, "pair", (test, size, iterations, *tools.two_cpus()), own, 2)


# UCX connects over UD. Where a processor takes long to come, it sends its requests again, and before 1.20 an
# acknowledgement of both may end the program (openucx/ucx issue 8743).
CALM = {"UCX_UD_VERBS_TIMER_TICK": "1s"}


def mpi_run(bench, end, library, name, arguments, own, ranks, more=None):
    """mpi_NAME.c. own: the environment without this library; None: on it, and with more."""
    launch, on_ours = LAUNCH[library]
    environment = {**AS_ROOT, **({**on_ours, **on_verbatim(RC), **(more or {})} if own is None else own)}

    def run():
        command = shlex.join([mpi_program(bench.tools.log_dir, library, name), *map(str, arguments)])
        case = harness.Case(
            f"{library} {name} {' '.join(map(str, arguments))} {'verbatim' if own is None else 'peer'}",
            client=with_environment(environment, f"{launch} -np {ranks} {command}"),
            limit_s=tools.LIMIT_S,
        )
        return bench.tools.pair(case, [end if own is None else tools.bare(end)] * 2)

    return run


@functools.cache
def mpi_program(directory, library, name):
    compiler = f"mpicc.{library}"
    if missing := harness.missing_programs(compiler, f"mpirun.{library}"):
        raise NotMeasured(f"{missing[0]} is not installed")
    if not harness.ucx_has_verbs():
        raise NotMeasured("UCX's libuct_ib is not installed")
    program = os.path.join(directory, f"mpi_{name}.{library}")
    source = pathlib.Path(__file__).with_name(f"mpi_{name}.c")
    done = subprocess.run(
        [compiler, "-O2", "-o", program, str(source)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise NotMeasured(f"{compiler}: {harness.last_words(done.stderr)}")
    return program


# ---- libfabric ----


def libfabric_rows(bench, ends):
    """fi_pingpong times the connection, too, in which ofi_rxm waits for 50 ms. With so many iterations that
    counts for little."""
    bare = [tools.bare(end) for end in ends]
    for size, iterations, unit, read, goal in (
        (64, 500000, "ns", libfabric_ns, at_most(3)),
        (4 * KIB, 150000, "ns", libfabric_ns, at_most(3)),
        (64 * KIB, 20000, "B/s", libfabric_bandwidth, at_least(1)),
        (MIB, 5000, "B/s", libfabric_bandwidth, at_least(1)),
    ):
        yield beside(
            f"libfabric verbs;ofi_rxm: fi_pingpong, {size_name(size)}",
            unit,
            libfabric_run(bench, ends, "verbs;ofi_rxm", size, iterations),
            libfabric_run(bench, bare, "shm", size, iterations),
            "libfabric shm",
            read,
            goal,
        )


def libfabric_run(bench, ends, provider, size, iterations):
    """Over ofi_rxm, whoever looks last for completions may end with ECANCELED behind its result, or wait."""
    tolerant = pathlib.Path(bench.tools.log_dir) / "tolerant.sh"
    tolerant.write_text(f'"$@" || [ $? = {errno.ECANCELED} ]\n', encoding="ascii")
    command = f"sh {shlex.quote(str(tolerant))} fi_pingpong -p {provider} -e rdm -I {iterations} -S {size}"
    case = harness.Case(
        f"fi_pingpong {provider} {size}",
        server=f"{command} -B {{port}}",
        client=f"{command} -P {{port}} {{addr}}",
        one_may_wait=True,
        not_here="" if shutil.which("fi_pingpong") else "fi_pingpong is not installed",
        limit_s=tools.LIMIT_S,
    )
    return functools.partial(bench.tools.pair, case, ends)


def figure_of(program, row, output, column):
    """A number of the one row that the program prints; row: a pattern with a group for each column."""
    found = re.search(row, output, re.MULTILINE)
    if not found:
        raise Failed(f"no figures of {program} in the output{harness.last_words(output)}")
    return float(found.group(column))


def libfabric_figure(output, column):
    """bytes, sent, acknowledged, total, time, MB/s, µs for a transfer, …: of the one row."""
    row = r"^\d+[kmg]?\s+\S+\s+=\S+\s+\S+\s+\S+s\s+([\d.]+)\s+([\d.]+)"
    return figure_of("fi_pingpong", row, output, column)


def libfabric_ns(output):
    return libfabric_figure(output, 2) * 1e3


def libfabric_bandwidth(output):
    return libfabric_figure(output, 1) * 1e6


# ---- rsockets ----


def rsocket_rows(bench, end):
    """Over the wire, with calls that block. Between two programs of a host, TCP's segments of 64 KiB are not
    cut; packets of RoCEv2 have 4096 bytes at most."""
    off = tools.through(end, "env", "VERBATIM_LOCAL=off")
    for size, iterations, transfers, unit, read, goal in (
        (64, 5000, 1, "ns", rstream_ns, at_most(1.2)),
        (64 * KIB, 100, 20, "B/s", rstream_bandwidth, at_least(0.8)),
        (MIB, 10, 20, "B/s", rstream_bandwidth, at_least(0.8)),
    ):
        options = f"-S {size} -I {iterations} -C {transfers}"
        yield beside(
            f"rstream over the wire, blocking, {size_name(size)}",
            unit,
            rstream_run(bench, off, f"-T b {options}"),
            rstream_run(bench, tools.bare(end), f"-T s {options}"),
            "rstream -T s",
            read,
            goal,
        )


def rstream_run(bench, end, options):
    case = harness.Case(
        f"rstream {options}",
        server=f"rstream -b {{addr}} -p {{port}} {options}",
        client=f"rstream -s {{addr}} -p {{port}} {options}",
        limit_s=tools.LIMIT_S,
    )
    return functools.partial(bench.tools.pair, case, (end, end))


def rstream_figure(output, column):
    """name, bytes, transfers, iterations, total, time, Gb/s, µs for a transfer."""
    row = r"^\S+(?:\s+\S+){4}\s+[\d.]+s\s+([\d.]+)\s+([\d.]+)\s*$"
    return figure_of("rstream", row, output, column)


def rstream_ns(output):
    return rstream_figure(output, 2) * 1e3


def rstream_bandwidth(output):
    return rstream_figure(output, 1) * 1e9 / 8


# ---- drawn ----


def draw(parts, directory):
    """The last figures as a plot; its path, or none."""
    found = [row for row in parts.get("programs", {}).get("rows", ()) if row["judged"] and row.get("goal")]
    if not found:
        return []
    path = directory / "programs.svg"
    path.write_text(svg.ratios("Programs: times their peer", found, show_ratio), encoding="utf-8")
    return [path]


def show_ratio(value):
    return f"{value:.2g} ×"

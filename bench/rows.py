# SPDX-License-Identifier: BSD-2-Clause
"""What is measured on one machine, against whom, what is to be reached: one function for each part, which
gives experiments."""
import functools

import tools
from experiment import Experiment, Goal, Row, at_least, at_most
from harness import Endpoint

KIB, MIB = 1 << 10, 1 << 20
LOOPBACK = Endpoint("lo", "vb_lo", "127.0.0.1", 0)

# What passes in a run should take some tenths of a second.
LATENCY_ROUNDS = 50000
MESSAGES = 2000000
BANDWIDTH_ITERATIONS = {
    8: 100000,
    64: 100000,
    512: 50000,
    4 * KIB: 50000,
    32 * KIB: 20000,
    64 * KIB: 20000,
    256 * KIB: 4000,
    MIB: 2000,
}
# Many more pass where no network is between: else what the first messages take would count.
SHARED_MEMORY_ITERATIONS = {size: 10 * iterations for size, iterations in BANDWIDTH_ITERATIONS.items()}
MANY_QPS = 10000
PROCESS_VM = "VERBATIM_COPY=process_vm"


def size_name(size):
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB" if size >= KIB else f"{size} B"


class Bench:
    """What the parts are made from."""

    def __init__(self, tools_):
        self.tools = tools_

    @functools.cached_property
    def cycles_per_us(self):
        """perftest is told to count cycles where it is known how long they are: its µs have two places
        only."""
        output = self.tools.own_program(LOOPBACK, "cacheline", *tools.two_cpus())()
        return tools.named("cycles_per_us")(output) if "cycles_per_us" in output else None

    def latency_run(self, ends, operation, size, rounds=LATENCY_ROUNDS, transport="RC"):
        options = "" if operation == "atomic" else f"-s {size}"
        cycles = "-C" if self.cycles_per_us else ""
        return self.tools.perftest(
            ends, f"ib_{operation}_lat", f"-c {transport} {options} {cycles}".strip(), rounds
        )

    def latency_ns(self, size):
        scale = 1e3 / (self.cycles_per_us or 1)
        read = tools.latency(size)
        return lambda output: read(output) * scale


# ---- one host ----


def local(bench, _network):
    """Two processes of one host, each pinned to a CPU."""
    ends = tools.pinned(LOOPBACK)
    yield latency_beside_ucx(bench, ends, "write", "ucp_put_lat", at_most(1.2))
    yield latency_beside_ucx(bench, ends, "send", "tag_lat", at_most(0.6))
    for operation in ("read", "atomic"):
        yield latency_beside_cache_line(bench, ends, operation, at_most(3))
    for operation in ("write", "read"):
        for size in (64 * KIB, MIB):
            yield bandwidth_beside_ucx(bench, ends, operation, size, "ucp_put_bw", "posix", at_least(0.95))
    for size, factor in ((64 * KIB, 3), (MIB, 2)):
        yield bandwidth_beside_ucx(bench, ends, "send", size, "tag_bw", "posix,cma", at_least(factor))
    for operation, rate in (("write", 20e6), ("send", 10e6)):
        yield rate_of_messages(bench, ends, operation, at_least(rate))
    yield datagrams_beside_udp(bench, ends)
    yield four_threads_beside_ucx(bench, ends)
    yield peak_beside_process_vm(bench, ends)


def latency_beside_ucx(bench, ends, operation, test, goal, size=8):
    read = bench.latency_ns(size)
    row = Row(
        f"ib_{operation}_lat, {size_name(size)}",
        "ns",
        lambda outputs: read(outputs["verbatim"]),
        goal,
        lambda outputs: tools.ucx_latency_ns(outputs["ucx"]),
        f"UCX {test}",
    )
    return Experiment(
        {
            "verbatim": bench.latency_run(ends, operation, size),
            "ucx": bench.tools.ucx(ends, test, size, LATENCY_ROUNDS),
        },
        (row,),
    )


def latency_beside_cache_line(bench, ends, operation, goal):
    read = bench.latency_ns(8)
    row = Row(
        f"ib_{operation}_lat, 8 B",
        "ns",
        lambda outputs: read(outputs["verbatim"]),
        goal,
        lambda outputs: tools.named("half_round_ns")(outputs["cacheline"]),
        "half a cache line's round trip",
    )
    return Experiment(
        {
            "verbatim": bench.latency_run(ends, operation, 8),
            "cacheline": bench.tools.own_program(LOOPBACK, "cacheline", *tools.two_cpus()),
        },
        (row,),
    )


def bandwidth_beside_ucx(bench, ends, operation, size, test, transports, goal):
    read = tools.bandwidth(size)
    iterations = SHARED_MEMORY_ITERATIONS[size]
    row = Row(
        f"ib_{operation}_bw, {size_name(size)}",
        "B/s",
        lambda outputs: read(outputs["verbatim"]),
        goal,
        lambda outputs: tools.ucx_bandwidth(outputs["ucx"]),
        f"UCX {test}, {transports.replace(',', '+')}",
    )
    return Experiment(
        {
            "verbatim": bench.tools.perftest(ends, f"ib_{operation}_bw", f"-s {size}", iterations),
            "ucx": bench.tools.ucx(ends, test, size, iterations, transports),
        },
        (row,),
    )


def datagrams_beside_udp(bench, ends, size=8):
    read = bench.latency_ns(size)
    row = Row(
        f"ib_send_lat, {size_name(size)}, UD",
        "ns",
        lambda outputs: read(outputs["verbatim"]),
        None,
        lambda outputs: tools.udp_latency_ns(outputs["UDP ping-pong"]),
        "UDP ping-pong",
    )
    return Experiment(
        {
            "verbatim": bench.latency_run(ends, "send", size, transport="UD"),
            "UDP ping-pong": bench.tools.udp_ping_pong(ends, size, LATENCY_ROUNDS),
        },
        (row,),
    )


def four_threads_beside_ucx(bench, ends, size=64 * KIB):
    """An ordinary user's program of four threads: its memory cannot be moved, because another thread may use
    it, and nothing tells when. UCX's memory comes from the heap, too, and not from what it shares."""
    iterations, user = BANDWIDTH_ITERATIONS[size], tools.as_ordinary_user
    peers = [user(end) for end in ends]
    rows = tuple(
        Row(
            f"an ordinary user's program of four threads: {what}, {size_name(size)}",
            "B/s",
            lambda outputs, name=name: tools.named(name)(outputs["verbatim"]),
            at_least(1),
            lambda outputs, test=test: tools.ucx_bandwidth(outputs[test]),
            f"UCX {test}, posix+cma",
        )
        for what, name, test in (
            ("WRITE", "write_bytes_per_s", "ucp_put_bw"),
            ("SEND", "send_bytes_per_s", "tag_bw"),
        )
    )
    return Experiment(
        {
            "verbatim": bench.tools.own_program(
                user(LOOPBACK), "threads", size, iterations, *tools.two_cpus()
            ),
            **{
                test: bench.tools.ucx(peers, test, size, iterations, "posix,cma", UCX_ALLOC_PRIO="heap")
                for test in ("ucp_put_bw", "tag_bw")
            },
        },
        rows,
    )


def peak_beside_process_vm(bench, ends, size=4 * MIB):
    """Of the server, whose region is written: what the client has of it counts again in the client."""
    peak = tools.named("peak_bytes")

    def run(*settings):
        sides = [tools.through(end, "env", *settings, bench.tools.own("peak")) for end in ends]
        return bench.tools.perftest(sides, "ib_write_bw", f"-s {size}", 100, server_says=True)

    return beside_peers(
        f"memory of ib_write_bw's server at most, buffers of {size_name(2 * size)}",
        "B",
        run(),
        peak,
        ((PROCESS_VM, run(PROCESS_VM), peak, at_most(1.2)),),
    )


def rate_of_messages(bench, ends, operation, goal):
    read = tools.message_rate(8)
    row = Row(f"ib_{operation}_bw, 8 B, post list 64", "/s", lambda outputs: read(outputs["verbatim"]), goal)
    return Experiment(
        {"verbatim": bench.tools.perftest(ends, f"ib_{operation}_bw", "-s 8 -l 64 -N", MESSAGES)}, (row,)
    )


# ---- the wire ----

WIRE_MTU = 4200  # of a device: room for a path MTU of 4096
IPERF3_S = 1


def wire(bench, network):
    """Packets with ICRC, over the loopback device and over a veth pair, between unpinned processes."""
    a, b = network.host("a"), network.host("b")
    network.join(a, b, mtu=WIRE_MTU)
    loopback = Endpoint("loopback", "vb_lo", "127.0.0.1", 0, a.prefix)
    veth = a.endpoint(bench.tools.build), b.endpoint(bench.tools.build)
    for name, ends in (("loopback", (loopback, loopback)), ("veth", veth)):
        off = [tools.through(end, "env", "VERBATIM_LOCAL=off") for end in ends]
        for operation in ("write", "send", "read"):
            yield bandwidth_beside_others(bench, name, operation, off, ends)
        yield latency_beside_udp(bench, name, off, ends, "send", at_most(1.3))
        yield latency_beside_udp(bench, name, off, ends, "write", None)


def beside_peers(what, unit, run, read, peers):
    """A row for each peer: its name, its run, how its output is read, and the goal."""
    rows = tuple(
        Row(
            what,
            unit,
            lambda outputs: read(outputs["verbatim"]),
            goal,
            lambda outputs, peer=peer, figure=figure: figure(outputs[peer]),
            peer,
        )
        for peer, _, figure, goal in peers
    )
    return Experiment({"verbatim": run, **{peer: its_run for peer, its_run, _, _ in peers}}, rows)


def bandwidth_beside_others(bench, name, operation, off, ends, size=MIB):
    """Beside TCP, by iperf3 and by UCX, and beside what packets with an ICRC can be over the kernel's UDP."""
    iterations, own = BANDWIDTH_ITERATIONS[size], bench.tools
    return beside_peers(
        f"{name}: ib_{operation}_bw, {size_name(size)}, MTU 4096",
        "B/s",
        own.perftest(off, f"ib_{operation}_bw", f"-s {size} -m 4096", iterations),
        tools.bandwidth(size),
        (
            ("iperf3, one TCP stream", own.iperf3(ends, IPERF3_S), tools.tcp_bandwidth, at_least(1.3)),
            (
                "UDP stream, an ICRC a packet",
                own.udp_stream(ends, iterations),
                tools.named("bytes_per_s"),
                at_least(0.9),
            ),
            ("UCX tag_bw, tcp", own.ucx(ends, "tag_bw", size, iterations, "tcp"), tools.ucx_bandwidth, None),
        ),
    )


def latency_beside_udp(bench, name, off, ends, operation, goal, size=8):
    """Beside a ping-pong over bare sockets, and over such as the wire needs, to tell what is theirs and what
    is the library's."""
    ping_pong = functools.partial(bench.tools.udp_ping_pong, ends, size, LATENCY_ROUNDS)
    return beside_peers(
        f"{name}: ib_{operation}_lat, {size_name(size)}",
        "ns",
        bench.latency_run(off, operation, size),
        bench.latency_ns(size),
        (
            ("UDP ping-pong", ping_pong(), tools.udp_latency_ns, goal),
            ("UDP ping-pong, sockets as RoCEv2 needs them", ping_pong("-w"), tools.udp_latency_ns, None),
        ),
    )


def loss(bench, network):
    """A write bandwidth through a switch that loses packets, beside the same without loss; packets go one by
    one, not in batches."""
    a, b = network.host("a"), network.host("b")
    switch = network.join_by_switch(a, b, mtu=WIRE_MTU)
    ends = a.endpoint(bench.tools.build), b.endpoint(bench.tools.build)
    run = bench.tools.perftest(ends, "ib_write_bw", f"-s {64 * KIB}", 5000)
    read = tools.bandwidth(64 * KIB)

    def with_loss(share):
        switch.misbehave(loss=share)
        return run()

    for share in (0.001, 0.01, 0.05):
        row = Row(
            f"ib_write_bw, 64 KiB, {share * 100:g} % of packets lost",
            "B/s",
            lambda outputs: read(outputs["loss"]),
            None,
            lambda outputs: read(outputs["none"]),
            "without loss",
        )
        yield Experiment(
            {"loss": lambda share=share: with_loss(share), "none": lambda: with_loss(0.0)}, (row,)
        )


# ---- scale and cost ----


def scale(bench, _network):
    """Programs of our own, for what perftest does not measure."""
    cpus = tools.two_cpus()

    def own(name, *arguments):
        return bench.tools.own_program(LOOPBACK, name, *arguments)

    yield Experiment(
        {"many": own("qps", MANY_QPS, *cpus), "one": own("qps", 1, *cpus)},
        (
            beside(f"a send over {MANY_QPS:,} QPs, all carrying data", "send_ns", at_most(2), "one QP"),
            beside(f"a write over {MANY_QPS:,} QPs", "write_ns", at_most(2), "one QP"),
            beside(f"ping-pong beside {MANY_QPS - 1:,} idle QPs", "ping_pong_ns", None, "one QP"),
            alone(
                f"memory of one of {MANY_QPS:,} QPs, its queues of 4 included",
                "B",
                "many",
                "memory_bytes_per_qp",
                at_most(4 * KIB),
            ),
            alone(f"CPU time while {MANY_QPS:,} QPs wait", "%", "many", "idle_cpu_percent", at_most(0.1)),
        ),
    )
    yield Experiment(
        {"mesh": own("mesh", 64)},
        (alone("64 processes, all to all, messages", "/s", "mesh", "messages_per_s", None),),
    )
    yield Experiment(
        {"connect": own("connect", 3000, 64, *cpus)},
        (alone("rdma_cm: connections, 64 under way", "/s", "connect", "connections_per_s", at_least(5000)),),
    )
    yield clients_beside_process_vm(bench)
    for size, answers in ((4 * KIB, 300000), (MIB, 3000)):
        yield messenger_beside_tcp(bench, size, answers)
    yield Experiment(
        {"register": own("register", *cpus)},
        (
            alone("registering 4 KiB", "ns", "register", "register_4_kib_ns", at_most(2e3)),
            alone("registering 1 GiB", "ns", "register", "register_1_gib_ns", at_most(1e6)),
            alone("first write into that 1 GiB", "ns", "register", "first_use_1_gib_ns", None),
        ),
    )
    for where, pair in (("two CPUs", cpus), ("one CPU", (cpus[0], cpus[0]))):
        yield Experiment(
            {"wakeup": own("wakeup", *pair)},
            (
                Row(
                    f"completion event to running program, {where}",
                    "ns",
                    lambda outputs: tools.named("event_ns")(outputs["wakeup"]),
                    at_most(1.5),
                    lambda outputs: tools.named("eventfd_ns")(outputs["wakeup"]),
                    "eventfd",
                ),
            ),
        )


def clients_beside_process_vm(bench, count=200):
    """No region may move, nor anything be looked up, for a connection that carries a message or two."""
    name, what = "connections_per_s", f"{count} clients of a server, a process each: connections"
    rate, copying = tools.named(name), tools.through(LOOPBACK, "env", PROCESS_VM)
    pair = beside_peers(
        what,
        "/s",
        bench.tools.own_program(LOOPBACK, "clients", count),
        rate,
        ((PROCESS_VM, bench.tools.own_program(copying, "clients", count), rate, at_least(0.9)),),
    )
    return Experiment(pair.runs, (alone(what, "/s", "verbatim", name, at_least(1000)), *pair.rows))


def messenger_beside_tcp(bench, size, answers):
    def run(kind):
        return bench.tools.own_program(LOOPBACK, "messenger", kind, size, answers)

    rate = tools.named("bytes_per_s")
    return beside_peers(
        f"requests and answers of {size_name(size)} by events, three threads a side",
        "B/s",
        run("rdma"),
        rate,
        (("TCP", run("tcp"), rate, at_least(1.5)),),
    )


def beside(what, name, goal: Goal, peer_name):
    read = tools.named(name)
    return Row(
        what,
        "ns",
        lambda outputs: read(outputs["many"]),
        goal,
        lambda outputs: read(outputs["one"]),
        peer_name,
    )


def alone(what, unit, run, name, goal):
    read = tools.named(name)
    return Row(what, unit, lambda outputs: read(outputs[run]), goal)


PARTS = {"local": local, "wire": wire, "loss": loss, "scale": scale}

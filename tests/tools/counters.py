#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Counters: sums equal what was done, exactly, for each kind of request on each path (traffic.c), and what
perftest says that it has sent; ports count on when queue pairs and processes are gone.

usage: counters.py BUILD_DIR [PATTERN]
"""
import contextlib
import functools
import os
import re
import signal
import socket
import struct
import subprocess
import sys

import paths  # noqa: F401
import harness
import look
import packets as wire
from look import be_other, disguised, lacks_another_user, processes
from look import BUILD, LIMIT_S, VERBATIM, Failure, expect, looked, running, shown, verbatim, wait_for

TRAFFIC = os.path.join(BUILD, "tests/tools/traffic")
# What each kind's count and bytes are called; how many requests, of how many bytes.
KINDS = {
    "send": ("sends", "send_bytes", 70, 100),
    "write": ("writes", "write_bytes", 50, 3000),
    "read": ("reads", "read_bytes", 30, 5000),
    "atomic": ("atomics", "atomic_bytes", 20, 8),
}
FLUSH = {"flush": (None, None, 10, 4096)}  # which have no bytes of their own
NAMES = [name for kind in KINDS.values() for name in kind[:2]]
PATHS = {"local": {}, "wire": {"VERBATIM_LOCAL": "off"}}
# How a process of the host reaches another's memory.
COPIES = {way: {"VERBATIM_COPY": way} for way in ("mapped", "process_vm", "link")}
# What a type of queue pairs has, and the paths that it takes.
TYPES = {
    "rc": (list(KINDS), {**PATHS, **COPIES}),
    "uc": (["send", "write"], {"wire": PATHS["wire"]}),
    "ud": (["send"], PATHS),
    "raw": ([], {"wire": {}}),
}
TRUSTING = {"VERBATIM_ICRC": "ignore"}  # of packets that are written here
CASES = []


def case(function):
    CASES.append(function)
    return function


class Traffic:
    """traffic.c; it goes on with each line."""

    def __init__(self, mode, kinds, path, faults, qp_type, settings):
        words = [str(word) for kind in kinds for word in (kind, *{**KINDS, **FLUSH}[kind][2:])]
        self.process = subprocess.Popen(
            [VERBATIM, "run", TRAFFIC, mode, "vb_lo", qp_type, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **TYPES[qp_type][1][path], **settings, "VERBATIM_FAULTS": faults},
        )

    def await_word(self, word):
        expect(self.process.stdout.readline().strip(), word, "what the program says")

    def go_on(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@contextlib.contextmanager
def traffic(mode, kinds, path, faults="", qp_type="rc", settings=None):
    known = Traffic(mode, kinds, path, faults, qp_type, settings or {})
    try:
        if mode == "late":
            wait_for(lambda: any(qp["rnr_sent"] for qp in of_all("qps")), "a request without a receive")
            known.go_on()
        known.await_word("traffic")
        yield known
    finally:
        known.process.kill()
        known.process.communicate()


def wanted(kinds):
    """What the requester counts, and what the other end counts."""
    sent = dict.fromkeys(NAMES, 0)
    for kind in kinds:
        count_name, bytes_name, count, size = KINDS[kind]
        sent[count_name], sent[bytes_name] = count, count * size
    count, size = KINDS["send"][2:] if "send" in kinds else (0, 0)
    return {**sent, "receives": 0, "receive_bytes": 0, "failed": 0}, {
        **dict.fromkeys(NAMES, 0),
        "receives": count,
        "receive_bytes": count * size,
        "failed": 0,
    }


def added(rows):
    return {name: sum(row[name] for row in rows) for name in [*NAMES, "receives", "receive_bytes", "failed"]}


def of_all(kind):
    return [row for process in looked("show", kind) for row in process[kind]]


def counted(mode, kinds, path, qp_type):
    requester, other = wanted(kinds)
    both = {name: requester[name] + other[name] for name in requester}
    with traffic(mode, kinds, path, qp_type=qp_type) as known:
        found = [{name: qp[name] for name in requester} for qp in of_all("qps")]
        key = lambda row: sorted(row.items())  # noqa: E731
        expect(sorted(found, key=key), sorted([requester, other], key=key), "queue pairs")
        expect(added(of_all("ports")), both, "ports")
        expect(added(looked("stats")), both, "processes")
        requests = sum(KINDS[kind][2] for kind in kinds)
        size = sum(KINDS[kind][2] * KINDS[kind][3] for kind in kinds)
        shared = sum(row["shared"] for row in of_all("ports"))
        expect(shared, 0 if path == "wire" else requests, "requests by shared memory")
        shared = sum(row["shared_bytes"] for row in of_all("ports"))
        expect(shared, 0 if path == "wire" else size, "bytes by shared memory")
        known.go_on()
        known.await_word("gone")
        expect(of_all("qps"), [], "queue pairs that are gone")
        expect(added(of_all("ports")), both, "ports when the queue pairs are gone")


for a_type, (a_types_kinds, a_types_paths) in TYPES.items():
    for a_path in a_types_paths:
        for a_mode in ["two"] if a_path in COPIES else ["one", "two"]:
            for some in [[kind] for kind in a_types_kinds] + [a_types_kinds] * (len(a_types_kinds) > 1):

                def exact(mode=a_mode, path=a_path, kinds=tuple(some), qp_type=a_type):
                    counted(mode, kinds, path, qp_type)

                where = f"{a_mode}_process{'es' * (a_mode == 'two')}_{a_path}"
                exact.__name__ = f"exact__{a_type}_{'_'.join(some)}__{where}"
                CASES.append(exact)


@case
def exact__rc_flush():
    """FLUSHes are requests, and packets, without bytes."""
    count = FLUSH["flush"][2]
    for path in (*PATHS, *COPIES):
        with traffic("two", ["flush"], path):
            here = 0 if path == "wire" else count
            names = {"flushes": count, "requests": count, "bytes": 0, "shared": here, "shared_packets": here}
            for what, rows in ("ports", of_all("ports")), ("processes", looked("stats")):
                found = {name: sum(row[name] for row in rows) for name in names}
                expect(found, names, f"{path}: {what}")


@case
def show__fits_100_columns():
    with traffic("two", list(KINDS), "local"):
        lines = verbatim("show", "qps").splitlines()
        expect(len(lines) > 4, True, "tables")
        expect([line for line in lines if len(line) > 100], [], "longer lines")


@case
def exact__although_packets_are_lost():
    with traffic("two", list(KINDS), "wire", "drop 5%"):
        sent = next(row for row in looked("stats") if row["requests"])
        expect({name: sent[name] for name in NAMES}, {name: wanted(KINDS)[0][name] for name in NAMES}, "requests")
        expect(sum(row["receives"] for row in looked("stats")), KINDS["send"][2], "receives")
        rows = looked("stats")
        expect(sum(row["resent"] for row in rows) > 0, True, "packets that were sent again")
        expect(sum(row["sleeps"] > 0 and row["asleep_ns"] > 0 for row in rows), 2, "threads that have slept")


TROUBLE = (
    *("resent", "timeouts", "rnr_received", "sequence_received", "naks_received"),
    *("rnr_sent", "sequence_sent", "naks_sent", "duplicates", "early"),
)


def troubles(kind, path="wire", faults="", mode="two"):
    """What the requester counts beside its requests, and what the other end does; zeros left out."""
    with traffic(mode, [kind], path, faults):
        rows = of_all("qps")
    name = KINDS[kind][0]
    expect(added(rows)[name], KINDS[kind][2], f"{name} in all")
    ends = {bool(row[name]): {name: row[name] for name in TROUBLE if row[name]} for row in rows}
    return ends[True], ends[False]


@case
def trouble__of_a_lost_request():
    """There is one at a time, so no later one shows the gap: a probe does, long before the ACK timeout."""
    requester, other = troubles("atomic", faults="drop #5 of request out")
    other.pop("duplicates", 0)  # beside load another probe may go while the answer is on its way
    expect((set(requester), other), ({"resent"}, {}), "both ends")


@case
def trouble__of_a_gap():
    """In the middle of a WRITE of three packets."""
    requester, other = troubles("write", faults="drop #5 of request out")
    expect(set(requester), {"resent", "sequence_received"}, "what the requester counts")
    expect(other.get("early", 0) > 0, True, f"packets behind the gap, of {other}")
    expect(other.get("sequence_sent"), requester["sequence_received"], f"NAKs of {other}")


@case
def trouble__of_a_doubled_request():
    """Beside load a probe may be another duplicate."""
    requester, other = troubles("write", faults="duplicate #5 of request out")
    expect(1 <= other.get("duplicates", 0) <= 1 + requester.get("resent", 0), True, f"{requester}, {other}")


@case
def trouble__of_a_late_receive():
    """A probe that meets no receive is told so, too, but its requester may have the answer already."""
    for path in PATHS:
        requester, other = troubles("send", path, mode="late")
        sent, got = other.get("rnr_sent", 0), requester.get("rnr_received", 0)
        expect(sent > 0, True, f"{path}: RNR NAKs of {other}")
        if path == "wire":
            expect(0 < got <= sent, True, f"RNR NAKs: {sent} sent, {got} received")


@case
def trouble__of_a_receive_that_never_comes():
    """It is no NAK that refuses for good, though the connection ends with it."""
    for path in PATHS:
        with traffic("starved", ["send"], path):
            rows = of_all("qps")
        found = {row["failed"]: {name for name in TROUBLE if row[name]} for row in rows}
        expect(found.get(1, set()) - {"resent"}, {"rnr_received"}, f"{path}: what the requester counts")
        expect(found.get(0), {"rnr_sent"}, f"{path}: what the other end counts")


@case
def fork__begins_anew():
    """A child that opens a device has counted nothing of what its parent did."""
    with traffic("parent", ["send"], "wire"):
        rows = {row["requests"] > 0: row for row in looked("stats")}
        expect(sorted(rows), [False, True], "a child without requests, and its parent")
        child, parent = rows[False], rows[True]
        expect(parent["packets_out"] > 0 and parent["packets_in"] > 0, True, "packets of the parent")
        expect(child["packets_out"], 0, "packets that the child has sent")
        expect(child["polls"] < parent["polls"], True, f"polls: {child['polls']}, {parent['polls']}")


def dropped(reason):
    return sum(row["dropped_" + reason] for row in looked("stats"))


@case
def drops__say_why():
    """A datagram that is no RoCE packet comes to a process that listens."""
    with traffic("two", ["send"], "wire"), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(b"no packet of RoCE, but as long as one" * 2, ("127.0.0.1", 4791))
        wait_for(lambda: dropped("bad_icrc"), "the drop is counted")
        expect(sum(row["dropped"] for row in looked("stats")) > 0, True, "drops of all kinds")


@case
def drops__of_nothing():
    """An empty datagram is a packet of UDP, and none of RoCE."""
    with traffic("one", ["send"], "wire"), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        before = looked("stats")[0]["packets_in"]
        stranger.sendto(b"", ("127.0.0.1", 4791))
        wait_for(lambda: dropped("bad_icrc"), "the drop is counted")
        wait_for(lambda: looked("stats")[0]["packets_in"] > before, "the packet is counted")


RC_SEND, UD_SEND, GSI = 0x04, 0x64, 1  # opcodes; a queue pair
DETH = bytes(5) + (2).to_bytes(3, "big")


def packet(opcode, qpn, rest=b""):
    """From the BTH on, with a checksum that is none."""
    return bytes([opcode, 0x40, 0xFF, 0xFF, 0]) + qpn.to_bytes(3, "big") + bytes(4) + rest + bytes(4)


def send_stray(qp, data):
    """From the address that the queue pair is connected to, if it is."""
    address = qp["peer"] or "127.0.0.1"
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(data, (address, 4791))


@case
def drops__are_counted_whoever_finds_them():
    own, of_another_slot = lambda qpn: qpn, lambda qpn: (qpn + 0x1000) & 0xFFFFFF  # noqa: E731
    for qp_type, reason, opcode, to, rest in (
        ("ud", "no_qp", UD_SEND, of_another_slot, DETH),
        ("ud", "malformed", RC_SEND, own, b""),
        ("ud", "malformed", UD_SEND, lambda _: GSI, DETH + bytes(16)),
        ("uc", "unexpected", RC_SEND, own, b""),
    ):
        with traffic("one", ["send"], "wire", qp_type=qp_type, settings=TRUSTING):
            qp = of_all("qps")[0]
            qpn, before = to(int(qp["qpn"], 16)), dropped(reason)
            send_stray(qp, packet(opcode, qpn, rest))
            what = f"a packet 0x{opcode:02x} for QP 0x{qpn:06x} at a {qp_type} is counted as {reason}"
            wait_for(lambda: dropped(reason) > before, what)  # noqa: B023


QKEY = 0x1234  # of traffic.c


def send_datagram(qpn, qkey, source_slot):
    """As a queue pair of a slot would send it over the wire, with a right checksum."""
    rest = struct.pack("!II", qkey, source_slot << 12 | 7) + b"hello..."
    data = packet(UD_SEND, qpn, rest)[:-4]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind(("127.0.0.1", 0))
        udp = struct.pack("!HHHH", sender.getsockname()[1], 4791, 8 + len(data) + 4, 0) + data
        ends = socket.inet_aton("127.0.0.1") * 2
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp) + 4, 0, 0x4000, 64, socket.IPPROTO_UDP, 0) + ends
        sender.sendto(data + wire.icrc(ip, 20, udp), ("127.0.0.1", 4791))


@case
def drops__of_another_users_datagrams_in_the_name_of_a_process_that_takes_links():
    """It would not send them by UDP."""
    if why := lacks_another_user():
        return why
    server = running("rping -s -a 127.0.0.1 -p 7475")
    with server as (other,), traffic("one", ["send"], "local", qp_type="ud"):
        wait_for(lambda: other in processes(), "the server")
        slot, qpn = processes()[other]["slot"], int(of_all("qps")[0]["qpn"], 16)
        before = added(of_all("qps"))["receives"]

        def send_both(told):
            send_datagram(qpn, QKEY, slot)
            send_datagram(qpn, QKEY + 1, 4001)  # which no process has
            told.recv(1)

        with disguised(be_other, send_both):
            wait_for(lambda: dropped("forged"), "the forged one is counted")
            wait_for(lambda: dropped("qkey"), "the other one comes to the queue pair, but has another Q_Key")
        expect((dropped("forged"), dropped("qkey"), dropped("bad_icrc")), (1, 1, 0), "drops")
        expect(added(of_all("qps"))["receives"], before, "datagrams that have come")
    return None


@case
def drops__of_datagrams_to_nobody():
    """The sender finds that nobody has the slot, or who gets the packet of the wire."""
    for path in PATHS:
        with traffic("lost", ["send"], path, qp_type="ud"):
            wait_for(lambda: dropped("no_qp"), f"{path}: drops")
            if path == "local":
                expect(dropped("no_qp"), KINDS["send"][2], "drops")


@case
def drops__of_frames_without_a_receive():
    if not harness.may_open_packet_sockets():
        return "there is no right to packet sockets"
    with traffic("frames", ["send"], "wire", qp_type="raw"):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"a frame", ("127.0.0.1", 9))
        wait_for(lambda: dropped("no_receive"), "the drop is counted")
    return None


@case
def drops__are_counted_beside_a_stopped_receiver():
    """Its ring of datagrams fills up. After a while they are dropped, and no longer waited with."""
    if absent := harness.missing_programs("ib_send_bw"):
        return absent
    with running("ib_send_bw -c UD -D 60", "ib_send_bw -c UD -D 60 127.0.0.1") as (server, client):
        wait_for(lambda: sum(row["sends"] for row in looked("stats")), "datagrams go")
        os.kill(server, signal.SIGSTOP)
        wait_for(
            lambda: any(
                row["pid"] == client and row["dropped_no_room"] for row in looked("stats", timeout=1)
            ),
            "drops",
        )


# ---- the tree ----

COUNTERS = "/sys/class/infiniband/vb_lo/ports/1/counters/"


def port_counter(name):
    return int(verbatim("run", "cat", COUNTERS + name))


HW_COUNTERS = "/sys/class/infiniband/vb_lo/ports/1/hw_counters/"


def needs_own_tree(function):
    @functools.wraps(function)
    def run():
        if "vb_lo" not in verbatim("run", "ls", "/sys/class/infiniband"):
            return "there is no place for the tree"
        if os.environ[harness.ISOLATED_BY] == "no":
            return "without namespaces, other tests' processes count in the same tree, and may end it"
        return function()

    return run


@contextlib.contextmanager
def user_of_tree():
    """The tree goes with its last user, and what ports have counted with it."""
    with program(["sh", "-c", f"ls {HW_COUNTERS} && exec sleep 600"]) as holder:
        holder.stdout.readline()
        yield


NEW_NETWORK, SETS_FLAGS, IS_UP = 0x40000000, 0x8914, 0x1

# Looks at a counter in its own network namespace, and at once in another, where nothing runs.
MOVING = f"""
import ctypes, fcntl, os, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
def count():
    with open("{HW_COUNTERS}rdma_sends") as counter:
        return int(counter.read())
here = os.open("/proc/self/ns/net", os.O_RDONLY)
assert not libc.unshare({NEW_NETWORK}), os.strerror(ctypes.get_errno())
with socket.socket() as inet:
    fcntl.ioctl(inet, {SETS_FLAGS}, struct.pack("16sH22x", b"lo", {IS_UP}))
there = os.open("/proc/self/ns/net", os.O_RDONLY)
count()  # the tree is made
libc.setns(here, {NEW_NETWORK})
before = count()
libc.setns(there, {NEW_NETWORK})
led = os.open("{HW_COUNTERS}rdma_sends", os.O_RDONLY)
with open(f"/proc/self/fd/{{led}}") as counter:  # a name whose reads update nothing
    print(before, int(counter.read()))
"""


@case
@needs_own_tree
def tree__of_the_network_that_a_process_is_in():
    with traffic("two", ["send"], "local"):
        before, after = map(int, verbatim("run", sys.executable, "-c", MOVING).split())
    expect((before >= KINDS["send"][2], after), (True, 0), f"SENDs here ({before}) and there")
    return None


@case
@needs_own_tree
def tree__readers_in_two_pid_namespaces():
    """What one reader has noted of a process, the other adds nothing to: pids are other ones there."""
    inside = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode:
        return "no pid namespaces here"
    read = [VERBATIM, "run", "cat", HW_COUNTERS + "rdma_sends"]
    with user_of_tree():
        with traffic("two", ["send"], "local"):
            found = [
                int(harness.run(words, capture_output=True, text=True, check=True, timeout=LIMIT_S).stdout)
                for words in (read, [*inside, *read], read, [*inside, *read])
            ]
    expect(found, [found[0]] * 4, "SENDs that readers saw")
    return None


# Looks at a counter, and again meanwhile with a single descriptor left.
WITHOUT_DESCRIPTORS = f"""
import os, resource, time
def count():
    with open("{HW_COUNTERS}rdma_sends") as counter:
        return int(counter.read())
before = count()
lowest = os.dup(0)
os.close(lowest)
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
time.sleep(0.1) # what processes said is stale then
resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 1, limits[1]))
try:
    count()
except OSError:
    pass
resource.setrlimit(resource.RLIMIT_NOFILE, limits)
time.sleep(0.1)
print(before, count())
"""


@case
@needs_own_tree
def tree__reader_without_descriptors():
    """It takes no process for gone that it could not ask."""
    with traffic("two", ["send"], "local"):
        before, after = map(int, verbatim("run", sys.executable, "-c", WITHOUT_DESCRIPTORS).split())
    expect((before >= KINDS["send"][2], after), (True, before), f"SENDs ({before}) before and after")
    return None


@case
@needs_own_tree
def tree__reader_that_may_write_no_files():
    """It sees what others wrote, and does not end by SIGXFSZ."""
    read = f"cat {HW_COUNTERS}rdma_sends"
    with user_of_tree():
        with traffic("two", ["send"], "local"):
            seen, limited = (verbatim("run", "sh", "-c", before + read) for before in ("", "ulimit -f 0; "))
    expect(limited, seen, "SENDs")
    return None


@case
@needs_own_tree
def tree__sums_of_processes_that_ended_one_after_the_other():
    def sends():
        return int(verbatim("run", "cat", HW_COUNTERS + "rdma_sends"))

    with user_of_tree():
        found = [sends()]
        for _ in range(3):
            with traffic("two", ["send"], "local"):
                found.append(sends())
            wait_for(lambda: not looked("ps"), "the processes are gone")
            found.append(sends())
    each = KINDS["send"][2]
    expect([number - found[0] for number in found], [each * ((n + 1) // 2) for n in range(7)], "SENDs")
    return None


@case
@needs_own_tree
def tree__moves_by_what_shared_memory_carried():
    names = ["port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets"]
    size = sum(count * each for _, _, count, each in KINDS.values())
    packets = sum(max(count, count * each // 1024) for _, _, count, each in KINDS.values())
    with user_of_tree():
        before = {name: port_counter(name) for name in names}
        with traffic("two", list(KINDS), "local") as two:
            now = {name: port_counter(name) for name in names}
            for name in names[:2]:
                expect(now[name] - before[name] >= size // 4, True, name)
            for name in names[2:]:
                expect(now[name] - before[name] >= packets, True, name)
            two.process.kill()
            two.process.wait()
        wait_for(lambda: not looked("ps"), "the processes are gone")
        after = {name: port_counter(name) for name in names}
        expect([name for name in names if after[name] < now[name]], [], "counters that went back")
    return None


# ---- perftest ----

TOOLS = {"send": "ib_send_bw", "write": "ib_write_bw", "read": "ib_read_bw", "atomic": "ib_atomic_bw"}
HOLD = os.path.join(BUILD, "tests/tools/libhold.so")
ITERATIONS, PORT = 1000, 18602


def listens(port):
    """Connections that have ended are in the table, too."""
    with open("/proc/net/tcp", encoding="ascii") as table:
        return re.search(rf"^ *\d+: [0-9A-F]+:{port:04X} [0-9A-F:]+ 0A ", table.read(), re.M)


def held(stderr):
    for line in stderr:
        if line == "held\n":
            return
    raise Failure("the client did not come to its end")


@contextlib.contextmanager
def program(command, **environment):
    process = subprocess.Popen(
        [VERBATIM, "run", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def perftest(kind, path):
    """What the client has counted when it ends is what it says of its iterations."""
    command = f"{TOOLS[kind]} -F -d vb_lo -x 0 -p {PORT} -n {ITERATIONS}".split()
    if harness.missing_programs(command[0]):
        return f"{command[0]} is not installed"
    size = 8 if kind == "atomic" else 4096
    command += [] if kind == "atomic" else ["-s", str(size)]
    with program(command, **PATHS[path]):
        wait_for(lambda: listens(PORT), "the server listens")
        with program([*command, "127.0.0.1"], LD_PRELOAD=HOLD, **PATHS[path]) as client:
            held(client.stderr)
            row = next(row for row in looked("stats") if row["pid"] == client.pid)
            client.stdin.write("\n")
            client.stdin.flush()
            output = client.stdout.read()
            said = re.search(rf"^ {size} +(\d+) ", output, re.M)
            what = f"iterations that it reports: {output}{client.stderr.read()}"
            expect(said and int(said[1]), ITERATIONS, what)
            names = KINDS[kind][:2]
            expect([row[name] for name in names], [ITERATIONS, ITERATIONS * size], f"{names}")
            expect(row["requests"], ITERATIONS, "requests of all kinds")
    return None


for a_path in PATHS:
    for a_kind in KINDS:

        def equals(kind=a_kind, path=a_path):
            return perftest(kind, path)

        equals.__name__ = f"perftest__{a_kind}_{a_path}"
        CASES.append(equals)


if __name__ == "__main__":
    harness.isolate()
    harness.require_library(BUILD)
    if harness.missing_programs("rping"):
        print("1..0 # SKIP rping is needed")
        sys.exit()
    look.LOGS = harness.log_directory(BUILD, "counters")
    sys.exit(look.run_cases(CASES))

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""rdma(8), unmodified, under `verbatim run`: what it shows is what is there; and requests that it would not
make.

usage: rdma.py BUILD_DIR [PATTERN]
"""
import errno
import json
import os
import shutil
import struct
import subprocess
import sys

import paths  # noqa: F401
import harness
import look
from look import BUILD, LIMIT_S, VERBATIM, Failure, expect, pinging, running, shown, verbatim, wait_for

CASES = []
MANY, SHARERS = 700, 400


def case(function):
    CASES.append(function)
    return function


def rdma(*args, status=0, user=(), limit=LIMIT_S):
    done = harness.run(
        [*user, VERBATIM, "run", "rdma", *args], capture_output=True, text=True, check=False, timeout=limit
    )
    expect(done.returncode, status, f"exit status of rdma {' '.join(args)} ({done.stderr.strip()})")
    return done.stdout if status == 0 else done.stderr


def rows(*args, **options):
    """In JSON; some versions print nothing for an empty list, and some print one list more."""
    text = rdma("-j", *args, **options).strip()
    found = json.loads(text) if text else []
    return [row for row in found if row]


def of_process(pid, *args):
    return [row for row in rows(*args) if row.get("pid") == pid]


@case
def devices__are_those_of_the_tree():
    tree = verbatim("run", "ls", "/sys/class/infiniband").split()
    expect(sorted(row["ifname"] for row in rows("dev")), sorted(tree), "devices")
    device = next(row for row in rows("dev") if row["ifname"] == "vb_lo")
    guid = verbatim("run", "cat", "/sys/class/infiniband/vb_lo/node_guid").strip()
    expect((device["node_type"], device["node_guid"]), ("ca", guid), "vb_lo")
    expect([row["ifname"] for row in rows("dev", "show", "vb_lo")], ["vb_lo"], "one device")
    rdma("dev", "show", "vb_nothing", status=1)
    (detailed,) = rows("-d", "dev", "show", "vb_lo")
    caps = {"XRC", "MEM_WINDOW", "MEM_MGT_EXTENSIONS", "SRQ_RESIZE"}
    expect(caps <= set(detailed["caps"]), True, "what it can do")


@case
def devices__of_many_interfaces():
    if os.environ[harness.ISOLATED_BY] == "no":
        return "no network namespace here"
    names = [(f"one{n}", f"two{n}") for n in range(32)]
    ends = [end for pair in names for end in pair]

    def ip(*lines):
        told = {"input": "\n".join(lines), "text": True, "capture_output": True}
        return subprocess.run(["ip", "-batch", "-"], check=False, **told).returncode

    try:
        if ip(*(f"link add name {one} type veth peer name {two}" for one, two in names)):
            return "no veth interfaces here"
        ip(*(f"address add 10.77.{n}.1/24 dev {end}" for n, end in enumerate(ends)))
        ip(*(f"link set {end} up" for end in ends))
        tree = verbatim("run", "ls", "/sys/class/infiniband").split()
        expect(len(tree) > 64, True, f"devices of the tree ({len(tree)})")
        expect(sorted(row["ifname"] for row in rows("dev", limit=5 * LIMIT_S)), sorted(tree), "devices")
    finally:
        ip(*(f"link delete {one}" for one, _ in names))
    return None


@case
def links__name_their_interfaces():
    link = next(row for row in rows("link") if row["ifname"] == "vb_lo")
    expect(
        (link["port"], link["state"], link["physical_state"], link["netdev"], link["netdev_index"]),
        (1, "ACTIVE", "LINK_UP", "lo", 1),
        "the link of vb_lo",
    )
    expect([row["netdev"] for row in rows("link", "show", "vb_lo/1")], ["lo"], "one link")


@case
def resources__of_two_processes():
    with pinging() as (server, client):
        for pid in server, client:
            ours = shown(pid)
            (qp,) = of_process(pid, "resource", "show", "qp")
            expect(
                (qp["ifname"], qp["lqpn"], qp["rqpn"], qp["type"], qp["state"]),
                ("vb_lo", int(ours["qps"][0]["qpn"], 16), int(ours["qps"][0]["peer_qpn"], 16), "RC", "RTS"),
                "the queue pair",
            )
            expect(qp["comm"], "rping", "the program")
            (cq,) = of_process(pid, "resource", "show", "cq")
            expect(cq["cqe"], ours["cqs"][0]["capacity"], "entries of the completion queue")
            regions = of_process(pid, "resource", "show", "mr")
            expect(
                sorted(mr["mrlen"] for mr in regions),
                sorted(mr["bytes"] for mr in ours["mrs"]),
                "lengths of regions",
            )
            domains = of_process(pid, "resource", "show", "pd")
            expect(len(domains), len(ours["pds"]), "domains")
            expect(
                {mr["pdn"] for mr in regions} | {qp["pdn"]} <= {pd["pdn"] for pd in domains},
                True,
                "domains are known",
            )
            expect(
                cq["ctxn"] in {ctx["ctxn"] for ctx in of_process(pid, "resource", "show", "ctx")},
                True,
                "the context is known",
            )
        state = [
            sorted(row["state"] for row in of_process(pid, "resource", "show", "cm_id"))
            for pid in (server, client)
        ]
        expect(state, [["CONNECT", "LISTEN"], ["CONNECT"]], "identifiers")
        listening = next(
            row for row in of_process(server, "resource", "show", "cm_id") if row["state"] == "LISTEN"
        )
        source = listening["src-addr"], str(
            listening.get("src-port", "")
        )  # versions differ in what the port is behind
        expect((listening["ps"], ":".join(filter(None, source))), ("TCP", "127.0.0.1:7475"), "who listens")


@case
def resources__one_and_the_sum():
    with pinging() as (server, _):
        (qp,) = of_process(server, "resource", "show", "qp")
        found = rows("resource", "show", "qp", "link", "vb_lo/1", "lqpn", str(qp["lqpn"]))
        expect([row["lqpn"] for row in found], [qp["lqpn"]], "the queue pair asked for")
        total = next(row for row in rows("resource") if row["ifname"] == "vb_lo")
        expect((total["qp"], total["cq"], total["cm_id"]), (2, 2, 3), "counts")
    total = next(row for row in rows("resource") if row["ifname"] == "vb_lo")
    expect((total["qp"], total["mr"], total["ctx"]), (0, 0, 0), "counts when nothing runs")


@case
def resources__queues_and_who_shares_them():
    if absent := harness.missing_programs("ibv_srq_pingpong"):
        return absent
    command = "ibv_srq_pingpong -g 0 -d vb_lo -p 18597 -q 5 -n 1000000000"
    with running(command, command + " 127.0.0.1") as pids:
        for pid in pids:
            wait_for(lambda pid=pid: len(of_process(pid, "resource", "show", "qp")) == 5, "queue pairs")
            (srq,) = of_process(pid, "resource", "show", "srq")
            # a list, or a text of numbers with commas, as versions differ
            users = srq["lqpn"] if isinstance(srq["lqpn"], list) else str(srq["lqpn"]).split(",")
            wanted = sorted(qp["lqpn"] for qp in of_process(pid, "resource", "show", "qp"))
            expect(sorted(int(user) for user in users), wanted, "queue pairs of the shared queue")


# Of a command without anything else: the errno of the answer (netlink(7)).
ASKING = """
import socket, struct, sys
rdma = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 20)
rdma.bind((0, 0))
rdma.send(struct.pack("=IHHII", 16, 5 << 10 | int(sys.argv[1]), 5, 1, 0))
print(struct.unpack_from("=i", rdma.recv(4096), 16)[0])
"""


@case
def devices__are_neither_made_nor_removed():
    commands = {"new link": 3, "delete link": 4, "raw queue pair": 19, "new": 26, "delete": 27}
    for name, command in commands.items():
        said = verbatim("run", "python3", "-c", ASKING, str(command))
        expect(int(said), -errno.EPERM, name)


@case
def resources__more_than_a_socket_holds():
    flood = f"ib_write_bw -F -d vb_lo -x 0 -p 18598 -q {MANY} -t 4 -D 600"
    if harness.missing_programs(flood):
        return "ib_write_bw is needed"
    with running(flood, flood + " 127.0.0.1") as pids:

        def numbers(pid):
            return [row["lqpn"] for row in of_process(pid, "resource", "show", "qp")]

        for pid in pids:
            wait_for(
                lambda pid=pid: len(set(numbers(pid))) == len(numbers(pid)) == MANY, f"{MANY} queue pairs"
            )
    return None


# How many messages there are of all queue pairs of the first device, for a program that reads late from a
# socket which holds one of them at a time. The last is a NLMSG_DONE.
LATE_READER = """
import socket, struct, sys, time
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 20)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
s.bind((0, 0))
s.send(struct.pack("=IHHIIHHI", 24, 5 << 10 | 10, 0x301, 1, 0, 8, 1, 0))
time.sleep(float(sys.argv[1]))
s.settimeout(20)
count = 1
while struct.unpack_from("=H", s.recv(65536), 4)[0] != 3:
    count += 1
print(count)
"""


@case
def resources__to_a_reader_that_takes_its_time():
    """As one does whose output goes to a pager."""
    if absent := harness.missing_programs("ibv_srq_pingpong"):
        return absent
    command = "ibv_srq_pingpong -g 0 -d vb_lo -p 18595 -q 30 -n 1000000000"
    with running(command, command + " 127.0.0.1") as pids:
        for pid in pids:
            wait_for(lambda pid=pid: len(of_process(pid, "resource", "show", "qp")) == 30, "queue pairs")
        counts = [int(verbatim("run", sys.executable, "-c", LATE_READER, seconds)) for seconds in ("0", "12")]
        expect(counts[0] > 3 and counts[0] == counts[1], True, f"messages ({counts})")
    return None


# Asks for all devices without reading: how it ends, and how many threads are left when the socket is closed.
NO_READER = """
import os, socket, struct, time
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 20)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
s.bind((0, 0))
try:
    for _ in range(1000):
        s.send(struct.pack("=IHHII", 16, 5 << 10 | 1, 0x301, 1, 0))
except OSError as error:
    print(error.errno)
s.close()
while len(os.listdir("/proc/self/task")) > 1:
    time.sleep(0.01)
"""


@case
def requests__without_a_reader():
    said = verbatim("run", sys.executable, "-c", NO_READER)
    expect(said.split(), [str(errno.ENOBUFS)], "how it ends")


# Lengths of the messages with all shared receive queues.
SHARED_QUEUES = """
import socket, struct
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 20)
s.bind((0, 0))
s.send(struct.pack("=IHHIIHHI", 24, 5 << 10 | 23, 0x301, 1, 0, 8, 1, 0))
while True:
    data = s.recv(65536)
    if struct.unpack_from("=H", data, 4)[0] in (2, 3):
        break
    print(len(data))
"""


@case
def resources__more_sharers_than_a_message_holds():
    """No message is longer than what rdma(8) receives at a time."""
    sharing = f"ib_send_bw -F --use-srq -d vb_lo -x 0 -p 18596 -q {SHARERS} -t 4 -r 512 -D 600"
    if harness.missing_programs(sharing):
        return "ib_send_bw is needed"
    with running(sharing, sharing + " 127.0.0.1") as pids:
        for pid in pids:
            wait_for(lambda pid=pid: len(of_process(pid, "resource", "show", "qp")) == SHARERS, "queue pairs")
        found = []

        def has_long_messages():
            found[:] = map(int, verbatim("run", sys.executable, "-c", SHARED_QUEUES).split())
            return sum(found) > 1500

        wait_for(has_long_messages, lambda: f"messages with many queue pairs ({found})")
        expect([length for length in found if length > 4096], [], f"long ones of {found}")
    return None


@case
def statistics__are_the_counters_of_the_tree():
    names = set(verbatim("run", "ls", "/sys/class/infiniband/vb_lo/ports/1/hw_counters").split())
    link = next(row for row in rows("statistic", "show", "link") if row["ifname"] == "vb_lo")
    expect(names <= set(link), True, f"counters {sorted(names)}")
    expect(rows("statistic", "qp"), [], "counters of queue pairs")


@case
def changes__are_refused():
    for change in (
        ("dev", "set", "vb_lo", "name", "other"),
        ("link", "add", "rxe0", "type", "rxe", "netdev", "lo"),
        ("link", "delete", "vb_lo"),
        ("system", "set", "netns", "shared"),
    ):
        expect("not permitted" in rdma(*change, status=1), True, f"refusal of {' '.join(change)}")
    expect("vb_lo" in [row["ifname"] for row in rows("dev")], True, "the device is still there")


@case
def resources__of_another_user():
    other = ("setpriv", "--reuid", str(look.OTHER_USER), "--clear-groups")
    library = os.path.join(BUILD, "lib", "libibverbs.so.1")
    if os.geteuid() != 0 or subprocess.run([*other, "test", "-r", library], check=False).returncode:
        return "there is no other user to be, or he cannot read the library"
    with pinging() as (server, _):
        expect(len(of_process(server, "resource", "show", "mr")) > 0, True, "regions that the user sees")
        expect(rows("resource", "show", "mr", user=other), [], "regions that another sees")
        expect("vb_lo" in [row["ifname"] for row in rows("dev", user=other)], True, "another user's device")
    shutil.rmtree(f"/dev/shm/verbatim-{look.OTHER_USER}", ignore_errors=True)
    return None


# Requests by hand, in a process under `verbatim run`. Prints the types of the messages that come, and errors.
RAW = """
import json, socket, struct, sys
CAPPED = 0x100
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 20)
s.bind((0, 0))
s.settimeout(0.3)
found = []
for request in json.loads(sys.stdin.read()):
    s.send(bytes.fromhex(request))
    said = []
    try:
        while True:
            data = s.recv(65536)
            length, kind, flags, seq, port = struct.unpack_from("=IHHII", data)
            error = struct.unpack_from("=i", data, 16)[0] if kind == 2 else 0
            is_whole = length == len(data) and (kind != 2 or length == 36 and flags & CAPPED)
            said.append([kind, error, bool(is_whole), seq, port == s.getsockname()[0]])
    except TimeoutError:
        pass
    found.append(said)
print(json.dumps(found))
"""


def message(command, flags, body=b"", client=5, length=None):
    return (
        struct.pack(
            "=IHHII", 16 + len(body) if length is None else length, client << 10 | command, flags, 77, 0
        )
        + body
    )


def attribute(kind, value, length=None):
    return struct.pack("=HH", 4 + len(value) if length is None else length, kind) + value


@case
def requests__of_any_shape():
    request, ack, dump = 1, 4, 0x300
    get, qps = 1, 10
    wanted = {
        "a header cut short": (message(get, request)[:12], []),
        "longer than it is": (message(get, request | dump, length=4000), []),
        "shorter than a header": (message(get, request | dump, length=8), []),
        "no request": (message(get, dump), []),
        "no request that is acknowledged": (message(get, ack), [(2, 0)]),
        "a message of netlink's own": (message(1, request | ack, client=0), [(2, 0)]),
        "longer than a page": (message(get, request | ack, attribute(2000, bytes(8000))), [(2, -22)]),
        "one bit of those of a dump": (
            message(qps, request | 0x100, attribute(1, struct.pack("=I", 0))),
            [(3, 0)],
        ),
        "no device": (message(get, request | ack), [(2, -22)]),
        "a device that is not there": (
            message(get, request | ack, attribute(1, struct.pack("=I", 999))),
            [(2, -22)],
        ),
        "a port that is not there": (
            message(
                qps, request | dump, attribute(1, struct.pack("=I", 0)) + attribute(3, struct.pack("=I", 9))
            ),
            [(2, -22)],
        ),
        "an attribute beyond the end": (
            message(get, request | ack, attribute(1, b"\0\0\0\0", length=400)),
            [(2, -22)],
        ),
        "an attribute without a value": (message(get, request | ack, attribute(1, b"")), [(2, -22)]),
        "an attribute of length 0": (
            message(get, request | ack, attribute(1, b"\0\0\0\0", length=0)),
            [(2, -22)],
        ),
        "another client": (message(get, request | ack, client=4), [(2, -22)]),
        "a command that is not there": (message(200, request | ack), [(2, -95)]),
        "one that is right": (
            message(get, request | ack, attribute(1, struct.pack("=I", 0))),
            [(5 << 10 | get, 0), (2, 0)],
        ),
        "two in a datagram": (message(get, request | ack, client=4) * 2, [(2, -22)] * 2),
        "all queue pairs of none": (
            message(qps, request | dump, attribute(1, struct.pack("=I", 0))),
            [(3, 0)],
        ),
    }
    done = harness.run(
        [VERBATIM, "run", sys.executable, "-c", RAW],
        input=json.dumps([raw.hex() for raw, _ in wanted.values()]),
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    if done.returncode:
        raise Failure(done.stderr.strip()[-300:])
    for (name, (_, answers)), said in zip(wanted.items(), json.loads(done.stdout)):
        expect([(kind, error) for kind, error, *_ in said], answers, name)
        expect(
            all(is_whole and seq == 77 and is_for_us for _, _, is_whole, seq, is_for_us in said),
            True,
            f"{name}: lengths and addresses",
        )


if __name__ == "__main__":
    harness.isolate()
    harness.require_library(BUILD)
    if harness.missing_programs("rping", "rdma"):
        print("1..0 # SKIP rping and rdma are needed")
        sys.exit()
    look.LOGS = harness.log_directory(BUILD, "rdma")
    sys.exit(look.run_cases(CASES))

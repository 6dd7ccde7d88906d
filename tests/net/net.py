#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Debian's unmodified programs between two hosts: each pair runs, and what it sent is captured and judged.

usage: net.py BUILD_DIR [--check] [PATTERN...]
A pattern is a regular expression over the names of cases; logs and captures stay in BUILD_DIR/apps-logs/net.
"""
import concurrent.futures
import errno
import os
import sys

import hosts
import paths  # noqa: F401
import harness
import programs
import suite
from programs import cmtime_case, mckey_case, perftest, pingpong, rping, ucmatose_case, udaddy_case, xrc_case
from suite import CONNECTED_BY_CM, LONG_PING, PING, Item

OTHER_USER = 65534
MTU_FOR_4096 = 4200
# Unacknowledged messages must not be more than a socket's buffer takes while the receiver has no CPU.
UNACKNOWLEDGED = "-s 1024"
FEW = 50
WRONG_PORT = "rping -c -a {addr} -p 9 -C 1"
NOBODY_ANSWERS_LIMIT_S = 60.0
SILENCE = "table inet silent { chain in { type filter hook input priority 0; udp dport 4791 drop; }; }"
MANY_PINGS = "-C 3000 -S 1000"


def pingpong_items():
    rc = ("RC SEND_FIRST", "RC SEND_MIDDLE", "RC SEND_LAST", "RC ACKNOWLEDGE")
    for options in ("", "-e -c -n 200"):
        yield Item(pingpong("ibv_rc_pingpong", options), rc)
        yield Item(pingpong("ibv_uc_pingpong", options), ("UC SEND_FIRST", "UC SEND_MIDDLE", "UC SEND_LAST"))
    yield Item(pingpong("ibv_rc_pingpong", "-s 300001 -n 20 -c"), rc)
    yield Item(pingpong("ibv_ud_pingpong", "-s 1024"), ("UD SEND_ONLY",))
    yield Item(pingpong("ibv_srq_pingpong", "-c -n 50"), rc)
    yield Item(pingpong("ibv_rc_pingpong", "-c"), rc, ipv6=True, tcp_over_ipv4=True)
    yield Item(pingpong("ibv_ud_pingpong", "-s 1024"), ("UD SEND_ONLY",), ipv6=True, tcp_over_ipv4=True)


def cm_items():
    for ipv6 in (False, True):
        yield Item(rping("-C 100"), PING, ipv6)
        yield Item(rping("-C 20 -S 65535"), LONG_PING, ipv6)
        yield Item(ucmatose_case("-c 20 -C 10 -S 5000"), (*CONNECTED_BY_CM, "RC SEND_FIRST"), ipv6)
        yield Item(udaddy_case("-c 5"), ("SIDR_REQ", "SIDR_REP", "UD SEND_ONLY"), ipv6)
    yield Item(ucmatose_case("-m"), CONNECTED_BY_CM)
    yield Item(rping("-C 20", "-P", clients=3, server_stays=True), PING)
    yield Item(
        programs.cm_pair(
            "rdma_server -s {addr} -p {port}",
            "rdma_client -s {addr} -p {port}",
            "rdma_client/rdma_server",
            client_shows=("^rdma_client: end 0$",),
            server_shows=("^rdma_server: end 0$",),
        ),
        ("REQ", "REP", "RTU", "RC SEND_ONLY"),
    )
    yield Item(
        harness.Case(
            "rping nobody listens",
            server="rping -s -a {addr} -p {port}",
            client=WRONG_PORT,
            client_exit=255,
            client_shows=("RDMA_CM_EVENT_REJECTED",),
            server_stays=True,
        ),
        ("REQ", "REJ"),
    )
    yield Item(mckey_case("-C 20 -S 500"), ("UD SEND_ONLY_IMM",))
    yield Item(mckey_case("-c 3 -C 5"), ("UD SEND_ONLY_IMM",))
    yield Item(mckey_case("-C 20 -S 500", "ff0e::77:1"), ("UD SEND_ONLY_IMM",), ipv6=True)
    yield Item(cmtime_case(100), ("REQ", "REP", "RTU", "DREQ", "DREP"))
    yield Item(cmtime_case(2000), ())
    for kind in "rx":
        yield Item(xrc_case(kind), ("REQ", "REP", "RTU"))


def rsocket_items():
    stream = (*CONNECTED_BY_CM[:3], "RC WRITE_ONLY_IMM", "RC ACKNOWLEDGE")
    for options in (
        "-T v -I 10 -C 5 -S 5000",
        "-T b -T v -I 2 -C 2 -S 300000",
        "-T n -T a -T v -I 20 -C 2 -S 3000",
        "-T f -T v -I 5 -C 5 -S 64",
    ):
        yield Item(programs.stream("rstream", options), () if "-T f" in options else stream)
    yield Item(programs.stream("riostream", "-T v -C 10 -S 3000"), stream)
    yield Item(programs.rcopy(8), stream)


def datagram_socket_items():
    """Their first datagrams are UDP's own, which is not what captures are judged by."""
    yield from (Item(programs.udpong(options), ()) for options in ("-T e -C 100 -S 500", "-C 100 -S 64"))


def perftest_items():
    operations = {
        "send": ("SEND_ONLY", "SEND_MIDDLE"),
        "write": ("WRITE_ONLY", "WRITE_MIDDLE"),
        "read": ("READ_REQUEST", "READ_RESPONSE_MIDDLE"),
        "atomic": ("FETCH_ADD", "ATOMIC_ACKNOWLEDGE"),
    }
    for operation, (short, long) in operations.items():
        by_tool = {"lat": short, "bw": long}
        for tool, opcode in by_tool.items():
            for options in ("", "-R"):
                cm = CONNECTED_BY_CM[:3] if options else ()
                yield Item(perftest(f"ib_{operation}_{tool}", options, iterations=FEW), (f"RC {opcode}", *cm))
            if operation in ("send", "write"):
                uc = perftest(f"ib_{operation}_{tool}", f"-c UC {UNACKNOWLEDGED}", iterations=FEW)
                yield Item(uc, (f"UC {short}",))
    for tool in ("lat", "bw"):
        for options in ("", " -R"):
            yield Item(
                perftest(f"ib_send_{tool}", f"-c UD {UNACKNOWLEDGED}{options}", iterations=FEW),
                ("UD SEND_ONLY",),
            )


def items():
    return [*pingpong_items(), *cm_items(), *rsocket_items(), *perftest_items()]


def big_mtu_items():
    rc = ("RC SEND_FIRST", "RC SEND_LAST", "RC ACKNOWLEDGE")
    yield Item(pingpong("ibv_rc_pingpong", "-m 4096 -s 50000 -c -n 50"), rc)
    yield Item(pingpong("ibv_ud_pingpong", "-s 4096 -n 100"), ("UD SEND_ONLY",))
    yield Item(rping("-C 20 -S 65535"), CONNECTED_BY_CM)
    yield Item(perftest("ib_write_bw", iterations=FEW), ("RC WRITE_MIDDLE",))
    yield Item(perftest("ib_read_bw", iterations=FEW), ("RC READ_RESPONSE_MIDDLE",))


class Net(suite.Suite):
    NAME = "net"
    QUICK = (
        r"^(ibv_\w+|ibv_ud_pingpong -s 1024|rping -C 100|rping nobody listens|rdma_client/rdma_server|rstream -T v -I 10 .*|riostream .*|"
        r"rcopy .*|cmtime -c 100|rdma_xclient -c r|mckey -m 239.77.0.1 -C 20 -S 500|ib_\w+ -n 50|udpong -C .*) between two hosts$",
        r"^(rping -C 20 -S 65535|ucmatose|udaddy|mckey) .*over IPv6 between two hosts$",
        r"nobody there between",
        r"^three at once:",
        r"^rping -C 50 -S 5000 through a router$",
    )

    def parts(self):
        return (self.all_parts,)

    def all_parts(self):
        """One case takes long and does nothing: it waits beside all others."""
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waiting = "rping nobody answers"
            nobody_answers = pool.submit(self.nobody_answers, waiting) if self.selected(waiting) else None
            for part in (self.nobody_there, self.two_hosts, self.big_mtu, self.offloaded, self.routed):
                self.guarded(part.__name__.replace("_", " "), part)
            if nobody_answers:
                self.report.add(waiting, nobody_answers.result())

    def nobody_answers(self, name):
        """A host that says nothing, not even by ICMP: the client tries as often as it should."""
        case = harness.Case(
            name,
            client=WRONG_PORT,
            client_exit=255,
            limit_s=NOBODY_ANSWERS_LIMIT_S,
            client_shows=(f"RDMA_CM_EVENT_UNREACHABLE, error -{errno.ETIMEDOUT}",),
        )
        with hosts.Network() as network:
            a, b = network.host("a"), network.host("b")
            network.join(a, b)
            a.run("nft", SILENCE)
            return self.run_item(Item(case, ()), a, b)

    def nobody_there(self):
        """The kernel of a host on which no process has a device says so by ICMP: connections, datagrams,
        sockets."""
        gone = f"RDMA_CM_EVENT_UNREACHABLE, (error|error:) -{errno.EHOSTUNREACH}"
        table = [
            Item(
                harness.Case("rping nobody there", client=WRONG_PORT, client_exit=255, client_shows=(gone,)),
                (),
                ipv6,
            )
            for ipv6 in (False, True)
        ]
        table.append(
            Item(
                harness.Case(
                    "udaddy nobody there",
                    client="udaddy -s {addr}",
                    client_exit=256 - errno.EHOSTUNREACH,
                    client_shows=("UNREACHABLE",),
                ),
                (),
            )
        )
        with hosts.Network() as network:
            a, b = network.host("a"), network.host("b")
            network.join(a, b)
            self.run_items("between two hosts", a, b, table)

    def two_hosts(self):
        with hosts.Network() as network:
            a, b = network.host("a"), network.host("b")
            network.join(a, b)
            for host in (a, b):
                host.offloads(hosts.SEGMENT_EARLY)
            self.captured("between two hosts", a, b, items())
            self.run_items("between two hosts", a, b, list(datagram_socket_items()))
            self.three_at_once(a, b)
            self.guarded("two users", lambda: self.two_users(a, b))

    def three_at_once(self, a, b):
        ends = a.endpoint(self.build), b.endpoint(self.build)
        back = tuple(reversed(ends))
        self.at_once(
            "three at once",
            [
                (rping(MANY_PINGS), *ends),
                (pingpong("ibv_rc_pingpong", "-c -n 3000"), *ends),
                (perftest("ib_write_bw", iterations=2000), *ends),
            ],
        )
        self.at_once(
            "three at once, both ways",
            [
                (rping(MANY_PINGS), *ends),
                (rping(MANY_PINGS), *back),
                (perftest("ib_read_bw", "-R", iterations=1000), *back),
            ],
        )

    def two_users(self, a, b):
        hosts.needs_user(self.build, OTHER_USER)
        ours, client = a.endpoint(self.build), b.endpoint(self.build)
        theirs = a.endpoint(self.build, user=OTHER_USER)
        self.at_once(
            "two users",
            [
                (rping(MANY_PINGS), ours, client),
                (rping(MANY_PINGS), theirs, client),
                (pingpong("ibv_rc_pingpong", "-c"), theirs, client),
            ],
        )
        self.at_once(
            "two users, clients",
            [
                (pingpong("ibv_rc_pingpong", "-c"), client, ours),
                (rping(MANY_PINGS), client, theirs),
                (perftest("ib_write_bw", "-R", iterations=1000), client, theirs),
            ],
        )

    def big_mtu(self):
        with hosts.Network() as network:
            a, b = network.host("a"), network.host("b")
            network.join(a, b, mtu=MTU_FOR_4096)
            name = "active MTU 4096"
            if self.selected(name):
                shows = (r"active_mtu:\s+4096",)
                outcome = harness.run_case(
                    self.build,
                    harness.Case(name, client="ibv_devinfo -d {dev}", client_shows=shows),
                    a.endpoint(self.build),
                    self.log_dir,
                )
                self.report.add(name, outcome)
            for host in (a, b):
                host.offloads(hosts.SEGMENT_EARLY)
            self.captured("with MTU 4200", a, b, list(big_mtu_items()))

    def offloaded(self):
        """Nothing is captured, the interfaces take whole batches."""
        with hosts.Network() as network:
            a, b = network.host("a"), network.host("b")
            network.join(a, b)
            for item in (
                Item(rping("-C 1000 -S 65535"), ()),
                Item(pingpong("ibv_rc_pingpong", "-c -s 1048576 -n 50"), ()),
                Item(rping("-C 1000 -S 65535"), (), ipv6=True),
            ):
                name = f"{item.name} in batches"
                if self.selected(name):
                    self.report.add(name, self.run_item(item, a, b, "batches"))

    def routed(self):
        """b and c reach each other through a, which forwards."""
        with hosts.Network() as network:
            a, b, c = network.host("a"), network.host("b"), network.host("c")
            network.join(a, b)
            network.join(a, c)
            a.sysctl("ipv4/ip_forward", 1)
            a.sysctl("ipv6/conf/all/forwarding", 1)
            for host in (b, c):
                host.route_through(a)
                host.offloads(hosts.SEGMENT_EARLY)
            # Not ibv_rc_pingpong: it asks for a hop limit of 1.
            table = [
                Item(rping("-C 50 -S 5000"), CONNECTED_BY_CM),
                Item(rping("-C 50"), CONNECTED_BY_CM, ipv6=True),
                Item(perftest("ib_send_bw", iterations=FEW), ("RC SEND_MIDDLE",)),
                Item(udaddy_case(""), ("SIDR_REQ", "SIDR_REP")),
            ]
            self.captured("through a router", b, c, table)
            self.at_once(
                "three hosts",
                [
                    (rping(MANY_PINGS), a.endpoint(self.build), b.endpoint(self.build)),
                    (rping(MANY_PINGS), a.endpoint(self.build, number=1), c.endpoint(self.build)),
                    (rping(MANY_PINGS), b.endpoint(self.build), c.endpoint(self.build)),
                ],
            )


if __name__ == "__main__":
    sys.exit(suite.run(Net, __doc__))

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Unmodified programs between this library and the Linux kernel's rdma_rxe, which runs in a guest (guest.py).

Every case runs both ways: the server here and the client on the kernel, and the other way round. All frames
between the two are captured and judged like those between two of our own hosts. The kernel must not have met
an error then. Last come some cases with loss. One boot serves all cases; counts of iterations are small,
because the guest's processor is emulated.

usage: interop.py BUILD_DIR [PATTERN...]
"""
import contextlib
import os
import sys

import paths  # noqa: F401
import hosts
import programs
import suite
from guest import Guest, GuestFailure, add_tap, prepare
from programs import ucmatose_case, udaddy_case
from suite import CONNECTED_BY_CM, LONG_PING, PING, Item

HERE, KERNEL = "from here to the kernel", "from the kernel to here"
ITERATIONS = 20
UNACKNOWLEDGED = "-s 1024"
# The kernel gives messages wrong PSNs if an ACK comes while it repeats several after a timeout (a SEND_ONLY
# with the PSN of the next message's SEND_FIRST), and this end then rightly refuses them. Beside other work
# an answer takes longer than perftest's timeout of 67 ms, but not longer than 4.3 s.
PATIENT = "-u 20"
MTU_FOR_4096 = 4300
OTHER_PORT = 7471
LIMIT_S = 180.0

# But for DREQ (a MAD for QP 1 with attribute 0x15): the kernel stops repeating it when its owner goes, and
# then the other end rightly waits.
LOSS = (
    "table netdev harm {{ chain in {{ type filter hook ingress device eth0 priority 0; "
    "udp dport 4791 @th,104,24 1 @th,352,16 0x15 counter accept; {but_for}"
    "udp dport 4791 numgen random mod 100 < 2 counter drop; }}; }}"
)
# Either end of ibv_rc_pingpong goes as soon as it has the last message and its own sends are acknowledged.
# The kernel then repeats no ACK, and an end here that misses one rightly fails.
BUT_FOR_ACKS = "udp dport 4791 @th,64,8 0x11 counter accept; "

# What rxe0 counts and no case provokes. It has no counter for a wrong ICRC, but complains of it in its log.
ERRORS = ("out_of_seq_request", "rcvd_seq_err", "send_err", "retry_exceeded_err", "retry_rnr_exceeded_err")
COMPLAINTS = "ICRC|rxe_.*(bad|invalid|unsupported|err)|Oops|BUG|WARNING|soft lockup"


def pingpong(program, options=""):
    return programs.pingpong(program, f"-n 50 {options}".strip(), limit_s=LIMIT_S)


def rping(options):
    return programs.rping(options, limit_s=LIMIT_S)


def perftest(program, options=""):
    return programs.perftest(program, options, iterations=ITERATIONS, limit_s=LIMIT_S)


def mckey(group):
    options = f"-m {group} -b {{local}} -C 10 -S 500"
    done = ("^return status 0$",)
    return programs.cm_pair(
        f"stdbuf -oL mckey {options}",
        f"mckey {options} -s",
        f"mckey -m {group}",
        client_shows=done,
        server_shows=done,
        server_ready="^mckey: joined dgid",
        limit_s=LIMIT_S,
    )


def pingpong_items():
    rc = ("RC SEND_FIRST", "RC SEND_MIDDLE", "RC SEND_LAST", "RC ACKNOWLEDGE")
    yield Item(pingpong("ibv_rc_pingpong"), rc)
    yield Item(pingpong("ibv_rc_pingpong", "-e -s 30001"), rc)
    yield Item(pingpong("ibv_uc_pingpong"), ("UC SEND_FIRST", "UC SEND_MIDDLE", "UC SEND_LAST"))
    yield Item(pingpong("ibv_ud_pingpong", "-s 1024"), ("UD SEND_ONLY",))
    yield Item(pingpong("ibv_srq_pingpong", "-q 4"), rc)


def cm_items():
    for ipv6 in (False, True):
        yield Item(rping("-C 20"), PING, ipv6)
        yield Item(rping("-C 5 -S 65535"), LONG_PING, ipv6)
        yield Item(ucmatose_case("-c 4 -C 5 -S 3000"), (*CONNECTED_BY_CM, "RC SEND_FIRST"), ipv6)
        yield Item(udaddy_case("-c 3 -C 5"), ("SIDR_REQ", "SIDR_REP", "UD SEND_ONLY"), ipv6)
    # Somebody listens elsewhere: without any program of ours, there is nobody to say no.
    yield Item(
        programs.Case(
            "rping nobody listens",
            server=f"rping -s -P -a {{addr}} -p {OTHER_PORT}",
            server_stays=True,
            client="rping -c -a {addr} -p {port} -C 1",
            client_exit=255,
            client_shows=("RDMA_CM_EVENT_REJECTED",),
        ),
        ("REQ", "REJ"),
    )
    yield Item(mckey("239.77.0.1"), ("UD SEND_ONLY_IMM",))


def rsocket_items():
    """The kernel's side is rdma-core's librdmacm. Its datagram sockets do not work on RoCE (lone_items). Its
    rpoll tells of the end before the last bytes were read, which rstream -T a does not survive."""
    done = (*CONNECTED_BY_CM[:3], "RC WRITE_ONLY_IMM", "RC ACKNOWLEDGE")
    for options in ("-T v -I 10 -C 5 -S 5000", "-T b -T v -I 2 -C 2 -S 300000", "-T b -I 20 -C 2 -S 64"):
        yield Item(programs.stream("rstream", options, limit_s=LIMIT_S), done)
    yield Item(programs.stream("riostream", "-T v -C 10 -S 3000", limit_s=LIMIT_S), done)


def lone_items():
    """On the kernel alone: rdma-core's datagram sockets make address handles without a GRH, which every RoCE
    device refuses."""
    yield Item(
        programs.Case(
            "udpong on the kernel",
            server="udpong -b {addr} -p {port} -T e -C 5 -S 100",
            server_stays=True,
            server_ready="^name",
            client="udpong -s {addr} -p {port} -T e -C 5 -S 100",
            client_exit=255,
            client_shows=("rconnect",),
            limit_s=LIMIT_S,
        ),
        (),
    )


# perftest's operations: what is seen of small messages, and of large ones (atomics: of the answers)
OPERATIONS = {
    "send": ("SEND_ONLY", "SEND_MIDDLE"),
    "write": ("WRITE_ONLY", "WRITE_MIDDLE"),
    "read": ("READ_REQUEST", "READ_RESPONSE_MIDDLE"),
    "atomic": ("FETCH_ADD", "ATOMIC_ACKNOWLEDGE"),
}


def perftest_items():
    for operation, (short, long) in OPERATIONS.items():
        yield Item(perftest(f"ib_{operation}_lat", PATIENT), (f"RC {short}",))
        yield Item(perftest(f"ib_{operation}_bw", PATIENT), (f"RC {long}",))
    yield Item(perftest("ib_atomic_lat", f"-A CMP_AND_SWAP {PATIENT}"), ("RC COMPARE_SWAP",))
    for operation in ("send", "write"):
        yield Item(
            perftest(f"ib_{operation}_lat", f"-c UC {UNACKNOWLEDGED}"), (f"UC {OPERATIONS[operation][0]}",)
        )
    yield Item(perftest("ib_send_lat", f"-c UD {UNACKNOWLEDGED}"), ("UD SEND_ONLY",))


def from_kernel_items():
    """With -R, the server tells the client to connect and listens only then: too late, if the server is the
    slow guest."""
    for operation, (_, long) in OPERATIONS.items():
        yield Item(perftest(f"ib_{operation}_bw", "-R"), (f"RC {long}", *CONNECTED_BY_CM[:3]))
    yield Item(perftest("ib_send_bw", f"-c UD {UNACKNOWLEDGED} -R"), ("SIDR_REQ", "SIDR_REP", "UD SEND_ONLY"))


def big_mtu_items():
    yield Item(pingpong("ibv_rc_pingpong", "-m 4096 -s 30000"), ("RC SEND_FIRST", "RC ACKNOWLEDGE"))
    yield Item(rping("-C 5 -S 65535"), CONNECTED_BY_CM)
    yield Item(perftest("ib_write_bw", PATIENT), ("RC WRITE_MIDDLE",))
    yield Item(perftest("ib_read_bw", PATIENT), ("RC READ_RESPONSE_MIDDLE",))


def lossy_pingpong():
    return Item(pingpong("ibv_rc_pingpong", "-s 30000"), ())


def lossy_items():
    yield Item(rping("-C 5 -S 65535"), ())
    for operation in OPERATIONS:
        yield Item(perftest(f"ib_{operation}_bw"), ())


class Interop(suite.Suite):
    NAME = "interop"
    # The kernel sends IPv6 without a UDP checksum; that we do not is for the suites between our own hosts to
    # see.
    TSHARK_OPTIONS = ("-o", "udp.ignore_ipv6_zero_checksum:TRUE")

    def parts(self):
        return (self.kernel,)

    def kernel(self):
        directory = os.path.join(self.build, "interop")
        prepare(directory)
        with hosts.Network() as network:
            here = network.host("here")
            try:
                with contextlib.closing(Guest(directory, here, add_tap(here))) as guest:
                    guest.set_up()
                    self.all_cases(here, guest)
            except GuestFailure as failure:
                self.add("the guest lives", str(failure))

    def all_cases(self, here, guest):
        table = [*pingpong_items(), *cm_items(), *rsocket_items(), *perftest_items()]
        self.captured(HERE, guest, here, table)
        self.captured(KERNEL, here, guest, [*table, *from_kernel_items()], at=here)
        self.run_items("from the kernel to itself", guest, guest, list(lone_items()))
        guest.set_mtu(MTU_FOR_4096)
        here.run("ip", "link", "set", "eth0", "mtu", str(MTU_FOR_4096))
        self.captured(f"{HERE} with MTU {MTU_FOR_4096}", guest, here, list(big_mtu_items()))
        self.captured(f"{KERNEL} with MTU {MTU_FOR_4096}", here, guest, list(big_mtu_items()), at=here)
        self.judge_kernel(guest)
        self.with_loss(here, guest)

    def with_loss(self, here, guest):
        """Each side throws away a share of what comes in; both engines have to get over it."""
        for side in (here, guest):
            side.run("nft", LOSS.format(but_for=""))
        self.run_items(HERE + " with loss", guest, here, list(lossy_items()))
        self.run_items(KERNEL + " with loss", here, guest, list(lossy_items()))
        here.run("nft", "delete table netdev harm; " + LOSS.format(but_for=BUT_FOR_ACKS))
        self.run_items(HERE + " with loss", guest, here, [lossy_pingpong()])
        self.run_items(KERNEL + " with loss", here, guest, [lossy_pingpong()])

    def judge_kernel(self, guest):
        """Nothing went wrong in the kernel."""
        counters = guest.counters()
        print("# rxe0: " + ", ".join(f"{name} {value}" for name, value in sorted(counters.items())))
        self.add("the kernel has seen packets", "" if counters["rcvd_pkts"] > 0 else "it has not")
        for name in ERRORS:
            self.add(f"the kernel counts no {name}", f"{counters[name]}" if counters[name] else "")
        log = guest.run("sh", "-c", f"dmesg | grep -E '{COMPLAINTS}' || true").strip()
        self.add("the kernel does not complain", log[-500:].replace("\n", " | "))


if __name__ == "__main__":
    sys.exit(suite.run(Interop, __doc__))

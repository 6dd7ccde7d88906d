#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Debian's unmodified RDMA programs between two processes on this library: the table of cases and its run.

usage: programs.py BUILD_DIR [--full] [--list] [--check] [--endpoint lo|eth|wire] [--tier quick|long]
[PATTERN...] A pattern is a regular expression over "program options @endpoint"; logs stay in
BUILD_DIR/apps-logs/programs, or programs-checked with --check: under VERBATIM_CHECK, which must find no
mistake in them. Endpoints: the loopback, an Ethernet device, and for the first case of each program that
device over the wire. """
import argparse
import dataclasses
import functools
import glob
import os
import re
import shutil
import subprocess
import sys

import harness
from harness import Case

BAD = (r"(?i)invalid data", r"(?i)mismatch!", r"(?i)completion with error", r"(?i)failed status")

# Which perftest programs have which options: atomics have one size only, writes wait for memory and not for
# events.
PERFTEST = ("send", "write", "read", "atomic")
HAS_EVENTS = ("send", "read", "atomic")
HAS_ALL_SIZES = ("send", "write", "read")
HAS_SRQ = ("send",)

FOLDER = os.path.dirname(os.path.abspath(__file__))
PRELOAD = next(iter(glob.glob("/usr/lib/*-linux-gnu/rsocket/librspreload.so")), "/librspreload-is-missing.so")
OWN_PRELOAD = "libverbatim-sockets.so"  # found where our libraries are


def pair(program, fixed, options, **rules):
    """A case of a program that is a server without and a client with an address; `fixed` is left out of its
    name."""
    command = f"{program} {fixed} -d {{dev}} -p {{port}} {options}"
    return Case(
        f"{program} {options}".strip(), server=command, client=f"{command} {{addr}}", never_shows=BAD, **rules
    )


def pingpong(program, options="", **rules):
    shows = (r"\d+ iters in [\d.]+ seconds",)
    return pair(program, "-g {gid}", options, client_shows=shows, server_shows=shows, **rules)


def perftest(program, options="", sizes=(r"\d+",), iterations=200, **rules):
    """sizes: one result row must be shown for each; its figures may be 0.00 or inf (perftest on a busy CPU
    says so)."""
    rows = tuple(rf"^ *{size} +\d+ +([\d.]+|inf) +([\d.]+|inf)" for size in sizes)
    return pair(program, "-F -x {gid}", f"{options} -n {iterations}".strip(), client_shows=rows, **rules)


def cm_pair(server, client, name, **rules):
    return Case(name, server=server, client=client, never_shows=BAD, **rules)


def rping(options="", server_options="", addr="", **rules):
    """addr: instead of the endpoint's own."""
    common = f"-V -a {addr or '{addr}'} -p {{port}} {options}"
    name = " ".join(f"rping {server_options} {options} {addr}".split())
    return cm_pair(f"rping -s {common} {server_options}", f"rping -c {common}", name, **rules)


def device_cases():
    return [
        Case("ibv_devices", client="ibv_devices", client_shows=(r"^\s+{dev}\s+[0-9a-f]{16}$",)),
        Case("ibv_devinfo -l", client="ibv_devinfo -l", client_shows=(r"^\s*{dev}\s*$",)),
        Case(
            "ibv_devinfo -v",
            client="ibv_devinfo -v -d {dev}",
            client_shows=(
                r"^hca_id:\s+{dev}$",
                r"state:\s+PORT_ACTIVE",
                r"link_layer:\s+Ethernet",
                r"active_mtu:\s+\d+",
                r"max_qp:\s+[1-9]",
                r"max_mr_size:\s+0x[1-9a-f]",
                r"GID\[\s*{gid}\]:\s+::ffff:{addr}, RoCE v2",
            ),
        ),
        Case(
            "ibv_devinfo -d nonsense",
            client="ibv_devinfo -d nonsense",
            client_exit=255,
            client_shows=("nonsense",),
            only="lo",
        ),
    ]


def pingpong_cases():
    return [
        *(
            pingpong("ibv_rc_pingpong", options)
            for options in (
                "",
                "-e",
                "-n 10000",
                "-s 1048576",
                "-c",
                "-c -s 1048576 -n 100",
                "-e -n 10000 -s 1",
                "-r 1",
                "-t",
                "-o -c",
                "-O -c",
                "-o -P -c",
                "-N -c",
                "-j -c",
                "-t -o -N -c",
            )
        ),
        *(pingpong("ibv_uc_pingpong", options) for options in ("", "-e", "-s 1 -n 10000", "-s 65536 -n 100")),
        *(
            pingpong("ibv_ud_pingpong", options)
            for options in ("-s 1024", "-s 1024 -e", "-s 1 -n 10000", "-s 1024 -r 1")
        ),
        *(
            pingpong("ibv_srq_pingpong", options)
            for options in ("", "-e", "-c", "-q 3 -n 5000", "-s 1048576 -n 50", "-o -c")
        ),
        *(xsrq_pingpong(options) for options in ("", "-e", "-n 500 -s 100", "-o")),
    ]


def xsrq_pingpong(options):
    """Its server's -c says for how many clients it waits; they must all be there at once, so it is for
    one."""
    return pair(
        "ibv_xsrq_pingpong", "-g {gid}", options, client_shows=("^success$",), server_shows=("^success$",)
    )


def rping_cases():
    return [
        rping(
            "-v -C 5",
            client_shows=(r"^ping data: rdma-ping-0: ",),
            server_shows=(r"^server ping data: rdma-ping-4",),
        ),
        *(rping(f"-C 1000 -S {size}") for size in (64, 1000, 4096, 16384, 65535)),
        rping("-q -C 1000"),
        rping("-C 1000", "-P", clients=3, server_stays=True),
        rping("-C 1000", addr="::1", only="lo"),
    ]


def ucmatose_case(options, **rules):
    return cm_pair(
        f"ucmatose -b {{addr}} -p {{port}} {options}",
        f"ucmatose -s {{addr}} -p {{port}} {options}",
        f"ucmatose {options}".strip(),
        client_shows=("^return status 0$",),
        server_shows=("^return status 0$",),
        **rules,
    )


def udaddy_case(options):
    """It has a fixed port."""
    return cm_pair(
        f"udaddy -b {{addr}} {options}",
        f"udaddy -s {{addr}} {options}",
        f"udaddy {options}".strip(),
        client_shows=("^return status 0$",),
        server_shows=("^return status 0$",),
    )


def gid_case(program, options, limit=""):
    """Addresses of the family AF_IB: with RoCEv2 a GID is an IP address."""
    gid = "::ffff:{addr}"
    return cm_pair(
        f"{program} -f gid -b {gid} {options} {limit}",
        f"{program} -f gid -b {gid} -s {gid} {options} {limit}",
        f"{program} -f gid {options}".strip(),
        client_shows=("^return status 0$",),
        server_shows=("^return status 0$",),
        only="lo",
    )


@functools.cache
def cmtime_has_peers():
    """Releases of rdma-core after 56: its ends are peers, of which one listens, and which find each other by
    a controller's address."""
    usage = (
        subprocess.run(["cmtime", "-h"], capture_output=True, text=True, check=False)
        if shutil.which("cmtime")
        else None
    )
    return usage is not None and "[-P num_peers]" in usage.stdout + usage.stderr


def cmtime_of_peers(connections, **rules):
    command = f"cmtime -b {{local}} -C {{addr}} -p {{port}} -P 2 -c {connections}"
    shows = tuple(rf"^{step} +[\d.]+" for step in ("resolve addr", "establish", "disconnect", "destroy id"))
    return cm_pair(f"{command} -L", command, f"cmtime -c {connections}", client_shows=shows, **rules)


def cmtime_case(connections, **rules):
    """Its server is for ever, up to release 50 of rdma-core. Later it ends with its clients, and the table is
    another."""
    if cmtime_has_peers():
        return cmtime_of_peers(connections, **rules)
    is_old = harness.release("rdmacm-utils") <= 50
    shows = (
        tuple(rf"^{step} *: +[\d.]+" for step in ("resolve addr", "connect", "disconnect", "destroy"))
        if is_old
        else tuple(rf"^{step} +[\d.]+" for step in ("resolve addr", "cm connect", "disconnect", "destroy id"))
    )
    return cm_pair(
        f"cmtime -b {{addr}} -p {{port}} -c {connections}",
        f"cmtime -s {{addr}} -p {{port}} -c {connections}",
        f"cmtime -c {connections}",
        client_shows=shows,
        server_stays=is_old,
        **rules,
    )


def xrc_case(kind):
    """rdma_xserver has one listener, or for XRC two of them."""
    return cm_pair(
        f"rdma_xserver -p {{port}} -c {kind}",
        f"rdma_xclient -s {{addr}} -p {{port}} -c {kind}",
        f"rdma_xclient -c {kind}",
        client_shows=("^rdma_xclient: end 0$",),
        server_shows=("^rdma_xserver: end 0$",),
    )


def mckey_case(options, group="239.77.0.1", sender="", **rules):
    """A receiver tells that it has joined; its output must not wait for its end."""
    command = f"mckey -m {group} -b {{local}} {options}"
    shows = ("^return status 0$",)
    return cm_pair(
        f"stdbuf -oL {command}",
        f"{command} -s {sender}",
        " ".join(f"mckey -m {group} {options} {sender}".split()),
        client_shows=shows,
        server_shows=shows,
        server_ready="^mckey: joined dgid",
        **rules,
    )


def cm_cases():
    return [
        *rping_cases(),
        gid_case("ucmatose", "-P ib", "-p {port}"),
        gid_case("ucmatose", "-P tcp -c 5", "-p {port}"),
        gid_case("udaddy", "-P udp"),
        gid_case("udaddy", "-P ipoib"),
        cmtime_case(100),
        cmtime_case(2000),
        *(xrc_case(kind) for kind in "rx"),
        *(mckey_case(options) for options in ("-C 20 -S 500", "-c 3 -C 20 -S 100")),
        mckey_case("-C 20 -S 500", sender="-o"),
        cm_pair(
            "rdma_server -s {addr} -p {port}",
            "rdma_client -s {addr} -p {port}",
            "rdma_client/rdma_server",
            client_shows=("^rdma_client: end 0$",),
            server_shows=("^rdma_server: end 0$",),
        ),
        *(
            ucmatose_case(options)
            for options in ("", "-c 100", "-c 1000 -C 100", "-m", "-m -c 20 -C 50 -S 10000")
        ),
        *(udaddy_case(options) for options in ("", "-c 10 -C 50 -S 500")),
        Case(
            "rping nobody listens",
            client="rping -c -a {addr} -p {port} -C 1",
            client_exit=255,
            client_shows=("RDMA_CM_EVENT_REJECTED|RDMA_CM_EVENT_UNREACHABLE|connect error",),
        ),
    ]


# One row of figures: bytes, transfers, (iterations,) total, time, and two rates.
ROW = r"^custom +\S+ +\S+ +(\S+ +)?\S+ +[\d.]+s +[\d.]+ +[\d.]+"


# The last row of the figures of all sizes.
SERIES_ROW = r"^\S+_bw +\S+ +\S+ +(\S+ +)?\S+ +[\d.]+s +[\d.]+ +[\d.]+"


def stream(program, options, row=ROW, **rules):
    """rstream and riostream: both sides have the same options."""
    common = f"-p {{port}} {options}"
    return cm_pair(
        f"{program} -b {{addr}} {common}",
        f"{program} -s {{addr}} {common}",
        f"{program} {options}".strip(),
        client_shows=(row,),
        server_shows=(row,),
        **rules,
    )


# -f, and an address in that form
ADDRESS_FORMATS = (("name", "localhost"), ("ip", "127.0.0.1"), ("ipv6", "::1"), ("gid", "::1"))


def formatted_stream(program, form, address):
    options = f"-f {form} -p {{port}} -T v -I 5 -C 5 -S 1000"
    return cm_pair(
        f"{program} -b {address} {options}",
        f"{program} -s {address} {options}",
        f"{program} -f {form}",
        client_shows=(ROW,),
        server_shows=(ROW,),
        only="lo",
    )


def udpong(options, row=ROW, **rules):
    """Its server is for ever; datagrams may be lost, so figures say how many were not."""
    common = f"-p {{port}} {options}"
    return cm_pair(
        f"udpong -b {{addr}} {common}",
        f"udpong -s {{addr}} {common}",
        f"udpong {options}".strip(),
        client_shows=(row,),
        server_stays=True,
        **rules,
    )


def rcopy(mebibytes, **rules):
    """A file, copied and compared."""
    return cm_pair(
        "rcopy -p {port}",
        f"{FOLDER}/rcopy.sh {mebibytes} {{addr}} {{port}}",
        f"rcopy {mebibytes} MiB",
        server_stays=True,
        client_shows=("^the files are the same$",),
        **rules,
    )


def preloaded(library, command, options=""):
    """A preload library makes rsockets of a program's sockets."""
    return f"env LD_PRELOAD={library} {command} {options}".strip()


def iperf(name, library, options):
    command = f"iperf3 -p {{port}} --forceflush"
    return cm_pair(
        preloaded(library, f"{command} -s -1"),
        preloaded(library, f"{command} -c {{addr}}", options),
        f"{name}: iperf3 {options}",
        client_shows=("receiver$", "^iperf Done"),
    )


def rsocket_cases():
    """rstream's messages and their verification, blocking and not, with poll; writing into the peer's memory;
    datagrams."""
    for options in (
        "-T v -I 20 -C 10 -S 5000",
        "-T b -I 500 -C 1 -S 64",
        "-T n -I 500 -C 1 -S 64",
        "-T a -I 20 -C 20 -S 65536",
        "-T b -T v -I 5 -C 2 -S 1000000",
        "-T n -T v -B 4096 -I 20 -C 10 -S 20000",
        "-T r -I 10 -C 10 -S 100",
        "-T f -T v -I 20 -C 10 -S 100",
        "-i 0 -T v -I 20 -C 10 -S 200",
        "-i 400 -T a -T v -I 20 -C 10 -S 300",
        "-k 1 -T v -I 10 -C 5 -S 1000",
        "-B 1000000 -T a -T n -T v -I 2 -C 2 -S 3000000",
        "-T s -T v -I 10 -C 5 -S 1000",
    ):
        yield stream("rstream", options)
    for program in ("rstream", "riostream"):
        yield from (formatted_stream(program, form, address) for form, address in ADDRESS_FORMATS)
    # It ends with the events that it got from rpoll: POLLERR and POLLHUP.
    yield Case("rstream nobody listens", client="rstream -s {addr} -p {port} -I 1 -C 1 -S 1", client_exit=24)
    for options in (
        "-T v -C 20 -S 3000",
        "-T b -C 100 -S 64",
        "-T a -C 10 -S 100000",
        "-T n -T v -C 50 -S 5000",
        "-i 0 -T b -T v -I 10 -C 5 -S 200",
        "-B 100000 -T a -T v -I 5 -C 2 -S 300000",
    ):
        yield stream("riostream", options)
    for options in (
        "-C 100 -S 500",
        "-T b -C 100 -S 64",
        "-T n -C 100 -S 64",
        "-T a -C 100 -S 900",
        "-T e -C 100 -S 500",
        "-T e -T b -C 100 -S 16",
        "-T e -T a -C 100 -S 900",
        "-T e -T n -C 100 -S 900",
        "-B 100000 -T e -C 100 -S 900",
        "-T s -T e -C 100 -S 500",
    ):
        yield udpong(options)
    yield rcopy(64)
    yield from preloaded_cases()
    yield from own_preloaded_cases()


def forking_stream(options, row=ROW, **rules):
    """rstream -T f uses sockets: the library makes rsockets of them, after the fork alone."""
    command = f"env RDMAV_FORK_SAFE=1 LD_PRELOAD={PRELOAD} rstream -T f -p {{port}} {options}"
    return cm_pair(
        f"{command} -b {{addr}}",
        f"{command} -s {{addr}}",
        f"librspreload: rstream -T f {options}",
        client_shows=(row,),
        server_shows=(row,),
        **rules,
    )


def absent(*needed):
    """Why what a script runs is not here: the first of the programs and files that are missing; else ""."""
    missing = [name for name in needed if not (os.path.exists(name) if "/" in name else shutil.which(name))]
    return f"{missing[0]} is not installed" if missing else ""


def preloaded_cases():
    """Programs that make sockets, over rdma-core's preload library."""
    yield Case(
        "librspreload: netcat",
        client=f"{FOLDER}/netcat.sh {PRELOAD} 20 {{addr}} {{port}}",
        client_shows=("^the files are the same$",),
        not_here=absent("nc.traditional", PRELOAD),
    )
    yield forking_stream("-T v -I 10 -C 5 -S 5000")
    yield iperf("librspreload", PRELOAD, "-t 1")
    yield iperf("librspreload", PRELOAD, "-t 1 -R -P 3")


def own_preloaded_cases():
    """Servers and their clients over our preload library, their data compared."""
    yield Case(
        "sockets: netcat",
        client=f"{FOLDER}/netcat.sh {OWN_PRELOAD} 20 {{addr}} {{port}}",
        client_shows=("^the files are the same$",),
        not_here=absent("nc.traditional"),
    )
    for options in ("-t 1", "-t 1 -R -P 3", "-n 100M", "-t 1 --bidir", "-t 1 -Z"):
        yield iperf("sockets", OWN_PRELOAD, options)
    yield Case(
        "sockets: redis",
        client=f"{FOLDER}/redis.sh {OWN_PRELOAD} {{addr}} {{port}}",
        client_shows=("^all values are right$",),
        not_here=absent("redis-server", "redis-cli", "redis-benchmark"),
    )
    for options in ("worker_processes=2", "master_process=off"):
        yield Case(
            f"sockets: nginx {options}",
            client=f"{FOLDER}/nginx.sh {OWN_PRELOAD} {{addr}} {{port}} {options}",
            client_shows=("^all answers are right$",),
            not_here=absent("/usr/sbin/nginx", "wrk", "curl"),
        )


POWERS = tuple(1 << power for power in range(1, 24))


def latency_cases(operation):
    program = f"ib_{operation}_lat"
    yield perftest(program)
    yield perftest(program, "-R")
    if operation in HAS_EVENTS:
        yield perftest(program, "-e")
        yield perftest(program, "-R -e")
    if operation in HAS_ALL_SIZES:
        yield perftest(program, "-a", POWERS, iterations=20)
    if operation in HAS_SRQ:
        yield perftest(program, "--use-srq")
        yield perftest(program, "--use-srq -R")
    if operation == "atomic":
        yield perftest(program, "-A CMP_AND_SWAP", ("8",))


def bandwidth_cases(operation):
    program = f"ib_{operation}_bw"
    for options in ("", "-R", "-b", "-b -R", "-q 8", "-q 8 -b", "-q 8 -R"):
        yield perftest(program, options)
    if operation in HAS_EVENTS:
        yield perftest(program, "-e")
        yield perftest(program, "-R -e")
    if operation in HAS_ALL_SIZES:
        yield perftest(program, "-a", POWERS, iterations=20)
        yield perftest(program, "-a -R", POWERS, iterations=20)
    if operation in HAS_SRQ:
        yield perftest(program, "--use-srq")
        yield perftest(program, "--use-srq -q 8 -b")
        yield perftest(program, "--use-srq -R")
    if operation == "atomic":
        yield perftest(program, "-A CMP_AND_SWAP", ("8",))


def connection_cases():
    """The other transports, memory on demand, and the post call of old beside the newer one."""
    for tool in ("lat", "bw"):
        for operation in ("send", "write"):
            # What UC loses is lost, and the program waits for it: so its messages are short.
            yield from (
                perftest(f"ib_{operation}_{tool}", f"-c {transport} {options}".strip())
                for transport in ("UC -s 1024", "XRC")
                for options in ("", "--use_old_post_send")
            )
        yield from (perftest(f"ib_{operation}_{tool}", "-c XRC") for operation in ("read", "atomic"))
        yield from (perftest(f"ib_{operation}_{tool}", "--use_old_post_send") for operation in PERFTEST)
        yield from (perftest(f"ib_{operation}_{tool}", "--odp") for operation in HAS_ALL_SIZES)
    yield perftest("ib_send_bw", "-c XRC -q 4")


# It closes in this order: protection domain, completion channel, memory region; and its server never destroys
# the queue pair that it made for an incoming connection, so that nothing below that can go. At its time's end
# it leaves sends under way.
QPERF_MISTAKES = r"call: ibv_(destroy_cq|dealloc_pd|destroy_comp_channel): .* still use it|deregistered: "
QPERF_FIGURES = {
    "bw": r"^    (send_)?bw +=",
    "lat": r"^    latency +=",
    "mr": r"^    msg_rate +=",
    "ver": r"^    msg_rate +=",
}
QPERF_RC = (
    "rc_bi_bw",
    "rc_bw",
    "rc_lat",
    "rc_rdma_read_bw",
    "rc_rdma_read_lat",
    "rc_rdma_write_bw",
    "rc_rdma_write_lat",
    "rc_rdma_write_poll_lat",
    "rc_compare_swap_mr",
    "rc_fetch_add_mr",
    "ver_rc_compare_swap",
    "ver_rc_fetch_add",
)
QPERF_UNRELIABLE = (
    "uc_bi_bw",
    "uc_bw",
    "uc_lat",
    "uc_rdma_write_bw",
    "uc_rdma_write_lat",
    "uc_rdma_write_poll_lat",
    "ud_bi_bw",
    "ud_bw",
    "ud_lat",
)


def qperf(test, before, options, name):
    kind = "ver" if test.startswith("ver") else test.rsplit("_", 1)[1]
    return cm_pair(
        f"{before}qperf -lp {{port}}",
        f"{before}qperf {{addr}} -lp {{port}} {options} -t 1 {test}",
        name,
        client_shows=(QPERF_FIGURES[kind],),
        server_stays=True,
        mistakes=QPERF_MISTAKES,
    )


def qperf_cases():
    """Over rdma_cm; and by LID, which its UC and UD tests know alone. Debian builds it without XRC."""
    yield from (qperf(test, "", "-cm 1", f"qperf {test}") for test in QPERF_RC)
    by_lid = "env VERBATIM_LINK=infiniband "
    yield from (
        qperf(test, by_lid, "-i {dev}", f"qperf {test} by LID")
        for test in ("rc_lat", "rc_bw", "rc_fetch_add_mr")
    )
    # Its own path MTU of 2048 is more than an Ethernet of 1500 has.
    yield from (
        qperf(test, by_lid, "-i {dev} -mt 1024 -m 1024", f"qperf {test} by LID") for test in QPERF_UNRELIABLE
    )
    yield Case(
        "qperf xrc_lat",
        server="qperf -lp {port}",
        client="qperf {addr} -lp {port} -t 1 xrc_lat",
        client_exit=1,
        client_shows=("xrc_lat: bad test",),
        server_stays=True,
        only="lo",
    )


def datagram_cases():
    yield from (
        perftest("ib_send_lat", f"-c UD {options}".strip())
        for options in ("", "-e", "-R", "--use_old_post_send")
    )
    yield from (
        perftest("ib_send_bw", f"-c UD {options}".strip())
        for options in ("", "-b", "-R", "--use_old_post_send")
    )


def full_cases():
    """Longer runs of the same, for --full."""
    for operation in PERFTEST:
        for tool in ("lat", "bw"):
            yield perftest(f"ib_{operation}_{tool}", iterations=20000, limit_s=120)
    for operation in HAS_ALL_SIZES:
        yield perftest(f"ib_{operation}_bw", "-a -b -q 8", POWERS, iterations=1000, limit_s=600)
    yield rping("-C 100000 -S 65535", limit_s=300)
    yield cmtime_case(10000, limit_s=120)
    yield rcopy(1024, limit_s=600)
    for program in ("rstream", "riostream"):
        for options in ("", "-S all -T v", "-S all -T v -T b", "-S all -T v -T n -T a"):
            yield stream(program, options, limit_s=600, row=SERIES_ROW)
    yield forking_stream("-S all", limit_s=600, row=SERIES_ROW)
    yield udpong("", limit_s=1800, row=SERIES_ROW)


def cases(full):
    table = [*device_cases(), *pingpong_cases(), *cm_cases(), *rsocket_cases()]
    for operation in PERFTEST:
        table += [*latency_cases(operation), *bandwidth_cases(operation)]
    table += [*datagram_cases(), *connection_cases(), *qperf_cases()]
    return table + (list(full_cases()) if full else [])


def rows(table):
    """(case, label of its endpoint, is it in the quick tier?): of each program the first case, once through
    shared memory and once over the wire."""
    known = set()
    for case in table:
        program = re.sub(r"^env (\S+=\S+ )*|^stdbuf \S+ ", "", case.client).split()[0]
        is_first = not case.only and program not in known
        known |= {program} if is_first else set()
        for label in ("lo", "eth"):
            if case.only in ("", label):
                yield case, label, is_first and label == "lo"
        if is_first:
            yield case, "wire", True


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("build")
    parser.add_argument("--full", action="store_true", help="longer runs as well")
    parser.add_argument("--check", action="store_true", help="under VERBATIM_CHECK, which is to be silent")
    parser.add_argument("--list", action="store_true", help="print the table and run nothing")
    parser.add_argument("--endpoint", choices=("lo", "eth", "wire"))
    harness.add_selection(parser)
    options = parser.parse_intermixed_args()

    log_dir = None
    if not options.list:
        harness.isolate()
        harness.require_library(options.build)
        log_dir = harness.log_directory(
            options.build, "-".join(filter(None, ("programs", options.tier, "checked" * options.check)))
        )
    if options.check:
        os.environ["VERBATIM_CHECK"] = "1"
    report = harness.Report(sys.argv[0], options.build)
    found = {endpoint.label: endpoint for endpoint in harness.endpoints()}
    if "eth" in found:
        found["wire"] = dataclasses.replace(found["eth"], label="wire", prefix=("env", "VERBATIM_LOCAL=off"))
    for case, label, is_quick in rows(cases(options.full)):
        name = f"{case.name} @{label}"
        if options.endpoint not in (None, label) or not harness.selected(options, name, is_quick):
            continue
        if options.list:
            print(f"{name}: {case.server or '-'} | {case.client}")
        elif label not in found:
            report.add(name, harness.Outcome("skip", "no Ethernet interface with an IPv4 address"))
        else:
            report.add(name, harness.run_case(options.build, case, found[label], log_dir))
    return 0 if options.list else report.finish()


if __name__ == "__main__":
    sys.exit(main())

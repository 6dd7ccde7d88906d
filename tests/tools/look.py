#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""verbatim ps, show and stats: real programs are looked at while they run, stand, spin, end; and processes
that lie to those who look.

usage: look.py BUILD_DIR [PATTERN]
"""
import array
import contextlib
import ctypes
import functools
import json
import os
import pathlib
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import unicodedata

import paths  # noqa: F401
import harness

BUILD = sys.argv[1]
VERBATIM = os.path.join(BUILD, "verbatim")
MAGIC = 0x3174697369764256
LIMIT_S = 30.0
OTHER_USER, SOME_USER = 65534, 65532
IMPOSSIBLE = 77
CASES = []


def case(function):
    CASES.append(function)
    return function


class Failure(Exception):
    """With what the server and the client have said, if it is theirs."""

    def __init__(self, what, server_output="", client_output=""):
        super().__init__(what)
        self.said = server_output, client_output


def expect(found, wanted, what):
    if found != wanted:
        raise Failure(f"{what}: {repr(found)[:300]}, expected {repr(wanted)[:300]}")


def verbatim(*args, status=0):
    done = harness.run([VERBATIM, *args], capture_output=True, text=True, check=False, timeout=LIMIT_S)
    expect(done.returncode, status, f"exit status of {' '.join(args)} ({done.stderr.strip()})")
    return done.stdout


def looked(*args, status=0, timeout=20):
    """timeout: seconds that a process has to answer. Where one is stopped, all of them pass."""
    words = (*args, f"--timeout={timeout}", "--json")
    return json.loads(verbatim(*words, status=status))["processes"]


def processes():
    return {row["pid"]: row for row in looked("ps", timeout=1)}


def shown(pid):
    found = looked("show", str(pid))
    expect(len(found), 1, f"processes with the pid {pid}")
    return found[0]


def wait_for(condition, what):
    """what: or a function that says it in the end."""
    limit = harness.Limit(LIMIT_S)
    while not condition():
        if not limit.left():
            raise Failure(f"waited in vain: {what() if callable(what) else what}")
        time.sleep(0.05)


@contextlib.contextmanager
def running(*commands):
    """Programs under `verbatim run`, each started when the one before listens; they are gone in the end."""
    programs = []
    try:
        for number, command in enumerate(commands):
            programs.append(
                harness.Program(BUILD, command, os.path.join(LOGS, f"{len(os.listdir(LOGS))}.{number}.log"))
            )
            if number < len(commands) - 1 or len(commands) == 1:
                programs[-1].wait_ready()
        yield [program.process.pid for program in programs]
    finally:
        for program in programs:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.process.pid, signal.SIGCONT)
            program.end()


PING_SERVER, PING_CLIENT = "rping -s -a 127.0.0.1 -p 7475", "rping -c -a 127.0.0.1 -p 7475 -C 100000000"


def connected(pid):
    return pid in processes() and [qp["state"] for qp in shown(pid)["qps"]] == ["RTS"]


@contextlib.contextmanager
def pinging():
    with running(PING_SERVER, PING_CLIENT) as (server, client):
        wait_for(lambda: connected(server) and connected(client), "both queue pairs in RTS")
        yield server, client


# ---- what is there ----


@case
def ps__nothing_runs():
    expect(processes(), {}, "processes")
    expect("no process" in verbatim("ps"), True, "a sentence")


@case
def ps__lists_and_forgets():
    with pinging() as (server, client):
        found = processes()
        expect(set(found), {server, client}, "pids")
        for pid in server, client:
            row = found[pid]
            expect((row["name"], row["qps"], row["cqs"], row["trouble"]), ("rping", 1, 1, ""), "summary")
            expect(row["mrs"] >= 3 and row["mr_bytes"] > 0, True, "regions")
        expect((found[server]["ids"], found[client]["ids"]), (2, 1), "ids")
        os.kill(client, signal.SIGKILL)
        wait_for(lambda: client not in processes(), "the killed process is gone")
    wait_for(lambda: not processes(), "all are gone")


@case
def show__queue_pairs_and_their_peers():
    with pinging() as (server, client):
        one, other = shown(server)["qps"][0], shown(client)["qps"][0]
        expect((one["qpn"], one["peer_qpn"]), (other["peer_qpn"], other["qpn"]), "numbers")
        expect((one["type"], one["path"], one["peer"]), ("RC", "local", "127.0.0.1"), "connection")
        expect(one["copy"] in ("mapped", "process_vm", "link"), True, f"copy ({one['copy']})")
        expect(one["peer_process"], f"{client} rping", "peer of the server")
        expect(other["peer_process"], f"{server} rping", "peer of the client")
        before = shown(client)["qps"][0]["posted"]
        wait_for(lambda: shown(client)["qps"][0]["posted"] > before, "sends are counted")


@case
def show__ids_and_memory():
    with pinging() as (server, client):
        ids = shown(server)["ids"]
        expect([i["state"] for i in ids], ["listening", "connected"], "states")
        expect(ids[0]["source"], "127.0.0.1:7475", "listener")
        expect(ids[1]["destination"], shown(client)["ids"][0]["source"], "addresses")
        expect(ids[1]["qpn"], shown(server)["qps"][0]["qpn"], "queue pair")
        regions = shown(client)["mrs"]
        expect(
            any(r["access"] == "local_write,remote_write,remote_read" and r["bytes"] == 64 for r in regions),
            True,
            "rights and sizes",
        )
        expect(all(r["mapped"] in ("yes", "no", "never") for r in regions), True, "mapped")


@case
def show__kinds_that_were_asked_for():
    with pinging() as (server, client):
        found = looked("show", "qps", "ids", str(client))
        expect(sorted(found[0]), ["ids", "process", "qps"], "kinds")
        text = verbatim("show", "mrs")
        expect(("mrs: " in text, "qps: " in text), (True, False), "tables")
        expect(len(verbatim("show").splitlines()) > 20, True, "all tables")


@case
def show__many_addresses():
    """All that a device has are told."""
    added = [f"fd00:1111:2222:3333:4444:5555:6666:{n}" for n in range(1001, 1013)]
    for address in added:
        words = ["ip", "-6", "address", "add", f"{address}/128", "dev", "lo"]
        if subprocess.run(words, capture_output=True, check=False).returncode:
            return "no IPv6 addresses can be added here"
    try:
        with running(PING_SERVER) as (pid,):
            told = [d["gids"].split(",") for d in shown(pid)["devices"] if d["device"] == "vb_lo"]
            expect([gids for gids in told if not set(added) <= set(gids)], [], "devices that lack one")
            expect(bool(told), True, "devices")
    finally:
        for address in added:
            subprocess.run(["ip", "-6", "address", "del", f"{address}/128", "dev", "lo"], check=True)
    return None


@case
def show__queue_pair_before_it_is_connected():
    with running("ibv_srq_pingpong -p 18599") as (pid,):
        wait_for(lambda: pid in processes() and len(shown(pid)["qps"]) == 16, "16 queue pairs")
        found = shown(pid)
        expect({qp["state"] for qp in found["qps"]}, {"INIT"}, "states")
        expect(len(found["srqs"]), 1, "shared receive queues")
        expect(found["srqs"][0]["waiting"], 500, "receives posted there")
        expect({qp["srq"] for qp in found["qps"]}, {found["srqs"][0]["srq"]}, "whose queue")


@case
def show__wire():
    with running("env VERBATIM_LOCAL=off " + PING_SERVER, PING_CLIENT) as (server, client):
        wait_for(lambda: connected(server) and connected(client), "both queue pairs in RTS")
        found = shown(client)["qps"][0]
        expect((found["path"], found["peer_process"]), ("RC", ""), "path")
        expect(shown(server)["process"]["is_local_off"], True, "setting")
        wait_for(lambda: looked("stats", str(client))[0]["packets_out"] > 0, "packets")


@case
def stats__watched():
    with pinging() as (server, client):
        watch = subprocess.Popen(
            [VERBATIM, "stats", "--json", "--watch=0.2", str(client)], stdout=subprocess.PIPE, text=True
        )
        try:
            lines = [json.loads(watch.stdout.readline()) for _ in range(3)]
        finally:
            watch.kill()
            watch.wait()
        expect([line["per_second"] for line in lines], [False, True, True], "rates after totals")
        expect(lines[0]["processes"][0]["completions"] > 0, True, "completions")


@case
def stats__watched_over_a_silence():
    """What comes back counts from there on: nobody knows what it did meanwhile."""
    with pinging() as (_, client):
        watch = subprocess.Popen(
            [VERBATIM, "stats", "--json", "--watch=0.2", str(client)], stdout=subprocess.PIPE, text=True
        )

        def follow_until(condition):
            row = None
            while row is None or not condition(row):
                row = json.loads(watch.stdout.readline())["processes"][0]
            return row

        try:
            follow_until(lambda row: row["requests"] > 0)
            os.kill(client, signal.SIGSTOP)
            follow_until(lambda row: row["trouble"])
            os.kill(client, signal.SIGCONT)
            back = follow_until(lambda row: not row["trouble"])
            expect((back["requests"], back["completions"]), (0, 0), "rates of the first look after it")
            follow_until(lambda row: row["requests"] > 0)
        finally:
            watch.kill()
            watch.communicate()


@case
def fields__are_in_the_manual():
    manual = (pathlib.Path(__file__).resolve().parents[2] / "man/man1/verbatim.1").read_text(encoding="utf-8")
    said = set(
        re.findall(r"\\fB(\w+)\\fR", manual[manual.index(".SS Fields") : manual.index(".SS Captures")])
    )
    with running("ibv_srq_pingpong -p 18599") as (pid,), pinging() as (server, _):
        wait_for(lambda: pid in processes() and len(shown(pid)["qps"]) == 16, "16 queue pairs")
        found = [
            *looked("stats"),
            *(
                row
                for process in looked("show", str(pid), str(server))
                for kind in process.values()
                for row in (kind if isinstance(kind, list) else [kind])
            ),
        ]
        expect(
            sorted({name for row in found for name in row} - said), [], "fields without a word in the manual"
        )
        expect(len(found) > 20, True, "rows")


@case
def help__of_each_command():
    for command in "run", "ps", "show", "stats", "top", "capture", "faults", "doctor":
        expect(verbatim(command, "--help").startswith(f"usage: verbatim {command} "), True, command)
        expect(verbatim("help", command), verbatim(command, "-h"), command)
    expect(verbatim("ps", "--json", "--help"), verbatim("ps", "--help"), "behind another option")
    expect(verbatim("ps", "--timeout", "0.5", "--help"), verbatim("ps", "--help"), "behind a value")
    expect(verbatim("run", "printf", "%s", "--help"), "--help", "a program's own")
    expect(verbatim("run", "--", "printf", "%s", "-h"), "-h", "a program's own")
    verbatim("help", "nonsense", status=125)


@case
def ps__who_is_not_there_is_told():
    done = harness.run([VERBATIM, "ps", "1"], capture_output=True, text=True, check=False, timeout=LIMIT_S)
    expect((done.returncode, done.stdout, "process 1 is not" in done.stderr), (1, "", True), done.stderr)
    with pinging() as (server, _):
        expect(
            sorted(row["pid"] for row in looked("ps", str(server), "1", status=1)), [server], "who is there"
        )


@case
def ps__without_proc():
    if os.environ[harness.ISOLATED_BY] not in ("root", "user"):
        return "no mounts of its own"
    hidden = f"mount -n -t tmpfs none /run && mount -n --bind /run /proc && exec {VERBATIM} ps --json"
    with pinging() as (server, client):
        done = harness.run(
            ["unshare", "--mount", "--propagation", "unchanged", "sh", "-c", hidden],
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        found = json.loads(done.stdout)["processes"] if done.returncode == 0 else done.stderr
        expect(sorted(row["pid"] for row in found), sorted((server, client)), "who is there")
        expect([row["trouble"] for row in found], ["", ""], "answers")
    return None


@case
def output_that_cannot_be_written():
    for words in "ps --json", "--version", "--help", "help top", "stats --help", "faults", "faults --words", "lab --help":
        with open("/dev/full", "wb") as full:
            done = harness.run(
                [VERBATIM, *words.split()],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
                timeout=LIMIT_S,
            )
        expect((done.returncode, "could not be written" in done.stderr), (1, True), f"{words}: {done.stderr}")


# Opens devices, the first one if none is named, under a name in hexadecimal.
NAMED = """
import ctypes, sys, time
ctypes.CDLL(None).prctl(15, bytes.fromhex(sys.argv[1]), 0, 0, 0)
verbs = ctypes.CDLL("libibverbs.so.1")
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_get_device_name.argtypes = [ctypes.c_void_p]
verbs.ibv_get_device_name.restype = ctypes.c_char_p
verbs.ibv_open_device.argtypes = [ctypes.c_void_p]
verbs.ibv_open_device.restype = ctypes.c_void_p
count = ctypes.c_int()
found = verbs.ibv_get_device_list(ctypes.byref(count))
devices = {verbs.ibv_get_device_name(d).decode(): d for d in found[: count.value]}
opened = [verbs.ibv_open_device(devices[name]) for name in sys.argv[2:] or list(devices)[:1]]
print(all(opened), flush=True)
time.sleep(1000)
"""


@contextlib.contextmanager
def named(name, *devices):
    words = [VERBATIM, "run", sys.executable, "-c", NAMED, name.hex(), *devices]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as program:
        try:
            expect(program.stdout.readline(), "True\n", "it has a device")
            yield program.pid
        finally:
            program.kill()


# Names that would play tricks with lines, terminals and those who expect UTF-8, and what is shown of them.
ODD_NAMES = {
    b"a\n\x1b[2J b)": "a??[2J b)",
    b"\xc2\x9b31mred\tb": "??31mred?b",
    b"\xff\x9b31m": "??31m",
    "日本日本日本".encode(): "日本日本日本"[:5],  # the kernel keeps 15 bytes
    "münchen".encode(): "münchen",
}


@case
def ps__odd_names():
    for name, wanted in ODD_NAMES.items():
        with named(name) as pid:
            row = processes()[pid]
            expect((row["name"], row["run_state"] != "?"), (wanted, True), "name, and state behind it")
            expect(verbatim("show").splitlines()[0], f"{pid} {wanted}", "what a terminal gets")


def columns_of(text):
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


@case
def ps__columns_of_other_alphabets():
    """Whatever the locale is."""
    with named("münchen".encode()), named("日本".encode()), named(b"plain"):
        for locale in "C", "C.UTF-8":
            shown_to = os.environ | {"LC_ALL": locale}
            done = subprocess.run([VERBATIM, "ps"], capture_output=True, check=True, env=shown_to)
            heading, *lines = done.stdout.decode().splitlines()
            ends = {columns_of(line[: re.match(r" *\d+ +\S+ +\S+ +\d+", line).end()]) for line in lines}
            expect((len(lines), ends), (3, {heading.index("SLOT") + 4}), f"where slots end ({locale})")


@case
def ps__devices_whose_names_begin_alike():
    made = "ip link add eth1 type veth peer name eth10 && for i in 1 10; do " + \
        "ip addr add 10.77.$i.1/24 dev eth$i && ip link set eth$i up; done"
    if os.environ[harness.ISOLATED_BY] not in ("root", "user") or subprocess.run(
        ["sh", "-c", made], check=False
    ).returncode:
        return "no interfaces can be added here"
    try:
        with named(b"both", "vb_eth10", "vb_eth1") as pid:
            expect(processes()[pid]["devices"].split(","), ["vb_eth10", "vb_eth1"], "devices")
    finally:
        subprocess.run(["ip", "link", "del", "eth1"], check=True)
    return None


# Registers the same bytes so many times.
REGIONS = """
import ctypes, sys, time
verbs, pointer = ctypes.CDLL("libibverbs.so.1"), ctypes.c_void_p
for call, *arguments in (
    ("get_device_list", pointer),
    ("open_device", pointer),
    ("alloc_pd", pointer),
    ("reg_mr", pointer, pointer, ctypes.c_size_t, ctypes.c_int),
):
    getattr(verbs, "ibv_" + call).argtypes, getattr(verbs, "ibv_" + call).restype = arguments, pointer
devices = ctypes.cast(verbs.ibv_get_device_list(None), ctypes.POINTER(pointer))
pd = verbs.ibv_alloc_pd(verbs.ibv_open_device(devices[0]))
page = ctypes.create_string_buffer(4096)
print(all(verbs.ibv_reg_mr(pd, ctypes.addressof(page), 4096, 1) for _ in range(int(sys.argv[1]))), flush=True)
time.sleep(1000)
"""


@case
def show__very_many_regions():
    """In as much memory as a small machine has."""
    many, enough = 30000, 96 << 20
    words = [VERBATIM, "run", sys.executable, "-c", REGIONS, str(many)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as program:
        try:
            expect(program.stdout.readline(), "True\n", "it has regions")
            for format in [], ["--json"]:
                done = harness.run(
                    [VERBATIM, "show", *format, "--timeout=20", "mrs"],
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=LIMIT_S,
                    preexec_fn=functools.partial(resource.setrlimit, resource.RLIMIT_AS, (enough, enough)),
                )
                expect((done.returncode, done.stderr), (0, ""), f"exit status and complaints {format}")
                expect(len(re.findall(r"0x\w{8}\b.*?region", done.stdout)) >= many, True, "regions")
        finally:
            program.kill()


@case
def stats__of_another_pid_namespace():
    """Processes have no pid there, and each one's rates are of what it has counted itself."""
    inside = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*inside, "true"], check=False).returncode:
        return "no namespace of pids can be made here"
    with contextlib.ExitStack() as idle, running("rping -s -P -a 127.0.0.1 -p 7475") as (server,):
        client = [VERBATIM, "run", *"rping -c -a 127.0.0.1 -p 7475 -C 300".split()]
        harness.run(client, check=True, timeout=LIMIT_S)
        expect(looked("stats", str(server))[0]["requests"] > 0, True, "requests")
        while next(iter(processes())) == server:
            idle.enter_context(named(b"idle"))  # until one of them is in front of it
        words = [*inside, VERBATIM, "stats", "--json", "--watch=0.2"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as watch:
            lines = [json.loads(watch.stdout.readline())["processes"] for _ in range(2)]
            watch.terminate()
        expect({(row["pid"], row["requests"]) for row in lines[1]}, {(0, 0)}, "rates where nothing happens")
    return None


@case
def ps__without_descriptors():
    """For sockets, or for what the answers are written to: all are shown, or it says why not."""
    with pinging():
        for limit in range(4, 12):
            done = harness.run(
                ["sh", "-c", f"ulimit -n {limit}; exec {VERBATIM} ps"],
                capture_output=True,
                text=True,
                check=False,
                timeout=LIMIT_S,
            )
            found = done.returncode, "ulimit -n" in done.stderr, "TROUBLE" in done.stdout
            wanted = (125, True, False) if done.returncode else (0, False, False)
            expect(found, wanted, f"{limit} descriptors: {done.stdout}{done.stderr}")
            expect(done.returncode, 125 if limit == 4 else 0 if limit == 11 else done.returncode, f"{limit}")


@case
def usage():
    verbatim("ps", "--timeout", "0.5")
    verbatim("ps", "--timeout", status=125)
    verbatim("ps", "--timeout=x", status=125)
    verbatim("ps", "--nonsense", status=125)
    verbatim("ps", "--json=1", status=125)
    verbatim("ps", "-x", status=125)
    verbatim("ps", "--", "--json", status=125)
    expect(
        verbatim("show", "qps", "--json"),
        verbatim("show", "--json", "--", "qps"),
        "options before and behind",
    )
    verbatim("show", "nonsense", status=125)
    verbatim("ps", "qps", status=125)
    verbatim("ps", "--watch=0", status=125)
    verbatim("show", "1", status=1)
    done = subprocess.run([VERBATIM, "ps", *["1"] * 65], capture_output=True, text=True, check=False)
    expect((done.returncode, "64 processes" in done.stderr), (125, True), done.stderr)
    done = subprocess.run([VERBATIM, "show", "nonsense"], capture_output=True, text=True, check=False)
    expect("'nonsense' is no kind of object" in done.stderr, True, done.stderr)
    expect(re.findall(r"--help +(.*)", verbatim("ps", "--help")), ["show this help"], "the text of --help")


# ---- processes that do not answer, and others' ----


@case
def ps__stopped_process():
    with pinging() as (server, client):
        os.kill(client, signal.SIGSTOP)
        wait_for(lambda: processes()[client]["run_state"] == "T", "it stands")
        row = processes()[client]
        expect(
            (row["name"], "stopped" in row["trouble"]), ("rping", True), f"what is known ({row['trouble']})"
        )
        expect(processes()[server]["trouble"], "", "the other one")
        expect("stopped" in verbatim("show", str(client), status=1), True, "told")
        os.kill(client, signal.SIGCONT)
        wait_for(lambda: processes()[client]["trouble"] == "", "it answers again")


@case
def ps__stopped_process_that_many_have_asked():
    """More than its socket takes: it is known all the same."""
    with pinging() as (_, client):
        slot = processes()[client]["slot"]
        os.kill(client, signal.SIGSTOP)
        wait_for(lambda: processes()[client]["run_state"] == "T", "it stands")
        for _ in range(100000):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as asking:
                if asking.connect_ex(f"\0verbatim/visit/{slot}"):
                    break
        else:
            raise Failure("it takes any number")
        row = processes()[client]
        expect((row["name"], row["run_state"], row["slot"]), ("rping", "T", slot), "what is known")
        expect("stopped" in row["trouble"], True, row["trouble"])
        expect("stopped" in verbatim("show", str(client), status=1), True, "told")
        os.kill(client, signal.SIGCONT)
        wait_for(lambda: processes()[client]["trouble"] == "", "it answers again")


@case
def ps__spinning_process():
    spin = "ib_write_bw -F -d vb_lo -x 0 -p 18598 -D 600"
    if harness.missing_programs(spin):
        return "ib_write_bw is not installed"
    with running(spin, spin + " 127.0.0.1") as (server, client):
        wait_for(
            lambda: client in processes() and [q["state"] for q in shown(client)["qps"]] == ["RTS"], "traffic"
        )
        for _ in range(5):
            expect(processes()[client]["trouble"], "", "answer")
    return None


@case
def ps__many_at_once():
    with pinging() as (server, client):
        asking = [subprocess.Popen([VERBATIM, "show", "--json"], stdout=subprocess.PIPE) for _ in range(8)]
        for one in asking:
            expect(
                {
                    p["process"]["trouble"]
                    for p in json.loads(harness.communicate(one, LIMIT_S)[0])["processes"]
                },
                {""},
                "answers",
            )


def listener(slot):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.bind(f"\0verbatim/visit/{slot}")
    s.listen()
    return s


@case
def ps__silent_listener():
    with listener(4001):
        found = looked("ps", timeout=0.3)
        expect(
            [(row["pid"], row["trouble"]) for row in found],
            [(os.getpid(), "no answer in time")],
            "who says nothing",
        )


def answering(server, answer, records):
    """Takes one question, and answers it with these bytes."""
    connection, _ = server.accept()
    with connection:
        _, ancillary, _, _ = connection.recvmsg(4096, 4096)
        fds = array.array("i", ancillary[0][2])
        with contextlib.suppress(OSError):
            os.write(fds[0], records)
        os.close(fds[0])
        if answer:
            connection.send(answer)


@case
def ps__liars():
    good = struct.pack("=QiIQ", MAGIC, 0, 0, 64)
    lies = {
        "hang-up": (b"", b""),
        "nonsense": (b"nonsense", b""),
        "strange error": (struct.pack("=QiIQ", MAGIC, 12345678, 0, 0), b""),
        "record without length": (good, struct.pack("=HHI", 3, 0, 0) * 8),
        "record beyond the end": (good, struct.pack("=HHI", 3, 65535, 0) * 8),
        "short records": (good, struct.pack("=HHI", 3, 8, 0) * 8),
        "noise": (good, bytes(range(256)) * 300),
        "names without end": (
            good,
            b"".join(struct.pack("=HHI", kind, 2000, 0) + b"\xff" * 1992 for kind in range(1, 10)),
        ),
    }
    for name, (answer, records) in lies.items():
        with listener(4002) as server:
            for command in ("ps", "show", "stats"):
                thread = threading.Thread(target=answering, args=(server, answer, records))
                thread.start()
                expect(len(looked(command)), 1, f"{name}: the process in {command}")
                thread.join()


def answering_with_a_hole(server, hole_bytes):
    connection, _ = server.accept()
    with connection:
        _, ancillary, _, _ = connection.recvmsg(4096, 4096)
        fds = array.array("i", ancillary[0][2])
        os.ftruncate(fds[0], hole_bytes)
        os.close(fds[0])
        connection.send(struct.pack("=QiIQ", MAGIC, 0, 0, hole_bytes))


@case
def ps__a_long_file_of_nothing():
    """What costs its writer no memory costs its reader none."""
    hole_bytes = 250 << 20
    with listener(4003) as server:
        thread = threading.Thread(target=answering_with_a_hole, args=(server, hole_bytes))
        thread.start()
        with open(os.devnull, "wb") as nothing:
            asker = subprocess.Popen([VERBATIM, "show", "--json"], stdout=nothing)
            _, status, usage = os.wait4(asker.pid, 0)
            asker.returncode = os.waitstatus_to_exitcode(status)
        thread.join()
        expect(asker.returncode, 0, "exit status")
        expect(usage.ru_maxrss * 1024 < hole_bytes, True, f"memory that is used: {usage.ru_maxrss} KiB")


def lacks_another_user():
    """Why no other user can run verbatim here, or nothing."""
    reads = ["setpriv", "--reuid", str(OTHER_USER), "test", "-r", f"{BUILD}/lib/libibverbs.so.1"]
    if os.geteuid() != 0 or subprocess.run(reads, check=False).returncode:
        return "there is no other user to be, or none who can read the build directory"
    return ""


@case
def ps__another_user():
    if why := lacks_another_user():
        return why
    with running(PING_SERVER) as (server,):
        wait_for(lambda: server in processes(), "the server")
        own = subprocess.run(
            ["setpriv", "--reuid", str(OTHER_USER), VERBATIM, "show", "--json"],
            capture_output=True,
            text=True,
            check=True,
        )
        found = json.loads(own.stdout)["processes"]
        expect([p["process"]["trouble"] for p in found], ["another user's process"], "what the other user sees")
        expect([p["qps"] + p["mrs"] + p["ids"] + p["devices"] for p in found], [[]], "records")
        # One who asks nevertheless is turned away.
        said = subprocess.run(
            ["setpriv", "--reuid", str(OTHER_USER), sys.executable, "-c", ASK],
            input=str(processes()[server]["slot"]),
            capture_output=True,
            text=True,
            check=True,
        )
        expect(said.stdout.strip(), "b'' 0", "the process's answer")
    return None


# What a process can be whose effective user is the other user: each function makes this process so.


def be_other():
    os.setgroups([])
    os.setresgid(OTHER_USER, OTHER_USER, OTHER_USER)
    os.setresuid(OTHER_USER, OTHER_USER, OTHER_USER)
    hide(False)


def hide(hides=True):
    ctypes.CDLL(None).prctl(4, int(not hides), 0, 0, 0)  # PR_SET_DUMPABLE


def be_other_effectively():
    os.setresuid(SOME_USER, OTHER_USER, SOME_USER)
    hide(False)


def be_other_and_hide():
    be_other()
    hide()


def be_other_elsewhere():
    """In a user namespace of its own."""
    be_other()
    if ctypes.CDLL(None).unshare(0x10000000):
        os._exit(IMPOSSIBLE)
    hide(False)


AS_OTHER = ["setpriv", f"--reuid={OTHER_USER}", f"--regid={OTHER_USER}", "--clear-groups"]
# And whether the other user's processes may deal with it.
DISGUISES = (
    (be_other, True), (be_other_effectively, False), (be_other_and_hide, False), (be_other_elsewhere, False)
)


@contextlib.contextmanager
def disguised(disguise, work):
    """A process that calls both functions, the second with a socket whose other end this gives; or nothing
    where it cannot be so."""
    end, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    end.settimeout(4 * LIMIT_S)
    pid = os.fork()
    if pid == 0:
        try:
            end.close()
            disguise()
            its_end.send(b"ready")
            work(its_end)
        finally:
            os._exit(1)
    its_end.close()
    try:
        yield end if end.recv(5) else None
    finally:
        end.close()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def listen_and_tell(told):
    """What whoever comes asks: b"-" for nothing."""
    with listener(4004) as server:
        told.send(b"listening")
        while True:
            connection, _ = server.accept()
            with connection:
                told.send(connection.recv(4096) or b"-")


@case
def ps__who_only_looks_like_this_user():
    """Nothing is asked of him. Root asks everybody."""
    if why := lacks_another_user():
        return why
    for disguise, is_of_user in DISGUISES:
        for user in 0, OTHER_USER:
            with disguised(disguise, listen_and_tell) as told:
                if not told:
                    continue
                told.recv(100)
                done = harness.run(
                    [*(AS_OTHER if user else ()), VERBATIM, "ps", "--json"],
                    capture_output=True,
                    text=True,
                    check=True,
                    timeout=LIMIT_S,
                )
                troubles = [row["trouble"] for row in json.loads(done.stdout)["processes"]]
                is_asked, asked = user == 0 or is_of_user, told.recv(4096)
                what = f"{disguise.__name__}, seen by {user}: {asked}, {troubles}"
                expect((len(troubles), asked != b"-"), (1, is_asked), what)
                expect("does not let" in troubles[0] or "namespace" in troubles[0], not is_asked, what)
    return None


@case
def show__root_sees_all_users_processes():
    if why := lacks_another_user():
        return why
    with running(f"setpriv --reuid {OTHER_USER} {PING_SERVER}") as (server,):
        wait_for(lambda: server in processes(), "the server")
        expect(processes()[server]["trouble"], "", "what root is told")
        expect(len(shown(server)["ids"]), 1, "identifiers")
        expect(looked("stats", str(server))[0]["trouble"], "", "counters")
        os.kill(server, signal.SIGSTOP)
        wait_for(lambda: "stopped" in processes()[server]["trouble"], "that it stands")
        expect("it is stopped" in verbatim("show", str(server), status=1), True, "what show says")
    return None


ASK = f"""
import array, os, socket, struct
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect("\\0verbatim/visit/" + input())
memfd = os.memfd_create("x")
try:
    s.sendmsg([struct.pack("=QII", {MAGIC}, 1, 0xff).ljust(56, b"\\0")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [memfd]))])
    answer = s.recv(100)
except (BrokenPipeError, ConnectionResetError):
    answer = b""
print(answer, os.fstat(memfd).st_size)
"""


def visit(slot):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.settimeout(LIMIT_S)
    s.connect(f"\0verbatim/visit/{slot}")
    return s


def ask(s, question, *fds):
    s.sendmsg([question], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])
    try:
        return s.recv(100)
    except ConnectionResetError:
        return b""


def question(what=1, magic=MAGIC):
    bytes_of_it = struct.pack("=QII", magic, what, 0xFF)
    return bytes_of_it.ljust(QUESTION_BYTES, b"\0")


QUESTION_BYTES = 56


@case
def visit__bad_questions():
    with running(PING_SERVER) as (server,):
        wait_for(lambda: server in processes(), "the server")
        slot = processes()[server]["slot"]
        memfd, (out, inward) = os.memfd_create("answer"), os.pipe()
        for text, bad in (
            ("empty", b"x"),
            ("short", question()[:12]),
            ("long", question() + b"x"),
            ("magic", question(magic=7)),
            ("unknown", question(what=99)),
        ):
            with visit(slot) as s:
                expect(ask(s, bad, memfd), b"", f"{text}: hang-up")
        with visit(slot) as s:
            expect(ask(s, question()), b"", "no descriptor: hang-up")
        with visit(slot) as s:
            expect(struct.unpack("=QiIQ", ask(s, question(), inward))[1], -1, "a pipe is refused (EPERM)")
        with visit(slot) as s:
            expect(
                struct.unpack("=QiIQ", ask(s, question(), memfd, memfd, memfd))[1],
                0,
                "surplus descriptors are closed",
            )
            expect(struct.unpack("=QiIQ", ask(s, question(), memfd))[1], 0, "a second question")
        crowd = [visit(slot) for _ in range(40)]
        wait_for(lambda: "refused" in looked("ps")[0]["trouble"], "too many visitors")
        for s in crowd:
            s.close()
        wait_for(lambda: looked("ps")[0]["trouble"] == "", "the crowd has gone")
        descriptors = {os.readlink(f"/proc/{server}/fd/{fd}") for fd in os.listdir(f"/proc/{server}/fd")}
        expect([name for name in descriptors if "answer" in name], [], "descriptors that were kept")
        for fd in memfd, out, inward:
            os.close(fd)


def run_case(function):
    start = time.monotonic()
    try:
        reason = function()
    except (
        Failure,
        subprocess.SubprocessError,
        KeyError,
        IndexError,
        OSError,
        ValueError,
        struct.error,
    ) as problem:
        return harness.Outcome("FAIL", f"{type(problem).__name__}: {problem}", *getattr(problem, "said", ()))
    print(f"# {time.monotonic() - start:.1f} s")
    return harness.Outcome("skip", reason) if reason else harness.Outcome("ok")


def run_cases(cases):
    """Those whose names the pattern on the command line finds, or all; the exit status."""
    report = harness.Report()
    pattern = re.compile(sys.argv[2] if len(sys.argv) > 2 else "")
    for function in cases:
        if pattern.search(function.__name__):
            report.add(function.__name__, run_case(function))
    return report.finish()


if __name__ == "__main__":
    harness.isolate()
    harness.require_library(BUILD)
    if harness.missing_programs("rping", "ibv_srq_pingpong", "ip"):
        print("1..0 # SKIP rping, ibv_srq_pingpong and ip are needed")
        sys.exit()
    LOGS = harness.log_directory(BUILD, "look")
    sys.exit(run_cases(CASES))

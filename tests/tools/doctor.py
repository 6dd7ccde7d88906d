#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""verbatim doctor: each thing that a machine can forbid is forbidden once, in a namespace or a process of its
own, and must be found.

usage: doctor.py BUILD_DIR [PATTERN]
"""
import ctypes
import errno
import json
import os
import pathlib
import re
import resource
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading

import paths  # noqa: F401
import harness
from look import Failure, expect, run_cases
from seccomp import forbid

BUILD = sys.argv[1]
VERBATIM = os.path.join(BUILD, "verbatim")
CASES = []
# seccomp: a filter that answers one system call with an error
SYSTEM_CALLS = {"x86_64": {"process_vm_readv": 310, "memfd_create": 319, "userfaultfd": 323}}.get(
    os.uname().machine, {}
)


def case(function):
    CASES.append(function)
    return function


def doctor(*args, prefix=(), before=None, env=None):
    """(exit status, {name: finding})"""
    done = harness.run(
        [*prefix, VERBATIM, "doctor", "--json", *args],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=before,
        env={k: v for k, v in os.environ.items() if not k.startswith("VERBATIM_")} | (env or {}),
        timeout=60,
    )
    try:
        report = json.loads(done.stdout)
    except ValueError:
        raise Failure(f"no JSON: {done.stdout[:100]} {done.stderr[:200]}") from None
    expect(
        report["status"],
        max((c["status"] for c in report["checks"]), key=["ok", "note", "bad"].index),
        "the worst of all",
    )
    for check in report["checks"]:
        expect(bool(check["found"]), True, f"{check['name']}: something is found")
        expect(bool(check["means"]), check["status"] != "ok", f"{check['name']}: a meaning")
    expect(done.returncode, int(report["status"] == "bad"), "exit status")
    return {check["name"]: check for check in report["checks"]}


@case
def here():
    checks = doctor()
    expect(len(checks) > 15, True, "checks")
    text = subprocess.run([VERBATIM, "doctor"], capture_output=True, text=True, check=False).stdout
    expect(len(re.findall(r"^(ok|note|bad) +\S", text, re.MULTILINE)), len(checks), "lines")
    expect(
        subprocess.run([VERBATIM, "doctor", "--nonsense"], capture_output=True, check=False).returncode,
        125,
        "usage",
    )


@case
def seccomp():
    if not SYSTEM_CALLS:
        return "system calls' numbers are not known here"
    for name, check, status in (
        ("process_vm_readv", "copies between processes", "note"),
        ("userfaultfd", "mapped memory", None),
        ("memfd_create", "shared memory", "bad"),
    ):
        found = doctor(before=forbid(SYSTEM_CALLS[name]))
        expect("filter" in found["system calls"]["found"], True, "seccomp is noticed")
        if status:
            expect(found[check]["status"], status, name)
            expect(bool(found[check]["mend"]), True, f"{name}: a way to mend it")
    return None


@case
def port_is_held():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("0.0.0.0", 4791))
        found = doctor()["UDP port 4791"]
        expect(
            (found["status"], "other program" in found["found"], "ss -aunp" in found["mend"]),
            ("bad", True, True),
            found["found"],
        )


SOME_USER, OTHER_USER = 65532, 65533


def become(user):
    """Anybody can be who runs this script's interpreter; another user may not even find it."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


class Holder:
    """A process of another user that calls a function and keeps what it returns."""

    def __init__(self, take):
        self.end, its_end = socket.socketpair()
        resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
        self.pid = os.fork()
        if self.pid == 0:
            self.end.close()
            become(OTHER_USER)
            held = take()
            its_end.send(b"held")
            its_end.recv(1)
            os._exit(not held)
        its_end.close()
        expect(self.end.recv(4), b"held", "the other user's process")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end.close()
        os.waitpid(self.pid, 0)


def hold_port():
    """Under a name that would play tricks with a terminal."""
    ctypes.CDLL(None).prctl(15, b"\x1b[2Ja\xc2\x9bb", 0, 0, 0)
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("0.0.0.0", 4791))
    return sock


def hold_port_and_answer():
    """Any program can say that it is on verbatim."""
    sock = hold_port()

    def answer():
        while True:
            question, who = sock.recvfrom(2000)
            if question[:8] == struct.pack("!II", PROBE_MAGIC, PROBE_STEER_MAGIC):
                sock.sendto(struct.pack("!I", PROBE_ANSWER_MAGIC) + question[4:24], who)

    threading.Thread(target=answer, daemon=True).start()
    return sock


SOURCES = pathlib.Path(__file__).resolve().parents[2]
PROBE = (SOURCES / "src/host/udp/udp_probe.h").read_text(encoding="utf-8")
PROBE_MAGIC, PROBE_ANSWER_MAGIC, PROBE_STEER_MAGIC = (
    int(re.search(rf"#define VB_PROBE_{name} +(0x\w+)u", PROBE)[1], 16)
    for name in ("MAGIC", "ANSWER_MAGIC", "STEER_MAGIC")
)
LINK_VERSION = re.search(
    r"VB_LINK_VERSION = (\d+)", (SOURCES / "src/host/host.h").read_text(encoding="utf-8")
).group(1)


def hold_names(kind, prefix):
    sockets = []
    for slot in range(1, 4096):
        sockets.append(socket.socket(socket.AF_UNIX, kind))
        sockets[-1].bind(f"\0verbatim/{prefix}/{slot}")
    return sockets


def hold_inboxes():
    return hold_names(socket.SOCK_DGRAM, "slot")


def hold_links():
    return hold_names(socket.SOCK_SEQPACKET, f"link/{LINK_VERSION}")


def program(user, act):
    """What a program of a user says in which act(libibverbs, librdmacm) is called, and what it is told with
    VERBATIM_DEBUG=1."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(write, 1)
        os.dup2(write, 2)
        become(user)
        os.environ["VERBATIM_DEBUG"] = "1"
        act(
            *(
                ctypes.CDLL(os.path.join(BUILD, "lib", name), use_errno=True, mode=ctypes.RTLD_GLOBAL)
                for name in ("libibverbs.so.1", "librdmacm.so.1")
            )
        )
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        text = said.read()
    os.waitpid(pid, 0)
    return text


def open_device(user):
    """Says "open", or the errno."""

    def act(verbs, _):
        verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
        verbs.ibv_open_device.restype = ctypes.c_void_p
        verbs.ibv_open_device.argtypes = [ctypes.c_void_p]
        device = verbs.ibv_get_device_list(None)[0]
        os.write(1, b"open" if verbs.ibv_open_device(device) else b"errno %d" % ctypes.get_errno())

    return program(user, act)


def bind_id(user):
    """Says "bound", or the errno."""

    def act(_, cm):
        cm.rdma_create_event_channel.restype = ctypes.c_void_p
        identifier, tcp, address = ctypes.c_void_p(), 0x106, struct.pack("=HHI8x", socket.AF_INET, 0, 0)
        done = (
            cm.rdma_create_id(
                ctypes.c_void_p(cm.rdma_create_event_channel()), ctypes.byref(identifier), None, tcp
            )
            == 0
            and cm.rdma_bind_addr(identifier, address) == 0
        )
        os.write(1, b"bound" if done else b"errno %d" % ctypes.get_errno())

    return program(user, act)


def ask_as(user):
    return doctor(before=lambda: become(user))


def can_be_others():
    """And start the command, which may lie in root's home."""
    if os.geteuid() or os.environ[harness.ISOLATED_BY] != "root":
        return False
    return not subprocess.run(
        ["setpriv", f"--reuid={SOME_USER}", "--clear-groups", "test", "-x", VERBATIM], check=False
    ).returncode


def expect_holder(found, holder, user):
    """Root and the holder's user are told the process, others the user."""
    expect((found["status"], f"user {OTHER_USER}" in found["found"]), ("bad", True), found["found"])
    expect(f"process {holder.pid} (" in found["found"], user != SOME_USER, found["found"])


@case
def port_of_another_user():
    if not can_be_others():
        return "no other user can start the command here"
    with Holder(hold_port) as holder:
        for user in (0, SOME_USER):
            expect_holder(ask_as(user)["UDP port 4791"], holder, user)
            told = bind_id(user)
            expect(("bound" in told, f"user {OTHER_USER}" in told), (True, True), told)
        told = bind_id(0)
        expect(f"process {holder.pid} (?[2Ja??b) of" in told, True, f"what a program of root's is told: {told}")
        text = subprocess.run([VERBATIM, "doctor"], capture_output=True, text=True, check=False).stdout
        expect(f"process {holder.pid} (?[2Ja??b) of" in text, True, text)
    return ""


@case
def port_of_another_user_who_answers():
    if not can_be_others():
        return "no other user can start the command here"
    with Holder(hold_port_and_answer) as holder:
        for user in (0, SOME_USER):
            found = ask_as(user)["UDP port 4791"]
            expect_holder(found, holder, user)
            expect("who says that it is for verbatim" in found["found"], True, found["found"])
            expect("within this host all works" in found["means"], True, found["means"])
        done = subprocess.run([VERBATIM, "doctor"], capture_output=True, text=True, check=False)
        expect(
            (done.returncode, "works here" in done.stdout, "All is well" in done.stdout),
            (1, False, False),
            f"doctor's last word: {done.stdout[-100:]}",
        )
    return ""


@case
def no_slot_is_free():
    if not can_be_others():
        return "no other user can start the command here"
    for hold in (hold_inboxes, hold_links):
        expect((ask_as(SOME_USER)["slots"]["status"], open_device(SOME_USER)[-4:]), ("ok", "open"), "before")
        with Holder(hold) as holder:
            for user in (0, SOME_USER):
                found = ask_as(user)["slots"]
                expect_holder(found, holder, user)
                expect("none is free: 4095 of 4095" in found["found"], True, found["found"])
                told = open_device(user)
                expect(
                    (f"errno {errno.EADDRNOTAVAIL}" in told, f"user {OTHER_USER}" in told, "4095 of" in told),
                    (True, True, True),
                    told,
                )
            expect(f"process {holder.pid} (" in open_device(0), True, "what a program of root's is told")
            text = subprocess.run([VERBATIM, "doctor"], capture_output=True, text=True, check=False).stdout
            expect("works here" in text or "All is well" in text, False, "doctor's last word")
    return ""


@case
def port_is_shared():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        own.bind(("0.0.0.0", 4791))
        expect(doctor()["UDP port 4791"]["found"], "1 sockets of this user's processes share it", "shared")


@case
def firewall():
    if not shutil.which("nft"):
        return "nft is not installed"
    others = "udp dport 14791 drop; tcp dport 4791 drop; udp dport 53 counter packets 4791 bytes 4791 drop"
    for rules, status, names_rule in (
        ("udp dport 4791 drop", "bad", True),
        ("policy drop; iif lo accept", "bad", False),
        (others, "ok", False),
    ):
        made = subprocess.run(
            ["nft", "-f", "-"],
            input=f"table inet t {{\nchain c {{ type filter hook input priority 0; {rules}; }}\n}}\n",
            text=True,
            capture_output=True,
            check=False,
        )
        if made.returncode:
            return f"nft: {made.stderr.strip()[:100]}"
        try:
            checks = doctor()
        finally:
            subprocess.run(["nft", "flush", "ruleset"], check=True)
        found = checks["firewall"]["found"]
        expect(
            (checks["firewall"]["status"], "a rule is about the port" in found and "drop" in found),
            (status, names_rule),
            found,
        )
        if names_rule:
            expect(checks["UDP port 4791"]["status"], "bad", "the packet that was tried")
    expect(doctor()["firewall"]["status"], "ok", "without rules")
    return None


@case
def loopback_is_down():
    if os.environ[harness.ISOLATED_BY] == "no":
        return "no network of its own"
    found = doctor(prefix=("unshare", "--net"))
    expect(
        (found["interfaces"]["status"], "lo up" in found["interfaces"]["mend"]), ("bad", True), "no interface"
    )
    return ""


@case
def interfaces_have_an_mtu():
    if os.environ[harness.ISOLATED_BY] == "no":
        return "no network of its own"
    for mtu, path_mtu in ((1500, 1024), (4200, 4096), (576, 256)):
        set_mtu = f'ip link set lo mtu {mtu} up && exec "$@"'
        found = doctor(prefix=("unshare", "--net", "sh", "-c", set_mtu, "sh"))["interfaces"]
        expect(found["found"], f"vb_lo (MTU {mtu}, path MTU {path_mtu})", "what the interface has")
    return ""


@case
def addresses_have_labels():
    if os.environ[harness.ISOLATED_BY] == "no":
        return "no network of its own"
    label = 'ip link set lo mtu 4200 up && ip addr add 10.9.8.7/32 dev lo label lo:1 && exec "$@"'
    found = doctor(prefix=("unshare", "--net", "sh", "-c", label, "sh"))["interfaces"]
    expect(found["found"], "vb_lo (MTU 4200, path MTU 4096)", "devices are interfaces")
    return ""


@case
def limits():
    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    found = doctor(before=few)
    expect(
        (found["descriptors"]["status"], found["processors"]["status"]),
        ("note", "note"),
        "few descriptors, one processor",
    )
    expect(found["processors"]["found"][0], "1", "processors")
    expect(
        "shares memory with 1 others" in found["descriptors"]["means"], True, found["descriptors"]["means"]
    )
    found = doctor(before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20)))
    expect(
        (found["descriptors"]["status"], "some 20 " in found["descriptors"]["means"]),
        ("bad", True),
        "no descriptors",
    )
    for most, status, means in ((2 << 30, "note", "take the wire"), (400 << 20, "bad", "no device opens")):
        found = doctor(before=lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most)))["address space"]
        expect(
            (found["status"], means in found["means"], "ulimit" in found["mend"]), (status, True, True), found
        )
    if can_be_others():

        def be_alone():
            resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
            become(SOME_USER)

        found = doctor(before=be_alone)["threads"]
        expect(
            (found["status"], "EAGAIN" in found["means"], "ulimit -u" in found["mend"]),
            ("bad", True, True),
            found,
        )
    for name in ("descriptors", "threads", "address space"):
        expect(doctor()[name]["status"], "ok", f"{name}, without limits")
    if os.environ[harness.ISOLATED_BY] == "no":
        return "the limit of groups is the machine's"
    with open("/proc/sys/net/ipv4/igmp_max_memberships", "w", encoding="ascii") as file:
        file.write("500")
    expect(doctor()["multicast groups"]["status"], "ok", "enough groups")
    return ""


@case
def environment():
    found = doctor(env={"VERBATIM_LOKAL": "off", "LD_PRELOAD": "/nonexistent/libibverbs.so.1"})
    expect(
        ("VERBATIM_LOKAL" in found["settings"]["means"], found["settings"]["status"]),
        (True, "note"),
        "a misspelt setting",
    )
    expect(found["other libraries"]["status"], "note", "LD_PRELOAD")
    found = doctor(env={"LD_LIBRARY_PATH": os.path.join(BUILD, "lib"), "VERBATIM_LOCAL": "off"})
    expect(
        "without verbatim run" in found["other libraries"]["found"], True, found["other libraries"]["found"]
    )
    expect(found["settings"]["status"], "ok", "a setting")
    with tempfile.TemporaryDirectory(prefix="lib", dir=BUILD) as other:  # which begins as the name of ours
        shutil.copy(os.path.join(BUILD, "lib", "libibverbs.so.1"), other)
        found = doctor(env={"LD_LIBRARY_PATH": other})["other libraries"]["found"]
        expect(found.startswith(f"programs get {other}/libibverbs.so.1 unless"), True, found)
    for page in SOURCES.glob("man/man7/*.7"):
        for name in sorted(set(re.findall(r"VERBATIM_[A-Z_]+", page.read_text(encoding="utf-8")))):
            expect(
                f"{name} is no setting" in doctor(env={name: "1"})["settings"]["means"],
                False,
                f"{name} of {page.name}",
            )


# A setting, and whether it means something.
SETTINGS = (
    ("VERBATIM_COPY=fast", False),
    ("VERBATIM_COPY=link", True),
    ("VERBATIM_COPY=mapped", True),
    ("VERBATIM_COPY=process_vm", True),
    ("VERBATIM_COPY=process_v", False),
    ("VERBATIM_COPY=", True),
    ("VERBATIM_LOCAL=no", False),
    ("VERBATIM_LOCAL=OFF", False),
    ("VERBATIM_LOCAL=off,on", False),
    ("VERBATIM_LOCAL=off,", False),
    ("VERBATIM_LOCAL=on", True),
    ("VERBATIM_LINK=ib", False),
    ("VERBATIM_LINK=infiniband", True),
    ("VERBATIM_GSO=0", False),
    ("VERBATIM_GSO=off", True),
    ("VERBATIM_ICRC=off", False),
    ("VERBATIM_ICRC=ignore", True),
    ("VERBATIM_SYSFS=none", False),
    ("VERBATIM_SYSFS=off", True),
    ("VERBATIM_CHECK=lkey,rkye", False),
    ("VERBATIM_CHECK=-lkey,fatal", True),
    ("VERBATIM_CHECK=0", True),
    ("VERBATIM_CHECK=off", True),
    ("VERBATIM_CHECK=on,-lkey", True),
    ("VERBATIM_CHECK=0,fatal", False),
    ("VERBATIM_CHECK=-fatal", False),
    ("VERBATIM_LOKAL=off", False),
    ("VERBATIM_=", False),
    ("VERBATIM_TEST_SEED=1", True),
    ("VERBATIM_DEBUG=0", True),
)


@case
def settings_that_mean_nothing():
    """Said by doctor, and once by each process, whatever VERBATIM_DEBUG is."""
    for setting, means_something in SETTINGS:
        name, value = setting.split("=")
        finding = doctor(env={name: value})["settings"]
        expect(
            (finding["status"], name in finding["means"]),
            ("ok", False) if means_something else ("note", True),
            f"{setting}: {finding}",
        )
        done = harness.run(
            [VERBATIM, "run", "ibv_devices"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={k: v for k, v in os.environ.items() if not k.startswith("VERBATIM_")} | {name: value},
        )
        lines = [line for line in done.stderr.splitlines() if line.startswith("verbatim: VERBATIM_")]
        expect(
            (done.returncode, [line.split()[1] for line in lines]),
            (0, [] if means_something else [name]),
            f"{setting}: {done.stderr}",
        )


@case
def settings_that_cannot_be_read():
    wrong = os.path.join(LOGS, "wrong.faults")
    with open(wrong, "w", encoding="utf-8") as file:
        file.write("drop 1%\ndroop\n")
    for setting in (
        "VERBATIM_FAULTS=droop",
        "VERBATIM_FAULTS=@/nonexistent",
        f"VERBATIM_FAULTS=@{wrong}",
        "VERBATIM_SOCKETS_CONFIG=/nonexistent",
    ):
        name, value = setting.split("=")
        finding = doctor(env={name: value})["settings"]
        expect((finding["status"], name in finding["means"]), ("note", True), f"{setting}: {finding}")
    finding = doctor(
        env={"VERBATIM_LOKAL": "off", "VERBATIM_COPY": "fast", "VERBATIM_FAULTS": "droop"}
    )["settings"]
    for name in ("VERBATIM_LOKAL", "VERBATIM_COPY", "VERBATIM_FAULTS"):
        expect(name in finding["means"], True, f"{name}, among others: {finding}")


@case
def programs():
    expect(doctor("rping")["program"]["status"], "ok", "an ordinary program")
    expect(doctor("no-such-program")["program"]["status"], "bad", "a program that is not there")
    expect(doctor(LOGS)["program"]["status"], "bad", "a folder")
    foreign = os.path.join(LOGS, "foreign")
    with open(shutil.which("true"), "rb") as file:
        data = bytearray(file.read())
    data[18:20] = struct.pack("<H", 2)  # of a SPARC
    with open(foreign, "wb") as file:
        file.write(data)
    os.chmod(foreign, 0o755)
    expect("other processors" in doctor(foreign)["program"]["found"], True, "a program of another machine")
    musl = os.path.join(LOGS, "musl")
    with open(shutil.which("true"), "rb") as file:
        data = file.read()
    loader = re.search(rb"/lib\w*/ld-linux[\w.-]*\0", data)
    if loader:
        with open(musl, "wb") as file:
            file.write(data.replace(loader[0], b"/lib/ld-musl-any.so.1".ljust(len(loader[0]), b"\0")))
        os.chmod(musl, 0o755)
        expect("of musl" in doctor(musl)["program"]["found"], True, "a program of another C library")
    static = os.path.join(LOGS, "static")
    if (
        subprocess.run(
            ["cc", "-static", "-x", "c", "-", "-o", static],
            input="int main(void) { return 0; }",
            text=True,
            check=False,
            capture_output=True,
        ).returncode
        == 0
    ):
        expect("statically" in doctor(static)["program"]["found"], True, "a static program")
    raised = os.path.join(LOGS, "raised")
    shutil.copy(shutil.which("true"), raised)
    try:
        os.chown(raised, 65534, -1)
    except OSError:
        return "a program of another user cannot be made"
    os.chmod(raised, 0o4755)
    found = doctor(raised)["program"]
    expect(
        (found["status"], "LD_LIBRARY_PATH" in found["means"]),
        ("bad", True),
        "a program that raises privileges",
    )
    return ""


@case
def copied_command():
    alone = os.path.join(LOGS, "verbatim")
    shutil.copy(VERBATIM, alone)
    done = subprocess.run([alone, "doctor", "--json"], capture_output=True, text=True, check=False)
    expect((done.returncode, json.loads(done.stdout)["checks"][0]["status"]), (1, "bad"), "no libraries")


if __name__ == "__main__":
    harness.isolate()
    if os.geteuid() != 0:
        print("1..0 # SKIP namespaces cannot be made here")
        sys.exit()
    harness.require_library(BUILD)
    LOGS = harness.log_directory(BUILD, "doctor")
    sys.exit(run_cases(CASES))

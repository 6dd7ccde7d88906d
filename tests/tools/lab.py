#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""verbatim lab: labs are made, worked in and ended; each of their processes is killed, and nothing is left.

usage: lab.py BUILD_DIR [PATTERN]
"""
import contextlib
import functools
import json
import os
import pty
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid

import paths  # noqa: F401
import harness
from look import Failure, expect, run_cases
from seccomp import forbid

BUILD = sys.argv[1]
VERBATIM = os.path.abspath(os.path.join(BUILD, "verbatim"))
LIMIT_S = 60.0
CASES = []
# All processes of a lab, and what runs in it, have this in their environment.
MARK = f"LAB_TEST_MARK={uuid.uuid4()}"
MARKED = dict([MARK.split("=")])
ENV = os.environ | MARKED
ORDINARY_USER = 12345
UNSHARE = {"x86_64": 272, "aarch64": 97}.get(os.uname().machine)


def case(function):
    CASES.append(function)
    return function


def lab(*args, status=0, **options):
    """What a command says on standard output, if it ends as expected."""
    done = lab_process(*args, **options)
    expect(done.returncode, status, f"exit status of lab {' '.join(args)} ({done.stderr.strip()})")
    return done.stdout


def lab_process(*args, prefix=(), **options):
    options = {"capture_output": True, "text": True, "check": False, "timeout": LIMIT_S, "env": ENV} | options
    return subprocess.run([*prefix, VERBATIM, "lab", *args], **options)


def impossible(attempt):
    """Why no lab can be made here, in the command's own words; "" if one could be made, or the command is
    broken."""
    said = " ".join(attempt.stderr.split())
    is_denied = "no lab can be made here: " in said and "ended while it was made" not in said
    return said if attempt.returncode == 125 and (is_denied or "built without toml++" in said) else ""


def marked():
    """{process: its name} of those with the mark."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/environ", "rb") as environ:
                if MARK.encode() not in environ.read():
                    continue
            with open(f"/proc/{pid}/comm", encoding="ascii", errors="replace") as comm:
                found[int(pid)] = comm.read().strip()
    return found


def process(name):
    """The number of a lab's process."""
    return next(pid for pid, comm in marked().items() if comm == name)


def until(what, condition):
    limit = harness.Limit(LIMIT_S)
    while not condition():
        if not limit.left():
            raise Failure(f"{what}: not within {LIMIT_S:.0f} s")
        time.sleep(0.01)


def nothing_left():
    until("all processes end", lambda: not marked())
    expect(lab("ls"), "", "labs that are left")


@contextlib.contextmanager
def running(hosts, *options, **kwargs):
    lab("up", f"--hosts={hosts}", *options, **kwargs)
    try:
        yield
    finally:
        if marked():
            lab_process("down")
        nothing_left()


def states():
    return {host["name"]: host["state"] for host in json.loads(lab("ls", "--json"))["labs"][0]["hosts"]}


@case
def hosts_have_their_own():
    with running(3):
        for host in ("h1", "h2", "h3"):
            expect(lab("exec", host, "hostname"), f"{host}\n", "the host's name")
        for name, addr in (("h3", "10.99.0.3"), ("h3-v6", "fd99::3")):
            found = lab("exec", "h1", "getent", "ahosts", name)
            expect(set(line.split()[0] for line in found.splitlines()), {addr}, f"addresses of {name}")
        lab("exec", "h1", "touch", "/tmp/file", "/dev/shm/file")
        expect(lab("exec", "h1", "ls", "/tmp", "/dev/shm").count("file"), 2, "files of h1's")
        expect(lab("exec", "h2", "ls", "/tmp", "/dev/shm").count("file"), 0, "of h2's")
        expect(os.path.exists("/tmp/file"), False, "and of nobody else's")
        expect("touch" in lab("exec", "h2", "ps", "ax"), False, "processes")
        expect(len(lab("exec", "h2", "sh", "-c", "ls -d /proc/[0-9]*").split()) < 6, True, "processes")
        listed = json.loads(lab("ls", "--json"))["labs"]
        expect([x["name"] for x in listed], ["lab"], "labs")
        expect(states(), {"h1": "up", "h2": "up", "h3": "up"}, "hosts")
        expect(len(lab("ls").splitlines()), 3, "lines")


@case
def programs():
    with running(2):
        expect(lab("exec", "h1", "cat", input="typed"), "typed", "standard input")
        expect(lab("exec", "h1", "sh", "-c", "exit 7", status=7), "", "exit status")
        lab("exec", "h1", "sh", "-c", "kill -9 $$", status=137)
        lab("exec", "h1", "no-such-program", status=127)
        lab("exec", "h1", "/etc/hosts", status=126)
        lab("exec", "h9", "true", status=125)
        lab("exec", "h1", status=125)
        expect(lab("exec", "10.99.0.2", "hostname"), "h2\n", "by address")
        expect(lab("exec", "h1", "sh", "-c", "echo $WORD", env=ENV | {"WORD": "value"}), "value\n", "environment")
        expect(lab("exec", "h1", "pwd").strip(), os.getcwd(), "working directory")
        done = lab_process("exec", "h1", "true", cwd="/tmp")
        expect(done.returncode, 0, "from /tmp, which a host has too")
        many = [f"word{n}" for n in range(30000)]
        expect(lab("exec", "h1", "echo", *many).split(), many, "many words")
        many = [""] * 30000
        few = {"PATH": os.environ["PATH"]} | MARKED
        expect(lab("exec", "h1", "sh", "-c", "echo $#", "sh", *many, env=few), "30000\n", "empty words")
        words = [VERBATIM, "lab", "exec", "h2", "sh", "-c", "echo up; sleep 1000"]
        with subprocess.Popen(words, env=ENV, stdout=subprocess.PIPE) as program:
            program.stdout.readline()
            program.terminate()
            expect(harness.wait(program, LIMIT_S), 128 + signal.SIGTERM, "SIGTERM is passed on")


@case
def mistakes():
    lab("up", status=125)
    lab("up", "--hosts=0", status=125)
    lab("up", "--hosts=many", status=125)
    for seed in "x", "-1", "+1", " 1", "", "18446744073709551616":
        lab("up", "--hosts=2", f"--seed={seed}", status=125)
    lab("up", "--hosts=2", "--mtu=100", status=125)
    lab("up", "--hosts=2", "--name=a/b", status=125)
    lab("down", status=125)
    lab("nonsense", status=125)
    lab("--nonsense", status=125)
    lab("--json", status=125)
    expect("lab exec" in lab("--help"), True, "help")
    with running(1):
        done = lab_process("up", "--hosts=1")
        expect(done.returncode, 125, "another of the same name")
        expect("already" in done.stderr, True, done.stderr)
        lab("up", "--hosts=1", "--name=other")
        expect(sorted(x["name"] for x in json.loads(lab("ls", "--json"))["labs"]), ["lab", "other"], "labs")
        lab("down", "--name=other")
        expect(states(), {"h1": "up"}, "the first is still there")


@case
def closed_streams():
    subprocess.run(["sh", "-c", f"exec {VERBATIM} lab up --hosts=2 <&- >&- 2>&-"], env=ENV, check=True)
    expect(states(), {"h1": "up", "h2": "up"}, "hosts")
    lab("down")
    nothing_left()


@case
def no_hangup():
    """Under nohup(1) a program goes on. Of the two signals the hangup would be the first to be passed on."""
    script = "trap 'echo hung up' HUP; trap 'echo end; exit 3' USR1; echo up; while :; do sleep 0.1; done"
    ignore = functools.partial(signal.signal, signal.SIGHUP, signal.SIG_IGN)
    with running(1):
        words = [VERBATIM, "lab", "exec", "h1", "sh", "-c", script]
        with subprocess.Popen(words, env=ENV, stdout=subprocess.PIPE, text=True, preexec_fn=ignore) as one:
            expect(one.stdout.readline(), "up\n", "it runs")
            one.send_signal(signal.SIGHUP)
            one.send_signal(signal.SIGUSR1)
            try:
                expect((harness.wait(one, LIMIT_S), one.stdout.read()), (3, "end\n"), "what the program got")
            finally:
                one.kill()


@case
def starter_ignores_children():
    with running(1, preexec_fn=functools.partial(signal.signal, signal.SIGCHLD, signal.SIG_IGN)):
        lab("exec", "h1", "sh", "-c", "exit 7", status=7)


@case
def starters_descriptors():
    """Who reads a pipe of whoever makes a lab sees its end, though the lab lives on."""
    ours, theirs = os.pipe()
    with running(1, pass_fds=[theirs]):
        os.close(theirs)
        os.set_blocking(ours, False)
        try:
            expect(os.read(ours, 1), b"", "what is read")
        except BlockingIOError:
            raise Failure("somebody has the pipe") from None
        finally:
            os.close(ours)


@case
def command_has_an_odd_name():
    build = os.path.dirname(VERBATIM)
    with tempfile.TemporaryDirectory(prefix="o'neil $HOME ü") as folder:
        command = shutil.copy(VERBATIM, folder)
        os.symlink(os.path.join(build, "lib"), os.path.join(folder, "lib"))
        harness.run([command, "lab", "up", "--hosts=2"], env=ENV, check=True, timeout=LIMIT_S)
        expect(lab("exec", "h1", "ssh", "h2", "hostname"), "h2\n", "from host to host")
        lab("down")
        nothing_left()


@case
def ssh():
    with running(3):
        expect(lab("exec", "h1", "ssh", "-x", "-o", "BatchMode=yes", "me@h3", "hostname;", "echo", "'a  b'"),
               "h3\na  b\n", "a command")  # fmt: skip
        expect(lab("exec", "h1", "ssh", "h2", "ssh h3 hostname"), "h3\n", "further")
        lab("exec", "h1", "ssh", "h2", "exit 3", status=3)
        lab("exec", "h1", "ssh", "h8", "true", status=125)
        lab("exec", "h1", VERBATIM, "lab", "down", status=125)
        lab("exec", "h1", VERBATIM, "lab", "up", "--hosts=1", "--name=inner", status=125)
        expect(len(lab("exec", "h1", VERBATIM, "lab", "ls").splitlines()), 3, "hosts, seen from within")


@case
def shell_has_a_terminal():
    with running(1):
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(VERBATIM, [VERBATIM, "lab", "shell", "h1"], ENV | {"SHELL": "/bin/bash"})
        os.write(terminal, b"stty size; tty; ps -o stat= -p $$; hostname; exit 5\n")
        said = b""
        with contextlib.suppress(OSError):
            while more := os.read(terminal, 4096):
                said += more
        os.close(terminal)
        expect(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 5, f"exit status {said}")
        expect(b"\nh1" in said, True, f"name in {said}")
        expect(bool(re.search(rb"\nS[<N]?s", said)), True, f"session in {said}")
        expect(b"no job control" in said, False, f"job control in {said}")


# Says twice what it gets.
ECHO = """#!/bin/sh
stty raw -echo
echo ready
head -c 1000000 | tee /dev/tty
"""


@case
def shell_takes_much_at_once():
    """What is pasted waits for a program that waits until its output is read."""
    typed, said = b"0123456789" * 100000, 0
    with running(1), tempfile.TemporaryDirectory(dir=BUILD) as folder:
        program = os.path.join(os.path.abspath(folder), "echo")
        with open(program, "w", encoding="ascii") as file:
            file.write(ECHO)
        os.chmod(program, 0o755)
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(VERBATIM, [VERBATIM, "lab", "shell", "h1"], ENV | {"SHELL": program})
        try:
            begins = b""
            while b"ready" not in begins:
                begins += os.read(terminal, 4096)
            os.set_blocking(terminal, False)
            with contextlib.suppress(OSError):  # at the end
                while True:
                    writing = [terminal] if typed else []
                    can_read, can_write, _ = select.select([terminal], writing, [], LIMIT_S)
                    if not can_read and not can_write:
                        break
                    with contextlib.suppress(BlockingIOError):
                        if can_read:
                            said += os.read(terminal, 65536).count(b"0")
                        if can_write:
                            typed = typed[os.write(terminal, typed[:4096]) :]
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(terminal)
    expect((len(typed), said), (0, 200000), "what was not typed, and what was said of it")


@case
def rping():
    if harness.missing_programs("rping"):
        return "rping is not installed"
    with running(4):
        for server, client in ((1, 2), (3, 4), (4, 1)):
            say = f"h{client} to h{server}"
            one = subprocess.Popen([VERBATIM, "lab", "exec", f"h{server}", VERBATIM, "run", "rping", "-s", "-C",
                                    "3", "-a", f"10.99.0.{server}"], env=ENV)  # fmt: skip
            done = None

            def has_pinged():
                nonlocal done
                done = lab_process("exec", f"h{client}", VERBATIM, "run", "rping", "-c", "-v", "-C", "3", "-a",
                                   f"h{server}")  # fmt: skip
                return done.returncode == 0 or one.poll() is not None

            until(say, has_pinged)  # which the server does not hear at first
            expect(len(re.findall("^ping data", done.stdout, re.MULTILINE)), 3, say)
            harness.wait(one, LIMIT_S)
    return None


@case
def interrupted_while_it_is_made():
    chance = random.Random(1)
    for _ in range(12):
        one = subprocess.Popen([VERBATIM, "lab", "up", "--hosts=4"], env=ENV)
        time.sleep(chance.uniform(0, 0.1))
        one.kill()
        one.wait()
        lab_process("down")
        nothing_left()


@case
def each_process_is_killed():
    for name in ("verbatim-lab", "lab-switch"):
        with running(2):
            program = "trap '' TERM; echo up; sleep 1000 & wait"
            with subprocess.Popen([VERBATIM, "lab", "exec", "h1", "sh", "-c", program], env=ENV,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as one:  # fmt: skip
                one.stdout.readline()
                os.kill(process(name), signal.SIGKILL)
                expect(harness.wait(one, LIMIT_S), 125, f"{name} is killed: its programs end")
            nothing_left()


# Prints what becomes of a TCP connection to a port of h1 where nobody listens.
CONNECT = """
import errno, socket
with socket.socket() as s:
    s.settimeout(10)
    try: s.connect(("10.99.0.1", 9))
    except TimeoutError: print("no answer")
    except OSError as e: print(errno.errorcode[e.errno])
"""


@case
def host_is_killed():
    with running(2):
        expect(lab("exec", "h2", sys.executable, "-c", CONNECT), "ECONNREFUSED\n", "a living host answers")
        with subprocess.Popen([VERBATIM, "lab", "exec", "h1", "sh", "-c", "echo up; sleep 1000 & wait"], env=ENV,
                              stdout=subprocess.PIPE) as one:  # fmt: skip
            one.stdout.readline()
            os.kill(process("h1"), signal.SIGKILL)
            expect(harness.wait(one, LIMIT_S), 137, "its programs end")
        until("the lab knows", lambda: states() == {"h1": "down", "h2": "up"})
        lab("exec", "h1", "true", status=125)
        said = lab("exec", "h2", sys.executable, "-c", CONNECT)
        expect(said in ("no answer\n", "EHOSTUNREACH\n"), True, f"no other does: {said}")


@case
def hosts_die_and_come_back():
    with running(2):
        lab("exec", "h1", "touch", "/tmp/file")
        lab("host", "kill", "h1")
        expect(states(), {"h1": "down", "h2": "up"}, "hosts")
        lab("host", "kill", "h1", status=125)
        lab("host", "pause", "h1", status=125)
        lab("host", "start", "h1")
        expect(states(), {"h1": "up", "h2": "up"}, "hosts")
        lab("host", "start", "h1", status=125)
        expect(lab("exec", "h1", "ls", "/tmp"), "", "what it had in /tmp")
        expect(lab("exec", "h2", sys.executable, "-c", CONNECT), "ECONNREFUSED\n", "it answers again")
        lab("host", "kill", "h1", "h2")
        lab("host", "start", "h1", "h2")
        expect(lab("exec", "h2", sys.executable, "-c", CONNECT), "ECONNREFUSED\n", "both are back")
        lab("host", "kill", "h3", status=125)
        lab("host", "kill", "h1 h2", status=125)
        lab("host", "kill", "", status=125)
        expect(states(), {"h1": "up", "h2": "up"}, "hosts")
        lab("host", "melt", "h1", status=125)
        lab("host", "kill", status=125)


@case
def hosts_pause():
    def state(pid):
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0]

    with running(2):
        words = [VERBATIM, "lab", "exec", "h1", "sh", "-c", "sleep 1000 & echo up; sleep 1000"]
        with subprocess.Popen(words, env=ENV, stdout=subprocess.PIPE) as one:
            one.stdout.readline()
            until("both run", lambda: list(marked().values()).count("sleep") == 2)
            sleeping = [pid for pid, name in marked().items() if name == "sleep"]
            lab("host", "pause", "h1")
            until("they stop", lambda: [state(pid) for pid in sleeping] == ["T", "T"])
            lab("host", "resume", "h1")
            until("they go on", lambda: [state(pid) for pid in sleeping] == ["S", "S"])
            lab("host", "pause", "h1")
            lab("host", "kill", "h1")
            expect(harness.wait(one, LIMIT_S), 137, "a paused host can be killed")


@case
def command_is_killed():
    with running(1):
        with subprocess.Popen([VERBATIM, "lab", "exec", "h1", "sleep", "1000"], env=ENV) as one:
            until("it runs", lambda: "sleep" in marked().values())
            one.kill()
        until("so does the program", lambda: "sleep" not in marked().values())


def link(*words, status=0):
    return lab("link", *words, status=status)


def counted(name):
    """{heading: count} of one direction of a link."""
    rows = link("ls").splitlines()
    return next(
        dict(zip(rows[0].split()[1:8], map(int, row.split()[1:8]))) for row in rows if row.split()[0] == name
    )


# Sends numbered datagrams to an address, each behind the one before.
SEND = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for n in range(int(sys.argv[2])): s.sendto(n.to_bytes(4, "big") + bytes(60), (sys.argv[1], 7000))
time.sleep(float(sys.argv[3]))
for n in range(30): s.sendto(b"end", (sys.argv[1], 7001))  # of which one arrives
"""
# Prints the numbers that come, until a datagram at another port.
RECEIVE = """
import select, socket
a, b = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in "ab")
a.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
a.setblocking(False); a.bind(("", 7000)); b.bind(("", 7001)); print("bound", flush=True)
got = []
while b not in select.select([a, b], [], [])[0]:
    try:
        while True: got.append(int.from_bytes(a.recv(100)[:4], "big"))
    except BlockingIOError: pass
try:
    while True: got.append(int.from_bytes(a.recv(100)[:4], "big"))
except BlockingIOError: pass
print(*got)
"""


def settle(*hosts):
    """Leaves no packets but those of programs: who has which address is known."""
    for host in hosts:
        own = "echo 1 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6"
        others = [
            f"ip neighbour replace 10.99.0.{other[1:]} lladdr 02:56:42:00:00:0{other[1:]} dev eth0"
            for other in hosts
            if other != host
        ]
        lab("exec", host, "sh", "-ec", "; ".join([own, *others]))


def datagrams(sender, receiver, count, pause_s=0):
    """The numbers that arrive until the end, which the sender sends after a pause."""
    with subprocess.Popen([VERBATIM, "lab", "exec", receiver, sys.executable, "-c", RECEIVE], env=ENV,
                          stdout=subprocess.PIPE, text=True) as one:  # fmt: skip
        expect(one.stdout.readline(), "bound\n", "the receiver")
        try:
            lab("exec", sender, sys.executable, "-c", SEND, f"10.99.0.{receiver[1:]}", str(count),
                str(pause_s))  # fmt: skip
            return [int(word) for word in harness.communicate(one, LIMIT_S)[0].split()]
        finally:
            one.kill()


@case
def links_misbehave():
    with running(3):
        settle("h1", "h2", "h3")
        expect(datagrams("h1", "h2", 200), list(range(200)), "nothing is lost")
        link("set", "h1>h2", "duplicate", "30%")
        found = datagrams("h1", "h2", 200)
        expect(sorted(set(found)), list(range(200)), "all have come")
        expect(200 < len(found) < 300, True, f"{len(found)} of 200, of which 30 % are doubled")
        link("set", "h1>h2", "clear", "reorder", "20%", "late", "100ms")
        found = datagrams("h1", "h2", 200, pause_s=0.5)  # those that are late come before the end
        expect(found != sorted(found), True, "order")
        expect(sorted(found), list(range(200)), "late ones come, too")
        link("set", "h1>h2", "clear", "corrupt", "50%")
        found = datagrams("h1", "h2", 200)
        expect(set(found) <= set(range(200)), True, "what is corrupt does not arrive")
        expect(counted("h1>h2")["CORRUPT"] > 50, True, "it is counted")
        expect(datagrams("h2", "h3", 50), list(range(50)), "another link is as it was")
        link("set", "h1>h2", "clear")


@case
def same_seed():
    found = []
    for seed in ("7", "7", "8"):
        with running(2, f"--seed={seed}"):
            settle("h1", "h2")
            link("set", "h1>h2", "loss", "30%")
            found.append(datagrams("h1", "h2", 100))
    expect(found[0], found[1], "with the same seed")
    expect(found[0] != found[2], True, "with another")
    expect(40 < len(found[0]) < 95, True, f"{len(found[0])} of 100 arrive")


@case
def partition():
    with running(4, "--topology=leaf-spine:2,2"):
        settle("h1", "h2", "h3", "h4")  # a kernel that looks for an address keeps what it has to send there
        link("set", "h1,h2-h3,h4", "down")
        expect(len(datagrams("h1", "h2", 20)), 20, "within")
        done = lab_process("exec", "h1", "ssh", "h3", "hostname")
        expect(done.stdout, "h3\n", "ssh needs no network")
        lab("exec", "h1", sys.executable, "-c", SEND, "10.99.0.3", "20", "0")
        link("set", "h1,h2-h3,h4", "up")
        expect(len(datagrams("h1", "h3", 20)), 20, "when it is healed")
        link("set", "leaf1-spine1", "delay", "1ms", "rate", "1gbit", "queue", "100k", "ecn", "30k-90k")
        expect("delay 1ms" in link("ls"), True, "what is set is listed")
        link("set", "h1-spine1", "loss", "1%", status=125)
        link("set", "h1-h2", "loss", "1", status=125)
        link("set", "h1-h9", "loss", "1%", status=125)
        link("set", "h1", "down", status=125)
        link("nonsense", status=125)
    lab("up", "--hosts=2", "--topology=leaf-spine:3,1", status=125)
    lab("up", "--hosts=2", "--topology=ring", status=125)


def denied(says, prefix=(), **options):
    done = lab_process("up", "--hosts=1", prefix=prefix, **options)
    if done.returncode == 99:
        return False
    expect(done.returncode, 125, "exit status")
    expect(bool(re.search(says, done.stderr)), True, f"{says} in: {done.stderr}")
    nothing_left()
    return True


@case
def kernel_denies_it():
    inside = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
    if UNSHARE:
        denied("seccomp=unconfined", preexec_fn=forbid(UNSHARE))
    no_users = 'echo 0 >/proc/sys/user/max_user_namespaces || exit 99; exec "$@"'
    denied("max_user_namespaces is 0", (*inside, no_users, "sh"))
    # A folder with all that the root has, which is no mount itself.
    chroot = (
        "mount -n -t tmpfs none /mnt && mkdir /mnt/root || exit 99; for f in /*; do "
        "if [ -L $f ]; then cp -P $f /mnt/root; "
        "elif [ -d $f ]; then mkdir /mnt/root$f && mount -n --rbind $f /mnt/root$f; fi; done; "
        'exec chroot /mnt/root "$@"'
    )
    denied("in a chroot nobody may", (*inside, chroot, "sh"))
    hide_tun = 'mount -n -t tmpfs none /dev/net || exit 99; exec "$@"'
    denied("open /dev/net/tun.*--device", (*inside, hide_tun, "sh"))
    return None


@case
def what_is_broken_is_not_skipped():
    def why(status, said):
        return impossible(subprocess.CompletedProcess((), status, "", f"verbatim lab: {said}\n"))

    denied_it = "no lab can be made here: map this user into a user namespace: Operation not permitted"
    expect(why(125, denied_it), f"verbatim lab: {denied_it}", "the kernel denied it")
    expect(why(125, "no lab can be made here: h1 ended while it was made"), "", "a process crashed")
    expect(why(125, "cannot start a lab: Broken pipe"), "", "another error")
    expect(why(-11, ""), "", "the command crashed")


# Has the name of root's lab, and waits.
SQUAT = """
import socket
s = socket.socket(socket.AF_UNIX)
s.bind("\\0verbatim-lab/0/lab"); s.listen(); print("there", flush=True)
calls = []
while True: calls.append(s.accept())
"""


@case
def narrow_umask():
    """A lab's programs may become other users, who look for hosts and for programs, too."""
    with running(1, umask=0o077):
        names = [f"/run/verbatim-lab{name}" for name in ("", "/bin", "/hosts", "/hostname")]
        found = lab("exec", "h1", "stat", "-c", "%a", *names)
        expect(found.split(), ["755", "755", "644", "644"], "permissions")


@case
def ordinary_user():
    if os.environ.get("VERBATIM_TEST_ISOLATED", "root") != "root" or os.getuid() != 0:
        return "only root can become another user"
    user = ("setpriv", f"--reuid={ORDINARY_USER}", f"--regid={ORDINARY_USER}", "--clear-groups")
    if subprocess.run([*user, VERBATIM, "--version"], check=False, capture_output=True).returncode:
        return "the build is not another user's to see"
    lab("up", "--hosts=8", prefix=user)
    try:
        expect(lab("exec", "h8", "id", "-u", prefix=user).strip(), str(ORDINARY_USER), "who programs are")
        lab("exec", "h8", "ip", "link", "set", "eth0", "mtu", "1400", prefix=user)
        expect(lab("ls"), "", "another's labs are not seen")
    finally:
        lab("down", prefix=user)
    nothing_left()
    with subprocess.Popen([*user, sys.executable, "-c", SQUAT], stdout=subprocess.PIPE, text=True) as other:
        try:
            expect(other.stdout.readline(), "there\n", "another has the name of a lab")
            for words in ("exec", "h1", "true"), ("link", "ls"), ("down",):
                done = lab_process(*words)
                expect((done.returncode, "not permitted" in done.stderr), (125, True), f"{words}: {done.stderr}")
        finally:
            other.kill()
    return None


if __name__ == "__main__":
    harness.isolate()
    why = impossible(lab_process("up", "--hosts=1")) if shutil.which("unshare") else "no unshare(1) here"
    if why:
        print(f"1..0 # SKIP {why}")
        sys.exit(0)
    lab_process("down")
    sys.exit(run_cases(CASES))

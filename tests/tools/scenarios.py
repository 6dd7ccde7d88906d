#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""verbatim lab run: scenarios whose expectations hold and do not, programs that misbehave, networks that part;
what is said as text, as JSON and as JUnit XML; and whatever ends it, nothing is left.

usage: scenarios.py BUILD_DIR [PATTERN]
"""
import contextlib
import functools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

import paths  # noqa: F401
import harness
import lab as labs
from lab import CONNECT, ENV, LIMIT_S, RECEIVE, SEND, VERBATIM, lab, lab_process, marked, nothing_left, until
from look import Failure, expect, run_cases

CASES = []
LONG_S = 200.0


def case(function):
    CASES.append(function)
    return function


@contextlib.contextmanager
def written(text):
    """The name of a file with this scenario."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        yield file.name


def program(name, host, command, *more):
    """A table of a scenario; a command that is text is the shell's."""
    lines = [f'name = "{name}"', f'host = "{host}"', f"command = {json.dumps(command)}", *more]
    return "\n[[program]]\n" + "\n".join(lines) + "\n"


def event(*lines):
    return "\n[[event]]\n" + "\n".join(lines) + "\n"


def run(text, *options, status=0, **kwargs):
    """What it says, and that nothing is left."""
    with written(text) as file:
        done = lab_process("run", *options, file, **({"timeout": LONG_S} | kwargs))
    said = f"exit status of:\n{text}\n{done.stdout[-2000:]}\n{done.stderr.strip()}"
    if done.returncode != status:
        raise Failure(f"{said}\n{done.returncode}, expected {status}")
    nothing_left()
    return done.stdout


def objects(text, status=0, **kwargs):
    return [json.loads(line) for line in run(text, "--json", status=status, **kwargs).splitlines()]


def verdict(said):
    """{program: what did not hold}, with that of the whole under None."""
    last = said[-1]
    expect(last["type"], "verdict", "the last object")
    return {None: last["failures"]} | {each["program"]: each["failures"] for each in last["programs"]}


def output(said, name):
    return [o["text"] for o in said if o["type"] == "output" and o["program"] == name]


def says(text, *parts):
    for part in parts:
        expect(part in text, True, f"{part!r} in {text}")


@case
def expectations_hold():
    """Not with rping: a slow thread of it may find its event channel closed, and ends it with 255."""
    if harness.missing_programs("ucmatose"):
        return "ucmatose is not installed"
    # The server does not hear at first.
    retry = "until verbatim run ucmatose -s left; do sleep 0.2; done"
    said = run(
        'hosts = ["left", "right"]\nlinks = ["left-right delay 100us"]\n'
        + program("server", "left", ["verbatim", "run", "ucmatose"], 'output = "^return status 0"')
        + program("client", "right", retry, 'after = { starts = "server" }', 'output = "^return status 0"')
    )
    says(said, "left server: starts\n", "right client| data transfers complete")
    says(said, "left server: exit status 0\n")
    says(said.splitlines()[-1], "held: all that was expected of 2 programs")
    return None


TO_ITSELF = """
import socket, sys
own = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
own.settimeout(20)
own.bind((sys.argv[1], 0))
own.sendto(b"once", own.getsockname())
print(own.recv(10).decode())
"""


@case
def ipv6_can_be_used_at_once():
    if not os.path.exists("/proc/net/if_inet6"):
        return "this kernel has no IPv6"
    run(
        "hosts = 8\n"
        + "".join(
            program(f"p{n}", f"h{n}", [sys.executable, "-c", TO_ITSELF, f"fd99::{n}"], 'output = "^once$"')
            for n in range(1, 9)
        )
    )
    return None


@case
def expectations_do_not_hold():
    text = (
        'hosts = 2\nlimit = "100s"\n'
        + program("exits", "h1", "echo one; echo two >&2; exit 3", 'output = ["^one$", "^three$"]', 'absent = "two"')
        + program("dies", "h1", "kill -TERM $$", "exit = 0")
        + program("lives", "h1", "true", 'signal = "KILL"')
        + program("stays", "h2", "sleep 1000", 'limit = "100ms"')
        + program("missing", "h2", ["no-such-program"])
        + program("waits", "h2", "true", 'after = { program = "exits", prints = "never" }')
        + program("fine", "h2", "exit 7", "exit = 7")
        + event('at = "0s"', 'host = "start h1"')
        + event('at = "0s"', 'signal = "TERM waits"')
        + event('at = "90s"', 'link = "h1-h2 down"')
    )
    said = objects(text, status=1)
    found = verdict(said)
    expect(found["exits"], ["exit status 3, expected: exit status 0", "'^three$' is not in its output",
                            "'two' is in its output: two"], "exits")  # fmt: skip
    expect(found["dies"], ["killed by SIGTERM, expected: exit status 0"], "dies")
    expect(found["lives"], ["exit status 0, expected: killed by SIGKILL"], "lives")
    expect(found["stays"], ["it did not end within 0.1 s"], "stays")
    expect(found["missing"], ["it could not be started: No such file or directory"], "missing")
    expect(found["waits"], ["it was not started: what it waits for did not happen"], "waits")
    expect(found["fine"], [], "fine")
    expect(len(found[None]), 2, f"events that failed in {found[None]}")
    says(found[None][0], "host start h1: h1 is up")
    says(found[None][1], "signal TERM waits: the program does not run")
    expect(len(said[-1]["missed"]), 1, "events that did not happen")
    expect(said[-1]["held"], False, "the verdict")
    text = run(text, status=1)
    says(text, "h2 stays: FAILED: it did not end within 0.1 s\n", "FAILED: 6 of 7 programs\n", "did not happen\n")


@case
def json_and_junit():
    text = "hosts = 2\n" + program("good", "h1", ["printf", r'<&"\303\244\377\033[1m\342\200\250\n\tlast'], 'output = "last$"')
    text += program("bad", "h2", "exit 1") + event('at = "0s"', 'link = "h1-h2 delay 1us"')
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/result.xml"
        with written(text) as file:
            lines = lab("run", "--json", f"--junit={path}", file, status=1).splitlines()
            lab("run", f"--junit={folder}/none/result.xml", file, status=125)
        suite = xml.etree.ElementTree.parse(path).getroot().find("testsuite")
    said = [json.loads(line) for line in lines]
    expect({o["type"] for o in said}, {"start", "output", "event", "end", "verdict"}, "types")
    expect(sorted(o["time"] for o in said), [o["time"] for o in said], "times")
    expect([o["exit"] for o in said if o["type"] == "end" and o["program"] == "bad"], [1], "exit status")
    expect(output(said, "good"), ['<&"ä\\xff\\x1b[1m\\xe2\\x80\\xa8', "\tlast"], "output")
    expect((suite.get("tests"), suite.get("failures")), ("3", "1"), "tests and failures")
    cases = {each.get("name"): each for each in suite.findall("testcase")}
    expect(set(cases), {"scenario", "good", "bad"}, "test cases")
    expect([f.get("message") for f in cases["bad"].findall("failure")], verdict(said)["bad"], "failures")
    expect(cases["good"].find("failure"), None, "failures of what is good")
    expect(cases["good"].find("system-out").text, '<&"ä\\xff\\x1b[1m\\xe2\\x80\\xa8\n\tlast\n', "its output")
    nothing_left()


@case
def junit_without_a_lab():
    with tempfile.TemporaryDirectory() as folder, written("hosts = 1\n" + program("one", "h1", "true")) as file:
        path = f"{folder}/result.xml"
        lab("up", "--hosts=1", "--name=taken")
        try:
            done = lab_process("run", f"--junit={path}", "--name=taken", file)
        finally:
            lab("down", "--name=taken")
        suite = xml.etree.ElementTree.parse(path).getroot().find("testsuite")
    expect(done.returncode, 125, "exit status")
    expect([suite.get(what) for what in ("tests", "failures", "errors")], ["1", "0", "1"], "counts")
    error = suite.find("testcase[@name='scenario']/error")
    says(error.get("message"), "there is a lab taken already")
    says(done.stderr, error.text)
    nothing_left()


@case
def programs_misbehave():
    said = objects(
        'hosts = 2\nlimit = "150s"\n'
        + program("flood", "h1", "yes; true", 'limit = "200ms"', 'exit = "any"')
        + program("endless", "h1", r"tr '\0' x </dev/zero", 'signal = "KILL"')
        + program("binary", "h1", "head -c 100000 /dev/urandom; echo; echo over", 'output = "^over$"')
        + program("prompt", "h2", "printf 'ready: '; sleep 1000", 'signal = "USR2"', 'output = "^ready: $"')
        + program("after", "h2", "true", 'after = { program = "prompt", prints = "^ready: " }')
        + program("early", "h2", "true", 'after = { program = "pieces", prints = "^ping-1$" }')
        + program("pieces", "h2", "printf ping-1; sleep 0.5; echo 0")
        + program("characters", "h2", "printf 'x%.0s' $(seq 4095); echo '\u20ac'", 'output = "^\u20ac$"')
        + program("background", "h2", "sleep 1000 & echo started")
        + program("daemon", "h2", "trap '' TERM HUP; echo up; sleep 1000 & wait", "daemon = true", 'output = "up"')
        + program("input", "h2", "cat; echo end", 'output = "^end$"')
        + event('after = { ends = "after" }', 'signal = "USR2 prompt"')
        + event('after = { program = "endless", prints = "^x{4096}$" }', 'signal = "KILL endless"'),
        status=1,
    )
    found = verdict(said)
    expect(found.pop("flood"), ["it did not end within 0.2 s"], "flood")
    expect("not started" in found.pop("early")[0], True, "what waits for a line, of which a piece was there")
    expect(set(map(tuple, found.values())), {()}, f"other failures in {found}")
    expect(max(len(line) for line in output(said, "endless")), 4096, "the longest line")


@case
def whole_takes_too_long():
    said = objects('hosts = 1\nlimit = "300ms"\n' + program("one", "h1", "sleep 1000"), status=1)
    expect(verdict(said), {None: ["it was not over within 0.3 s"], "one": ["it had not ended"]}, "verdict")


@case
def hosts_fail():
    connect = [sys.executable, "-c", CONNECT]
    said = objects(
        "hosts = 2\n"
        + program("server", "h1", "echo up; sleep 1000", 'signal = "KILL"')
        + program("paused", "h2", "echo up; sleep 1000", 'signal = "TERM"', 'after = { ends = "again" }')
        + program("before", "h2", connect, 'after = { program = "server", prints = "up" }', 'output = "REFUSED"')
        + program("during", "h2", connect, 'after = { ends = "server" }', 'output = "no answer|EHOSTUNREACH"')
        + program("again", "h2", connect, 'after = { ends = "during" }', 'output = "REFUSED"')
        + event('after = { ends = "before" }', 'host = "kill h1"')
        + event('after = { ends = "during" }', 'host = "start h1"')
        + event('after = { program = "paused", prints = "up" }', 'host = "pause h2"')
        + event('after = { program = "paused", prints = "up" }', 'signal = "TERM paused"')
        + event('after = { program = "paused", prints = "up" }', 'host = "resume h2"')
    )
    expect([list(o)[2] for o in said if o["type"] == "event"], ["host", "host", "host", "signal", "host"], "events")


def seeded(seed):
    """What arrives of 100 datagrams, of which 30 % are lost."""
    quiet = "echo 1 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6; ip neighbour replace 10.99.0.{0} lladdr 02:56:42:00:00:0{0} dev eth0"
    said = objects(
        f"hosts = 2\nseed = {seed}\n"
        + program("quiet1", "h1", quiet.format(2))
        + program("quiet2", "h2", quiet.format(1), 'after = { ends = "quiet1" }')
        + program("receive", "h2", [sys.executable, "-c", RECEIVE], 'after = { ends = "quiet2" }')
        + program("send", "h1", [sys.executable, "-c", SEND, "10.99.0.2", "100", "0"],
                  'after = { program = "receive", prints = "bound" }')  # fmt: skip
        + event('after = { ends = "quiet2" }', 'link = "h1>h2 loss 30%"')
    )
    return "".join(output(said, "receive")[1:])


@case
def same_seed():
    found = [seeded(seed) for seed in (7, 7, 8)]
    expect(found[0], found[1], "with the same seed")
    expect(found[0] != found[2], True, "with another")


# Ends when a host has got so many bytes.
GOT = "until [ $(awk '/eth0/ {{ print $2 }}' /proc/net/dev) -gt {} ]; do sleep 0.05; done"


def stream(count, *heal, server="exit = 0", client="exit = 0", seed=1):
    """A stream of rsockets' from h2 to h1 and back, which a partition parts when 300 kB have come. The link is
    slow until it heals, so that the stream has far to go then, however late the partition comes."""
    # Who only receives asks in vain whether the sender is there (-k): nothing else tells it.
    words = ["verbatim", "run", "rstream", "-k", "1", "-S", "65536", "-C", str(count), "-I", "1"]
    again = "do [ $(awk '/eth0/ { print $10 }' /proc/net/dev) -lt 100000 ] || exit 1; sleep 0.1; done"  # sent
    retry = f"until {' '.join(words)} -s h1; {again}"
    return (
        f'hosts = 2\nseed = {seed}\nlimit = "180s"\nlinks = "hosts rate 10mbit"\n'
        + program("server", "h1", words, server)
        + program("client", "h2", retry, 'after = { starts = "server" }', client)
        + program("middle", "h1", GOT.format(300000))
        + event('after = { ends = "middle" }', 'link = "h1-h2 down"')
        + "".join(heal)
    )


@case
def partition_in_a_stream():
    if harness.missing_programs("rstream"):
        return "rstream is not installed"
    lost = [f'exit = {status}\noutput = "Connection (timed out|reset)"' for status in (255, 1)]
    with contextlib.ExitStack() as stack:  # side by side
        file = stack.enter_context(written(stream(5000, server=lost[0], client=lost[1])))
        both = [
            stack.enter_context(
                subprocess.Popen([VERBATIM, "lab", "run", "--json", file], env=ENV, stdout=subprocess.PIPE)
            )
            for _ in range(2)
        ]
        texts = [harness.communicate(each, LONG_S)[0].decode() for each in both]
    seen = []
    for text, each in zip(texts, both):
        expect(each.returncode, 0, f"exit status: {text[-2000:]}")
        said = [json.loads(line) for line in text.splitlines()]
        seen.append({o["program"]: o["exit"] for o in said if o["type"] == "end"})
        seen[-1]["events"] = [o["link"] for o in said if o["type"] == "event"]
    expect(seen[0], seen[1], "what the same scenario does twice")
    nothing_left()
    return None


@case
def partition_heals():
    if harness.missing_programs("rstream"):
        return "rstream is not installed"
    heal = event('after = { ends = "middle" }', 'at = "500ms"', 'link = "h1-h2 up rate 500mbit"')
    said = objects(stream(200, heal, client='output = "custom *64k"'))
    events = [o["link"] for o in said if o["type"] == "event"]
    expect(events, ["h1-h2 down", "h1-h2 up rate 500mbit"], "events")
    return None


LIVES = "hosts = 3\n" + program("lives", "h2", "trap '' TERM INT HUP; echo up; sleep 1000 & sleep 1000")


@contextlib.contextmanager
def living(*options, text=LIVES, until_it_is_up=True, **kwargs):
    with written(text) as file:
        words = [VERBATIM, "lab", "run", *options, file]
        kwargs |= {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True, "env": ENV}
        with subprocess.Popen(words, **kwargs) as one:
            if until_it_is_up:
                while "lives| up" not in one.stdout.readline():
                    expect(one.poll(), None, "it runs")
            yield one
    nothing_left()


@case
def interrupted():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with living(preexec_fn=functools.partial(signal.signal, number, signal.SIG_DFL)) as one:
            one.send_signal(number)
            said = harness.communicate(one, LIMIT_S)[0]
            expect(one.returncode, 128 + number, f"exit status {said}")
            says(said, f"FAILED: it was interrupted by {signal.Signals(number).name}", "it had not ended")


@case
def no_hangup():
    """Under nohup(1) a scenario goes on; of the two signals the hangup would be taken first."""
    with living(preexec_fn=functools.partial(signal.signal, signal.SIGHUP, signal.SIG_IGN)) as one:
        one.send_signal(signal.SIGHUP)
        one.send_signal(signal.SIGTERM)
        said = harness.communicate(one, LIMIT_S)[0]
        expect(one.returncode, 128 + signal.SIGTERM, f"exit status {said}")
        says(said, "FAILED: it was interrupted by SIGTERM")


@case
def killed():
    chance = random.Random(1)
    for _ in range(10):
        with living(until_it_is_up=False) as one:
            time.sleep(chance.uniform(0, 0.3))
            one.kill()
        nothing_left()
    with living() as one:
        one.kill()


@case
def lab_is_killed():
    for name in ("verbatim-lab", "lab-switch"):
        with living() as one:
            os.kill(labs.process(name), signal.SIGKILL)
            said = harness.communicate(one, LIMIT_S)[0]
            expect(one.returncode, 1, f"{name} is killed: {said}")
            says(said, "the lab was ended from outside")


@case
def reader_stands_still():
    flood = "hosts = 1\n" + program("flood", "h1", "yes")
    with living(text=flood, until_it_is_up=False) as one:
        one.stdout.readline()
        until("it writes", lambda: "yes" in marked().values())
        one.send_signal(signal.SIGINT)
        until("the lab ends", lambda: "yes" not in marked().values())
        one.send_signal(signal.SIGINT)
        expect(harness.wait(one, LIMIT_S), 128 + signal.SIGINT, "and so does the command")
    with living(text=flood, until_it_is_up=False) as one:
        one.stdout.readline()
        one.stdout.close()
        expect(harness.wait(one, LIMIT_S), -signal.SIGPIPE, "a reader that is gone")


@case
def side_by_side():
    with living("--name=one") as one, living() as two:
        expect(len(json.loads(lab("ls", "--json"))["labs"]), 2, "labs")
        lab("exec", "--name=one", "h1", "true")
        with written(LIVES) as file:
            done = lab_process("run", "--name=one", file)
            expect(done.returncode, 125, "another of the same name")
            says(done.stderr, "there is a lab one already")
        one.kill()
        two.kill()


@case
def wrong_files():
    for text, part in (
        ("hosts = 2\nhots = 3\n", ":2: 'hots': there is no such key here"),
        ("hosts = 2\n" + program("a", "h3", "true"), ":5: 'host': the lab has no host 'h3'"),
        ("hosts = [\n", ":1: "),
        ("hosts = 2\n", "it has no program"),
        ("\0\377", ""),
    ):
        with written(text) as file:
            done = lab_process("run", file)
        expect(done.returncode, 125, f"exit status of {text}")
        says(done.stderr, f"verbatim: {file}", part)
    lab("run", status=125)
    lab("run", "a", "b", status=125)
    lab("run", "/no/such/file", status=125)
    lab("run", "/tmp", status=125)
    with labs.running(1), written(LIVES) as file:
        done = lab_process("exec", "h1", VERBATIM, "lab", "run", file)
        says(done.stderr, "cannot be within another")
    nothing_left()


@case
def up_from_a_file():
    text = (
        'hosts = ["left", "right", "third"]\ntopology = ["left-a", "right-b", "third-b", "a-b"]\nmtu = 4000\n'
        'links = ["a-b delay 1ms", "left>right loss 1%"]\n' + program("ignored", "left", "true")
    )
    with written(text) as file:
        lab("up", f"--topology={file}", "--hosts=3", status=125)
        # a name that begins as a shape does is still a file's
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(file, os.path.join(folder, "leaf-spine.toml"))
            lab("up", "--topology=leaf-spine.toml", cwd=folder)
        lab("down")
        nothing_left()
        lab("up", "--topology=/no/such/file", status=125)
        lab("up", f"--topology={file}", "--mtu=5000")
    expect(labs.states(), {"left": "up", "right": "up", "third": "up"}, "hosts")
    expect(lab("exec", "right", "cat", "/proc/sys/kernel/hostname", "/sys/class/net/eth0/mtu"), "right\n5000\n", "mtu")
    rows = {row.split()[0]: row for row in lab("link", "ls").splitlines()}
    says(rows["b>a"], "delay 1ms")
    says(rows["left>right"], "loss 1%")
    expect(lab("exec", "left", sys.executable, "-c", CONNECT.replace("10.99.0.1", "10.99.0.3")), "ECONNREFUSED\n", "over a and b")
    lab("host", "kill", "third")
    lab("host", "start", "third")
    lab("down")
    nothing_left()


@case
def example():
    if harness.missing_programs("rping"):
        return "rping is not installed"
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples")
    said = lab("run", os.path.join(folder, "partition.toml"), timeout=LONG_S)
    says(said, "leaf1-spine1,spine2 down\n", "leaf1-spine1,spine2 up\n", "held: all")
    nothing_left()
    return None


@case
def folders_below_tmp():
    with tempfile.TemporaryDirectory() as folder:
        text = "hosts = 1\n" + program("list", "h1", "pwd; ls; ls /tmp; verbatim --version", f'output = "^{folder}$"')
        with open(f"{folder}/scenario", "w", encoding="utf-8") as file:
            file.write(text)
        said = lab("run", "scenario", cwd=folder)
        says(said, "list| scenario\n", "list| verbatim ")
    nothing_left()


def skip_where_impossible():
    with written("hosts = 1\n" + program("one", "h1", "true")) as trial:
        why = labs.impossible(lab_process("run", trial))
    if why:
        print(f"1..0 # SKIP {why}")
        sys.exit(0)


if __name__ == "__main__":
    harness.isolate()
    skip_where_impossible()
    sys.exit(run_cases(CASES))

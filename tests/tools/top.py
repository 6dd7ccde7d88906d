#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""verbatim top: its screen in tmux, its tables without a terminal, its stream of JSON.

usage: top.py BUILD_DIR [PATTERN]
"""
import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys

import paths  # noqa: F401
import harness
import look
from look import BUILD, LIMIT_S, VERBATIM, expect, pinging, processes, running, verbatim, wait_for

CASES = []
SPIN = "ib_write_bw -F -d vb_lo -x 0 -p 18603 -D 600"


def case(function):
    CASES.append(function)
    return function


# ---- without a terminal ----


def headings(text):
    return [line.split() for line in text.splitlines() if line.split()[:1] == ["PID"]]


@case
def tables__one_or_as_many_as_asked_for():
    expect("no process" in verbatim("top", "-d", "0.1"), True, "a sentence")
    with pinging() as (server, client):
        text = verbatim("top", "-d", "0.3")
        expect([words[1] for words in headings(text)], ["USER", "NAME"], "a table of each kind")
        for pid in server, client:
            expect(len(re.findall(rf"^ *{pid} .*rping", text, re.M)), 2, "lines of a process and its pair")
        text = verbatim("top", "-n", "3", "--delay=0.1", str(server))
        expect(len(headings(text)), 6, "tables of three looks")
        expect(re.findall(rf"^ *{client} ", text, re.M), [], "lines of a process that was not asked for")


def two_looks():
    return [json.loads(line) for line in verbatim("top", "--json", "-n", "2", "-d", "0.5").splitlines()]


@case
def json__one_object_per_look():
    with pinging() as (server, client):
        looks = two_looks()
        expect(len(looks), 2, "objects")
        for look in looks:
            expect(look["seconds"] >= 0.5, True, "time from look to look")
            expect(sorted(row["pid"] for row in look["processes"]), sorted((server, client)), "processes")
        # Who is new since the look before, or was too busy to answer it, has no rates yet.
        wait_for(
            lambda: all(row["has_rates"] for look in two_looks() for row in look["qps"] + look["processes"]),
            "rates",
        )
        wait_for(
            lambda: all(
                row["requests/s"] > 0 and row["out/s"] > 0 and row["in/s"] > 0
                for row in json.loads(verbatim("top", "--json", "-n", "1", "-d", "0.3"))["qps"]
            ),
            "traffic both ways",
        )


@contextlib.contextmanager
def stream():
    top = subprocess.Popen([VERBATIM, "top", "--json", "-d", "0.2"], stdout=subprocess.PIPE, text=True)
    try:
        yield lambda: json.loads(top.stdout.readline())
    finally:
        top.kill()
        top.communicate()


@case
def json__processes_come_go_and_stand():
    with stream() as following:

        def see(condition, what):
            wait_for(lambda: condition({row["pid"]: row for row in following()["processes"]}), what)

        see(lambda found: not found, "nothing runs")
        with pinging() as (server, client):
            see(lambda found: {server, client} <= set(found), "both come")
            os.kill(client, signal.SIGSTOP)
            see(lambda found: "stopped" in found[client]["trouble"], "one stands")
            os.kill(client, signal.SIGCONT)
            see(lambda found: found[client]["trouble"] == "" and found[client]["has_rates"], "it goes on")
            os.kill(client, signal.SIGKILL)
            see(lambda found: client not in found, "it is gone")
        see(lambda found: not found, "all are gone")


@case
def json__counts_work_that_the_requester_does_alone():
    if harness.missing_programs(SPIN):
        return "ib_write_bw is not installed"
    with running(SPIN, SPIN + " 127.0.0.1") as (_, client), stream() as following:
        wait_for(
            lambda: any(row["pid"] == client and row["out/s"] > 1e6 for row in following()["qps"]), "megabytes"
        )
    return None


@case
def usage():
    for bad in ["-n", "0"], ["-n", "x"], ["--delay=0"], ["--watch"], ["nonsense"], ["-d"]:
        verbatim("top", *bad, status=125)
    verbatim("top", "-d", "0.1", "1", status=1)
    expect("-n, --iterations=N" in verbatim("top", "--help"), True, "letters in the help")


# ---- on a terminal ----


class Screen:
    """A terminal in tmux, in which the command runs."""

    def __init__(self, width, height, *args, before=""):
        self.socket = os.path.join(look.LOGS, f"tmux.{len(os.listdir(look.LOGS))}")
        command = " ".join([os.path.abspath(VERBATIM), "top", *args])
        # tmux 3.2 takes no size with the session, only afterwards.
        sized = f"until stty size | grep -qx '{height} {width}'; do sleep 0.02; done"
        self.do("new-session", "-d", f"{sized}; {before}{command}; echo ended $?; sleep 600")
        self.do("resize-window", "-x", str(width), "-y", str(height))

    def do(self, *args):
        done = harness.run(
            ["tmux", "-S", self.socket, "-f", "/dev/null", *args],
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        expect(done.returncode, 0, f"tmux {args[0]} ({done.stderr.strip()})")
        return done.stdout

    def lines(self, *options):
        return self.do("capture-pane", "-p", *options).splitlines()

    def text(self):
        return "\n".join(self.lines())

    def wait_for(self, condition, what):
        wait_for(condition, lambda: f"{what}; the screen is\n{self.text()}\n")

    def await_text(self, pattern, what):
        self.wait_for(lambda: re.search(pattern, self.text(), re.M), what)

    def await_none(self, pattern, what):
        self.wait_for(lambda: not re.search(pattern, self.text(), re.M), what)

    def press(self, *keys):
        self.do("send-keys", *keys)


@contextlib.contextmanager
def screen(width=120, height=20, *args, before=""):
    if harness.missing_programs("tmux"):
        raise Skip("tmux is not installed")
    shown = Screen(width, height, "-d", "0.3", *args, before=before)
    try:
        yield shown
    finally:
        shown.do("kill-server")


class Skip(Exception):
    """With the reason."""


def needs_tmux(function):
    def run():
        try:
            return function()
        except Skip as reason:
            return str(reason)

    run.__name__ = function.__name__
    CASES.append(run)
    return run


@needs_tmux
def screen__shows_what_sends():
    with pinging() as (server, client), screen() as top:
        top.await_text(r"^verbatim top: 2 processes, 2 queue pairs", "the head")
        for pid in server, client:
            top.await_text(rf"^ *{pid} +rping +0x[0-9a-f]{{6}} +RC +RTS ", "the queue pair")
        top.await_text(r"^per second: [1-9]\d* requests", "the sums")
        top.press("Tab")
        top.await_text(rf"^ *{server} +\w+ +rping +1 ", "the process")
        os.kill(client, signal.SIGKILL)
        top.await_none(rf"^ *{client} ", "it is gone")
        top.press("q")
        top.await_text(r"^ended 0", "the end")


@needs_tmux
def screen__comes_back_as_it_was():
    with screen() as top:
        top.await_text("no process here uses verbatim", "an empty table")
        top.press("Q")
        top.await_text("^ended 0", "the end")
        top.await_none("^verbatim top:", "the screen is the shell's again")


@needs_tmux
def screen__says_why_it_ends():
    """Once it is the shell's again, where the sentence stays."""
    with pinging(), screen(before="ulimit -n 4; ") as top:
        top.await_text(r"^verbatim: out of memory, or of descriptors \(ulimit -n\)", "the reason")
        top.await_text(r"^ended 125", "the end")


@needs_tmux
def keys__sort_filter_pause_and_help():
    with pinging() as (server, client), screen() as top:
        top.await_text(r"by out/s$", "sorted by bytes")
        top.press(">")
        top.await_text(r"by in/s$", "the next column")
        top.press("<", "<")
        top.await_text(r"by pid$", "around the corner")
        order = lambda: [int(pid) for pid in re.findall(r"^ *(\d+) +rping", top.text(), re.M)]  # noqa: E731
        wait_for(lambda: order() == sorted((server, client)), "the lowest PID first")
        top.press("r")
        wait_for(lambda: order() == sorted((server, client), reverse=True), "the highest first")
        top.press("/")
        top.await_text("^only lines with:", "what to type")
        top.press(*str(client), "Space", *"RPINX", "BSpace", "g", "Space", "0", "x", "Enter")
        top.await_none(rf"^ *{server} +rping", "the other line is gone")
        top.press("/", "Enter")
        top.await_text(rf"^ *{server} +rping", "both are there")
        top.press("t")
        top.await_text("no line is so", "nothing is in trouble")
        top.press("t", "p")
        top.await_text(r"\(paused\)", "the pause")
        top.press("p", "h")
        top.await_text(r"^ +Tab +queue pairs, or processes", "help")
        top.press("d", "7", "x", "Enter")
        top.await_text("this is no time: 7x", "a refusal")
        top.press("d", "0", ".", "2", "Enter")
        top.await_text(r"every 0\.2 s", "another period")
        top.press("d", "5", "Escape")
        top.await_text(r"every 0\.2 s", "the same period")
        top.press("x")
        top.await_text("there is no such key", "a hint")


@needs_tmux
def trouble__is_red():
    with pinging() as (_, client), screen() as top:
        top.press("Tab")
        top.await_text(rf"^ *{client} ", "the process")
        os.kill(client, signal.SIGSTOP)
        top.await_text(rf"^ *{client} .*it is stopped", "what is wrong")
        top.press("t")
        top.await_text(r"only trouble", "the filter")
        plain = lambda line: re.sub("\x1b\\[[0-9;]*m", "", line)  # noqa: E731
        line = next(line for line in top.lines("-e") if re.match(rf" *{client} ", plain(line)))
        expect("\x1b[31m" in line, True, f"red ({line!r})")


@needs_tmux
def resize__down_to_one_line_and_back():
    with pinging() as (_, client), screen() as top:
        top.await_text(rf"^ *{client} +rping", "the line")
        for width, height in (60, 8), (20, 3), (1, 1), (3, 2), (150, 40):
            top.do("resize-window", "-x", str(width), "-y", str(height))
            if height >= 3:
                top.await_text("PID", "the headings")
            expect([line for line in top.lines() if len(line) > width], [], "lines beyond the edge")
        top.await_text(rf"^ *{client} +rping.*RTS", "the whole line")
        top.await_text("^verbatim top: 2 processes", "the head")


@needs_tmux
def scrolling__through_many():
    with running("ibv_srq_pingpong -p 18604") as (pid,), screen(120, 10) as top:
        top.press("<")
        top.await_text(r", 16 queue pairs", "16 queue pairs")
        numbers = lambda: re.findall(rf"^ *{pid} +\S+ +(0x\w+)", top.text(), re.M)  # noqa: E731
        top.wait_for(lambda: len(numbers()) == 6, "those that fit")
        first = numbers()
        top.press("Down", "Down")
        top.wait_for(lambda: numbers()[:4] == first[2:], "two further")
        top.press("PageDown")
        top.wait_for(lambda: not set(numbers()) & set(first), "a page further")
        top.press("End")
        top.wait_for(lambda: len(numbers()) == 6, "the last")
        top.press("PageDown", "Home")
        top.wait_for(lambda: numbers() == first, "the beginning")


@case
def screen__does_not_flicker():
    """After the first picture nothing clears the terminal."""
    pid, terminal = pty.fork()
    if not pid:
        os.environ["TERM"] = "xterm"
        os.execv(VERBATIM, [VERBATIM, "top", "-d", "0.1"])
    said = b""
    with pinging():
        wait_for(lambda: len(processes()) == 2, "both run")
        limit = harness.Limit(LIMIT_S)
        while said.count(b"RTS") < 2 or said.count(b"\x1b[") < 60:
            expect(limit.left() > 0, True, "pictures in time")
            if select.select([terminal], [], [], 1)[0]:
                said += os.read(terminal, 65536)
        os.write(terminal, b"q")
        with contextlib.suppress(OSError):
            while os.read(terminal, 65536):
                pass
    os.close(terminal)
    expect(os.waitpid(pid, 0)[1], 0, "exit status")
    cleared = [m.start() for m in re.finditer(rb"\x1b\[H\x1b\[2J|\x1b\[2J|\x1b\[J", said)]
    first = said.find(b"verbatim top")
    expect([at for at in cleared if at > first], [], "clearing of the screen")


@case
def screen__needs_a_terminal_that_curses_knows():
    pid, terminal = pty.fork()
    if not pid:
        os.environ["TERM"] = "no-such-terminal"
        os.execv(VERBATIM, [VERBATIM, "top"])
    said = b""
    with contextlib.suppress(OSError):
        while got := os.read(terminal, 4096):
            said += got
    os.close(terminal)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    expect((status, b"TERM=no-such-terminal" in said), (1, True), said)


if __name__ == "__main__":
    harness.isolate()
    harness.require_library(BUILD)
    if harness.missing_programs("rping", "ibv_srq_pingpong"):
        print("1..0 # SKIP rping and ibv_srq_pingpong are needed")
        sys.exit(77)
    look.LOGS = harness.log_directory(BUILD, "top")
    sys.exit(look.run_cases(CASES))

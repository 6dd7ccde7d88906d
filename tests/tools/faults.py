#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Faults on purpose (verbatim-faults(7)) in unmodified programs: each shows what it should, and the same
again with the same seed.

What is compared of the two runs are the essential lines of both sides: the faults as VERBATIM_DEBUG names
them, and what the programs say of their errors; not what depends on time (packets that are sent again, how
far a program got before an error came).
usage: faults.py BUILD_DIR [--once] [PATTERN]
--once: there is no second run.
"""
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import shlex
import sys
import time

import paths  # noqa: F401
import harness

ONCE = "--once" in sys.argv
BUILD, PATTERN = ([argument for argument in sys.argv[1:] if argument != "--once"] + [""])[:2]
VERBATIM = os.path.join(BUILD, "verbatim")
LOGS = os.path.join(BUILD, "apps-logs", "faults-once" if ONCE else "faults")
LIMIT_S = 150.0
AT_ONCE = 6  # runs: most of them wait for timeouts
TIME_IS_UP = r"RDMA_CM_EVENT_(REJECTED, error: 4|UNREACHABLE, error: -110)"
FAULTS = r"^verbatim: fault: .*(?<!sent again)$"


@dataclasses.dataclass(frozen=True)
class Fault:
    """client_shows, server_shows: what must be found. essential: lines that are the same in both runs, beside
    the faults."""

    name: str
    server: str
    client: str
    client_faults: str = ""
    server_faults: str = ""
    client_shows: tuple = ()
    server_shows: tuple = ()
    never_shows: tuple = ()
    essential: tuple = ()
    compares_faults: bool = (
        True  # else only the first of each side, because how many there are depends on time
    )
    client_exit: int = 0


class FaultyProgram(harness.Program):
    """A program with faults in it, which are named on its standard error."""

    def __init__(self, command, faults, log_path):
        self.faults = faults
        super().__init__(BUILD, command, log_path)

    def argv(self, build, prefix):
        faults = ["--faults", self.faults] if self.faults else []
        return [VERBATIM, "run", "--debug", *faults, *shlex.split(self.command)]


# ---- programs ----

RPING = ("rping -s -a 127.0.0.1 -p {port} -C 20", "rping -c -V -a 127.0.0.1 -p {port} -C 20")
SEND_BW = (
    "ib_send_bw -d vb_lo -x 0 -F -n 60 -s 4096 -p {port}",
    "ib_send_bw -d vb_lo -x 0 -F -n 60 -s 4096 -p {port} 127.0.0.1",
)
CMATOSE = ("ucmatose -b 127.0.0.1 -p {port} -C 10", "ucmatose -s 127.0.0.1 -p {port} -C 10")
BAD_DATA = (r"data mismatch", r"invalid data")


def rping(name, client_faults="", server_faults="", *, error="", status=0, **rules):
    shows = (rf"^{error}",) if error else ()
    return Fault(
        f"rping, {name}",
        *RPING,
        client_faults,
        server_faults,
        client_shows=shows + rules.pop("client_shows", ()),
        never_shows=BAD_DATA,
        essential=(r"^cq completion failed.*", r"^cma event.*", r"^post .* error.*", r".*reg_mr failed.*"),
        client_exit=status,
        **rules,
    )


def send_bw(name, faults, error, **rules):
    return Fault(
        f"ib_send_bw, {name}",
        *SEND_BW,
        faults,
        client_shows=(error,),
        client_exit=rules.pop("status", 17),
        essential=rules.pop("essential", (r"Failed status \d+", r"^Couldn't.*")),
        **rules,
    )


def asyncwatch(name, faults, *events):
    shows = tuple(rf"event_type IBV_EVENT_{event}" for event in events)
    return Fault(
        f"ibv_asyncwatch, {name}",
        "",
        "ibv_asyncwatch -d vb_lo",
        faults,
        client_shows=shows,
        essential=(r"event_type .*",),
        client_exit=None,
    )


BITES = (r"^verbatim: fault: 1 ",)
RETRY_EXC = r"Failed status 12"

CASES = [
    # packets: what is repaired, then what is not
    rping("some dropped", "seed=7; drop 10%", client_shows=BITES),
    rping("some dropped on their way in", "", "seed=7; drop 10% in", server_shows=BITES),
    send_bw("all dropped", "drop #20+", RETRY_EXC, compares_faults=False),
    rping("some late", "seed=7; delay 1ms-20ms 30%", client_shows=BITES),
    send_bw("too late", "delay 10min #20+", RETRY_EXC, compares_faults=False),
    rping(
        "some doubled",
        "seed=7; duplicate 30%",
        "seed=8; duplicate 30% in",
        client_shows=BITES,
        server_shows=BITES,
    ),
    rping(
        "some overtaken",
        "seed=7; reorder 30%",
        "seed=8; reorder 30% in",
        client_shows=BITES,
        server_shows=BITES,
    ),
    rping("some corrupt", "seed=7; corrupt 10%", client_shows=BITES),
    send_bw("all corrupt", "corrupt #20+", RETRY_EXC, compares_faults=False),
    rping("a short freeze", "freeze 200ms at ibv_post_send #10", client_shows=BITES),
    send_bw("a long freeze", "freeze 10min at ibv_post_send #20", RETRY_EXC),
    # calls
    rping("calls that take long", "stall 100ms ibv_post_send #3-5", client_shows=BITES),
    rping(
        "a region that cannot be had",
        "fail ibv_reg_mr ENOMEM #2",
        error="send_buf reg_mr failed",
        status=None,
    ),
    rping("a send that cannot be posted", "fail ibv_post_send EIO #7", error="post send error 5", status=5),
    send_bw("no memory", "fail ibv_reg_mr ENOMEM #1", "Couldn't allocate MR", status=1),
    Fault(
        "ucmatose, no route",
        *CMATOSE,
        "fail rdma_resolve_addr ENETUNREACH",
        client_shows=(r"Network is unreachable",),
        essential=(r".*unreachable.*",),
        client_exit=None,
    ),
    Fault(
        "rdma_client, no event can be acknowledged",  # by a program; its ids acknowledge their own
        "rdma_server -s 127.0.0.1 -p {port}",
        "rdma_client -s 127.0.0.1 -p {port}",
        "fail rdma_ack_cm_event EINVAL",
        client_shows=(r"^rdma_client: end 0$",),
    ),
    Fault(
        "rdma_server, no id can be moved or destroyed",  # by a program; the library does both by itself
        "rdma_server -s 127.0.0.1 -p {port}",
        "rdma_client -s 127.0.0.1 -p {port}",
        "",
        "fail rdma_migrate_id EINVAL; fail rdma_destroy_id EBUSY",
        client_shows=(r"^rdma_client: end 0$",),
        server_shows=(r"^rdma_server: end 0$",),
    ),
    # completions
    rping(
        "a receive that fails",
        "complete recv LOC_PROT_ERR #5",
        error="cq completion failed status 4",
        status=255,
    ),
    rping(
        "a receive that fails there",
        "",
        "complete recv LOC_LEN_ERR #5",
        server_shows=(r"^cq completion failed status 1",),
        status=None,
    ),
    send_bw("a send that fails", "complete send REM_ACCESS_ERR #1", r"Failed status 10"),
    Fault(
        "ucmatose, no receive in time",
        *CMATOSE,
        "rnr #3",
        server_shows=(r"IBV_WC_RNR_RETRY_EXC_ERR",),
        essential=(r"IBV_WC_\w+",),
    ),
    Fault(
        "ib_send_bw, a receive that is late",
        *SEND_BW,
        "",
        "rnr #20 for 50ms",
        client_shows=(r"^ *4096 +60 ",),
        server_shows=BITES,
    ),
    # link, events
    rping(
        "a link that goes and comes", "link down for 100ms at ibv_post_send #10", client_shows=(r"is over$",)
    ),
    send_bw("a link that stays down", "link down at ibv_post_send #20", RETRY_EXC),
    asyncwatch("a link that goes and comes", "link down for 100ms after 200ms", "PORT_ERR", "PORT_ACTIVE"),
    asyncwatch(
        "events",
        "event LID_CHANGE after 100ms; event SM_CHANGE after 200ms; event GID_CHANGE after 300ms",
        "LID_CHANGE",
        "SM_CHANGE",
        "GID_CHANGE",
    ),
    send_bw(
        "a device that fails",
        "event DEVICE_FATAL at ibv_post_send #20",
        r"^Couldn't post send: qp 0 scnt=19",
        essential=(r"^Couldn't.*",),
    ),  # what was outstanding is flushed, if it was not done yet
    # the connection manager
    rping("a lost request", "lose REQ #1", client_shows=BITES),
    rping(
        "all requests lost",
        "lose REQ",
        compares_faults=False,
        error="cma event RDMA_CM_EVENT_UNREACHABLE, error -110",
        status=255,
    ),
    # Both sides' time is up at once: who sees it first tells the other.
    Fault(
        "ucmatose, all replies lost",
        *CMATOSE,
        "",
        "lose REP",
        compares_faults=False,
        server_shows=(TIME_IS_UP,),
        client_shows=(TIME_IS_UP,),
        essential=(),
        client_exit=None,
    ),
    rping("refused", "refuse STALE_CONN", error="cma event RDMA_CM_EVENT_REJECTED, error 10", status=255),
    rping(
        "refused there",
        "",
        "refuse #1",
        error="cma event RDMA_CM_EVENT_REJECTED, error 28",
        status=255,
        server_shows=BITES,
    ),
    Fault(
        "ucmatose, refused",
        *CMATOSE,
        "refuse NO_RESOURCES port={port}",
        client_shows=(r"RDMA_CM_EVENT_REJECTED.*3",),
        essential=(r".*REJECTED.*",),
        client_exit=None,
    ),
    # peers
    send_bw("a peer that vanishes", "vanish at ibv_post_send #20", RETRY_EXC),
    rping(
        "a peer that was never there",
        "vanish peer=127.0.0.1",
        error="cma event RDMA_CM_EVENT_UNREACHABLE, error -110",
        status=255,
    ),
]


# ---- running ----


def run(fault, turn):
    """What is wrong, or "", and the essential lines of both sides."""
    port = harness.free_port()
    stem = os.path.join(LOGS, re.sub(r"[^\w]+", "_", fault.name) + f".{turn}")
    limit = harness.Limit(LIMIT_S)
    programs = []
    try:
        if fault.server:
            programs.append(
                FaultyProgram(
                    fault.server.replace("{port}", str(port)), fault.server_faults, stem + ".server.log"
                )
            )
            programs[0].wait_ready(port=port)
        client = FaultyProgram(
            fault.client.replace("{port}", str(port)),
            fault.client_faults.replace("{port}", str(port)),
            stem + ".client.log",
        )
        programs.append(client)
        reason = settle(fault, programs, limit)
    finally:
        for program in programs:
            program.end()
    outputs = [program.output().replace(str(port), "PORT") for program in programs]
    return reason or judge(fault, outputs), [essence(fault, output) for output in outputs]


def is_shown(fault, programs):
    server, client = (programs[0] if fault.server else None), programs[-1]
    return all(re.search(p, client.output(), re.MULTILINE) for p in fault.client_shows) and (
        not server or all(re.search(p, server.output(), re.MULTILINE) for p in fault.server_shows)
    )


def client_ended(fault, client, status):
    if fault.client_exit in (None, status):
        return ""
    return f"client {harness.describe_exit(status)}{harness.last_words(client.output())}"


def settle(fault, programs, limit):
    """Waits for the client's end; where its status does not count, both sides having shown what they should
    is enough."""
    while limit.left():
        status = programs[-1].ended()
        if (status is not None or fault.client_exit is None) and is_shown(fault, programs):
            return client_ended(fault, programs[-1], status)
        if status is not None and (not fault.server_shows or programs[0].ended() is not None):
            time.sleep(0.2)  # the last words of the other side
            return client_ended(fault, programs[-1], status)
        time.sleep(0.05)
    return "did not end in time"


def judge(fault, outputs):
    for who, output, wanted in (
        ("client", outputs[-1], fault.client_shows),
        ("server", outputs[0], fault.server_shows),
    ):
        for pattern in wanted:
            if not re.search(pattern, output, re.MULTILINE):
                return f"{who} does not show /{pattern}/{harness.last_words(output)}"
        for pattern in fault.never_shows:
            if re.search(pattern, output, re.MULTILINE):
                return f"{who} shows /{pattern}/"
    return ""


def essence(fault, output):
    faults = re.findall(FAULTS, output, re.MULTILINE)
    said = sorted(set(re.findall("|".join(fault.essential), output, re.MULTILINE))) if fault.essential else []
    return (faults if fault.compares_faults else faults[:1]) + said


def once(fault):
    return run(fault, 1)[0]


def twice(fault):
    (first_reason, first), (second_reason, second) = (run(fault, turn) for turn in (1, 2))
    if first_reason or second_reason:
        return first_reason or f"the second time: {second_reason}"
    if first != second:
        return f"not the same twice: {[line for side in zip(first, second) for line in set(side[0]) ^ set(side[1])][:4]}"
    return ""


# ---- expressions that cannot be read ----


def verbatim(*args, **environment):
    return harness.run(
        [VERBATIM, *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=os.environ | environment,
    )


def mistake__run_says_it():
    done = verbatim("run", "--faults", "drop 1%; droop", "rping", "-h")
    return "" if done.returncode == 125 and "column 10: no such fault" in done.stderr else f"{done}"


def mistake__is_marked():
    """Where a terminal shows it, whatever the alphabet."""
    marked = {
        "drop 1% für ever": (9, "        ^^^"),
        "seed=1; # für\ndrop\t日本\t1%": (6, "    \t^^^^"),
        "drop 1% # 日本\n; ü droop": (3, "  ^"),
    }
    for text, (column, marks) in marked.items():
        said, _, below = verbatim("faults", text).stderr.splitlines()
        if f"column {column}:" not in said or below != f"  {marks}":
            return f"{text!r}: {said!r}, {below!r}"
    return ""


def mistake__library_says_it_and_nothing_runs():
    done = verbatim("run", "ibv_devices", VERBATIM_FAULTS="drop 1%; droop")
    said = done.stderr.count("VERBATIM_FAULTS: at character 10 ('droop'): no such fault") == 1
    return "" if said and "vb_lo" not in done.stdout else f"{done}"


def mistake__file_that_is_not_there():
    done = verbatim("run", "ibv_devices", VERBATIM_FAULTS="@/nonexistent")
    return "" if "/nonexistent: No such file" in done.stderr and "vb_lo" not in done.stdout else f"{done}"


def mistake__device_that_is_not_there():
    done = verbatim("run", "--faults", "event LID_CHANGE device=vb_nothing", "ibv_devinfo", "-d", "vb_lo")
    good = done.returncode == 0 and done.stderr.count("there is no device vb_nothing") == 1
    return "" if good else f"{done}"


def file__is_read():
    path = os.path.join(LOGS, "expression")
    with open(path, "w", encoding="utf-8") as file:
        file.write("# what is to happen\nseed=3\nfail ibv_get_device_list EIO   # always\n")
    done = verbatim("run", "--faults", f"@{path}", "ibv_devices")
    explained = verbatim("faults", f"@{path}")
    good = "vb_lo" not in done.stdout and explained.stdout.startswith(
        "seed 3\n 1  fail ibv_get_device_list EIO\n"
    )
    return "" if good else f"{done} {explained}"


def words__each_call_meets_faults():
    """Each call that has a name in the language asks for its faults by that name."""
    source = pathlib.Path(__file__).resolve().parents[2] / "src"
    verbs, rdmacm = (
        "\n".join(f.read_text(encoding="utf-8") for f in (source / layer).glob("**/*.c"))
        for layer in ("verbs", "rdmacm")
    )
    calls = re.search(r"^calls: (.*)$", verbatim("faults", "--words").stdout, re.MULTILINE).group(1).split()
    missed = [
        c
        for c in calls
        if c.startswith("ibv_") and not re.search(rf"\w+\([^;]*\"{c}\"|call\[\] = \"{c}\"", verbs)
    ]
    missed += [
        c
        for c in calls
        if c.startswith("rdma_")
        and not re.search(
            rf"^VB_EXPORT [^;{{]*\b{c}\([^;{{]*\)\n{{\n[^}}]*vb_cma_is_faulty\(__func__\)",
            rdmacm,
            re.MULTILINE,
        )
    ]
    return f"{missed}" if missed or len(calls) < 50 else ""


def words__without_an_expression():
    done = verbatim("faults", "--words", "drop 1%")
    return "" if (done.returncode, done.stdout) == (125, "") else f"{done}"


OTHERS = [
    words__each_call_meets_faults,
    words__without_an_expression,
    mistake__run_says_it,
    mistake__is_marked,
    mistake__library_says_it_and_nothing_runs,
    mistake__file_that_is_not_there,
    mistake__device_that_is_not_there,
    file__is_read,
]


def missing(fault):
    return harness.missing_programs(fault.server, fault.client)


def main():
    harness.isolate()
    os.makedirs(LOGS, exist_ok=True)
    todo = [(fault.name, once if ONCE else twice, fault) for fault in CASES] + [
        (f.__name__, lambda function: function(), f) for f in OTHERS
    ]
    todo = [row for row in todo if re.search(PATTERN, row[0])]
    print(f"1..{len(todo)}", flush=True)
    if not todo:
        print("# no case was chosen")
    failed = False
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        results = [(name, fault, pool.submit(work, fault)) for name, work, fault in todo]
        for number, (name, fault, result) in enumerate(results, 1):
            if isinstance(fault, Fault) and missing(fault):
                result.cancel()
                print(f"ok {number} - {name} # SKIP {missing(fault)[0]} is not installed", flush=True)
                continue
            reason = result.result()
            failed |= bool(reason)
            print(
                f"{'not ok' if reason else 'ok'} {number} - {name}" + (f"\n# {reason}" if reason else ""),
                flush=True,
            )
    return 1 if failed or not todo else 0


if __name__ == "__main__":
    sys.exit(main())

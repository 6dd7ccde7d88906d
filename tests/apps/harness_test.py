#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The harness judged by stand-in programs that behave and misbehave on purpose; speaks TAP."""
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import harness
from harness import Case

PROGRAMS = {
    # Serves one TCP connection: reads one line, answers it.
    "good-server": """#!/usr/bin/python3
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as s:
    peer, _ = s.accept()
    line = peer.recv(100)
    peer.sendall(line)
    print("served", line.decode())
""",
    "good-client": """#!/usr/bin/python3
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as s:
    s.sendall(sys.argv[2].encode())
    print("answer", s.recv(100).decode())
""",
    # Serves one TCP connection and says so; then it ends, or does not.
    "half-server": """#!/usr/bin/python3
import socket, sys, time
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as s:
    s.accept()[0].recv(100)
    print("served", flush=True)
    time.sleep(int(sys.argv[2]))
""",
    "half-client": """#!/usr/bin/python3
import socket, sys, time
socket.create_connection(("127.0.0.1", int(sys.argv[1]))).sendall(b"x")
print("over", flush=True)
time.sleep(int(sys.argv[2]))
""",
    "a program": "#!/bin/sh\necho given $1\n",
    "end-with": "#!/bin/sh\necho before the end\nexit $1\n",
    # Listens, and starts a child whose process number goes into a file.
    "hang": """#!/usr/bin/python3
import os, socket, subprocess, sys
with socket.create_server(("127.0.0.1", 0)):
    child = subprocess.Popen(["sleep", "1000"])
    with open(sys.argv[1] + ".new", "w") as file:
        file.write(str(child.pid))
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    child.wait()
""",
    "mistaken": "#!/bin/sh\necho verbatim: check call: ibv_dealloc_pd: busy\n",
    "crash": "#!/bin/sh\nkill -SEGV $$\n",
    "ib_write_bw": '#!/bin/sh\necho "Event: RDMA_CM_EVENT_$1; error: 8."\nkill -SEGV $$\n',
    "rping": '#!/bin/sh\necho "$1 EVENT..."\necho rdma_get_cm_event: Bad file descriptor\nexit 255\n',
}



RUN_SAYS = [(3, "in out", "err"), "status 4", "over", "killed", 5]


def run_as_subprocess():
    said = []
    both = "printf '%s out' $(cat); printf err >&2; exit 3"
    done = harness.run(["sh", "-c", both], timeout=60, input="in", capture_output=True, text=True)
    said.append((done.returncode, done.stdout, done.stderr))
    try:
        harness.run(["sh", "-c", "exit 4"], timeout=60, check=True)
    except subprocess.CalledProcessError as error:
        said.append(f"status {error.returncode}")
    try:
        harness.run(["sh", "-c", "echo $$; exec sleep 1000"], timeout=0.3, stdout=subprocess.PIPE)
    except subprocess.TimeoutExpired as error:
        said.append("over")
        pid = int(error.stdout)
        said.append("left" if os.path.exists(f"/proc/{pid}") else "killed")
    with subprocess.Popen(["sh", "-c", "sleep 1.5; exit 5"]) as process:
        said.append(harness.wait(process, 60))
    return said


def one_may_wait(name, server_s, client_s, shows, limit_s=120.0):
    """A server and a client that sleep so long behind what they say."""
    return Case(
        name,
        server=f"half-server {{port}} {server_s}",
        client=f"half-client {{port}} {client_s}",
        one_shows=(shows,),
        one_may_wait=True,
        limit_s=limit_s,
    )


EXPECTED = [
    (
        Case(
            "pair",
            server="good-server {port}",
            client="good-client {port} hello",
            client_shows=("^answer hello$",),
            server_shows=("^served hello$",),
        ),
        "ok",
        "",
    ),
    (Case("alone", client="end-with 0", client_shows=("^before",)), "ok", ""),
    (Case("quoted", client="'{dir}/a program' 'a b'", client_shows=("^given a b$",)), "ok", ""),
    (Case("wanted_status", client="end-with 3", client_exit=3), "ok", ""),
    (
        Case("server_stays", server="hang {dir}/pid", client="end-with 0", clients=3, server_stays=True),
        "ok",
        "",
    ),
    (Case("not_installed", server="no-such-program", client="end-with 0"), "skip", "not installed"),
    (Case("client_status", server="hang {dir}/pid", client="end-with 3"), "FAIL", "client ended with 3"),
    (Case("own_race", client="rping DISCONNECT"), "ok", ""),
    (Case("own_race_too_early", client="rping CONNECT"), "FAIL", "client ended with 255"),
    (Case("client_crash", client="crash"), "FAIL", "killed by SIGSEGV"),
    (Case("perftest_too_early", client="ib_write_bw REJECTED"), "skip", "before its server listened again"),
    (Case("perftest_crash", client="ib_write_bw UNREACHABLE"), "FAIL", "killed by SIGSEGV"),
    (Case("client_hangs", client="hang {dir}/pid", limit_s=0.5), "FAIL", "did not end in time"),
    (
        Case("server_status", server="good-server {port}", client="good-client {port} hello", server_exit=1),
        "FAIL",
        "server ended with 0",
    ),
    (
        Case("server_hangs", server="hang {dir}/pid", client="end-with 0", limit_s=5),
        "FAIL",
        "server did not end",
    ),
    (Case("server_early_end", server="end-with 0", client="end-with 0"), "FAIL", "before a client came"),
    (
        Case(
            "server_should_stay",
            server="good-server {port}",
            client="good-client {port} x",
            clients=1,
            server_stays=True,
        ),
        "FAIL",
        "though it should stay",
    ),
    (Case("client_shows", client="end-with 0", client_shows=("nothing like it",)), "FAIL", "does not show"),
    (
        Case(
            "server_shows",
            server="good-server {port}",
            client="good-client {port} x",
            server_shows=("absent",),
        ),
        "FAIL",
        "server does not show",
    ),
    (Case("never_shows", client="end-with 0", never_shows=("bef[a-z]*",)), "FAIL", 'client shows "before"'),
    (one_may_wait("client_may_wait", 0, 1000, "^served$"), "ok", ""),
    (one_may_wait("server_may_wait", 1000, 0, "^over$"), "ok", ""),
    (one_may_wait("both_wait", 1000, 1000, "^over$", limit_s=1), "FAIL", "client did not end in time"),
    (one_may_wait("one_shows", 0, 0, "absent"), "FAIL", "neither shows"),
    (Case("mistake_without_checks", client="mistaken"), "ok", ""),
]
EXPECTED_OF_CHECKS = [
    (Case("no_mistake", client="end-with 0"), "ok", ""),
    (Case("mistake", client="mistaken"), "FAIL", 'client shows "verbatim: check call: ibv_dealloc_pd: busy"'),
    (Case("known_mistake", client="mistaken", mistakes="call: ibv_(dealloc_pd|destroy_cq): busy"), "ok", ""),
    (
        Case("other_mistake", client="mistaken", mistakes="call: ibv_destroy_cq: busy"),
        "FAIL",
        "ibv_dealloc_pd: busy",
    ),
]


def stand_ins(folder):
    """A build directory whose `verbatim run` runs the program as it is."""
    for name, text in (PROGRAMS | {"verbatim": '#!/bin/sh\nshift\nexec "$@"\n'}).items():
        path = os.path.join(folder, name)
        with open(path, "w", encoding="ascii") as script:
            script.write(text)
        os.chmod(path, 0o755)
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def await_end(pid):
    limit = harness.Limit(20)
    while alive(pid) and limit.left():
        time.sleep(0.01)


def pid_in(path):
    """Which a program writes into a file."""
    while not os.path.exists(path) or not os.path.getsize(path):
        time.sleep(0.02)
    with open(path, encoding="ascii") as file:
        return int(file.read())


# A run with a program that hangs.
RUN = """import sys
import harness
harness.obey_signals()
case = harness.Case("hangs", client=f"hang {sys.argv[2]}")
harness.run_case(sys.argv[1], case, harness.Endpoint("lo", "vb_lo", "127.0.0.1", 0), sys.argv[1])
"""


def ended_by(how, folder):
    """A run that a signal ends: its exit status, and whether a process of its program is left."""
    pid_file = os.path.join(folder, f"pid-{how.name}")
    here = os.path.dirname(os.path.abspath(__file__))
    command = [sys.executable, "-c", RUN, folder, pid_file]
    run = subprocess.Popen(command, cwd=here, stderr=subprocess.DEVNULL, start_new_session=True)
    child = pid_in(pid_file)
    run.send_signal(how)
    status = run.wait()
    await_end(child)
    left = alive(child)
    if left:
        os.kill(child, signal.SIGKILL)
    return status, left


def refused_while_others_start(ports):
    """How many of the free ports could not be bound at once, while other threads start processes."""
    is_over = threading.Event()

    def start_processes():
        while not is_over.is_set():
            subprocess.run(["true"], check=True)

    starters = [threading.Thread(target=start_processes) for _ in range(3)]
    for starter in starters:
        starter.start()
    refused = 0
    for _ in range(ports):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
            try:
                server.bind(("", harness.free_port()))
            except OSError:
                refused += 1
    is_over.set()
    for starter in starters:
        starter.join()
    return refused


def main():
    number = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        stand_ins(folder)
        lo = harness.Endpoint("lo", "vb_lo", "127.0.0.1", 0)

        def check(name, good, remark):
            nonlocal number, failed
            number += 1
            failed += not good
            print(f"{'ok' if good else 'not ok'} {number} - {name}", flush=True)
            if not good:
                print(f"# {remark}")

        os.environ.pop("VERBATIM_CHECK", None)
        for case, status, reason in EXPECTED + EXPECTED_OF_CHECKS:
            if case is EXPECTED_OF_CHECKS[0][0]:
                os.environ["VERBATIM_CHECK"] = "1"
            values = vars(case) | {
                "server": case.server.replace("{dir}", folder),
                "client": case.client.replace("{dir}", folder),
            }
            outcome = harness.run_case(folder, Case(**values), lo, folder)
            check(f"run_case__{case.name}", outcome.status == status and reason in outcome.reason, outcome)

        del os.environ["VERBATIM_CHECK"]
        pid_file = os.path.join(folder, "left")
        program = harness.Program(folder, f"hang {pid_file}", os.path.join(folder, "log"))
        child = pid_in(pid_file)
        before = alive(child)
        program.end()
        await_end(child)
        check("program_end__takes_the_group", before and not alive(child), f"child {child}")

        for how in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
            status, left = ended_by(how, folder)
            check(f"obey_signals__{how.name}_leaves_no_program", status and not left, (status, left))

        limits = {}
        for load in 0.0, 1e6:
            os.getloadavg = lambda load=load: (load, load, load)
            limits[load] = round(harness.Limit(10).left())
        check("limit__grows_with_the_load_but_not_for_ever", limits == {0.0: 10, 1e6: 40}, limits)
        said = run_as_subprocess()
        check("run__is_that_of_subprocess_but_for_its_limit", said == RUN_SAYS, said)

        ports = {harness.free_port() for _ in range(50)}
        check("free_port__differs", len(ports) == 50, ports)

        taken = harness.free_port() + 1
        with socket.create_server(("", taken)):
            check("free_port__passes_over_a_listener", harness.free_port() != taken, taken)

        refused = refused_while_others_start(200)
        check("free_port__stays_free_while_processes_are_started", not refused, refused)

        tcp = socket.create_server(("127.0.0.1", 0))
        port, deaf = (socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2))
        port.bind(b"\0verbatim/port/test \t\n%d" % os.getpid())
        deaf.bind(b"\0verbatim/port/deaf%d" % os.getpid())
        deaf.connect(deaf.getsockname())
        inodes = [str(os.fstat(held.fileno()).st_ino) for held in (tcp, port, deaf)]
        found = set(harness.listeners(os.getpid()))
        check("listeners__tcp_and_ports", [inode in found for inode in inodes] == [True, True, False], inodes)

        log = subprocess.run(
            [
                sys.executable,
                "-c",
                "import harness as h; r = h.Report(); r.add('a', h.Outcome('ok'));"
                "r.add('b', h.Outcome('FAIL', 'why', 'one\\ntwo\\n---\\n', '\\n'.join(map(str, range(20)))));"
                "r.add('c', h.Outcome('skip', 'absent'));"
                "exit(r.finish())",
            ],
            cwd=os.path.dirname(os.path.abspath(__file__)),
            capture_output=True,
            text=True,
            check=False,
        )
        check(
            "report__tap",
            log.returncode == 1
            and log.stdout.splitlines()[:22]
            == [
                "ok 1 - a",
                "not ok 2 - b",
                "# FAIL b: why",
                "# server: one",
                "# server: two",
                *(f"# client: {n}" for n in range(5, 20)),
                "ok 3 - c # SKIP absent",
                "1..3",
            ],
            log,
        )
        log = subprocess.run(
            [sys.executable, "-c", "import harness as h; exit(h.Report().finish())"],
            cwd=os.path.dirname(os.path.abspath(__file__)),
            capture_output=True,
            text=True,
            check=False,
        )
        check("report__without_a_case", log.returncode == 1 and log.stdout.startswith("1..0\n"), log)
    print(f"1..{number}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

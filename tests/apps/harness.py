# SPDX-License-Identifier: BSD-2-Clause
"""Runs unmodified RDMA programs in pairs through `verbatim run` and judges what they did.

A Case names a server and a client command line, with quotes as a shell has them, the exit statuses that they
must end with and patterns that their output must show; in all of these {dev}, {gid} and {local} (its address)
stand for the own endpoint's, {addr} and {port} for the server's. Each program runs in a process group of its
own with its output in a file of its own; whatever happens, both groups are gone when run_case returns.

A server counts as ready when it listens: on a TCP socket, or on a port of the connection manager, which is a
datagram socket with a name of the library's. The kernel tells both, so nothing is guessed from time. A case
may name a pattern in the server's output instead. """
import dataclasses
import fcntl
import functools
import glob
import itertools
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

SIOCGIFADDR = 0x8915
SIOCGIFFLAGS = 0x8913
SIOCGIFHWADDR = 0x8927
IFF_UP_RUNNING = 0x41
ARPHRD_ETHER = 1

READY_LIMIT_S = 60.0
READY_SAMPLE_S = 0.02
MOST_SLOWER = 4.0  # whatever the load: limits are many times what a case needs alone
STAY_S = 0.2  # how long a server that stays is watched after its last client
QUOTED_LINES = 15  # of each program of a failed case


class Limit:
    """A time limit, which ends what hangs. It grows with the machine's load, up to MOST_SLOWER times: what
    waits for a processor does not hang."""

    def __init__(self, seconds, grows=True):
        self.seconds = seconds
        self.grows = grows
        self.start = time.monotonic()

    def left(self):
        """Seconds, or 0."""
        slower = (
            min(MOST_SLOWER, max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0))))
            if self.grows
            else 1.0
        )
        return max(0.0, self.start + slower * self.seconds - time.monotonic())


def _until_over(wait_for, seconds):
    """What wait_for(timeout) returns, which may raise TimeoutExpired until a limit is reached that grows with
    the machine's load."""
    limit = Limit(seconds)
    while True:
        try:
            return wait_for(min(1.0, limit.left()))
        except subprocess.TimeoutExpired:
            if not limit.left():
                raise


def communicate(process, seconds, text=None):
    """As its communicate, with a limit that grows with the machine's load."""
    texts = iter([text])  # given once; then it is under way
    return _until_over(lambda timeout: process.communicate(next(texts, None), timeout=timeout), seconds)


def wait(process, seconds):
    """As its wait, with a limit that grows with the machine's load."""
    return _until_over(process.wait, seconds)


def run(words, timeout, check=False, input=None, capture_output=False, **options):
    """As subprocess.run, with a limit that grows with the machine's load."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        options["stdin"] = subprocess.PIPE
    with subprocess.Popen(words, **options) as process:
        try:
            said = communicate(process, timeout, input)
        except BaseException:
            process.kill()
            raise
    if check and process.returncode:
        raise subprocess.CalledProcessError(process.returncode, words, *said)
    return subprocess.CompletedProcess(words, process.returncode, *said)


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """What a program needs to know to talk over one device."""

    label: str
    dev: str
    addr: str
    gid: int
    prefix: tuple = ()  # the command that runs its programs, such as nsenter, with arguments

    def start(self, build, command, log_path):
        return Program(build, command, log_path, self.prefix)


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    server: str = ""  # "" when one program runs alone
    client: str = ""
    client_shows: tuple = ()  # regular expressions (multi-line), each must be found
    server_shows: tuple = ()
    one_shows: tuple = ()  # one of the two sides must
    never_shows: tuple = ()  # neither side may
    mistakes: str = (
        ""  # what VERBATIM_CHECK rightly finds in it: a regular expression behind "verbatim: check "
    )
    server_ready: str = ""  # what a server shows when it is ready, if it does not listen on anything
    client_exit: int = 0
    server_exit: int = 0
    clients: int = 1  # run one after the other
    server_stays: bool = False  # the server must still run after the last client; it is ended then
    one_may_wait: bool = False  # a side may never end by itself: it is ended when the other is over
    only: str = ""  # label of the one endpoint to run on
    not_here: str = ""  # why this machine's packages cannot run it
    limit_s: float = 120.0  # against hanging: two programs that poll get slow on a busy machine


@dataclasses.dataclass
class Outcome:
    status: str  # "ok", "FAIL", "skip"
    reason: str = ""
    server_output: str = ""
    client_output: str = ""
    seconds: float = 0.0


def _ifreq_ioctl(name, request):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            return fcntl.ioctl(probe, request, struct.pack("256s", name.encode()[:15]))
        except OSError:
            return None


def first_ethernet():
    """(name, IPv4 address) of the first Ethernet interface that is up and has an address, or None."""
    for _, name in sorted(socket.if_nameindex()):
        kind, flags, addr = (_ifreq_ioctl(name, what) for what in (SIOCGIFHWADDR, SIOCGIFFLAGS, SIOCGIFADDR))
        if not kind or not flags or not addr or struct.unpack_from("H", kind, 16)[0] != ARPHRD_ETHER:
            continue
        if struct.unpack_from("H", flags, 16)[0] & IFF_UP_RUNNING == IFF_UP_RUNNING:
            return name, socket.inet_ntoa(addr[20:24])
    return None


def endpoints():
    """The loopback and, where there is one, the first Ethernet device."""
    found = [Endpoint("lo", "vb_lo", "127.0.0.1", 0)]
    ethernet = first_ethernet()
    if ethernet:
        found.append(Endpoint("eth", f"vb_{ethernet[0]}", ethernet[1], 1))
    return found


_first_port = 20000 + os.getpid() % 8000
_ports = itertools.cycle([*range(_first_port, 31000), *range(20000, _first_port)])


TCP_LISTEN, UNIX_UNCONNECTED = "0A", "01"


def _rows(pid, table):
    """The lines of a table of the network namespace that a process is in; none where there is no such
    protocol."""
    try:
        text = pathlib.Path(f"/proc/{pid}/net/{table}").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [line for line in text.split("\n")[1:] if line]


def listeners(pid):
    """The inodes of the sockets that take connections in a process's network namespace. A bound port of the
    connection manager that does not listen yet is connected; its name is any bytes."""
    for line in _rows(pid, "tcp") + _rows(pid, "tcp6"):
        fields = line.split()
        if fields[3] == TCP_LISTEN:
            yield fields[9]
    for line in _rows(pid, "unix"):
        fields = line.split(maxsplit=7)
        if len(fields) == 8 and fields[7].startswith("@verbatim/port/") and fields[5] == UNIX_UNCONNECTED:
            yield fields[6]


def _sockets_of_port(pid, protocol, port):
    """The fields of a process's network namespace's sockets that have this port, by IPv4 or IPv6."""
    for line in _rows(pid, protocol) + _rows(pid, protocol + "6"):
        fields = line.split()
        if int(fields[1].rsplit(":", 1)[1], 16) == port:
            yield fields


def bound_datagram_sockets(pid, port):
    """The inodes of the UDP sockets of a process's network namespace that have this port."""
    return (fields[9] for fields in _sockets_of_port(pid, "udp", port))


def free_port():
    """A port that no TCP socket listens on or is connected by, and that this run has not handed out before.
    For any thread. Nothing is bound to find out: a process that another thread starts meanwhile would hold
    the port for a moment."""
    return next(port for port in _ports if not any(_sockets_of_port(os.getpid(), "tcp", port)))


def descendants(pid):
    """The processes below one; none where the kernel does not tell."""
    try:
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return
    for child in children:
        yield child
        yield from descendants(child)


# Files that programs leave behind.
LEFT_BY = (
    (r"^ibv_xsrq_pingpong ", ("/tmp/xrc_domain",)),
    (r"^ib_\w+ .*-c XRC\b", ("/tmp/xrc_domain_server", "/tmp/xrc_domain_client")),
    (r"librspreload\.so .*-T f\b", ("/dev/shm/sem.rsocket_fork",)),
)


class Program:
    """A program under `verbatim run`, in its own process group, its output in a file. A prefix must become it
    by exec."""

    def __init__(self, build, command, log_path, prefix=()):
        self.command = command
        self.log_path = log_path
        self.log = open(log_path, "wb")
        argv = self.argv(build, prefix)
        self.log.write(f"$ {' '.join(argv)}\n".encode())
        self.log.flush()
        self.header = self.log.tell()
        self.process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True
        )

    def argv(self, build, prefix):
        return [*prefix, os.path.join(build, "verbatim"), "run", *shlex.split(self.command)]

    def wait(self, limit):
        """The exit status (negative: signal), or None when the limit was reached."""
        while (status := self.process.poll()) is None and (left := limit.left()):
            try:
                return self.process.wait(left)
            except subprocess.TimeoutExpired:
                pass
        return status

    def ended(self):
        """The exit status, or None while it runs."""
        return self.process.poll()

    def listens(self, port=0):
        """Does it, or a process that it has started, hold a socket on which somebody would find it? That may
        be a UDP socket with the given port."""
        try:
            pid = self.process.pid
            held = {
                os.readlink(fd)
                for each in (pid, *descendants(pid))
                for fd in pathlib.Path(f"/proc/{each}/fd").iterdir()
            }
            found = itertools.chain(listeners(pid), bound_datagram_sockets(pid, port) if port else ())
            return not held.isdisjoint(f"socket:[{inode}]" for inode in found)
        except OSError:
            return False  # a descriptor went, or the process did: look again

    def wait_ready(self, shows="", port=0):
        """Returns when the program listens, or has shown a pattern if one is given (or ended, or does not
        come to it)."""
        limit = Limit(READY_LIMIT_S)
        while limit.left() and self.process.poll() is None:
            if re.search(shows, self.output(), re.MULTILINE) if shows else self.listens(port):
                return
            time.sleep(READY_SAMPLE_S)

    def end(self, how=signal.SIGKILL):
        """Ends the whole group and returns the exit status. To be called once: the group's id may be
        reused."""
        try:
            os.killpg(self.process.pid, how)
        except ProcessLookupError:
            pass
        try:
            status = self.process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            status = self.process.wait()
        self.log.close()
        for pattern, files in LEFT_BY:
            for left in files if re.search(pattern, self.command) else ():
                pathlib.Path(left).unlink(missing_ok=True)
        return status

    def output(self):
        with open(self.log_path, "rb") as log:
            log.seek(self.header)
            return log.read().decode(errors="replace")


def describe_exit(status):
    if status is None:
        return "did not end in time"
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended with {status}"


def _fill(template, values):
    for key, value in values.items():
        template = template.replace("{" + key + "}", str(value))
    return template


def _judge_output(case, sides, outcome):
    """What is wrong with the two outputs, or ""."""
    both = outcome.client_output + outcome.server_output
    for pattern in case.one_shows:
        if not re.search(pattern, both, re.MULTILINE):
            return f"neither shows /{pattern}/"
    for who, values, output, wanted in (
        ("client", sides[1][1], outcome.client_output, case.client_shows),
        ("server", sides[0][1], outcome.server_output, case.server_shows),
    ):
        for pattern in wanted:
            if not re.search(_fill(pattern, values), output, re.MULTILINE):
                return f"{who} does not show /{_fill(pattern, values)}/"
        for pattern in case.never_shows:
            if found := re.search(_fill(pattern, values), output, re.MULTILINE):
                return f'{who} shows "{found.group(0)}"'
    return ""


def last_words(output):
    """The last line of an output that says something, in brackets, or an empty string."""
    lines = [line.strip() for line in output.splitlines() if line.strip(" -=")]
    return f" ({lines[-1][:100]})" if lines else ""


def missing_programs(*commands):
    """Those of the commands' programs that are not installed, with env(1) in front or without; and libraries
    that they preload. A program runs without one that is missing, and would not do what is tested."""
    programs = [
        next(word for word in shlex.split(command) if word != "env" and "=" not in word)
        for command in commands
        if command
    ]
    preloaded = [file for command in commands for file in re.findall(r"\bLD_PRELOAD=(/\S+)", command or "")]
    return [
        *(program for program in programs if not shutil.which(program)),
        *(file for file in preloaded if not os.path.exists(file)),
        *ucx_without_verbs(programs),
    ]


@functools.cache
def ucx_has_verbs():
    return any(glob.glob("/usr/lib*/*/ucx/libuct_ib.so*") + glob.glob("/usr/lib*/ucx/libuct_ib.so*"))


def ucx_without_verbs(programs):
    """Debian's UCX 1.23 has no module for verbs."""
    return (
        ["UCX's libuct_ib"]
        if any(program.startswith("ucx_") for program in programs) and not ucx_has_verbs()
        else []
    )


# libfabric asks for the name by itself.
NEEDS_LOCALHOST = re.compile(r"\blocalhost\b|\bfi_pingpong\b")


def localhost_has_a_name():
    try:
        return bool(socket.getaddrinfo("localhost", None))
    except OSError:
        return False


def checked(case):
    """The same under VERBATIM_CHECK: no mistake is found but those that it makes; with more time, since each
    post is looked at."""
    unless = f"(?!{case.mistakes})" if case.mistakes else ""
    return dataclasses.replace(
        case, never_shows=(*case.never_shows, f"verbatim: check {unless}.*"), limit_s=3 * case.limit_s
    )


def run_case(build, case, endpoint, log_dir, client=None):
    """Runs one case and judges it. The server runs on an endpoint, the client there too or on one of its
    own."""
    if os.environ.get("VERBATIM_CHECK"):
        case = checked(case)
    for program in missing_programs(case.server, case.client):
        return Outcome("skip", f"{program} is not installed")
    if case.not_here:
        return Outcome("skip", case.not_here)
    if NEEDS_LOCALHOST.search(case.client) and not localhost_has_a_name():
        return Outcome("skip", "localhost has no name here")
    client = client or endpoint
    values = {"addr": endpoint.addr, "port": free_port()}
    sides = [
        (side, values | {"dev": side.dev, "gid": side.gid, "local": side.addr}) for side in (endpoint, client)
    ]
    stem = os.path.join(log_dir, re.sub(r"[^\w.-]+", "_", f"{case.name}.{endpoint.label}"))
    outcome = Outcome("ok")
    start = time.monotonic()
    programs = []
    try:
        outcome.reason = _run_programs(build, case, sides, stem, programs)
    finally:
        for program in programs:
            program.end()
    outcome.seconds = time.monotonic() - start
    if case.server:
        outcome.server_output = programs[0].output()
    if len(programs) > bool(case.server):
        outcome.client_output = programs[-1].output()
    if outcome.reason.startswith("client") and case.server:
        outcome.reason += f"; server said{last_words(outcome.server_output)}"
    outcome.reason = outcome.reason or _judge_output(case, sides, outcome)
    if outcome.reason:
        outcome.status = "FAIL"
    if programs and has_connected_too_early(programs[-1]):
        outcome.status, outcome.reason = "skip", "perftest connected before its server listened again"
    return outcome


def has_connected_too_early(client):
    """With -R perftest's client connects twice. If the server has had no processor for some time, and so does
    not listen yet, the second request is refused. Then perftest uses ids that it has destroyed."""
    return (
        client.command.split()[0].startswith("ib_")
        and client.ended() == -signal.SIGSEGV
        and "RDMA_CM_EVENT_REJECTED; error: 8" in client.output()
    )


def _run_programs(build, case, sides, stem, programs):
    """Starts the programs, adding each to the list, and waits for their ends; what is wrong with those, or
    ""."""
    (server_side, server_values), (client_side, client_values) = sides
    limit = Limit(case.limit_s)
    if case.server:
        server = server_side.start(build, _fill(case.server, server_values), f"{stem}.server.log")
        programs.append(server)
        server.wait_ready(case.server_ready, server_values["port"])
        if server.ended() is not None:
            return (
                f"server {describe_exit(server.ended())} before a client came"
                f"{last_words(server.output())}"
            )
    for turn in range(case.clients):
        client = client_side.start(build, _fill(case.client, client_values), f"{stem}.client{turn or ''}.log")
        programs.append(client)
        status = client.wait(limit) if not case.one_may_wait else _wait_for_one(programs, limit)
        if status is None and case.one_may_wait and server.ended() is not None:
            continue
        if not ended_as_wanted(client, status, case.client_exit):
            return f"client {describe_exit(status)}{last_words(client.output())}"
    return _judge_server(case, server, limit) if case.server else ""


# Programs that at their end sometimes fail by themselves: exit status, and what they have said by then. One
# thread of rping destroys the channel that the other, which may have been waiting for a processor since the
# last event, is about to ask for the next.
OWN_RACES = {
    "rping": (
        255,
        r"DISCONNECT EVENT\.\.\.[\s\S]*^rdma_get_cm_event: Bad file descriptor(\s+verbatim.*)*\s*\Z",
    )
}


def ended_as_wanted(program, status, wanted):
    if status == wanted:
        return True
    race_status, said = OWN_RACES.get(program.command.split()[0], (None, ""))
    return (
        status is not None and status == race_status and bool(re.search(said, program.output(), re.MULTILINE))
    )


def _wait_for_one(programs, limit):
    """Until one of a server and its client has ended, and the other has had STAY_S; the client's status."""
    server, client = programs
    while server.ended() is None and client.ended() is None and limit.left():
        time.sleep(READY_SAMPLE_S)
    server.wait(Limit(STAY_S, grows=False))
    return client.wait(Limit(STAY_S, grows=False))


def _judge_server(case, server, limit):
    if case.server_stays:
        status = server.wait(Limit(STAY_S, grows=False))
        return "" if status is None else f"server {describe_exit(status)} though it should stay"
    status = server.wait(Limit(STAY_S, grows=False) if case.one_may_wait else limit)
    if status is None and case.one_may_wait:
        return ""
    if not ended_as_wanted(server, status, case.server_exit):
        return f"server {describe_exit(status)}{last_words(server.output())}"
    return ""


def quoted(who, output, limit=QUOTED_LINES):
    """The last lines of a program's output that say something, as TAP comments."""
    lines = [line.rstrip() for line in output.splitlines() if line.strip(" -=")]
    return [f"# {who}: {line[:200]}" for line in lines[-limit:]]


@functools.cache
def release(package):
    """The first number of an installed package's version: of those of rdma-core its release, such as 44. 0:
    it is not installed."""
    said = subprocess.run(
        ["dpkg-query", "--show", "--showformat=${Version}", package],
        capture_output=True,
        text=True,
        check=False,
    )
    number = re.match(r"(?:\d+:)?(\d+)", said.stdout)
    return int(number.group(1)) if number else 0


@functools.cache
def ucx_perftest():
    """The command. Builds with MPI wait for mpirun unless -P 0 tells them not to, and leave Open MPI's shared
    memory behind."""
    if not shutil.which("ucx_perftest"):
        return "ucx_perftest"
    command = "env OMPI_MCA_btl=self ucx_perftest"
    said = subprocess.run(
        [*command.split(), "-h"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return f"{command} -P 0" if "-P <0|1>" in said.stdout else "ucx_perftest"


TIERS = ("quick", "long")
ISOLATED = str(pathlib.Path(__file__).resolve().parent.parent / "isolated.sh")
ISOLATED_BY = "VERBATIM_TEST_ISOLATED"


def isolate():
    """Starts this program over where nothing else can meet it, unless it has been started there."""
    if ISOLATED_BY not in os.environ:
        sys.stdout.flush()
        os.execv(ISOLATED, [ISOLATED, sys.executable, *sys.argv])


@functools.cache
def may_open_packet_sockets():
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()
        return True
    except PermissionError:
        return False


def add_selection(parser):
    """The options by which a suite runs some of its cases."""
    parser.add_argument(
        "patterns", nargs="*", metavar="PATTERN", help="a regular expression over names of cases"
    )
    parser.add_argument(
        "--tier",
        choices=TIERS,
        help="what `make check` runs, or what `make check-all` runs beyond it; else both",
    )


def selected(options, name, is_quick):
    """Is a case among those to run?"""
    return (not options.tier or (options.tier == "quick") == is_quick) and (
        not options.patterns or any(re.search(pattern, name) for pattern in options.patterns)
    )


class Report:
    """Prints one TAP line per case and the final count. finish() gives the exit status."""

    def __init__(self, *again):
        """again: the command that, with a pattern, runs a case once more; in this environment."""
        settings = [
            f"{name}={value}"
            for name, value in os.environ.items()
            if name.startswith("VERBATIM_") and not name.startswith("VERBATIM_TEST")
        ]
        self.again = [ISOLATED, *["env"] * bool(settings), *settings, *again] if again else []
        self.count = {"ok": 0, "FAIL": 0, "skip": 0}
        self.start = time.monotonic()

    def add(self, name, outcome):
        self.count[outcome.status] += 1
        number = sum(self.count.values())
        if outcome.status == "skip":
            print(f"ok {number} - {name} # SKIP {outcome.reason}", flush=True)
            return
        print(f"{'not ok' if outcome.status == 'FAIL' else 'ok'} {number} - {name}", flush=True)
        if outcome.reason:
            said = quoted("server", outcome.server_output) + quoted("client", outcome.client_output)
            again = [f"# again: {shlex.join([*self.again, f'^{re.escape(name)}$'])}"] if self.again else []
            print("\n".join([f"# FAIL {name}: {outcome.reason}", *said, *again]), flush=True)

    def finish(self):
        total = sum(self.count.values())
        print(f"1..{total}")
        print(
            f"# {self.count['ok']} ok, {self.count['FAIL']} FAIL, {self.count['skip']} skipped "
            f"in {time.monotonic() - self.start:.0f} s",
            flush=True,
        )
        if not total:
            print("# no case was chosen", flush=True)
        return 1 if self.count["FAIL"] or not total else 0


def log_directory(build, name):
    path = os.path.join(build, "apps-logs", name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    os.environ["TMPDIR"] = os.path.abspath(path)  # of programs' files
    return path


def obey_signals():
    """TERM and HUP end this process as INT does, by an exception: so its programs end, too."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup(1) has it
            signal.signal(number, lambda number, _: sys.exit(128 + number))


def require_library(build):
    """What a run begins with: it is ended as failed when there is nothing to test."""
    obey_signals()
    for library in ("libibverbs.so.1", "librdmacm.so.1"):
        if not os.path.exists(os.path.join(build, "lib", library)):
            sys.exit(f"Bail out! {build}/lib/{library} is missing: build first")

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""libverbatim-sockets.so under the calls that programs make: this program runs itself with it preloaded.

usage: sockets.py BUILD_DIR [PATTERN]
"""
import array
import ctypes
import errno
import fcntl
import io
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import traceback

SOL_RDMA, RDMA_SQSIZE = 0x10000, 0
WAIT_S = 20
CASES = []


def case(function):
    CASES.append(function)
    return function


def is_rdma(s):
    """Only an rsocket has the option."""
    try:
        return s.getsockopt(SOL_RDMA, RDMA_SQSIZE) > 0
    except OSError:
        return False


def has_event(s, event=select.POLLIN, timeout_s=WAIT_S):
    poll = select.poll()
    poll.register(s, event)
    return dict(poll.poll(timeout_s * 1000)).get(s.fileno(), 0)


def listen(family=socket.AF_INET, address="127.0.0.1", backlog=16):
    listener = socket.socket(family)
    listener.bind((address, 0))
    listener.listen(backlog)
    has_event(listener, timeout_s=0)  # from now on for RDMA, too
    return listener


def connect(listener, family=socket.AF_INET, address="127.0.0.1"):
    s = socket.socket(family)
    s.settimeout(WAIT_S)
    s.connect((address, listener.getsockname()[1]))
    s.settimeout(None)
    return s


def pair():
    with listen() as listener:
        client = connect(listener)
        server, _ = listener.accept()
    assert is_rdma(client) and is_rdma(server)
    return client, server


def receive(s, n):
    data = b""
    while len(data) < n:
        more = s.recv(n - len(data))
        assert more, f"the end after {len(data)} bytes"
        data += more
    return data


def fails(code, function, *args):
    try:
        function(*args)
    except OSError as e:
        assert e.errno == code, f"{errno.errorcode.get(e.errno)} instead of {errno.errorcode[code]}"
        return
    raise AssertionError(f"no {errno.errorcode[code]}")


@case
def names__of_both_families():
    for family, address, at, shown in (
        (socket.AF_INET, "127.0.0.1", "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET6, "::1", "::1", "::1"),
        (socket.AF_INET6, "::", "127.0.0.1", "::ffff:127.0.0.1"),
    ):
        listener = listen(family, address)
        client = connect(listener, socket.AF_INET6 if at == "::1" else socket.AF_INET, at)
        server, peer = listener.accept()
        assert is_rdma(client) and is_rdma(server), at
        assert peer[0] == shown and server.getsockname()[0] == shown, (peer, server.getsockname())
        assert peer[1] == client.getsockname()[1] and client.getpeername()[1] == listener.getsockname()[1]
        client.sendall(b"x")
        assert server.recv(1) == b"x"
        for s in (client, server, listener):
            s.close()


@case
def calls__that_move_bytes():
    a, b = pair()
    a.sendmsg([b"one", b"two"])
    buffers = [bytearray(2), bytearray(8)]
    assert b.recvmsg_into(buffers)[0] == 6 and bytes(buffers[0]) == b"on" and bytes(buffers[1][:4]) == b"etwo"
    os.writev(a.fileno(), [b"12", b"34"])
    assert os.readv(b.fileno(), [bytearray(3), bytearray(3)]) == 4
    os.write(a.fileno(), b"hello")
    count = array.array("i", [0])
    assert has_event(b)
    fcntl.ioctl(b, termios.FIONREAD, count)
    assert count[0] == 5, count
    assert b.recv(9, socket.MSG_PEEK) == b"hello" and os.read(b.fileno(), 9) == b"hello"
    fails(errno.EAGAIN, b.recv, 1, socket.MSG_DONTWAIT)
    assert b.recvfrom(0)[0] == b""
    with tempfile.TemporaryFile() as f:
        f.write(bytes(range(256)) * 2000)
        f.seek(0)
        threading.Thread(target=lambda: a.sendfile(f)).start()
        assert receive(b, 512000) == bytes(range(256)) * 2000
    fails(errno.EINVAL, os.splice, b.fileno(), os.pipe()[1], 10) if hasattr(os, "splice") else None
    a.close()
    assert b.recv(1) == b""
    b.close()


@case
def stdio__over_sockets():
    a, b = pair()
    with a.makefile("rwb") as f, b.makefile("rwb") as g:
        f.write(b"a line\n")
        f.flush()
        assert g.readline() == b"a line\n"
    c = ctypes.CDLL(None)
    c.fdopen.restype = ctypes.c_void_p
    stream = ctypes.c_void_p(c.fdopen(os.dup(b.fileno()), b"r+"))
    assert (
        stream.value and fcntl.fcntl(c.fileno(stream), fcntl.F_GETFD) >= 0 and c.fileno(stream) != b.fileno()
    )
    c.dprintf(a.fileno(), b"number %d\n", 17)
    line = ctypes.create_string_buffer(99)
    assert c.fgets(line, 99, stream) and line.value == b"number 17\n"
    assert c.fputs(b"answer\n", stream) >= 0 and c.fclose(stream) == 0
    assert receive(a, 7) == b"answer\n"
    a.close()
    assert b.recv(1) == b""
    b.close()


@case
def duplicates__are_the_same_socket():
    a, b = pair()
    copy = os.dup(a.fileno())
    a.close()
    os.write(copy, b"x")
    assert b.recv(1) == b"x"
    place = os.open("/dev/null", os.O_RDONLY)
    os.dup2(copy, place)
    third = fcntl.fcntl(place, fcntl.F_DUPFD_CLOEXEC, 100)
    os.close(copy)
    os.write(place, b"y")
    os.close(place)
    assert third >= 100 and b.recv(1) == b"y" and not has_event(b, timeout_s=0.01)
    os.close(third)
    assert b.recv(1) == b""
    b.close()


@case
def flags__of_fcntl_and_ioctl():
    a, b = pair()
    b.setblocking(False)
    fails(errno.EAGAIN, b.recv, 1)
    flags = fcntl.fcntl(b, fcntl.F_GETFL)
    assert flags & os.O_NONBLOCK
    fcntl.fcntl(b, fcntl.F_SETFL, flags & ~os.O_NONBLOCK)
    b.settimeout(0.05)
    try:
        b.recv(1)
        raise AssertionError("bytes from nowhere")
    except socket.timeout:
        pass
    a.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    assert a.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert (
        a.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        and a.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_STREAM
    )
    a.close()
    b.close()
    listener = listen()
    assert not fcntl.fcntl(listener, fcntl.F_GETFL) & os.O_NONBLOCK  # as the program sees it
    listener.setblocking(False)
    fails(errno.EAGAIN, listener.accept)
    listener.close()


@case
def ends__of_each_kind():
    a, b = pair()
    a.shutdown(socket.SHUT_WR)
    assert b.recv(1) == b""
    b.sendall(b"late")
    assert receive(a, 4) == b"late"
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    pid = os.fork()
    if not pid:  # a new connection of the child's: the signal ends it
        c, d = pair()
        c.shutdown(socket.SHUT_WR)
        os.write(c.fileno(), b"x")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == signal.SIGPIPE
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    fails(errno.EPIPE, a.send, b"x")
    b.close()
    assert has_event(a) & select.POLLHUP
    a.close()


@case
def connect__without_waiting():
    listener = listen()
    s = socket.socket()
    s.setblocking(False)
    assert s.connect_ex(listener.getsockname()) in (0, errno.EINPROGRESS)
    assert has_event(s, select.POLLOUT) == select.POLLOUT
    assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0 and is_rdma(s)
    s.close()
    listener.close()


@case
def connect__falls_back_to_tcp():
    script = (
        "import socket, sys; l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen(); print(l.getsockname()[1], flush=True);"
        "s = l.accept()[0]; s.sendall(s.recv(9)); s.close()"
    )
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=plain) as server:
        s = socket.create_connection(("127.0.0.1", int(server.stdout.readline())), WAIT_S)
        assert not is_rdma(s)
        s.sendall(b"plain")
        assert s.recv(9) == b"plain"
        s.close()
    fails(errno.ECONNREFUSED, socket.create_connection, ("127.0.0.1", 1))


@case
def accept__takes_tcp_as_well():
    listener = listen()
    script = f"import socket; s = socket.create_connection(('127.0.0.1', {listener.getsockname()[1]})); s.sendall(b'tcp'); s.recv(1)"
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    with subprocess.Popen([sys.executable, "-c", script], env=plain):
        s, _ = listener.accept()
        assert receive(s, 3) == b"tcp" and not is_rdma(s)
        own = connect(listener)
        served, _ = listener.accept()
        assert is_rdma(own) and is_rdma(served)
        for each in (s, own, served, listener):
            each.close()


@case
def select__and_poll_mix():
    a, b = pair()
    r, w = os.pipe()
    assert select.select([b, r], [a, w], [], 0) == ([], [a, w], [])
    a.send(b"x")
    assert select.select([b, r], [], [], WAIT_S)[0] == [b]
    os.write(w, b"x")
    poll = select.poll()
    poll.register(b, select.POLLIN)
    poll.register(r, select.POLLIN)
    assert dict(poll.poll(WAIT_S)) == {b.fileno(): select.POLLIN, r: select.POLLIN}
    for fd in (r, w):
        os.close(fd)
    a.close()
    b.close()


@case
def epoll__from_before_it_is_connected():
    listener = listen()
    epoll = select.epoll()
    epoll.register(listener, select.EPOLLIN)
    s = socket.socket()
    s.setblocking(False)
    epoll.register(s, select.EPOLLOUT | select.EPOLLET)
    assert epoll.poll(0) in (
        [],
        [(s.fileno(), select.EPOLLOUT | select.EPOLLHUP)],
    )  # as Linux tells of such a socket
    s.connect_ex(listener.getsockname())
    seen = {}
    while seen.keys() != {s.fileno(), listener.fileno()}:
        found = epoll.poll(WAIT_S)
        assert found
        seen.update(found)
    server, _ = listener.accept()
    assert is_rdma(s) and is_rdma(server)
    epoll.modify(s, select.EPOLLIN)
    assert epoll.poll(0) == []
    server.send(b"x")
    assert epoll.poll(WAIT_S) == [(s.fileno(), select.EPOLLIN)]
    s.close()
    assert epoll.poll(0) == []
    listener.close()
    server.close()
    epoll.close()


@case
def fork__leaves_the_parents_alone():
    a, b = pair()
    pid = os.fork()
    if not pid:
        try:
            fails(errno.ENOTCONN, a.send, b"x")
            a.close()
            c, d = pair()  # its own work
            c.send(b"x")
            os._exit(d.recv(1) != b"x")
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert (
        subprocess.run(["echo", "through exec"], stdout=subprocess.PIPE, check=True).stdout
        == b"through exec\n"
    )
    a.send(b"y")
    assert b.recv(1) == b"y"
    a.close()
    b.close()


@case
def fork__workers_inherit_a_listener():
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()  # nobody has waited on it yet
    pid = os.fork()
    if not pid:
        try:
            for _ in range(3):
                s, _ = listener.accept()
                s.sendall(receive(s, 5) + (b"R" if is_rdma(s) else b"T"))
                s.close()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    answers = b""
    while b"R" not in answers and len(answers) < 3:
        s = connect(listener)
        s.sendall(b"hello")
        answers += receive(s, 6)[5:]
        s.close()
    while len(answers) < 3:
        s = connect(listener)
        assert is_rdma(s)
        s.sendall(b"hello")
        answers += receive(s, 6)[5:]
        s.close()
    assert os.waitpid(pid, 0)[1] == 0 and b"R" in answers, answers
    listener.close()


@case
def exit__delivers_what_was_written():
    listener = listen()
    script = f"import socket; s = socket.create_connection(('127.0.0.1', {listener.getsockname()[1]})); s.sendall(b'x' * 100000)"
    with subprocess.Popen([sys.executable, "-c", script]):
        s, _ = listener.accept()
        assert is_rdma(s) and receive(s, 100000) == b"x" * 100000 and s.recv(1) == b""
        s.close()
    listener.close()


@case
def killed__peer_is_an_end():
    listener = listen()
    script = (
        f"import socket, time; s = socket.create_connection(('127.0.0.1', {listener.getsockname()[1]})); s.sendall(b'x');"
        "time.sleep(100)"
    )
    peer = subprocess.Popen([sys.executable, "-c", script])
    s, _ = listener.accept()
    assert receive(s, 1) == b"x" and is_rdma(s)
    peer.kill()
    try:
        s.send(b"y")  # over the wire nobody else would tell
    except OSError:
        pass
    assert has_event(s, select.POLLIN, 60) & (select.POLLIN | select.POLLHUP)
    try:
        assert s.recv(1) == b""
    except OSError as e:
        assert e.errno in (errno.ECONNRESET, errno.ETIMEDOUT)
    peer.wait()
    s.close()
    listener.close()


@case
def threads__share_a_connection():
    a, b = pair()
    data = os.urandom(1 << 20) * 8
    writer = threading.Thread(target=lambda: (a.sendall(data), a.shutdown(socket.SHUT_WR)))
    writer.start()
    with io.BytesIO() as got:
        while True:
            more = b.recv(50000)
            if not more:
                break
            got.write(more)
        assert got.getvalue() == data
    writer.join()
    a.close()
    b.close()


@case
def other__families_pass_through():
    a, b = socket.socketpair()
    a.send(b"x")
    assert b.recv(1) == b"x"
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.bind(("127.0.0.1", 0))
    u.sendto(b"datagram", u.getsockname())
    assert u.recv(99) == b"datagram"
    assert not is_rdma(u)
    for s in (a, b, u):
        s.close()


def ask(script, config="", stderr=None, **variables):
    with tempfile.NamedTemporaryFile("w") as f:
        f.write(config)
        f.flush()
        env = {**os.environ, "VERBATIM_SOCKETS_CONFIG": f.name, **variables}
        head = "import socket, select\ndef rdma(s):\n try: return s.getsockopt(0x10000, 0)\n except OSError: return 0\n"
        return subprocess.run(
            [sys.executable, "-c", head + script],
            env=env,
            stdout=subprocess.PIPE,
            stderr=stderr,
            check=True,
            universal_newlines=True,
        ).stdout.strip()


PAIR = (
    "l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen(); select.select([l], [], [], 0);"
    "c = socket.create_connection(l.getsockname()); s = l.accept()[0]; print(rdma(c))"
)
DATAGRAMS = (
    "a = socket.socket(type=socket.SOCK_DGRAM); b = socket.socket(type=socket.SOCK_DGRAM); b.bind(('127.0.0.1', 0));"
    "a.sendto(b'x', b.getsockname()); print(b.recv(9).decode(), rdma(a) > 0)"
)


@case
def config__names_programs():
    program = os.path.basename(sys.executable)
    assert ask(PAIR, RS_SQ_SIZE="77") == "77"
    assert ask(PAIR, "# none\nno-such-program * * *\n") == "0"
    assert ask(PAIR, f"{program[:4]} INET STREAM TCP\n", RS_SQ_SIZE="78") == "78"
    assert ask(PAIR, f"{program} INET6 STREAM TCP\n") == "0"
    assert ask(PAIR, "* PF_INET SOCK_STREAM *\n", RDMAV_FORK_SAFE="1") == "0"
    assert ask(DATAGRAMS) == "x False"
    assert ask(DATAGRAMS, "* * DGRAM *\n") == "x True"


@case
def config__tells_of_lines_that_mean_nothing():
    wrong = "# none\n\n  # nor this\n* INET STREM TCP\n* INET\n* * STREAM *\n"
    said, answer = ask(PAIR, wrong, subprocess.STDOUT).split("\n")[:-1], ask(PAIR, wrong, subprocess.DEVNULL)
    assert answer != "0" and len(said) == 2 and "line 4 " in said[0] and "line 5 " in said[1], (said, answer)


@case
def datagrams__say_whether_they_wait():
    script = (
        "import fcntl, os; a = socket.socket(type=socket.SOCK_DGRAM); flags = lambda: fcntl.fcntl(a, 3) & os.O_NONBLOCK;"
        "print(flags() > 0, end=' '); a.setblocking(False); print(flags() > 0, end=' '); a.setblocking(True); print(flags() > 0)"
    )
    assert ask(script, "* * DGRAM *\n") == "False True False"


def run_cases(patterns):
    failed = 0
    chosen = [c for c in CASES if not patterns or any(re.search(p, c.__name__) for p in patterns)]
    for number, function in enumerate(chosen, 1):
        signal.alarm(90)
        try:
            function()
            print(f"ok {number} - {function.__name__}", flush=True)
        except Exception:
            failed += 1
            print(f"not ok {number} - {function.__name__}", flush=True)
            print("".join(f"# {line}\n" for line in traceback.format_exc().splitlines()), flush=True)
    print(f"1..{len(chosen)}")
    if not chosen:
        print("# no case was chosen")
    return failed > 0 or not chosen


def main():
    build = os.path.realpath(sys.argv[1])
    library = os.path.join(build, "lib", "libverbatim-sockets.so")
    if os.environ.get("LD_PRELOAD") == library:
        sys.exit(run_cases(sys.argv[2:]))
    env = {**os.environ, "LD_PRELOAD": library, "LD_LIBRARY_PATH": os.path.join(build, "lib")}
    os.execve(sys.executable, [sys.executable, *sys.argv], env)


if __name__ == "__main__":
    main()

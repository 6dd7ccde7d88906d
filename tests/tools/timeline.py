#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""verbatim timeline: what captures hold is in the page, and nothing else; and a browser shows it.

usage: timeline.py BUILD_DIR [PATTERN]
"""
import base64
import os
import pathlib
import re
import struct
import subprocess
import sys
import xml.etree.ElementTree

import capture  # before paths, where another one has that name
import paths  # noqa: F401
import examples
import harness
import look
from browser import browser, missing
from capture import LIMIT_S, VERBATIM, log, ping, run_both
from look import expect, run_cases

SECTION, INTERFACE, STATISTICS, PACKET, EVENT = 0x0A0D0D0A, 1, 5, 6, 0x80007662
POST_SEND, POST_RECEIVE, COMPLETION, POLL, SENTENCE, CM = range(1, 7)
NEEDED = "rping", "ibv_rc_pingpong", "ibv_ud_pingpong", "ibv_xsrq_pingpong", "ib_atomic_lat", "ib_write_bw"
CASES = []


def case(function):
    CASES.append(function)
    return function


# ---- captures and pages ----


def blocks(data):
    at = 0
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        expect(struct.unpack_from("<I", data, at + length - 4)[0], length, f"lengths of the block at {at}")
        yield kind, data[at + 8 : at + length - 4]
        at += length


def contents(data):
    """Packets as (head without the bytes that are kept, bytes, options), and the other blocks."""
    packets, others = [], []
    for kind, body in blocks(data):
        if kind != PACKET:
            others.append((kind, body))
            continue
        kept = struct.unpack_from("<I", body, 12)[0]
        packets.append((body[:12] + body[16:20], body[20 : 20 + kept], body[20 + (kept + 3 & ~3) :]))
    return packets, others


def events(path):
    others = contents(read(path))[1]
    return [struct.unpack_from("<IIQIIIIQII", body, 12) for kind, body in others if kind == EVENT]


def read(path):
    with open(path, "rb") as file:
        return file.read()


def made(page, *captures):
    done = harness.run(
        [VERBATIM, "timeline", *captures, page], capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    expect((done.returncode, done.stdout), (0, ""), done.stderr)
    return done.stderr


def embedded(page):
    text = read(page).decode()
    found = re.findall(r'<script type="application/x-pcapng;base64" id="capture">([^<]*)</script>', text)
    expect(len(found), 1, "captures in the page")
    return base64.b64decode(found[0], validate=True)


def check_page(page, *captures):
    """Each packet once, in its place, with its head, its first bytes and its options; all else as it was."""
    whole = b"".join(map(read, captures))
    packets, others = contents(whole)
    shown, shown_others = contents(embedded(page))
    expect(len(shown), len(packets), "packets")
    expect(shown_others == others, True, "other blocks")
    for number, (there, here) in enumerate(zip(packets, shown), 1):
        expect((here[0], here[2]), (there[0], there[2]), f"head and options of packet {number}")
        ip = there[1]
        bth = (40 if ip[0] >> 4 == 6 else 20) + 8
        least = len(ip) if ip[bth + 5 : bth + 8] == b"\0\0\1" else min(len(ip), bth + 12)
        expect(ip.startswith(here[1]) and len(here[1]) >= least, True, f"bytes of packet {number}")
    return len(packets)


def page_of(name, *captures):
    page = log(name + ".html")
    made(page, *captures)
    check_page(page, *captures)
    return page


def both(name, server, client, *options, status=0):
    """The page of a pair of programs, and their captures."""
    run_both(name, server, client, *options, status=status)
    captures = [log(f"{name}.{side}.pcapng") for side in ("server", "client")]
    return page_of(name, *captures), captures


def perftest(program, options=""):
    command = f"{program} -F -d vb_lo -x 0 -p 18601 {options}"
    return command, command + " 127.0.0.1"


def pingpong(program, options=""):
    command = f"{program} -g 0 -d vb_lo -p 18602 {options}"
    return command, command + " 127.0.0.1"


@case
def ten_captures():
    pairs = {
        "rping": (*ping("-C 10 -S 100"),),
        "rping_wire": (*ping("-C 10 -S 9000"), "--wire"),
        "rping_loss": (*ping("-C 20 -S 9000"), "--wire", "--faults=seed=5; drop 5%"),
        "rping_double": (*ping("-C 20 -S 9000"), "--wire", "--faults=seed=5; duplicate 5%"),
        "rc": pingpong("ibv_rc_pingpong", "-n 50"),
        "ud": pingpong("ibv_ud_pingpong", "-n 50 -s 1000"),
        "xrc": pingpong("ibv_xsrq_pingpong", "-n 20"),
        "atomics": perftest("ib_atomic_lat", "-n 50"),
        "writes": perftest("ib_write_bw", "-n 200 -s 65536"),
        "writes_wire": (*perftest("ib_write_bw", "-n 100 -s 20000"), "--wire"),
    }
    if absent := harness.missing_programs(*NEEDED):
        return f"{absent} are not installed"
    for name, pair in pairs.items():
        page, captures = both("ten_" + name, *pair)
        expect(check_page(page, *captures) > 40, True, f"{name}: packets")
    return None


# ---- the command ----


def complaint(*args):
    done = harness.run(
        [VERBATIM, "timeline", *args], capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    return done.returncode, done.stderr.replace("verbatim: ", "").strip()


def section(body=b""):
    return block(SECTION, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1) + body)


def block(kind, body):
    return struct.pack("<II", kind, len(body) + 12) + body + struct.pack("<I", len(body) + 12)


@case
def mistakes():
    page, path = log("mistake.html"), log("mistake.pcapng")
    expect(complaint()[0], 125, "nothing")
    expect(complaint(path)[0], 125, "one word")
    expect(complaint("--nonsense", path, page)[0], 125, "an option")
    none = log("none.pcapng")
    expect(complaint(none, page), (125, f"{none}: No such file or directory"), "no file")
    ethernet = section() + block(INTERFACE, struct.pack("<HHI", 1, 0, 0))
    interface = block(INTERFACE, struct.pack("<HHI", 101, 0, 0))
    lying = section() + block(INTERFACE, struct.pack("<HHI", 101, 0, 0))
    lying += block(PACKET, struct.pack("<IIIII", 0, 0, 0, 99, 99))
    for name, data in {
        "empty": b"",
        "text": b"no capture at all, but long enough",
        "without a section": block(INTERFACE, bytes(8)),
        "Ethernet": ethernet,
        "a length that lies": lying,
        "a packet of no interface": section() + block(PACKET, bytes(20)),
        "an interface of another section": section() + interface + section() + block(PACKET, bytes(20)),
        "an event of no interface": section() + interface + block(EVENT, struct.pack("<I56x", 1)),
        "a piece of an event": section() + interface + block(EVENT, bytes(56)),
        "lengths that differ": section()[:-4] + b"\x40\0\0\0",
        "another byte order": block(SECTION, struct.pack(">IHHq", 0x1A2B3C4D, 1, 0, -1)),
    }.items():
        with open(path, "wb") as file:
            file.write(data)
        expect(complaint(path, page), (125, f"{path} is not a capture of verbatim's"), name)
    with open(path, "wb") as file:
        file.write(section() + block(INTERFACE, struct.pack("<HHI", 101, 0, 0))[:-3])
    expect(complaint(path, page), (0, f"{path}: its end is missing"), "a piece of a block")
    expect(contents(embedded(page)), ([], [(SECTION, section()[8:-4])]), "what is whole")
    expect(complaint(path, "/nonexistent/page.html")[0], 125, "no place for the page")
    done = complaint(path, path)  # two captures, and the page is forgotten
    expect(done, (125, f"{path} is a capture, which a page would overwrite"), "a capture in the page's place")
    done = subprocess.run([VERBATIM, "run", f"--timeline={path}", "true"], capture_output=True, check=False)
    expect(done.returncode, 125, "the same of a program that runs")
    with open(path, "rb") as file:
        expect(file.read(4), struct.pack("<I", SECTION), "it is still there")


@case
def captures_longer_than_a_page():
    """The page has their beginning, and the command says so."""
    page, path = log("long.html"), log("long.pcapng")
    beginning = section() + block(INTERFACE, struct.pack("<HHI", 101, 0, 0))
    filler = block(0x7FFF0000, bytes((1 << 20) - 12))
    with open(path, "wb") as file:
        file.write(beginning)
        for _ in range(260):
            file.write(filler)
    status, said = complaint(path, path, page)
    expect(status, 0, said)
    expect(
        said.split("\n"),
        [
            f"{path}: the page ends where its 256 MiB do, before the capture's end: capture less "
            "(--packets, --qp, --seconds)",
            f"{path}: the page is full before it",
        ],
        "what it says",
    )
    expect(os.path.getsize(page) // 4 * 3 >> 20, 256, "MiB in the page")
    os.unlink(path)
    os.unlink(page)


# ---- in a browser ----


class Shown:
    """A page in a browser, with what people look at first."""

    def __init__(self, view, page):
        self.view = view
        view.requests.clear()
        view.open(os.path.abspath(page))
        view.settle()

    def count(self, selector):
        return self.view.get(f"document.querySelectorAll({selector!r}).length")

    def text(self, selector):
        return self.view.get(f"document.querySelector({selector!r}).textContent")

    def rows(self):
        return int(self.view.get("document.getElementById('ladder').dataset.rows"))

    def arrows(self):
        return int(self.view.get("document.getElementById('ladder').dataset.arrows"))

    def selected(self):
        return self.view.get("document.getElementById('ladder').getAttribute('aria-activedescendant')")

    def story(self):
        return self.view.get("document.querySelector('.story')?.textContent ?? ''")

    def press(self, *keys):
        """However much there is, what is drawn is what is seen."""
        for key in keys:
            self.view.key(key)
        drawn = self.count("#ladder *")
        expect(drawn < 8000, True, f"elements after {keys}: {drawn}")

    def focus(self):
        self.view.get("document.getElementById('ladder').focus()")

    def check_alone(self):
        expect([url for url in self.view.requests if not url.startswith("file://")], [], "requests")
        expect(len(self.view.requests), 1, f"files: {self.view.requests}")
        expect(self.view.complaints, [], "complaints")


@case
def shows_ladders():
    if why := missing():
        return why
    local, captures = both("shown", *ping("-C 10 -S 100"))
    packets = check_page(local, *captures)
    with browser() as view:
        shown = Shown(view, local)
        expect(shown.count("#connections button"), 1, "ladders")
        expect(f"{packets} packets" in shown.text("#about"), True, shown.text("#about"))
        counted = sum(len(contents(read(path))[0]) for path in captures)
        expect(shown.rows() - sum(len(events(path)) for path in captures) <= counted, True, "rows")
        # Each packet is at an arrow's beginning or end; local one-sided work has one end here.
        expect(counted / 2 <= shown.arrows() <= counted, True, f"{shown.arrows()} arrows of {counted} packets")
        view.key("0")
        expect(shown.count("#ladder .row") in (0, shown.rows()), True, "rows that are drawn")
        names = shown.text("#lanes")
        expect(len(re.findall(r"rping\[\d+\]", names)), 2, f"ends: {names}")
        shown.check_alone()
        view.picture(log("shown.png"))
        view.dark(True)
        view.settle()
        view.picture(log("shown-dark.png"))
    return None


@case
def keys_zoom_and_search():
    if why := missing():
        return why
    page, _ = both("keys", *pingpong("ibv_rc_pingpong", "-n 100"))
    with browser() as view:
        shown = Shown(view, page)
        shown.focus()
        view.key("ArrowDown")
        expect(shown.selected(), "row-0", "the first event")
        view.key("j")
        expect(shown.selected(), "row-1", "the next one")
        view.key("k")
        expect(shown.selected(), "row-0", "back")
        place = view.get(
            """(({ x, y, width, height }) => ({ x: x + width / 2, y: y + height / 2 }))(
                document.querySelector("#row-3 .dot").getBoundingClientRect())"""
        )
        view.click(place["x"], place["y"])
        expect(shown.selected(), "row-3", "a click")
        expect(shown.count("#panel table") > 0, True, "its fields")
        before = int(view.get("document.getElementById('ladder').dataset.drawn"))
        view.key("+")
        view.key("+")
        zoomed = int(view.get("document.getElementById('ladder').dataset.drawn"))
        expect(zoomed < before, True, f"zoom: {before}, then {zoomed}")
        view.key("0")
        expect(int(view.get("document.getElementById('ladder').dataset.drawn")), shown.rows(), "all of it")
        view.key("t")
        expect(shown.text("#mode"), "To scale", "to the scale of time")
        view.key("t")
        view.key("/")
        view.type("send_")
        hits = int(shown.text("#hits").split()[0].replace(",", ""))
        expect(hits >= 200, True, f"{hits} hits")
        view.key("Enter")
        expect(" of " in shown.text("#hits"), True, shown.text("#hits"))
        expect("psn" in shown.text("#panel"), True, "fields")
        view.key("Escape")
        expect(shown.text("#hits"), "", "no search")
        view.key("Escape")
        expect(shown.count(".histogram rect") > 1, True, "histogram")
        bars = "[...document.querySelectorAll('.histogram rect')]"
        total = view.get(bars + ".reduce((n, r) => n + Number(r.dataset.count), 0)")
        expect(total, 200, "requests in the histogram")
        view.key("?")
        expect(view.get("document.getElementById('keys').open"), True, "the list of keys")
        shown.check_alone()
    return None


@case
def shows_posts_and_what_became_of_them():
    """A click on a post shows the request's way from post to poll, and its sentence."""
    if why := missing():
        return why
    page, captures = both("posts", *ping("-C 5 -S 100"))
    posts = [e for path in captures for e in events(path) if e[0] == POST_SEND]
    with browser() as view:
        shown = Shown(view, page)
        view.key("/")
        view.type("post send")
        sends = sum(e[3] == 2 for e in posts)
        expect(shown.text("#hits"), f"{sends} hits", "posts of SENDs")
        view.key("Enter")
        story = shown.story()
        expect(re.search(r"^wr_id \S+ \(SEND, 16 bytes\) took ", story) is not None, True, story)
        panel = shown.text("#panel")
        for step in "post SEND", "sends SEND_ONLY", "completed", "polled", "SIGNALED", "pieces":
            expect(step in panel, True, f"{step} in {panel}")
        shown.check_alone()
    return None


@case
def saves_what_it_shows():
    """The picture stands by itself: XML with a style of its own, and with the labels that the page shows."""
    if why := missing():
        return why
    page, _ = both("picture", *ping("-C 2 -S 64"))
    with browser() as view:
        shown = Shown(view, page)
        shown.focus()
        picture = xml.etree.ElementTree.fromstring(view.get("pictureOf(page.ladder)"))
        texts = [e.text for e in picture.iter("{http://www.w3.org/2000/svg}text")]
        in_page = view.get("[...document.querySelectorAll('#ladder text')].map(e => e.textContent)")
        expect(texts[4:], in_page, "labels, behind names and places of both ends")
        expect([re.fullmatch(r"rping\[\d+\]", text) is not None for text in texts[0:4:2]], [True] * 2, "names")
        expect("--request" in picture[0].text, True, "colours in its style")
        view.key("s")
        shown.check_alone()
    return None


@case
def shows_losses():
    if why := missing():
        return why
    page, _ = both("lost", *ping("-C 60 -S 9000"), "--wire", "--faults=seed=5; drop 5%")
    with browser() as view:
        shown = Shown(view, page)
        expect("trouble" in shown.text("#connections"), True, shown.text("#connections"))
        shown.focus()
        seen = set()
        for _ in range(400):
            view.key("n")
            if (row := shown.selected()) in seen:
                break
            seen.add(row)
        expect(len(seen) > 3, True, f"{len(seen)} troubles")
        view.picture(log("lost.png"))
        shown.check_alone()
    return None


def many_events(path, count):
    """A capture of count WRITEs that one process does, each with post, two packets, completion and poll."""
    options = option(2, b"writer[1]") + option(9, b"\x09") + option(0, b"")
    out = [section(), block(INTERFACE, struct.pack("<HHI", 101, 0, 0) + options)]
    for i in range(count):
        time = 10**18 + i * 5000
        out.append(event(time, POST_SEND, i, bytes_=64))
        out.append(packet(time + 300, 2, 0x0A, i, struct.pack(">QII", 4096, 7, 64) + bytes(64)))
        out.append(packet(time + 500, 1, 0x11, i, b"\x1f" + bytes(3)))
        out.append(event(time + 700, COMPLETION, i))
        out.append(event(time + 900, POLL, i))
    with open(path, "wb") as file:
        file.write(b"".join(out))


def option(code, value):
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)


def event(time, kind, wr_id, bytes_=0):
    head = struct.pack("<III", 0, time >> 32, time & 0xFFFFFFFF)
    flags = 2 if kind == POST_SEND else 0  # IBV_SEND_SIGNALED
    return block(EVENT, head + struct.pack("<IIQIIIIQII", kind, 0x11, wr_id, 0, flags, 0, bytes_, 0, 0, 0))


def packet(time, direction, opcode, psn, rest):
    to, own = (b"\0\0\x22", b"QP 0x000011") if direction == 2 else (b"\0\0\x11", b"QP 0x000011")
    bth = bytes([opcode, 0x40, 0xFF, 0xFF, 0]) + to + b"\x80" + psn.to_bytes(3, "big")
    udp = bth + rest + bytes(4)
    addresses = bytes([127, 0, 0, 1]) * 2
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 28 + len(udp), 0, 0x4000, 64, 17, 0) + addresses
    ip += struct.pack(">HHHH", 49152, 4791, 8 + len(udp), 0) + udp
    text = (b"from" if direction == 2 else b"to") + b" writer[1], through shared memory, " + own
    options = option(1, text) + option(2, struct.pack("<I", direction)) + option(0, b"")
    head = struct.pack("<IIIII", 0, time >> 32, time & 0xFFFFFFFF, len(ip), len(ip))
    return block(PACKET, head + ip + bytes(-len(ip) % 4) + options)


@case
def a_hundred_thousand_events():
    if why := missing():
        return why
    path = log("many.pcapng")
    many_events(path, 20000)
    page = page_of("many", path)
    with browser() as view:
        shown = Shown(view, page)
        expect((shown.rows(), shown.arrows()), (100000, 40000), "rows and arrows")
        shown.focus()
        for keys in (), ("0",), ("t",), ("+",) * 8, ("PageDown",) * 4, ("End",), ("t",), ("Home",):
            shown.press(*keys)
        view.key("0")
        view.picture(log("many.png"))
        view.key("/")
        view.type("12345")
        expect(shown.text("#hits"), "5 hits", "hits of a wr_id")
        view.key("Enter")
        expect("12345" in shown.text("#panel h2"), True, shown.text("#panel h2"))
        shown.check_alone()
    return None


@case
def shows_the_whole_of_an_ib_write_bw():
    if why := missing() or harness.missing_programs("ib_write_bw"):
        return why
    page, captures = both("bw", *perftest("ib_write_bw", "-n 30000 -s 64"))
    posts = sum(e[0] == POST_SEND for path in captures for e in events(path))
    packets = sum(len(contents(read(path))[0]) for path in captures)
    with browser() as view:
        shown = Shown(view, page)
        expect(posts >= 30000 and shown.rows() >= 100000, True, f"{posts} posts, {shown.rows()} rows")
        arrows = shown.arrows()
        expect(packets / 2 <= arrows <= packets, True, f"{arrows} arrows of {packets} packets")
        shown.focus()
        for key in "0", "t", "+", "PageDown", "End", "Home":
            shown.press(key)
        shown.check_alone()
    return None


# ---- the tutorial's program ----

SOURCE = pathlib.Path(__file__).resolve().parents[2]


def compiled(name, text):
    """Against our own headers and libraries."""
    code, program = log(name + ".c"), os.path.abspath(log(name))
    with open(code, "w", encoding="utf-8") as file:
        file.write(text)
    command = examples.compile_command("ours", SOURCE, os.path.abspath(look.BUILD), code, program)
    subprocess.run(list(map(str, command)), check=True)
    return program


def replaced(text, *pairs):
    for before, after in pairs:
        expect(text.count(before), 1, f"{before} in the tutorial's program")
        text = text.replace(before, after)
    return text


@case
def shows_the_tutorials_program():
    if why := missing():
        return why
    program = compiled("tutorial", examples.tutorial(SOURCE))
    page, _ = both("tutorial", f"{program} 18603", f"{program} 18603 127.0.0.1")
    with browser() as view:
        shown = Shown(view, page)
        expect(shown.count("#connections button"), 1, "ladders")
        for wanted in "post SEND", "post READ", "post WRITE", "CONNECT_REQUEST", "ESTABLISHED":
            view.key("/")
            view.type(wanted)
            expect(int(shown.text("#hits").split()[0]) > 0, True, f"{wanted}: {shown.text('#hits')}")
            view.key("Escape")
        shown.check_alone()
    return None


# What the tutorial says to leave out; its server waits on, until its client has gone.
LEFT_OUT = (
    ("\tcheck(rdma_post_recv(id, NULL, words, SIZE, open), \"rdma_post_recv\");\n", ""),
    (
        "rdma_accept(id, NULL)",
        "rdma_accept(id, &(struct rdma_conn_param){ .retry_count = 7, .rnr_retry_count = 3 })",
    ),
    (
        "\twait_for_receive(id);\n\tstruct place place = {",
        """\tstruct ibv_qp_attr now;
\tstruct ibv_qp_init_attr made;
\twhile (!ibv_query_qp(id->qp, &now, IBV_QP_STATE, &made) && now.qp_state != IBV_QPS_ERR)
\t\tusleep(1000);
\texit(1);
\tstruct place place = {""",
    ),
)


def check_labels_beside_times(view):
    """What stands left of the left line does not cover the time of its row."""
    covered = view.get(
        """[...document.querySelectorAll("#ladder .row")].filter(row => {
            const time = row.querySelector(".time"), label = row.querySelector(".side");
            return time && label && label.getBoundingClientRect().left < time.getBoundingClientRect().right &&
                label.getBoundingClientRect().right > time.getBoundingClientRect().left;
        }).map(row => row.textContent)"""
    )
    expect(covered, [], "labels that cover times")


@case
def shows_why_the_tutorials_program_fails():
    """By RNR, as the tutorial says."""
    if why := missing():
        return why
    program = compiled("no_receive", "#include <unistd.h>\n" + replaced(examples.tutorial(SOURCE), *LEFT_OUT))
    page, _ = both("no_receive", f"{program} 18604", f"{program} 18604 127.0.0.1", status=1)
    with browser() as view:
        shown = Shown(view, page)
        expect("trouble" in shown.text("#connections"), True, shown.text("#connections"))
        shown.focus()
        stories = []
        while shown.story() not in stories:
            stories.append(shown.story())
            view.key("n")
        expect(any("rnr_retry is used up" in story for story in stories), True, stories)
        check_labels_beside_times(view)
        view.picture(log("no_receive.png"))
        shown.check_alone()
    return None


if __name__ == "__main__":
    harness.isolate()
    harness.require_library(sys.argv[1])
    if harness.missing_programs("rping", "ibv_rc_pingpong"):
        print("1..0 # SKIP rping and ibv_rc_pingpong are needed")
        sys.exit(77)
    capture.LOGS = look.LOGS = harness.log_directory(sys.argv[1], "timeline")
    sys.exit(run_cases(CASES))

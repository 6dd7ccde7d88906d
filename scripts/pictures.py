#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The pictures of README.md and docs/, made by verbatim's own tools from the examples: `make docs`. It needs
the system's python3, which has rich.

usage: pictures.py BUILD_DIR OUT_DIR
"""
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests" / "tools"))
from browser import browser, missing  # noqa: E402

BUILD, OUT = (pathlib.Path(folder).resolve() for folder in sys.argv[1:3])
VERBATIM = str(BUILD / "verbatim")
LIMIT_S = 120
PORT = 18700
TERMINAL = 124, 8

# name: the example, words for `verbatim run`, what of the page is pressed before it is drawn
TIMELINES = {
    "timeline-tutorial": ("tutorial", [], []),
    "timeline-loss": ("ping", ["--wire", "--faults=seed=5; drop 5%"], ["n"]),
}

# What rich puts around the lines of a terminal: no fonts from the net.
TERMINAL_FORMAT = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">
<style>
.{unique_id}-matrix {{ font-family: "DejaVu Sans Mono", ui-monospace, monospace; font-size: {char_height}px;
line-height: {line_height}px }}
{styles}
</style>
<defs>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})">{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


def compile_examples(folder):
    """The program of docs/tutorial.md, and examples/."""
    blocks = re.findall(r"^```c\n(.*?)^```$", (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8"), re.M | re.S)
    (folder / "tutorial.c").write_text("".join(blocks), encoding="utf-8")
    for source in [folder / "tutorial.c", *(ROOT / "examples").glob("*.c")]:
        command = ["cc", "-O2", f"-I{ROOT}/include", source, "-o", folder / source.stem, f"-L{BUILD}/lib"]
        subprocess.run([*command, "-l:librdmacm.so.1", "-l:libibverbs.so.1"], check=True)


def both(folder, example):
    """A shell's words for the server and the client of an example. The client waits for the server."""
    program = folder / example
    return f"{program} {PORT} & sleep 0.5; {program} {PORT} 127.0.0.1; wait"


def run(folder, example, *options):
    command = [VERBATIM, "run", *options, "sh", "-c", both(folder, example)]
    subprocess.run(command, check=True, timeout=LIMIT_S, stdout=subprocess.DEVNULL)


def draw_timelines(folder):
    with browser(size=(1640, 800)) as page:
        for name, (example, options, keys) in TIMELINES.items():
            html = folder / f"{name}.html"
            run(folder, example, f"--timeline={html}", *options)
            page.open(str(html))
            for key in keys:
                page.key(key)
            page.settle()
            (OUT / f"{name}.svg").write_text(page.get("pictureOf(page.ladder)"), encoding="utf-8")


def screen_of_top(socket):
    """The lines of `verbatim top` in a terminal, with their colours."""

    def tmux(*args):
        command = ["tmux", "-S", socket, "-f", "/dev/null", *args]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT_S).stdout

    width, height = map(str, TERMINAL)
    # tmux 3.2 takes no size with the session, only afterwards.
    sized = f"until stty size | grep -qx '{height} {width}'; do sleep 0.02; done"
    tmux("new-session", "-d", f"{sized}; {VERBATIM} top -d 0.5")
    try:
        tmux("resize-window", "-x", width, "-y", height)
        end = time.monotonic() + LIMIT_S
        while " RTS " not in tmux("capture-pane", "-p") and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(1.2)  # rates of two looks
        return tmux("capture-pane", "-p", "-e")
    finally:
        tmux("kill-server")


def draw_top(folder):
    from rich.console import Console
    from rich.text import Text

    command = [VERBATIM, "run", "ib_write_bw", "-d", "vb_lo", "-x", "0", "-F", "-D", "20", "-p", "18701"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    time.sleep(1)
    client = subprocess.Popen([*command, "127.0.0.1"], stdout=subprocess.DEVNULL)
    try:
        screen = screen_of_top(str(folder / "tmux"))
    finally:
        for process in client, server:
            process.terminate()
            process.wait()
    console = Console(record=True, width=TERMINAL[0], file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(screen))
    svg = console.export_svg(title="verbatim top", code_format=TERMINAL_FORMAT, unique_id="top")
    (OUT / "top.svg").write_text(svg, encoding="utf-8")


def main():
    why = missing() or next((f"{p} is not installed" for p in ("tmux", "cc") if not shutil.which(p)), None)
    if why:
        sys.exit(f"pictures: {why}")
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        compile_examples(folder)
        draw_timelines(folder)
        run(folder, "kv", f"--latency={OUT / 'latency.svg'}")
        draw_top(folder)
    print(*sorted(path.relative_to(OUT) for path in OUT.glob("*.svg")), sep="\n")


main()

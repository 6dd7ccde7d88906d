#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Who may use whom in src/.

Layers are the folders of src/, rooms the folders within them. What a file uses is what it includes, and the
functions and variables of other files that its object names: a declaration in a header of one's own hides no
call.

- Includes and symbols point down the list of layers only.
- The pure layers (wire, proto) reach no system header that does I/O, tells time or starts threads.
- No two rooms use each other, not even by way of others.
- Of the files of one layer, few use each other in a circle.
- No file maps memory by libc's functions, which other libraries change (src/host/memory/pages.h).

With --list it prints the circles, and the symbols that make them.

usage: layers.py SOURCE_ROOT BUILD_DIR [--list]
"""
import collections
import json
import pathlib
import re
import subprocess
import sys

# Equal ranks do not use each other.
RANKS = {
    "base": 0,
    "host": 1,
    "wire": 2,
    "faults": 3,
    "proto": 4,
    "adapter": 5,
    "local": 6,
    "roce": 6,
    "ud": 7,
    "check": 8,
    "verbs": 9,
    "rdmacm": 10,
    "rsocket": 11,
    "preload": 12,
    "answers": 2,
    "vendors": 1,
}
PURE = ("wire", "proto")
IMPURE = re.compile(r"(sys/.*|pthread\.h|time\.h|stdio\.h)$")
# Libraries of their own that are loaded in front: they have names of the C library's.
IN_FRONT = ("preload", "answers", "vendors")
CHANGED_BY_OTHERS = {"mmap", "mmap64", "munmap", "mremap", "madvise", "brk", "sbrk", "shmat", "shmdt"}
MOST_IN_A_CIRCLE = 4
INCLUDE = re.compile(r'[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]')


def layer(path):
    return path.split("/")[0]


def room(path):
    return path.rpartition("/")[0]


class Includes:
    """What the files below `top` include."""

    def __init__(self, top):
        self.top = top
        self.quoted = {}
        self.system = {}
        for path in sorted(top.glob("**/*.[ch]")):
            name = path.relative_to(top).as_posix()
            found = [m.groups() for m in map(INCLUDE.match, path.read_text(encoding="utf-8").split("\n")) if m]
            self.quoted[name] = [self._resolve(name, target) for kind, target in found if kind == '"']
            self.system[name] = [target for kind, target in found if kind == "<"]

    def _resolve(self, name, target):
        beside = f"{room(name)}/{target}"
        return beside if (self.top / beside).exists() else target

    def upward(self):
        """Includes of what is not below."""
        for name, targets in self.quoted.items():
            for target in targets:
                if not may_use(name, target):
                    yield f"src/{name} includes {target}, which is not below {layer(name)}"

    def impure(self, name, seen, trail):
        """Ways from a file to a header that a pure one may not reach."""
        if name in seen or name not in self.quoted:
            return
        seen.add(name)
        trail = f"{trail} -> src/{name}" if trail else f"src/{name}"
        for target in self.system[name]:
            if IMPURE.match(target):
                yield f"{trail} -> <{target}>"
        for target in self.quoted[name]:
            yield from self.impure(target, seen, trail)


def may_use(user, used):
    if layer(user) == layer(used) or layer(used) not in RANKS:
        return True
    return RANKS[layer(used)] < RANKS[layer(user)]


def objects(top, build):
    """Sources below `top`, and the object of each."""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        source = (pathlib.Path(entry["directory"]) / entry["file"]).resolve()
        path = build / entry["output"]
        if top in source.parents and path.exists():
            found.setdefault(source.relative_to(top).as_posix(), path)
    return found


def symbols(sources):
    """{source: (defined, used)} of sources with their objects."""
    found = {str(path): (set(), set()) for path in sources.values()}
    said = subprocess.run(["nm", "-A", *found], capture_output=True, text=True, check=True).stdout
    for line in said.splitlines():
        path, _, words = line.partition(":")
        kind, name = words.split()[-2:]
        if kind in "UTDBRVWCu":
            found[path][kind == "U"].add(name)
    return {name: found[str(path)] for name, path in sources.items()}


def uses_of(named):
    """{(user, used): names}, of files."""
    owners = {}
    for name, (defined, _) in named.items():
        if layer(name) not in IN_FRONT:
            owners.update((symbol, name) for symbol in defined)
    uses = collections.defaultdict(set)
    for name, (_, used) in named.items():
        for symbol in used:
            if owners.get(symbol, name) != name:
                uses[name, owners[symbol]].add(symbol)
    return uses


def circles(nodes, edges):
    """Strongly connected parts of two nodes or more (Tarjan), as sorted lists."""
    order, lowest, stack, found = {}, {}, [], []

    def visit(node):
        order[node] = lowest[node] = len(order)
        stack.append(node)
        for to in sorted(edges[node]):
            if to not in order:
                visit(to)
                lowest[node] = min(lowest[node], lowest[to])
            elif to in stack:
                lowest[node] = min(lowest[node], order[to])
        if lowest[node] == order[node]:
            at = stack.index(node)
            if len(stack) > at + 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for node in sorted(nodes):
        if node not in order:
            visit(node)
    return found


def circles_of(uses, group):
    """The same of what files belong to; pairs within a group do not count."""
    edges = collections.defaultdict(set)
    for user, used in uses:
        if group(user) != group(used):
            edges[group(user)].add(group(used))
    return circles(list(edges), edges)


def file_circles(uses, of_layer):
    return circles_of({pair: 0 for pair in uses if layer(pair[0]) == layer(pair[1]) == of_layer}, str)


def explain(uses, group, circle):
    """The symbols that make a circle."""
    for (user, used), names in sorted(uses.items()):
        if group(user) != group(used) and group(user) in circle and group(used) in circle:
            yield f"{user} -> {used}: {' '.join(sorted(names))}"


def blind_spots():
    """What the checks do not see of what they are for."""
    pairs = [("host/a/x.c", "host/b/y.c"), ("host/b/y.c", "host/c/z.c"), ("host/c/z.c", "host/a/w.c")]
    uses = {pair: {"f"} for pair in pairs}
    if circles_of(uses, room) != [["host/a", "host/b", "host/c"]]:
        yield "three rooms in a circle"
    if file_circles(uses, "host"):
        yield "files that are in no circle"
    closed = uses | {("host/a/w.c", "host/a/x.c"): {"g"}}
    if file_circles(closed, "host") != [["host/a/w.c", "host/a/x.c", "host/b/y.c", "host/c/z.c"]]:
        yield "four files in a circle"
    if may_use("host/x.c", "adapter/y.c") or may_use("roce/x.c", "local/y.c"):
        yield "uses of what is not below"


def checks(includes, named, uses):
    """(name, what is wrong) of each case."""
    yield "checker__finds", list(blind_spots())
    yield "includes__point_down", list(includes.upward())
    yield "symbols__point_down", [
        f"src/{user} uses {' '.join(sorted(names))} of {used}, which is not below {layer(user)}"
        for (user, used), names in sorted(uses.items())
        if not may_use(user, used)
    ]
    for pure in PURE:
        names = [name for name in includes.quoted if layer(name) == pure]
        yield f"{pure}__is_pure", [line for name in names for line in includes.impure(name, set(), "")]
    yield "memory__is_mapped_by_own_system_calls", [
        f"src/{name} uses {' '.join(sorted(used & CHANGED_BY_OTHERS))}"
        for name, (_, used) in named.items()
        if used & CHANGED_BY_OTHERS
    ]
    yield "rooms__use_each_other_one_way", [
        "in a circle: " + " ".join(circle) for circle in circles_of(uses, room)
    ]
    for name in RANKS:
        yield f"{name}__has_small_circles", [
            f"{len(circle)} files in a circle: {' '.join(circle)}"
            for circle in file_circles(uses, name)
            if len(circle) > MOST_IN_A_CIRCLE
        ]


def print_circles(uses):
    for circle in circles_of(uses, room):
        print(f"rooms: {' '.join(circle)}", *explain(uses, room, circle), sep="\n    ")
    for name in RANKS:
        for circle in file_circles(uses, name):
            print(f"{name}: {len(circle)} files", *explain(uses, str, circle), sep="\n    ")


def main():
    top = pathlib.Path(sys.argv[1]).resolve() / "src"
    named = symbols(objects(top, pathlib.Path(sys.argv[2]).resolve()))
    uses = uses_of(named)
    if "--list" in sys.argv:
        print_circles(uses)
        return 0
    failed = False
    results = list(checks(Includes(top), named, uses))
    print(f"1..{len(results)}")
    for number, (name, wrong) in enumerate(results, 1):
        print("ok" if not wrong else "not ok", number, "-", name)
        for line in wrong:
            print(f"# {line}")
        failed = failed or bool(wrong)
    return failed


if __name__ == "__main__":
    sys.exit(main())

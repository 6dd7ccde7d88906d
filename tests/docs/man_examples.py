#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Checks the manual pages: that they are complete, format without warnings, declare what the headers declare,
and that their examples compile and, where they are programs, run.

Usage: man_examples.py BUILD_DIRECTORY SOURCE_DIRECTORY [PAGE...]
With PAGEs (such as ibv_post_send) only these are looked at.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SECTIONS = {
    "3": ("NAME", "SYNOPSIS", "DESCRIPTION", "RETURN VALUE", "SEE ALSO"),
    "1": ("NAME", "SYNOPSIS", "DESCRIPTION"),
    "7": ("NAME", "DESCRIPTION"),
}

FOREIGN = "a program that runs on these libraries and brings its own page"
LEFT_OUT = {
    **dict.fromkeys(
        (
            "ibv_asyncwatch.1 ibv_devices.1 ibv_devinfo.1 ibv_rc_pingpong.1 ibv_srq_pingpong.1 ibv_uc_pingpong.1 ibv_ud_pingpong.1 "
            "ibv_xsrq_pingpong.1 cmtime.1 mckey.1 rcopy.1 rdma_client.1 rdma_server.1 rdma_xclient.1 rdma_xserver.1 riostream.1 "
            "rping.1 rstream.1 ucmatose.1 udaddy.1 udpong.1"
        ).split(),
        FOREIGN,
    )
}

# Exported, but not for programs.
NO_PAGE = {
    **dict.fromkeys(
        (
            "ibv_copy_ah_attr_from_kern ibv_copy_qp_attr_from_kern ibv_copy_path_rec_from_kern ibv_copy_path_rec_to_kern"
        ).split(),
        "translates structures of the kernel's interface, for librdmacm",
    ),
    **dict.fromkeys(
        "ibv_get_sysfs_path ibv_read_sysfs_file ibv_register_driver ibv_dontfork_range ibv_dofork_range".split(),
        "no public header declares it",
    ),
}

VERB = re.compile(r"^(ibv_\w+|rdma_\w+|mult_to_\w+|mbps_to_\w+|r[a-z]+)$")
INLINE = re.compile(r"static inline[^;{]*?\b(ibv_\w+|rdma_\w+)\(")
ESCAPES = {
    "\\-": "-",
    "\\e": "\\",
    "\\(rs": "\\",
    "\\&": "",
    "\\(aq": "'",
    "\\(dq": '"',
    "\\(ga": "`",
    "\\(ha": "^",
    "\\(ti": "~",
    "\\fB": "",
    "\\fI": "",
    "\\fR": "",
    "\\fP": "",
}
ESCAPE = re.compile("|".join(sorted(map(re.escape, ESCAPES), key=len, reverse=True)))


def plain(line):
    return ESCAPE.sub(lambda m: ESCAPES[m.group()], line)


class Page:
    def __init__(self, path):
        self.path = path
        self.lines = path.read_text(encoding="utf-8").splitlines()
        self.section = path.suffix[1:]

    def is_alias(self):
        return any(line.startswith(".so ") for line in self.lines)

    def target(self, root):
        return next(root / line.split()[1] for line in self.lines if line.startswith(".so "))

    def headings(self):
        return [line.split(None, 1)[1].strip('"') for line in self.lines if re.match(r"\.S[Hh] ", line)]

    def under(self, heading):
        inside, found = False, []
        for line in self.lines:
            if re.match(r"\.S[Hh] ", line):
                inside = line.split(None, 1)[1].strip('"').startswith(heading)
            elif inside:
                found.append(line)
        return found

    def examples(self):
        """The code blocks of EXAMPLE or EXAMPLES."""
        block, found = None, []
        for line in self.under("EXAMPLE"):
            if line == ".EX":
                block = []
            elif line == ".EE":
                found.append("\n".join(block) + "\n")
                block = None
            elif block is not None:
                block.append(plain(line))
        return found

    def declarations(self):
        """Of functions, in the synopsis."""
        text = "\n".join(
            plain(line)
            for line in self.under("SYNOPSIS")
            if not re.match(r"\.(PP|nf|fi|sp|P|LP|in|RS|RE)\b", line)
        )
        text = re.sub(r"(?m)^\.[BI]R?\s+\"?|^#.*$", "", text)
        text = re.sub(r"(?s)/\*.*?\*/|\b(?:struct|enum|union) \w+ \{.*?^\};", "", text, flags=re.M)
        return [" ".join(d.split()) for d in text.split(";") if "(" in d]


class Tests:
    def __init__(self):
        self.count = self.failed = 0

    def report(self, name, problems):
        self.count += 1
        self.failed += bool(problems)
        print(f"{'not ok' if problems else 'ok'} {self.count} - {name}")
        for line in problems[:20]:
            print(f"# {line}")
        sys.stdout.flush()


def run(command, **options):
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **options
    )
    return done.returncode, done.stdout.splitlines()


# ---- what there must be ----


def exported(source):
    """Public functions of the two version scripts."""
    names = set()
    for script in sorted((source / "lib").glob("*.map")):
        for node, body in re.findall(r"(?m)^(\w+) \{(.*?)^\}", script.read_text(encoding="utf-8"), re.S):
            if "PRIVATE" not in node:
                names |= {name for name in re.findall(r"(\w+);", body) if VERB.match(name)}
    return names


def inline_verbs(source):
    texts = (path.read_text(encoding="utf-8") for path in (source / "include").rglob("*.h"))
    return {name for text in texts for name in INLINE.findall(text) if not name.endswith("_")}


def wanted_pages(listing):
    for line in listing.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            yield line.split(" -> ")[0]


def missing(source, man):
    have = {path.name for path in man.glob("man*/*")}
    listed = set(wanted_pages(source / "tests" / "docs" / "pages.txt"))
    problems = [f"listed, but not there: {name}" for name in sorted(listed - have - LEFT_OUT.keys())]
    problems += [f"left out, but there: {name}" for name in sorted(have & LEFT_OUT.keys())]
    functions = exported(source) | inline_verbs(source)
    problems += [
        f"no page of {name}" for name in sorted(functions - NO_PAGE.keys()) if f"{name}.3" not in have
    ]
    return problems


# ---- what a page must be ----


def lint(page):
    problems = []
    if shutil.which("mandoc"):
        problems += run(["mandoc", "-T", "lint", "-W", "warning", str(page.path)])[1]
    if shutil.which("groff"):
        problems += run(["groff", "-man", "-ww", "-Tutf8", "-z", str(page.path)])[1]
    return problems


def form(page):
    problems = []
    if page.lines[0] != '.\\" SPDX-License-Identifier: BSD-2-Clause':
        problems.append("the first line is not the licence")
    have = page.headings()
    problems += [f"no section {name}" for name in SECTIONS[page.section] if name not in have]
    if page.section == "3" and not any(name.startswith("EXAMPLE") for name in have):
        problems.append("no section EXAMPLE")
    if page.section == "3" and any(name.startswith("EXAMPLE") for name in have) and not page.examples():
        problems.append("no code in EXAMPLE")
    return problems


def synopsis(page, headers):
    def squeeze(text):
        return re.sub(r"\s*([*(),])\s*", r"\1", " ".join(text.split()))

    return [f"no header declares: {d}" for d in page.declarations() if squeeze(d) not in headers]


def header_text(source):
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted((source / "include").rglob("*.h")))
    text = re.sub(r"(?s)/\*.*?\*/", " ", text)
    return re.sub(r"\s*([*(),])\s*", r"\1", " ".join(text.split()))


def see_also(page, man):
    """References to our own pages must lead somewhere."""
    text = " ".join(plain(line) for line in page.lines)
    names = re.findall(r"\b((?:ibv|rdma|mult_to|mbps_to)_\w+|rsocket|verbatim) ?\(([137])\)", text)
    return [
        f"refers to {n}({s}), which is not there"
        for n, s in sorted(set(names))
        if not (man / f"man{s}" / f"{n}.{s}").exists() and f"{n}.{s}" not in LEFT_OUT
    ]


FLAGS = ["-std=gnu17", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]


def compiled(source, build, code, work):
    """(problems, program or None)"""
    path, program = work / "example.c", work / "example"
    path.write_text(code, encoding="utf-8")
    command = ["cc", *FLAGS, f"-I{source / 'include'}", str(path)]
    is_program = bool(re.search(r"^int main\(", code, re.M))
    if is_program:
        command += [
            "-o",
            str(program),
            str(build / "lib" / "librdmacm.so.1"),
            str(build / "lib" / "libibverbs.so.1"),
            "-pthread",
            f"-Wl,-rpath-link,{build / 'lib'}",
        ]
    else:
        command += ["-fsyntax-only"]
    status, output = run(command)
    return (output or [f"cc ended with {status}"]) if status else [], program if is_program else None


def ran(build, program, work):
    """Twice: the second time under checks, which find no mistake in it."""
    for options in [], ["--check"]:
        try:
            status, output = run(
                [str(build / "verbatim"), "run", *options, str(program)], timeout=120, cwd=work
            )
        except subprocess.TimeoutExpired:
            return ["it did not end"]
        if status or any(line.startswith("verbatim: check ") for line in output):
            return [f"exit status {status}", *output]
    return []


def check_page(tests, page, source, build, headers):
    man = source / "man"
    name = page.path.name
    if page.is_alias():
        there = page.target(man).exists()
        tests.report(f"{name}__alias", [] if there else [f"{page.target(man)} is not there"])
        return
    tests.report(f"{name}__format", lint(page) + form(page))
    tests.report(f"{name}__names", synopsis(page, headers) + see_also(page, man))
    if page.section != "3":
        return
    for number, code in enumerate(page.examples(), 1):
        with tempfile.TemporaryDirectory(dir=build) as work:
            problems, program = compiled(source, build, code, pathlib.Path(work))
            tests.report(f"{name}__example_{number}_compiles", problems)
            if program and not problems:
                tests.report(f"{name}__example_{number}_runs", ran(build, program, pathlib.Path(work)))


def main():
    build, source = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
    only = sys.argv[3:]
    tests = Tests()
    if not shutil.which("cc"):
        print("1..0 # SKIP no C compiler")
        return
    if not only:
        tests.report("every_page_is_there", missing(source, source / "man"))
    headers = header_text(source)
    for path in sorted((source / "man").glob("man*/*")):
        if not only or path.stem in only:
            check_page(tests, Page(path), source, build, headers)
    print(f"1..{tests.count}")
    sys.exit(1 if tests.failed else 0)


if __name__ == "__main__":
    main()

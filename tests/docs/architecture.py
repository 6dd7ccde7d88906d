#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Checks that docs/architecture.md and its chapters name what there is: files of C, vb_... identifiers, and in
the tables of one message's life all functions. Speaks TAP.

usage: architecture.py SOURCE_DIRECTORY
"""
import pathlib
import re
import sys

PLACES = ("src", "include", "tools", "tests")
CODE = (".c", ".h", ".cpp", ".py", ".js", ".sh", ".build")
WORD = re.compile(r"\w+")
FILE = re.compile(r"(?<![\w/.-])[\w/-]+\.[ch]\b")
IDENTIFIER = re.compile(r"\bvb_\w+")
FUNCTION = re.compile(r"\b[a-z][a-z0-9]*_\w+")


def code_of(source):
    """The files by their paths, and all words in them."""
    paths = [path for place in PLACES for path in (source / place).rglob("*") if path.suffix in CODE]
    words = {word for path in paths for word in WORD.findall(path.read_text(encoding="utf-8"))}
    return ["/" + path.relative_to(source).as_posix() for path in paths], words


def unknown(text, paths, words):
    """Each with its line: what a page names, and is nowhere."""
    for number, line in enumerate(text.splitlines(), 1):
        for name in FILE.findall(line):
            if not any(path.endswith("/" + name) for path in paths):
                yield f"line {number}: there is no file {name}"
        named = FUNCTION if line.startswith("    ") else IDENTIFIER
        for name in named.findall(FILE.sub("", line)):
            if name not in words:
                yield f"line {number}: there is no {name}"


def main():
    source = pathlib.Path(sys.argv[1])
    paths, words = code_of(source)
    pages = [source / "docs" / "architecture.md", *sorted((source / "docs" / "architecture").glob("*.md"))]
    failed = 0
    for number, page in enumerate(pages, 1):
        problems = list(unknown(page.read_text(encoding="utf-8"), paths, words))
        failed += bool(problems)
        print(f"{'not ok' if problems else 'ok'} {number} - {page.stem}__names_what_there_is")
        for problem in problems:
            print(f"# {problem}")
    print(f"1..{len(pages)}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

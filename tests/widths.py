#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Lines of C, Python, Meson and Markdown have at most 110 columns; a tab goes to the next multiple of 8.

Longer lines are right where a break would cost more than it gives: a string that ends there, which is
searched for as it is shown; the text of one of several lines; a row of a table in C or Markdown; a diagram in
a comment; Markdown's links and verbatim blocks.
"""
import ast
import pathlib
import re
import sys
import tempfile

MOST_COLUMNS = 110
STRING_END = 100  # a string that ends behind it leaves no room for what closes the statement
SUFFIXES = {".c": "c", ".h": "c", ".py": "python", ".build": "meson", ".md": "markdown"}
QUOTES = {"c": '"', "python": "\"'", "meson": "'", "markdown": ""}
NOT_OURS = ("build", ".", "corpus")  # folders whose names begin so
OF_A_BUILD = "meson-private"  # in a folder: Meson builds there, as for a Debian package


def is_filled_by_string(line, quotes):
    """Whether one of the last columns lies within a string."""
    quote, skip = "", False
    for column, char in enumerate(line[:MOST_COLUMNS]):
        if quote and column >= STRING_END:
            return True
        if skip:
            skip = False
        elif char == "\\":
            skip = True
        elif quote:
            quote = "" if char == quote else quote
        elif char in quotes:
            quote = char
    return False


def texts(source):
    """Numbers of the lines of strings of several lines, but for documentation."""
    lines = set()
    documentation = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr):
            documentation.add(node.value)
        is_text = isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), str)
        if is_text and node not in documentation and node.end_lineno > node.lineno:
            lines.update(range(node.lineno, node.end_lineno + 1))
    return lines


def wide(text, language):
    """Numbers of the lines that are too long."""
    in_comment = in_block = False
    exempt = texts(text) if language == "python" else ()
    for number, line in enumerate(text.split("\n"), 1):
        line = line.expandtabs(8)
        began_in_comment = in_comment
        if language == "c":
            in_comment = (in_comment or "/*" in line) and "*/" not in line.rpartition("/*")[2]
        if line.startswith("```"):
            in_block = not in_block
        if len(line) <= MOST_COLUMNS or number in exempt or is_filled_by_string(line, QUOTES[language]):
            continue
        if language == "c" and re.match(r"\s*([{\[]|[A-Z_]+[0-9]?\()", line):
            continue
        if language == "c" and began_in_comment and re.match(r"\s*\*( {3}|\s+\S+ {3})", line):
            continue
        if language == "markdown" and (in_block or re.match(r"\||    ", line) or "](" in line):
            continue
        yield number


def sources(folder):
    if (folder / OF_A_BUILD).exists():
        return
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.name.startswith(NOT_OURS):
            yield from sources(path)
        elif path.is_file() and path.suffix in SUFFIXES and not path.name.startswith("."):
            yield path


def finds_what_it_should():
    long = "x" * MOST_COLUMNS
    cases = (
        (f"{long}\n{long}y\n", "c", [2]),
        ("\t" * 13 + "1234567;", "c", [1]),
        ("\t" * 13 + "123456", "c", []),
        (f'\tsay("{long}");\n\tsay("s");{long}\n', "c", [2]),
        (f"\t{{ {long} }},\n\tX({long})\n\tf({long});\n", "c", [3]),
        (f"/*\n *   in -> {long}\n * {long}\n */\n", "c", [3]),
        (f"a = '{long}'\na = {long}\n", "python", [2]),
        (f'"""\n{long}y\n"""\na = """\n{long}y\n"""\n', "python", [2]),
        (f'\tsay("{long[:-12]}");\n\tsay("{long[:-25]}", abcdefghij);\n', "c", [2]),
        (f"| {long} |\n[page]({long})\n    {long}\n```\n{long}\n```\nx{long}\n", "markdown", [7]),
    )
    return all(list(wide(text, language)) == want for text, language, want in cases)


def passes_over_builds():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name in ("a.c", "obj-x86_64-linux-gnu/a.c", "build-asan/a.c", "src/a.c", "src/a.txt"):
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).touch()
        (root / "obj-x86_64-linux-gnu" / OF_A_BUILD).mkdir()
        return [path.relative_to(root).as_posix() for path in sources(root)] == ["a.c", "src/a.c"]


def main():
    root = pathlib.Path(sys.argv[1])
    found = []
    for path in sources(root):
        text = path.read_text(encoding="utf-8")
        found += [f"{path.relative_to(root)}:{n}" for n in wide(text, SUFFIXES[path.suffix])]
    verdicts = {
        "checker__finds": finds_what_it_should(),
        "builds__are_passed_over": passes_over_builds(),
        "lines__fit": not found,
    }
    print(f"1..{len(verdicts)}")
    for number, (name, good) in enumerate(verdicts.items(), 1):
        print(f"{'ok' if good else 'not ok'} {number} - {name}")
    for place in found:
        print(f"# {place}: more than {MOST_COLUMNS} columns", file=sys.stderr)
    return 0 if all(verdicts.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

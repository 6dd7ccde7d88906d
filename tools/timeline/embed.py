#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The page of verbatim timeline as C: page.html with its style and its script in it, in two parts. The data
goes between them.

usage: embed.py PAGE.HTML STYLE.CSS SCRIPT.JS... OUT.C
"""
import pathlib
import sys

page, style, *scripts, out = map(pathlib.Path, sys.argv[1:])


def c_array(name, text):
    data = text.encode()
    rows = (data[i : i + 20] for i in range(0, len(data), 20))
    body = "\n".join("\t" + " ".join(f"{byte}," for byte in row) for row in rows)
    return f"const char {name}[] = {{\n{body}\n\t0\n}};\nconst size_t {name}_bytes = {len(data)};\n"


text = page.read_text(encoding="utf-8")
text = text.replace("/*STYLE*/", style.read_text(encoding="utf-8"))
text = text.replace("/*SCRIPT*/", "".join(script.read_text(encoding="utf-8") for script in scripts))
before, after = text.split("<!--DATA-->")
out.write_text(
    '#include "timeline/page.h"\n\n'
    + c_array("timeline_page_before", before)
    + c_array("timeline_page_after", after),
    encoding="utf-8",
)

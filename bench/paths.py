# SPDX-License-Identifier: BSD-2-Clause
"""Makes the modules of the tests importable: the harness that runs programs, hosts, guests, figures in
outputs."""
import pathlib
import sys

tests = pathlib.Path(__file__).resolve().parent.parent / "tests"
sys.path[1:1] = [str(tests / suite) for suite in ("apps", "net", "interop")]

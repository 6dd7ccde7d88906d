# SPDX-License-Identifier: BSD-2-Clause
"""Makes the modules of tests/apps and tests/net importable: the harness, hosts, captures."""
import pathlib
import sys

tests = pathlib.Path(__file__).resolve().parent.parent
sys.path[1:1] = [str(tests / "apps"), str(tests / "net")]

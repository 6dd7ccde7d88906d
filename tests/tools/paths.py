# SPDX-License-Identifier: BSD-2-Clause
"""Makes the modules of tests/apps and tests/net importable."""
import pathlib
import sys

for folder in ("apps", "net"):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / folder))

# SPDX-License-Identifier: BSD-2-Clause
"""Makes the modules of tests/apps, tests/net and tests/docs importable."""
import pathlib
import sys

for folder in ("apps", "net", "docs"):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / folder))

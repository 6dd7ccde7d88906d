# SPDX-License-Identifier: BSD-2-Clause
"""Makes the modules of tests/apps importable: the harness that runs programs, the figures in their output."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "apps"))

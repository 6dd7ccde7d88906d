# SPDX-License-Identifier: BSD-2-Clause
"""Finds the reference: the headers and libraries of rdma-core 44, as Debian 12 installs them."""
import glob
import sys

SKIP = 77


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIP)


def version():
    """The rdma-core release that the system's pkg-config file of libibverbs names, or None."""
    for path in glob.glob("/usr/lib/*/pkgconfig/libibverbs.pc") + glob.glob(
        "/usr/lib*/pkgconfig/libibverbs.pc"
    ):
        with open(path, encoding="utf-8") as f:
            for line in f:
                if line.startswith("Version:"):
                    return line.split(":")[1].strip()
    return None


def include_directory():
    found = version()
    if found is None:
        skip("no reference headers: install libibverbs-dev and librdmacm-dev")
    if not found.endswith(".44.0"):
        skip(f"the reference headers are libibverbs {found}, not those of rdma-core 44.0")
    return "/usr/include"


if __name__ == "__main__":
    include_directory()

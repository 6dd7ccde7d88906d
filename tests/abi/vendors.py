#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Asks the libraries with vendors' names, as programs do that look whether a device is theirs.

Usage: vendors.py LIBRARY_DIRECTORY
Each row: library, function, the type that it gives, its answer, errno after it (None: of no interest).
"""
import ctypes
import errno
import glob
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "apps"))

import harness  # noqa: E402

ERROR = errno.EOPNOTSUPP
ROWS = [
    ("libmlx5.so.1", "mlx5dv_is_supported", ctypes.c_bool, False, None),
    ("libmlx5.so.1", "mlx5dv_query_device", ctypes.c_int, ERROR, None),
    ("libmlx5.so.1", "mlx5dv_init_obj", ctypes.c_int, ERROR, None),
    ("libmlx5.so.1", "mlx5dv_open_device", ctypes.c_void_p, None, ERROR),
    ("libmlx5.so.1", "mlx5dv_create_qp", ctypes.c_void_p, None, ERROR),
    ("libmlx5.so.1", "mlx5dv_get_vfio_device_list", ctypes.c_void_p, None, ERROR),
    ("libmlx5.so.1", "mlx5dv_devx_get_event", ctypes.c_ssize_t, -1, ERROR),
    ("libmlx5.so.1", "mlx5dv_devx_uar_export_dmabuf_fd", ctypes.c_int, -1, ERROR),
    ("libmlx5.so.1", "mlx5dv_qp_cancel_posted_send_wrs", ctypes.c_int, -ERROR, None),
    ("libmlx4.so.1", "mlx4dv_query_device", ctypes.c_int, ERROR, None),
    ("libefa.so.1", "efadv_query_device", ctypes.c_int, ERROR, None),
    ("libefa.so.1", "efadv_create_driver_qp", ctypes.c_void_p, None, ERROR),
    ("libefa.so.1", "efadv_get_max_sq_depth", ctypes.c_int, -ERROR, None),
    ("libhns.so.1", "hnsdv_is_supported", ctypes.c_bool, False, None),
    ("libmana.so.1", "manadv_init_obj", ctypes.c_int, ERROR, None),
    ("libionic.so.1", "ionic_dv_ctx_get_udma_count", ctypes.c_uint8, 0, None),
    ("libionic.so.1", "ionic_dv_pd_set_sqcmb", ctypes.c_int, ERROR, None),
]
# Programs, and what they load later. Some of these link a vendor's library in every distribution.
FILES = {
    "perftest's programs": "/usr/bin/ib_*",
    "ibverbs-utils' programs": "/usr/bin/ibv_*",
    "rping": "/usr/bin/rping",
    "rstream": "/usr/bin/rstream",
    "rsockets' library for preloading": "/usr/lib/*/rsocket/librspreload.so",
    "rdma-core's providers": "/usr/lib/*/libibverbs/lib*-rdmav*.so",
    "pyverbs' modules": "/usr/lib/python3/dist-packages/pyverbs/**/*.so",
    "UCX's programs": "/usr/bin/ucx_*",
    "UCX's modules": "/usr/lib/*/ucx/libuct_*.so.0",
    "libfabric's programs": "/usr/bin/fi_*",
    "libfabric": "/usr/lib/*/libfabric.so.1",
}


def answer(folder, library, function, kind):
    call = getattr(ctypes.CDLL(os.path.join(folder, library), use_errno=True), function)
    call.restype = kind
    ctypes.set_errno(0)
    return call(None, None, 0), ctypes.get_errno()


def unresolved(folder, path):
    """What the loader does not find for a program, or takes from a vendor's library that is not ours."""
    env = {**os.environ, "LD_LIBRARY_PATH": folder, "LD_BIND_NOW": "1"}
    out = subprocess.run(
        ["ldd", "-r", path], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    ).stdout
    own = {row[0] for row in ROWS} | {"libibverbs.so.1", "librdmacm.so.1"}
    lines = [line.strip() for line in out.splitlines()]
    return [
        line
        for line in lines
        if ("undefined" in line and not re.search(r"symbol: _?Py", line))  # which are the interpreter's
        or "not found" in line
        or (line.split(" ")[0] in own and f"=> {folder}/" not in line)
    ]


def main():
    folder = os.path.abspath(sys.argv[1])
    cases = harness.Report()
    for library, function, kind, value, error in ROWS:
        got, number = answer(folder, library, function, kind)
        wrong = got != value or (error is not None and number != error)
        cases.add(
            f"{library}: {function}",
            harness.Outcome("FAIL", f"answers {got}, errno {number}") if wrong else harness.Outcome("ok"),
        )
    for name, pattern in FILES.items():
        paths = sorted(glob.glob(pattern, recursive=True))
        problems = [f"{path}: {line}" for path in paths for line in unresolved(folder, path)]
        cases.add(
            f"{name}: every symbol is here",
            harness.Outcome("skip", "not installed")
            if not paths
            else harness.Outcome("FAIL", " | ".join(problems))
            if problems
            else harness.Outcome("ok"),
        )
    sys.exit(cases.finish())


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Asks the libraries with vendors' names, as programs do that look whether a device is theirs.

Usage: vendors.py LIBRARY_DIRECTORY
Each row: library, function, the type that it gives, its answer, errno after it (None: of no interest).
"""
import ctypes
import errno
import os
import pathlib
import shutil
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
# Of these some link a vendor's library in every distribution.
PROGRAMS = [
    "ib_send_lat",
    "ib_write_bw",
    "ib_atomic_bw",
    "ibv_devinfo",
    "ibv_rc_pingpong",
    "ucx_info",
    "fi_info",
    "rping",
]


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
        if "undefined" in line
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
    for program in PROGRAMS:
        path = shutil.which(program)
        problems = unresolved(folder, path) if path else []
        cases.add(
            f"{program} finds every symbol here",
            harness.Outcome("skip", "it is not installed")
            if not path
            else harness.Outcome("FAIL", " | ".join(problems))
            if problems
            else harness.Outcome("ok"),
        )
    sys.exit(cases.finish())


if __name__ == "__main__":
    main()

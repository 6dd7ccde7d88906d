#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Shows that check_headers.py notices: changes a copy of our headers in one place at a time and expects the
one name.

Usage: check_headers_test.py GCC OUR_INCLUDE_DIRECTORY WORK_DIRECTORY
The unchanged headers are the reference, so this needs no Debian package.
"""
import os
import shutil
import sys

from abi_facts import Headers, facts
from check_headers import differences

# File, what is replaced (once), by what, and how the difference is named.
CHANGES = [
    (
        "infiniband/verbs/device.h",
        "vendor_part_id;",
        "vendor_part_id[2];",
        "differs: struct ibv_device_attr.vendor_part_id:",
    ),
    (
        "infiniband/verbs/qp.h",
        "IBV_QPS_SQD,\n\tIBV_QPS_SQE,",
        "IBV_QPS_SQE,\n\tIBV_QPS_SQD,",
        "differs: enumerator IBV_QPS_SQE:",
    ),
    ("infiniband/verbs/cq.h", "IBV_WC_TSO			= 7,\n", "", "missing: enumerator IBV_WC_TSO "),
    (
        "infiniband/verbs/ah.h",
        "int ibv_destroy_ah(struct ibv_ah *ah);",
        "",
        "missing: function ibv_destroy_ah ",
    ),
    (
        "infiniband/verbs/memory.h",
        "static inline uint32_t ibv_inc_rkey(uint32_t",
        "static inline uint64_t ibv_inc_rkey(uint32_t",
        "differs: function ibv_inc_rkey:",
    ),
    (
        "infiniband/verbs/post.h",
        "*wr_send_imm)(struct ibv_qp_ex *qp, __be32 ",
        "*wr_send_imm)(struct ibv_qp_ex *qp, uint64_t ",
        "differs: struct ibv_qp_ex.wr_send_imm:",
    ),
    (
        "infiniband/verbs/device.h",
        "(1ULL << 34)",
        "(1ULL << 35)",
        "differs: macro IBV_DEVICE_RAW_SCATTER_FCS:",
    ),
    (
        "infiniband/verbs/query.h",
        "#define ibv_query_port(context, port_num, port_attr)",
        "#define ibv_query_a_port(context)",
        "missing: macro ibv_query_port ",
    ),
    (
        "rdma/rdma_cma.h",
        "#define RAI_FAMILY",
        "#define RAI_UNKNOWN 1\n#define RAI_FAMILY",
        "extra: macro RAI_UNKNOWN ",
    ),
    ("infiniband/ib.h", "ib_u.uib_addr32\n", "ib_u.uib_addr64\n", "differs: macro sib_addr32:"),
]


def main():
    gcc, include, work = sys.argv[1:4]
    copy = os.path.join(work, "include")
    unchanged = facts(Headers(gcc, include, os.path.join(work, "unchanged")))
    failed = 0
    print(f"1..{len(CHANGES)}")
    for number, (path, before, after, expected) in enumerate(CHANGES, 1):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(include, copy)
        with open(os.path.join(copy, path), encoding="utf-8") as f:
            text = f.read()
        with open(os.path.join(copy, path), "w", encoding="utf-8") as f:
            f.write(text.replace(before, after, 1))
        found = list(differences(unchanged, facts(Headers(gcc, copy, os.path.join(work, "changed")))))
        ok = before in text and any(line.startswith(expected) for line in found)
        failed += not ok
        print(f"{'ok' if ok else 'not ok'} {number} - {path}: {expected}")
        if not ok:
            print("".join(f"# {line}\n" for line in found[:10]) or "# no difference found")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Checks that limits and times which pages and documents name are those of the sources. Speaks TAP.

usage: limits.py SOURCE_DIRECTORY
"""
import pathlib
import re
import sys

SOURCE = pathlib.Path(sys.argv[1])


def constant(path, name):
    """An enumerator's value: a number, or one that is shifted."""
    text = (SOURCE / "src" / path).read_text(encoding="utf-8")
    found = re.search(rf"\b{name}\s*=\s*(\d+)(?:\s*<<\s*(\d+))?\s*[,}}]", text)
    return int(found[1]) << int(found[2] or 0)


def until_given_up(timeout_ns, retries):
    """Seconds after which a message without an answer has been repeated so often, as cm_states.c does it."""
    early = constant("proto/cm/cm_states.c", "EARLY_REPETITIONS")
    waits = (timeout_ns >> max(0, early - repetitions) for repetitions in range(retries + 1))
    return round(sum(waits) / 1e9)


def of_cm(name):
    return constant("rdmacm/cma.h", f"VB_CMA_{name}")


def of_adapter(name):
    return constant("adapter/object.h", f"VB_MAX_{name}")


GIDS = constant("adapter/device/device.h", "VB_GID_TABLE")
WRS, PIECES, INLINE, CQES = map(of_adapter, ("WR", "SGE", "INLINE", "CQE"))
REGIONS, DEPTH, SEGMENTS, HEADER = map(of_adapter, ("MR", "RD_ATOMIC", "TSO", "TSO_HEADER"))
TAGS = constant("adapter/queues/tags.h", "VB_MAX_TAGS")
RENDEZVOUS = constant("wire/tag.h", "VB_RENDEZVOUS_MAX_BYTES")
SPECS = constant("roce/raw.h", "VB_FLOW_MAX_SPECS")
COUNTERS = constant("verbs/flow.c", "MAX_COUNTERS")
ROWS = 1 << constant("verbs/verbs.h", "VB_LOG_RWQ_TABLE")
DEVICE_MIB = constant("verbs/verbs.h", "VB_MAX_DM_BYTES") >> 20
BACKLOG = constant("rdmacm/listen.c", "MAX_BACKLOG")
ACK_TIMEOUT = constant("rdmacm/connect.c", "ACK_TIMEOUT")
RETRIES = of_cm("RETRIES")
CONNECTION_S = until_given_up(
    (4096 << of_cm("RESPONSE_TIMEOUT")) + 2 * (4096 << of_cm("PACKET_LIFETIME")), RETRIES
)
DATAGRAM_S = until_given_up(4096 << of_cm("SIDR_TIMEOUT"), RETRIES)

# Of each page: what it says, and the numbers in it.
SAID = {
    "man/man3/ibv_query_gid.3": [(r"The table has (\d+) rows", GIDS)],
    "man/man3/ibv_query_gid_table.3": [
        (r"The table has (\d+) rows", GIDS),
        (r"entries\[(\d+)\];", GIDS),
    ],
    "man/man3/ibv_create_qp.3": [
        (r"is (\d+) requests per queue, (\d+) scatter/gather entries and (\d+) bytes", WRS, PIECES, INLINE)
    ],
    "man/man3/ibv_create_qp_ex.3": [(r"of raw packet queue pairs, at most (\d+)", HEADER)],
    "man/man3/ibv_query_device.3": [
        (r"(\d+) requests per queue, (\d+) scatter/gather entries per request", WRS, PIECES),
        (r"(\d+) completions per queue, (\d+) regions, (\d+) READs or atomics", CQES, REGIONS, DEPTH),
    ],
    "man/man3/ibv_query_device_ex.3": [
        (r"up to (\d+) work queues", ROWS),
        (r"up to (\d+) KiB into frames", SEGMENTS >> 10),
        (r"up to (\d+) tags, and rendezvous requests of up to (\d+) bytes", TAGS, RENDEZVOUS),
        (r"There are (\d+) MiB of device memory", DEVICE_MIB),
    ],
    "man/man3/ibv_create_rwq_ind_table.3": [(r"up to (\d+) rows", ROWS)],
    "man/man3/ibv_create_flow.3": [(r"up to (\d+) that match", SPECS)],
    "man/man3/ibv_create_counters.3": [(r"up to (\d+) counters", COUNTERS)],
    "man/man3/ibv_attach_counters_point_flow.3": [(r"the set has (\d+) counters", COUNTERS)],
    "man/man3/rdma_create_qp.3": [
        (r"up to (\d+) requests per queue, (\d+) pieces per request and (\d+) bytes", WRS, PIECES, INLINE)
    ],
    "man/man3/rdma_create_srq.3": [(r"Up to (\d+) receives of up to (\d+) pieces", WRS, PIECES)],
    "man/man3/rdma_connect.3": [
        (r"A depth is at most (\d+)", DEPTH),
        (r"repeated (\d+) times, about (\d+) seconds", RETRIES, CONNECTION_S),
        (r"one for datagrams about (\d+) seconds", DATAGRAM_S),
    ],
    "man/man3/rdma_listen.3": [
        (r"above (\d+), means (\d+)", BACKLOG, BACKLOG),
        (r"for about (\d+) seconds, those for datagrams for (\d+)", CONNECTION_S, DATAGRAM_S),
    ],
    "man/man3/rdma_disconnect.3": [(r"some (\d+) seconds", CONNECTION_S)],
    "man/man3/rdma_set_option.3": [(r"The default is (\d+), half a second", ACK_TIMEOUT)],
    "man/man7/rdma_cm.7": [
        (r"sent (\d+) times in (\d+) seconds, one for datagrams in (\d+)", RETRIES + 1, CONNECTION_S,
         DATAGRAM_S)  # fmt: skip
    ],
    "man/man7/verbatim.7": [
        (r"pieces per request (?:\.\w+ )*(\d+), (\d+)", WRS, PIECES),
        (r"inline data (\d+) bytes", INLINE),
        (r"completions per queue (\d+)", CQES),
        (r"regions and windows, per process (\d+)", REGIONS),
        (r"per queue pair (\d+) in each direction", DEPTH),
        (r"GIDs per port (\d+)", GIDS),
        (r"device memory, per process (\d+) MiB", DEVICE_MIB),
    ],
    "docs/compat.md": [
        (r"after (\d+) messages in (\d+) s", RETRIES + 1, CONNECTION_S),
        (r"-ETIMEDOUT after (\d+) s, of datagrams after (\d+) s", CONNECTION_S, DATAGRAM_S),
        (r"for datagrams the first few come sooner, and it is (\d+) s", DATAGRAM_S),
        (r"at most (\d+) s, not 70", CONNECTION_S),
    ],
}


def plain(text):
    """Words with single spaces, without fonts and escapes of roff."""
    return " ".join(re.sub(r"\\f.|\\", "", text).split())


def problems(text, sayings):
    for pattern, *numbers in sayings:
        found = re.findall(pattern, text)
        if not found:
            yield f"it does not say /{pattern}/"
        for said in found:
            said = said if isinstance(said, tuple) else (said,)
            if list(map(int, said)) != numbers:
                yield f"/{pattern}/: it says {', '.join(said)}, the sources {', '.join(map(str, numbers))}"


def main():
    failed = 0
    for number, (page, sayings) in enumerate(SAID.items(), 1):
        wrong = list(problems(plain((SOURCE / page).read_text(encoding="utf-8")), sayings))
        failed += bool(wrong)
        print(f"{'not ok' if wrong else 'ok'} {number} - {page}__names_the_limits_of_the_sources")
        for line in wrong:
            print(f"# {line}")
    print(f"1..{len(SAID)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

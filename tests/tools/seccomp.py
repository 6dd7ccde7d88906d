# SPDX-License-Identifier: BSD-2-Clause
"""System calls that a test's child does not have."""
import ctypes
import os
import struct

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
RET_ALLOW, RET_ERRNO, EPERM = 0x7FFF0000, 0x00050000, 1


def forbid(number):
    """What a child does, as preexec_fn, to have a system call refused with EPERM."""

    def before():
        code = [
            struct.pack("HBBI", 0x20, 0, 0, 0),
            struct.pack("HBBI", 0x15, 0, 1, number),
            struct.pack("HBBI", 0x06, 0, 0, RET_ERRNO | EPERM),
            struct.pack("HBBI", 0x06, 0, 0, RET_ALLOW),
        ]
        instructions = ctypes.create_string_buffer(b"".join(code))
        program = ctypes.create_string_buffer(struct.pack("H6xP", len(code), ctypes.addressof(instructions)))
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0):
            os._exit(99)

    return before

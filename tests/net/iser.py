#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A disk image goes to an iSCSI target and back over RDMA (iSER): tgt's target, QEMU's initiator, which is
libiscsi's. Prints one line when all bytes are the same.

usage: iser.py ADDRESS:PORT FOLDER INITIATOR... -- TARGET...
INITIATOR and TARGET: what starts a program on either host.
"""
import json
import os
import pathlib
import subprocess
import sys
import time

IMAGE_MIB = 16
NAME, INITIATOR = "iqn.2026-11.test:disk", "iqn.2026-11.test:initiator"
# libiscsi has buffers of this size, and no answer to what is larger.
MOST_BYTES = 256 << 10
LIMIT_S = 60
SOCKET = "tgt.socket"  # in the folder; its whole path may be too long for an address


class Target:
    """tgtd, with one disk. It listens for iSCSI over TCP, too, on the next port."""

    def __init__(self, prefix, place, folder):
        address, port = place.rsplit(":", 1)
        self.folder = folder
        self.environment = {**os.environ, "TGT_IPC_SOCKET": SOCKET}
        named = "" if port == "3260" else f"port={port},"  # tgt 1.0.79 takes none by name
        portals = ["--iser", f"{named}pool_sz_mb=16", "--iscsi", f"portal={address}:{int(port) + 1}"]
        self.process = subprocess.Popen(
            [*prefix, "tgtd", "-f", "-t", "1", *portals], cwd=folder, env=self.environment
        )

    def has_begun(self):
        return self.admin("--mode", "target", "--op", "show", check=False).returncode == 0

    def admin(self, *options, check=True):
        return subprocess.run(
            ["tgtadm", "--lld", "iser", *options],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=None if check else subprocess.DEVNULL,
            timeout=LIMIT_S,
            check=check,
        )

    def add_disk(self, image):
        self.admin("--mode", "target", "--op", "new", "--tid", "1", "-T", NAME)
        self.admin("--mode", "logicalunit", "--op", "new", "--tid", "1", "--lun", "1", "-b", str(image))
        # Over iSER, tgtd takes only who is named by both.
        self.admin("--mode", "target", "--op", "bind", "--tid", "1", "-I", "ALL")
        self.admin("--mode", "target", "--op", "bind", "--tid", "1", "-Q", INITIATOR)

    def end(self):
        self.process.kill()
        self.process.wait()


def wait_for(target):
    end = time.monotonic() + LIMIT_S
    while not target.has_begun():
        if target.process.poll() is not None or time.monotonic() > end:
            sys.exit("tgtd: it ended, or took too long")
        time.sleep(0.1)


def disk_at(place):
    """As QEMU's programs are told of it."""
    remote = {
        "driver": "iscsi",
        "transport": "iser",
        "portal": place,
        "target": NAME,
        "lun": 1,
        "initiator-name": INITIATOR,
    }
    limited = {"driver": "blkdebug", "max-transfer": MOST_BYTES, "image": remote}
    return "json:" + json.dumps({"driver": "raw", "file": limited})


def main():
    place, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    between = sys.argv.index("--")
    initiator = sys.argv[3:between]
    image, disk = folder / "iser.image", folder / "iser.disk"
    image.write_bytes(os.urandom(IMAGE_MIB << 20))
    disk.write_bytes(bytes(IMAGE_MIB << 20))
    # libiscsi uses members of what it allocates before it sets them. Mostly they are 0.
    environment = {name: value for name, value in os.environ.items() if name != "MALLOC_PERTURB_"}
    target = Target(sys.argv[between + 1 :], place, folder)
    try:
        wait_for(target)
        target.add_disk(disk)
        for command in (
            ("convert", "-n", "-f", "raw", str(image), disk_at(place)),
            ("compare", "-f", "raw", str(image), disk_at(place)),
        ):
            subprocess.run(
                [*initiator, "qemu-img", *command], env=environment, timeout=LIMIT_S, check=True
            )
    finally:
        target.end()
    if disk.read_bytes() != image.read_bytes():
        sys.exit("the target's disk is not the image")
    print(f"{IMAGE_MIB} MiB went to the target and back")
    for file in (image, disk):
        file.unlink()


if __name__ == "__main__":
    main()

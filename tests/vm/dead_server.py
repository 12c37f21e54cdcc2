#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""dead_server.py PLACE SIGN: a FUSE file system with one file, which answers nothing while the file SIGN exists."""

import ctypes
import os
import struct
import sys
import time
from pathlib import Path

# include/uapi/linux/fuse.h
LOOKUP, FORGET, GETATTR, OPEN, READ, RELEASE, FLUSH, INIT, OPENDIR, RELEASEDIR, INTERRUPT, BATCH_FORGET = (
    1, 2, 3, 14, 15, 18, 25, 26, 27, 29, 36, 42,
)  # fmt: skip
ROOT, FILE = 1, 2
BYTES = 1 << 20
ENOSYS = 38


def attributes(node: int) -> bytes:
    """Return a struct fuse_attr."""
    size, mode = (0, 0o40755) if node == ROOT else (BYTES, 0o100644)
    return struct.pack("=6Q3I7I", node, size, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(operation: int, node: int, request: bytes) -> tuple[int, bytes]:
    """Return the error and the data with which a request is answered."""
    if operation == INIT:
        return 0, struct.pack("=IIIIHHIIHHI7I", 7, 31, 65536, 0, 12, 9, 65536, 1, 0, 0, 0, *[0] * 7)
    if operation == LOOKUP:
        return 0, struct.pack("=QQQQII", FILE, 0, 0, 0, 0, 0) + attributes(FILE)
    if operation == GETATTR:
        return 0, struct.pack("=QII", 0, 0, 0) + attributes(node)
    if operation in (OPEN, OPENDIR):
        return 0, struct.pack("=QII", 1, 0, 0)
    if operation == READ:
        return 0, bytes(struct.unpack_from("=QQI", request, 40)[2])
    return (0, b"") if operation in (RELEASE, FLUSH, RELEASEDIR) else (-ENOSYS, b"")


def main() -> None:
    """Mount it and serve it until it is unmounted."""
    place, sign = sys.argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0"
    if libc.mount(b"server:/export", place.encode(), b"fuse", 0, options.encode()):
        sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
    print("ready", flush=True)
    while True:
        request = os.read(fd, 1 << 18)
        while Path(sign).exists():
            time.sleep(0.1)
        operation, unique, node = struct.unpack_from("=4xIQQ", request)
        if operation not in (FORGET, INTERRUPT, BATCH_FORGET):
            error, data = answer(operation, node, request)
            os.write(fd, struct.pack("=IiQ", 16 + len(data), error, unique) + data)


if __name__ == "__main__":
    main()

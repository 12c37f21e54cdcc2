# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes and fsyncs records in a ring of a file until told to end: who waited how long, and is all of it there.

fsync_writer.py FILE STOP RESULT [LOOK]: until STOP exists; RESULT is
{"steps", "pause_s", "errors", "bytes_wrong", "wrong", "records_read", "looks"}

Whatever an fsync has acknowledged is read back from the disk, past the page cache, and held against what was written:
each record before the next one takes its place, and all that the ring holds when LOOK appears (which is removed when
that is done) and at the end.  Each sector says which writer's it is, which record's, which of it, and has a checksum,
so that an old record, a foreign or a misplaced sector are told from a damaged one.
"""

import json
import mmap
import os
import random
import struct
import sys
import time
import zlib
from pathlib import Path
from typing import Any

RECORD_BYTES, RECORDS, SECTOR_BYTES = 65536, 128, 512
# Writer, record, sector of the record, and the checksum of these and of the rest of the sector.
_HEAD = struct.Struct(">QQII")
_REST_S = 0.02
# Of so many wrong sectors the result says what is there instead.
_MOST_TOLD = 20


def record(writer: int, number: int) -> bytes:
    """Return what a writer writes as its record `number`: no two sectors of any of its records are the same."""
    rest = random.Random(writer ^ number).randbytes(SECTOR_BYTES - _HEAD.size)
    sectors = []
    for sector in range(RECORD_BYTES // SECTOR_BYTES):
        checksum = zlib.crc32(rest, zlib.crc32(_HEAD.pack(writer, number, sector, 0)))
        sectors.append(_HEAD.pack(writer, number, sector, checksum) + rest)
    return b"".join(sectors)


def what_is(sector: bytes) -> str:
    """Return whose sector this is, in words."""
    if not any(sector):
        return "zeros"
    writer, number, place, checksum = _HEAD.unpack_from(sector)
    if checksum != zlib.crc32(sector[_HEAD.size :], zlib.crc32(_HEAD.pack(writer, number, place, 0))):
        return "damaged"
    return f"writer {writer}, record {number}, sector {place}"


class Ring:
    """The file, what of it was acknowledged, and what came of it."""

    def __init__(self, path: str, writer: int) -> None:
        self._writer = writer
        self._handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        # Not from the cache, but from the disk.
        self._direct = os.open(path, os.O_RDONLY | os.O_DIRECT)
        self._buffer = mmap.mmap(-1, RECORD_BYTES)
        # The record that each place holds for certain, and its content: in a guest it takes time to make.
        self._acknowledged: dict[int, tuple[int, bytes]] = {}
        self.pause_s, self.records_read, self.bytes_wrong = 0.0, 0, 0
        self.errors: list[str] = []
        self.wrong: list[dict[str, Any]] = []

    def write(self, number: int) -> None:
        """Write record `number` in place of an older one, which is read before, and wait until it is on the disk."""
        place = number % RECORDS
        self._check(place)
        content = record(self._writer, number)
        # One that fails may be there, or half of it.
        self._acknowledged.pop(place, None)
        begun_s = time.monotonic()
        try:
            os.pwrite(self._handle, content, place * RECORD_BYTES)
            os.fsync(self._handle)
            self._acknowledged[place] = number, content
        except OSError as error:
            self.errors.append(f"record {number}: {error}")
        self.pause_s = max(self.pause_s, time.monotonic() - begun_s)

    def check(self) -> dict[str, int]:
        """Read all that is acknowledged; return how much that was and how much of it is wrong."""
        before = self.bytes_wrong
        for place in list(self._acknowledged):
            self._check(place)
        return {"records": len(self._acknowledged), "bytes_wrong": self.bytes_wrong - before}

    def _check(self, place: int) -> None:
        if place not in self._acknowledged:
            return
        number, right = self._acknowledged[place]
        begun_s = time.monotonic()
        try:
            read = os.preadv(self._direct, [self._buffer], place * RECORD_BYTES)
        except OSError as error:
            self.errors.append(f"record {number}, read: {error}")
            return
        finally:
            self.pause_s = max(self.pause_s, time.monotonic() - begun_s)
        self.records_read += 1
        found = self._buffer[:read]
        # Byte by byte only where it matters: in a guest that takes seconds.
        if found != right:
            self._tell_wrong(number, found.ljust(RECORD_BYTES, b"\0"), right, RECORD_BYTES - read)

    def _tell_wrong(self, number: int, found: bytes, right: bytes, missing: int) -> None:
        self.bytes_wrong += missing
        for at in range(0, RECORD_BYTES - missing, SECTOR_BYTES):
            ours, theirs = right[at : at + SECTOR_BYTES], found[at : at + SECTOR_BYTES]
            if ours != theirs:
                self.bytes_wrong += sum(a != b for a, b in zip(ours, theirs, strict=True))
                if len(self.wrong) < _MOST_TOLD:
                    self.wrong.append({"record": number, "sector": at // SECTOR_BYTES, "found": what_is(theirs)})


def main(path: str, stop: str, result: str, look: str = "") -> int:
    """Write until `stop` exists; tell what came of it in `result`."""
    # Another writer's records of the same file are not taken for ours.
    ring, step, looks = Ring(path, time.time_ns()), 0, []
    while not Path(stop).exists():
        ring.write(step)
        step += 1
        Path(f"{result}.steps").write_text(str(step))
        if look and Path(look).exists():
            looks.append(ring.check())
            Path(look).unlink()
        # A load that leaves the guest's one CPU to others, too.
        time.sleep(_REST_S)
    looks.append(ring.check())
    told = {
        "steps": step, "pause_s": round(ring.pause_s, 3), "errors": ring.errors, "bytes_wrong": ring.bytes_wrong,
        "wrong": ring.wrong, "records_read": ring.records_read, "looks": looks,
    }  # fmt: skip
    Path(result).write_text(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

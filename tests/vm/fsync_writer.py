# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes and fsyncs blocks of a file until told to end, then reads all of it: who waited how long, and is it all there.

fsync_writer.py FILE STOP RESULT: until STOP exists; RESULT is {"steps", "pause_s", "errors", "bytes_wrong"}
"""

import json
import mmap
import os
import random
import sys
import time
from pathlib import Path

_BLOCK_BYTES, _BLOCKS = 65536, 128
_REST_S = 0.02


def _block(number: int) -> bytes:
    return random.Random(number).randbytes(4096) * (_BLOCK_BYTES // 4096)


def main(path: str, stop: str, result: str) -> int:
    """Write until `stop` exists; tell what came of it in `result`."""
    handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    step, errors, pause_s = 0, [], 0.0
    written: dict[int, int] = {}
    while not Path(stop).exists():
        begun_s = time.monotonic()
        try:
            os.pwrite(handle, _block(step), step % _BLOCKS * _BLOCK_BYTES)
            os.fsync(handle)
            written[step % _BLOCKS] = step
        except OSError as error:
            errors.append(str(error))
        pause_s = max(pause_s, time.monotonic() - begun_s)
        step += 1
        Path(f"{result}.steps").write_text(str(step))
        # A load that leaves the guest's one CPU to others, too.
        time.sleep(_REST_S)
    os.close(handle)
    # Not from the cache, but from the disk.
    direct = os.open(path, os.O_RDONLY | os.O_DIRECT)
    buffer, wrong = mmap.mmap(-1, _BLOCK_BYTES), 0
    for place, number in written.items():
        os.preadv(direct, [buffer], place * _BLOCK_BYTES)
        found, right = buffer[:], _block(number)
        # Byte by byte only where it matters: in a guest that takes seconds.
        if found != right:
            wrong += sum(a != b for a, b in zip(found, right, strict=True))
    told = {"steps": step, "pause_s": round(pause_s, 3), "errors": errors, "bytes_wrong": wrong}
    Path(result).write_text(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

# SPDX-License-Identifier: GPL-2.0-or-later
"""How fast `cp` reads a file from a filesystem on the session's LUN, beside what the path allows.

    copy_speed.py RTT RATE [MIB]      exit 1 below 85 % of the bound

The file is copied twice and read over the path both times: the first copy finds TCP in slow start, which wan
lets a session leave once and for all; the second is judged.
The disk must keep its data and be free: it gets a new ext4.
"""

import subprocess
import sys
import time
from pathlib import Path

from fabtune.lab import iscsi_initiator
from fabtune.model.path import NetworkPath
from fabtune.model.units import parse_bit_per_s, parse_ms

LEAST = 0.85
FILE = Path("/mnt/file")


def run(*words: str) -> None:
    """Run a command that must succeed."""
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)


def copied(disk: str) -> float:
    """Return the bytes a second of one copy that finds nothing of the file in memory."""
    run("mount", f"/dev/{disk}", "/mnt")
    started = time.monotonic()
    run("cp", str(FILE), "/dev/null")
    seconds = time.monotonic() - started
    size = FILE.stat().st_size
    run("umount", "/mnt")
    return size / seconds


def main() -> int:
    """Make the file, forget it, copy it."""
    path = NetworkPath(parse_ms(sys.argv[1]) / 1e3, parse_bit_per_s(sys.argv[2]) / 8)
    mib = int(sys.argv[3]) if len(sys.argv) > 3 else 192
    (disk,) = iscsi_initiator.disks()
    run("mkfs.ext4", "-q", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", "-J", "size=4", f"/dev/{disk}")
    run("mount", f"/dev/{disk}", "/mnt")
    run("dd", "if=/dev/zero", f"of={FILE}", "bs=1M", f"count={mib}", "conv=fsync", "status=none")
    run("umount", "/mnt")
    cold, bytes_per_s = copied(disk), copied(disk)
    share = bytes_per_s / path.goodput_bytes_per_s
    ahead = Path(f"/sys/block/{disk}/queue/read_ahead_kb").read_text().strip()
    print(f"first copy {cold / 1e6:.1f} MB/s")
    print(
        f"cp: {bytes_per_s / 1e6:.1f} MB/s of {path.goodput_bytes_per_s / 1e6:.1f}, {share:.1%}, read-ahead {ahead} KiB"
    )
    return int(share < LEAST)


if __name__ == "__main__":
    sys.exit(main())

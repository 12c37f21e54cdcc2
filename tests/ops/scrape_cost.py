#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Inside a guest: requests on each of many disks, then what scrapes cost the reader PID, in CPU seconds and memory.

    scrape_cost.py PID DISKS

The guest's emulated CPU is several times as slow as a real one, so its seconds are no figures of a host: the bars are
held by instructions elsewhere.  Prints what was measured; fails where memory is above its bar or a disk is missing.
"""

import json
import mmap
import os
import re
import socket
import sys
import time
import zlib
from pathlib import Path

MOST_RSS_MIB = 64
READER = "/run/fabtune/reader.sock"


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mib(pid: int) -> float:
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) / 1024


def scrape() -> str:
    """Ask the reader itself: its server gives up after ten seconds, in which a busy computer's guest does little."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(READER)
        connection.sendall(b"prometheus\n")
        return zlib.decompress(b"".join(iter(lambda: connection.recv(1 << 16), b"")), zlib.MAX_WBITS | 16).decode()


def main() -> int:
    pid, count = int(sys.argv[1]), int(sys.argv[2])
    disks = [path.name for path in Path("/sys/block").glob("sd*")]
    buffer = mmap.mmap(-1, 4096)
    for disk in disks:
        handle = os.open(f"/dev/{disk}", os.O_RDWR | os.O_DIRECT)
        for turn in range(8):
            os.preadv(handle, [buffer], 4096 * turn)
            os.pwritev(handle, [buffer], 4096 * turn)
        os.close(handle)
    text = scrape()
    costs = []
    for _ in range(3):
        # What was asked a moment ago would be answered again.
        time.sleep(1.2)
        before = cpu_s(pid)
        text = scrape()
        costs.append(cpu_s(pid) - before)
    seen = len(re.findall(r'^fabtune_in_flight_requests{device="sd', text, re.MULTILINE))
    found = {"disks": seen, "series": sum(line[0] != "#" for line in text.splitlines()), "bytes": len(text),
             "guest_cpu_s": min(costs), "rss_mib": round(rss_mib(pid), 1)}  # fmt: skip
    print(json.dumps(found))
    return 0 if seen == count and rss_mib(pid) <= MOST_RSS_MIB else 1


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: GPL-2.0-or-later
"""A capture on a session that others read from: it shows every write once they end, and is refused until then."""

import subprocess
import sys
import threading
import time
from pathlib import Path

from fabtune.errors import FabtuneError
from fabtune.measure import capture, target, workload

_READ_S = 2.0
# 32 requests of 256 KiB: what `observe` runs of each kind of step.
_WRITTEN_BYTES = 32 << 18


def wait_until_read_from(place: target.Target) -> None:
    """Return when something is under way on `place`."""
    while not any(map(int, Path(f"/sys/block/{place.disk}/inflight").read_text().split())):
        time.sleep(0.01)


def main(disk: str) -> int:
    """Capture while a reader that ends is at work, then while one that does not; print what is not as it must be."""
    place = target.find(f"/dev/{disk}")
    load = workload.load("xdd").with_parameters(["queue_depth=8"])
    wrong = []
    words = ["--readonly", f"--filename=/dev/{disk}", "--rw=read", "--bs=1M", "--direct=1", "--time_based"]
    quiet = ["--runtime=600", "--eta=never", "--output=/dev/null"]
    with subprocess.Popen(["fio", "--name=reader", *words, *quiet]) as reader:
        wait_until_read_from(place)
        try:
            capture.observe(load, place)
            wrong.append("a session that others read from all the time was captured")
            print(len(capture.observe(load, place).writes))
        except FabtuneError as error:
            print(error)
            if "others use it" not in str(error):
                wrong.append(f"not the reason: {error}")
        wait_until_read_from(place)
        threading.Timer(_READ_S, reader.terminate).start()
        seen = capture.observe(load, place)
    # The block layer may join neighbours, so that bytes count and not commands.
    if (found := sum(write.bytes for write in seen.writes)) != _WRITTEN_BYTES:
        wrong.append(f"of {_WRITTEN_BYTES} bytes written the capture shows {found}")
    print("\n".join(wrong))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

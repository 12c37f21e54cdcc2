# SPDX-License-Identifier: GPL-2.0-or-later
"""In a guest: one cell untouched, tuned by `fabtune tune` told nothing, and by those that are told the path or guess.

    tune_guest.py CELL-AS-JSON WAY...

Every way has a login of its own on the path that was set before it, and the same packets of its measured part are lost.
Each is one line, WAY {...}; MB/s are those of the requests that the disk completed.
"""

import json
import math
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import attrs

from fabtune.errors import ExitCode
from fabtune.experiment.testbed import Testbed
from fabtune.experiment.tuners import TUNERS
from fabtune.host.run import finish, launch, run
from fabtune.lab import topology
from fabtune.lab.shell import nsenter
from fabtune.model import factors
from fabtune.model.untouched import UNTOUCHED

_TUNE = "tune"
_DEPTH, _SIZE = 32, "256k"
# Load before the measured part and that part: cubic needs its time to grow after a loss, a large request is a lump.
_RAMP_S, _MEASURED_S = 6.0, 20.0
_LOOK_EVERY_S, _SECTOR = 0.25, 512
# No device queues less than this, whatever share of a short path's BDP that is.
_LEAST_QUEUE_PACKETS = 16
_ENDS = ((None, "i0"), (topology.TARGET, "t0"))


class Moved:
    """Bytes that the disk has moved, by time, from the beginning to `stop`."""

    def __init__(self, disk: str) -> None:
        self.seen: list[tuple[float, int]] = []
        self._file = Path(f"/sys/block/{disk}/stat")
        self._over = threading.Event()
        self._looking = threading.Thread(target=self._look)
        self._looking.start()

    def _look(self) -> None:
        while not self._over.wait(_LOOK_EVERY_S):
            words = self._file.read_text().split()
            self.seen.append((time.monotonic(), _SECTOR * (int(words[2]) + int(words[6]))))

    def stop(self) -> list[tuple[float, int]]:
        """Look no more; return time (s) and bytes of each look."""
        self._over.set()
        self._looking.join()
        return self.seen


def bytes_per_s(seen: list[tuple[float, int]]) -> float:
    (first_s, first), (last_s, last) = seen[0], seen[-1]
    return (last - first) / (last_s - first_s)


@contextmanager
def load(disk: str, op: str) -> Iterator[None]:
    """Load the disk as every way is loaded."""
    words = ["--direct=1", "--ioengine=libaio", f"--rw=rand{op}", f"--bs={_SIZE}", f"--iodepth={_DEPTH}"]
    words += ["--size=900m", "--time_based", "--runtime=100000", "--randseed=1"]
    running = launch(["fio", "--name=load", f"--filename=/dev/{disk}", *words])
    try:
        yield
        if running.poll() is not None:
            raise SystemExit(f"fio ended with {running.returncode}")
    finally:
        running.terminate()
        running.wait()


def measured(path: topology.EmulatedPath, disk: str) -> dict[str, Any]:
    """Return the bytes per second of the load that is there, once it has been there for a while, and each reading."""
    time.sleep(_RAMP_S + 10 * path.rtt_ms / 1e3)
    topology.lose_anew(path)
    moved, begun_s = Moved(disk), time.monotonic()
    time.sleep(_MEASURED_S)
    seen = moved.stop()
    return {"bytes_per_s": round(bytes_per_s(seen)), "moved": turns(seen, begun_s)}


def turns(seen: list[tuple[float, int]], begun_s: float) -> list[list[float]]:
    """Return when each reading was made, since `begun_s`, and the bytes per second since the one before."""
    pairs = zip(seen, seen[1:], strict=False)
    return [
        [round(then_s - begun_s, 2), round((later - then) / (later_s - then_s))]
        for (then_s, then), (later_s, later) in pairs
    ]


def tuned(path: topology.EmulatedPath, disk: str, *told: str) -> dict[str, Any]:
    """Run `fabtune tune`, `told` so much, beside the load; return what it did, how long it took and what moved."""
    time.sleep(_RAMP_S + 10 * path.rtt_ms / 1e3)
    topology.lose_anew(path)
    moved, begun_s = Moved(disk), time.monotonic()
    words = ["fabtune", "tune", "--yes", "--target-netns", topology.TARGET, *told, "--json"]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    seen, took_s = moved.stop(), time.monotonic() - begun_s
    print(done.stdout, flush=True)
    said = json.loads(done.stdout)
    return {"exit": done.returncode, "took_s": took_s, "told": said, "moved": turns(seen, begun_s)}


def _sysctls() -> dict[tuple[str | None, str], str]:
    """Return what may be read of TCP's and the devices' sysctls at both ends."""
    found = {}
    for namespace, _ in _ENDS:
        told = finish([*nsenter(namespace), "sh", "-c", "grep -s '' /proc/sys/net/core/* /proc/sys/net/ipv4/*"]).stdout
        for line in told.splitlines():
            file, _, value = line.partition(":")
            found[namespace, file] = value
    return found


def _give_back(before: dict[tuple[str | None, str], str]) -> None:
    """Give back what a tuner that takes nothing back has written."""
    for (namespace, file), value in _sysctls().items():
        if before[namespace, file] != value:
            # Some tell what there is, and may not be written.
            words = f"test ! -w {file} || echo '{before[namespace, file]}' > {file}"
            run([*nsenter(namespace), "sh", "-c", words], what=f"writing {file}")
    for namespace, device in _ENDS:
        finish([*nsenter(namespace), "tc", "qdisc", "del", "dev", device, "root"])


def _way(testbed: Testbed, way: str) -> dict[str, Any]:
    """Return what one way of tuning gives, everything as it was behind it; what follows bpftune is not untouched."""
    before = _sysctls()
    found: dict[str, Any] = {"way": way}
    testbed.settings = attrs.evolve(testbed.settings, profile=UNTOUCHED if way == _TUNE else way)
    (disk,) = testbed.tune()
    with load(disk, testbed.settings.op):
        told = tuned(testbed.path, disk) if way == _TUNE else {}
        # What moved while it tuned is what counts of tune's readings.
        found |= measured(testbed.path, disk) | told
    print(f"{way}: {found['bytes_per_s'] / 1e6:.2f} MB/s", flush=True)
    if way not in TUNERS:
        status = launch(["fabtune", "revert", "--allow-relogin"], on_terminal=True).wait()
        # The target's values wait for a login, which the next way brings.
        if status not in (ExitCode.DONE, ExitCode.NEEDS_ACTION):
            raise SystemExit(f"fabtune revert after {way}: exit {status}")
    testbed.logout()
    _give_back(before)
    return found


def queue(testbed: Testbed, bdps: float) -> None:
    """Give the bottleneck a queue of so many BDP, and as many packets as any device has."""
    path = testbed.path
    queue_bytes = bdps * path.rate_bit_per_s / 8 * path.rtt_ms / 1e3
    testbed.path = replace(path, buffer_bytes=max(math.ceil(queue_bytes), _LEAST_QUEUE_PACKETS * path.mtu))
    topology.shape(testbed.path)


def main() -> None:
    """Run one cell."""
    cell, ways = json.loads(sys.argv[1]), sys.argv[2:]
    texts = {
        "rtt": f"{cell['rtt_ms']}ms", "loss": f"{100 * cell['loss']:f}%", "jitter": f"{cell['jitter_ms']}ms",
        "rate": f"{cell['rate_mbit']}mbit", "mtu": str(cell["mtu"]), "op": cell["op"], "seed": str(cell["seed"]),
    }  # fmt: skip
    testbed = Testbed(factors.parse(texts, "a cell"))
    queue(testbed, cell["buffer_bdp"])
    for way in ways:
        print("WAY", json.dumps(_way(testbed, way)), flush=True)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: GPL-2.0-or-later
"""In a guest: short reads and writes of one disk beside the stream of another, untouched and tuned.

    latency_guest.py CELL-AS-JSON WAY...

Each disk has a session of its own over the same line.  Each way is one line, WAY {...}: the p50 and p99 of the short
requests, all of them together, in ms by fio's clock, how many there were, and the stream's bytes per second.
"""

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from latency import AGAIN, UNTOUCHED
from tune_guest import Moved, bytes_per_s, load, queue, tuned

from fabtune.errors import ExitCode
from fabtune.experiment.testbed import Testbed, fabtune
from fabtune.host.run import launch
from fabtune.host.sessions import live_sessions
from fabtune.model import factors
from fabtune.tune import reconnect

# So long that the slowest hundredth of one at a time over 100 ms is several requests.
_RAMP_S, _MEASURED_S = 10.0, 60.0
_TOLD = {"tune": (), "goal-latency": ("--goal", "latency", "--for", "20s")}
_MODULE = Path("/fabtune/kmod/fabstat.ko")


def _short(disk: str, depth: int, seconds: float) -> list[str]:
    words = [f"--filename=/dev/{disk}", "--direct=1", "--ioengine=libaio", "--rw=randrw", "--bsrange=4k-64k"]
    words += [f"--iodepth={depth}", "--size=200m", "--time_based", f"--runtime={seconds:g}", "--randseed=7"]
    # By itself it counts the CPU's cycles, which go on where a virtual clock stands still.
    words += ["--clocksource=clock_gettime", "--unified_rw_reporting=1", "--output-format=json"]
    return ["fio", "--name=short", *words]


def _measured(stream: str, short: str, depth: int) -> dict[str, Any]:
    """Return what both have of the line, once they have shared it for a while."""
    time.sleep(_RAMP_S)
    moved = Moved(stream)
    done = subprocess.run(_short(short, depth, _MEASURED_S), stdout=subprocess.PIPE, text=True, check=True)
    both = json.loads(done.stdout)["jobs"][0]["mixed"]
    of = both["clat_ns"]["percentile"]
    return {
        "bytes_per_s": round(bytes_per_s(moved.stop())), "requests": both["total_ios"],
        "p50_ms": of["50.000000"] / 1e6, "p99_ms": of["99.000000"] / 1e6,
    }  # fmt: skip


def _connect_anew() -> None:
    sessions = live_sessions()
    reconnect.connect_anew(sessions, reconnect.longest_pause_s(sessions, {}), print, lambda _: None)


def _way(testbed: Testbed, cell: dict[str, Any], way: str) -> dict[str, Any]:
    stream, short = testbed.fabric.login()
    told: dict[str, Any] = {}
    with ExitStack() as loads:
        loads.enter_context(load(stream, cell["op"]))
        if way != UNTOUCHED:
            # It looks at what is there: the short requests, too.
            beside = launch(_short(short, cell["depth"], 100_000))
            try:
                if way == AGAIN:
                    time.sleep(_RAMP_S)
                    _connect_anew()
                else:
                    told = {"tune": tuned(testbed.path, stream, *_TOLD[way])}
            finally:
                beside.terminate()
                beside.wait()
        found = {"way": way} | _measured(stream, short, cell["depth"]) | told
    if told:
        fabtune((ExitCode.DONE, ExitCode.NEEDS_ACTION), "revert", "--allow-relogin")
    testbed.logout()
    return found


def main() -> None:
    """Run one cell."""
    cell, ways = json.loads(sys.argv[1]), sys.argv[2:]
    texts = {
        "rtt": f"{cell['rtt_ms']}ms", "rate": f"{cell['rate_mbit']}mbit", "op": cell["op"], "seed": str(cell["seed"]),
        "sessions": "2", "offloads": "off",
    }  # fmt: skip
    testbed = Testbed(factors.parse(texts, "a cell"))
    queue(testbed, cell["buffer_bdp"])
    if "goal-latency" in ways:
        subprocess.run(["insmod", str(_MODULE)], check=True)
    for way in ways:
        print("WAY", json.dumps(_way(testbed, cell, way)), flush=True)


if __name__ == "__main__":
    main()

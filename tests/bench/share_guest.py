# SPDX-License-Identifier: GPL-2.0-or-later
"""In a guest: how sessions share one line with each other, or with another host's bulk flow, untouched and tuned.

    share_guest.py CELL-AS-JSON WAY...

Each way is one line, WAY {...}: bytes per second of each disk, and of the other host as it arrived, with headers.
"""

import json
import sys
import time
from contextlib import ExitStack
from typing import Any

from tune_guest import Moved, bytes_per_s, load, queue, tuned

from fabtune.errors import ExitCode
from fabtune.experiment.testbed import Testbed, fabtune
from fabtune.lab import cross
from fabtune.model import factors

# Two flows of cubic take turns for longer than one alone needs to find its window.
_RAMP_S, _MEASURED_S = 10.0, 40.0


def _shared(disks: list[str], arrived: cross.Arrived | None) -> dict[str, Any]:
    """Return what each has of the line."""
    time.sleep(_RAMP_S)
    begun_unix_s, moved = time.time(), [Moved(one) for one in disks]
    time.sleep(_MEASURED_S)
    each = [round(bytes_per_s(one.stop())) for one in moved]
    beside = 0.0 if arrived is None else arrived.bytes_per_s(begun_unix_s, time.time())
    return {"bytes_per_s": each, "cross_bytes_per_s": round(beside)}


def _way(testbed: Testbed, cell: dict[str, Any], way: str) -> dict[str, Any]:
    disks = testbed.fabric.login()
    with ExitStack() as loads:
        arrived = loads.enter_context(cross.traffic(cell["cross"], cell["op"]))
        for disk in disks:
            loads.enter_context(load(disk, cell["op"]))
        told = {"tune": tuned(testbed.path, disks[0])} if way == "tune" else {}
        found = {"way": way} | _shared(disks, arrived) | told
    if told:
        fabtune((ExitCode.DONE, ExitCode.NEEDS_ACTION), "revert", "--allow-relogin")
    testbed.logout()
    return found


def main() -> None:
    """Run one cell."""
    cell, ways = json.loads(sys.argv[1]), sys.argv[2:]
    texts = {
        "rtt": f"{cell['rtt_ms']}ms", "loss": f"{100 * cell['loss']:f}%", "rate": f"{cell['rate_mbit']}mbit",
        "op": cell["op"], "seed": str(cell["seed"]), "sessions": str(cell["sessions"]), "cross": cell["cross"],
        "offloads": "off",
    }  # fmt: skip
    testbed = Testbed(factors.parse(texts, "a cell"))
    queue(testbed, cell["buffer_bdp"])
    for way in ways:
        print("WAY", json.dumps(_way(testbed, cell, way)), flush=True)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: GPL-2.0-or-later
"""In a guest: one cell untouched, with `wan` told a wrong path, and what lint and `fabtune tune` make of that.

    told_guest.py CELL-AS-JSON

One line, FOUND {...}; what moves is of the requests that the disk completed.
"""

import json
import sys
from typing import Any

from tune_guest import load, measured, queue, tuned

from fabtune.errors import ExitCode
from fabtune.experiment.testbed import Testbed, fabtune
from fabtune.facts.host_snapshot import HostSnapshot
from fabtune.host.run import finish
from fabtune.lab import topology
from fabtune.model import factors

# Of the bottleneck's queue: what most devices are given.
_BUFFER_BDP = 1.0
_WAITS = (ExitCode.DONE, ExitCode.NEEDS_ACTION)


def _applied(testbed: Testbed, cell: dict[str, Any]) -> str:
    """Apply `wan` at both ends, told what the cell says, and return the disk."""
    testbed.fabric.login()
    path = ["--rtt", f"{cell['told_rtt_ms']}ms", "--rate", f"{cell['told_rate_mbit']}mbit"]
    fabtune(_WAITS, "apply", "wan", "--role", "target", "--netns", topology.TARGET, *path)
    fabtune((ExitCode.DONE,), "apply", "wan", "--role", "initiator", "--allow-relogin", *path)
    (disk,) = testbed.fabric.join(testbed.fabric.disks())
    return disk


def _findings() -> list[str]:
    """Return the names of what lint finds beside the load, told no path by itself."""
    done = finish(["fabtune", "lint", "--json"])
    print(done.stdout, flush=True)
    return [one["hazard"] for one in json.loads(done.stdout)["findings"]]


def main() -> None:
    """Run one cell."""
    cell = json.loads(sys.argv[1])
    texts = {
        "rtt": f"{cell['rtt_ms']}ms", "rate": f"{cell['rate_mbit']}mbit", "op": cell["op"], "seed": str(cell["seed"]),
    }  # fmt: skip
    testbed = Testbed(factors.parse(texts, "a cell"))
    queue(testbed, _BUFFER_BDP)
    # Those of a guest's veths are none: what they say is made up.
    speeds = [one.speed_bit_per_s / 1e6 for one in HostSnapshot().nics if one.speed_bit_per_s]
    found: dict[str, Any] = {"nic_mbit": max(speeds, default=None)}
    (disk,) = testbed.login()
    with load(disk, cell["op"]):
        found["untouched"] = measured(testbed.path, disk)
    testbed.logout()
    disk = _applied(testbed, cell)
    told = ("--rate", f"{cell['told_rate_mbit']}mbit") if cell["to_tune"] else ()
    with load(disk, cell["op"]):
        found["told"] = measured(testbed.path, disk)
        found["lint"] = _findings()
        found["tune"] = tuned(testbed.path, disk, *told)
        found["end"] = measured(testbed.path, disk)
    print("FOUND", json.dumps(found), flush=True)


if __name__ == "__main__":
    main()

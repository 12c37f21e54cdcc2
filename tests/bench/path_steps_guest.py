# SPDX-License-Identifier: GPL-2.0-or-later
"""In a guest: `fabtune guard --heal` beside a load, while the path steps from 5 to 150 and to 20 ms, and stays then.

    path_steps_guest.py OP TOLD_MBIT HOLD_S

`wan` is told 5 ms and TOLD_MBIT on a line of 100 Mb/s.  Each step is one line, STEP {...}, what guard told TOLD {...}.
"""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from tune_guest import Moved, load, turns

from fabtune.errors import ExitCode
from fabtune.experiment.testbed import Testbed, fabtune
from fabtune.host.run import launch
from fabtune.lab import topology
from fabtune.model import factors

LINE_MBIT, _FIRST_MS, THEN_MS = 100, 5.0, (150.0, 20.0)
# Before the first step, and for each to be felt.
_RAMP_S, _STEP_S = 10.0, 40.0


def _step(testbed: Testbed, rtt_ms: float, disk: str) -> dict[str, Any]:
    """Change the path's round trip beside the load; return each reading of what moved since."""
    testbed.path = replace(testbed.path, rtt_ms=rtt_ms)
    moved, begun_s = Moved(disk), time.monotonic()
    topology.shape(testbed.path)
    changed_s = time.monotonic() - begun_s
    time.sleep(_STEP_S)
    return {"rtt_ms": rtt_ms, "changed_s": changed_s, "moved": turns(moved.stop(), begun_s)}


def _tuned(testbed: Testbed) -> str:
    """Apply `wan` as it is at both ends, told the path of `testbed`, and return the disk."""
    testbed.fabric.login()
    path = ["--rtt", f"{_FIRST_MS}ms", "--rate", f"{testbed.path.rate_bit_per_s:.0f}bit"]
    fabtune(
        (ExitCode.DONE, ExitCode.NEEDS_ACTION), "apply", "wan", "--role", "target", "--netns", topology.TARGET, *path
    )
    fabtune((ExitCode.DONE,), "apply", "wan", "--role", "initiator", "--allow-relogin", *path)
    (disk,) = testbed.fabric.join(testbed.fabric.disks())
    return disk


def main() -> None:
    """Run one case."""
    op, told_mbit, hold_s = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    words = {"rtt": f"{_FIRST_MS}ms", "rate": f"{LINE_MBIT}mbit", "op": op}
    testbed = Testbed(factors.parse(words, "guard"))
    line = testbed.path
    testbed.path = replace(line, rate_bit_per_s=told_mbit * 1e6)
    disk = _tuned(testbed)
    testbed.path = line
    with load(disk, op), Path("told").open("wb") as told:
        time.sleep(_RAMP_S)
        guard = launch(["fabtune", "guard", "--heal", "--json"], log=told)
        time.sleep(_RAMP_S)
        for rtt_ms in THEN_MS:
            print("STEP", json.dumps(_step(testbed, rtt_ms, disk)), flush=True)
        settled_s = time.time()
        time.sleep(hold_s)
        guard.terminate()
        guard.wait()
    lines = [json.loads(one) for one in Path("told").read_text().splitlines() if one.startswith("{")]
    lines = [one for one in lines if "kind" in one]
    print("TOLD", json.dumps({"settled_s": settled_s, "lines": lines}), flush=True)


if __name__ == "__main__":
    main()

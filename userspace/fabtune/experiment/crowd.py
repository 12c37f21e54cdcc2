# SPDX-License-Identifier: GPL-2.0-or-later
"""One load on many disks at once, each in the hands of a process of its own: the clients of one target."""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fabtune.errors import FabtuneError, InputError
from fabtune.measure import counters, fio, metrics
from fabtune.measure.record import SCHEMA
from fabtune.measure.run import SAMPLE_S, host
from fabtune.stat import DeviceInterval, diff, snapshot, stuck

# GUPFS's criterion for many connections: none of their requests may stay outstanding for so long.
STUCK_S = 60.0
_OPTIONS = {"ioengine": "libaio", "direct": 1, "thread": 1, "norandommap": 1, "randrepeat": 0, "time_based": 1}


def measure(
    disks: Sequence[str], op: str, settings: dict[str, Any]
) -> tuple[dict[str, Any], list[DeviceInterval]]:
    """Return the record of one direction on all `disks`, and what fabstat saw of each.

    Every disk gets ``queue_depth`` requests of ``size_bytes`` in a stream of its own, all at once.
    Raises FabtuneError when fio fails or fabstat is not loaded; requests that hang are in ``oldest_s``.
    """
    program, version = fio.find()
    options = _OPTIONS | {
        "rw": op, "bs": settings["size_bytes"], "iodepth": settings["queue_depth"], "runtime": settings["runtime_s"],
        "ramp_time": settings["ramp_s"],
    }  # fmt: skip
    job = "".join(f"{key}={value}\n" for key, value in options.items())
    job = f"[global]\n{job}" + "".join(f"[{disk}]\nfilename=/dev/{disk}\n" for disk in disks)
    step: dict[str, Any] = {"name": f"{op} by {len(disks)}", "job": job, "samples": [], "oldest_s": 0.0, "problem": None}
    started = time.time()
    with tempfile.TemporaryDirectory(prefix="fabtune-crowd-") as scratch, fio.Load(program, job, Path(scratch)) as load:
        before = snapshot()

        def look() -> None:
            nonlocal before
            step["samples"].append(counters.sample(None))
            if time.time() < started + settings["ramp_s"]:
                before = snapshot()
            ages = [one.age_ns / 1e9 for one in stuck().requests if one.disk in disks]
            step["oldest_s"] = max([step["oldest_s"], *ages])
            if step["oldest_s"] > STUCK_S + SAMPLE_S:
                raise _HangingError

        try:
            load.wait(look, SAMPLE_S)
            step["fio"] = load.document()
        except _HangingError:
            # fio would wait for its requests for good.
            step["fio"], step["problem"] = None, f"a request stayed outstanding for more than {STUCK_S:g} s"
        after = snapshot()
    interval = diff(before, after)
    seen = []
    for disk in disks:
        try:
            seen.append(interval.device(disk))
        except InputError:
            raise FabtuneError(f"fabstat saw no {op} on {disk}: that client never got through") from None
    record = {
        "schema": SCHEMA, "complete": step["problem"] is None, "problem": step["problem"], "label": settings["profile"],
        "workload": {"name": "crowd", "summary": f"{len(disks)} clients at once", "source": "GUPFS FY2003, D.3.6"},
        "host": host(), "versions": {"fio": version}, "environment": {"settings": settings},
        "started_unix_s": started, "ended_unix_s": time.time(), "steps": [step],
    }  # fmt: skip
    return record, seen


def figures(record: dict[str, Any], op: str, seen: Sequence[DeviceInterval]) -> dict[str, Any]:
    """Return throughput of all clients, of the slowest and the fastest, latency, refusals and the oldest request."""
    step = record["steps"][0]
    document = step["fio"]
    found = {"oldest_s": round(step["oldest_s"], 3), "queue_full": sum(one.queue_full for one in seen)}
    if document is None:
        return found | {"mb_per_s": 0.0, "slowest_mb_per_s": 0.0, "fastest_mb_per_s": 0.0}
    seconds = metrics.run_s(document)
    shares = sorted(job[op]["io_bytes"] / seconds / 1e6 for job in document["jobs"])
    bins = fio.bins(document, op)
    for name, fraction in (("p50_ms", 0.5), ("p99_ms", 0.99)):
        found[name] = round((fio.percentile_ns(bins, fraction) or 0) / 1e6, 3)
    return found | {
        "mb_per_s": round(sum(shares), 2),
        "slowest_mb_per_s": round(shares[0], 3),
        "fastest_mb_per_s": round(shares[-1], 3),
    }


class _HangingError(Exception):
    """A request hangs; the load is given up."""

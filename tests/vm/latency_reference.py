# SPDX-License-Identifier: GPL-2.0-or-later
"""Latencies that fabtune reports, by fabstat and by fio, against every request that the kernel's tracepoints saw.

Usage: latency_reference.py DISK WORKLOAD RAMP RUNTIME [NAME=VALUE ...].  Prints what was found; exit 1 where p50 or
p99 of a direction is more than one bucket of fabstat off, or where a law is broken or two of them do not apply.
"""

import bisect
import math
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from fabtune.measure import checks, measured, recordfile
from fabtune.model.runrecord import RunRecord
from fabtune.stat import parse

TRACING = Path("/sys/kernel/tracing")
EVENTS = ("block_rq_issue", "block_rq_complete")
_LINE = re.compile(r"\s([\d.]+): (block_rq_\w+): (\d+,\d+) (\w+) .*?(\d+) \+ (\d+) ")
# Laws that had nothing to say of any run once.
_MUST_APPLY = ("the disk moved the bytes", "requests a second times latency")


def traced(command: Sequence[str], disk: str) -> dict[str, list[tuple[float, float]]]:
    """Run `command`; return (completed, took) in s of every request on `disk`, by direction."""
    (TRACING / "trace").write_text("")
    (TRACING / "buffer_size_kb").write_text("200000")
    (TRACING / "trace_clock").write_text("mono")
    for name in EVENTS:
        (TRACING / f"events/block/{name}/enable").write_text("1")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    for name in EVENTS:
        (TRACING / f"events/block/{name}/enable").write_text("0")
    if done.returncode:
        sys.exit(f"{command}: exit {done.returncode}: {done.stderr}")
    number = Path(f"/sys/block/{disk}/dev").read_text().strip().replace(":", ",")
    begun: dict[tuple[str, int], float] = {}
    found: dict[str, list[tuple[float, float]]] = {"read": [], "write": []}
    with (TRACING / "trace").open() as lines:
        for line in lines:
            if "LOST" in line:
                sys.exit("the trace lost events")
            seen = _LINE.search(line)
            if seen is None or seen[3] != number or seen[4][0] not in "RW":
                continue
            when, key = float(seen[1]), (seen[4][0], int(seen[5]))
            if seen[2] == "block_rq_issue":
                # A request that was refused is issued once more: its time runs from the first.
                begun.setdefault(key, when)
            elif key in begun:
                found["read" if key[0] == "R" else "write"].append((when, when - begun.pop(key)))
    return found


def quantile(times: Sequence[float], share: float) -> float:
    """Return the nearest-rank quantile."""
    return sorted(times)[max(1, math.ceil(share * len(times))) - 1]


def apart(one_s: float, other_s: float, from_ns: Sequence[int]) -> int:
    """Return how many buckets of fabstat lie between two times."""
    return abs(bisect.bisect(from_ns, one_s * 1e9) - bisect.bisect(from_ns, other_s * 1e9))


def compare(record: RunRecord, reference: Mapping[str, list[tuple[float, float]]]) -> int:
    """Print every figure beside its reference; return how many are more than a bucket off."""
    (step,) = record.steps
    part = measured.span(step)
    assert part is not None and step.fabstat is not None and step.before_drain is not None
    from_ns = next(iter(parse(step.fabstat.after).devices[0].ops.values())).histograms["device"].from_ns
    wrong = 0
    # Of other requests, such as those that look for partitions over a slow path, nothing is said.
    for op in step.document.directions:
        # The end of the run included: whatever came back after the ramp, with its own time.
        times = [took for when, took in reference[op] if when >= part.begin_s]
        inside = [took for when, took in reference[op] if part.begin_s <= when <= part.end_s]
        for share in (0.5, 0.99):
            true_s = quantile(times, share)
            true_ms, inside_ms = true_s * 1e3, quantile(inside, share) * 1e3
            print(f"{op} at {share:.0%} of {len(times)}: {true_ms:.3f} ms, in the part alone {inside_ms:.3f}")
            for name, source in (("fabstat", step), ("fio", attrs.evolve(step, fabstat=None))):
                said = measured.latencies(source, op).quantile_ns(share)
                off = None if said is None else apart(said / 1e9, true_s, from_ns)
                wrong += off is None or off > 1
                print(f"  {name} {'nothing' if said is None else f'{said / 1e6:.3f} ms'}, {off} buckets off")
            late = measured.latencies(attrs.evolve(step, fabstat=None, before_drain=None, depth=1), op).quantile_ns(
                share
            )
            print(f"  fio at its end {(late or 0) / 1e6:.3f} ms")
    return wrong


def main() -> int:
    """Run the workload, and hold its record against the trace and the laws."""
    disk, workload, ramp, runtime, *settings = sys.argv[1:]
    out = Path(f"runs-{workload}-{'-'.join(settings)}")
    command = ["fabtune", "measure", workload, "--on", f"/dev/{disk}", f"--confirm={disk}", "--ramp", ramp,
               "--runtime", runtime, "--out", str(out)]  # fmt: skip
    reference = traced([*command, *(word for one in settings for word in ("--set", one))], disk)
    record = recordfile.read(recordfile.find(out)[0])
    wrong = compare(record, reference)
    for check in checks.of_record(record):
        print(f"{check.verdict}: {check.law}: {check.found}, expected {check.expected}")
        must = check.law.startswith(_MUST_APPLY)
        wrong += check.verdict == checks.FAIL or (must and check.verdict != checks.PASS)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: GPL-2.0-or-later
"""What `make bench-module` came to, kept in the tree, and the tables of Documentation/fabstat.md that show it."""

import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "userspace")]

import kept_file  # noqa: E402
import kept_tables  # noqa: E402
from kept_file import Point  # noqa: E402

from fabtune.lab.module import source_digest  # noqa: E402

FILE = TOP / "Documentation/results/bench/module.json"
PAGE = TOP / "Documentation/fabstat.md"
COUNTER = "tsc"
_KERNEL = re.compile(r"\d+\.\d+")
# Devices of the table, each with how many requests at a time it has there.
_COLUMNS = (("null_blk", 16), ("scsi_debug", 1))
# Tracers, by whether the kernel's clock is the CPU's counter, in the order of the table.
_ROWS = {
    ("none", True): "(a request without a tracer)",
    ("fabstat", True): "**fabstat**",
    ("ceiling", True): "fabstat at its memory ceiling",
    ("no-books", True): "fabstat with no room for the device's books",
    ("detail", True): "fabstat with `detail=Y`",
    ("detail-ceiling", True): "fabstat with `detail=Y` at its memory ceiling",
    ("fabstat", False): "fabstat by the timekeeper (HPET)",
    ("off", True): "fabstat with `enabled=N`",
    ("biolatency-libbpf", True): "libbpf-tools biolatency",
    ("biolatency-libbpf -D -F", True): "libbpf-tools biolatency -D -F",
    ("biolatency.bt", True): "bpftrace biolatency.bt",
}
# Bars that stand in one row: devices, tracers, and whether the clock is the CPU's counter.
_BARS = (
    ("a request of null_blk", {("null_blk", "fabstat")}, True),
    ("a request of scsi_debug", {("scsi_debug", "fabstat")}, True),
    ("either, while it is switched off", {("null_blk", "off"), ("scsi_debug", "off")}, True),
    ("null_blk at the memory ceiling", {("null_blk", "ceiling")}, True),
    ("null_blk with no room for its books", {("null_blk", "no-books")}, True),
    (
        "either with `detail=Y`, and null_blk at the ceiling with it",
        {("null_blk", "detail"), ("scsi_debug", "detail"), ("null_blk", "detail-ceiling")},
        True,
    ),
    ("a command that LIO's loop serves, with `target=Y`, without its parts", {("lio_loop", "target")}, True),
    ("the parts of its time besides, with `target_parts=Y`", {("lio_loop", "target-parts")}, True),
    (
        "null_blk where the kernel's clock is not the CPU's counter (the timekeeper)",
        {("null_blk", "fabstat")},
        False,
    ),
    ("scsi_debug there", {("scsi_debug", "fabstat")}, False),
)


def keep(rows: Sequence[Point], kernels: int, path: Path = FILE) -> None:
    """Keep what was measured on so many kernels.  Raises ValueError for less, or for the rows of several modules."""
    found, modules = {row["kernel"] for row in rows}, {row.get("module") for row in rows}
    if len(found) != kernels or len(modules) != 1 or None in modules:
        raise ValueError(f"not kept: {len(found)} of {kernels} kernels, modules {modules}; measure all with one module")
    points = [{key: value for key, value in row.items() if key != "module"} for row in rows]
    made = time.strftime("%Y-%m-%d", time.gmtime())
    kept_file.write(path, points, f"`make bench-module`, module {modules.pop()}, made {made}")


def with_tables(text: str, path: Path = FILE) -> str:
    """Return a page of Documentation with both tables of what is kept between their marks."""
    kept = kept_file.read(path)
    named = re.search(r"module (\w{16})\b", kept.origin)
    if not named:
        raise ValueError(f"{path}: its origin names no module")
    since = "" if named[1] == source_digest() else " The module has changed since."
    text = kept_tables.between_marks(text, "bench-module-bars", bars(kept.points))
    return kept_tables.between_marks(text, "bench-module", f"{costs(kept.points)}\n{kept.origin}.{since}\n")


def bars(points: Sequence[Point]) -> str:
    """Return a row a bar: what must not be exceeded, and what came of it."""
    rows, kernels = [], len(set(map(_kernel, points)))
    for says, wanted, by_counter in _BARS:
        mine = [
            one for one in points
            if (one["device"], one["tracer"]) in wanted and (one["clocksource"] == COUNTER) is by_counter
        ]  # fmt: skip
        (bar,) = {int(one["bar"]) for one in mine}
        depths = sorted({one["depth"] for one in mine}) if len(wanted) == 1 else []
        if len(depths) > 1:
            by_depth = ([one for one in mine if one["depth"] == depth] for depth in depths)
            said = [_came_of(some, kernels, [_at_once(some[0]["depth"])]) for some in by_depth]
        else:
            said = [_came_of(mine, kernels, [])]
        rows.append((says, str(bar), "; ".join(said)))
    return kept_tables.table(("what", "bar", "result"), rows)


def _at_once(depth: int) -> str:
    return f"{'one' if depth == 1 else depth} at a time"


def _came_of(points: Sequence[Point], kernels: int, remarks: Sequence[str]) -> str:
    """Return whether a bar was held, on which kernels where it is not all of so many, and between which figures."""
    there, missed = (
        list(dict.fromkeys(map(_kernel, _sorted(some))))
        for some in (points, [one for one in points if one["added"] > one["bar"]])
    )
    figures = sorted({round(one["added"]) for one in points})
    span = " to ".join(map(str, dict.fromkeys((figures[0], figures[-1]))))
    where = f" on {', '.join(missed or there)}" if missed or len(there) < kernels else ""
    remarks = list(remarks)
    for one in points:
        # What the same probes took in other runs, where they do not repeat.
        if others := one.get("earlier"):
            over = [f"{figure:.0f}" for figure in (*others, one["added"]) if figure > one["bar"]]
            few = f": {', '.join(over)}" if over else ""
            remarks.append(f"missed in {len(over)} of {len(others) + 1} measurements on {_kernel(one)}{few}")
    more = f" ({'; '.join(remarks)})" if remarks else ""
    return f"{'missed' if missed else 'held'}{where}: {span}{more}"


def costs(points: Sequence[Point]) -> str:
    """Return a row a tracer, a column a kernel and device: the instructions of a request, and what each adds."""
    kernels = list(dict.fromkeys(map(_kernel, _sorted(points))))
    rows = []
    for (tracer, by_counter), label in _ROWS.items():
        cells = []
        bold = "**" if label.startswith("**") else ""
        for kernel in kernels:
            for device, depth in _COLUMNS:
                (one,) = (
                    one for one in points
                    if (one["tracer"], one["clocksource"] == COUNTER) == (tracer, by_counter)
                    and (one["device"], one["depth"], _kernel(one)) == (device, depth, kernel)
                )  # fmt: skip
                figure = one["instructions_per_request" if tracer == "none" else "added"]
                cells.append(f"{bold}{figure:,.0f}{bold}")
        rows.append((label, *cells))
    return kept_tables.table(("", *(f"{kernel} {device}" for kernel in kernels for device, _ in _COLUMNS)), rows)


def _kernel(point: Point) -> str:
    found = _KERNEL.match(str(point["kernel"]))
    return found[0] if found else str(point["kernel"])


def _sorted(points: Sequence[Point]) -> list[Point]:
    return sorted(points, key=lambda one: [int(part) for part in _kernel(one).split(".")])

# SPDX-License-Identifier: GPL-2.0-or-later
"""Prints what fabstat.ko could not see or count: beside figures that lack it, before anybody takes them for all."""

from collections.abc import Mapping, Sequence

from fabtune.cli.table import paragraph
from fabtune.stat import NOT_COUNTING, DeviceInterval, Interval, Snapshot
from fabtune.stat.snapshot import TIMES

NOTHING_COUNTED = f"{NOT_COUNTING[0].upper()}{NOT_COUNTING[1:]}."
COUNTED_BEFORE = "Not all of this interval was counted: the figures are of what was counted before."
# Of so many disks and kinds of request it is said which times are missing, of the rest how many they are.
_MOST_SAID = 4
# Rates of a row that was there for so much of an interval are those of all of it, as near as matters.
_AS_LONG = 0.95


def print_unseen(interval: Interval, devices: Sequence[DeviceInterval], latest: Snapshot) -> None:
    """Say what fabstat cannot see here, nothing where nothing is missing that one of `devices` needs."""
    module = latest.module
    if not latest.counting:
        paragraph(NOTHING_COUNTED)
        if any(one.completed for one in devices):
            paragraph(COUNTED_BEFORE)
    elif not interval.counting:
        paragraph(not_all_counted(interval.counted_ns, "fabstat was still switched off (enabled=N) when it began"))
    missing = [name for name in missing_tracepoints(module) if name.startswith("scsi_")]
    # Switched off, it has none of its probes attached.
    detached = latest.counting and module["scsi"] != "1"
    if any(one.device.hctl != "-" for one in devices) and (missing or detached):
        # It may be for want of memory as well; older modules do not tell what is missing.
        why = f"this kernel has no {', '.join(missing)}" if missing else "its probes are not all attached (scsi=0)"
        paragraph(f"refusals of SCSI devices are not seen: {why}")
    if interval.vanished:
        paragraph(
            f"{interval.vanished} disks of the first reading have gone and are not in the second: fabstat keeps the "
            "last 16 that went"
        )
    _print_refused(module)
    if lacking := [text for one in devices for text in _lacking(one)]:
        told = "; ".join(_first(lacking))
        paragraph(f"no percentiles (?) where there was no room for all histograms; in none are: {told}")


def not_all_counted(counted_ns: int | None, otherwise: str) -> str:
    """Say that of an interval `counted_ns` at its end were counted without a break; `otherwise`, where not known."""
    why = otherwise if counted_ns is None else (
        f"fabstat has counted without a break only in its last {in_seconds(counted_ns)}"
    )  # fmt: skip
    return f"Not all of this interval was counted: {why}."


def in_seconds(time_ns: int) -> str:
    """Return a time as people read it, of any length."""
    seconds = time_ns / 1e9
    return f"{seconds:.0f} s" if seconds >= 1000 else f"{seconds:.3g} s"


def time_of_rates(elapsed_ns: int, of_rows: Mapping[str, int]) -> str:
    """Return the time of an interval, and that of rows whose rates are over clearly less of it, by their names."""
    shorter = [f"{name} {in_seconds(own)}" for name, own in of_rows.items() if own < _AS_LONG * elapsed_ns]
    if not shorter:
        return f"{in_seconds(elapsed_ns)}."
    told = "; rates are over less of it for what was first seen later, or went: "
    return f"{in_seconds(elapsed_ns)}{told}{', '.join(_first(shorter))}."


def _first(texts: Sequence[str]) -> list[str]:
    """Return the first of `texts`, and how many more there are."""
    more = len(texts) - _MOST_SAID
    return [*texts[:_MOST_SAID], *([f"and {more} more"] if more > 0 else [])]


def print_forgotten(devices: Sequence[DeviceInterval]) -> None:
    """Say of which disks requests were lost sight of: no column has them."""
    lost = [f"{one.device.disk} {one.forgotten}" for one in devices if one.forgotten]
    if lost:
        paragraph(
            "requests whose end was not seen (forgotten), because fabstat was switched off while they were under way, "
            f"was not told of it, or had no memory to count it: {', '.join(_first(lost))}"
        )


def _print_refused(module: Mapping[str, str]) -> None:
    """Say what has no disk, and how often there was no memory: by no disk's row can that be seen."""
    untracked, refused = int(module["untracked"]), int(module["memory_refused"])
    if untracked:
        paragraph(
            f"{untracked} issues, completions and requeues since fabstat was loaded were given to no disk: there was "
            "no memory, or it was being removed"
        )
    if refused:
        paragraph(f"fabstat got no memory {refused} times since it was loaded; its own ceiling is memory_limit_mib")


def missing_tracepoints(module: Mapping[str, str]) -> list[str]:
    """Return the tracepoints that the module has not found; older modules do not tell."""
    return [name for name in module.get("missing", "-").split(",") if name != "-"]


def _lacking(one: DeviceInterval) -> list[str]:
    """Say of each kind of request how many of its times are in no histogram."""
    said = []
    for name, op in one.ops.items():
        short = [
            f"{missing} of {op.counted(time)} {time} times"
            for time in TIMES
            if (missing := op.histograms[time].lacking)
        ]
        if short:
            said.append(f"{one.device.disk}, {name}: {' and '.join(short)}")
    return said

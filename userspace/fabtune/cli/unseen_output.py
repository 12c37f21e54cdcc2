# SPDX-License-Identifier: GPL-2.0-or-later
"""Prints what fabstat.ko could not see or count: beside figures that lack it, before anybody takes them for all."""

from collections.abc import Mapping, Sequence

from fabtune.cli.table import paragraph
from fabtune.stat import NOT_COUNTING, DeviceInterval, Interval, Snapshot
from fabtune.stat.snapshot import TIMES

NOTHING_COUNTED = f"{NOT_COUNTING[0].upper()}{NOT_COUNTING[1:]}."
# Of so many disks and kinds of request it is said which times are missing, of the rest how many they are.
_MOST_SAID = 4


def print_unseen(interval: Interval, devices: Sequence[DeviceInterval], latest: Snapshot) -> None:
    """Say what fabstat cannot see here, nothing where nothing is missing that one of `devices` needs."""
    module = latest.module
    if not latest.counting:
        paragraph(NOTHING_COUNTED)
        return
    if not interval.counting:
        paragraph("Not all of this interval was counted: fabstat was still switched off (enabled=N) when it began.")
    missing = [name for name in missing_tracepoints(module) if name.startswith("scsi_")]
    if any(one.device.hctl != "-" for one in devices) and (missing or module["scsi"] != "1"):
        what = ", ".join(missing) or "tracepoints of SCSI"
        paragraph(f"refusals of SCSI devices are not seen: this kernel has no {what}")
    if lacking := [text for one in devices for text in _lacking(one)]:
        more = len(lacking) - _MOST_SAID
        told = lacking[:_MOST_SAID] + ([f"and {more} more"] if more > 0 else [])
        paragraph(f"no percentiles (?) where there was no room for all histograms; in none are: {'; '.join(told)}")


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

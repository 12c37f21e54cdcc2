# SPDX-License-Identifier: GPL-2.0-or-later
"""Prints what fabstat.ko records with the parameter ``detail``: queue waits, times by size, the slowest requests."""

from itertools import groupby
from typing import Any

from fabtune.cli.percentiles import of_histogram, percentiles_json
from fabtune.cli.table import paragraph, table
from fabtune.stat import DeviceInterval, Histogram, SlowList, SlowRequest
from fabtune.stat.snapshot import DETAILS, OPS, Op

_PERCENTS = {"p50": 50.0, "p99": 99.0, "max": 100.0}
_LABELS = {"wait": "before issue", "4KiB": "up to 4 KiB", "32KiB": "up to 32 KiB", "256KiB": "up to 256 KiB",
           "above": "above 256 KiB"}  # fmt: skip
# Of an age of more nobody needs tenths of a second.
_LONG_NS = 1000 * 10**9


def print_recorded(one: DeviceInterval, slow: SlowList | None, *, asked: bool) -> None:
    """Print a device's waits, its device times by size, and its slowest requests; nothing where none were kept.

    `asked` tells whether they are being recorded.
    """
    rows = [
        (op, _LABELS[name], str(histogram.count), *(of_histogram(histogram, percent) for percent in _PERCENTS.values()))
        for op in OPS if op in one.ops
        for name in DETAILS if (histogram := one.ops[op].details.get(name)) and histogram.count
    ]  # fmt: skip
    if lacking := [text for op in OPS if op in one.ops and (text := _lacking(op, one.ops[op]))]:
        paragraph(
            "no percentiles (?) of waits and times by size where there was no room for all histograms and some may be "
            f"in no histogram: {'; '.join(lacking)}"
        )
    elif asked and not rows and one.events.get("no_histogram"):
        paragraph("waits and times by size are not shown, or not all of them: there was no room for histograms")
    if rows:
        table(("op", "wait, or size", "count", "p50 ms", "p99 ms", "max ms"), rows)
    kept = [request for request in slow.requests if request.id == one.device.id] if slow else []
    if not slow or not kept:
        return
    paragraph(
        "Slowest requests while detail was on, with how many s ago each was first issued; in ms: the wait before that, "
        "the total from there to the end, and of that the device's time since the last issue."
    )
    table(
        ("ago s", "before issue", "total", "device", "op", "sector", "bytes", "queue", "CPU", "error, refusals"),
        [_row(request, slow.age_ns(request)) for request in kept],
        wrapped="error, refusals",
    )


def recorded_json(one: DeviceInterval, slow: SlowList | None) -> dict[str, Any]:
    """Return the same with stable keys; times in ms, ages in s.  `slow` is None where nobody asked for the slowest."""
    return {
        "detail": {
            name: {key: _figures(histogram) for key, histogram in op.details.items() if key in DETAILS}
            for name, op in one.ops.items() if op.details
        },
        "slowest": None if slow is None else [
            {
                "op": request.op, "time_s": request.time_ns / 1e9, "age_s": slow.age_ns(request) / 1e9,
                "total_ms": request.total_ns / 1e6, "device_ms": request.device_ns / 1e6,
                "wait_ms": request.wait_ns / 1e6, "sector": request.sector, "bytes": request.bytes,
                "queue": request.queue, "cpu": request.cpu, "error": request.error or None,
                "sent_back": request.sent_back, "reasons": list(request.reasons),
            }
            for request in slow.requests if request.id == one.device.id
        ],
    }  # fmt: skip


def _lacking(name: str, op: Op) -> str:
    """Say of how many requests of one kind the wait, or the time by size, may be in no histogram."""
    waits = max((one.lacking for key, one in op.details.items() if key == "wait"), default=0)
    sizes = max((one.lacking for key, one in op.details.items() if key != "wait"), default=0)
    short = [
        f"up to {missing} of {op.completed} {what}" for missing, what in ((waits, "waits"), (sizes, "times by size"))
        if missing
    ]  # fmt: skip
    return f"{name}: {' and '.join(short)}" if short else ""


def _figures(histogram: Histogram) -> dict[str, float | int | None]:
    told = {"count": histogram.count, "missing_at_most": histogram.lacking}
    return told | percentiles_json(histogram, _PERCENTS)


def _refusals(request: SlowRequest) -> str:
    """Say how often a request was sent back, and why: the module keeps the first reasons alone."""
    often, known = request.sent_back, len(request.reasons)
    times = "once" if often == 1 else f"{often} times"
    if not known:
        return f"sent back {times}"
    runs = [(name, len(list(alike))) for name, alike in groupby(request.reasons)]
    said = ", ".join(name if count == 1 else f"{count} x {name}" for name, count in runs)
    return f"sent back, first {known} of {often}: {said}" if known < often else f"sent back {times}: {said}"


def _row(request: SlowRequest, age_ns: int) -> tuple[str, ...]:
    told = [request.error] if request.error else []
    if request.sent_back:
        told.append(_refusals(request))
    ago = f"{age_ns / 1e9:.{1 if age_ns < _LONG_NS else 0}f}"
    times = (f"{ns / 1e6:.3g}" for ns in (request.wait_ns, request.total_ns, request.device_ns))
    cpu = "-" if request.cpu is None else str(request.cpu)
    return (ago, *times, request.op, str(request.sector), str(request.bytes), str(request.queue), cpu, "; ".join(told))

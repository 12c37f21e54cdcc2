# SPDX-License-Identifier: GPL-2.0-or-later
"""What is told of the load over a path.  Nothing is written for it: no counter shows what a line would carry."""

import time
from collections.abc import Iterator

from fabtune.guard.news import NOTICE, WARNING, Told, of_path, path_name
from fabtune.guard.seen_path import SeenPath
from fabtune.tune.journal import Transaction

# A line whose rate comes and goes is not told of oftener.
_OFTEN_S = 600.0


def of_rate(applied: Transaction, path: SeenPath) -> Iterator[Told]:
    """Yield that less arrives behind a queue than was carried, or does no more."""
    now_s, rate, name = time.monotonic(), path.rate, path_name(applied)
    slower, told = rate.slower, rate.told
    if told and not path.trips:
        rate.told = None
        yield Told("rate-back", NOTICE, f"{name}: none of its connections is seen any more", of_path(applied))
    elif told and rate.back:
        rate.told = None
        text = f"{rate.bytes_per_s / 1e6:.1f} MB/s arrive and no queue stands, or as much as before"
        yield Told("rate-back", NOTICE, f"{name}: {text}", of_path(applied, bytes_per_s=rate.bytes_per_s))
    elif slower and (slower.sure and not told.sure if told else now_s - rate.told_at_s >= _OFTEN_S):
        rate.told, rate.told_at_s = slower, now_s
        figures = of_path(
            applied,
            bytes_per_s=slower.bytes_per_s,
            carried_bytes_per_s=slower.carried_bytes_per_s,
            rtt_ms=slower.rtt_ms,
            least_rtt_ms=slower.least_ms,
            planned_rtt_ms=path.planned_ms,
            cannot_tell=not slower.sure,
        )
        yield Told("rate-moved", WARNING, f"{name}: {slower.text}", figures)


def of_pace(applied: Transaction, path: SeenPath) -> Iterator[Told]:
    """Yield once that a connection is held by its own pace."""
    pace, for_s = path.at_pace.longest(time.monotonic()) or (0, 0.0)
    # What a NIC tells of its speed is no pace that a line could be faster than.
    if pace and pace not in path.at_pace.told and not applied.header.rate_by_nic:
        path.at_pace.told.add(pace)
        text = f"at its pace of {pace / 1e6:.1f} MB/s for {for_s / 60:.0f} minutes, with no queue and no loss"
        text = f"{path_name(applied)}: a connection sends {text}: the line may carry more; `fabtune tune` tells"
        yield Told("at-pace", NOTICE, text, of_path(applied, pace_bytes_per_s=pace, for_s=for_s))

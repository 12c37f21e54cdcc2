# SPDX-License-Identifier: GPL-2.0-or-later
"""What a round of the model test leaves, so that it can be compared again elsewhere and later: traces and readings."""

import gzip
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# struct blk_io_trace: magic, sequence, time, sector, bytes, action, pid, device, cpu, error, pdu_len
EVENT = struct.Struct("<IIQQIIIIIHH")
CATEGORY = 16
REQUEUE, ISSUE, COMPLETE = 6, 7, 8
_NOTIFY = 1 << 10
# Time, action, sector, bytes and error of an event of blktrace.
Event = tuple[int, int, int, int, int]
Columns = dict[str, list[Any]]


def events_of(trace: Path) -> list[Event]:
    """Return the events of `trace`, a file of blktrace, in the order of their times."""
    data = trace.read_bytes()
    events = []
    place = 0
    while place + EVENT.size <= len(data):
        _, _, when, sector, size, action, _, _, _, error, more = EVENT.unpack_from(data, place)
        if not (action >> CATEGORY) & _NOTIFY:
            events.append((when, place, action, sector, size, error))
        place += EVENT.size + more
    return [(when, action, sector, size, error) for when, _, action, sector, size, error in sorted(events)]


def condensed(events: list[Event]) -> Columns:
    """Return `events` in columns of small numbers.

    What has begun is not told again by its sector, but by -1 less its place among those that have not ended.
    """
    kinds: dict[tuple[int, int, int], int] = {}
    columns: Columns = {"kind": [], "after_ns": [], "place": []}
    begun: list[int] = []
    last_ns = 0
    for when, action, sector, size, error in events:
        columns["kind"].append(kinds.setdefault((action, size, error), len(kinds)))
        columns["after_ns"].append(when - last_ns)
        columns["place"].append(-1 - begun.index(sector) if sector in begun else sector)
        _follow(begun, action, sector)
        last_ns = when
    return columns | {"kinds": [list(kind) for kind in kinds]}


def expanded(columns: Columns) -> Iterator[Event]:
    """Yield the events that were condensed so."""
    begun: list[int] = []
    now_ns = 0
    for kind, after_ns, place in zip(columns["kind"], columns["after_ns"], columns["place"], strict=True):
        action, size, error = columns["kinds"][kind]
        now_ns += after_ns
        sector = place if place >= 0 else begun[-1 - place]
        _follow(begun, action, sector)
        yield now_ns, action, sector, size, error


def _follow(begun: list[int], action: int, sector: int) -> None:
    ends = action & 0xFFFF == COMPLETE
    if sector in begun and ends:
        begun.remove(sector)
    elif sector not in begun and not ends:
        begun.append(sector)


def write(file: Path, document: dict[str, Any]) -> None:
    """Write `document` as compressed JSON, the same bytes for the same document, whole or not at all."""
    draft = file.with_suffix(".draft")
    draft.write_bytes(gzip.compress(json.dumps(document, separators=(",", ":")).encode(), mtime=0))
    draft.rename(file)


def read(file: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(gzip.decompress(file.read_bytes()))
    return document

# SPDX-License-Identifier: GPL-2.0-or-later
"""Prints the requests that wait in the block layer, and what cannot be seen of them."""

from typing import Any

from fabtune.cli.table import paragraph, table
from fabtune.stat import Waiting
from fabtune.stat.unsent import THRESHOLD_NS

NOTHING_WAITS = Waiting()


def in_s(age_ns: int | None) -> str:
    """Return an age in s."""
    return "unknown" if age_ns is None else f"{age_ns / 1e9:.1f}"


def print_waiting(waits: Waiting) -> None:
    """Print those that wait, the oldest first, and what is not seen; nothing where there is neither."""
    if waits.requests:
        paragraph("Waiting in the block layer, not with a driver (place: which of its lists):")
        rows = [
            (in_s(one.age_ns), one.disk, one.op, _known(one.lba), _known(one.blocks), one.place.replace("_", " "))
            for one in waits.requests
        ]
        table(("age s", "device", "op", "LBA", "blocks", "place"), rows)
    for why in waits.unseen:
        paragraph(f"what waits in the block layer is not seen, or not all of it: {why}")


def _known(number: int | None) -> str:
    return "-" if number is None else str(number)


def waiting_json(waits: Waiting) -> dict[str, Any]:
    """Return the stable keys of those that wait and of what is not seen."""
    return {
        "waiting": [
            {
                "disk": one.disk, "op": one.op, "lba": one.lba, "blocks": one.blocks,
                "age_ms": None if one.age_ns is None else one.age_ns / 1e6, "place": one.place,
            }
            for one in waits.requests
        ],
        "waiting_unseen": list(waits.unseen),
    }  # fmt: skip


def alone_json(waits: Waiting) -> dict[str, Any]:
    """Return what the verb tells where there is no module: nobody knows what else is under way."""
    return {"enabled": None, "threshold_ms": THRESHOLD_NS / 1e6, "requests": None, **waiting_json(waits)}

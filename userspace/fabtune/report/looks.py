# SPDX-License-Identifier: GPL-2.0-or-later
"""How labels are shown: each with its own colour, dash and mark whatever else is there, and in order of numbers."""

import re
import zlib
from collections.abc import Iterable

# Colours, dashes and marks of the palette.
LOOKS = 6
# What is seen most; the first is what all others are held against.
_USUAL = {"untouched": 0, "default": 0, "wan": 1, "lan": 2, "wan-lossy": 3, "wan-satellite": 4, "tune": 5}


def looks(labels: Iterable[str]) -> dict[str, int]:
    """Return the look of each label of a page.

    A label has its own wherever it stands; only where two on one page would have the same does one give way.
    """
    wanted = dict.fromkeys(labels)
    found: dict[str, int] = {}
    # Who gives way hangs neither on the order nor on the number of runs.
    for label in sorted(wanted, key=lambda label: (label not in _USUAL, label)):
        look = _USUAL.get(label, 1 + zlib.crc32(label.encode()) % (LOOKS - 1))
        free = [one for one in range(LOOKS) if one not in found.values()]
        found[label] = look if look in free or not free else min(free, key=lambda one: (one - look) % LOOKS)
    return {label: found[label] for label in wanted}


def natural(text: str) -> list[tuple[float, str]]:
    """Return what sorts texts by the numbers in them: 20ms before 100ms."""
    parts = re.split(r"(\d+(?:\.\d+)?)", text)
    return [(float(part), "") if at % 2 else (-1.0, part) for at, part in enumerate(parts)]

# SPDX-License-Identifier: GPL-2.0-or-later
"""Quantities as people write them: ``50ms``, ``1gbit``, ``256KiB``, ``0.1%``."""

import math
import re
from collections.abc import Mapping

from fabtune.errors import InputError

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_BITS_PER_S = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_BYTES: dict[str, float] = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9,
    "k": 2**10, "m": 2**20, "g": 2**30, "kib": 2**10, "mib": 2**20, "gib": 2**30,
}  # fmt: skip
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)


def _parse(text: str, factors: Mapping[str, float], what: str, example: str) -> float:
    match = _QUANTITY.fullmatch(text)
    factor = factors.get(match[2].lower()) if match else None
    if match is None or factor is None or not math.isfinite(float(match[1])):
        units = ", ".join(unit for unit in factors if unit)
        raise InputError(f"{what} '{text}': expected a number >= 0 with one of the units {units}, such as {example}")
    return float(match[1]) * factor


def parse_ms(text: str, what: str = "duration") -> float:
    """Return milliseconds for ``50ms``, ``0.05s`` or ``800us``.  Raises InputError."""
    return _parse(text, _SECONDS, what, "50ms") * 1e3


def parse_bit_per_s(text: str, what: str = "rate") -> float:
    """Return bits per second for ``1gbit`` or ``200mbit``; zero is refused.  Raises InputError."""
    value = _parse(text, _BITS_PER_S, what, "1gbit")
    if value == 0:
        raise InputError(f"{what} '{text}': expected more than zero, such as 1gbit")
    return value


def parse_bytes(text: str, what: str = "size") -> int:
    """Return bytes for ``256KiB``, ``1M`` (binary) or ``1MB`` (decimal).  Raises InputError."""
    return round(_parse(text, _BYTES, what, "256KiB"))


def parse_percent(text: str, what: str = "share") -> float:
    """Return a fraction of one for ``0.1%``.  Raises InputError."""
    value = _parse(text.replace("%", " pct"), {"pct": 0.01}, what, "0.1%") if "%" in text else math.nan
    if not 0 <= value <= 1:
        raise InputError(f"{what} '{text}': expected a percentage from 0% to 100%, such as 0.1%")
    return value

# SPDX-License-Identifier: GPL-2.0-or-later
"""Quantities as people write them: ``50ms``, ``1gbit``, ``622Mb/s``, ``OC-12``, ``256KiB``, ``0.1%``."""

import math
import re
from collections.abc import Mapping

from fabtune.errors import InputError

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
# A small b is a bit and a large one a byte, as everybody writes them; a prefix alone counts bits.
_RATE = re.compile(
    r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)(?:(?P<bits>bits?(?:/s)?)|(?P<b>b)(?P<s>/s|ps)?)?\s*", re.IGNORECASE
)
_PREFIXES = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
# SONET: what an OC-n link leaves to the packets (its synchronous payload envelope), of n x 51.84 Mb/s.
_SONET = re.compile(r"\s*oc-?(\d{1,3})c?\s*", re.IGNORECASE)
_SONET_BIT_PER_S = 49.92e6
_BYTES: dict[str, float] = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9,
    "k": 2**10, "m": 2**20, "g": 2**30, "kib": 2**10, "mib": 2**20, "gib": 2**30,
}  # fmt: skip
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)
# Less no link of IPv4 may have (RFC 791), and more than the loopback's none has.
LEAST_MTU, MOST_MTU = 68, 65536


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
    """Return bit/s for ``1gbit``, ``622Mb/s``, ``75MB/s`` or ``OC-12``; zero is refused.  Raises InputError."""
    value = _rate(text)
    if value is None or not math.isfinite(value):
        raise InputError(
            f"{what} '{text}': expected a number with a unit: bit, kbit, Mbit, Gbit (also 622M, 622Mb/s, 622Mbps, "
            "OC-12), or MB/s for bytes; such as 1gbit"
        )
    if value == 0:
        raise InputError(f"{what} '{text}': expected more than zero, such as 1gbit")
    return value


def counted(number: int, what: str) -> str:
    """Return ``1 value`` or ``3 values``: the number and its noun."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _rate(text: str) -> float | None:
    """Return bits per second, None for what is no rate: a bare number, or a size such as 622MB."""
    if sonet := _SONET.fullmatch(text):
        return int(sonet[1]) * _SONET_BIT_PER_S
    match = _RATE.fullmatch(text)
    if match is None:
        return None
    number, prefix, binary = float(match[1]), match[2].lower(), match[3]
    in_bytes = match["b"] == "B" and match["bits"] is None
    if not (prefix or match["bits"] or match["b"]) or (in_bytes and not match["s"]) or (binary and not in_bytes):
        return None
    return number * float(1024 if binary else 1000) ** _PREFIXES[prefix] * (8 if in_bytes else 1)


def parse_bytes(text: str, what: str = "size") -> int:
    """Return bytes for ``256KiB``, ``1M`` (binary) or ``1MB`` (decimal).  Raises InputError."""
    return round(_parse(text, _BYTES, what, "256KiB"))


def parse_percent(text: str, what: str = "share") -> float:
    """Return a fraction of one for ``0.1%``.  Raises InputError."""
    value = _parse(text.replace("%", " pct"), {"pct": 0.01}, what, "0.1%") if "%" in text else math.nan
    if not 0 <= value <= 1:
        raise InputError(f"{what} '{text}': expected a percentage from 0% to 100%, such as 0.1%")
    return value

# SPDX-License-Identifier: GPL-2.0-or-later
"""What fabtune reads in the documents of fio and iperf3: a record with another shape is refused when it is read."""

import re
from typing import Annotated

import attrs

from fabtune.model.typed import Check, between

_MOST = 2**64 - 1
_Count = Annotated[int, between(0, _MOST)]
_Amount = Annotated[float, between(0, _MOST)]


def _is_histogram(bins: dict[str, int]) -> bool:
    # int() also takes signs, blanks and the digits of other scripts.
    names = all(re.fullmatch("[0-9]{1,20}", ns) for ns in bins)
    return names and all(0 <= count <= _MOST for count in bins.values())


_Histogram = Annotated[dict[str, int], Check(_is_histogram, "a table of nanoseconds and how many requests took them")]


@attrs.frozen
class _Completion:
    bins: _Histogram = attrs.field(factory=dict)


@attrs.frozen
class _Latency:
    N: _Count
    mean: _Amount


@attrs.frozen
class _Direction:
    total_ios: _Count
    io_bytes: _Count
    runtime: _Count
    clat_ns: _Completion
    lat_ns: _Latency


@attrs.frozen
class _Job:
    read: _Direction
    write: _Direction


@attrs.frozen
class FioOutput:
    """fio's JSON, as far as figures come from it."""

    jobs: tuple[_Job, ...]


@attrs.frozen
class _Received:
    bits_per_second: _Amount


@attrs.frozen
class _End:
    sum_received: _Received


@attrs.frozen
class Iperf3Output:
    """iperf3's JSON, as far as figures come from it."""

    end: _End

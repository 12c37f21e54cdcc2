# SPDX-License-Identifier: GPL-2.0-or-later
"""What counters grew by."""

from collections.abc import Mapping
from typing import TypeVar

N = TypeVar("N", int, float)


def delta(after: Mapping[str, N], before: Mapping[str, N]) -> dict[str, N]:
    """Return `after` minus `before`; counters of only one side are left out."""
    return {key: after[key] - before[key] for key in after if key in before}


def deltas(after: Mapping[str, Mapping[str, N]], before: Mapping[str, Mapping[str, N]]) -> dict[str, dict[str, N]]:
    """Return the same for each session or interface of both sides."""
    return {key: delta(after[key], before[key]) for key in after if key in before}

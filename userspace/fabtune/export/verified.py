# SPDX-License-Identifier: GPL-2.0-or-later
"""The outcome of the last `fabtune verify --publish`, a file by which drift reaches the metrics."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

import attrs

from fabtune.export.kept import Document
from fabtune.model import typed
from fabtune.tune.verify import Drift

VERSION = 1


@attrs.frozen
class Verified(Document):
    """What verify found at `time_s`: values checked, and how many differ or wait for something, by tunable."""

    FILE: ClassVar = "verify.json"

    fabtune_verified: Annotated[int, typed.between(VERSION, VERSION)]
    time_s: Annotated[float, typed.at_least(0)]
    checked: Annotated[int, typed.at_least(0)]
    drifted: Mapping[str, int]
    due: Mapping[str, int]


def of_drifts(drifts: Sequence[Drift], time_s: float) -> Verified:
    """Return what is kept of `drifts`, found at `time_s` since 1970."""
    return Verified(
        VERSION,
        time_s,
        sum(not one.due for one in drifts),
        Counter(one.tunable for one in drifts if one.drifted),
        Counter(one.tunable for one in drifts if one.due),
    )

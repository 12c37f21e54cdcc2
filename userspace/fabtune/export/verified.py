# SPDX-License-Identifier: GPL-2.0-or-later
"""The outcome of the last `fabtune verify --save`, a file by which drift reaches the metrics."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import attrs

from fabtune.errors import InputError
from fabtune.host import files, userfile
from fabtune.model import typed
from fabtune.tune.verify import Drift

VERSION = 1
_MAX_BYTES = 16 << 20


@attrs.frozen
class Verified:
    """What verify found at `time_s`: values checked, and how many differ or wait for something, by tunable."""

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


def save(outcome: Verified, path: Path) -> None:
    """Write `outcome` to `path` in the place of what is there.  Raises OSError."""
    files.keep(path, (json.dumps(attrs.asdict(outcome)) + "\n").encode(), 0o644, over=True)


def saved(path: Path) -> Verified | None:
    """Return what was saved to `path`; None where there is nothing.  Raises InputError for what cannot be read."""
    if not path.exists():
        return None
    try:
        raw = json.loads(userfile.read_text(path, _MAX_BYTES))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error}") from None
    return typed.STRICT.read(Verified, raw, str(path))

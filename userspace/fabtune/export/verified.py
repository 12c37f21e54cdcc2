# SPDX-License-Identifier: GPL-2.0-or-later
"""What verify found last of all that was applied, a file by which drift reaches the metrics."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, ClassVar

import attrs

from fabtune.backends import record
from fabtune.catalog.tunable import ROLES
from fabtune.errors import FabtuneError
from fabtune.export import kept
from fabtune.export.kept import Document
from fabtune.model import typed
from fabtune.tune.verify import Drift, verify

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


def publish(drifts: Sequence[Drift]) -> None:
    """Let the metrics show `drifts`, found just now of all that was applied.  Raises OSError."""
    kept.save(of_drifts(drifts, time.time()))


def everything() -> list[Drift]:
    """Return what verify finds now of all that was applied, in a process that may have looked before."""
    # A discovery resets records, and tells nobody.
    record.BACKEND.forget()
    return verify(None, ROLES, "")


def renew(say: Callable[[str], None], look: Callable[[], Sequence[Drift]] = everything) -> None:
    """Let the metrics show what `look` finds, where they show an earlier look.

    Who calls it is done with something else: what goes wrong here, or Ctrl-C, is said and ends nothing but this.
    """
    if not kept.renewable(Verified):
        return
    try:
        publish(look())
        return
    except (FabtuneError, ImportError) as error:
        why = str(error)
    except OSError as error:
        why = f"{error.filename or kept.runtime_dir()}: {error.strerror or error}"
    except KeyboardInterrupt:
        why = "interrupted"
    say(f"the metrics still show what an earlier look found: {why}")

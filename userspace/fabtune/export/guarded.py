# SPDX-License-Identifier: GPL-2.0-or-later
"""What `fabtune guard` saw last, a file by which it reaches the metrics."""

from collections.abc import Sequence
from typing import Annotated, ClassVar

import attrs

from fabtune.export.kept import Document
from fabtune.model import typed

VERSION = 1


@attrs.frozen
class WatchedPath:
    """A path that values in force were planned for: profile, role and network namespace of the apply, the round trip as
    planned and as it is; whether that has moved, whether less arrives behind a queue than was carried, and whether a
    connection is at its own pace.
    """

    profile: str
    role: str
    netns: str
    planned_rtt_s: Annotated[float, typed.at_least(0)]
    rtt_s: Annotated[float, typed.at_least(0)]
    # An older fabtune wrote none of these.
    moved: bool = False
    rate_moved: bool = False
    at_pace: bool = False


@attrs.frozen
class Guarded(Document):
    """The watch at `time_s` since 1970: whether it heals, and what it has written since it began."""

    FILE: ClassVar = "guard.json"

    fabtune_guarded: Annotated[int, typed.between(VERSION, VERSION)]
    time_s: Annotated[float, typed.at_least(0)]
    heals: bool
    healed_values: Annotated[int, typed.at_least(0)]
    followed_paths: Annotated[int, typed.at_least(0)]
    paths: tuple[WatchedPath, ...]

    @classmethod
    def of(
        cls, time_s: float, heals: bool, healed_values: int, followed_paths: int, paths: Sequence[WatchedPath]
    ) -> "Guarded":
        """Return it in the version that is written."""
        return cls(VERSION, time_s, heals, healed_values, followed_paths, tuple(paths))

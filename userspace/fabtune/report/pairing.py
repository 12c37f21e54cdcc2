# SPDX-License-Identifier: GPL-2.0-or-later
"""Which runs of two sides belong together, and what is left out because it belongs to none."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import attrs

from fabtune.model.judgement import LEAST
from fabtune.model.runrecord import RunRecord
from fabtune.model.units import counted

PairedBy = Literal["session", "seed", ""]
# So many are named.
_MOST_NAMED = 6


@attrs.frozen
class Belonging:
    """What a run has in common with its partner of the other side.

    `group` is an interleaved session's id, or a fleet's experiment, if any.
    """

    by: PairedBy
    number: int
    group: str = ""

    @property
    def shown(self) -> int:
        """The number as users know it: pairs are counted from 1 on."""
        return self.number + (self.by == "session")


Valued = tuple[Belonging | None, float]


@attrs.frozen
class Pairing:
    """The values of both sides that are compared, and by what they are paired.

    `remark` says which runs are left out, or why none are paired that could be; it is nothing where all is as usual.
    """

    a: tuple[float, ...]
    b: tuple[float, ...]
    by: PairedBy = ""
    remark: str = ""


def belonging_of(record: RunRecord) -> Belonging | None:
    """Return the place of a run in its session, or its seed in the lab or on a fleet; None where it has none."""
    if record.session:
        return Belonging("session", record.session.pair, record.session.id)
    settings = record.environment.get("settings")
    seed = settings.get("seed") if isinstance(settings, Mapping) else None
    if isinstance(seed, int):
        return Belonging("seed", seed)
    return Belonging("seed", record.replicate.seed, record.replicate.experiment) if record.replicate else None


def names_apart(a: str, b: str) -> tuple[str, str]:
    """Return the names of both sides, with the side behind two that are alike."""
    return (f"{a} (A)", f"{b} (B)") if a == b else (a, b)


def pair(a: Sequence[Valued], b: Sequence[Valued], names: tuple[str, str]) -> Pairing:
    """Return the values of runs with one place in pairs, in A's order; unpaired where no two have one.

    Of a place that a side has more than once it is not known which run is the partner: it is left out, and so are runs
    without a place or a partner, as long as pairs enough for a verdict are left, or there could be none anyway.
    """
    counts = [Counter(place for place, _ in side if place) for side in (a, b)]
    both = [place for place, _ in a if place and counts[0][place] == counts[1][place] == 1]
    repeated = sorted(
        {place for count in counts for place, times in count.items() if times > 1},
        key=lambda one: (one.by, one.group, one.number),
    )
    doubtful = [f"{_named(repeated)} (there more than once on a side)"] if repeated else []
    doubtful += _runs(names, [sum(place is None for place, _ in side) for side in (a, b)], "without pair or seed")
    if len(both) >= LEAST or (both and not doubtful and min(len(a), len(b)) < LEAST):
        alone = [sum(count[place] for place in count if place not in (*both, *repeated)) for count in counts]
        left_out = [*doubtful, *_runs(names, alone, "without a partner")]
        values = [{place: value for place, value in side if place} for side in (a, b)]
        return Pairing(
            tuple(values[0][place] for place in both), tuple(values[1][place] for place in both),
            "session" if all(place.by == "session" for place in both) else "seed",
            f"Left out of the pairs: {'; '.join(left_out)}." if left_out else "",
        )  # fmt: skip
    remark = ""
    if counts[0].keys() & counts[1].keys():
        without = f"without {' and '.join(doubtful)} " if doubtful else ""
        remark = (
            f"Not paired, since {without}fewer than {LEAST} pairs are left: drift between the two sets counts as a "
            "difference here."
        )
    ours, theirs = (tuple(value for _, value in side) for side in (a, b))
    return Pairing(ours, theirs, remark=remark)


def _named(places: Sequence[Belonging]) -> str:
    """Return the first of several places by their numbers, and how many more there are."""
    what = "pair" if places[0].by == "session" else "seed"
    if len(places) == 1:
        return f"{what} {places[0].shown}"
    shown = [str(place.shown) for place in places]
    if len(shown) > _MOST_NAMED:
        shown[_MOST_NAMED - 1 :] = [f"{len(shown) - _MOST_NAMED + 1} more"]
    return f"{what}s {', '.join(shown[:-1])} and {shown[-1]}"


def _runs(names: tuple[str, str], counts: Sequence[int], lack: str) -> list[str]:
    return [f"{counted(count, 'run')} of {name} ({lack})" for name, count in zip(names, counts, strict=True) if count]

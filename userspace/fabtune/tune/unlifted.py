# SPDX-License-Identifier: GPL-2.0-or-later
"""What limits and no row of a plan lifts: which tunables would, and how they get a value."""

from collections.abc import Collection, Iterable
from functools import cache

import attrs

from fabtune.catalog.profile import load_profile
from fabtune.catalog.tunable import shipped_catalog
from fabtune.errors import FabtuneError
from fabtune.model.observation import INITIATOR, TARGET
from fabtune.tune.plan import Row
from fabtune.why.judging import Share

# What speaks of paths of any length; other profiles want something else than throughput.
_GENERAL = "wan"


@attrs.frozen
class Unlifted:
    """A limiter, and the tunables of one end that would lift it.

    `planned` is the profile without a row that does, `profile` the one that has values for these tunables, '' for none.
    """

    limiter: str
    end: str
    tunables: tuple[str, ...]
    planned: str
    profile: str

    @property
    def in_words(self) -> str:
        """What lifts it, and which command sets it."""
        name, tunables = self.limiter.replace("-", " "), ", ".join(self.tunables)
        role = f" --role {self.end}"
        what = f"{name}: what would lift it is among the {self.end}'s {tunables}, and "
        if self.profile not in ("", self.planned):
            only = " ".join(f"--only {one}" for one in self.tunables if one in _spoken_of(self.profile, self.end))
            return f"{what}profile {self.planned} has none of them: fabtune plan {self.profile}{role} {only}"
        lacks = f"profile {self.planned} changes none of them here" if self.profile else "no profile for it has any"
        return (
            f"{what}{lacks}: give one a value in a profile of your own (`fabtune explain {self.tunables[0]}`), "
            f"then fabtune plan ./FILE.toml{role}"
        )


def without_row(planned: str, shares: Iterable[Share], rows: Collection[Row], here: Collection[str]) -> list[Unlifted]:
    """Return those of `shares` that none of `rows`, made of profile `planned`, lifts at an end that is `here`.

    Of an end that is not, no rows are known: only what no profile lifts there is among them.
    """
    found = []
    for share in shares:
        ends = [end for end in share.ends if of_end(share.lifts, end)]
        if any(row.tunable.name in share.lifts and row.role in ends for row in rows):
            continue
        end = next((one for one in ends if one in here), ends[0] if ends else INITIATOR)
        names = of_end(share.lifts, end)
        speak = (one for one in (planned, _GENERAL) if _spoken_of(one, end).intersection(names))
        profile = next(speak, "")
        if names and (end in here or not profile):
            found.append(Unlifted(share.limiter, end, tuple(names), planned, profile))
    return list(dict.fromkeys(found))


def has_values(share: Share, end: str) -> bool:
    """Tell whether a profile for such a share has a value for one of the tunables of `end` that lift it."""
    return bool(_spoken_of(share.profile or _GENERAL, end).intersection(share.lifts))


def speaks_of(profile: str, share: Share) -> bool:
    """Tell whether `profile` has a value for one of the tunables that lift `share`, at one of its ends."""
    return any(_spoken_of(profile, end).intersection(share.lifts) for end in share.ends)


def on_the_target(tunables: Iterable[str]) -> str:
    """Return where to go for what lifts a limiter at a target that is elsewhere."""
    return f"on the target, what lifts it is among {', '.join(tunables)}: fabtune plan --role {TARGET}"


def of_end(names: Iterable[str], end: str) -> list[str]:
    """Return those of the tunables called `names` that mean something at `end`, each once."""
    known = shipped_catalog().tunables
    return [name for name in dict.fromkeys(names) if name in known and end in known[name].roles]


@cache
def _spoken_of(profile: str, role: str) -> frozenset[str]:
    """Return the tunables that a profile has values for; none where it is damaged, which is for others to say."""
    try:
        return frozenset(load_profile(profile, shipped_catalog()).entries[role])
    except FabtuneError:
        return frozenset()

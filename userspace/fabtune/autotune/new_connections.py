# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether new connections can be made in place, asked before a step that is felt by them alone; and what is not tried.

Where they cannot, as under a multipathd that has requests fail after seconds, such values would be written in vain.
"""

import contextlib
from collections.abc import Callable, Iterable, Sequence

import attrs

from fabtune.autotune.tuned_ends import AT_ONCE
from fabtune.autotune.wanted import Wanted
from fabtune.errors import FabtuneError, InputError
from fabtune.facts.collect import this_host
from fabtune.host.sessions import live_sessions
from fabtune.tune import journal, pending, reconnect
from fabtune.tune.pending import RECONNECT
from fabtune.tune.plan import Row
from fabtune.why.judging import Share


def _lost() -> frozenset[int]:
    return frozenset(one.sid for one in live_sessions() if one.state == "FAILED")


def require_none_owed() -> None:
    """Raise InputError where sessions have not felt yet what was written, or taken back, before: a step would bring it.

    Who may not read the journal looks all the same.
    """
    owed = list[str]()
    with contextlib.suppress(FabtuneError):
        left = pending.still_pending(journal.transactions(), this_host().boot_id)
        owed = [one.label for one in left if one.action == RECONNECT]
    if owed:
        more = f" and {len(owed) - 1} more" * (len(owed) > 1)
        raise InputError(
            f"{owed[0]}{more} lacks the new connection by which what an earlier apply or revert wrote is felt; a step "
            "would bring it, and count what that gains as its own: `fabtune apply PROFILE --reconnect` keeps what was "
            "applied, `fabtune revert --reconnect` takes it back; then tune again"
        )


@attrs.define
class NewConnections:
    """What a climb knows of them; made after its first look, which has waited for lost sessions already."""

    _progress: Callable[[str], None]
    # Sessions without a connection that nobody waits for any more: a dead path must not hold up every step.
    _given_up: frozenset[int] = attrs.field(factory=_lost)
    # Why not: the same for all that may be the next step, each of which would have to be planned to ask.
    _refused: str = ""
    # What was not written against each limiter, and why.
    _left_out: dict[str, tuple[tuple[str, ...], str]] = attrs.field(factory=dict)

    def ask_again(self) -> None:
        """Forget why they cannot be made: another step is to be chosen."""
        self._refused = ""

    def why_not(self, rows: Callable[[], Iterable[Row]]) -> str:
        """Return why the sessions of this host would not be connected anew once `rows` are written, '' if they would.

        No portal is asked, which may take seconds: that is done before any connection is ended.
        """
        if not self._refused:
            if _lost() - self._given_up:
                reconnect.wait_for_lost(self._progress, lambda: None)
                self._given_up = _lost()
            self._refused = reconnect.why_not_for(rows(), live_sessions())
        return self._refused

    def without(self, wanted: Wanted, rows: Sequence[Row], why: str) -> Wanted:
        """Return `wanted` against that alone which those of `rows` lift that count at once; the rest is said, once."""
        kept = list[Share]()
        for share in wanted.reason.shares:
            mine = [row.tunable for row in rows if row.tunable.name in share.lifts and row.role in share.ends]
            kept += [share] if any(one.effect == AT_ONCE for one in mine) else []
            if names := tuple(dict.fromkeys(one.name for one in mine if one.effect != AT_ONCE)):
                known = share.limiter in self._left_out
                self._left_out[share.limiter] = names, why
                if not known:
                    self._progress(self._sentence(share.limiter))
        return attrs.evolve(wanted, reason=attrs.evolve(wanted.reason, shares=tuple(kept)))

    def tries(self, limiters: Iterable[str]) -> None:
        """Note that everything against `limiters` is written."""
        for one in limiters:
            self._left_out.pop(one, None)

    @property
    def not_tried(self) -> list[str]:
        """A sentence on what was not written against each limiter."""
        return [self._sentence(one) for one in self._left_out]

    def _sentence(self, limiter: str) -> str:
        names, why = self._left_out[limiter]
        return (
            f"not tried against {limiter}: {', '.join(names)}; no new connection can be made in place, by which alone "
            f"that would be felt: {why}"
        )

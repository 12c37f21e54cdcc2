# SPDX-License-Identifier: GPL-2.0-or-later
"""What a climb has learnt of the path from all its looks, those at steps that were taken back included."""

import math
from collections.abc import Collection

import attrs

from fabtune.autotune.own_losses import OwnLosses
from fabtune.autotune.view import View

# What fills a line with so much to spare does not hang on how well the losses of a few seconds tell the path's.
SPARE = 1.5
# Whoever has less than this of the line while a queue stands on it shares it; with more than so much nobody else has
# half as much.
_ALONE, _FAIR = 0.75, 2 / 3
# Single round trips that show so much more than arrives in any half second: data came in bursts, the line was idle
# between them.
_MORE = 0.08
# They are so much above what a line carries.
_ABOVE = 0.03
# So much sent again is the queue's doing; and from so much on that is worth another congestion control, which what is
# known of the path's own losses is to leave this share of the line at least.
WASTED, _OVERFILLS, _NEARLY = 0.0003, 0.005, 0.8
# For so much of the time a window may be full of a line that is.
_HARDLY = 0.1
OVERFLOW = "queue-overflow"

# What a step writes: role, tunable, device and value of each row.
Changes = frozenset[tuple[str, str, str | None, str | None]]


@attrs.define
class KnownLine:
    """What a line has shown to carry one way: the other way it may carry something else, and others may use it.

    `queued_bytes_per_s` is the least payload that passed while a queue stood on the path, of `bytes_per_s`.
    """

    bit_per_s: float = 0.0
    bytes_per_s: float = 0.0
    queued_bytes_per_s: float = math.inf
    # What single round trips showed, and whether a pace of that did not help.
    glimpsed_bit_per_s: float = 0.0
    glimpsed_in_vain: bool = False

    def saw(self, view: View) -> None:
        """Learn from one look at a load that moves most that way."""
        self.bit_per_s = max(self.bit_per_s, view.shown_bit_per_s or 0.0)
        if shown := view.shown:
            self.glimpsed_bit_per_s = max(self.glimpsed_bit_per_s, view.on_the_wire(shown.glimpsed_bytes_per_s))
            self.bytes_per_s = max(self.bytes_per_s, shown.most_bytes_per_s)
            self.queued_bytes_per_s = min(self.queued_bytes_per_s, shown.queued_bytes_per_s or math.inf)

    @property
    def pace_bit_per_s(self) -> float | None:
        """What the line showed to carry as far as that is worth a pace, None where it showed nothing."""
        return self._pace(_MORE)

    @property
    def flooded_bit_per_s(self) -> float | None:
        """What a line carries whose queue overflows: single round trips show it where the average has holes."""
        return self._pace(_ABOVE)

    def _pace(self, above: float) -> float | None:
        """Return what single round trips showed if that is so much above what arrived at best, else that."""
        glimpsed = not self.glimpsed_in_vain and self.glimpsed_bit_per_s > (1 + above) * self.bit_per_s
        return (self.glimpsed_bit_per_s if glimpsed else self.bit_per_s) or None

    def beyond_shown(self, rate_bit_per_s: float | None) -> bool:
        """Tell whether only single round trips have shown such a rate."""
        return rate_bit_per_s is not None and 0 < self.bit_per_s < rate_bit_per_s

    def overtaken(self, rate_bit_per_s: float) -> bool:
        """Tell whether the line has shown more than that, and not by chance."""
        return self.bit_per_s > (1 + _MORE) * rate_bit_per_s

    @property
    def others(self) -> bool:
        """Whether others have sent over the line: what it carries was not all ours while a queue stood on it."""
        return self.queued_bytes_per_s < _ALONE * self.bytes_per_s


@attrs.define
class Learnt:
    """What did not help, what the line showed to carry each way, and what the path itself loses."""

    tried: set[str] = attrs.field(factory=set)
    # What the steps wrote that went back since the last one that stays.
    in_vain: set[Changes] = attrs.field(factory=set)
    # What was tried a second time because its first gain may have been chance: the limiters, and what was written.
    perhaps_chance: set[tuple[str, ...] | Changes] = attrs.field(factory=set)
    # Which disks' directions losses held behind larger windows, for which these went back.
    behind_losses: frozenset[tuple[str, str]] = frozenset()
    # Whether a pace of what the line showed went back, and nothing else has helped since.
    paced_in_vain: bool = False
    # Whether others that use the line are to keep their part of it.
    friendly: bool = True
    # Of the direction that moved most in each look.
    lines: dict[str, KnownLine] = attrs.field(factory=dict)
    own_losses: dict[str, OwnLosses] = attrs.field(factory=dict)
    # What might have helped, and is left alone for others' sake: a sentence on each.
    left_alone: set[str] = attrs.field(factory=set)
    # Why an end could not be given all that might have helped: of what is tried first, a sentence on each end.
    no_step: dict[str, str] = attrs.field(factory=dict)

    def saw(self, view: View) -> None:
        """Learn from one look."""
        if view.shown is None and not view.shown_bit_per_s:
            return
        way = view.main.way
        self.lines.setdefault(way, KnownLine()).saw(view)
        if shown := view.shown:
            self.own_losses[way] = self.own_losses.get(way, OwnLosses()) + shown.own_losses

    def line_of(self, view: View) -> KnownLine:
        """Return what is known of the line in the direction that moved most in `view`."""
        return self.lines.get(view.main.way, KnownLine()) if view.ways else KnownLine()

    @property
    def line_bit_per_s(self) -> float:
        """The most that the line showed to carry, either way."""
        return max((one.bit_per_s for one in self.lines.values()), default=0.0)

    def did_not_help(self, limiters: Collection[str], rate_bit_per_s: float | None, before: View) -> None:
        """Note that a step went back, made for a load as in `before`: it is not tried again.

        But for a pace of less than single round trips showed.
        """
        line = self.line_of(before)
        too_fast = {OVERFLOW}.intersection(limiters) if line.beyond_shown(rate_bit_per_s) else set[str]()
        line.glimpsed_in_vain |= bool(too_fast)
        self.paced_in_vain |= OVERFLOW in limiters and not too_fast
        self.tried |= set(limiters) - too_fast

    def another_helped(self) -> None:
        """Note that a step that was no pace stays: it was not this load that a pace did not help."""
        if self.paced_in_vain:
            self.tried.discard(OVERFLOW)
        self.paced_in_vain = False

    @property
    def shared(self) -> KnownLine | None:
        """A line that others use, either way, and are to keep their part of; None where there is none."""
        return next((one for one in self.lines.values() if self.friendly and one.others), None)

    def yields(self, view: View) -> bool:
        """Tell whether others use the line the way that moved most, and are to keep their part."""
        return self.friendly and self.line_of(view).others

    def unfair(self, view: View) -> bool:
        """Tell whether a load has more than twice as much of a line that others use than they have left.

        Only what takes no loss for congestion does: cubic gives way to others as they do to it.
        """
        shown = view.shown
        if shown is None or not shown.probed:
            return False
        return self.yields(view) and shown.mean_bytes_per_s > _FAIR * self.line_of(view).bytes_per_s

    def overfilled(self, view: View) -> bool:
        """Tell whether a congestion control that probes loses in a queue alone what it sends again.

        Where the path itself loses next to nothing cubic fills the line, too, at a pace that the queue has room for.
        """
        shown = view.shown
        # What a window or a buffer holds shows that, and no line.
        if shown is None or not view.main_is_full or view.held_for(_HARDLY):
            return False
        if not shown.probed or shown.senders > 1 or shown.lost < _OVERFILLS:
            return False
        # Of a line that is idle between bursts what arrives is no rate.
        line = self.line_of(view)
        known = 0 < line.bit_per_s == line.pace_bit_per_s
        return known and self._cubic_fills(view, _NEARLY * shown.most_bytes_per_s)

    def _cubic_fills(self, view: View, bytes_per_s: float) -> bool:
        """Tell whether what the path itself loses that way would let cubic have so much."""
        shown, own = view.shown, self.own_losses.get(view.main.way, OwnLosses())
        return shown is not None and shown.rtt_s > 0 and shown.cubic_bytes_per_s(own.share) >= bytes_per_s

    def probed_in_vain(self, view: View, but_for: float) -> bool:
        """Tell whether a congestion control probes for more than its line has, where cubic would fill that as well.

        Of the line it then has all but that share at most.
        """
        shown = view.shown
        line_bit_per_s = self.line_of(view).bit_per_s
        if shown is None or not shown.probed or not line_bit_per_s:
            return False
        # What loses little does not overfill a queue.
        if shown.lost < WASTED:
            return False
        share = shown.mean_bytes_per_s / shown.most_bytes_per_s * (view.shown_bit_per_s or 0.0) / line_bit_per_s
        line = shown.mean_bytes_per_s / share
        return share < 1 - but_for and self._cubic_fills(view, SPARE * line)

# SPDX-License-Identifier: GPL-2.0-or-later
"""What changed settings would bring a session, from one untouched look at it: the model of `capacity`, made to fit.

What the look cannot tell stays open: then there is an interval, or no figure at all, and a note that says why.
"""

import math
from collections.abc import Mapping, Sequence

import attrs

from fabtune.model.as_seen import AsSeen
from fabtune.model.capacity import ALGORITHMS, LOSS_SPREAD, Bound, Capacity, Direction, carried, latency_s
from fabtune.model.change import Change, changing
from fabtune.model.observation import TARGET, Observation
from fabtune.model.one_path import by_path
from fabtune.model.session_model import DEPTHS, Supposed

# The model is taken to describe the session where it foretells what was seen to this share.
_EXPLAINED = 0.12
# So much of a request's time may be nobody's before more requests at once are no longer sure to help.
_UNEXPLAINED_TIME = 0.25
_MINOR = 0.01
# From here on it is a gain.
_GAIN = 1.05
_OF_LOSSES = ("loss", "congestion-window")
# The limits that are one disk's alone.
_OF_THE_DISK = ("load", "queue-depth", "nr-requests")
# What holds a session that the model does not explain.
UNKNOWN = "unknown"


@attrs.frozen
class Foretold:
    """One direction after the change: bytes/s, None where no figure can be given; `high` None is without a limit.

    `first` is what limits then; `latency_ms` is a request's mean time at the depth that the load keeps.
    """

    way: str
    now_bytes_per_s: float
    now: Bound
    bytes_per_s: float | None
    low: float
    high: float | None
    latency_ms: float | None
    first: Bound
    notes: tuple[str, ...]
    # Where other disks share session or line: what it would carry if each kept its part of it.
    in_step_bytes_per_s: float | None = None


def foretell(seen: Observation, changes: Mapping[Change, float | str]) -> list[Foretold]:
    """Return what each direction that moved anything would move after `changes`."""
    changes = changing(seen, changes)
    moved = sum(way.moved_bytes for way in seen.disk.ways.values())
    found = [_one(seen, way, changes) for way, one in seen.disk.ways.items() if one.moved_bytes > _MINOR * moved]
    return [_divided(seen, one) for one in _of_one_load(found)]


@attrs.frozen
class Together:
    """One direction of disks that share a line, in bytes/s: None where no figure can be given."""

    devices: tuple[str, ...]
    way: str
    now_bytes_per_s: float
    bytes_per_s: float | None


def of_one_line(told: Sequence[tuple[Observation, Sequence[Foretold]]]) -> list[Together]:
    """Return what the disks of one look whose data goes the same way would move together, where there are several."""
    of_nic: dict[tuple[str, ...], list[tuple[Observation, Sequence[Foretold]]]] = {}
    for seen, ways in told:
        if seen.beside and seen.beside.disks:
            # Of what leaves by an unknown NIC only the session is known.
            nic = (seen.initiator.nic.name,) if seen.initiator.nic else (seen.session.target, seen.session.portal)
            of_nic.setdefault(nic, []).append((seen, ways))
    groups: dict[tuple[int, str], list[tuple[str, Foretold]]] = {}
    paths = (path for disks in of_nic.values() for path in by_path(disks, lambda one: one[0].rtt_ms))
    for number, path in enumerate(paths):
        for seen, ways in path:
            for one in ways:
                groups.setdefault((number, one.way), []).append((seen.device, one))
    found = []
    for (_, way), disks in groups.items():
        figures = [one.in_step_bytes_per_s for _, one in disks]
        if len(disks) > 1:
            now = sum(one.now_bytes_per_s for _, one in disks)
            whole = None if None in figures else sum(one or 0.0 for one in figures)
            found.append(Together(tuple(name for name, _ in disks), way, now, whole))
    return found


def _divided(seen: Observation, one: Foretold) -> Foretold:
    """Return `one` as an interval where other disks have a part of what is gained or lost: which one, is not known."""
    of = AsSeen(seen, one.way)
    part, now = of.part_of_line, one.now_bytes_per_s
    one = attrs.evolve(one, in_step_bytes_per_s=one.bytes_per_s)
    if part == 1.0 or (one.bytes_per_s is not None and abs(one.bytes_per_s / now - 1) <= _MINOR):
        return one
    if one.first.limiter in _OF_THE_DISK and one.high is not None and one.high < now:
        return one
    # What all of them may carry, less what the others have now.
    most = math.inf if one.high is None else max(one.high, (one.high - now) / part + now)
    least = min(one.low, max(0.0, (one.low - now) / part + now))
    low, high = (now, most) if most > now else (least, now)
    names = ", ".join(seen.beside.disks) if seen.beside else ""
    note = f"shared with {names or 'other disks of the session'}: which gets how much of it is not known"
    return attrs.evolve(
        one, bytes_per_s=None, low=min(low, one.low), high=high if math.isfinite(high) else None, latency_ms=None,
        notes=(*one.notes, note),
    )  # fmt: skip


def _of_one_load(found: list[Foretold]) -> list[Foretold]:
    """Return both directions with the mix that they have now: a load waits for the slower one's requests."""
    grown = [one.bytes_per_s / one.now_bytes_per_s for one in found if one.bytes_per_s is not None]
    if len(grown) < max(2, len(found)):
        return found
    slower = found[grown.index(min(grown))]
    return [
        one if one.bytes_per_s is None else attrs.evolve(
            one, bytes_per_s=min(grown) * one.now_bytes_per_s, low=min(one.low, min(grown) * one.now_bytes_per_s),
            first=slower.first,
        )
        for one in found
    ]  # fmt: skip


@attrs.define
class _Open:
    """What stays open: the least and the most, and why."""

    low: float
    high: float
    notes: list[str]
    point: bool = True

    def leave(self, note: str, low: float, high: float, *, point: bool = False) -> None:
        self.low, self.high = min(self.low, low), max(self.high, high)
        self.notes.append(note)
        self.point = self.point and point


def _one(seen: Observation, way: str, changes: Mapping[Change, float | str]) -> Foretold:
    now = seen.disk.ways[way].moved_bytes / seen.disk.elapsed_s
    plain = Supposed(seen, way, {}).direction()
    if seen.rtt_ms is None or not plain.is_bounded:
        return _unexplained(seen, way, now, changes)
    before, missing_s = _fitted(plain, now)
    told = carried(before)
    supposed = Supposed(seen, way, changes)
    # What requests wait for a window that comes full now and then goes with the window.
    gone_s = missing_s if supposed.opens_window_full_for(missing_s / before.request_s) else 0.0
    after = attrs.evolve(supposed.direction(), service_s=before.service_s - gone_s)
    then = carried(after)
    factor = now / told.bytes_per_s
    explained = abs(1 - factor) < _EXPLAINED
    untouched = after == before
    expected = then.bytes_per_s
    if not gone_s and _falls_short_alike(before, after, explained=explained, short=factor < 1):
        expected *= factor
    left = _Open(expected, expected, list(supposed.notes))
    if not untouched and not explained and factor > 1:
        more = f"{(factor - 1):.0%} more is carried than the model explains"
        left.leave(more, min(now, then.bytes_per_s), max(now, then.bytes_per_s))
    elif not explained and (expected > 1.001 * now or (changes and _concerns_unseen(seen, changes))):
        left.leave(f"{(1 - factor):.0%} less is carried than the model explains", now, then.bytes_per_s)
    elif missing_s > _EXPLAINED * before.request_s and _concerns_unseen(seen, changes):
        most = carried(attrs.evolve(after, service_s=plain.service_s)).bytes_per_s
        left.leave(f"{1e3 * missing_s:.1f} ms of a request's time may be what is lifted there", expected, most)
    _of_disk(left, before, after, now)
    if supposed.shares_line and expected > now:
        left.leave("what others leave of the line to more data in flight is not known", now, expected)
    if not supposed.line_known:
        _without_line(left, seen, way, expected, now)
    if expected > _GAIN * now:
        _of_unseen(left, seen, missing_s - gone_s, before, then, now)
    if supposed.load_may_be_more and expected > now:
        left.leave("the load may not have more requests than are let through now", now, expected, point=True)
    if then.first.limiter == "receive-window" and supposed.window_spread > 1 and not untouched:
        kernel = supposed.kernel(then.first.end) or "one that is not seen"
        note = f"which share of its buffer the window is on kernel {kernel} is not known"
        next_bytes_per_s = then.bounds[1].bytes_per_s if len(then.bounds) > 1 else math.inf
        left.leave(note, expected, min(expected * supposed.window_spread, next_bytes_per_s))
    _of_losses(left, supposed, told, then, now)
    figure = expected if left.point and math.isfinite(expected) else None
    unknown = Bound(UNKNOWN, now)
    return Foretold(
        way=way, now_bytes_per_s=now, now=told.first if explained else unknown, bytes_per_s=figure,
        low=left.low, high=left.high if math.isfinite(left.high) else None,
        latency_ms=_latency_ms(supposed, after, then, figure),
        first=unknown if not explained and math.isclose(expected, now) else then.first, notes=tuple(left.notes),
    )  # fmt: skip


def _falls_short_alike(before: Direction, after: Direction, *, explained: bool, short: bool) -> bool:
    """Tell whether what is carried differs from the model's word after the change as it does before."""
    told, then = carried(before), carried(after)
    if (then.first.limiter, then.first.end) != (told.first.limiter, told.first.end):
        return False
    # Gaps in a line that is nearly full are those of writes that wait for R2Ts.
    if then.first.limiter == "line" and after.round_trips < before.round_trips:
        return False
    return explained or after == before or (short and then.bytes_per_s == told.bytes_per_s)


def _of_disk(left: _Open, before: Direction, after: Direction, now: float) -> None:
    """Leave open what more requests at once are to a disk of the target that was busy with all that there were."""
    told, then = carried(before), carried(after)
    deeper = min(after.depths.values(), default=math.inf) > min(before.depths.values(), default=math.inf)
    if deeper and told.first.limiter in DEPTHS and then.first.limiter == "target-disk":
        most = min((one.bytes_per_s for one in then.bounds if one.limiter != "target-disk"), default=math.inf)
        left.leave("whether the target's disk does more at once is not known", now, most)


def _unexplained(seen: Observation, way: str, now: float, changes: Mapping[Change, float | str]) -> Foretold:
    """Return what is foretold where nothing is known of what holds the session: nothing, unless nothing changes."""
    unknown = Bound(UNKNOWN, now)
    if not changes:
        return Foretold(way, now, unknown, now, now, now, None, unknown, ())
    rate = seen.rate_bytes_per_s
    note = "no bound of the session is known" if seen.rtt_ms else "no connection of the session is seen from here"
    most = seen.payload_of(rate) if rate else None
    return Foretold(way, now, unknown, None, 0.0, most, None, unknown, (note,))


def _is_unseen(seen: Observation) -> bool:
    """Tell whether the target's end was not looked at."""
    return seen.target is None or (seen.target.socket is None and not seen.session.rdma)


def _concerns_unseen(seen: Observation, changes: Mapping[Change, float | str]) -> bool:
    """Tell whether a change is at an end that was not looked at, and may lift what is not seen from the other."""
    return _is_unseen(seen) and any(change.end == TARGET for change in changes)


def _of_unseen(left: _Open, seen: Observation, unknown_s: float, before: Direction, then: Capacity, now: float) -> None:
    """Leave open a gain that something which was not seen may take: behind a part of a request's time, or next."""
    unseen, expected = _is_unseen(seen), then.bytes_per_s
    if unknown_s > _UNEXPLAINED_TIME * before.request_s and (unseen or then.first.limiter in DEPTHS):
        left.leave(f"{1e3 * unknown_s:.1f} ms of a request's time are the target's or unknown", now, expected)
    elif unseen:
        left.leave("whether the target's end can do so much is not seen from here", now, expected, point=True)


def _fitted(one: Direction, now: float) -> tuple[Direction, float]:
    """Return `one` with the service time that makes its depth carry `now`, and how much of that nothing explains.

    Only where the depth is what holds it: elsewhere a request's time is a queue's.
    """
    told = carried(one)
    if told.first.limiter not in DEPTHS or now >= told.bytes_per_s:
        return one, 0.0
    more_s = one.request_s * (told.bytes_per_s / now - 1) / (one.share if one.other_s is not None else 1.0)
    return attrs.evolve(one, service_s=one.service_s + more_s), more_s


def _without_line(left: _Open, seen: Observation, way: str, expected: float, now: float) -> None:
    """Leave open what nobody told: the line's rate, of which what was seen on it is the least."""
    sender = seen.sender(way)
    samples = sender.socket.samples if sender and sender.socket else ()
    shown = max([now, *(float(one.delivery_bytes_per_s) for one in samples if not one.app_limited)])
    if expected > 1.02 * shown:
        nic = seen.initiator.nic
        speed = nic.speed_bytes_per_s if nic else None
        most = min(expected, seen.payload_of(speed)) if speed else expected
        left.leave("the line's rate is not known (--rate)", min(shown, expected), most)


def _of_losses(left: _Open, supposed: Supposed, told: Capacity, then: Capacity, now: float) -> None:
    """Leave open what losses leave, and what another congestion control would make of them."""
    algorithm, few = supposed.other_algorithm, supposed.few_losses_leave / LOSS_SPREAD
    if then.bytes_per_s > now and few < then.bytes_per_s:
        left.leave("a few losses were seen, which may leave less of it", max(now, few), then.bytes_per_s)
    without = min((one.bytes_per_s for one in then.bounds if one.limiter != "loss"), default=math.inf)
    if algorithm and algorithm not in ALGORITHMS:
        left.leave(
            f"of congestion control '{algorithm}' nothing is known, only of {', '.join(ALGORITHMS)}", 0.0, without
        )
        return
    roughly = then.bytes_per_s / LOSS_SPREAD, min(then.bytes_per_s * LOSS_SPREAD, without)
    if algorithm and {told.first.limiter, then.first.limiter} & set(_OF_LOSSES):
        left.leave("what another congestion control makes of losses is not known", min(now, roughly[0]), roughly[1])
    elif then.first.limiter == "loss" != told.first.limiter:
        left.leave("what losses leave is known only roughly", *roughly, point=True)


def _latency_ms(reading: Supposed, after: Direction, then: Capacity, figure: float | None) -> float | None:
    # How many requests the load would keep under way is known only where all that it has are seen now.
    if figure is None or reading.load_depth is None or reading.load_may_be_more or reading.changes_read_ahead:
        return None
    # Both directions share the depth, and their requests wait in the same line for their turns.
    share = after.share if after.share else 1.0
    least = min(after.depths.values(), default=math.inf)
    depth = min(reading.load_depth, least) if then.first.limiter in DEPTHS else reading.load_depth
    return 1e3 * latency_s(share * depth, after.request_bytes, figure)

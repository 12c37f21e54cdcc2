# SPDX-License-Identifier: GPL-2.0-or-later
"""What may be tried next, the likeliest first: what lifts the limiters, and what shortens queues."""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

import attrs

from fabtune.autotune.goal import Aim, Goal
from fabtune.autotune.learnt import OVERFLOW, SPARE, WASTED, Learnt
from fabtune.autotune.shown_line import shown_line
from fabtune.autotune.view import View
from fabtune.model.observation import ENDS, INITIATOR, TARGET
from fabtune.model.one_path import alike
from fabtune.tune.lift import Limited, Reason, profile_for
from fabtune.why.judging import Judged, Share
from fabtune.why.limiters.congestion import CONGESTION, LOSS, SLOW_START
from fabtune.why.limiters.line import COMPETING, LINE_OR_BUFFER
from fabtune.why.limiters.requests import R2T
from fabtune.why.limiters.windows import BUFFER, WINDOW, WINDOW_OR_LINE
from fabtune.why.one_way import OneWay
from fabtune.why.summing_up import nic_bytes_per_s

# What paces, what takes that away, and what bounds the requests that queue.
_WAN, _CLEAN, _UNPACED, _SHORT_QUEUE = "wan", "wan-clean", "unpaced", "short-queue"
# Where not even a NIC tells how fast it is.
_MOST_GAIN = 100
QUEUED_REQUESTS, PATH_QUEUE = "queued-requests", "path-queue"
TOLD_PACE, PROBING = "told-pace", "probing"
_AS_SHOWN = "wire_overhead=0"
# Of the rate that a line showed, headers included.
_BELOW = 0.995
# Less of a line is not worth another congestion control.
_WORTH = 0.02
_PACES = ("connection.pacing", "qdisc.maxrate")
_SPACED, _CONGCTL = "qdisc.kind", "route.congctl"
_PACING = (*_PACES, _SPACED)
_HELD = (BUFFER.name, WINDOW.name, WINDOW_OR_LINE.name)
_AGGRESSIVE = {LOSS.name, CONGESTION.name, OVERFLOW}
# So much under way fills the line whatever bursts it comes in; more is a queue.
_BDPS, _REQUESTS = 2, 2


@attrs.frozen
class Wanted:
    """A step to try: against what, with which profile's rows, and those of disks at `disks` alone (none: at all)."""

    reason: Reason
    # Whether nobody vouches for the rate that is planned for.
    estimated: bool = False
    settings: tuple[str, ...] = ()
    disks: frozenset[str] = frozenset()
    # Whether it serves as well to send less again, and to be no slower.
    spares: bool = False
    # What it makes no sense without: the rest alone is another step.
    needs: str = ""
    # What is written with it where it is felt by a new connection, and not for its own sake.
    beside: tuple[Share, ...] = ()

    @property
    def whole(self) -> Reason:
        """The reason of everything that is written."""
        return attrs.evolve(self.reason, shares=(*self.reason.shares, *self.beside))


def wanted_steps(now: View, aim: Aim, learnt: Learnt) -> Iterator[Wanted]:
    """Yield what may serve `aim` and was not tried yet; not every one has anything to write."""
    tried, line, yields = learnt.tried, learnt.line_of(now), learnt.yields(now)
    if aim.goal is Goal.LATENCY:
        yield from _shorter_queues(now, aim, tried)
    minding_losses = LOSS.name not in tried and not yields
    if minding_losses and learnt.behind_losses:
        yield _against(now, lambda way: _lost(way) if (way.device, way.way) in learnt.behind_losses else [])
    probes = PROBING not in tried and not yields
    # What is paced shows its pace, unless it was no slower for that.
    overfilled = probes and learnt.overfilled(now) and (TOLD_PACE in tried or not now.main_is_paced)
    if overfilled:
        yield _without_probing(now, line.bit_per_s)
    # At the bound nothing is to be lifted; but a line that is full on average may lose, and be idle now and then.
    yield from _lifting(now, learnt)
    if yields and COMPETING.name not in tried:
        yield _against(now, _sharing)
    if now.lossy_line and not yields:
        lose_little = [now.loses_little(one) for one in now.ways if one.way == now.main.way]
        worth_it = minding_losses and not all(lose_little)
        pacing, minding = _against_overflow(now, tried, line.pace_bit_per_s), [_against(now, _lost)] * worth_it
        # A pace of what was an average would keep to that.
        first, second = (minding, pacing) if now.shown and now.shown.averaged else (pacing, minding)
        yield from first
        yield from second
    if probes and not overfilled and learnt.probed_in_vain(now, but_for=_WORTH):
        yield _without_probing(now, line.bit_per_s)
    # Without a pace no request is shorter.
    if aim.goal is not Goal.LATENCY and TOLD_PACE not in tried:
        yield from _without_pace(now, now.paced)
    if aim.goal is Goal.BOTH:
        yield from _shorter_queues(now, aim, tried)


def _lifting(now: View, learnt: Learnt) -> Iterator[Wanted]:
    """Yield what lifts the limiters of now, those first that take most of the time."""
    # What takes no loss for congestion leaves others little, and a pace would keep to what they have left.
    line, tried = learnt.line_of(now), learnt.tried | _unfair(now, learnt)
    yield from _against_overflow(now, tried, now.overflowing_bit_per_s)
    # What loses, and has nearly all of the line, fills its queue as a rule, which a pace empties without a pause.
    if now.overfills or now.floods:
        rate = line.flooded_bit_per_s if now.floods else line.pace_bit_per_s
        yield from _against_overflow(now, tried, rate)
    shares = tuple(share for share in to_lift(now, learnt) if share.limiter not in tried)
    # Where there is nothing to write against the largest ones, the others may have something.
    minding = LOSS.name not in tried
    for first in range(len(shares)):
        yield _against(now, _among(shares[first:]), minding)
        yield from _wider(now, shares[first:], line.bit_per_s)
    if LINE_OR_BUFFER.name not in tried and any(map(_perhaps_buffer, now.ways)):
        yield _against(now, _perhaps_buffer, minding)
    # A queue too short to be seen overflows all the same.
    if now.lossy:
        yield from _against_overflow(now, tried, line.pace_bit_per_s)


def to_lift(now: View, learnt: Learnt) -> Iterator[Share]:
    """Yield what of the limiters of now settings lift, at whichever end, whether it was tried or not."""
    unfair = _unfair(now, learnt)
    for way in now.ways:
        for share in _liftable(way):
            costs = share.limiter != LOSS.name or not now.loses_little(way)
            if share.lifts and share.limiter not in unfair and costs:
                yield share


def _unfair(now: View, learnt: Learnt) -> set[str]:
    """Return the limiters that nothing is written against where others are to keep their part of the line."""
    return _AGGRESSIVE if learnt.yields(now) else set()


def _wider(now: View, shares: Sequence[Share], line_bit_per_s: float) -> Iterator[Wanted]:
    """Yield buffers for the rate at which data has arrived: that is no estimate, which memory would bound."""
    held = [share for share in shares if share.limiter in _HELD]
    if held and line_bit_per_s and now.rate_bit_per_s is None:
        found = _against(now, _among(held))
        yield attrs.evolve(found, reason=attrs.evolve(found.reason, rate_bit_per_s=line_bit_per_s), estimated=False)


def _against(now: View, of: Callable[[Judged], Sequence[Share]], minding_losses: bool = False) -> Wanted:
    """Return what lifts the shares `of` each direction, and the losses that would hold it next where asked for."""
    shares = tuple(dict.fromkeys(share for way in now.ways for share in of(way)))
    beside = {id(way): _beside(now.one_way(way), of(way), minding_losses) for way in now.ways}
    whose = _disks(now, lambda way: [*of(way), *beside[id(way)]])
    # What is planned for the longest path is an upper limit for the others.
    asking = max((one.seen for one in whose if one.shares), key=lambda one: one.rtt_ms or 0.0, default=now.seen[0])
    every = tuple(dict.fromkeys(share for found in beside.values() for share in found))
    lossy = any(one.profile == LOSS.profile for one in every)
    profile = LOSS.profile if lossy else profile_for(asking, shares)
    reason = _reason(profile, _rate_to_plan_for(now), shares, whose)
    return Wanted(reason, estimated=now.rate_bit_per_s is None, beside=every)


def _reason(profile: str, rate_bit_per_s: float, shares: tuple[Share, ...], whose: Sequence[Limited]) -> Reason:
    """Return why to write rows of `profile`, for the longest path of those disks that have one of `shares`."""
    rtts_ms = [one.seen.rtt_ms for one in whose if one.shares and one.seen.rtt_ms]
    return Reason(profile, rate_bit_per_s, (), shares, tuple(whose), max(rtts_ms, default=None))


def _beside(one_way: OneWay, shares: Sequence[Share], minding_losses: bool) -> list[Share]:
    """Return what a connection made anew anyway is given with it: what would limit next takes another one else.

    Buffers, round trips for R2Ts, a beginning that does not stop early, and data that does not leave in bursts; what
    takes no loss for congestion where the losses of now leave a larger window no room, if asked for.
    """
    sender, receiver = (TARGET, INITIATOR) if one_way.way_name == "read" else (INITIATOR, TARGET)
    wider = any(one.limiter in (*_HELD, LINE_OR_BUFFER.name) for one in shares)
    lossy = minding_losses and wider and _losses_leave_no_room(one_way)
    lifts = [
        ((*BUFFER.lifts, *SLOW_START.lifts, _SPACED), (sender,)), (WINDOW.lifts, (receiver,)),
        (R2T.lifts if one_way.r2t_round_trips else (), ENDS),
        (LOSS.lifts if any(one.limiter == CONGESTION.name for one in shares) else (), (sender,)),
    ]  # fmt: skip
    found = [attrs.evolve(shares[0], lifts=names, ends=ends) for names, ends in lifts if names and shares]
    minding = [attrs.evolve(shares[0], lifts=LOSS.lifts, ends=(sender,), profile=LOSS.profile)] if lossy else []
    return found + minding


def _losses_leave_no_room(one_way: OneWay) -> bool:
    """Tell whether cubic would have little more for a larger window, as much as is lost now."""
    shown = shown_line([one_way])
    if shown is None or not shown.sent_again or shown.probed:
        return False
    return shown.cubic_bytes_per_s(shown.lost) < SPARE * shown.mean_bytes_per_s


def _sender(way: Judged) -> str:
    return TARGET if way.way == "read" else INITIATOR


def _liftable(way: Judged) -> list[Share]:
    """Return what settings lift of what limits a direction, a window that may be all of it first: a trial tells."""
    perhaps = [] if way.line_is_full else [one for one in way.shares if one.limiter == WINDOW_OR_LINE.name]
    ends = tuple(one for one in ENDS if one != _sender(way))
    return [*(attrs.evolve(one, lifts=WINDOW.lifts, ends=ends) for one in perhaps), *way.liftable]


def _sharing(way: Judged) -> list[Share]:
    """Return what lets a direction have its part of a line that others use, too: its window as far as losses let it."""
    sender = _sender(way)
    share = Share(COMPETING.name, 1.0, "others' traffic", lifts=BUFFER.lifts, ends=(sender,), profile=_WAN)
    return [share, attrs.evolve(share, lifts=WINDOW.lifts, ends=tuple(one for one in ENDS if one != sender))]


def _perhaps_buffer(way: Judged) -> list[Share]:
    """Return what lifts a buffer that lets data leave in bursts, where that or the line is what limits."""
    found = [] if way.line_is_full else [one for one in way.shares if one.limiter == LINE_OR_BUFFER.name]
    return [attrs.evolve(one, lifts=BUFFER.lifts, ends=(_sender(way),)) for one in found]


def _lost(way: Judged) -> list[Share]:
    """Return the share of what a line loses that is full on average: all that it has below its best."""
    sender = _sender(way)
    return [Share(LOSS.name, 1.0, "packets lost", lifts=LOSS.lifts, ends=(sender,), profile=LOSS.profile)]


def _without_probing(now: View, line_bit_per_s: float) -> Wanted:
    """Return what fills the line as well without probing for more than it has."""
    sender = _sender(now.main)
    lifts = (*_PACING, _CONGCTL)
    share = Share(PROBING, 1.0, "a congestion control that probes", lifts=lifts, ends=(sender,), profile=_CLEAN)
    reason = _reason(_CLEAN, _BELOW * line_bit_per_s, (share,), _disks(now, lambda way: [share]))
    return Wanted(reason, settings=(_AS_SHOWN, *_as_counted(now), *_divided(now)), spares=True, needs=_CONGCTL)


def _against_overflow(now: View, tried: Collection[str], rate: float | None) -> Iterator[Wanted]:
    """Yield what sends no faster than `rate`, in bit/s, so that the path's queue does not overflow."""
    overflowing = partial(_overflowing, flooding=now.main.way if now.floods else "")
    whose = _disks(now, overflowing)
    shares = tuple(share for way in now.ways for share in overflowing(way))
    if now.shown and now.shown.probed and now.shown.lost < WASTED:
        # It keeps to what the line has by itself.
        return
    if rate is not None and shares and OVERFLOW not in tried:
        # What probes takes no loss for congestion, and gives away some percent of its pace by itself.
        below = 1.0 if now.shown and now.shown.probed else _BELOW
        # The rate of a line as payload showed it, with headers: what Linux does not count of a packet is not in it.
        settings = (_AS_SHOWN, *_as_counted(now), *_divided(now))
        yield Wanted(_reason(_WAN, below * rate, shares, whose), settings=settings, spares=True)


def _divided(now: View) -> tuple[str, ...]:
    """Tell both ends among how many sessions a line is divided that these showed, where they are always busy together.

    A target does not see what is built on its disks; what some of the sessions had of a line is not divided again.
    """
    together = min(one.session.striped for one in now.seen)
    if together == 1:
        return ()
    every = now.connections({one.device for one in now.seen})
    return (f"busy_sessions={together if every >= together else 1}",)


def _without_pace(now: View, paced: Sequence[Judged]) -> Iterator[Wanted]:
    """Yield what takes the pace away from what is `paced`: it was told, or written for another path.

    Whether the line carries more shows in nothing else.  Limits that somebody set by hand are not fabtune's to write.
    """
    shares = {
        id(way): Share(
            TOLD_PACE, 1.0, "a pace that was told", lifts=_PACES,
            ends=(_sender(way),), profile=_UNPACED,
        )
        for way in paced
    }  # fmt: skip
    if shares:
        whose = _disks(now, lambda way: [shares[id(way)]] if id(way) in shares else [])
        every = tuple(dict.fromkeys(shares.values()))
        yield Wanted(_reason(_UNPACED, _rate_to_plan_for(now), every, whose), estimated=True)


def _among(shares: Sequence[Share]) -> Callable[[Judged], Sequence[Share]]:
    return lambda way: [share for share in _liftable(way) if share in shares]


def _overflowing(way: Judged, flooding: str) -> list[Share]:
    """Return what paces a direction that loses, or fills its line, or is the one that floods a queue."""
    if way.line_is_full or way.way == flooding:
        sender = _sender(way)
        return [Share(OVERFLOW, 1.0, "a queue on the path that overflows", lifts=_PACING, ends=(sender,), profile=_WAN)]
    lossy = (share for share in way.liftable if share.limiter == LOSS.name)
    return [attrs.evolve(share, limiter=OVERFLOW, lifts=_PACING, profile=_WAN) for share in lossy]


def _disks(now: View, of: Callable[[Judged], Sequence[Share]]) -> tuple[Limited, ...]:
    """Return each disk with the shares `of` its directions: nobody else's session is to be written to."""
    found = {one.device: one for one in now.seen}
    return tuple(
        Limited(one, tuple(share for way in now.ways if way.device == name for share in of(way)))
        for name, one in found.items()
    )


def _rate_to_plan_for(now: View) -> float:
    """Return the line's rate where it is known, else what it cannot be above: reads to measure it wait behind the load.

    No less than what the load already has of it.
    """
    speeds = [8 * speed for one in now.seen if (speed := nic_bytes_per_s(one))]
    upper = max(speeds, default=_MOST_GAIN * 8 * now.bytes_per_s)
    return max(now.rate_bit_per_s or upper, 8 * now.bytes_per_s)


def _shorter_queues(now: View, aim: Aim, tried: Collection[str]) -> Iterator[Wanted]:
    """Yield what keeps requests from standing behind others: fewer of a stream's under way, and pacing to the line."""
    if QUEUED_REQUESTS not in tried:
        yield from _fewer_under_way(now, aim)
    rate = now.rate_bit_per_s or now.filled_bit_per_s
    if rate is not None and now.queue_on_path and PATH_QUEUE not in tried:
        share = Share(PATH_QUEUE, 1.0, "a queue on the path", lifts=_PACING, ends=ENDS, profile=_WAN)
        # What is told of a line holds for a connection that is busy alone; these were seen to fill it together.
        busy = max(1, now.connections(_streams(now, aim)))
        shown = () if now.rate_bit_per_s else (_AS_SHOWN, f"busy_sessions={busy}")
        settings = (*shown, *_as_counted(now))
        yield Wanted(_reason(_WAN, rate, (share,), _disks(now, lambda _: [share])), settings=settings)


def _as_counted(now: View) -> tuple[str, str]:
    """Return what makes a pace the same share of the line where TCP counts payload and where fq counts packets."""
    payload = max(one.mss_bytes for one in now.seen)
    return f"packet={now.on_the_wire(payload) / 8:.0f}", f"payload={payload}"


def _streams(now: View, aim: Aim) -> frozenset[str]:
    """Return the disks that stand beside no stream."""
    every = frozenset(now.under_way_bytes)
    return every - aim.disks or every


def _fewer_under_way(now: View, aim: Aim) -> Iterator[Wanted]:
    """Yield what leaves so many requests of streams under way as the path of each has room for."""
    known = now.rate_bit_per_s or now.filled_bit_per_s
    rate = known or 8 * now.bytes_per_s
    under_way, streams = now.under_way_bytes, _streams(now, aim)
    sizes = {one.device: one.disk.request_bytes for one in now.seen}
    # They share the line.
    each_bytes_per_s = rate / 8 / len(streams)
    rooms = {one.device: _BDPS * each_bytes_per_s * (one.rtt_ms or 0.0) / 1e3 for one in now.seen}
    long = frozenset(disk for disk in streams if under_way[disk] > rooms[disk] + _REQUESTS * sizes[disk] > 0)
    if long:
        # The largest decides: with fewer of them under way than that the line runs dry between two.
        size = max(sizes[disk] for disk in long)
        share = Share(
            QUEUED_REQUESTS, 1.0, "requests that queue for the line", lifts=("block.queue_depth",), ends=(INITIATOR,),
            profile=_SHORT_QUEUE,
        )  # fmt: skip
        mine = [one for one in now.seen if one.device in long]
        # One value for all of them: the farthest must not run dry.
        rtt_ms = max((one.rtt_ms for one in mine if one.rtt_ms), default=None)
        apart = any(one.rtt_ms and rtt_ms and not alike(one.rtt_ms, rtt_ms) for one in mine)
        shared = ("share_path=1",) if apart else ()
        settings = (f"io_size={size:.0f}", f"streams={len(long)}", *shared)
        yield Wanted(Reason(_SHORT_QUEUE, rate, (), (share,), rtt_ms=rtt_ms), known is None, settings, long)

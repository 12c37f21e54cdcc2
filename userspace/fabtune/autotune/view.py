# SPDX-License-Identifier: GPL-2.0-or-later
"""One look at the sessions as tuning needs it: what limits them, and how fast they were second by second."""

import statistics
from collections.abc import Collection, Sequence

import attrs

from fabtune.autotune.goal import Block
from fabtune.autotune.moved import gone, in_blocks, is_connected, moving
from fabtune.autotune.shown_line import ShownLine, blocks_sent_again, shown_line
from fabtune.errors import CannotTellError, FabtuneError
from fabtune.measure.look import Look
from fabtune.measure.request_times import RequestTimes
from fabtune.model.observation import WAYS, Observation
from fabtune.model.path import LINUX_FRAMING
from fabtune.tune.lift import TO_PROFILE, with_known_rate
from fabtune.why import words
from fabtune.why.judging import Judged, judged
from fabtune.why.limiters.congestion import CONGESTION, LOSS
from fabtune.why.limiters.line import COMPETING, OURS, PACED_OR_LINE, PACING, SLOWER_LINK
from fabtune.why.limiters.windows import BUFFER, WINDOW, WINDOW_OR_FETCHING, WINDOW_OR_LINE
from fabtune.why.one_way import OneWay
from fabtune.why.slices import paced_to

# Bytes come in bursts: over this long, and this many round trips, a rate is one.  Few blocks are judged by their means,
# which show that somebody stops now and then.
_BLOCK_S, _BLOCK_RTTS, _BLOCKS = 1.0, 4, 7
# Of what a line carries; less is what tuning may leave.  And so much that its queue, not its losses, may hold a load.
_WORTH_MORE, _NEARLY = 0.02, 0.1
# A congestion control needs new connections, and where it goes back a longer pause: so much less is not worth both.
_WORTH_A_PAUSE = 0.03
# What single round trips show is a little above what a line carries.  Where losses cost something they show peaks.
_SAMPLED, _PEAKS = 0.03, 0.05
# Averages over half a second of a sawtooth differ by more.
_WANDERS = 0.01
_HOLD = frozenset({BUFFER.name, WINDOW.name, WINDOW_OR_LINE.name, WINDOW_OR_FETCHING.name})
# Few paths lose so much by themselves.
_FLOODS = 0.05
_IDLE = "nothing moves on these disks: put them under their load, and tune them then; or have tune read one of them:"


@attrs.frozen
class View:
    """What one look saw: `ways` are judged with the line's rate as far as it is known."""

    seen: tuple[Observation, ...]
    ways: tuple[Judged, ...]
    blocks_bytes_per_s: tuple[float, ...]
    # How long requests took, where that was asked for.
    times: tuple[Block, ...] = ()
    # What the senders of the direction that moved most sent again for what arrived of it (`blocks_sent_again`).
    sent_again_shares: tuple[float, ...] = ()
    # What moved in looks before this one at the same values, which are judged with it.
    earlier_bytes_per_s: tuple[float, ...] = ()

    def behind(self, earlier: "View") -> "View":
        """Return this look with the figures of an earlier one at the same values, to be judged by both."""
        return attrs.evolve(
            self, blocks_bytes_per_s=earlier.blocks_bytes_per_s + self.blocks_bytes_per_s,
            times=earlier.times + self.times, sent_again_shares=earlier.sent_again_shares + self.sent_again_shares,
            earlier_bytes_per_s=(*earlier.earlier_bytes_per_s, earlier.last_bytes_per_s),
        )  # fmt: skip

    def ahead_of(self, later: "View") -> "View":
        """Return this look, which shows what limits, with the figures of a later one at the same values."""
        rates = (*self.earlier_bytes_per_s, later.last_bytes_per_s)
        return attrs.evolve(later.behind(self), seen=self.seen, ways=self.ways, earlier_bytes_per_s=rates)

    @property
    def looks(self) -> int:
        """How many looks its figures are of."""
        return 1 + len(self.earlier_bytes_per_s)

    @property
    def bytes_per_s(self) -> float:
        """What all disks moved, both ways, in all looks that it is judged by."""
        return statistics.mean([*self.earlier_bytes_per_s, self.last_bytes_per_s])

    @property
    def last_bytes_per_s(self) -> float:
        """What they moved in this look alone."""
        return sum(one.bytes_per_s for one in self.ways)

    @property
    def main(self) -> Judged:
        """The fastest disk's part of the direction that moved most."""
        return max(self._main, key=lambda one: one.bytes_per_s)

    @property
    def _main(self) -> list[Judged]:
        """What each disk moved in the direction in which all together moved most."""
        found = [[one for one in self.ways if one.way == name] for name in WAYS]
        # Where requests wait and nothing moves it is the one in which they do.
        return max(found, key=lambda ways: (sum(one.bytes_per_s for one in ways), len(ways)))

    @property
    def at_the_bound(self) -> bool:
        """Whether the line is full."""
        return all(one.line_is_full for one in self.ways)

    @property
    def verdict(self) -> str:
        """What limits the direction that moved most, in a sentence."""
        return words.verdict(self.main)

    @property
    def unconnected(self) -> list[str]:
        """The disks whose session had no TCP connection of its own while it was looked at, or lost it."""
        return [one.device for one in self.seen if not (is_connected(one) or one.session.rdma)]

    @property
    def gone_bytes_per_s(self) -> dict[str, float]:
        """The disks that went away while they were looked at, and what each moved until then."""
        return gone(self.seen)

    @property
    def rtt_ms(self) -> float | None:
        """The longest of the paths' round trips."""
        return max((one.rtt_ms for one in self.seen if one.rtt_ms), default=None)

    @property
    def rate_bit_per_s(self) -> float | None:
        """The line's rate where it is known."""
        rates = [one.rate_bytes_per_s for one in self.seen if one.rate_bytes_per_s]
        return 8 * max(rates) if rates else None

    @property
    def overflowing_bit_per_s(self) -> float | None:
        """The line's rate where what is lost is what this load itself does to its queue; None where it is not.

        It shows while a queue stands on the path.
        """
        return max((self.on_the_wire(rate) for one in self.lossy if (rate := one.queued_bytes_per_s)), default=None)

    @property
    def sawtooth(self) -> bool:
        """Whether losses hold the load now and then, and it goes up and down between them."""
        return bool(self.lossy) or self.lossy_line

    @property
    def nearly_full(self) -> bool:
        """Whether all that moves most loses packets, and is near what the line delivers at its best all the same."""
        return all(map(_loses, self._main)) and self.shown is not None and self.shown.full(but_for=_NEARLY)

    @property
    def main_is_full(self) -> bool:
        """Whether what moves most fills the line, or nearly, whatever moves the other way."""
        return all(one.line_is_full for one in self._main) or self.nearly_full or self.floods

    @property
    def main_is_paced(self) -> bool:
        """Whether any of what moves most leaves no faster than it was told to."""
        return any(one in self.paced for one in self._main)

    def held_for(self, share: float) -> bool:
        """Tell whether a window or a buffer of what moves most is full for more than that share of the time.

        Its best moments are that one's then.
        """
        return any(one.share > share and one.limiter in _HOLD for way in self._main for one in way.shares)

    @property
    def overfills(self) -> bool:
        """Whether such a load shows what the line carries, and little but the queue that it fills is to be changed.

        That of one connection: a pace of what several have together holds none of them back.
        """
        shown = self.shown
        alone = self.nearly_full and not self.held_for(0.0) and shown is not None and shown.senders == 1
        return alone and shown is not None and shown.best(but_for=_SAMPLED)

    @property
    def floods(self) -> bool:
        """Whether what probes for more than there is has so much to send again that it overflows a queue on the path.

        What limits it may be said to be its buffer, or the line, as it takes no loss for congestion.  That of one
        connection: of several it is not known which of them does.
        """
        shown = self.shown
        if shown is None or shown.senders > 1 or not shown.sent_again:
            return False
        return shown.probed and shown.lost >= _FLOODS

    @property
    def lossy_line(self) -> bool:
        """Whether a line of a rate that nobody told is full on average, and for losses less than it is at its best."""
        shown = self.shown
        lost = shown is not None and shown.sent_again and not shown.full(but_for=_WORTH_MORE)
        return lost and self.filled_bit_per_s is not None

    @property
    def shown(self) -> ShownLine | None:
        """What the senders of the direction that moved most show of the line."""
        return shown_line(self.main_ways)

    @property
    def shown_bit_per_s(self) -> float | None:
        """What the line carried in the best moments of the direction that moved most."""
        return self.on_the_wire(self.shown.most_bytes_per_s) if self.shown else None

    def on_the_wire(self, bytes_per_s: float) -> float:
        """Return bit/s of the line for payload of such a rate."""
        mss, headers = max((one.mss_bytes, one.header_bytes) for one in self.seen)
        return 8 * bytes_per_s * (mss + headers + LINUX_FRAMING) / mss

    @property
    def main_ways(self) -> list[OneWay]:
        """What was seen of all that moves in the direction that moved most."""
        return [self.one_way(one) for one in self._main]

    def one_way(self, way: Judged) -> OneWay:
        """Return what was seen of a direction."""
        return OneWay(self._of(way), way.way)

    def loses_little(self, way: Judged) -> bool:
        """Tell whether a direction that losses limit has as much, all the same, as its sender ever delivered.

        Losses that cost something leave a sawtooth: its mean is a tenth and more below its peaks.
        """
        shown = shown_line([self.one_way(way)])
        if shown is None or not shown.full(but_for=_WORTH_A_PAUSE):
            return False
        # One of few round trips shows in single ones alone, if these can be told from their jitter; averages wander.
        return shown.jitters or shown.steady(but_for=_PEAKS) or shown.averaged and shown.full(but_for=_WANDERS)

    @property
    def lossy(self) -> list[OneWay]:
        """The directions that losses hold back."""
        names = {way.way for way in self.ways if _loses(way)}
        return [OneWay(one, name) for one in self.seen for name in sorted(names)]

    @property
    def losing(self) -> frozenset[tuple[str, str]]:
        """Which disks' directions those are, or losses before the look, which left a small window; no other disk's."""
        return frozenset((way.device, way.way) for way in self.ways if _loses(way) or self.began_with_losses(way))

    def began_with_losses(self, way: Judged) -> bool:
        """Tell whether a window limits a direction that losses from before the look may have left so small."""
        sender = self.one_way(way).sender
        if not any(one.limiter == CONGESTION.name for one in way.liftable) or sender is None or sender.socket is None:
            return False
        return sender.socket.samples[0].retransmitted_bytes > 0

    @property
    def queue_on_path(self) -> bool:
        """Whether a queue stands on the path, whoever fills it."""
        return any(OneWay(one, name).queued_bytes_per_s for one in self.seen for name in WAYS)

    @property
    def under_way_bytes(self) -> dict[str, float]:
        """What the requests of each disk that the driver was given carry, on average (Little)."""
        return {one.device: sum(_carried(OneWay(one, name)) for name in WAYS) for one in self.seen}

    @property
    def filled_bit_per_s(self) -> float | None:
        """The line's rate as a load that filled it shows it, None where it did not, or the rate was known.

        Sessions that share a line show it in their sum alone; those that do not show more than any line has.
        """
        if not self.at_the_bound or self.rate_bit_per_s is not None:
            return None
        return self.on_the_wire(sum(one.bytes_per_s for one in self._main))

    def connections(self, disks: Collection[str]) -> int:
        """Return how many connections carry the data of `disks`."""
        ends = (one.initiator.socket for one in self.seen if one.device in disks)
        return len({(end.local, end.remote) for end in ends if end})

    @property
    def missing(self) -> list[str]:
        """What could not be seen, or was told and is not so."""
        return list(dict.fromkeys(text for one in self.seen for text in one.missing))

    @property
    def paced(self) -> tuple[Judged, ...]:
        """The directions in which no more leaves than this host or the target was told to let leave.

        Whether the line carries more nobody knows: none of it waits on the path.
        """
        return tuple(way for way in self.ways if _is_paced(way, self._of(way)))

    @property
    def rate_doubts(self) -> list[str]:
        """A sentence on each rate of the line that was told and that a queue on the path contradicts."""
        return [text for way, told in self._told if (text := _rate_doubt(way, told))]

    @property
    def pace_doubts(self) -> list[str]:
        """A sentence on each rate of the line that was told and that nothing seen here confirms."""
        return [
            f"{told} is full because this host's or the target's connections are paced to it: it may carry more"
            for way, told in self._told
            if way.line_is_full and _is_paced(way, self._of(way))
        ]

    def rates_above(self, shown_bit_per_s: float) -> list[str]:
        """Return a sentence on each rate of the line that was told and is not that at which its queue overflowed."""
        return [
            f"{told} lost what did not fit into its queue at {shown_bit_per_s / 1e6:.1f} Mb/s: others have the "
            "rest, or it is not the line's rate"
            for way, told in self._told
            if max(shown_bit_per_s, self.on_the_wire(way.together_bytes_per_s))
            < OURS * 8 * (self._of(way).rate_bytes_per_s or 0.0)
        ]

    @property
    def _told(self) -> list[tuple[Judged, str]]:
        """Each direction whose line's rate was told, and as what."""
        pairs = ((way, self._of(way)) for way in self.ways)
        return [
            (way, f"a line of {8 * one.rate_bytes_per_s / 1e6:g} Mb/s ({one.rate_by})")
            for way, one in pairs
            if one.rate_bytes_per_s
        ]

    def _of(self, way: Judged) -> Observation:
        return next(one for one in self.seen if one.device == way.device)


def _rate_doubt(way: Judged, told: str) -> str:
    if way.first.limiter not in (COMPETING.name, SLOWER_LINK.name):
        return ""
    return f"{told} has a queue while {words.moves(way)}: others have the rest, or it is not the line's rate"


def _is_paced(way: Judged, seen: Observation) -> bool:
    if way.first.limiter == PACING.name:
        # Below the rate that the profile in force was told it is meant to be: a part of the line for each session.
        return seen.rate_by != TO_PROFILE
    if way.first.limiter == PACED_OR_LINE.name:
        return True
    one_way = OneWay(seen, way.way)
    samples = one_way.sender.socket.samples if one_way.sender and one_way.sender.socket else ()
    paced = one_way.qdisc_rate is not None or any(paced_to(one) is not None for one in samples)
    return way.line_is_full and paced and not one_way.queued_bytes_per_s


def _loses(way: Judged) -> bool:
    return any(one.limiter == LOSS.name for one in way.liftable)


def _carried(way: OneWay) -> float:
    return (way.latency_s or 0.0) * way.bytes_per_s


def nothing_moves(disk: str) -> FabtuneError:
    """Return the error that says that nothing moves on this disk, nor on any other that was looked at."""
    return FabtuneError(f"{_IDLE} --with xdd --set op=read --on {disk}")


def see(
    names: Sequence[str],
    target_netns: str | None,
    target_host: str,
    seconds: float,
    rate_bit_per_s: float | None,
    *,
    with_times: bool = False,
) -> View:
    """Look for `seconds`, at the target's end as well where it is told, and at requests' times where asked.

    Raises InputError without a session, FabtuneError where nothing moves, or the target's host shows nothing;
    CannotTellError where times are asked for without fabstat.
    """
    times = RequestTimes(_BLOCK_S) if with_times else None
    seen = tuple(with_known_rate(Look(names, target_netns, target_host).over(seconds, times), rate_bit_per_s))
    if target_host and not any(one.target for one in seen):
        said = [text for one in seen for text in one.missing if target_host in text]
        raise FabtuneError(said[0] if said else f"{target_host}: it shows no end of these connections")
    ways = tuple(way for one in seen for way in judged(one))
    if not ways:
        if gone_ones := [one for one in seen if one.disk.went_away]:
            raise CannotTellError("; ".join(map(words.idle, gone_ones)))
        raise nothing_moves(seen[0].device)
    rtts_s = [one.rtt_ms / 1e3 for one in seen if one.rtt_ms]
    block_s = max([_BLOCK_S, seconds / _BLOCKS, *(_BLOCK_RTTS * rtt_s for rtt_s in rtts_s)])
    blocks = tuple(in_blocks(moving(seen), block_s))
    found = View(seen, ways, blocks, tuple(times.blocks()) if times else ())
    return attrs.evolve(found, sent_again_shares=tuple(blocks_sent_again(found.main_ways)))

# SPDX-License-Identifier: GPL-2.0-or-later
"""A load that pauses, seen by the initiator alone: slow start is told from a rate that is the same all the time."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from fabtune.model import typed
from fabtune.model.observation import Observation
from fabtune.why.judging import Judged, judged

_KEPT = Path(__file__).parent / "data/observations-pairs.json.gz"
_RTT_S, _BURST, _REQUEST_BYTES = 0.05, 32, 65536
# A burst each 2 s, looked at for 24 s every 0.2 s and a bit, so that looks meet each part of a burst.
_PERIOD_S, _APART_S, _LOOK_S = 2.0, 0.2034, 24.0


def _constant(since_s: float) -> float:
    """4 MB/s from a round trip on: a limit to the rate, or a disk."""
    return max(0.0, since_s - _RTT_S) * 4e6


def _cached_first(since_s: float) -> float:
    """A quarter of the burst at the line's rate, the rest at 3 MB/s: a disk that has read some ahead."""
    on_s, quarter = max(0.0, since_s - _RTT_S), _BURST * _REQUEST_BYTES / 4
    return on_s * 12e6 if on_s * 12e6 < quarter else quarter + (on_s - quarter / 12e6) * 3e6


def _late(late_s: float) -> Callable[[float], float]:
    """Nothing for a while, then the line's rate: a disk that wakes."""
    return lambda since_s: max(0.0, since_s - _RTT_S - late_s) * 12e6


def _cold(first_bytes: float, rate: float) -> Callable[[float], float]:
    """What comes first at a lower rate, then at the line's: a disk, and its cache."""

    def comes(since_s: float) -> float:
        on_s = max(0.0, since_s - _RTT_S)
        return on_s * rate if on_s * rate < first_bytes else first_bytes + (on_s - first_bytes / rate) * 12e6

    return comes


def _doubling(since_s: float) -> float:
    """Ten segments in the first round trip, twice as much in each later one, up to the line's rate."""
    got, window, left_s = 0.0, 14480.0, since_s - _RTT_S
    while left_s > 0 and window < 12e6 * _RTT_S:
        got += window
        window, left_s = 2 * window, left_s - _RTT_S
    return got + max(0.0, left_s) * 12e6


def _arrived(comes: Callable[[float], float], at_s: float) -> tuple[float, float]:
    """Return the bytes that came up to `at_s`, and those that were asked for."""
    whole = _BURST * _REQUEST_BYTES
    bursts, since_s = divmod(at_s, _PERIOD_S)
    return bursts * whole + min(whole, comes(since_s)), (bursts + 1) * whole


def _mean_s(comes: Callable[[float], float]) -> float:
    """Return a request's mean time, each ending when the last of its bytes is there."""
    ends = [next(ms for ms in range(5000) if comes(ms / 1e3) >= (n + 1) * _REQUEST_BYTES) for n in range(_BURST)]
    return sum(ends) / len(ends) / 1e3


def _seen(comes: Callable[[float], float]) -> Judged:
    seen = typed.STRICT.read(Observation, json.loads(gzip.decompress(_KEPT.read_bytes()))["idle-restart-read-50ms"], "")
    assert seen.initiator.socket
    first, disk = seen.initiator.socket.samples[0], seen.disk.samples[0]
    instants = [index * _APART_S for index in range(int(_LOOK_S / _APART_S))]
    arrived = [_arrived(comes, at_s) for at_s in instants]
    sockets = tuple(
        attrs.evolve(first, at_s=at_s, received_bytes=int(got))
        for at_s, (got, _) in zip(instants, arrived, strict=True)
    )
    disks = tuple(
        attrs.evolve(disk, at_s=at_s, in_flight=-int((got - asked) // _REQUEST_BYTES), read_bytes=int(got))
        for at_s, (got, asked) in zip(instants, arrived, strict=True)
    )
    moved = int(arrived[-1][0])
    way = attrs.evolve(
        seen.disk.ways["read"], completed=moved // _REQUEST_BYTES, moved_bytes=moved,
        **dict.fromkeys(("device_ms", "total_ms", "block_ms"), 1e3 * _mean_s(comes)),
    )  # fmt: skip
    (found,) = judged(
        attrs.evolve(
            seen, target=None, elapsed_s=instants[-1], rate_bytes_per_s=12.5e6, rate_by="--rate",
            disk=attrs.evolve(seen.disk, samples=disks, ways={"read": way}, elapsed_s=instants[-1]),
            initiator=attrs.evolve(seen.initiator, socket=attrs.evolve(seen.initiator.socket, samples=sockets)),
        )
    )  # fmt: skip
    return found


def test_data_that_comes_slowly_after_each_pause_and_fast_later_is_a_start_anew() -> None:
    found = _seen(_doubling)
    assert found.first.limiter == "slow-start"
    (told,) = found.first.evidence
    assert told.counter == "data after each pause" and told.value == "at most 0.7 MB/s at first, then 8.8 MB/s"
    assert sum(one.share for one in found.shares) == pytest.approx(1)


@pytest.mark.parametrize(
    "comes",
    [
        _constant, _cached_first, _late(0.1), _late(0.15), _late(0.3), _cold(131072, 1e6), _cold(524288, 1.5e6),
        _cold(1048576, 3e6),
    ],
)  # fmt: skip
def test_a_sender_whose_data_does_not_double_each_round_trip_is_not_said_to_start_anew(
    comes: Callable[[float], float],
) -> None:
    shares = {one.limiter: one.share for one in _seen(comes).shares}
    assert "slow-start" not in shares and shares["cannot-tell-sender"] > 0.05

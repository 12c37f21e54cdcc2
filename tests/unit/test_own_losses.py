# SPDX-License-Identifier: GPL-2.0-or-later
"""fabtune tune: what a path loses by itself, told from what its queue loses, and what follows for what probes."""

import random
from collections.abc import Iterator, Sequence

import attrs
import pytest
from test_shown_line import delivering, lines, wanted_of  # noqa: F401
from tuned_looks import limited_by, no_path, paced_line  # noqa: F401

from fabtune.autotune.learnt import Learnt
from fabtune.autotune.own_losses import OwnLosses, own_losses
from fabtune.autotune.view import View
from fabtune.model.observation import SocketSeen
from fabtune.why.judging import Share
from fabtune.why.one_way import OneWay

_RTT_S, _EVERY_S, _ARRIVE = 0.05, 0.2, 2400


def sender_of(view: View) -> SocketSeen:
    (one,) = view.seen
    end = one.sender("read")
    assert end is not None and end.socket is not None
    return end.socket


def sending(lost: Sequence[int]) -> SocketSeen:
    """Return a connection of which 2400 segments arrive every 0.2 s, and so many are sent again meanwhile."""
    socket = sender_of(delivering(paced_line(None), 1.0, sent_again=0))
    first, again, samples = socket.samples[0], 0, []
    for turn, count in enumerate((0, *lost)):
        again += count
        samples.append(
            attrs.evolve(
                first, at_s=_EVERY_S * turn, retransmitted_bytes=again * socket.mss_bytes,
                delivered_segments=(2**32 - 5000 + _ARRIVE * turn) % 2**32,
            )
        )  # fmt: skip
    return attrs.evolve(socket, samples=tuple(samples))


def test_what_is_lost_in_bursts_and_a_round_trip_around_them_is_no_loss_of_the_paths_own() -> None:
    """As cubic lost 146 of a queue's of 0.14 of the path's product, once in 20 s."""
    found = own_losses([sending([*[0] * 38, 7, 138, 1, *[0] * 10])], _RTT_S)
    assert found == OwnLosses(48 * _ARRIVE, 0)
    assert found.share == pytest.approx(1 / (48 * _ARRIVE))


def test_of_bursts_that_follow_each_other_nothing_is_known_of_the_path() -> None:
    """bbr probes every eight round trips: what is lost between those is not told from what belongs to them."""
    assert own_losses([sending([172, 0, 157, 0, 101, 132, 30, 160, 0])], _RTT_S).share == 1.0


@pytest.mark.parametrize("share", [1e-4, 1e-3])
def test_losses_of_the_paths_own_are_seen_beside_bursts(share: float) -> None:
    chance = random.Random(7)
    own = [sum(chance.random() < share for _ in range(_ARRIVE)) for _ in range(100)]
    bursts = [count + 150 * (turn % 20 == 10) for turn, count in enumerate(own)]
    assert own_losses([sending(bursts)], _RTT_S).share == pytest.approx(share, rel=0.3)


def test_looks_add_up_and_a_path_that_always_loses_much_shows_nothing_else() -> None:
    assert (OwnLosses(1000, 1) + OwnLosses(3000, 1)).share == pytest.approx(3 / 4000)
    assert own_losses([sending([50] * 50)], _RTT_S).share == 1.0


@pytest.fixture
def short_way(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(OneWay, "rtt_s", 0.01)
    yield


@pytest.mark.usefixtures("lines", "short_way")
def test_bbr_that_loses_a_percent_in_a_queue_gives_way_to_cubic_before_it_is_paced() -> None:
    """Paced it ends at 0.97 of a line of which cubic has 0.99; its losses come in bursts, the path has none."""
    line = limited_by(paced_line(None), "line")
    losing = delivering(line, 0.99, 0.99, sent_again=60 * 1448, congctl="bbr")
    quiet, lossy = (delivering(line, 0.5, 0.5, sent_again=again) for again in (0, 2 * 1448))

    def first(of: View, known: View | None, *tried: str) -> str:
        return next((one.reason.shares[0].limiter for one in wanted_of(of, *tried, known=known)), "none")

    assert first(losing, quiet) == "probing"
    # A path that loses leaves cubic little; of one that nothing is known of nobody knows that.
    assert "probing" not in (first(losing, lossy), first(losing, None))
    assert first(losing, quiet, "probing") != "probing"
    # Clean writes say nothing of the reads' way; and what a window, a buffer or a pace holds shows no line.
    learnt = Learnt(own_losses={"write": OwnLosses(500_000, 0)})
    learnt.saw(losing)
    assert not learnt.overfilled(losing)
    learnt.own_losses["read"] = learnt.own_losses["write"]
    assert learnt.overfilled(losing)
    (way,) = losing.ways
    shares = (
        Share("receive-window", share, "window", lifts=("tcp.rmem_max",), ends=("initiator",)) for share in (0.2, 0.01)
    )
    held, hardly = (attrs.evolve(losing, ways=(attrs.evolve(way, shares=(*way.shares, one)),)) for one in shares)
    # What few writes beside them do, or a pace of theirs, is another matter.
    few = attrs.evolve(way, way="write", bytes_per_s=1e5, session_bytes_per_s=1e5, shares=held.ways[0].shares[1:])
    assert first(hardly, quiet) == first(attrs.evolve(losing, ways=(way, few)), quiet) == "probing"
    half = limited_by(losing, "load")
    assert "probing" not in (first(held, quiet), first(half, quiet))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(View, "paced", (way,))
        assert first(losing, quiet) != "probing" and first(losing, quiet, "told-pace") == "probing"
        patch.setattr(View, "paced", (few,))
        assert first(losing, quiet) == "probing"
    # Nor is anything known of a path whose round trip is not.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OneWay, "rtt_s", 0.0)
        assert first(losing, quiet) != "probing"
    # What loses little overfills nothing, and cubic does not probe.
    little = delivering(line, 0.99, 0.99, sent_again=1448, congctl="bbr")
    cubic = delivering(line, 0.99, 0.99, sent_again=60 * 1448)
    assert "probing" not in (first(little, quiet), first(cubic, quiet))

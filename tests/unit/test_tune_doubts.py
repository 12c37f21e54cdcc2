# SPDX-License-Identifier: GPL-2.0-or-later
"""fabtune tune: what is said of a path that is not as somebody told it, and of a pace that was told."""

from types import SimpleNamespace
from typing import cast

import attrs
import pytest
from tuned_looks import limited_by, no_path, paced_line  # noqa: F401

from fabtune.autotune import climb as climbing
from fabtune.autotune import told, wanted
from fabtune.autotune.goal import Aim, Goal
from fabtune.autotune.learnt import Learnt
from fabtune.autotune.own_losses import OwnLosses
from fabtune.autotune.view import View
from fabtune.errors import FabtuneError
from fabtune.tune import journal
from fabtune.tune.lift import TO_PROFILE
from fabtune.tune.transaction import IN_FORCE

# As it is, without what tests put in its place.
_FILLED = View.__dict__["filled_bit_per_s"]
_PACED = View.__dict__["paced"]


def test_what_is_paced_is_tried_without_at_the_end_that_sends() -> None:
    found = paced_line(200)
    assert _PACED.fget(found) == found.ways
    below = limited_by(paced_line(2000), "pacing")
    assert _PACED.fget(below) and _PACED.fget(paced_line(None))
    # A part of the line for each session (busy_sessions) is what was asked for.
    part = tuple(attrs.evolve(one, rate_by=TO_PROFILE) for one in below.seen)
    assert not _PACED.fget(attrs.evolve(below, seen=part))
    assert not _PACED.fget(limited_by(paced_line(2000), "receive-window"))
    (step,) = wanted._without_pace(found, found.ways)
    (share,) = step.reason.shares
    assert share.ends == ("target",) and step.estimated and step.reason.profile == "unpaced"


def said_of_path(found: View) -> list[str]:
    return climbing._of_path(climbing.Climb(found, found, Aim(Goal.THROUGHPUT)))


def in_force(
    rtt_ms: float, netns: str = "", rate_bit_per_s: float | None = None, profile: str = "wan"
) -> SimpleNamespace:
    """A transaction of `profile`, planned for such a path."""
    header = SimpleNamespace(
        rtt_ms=rtt_ms, netns=netns, roles=("initiator",), rate_bit_per_s=rate_bit_per_s, on_trial=False, ends=()
    )
    return SimpleNamespace(name=f"{rtt_ms} {netns}", profile=profile, state=IN_FORCE, header=header, open_steps=())


def connection(rtt_ms: float) -> SimpleNamespace:
    """A connection to a portal of its own."""
    return SimpleNamespace(min_rtt_ms=rtt_ms, path_rtt_ms=rtt_ms, local="10.1.0.1", remote=f"portal at {rtt_ms} ms")


@pytest.mark.parametrize(("told_ms", "said"), [(50.0, False), (45.0, False), (5.0, True), (500.0, True)])
def test_a_round_trip_that_was_told_and_that_no_connection_has_is_said(
    told_ms: float, said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "transactions", lambda: [in_force(told_ms), in_force(1000.0, "target")])
    sockets = [connection(5.0), connection(50.0)]
    monkeypatch.setattr(told, "HostSnapshot", lambda: SimpleNamespace(sockets=sockets, nics=[]))
    expected = f"profile 'wan' was planned for a round trip of {told_ms:g} ms, and the connections have 50.0 ms"
    assert told.rtt_doubts() == [expected] * said
    # One that is not known may be any.
    sockets[0].min_rtt_ms = 0.0
    assert told.rtt_doubts() == []


@pytest.mark.parametrize(
    ("there_ms", "doubted"),
    [
        ((0.2, 50.0), []),
        # What no profile in force was planned for, and what may have been the nearer one's.
        ((0.2, 50.0, 90.0), ["0.2", "50"]),
        ((50.0,), ["0.2"]),
        ((0.2,), ["50"]),
    ],
)
def test_of_two_paths_with_a_profile_each_none_is_told_to_be_the_other(
    there_ms: tuple[float, ...], doubted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "transactions", lambda: [in_force(0.2, profile="lan"), in_force(50.0)])
    sockets = [connection(one) for one in there_ms]
    monkeypatch.setattr(told, "HostSnapshot", lambda: SimpleNamespace(sockets=sockets, nics=[]))
    assert [one.split(" of ")[1].split(" ms")[0] for one in told.rtt_doubts()] == doubted


@pytest.mark.parametrize(
    ("rtt_ms", "told_mbit", "says"),
    [
        (0.2, 25000.0, "others have the rest, or it is not the line's rate"),
        (0.2, 20.0, "it is not the line's rate"),
        # A line that is not quite full, and one that has a little more than it was told to have.
        (0.2, 70.0, ""),
        (0.2, 59.5, ""),
        # That of a near path is no doubt of a long one's; a NIC's was not told.
        (5.0, 25000.0, ""),
        (0.2, 40000.0, ""),
        (0.2, None, ""),
    ],
)
def test_a_rate_that_was_told_with_a_wrong_round_trip_and_that_a_full_line_has_not_is_said(
    rtt_ms: float, told_mbit: float | None, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a profile is not taken to be for this path, so that its rate was compared with nothing."""
    rate = told_mbit and told_mbit * 1e6
    known = [in_force(rtt_ms, rate_bit_per_s=rate), in_force(0.3, "target", 1e6)]
    monkeypatch.setattr(journal, "transactions", lambda: known)
    host = SimpleNamespace(
        sockets=[SimpleNamespace(min_rtt_ms=one) for one in (5.0, 50.0)],
        nics=[SimpleNamespace(speed_bit_per_s=one) for one in (None, 40e9)],
    )
    monkeypatch.setattr(told, "HostSnapshot", lambda: host)
    monkeypatch.setattr(View, "filled_bit_per_s", 60.1e6)
    found = paced_line(None)
    climbed = climbing.Climb(found, found, Aim(Goal.THROUGHPUT), other_rates=told.other_rates())
    said = [one for one in climbing._of_path(climbed) if "planned for a line" in one]
    planned = f"profile 'wan' was planned for a line of {told_mbit or 0:.0f} Mb/s"
    assert said == [f"{planned}, and the line is full with 60.1 Mb/s: {says}"] * bool(says)
    monkeypatch.setattr(View, "filled_bit_per_s", None)
    assert not [one for one in climbing._of_path(climbed) if "planned for a line" in one]
    # A round trip that is not known may be that one.
    host.sockets[0].min_rtt_ms = 0.0
    assert told.other_rates() == ()


def test_of_several_lines_together_no_line_s_rate_is_doubted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(View, "filled_bit_per_s", 190e6)
    found = paced_line(None)
    (seen,) = found.seen
    elsewhere = attrs.evolve(seen, session=attrs.evolve(seen.session, portal="10.3.0.1:3260"))
    found = attrs.evolve(found, seen=(seen, elsewhere))
    rates = (told.ToldRate("wan", 100e6),)
    said = climbing._of_path(climbing.Climb(found, found, Aim(Goal.THROUGHPUT), other_rates=rates))
    assert "of their portals together" in said[-1] and not [one for one in said if "planned for a line" in one]


def test_who_may_not_read_the_journal_tunes_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> list[object]:
        raise FabtuneError("no")

    monkeypatch.setattr(journal, "transactions", refuse)
    assert told.rtt_doubts() == [] and told.other_rates() == ()


@pytest.mark.parametrize("part", ["sockets", "nics"])
def test_who_may_not_read_connections_or_nics_tunes_all_the_same(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read when they are first asked for."""

    def refuse(_: object) -> list[object]:
        raise FabtuneError("no")

    host = type("Host", (), {"sockets": [], "nics": []} | {part: property(refuse)})
    monkeypatch.setattr(journal, "transactions", lambda: [in_force(0.2, rate_bit_per_s=25e9)])
    monkeypatch.setattr(told, "HostSnapshot", host)
    assert told.rtt_doubts() == [] and told.other_rates() == ()


def test_where_no_connection_is_known_no_rate_is_another_path_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may not ask the kernel for connections sees none; those of iSER are none of TCP's."""
    monkeypatch.setattr(journal, "transactions", lambda: [in_force(0.2, rate_bit_per_s=25e9)])
    monkeypatch.setattr(told, "HostSnapshot", type("Host", (), {"sockets": [], "nics": []}))
    assert told.rtt_doubts() == [] and told.other_rates() == ()


def test_a_rate_below_what_passes_is_said() -> None:
    (told,) = said_of_path(paced_line(20))
    assert "a line of 20 Mb/s, as --rate says: 188 Mb/s passed" in told


def test_a_queue_on_a_line_that_is_not_full_as_told_may_be_others_or_the_wrong_rate() -> None:
    (told,) = said_of_path(limited_by(paced_line(2000), "competing-traffic"))
    assert "a line of 2000 Mb/s (--rate) has a queue while sda moves 188" in told and "not the line's rate" in told


def test_a_line_whose_queue_overflowed_far_below_the_rate_that_was_told_is_none_of_that_rate() -> None:
    first, last = paced_line(2000), paced_line(None)
    found = climbing.Climb(first, last, Aim(Goal.THROUGHPUT), shown_bit_per_s=200e6)
    (said,) = climbing._of_path(found)
    assert said.startswith("a line of 2000 Mb/s (--rate) lost") and "at 200.0 Mb/s" in said
    assert climbing._of_path(attrs.evolve(found, shown_bit_per_s=1900e6)) == []


def test_a_line_that_pacing_fills_may_carry_more_than_was_told() -> None:
    """`apply wan --rate 200mbit` on a line of 1 Gb/s: it is full as told, and nobody would ever know."""
    found = paced_line(200)
    (told,) = said_of_path(found)
    assert found.at_the_bound and told.startswith("a line of 200 Mb/s (--rate) is full because")
    assert said_of_path(attrs.evolve(found, ways=())) == []


def test_a_line_that_is_full_may_be_shared_where_nobody_told_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    found = limited_by(paced_line(None), "line")
    monkeypatch.setattr(View, "rate_bit_per_s", None)
    monkeypatch.setattr(View, "filled_bit_per_s", _FILLED.fget(found))
    (told,) = said_of_path(found)
    assert found.at_the_bound and "Mb/s of these sessions; what others send" in told


def moving(way: str, mb_per_s: float, queued: bool) -> View:
    """A look in which so much moved one way, and a queue stood on the path or not."""
    at = mb_per_s * 1e6
    shown = SimpleNamespace(
        own_losses=OwnLosses(), glimpsed_bytes_per_s=0.0, most_bytes_per_s=at, queued_bytes_per_s=at if queued else None
    )
    main = SimpleNamespace(way=way)
    look = SimpleNamespace(
        shown=shown, shown_bit_per_s=8 * at, main=main, ways=(main,), on_the_wire=lambda one: 8 * one
    )
    return cast(View, look)


def test_what_a_line_carries_one_way_is_not_held_against_the_other() -> None:
    """Of a line of 96 Mb/s and 19 back others were said to have the rest, and writes had a pace of 96."""
    learnt, found = Learnt(), paced_line(None)
    for look in (moving("read", 12.0, False), moving("write", 2.4, True)):
        learnt.saw(look)
    told = climbing._of_path(climbing.Climb(found, found, Aim(Goal.THROUGHPUT), learnt=learnt))
    assert not [one for one in told if "others use the line" in one]
    paces = [learnt.line_of(moving(way, 1.0, False)).pace_bit_per_s for way in ("read", "write")]
    assert paces == [96e6, pytest.approx(19.2e6)] and learnt.line_bit_per_s == 96e6
    # Whoever has less the same way shares it, whatever moved the other way since.
    learnt.saw(moving("read", 5.0, True))
    learnt.saw(moving("write", 2.4, True))
    told = climbing._of_path(climbing.Climb(found, found, Aim(Goal.THROUGHPUT), learnt=learnt))
    assert [one for one in told if "these sessions had 40.0 Mb/s of its 96.0" in one]
    assert learnt.yields(moving("read", 1.0, False)) and not learnt.yields(moving("write", 1.0, False))

# SPDX-License-Identifier: GPL-2.0-or-later
"""fabtune tune: what a step plans for which of several sessions."""

import time

import attrs
import pytest
from test_shown_line import delivering
from tuned_looks import ASKED, no_path, nobody, paced_line  # noqa: F401

from fabtune.autotune import climb as climbing
from fabtune.autotune.goal import Aim, Goal
from fabtune.autotune.learnt import Learnt
from fabtune.autotune.shown_line import shown_line
from fabtune.autotune.step import TuningStep
from fabtune.autotune.tuned_ends import Lifting, NearEnd
from fabtune.autotune.view import View
from fabtune.autotune.wanted import QUEUED_REQUESTS, _disks, wanted_steps
from fabtune.catalog.tunable import shipped_catalog
from fabtune.model.device import Device
from fabtune.model.observation import EndSeen, Observation
from fabtune.tune.lift import Reason
from fabtune.tune.plan import CHANGE, NOT_LIMITED, REFUSED, Row
from fabtune.tune.saved_plan import SavedPlan
from fabtune.why.judging import Share
from fabtune.why.one_way import OneWay

# As they are, without what tests put in their place.
_RTT, _FILLED = View.__dict__["rtt_ms"], View.__dict__["filled_bit_per_s"]
WINDOW = Share("receive-window", 1.0, "the window", lifts=("iscsi.tcp_window",), ends=("initiator",))
SENT = Share("send-buffer", 1.0, "the target's send buffer", lifts=("tcp.wmem_max",), ends=("target",))


def at(portal: str, disk: str, rtt_ms: float) -> Observation:
    """A session with this portal and disk, at such a round trip."""
    (seen,) = paced_line(None).seen
    session = attrs.evolve(seen.session, portal=portal, disks=(disk,))
    return with_rtt(attrs.evolve(seen, device=disk, session=session), rtt_ms)


def with_rtt(seen: Observation, rtt_ms: float) -> Observation:
    """Return `seen` with such a least round trip at both ends."""

    def end(of: EndSeen) -> EndSeen:
        assert of.socket is not None
        samples = tuple(attrs.evolve(one, min_rtt_ms=rtt_ms) for one in of.socket.samples)
        return attrs.evolve(of, socket=attrs.evolve(of.socket, samples=samples))

    assert seen.target is not None
    return attrs.evolve(seen, initiator=end(seen.initiator), target=end(seen.target))


FAR, NEAR = at("10.2.0.1:3260", "sda", 100.0), at("10.9.0.1:3260", "sdb", 0.1)


def limited(*seen: Observation, by: dict[str, tuple[Share, ...]]) -> View:
    """A look at sessions of which these shares limit each disk."""
    (way,) = paced_line(None).ways
    return View(seen, tuple(attrs.evolve(way, device=one.device, shares=by[one.device]) for one in seen), ())


def row(tunable: str, portal: str, now: str, wanted: str) -> Row:
    identity = f"iqn.2026-01.lab.fabtune:target,{portal}"
    return Row(
        shipped_catalog().tunables[tunable], "initiator", Device("record", identity, portal), now, wanted, CHANGE, ""
    )


def test_the_pause_of_a_session_that_nobody_named_is_not_written_into_its_record() -> None:
    """`tune --on FAR` left a DefaultTime2Wait of 0 in the near session's record."""
    far, near = "10.2.0.1:3260", "10.9.0.1:3260"
    rows = [row("iscsi.time2wait", one, "2", "0") for one in (far, near)]
    rows.append(row("iscsi.tcp_window", far, "524288", "0"))
    now = limited(FAR, by={"sda": (WINDOW,)})
    reason = Reason("wan", 1e8, (), (WINDOW,), _disks(now, lambda _: [WINDOW]))
    saved = SavedPlan("", "", "", "", "", "wan", ("initiator",), (), "", None, {}, tuple(rows))
    found = Lifting(reason, 100.0, estimated=True, connects=True).in_place(saved).rows
    states = {(one.tunable.name, one.device.label): one.state for one in found if one.device}
    assert states == {
        ("iscsi.tcp_window", far): CHANGE, ("iscsi.time2wait", far): CHANGE, ("iscsi.time2wait", near): REFUSED,
    }  # fmt: skip
    assert [one.note for one in found if one.state == REFUSED] == [NOT_LIMITED], "what nobody needs may change"


@pytest.mark.parametrize("seen", [(FAR, NEAR), (NEAR, FAR)])
def test_a_step_is_planned_for_the_longest_path_that_it_lifts(
    monkeypatch: pytest.MonkeyPatch, seen: tuple[Observation, ...]
) -> None:
    """Beside a session of 0.1 ms one of 100 ms was planned for 0.1 ms: nothing to write, nothing left."""
    now = limited(*seen, by={"sda": (SENT,), "sdb": (SENT,)})
    step = next(wanted_steps(now, Aim(Goal.THROUGHPUT), Learnt()))
    assert (step.reason.rtt_ms, step.reason.profile) == (100.0, "wan")
    asked: list[Lifting] = []
    monkeypatch.setattr(NearEnd, "plan", lambda self, lifting: asked.append(lifting))
    TuningStep(ASKED, Aim(Goal.THROUGHPUT), now, Learnt(), step, nobody)._plan(NearEnd("target", ""))
    assert [one.rtt_ms for one in asked] == [100.0]


def test_a_step_that_lifts_the_near_session_alone_is_planned_for_its_path() -> None:
    load = attrs.evolve(SENT, limiter="load", lifts=())
    now = limited(FAR, NEAR, by={"sda": (load,), "sdb": (SENT,)})
    step = next(wanted_steps(now, Aim(Goal.THROUGHPUT), Learnt()))
    assert (step.reason.rtt_ms, step.reason.profile) == (0.1, "wan")


def test_new_connections_settle_for_as_long_as_the_longest_path_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """All sessions of the host are connected anew, whichever disk a step is for."""
    monkeypatch.setattr(View, "rtt_ms", _RTT)
    slept_s: list[float] = []
    monkeypatch.setattr(time, "monotonic", lambda: 50.0)
    monkeypatch.setattr(time, "sleep", slept_s.append)
    now = limited(NEAR, FAR, by={"sda": (SENT,), "sdb": (SENT,)})
    wanted = next(wanted_steps(now, Aim(Goal.THROUGHPUT), Learnt()))
    TuningStep(ASKED, Aim(Goal.THROUGHPUT), now, Learnt(), wanted, nobody)._settle()
    assert slept_s == [pytest.approx(3.0)]


def test_a_line_shows_its_rate_over_round_trips_of_the_longest_path() -> None:
    (one,) = delivering(paced_line(None), 1.0, sent_again=0).seen
    ways = [OneWay(with_rtt(one, rtt_ms), "read") for rtt_ms in (0.1, 100.0)]
    for each in (ways, ways[::-1]):
        shown = shown_line(each)
        assert shown is not None and shown.rtt_s == 0.1


def under_way(monkeypatch: pytest.MonkeyPatch, now: View, mb: dict[str, float]) -> tuple[frozenset[str], float | None]:
    """Return the disks whose requests are bounded where so much of each is under way, and the round trip for that."""
    monkeypatch.setattr(View, "under_way_bytes", {disk: 1e6 * found for disk, found in mb.items()})
    aim = Aim(Goal.LATENCY, frozenset())
    steps = [one for one in wanted_steps(now, aim, Learnt()) if one.reason.shares[0].limiter == QUEUED_REQUESTS]
    return (steps[0].disks, steps[0].reason.rtt_ms) if steps else (frozenset(), None)


def test_the_room_for_a_stream_is_that_of_its_own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 200 Mb/s the path of 100 ms holds 5 MB twice, half of which is each stream's; that of 0.1 ms hardly any."""
    monkeypatch.setattr(View, "rate_bit_per_s", 200e6)
    monkeypatch.setattr(View, "queue_on_path", False)
    now = limited(NEAR, FAR, by={"sda": (SENT,), "sdb": (SENT,)})
    assert under_way(monkeypatch, now, {"sda": 2.5, "sdb": 2.5}) == (frozenset({"sdb"}), 0.1)
    # One value is written for all of them: the farthest must not run dry.
    assert under_way(monkeypatch, now, {"sda": 5, "sdb": 5}) == (frozenset({"sda", "sdb"}), 100.0)


def sharing(*seen: Observation) -> View:
    """A look at reads that fill a line together."""
    line = Share("line", 1.0, "the line")
    return limited(*seen, by={one.device: (line,) for one in seen})


def test_what_a_line_carries_of_a_payload_has_the_headers_of_its_sessions() -> None:
    """Over IPv6 a segment has 20 bytes less of the same packet: a pace without them is 1.3 % below the line."""
    assert sharing(FOUR[0]).on_the_wire(1448e3) == pytest.approx(8 * 1514e3)
    socket = FOUR[0].initiator.socket
    assert socket is not None
    socket = attrs.evolve(socket, mss_bytes=1428, local="[fd00:1::1]:42000", remote="[fd00:2::1]:3260")
    over_ipv6 = attrs.evolve(FOUR[0], initiator=attrs.evolve(FOUR[0].initiator, socket=socket), target=None)
    assert sharing(over_ipv6).on_the_wire(1428e3) == pytest.approx(8 * 1514e3)


def connected(disk: str, port: int, portal: str = "10.2.0.1:3260") -> Observation:
    """A session whose connection has this port of the initiator."""
    seen = at(portal, disk, 20.0)
    assert seen.initiator.socket is not None
    socket = attrs.evolve(seen.initiator.socket, local=f"10.1.0.1:{port}")
    return attrs.evolve(seen, initiator=attrs.evolve(seen.initiator, socket=socket))


FOUR = tuple(connected(f"sd{one}", 42000 + number) for number, one in enumerate("abcd"))


def test_sessions_that_share_a_line_show_its_rate_in_their_sum_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(View, "filled_bit_per_s", _FILLED)
    now = sharing(*FOUR)
    assert now.filled_bit_per_s == pytest.approx(now.on_the_wire(now.bytes_per_s))
    (said,) = climbing._of_path(climbing.Climb(now, now, Aim(Goal.THROUGHPUT)))
    assert said.startswith(f"the line is full with {now.on_the_wire(now.bytes_per_s) / 1e6:.1f} Mb/s of these sessions")
    # Where they need not share one it is no line's rate.
    apart = sharing(*FOUR[:3], connected("sdd", 42003, "10.3.0.1:3260"))
    (said,) = climbing._of_path(climbing.Climb(apart, apart, Aim(Goal.THROUGHPUT)))
    assert said.startswith("the line, or the lines of their portals together, is full with")


def test_the_direction_that_moved_most_is_that_of_all_disks_together() -> None:
    now = sharing(*FOUR)
    rates = {"sda": ("read", 10e6), "sdb": ("read", 10e6), "sdc": ("read", 10e6), "sdd": ("write", 15e6)}
    ways = (attrs.evolve(one, way=rates[one.device][0], bytes_per_s=rates[one.device][1]) for one in now.ways)
    now = attrs.evolve(now, ways=tuple(ways))
    assert now.main.way == "read" and len(now.main_ways) == 3


@pytest.mark.parametrize(
    ("seen", "busy"),
    [(FOUR, 4), ((connected("sda", 42000), connected("sdb", 42000)), 1), (FOUR[:1], 1)],
    ids=["four sessions", "two disks of one", "one"],
)
def test_each_of_the_connections_that_fill_a_line_together_is_paced_at_its_part(
    monkeypatch: pytest.MonkeyPatch, seen: tuple[Observation, ...], busy: int
) -> None:
    monkeypatch.setattr(View, "filled_bit_per_s", _FILLED)
    monkeypatch.setattr(View, "queue_on_path", True)
    now = sharing(*seen)
    (step,) = wanted_steps(now, Aim(Goal.LATENCY), Learnt({QUEUED_REQUESTS}))
    assert step.reason.rate_bit_per_s == pytest.approx(now.on_the_wire(now.bytes_per_s))
    assert f"busy_sessions={busy}" in step.settings

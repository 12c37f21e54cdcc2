# SPDX-License-Identifier: GPL-2.0-or-later
"""A pace is one path's and, of `fabtune tune`, one host's: what else a portal or a NIC carries is not held to it."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs
import hosttree
import pytest
from kept_looks import kept

from fabtune.autotune import climb as climbing
from fabtune.autotune import step as stepping
from fabtune.autotune.climb import Climb
from fabtune.autotune.climb_asked import ClimbAsked
from fabtune.autotune.disturbed import Witness
from fabtune.autotune.goal import Aim, Goal
from fabtune.autotune.learnt import Learnt
from fabtune.autotune.new_connections import NewConnections
from fabtune.autotune.step import TuningStep
from fabtune.autotune.tuned_ends import Lifting, NearEnd
from fabtune.autotune.view import View
from fabtune.autotune.wanted import Wanted
from fabtune.backends import record
from fabtune.catalog.tunable import shipped_catalog
from fabtune.cli.main import main
from fabtune.facts.host_snapshot import HostSnapshot
from fabtune.host import portal_options
from fabtune.host.links import Link, Links
from fabtune.host.portal_options import Options
from fabtune.host.sockets import TcpSocket
from fabtune.model.observation import TARGET, EndSeen, Observation
from fabtune.tune import saved_plan
from fabtune.tune.lift import Limited, Reason
from fabtune.tune.plan import CHANGE, REFUSED, Row
from fabtune.why.judging import Share, judged

PACING = Share("overflow", 1.0, "", lifts=("connection.pacing",), ends=(TARGET,), profile="wan")
Connect = Callable[..., None]
SAN, WAN, SERVED = "10.2.0.1:3260 as initiator", "10.2.0.2:3260 as initiator", "10.2.0.1:3260 as target"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A host with two sessions, that serves one portal."""
    root = hosttree.make(tmp_path, 2, 1)
    for number in (1, 2):
        for place in ("sys/devices/platform/host{0}/scsi_host/host{0}", "sys/class/scsi_host/host{0}"):
            hosttree.put(root / place.format(number) / "proc_name", "iscsi_tcp")
    hosttree.enter(root, monkeypatch)
    monkeypatch.setattr(portal_options, "no_means", lambda: "")
    monkeypatch.setattr(portal_options, "given", lambda _: Options())
    monkeypatch.setattr(HostSnapshot, "elsewhere", {})
    record.BACKEND.forget()
    yield root
    record.BACKEND.forget()


@pytest.fixture
def connect(host: Path, monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Lets these connections be there, each with its round trip in ms: to portals by number, from initiators."""

    def there(to: Sequence[tuple[int, float]] = (), of: Sequence[tuple[str, float]] = ()) -> None:
        ends = [("10.2.0.101", f"10.2.0.{number}", 40000, 3260, rtt_ms) for number, rtt_ms in to]
        ends += [("10.2.0.1", peer, 3260, 41000, rtt_ms) for peer, rtt_ms in of]
        sockets = [TcpSocket(*one, one[-1], 0, 10, 1448, 0, "cubic", 0, 0) for one in ends]
        monkeypatch.setattr(HostSnapshot, "sockets", sockets)
        monkeypatch.setattr(HostSnapshot, "connections", sockets)

    return there


def paced(capsys: pytest.CaptureFixture[str], role: str, *more: str) -> dict[str, tuple[str, str]]:
    assert main(["plan", "wan", "--role", role, "--rate", "100mbit", "--json", *more]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    return {one["device"]: (one["state"], one["note"]) for one in rows if one["tunable"] == "connection.pacing"}


def states(found: dict[str, tuple[str, str]]) -> dict[str, str]:
    return {device: state for device, (state, _) in found.items()}


def test_a_lan_session_is_not_held_to_the_wan_s_rate_unless_asked(
    connect: Connect, capsys: pytest.CaptureFixture[str]
) -> None:
    connect(to=[(1, 0.2), (2, 50.0)])
    found = paced(capsys, "initiator")
    assert states(found) == {SAN: REFUSED, WAN: CHANGE}
    assert "0.2 ms" in found[SAN][1] and "path of 50 ms; --set share_portal=1 overrides" in found[SAN][1]
    assert set(states(paced(capsys, "initiator", "--set", "share_portal=1")).values()) == {CHANGE}


def test_nor_is_a_target_s_lan_client_beside_one_across_a_wan(
    connect: Connect, capsys: pytest.CaptureFixture[str]
) -> None:
    connect(of=[("10.2.0.9", 0.2), ("10.77.0.9", 50.0)])
    assert states(paced(capsys, "target")) == {SERVED: REFUSED}
    # Several initiators at the far end of one path.
    connect(of=[("10.77.0.8", 48.0), ("10.77.0.9", 50.0)])
    assert states(paced(capsys, "target")) == {SERVED: CHANGE}


@pytest.mark.parametrize(
    ("to", "told", "expected"),
    [
        # One path, told as it is, roughly, or much too short or too long.
        ([(1, 20.0), (2, 20.3)], "20ms", (CHANGE, CHANGE)),
        ([(1, 20.0), (2, 24.0)], "17ms", (CHANGE, CHANGE)),
        ([(1, 20.0), (2, 20.0)], "5ms", (CHANGE, CHANGE)),
        ([(1, 20.0), (2, 20.0)], "80ms", (CHANGE, CHANGE)),
        # Nobody is connected yet, or it is not known how far.
        ([], "50ms", (CHANGE, CHANGE)),
        ([(1, 0.0), (2, 0.0)], "50ms", (CHANGE, CHANGE)),
        ([(1, 50.0)], "50ms", (CHANGE, CHANGE)),
        # A site's sessions alone, before those of the wide-area path are there: whose is the other portal?
        ([(1, 0.2)], "50ms", (REFUSED, REFUSED)),
        # Of several paths one is told; what is not known may be another's.
        ([(1, 0.2), (2, 0.0)], "50ms", (REFUSED, REFUSED)),
        ([(1, 20.0), (2, 90.0)], "20ms", (CHANGE, REFUSED)),
        ([(1, 50.0), (1, 0.3), (2, 50.0)], "50ms", (REFUSED, CHANGE)),
    ],
)
def test_where_there_is_one_path_all_are_paced_and_where_there_are_several_its_own(
    connect: Connect, capsys: pytest.CaptureFixture[str], to: list[tuple[int, float]], told: str,
    expected: tuple[str, str],
) -> None:  # fmt: skip
    connect(to=to)
    found = paced(capsys, "initiator", "--rtt", told)
    assert (found[SAN][0], found[WAN][0]) == expected, found


def test_a_pace_that_holds_nobody_more_than_now_is_written_to_all(
    connect: Connect, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(to=[(1, 0.2), (2, 50.0)])
    monkeypatch.setattr(portal_options, "given", lambda _: Options(pacing=5))
    monkeypatch.setattr(portal_options, "options_held", lambda _: [])
    assert set(states(paced(capsys, "initiator")).values()) == {CHANGE}


def test_a_nic_that_sessions_of_two_paths_leave_by_is_not_paced_either(
    host: Path, connect: Connect, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where connections cannot be paced by themselves."""
    monkeypatch.setattr(portal_options, "no_means", lambda: "too old")
    links = {
        name: Link(name, "", "", frozenset({address}), frozenset(), up=True, permanent_mac="")
        for name, address in (("eth1", "10.2.0.101"), ("eth2", "10.2.0.1"))
    }
    monkeypatch.setattr(Links, "all", links)
    (host / "bin/tc").write_text('#!/bin/sh\necho \'[{"kind": "fq", "handle": "0:", "root": true}]\'')
    hosttree.put(host / "proc/sys/net/core/default_qdisc", "fq")

    def maxrate(*more: str) -> dict[str, tuple[str, str]]:
        assert main(["plan", "wan", "--role", "both", "--rate", "100mbit", "--json", *more]) == 0
        rows = json.loads(capsys.readouterr().out)["rows"]
        return {one["device"]: (one["state"], one["note"]) for one in rows if one["tunable"] == "qdisc.maxrate"}

    connect(to=[(1, 0.2), (2, 50.0)], of=[("10.77.0.9", 50.0)])
    found = maxrate()
    assert states(found) == {"eth1": REFUSED, "eth2": CHANGE}
    assert "--set share_nic=1 overrides" in found["eth1"][1]
    assert states(maxrate("--set", "share_nic=1")) == {"eth1": CHANGE, "eth2": CHANGE}


def test_what_came_since_a_plan_was_saved_is_not_held(
    connect: Connect, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(of=[("10.77.0.9", 50.0)])
    file = str(tmp_path / "x.plan")
    assert main(["plan", "wan", "--role", "target", "--rate", "100mbit", "--out", file]) == 0
    given: list[str] = []
    monkeypatch.setattr(portal_options, "give", lambda portal, *_: given.append(portal.address))
    connect(of=[("10.77.0.9", 50.0), ("10.2.0.9", 0.2)])
    main(["apply", "--plan", file, "--yes"])
    assert not given and "share_portal=1" in " ".join(capsys.readouterr().out.split())


def at_target(peer: str) -> Observation:
    """A session of this host with the portal of the target on this host, as both ends show it."""
    seen = kept("wan-read", 1)
    assert seen.initiator.socket
    ours = attrs.evolve(seen.initiator.socket, local=f"{peer}:41000")
    theirs = attrs.evolve(ours, local=ours.remote, remote=ours.local)
    target = EndSeen(TARGET, "6.12", theirs)
    return attrs.evolve(seen, initiator=attrs.evolve(seen.initiator, socket=ours), target=target)


def tuned(peer: str) -> Row:
    """What a step of `fabtune tune` makes of the target's portal for a session from `peer`."""
    seen = at_target(peer)
    reason = Reason("wan", 1e8, (), (PACING,), (Limited(seen, (PACING,)),), 50.0)
    saved = NearEnd(TARGET, "").plan(Lifting(reason, 50.0, estimated=False))
    # As it comes from another host.
    again = saved_plan.parse(saved_plan.plan_text(saved).encode(), "there", shipped_catalog())
    rows = reason.lifting(again.rows)
    (found,) = [one for one in rows if one.tunable.name == "connection.pacing"]
    return found


def test_tune_does_not_pace_a_portal_that_serves_others_too(connect: Connect) -> None:
    """What its own sessions showed of their line was the pace of all hosts that the target serves, for good."""
    connect(of=[("10.77.0.9", 50.0), ("10.77.0.20", 50.0), ("10.77.0.21", 50.0)])
    row = tuned("10.77.0.9")
    assert (row.state, row.note.startswith("10.77.0.20 and 1 more would be held")) == (REFUSED, True)
    # Whether there is anybody else cannot be told.
    connect()
    assert tuned("10.77.0.9").state == REFUSED


def test_tune_says_what_it_leaves_alone_for_others(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(of=[("10.77.0.9", 50.0), ("10.77.0.20", 50.0)])
    seen, learnt, aim = at_target("10.77.0.9"), Learnt(), Aim(Goal.THROUGHPUT)
    reason = Reason("wan", 1e8, (), (PACING,), (Limited(seen, (PACING,)),), 50.0)
    monkeypatch.setattr(stepping, "wanted_steps", lambda *_: iter([Wanted(reason)]))
    now, asked = View((seen,), tuple(judged(seen)), (1e6,) * 8), ClimbAsked((), "", None, 4.0, 8)
    assert TuningStep.next(asked, aim, now, learnt, lambda _: None, Witness(), NewConnections(lambda _: None)) is None
    (said,) = [one for one in climbing._of_path(Climb(now, now, aim, learnt=learnt)) if "left alone" in one]
    assert said.startswith("connection.pacing of 10.2.0.1:3260 as target is left alone: 10.77.0.20 would be held")


def test_tune_paces_the_portal_that_serves_this_host_alone_by_several_sessions(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(of=[("10.77.0.9", 50.0), ("10.77.0.9", 50.0)])
    assert tuned("10.77.0.9").state == CHANGE
    # By another address of this host, which is no part of what is tuned.
    here = Link("eth1", "", "", frozenset({"10.78.0.9"}), frozenset(), up=True, permanent_mac="")
    connect(of=[("10.77.0.9", 50.0), ("10.78.0.9", 50.0)])
    assert tuned("10.77.0.9").state == REFUSED
    monkeypatch.setattr(Links, "all", {"eth1": here})
    assert tuned("10.77.0.9").state == CHANGE

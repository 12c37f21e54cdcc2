# SPDX-License-Identifier: GPL-2.0-or-later
"""Of many sessions each costs what each of few does: work is counted in calls, which are the same on any machine."""

import cProfile
import json
from collections.abc import Callable
from pathlib import Path

import hosttree
import pytest
from kept_looks import kept

from fabtune.backends import record
from fabtune.catalog.tunable import shipped_catalog
from fabtune.cli import main, table
from fabtune.facts import collect
from fabtune.host import iscsid, sockets
from fabtune.host.iscsid import Daemon
from fabtune.host.sessions import live_sessions
from fabtune.host.sockets import TcpSocket
from fabtune.lint.hazards import lint
from fabtune.measure.disk_look import counted_between
from fabtune.measure.looked import chosen
from fabtune.model.path import NetworkPath
from fabtune.stat import CountedDevice, Op, Snapshot
from fabtune.tune import lift, reconnect
from fabtune.tune.plan import ordered
from fabtune.tune.request import plan_for, request
from fabtune.why.judging import judged

FEW, MANY = 15, 60
# What grows with the square of their number takes sixteen times as many calls.
MOST_TIMES = 4.2


def _connections() -> list[TcpSocket]:
    return [
        TcpSocket("10.2.0.254", one.address, 40000, one.port, 1.0, 1.0, 0, 10, 1448, 0, "cubic", 0, 0)
        for one in live_sessions()
    ]


def _show() -> None:
    assert main.main(["show"]) == 0


def _lint() -> None:
    facts = collect.survey(shipped_catalog().tunables.values())
    assert lint(facts, shipped_catalog(), None)


def _plan() -> None:
    plan, facts = plan_for(request("wan", "initiator", "", "50ms", "1mbit", ["memory_percent=1000"]))
    assert reconnect.forecast(plan, facts.sessions) is not None


def _rules_alone() -> Callable[[], object]:
    """Return work without the reading of the host, which would hide what grows."""
    facts = collect.survey(shipped_catalog().tunables.values())
    return lambda: lint(facts, shipped_catalog(), NetworkPath(0.05, 125_000_000))


def _order_alone() -> Callable[[], object]:
    plan, _ = plan_for(request("wan", "initiator", "", "50ms", "1mbit", ["memory_percent=1000"]))
    rows = list(plan.rows)
    return lambda: ordered(rows)


def _counted(work: Callable[[], object]) -> int:
    """Return how many calls `work` makes."""
    profile = cProfile.Profile()
    profile.runcall(work)
    profile.create_stats()
    return sum(calls for _, calls, *_ in profile.stats.values())


def _printed(records: int) -> int:
    """Return how many calls it takes to print a long list of `records`."""
    return _counted(lambda: table.print_json({"records": [{"name": "x", "values": [1, 2, 3]}] * records}))


def test_a_record_of_a_long_list_costs_little_to_print_and_stands_on_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    # Indented by the standard library, each word of each record is a call and more.
    assert _printed(2000) - _printed(1000) <= 10 * 1000
    capsys.readouterr()
    data = {"schema": 1, "records": [{"name": "a\nb", "of": {"x": [1, 2]}}] * 1000, "few": [{"y": {}}], "none": []}
    table.print_json(data)
    text = capsys.readouterr().out
    assert json.loads(text) == data
    assert text.count("\n") < 1020
    assert '\n  "few": [\n    {\n      "y": {}' in text


def _why() -> None:
    assert chosen((), sockets.established())


def _advise() -> Callable[[], object]:
    """Return what follows a look in which each session is limited."""
    seen = [kept("untouched-read", number + 1) for number in range(len(live_sessions()))]
    told = lift.with_known_rate(seen, 200e6)
    return lambda: lift.advised([lift.limited(one, judged(one)) for one in told], None)


def _plan_from_why() -> Callable[[], object]:
    """Return the same for a plan that is made of it."""
    seen = [kept("untouched-read", number + 1) for number in range(len(live_sessions()))]
    told = lift.with_known_rate(seen, 200e6)
    plan, _ = plan_for(request("wan", "initiator", "", "20ms", "200mbit", []))
    disks = tuple(lift.limited(one, judged(one)) for one in told)
    shares = tuple(share for one in disks for share in one.shares)
    reason = lift.Reason("wan", 200e6, (), shares, disks)
    return lambda: (reason.by_gain(reason.lifting(plan.rows)), reason.unlifted(plan.rows, "wan"))


def _disk(number: int, name: str, completed: int, state: str = "live") -> CountedDevice:
    ops = {"read": Op(issued=completed, completed=completed)}
    return CountedDevice(
        id=number, state=state, disk=name, dev="8:0", diskseq=number, driver="iscsi_tcp", hctl="2:0:0:0", parent="",
        seen_ns=1, time_ns=2, in_flight=0, highest=1, limit=32, forgotten=0, eh_wakeups=0, depth_ns=0, at_limit_ns=0,
        events={}, ops=ops,
    )  # fmt: skip


def _calls(host: Path, sessions: int, work: Callable[[], object]) -> int:
    """Return how many calls `work`, or what it returns to be counted alone, makes on a host with `sessions`."""
    with pytest.MonkeyPatch.context() as patch:
        hosttree.enter(hosttree.make(host, sessions), patch)
        for session in live_sessions():
            # Long enough for no session's requests to fail while all pause: each is asked.
            hosttree.put(host / f"sys/class/iscsi_session/session{session.sid}/recovery_tmo", "86400")
        there = _connections()
        patch.setattr(sockets, "established", lambda netns="": there)
        patch.setattr(reconnect, "established", lambda netns="": there)
        # An iscsid that could make connections anew, so that every session is asked about its pause.
        patch.setattr(iscsid, "running", lambda: Daemon(1, "1", 1))
        patch.setattr(iscsid, "why_not_anew", lambda daemon: "")
        alone = work()
        record.BACKEND.forget()
        if callable(alone):
            work = alone
        return _counted(work)


@pytest.mark.parametrize("work", [_show, _lint, _rules_alone, _plan, _order_alone, _why, _advise, _plan_from_why])
def test_a_session_costs_as_much_among_many_as_among_few(tmp_path: Path, work: Callable[[], object]) -> None:
    few, many = _calls(tmp_path / "few", FEW, work), _calls(tmp_path / "many", MANY, work)
    assert many <= MOST_TIMES * few


def test_of_two_disks_with_one_name_the_later_counts_and_of_one_that_is_gone_nothing() -> None:
    disks = (_disk(1, "sda", 5), _disk(2, "sda", 7), _disk(3, "sdb", 9, state="gone"))
    before = Snapshot(1, 1, 1 << 62, {}, (), (), "")
    after = Snapshot(2, 1, 1 << 62, {}, (), disks, "")
    counted = counted_between(before, after)
    assert {name: one.ops["read"].completed for name, one in counted.items()} == {"sda": 7}
    assert counted_between(None, after) == {} == counted_between(after, before)

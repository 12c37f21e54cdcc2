# SPDX-License-Identifier: GPL-2.0-or-later
# ruff: noqa: F811 - tests take fixtures that they import
"""fabtune tune on a host where an earlier apply or revert has left something to be done."""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import attrs
import hosttree
import pytest
from test_guard_portals import Connect, connect, host, paces  # noqa: F401
from tuned_looks import ASKED, Make, climber, no_path, nobody, seen  # noqa: F401

from fabtune.autotune import taken_back, tuned_ends
from fabtune.autotune.climb import climb
from fabtune.autotune.goal import Aim, Goal
from fabtune.autotune.learnt import Learnt
from fabtune.autotune.made import Made
from fabtune.autotune.step import TuningStep
from fabtune.autotune.tuned_ends import Lifting, NearEnd
from fabtune.autotune.wanted import Wanted
from fabtune.cli.main import main
from fabtune.errors import FabtuneError, InputError
from fabtune.host import blocks, iscsid
from fabtune.host.users import Users
from fabtune.measure.disk_look import DiskLook
from fabtune.model.observation import INITIATOR
from fabtune.tune import armed, confirm, journal, reconnect
from fabtune.tune.lift import Reason
from fabtune.tune.pending import RECONNECT, RELOGIN, TARGET_RELOGIN, Leave, Pending
from fabtune.tune.reconnect import Reconnected
from fabtune.tune.saved_plan import SavedPlan
from fabtune.why.judging import Share

_APPLY = ["apply", "wan", "--role", "initiator", "--rtt", "50ms", "--rate", "1gbit"]


@pytest.fixture
def daemon(host: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Since when iscsid runs."""
    found = ["old"]
    monkeypatch.setattr(iscsid, "since", lambda: found[0])
    monkeypatch.setattr(armed, "arm", lambda name: None)
    monkeypatch.setattr(armed, "is_watched", lambda: False)
    return found


@pytest.fixture
def carried(daemon: list[str], paces: dict[str, int], connect: Connect) -> list[str]:
    """A host on which `apply wan` waits for a new connection, and some of it for a re-login."""
    connect((1, 50.0))
    assert main(_APPLY) == 4
    return daemon


def live_step() -> tuple[NearEnd, SavedPlan]:
    """Return the initiator, and a step that paces its portal to less than is in force."""
    share = Share("overflow", 1.0, "", lifts=("connection.pacing",), ends=(INITIATOR,), profile="wan")
    end = NearEnd(INITIATOR, "")
    plan = end.plan(Lifting(Reason("wan", 5e8, (), (share,), (), 50.0), 50.0, estimated=False))
    assert [one.tunable.name for one in plan.rows if one.state == "change"] == ["connection.pacing"]
    return end, plan


@pytest.mark.parametrize("switched", [True, False])
def test_what_waits_for_a_re_login_keeps_no_step_from_being_written_and_taken_back(
    carried: list[str], paces: dict[str, int], monkeypatch: pytest.MonkeyPatch, switched: bool
) -> None:
    """No new connection brings it: the step was refused as it would, or all sessions paused for it as it went back."""
    monkeypatch.setattr(tuned_ends, "watched", lambda: switched)
    before = dict(paces)
    # iscsid has been started anew since, as by `apply --reconnect`.
    carried[0] = "new"
    end, plan = live_step()
    wrote = end.write(plan, 60.0, [], nobody)
    assert [one.action for one in wrote.pending] == [RELOGIN] and paces["10.2.0.1"] < before["10.2.0.1"]
    back = taken_back.here([wrote.transaction], nobody)
    assert back == taken_back.TakenBack(connected=False, due=False, left=[]) and paces == before


def test_a_step_that_counts_at_once_connects_nothing_anew_that_waits_for_that(
    carried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All sessions paused, and what an administrator was still to bring into force counted as the step's gain."""
    asked: list[Sequence[Pending]] = []
    monkeypatch.setattr(tuned_ends, "watched", lambda: False)

    def in_place(tasks: Sequence[Pending], *_: object, **__: object) -> tuple[list[object], Sequence[Pending]]:
        asked.append(tasks)
        return [], tasks

    monkeypatch.setattr(reconnect, "in_place", in_place)
    end, plan = live_step()
    assert RECONNECT in [one.action for one in end.write(plan, 60.0, [], nobody).pending]
    assert asked == []


@pytest.mark.parametrize(
    ("name", "effect", "key", "connects"),
    [
        ("connection.pacing", "live", "pacing", False),
        ("iscsi.tcp_window", "reconnect", "node.conn[0].tcp.window_size", True),
        # An fq that goes again leaves connections that nothing paces: who takes it back may connect anew.
        ("qdisc.kind", "live", "kind", True),
    ],
)
def test_a_step_may_connect_anew_where_it_is_felt_by_that_written_or_taken_back(
    monkeypatch: pytest.MonkeyPatch, name: str, effect: str, key: str, connects: bool
) -> None:
    leaves: list[Leave] = []

    def noted(*_: object, leave: Leave, **__: object) -> tuple[None, SimpleNamespace]:
        leaves.append(leave)
        return None, SimpleNamespace(transaction="t", written=(), reconnected=(), pending=())

    monkeypatch.setattr(tuned_ends, "carry_out", noted)
    tunable = SimpleNamespace(name=name, effect=effect, key=key, backend=name.partition(".")[0])
    rows = [SimpleNamespace(state="change", tunable=tunable)]
    for role in ("initiator", "target"):
        NearEnd(role, "").write(SimpleNamespace(rows=rows), 60.0, [], nobody)  # type: ignore[arg-type]
    assert leaves == [Leave(reconnect=connects), Leave()]


def test_nothing_is_tuned_while_sessions_have_not_felt_what_an_earlier_apply_wrote(
    carried: list[str], climber: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look's time later it was refused by the name of an option that tune does not have."""
    made = climber([seen(10, "line"), seen(10, "line")])
    with pytest.raises(InputError) as raised:
        climb(ASKED, nobody)
    told, (applied,) = str(raised.value), journal.transactions()
    assert "disk1 at 10.2.0.1:3260" in told and "--confirm-within" not in told
    assert "`fabtune apply wan --reconnect` with the options that it had" in told
    assert f"`fabtune revert --transaction {applied.name} --reconnect`" in told
    assert made.looks_s == []
    # A re-login may wait.
    carried[0] = "new"
    climb(ASKED, nobody)
    assert made.looks_s


@pytest.fixture
def reverted(carried: list[str]) -> list[str]:
    """A host on which what `apply wan` wrote has gone back, and no connection was made anew."""
    assert main(["revert"]) == 4
    return carried


def test_what_a_revert_owes_is_brought_before_the_first_look(
    reverted: list[str], climber: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever had reverted was sent to `revert --reconnect`, which takes back everything else as well."""
    made = climber([seen(10, "line"), seen(10, "line")])

    def in_place(tasks: Sequence[Pending], *_: object, **__: object) -> tuple[list[Reconnected], list[Pending]]:
        assert [one.action for one in tasks] == [RECONNECT] and made.looks_s == []
        reverted[0] = "new"
        return [Reconnected("disk1", 1.5)], []

    waited: list[float] = []
    monkeypatch.setattr(reconnect, "in_place", in_place)
    monkeypatch.setattr(time, "sleep", waited.append)
    found = climb(ASKED, nobody)
    assert made.looks_s and max(waited) >= 1.5
    (said,) = [one for one in found.remarks if "earlier revert" in one]
    assert "disk1" in said and "1.5 s" in said
    # Once is enough.
    monkeypatch.setattr(reconnect, "in_place", lambda *_, **__: pytest.fail("again"))
    assert not [one for one in climb(ASKED, nobody).remarks if "earlier revert" in one]


def test_a_disk_that_is_not_there_is_said_before_any_session_pauses_for_what_a_revert_owes(
    reverted: list[str], climber: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    climber([])
    monkeypatch.setattr(reconnect, "in_place", lambda *_, **__: pytest.fail("connected anew"))
    with pytest.raises(InputError, match="sdtypo: no such block device"):
        climb(attrs.evolve(ASKED, disks=("sdtypo",)), nobody)


@pytest.mark.parametrize(("sectors", "in_flight", "pauses"), [(8, 0, True), (0, 1, True), (0, 0, False)])
def test_nor_does_any_where_nothing_moves(
    reverted: list[str], host: Path, climber: Make, monkeypatch: pytest.MonkeyPatch,
    sectors: int, in_flight: int, pauses: bool,
) -> None:  # fmt: skip
    """The pause is for a load, which other sessions of the host have perhaps, and this one has not."""
    counted = itertools.count(0, sectors)
    hosttree.put(blocks.directory("sd1") / "inflight", f"{in_flight} 0")

    def counters(_: object) -> list[int]:
        return [1, 0, next(counted), 0, 0, 0, 0, 0, in_flight, 0, 0]

    monkeypatch.setattr(DiskLook, "_counters", counters)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    climber([seen(10, "line"), seen(10, "line")])
    calls: list[object] = []

    def in_place(tasks: Sequence[Pending], *_: object, **__: object) -> tuple[list[Reconnected], list[Pending]]:
        calls.append(tasks)
        return [Reconnected("disk1", 1.5)], []

    monkeypatch.setattr(reconnect, "in_place", in_place)
    asked = attrs.evolve(ASKED, seconds=0.1)
    if pauses:
        climb(asked, nobody)
    else:
        with pytest.raises(FabtuneError, match="nothing moves on these disks.* --on sd1$"):
            climb(asked, nobody)
    assert bool(calls) == pauses


def test_where_that_is_not_possible_what_is_is_said(
    reverted: list[str], climber: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = climber([seen(10, "line")])
    monkeypatch.setattr(
        reconnect, "in_place", lambda tasks, *_, **__: ([], [replace(one, reason="a path is dead") for one in tasks])
    )
    with pytest.raises(InputError) as raised:
        climb(ASKED, nobody)
    (back,) = journal.transactions()
    assert "a path is dead" in str(raised.value) and made.looks_s == []
    assert f"`fabtune revert --transaction {back.name} --allow-relogin`" in str(raised.value)


def test_what_another_apply_still_has_in_force_is_not_brought_beside_it(
    reverted: list[str], climber: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(_APPLY) == 4
    monkeypatch.setattr(reconnect, "in_place", lambda *_, **__: pytest.fail("connected anew"))
    climber([seen(10, "line")])
    with pytest.raises(InputError, match=f"revert --transaction {journal.transactions()[-1].name} --reconnect"):
        climb(ASKED, nobody)


@pytest.fixture
def slipped_in(daemon: list[str], paces: dict[str, int], connect: Connect, tmp_path: Path) -> Callable[..., object]:
    """Somebody else's apply of a value that new connections bring, which comes in between a look and a step."""
    connect((1, 50.0))
    profile = tmp_path / "mine.toml"
    profile.write_text('summary = "a test"\n[initiator."tcp.mtu_probing"]\nvalue = 1\nwhy = "a test"\n')
    return lambda *words: main(["apply", str(profile), *_APPLY[2:], *words])


def windows_step() -> tuple[NearEnd, SavedPlan]:
    """Return the initiator, and a step that new connections alone bring."""
    share = Share("receive-window", 1.0, "", lifts=("iscsi.tcp_window",), ends=(INITIATOR,), profile="wan")
    end = NearEnd(INITIATOR, "")
    plan = end.plan(Lifting(Reason("wan", 1e9, (), (share,), (), 50.0), 50.0, estimated=False))
    assert "iscsi.tcp_window" in [one.tunable.name for one in plan.rows if one.state == "change"]
    return end, plan


@pytest.mark.parametrize("switched", [True, False])
@pytest.mark.parametrize("back", [False, True])
def test_what_somebody_applied_since_the_look_is_not_brought_by_a_step_and_is_said_by_name(
    slipped_in: Callable[..., object], monkeypatch: pytest.MonkeyPatch, switched: bool, back: bool
) -> None:
    """It was said to be in the way of an option that nobody gave, or, without systemd, brought with the step."""
    monkeypatch.setattr(tuned_ends, "watched", lambda: switched)
    monkeypatch.setattr(confirm, "_require_all_stays", lambda *_: None)
    monkeypatch.setattr(reconnect, "in_place", lambda *_, **__: pytest.fail("connected anew"))
    end, plan = windows_step()
    slipped_in()
    assert not back or main(["revert"]) == 4
    (other,) = journal.transactions()
    with pytest.raises(FabtuneError) as raised:
        end.write(plan, 60.0, [], nobody)
    told = str(raised.value)
    assert "--confirm-within" not in told and "disk1 at 10.2.0.1:3260" in told
    assert f"{other.name} (mine) was {'taken back' if back else 'written'} meanwhile" in told
    assert "nothing was written" in told and told.endswith("tune again")
    assert (f"`fabtune revert --transaction {other.name} --reconnect`" in told) is not back
    assert [one.name for one in journal.transactions()] == [other.name]


@pytest.mark.usefixtures("slipped_in")
def test_a_step_is_not_refused_by_the_name_of_an_option_that_nobody_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned_ends, "watched", lambda: True)
    monkeypatch.setattr(Users, "system_on", lambda *_: "/")
    end, plan = windows_step()
    with pytest.raises(FabtuneError, match=r"^a step could not go back by itself: sd\w+ of iqn.* carries /") as raised:
        end.write(plan, 60.0, [], nobody)
    assert "--confirm-within" not in str(raised.value)


def test_an_apply_that_waits_to_be_confirmed_keeps_a_step_from_being_written_and_is_no_word_of_an_apply(
    slipped_in: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confirm, "_require_all_stays", lambda *_: None)
    end, plan = windows_step()
    slipped_in("--confirm-within", "60s")
    with pytest.raises(FabtuneError, match="waits to be confirmed.*; then tune again$"):
        end.write(plan, 60.0, [], nobody)


@pytest.mark.parametrize(
    ("action", "due"),
    [(RECONNECT, True), (TARGET_RELOGIN, True), (RELOGIN, False), ("reload", False), ("saved", False)],
)
def test_a_step_taken_back_is_due_for_new_connections_by_what_they_bring_alone(
    monkeypatch: pytest.MonkeyPatch, action: str, due: bool
) -> None:
    report = SimpleNamespace(
        reconnected=(), problems=[], outcomes=[], pending=[Pending(action, "i", "iqn.a", "1", "boot")]
    )
    monkeypatch.setattr(taken_back, "undo", lambda *_: report)
    assert taken_back.here(["here"], nobody).due == due


def test_an_apply_with_a_limit_that_connects_anew_is_not_refused_for_what_only_a_re_login_brings(
    carried: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    carried[0] = "new"
    monkeypatch.setattr(confirm, "_require_all_stays", lambda *_: None)
    profile = tmp_path / "mine.toml"
    profile.write_text('summary = "a test"\n[initiator."tcp.mtu_probing"]\nvalue = 1\nwhy = "a test"\n')
    limited = ["apply", str(profile), *_APPLY[2:], "--confirm-within", "60s"]
    assert main([*limited, "--allow-relogin"]) == 2
    assert "would also take values of an earlier apply" in capsys.readouterr().err
    assert main([*limited, "--reconnect"]) == 4


@pytest.mark.parametrize("reverted_meanwhile", [True, False])
def test_a_step_that_counts_at_once_connects_nothing_anew_when_it_goes_back_either(
    carried: list[str], monkeypatch: pytest.MonkeyPatch, reverted_meanwhile: bool
) -> None:
    """What an administrator took back meanwhile, to be felt at night, had all sessions pause under their load."""
    monkeypatch.setattr(tuned_ends, "watched", lambda: False)
    (applied,) = journal.transactions()
    carried[0] = "new"
    end, plan = live_step()
    wrote = end.write(plan, 60.0, [], nobody)
    if reverted_meanwhile:
        assert main(["revert", "--transaction", applied.name]) == 4
    monkeypatch.setattr(reconnect, "in_place", lambda *_, **__: pytest.fail("connected anew"))
    step = TuningStep(
        ASKED, Aim(Goal.THROUGHPUT), seen(1, "line"), Learnt(), Wanted(Reason("wan", 5e8, (), ())), nobody
    )
    step.made, step.ends = [wrote.transaction], [Made(INITIATOR, "", wrote.transaction, tuple(wrote.rows))]
    assert step._take_back() == ""
    assert not [one for one in journal.transactions() if one.name == wrote.transaction and not one.closed]

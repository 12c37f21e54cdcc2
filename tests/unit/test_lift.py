# SPDX-License-Identifier: GPL-2.0-or-later
"""What is advised on a host of files whose sessions carried what kept looks saw: whose rows, and in what order."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
import hosttree
import pytest
from kept_looks import kept

from fabtune.catalog.tunable import shipped_catalog
from fabtune.cli import main
from fabtune.cli import why as why_verb
from fabtune.errors import ExitCode
from fabtune.facts.collect import Facts, collect
from fabtune.host import sockets
from fabtune.host.links import Links
from fabtune.host.nics import Nic
from fabtune.host.sessions import live_sessions
from fabtune.host.sockets import TcpSocket
from fabtune.measure.look import Look
from fabtune.measure.looked import Looked
from fabtune.model.beside_seen import BesideSeen
from fabtune.model.device import Device
from fabtune.model.observation import Observation
from fabtune.model.path import NetworkPath
from fabtune.tune import journal, lift, path_choice, reconnect
from fabtune.tune.apply import apply
from fabtune.tune.pending import Leave
from fabtune.tune.plan import CHANGE, REFUSED, Plan, Row
from fabtune.tune.undo import undo
from fabtune.tune.unlifted import without_row
from fabtune.tune.whose import Owned, Passed
from fabtune.why import words
from fabtune.why.judging import Share, judged
from fabtune.why.limiters.windows import WINDOW

SLOW = "untouched-read"
Enter = Callable[[int], Path]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Enter:
    """Makes and enters a host of files with so many sessions, on a path of 20 ms."""

    def enter(sessions: int) -> Path:
        hosttree.enter(hosttree.make(tmp_path / "host", sessions), monkeypatch)
        there = [
            TcpSocket("10.2.0.254", one.address, 40000, one.port, 20.0, 20.0, 0, 10, 1448, 0, "cubic", 0, 0)
            for one in live_sessions()
        ]
        for module in (sockets, reconnect):
            monkeypatch.setattr(module, "established", lambda netns="": there)
        return tmp_path / "host"

    return enter


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets every look see what is given."""

    def see(*seen: Observation) -> None:
        class Looked:
            def __init__(self, *_: object) -> None:
                pass

            def over(self, _: float, **_unused: object) -> Sequence[Observation]:
                return seen

        monkeypatch.setattr(lift, "Look", Looked)
        monkeypatch.setattr(why_verb, "Look", Looked)

    return see


Looks = Callable[..., None]


def _printed(capsys: pytest.CaptureFixture[str], code: int, *argv: str) -> str:
    assert main.main(argv) == code
    return capsys.readouterr().out


def _devices(rows: Sequence[dict[str, str]]) -> set[str]:
    return {row["identity"].split(",")[0] for row in rows if row["scope"] in ("record", "block")}


def test_nothing_is_advised_for_another_session_nor_for_a_disk_at_the_bound(
    host: Enter, looks: Looks, capsys: pytest.CaptureFixture[str]
) -> None:
    host(3)
    looks(kept(SLOW, 1), kept("wan-read", 2), kept(SLOW, 3))
    told = json.loads(_printed(capsys, 0, "why", "--json", "--rate", "200mbit"))["devices"]
    assert [_devices(one["plan"]) for one in told] == [{hosttree.iqn(1)}, set(), {hosttree.iqn(3)}]
    assert "iscsi.tcp_window" in {row["tunable"] for row in told[0]["plan"]}
    rows = json.loads(_printed(capsys, 0, "plan", "--from", "why", "--rate", "200mbit", "--json"))["rows"]
    assert _devices([row for row in rows if row["state"] == CHANGE]) == {hosttree.iqn(1), hosttree.iqn(3)}


def test_a_plan_from_why_is_applied_though_it_leaves_other_sessions_alone(
    host: Enter, looks: Looks, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host(2)
    looks(kept(SLOW, 1), kept("wan-read", 2))
    file = tmp_path / "x.plan"
    asked = ["--role", "initiator", "--rate", "200mbit"]
    assert hosttree.iqn(2) not in _printed(capsys, 0, "plan", "--from", "why", *asked, "--out", str(file))
    states = {
        row["device"]["label"][-13:]: row["state"]
        for row in json.loads(file.read_text())["rows"] if row["tunable"] == "iscsi.tcp_window"
    }  # fmt: skip
    assert states == {"10.2.0.1:3260": CHANGE, "10.2.0.2:3260": REFUSED}
    main.main(["apply", "--plan", str(file), "--dry-run"])
    assert "host has changed" not in capsys.readouterr().err


def test_what_a_plan_leaves_alone_is_counted_and_may_change_meanwhile(
    host: Enter, looks: Looks, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A host of 40 sessions of which one is limited got a line without a device for each of the others."""
    root = host(40)
    looks(kept(SLOW, 1), *(kept("wan-read", number) for number in range(2, 41)))
    file = str(tmp_path / "x.plan")
    _printed(capsys, 0, "plan", "--from", "why", "--role", "initiator", "--rate", "200mbit", "--out", file)
    record = root / "records" / hosttree.iqn(2)
    record.write_text(record.read_text().replace("window_size = 524288", "window_size = 1048576"))
    dry = _printed(capsys, 0, "apply", "--plan", file, "--dry-run")
    assert "39 left alone" in " ".join(dry.split()) and "10.2.0.2" not in dry
    main.main(["apply", "--plan", file, "--yes"])
    wrote = capsys.readouterr().out
    assert "39 values left alone: of no session that is limited by it" in wrote and "not written" not in wrote


def _rows(tunable: str, *devices: Device) -> list[Row]:
    return [Row(shipped_catalog().tunables[tunable], "initiator", one, "1", "2", CHANGE, "") for one in devices]


def test_a_nic_a_route_and_a_portal_are_those_that_the_session_uses() -> None:
    seen = kept(SLOW, 1)
    assert seen.initiator.nic
    bond = attrs.evolve(
        seen, initiator=attrs.evolve(seen.initiator, nic=attrs.evolve(seen.initiator.nic, name="bond0"))
    )
    nics = [
        Device("nic", f"name:{name},netns:init", name, {"below": below})
        for name, below in (("eth0", ""), ("bond0", "eth0"), ("eth1", ""))
    ]
    assert [row.device for row in Owned(_rows("nic.rx_ring", *nics)).of(bond, "initiator")] == nics[:2]
    ways = [("default,10.1.0.9,netns:init", "default dev bond0"),
            ("10.2.0.0/16,direct,netns:init", "10.2.0.0/16 dev bond0"),
            ("10.2.0.0/24,direct,netns:init,table:7", "10.2.0.0/24 dev eth1 table 7")]  # fmt: skip
    routes = _rows("route.congctl", *(Device("route", *one) for one in ways))
    assert [row.device and row.device.label for row in Owned(routes).of(bond, "initiator")] == ["10.2.0.0/16 dev bond0"]
    # A default route by a nexthop's number tells its family on its host alone.
    default = Device("route", "default,nhid 3,netns:init", "default dev bond0", {"family": "-6"})
    assert not Owned(_rows("route.congctl", default)).of(bond, "initiator")
    portals = [Device("connection", f"initiator 10.2.0.{one}:3260,netns:init", "") for one in (1, 2)]
    found = Owned(_rows("connection.pacing", *portals)).of(bond, "initiator")
    assert [row.device for row in found] == portals[:1]
    assert Owned(routes).of(bond, "target") == []


def test_of_two_sessions_with_one_portal_over_two_nics_the_record_is_the_limited_one_s() -> None:
    """`tune --on sda` rewrote the record of the path over the other NIC, too."""
    seen = kept(SLOW, 1)
    both = [f"{seen.session.target},{seen.session.portal},{name}" for name in ("eth1", "eth2")]
    rows = _rows("iscsi.tcp_window", *(Device("record", one, one) for one in both))
    over = attrs.evolve(seen, session=attrs.evolve(seen.session, interface="eth1"))
    share = Share("receive-window", 1.0, "", lifts=("iscsi.tcp_window",), ends=("initiator",))
    reason = lift.Reason("wan", None, (), (share,), (lift.Limited(over, (share,)),))
    assert [row.state for row in reason.lifting(rows)] == [CHANGE, REFUSED]
    # An older look does not tell over which.
    assert len(Owned(rows).of(seen, "initiator")) == 2
    for scope in ("record", "session", "block"):
        ours, theirs = (Device(scope, f"naa.6,{one}#2" if scope == "block" else one, "sdx") for one in both)
        assert Passed([ours]).by(over) and not Passed([theirs]).by(over) and Passed([theirs]).by(seen), scope


def test_a_look_tells_by_which_interface_a_session_logged_in(host: Enter, monkeypatch: pytest.MonkeyPatch) -> None:
    root = host(1)
    hosttree.put(root / "sys/class/iscsi_session/session1/ifacename", "eth1")
    (session,) = live_sessions()
    assert Look([])._session(Looked("sd1", session, None)).interface == "eth1"


def _apply(rtt_s: float, number: int, path: NetworkPath | None = None) -> None:
    """Apply a window to session `number`'s record alone, for a path of 100 Mb/s or that one."""
    record = next(
        one.device for one in collect([shipped_catalog().tunables["iscsi.tcp_window"]]).readings
        if one.device.identity.startswith(hosttree.iqn(number) + ",")
    )  # fmt: skip
    rows = [Row(shipped_catalog().tunables["iscsi.tcp_window"], "initiator", record, "524288", "0", CHANGE, "because")]
    plan = Plan("wan", ("initiator",), "", path or NetworkPath(rtt_s, 12.5e6), {}, rows)
    with journal.locked():
        apply(plan, collect([]).host, Leave(), lambda _: None)


def _rates(*seen: Observation) -> list[float | None]:
    return [one.rate_bytes_per_s for one in lift.with_known_rate(seen, None)]


def test_the_rate_of_a_profile_is_that_of_its_path_and_no_longer_than_it_is_in_force(host: Enter) -> None:
    host(2)
    _apply(0.020, 1)
    slow = kept(SLOW, 1)
    # Of another session, and of another path, it tells nothing.
    assert _rates(slow, kept(SLOW, 2), kept(SLOW, 1, rtt_ms=60.0)) == [12.5e6, None, None]
    assert undo("wan", None, None, "", False, Leave(), lambda _: None).exit_code == ExitCode.DONE
    assert _rates(slow) == [None]
    (found,) = lift.with_known_rate([slow], None)
    assert "fill the line" not in words.verdict(judged(found)[0])


_SLOW_NIC, _FAST_NIC = (
    Nic("eth0", "", 1500, 200 * 10**6, "0", ("eth0",)),
    Nic("eth1", "", 1500, 2 * 10**9, "1", ("eth1",)),
)


def _of_the_site(number: int, nic_bytes_per_s: float | None) -> Observation:
    """Return a kept look at session `number` as over a LAN, by a NIC of that speed."""
    seen = kept("wan-read", number, rtt_ms=0.2)
    nic = seen.initiator.nic and attrs.evolve(seen.initiator.nic, speed_bytes_per_s=nic_bytes_per_s)
    return attrs.evolve(seen, target=None, initiator=attrs.evolve(seen.initiator, nic=nic))


@pytest.mark.parametrize(
    "nics", [(_SLOW_NIC, _FAST_NIC), (_SLOW_NIC, Nic("bond0", "", 1500, 2 * 10**9, "", ("eth0",)))]
)
def test_a_rate_that_nobody_told_but_a_nic_is_no_line_s_of_another_nic_s_session(
    host: Enter, nics: tuple[Nic, ...]
) -> None:
    """After `apply lan` on a host of 1 and 10 Gb/s a full line of 1 Gb/s was no longer named."""
    host(1)
    facts = Facts(collect([]).host, "", [], [], list(nics), [])
    found = path_choice.choose(facts, 0.2, None)
    assert found and found.rate_bytes_per_s == 250e6 and not found.estimated
    _apply(0.0002, 1, found)
    (header,) = [one.header for one in journal.transactions()]
    assert (header.rate_bit_per_s, header.rate_by_nic) == (2e9, True)
    assert _rates(_of_the_site(1, 25e6), _of_the_site(1, None)) == [25e6, None]


def test_a_rate_that_was_told_is_no_more_than_the_session_s_own_nic_has(host: Enter) -> None:
    """An earlier fabtune did not write down that a NIC had told it."""
    host(1)
    _apply(0.0002, 1, NetworkPath(0.0002, 250e6))
    assert not journal.transactions()[0].header.rate_by_nic
    assert _rates(_of_the_site(1, 25e6), _of_the_site(1, 1250e6), _of_the_site(1, None)) == [25e6, 250e6, 250e6]
    # A tunnel's speed is anything: more passed.
    assert _rates(_of_the_site(1, 1.25e6)) == [250e6]


def test_the_rate_of_a_profile_is_not_believed_where_more_passed_of_all_disks_of_the_session(host: Enter) -> None:
    host(1)
    _apply(0.020, 1)
    seen = kept(SLOW, 1)
    socket = seen.initiator.socket
    assert socket
    # Another disk of the session moved as much: 24 MB/s over a line of 12.5 MB/s.
    samples = tuple(attrs.evolve(one, received_bytes=2 * one.received_bytes) for one in socket.samples)
    initiator = attrs.evolve(seen.initiator, socket=attrs.evolve(socket, samples=samples))
    session = attrs.evolve(seen.session, disks=("sd1", "sd2"))
    (found,) = lift.with_known_rate([attrs.evolve(seen, session=session, initiator=initiator)], None)
    assert found.rate_bytes_per_s is None
    assert "a line of 100 Mb/s, as told to the profile in force" in found.missing[-1]
    assert "fill the line" not in words.verdict(judged(found)[0])


def test_what_a_profile_wrote_to_all_sessions_alike_says_nothing_of_whose_it_was() -> None:
    seen = kept(SLOW, 1)
    everybody = Device("netns", "netns:init", "host")
    assert Passed([]).by(seen) and Passed([everybody]).by(seen)
    other = f"{hosttree.iqn(2)},10.2.0.2:3260,default"
    assert not Passed([everybody, Device("record", other, "")]).by(seen)
    # A disk's name may be another one's since.
    assert not Passed([Device("block", f"naa.6001405,{other}", "sd1")]).by(seen)


def test_what_was_written_below_a_bond_was_written_for_its_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = kept(SLOW, 1)
    assert seen.initiator.nic
    over = attrs.evolve(
        seen, initiator=attrs.evolve(seen.initiator, nic=attrs.evolve(seen.initiator.nic, name="bond0.10"))
    )
    wrote = Passed([Device("nic", "name:eth0,netns:init", "eth0", {})])
    assert not wrote.by(over)
    layers = {"bond0.10": ["bond0"], "bond0": ["eth0"]}
    monkeypatch.setattr(Links, "below", lambda _, name: layers.get(name, []))
    assert wrote.by(over)


def test_a_plan_from_why_shows_what_brings_most_first_and_saves_what_is_written_first(
    host: Enter, looks: Looks, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host(1)
    looks(kept(SLOW, 1))
    asked = ["plan", "--from", "why", "--role", "initiator", "--rate", "200mbit", "--out", str(tmp_path / "x.plan")]
    shown = [row["tunable"] for row in json.loads(_printed(capsys, 0, *asked, "--json"))["rows"]]
    saved = [row["tunable"] for row in json.loads((tmp_path / "x.plan").read_text())["rows"]]
    assert shown[0] == "iscsi.tcp_window" != saved[0]
    assert sorted(shown) == sorted(saved)
    told = json.loads(_printed(capsys, 0, "why", "--json", "--rate", "200mbit"))["devices"]
    assert [row["tunable"] for row in told[0]["plan"]] == shown[: len(told[0]["plan"])]


def _beside(seen: Observation, *others: str) -> Observation:
    """Return `seen` with `others` that move as much by the same NIC."""
    moved = {way: one.moved_bytes / seen.disk.elapsed_s * len(others) for way, one in seen.disk.ways.items()}
    return attrs.evolve(seen, beside=BesideSeen(others, moved, {}))


def test_what_brings_disks_of_one_line_most_is_shown_first_though_none_is_sure_of_its_part(
    host: Enter, looks: Looks, capsys: pytest.CaptureFixture[str]
) -> None:
    host(2)
    looks(_beside(kept(SLOW, 1), "sd2"), _beside(kept(SLOW, 2), "sd1"))
    asked = ["plan", "--from", "why", "--role", "initiator", "--rate", "400mbit", "--json"]
    shown = [row["tunable"] for row in json.loads(_printed(capsys, 0, *asked))["rows"]]
    assert shown[:2] == ["iscsi.tcp_window"] * 2
    told = json.loads(_printed(capsys, 0, "why", "--json", "--rate", "400mbit"))["devices"]
    assert [one["plan"][0]["tunable"] for one in told] == ["iscsi.tcp_window"] * 2


def test_a_plan_from_why_exits_as_why_does(host: Enter, looks: Looks, capsys: pytest.CaptureFixture[str]) -> None:
    host(1)
    idle = kept(SLOW, 1)
    none = {name: attrs.evolve(one, completed=0, moved_bytes=0) for name, one in idle.disk.ways.items()}
    samples = tuple(attrs.evolve(one, in_flight=0) for one in idle.disk.samples)
    idle = attrs.evolve(idle, disk=attrs.evolve(idle.disk, ways=none, samples=samples))
    for seen, code, said in ((kept("maxrate-read"), 5, "cannot tell"), (idle, 5, "idle"), (kept(SLOW), 0, "window")):
        looks(seen)
        for verb in (["why"], ["plan", "--from", "why", "--role", "initiator"]):
            assert main.main([*verb, "--rate", "200mbit"]) == code
            told = capsys.readouterr()
            assert said in told.out + told.err


def test_what_no_row_lifts_is_said_with_what_would(
    host: Enter, looks: Looks, capsys: pytest.CaptureFixture[str]
) -> None:
    host(1)
    looks(kept("nr-requests-read", 1))
    for verb in (["why"], ["plan", "--from", "why", "--role", "initiator"]):
        assert main.main([*verb, "--rate", "100mbit"]) == 0
        told = capsys.readouterr()
        assert "fabtune explain block.nr_requests" in " ".join((told.out + told.err).split())


def test_what_another_profile_has_a_row_for_is_said_with_the_command_that_plans_it() -> None:
    share = Share(WINDOW.name, 1.0, "", lifts=WINDOW.lifts, ends=("initiator",))
    (rest,) = without_row("lan", [share], [], ["initiator"])
    assert "fabtune plan wan --role initiator --only iscsi.tcp_window" in rest.in_words
    assert "fabtune explain" not in rest.in_words


def test_within_a_site_a_locked_window_has_a_row_of_the_plan(
    host: Enter, looks: Looks, capsys: pytest.CaptureFixture[str]
) -> None:
    host(1)
    looks(kept("untouched-write", 1, 0.5))
    assert main.main(["plan", "--from", "why", "--role", "initiator", "--rate", "25gbit", "--json"]) == 0
    assert "iscsi.tcp_window" in [one["tunable"] for one in json.loads(capsys.readouterr().out)["rows"]]


def test_a_queue_depth_that_counts_at_once_is_named_before_the_one_of_the_next_login() -> None:
    (way,) = judged(attrs.evolve(kept("queue-depth-read"), rate_bytes_per_s=12.5e6))
    (rest,) = without_row("wan", [way.first], [], ["initiator"])
    assert rest.tunables == ("block.queue_depth", "iscsi.queue_depth")
    assert "fabtune explain block.queue_depth" in rest.in_words


def test_what_no_profile_has_for_a_target_elsewhere_is_said(host: Enter) -> None:
    host(1)
    seen = kept("wan-depth2w", 1)
    full = attrs.evolve(seen, rate_bytes_per_s=25e6, disk=attrs.evolve(seen.disk, refusals={"task_set_full": 10_000}))
    (advice,) = lift.advised([lift.limited(full, judged(full))], None)
    assert [one.tunables for one in advice.unlifted] == [("lio.store_queue_depth",)]
    assert "--role target" in advice.unlifted[0].in_words
    assert lift.at_the_target(judged(full)) == []


def test_a_backstore_is_advised_where_it_is_the_only_one_and_else_said_to_be_unknown() -> None:
    """No session had its row, so that it was said to be of none that is limited."""
    seen = kept(SLOW, 1)
    full = Share("task-set-full", 1.0, "", lifts=("lio.store_queue_depth",), ends=("target",))
    reason = lift.Reason("wan", 1e8, (), (full,), (lift.Limited(seen, (full,)),), netns="target")
    tunable = shipped_catalog().tunables["lio.store_queue_depth"]
    rows = [
        Row(tunable, "target", Device("backstore", f"iblock_{number}/disk,abc", f"iblock_{number}/disk"), "1", "128",
            CHANGE, "")
        for number in range(2)
    ]  # fmt: skip
    (only,) = reason.lifting(rows[:1])
    assert only.state == CHANGE and not reason.unlifted(rows[:1], "./own.toml")
    assert [(row.state, row.note[:16]) for row in reason.lifting(rows)] == [(REFUSED, "it is not known ")] * 2


@pytest.mark.parametrize(("known", "said"), [(True, "of no session"), (False, "it is not known")])
def test_of_a_nic_it_is_said_that_it_is_not_known_whose_it_is(known: bool, said: str) -> None:
    seen = kept(SLOW, 1)
    if not known:
        seen = attrs.evolve(seen, initiator=attrs.evolve(seen.initiator, nic=None))
    ring = Share("nic-ring", 1.0, "", lifts=("nic.rx_ring",), ends=("initiator",))
    reason = lift.Reason("wan", 1e8, (), (ring,), (lift.Limited(seen, (ring,)),))
    (row,) = reason.lifting(_rows("nic.rx_ring", Device("nic", "name:other0,netns:init", "other0", {"below": ""})))
    assert row.state == REFUSED and row.note.startswith(said)


_WATCH = """
import sys
import kept_looks
from fabtune.cli import main, why

class Looked:
    def __init__(self, *_): pass
    def over(self, _, **_unused): return [kept_looks.kept("wan-read")]

why.Look = Looked
sys.exit(main.main())
"""


@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_watching_ends_when_the_reader_leaves(as_json: tuple[str, ...]) -> None:
    argv = [sys.executable, "-c", _WATCH, "why", "--watch", "--rate", "200mbit", *as_json]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": ":".join(sys.path)}) as run:
        assert run.stdout and run.stdout.readline()
        run.stdout.close()
        try:
            assert run.wait(timeout=30) == ExitCode.DONE
        finally:
            run.kill()

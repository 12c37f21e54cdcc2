# SPDX-License-Identifier: GPL-2.0-or-later
# ruff: noqa: F811 - tests take fixtures that they import
"""Sessions below one stripe, or one multipath device that deals requests out, share a line; no others are divided."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
import hosttree
import pytest
from test_tune_planned import FOUR, limited
from tuned_looks import no_path  # noqa: F401 - a fixture

from fabtune.autotune import wanted as wanting
from fabtune.autotune.goal import Aim, Goal
from fabtune.autotune.learnt import Learnt
from fabtune.autotune.view import View
from fabtune.autotune.wanted import wanted_steps
from fabtune.backends import record
from fabtune.cli.main import main
from fabtune.facts.host_snapshot import HostSnapshot
from fabtune.host import portal_options
from fabtune.host.portal_options import Options
from fabtune.host.sockets import TcpSocket
from fabtune.measure.looked import chosen
from fabtune.model.observation import Observation
from fabtune.why.judging import Share

# As it is, without what tests put in its place.
_DIVIDED = wanting._divided
LINE = 125e6 * 1514 / 1538
BDP = 125e6 * 0.1
Plan = Callable[..., tuple[set[str], set[str]]]
ALL = ("sd1", "sd2", "sd3", "sd4")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with four sessions that can pace single portals' connections."""
    root = hosttree.make(tmp_path, 4)
    for number in range(1, 5):
        for place in ("sys/devices/platform/host{0}/scsi_host/host{0}", "sys/class/scsi_host/host{0}"):
            hosttree.put(root / place.format(number) / "proc_name", "iscsi_tcp")
        hosttree.put(root / f"sys/block/sd{number}/dev", f"8:{16 * number}")
    hosttree.enter(root, monkeypatch)
    monkeypatch.setattr(portal_options, "no_means", lambda: "")
    monkeypatch.setattr(portal_options, "given", lambda _: Options())
    monkeypatch.setattr(HostSnapshot, "elsewhere", {})
    record.BACKEND.forget()
    return root


@pytest.fixture
def plan(host: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Plan:
    """Plans `wan` for 1 Gb/s; returns the paces in bytes/s and the largest receive buffer that it wants."""

    def of(
        *more: str, rtts_ms: Sequence[float] = (100.0,) * 4, of: Sequence[str] = ("10.2.0.101",) * 4
    ) -> tuple[set[str], set[str]]:
        found = [
            TcpSocket(local, f"10.2.0.{number}", 40000, 3260, rtt_ms, rtt_ms, 0, 10, 1448, 0, "cubic", 0, 0)
            for number, (rtt_ms, local) in enumerate(zip(rtts_ms, of, strict=True), 1)
        ]
        monkeypatch.setattr(HostSnapshot, "sockets", found)
        monkeypatch.setattr(HostSnapshot, "connections", found)
        words = ["plan", "wan", "--role", "initiator", "--rtt", "100ms", "--rate", "1gbit", *more]
        assert main([*words, "--json", "--all"]) == 0
        rows = json.loads(capsys.readouterr().out)["rows"]
        wanted = {name: {one["wanted"] for one in rows if one["tunable"] == name}
                  for name in ("connection.pacing", "tcp.rmem_max")}  # fmt: skip
        return wanted["connection.pacing"], wanted["tcp.rmem_max"]

    return of


def build(host: Path, name: str, below: Sequence[str], **files: str) -> None:
    """Build a device on others, which may be partitions."""
    block = host / "sys/block"
    for file, text in files.items():
        hosttree.put(block / name / file.replace("__", "/"), text)
    for slave in below:
        (block / name / "slaves").mkdir(parents=True, exist_ok=True)
        (block / name / "slaves" / slave).symlink_to(block / slave)
        holders = block / slave / "holders"
        holders.mkdir(exist_ok=True)
        (holders / name).symlink_to(block / name)


def mapped(host: Path, name: str, below: Sequence[str], kind: str) -> None:
    build(host, name, below, dm__name=f"the-{name}", dm__uuid=f"{kind}-{name}")


def tables(host: Path, *lines: str) -> None:
    """Make a dmsetup that tells these tables."""
    hosttree.put(host / "bin/dmsetup", "\n".join(["#!/bin/sh", "cat <<'END'", *lines, "END"]))
    (host / "bin/dmsetup").chmod(0o755)


def group(selector: str, *numbers: str) -> str:
    return f"{selector} 0 {len(numbers)} 1 " + " ".join(f"{number} 1" for number in numbers)


def multipath(host: Path, *groups: str) -> None:
    mapped(host, "dm-0", ALL, "mpath")
    features = "3 queue_if_no_path queue_mode mq 1 alua"
    tables(host, f"the-dm-0: 0 409600 multipath {features} {len(groups)} 1 {' '.join(groups)}")


WHOLE = ({str(math.ceil(LINE))}, {str(math.ceil(4 * BDP))})


def part(sessions: int) -> tuple[set[str], set[str]]:
    """What each of so many is given: its part of the line, and a buffer of which half is the whole path's BDP."""
    return {str(math.ceil(LINE / sessions))}, {str(math.ceil(2 * BDP))}


def test_sessions_that_nothing_joins_may_each_have_the_whole_line(plan: Plan) -> None:
    assert plan() == WHOLE


def test_the_sessions_of_a_stripe_share_the_line(host: Path, plan: Plan) -> None:
    build(host, "md0", ALL, md__level="raid0")
    assert plan() == part(4)
    # The user knows better.
    assert plan("--set", "busy_sessions=1") == WHOLE
    assert plan("--set", "busy_sessions=2") == part(2)


@pytest.mark.parametrize("level", ["linear", "raid1", "raid10", "raid5"])
def test_what_need_not_ask_all_its_disks_at_once_is_not_divided(host: Path, plan: Plan, level: str) -> None:
    build(host, "md0", ALL, md__level=level)
    assert plan() == WHOLE


@pytest.mark.parametrize("selector", ["round-robin", "queue-length", "service-time"])
def test_the_paths_of_a_multipath_device_that_deals_requests_out_share_the_line(
    host: Path, plan: Plan, selector: str
) -> None:
    multipath(host, group(selector, "8:16", "8:32", "8:48", "8:64"))
    assert plan() == part(4)


@pytest.mark.parametrize(
    ("groups", "wanted"),
    [
        ([group("service-time", f"8:{16 * one}") for one in range(1, 5)], WHOLE),
        ([group("service-time", "8:16", "8:32"), group("service-time", "8:48", "8:64")], part(2)),
        ([group("service-time", "8:16", "8:32", "8:48"), group("service-time", "8:64")], WHOLE),
        ([group("historical-service-time", "8:16", "8:32", "8:48", "8:64")], WHOLE),
        ([group("round-robin", "8:16", "8:32", "8:48", "253:9")], WHOLE),
        (["service-time 0 4 1 8:16"], WHOLE),
    ],
    ids=["failover", "two groups of two", "a path that stands by alone", "one that may keep to a path", "strange path",
         "cut off"],
)  # fmt: skip
def test_of_several_groups_of_paths_one_is_active(
    host: Path, plan: Plan, groups: Sequence[str], wanted: tuple[set[str], set[str]]
) -> None:
    multipath(host, *groups)
    assert plan() == wanted


def test_a_multipath_device_whose_table_may_not_be_read_is_not_divided(host: Path, plan: Plan) -> None:
    mapped(host, "dm-0", ALL, "mpath")
    hosttree.put(host / "bin/dmsetup", "#!/bin/sh\nexit 1")
    (host / "bin/dmsetup").chmod(0o755)
    assert plan() == WHOLE


@pytest.mark.parametrize(("target", "wanted"), [("striped 4 128", part(4)), ("linear", WHOLE)])
def test_a_volume_is_a_stripe_where_all_of_it_is(
    host: Path, plan: Plan, target: str, wanted: tuple[set[str], set[str]]
) -> None:
    mapped(host, "dm-0", ALL, "LVM")
    tables(host, f"the-dm-0: 0 409600 {target} 8:16 0 8:32 0 8:48 0 8:64 0", "the-dm-9: 0 8 linear 8:16 0")
    assert plan() == wanted
    # A volume beside it that lies on one disk alone has one session busy alone.
    mapped(host, "dm-9", ALL[:1], "LVM")
    assert plan() == WHOLE


def test_a_stripe_over_multipath_devices_of_single_paths_is_one(host: Path, plan: Plan) -> None:
    for number, disk in enumerate(ALL):
        mapped(host, f"dm-{number}", [disk], "mpath")
    tables(host, "No devices found")
    assert plan() == WHOLE
    build(host, "md0", [f"dm-{number}" for number in range(4)], md__level="raid0")
    assert plan() == part(4)


@pytest.mark.parametrize(
    ("rtts_ms", "of"),
    [
        ((100.0, 100.0, 100.0, 200.0), ("10.2.0.101",) * 4),
        ((100.0, 100.0, 100.0, 0.0), ("10.2.0.101",) * 4),
        ((100.0,) * 4, ("10.2.0.101", "10.2.0.101", "10.2.0.101", "10.3.0.101")),
    ],
    ids=["another distance", "distance not known", "another NIC"],
)
def test_sessions_that_may_go_by_several_lines_do_not_share_one(
    host: Path, plan: Plan, rtts_ms: Sequence[float], of: Sequence[str]
) -> None:
    """One of them would have a part of a line that is its own."""
    build(host, "md0", ALL, md__level="raid0")
    assert WHOLE[0] & plan("--set", "share_portal=1", rtts_ms=rtts_ms, of=of)[0]


def test_two_lines_with_two_sessions_each_are_shared_by_two(host: Path, plan: Plan) -> None:
    build(host, "md0", ALL, md__level="raid0")
    assert plan(of=("10.2.0.101", "10.3.0.101") * 2) == part(2)


def test_a_session_beside_the_stripe_may_be_busy_alone(host: Path, plan: Plan) -> None:
    build(host, "md0", ALL[:3], md__level="raid0")
    assert plan() == WHOLE


def test_a_partition_beside_the_stripe_may_be_busy_alone(host: Path, plan: Plan) -> None:
    parts = []
    for number, disk in enumerate(ALL, 1):
        name = f"sd{number}1"
        hosttree.put(host / f"sys/block/{disk}/{name}/partition", "1")
        (host / "sys/class/block").mkdir(parents=True, exist_ok=True)
        (host / "sys/class/block" / name).symlink_to(host / f"sys/block/{disk}/{name}")
        (host / "sys/class/block" / disk).symlink_to(host / f"sys/block/{disk}")
        parts.append(name)
    block = host / "sys/block"
    hosttree.put(block / "md0/md/level", "raid0")
    (block / "md0/slaves").mkdir()
    for disk, name in zip(ALL, parts, strict=True):
        (block / "md0/slaves" / name).symlink_to(block / disk / name)
        (block / disk / name / "holders").mkdir()
        (block / disk / name / "holders/md0").symlink_to(block / "md0")
    assert plan() == part(4)
    hosttree.put(block / "sd1/sd12/partition", "2")
    (host / "sys/class/block/sd12").symlink_to(block / "sd1/sd12")
    assert plan() == WHOLE


def test_the_plan_says_that_it_divides_and_what_the_target_must_be_told(
    host: Path, plan: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    build(host, "md0", ALL, md__level="raid0")
    plan()
    words = ["plan", "wan", "--role", "initiator", "--rtt", "100ms", "--rate", "1gbit"]
    assert main(words) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "4 sessions are always busy together on one line" in said
    assert "--set busy_sessions=4" in said and "--set busy_sessions=1" in said
    assert main([*words, "--set", "busy_sessions=1"]) == 0
    assert "busy together" not in " ".join(capsys.readouterr().out.split())


def test_a_look_knows_whose_sessions_are_busy_together(host: Path) -> None:
    build(host, "md0", ALL, md__level="raid0")
    found = [
        TcpSocket("10.2.0.101", f"10.2.0.{number}", 40000, 3260, 20.0, 20.0, 0, 10, 1448, 0, "cubic", 0, 0)
        for number in range(1, 5)
    ]
    assert [one.striped for one in chosen(["sd1", "sd3"], found)] == [4, 4]
    assert [one.striped for one in chosen(["sd1"], found[:3])] == [1]


@pytest.mark.parametrize(
    ("seen", "striped", "settings"),
    [(FOUR, 4, ("busy_sessions=4",)), (FOUR, 1, ()), (FOUR, 2, ("busy_sessions=2",)),
     (FOUR[:1], 4, ("busy_sessions=1",))],
    ids=["one stripe", "none", "two of two", "a look at one of four"],
)  # fmt: skip
def test_both_ends_pace_each_session_of_a_stripe_at_its_part_of_the_line_that_they_showed(
    monkeypatch: pytest.MonkeyPatch, seen: tuple[Observation, ...], striped: int, settings: tuple[str, ...]
) -> None:
    lost = Share("loss", 1.0, "loss", lifts=("route.congctl",), ends=("target",))
    seen = tuple(attrs.evolve(one, session=attrs.evolve(one.session, striped=striped)) for one in seen)
    monkeypatch.setattr(View, "overflowing_bit_per_s", 100e6)
    monkeypatch.setattr(wanting, "_divided", _DIVIDED)
    now = limited(*seen, by={one.device: (lost,) for one in seen})
    step = next(wanted_steps(now, Aim(Goal.THROUGHPUT), Learnt()))
    assert step.reason.rate_bit_per_s == pytest.approx(99.5e6)
    # Besides what a packet of the path takes (test_same_pace.py).
    divided = tuple(one for one in step.settings if not one.startswith(("packet=", "payload=")))
    assert divided == ("wire_overhead=0", *settings)

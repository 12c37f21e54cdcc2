# SPDX-License-Identifier: GPL-2.0-or-later
# ruff: noqa: F811 - tests take fixtures that they import
"""What a profile wants for one path is not given to the routes, disks and records of sessions of another."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import hosttree
import pytest
from test_lint import CARD, DISK, RECORD, SESSION, SOCKET, facts_with
from test_shared_pace import connect, host  # noqa: F401 - fixtures

from fabtune.catalog.profile import load_profile
from fabtune.catalog.tunable import shipped_catalog
from fabtune.cli.main import main
from fabtune.errors import InputError
from fabtune.facts.collect import Facts, Reading
from fabtune.host.sockets import TcpSocket
from fabtune.model.device import Device
from fabtune.model.path import NetworkPath
from fabtune.tune import shared_pace
from fabtune.tune.plan import CHANGE, KEPT, REFUSED, Row, make_plan

Connect = Callable[..., None]
Found = dict[str, tuple[str, str]]
SAN_ROUTE = Device("route", "10.0.0.0/24,direct,netns:init", "10.0.0.0/24 dev eth0", {"netns": ""})
WAN_ROUTE = Device("route", "default,192.0.2.1,netns:init", "default dev eth1", {"netns": "", "family": "-4"})
WAN_DISK = Device("block", "naa.2,iqn.w,198.51.100.9:3260,default", "sdb")
WAN_RECORD = Device("record", "iqn.w,198.51.100.9:3260,default", "w at 198.51.100.9:3260")
SAN_SOCKET = replace(SOCKET, rtt_ms=0.3, min_rtt_ms=0.3)
WAN_SOCKET = replace(SOCKET, remote="198.51.100.9", local="192.0.2.5", local_port=4001)
PATH = NetworkPath(0.05, 125e6)


def two_paths(sockets: Sequence[TcpSocket] = (SAN_SOCKET, WAN_SOCKET), initcwnd: str = "") -> Facts:
    """Return a host with a SAN's session and one across a WAN, each over a NIC of its own."""
    facts = facts_with()
    facts.sessions = [SESSION, replace(SESSION, sid=2, target="iqn.w", portal="198.51.100.9:3260",
                                       address="198.51.100.9", local_port=4001, luns=("sdb",))]  # fmt: skip
    facts.sockets = list(sockets)
    facts.nics = [CARD, replace(CARD, name="eth1")]
    facts.readings += [
        *(Reading("route.congctl", one, "") for one in (SAN_ROUTE, WAN_ROUTE)),
        *(Reading("route.initcwnd", one, initcwnd) for one in (SAN_ROUTE, WAN_ROUTE)),
        *(Reading("block.read_ahead_kb", one, "128") for one in (DISK, WAN_DISK)),
        *(Reading(name, WAN_RECORD, "5") for name in ("iscsi.noop_timeout", "iscsi.noop_interval")),
        Reading("block.timeout", WAN_DISK, "30"),
    ]
    return facts


def rows(profile: str, facts: Facts, path: NetworkPath = PATH, **settings: float) -> list[Row]:
    plan = make_plan(load_profile(profile, shipped_catalog()), ("initiator",), facts, path, settings)
    shared_pace.spare_others(plan, facts)
    return plan.rows


def planned(name: str, profile: str, facts: Facts, path: NetworkPath = PATH, **settings: float) -> Found:
    mine = (row for row in rows(profile, facts, path, **settings) if row.tunable.name == name)
    return {row.device.label: (row.state, row.note) for row in mine if row.device}


@pytest.mark.parametrize(
    ("profile", "name", "san", "wan"),
    [
        ("wan-lossy", "route.congctl", SAN_ROUTE, WAN_ROUTE),
        ("wan-clean", "route.congctl", SAN_ROUTE, WAN_ROUTE),
        ("wan-satellite", "route.initcwnd", SAN_ROUTE, WAN_ROUTE),
        ("wan-satellite", "block.timeout", DISK, WAN_DISK),
        ("wan-satellite", "iscsi.noop_interval", RECORD, WAN_RECORD),
        ("wan", "block.read_ahead_kb", DISK, WAN_DISK),
    ],
)
def test_a_san_s_session_beside_one_across_a_wan_is_left_alone_unless_asked(
    profile: str, name: str, san: Device, wan: Device
) -> None:
    found = planned(name, profile, two_paths())
    why = "a session with a round trip of 0.3 ms uses it, and this is for a path of 50 ms; --set share_path=1 overrides"
    assert found == {san.label: (REFUSED, why), wan.label: (CHANGE, "")}
    found = planned(name, profile, two_paths(), share_path=1.0)
    assert set(found.values()) == {(CHANGE, "")}


def test_a_ping_of_the_san_s_session_is_not_given_a_slow_path_s_patience() -> None:
    slow = NetworkPath(0.05, 1e6)
    assert {label: state for label, (state, _) in planned("iscsi.noop_timeout", "wan", two_paths(), slow).items()} == {
        RECORD.label: REFUSED, WAN_RECORD.label: CHANGE,
    }  # fmt: skip
    # What is right for every path is for both.
    assert {label: state for label, (state, _) in planned("iscsi.queue_depth", "wan", two_paths()).items()} == {
        RECORD.label: CHANGE,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("path", "mine", "other"),
    [(NetworkPath(0.0003, 125e6), "sda", "sdb"), (NetworkPath(0.05, 125e6), "sdb", "sda")],
)
def test_a_stream_s_queue_is_as_long_as_its_own_path_asks(path: NetworkPath, mine: str, other: str) -> None:
    """The WAN's disk was left two requests, as are enough for the SAN's."""
    facts = two_paths()
    facts.readings = [one for one in facts.readings if one.tunable != "block.queue_depth"]
    facts.readings += [Reading("block.queue_depth", one, "128") for one in (DISK, WAN_DISK)]
    found = planned("block.queue_depth", "short-queue", facts, path)
    assert {name: state for name, (state, _) in found.items()} == {mine: CHANGE, other: REFUSED}
    assert found[other][1].endswith("--set share_path=1 overrides")
    both = planned("block.queue_depth", "short-queue", facts, path, share_path=1.0)
    assert {state for state, _ in both.values()} == {CHANGE}


def test_a_window_that_an_administrator_made_larger_stays() -> None:
    found = planned("route.initcwnd", "wan-satellite", two_paths(initcwnd="400"))
    assert found[WAN_ROUTE.label] == (KEPT, "")
    assert planned("route.initcwnd", "wan-satellite", two_paths(initcwnd="20"))[WAN_ROUTE.label] == (CHANGE, "")


def test_whose_round_trip_is_not_known_is_written_to_and_that_is_said() -> None:
    unknown = "it is not known whether a session of the path of 50 ms uses it, and this host has another"
    san_unknown = replace(SAN_SOCKET, rtt_ms=0, min_rtt_ms=0)
    # Of two paths that are known, none leads to the SAN's disk for certain.
    other = replace(WAN_SOCKET, remote="198.51.100.10", local_port=4002, rtt_ms=10, min_rtt_ms=10)
    found = planned("block.read_ahead_kb", "wan", two_paths([san_unknown, WAN_SOCKET, other]))
    assert found == {"sda": (CHANGE, unknown), "sdb": (CHANGE, "")}
    found = planned("block.read_ahead_kb", "wan", two_paths([WAN_SOCKET, other]))
    assert found == {"sda": (CHANGE, unknown), "sdb": (CHANGE, "")}


def test_where_one_path_is_seen_it_is_the_one_that_is_meant() -> None:
    both = [replace(SOCKET, min_rtt_ms=50.0), WAN_SOCKET]
    told = NetworkPath(0.1, 125e6)
    for path in (PATH, told):
        assert set(planned("route.congctl", "wan-lossy", two_paths(both), path).values()) == {(CHANGE, "")}
        assert set(planned("block.read_ahead_kb", "wan", two_paths(both), path).values()) == {(CHANGE, "")}


def test_a_route_that_both_take_is_written_and_the_others_are_named() -> None:
    facts = two_paths()
    facts.readings = [one for one in facts.readings if one.device != SAN_ROUTE]
    note = "a session with a round trip of 0.3 ms uses it, too"
    assert planned("route.congctl", "wan-lossy", facts) == {WAN_ROUTE.label: (CHANGE, note)}


def test_which_way_a_session_goes_is_not_guessed() -> None:
    """Routes of a table that a rule chooses, and two that differ in their metric alone, tell nothing by themselves."""
    unknown = "it is not known whether a session of the path of 50 ms uses it, and this host has another"
    for more in (
        Device("route", "default,192.0.2.7,netns:init,table:101", "default dev eth2 table 101", {"netns": ""}),
        Device("route", "10.0.0.0/24,direct,netns:init,metric:7", "10.0.0.0/24 dev eth2", {"netns": ""}),
    ):
        facts = two_paths()
        facts.readings.append(Reading("route.congctl", more, ""))
        assert planned("route.congctl", "wan-lossy", facts)[SAN_ROUTE.label] == (CHANGE, unknown)
    # A network of the other family is nobody's of these.
    facts = two_paths()
    six = Device("route", "2001:db8::/32,direct,netns:init", "2001:db8::/32 dev eth0", {"netns": "", "family": "-6"})
    facts.readings.append(Reading("route.congctl", six, ""))
    assert planned("route.congctl", "wan-lossy", facts)[SAN_ROUTE.label][0] == REFUSED


def test_a_profile_without_the_override_does_not_offer_it(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    text = 'summary = "x"\n[initiator."block.timeout"]\nat_least = 90\nown_path = true\nwhy = "x"\n'
    mine.write_text(text)
    found = planned("block.timeout", str(mine), two_paths())
    assert found["sda"] == (REFUSED, "a session with a round trip of 0.3 ms uses it, and this is for a path of 50 ms")
    mine.write_text(text.replace("own_path = true\n", ""))
    assert set(planned("block.timeout", str(mine), two_paths()).values()) == {(CHANGE, "")}
    mine.write_text(text.replace("block.timeout", "tcp.rmem_max"))
    with pytest.raises(InputError, match=r"own_path.*tcp.rmem_max.*netns.*allowed: route, record, session, block"):
        load_profile(str(mine), shipped_catalog())


def test_what_lies_on_disks_of_both_is_one_of_the_planned_path_s(
    host: Path,
    connect: Connect,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    block = host / "sys/block"
    for name, slaves in (("dm-0", ["sd1"]), ("dm-1", ["sd1", "sd2"])):
        hosttree.put(block / name / "dm/uuid", f"LVM-{name}")
        hosttree.put(block / name / "dm/name", f"the-{name}")
        for slave in slaves:
            for link in (block / name / "slaves" / slave, block / slave / "holders" / name):
                link.parent.mkdir(exist_ok=True)
                link.symlink_to(block / link.name)
    for name in ("sd1", "sd2", "dm-0", "dm-1"):
        hosttree.put(block / name / "queue/read_ahead_kb", "128")
    connect(to=[(1, 0.2), (2, 50.0)])
    assert main(["plan", "wan", "--role", "initiator", "--rate", "1gbit", "--json", "--out", str(tmp_path / "p")]) == 0

    def states() -> dict[str, str]:
        found = json.loads(capsys.readouterr().out)["rows"]
        return {one["device"]: one["state"] for one in found if one["tunable"] == "block.read_ahead_kb"}

    assert states() == {"sd1": REFUSED, "sd2": CHANGE, "the-dm-0": REFUSED, "the-dm-1": CHANGE}
    # A saved plan is held against what is there when it is written.
    connect(to=[(1, 50.0), (2, 0.2)])
    main(["apply", "--plan", str(tmp_path / "p"), "--dry-run", "--json"])
    assert states()["sd2"] == REFUSED

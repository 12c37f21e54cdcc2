# SPDX-License-Identifier: GPL-2.0-or-later
"""Which portals' connections can be told apart, and what a plan makes of a host that can give them options or cannot.

What the kernel makes of it is tested in a guest: tests/vm/connection.bats.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import hosttree
import pytest

from fabtune import backends
from fabtune.backends import record
from fabtune.catalog.profile import load_profile
from fabtune.catalog.tunable import shipped_catalog
from fabtune.cli.main import main
from fabtune.errors import FabtuneError, UnsupportedError
from fabtune.facts import devices, portals
from fabtune.facts.collect import collect
from fabtune.facts.host_snapshot import HostSnapshot
from fabtune.host import portal_options
from fabtune.host.portal_options import Options, Portal
from fabtune.model.device import Device
from fabtune.model.path import NetworkPath
from fabtune.tune import memory, saved_plan
from fabtune.tune.plan import CHANGE, NOT_NEEDED, UNSUPPORTED, Plan, make_plan, tunables_of

WAN = NetworkPath(0.05, 125e6)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    root = hosttree.make(tmp_path, 1, 1)
    hosttree.put(root / "sys/devices/platform/host1/scsi_host/host1/proc_name", "iscsi_tcp")
    hosttree.put(root / "sys/class/scsi_host/host1/proc_name", "iscsi_tcp")
    hosttree.enter(root, monkeypatch)
    record.BACKEND.forget()
    yield root
    record.BACKEND.forget()


def able(monkeypatch: pytest.MonkeyPatch, given: Options) -> None:
    """Make this host one that can, and that gives `given` to the initiator's connections."""

    def of(portal: Portal) -> Options:
        return given if portal.role == "initiator" else Options()

    monkeypatch.setattr(portal_options, "no_means", lambda: "")
    monkeypatch.setattr(portal_options, "given", of)


def wan(*roles: str) -> tuple[Plan, dict[tuple[str, str], str]]:
    profile = load_profile("wan", shipped_catalog())
    plan = make_plan(profile, roles, collect(tunables_of(profile)), WAN, {})
    return plan, {(one.tunable.name, one.device.label if one.device else ""): one.state for one in plan.rows}


def test_portals_are_those_of_sessions_records_and_targets(host: Path) -> None:
    record_file = host / "records" / hosttree.iqn(1)
    record_file.write_text(record_file.read_text().replace("10.2.0.1", "2001:db8::7"))
    labels = [one.label for one in portals.portals(HostSnapshot())]
    assert labels == ["10.2.0.1:3260 as initiator", "[2001:db8::7]:3260 as initiator", "10.2.0.1:3260 as target"]
    # A name may stand for another address tomorrow, and an offload card's connections are not TCP's.
    record_file.write_text(record_file.read_text().replace("2001:db8::7", "storage.example"))
    (host / "sys/class/scsi_host/host1/proc_name").write_text("bnx2i\n")
    record.BACKEND.forget()
    assert [one.label for one in portals.portals(HostSnapshot())] == ["10.2.0.1:3260 as target"]


def test_a_portal_is_found_again_by_its_identity_alone(host: Path) -> None:
    for text in ("10.9.9.9:3261", "[2001:db8::7]:3260"):
        old = Device("connection", f"initiator {text},netns:init", text)
        found = devices.locate(old, HostSnapshot())
        assert found is not None and found.key == old.key
        assert found.label == f"{text} as initiator"
    gone = Device("connection", "target 10.2.0.1:3260,netns:nowhere", "x")
    assert devices.locate(gone, HostSnapshot()) is None


def test_a_host_that_can_paces_connections_and_each_role_its_own(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    able(monkeypatch, Options())
    _, states = wan("initiator", "target")
    mine = {place: state for place, state in states.items() if place[0] == "connection.pacing"}
    assert mine == {
        ("connection.pacing", "10.2.0.1:3260 as initiator"): CHANGE,
        ("connection.pacing", "10.2.0.1:3260 as target"): CHANGE,
    }
    assert {state for (name, _), state in states.items() if name == "qdisc.maxrate"} == {NOT_NEEDED}
    _, states = wan("target")
    assert [label for name, label in states if name == "connection.pacing"] == ["10.2.0.1:3260 as target"]


@pytest.mark.parametrize(("told", "share"), [({}, 1), ({"busy_sessions": 4.0}, 4), ({"busy_sessions": 0.0}, 1)])
def test_sessions_that_are_always_busy_together_are_each_paced_at_their_part_of_the_line(
    host: Path, monkeypatch: pytest.MonkeyPatch, told: dict[str, float], share: int
) -> None:
    able(monkeypatch, Options())
    profile = load_profile("wan", shipped_catalog())
    plan = make_plan(profile, ("initiator", "target"), collect(tunables_of(profile)), WAN, told)
    paced = {one.role: one.wanted for one in plan.rows if one.tunable.name == "connection.pacing"}
    assert paced == dict.fromkeys(("initiator", "target"), str(math.ceil(125e6 * 1514 / 1538 / share)))


@pytest.mark.parametrize("role", ["initiator", "target"])
def test_a_saved_plan_of_one_role_does_not_take_the_other_s_portal_for_a_new_one(
    host: Path, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    able(monkeypatch, Options())
    plan, _ = wan(role)
    plan.rows = [one for one in plan.rows if one.tunable.scope == "connection"]
    facts = collect([one.tunable for one in plan.rows])
    assert plan.rows and saved_plan.host_changes(saved_plan.of(plan, facts, shipped_catalog()), facts) == []


def test_a_host_that_cannot_says_why_and_paces_the_nic(host: Path) -> None:
    plan, states = wan("initiator")
    row = next(one for one in plan.rows if one.tunable.name == "connection.pacing")
    assert row.state == UNSUPPORTED
    assert "FABTUNE_ROOT" in row.note
    assert NOT_NEEDED not in {state for (name, _), state in states.items() if name == "qdisc.maxrate"}


def test_a_live_connection_with_another_value_is_no_such_value(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    able(monkeypatch, Options(pacing=1000, rcvbuf=5))
    device = portals.portals(HostSnapshot())[0]
    backend = backends.get("connection")
    monkeypatch.setattr(portal_options, "options_held", lambda _: [Options(pacing=1000), Options(pacing=7)])
    assert backend.read(device, "pacing") == "1000 (1 of 2 connections: 7)"
    # What is given back is what was given.
    assert backends.without_remark("connection", "1000 (1 of 2 connections: 7)") == "1000"
    # What is taken by new connections alone is not held against those that live.
    assert backend.read(device, "rcvbuf") == "5"
    monkeypatch.setattr(portal_options, "options_held", lambda _: [Options(pacing=1000)])
    assert backend.read(device, "pacing") == "1000"


def test_show_lists_what_connections_are_given(
    host: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    able(monkeypatch, Options(sndbuf=4096, congestion="reno"))
    assert main(["show"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "10.2.0.1:3260 as initiator send_buffer 4096, congestion_control reno" in told
    assert "10.2.0.1:3260 as target" not in told


def test_what_the_kernel_would_silently_change_is_refused(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    able(monkeypatch, Options())
    told: list[tuple[str, int | str]] = []
    monkeypatch.setattr(portal_options, "give", lambda _, name, value: told.append((name, value)))
    hosttree.put(host / "proc/sys/net/core/wmem_max", "212992")
    hosttree.put(host / "proc/sys/net/ipv4/tcp_available_congestion_control", "reno cubic")
    device = portals.portals(HostSnapshot())[0]
    backend = backends.get("connection")
    with pytest.raises(UnsupportedError, match=r"net\.core\.wmem_max allows 212992"):
        backend.write(device, "sndbuf", "212993")
    with pytest.raises(UnsupportedError, match="has loaded only: reno cubic"):
        backend.write(device, "congestion", "bbr")
    backend.write(device, "sndbuf", "212992")
    backend.write(device, "congestion", "reno")
    assert told == [("sndbuf", 212992), ("congestion", "reno")]


def test_buffers_that_connections_are_given_count_as_memory(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    able(monkeypatch, Options(rcvbuf=1 << 30))
    profile = load_profile("wan", shipped_catalog())
    tunables = [*tunables_of(profile), shipped_catalog().tunables["connection.receive_buffer"]]
    facts = collect(tunables)
    plan = make_plan(profile, ("initiator",), facts, WAN, {})
    # The kernel doubles what it is asked for.
    assert memory.worst_case(plan, facts).socket_bytes == (2 << 30) + 25_000_000


def test_without_the_compiled_program_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portal_options, "PACKAGE", tmp_path)
    assert "make bpf" in portal_options.no_means()


def test_only_root_reads_what_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(FabtuneError, match="only root"):
        portal_options.given(Portal("initiator", "10.2.0.1", 3260, ""))

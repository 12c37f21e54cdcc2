# SPDX-License-Identifier: GPL-2.0-or-later
"""A write to a queue waits for its requests: none is made where their session is away, and it comes last."""

from dataclasses import replace
from pathlib import Path

import hosttree
import pytest
from profiles import write

from fabtune.facts import devices
from fabtune.facts.host_snapshot import HostSnapshot
from fabtune.host import sessions
from fabtune.host.sessions import live_sessions
from fabtune.model.device import Device
from fabtune.tune import again, journal, persist
from fabtune.tune.revert import revert_transaction

_ROWS: dict[str, object] = {"net.netdev_max_backlog": 4321, "block.rq_affinity": 2}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with two sessions, a multipath device on both disks and a linear one on it."""
    root = hosttree.make(tmp_path / "host", 2)
    hosttree.enter(root, monkeypatch)
    for name, uuid, below in (
        ("dm-0", "mpath-1", ("sd1", "sd2")),
        ("dm-1", "LVM-1", ("dm-0",)),
        ("dm-2", "LVM-2", ("sd1", "sd2")),
    ):
        hosttree.put(root / f"sys/block/{name}/dm/uuid", uuid)
        for one in below:
            (root / f"sys/block/{name}/slaves/{one}").mkdir(parents=True)
    return root


def away(monkeypatch: pytest.MonkeyPatch, *disks: str) -> None:
    """Let the sessions of these disks be down."""
    known = live_sessions()
    assert [one.luns for one in known] == [("sd1",), ("sd2",)] or [list(one.luns) for one in known] == [
        ["sd1"],
        ["sd2"],
    ]
    found = [replace(one, state="FAILED" if set(one.luns) & set(disks) else "LOGGED_IN") for one in known]
    monkeypatch.setattr(sessions, "live_sessions", lambda: found)


@pytest.mark.parametrize(
    ("down", "wait"),
    [((), set()), (("sd1",), {"sd1", "dm-2"}), (("sd1", "sd2"), {"sd1", "sd2", "dm-0", "dm-1", "dm-2"})],
)
def test_a_device_waits_with_the_disks_that_it_needs(
    host: Path, monkeypatch: pytest.MonkeyPatch, down: tuple[str, ...], wait: set[str]
) -> None:
    away(monkeypatch, *down)
    everything = ("sd1", "sd2", "dm-0", "dm-1", "dm-2")
    assert {name for name in everything if sessions.why_waits(name)} == wait


def test_a_queue_goes_back_after_all_else(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(host, "some", _ROWS)
    transaction = journal.transactions()[-1]
    assert transaction.steps[-1].device.scope == "block"
    done = revert_transaction(transaction, None, False, False, (), transaction.header.boot_id, lambda _: [])
    is_queue = [one.step.device.scope == "block" for one in done]
    assert is_queue == sorted(is_queue) and len(set(is_queue)) == 2
    assert {one.state for one in done} == {"restored"}


@pytest.fixture
def named(host: Path) -> Device:
    """The multipath device as people call it, which the kernel does not."""
    hosttree.put(host / "sys/block/dm-0/dm/name", "mpatha")
    for name in ("dm-0", "sd1", "sd2"):
        hosttree.put(host / f"sys/block/{name}/queue/read_ahead_kb", "128")
    return next(one for one in devices.find("block", HostSnapshot()) if one.label == "mpatha")


def read_ahead(host: Path) -> str:
    return (host / "sys/block/dm-0/queue/read_ahead_kb").read_text().strip()


def all_away(host: Path) -> None:
    for number in (1, 2):
        hosttree.put(host / f"sys/class/iscsi_session/session{number}/state", "FAILED")


@pytest.mark.usefixtures("named")
def test_a_device_that_people_call_otherwise_is_not_written_while_it_waits(host: Path) -> None:
    all_away(host)
    result = write(host, "ahead", {"block.read_ahead_kb": 4096})
    assert [row.device.label for row, _ in result.refused if row.device] == ["sd1", "sd2", "mpatha"]
    assert read_ahead(host) == "128"


@pytest.mark.usefixtures("named")
def test_nor_does_its_value_go_back_or_is_written_again_meanwhile(host: Path) -> None:
    write(host, "ahead", {"block.read_ahead_kb": 4096})
    transaction = journal.transactions()[-1]
    all_away(host)
    hosttree.put(host / "sys/block/dm-0/queue/read_ahead_kb", "128")
    found = again.write_again(lambda _: None)
    assert found.absent == ["block.read_ahead_kb of mpatha"] and read_ahead(host) == "128"
    hosttree.put(host / "sys/block/dm-0/queue/read_ahead_kb", "4096")
    done = revert_transaction(transaction, None, False, False, (), transaction.header.boot_id, lambda _: [])
    assert {one.state for one in done} == {"waiting"}
    assert read_ahead(host) == "4096"


def test_a_rule_of_somebody_for_its_kernel_name_is_seen(host: Path, named: Device) -> None:
    file = "etc/udev/rules.d/60-read-ahead.rules"
    hosttree.put(host / file, 'ACTION=="add|change", KERNEL=="dm-*", ATTR{queue/read_ahead_kb}="128"')
    assert persist.what_sets("block.read_ahead_kb", named) == f"/{file} sets 128"
    hosttree.put(host / file, 'ACTION=="add|change", KERNEL=="sd*", ATTR{queue/read_ahead_kb}="128"')
    assert persist.what_sets("block.read_ahead_kb", named) == ""

# SPDX-License-Identifier: GPL-2.0-or-later
"""Hosts with something to take back, each with the words of a revert that meets it."""

from collections.abc import Callable
from pathlib import Path

import hosttree
import pytest
import test_came_by_itself as came_by_itself
import test_moved_beside as moved_beside
import test_other_identity as other_identity
import test_shares as shares
import test_waits as waits
from profiles import write

from fabtune.cli.main import main

BACKLOG = "proc/sys/net/core/netdev_max_backlog"
_PROBING = "proc/sys/net/ipv4/tcp_mtu_probing"
ONE: dict[str, object] = {"net.netdev_max_backlog": 2000}
TWO: dict[str, object] = {"net.netdev_max_backlog": 3000}
DISK: dict[str, object] = {"block.rq_affinity": 2}


def profiles(directory: Path) -> None:
    """Write the profiles that the hosts are tuned with by name."""
    for name in ("one", "two"):
        (directory / f"{name}.toml").write_text(came_by_itself._PROFILE)
    (directory / "mine.toml").write_text(moved_beside._PROFILE)


def held(host: Path) -> Path:
    """Apply what ends sessions to an ACL whose initiator is logged in; return the file of the value."""
    acl = host / f"sys/kernel/config/target/iscsi/{hosttree.iqn(1)}/tpgt_1/acls/iqn.i"
    hosttree.put(acl / "cmdsn_depth", "64")
    hosttree.put(acl / "info", "No active iSCSI Session for Initiator Endpoint: iqn.i")
    (host / "depth.toml").write_text('summary = "x"\n[target."lio.cmdsn_depth"]\nvalue = 128\nwhy = "x"\n')
    assert main(["apply", str(host / "depth.toml"), "--role", "target", "--rtt", "1ms", "--rate", "1gbit"]) == 0
    hosttree.put(acl / "info", "InitiatorName: iqn.i\nLIO Session ID: 1   SessionType: Normal")
    return acl / "cmdsn_depth"


Scenario = Callable[[Path, pytest.MonkeyPatch], tuple[str, ...]]


def _one(host: Path, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    write(host, "one", {"iscsi.cmds_max": 256, "tcp.mtu_probing": 1, **ONE, **DISK})
    return ()


def _three_on_one_value(host: Path, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    for name, value in (("one", 2000), ("two", 3000), ("three", 4000)):
        write(host, name, {"net.netdev_max_backlog": value, "tcp.mtu_probing": 1})
    return ()


def _the_middle_of_three(host: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    _three_on_one_value(host, monkeypatch)
    return ("two",)


def _the_first_of_three(host: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    _three_on_one_value(host, monkeypatch)
    return ("one",)


def _foreign(host: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    _three_on_one_value(host, monkeypatch)
    hosttree.put(host / BACKLOG, "7")
    hosttree.put(host / _PROBING, "2")
    return ()


def _foreign_in_between(host: Path, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    write(host, "one", ONE)
    hosttree.put(host / BACKLOG, "7")
    write(host, "two", TWO)
    return ()


def _the_first_under_a_foreign_one(host: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    _foreign_in_between(host, monkeypatch)
    return ("one",)


def _forced(host: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    _foreign(host, monkeypatch)
    return ("--force",)


def _by_hand_as_before(host: Path, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    write(host, "one", ONE)
    hosttree.put(host / BACKLOG, "1000")
    return ()


def _partly_back(host: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    _foreign(host, monkeypatch)
    main(["revert"])
    hosttree.put(host / BACKLOG, "4000")
    return ()


def _held(host: Path, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    held(host)
    return ()


def _held_with_leave(host: Path, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    held(host)
    return ("--end-sessions",)


def _a_dead_session(host: Path, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    write(host, "one", ONE | DISK)
    waits.all_away(host)
    return ()


def _a_disk_away(host: Path, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    write(host, "one", ONE | DISK)
    other_identity.log_out(host, 1)
    return ()


def _a_record_away(host: Path, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    write(host, "one", {"iscsi.cmds_max": 256})
    (host / "records" / hosttree.iqn(1)).unlink()
    return ()


def _an_unreadable_record(host: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    _a_record_away(host, monkeypatch)
    hosttree.put(host / f"etc/iscsi/nodes/{hosttree.iqn(1)}/10.2.0.1,3260,1/default", "")
    return ()


def _after_a_boot(host: Path, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    write(host, "one", ONE | {"iscsi.cmds_max": 256})
    came_by_itself.boots(host, "2000")
    return ()


def _after_a_boot_with_our_file(host: Path, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    came_by_itself.apply(host, "one", "--persist")
    came_by_itself.boots(host, "4321")
    came_by_itself.apply(host, "two", "--persist")
    return ()


def _a_vlan_made_anew(host: Path, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    came_by_itself.on_layers(host, eth0_10="4711")
    return ()


def _a_second_name(host: Path, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    hosttree.two_of_one_record(host)
    for disk in ("sd1", "sd2"):
        hosttree.put(host / f"sys/block/{disk}/queue/read_ahead_kb", "256")
    other_identity.apply(host)
    other_identity.log_out(host, 1)
    other_identity.apply(host, 8192)
    return ()


def shared_files(host: Path, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    for name in "abc":
        shares.keep(host, name)
    return ()


def _one_of_shared_files(host: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    shared_files(host, monkeypatch)
    return ("b",)


def _an_edited_file(host: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    shared_files(host, monkeypatch)
    file = host / shares.FILE
    file.write_text(file.read_text() + "net.ipv4.tcp_sack = 0\n")
    return ("b",)


def _a_scheduler(host: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    moved_beside.resets_requests(host, monkeypatch, none="64", mq_deadline="256")
    moved_beside.apply(host)
    return ()


def beside_a_scheduler_by_hand(host: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    _a_scheduler(host, monkeypatch)
    moved_beside.set_by_hand(host)
    return ()


SCENARIOS: tuple[Scenario, ...] = (
    _one, _three_on_one_value, _the_middle_of_three, _the_first_of_three, _foreign, _foreign_in_between,
    _the_first_under_a_foreign_one, _forced, _by_hand_as_before, _partly_back, _held, _held_with_leave,
    _a_dead_session, _a_disk_away, _a_record_away, _an_unreadable_record, _after_a_boot, _after_a_boot_with_our_file,
    _a_vlan_made_anew, _a_second_name, shared_files, _one_of_shared_files, _an_edited_file, _a_scheduler,
    beside_a_scheduler_by_hand,
)  # fmt: skip

# SPDX-License-Identifier: GPL-2.0-or-later
"""A value that is as fabtune wrote it, on a host or a device that has started anew since: who has brought it there."""

import json
from pathlib import Path
from typing import Any

import hosttree
import pytest

from fabtune.backends.textfile import HEADER
from fabtune.cli.main import main
from fabtune.host import tree
from fabtune.model.device import Device
from fabtune.tune import journal, persist
from fabtune.tune.transaction import Step, Transaction

_BOOT = "11111111-2222-3333-4444-555555555555"
_BACKLOG = "proc/sys/net/core/netdev_max_backlog"
_PROFILE = """
summary = "a sysctl"
[initiator."net.netdev_max_backlog"]
value = 4321
why = "a test"
"""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = hosttree.make(tmp_path / "root", 1)
    hosttree.enter(root, monkeypatch)
    for name in ("one", "two"):
        (tmp_path / f"{name}.toml").write_text(_PROFILE)
    return root


def apply(host: Path, name: str, *words: str) -> None:
    path = ("--role", "initiator", "--rtt", "1ms", "--rate", "1gbit", *words)
    assert main(["apply", str(host.parent / f"{name}.toml"), *path]) == 0


def boots(host: Path, value: str, number: int = 2) -> None:
    hosttree.put(host / "proc/sys/kernel/random/boot_id", f"{number:08}-2222-3333-4444-555555555555")
    hosttree.put(host / _BACKLOG, value)


def found(host: Path) -> str:
    return tree.read_text(host / _BACKLOG) or ""


def administrators_file(host: Path) -> None:
    hosttree.put(host / "etc/sysctl.d/99-admin.conf", "net.core.netdev_max_backlog = 4321")


def test_what_the_administrators_file_sets_at_boot_is_no_transactions_to_hand_on(host: Path) -> None:
    apply(host, "one")
    administrators_file(host)
    boots(host, "4321")
    apply(host, "two")
    assert main(["revert", "one"]) == 0 and main(["revert", "two"]) == 0
    assert found(host) == "4321"


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
def test_what_our_file_sets_at_boot_goes_with_the_last_that_wants_it(host: Path, order: tuple[str, str]) -> None:
    (host / "etc/sysctl.d").mkdir(parents=True)
    apply(host, "one", "--persist")
    boots(host, "4321")
    apply(host, "two")
    assert main(["revert", order[0]]) == 0
    assert found(host) == "4321"
    assert main(["revert", order[1]]) == 0
    assert found(host) == "1000" and not list((host / "etc/sysctl.d").iterdir())


@pytest.mark.parametrize("together", [True, False])
def test_what_another_profiles_file_sets_at_boot_goes_back_though_that_file_went_first(
    host: Path, together: bool
) -> None:
    (host / "etc/sysctl.d").mkdir(parents=True)
    apply(host, "one")
    apply(host, "two", "--persist")
    boots(host, "4321")
    for words in [[]] if together else [["two"], ["one"]]:
        assert main(["revert", *words]) == 0
    assert found(host) == "1000"


def test_a_file_of_ours_that_went_before_the_boot_has_brought_nothing(host: Path) -> None:
    (host / "etc/sysctl.d").mkdir(parents=True)
    apply(host, "one", "--persist")
    main(["revert"])
    apply(host, "one")
    administrators_file(host)
    boots(host, "4321")
    assert main(["revert"]) == 0
    assert found(host) == "4321"


def test_a_file_of_ours_that_was_written_after_the_boot_has_brought_nothing(host: Path) -> None:
    (host / "etc/sysctl.d").mkdir(parents=True)
    apply(host, "one")
    boots(host, "4321")
    apply(host, "two", "--persist")
    assert main(["revert", "two"]) == 0 and main(["revert", "one"]) == 0
    assert found(host) == "4321"


def transaction(*steps: Step) -> Transaction:
    return Transaction(Path("20260101T000000Z-000.jsonl"), steps=list(steps), applied=True)


def step(number: int, name: str, backend: str, key: str, device: Device, wrote: str) -> Step:
    return Step(number, _BOOT, name, backend, key, device, "old", wrote, "live", rounds=False)


DISK = Device("block", "naa.6001,iqn.t,10.2.0.1:3260,default#2", "sda")
HOST = Device("host", "host", "host")


@pytest.mark.parametrize(
    ("target", "depth", "ours"), [("iqn.t", "64", True), ("iqn.other", "64", False), ("iqn.t", "32", False)]
)
def test_a_disk_has_its_depth_from_its_own_record_alone(host: Path, target: str, depth: str, ours: bool) -> None:
    of_record = Device("record", f"{target},10.2.0.1:3260,default", "a record")
    queue = step(1, "block.queue_depth", "attribute", "device/queue_depth", DISK, "64")
    written = step(2, "iscsi.queue_depth", "record", "node.session.queue_depth", of_record, depth)
    assert persist.brought_by_us(queue, [transaction(queue, written)], "another boot") is ours


@pytest.mark.parametrize(
    ("name", "backend", "key", "device", "file", "line"),
    [
        ("tcp.rmem_max", "sysctl", "net.ipv4.tcp_rmem[2]", HOST, "etc/sysctl.d/90-fabtune.conf",
         "net.ipv4.tcp_rmem = 4096 131072 {}"),
        ("block.nr_requests", "attribute", "queue/nr_requests", DISK, "etc/udev/rules.d/99-fabtune.rules",
         'ACTION=="add", ATTR{{queue/nr_requests}}="{}"'),
    ],
)  # fmt: skip
def test_a_file_of_ours_has_brought_the_very_value_that_it_says(
    host: Path, name: str, backend: str, key: str, device: Device, file: str, line: str
) -> None:
    value = step(1, name, backend, key, device, "256")
    for text, ours in (("256", True), ("512", False)):
        written = step(2, "persist.file", "textfile", file, HOST, f"{HEADER}\n{line.format(text)}\n")
        assert persist.brought_by_us(value, [transaction(value, written)], "another boot") is ours


def on_layers(root: Path, **instances: str) -> None:
    """Have eth0 and its VLAN at 9000, both by fabtune; `instances` is which of them was written to."""
    for name in ("eth0", "eth0.10"):
        hosttree.put(root / f"sys/class/net/{name}/mtu", "9000")
    (root / "sys/class/net/eth0/upper_eth0.10").symlink_to("../eth0.10")
    (root / "sys/class/net/eth0.10/lower_eth0").symlink_to("../eth0")
    links: list[dict[str, Any]] = [{"ifname": "eth0"}, {"ifname": "eth0.10", "linkinfo": {"info_kind": "vlan"}}]
    shown = [{"flags": ["UP"], "address": "02:00:00:00:00:01", "addr_info": [], **one} for one in links]
    hosttree.put(root / "links", json.dumps(shown))
    script = f'#!/bin/sh\ncase "$*" in *address*) cat {root}/links;; *) echo "[]";; esac'
    hosttree.put(root / "bin/ip", script)
    (root / "bin/ip").chmod(0o755)
    name = "20260101T000000Z-000"
    lines: list[dict[str, Any]] = [
        {"kind": "begin", "version": 1, "transaction": name, "boot_id": _BOOT, "roles": ["initiator"], "netns": "",
         "profile": "lan-jumbo"},
    ]  # fmt: skip
    for number, nic in enumerate(("eth0", "eth0.10"), 1):
        own = str((root / f"sys/class/net/{nic}").stat().st_ino)
        device = {"scope": "nic", "identity": f"name:{nic},netns:init", "label": nic,
                  "instance": instances.get(nic.replace(".", "_"), own)}  # fmt: skip
        lines.append(
            {"kind": "write", "step": number, "boot_id": _BOOT, "tunable": "nic.mtu", "backend": "mtu", "key": "mtu",
             "device": device, "old": "1500", "wrote": "9000", "effect": "live", "rounds": False}
        )  # fmt: skip
    (root / "state/journal").mkdir(parents=True, mode=0o700)
    (root / "state").chmod(0o700)
    file = root / f"state/journal/{name}.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in [*lines, {"kind": "applied"}]))
    file.chmod(0o600)


def mtus(root: Path) -> tuple[str | None, str | None]:
    return tree.read_text(root / "sys/class/net/eth0/mtu"), tree.read_text(root / "sys/class/net/eth0.10/mtu")


def test_a_vlan_that_was_made_anew_has_its_mtu_from_the_nic_below_and_goes_back_with_it(host: Path) -> None:
    on_layers(host, eth0_10="4711")
    assert main(["revert"]) == 0
    assert mtus(host) == ("1500", "1500")
    assert [one.state for one in journal.transactions()] == ["taken back"]


def test_a_vlan_on_a_nic_that_has_come_anew_with_that_mtu_is_somebody_elses(host: Path) -> None:
    on_layers(host, eth0="4710", eth0_10="4711")
    assert main(["revert"]) == 0
    assert mtus(host) == ("9000", "9000")

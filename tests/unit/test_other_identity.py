# SPDX-License-Identifier: GPL-2.0-or-later
"""A disk, session or SRP port that has another identity since an apply: it is the same one, and owes its old value."""

from pathlib import Path

import hosttree
import pytest

from fabtune.cli.main import main
from fabtune.host import tree
from fabtune.tune import journal
from fabtune.tune.verify import Drift, verify

_PATH = ("--role", "initiator", "--rtt", "1ms", "--rate", "1gbit")
_READ_AHEAD = "sys/block/{}/queue/read_ahead_kb"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the tree of a host with two sessions of one record, of whose disks the second reads further ahead."""
    root = hosttree.make(tmp_path / "root", 2)
    hosttree.enter(root, monkeypatch)
    hosttree.two_of_one_record(root)
    hosttree.put(root / _READ_AHEAD.format("sd1"), "128")
    hosttree.put(root / _READ_AHEAD.format("sd2"), "256")
    return root


def apply(host: Path, value: int = 4096, tunable: str = "block.read_ahead_kb") -> str:
    """Apply a profile of this one value; return its transaction's name."""
    file = host.parent / f"of_{value}.toml"
    file.write_text(f'summary = "a test"\n[initiator."{tunable}"]\nvalue = {value}\nwhy = "a test"\n')
    assert main(["apply", str(file), *_PATH]) == 0
    return journal.transactions()[-1].name


def log_out(host: Path, number: int) -> None:
    """Have somebody log out session `number`: it goes with its disk, and its directories are no one else's."""
    for name in (f"class/iscsi_session/session{number}", f"class/iscsi_connection/connection{number}:0",
                 f"block/sd{number}", f"devices/platform/host{number}"):  # fmt: skip
        (host / "sys" / name).rename(host / f"gone-{name.replace('/', '-')}")


def read_ahead(host: Path, disk: str = "sd2") -> str | None:
    return tree.read_text(host / _READ_AHEAD.format(disk))


def seen() -> list[Drift]:
    return verify(None, ("initiator",), "")


@pytest.mark.parametrize("words", [(), ("--force",)])
def test_the_second_session_goes_back_when_it_has_become_the_first_of_its_record(
    host: Path, words: tuple[str, ...]
) -> None:
    apply(host)
    log_out(host, 1)
    assert main(["revert", *words]) == 0
    assert read_ahead(host) == "256" and [one.state for one in journal.transactions()] == ["taken back"]


def test_verify_names_the_disk_that_is_gone_and_not_the_one_that_has_its_place(host: Path) -> None:
    apply(host)
    log_out(host, 1)
    assert {one.device: (one.drifted, one.found) for one in seen()} == {"sd1": (True, None), "sd2": (False, "4096")}


@pytest.mark.parametrize("first", [0, 1])
def test_a_disk_that_was_tuned_again_in_its_new_place_goes_back_with_the_last_that_wants_it(
    host: Path, first: int
) -> None:
    names = [apply(host)]
    log_out(host, 1)
    names.append(apply(host, 8192))
    assert [(one.device, one.drifted, one.found) for one in seen() if one.found] == [("sd2", False, "8192")]
    assert main(["revert", "--transaction", names[first]]) == 0
    assert read_ahead(host) == ("8192" if first == 0 else "4096")
    assert main(["revert", "--transaction", names[1 - first]]) == 0
    assert read_ahead(host) == "256"


def test_a_disk_that_has_another_name_for_good_after_a_rescan_goes_back(host: Path) -> None:
    apply(host)
    for disk in ("sd1", "sd2"):
        hosttree.put(host / f"sys/block/{disk}/device/wwid", "naa.6001405999999999")
    assert main(["revert"]) == 0
    assert (read_ahead(host, "sd1"), read_ahead(host)) == ("128", "256")


def test_a_multipath_device_that_has_a_local_path_since_goes_back(host: Path) -> None:
    for name, text in (("dm/name", "mpatha"), ("dm/uuid", "mpath-3600"), ("queue/read_ahead_kb", "512")):
        hosttree.put(host / "sys/block/dm-0" / name, text)
    (host / "sys/block/dm-0/slaves").mkdir()
    (host / "sys/block/dm-0/slaves/sd1").symlink_to(host / "sys/block/sd1")
    apply(host)
    assert read_ahead(host, "dm-0") == "4096"
    (host / "sys/block/sdx").mkdir()
    (host / "sys/block/dm-0/slaves/sdx").symlink_to(host / "sys/block/sdx")
    assert main(["revert"]) == 0
    assert read_ahead(host, "dm-0") == "512"


def test_a_session_goes_back_when_it_has_become_the_first_of_its_record(host: Path) -> None:
    timeout = host / "sys/class/iscsi_session/session2/recovery_tmo"
    hosttree.put(timeout, "77")
    apply(host, 300, "iscsi.recovery_timeout")
    log_out(host, 1)
    assert tree.read_text(timeout) == "300" and main(["revert"]) == 0
    assert tree.read_text(timeout) == "77"


def test_an_srp_port_goes_back_although_its_port_has_another_id(host: Path) -> None:
    port = host / "sys/class/srp_remote_ports/port-1:1"
    hosttree.put(port / "port_id", "fe80:1")
    hosttree.put(port / "reconnect_delay", "10")
    apply(host, 20, "srp.reconnect_delay")
    assert tree.read_text(port / "reconnect_delay") == "20"
    hosttree.put(port / "port_id", "fe80:2")
    assert main(["revert"]) == 0
    assert tree.read_text(port / "reconnect_delay") == "10"

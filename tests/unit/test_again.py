# SPDX-License-Identifier: GPL-2.0-or-later
"""`apply --again` after a boot: what was lost is written, what somebody has set since is left alone."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hosttree
import pytest

from fabtune.backends import sysctl
from fabtune.cli.main import main
from fabtune.errors import FabtuneError
from fabtune.host import tree
from fabtune.model.device import Device
from fabtune.tune import again as again_module
from fabtune.tune import journal
from fabtune.tune.plan import Plan

_BOOT = "proc/sys/kernel/random/boot_id"
_SYSCTLS = ("net/ipv4/tcp_slow_start_after_idle", "net/ipv4/tcp_mtu_probing")
_PROFILE = """
summary = "two sysctls and a disk"
[initiator."tcp.slow_start_after_idle"]
value = false
why = "a test"
[initiator."tcp.mtu_probing"]
value = 1
why = "a test"
[initiator."block.rq_affinity"]
value = 2
why = "a test"
"""
_BOUND = """
summary = "a rule binds one to the other"
[initiator."tcp.rmem_default"]
value = 9000000
why = "a test"
[initiator."tcp.rmem_max"]
value = 9000000
why = "a test"
"""
_SACK = """
summary = "one sysctl"
[initiator."tcp.sack"]
value = false
why = "a test"
"""
_DISK = "sys/block/sd1/queue/rq_affinity"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the tree of a host with one session, on which the profile was applied."""
    root = hosttree.make(tmp_path / "root", 1)
    hosttree.enter(root, monkeypatch)
    (tmp_path / "two.toml").write_text(_PROFILE)
    assert main(["apply", str(tmp_path / "two.toml"), "--role", "initiator", "--rtt", "1ms", "--rate", "1gbit"]) == 4
    assert values(root) == ["0", "1", "2"]
    return root


def values(root: Path) -> list[str]:
    """Return what the profile sets, as it is."""
    places = [root / "proc/sys" / name for name in _SYSCTLS]
    return [tree.read_text(place) or "" for place in (*places, root / _DISK)]


def boot(root: Path, number: int, *found: str) -> None:
    """Let the host have booted, and come up with the values `found`."""
    hosttree.put(root / _BOOT, f"{number:08}-2222-3333-4444-555555555555")
    for place, value in zip([*(root / "proc/sys" / name for name in _SYSCTLS), root / _DISK], found, strict=True):
        hosttree.put(place, value)


def again(capsys: pytest.CaptureFixture[str], code: int = 0) -> dict[str, list[dict[str, str]]]:
    """Run it and return what it says."""
    capsys.readouterr()
    assert main(["apply", "--again", "--json"]) == code
    return dict(json.loads(capsys.readouterr().out))


def test_what_a_boot_undid_is_in_force_again_boot_after_boot_and_goes_back_as_one(
    host: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Nothing was lost: nothing is written, no transaction begun.
    assert again(capsys) == {"written": [], "left_alone": [], "absent": []}
    for number in (2, 3, 4):
        boot(host, number, "1", "0", "1")
        assert len(again(capsys)["written"]) == 3
        assert values(host) == ["0", "1", "2"]
        assert again(capsys)["written"] == []
        # The session, which a boot would have ended, has its connection from before.
        assert main(["verify"]) == 4
    assert main(["revert"]) == 4
    assert values(host) == ["1", "0", "1"]
    # What was taken back is not in force.
    boot(host, 5, "1", "0", "1")
    assert again(capsys)["written"] == [] and values(host) == ["1", "0", "1"]


def test_what_somebody_set_at_the_boot_is_left_to_him_and_said(host: Path, capsys: pytest.CaptureFixture[str]) -> None:
    boot(host, 2, "1", "2", "1")
    found = again(capsys, 3)
    assert [one["tunable"] for one in found["left_alone"]] == ["tcp.mtu_probing"]
    assert "somebody" in found["left_alone"][0]["why"]
    assert values(host) == ["0", "2", "2"]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("etc/sysctl.d/99-admin.conf", "net.ipv4.tcp_mtu_probing = 0"),
        ("etc/udev/rules.d/50-admin.rules", 'SUBSYSTEM=="block", ATTR{queue/rq_affinity}="1"'),
    ],
)
def test_what_a_file_of_the_administrator_sets_is_left_to_it_where_it_is_the_value_from_before_too(
    host: Path, capsys: pytest.CaptureFixture[str], file: str, text: str
) -> None:
    """So `--persist` does; the boot's unit wrote over it."""
    hosttree.put(host / file, text)
    boot(host, 2, "1", "0", "1")
    (left,) = again(capsys, 3)["left_alone"]
    assert left["why"] == f"/{file} sets {left['found']}"
    assert values(host) == (["0", "0", "2"] if "sysctl" in file else ["0", "1", "1"])


def test_a_value_that_a_file_of_the_administrator_sets_as_it_was_applied_is_written_again(
    host: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hosttree.put(host / "etc/sysctl.d/99-admin.conf", "net.ipv4.tcp_mtu_probing = 1")
    boot(host, 2, "1", "0", "1")
    assert len(again(capsys)["written"]) == 3 and values(host) == ["0", "1", "2"]


def test_a_disk_that_is_not_there_yet_gets_its_values_when_it_is(
    host: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    boot(host, 2, "1", "0", "1")
    session = host / "sys/class/iscsi_session/session1"
    session.rename(host / "away")
    assert [*map(str, again(capsys)["absent"])] == ["block.rq_affinity of sd1"]
    (host / "away").rename(session)
    assert [one["tunable"] for one in again(capsys)["written"]] == ["block.rq_affinity"]
    assert values(host) == ["0", "1", "2"]


def test_what_waits_for_a_confirmation_or_was_cut_off_is_not_in_force(
    host: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (journal,) = (host / "state/journal").glob("*.jsonl")
    lines = journal.read_text().splitlines(keepends=True)
    # As if the power had gone before the last line.
    journal.write_text("".join(lines[:-1]))
    boot(host, 2, "1", "0", "1")
    assert again(capsys)["written"] == [] and values(host) == ["1", "0", "1"]


def test_a_damaged_journal_is_no_journal_with_nothing_in_it(host: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (journal,) = (host / "state/journal").glob("*.jsonl")
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text(lines[0] + lines[1][:-5] + "\n" + "".join(lines[2:]))
    boot(host, 2, "1", "0", "1")
    (left,) = again(capsys, 2)["left_alone"]
    assert left["tunable"] == "journal" and "line 2 is damaged" in left["why"]
    # The boot's units fail with it, as they do not with 3; and try in vain once, not each five seconds for ever.
    assert main(["apply", "--again"]) == 2
    assert f"left alone: journal of {journal.stem}" in capsys.readouterr().out
    assert values(host) == ["1", "0", "1"]


def refuse(monkeypatch: pytest.MonkeyPatch, word: str, act: Callable[[], None] = lambda: None) -> None:
    """Let each write of a sysctl fail whose key has `word` in it, after `act`."""
    write = sysctl.BACKEND.write

    def refused(device: Device, key: str, text: str) -> None:
        if word in key:
            act()
            raise FabtuneError("refused")
        write(device, key, text)

    monkeypatch.setattr(sysctl.BACKEND, "write", refused)


@pytest.mark.parametrize("word", ["idle", "probing"])
def test_a_value_that_is_refused_keeps_no_other_from_being_written(
    host: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    refuse(monkeypatch, word)
    boot(host, 2, "1", "0", "1")
    found = again(capsys, 3)
    (left,) = found["left_alone"]
    assert word in left["tunable"] and left["why"] == "refused"
    assert values(host) == (["1", "1", "2"] if word == "idle" else ["0", "0", "2"]) and len(found["written"]) == 2


def test_what_a_rule_binds_to_a_value_that_is_refused_goes_back_with_it(
    host: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A buffer's default is not above its most: where one of them is refused the other is not written either."""
    (tmp_path / "bound.toml").write_text(_BOUND)
    rmem = host / "proc/sys/net/ipv4/tcp_rmem"
    assert main(["apply", str(tmp_path / "bound.toml"), "--role", "initiator", "--rtt", "1ms", "--rate", "1gbit"]) == 4
    assert rmem.read_text().split()[1:] == ["9000000", "9000000"]
    for word in ("rmem[1]", "rmem[2]"):
        with monkeypatch.context() as patch:
            refuse(patch, word)
            boot(host, 2, "1", "0", "1")
            hosttree.put(rmem, "4096\t131072\t6291456")
            found = again(capsys, 3)
        assert sorted(one["tunable"] for one in found["left_alone"]) == ["tcp.rmem_default", "tcp.rmem_max"]
        assert rmem.read_text().split()[1:] == ["131072", "6291456"] and values(host) == ["0", "1", "2"]
    assert len(again(capsys)["written"]) == 2


def test_what_is_read_otherwise_than_it_was_written_goes_back(
    host: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken for somebody else's, and its transaction stood open."""
    boot(host, 2, "1", "0", "1")
    write = sysctl.BACKEND.write

    def rounded(device: Device, key: str, text: str) -> None:
        write(device, key, "2" if "probing" in key and text == "1" else text)

    monkeypatch.setattr(sysctl.BACKEND, "write", rounded)
    (left,) = again(capsys, 3)["left_alone"]
    assert left["tunable"] == "tcp.mtu_probing" and "wrote 1, but it reads 2" in left["why"]
    assert values(host) == ["0", "0", "2"] and journal.transactions()[-1].state == "in force"
    (host.parent / "one.toml").write_text(_PROFILE.replace('"tcp.slow_start_after_idle"', '"tcp.sack"'))
    assert main(["apply", str(host.parent / "one.toml"), "--role", "initiator", "--rtt", "1ms", "--rate", "1gbit"]) == 1
    assert "everything written was taken back" in capsys.readouterr().err
    assert values(host) == ["0", "0", "2"] and journal.transactions()[-1].state == "taken back"


def sack_is_to_be_written_again(host: Path, directory: Path) -> None:
    """Apply a profile that sets tcp.sack beside the other, and boot the host to the kernel's own values."""
    (directory / "sack.toml").write_text(_SACK)
    assert main(["apply", str(directory / "sack.toml"), "--role", "initiator", "--rtt", "1ms", "--rate", "1gbit"]) == 4
    boot(host, 2, "1", "0", "1")
    hosttree.put(host / "proc/sys/net/ipv4/tcp_sack", "1")


def test_a_value_that_cannot_be_taken_back_takes_its_profile_back_and_no_other(
    host: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sack_is_to_be_written_again(host, tmp_path)
    probing = host / "proc/sys" / _SYSCTLS[1]
    refuse(monkeypatch, "probing", lambda: hosttree.put(probing, "2"))
    found = again(capsys, 1)
    assert [one["tunable"] for one in found["written"]] == ["tcp.sack"] and len(found["left_alone"]) == 3
    assert all("could not be taken back" in one["why"] for one in found["left_alone"])
    assert values(host) == ["1", "2", "1"]


def test_a_signal_ends_it_and_what_stays_is_said(
    host: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sack_is_to_be_written_again(host, tmp_path)
    refuse(monkeypatch, "sack", lambda: signal.raise_signal(signal.SIGINT))
    capsys.readouterr()
    assert main(["apply", "--again"]) == 130
    assert values(host) == ["0", "1", "2"]
    last = [one for one in journal.transactions() if one.state == "in force"][-1]
    assert f"what was written again before stays: {last.name}" in capsys.readouterr().err


def test_a_disk_whose_session_is_down_is_waited_for(host: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its write would wait for requests; a transaction began for it each time."""
    boot(host, 2, "0", "1", "1")
    state = host / "sys/class/iscsi_session/session1/state"
    hosttree.put(state, "FAILED")
    before = len(journal.transactions())
    assert [*map(str, again(capsys)["absent"])] == ["block.rq_affinity of sd1"]
    assert len(journal.transactions()) == before
    hosttree.put(state, "LOGGED_IN")
    assert len(again(capsys)["written"]) == 1 and values(host) == ["0", "1", "2"]


def test_a_disk_that_comes_while_it_is_at_work_has_its_values_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd starts no unit for a disk that is starting already."""
    root = hosttree.make(tmp_path / "root", 2)
    hosttree.enter(root, monkeypatch)
    (tmp_path / "two.toml").write_text(_PROFILE)
    assert main(["apply", str(tmp_path / "two.toml"), "--role", "initiator", "--rtt", "1ms", "--rate", "1gbit"]) == 4
    queues = [root / f"sys/block/sd{number}/queue/rq_affinity" for number in (1, 2)]
    boot(root, 2, "1", "0", "1")
    hosttree.put(queues[1], "1")
    places = [root / "sys" / one for one in ("block/sd2", "class/iscsi_session/session2")]
    away = [place.rename(tmp_path / place.name) for place in places]
    looks: list[int] = []
    planned = again_module._plans

    def plans(*words: Any) -> list[Plan]:
        found = planned(*words)
        while away:
            away.pop().rename(places.pop())
        looks.append(len(found))
        return found

    monkeypatch.setattr(again_module, "_plans", plans)
    found = again(capsys)
    assert [tree.read_text(one) for one in queues] == ["2", "2"]
    assert len(found["written"]) == 4 and not found["absent"] and not found["left_alone"]
    assert looks == [1, 1]


@pytest.mark.parametrize("words", [["wan"], ["--persist"], ["--netns", "x"], ["--reconnect"], ["--dry-run"]])
def test_it_takes_nothing_beside_it(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["apply", "--again", *words]) == 2
    assert "--again" in capsys.readouterr().err


def test_a_transaction_goes_with_what_was_written_again_for_it(host: Path) -> None:
    (first,) = journal.transactions()
    for number in (2, 3):
        boot(host, number, "1", "0", "1")
        assert main(["apply", "--again"]) == 0
    assert values(host) == ["0", "1", "2"]
    assert [one.root for one in journal.transactions()] == [first.name] * 3
    assert main(["revert", "--transaction", first.name]) == 4
    assert values(host) == ["1", "0", "1"]
    assert {one.state for one in journal.transactions()} == {"taken back"}


def test_a_transaction_goes_alone_where_another_one_was_written_again(host: Path, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text(_SACK)
    words = ["--role", "initiator", "--rtt", "1ms", "--rate", "1gbit"]
    assert main(["apply", str(tmp_path / "other.toml"), *words]) == 4
    first, second = journal.transactions()
    boot(host, 2, "1", "0", "1")
    hosttree.put(host / "proc/sys/net/ipv4/tcp_sack", "1")
    assert main(["apply", "--again"]) == 0
    assert main(["revert", "--transaction", second.name]) == 4
    assert tree.read_text(host / "proc/sys/net/ipv4/tcp_sack") == "1" and values(host) == ["0", "1", "2"]
    assert [one.root for one in journal.transactions() if not one.closed] == [first.name] * 2

# SPDX-License-Identifier: GPL-2.0-or-later
"""`apply --again` after a boot: what was lost is written, what somebody has set since is left alone."""

import json
from pathlib import Path

import hosttree
import pytest

from fabtune.cli.main import main
from fabtune.host import tree

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
    (left,) = again(capsys, 1)["left_alone"]
    assert left["tunable"] == "journal" and "line 2 is damaged" in left["why"]
    # The boot's unit fails with it, which it does not with 3.
    assert main(["apply", "--again"]) == 1
    assert f"left alone: journal of {journal.stem}" in capsys.readouterr().out
    assert values(host) == ["1", "0", "1"]


@pytest.mark.parametrize("words", [["wan"], ["--persist"], ["--netns", "x"], ["--reconnect"], ["--dry-run"]])
def test_it_takes_nothing_beside_it(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["apply", "--again", *words]) == 2
    assert "--again" in capsys.readouterr().err

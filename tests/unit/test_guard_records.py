# SPDX-License-Identifier: GPL-2.0-or-later
"""Node records that somebody else rewrites while fabtune goes on: a discovery resets them to iscsid.conf's values."""

import json
import time
from pathlib import Path

import hosttree
import pytest

from fabtune.backends import record
from fabtune.cli import console
from fabtune.cli.main import main
from fabtune.export import kept
from fabtune.export.verified import Verified
from fabtune.guard.remedy import put_right_by
from fabtune.guard.rounds import Guard
from fabtune.tune import journal
from fabtune.tune.verify import Drift

_PROFILE = """
summary = "a value of a record"
[initiator."iscsi.tcp_window"]
value = 0
why = "a test"
"""
_WINDOW = "node.conn[0].tcp.window_size"


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the words that apply the profile to a host with one session."""
    hosttree.enter(hosttree.make(tmp_path, 1), monkeypatch)
    monkeypatch.setenv("FABTUNE_RUNTIME_DIR", str(tmp_path / "run"))
    (tmp_path / "mine.toml").write_text(_PROFILE)
    return ["apply", str(tmp_path / "mine.toml"), "--role", "initiator", "--rtt", "5ms", "--rate", "1gbit"]


def put(root: Path, value: str) -> None:
    """Rewrite the record as iscsiadm does when it discovers."""
    path = root / f"records/{hosttree.iqn(1)}"
    lines = path.read_text().splitlines()
    hosttree.put(path, "\n".join(f"{_WINDOW} = {value}" if line.startswith(_WINDOW) else line for line in lines))


def test_guard_tells_of_a_record_that_a_discovery_reset_and_when_it_is_right_again(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main([*words, "--yes"]) == 4
    # The guard is a process of its own.
    record.BACKEND.forget()
    now_s = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    guard, told = Guard(heal=False), list[tuple[str, str, int]]()
    for value in ("0", "524288", "524288", "0"):
        put(tmp_path, value)
        now_s[0] += 120
        outcome = guard.look(lambda _: None)
        found = kept.saved(Verified)
        assert found is not None
        told += [(one.kind, one.text.partition(":")[0], sum(found.drifted.values())) for one in outcome]
    drift = "iscsi.tcp_window of disk1 at 10.2.0.1"
    assert told == [("drift", drift, 1), ("as-applied", f"{drift}", 0)]


def test_a_record_that_a_discovery_reset_is_told_with_what_puts_it_right_as_healing_never_does(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts at the next login; `apply --again` leaves records to their own file as a boot does."""
    assert main([*words, "--yes"]) == 4
    (applied,) = journal.transactions()
    now_s = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    guard = Guard(heal=True)
    put(tmp_path, "524288")
    (told,) = guard.look(lambda _: None)
    assert told.kind == "drift" and "--heal and `apply --again` write no node record" in told.text
    assert f"`fabtune apply` of 'mine' with what transaction {applied.name} was told puts it right" in told.text
    record.BACKEND.forget()
    main(["apply", "--again"])
    assert f"{_WINDOW} = 524288" in (tmp_path / f"records/{hosttree.iqn(1)}").read_text()
    record.BACKEND.forget()
    assert main([*words, "--yes"]) == 4
    assert f"{_WINDOW} = 0" in (tmp_path / f"records/{hosttree.iqn(1)}").read_text()
    now_s[0] += 120
    assert [one.kind for one in guard.look(lambda _: None)] == ["as-applied"]


@pytest.mark.parametrize(
    ("tunable", "said"),
    [
        ("tcp.rmem_max", ""),
        ("tcp.congestion_control", "`fabtune apply --again` writes it if nobody has set it since"),
        (
            "lio.cmdsn_depth",
            "write nothing that a login, a load or a boot must bring: `fabtune apply` of its profile puts",
        ),
        ("session", ""),
    ],
)
def test_what_healing_leaves_is_said_of_what_it_leaves_alone(tunable: str, said: str) -> None:
    found = put_right_by(Drift(tunable, "host", "1", "2", drifted=True), [])
    assert said in found and bool(said) == bool(found)
    assert put_right_by(Drift(tunable, "host", "1", None, drifted=True), []) == ""


def test_what_was_in_a_record_is_asked_once_more_before_it_is_written(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A discovery may come while somebody reads the plan, which then is another one than was agreed to."""
    monkeypatch.setattr(console, "interactive", lambda: True)

    def answer(_: str) -> bool:
        put(tmp_path, "65536")
        return True

    monkeypatch.setattr(console, "agreed", answer)
    assert main([*words, "--json"]) != 0
    assert "65536" in json.loads(capsys.readouterr().out)["error"]["message"]
    assert (
        journal.transactions() == [] and f"{_WINDOW} = 65536" in (tmp_path / f"records/{hosttree.iqn(1)}").read_text()
    )

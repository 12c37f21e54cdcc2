# SPDX-License-Identifier: GPL-2.0-or-later
"""`fabtune history TRANSACTION` shows what one apply wrote, value by value, and what became of each."""

import json
from pathlib import Path

import hosttree
import pytest

from fabtune.cli.main import main
from fabtune.errors import ExitCode
from fabtune.tune import journal

_QUEUE = "sys/block/sd1/queue"
_PROFILE = """summary = "a test"
[initiator."block.read_ahead_kb"]
value = 4096
why = "a test"
[initiator."block.add_random"]
value = false
why = "a test"
"""


@pytest.fixture
def applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Apply a profile of two values on a host with one disk; return the transaction's id."""
    root = hosttree.make(tmp_path / "root", 1)
    hosttree.enter(root, monkeypatch)
    hosttree.put(root / _QUEUE / "read_ahead_kb", "128")
    hosttree.put(root / _QUEUE / "add_random", "1")
    profile = tmp_path / "mine.toml"
    profile.write_text(_PROFILE)
    words = ["--role", "initiator", "--rtt", "5ms", "--rate", "1gbit", "--note", "ticket 42"]
    assert main(["apply", str(profile), *words]) == ExitCode.DONE
    capsys.readouterr()
    return journal.transactions()[0].name


def test_each_value_of_a_transaction_is_shown_with_what_became_of_it(
    applied: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", applied]) == ExitCode.DONE
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "ticket 42" in lines and "told or measured: round trip 5 ms, rate 1 Gb/s" in lines
    # What writing the other moves is journalled before.
    assert [line for line in lines if line.startswith("block.")] == [
        "block.read_ahead_kb sd1 128 128 as it was",
        "block.add_random sd1 1 0 stays",
        "block.read_ahead_kb sd1 128 4096 stays",
    ]
    assert main(["revert"]) == ExitCode.DONE
    capsys.readouterr()
    assert main(["history", applied]) == ExitCode.DONE
    out = capsys.readouterr().out
    assert out.count("taken back") == 4 and "stays" not in out


def test_a_transaction_that_is_not_there_is_said(applied: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "20200101T000000Z-000"]) == ExitCode.USAGE
    assert "20200101T000000Z-000: not in the journal; `fabtune history` lists them" in capsys.readouterr().err
    assert main(["history", applied, "--json"]) == ExitCode.DONE
    (one,) = json.loads(capsys.readouterr().out)
    assert one["transaction"] == applied and len(one["steps"]) == 3

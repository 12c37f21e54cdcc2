# SPDX-License-Identifier: GPL-2.0-or-later
"""Whom a row of a plan concerns, and that --scope connection leaves everybody else alone."""

import json
from pathlib import Path

import hosttree
import pytest

from fabtune.backends import record
from fabtune.catalog.tunable import shipped_catalog
from fabtune.cli.main import main

PATH = ("--rtt", "50ms", "--rate", "1gbit")


def _rows(capsys: pytest.CaptureFixture[str], *more: str) -> list[dict[str, str]]:
    assert main(["plan", "wan", *PATH, "--json", *more]) == 0
    rows: list[dict[str, str]] = json.loads(capsys.readouterr().out)["rows"]
    return rows


def test_scope_connection_refuses_what_concerns_more_than_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hosttree.enter(hosttree.make(tmp_path / "host", 1, 1), monkeypatch)
    record.BACKEND.forget()
    wide, narrow = _rows(capsys), _rows(capsys, "--scope", "connection")
    written = {row["tunable"]: row["touches"] for row in narrow if row["state"] == "change"}
    left = {row["tunable"] for row in narrow if "--scope connection" in row["note"]}
    assert {"iscsi.tcp_window", "tcp.rmem_max"} <= written.keys()
    assert set(written.values()) <= {"session", "disk", "nobody else"}
    assert {"tcp.slow_start_after_idle", "lio.initial_r2t"} <= left
    # Each is written or left alone, and nothing else changes.
    assert {row["tunable"] for row in wide if row["state"] == "change"} == written.keys() | left


def test_a_ceiling_is_a_maximum_that_only_autotuning_reaches() -> None:
    assert {name for name, one in shipped_catalog().tunables.items() if one.ceiling} == {
        "tcp.rmem_max", "tcp.wmem_max", "net.rmem_max", "net.wmem_max",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("narrowed", "left"),
    [
        (["--scope", "connection"], "tcp.slow_start_after_idle"),
        (["--only", "tcp.rmem_max", "--only", "tcp.wmem_max"], "iscsi.tcp_window"),
    ],
)
def test_verify_calls_no_drift_what_a_plan_was_to_leave_alone(
    narrowed: list[str],
    left: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hosttree.enter(hosttree.make(tmp_path / "host", 1, 1), monkeypatch)
    kept = str(tmp_path / "narrow.plan")
    assert main(["plan", "wan", *PATH, *narrowed, "--out", kept]) == 0
    assert main(["apply", "--plan", kept]) in (0, 4)
    capsys.readouterr()
    # Without a word of it the profile's plan is the whole one.
    record.BACKEND.forget()
    assert main(["verify", "wan", *PATH, "--json"]) == 3
    assert left in {one["tunable"] for one in json.loads(capsys.readouterr().out)["drift"]}
    record.BACKEND.forget()
    assert main(["verify", "wan", *PATH, *narrowed]) in (0, 4), capsys.readouterr().out


@pytest.mark.parametrize("narrowed", [[], ["--scope", "connection"], ["--only", "tcp.rmem_max"], ["--estimated"]])
def test_verify_holds_a_host_against_the_plan_that_the_same_words_give(
    narrowed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = hosttree.make(tmp_path / "host", 1, 1)
    # So little that it bounds the buffers where nobody vouches for the rate.
    hosttree.put(root / "proc/meminfo", "MemTotal:       1048576 kB")
    hosttree.enter(root, monkeypatch)
    wanted = {
        (row["tunable"], row["identity"], row["wanted"]) for row in _rows(capsys, *narrowed) if row["state"] == "change"
    }
    record.BACKEND.forget()
    assert main(["verify", "wan", *PATH, *narrowed, "--json"]) == 3
    found = json.loads(capsys.readouterr().out)["drift"]
    assert wanted == {(one["tunable"], one["identity"], one["expected"]) for one in found}


def test_verify_of_another_path_s_plan_does_not_pass_for_what_was_applied_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What fabtune itself had written was as applied, and the larger values that were asked about were none of it."""
    hosttree.enter(hosttree.make(tmp_path / "host", 1, 1), monkeypatch)
    assert main(["apply", "wan", *PATH, "--yes"]) in (0, 4)
    assert main(["verify", "wan", *PATH]) in (0, 4)
    capsys.readouterr()
    longer = ["verify", "wan", "--rtt", "100ms", "--rate", "1gbit"]
    assert main([*longer, "--json"]) == 3
    differ = {one["tunable"]: one for one in json.loads(capsys.readouterr().out)["drift"]}
    assert "tcp.rmem_max" in differ and differ["tcp.rmem_max"]["note"].startswith("not applied: fabtune's own value is")
    assert main(["apply", *longer[1:], "--yes"]) in (0, 4)
    assert main(longer) in (0, 4)

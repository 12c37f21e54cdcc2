# SPDX-License-Identifier: GPL-2.0-or-later
"""Whom a row of a plan concerns, and that --scope connection leaves everybody else alone."""

import json
from pathlib import Path

import hosttree
import pytest

from fabtune.backends import record
from fabtune.catalog.tunable import shipped_catalog
from fabtune.cli.main import main


def _rows(capsys: pytest.CaptureFixture[str], *more: str) -> list[dict[str, str]]:
    assert main(["plan", "wan", "--rtt", "50ms", "--rate", "1gbit", "--json", *more]) == 0
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

# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables in terminals of any width."""

import os
import sys

import pytest

from fabtune.cli import table

HEADERS = ("tunable", "device", "now", "wanted", "why", "effect")
ROWS = [
    ("iscsi.max_outstanding_r2t", "disk1 at 10.2.0.1:3260", "1", "16", "bursts are asked for together", "next login")
]


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_a_table_fits_its_terminal_and_loses_nothing(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(table.shutil, "get_terminal_size", lambda: os.terminal_size((columns, 24)))
    table.table(HEADERS, ROWS, wrapped="why")
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= columns
    assert all(cell in " ".join(text.split()) for cell in ROWS[0])
    table.labelled("why", ROWS[0][4] * 10, 8)
    assert max(map(len, capsys.readouterr().out.splitlines())) <= columns

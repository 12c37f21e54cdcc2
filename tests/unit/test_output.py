# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables in terminals of any width."""

import os
import sys

import pytest

from fabtune.cli import table
from fabtune.errors import FabtuneError

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


def test_what_others_wrote_reaches_the_terminal_printable_and_cut() -> None:
    shown = str(FabtuneError("a\x1b[2Jb\u202e\ud800\nnext é " + "9" * 9000))
    assert shown.startswith(r"a\x1b[2Jb\u202e\ud800") and "\nnext é 9" in shown
    assert len(shown) < 3200 and "characters left out" in shown

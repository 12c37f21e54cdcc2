# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables in terminals of any width."""

import os
import shutil
import sys

import pytest

from fabtune.cli import table
from fabtune.errors import FabtuneError
from fabtune.model import units

HEADERS = ("tunable", "device", "now", "wanted", "why", "effect")
ROWS = [
    ("iscsi.max_outstanding_r2t", "disk1 at 10.2.0.1:3260", "1", "16", "bursts are asked for together", "next login")
]


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_a_table_fits_its_terminal_and_loses_nothing(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((columns, 24)))
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


@pytest.mark.parametrize("columns", [60, 80])
def test_no_figure_is_broken_over_lines(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((columns, 24)))
    figures = ["23.8 MiB (25000000)", "64 KiB", "119.6 MB/s", "50 ms", "12 %"]
    name = "iqn.2003-01.org.linux-iscsi.storage1.x8664:sn.0123456789ab at [fd00:2::1]:3260"
    for shift in range(20):
        text = "x" * shift + " " + " and then ".join(figures * 3)
        rows = [("tcp.rmem_max", name, figures[0], figures[0], text, "new connections")]
        table.table(HEADERS, rows, wrapped="why", fold=("device", "effect"))
        table.labelled("seen", text, 10)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    for figure in figures:
        expected = 20 * 6 + (40 if figure == figures[0] else 0)
        assert sum(line.count(figure) for line in lines) == expected, figure


@pytest.mark.parametrize("shift", range(24))
def test_no_interval_is_broken_over_lines(
    shift: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "room", lambda: 80)
    intervals = ["[30.36, 31.98]", "(97.7 to 119.5)", "[-0.2, +10.7]"]
    table.paragraph("x" * shift + " " + " and ".join(intervals * 4))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert all(sum(line.count(one) for line in lines) == 4 for one in intervals)


def test_bytes_are_exact_where_rounding_hides_something() -> None:
    assert table.number("12800000", "bytes") == "12.2 MiB (12800000)"
    assert [table.number(text, "bytes") for text in ("524288", "1572864", "1023", "0")] == [
        "512 KiB", "1.5 MiB", "1023 bytes", "0 bytes",
    ]  # fmt: skip


def test_a_cell_steers_no_terminal_and_a_file_is_told_by_its_length() -> None:
    assert table.one_line("a\x1b[2Jb\tc\n") == "a\\x1b[2Jb c "
    assert table.one_line("one\ntwo\nthree\n") == "(3 lines)"


def test_a_paragraph_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    table.paragraph("seen: a\x02b\x1b[2J\u202e c\td")
    table.labelled("seen", "a\x9bb", 6)
    assert capsys.readouterr().out == "seen: a\\x02b\\x1b[2J\\x202e c d\nseen: a\\x9bb\n"


def test_one_of_a_thing_is_no_plural() -> None:
    assert [units.counted(number, "value") for number in (0, 1, 2)] == ["0 values", "1 value", "2 values"]


@pytest.mark.parametrize(("said", "columns"), [("80", 80), ("60", 60), ("", 160), ("0", 160), ("wide", 160)])
def test_without_a_terminal_the_columns_that_are_asked_for_count(
    said: str, columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With COLUMNS=80, `compare` in a pipe printed lines of up to 155 columns."""
    monkeypatch.setenv("COLUMNS", said)
    assert table.room() == columns
    table.table(HEADERS, ROWS, wrapped="why")
    assert max(map(len, capsys.readouterr().out.splitlines())) <= columns

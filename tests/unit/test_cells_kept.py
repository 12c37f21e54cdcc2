# SPDX-License-Identifier: GPL-2.0-or-later
"""What the benches of many cells came to as the tables of tuning.md have it: all cells, or nothing."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

import cells_kept  # noqa: E402
import kept_cells  # noqa: E402
import share  # noqa: E402

MARKS = "before\n<!-- bench-tune -->\n<!-- end of bench-tune -->\nbehind\n"


def tuned(loss: float, bound: float, *missed: str, took_s: float = 60.0) -> dict[str, Any]:
    """A row of tune.json."""
    path = {"rtt_ms": 20.0, "rate_mbit": 100.0, "buffer_bdp": 1.0, "op": "read"}
    told = path | {"loss": loss, "fraction_of_bound": bound, "fraction_of_best_peer": 1.0, "steps": 3, "took_s": took_s}
    return told | {"missed": list(missed)}


def test_a_table_counts_what_holds_and_names_what_does_not(tmp_path: Path) -> None:
    slow = "cell-02: 3 steps in 95 s, 8 in 90 s allowed"
    rows = [
        tuned(0, 0.99),
        tuned(0, 0.95, "cell-01: 0.950 of the bound, 0.97 demanded"),
        tuned(0.001, 0.92, slow, took_s=95),
    ]
    cells_kept.keep("tune", rows, 3, "trixie, uml, code abc", tmp_path)
    page = cells_kept.with_tables(MARKS, tmp_path)
    assert "| without loss | 2 | 0.97 | 1 | 0.970, 0.950 | 2 | 2 |" in page
    assert "| with loss | 1 | 0.9 | 1 | 0.920, 0.920 | 1 | 0 |" in page
    assert (
        "1 of 3 hold all bars; the others:\n\n- cell-01 (20 ms, 100 Mb/s, 1 BDP, 0 % lost, read): 0.950 of the" in page
    )
    assert page.count("\n- cell-0") == 2 and "\n\nOne seed each. `make bench-tune`, trixie, uml, code abc, made" in page
    assert cells_kept.with_tables(page, tmp_path) == page and page.startswith("before\n") and page.endswith("behind\n")


def test_a_part_is_not_kept_nor_a_bench_without_a_table(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="1 of 2 cells"):
        cells_kept.keep("tune", [tuned(0, 0.99)], 2, "code", tmp_path)
    with pytest.raises(ValueError, match="no table for tune-alone"):
        cells_kept.keep("tune-alone", [tuned(0, 0.99)], 1, "code", tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_page_with_a_table_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="bench-tune"):
        cells_kept.with_tables(MARKS, tmp_path)
    cells_kept.keep("tune", [tuned(0, 0.99), tuned(0.001, 0.99)], 2, "code", tmp_path)
    with pytest.raises(ValueError, match="expected the lines"):
        cells_kept.with_tables("a page without marks\n", tmp_path)


def test_what_never_came_back_is_said(tmp_path: Path) -> None:
    step = {"op": "read", "told_mbit": 100, "rtt_ms": 150.0, "hold_s": 60.0, "missed": []}
    cells_kept.keep("guard", [step | {"again_s": 2.0}, step | {"again_s": None}], 2, "code", tmp_path)
    page = cells_kept.with_tables(MARKS.replace("tune", "guard"), tmp_path)
    assert (
        "| read | 100 Mb/s | 150 ms | 2.0 s | 60 s |" in page and "| read | 100 Mb/s | 150 ms | never | 60 s |" in page
    )


def test_rows_say_which_bars_their_cells_miss(tmp_path: Path) -> None:
    (cell,) = share.cells()[:1]
    way = {"bytes_per_s": [1e6], "cross_bytes_per_s": 1e7, "tune": {"exit": 0, "told": {"ended": ""}}}
    asked = argparse.Namespace(out=tmp_path, keep=True, suite="trixie", accel="uml")
    with pytest.raises(SystemExit, match="1 of 24"):
        kept_cells.keep_rows(asked, "share", share.row, share.missed, {cell: {"untouched": way, "tune": way}}, 24)
    (row,) = json.loads((tmp_path / "share.json").read_text())
    assert row["rtt_ms"] == 20.0 and row["missed"] == ["share-00: 0.167 of a fair share, 0.5 demanded"]

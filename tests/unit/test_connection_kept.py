# SPDX-License-Identifier: GPL-2.0-or-later
"""What `make bench-connection` measured as the tables of wan.md have it."""

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCH = Path(__file__).parents[1] / "bench"


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("connection_kept")


def measured(read: float, drops: int) -> dict[str, Any]:
    """One seed as connection.py writes it."""
    shared = {"what": "shared", "way": "wan", "op": "read", "rate": "311mbit", "cpu_busy": 0.5}
    return {"cases": [
        {"what": "wan", "way": "wan", "rtt_ms": 37.0, "rate": "622mbit", "read_mb_per_s": read, "write_mb_per_s": 69.3},
        {"what": "beside", "way": "wan", "storage": "idle", "bulk_mbit_per_s": 1500.0, "p99_us": 39.9},
        {"what": "beside", "way": "wan", "storage": "20 MB/s", "bulk_mbit_per_s": 1499.0, "p99_us": 249},
        shared | {"mb_per_s": [9.0, 9.5, 6.4, 12.0], "sum_mb_per_s": 36.9, "drops": {"s0": drops, "s1": 3}},
        shared | {"mb_per_s": [25.0], "sum_mb_per_s": 25.0, "drops": {"s0": 900, "s1": 0}},
    ]}  # fmt: skip


def test_what_is_measured_is_kept_and_stands_in_the_tables(
    kept: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its figures stood in sentences: 36.9 made 46.9 passed."""
    for seed, found in enumerate((measured(74.31, 763), measured(74.28, 1241))):
        (tmp_path / f"{seed}.json").write_text(json.dumps(found))
    monkeypatch.setattr(kept, "FILE", tmp_path / "kept/connection.json")
    monkeypatch.setattr(sys, "argv", ["connection_kept.py", *(str(tmp_path / f"{seed}.json") for seed in (0, 1))])
    assert kept.main() == 0
    page = "".join(f"<!-- connection-{what} -->\n<!-- end of connection-{what} -->\n" for what in kept._COLUMNS)
    text = kept.with_tables(page, kept.FILE)
    assert "| `wan` | 74.3 | 69.3 |" in text and "| `wan` | 1,499 to 1,500 | 39.9 | 249 |" in text
    assert "| `wan` | 36.9 | 6.4 | – | – | 766 to 1,244 | 25.0 |" in text
    said = (
        "Least and most of 2 seeds. Profile `wan` may have changed since. `make bench-connection`, kernel 6.12, made 20"
    )
    assert text.count(said) == 3


def test_one_seed_is_said(kept: ModuleType) -> None:
    assert {one["seeds"] for one in kept.points_of([measured(74.3, 0)])} == {1}

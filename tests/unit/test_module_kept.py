# SPDX-License-Identifier: GPL-2.0-or-later
"""What `make bench-module` measured as the tables of fabstat.md have it: bars, and what a request takes."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCH = Path(__file__).parents[1] / "bench"
KERNELS = ("6.12.117+deb13-amd64", "6.1.0-50-amd64", "7.2.13+deb14-amd64")


@pytest.fixture(scope="module")
def kept() -> ModuleType:
    sys.path[:0] = [str(BENCH)]
    return importlib.import_module("module_kept")


def rows(kept: ModuleType, **over: float) -> list[dict[str, Any]]:
    """Rows as module.json has them, with figures of `over` by tracer, all of one module."""
    bench = importlib.import_module("module")
    found = []
    for kernel in KERNELS:
        for tracer, by_counter in kept._ROWS:
            for device, depth in (*kept._COLUMNS, *([("scsi_debug", 16)] if tracer == "fabstat" else [])):
                bar = bench.BARS.get((device, tracer)) if by_counter else bench.TIMEKEEPER_BAR
                added = 0.0 if tracer == "none" else over.get(tracer, 10.0)
                found.append({
                    "kernel": kernel, "device": device, "depth": depth, "tracer": tracer, "bar": bar,
                    "module": "a" * 16, "clocksource": "tsc" if by_counter else "hpet",
                    "instructions_per_request": 8000.0, "added": added,
                })  # fmt: skip
        for tracer, bar in (("target", 220), ("target-parts", 700)):
            one = {"device": "lio_loop", "depth": 1, "tracer": tracer, "clocksource": "tsc", "bar": bar}
            found.append(
                one | {"kernel": kernel, "added": 200.0, "instructions_per_request": 9000.0, "module": "a" * 16}
            )
    return found


def test_a_bar_is_held_or_missed_and_where(kept: ModuleType) -> None:
    said = kept.bars(rows(kept, fabstat=190.4)).splitlines()
    assert "| a request of null_blk | 200 | held: 190 |" in said
    assert "| a request of scsi_debug | 280 | held: 190 (one at a time); held: 190 (16 at a time) |" in said
    points = rows(kept, ceiling=250.0)
    next(one for one in points if one["tracer"] == "ceiling" and one["kernel"] == KERNELS[2])["added"] = 251.0
    assert "| null_blk at the memory ceiling | 250 | missed on 7.2: 250 to 251 |" in kept.bars(points)


def test_runs_that_differ_and_kernels_that_lack_are_said(kept: ModuleType) -> None:
    points = [
        one for one in rows(kept) if one["depth"] == 1 or one["kernel"] == KERNELS[2] or one["device"] != "scsi_debug"
    ]
    (deep,) = (one for one in points if one["depth"] == 16 and one["device"] == "scsi_debug" and one["bar"] == 280)
    deep |= {"added": 273.0, "earlier": [233.0, 327.0]}
    wanted = "held: 10 (one at a time); held on 7.2: 273 (16 at a time; missed in 1 of 3 measurements on 7.2: 327)"
    assert f"| a request of scsi_debug | 280 | {wanted} |" in kept.bars(points)


def test_the_table_has_a_column_a_kernel_in_their_order(kept: ModuleType) -> None:
    head, _, bare, ours, *_ = kept.costs(rows(kept, fabstat=1234.5)).splitlines()
    assert head.split(" | ")[1:3] == ["6.1 null_blk", "6.1 scsi_debug"] and head.endswith("7.2 scsi_debug |")
    assert (
        bare == "| (a request without a tracer) |" + " 8,000 |" * 6 and ours == "| **fabstat** |" + " **1,234** |" * 6
    )


def test_all_kernels_of_one_module_are_kept_and_nothing_else(kept: ModuleType, tmp_path: Path) -> None:
    whole, file = rows(kept), tmp_path / "module.json"
    for wrong in (whole[: len(whole) // 3], [*whole[1:], whole[0] | {"module": "b" * 16}]):
        with pytest.raises(ValueError, match="not kept: "):
            kept.keep(wrong, 3, file)
    kept.keep(whole, 3, file)
    page = "".join(f"<!-- {name} -->\n<!-- end of {name} -->\n" for name in ("bench-module-bars", "bench-module"))
    text = kept.with_tables(page, file)
    assert f"`make bench-module`, module {'a' * 16}, made 20" in text and "The module has changed since." in text


def test_a_table_says_nothing_of_a_module_that_is_the_same(
    kept: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.keep(rows(kept), 3, tmp_path / "module.json")
    monkeypatch.setattr(kept, "source_digest", lambda: "a" * 16)
    page = "".join(f"<!-- {name} -->\n<!-- end of {name} -->\n" for name in ("bench-module-bars", "bench-module"))
    assert "changed since" not in kept.with_tables(page, tmp_path / "module.json")

# SPDX-License-Identifier: GPL-2.0-or-later
"""What benches and parts of check-ops measured of monitoring, as monitoring.md's tables have it."""

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCH = Path(__file__).parents[1] / "bench"


@pytest.fixture
def ops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    module = importlib.import_module("ops_kept")
    monkeypatch.setattr(module, "DIRECTORY", tmp_path / "bench")
    return module


# As export.py, sessions_guest.sh and prometheus_fleet.py write them.
SCRAPE = {"reader_s": 0.0652, "rss_mib": 29.6, "series": 83018, "bytes": 11_700_000, "gzip_bytes": 389_000}
MEASURED: dict[str, tuple[Any, list[str]]] = {
    "export": (
        {
            "64": SCRAPE | {"kernel_s": 0.001, "scrape_s": 0.006},
            "1000": SCRAPE | {"kernel_s": 0.012, "scrape_s": 0.077},
        },
        ["| 64 disks | 1,000 disks |", "included | 6 ms | 77 ms |", "83,018; 11.7 MB; 389 kB |"],
    ),
    "sessions": (
        {"sessions": 1000, "verbs": {
            words: {"cpu_s": cpu_s, "took_s": 9.0} for words, cpu_s in (
                ("show --json", 4.81), ("plan wan", 3.24), ("export --textfile", 2.9), ("verify", 0.8),
                ("stat --json", 2.0), ("lint --json", 3.7), ("lint /tmp/facts.json", 2.2), ("why --for", 4.5),
            )
        }},
        ["| 4.8 s | 3.2 s | 0.8 s | 2.0 s | 3.7 s | 2.9 s | 4.5 s |"],
    ),
    "scale": (
        {
            "scraped_mb": 1.25, "recorded_mb": 0.15, "mb_per_host_and_day": 1.4, "hosts": 1000, "hosts_up": 1000,
            "minutes": 12, "series": 442_000, "cpu_cores": 0.087, "rss_gb": 1.79, "queries": {"p99 1": {}},
            "slowest_recorded_query_cpu_s": 0.044,
        },
        ["| CPU | 0.087 of a core | scraping and recording, over 12 minutes |", "| series a host | 442 |",
         "| 1.40 MB | 1.25 scraped, 0.15 recorded |"],
    ),
}  # fmt: skip


def test_what_is_measured_is_kept_and_stands_in_the_tables(
    ops: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three tables stood there typed: 77 ms made 7 passed."""
    for kind, (measured, _) in MEASURED.items():
        (tmp_path / "measured.json").write_text(json.dumps(measured))
        monkeypatch.setattr(sys, "argv", ["ops_kept.py", kind, str(tmp_path / "measured.json")])
        assert ops.main() == 0
    page = "".join(f"<!-- ops-{kind} -->\n<!-- end of ops-{kind} -->\n" for kind in MEASURED)
    text = ops.with_tables(page, ops.DIRECTORY)
    for kind, (_, shown) in MEASURED.items():
        block = text.partition(f"<!-- ops-{kind} -->")[2].partition("<!-- end")[0]
        assert not [one for one in shown if one not in block], block
        assert f"`{ops.COMMANDS[kind]}`, made 20" in block


def test_two_runs_stand_side_by_side(ops: ModuleType) -> None:
    (first,) = ops.points_of("scale", MEASURED["scale"][0])
    shown = ops.scale([first, {"minutes": 8, "cpu_cores": 0.076, "rss_gb": 1.8}])
    assert "| CPU | 0.087 and 0.076 of a core | scraping and recording, over 12 and 8 minutes |" in shown

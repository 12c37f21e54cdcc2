# SPDX-License-Identifier: GPL-2.0-or-later
"""The WAN bench's verdicts: each bar must be able to be missed."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fabtune.experiment import definition

TOP = Path(__file__).parents[2]
BENCH = TOP / "tests/bench/wan.py"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_wan", BENCH)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def point(**changes: Any) -> dict[str, Any]:
    usual = {
        "profile": "wan", "rtt_ms": 50.0, "op": "read", "mb_per_s": 119.5, "bound_mb_per_s": 119.55, "loss": 0.0,
        "queue_depth": 32, "rate_mbit": 1000.0, "size_bytes": 262144,
    }  # fmt: skip
    return usual | changes


def missed(bench: ModuleType, *points: dict[str, Any]) -> list[str]:
    return [bar.name for bar in bench.bars_of(points) if not bar.met]


def test_the_fraction_of_the_bound_is_judged(bench: ModuleType) -> None:
    assert missed(bench, point()) == []
    narrow = {"mb_per_s_low": 117.0, "mb_per_s_high": 117.1}
    (bar,) = bench.bars_of([point() | narrow | {"mb_per_s_high": 118.0}])
    assert bar.met is None
    assert missed(bench, point() | narrow) == ["98 % of the bound, wan 50 ms read"]


def test_a_better_peer_is_a_miss_from_10_ms_on_and_the_default_at_any_round_trip(bench: ModuleType) -> None:
    better = {"mb_per_s": 119.5, "bound_mb_per_s": 110.0}
    for rtt_ms, profile, is_missed in ((50.0, "bpftune", True), (0.0, "bpftune", False), (0.0, "untouched", True)):
        ours = point(rtt_ms=rtt_ms, mb_per_s=118.0, bound_mb_per_s=110.0)
        found = missed(bench, ours, point(profile=profile, rtt_ms=rtt_ms, **better))
        assert bool(found) == is_missed, (rtt_ms, profile)


def test_loss_must_be_ridden_out_three_times_as_well_or_nearly_as_without(bench: ModuleType) -> None:
    free = point(profile="wan-lossy", rate_mbit=200.0, mb_per_s=23.9)
    cubic = point(rate_mbit=200.0, loss=0.001, mb_per_s=1.3)
    for mb_per_s, is_missed in ((4.0, False), (3.8, True)):
        lossy = point(profile="wan-lossy", rate_mbit=200.0, loss=0.001, mb_per_s=mb_per_s)
        assert bool(missed(bench, free, cubic, lossy)) == is_missed
    fast_cubic = cubic | {"mb_per_s": 15.0}
    lossy = point(profile="wan-lossy", rate_mbit=200.0, loss=0.001, mb_per_s=19.2)
    assert missed(bench, free, fast_cubic, lossy) == []


def test_a_satellite_link_needs_95_percent(bench: ModuleType) -> None:
    sat = point(profile="wan-satellite", rtt_ms=300.0, queue_depth=128, bound_mb_per_s=111.8)
    assert missed(bench, sat | {"mb_per_s": 107.0}) == []
    assert missed(bench, sat | {"mb_per_s": 106.0}) != []


def test_where_the_queue_is_the_limit_more_of_the_bound_is_asked_for(bench: ModuleType) -> None:
    far = point(rtt_ms=100.0, bound_mb_per_s=82.09)
    assert missed(bench, far | {"mb_per_s": 81.5}) == []
    assert missed(bench, far | {"mb_per_s": 81.0}) == ["99 % of the bound, wan 100 ms read"]


def test_this_bench_and_that_of_the_other_experiments_are_all_that_are_shipped_but_the_demo(bench: ModuleType) -> None:
    """Four were in neither: wan-buffer, wan-cross, wan-jitter and wan-shared."""
    makefile = (TOP / "Makefile").read_text()
    (listing,) = re.findall(r"for name in \$\$\((\$\(FABTUNE\) run .*?)\); do", makefile)
    command = listing.replace("$(FABTUNE)", "userspace/bin/fabtune").replace("$$", "$")
    others = subprocess.run(command, shell=True, cwd=TOP, capture_output=True, text=True, check=True).stdout.split()
    assert sorted([*bench.EXPERIMENTS, *others]) == sorted({*definition.names()} - {"demo"})


@pytest.mark.parametrize("apart", [{"buffer": "0.125"}, {"cross": "bbr"}, {"jitter": "10ms"}, {"sessions": "4"}])
def test_no_bar_is_for_a_path_that_is_no_quiet_one(bench: ModuleType, apart: dict[str, str]) -> None:
    assert bench.bars_of([point(**apart, mb_per_s=1.0), point(**apart, queue_depth=128, mb_per_s=1.0)]) == []
    lossy = point(profile="wan-lossy", loss=0.001, mb_per_s=1.0)
    assert bench.bars_of([lossy | apart, point(**apart, loss=0.001), point(**apart, profile="wan-lossy")]) == []


def test_a_point_says_what_of_its_path_its_experiment_fixes(bench: ModuleType, tmp_path: Path) -> None:
    """Four sessions on one queue, and one alone on it, are told apart; what is in two experiments stands once."""
    told = point(rate_mbit=100.0, buffer="1")
    known = point()
    for name, points in (("wan-shared", [told]), ("wan-buffer", [told]), ("wan-rtt", [known]), ("wan-known", [known])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "summary.json").write_text(json.dumps(points))
    assert bench.read_points(tmp_path) == [told, known, told | {"sessions": "4"}]

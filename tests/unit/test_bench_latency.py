# SPDX-License-Identifier: GPL-2.0-or-later
"""The cells of `make bench-latency`, and how they are judged, without a guest."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

import latency  # noqa: E402

CELL = latency.cells()[0]


def way(p99_ms: float, mb_per_s: float = 10.0, ended: int = 0, *, kept: bool = True) -> dict[str, object]:
    """What a guest says of one way, that of a tune that ended so among them."""
    failed: dict[str, object] = {"error": {"kind": "failed", "message": "nothing moves"}}
    told: dict[str, object] = failed if ended else {"ended": "at the bound", "steps": [{"kept": False}, {"kept": kept}]}
    return {
        "p50_ms": p99_ms / 2, "p99_ms": p99_ms, "requests": 600, "bytes_per_s": 1e6 * mb_per_s,
        "tune": {"exit": ended, "told": told},
    }  # fmt: skip


def test_each_line_has_both_directions_and_one_or_several_requests_at_a_time() -> None:
    found = latency.cells()
    assert len({one.seed for one in found}) == len({one.name for one in found}) == len(found) == 16
    assert {(one.op, one.depth) for one in found} == {("read", 1), ("read", 8), ("write", 1), ("write", 8)}
    assert min(one.rtt_ms for one in found) < 5 and max(one.rtt_ms for one in found) >= 100


@pytest.mark.parametrize(
    ("tuned", "told"),
    [
        (way(40.0), []),
        # fio tells a percentile to a bucket.
        (way(40.6), []),
        (way(60.0), ["latency-00: tune: p99 of 60.0 ms, untouched 40.0 ms"]),
        (way(40.0, ended=1), ["latency-00: tune: tune ended with 1: nothing moves"]),
        (way(40.0, ended=5), []),
        # What differs with nothing in force differs by chance.
        (way(60.0, kept=False), []),
    ],
)
def test_short_requests_wait_no_longer_than_untouched(tuned: dict[str, object], told: list[str]) -> None:
    again = way(30.0)
    assert latency.missed(CELL, {"untouched": way(40.0), "tune": tuned, "untouched-again": again}) == told
    # What it was by chance is no bar for tune.
    assert latency.missed(CELL, {"untouched": again, "tune": tuned, "untouched-again": way(40.0)}) == told


def test_a_goal_of_short_requests_costs_a_tenth_of_the_stream_at_most() -> None:
    both = {"untouched": way(40.0), "untouched-again": way(40.0, mb_per_s=12.0)}
    ways = both | {"tune": way(40.0), "goal-latency": way(20.0, mb_per_s=8.9)}
    assert latency.missed(CELL, ways) == ["latency-00: goal-latency: the stream has 0.89 of what it had"]
    assert latency.missed(CELL, ways | {"goal-latency": way(20.0, mb_per_s=9.1)}) == []


def test_what_is_kept_of_a_cell_is_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    ways = {"untouched": way(40.0), "tune": way(30.0), "untouched-again": way(41.0)}
    del ways["untouched"]["tune"]
    row = latency.row(CELL, ways)
    assert row["tune_kept_steps"] == 1 and "untouched_kept_steps" not in row
    assert row["tune_p99_ms"] == 30.0 and row["untouched_requests"] == 600 and row["tune_stream_mb_per_s"] == 10.0
    latency.show([(CELL, ways)])
    assert "30.0, 10.00" in capsys.readouterr().out
    assert latency.verdicts([CELL], {}) == ["latency-00: not measured"]


def test_user_mode_linux_has_no_histograms_to_aim_by() -> None:
    assert latency.ways_in("uml") == ["untouched", "tune", "untouched-again"]
    assert latency.GOAL in latency.ways_in("tcg")

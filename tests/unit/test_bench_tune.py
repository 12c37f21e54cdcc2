# SPDX-License-Identifier: GPL-2.0-or-later
"""The cells of `make bench-tune`, and how they are judged, without a guest."""

import json
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

import tune as bench  # noqa: E402
from kept_cells import kept  # noqa: E402
from tune_cells import cells  # noqa: E402

from fabtune.model.untouched import UNTOUCHED  # noqa: E402

_CELLS = cells()
_CLEAN = next(one for one in _CELLS if not one.loss)
_KEYS = {
    "rtt_ms", "loss", "buffer_bdp", "rate_mbit", "jitter_ms", "op", "fraction_of_bound", "fraction_of_untouched",
    "fraction_of_best_peer", "steps", "seeds", "peers", "below_untouched_s", "untouched_below_itself_s",
    "below_untouched_at_its_least_s", "took_s",
}  # fmt: skip


def _ways(tuned: float = 1.0, peer: float = 0.5, **of_tune: Any) -> dict[str, Any]:
    """What a guest told of the clean cell, as shares of its bound; untouched had a tenth."""
    whole = bench.bound(_CLEAN)
    usual = {
        "exit": 0,
        "told": {"steps": [{}]},
        "took_s": 30.0,
        "moved": [[0.25 * turn, 0.1 * whole] for turn in range(100)],
    }
    found: dict[str, Any] = {way: {"bytes_per_s": peer * whole} for way in bench.PEERS}
    found[UNTOUCHED] = {"bytes_per_s": 0.1 * whole, "moved": [[0.25 * turn, 0.1 * whole] for turn in range(40)]}
    return found | {bench.TUNE: usual | {"bytes_per_s": tuned * whole} | of_tune}


def test_the_cells_fill_the_space_that_was_asked_for() -> None:
    assert len(_CELLS) >= 60 and len({one.seed for one in _CELLS}) == len({one.name for one in _CELLS}) == len(_CELLS)
    for one in _CELLS:
        assert 0 <= one.rtt_ms <= 150 and 0 <= one.loss <= 0.001 and 0.125 <= one.buffer_bdp <= 4
        assert 50 <= one.rate_mbit <= 1000 and 0 <= one.jitter_ms <= min(5, one.rtt_ms)
    assert sum(one.rate_mbit <= 200 for one in _CELLS) > 0.75 * len(_CELLS)
    assert max(one.rate_mbit for one in _CELLS) > 800
    # A quarter of each range has its share of the cells, of the first sixteen, too.
    for some in (_CELLS, _CELLS[:16]):
        for key, edges in (("rtt_ms", (0, 18.75, 53.1, 97.5, 150)), ("buffer_bdp", (0.125, 0.3, 0.708, 1.69, 4))):
            for least, most in zip(edges, edges[1:], strict=False):
                assert sum(least < getattr(one, key) <= most for one in some) == pytest.approx(len(some) / 4, abs=2)
        assert sum(one.op == "read" for one in some) == sum(not one.loss for one in some) == len(some) / 2


def test_a_cell_is_measured_again_where_it_or_the_code_has_changed(tmp_path: Path) -> None:
    digest = _CLEAN.digest("the code")
    assert not kept(tmp_path, _CLEAN, digest)
    (tmp_path / f"{_CLEAN.name}.json").write_text(json.dumps({"digest": digest}))
    assert kept(tmp_path, _CLEAN, digest)
    assert not kept(tmp_path, _CLEAN, _CLEAN.digest("other code"))
    assert not kept(tmp_path, _CLEAN, attrs.evolve(_CLEAN, loss=0.1).digest("the code"))


def test_a_row_has_the_keys_that_were_agreed_on() -> None:
    found = bench.row(_CLEAN, _ways())
    assert set(found) == _KEYS and found["jitter_ms"] == _CLEAN.jitter_ms
    assert (found["fraction_of_bound"], found["fraction_of_best_peer"], found["steps"]) == (1, 2, 1)
    assert found["fraction_of_untouched"] == pytest.approx(10) and found["seeds"] == [_CLEAN.seed]


@pytest.mark.parametrize(
    ("ways", "says"),
    [
        (_ways(), []),
        (_ways(tuned=0.96, peer=0.96), ["of the bound"]),
        (_ways(tuned=0.98, peer=1.01), ["demanded"]),
        (_ways(told={"steps": [{}] * 9}), ["9 steps"]),
        (_ways(took_s=91.0), ["in 91 s"]),
        (_ways(moved=[[0.25 * turn, 0.0] for turn in range(12)]), ["below untouched for 2.8 s"]),
        (_ways(moved=[[0.25 * turn, 1e9 * (turn % 8 == 0)] for turn in range(100)]), []),
        # Bursts that are just above do not make up for what is missing between them.
        (
            _ways(moved=[[0.25 * turn, 0.1 * bench.bound(_CLEAN) * (turn % 8 == 0)] for turn in range(100)]),
            ["below untouched for"],
        ),
        (_ways(exit=1), ["tune ended with 1"]),
        (_ways(exit=1, told={"error": {"message": "nothing moves"}}), ["tune ended with 1: nothing moves"]),
        (_ways(exit=5), []),
    ],
)
def test_each_bar_can_be_missed(ways: dict[str, Any], says: list[str]) -> None:
    told = bench.missed(_CLEAN, ways)
    assert len(told) == len(says)
    assert all(text in one for text, one in zip(says, told, strict=True))


def test_a_cell_with_loss_may_lose_a_tenth() -> None:
    lossy = attrs.evolve(_CLEAN, loss=0.001)
    assert bench.missed(lossy, _ways(tuned=0.91)) == [] and bench.missed(lossy, _ways(tuned=0.89)) != []


def test_an_untouched_load_that_comes_and_goes_is_allowed_to_do_so_while_tuned() -> None:
    ways = _ways(moved=[[0.25 * turn, 0.0] for turn in range(12)])
    ways[UNTOUCHED]["moved"] = [[0.25 * turn, 0.0] for turn in range(16)]
    assert bench.missed(_CLEAN, ways) == []


def test_a_sawtooth_of_untouched_is_no_leave_to_stop() -> None:
    """It is below its own mean for as long as its teeth rise, but never at nothing."""
    ways = _ways(moved=[[0.25 * turn, 0.0 if 10 < 0.25 * turn <= 14 else 1e9] for turn in range(100)])
    mean = ways[UNTOUCHED]["bytes_per_s"]
    teeth = [[0.25 * turn, mean * (0.8 + 0.4 * (turn % 80) / 80)] for turn in range(160)]
    ways[UNTOUCHED]["moved"] = teeth
    assert bench.least_of(ways[UNTOUCHED]) == pytest.approx(0.8 * mean, rel=0.02)
    (said,) = bench.missed(_CLEAN, ways)
    assert "worst second for 4.0 s" in said


def test_what_was_not_measured_holds_no_bar() -> None:
    other = next(one for one in _CELLS if one is not _CLEAN)
    assert bench.verdicts([_CLEAN], {_CLEAN: _ways()}) == []
    assert bench.verdicts([_CLEAN, other], {_CLEAN: _ways()}) == [f"{other.name}: not measured"]
    assert bench.verdicts([], {}) == ["no cell was chosen"]


@pytest.mark.parametrize("of_bound", [0.1, 1.0])
@pytest.mark.parametrize("stopped_s", [0.0, 1.0, 3.0])
def test_a_stop_of_the_load_is_as_long_as_it_was(stopped_s: float, of_bound: float) -> None:
    whole = of_bound * bench.bound(_CLEAN)
    moved = [[0.25 * turn, 0.0 if 10 < 0.25 * turn <= 10 + stopped_s else whole] for turn in range(100)]
    assert bench.below_s(_ways(moved=moved)) == stopped_s


def test_a_way_that_no_guest_had_is_not_said_to_be_beaten() -> None:
    held = "64 cells, all bars held"
    assert bench.all_held(64, "tcg") == held
    assert bench.all_held(64, "uml") == f"{held}, not beside bpftune: it is not there on uml (--accel tcg)"
    assert (
        bench.all_held(6, "uml", alone=True)
        == "6 cells, all bars held, beside untouched alone: no other way was asked for (--alone)"
    )


def test_alone_there_is_nothing_but_tune_and_what_it_begins_with() -> None:
    assert bench.ways_in("tcg", alone=True) == bench.ways_in("uml", alone=True) == [UNTOUCHED, bench.TUNE]
    # What was measured beside other ways, or alone, is not the other.
    assert bench.code("trixie", "uml", bench.ways_in("uml")) != bench.code("trixie", "uml", bench.ways_in("uml", True))

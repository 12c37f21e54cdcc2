# SPDX-License-Identifier: GPL-2.0-or-later
"""The cells of `make bench-told`, and how they are judged, without a guest."""

import json
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

import told as bench  # noqa: E402
from kept_cells import kept  # noqa: E402
from told_cells import OTHERS, cells  # noqa: E402

_CELLS = cells()
_NIC_MBIT = 10_000.0
_KEYS = {
    "rtt_ms", "rate_mbit", "told_rtt_ms", "told_rate_mbit", "told", "op", "lint_noticed", "tune_noticed",
    "fraction_of_untouched", "fraction_before_tune", "steps", "seeds",
}  # fmt: skip
_SLOW = next(one for one in _CELLS if one.told == "rate x0.1")
_SHORT = next(one for one in _CELLS if one.told == "rtt x0.1")
_DOUBT = "not seen: a line of 10 Mb/s, as told to the profile in force: 95 Mb/s passed; judged without it"
_ROUND_TRIP = "profile 'wan' was planned for a round trip of 10 ms, and the connections have 100.0 ms"


def _found(*remarks: str, end: float = 1.0, lint: tuple[str, ...] = (), **of_tune: Any) -> dict[str, Any]:
    """What a guest told of a cell, in shares of untouched."""
    steps = [{"kept": True, "after_bytes_per_s": 2e6}, {"kept": False, "after_bytes_per_s": 1e5}]
    return {
        "nic_mbit": _NIC_MBIT,
        "untouched": {"bytes_per_s": 1e6},
        "told": {"bytes_per_s": 2e5},
        "lint": list(lint),
        "tune": {"exit": 0, "told": {"steps": steps, "remarks": list(remarks)}, "took_s": 30.0} | of_tune,
        "end": {"bytes_per_s": end * 1e6},
    }


def test_thirty_paths_are_told_wrongly_by_a_tenth_to_ten_times_or_as_another_nics() -> None:
    assert len(_CELLS) == len({one.seed for one in _CELLS}) == len({one.name for one in _CELLS}) == 30
    for one in _CELLS:
        assert 50 <= one.rate_mbit <= 100 and 5 <= one.rtt_ms <= 150
        assert (one.told_rtt_ms, one.told_rate_mbit) != (one.rtt_ms, one.rate_mbit)
        if one.told not in OTHERS:
            assert 0.1 <= one.told_rtt_ms / one.rtt_ms * one.told_rate_mbit / one.rate_mbit <= 10
    kinds = {one.told for one in _CELLS[:15]}
    assert len(kinds) == 15 == len({one.told for one in _CELLS[15:]} & kinds)
    # Each kind is read and written, on two paths, and `tune` is told the rate in one of them.
    for kind in kinds:
        pair = [one for one in _CELLS if one.told == kind]
        assert {one.op for one in pair} == {"read", "write"} and {one.to_tune for one in pair} == {False, True}
        assert len({one.rtt_ms for one in pair}) == 2 == len({one.rate_mbit for one in pair})


@pytest.mark.parametrize(
    ("told", "by_lint", "by_tune"),
    [
        ({"told_rtt_ms": 90.0}, False, False),
        ({"told_rtt_ms": 79.0}, True, True),
        ({"told_rtt_ms": 126.0}, True, True),
        ({"told_rate_mbit": 74.0}, False, False),
        ({"told_rate_mbit": 70.0}, False, True),
        # A line that is four fifths full with a queue may be full.
        ({"told_rate_mbit": 90.0}, False, False),
        ({"told_rate_mbit": 100.0}, False, True),
        ({"told_rate_mbit": 10_000.0}, False, True),
        ({"told_rate_mbit": 25_000.0}, True, True),
    ],
)
def test_what_is_told_nearly_right_or_cannot_be_seen_need_not_be_noticed(
    told: dict[str, float], by_lint: bool, by_tune: bool
) -> None:
    right = attrs.evolve(_SHORT, rtt_ms=100.0, told_rtt_ms=100.0, rate_mbit=75.0, told_rate_mbit=75.0)
    one = attrs.evolve(right, **told)
    assert (bool(one.for_lint(_NIC_MBIT)), bool(one.for_tune)) == (by_lint, by_tune)


def test_all_of_the_cells_are_for_tune_and_those_that_are_not_for_lint_are_told_another_rate() -> None:
    assert all(one.for_tune for one in _CELLS)
    unseen = [one for one in _CELLS if not one.for_lint(_NIC_MBIT)]
    rates = {f"rate x{factor}" for factor in ("0.1", "0.2", "0.5", "2", "5", "10")}
    assert {one.told for one in unseen} == rates
    # Nobody knows what is above the speed of a NIC that has none.
    assert {one.told for one in _CELLS if not one.for_lint(None)} == rates | {"another NIC's rate"}


def test_a_row_has_the_keys_that_were_agreed_on() -> None:
    found = bench.row(_SLOW, _found(_DOUBT))
    assert set(found) == _KEYS and found["seeds"] == [_SLOW.seed] and found["steps"] == 2
    assert (found["lint_noticed"], found["tune_noticed"], found["fraction_of_untouched"]) == (False, True, 1.0)
    assert found["fraction_before_tune"] == 0.2
    # A step that stays counts, one that was taken back does not.
    assert bench.fraction(_found(end=3.0)) == 2.0


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (_found(_DOUBT), []),
        (_found(), ["tune does not name"]),
        (_found(_DOUBT, lint=("path-longer-than-told",)), ["lint names the rtt"]),
        # A rate that was told wrongly is no reason to doubt the round trip, nor to see others.
        (_found(_ROUND_TRIP), ["tune does not name the rate", "tune names the rtt"]),
        (_found(_DOUBT, "others use the line: these sessions had 4.7 Mb/s"), ["tune names the others"]),
        (_found(_DOUBT, lint=("mtu-differs",)), []),
        (_found(_DOUBT, end=0.94), ["0.940 of untouched"]),
        (_found(_DOUBT, exit=1), ["tune ended with 1"]),
        (_found(exit=1, told={"error": {"message": "no"}}), ["tune does not name", "tune ended with 1: no"]),
        (_found(_DOUBT, exit=5), []),
        (_found(_DOUBT, told={"steps": [{"kept": False}] * 9, "remarks": [_DOUBT]}), ["9 steps"]),
    ],
)
def test_each_bar_can_be_missed(found: dict[str, Any], says: list[str]) -> None:
    told = bench.missed(_SLOW, found)
    assert len(told) == len(says) and all(text in one for text, one in zip(says, told, strict=True))


def test_a_round_trip_is_for_both_to_notice() -> None:
    assert bench.missed(_SHORT, _found(_ROUND_TRIP, lint=("path-longer-than-told",))) == []
    assert len(bench.missed(_SHORT, _found())) == 2


def test_what_was_not_measured_holds_no_bar(tmp_path: Path) -> None:
    assert bench.verdicts([_SLOW], {_SLOW: _found(_DOUBT)}) == []
    assert bench.verdicts([_SLOW, _SHORT], {_SLOW: _found(_DOUBT)}) == [f"{_SHORT.name}: not measured"]
    assert bench.verdicts([], {}) == ["no cell was chosen"]
    assert not kept(tmp_path, _SLOW, _SLOW.digest("the code"))
    (tmp_path / f"{_SLOW.name}.json").write_text(json.dumps({"digest": _SLOW.digest("the code")}))
    assert kept(tmp_path, _SLOW, _SLOW.digest("the code"))
    assert not kept(tmp_path, _SLOW, _SLOW.digest("other code"))


def test_the_table_has_a_line_a_cell() -> None:
    lines = bench.shown({_SLOW: _found(_DOUBT), _SHORT: _found()}).splitlines()
    assert len(lines) == 3 and len({len(line) for line in lines}) == 1


def test_what_is_looked_for_is_what_tune_says() -> None:
    """A sentence that changes is not to be a cell that misses its bar."""
    package = Path(__file__).parents[2] / "userspace/fabtune"
    source = "".join((package / name).read_text() for name in (
        "why/summing_up.py", "autotune/view.py", "autotune/told.py", "autotune/climb.py",
    ))  # fmt: skip
    assert all(text in source for says in bench._SAYS.values() for text in says)

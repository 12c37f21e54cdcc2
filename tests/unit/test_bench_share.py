# SPDX-License-Identifier: GPL-2.0-or-later
"""The cells of `make bench-share`, and how they are judged, without a guest."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

import share  # noqa: E402

BESIDE, AMONG = share.cells()[0], share.cells()[-1]


def way(*mb_per_s: float, other: float = 0.0) -> dict[str, object]:
    """What a guest says of one way, that of a tune which ended well among them."""
    tuned = {"exit": 0, "told": {"ended": "at the bound"}}
    return {"bytes_per_s": [1e6 * one for one in mb_per_s], "cross_bytes_per_s": 1e6 * other, "tune": tuned}


def test_half_of_the_cells_have_a_neighbours_flow_and_half_four_sessions() -> None:
    kinds = [(one.sessions, one.cross, one.op) for one in share.cells()]
    assert {(1, "cubic", "read"), (1, "cubic", "write"), (4, "none", "read"), (4, "none", "write")} == set(kinds)
    assert len({one.seed for one in share.cells()}) == len(kinds) == 24
    assert {one.loss for one in share.cells()[16:]} == {0.0, 1e-4} and not any(one.loss for one in share.cells()[:16])


@pytest.mark.parametrize(
    ("tuned", "told"),
    [
        (way(5.0, other=6.0), []),
        # 10.65 of 12 MB/s, and a neighbour that has a tenth: what bbr made of it.
        (way(10.65, other=1.15), ["share-00: 9.683 times the other's share, 2 allowed"]),
        (way(2.0, other=9.5), ["share-00: 0.335 of a fair share, 0.5 demanded"]),
    ],
)
def test_storage_may_have_half_to_twice_of_what_is_fair(tuned: dict[str, object], told: list[str]) -> None:
    assert share.missed(BESIDE, {"untouched": way(4.0, other=8.0), "tune": tuned}) == told


def test_sessions_share_as_evenly_as_untouched_ones() -> None:
    assert share.evenness([1, 1, 1, 1]) == 1 and share.evenness([1, 0, 0, 0]) == 0.25
    even, uneven = way(3, 3, 3, 3), way(1, 5, 3, 3)
    assert share.missed(AMONG, {"untouched": uneven, "tune": even}) == []
    assert len(share.missed(AMONG, {"untouched": even, "tune": uneven})) == 1
    assert share.verdicts([AMONG], {}) == ["share-23: not measured"] and share.verdicts([], {}) == [
        "no cell was chosen"
    ]


@pytest.mark.parametrize("cell", [BESIDE, AMONG])
def test_a_tune_that_failed_holds_no_bar(cell: share.Cell) -> None:
    """It leaves a neighbour all that untouched sessions do."""
    same = way(3, 3, 3, 3, other=12.0)
    failed = {"exit": 1, "told": {"error": {"kind": "failed", "message": "nothing moves"}}}
    assert share.missed(cell, {"untouched": same, "tune": same | {"tune": failed}}) == [
        f"{cell.name}: tune ended with 1: nothing moves"
    ]
    assert share.missed(cell, {"untouched": same, "tune": same | {"tune": failed | {"exit": 5}}}) == []

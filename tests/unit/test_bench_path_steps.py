# SPDX-License-Identifier: GPL-2.0-or-later
"""How `make bench-guard` judges what a guest saw, without a guest."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

import path_steps as bench  # noqa: E402

_LINE = 11.9e6
_REST: dict[str, Any] = {"settled_s": 100.0, "lines": []}


def _step(back_at_s: float, rtt_ms: float = 20) -> dict[str, Any]:
    """Return what a guest saw of a step after which the line is full from `back_at_s` on."""
    moved = [[0.25 * turn, _LINE * (0.25 * turn >= back_at_s)] for turn in range(160)]
    return {"rtt_ms": rtt_ms, "changed_s": 0.0, "moved": moved}


@pytest.mark.parametrize(("back_at_s", "held"), [(0.0, True), (3.0, True), (4.75, True), (5.5, False), (99.0, False)])
def test_a_load_has_to_have_its_line_again_in_time(back_at_s: float, held: bool) -> None:
    told = bench.missed([_step(back_at_s), _step(0.0, 150)], _REST)
    assert (told == []) == held
    assert all(f"0.95 of the bound {'after 5.5' if back_at_s < 10 else 'never'}" in one for one in told)


def test_what_is_lost_again_later_was_not_back() -> None:
    step = _step(0.0)
    step["moved"][100:110] = [[at_s, 0.0] for at_s, _ in step["moved"][100:110]]
    assert "of the bound after 27.5" in bench.missed([step, step], _REST)[0]


def test_a_step_that_was_not_seen_and_a_path_that_is_followed_while_it_rests_are_said() -> None:
    lines = [{"kind": "followed", "time_s": at_s, "text": "there"} for at_s in (50.0, 150.0)]
    told = bench.missed([_step(0.0)], {"settled_s": 100.0, "lines": lines})
    assert told == ["1 of 2 steps were seen", "followed once more when the path rested: there"]


@pytest.mark.parametrize(
    ("hold_s", "said"),
    [
        (3600, "all bars held"),
        (60, "all bars held but rest for an hour: the path rested for 60 s (--hold 3600)"),
    ],
)
def test_an_hour_s_rest_is_not_said_to_have_been_held_by_a_minute_s(hold_s: float, said: str) -> None:
    assert bench.all_held(hold_s) == said

# SPDX-License-Identifier: GPL-2.0-or-later
"""The bars of `make bench-module`: what the target's half may cost, and the parts of its time besides."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

import module  # noqa: E402


@pytest.mark.parametrize(("tracer", "held", "missed"), [("target", 220, 221), ("target-parts", 650, 701)])
def test_the_target_s_half_and_the_parts_have_a_bar_each(tracer: str, held: int, missed: int) -> None:
    """The parts had none: what they cost could grow unseen."""

    def misses(added: float) -> bool:
        row = {
            "kernel": "6.1", "device": "lio_loop", "depth": 1, "clocksource": "tsc", "tracer": tracer, "added": added,
            "instructions_per_request": 20_000, "ratio_to_fabstat": 3.0, "bar": module.BARS.get(("lio_loop", tracer)),
        }  # fmt: skip
        return module.show([row])

    assert not misses(held) and misses(missed)

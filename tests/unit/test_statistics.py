# SPDX-License-Identifier: GPL-2.0-or-later
"""The intervals cover, the verdicts hold their error rates, and the distributions match published tables."""

import math
import random
from typing import Any

import pytest

from fabtune.report import statistics as st

SETS = 1000
PAIRS = 10


def abba(order_seed: int, pairs: int = PAIRS) -> list[str]:
    """Run order of a session: blocks of ABBA or BAAB."""
    draw = random.Random(order_seed)
    return [side for _ in range(pairs // 2) for side in draw.choice(("ABBA", "BAAB"))]


def session(
    seed: int, *, effect: float, noise: float, drift: float = 0.0, wave: float = 0.0, pairs: int = PAIRS
) -> Any:
    """(a, b) pairs of one simulated session: log-normal noise a run, drift in time."""
    draw = random.Random(seed)
    order = abba(seed, pairs)
    runs = [
        100
        * math.exp(
            math.log1p(effect) * (side == "B")
            + draw.gauss(0, noise)
            + drift * time / len(order)
            + wave * math.sin(2 * math.pi * time / len(order))
        )
        for time, side in enumerate(order)
    ]
    found = []
    for at in range(0, len(order), 2):
        first, second = runs[at : at + 2]
        found.append((first, second) if order[at] == "A" else (second, first))
    return found


@pytest.mark.parametrize(
    ("df", "probability", "t"),
    # Published tables of Student's t.
    [
        (1, 0.975, 12.7062), (2, 0.975, 4.3027), (5, 0.975, 2.5706), (9, 0.975, 2.2622), (10, 0.95, 1.8125),
        (19, 0.975, 2.0930), (30, 0.995, 2.7500), (120, 0.975, 1.9799),
    ],
)  # fmt: skip
def test_t_quantiles_match_the_tables(df: Any, probability: Any, t: Any) -> None:
    assert st.t_quantile(probability, df) == pytest.approx(t, abs=6e-5)
    assert st.t_cdf(t, df) == pytest.approx(probability, abs=1e-5)
    assert st.t_cdf(-t, df) == pytest.approx(1 - probability, abs=1e-5)


@pytest.mark.parametrize(
    "kind",
    [
        {"effect": 0.0, "noise": 0.02},
        {"effect": 0.05, "noise": 0.02},
        {"effect": -0.10, "noise": 0.10},
        {"effect": 0.05, "noise": 0.02, "drift": 0.05},
        {"effect": 0.0, "noise": 0.02, "drift": 0.05, "wave": 0.02},
    ],
    ids=["null", "effect", "noisy", "drifting", "drifting and waving"],
)
def test_interval_covers_the_truth(kind: Any) -> None:
    covered = 0
    for seed in range(SETS):
        found = st.compare_pairs(session(seed, **kind))
        covered += found.low <= 1 + kind["effect"] <= found.high
    print(f"{kind}: the interval covers the truth in {covered / SETS:.1%}")
    assert 0.93 <= covered / SETS <= 0.97


def verdicts(**kind: Any) -> Any:
    found = [st.verdict(st.compare_pairs(session(seed, **kind)), better=1)[0] for seed in range(SETS)]
    return {verdict: found.count(verdict) / SETS for verdict in st.Verdict}


@pytest.mark.parametrize("noise", [0.005, 0.02, 0.1])
def test_a_against_a_is_seldom_called_different(noise: Any) -> None:
    share = verdicts(effect=0.0, noise=noise, drift=0.05)
    print(f"noise {noise:.1%}: called different in {share[st.Verdict.BETTER] + share[st.Verdict.WORSE]:.1%}")
    assert share[st.Verdict.BETTER] + share[st.Verdict.WORSE] <= 0.05


def test_five_percent_under_two_percent_noise_is_found() -> None:
    found = verdicts(effect=0.05, noise=0.02)[st.Verdict.BETTER], verdicts(effect=-0.05, noise=0.02)[st.Verdict.WORSE]
    print("5 % under 2 % noise with 10 pairs: found in {:.1%} (better) and {:.1%} (worse)".format(*found))
    assert min(found) >= 0.9


def test_a_small_certain_difference_is_of_no_practical_use() -> None:
    assert verdicts(effect=0.005, noise=0.002)[st.Verdict.SAME] >= 0.95


def test_too_few_pairs_are_refused() -> None:
    verdict, why = st.verdict(st.compare_pairs([(1.0, 2.0), (1.0, 2.1), (1.0, 2.2)]), better=1)
    assert verdict is st.Verdict.CANNOT_TELL and "at least 6" in why


def test_what_the_rig_cannot_see_is_not_called_a_difference() -> None:
    found = st.compare_pairs(session(1, effect=0.05, noise=0.005))
    assert st.verdict(found, better=1)[0] is st.Verdict.BETTER
    assert st.verdict(found, better=1, noise=0.08)[0] is st.Verdict.CANNOT_TELL


def test_less_latency_is_better() -> None:
    found = st.compare_pairs(session(1, effect=-0.2, noise=0.01))
    assert st.verdict(found, better=-1)[0] is st.Verdict.BETTER
    assert st.verdict(found, better=1)[0] is st.Verdict.WORSE


def test_sign_flip_test_is_exact() -> None:
    assert st.sign_flip_p([1.0] * 6) == 2 / 2**6
    assert st.sign_flip_p([3.0, -2.0, 1.0]) == 4 / 8 + 2 / 8
    assert st.sign_flip_p([0.1] * 20) < 0.001
    # The sum is 0, and 2e-16 by rounding: no flip is less extreme.
    assert st.sign_flip_p([math.log(ratio) for ratio in (98 / 99, 100 / 97, 97 / 100, 99 / 98)]) == 1


def test_identical_runs_do_not_divide_by_zero() -> None:
    found = st.compare_pairs([(5.0, 5.0)] * 6)
    assert (found.ratio, found.low, found.high, found.p) == (1, 1, 1, 1)
    assert st.verdict(found, better=1)[0] is st.Verdict.SAME


def test_interleaving_beats_blocks_under_drift() -> None:
    """ABBA leaves no bias of a 5 % drift; first all A, then all B would take half of it for an effect."""
    estimates = [
        math.log(st.compare_pairs(session(seed, effect=0, noise=0.02, drift=0.05)).ratio) for seed in range(SETS)
    ]
    assert abs(sum(estimates) / SETS) < 0.001


def test_welch_interval_covers_the_truth() -> None:
    covered = 0
    for seed in range(SETS):
        draw = random.Random(seed)
        a = [math.exp(draw.gauss(0, 0.02)) for _ in range(8)]
        b = [1.05 * math.exp(draw.gauss(0, 0.05)) for _ in range(12)]
        found = st.compare_groups(a, b)
        covered += found.low <= 1.05 <= found.high
    assert 0.93 <= covered / SETS <= 0.97


def test_holm_adjusts_in_order() -> None:
    assert st.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert st.holm([0.6, 0.7]) == [1.0, 1.0]


def test_drawn_sign_flips_agree_with_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(5)
    differences = [draw.gauss(0.02, 0.02) for _ in range(13)]
    exact = st.sign_flip_p(differences)
    monkeypatch.setattr(st, "_EXACT_PAIRS", 4)
    assert 0.001 < exact < 0.5 and st.sign_flip_p(differences) == pytest.approx(exact, rel=0.05)

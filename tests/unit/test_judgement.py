# SPDX-License-Identifier: GPL-2.0-or-later
"""The one judgement: it covers, holds its error rates, agrees with scipy, and gives reasons that are true."""

import math
import random
from itertools import product

import attrs
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from fabtune.model import statistics
from fabtune.model.judgement import (
    ALPHA_BIAS,
    Judgement,
    Sides,
    Verdict,
    judge_together,
    proven_bias,
)

SETS = 500


def judge_alone(sides: Sides, alpha: float = 0.05) -> Judgement:
    return judge_together([sides], alpha=alpha)[0]


def paired(ratios: list[float], better: int = 1, bias: tuple[float, float] | None = None) -> Sides:
    a, b = (100.0,) * len(ratios), tuple(100 * ratio for ratio in ratios)
    return Sides(a=a, b=b, better=better, paired=True, bias=bias)


def unpaired(a: list[float], b: list[float]) -> Sides:
    return Sides(a=tuple(a), b=tuple(b), better=1, paired=False)


@pytest.mark.parametrize(
    ("df", "probability", "t"),
    # Published tables of Student's t.
    [
        (1, 0.975, 12.7062), (2, 0.975, 4.3027), (5, 0.975, 2.5706), (9, 0.975, 2.2622), (10, 0.95, 1.8125),
        (19, 0.975, 2.0930), (30, 0.995, 2.7500), (120, 0.975, 1.9799),
    ],
)  # fmt: skip
def test_t_quantiles_match_the_tables(df: int, probability: float, t: float) -> None:
    assert statistics.t_quantile(probability, df) == pytest.approx(t, abs=6e-5)
    assert statistics.t_cdf(t, df) == pytest.approx(probability, abs=1e-5)
    assert statistics.t_cdf(-t, df) == pytest.approx(1 - probability, abs=1e-5)


@pytest.mark.parametrize("n", [3, 6, 8, 10])
def test_signed_ranks_by_all_signs(n: int) -> None:
    draw = random.Random(n)
    sizes = sorted(draw.random() for _ in range(n))
    scores = [min(rank, max(1, n * 3 // 4)) for rank in range(1, n + 1)]
    sums = {signs: sum(s for s, up in zip(scores, signs, strict=True) if up) for signs in product((0, 1), repeat=n)}
    most = sum(scores)
    for signs, found in draw.sample(list(sums.items()), min(50, 2**n)):
        as_extreme = sum(min(one, most - one) <= min(found, most - found) for one in sums.values())
        differences = [size if up else -size for size, up in zip(sizes, signs, strict=True)]
        assert statistics.signed_rank(differences).p == pytest.approx(as_extreme / 2**n)


def test_t_tests_as_scipy_has_them() -> None:
    draw = random.Random(3)
    a, b = [draw.gauss(1, 1) for _ in range(7)], [draw.gauss(2, 3) for _ in range(7)]
    apart = [y - x for x, y in zip(a, b, strict=True)]
    assert statistics.paired_t(apart).p == pytest.approx(scipy.stats.ttest_1samp(apart, 0).pvalue)
    # Degrees of freedom are rounded down, so p is a little larger.
    welch = statistics.welch_t(a, b).p / scipy.stats.ttest_ind(a, b, equal_var=False).pvalue
    assert 1 <= welch < 1.05


@pytest.mark.parametrize(("runs", "cut"), [((8, 30), (1, 4)), ((10, 10), (1, 1)), ((20, 14), (3, 2))])
def test_trimmed_means_as_scipy_has_them(runs: tuple[int, int], cut: tuple[int, int]) -> None:
    draw = random.Random(5)
    a, b = ([draw.gauss(0.1 * at, 1 + at) for _ in range(n)] for at, n in enumerate(runs))
    found = statistics.trimmed_t(a, b)
    means = [scipy.stats.trim_mean(side, n / len(side)) for side, n in zip((a, b), cut, strict=True)]
    assert found.estimate == pytest.approx(means[1] - means[0])
    if runs[0] == runs[1]:
        wanted = scipy.stats.ttest_ind(b, a, equal_var=False, trim=0.15)
        assert found.estimate / found.error == pytest.approx(wanted.statistic)
    # One degree of freedom fewer than Yuen's own.
    assert found.df <= sum(n - 2 * less - 2 for n, less in zip(runs, cut, strict=True))


def test_many_runs_are_judged_by_the_normal_distribution() -> None:
    draw = random.Random(4)
    differences = [draw.gauss(0.1, 1) for _ in range(60)]
    many = statistics.signed_rank(differences)
    exact = statistics.Ranked("", many.candidates, statistics._signed_ranks(60, 45).__getitem__)
    assert many.p == pytest.approx(exact.p, rel=0.02)
    assert many.interval(0.05) == pytest.approx(exact.interval(0.05), abs=0.01)


SHIFTED = st.lists(st.sampled_from([0.9, 0.97, 1.0, 1.0, 1.03, 1.1, 1.25]), min_size=3, max_size=14)


@given(SHIFTED, SHIFTED, st.sampled_from([0.05, 0.0182, 0.01]), st.integers(1, 4))
def test_p_and_interval_never_contradict_each_other(a: list[float], b: list[float], alpha: float, family: int) -> None:
    for sides in (paired(b), unpaired(a, b)):
        for one in judge_together([sides, *[paired([1.02] * 5 + [0.97])] * (family - 1)], alpha=alpha):
            assert one.p is not None and one.low is not None and one.high is not None and one.ratio is not None
            assert one.low <= one.ratio <= one.high
            assert (one.p <= alpha) == (not one.low <= 1 <= one.high)


@given(SHIFTED, SHIFTED, st.sampled_from([0.01, 1 / 16]))
def test_nor_do_they_where_values_are_rounded(a: list[float], b: list[float], rounded: float) -> None:
    for sides in (paired(b), unpaired(a, b)):
        (one,) = judge_together([attrs.evolve(sides, rounded=rounded)])
        assert one.p is not None and one.low is not None and one.high is not None
        assert (one.p <= 0.05) == (not one.low <= 1 <= one.high)


def test_neighbouring_buckets_are_no_difference_however_often_they_are_measured() -> None:
    # True latencies of 101.9 and 102.1, on either side of the border between two buckets of fabstat, 6 wide.
    a, b = (99.0,) * 20, (105.0,) * 20
    sides = Sides(a=a, b=b, better=-1, paired=True)
    assert judge_alone(sides).verdict is Verdict.WORSE
    rounded = judge_alone(attrs.evolve(sides, rounded=1 / 16))
    assert rounded.verdict is Verdict.CANNOT_TELL and rounded.p == 1
    assert rounded.why == "both sides are known to a bucket only: their ratio may be 6.2 % off"
    assert judge_alone(attrs.evolve(sides, b=(115.0,) * 20, rounded=1 / 16)).verdict is Verdict.WORSE


def found(
    effect: float, noise: float, runs: int, *, seed: int, is_paired: bool = True, outliers: float = 0
) -> Judgement:
    draw = random.Random(seed)
    a, b = (
        [center * math.exp(draw.gauss(0, noise)) * (0.7 if draw.random() < outliers else 1) for _ in range(runs)]
        for center in (100, 100 * (1 + effect))
    )
    return judge_alone(Sides(a=tuple(a), b=tuple(b), better=1, paired=is_paired))


@pytest.mark.parametrize("is_paired", [True, False])
@pytest.mark.parametrize(("runs", "outliers"), [(3, 0), (6, 0), (10, 0), (10, 0.05), (16, 0)])
def test_interval_covers_the_truth(is_paired: bool, runs: int, outliers: float) -> None:
    kept = [found(0.05, 0.02, runs, seed=seed, is_paired=is_paired, outliers=outliers) for seed in range(SETS)]
    covered = sum(one.low <= 1.05 <= one.high for one in kept if one.low and one.high) / SETS
    print(f"{runs} {'paired' if is_paired else 'unpaired'}: the interval covers the truth in {covered:.1%}")
    assert 0.93 <= covered <= 0.98


def test_a_few_runs_that_lose_a_third_cost_little_power() -> None:
    power = [
        sum(found(0.05, 0.02, 10, seed=seed, outliers=share).verdict is Verdict.BETTER for seed in range(SETS))
        for share in (0, 0.05)
    ]
    assert power[1] >= 0.7 * power[0] >= 0.69 * SETS, power


@pytest.mark.parametrize(("noise", "better"), [(0.02, 1), (0.1, -1)])
def test_a_against_a_is_seldom_called_different(noise: float, better: int) -> None:
    different = sum(found(0, noise, 10, seed=seed).verdict in (Verdict.BETTER, Verdict.WORSE) for seed in range(SETS))
    assert different <= 0.055 * SETS


@pytest.mark.parametrize(
    ("runs", "noise"),
    [((8, 30), (0.1, 0.01)), ((8, 40), (0.2, 0.01)), ((10, 20), (0.08, 0.02)), ((10, 10), (0.1, 0.01)),
     ((8, 8), (0.005, 0.1)), ((7, 40), (0.2, 0.01)), ((3, 12), (0.1, 0.01))],
)  # fmt: skip
def test_a_side_that_varies_more_is_no_other_side(runs: tuple[int, int], noise: tuple[float, float]) -> None:
    """Where the sides' spreads differ, as tuning makes them, equal ones were called different in up to a quarter."""
    for alpha in (0.05, 0.05 / 10):
        draw = random.Random(11)
        different = 0
        for _ in range(2 * SETS):
            a, b = ([math.exp(draw.gauss(0, s)) for _ in range(n)] for n, s in zip(runs, noise, strict=True))
            one = judge_alone(unpaired(a, b), alpha)
            different += one.verdict in (Verdict.BETTER, Verdict.WORSE)
        # What chance adds, three times of three hundred.
        assert different / (2 * SETS) <= alpha + 3 * math.sqrt(alpha / (2 * SETS))


@pytest.mark.parametrize("outliers", [0, 0.05])
def test_unpaired_runs_of_unequal_spread_and_number_keep_their_power(outliers: float) -> None:
    draw = random.Random(12)
    mine = textbook = 0
    for _ in range(SETS):
        a, b = (
            [center + draw.gauss(0, noise) for _ in range(runs)]
            for center, noise, runs in ((0, 0.03, 10), (math.log(1.05), 0.01, 20))
        )
        textbook += statistics.welch_t(a, b).p <= 0.05
        a, b = ([x + (math.log(0.7) if draw.random() < outliers else 0) for x in side] for side in (a, b))
        mine += judge_alone(unpaired(*([math.exp(x) for x in side] for side in (a, b)))).verdict is Verdict.BETTER
    assert mine >= (0.7 if outliers else 0.97) * textbook >= 0.65 * SETS


def test_seeds_of_a_virtual_clock_without_spread_leave_no_doubt() -> None:
    one = judge_alone(Sides(a=(3.1, 3.1, 3.1), b=(97.0, 97.0, 97.0), better=1, paired=True))
    assert one.verdict is Verdict.BETTER and one.interval == pytest.approx((31.29, 31.29), abs=0.01)
    assert one.method == "Student's t"
    assert judge_alone(paired([1.0] * 3)).verdict is Verdict.SAME


def test_the_test_is_said_and_is_the_one_that_can_decide() -> None:
    assert judge_alone(paired([1.1] * 7)).method == "Student's t"
    assert judge_alone(paired([1.1] * 8)).method == "signed ranks"
    # Eight pairs have p = 1/128 at least: they cannot decide one of seven figures by ranks.
    assert {one.method for one in judge_together([paired([1.1] * 8)] * 7)} == {"Student's t"}
    assert judge_alone(unpaired([1.0] * 7, [1.1] * 9)).method == "Welch's t"
    assert judge_alone(unpaired([1.0] * 8, [1.1] * 9)).method == "Welch's t on trimmed means (Yuen)"


def test_too_few_runs_are_refused() -> None:
    assert judge_alone(paired([1.5, 1.6])).why == "2 pairs; at least 3 are needed"
    assert judge_alone(unpaired([1.5], [1.6, 1.7])).why == "1 runs of a side; at least 3 are needed"
    assert judge_alone(unpaired([0.0] * 3, [1.6] * 3)).why == "a value of 0 has no ratio"


def test_a_certain_difference_is_called_so_however_small_its_interval_begins() -> None:
    one = judge_alone(paired([1.006, 1.02, 1.03, 1.04, 1.05, 1.061, 1.03, 1.02]))
    assert one.low is not None and 1 < one.low < 1.02 and one.verdict is Verdict.BETTER


def test_reasons_are_true() -> None:
    loose = judge_alone(paired([0.99, 1.05, 1.1, 0.995, 1.08, 1.01]))
    assert loose.verdict is Verdict.CANNOT_TELL
    assert loose.why == "the interval holds no difference as well as a gain of more than 2 %"
    assert judge_alone(paired([0.9, 1.1] * 4)).why.endswith("a gain or a loss of more than 2 %")
    less_is_better = judge_alone(paired([0.99, 1.05, 1.1, 0.995, 1.08, 1.01], better=-1))
    assert less_is_better.why.endswith("a loss of more than 2 %")
    # p = 0.031 alone, 0.094 as one of three.
    doubtful = [1.01, 1.05, 1.1, 1.02, 1.08, 1.01, 0.999]
    assert judge_alone(paired(doubtful)).verdict is Verdict.BETTER
    among = judge_together([paired(doubtful), *[paired([0.9, 1.1] * 4)] * 2])[0]
    assert among.verdict is Verdict.CANNOT_TELL and among.why.startswith("alone it would count as a difference")


def test_less_latency_is_better() -> None:
    assert judge_alone(paired([0.8] * 6, better=-1)).verdict is Verdict.BETTER
    assert judge_alone(paired([0.8] * 6)).verdict is Verdict.WORSE


def test_only_a_proven_bias_limits_a_verdict() -> None:
    draw = random.Random(1)
    biased = judge_alone(paired([1.03 * math.exp(draw.gauss(0, 0.003)) for _ in range(8)]), alpha=ALPHA_BIAS)
    bias = proven_bias(biased)
    assert bias is not None and bias[0] > 1.02
    noisy = judge_alone(paired([0.9, 1.1, 1.2, 0.8, 1.05, 0.93]), alpha=ALPHA_BIAS)
    assert noisy.verdict is Verdict.CANNOT_TELL and proven_bias(noisy) is None
    small, large, same = [1.031] * 8, [1.10] * 8, [1.0] * 8
    held_back = judge_alone(paired(small, bias=bias))
    assert held_back.verdict is Verdict.CANNOT_TELL and "the set-up itself favours one side" in held_back.why
    assert judge_alone(paired(large, bias=bias)).verdict is Verdict.BETTER
    assert judge_alone(paired([0.99 / 1.02] * 8, bias=bias)).verdict is Verdict.WORSE
    # No difference seen, and 3 % of it may be hidden.
    assert judge_alone(paired(same, bias=bias)).verdict is Verdict.CANNOT_TELL


def test_holm_adjusts_in_order_and_gives_each_its_level() -> None:
    assert [p for p, _ in statistics.holm([0.01, 0.04, 0.03], 0.05)] == pytest.approx([0.03, 0.06, 0.06])
    assert [level for _, level in statistics.holm([0.01, 0.04, 0.03], 0.05)] == pytest.approx([0.05 / 3, 0.025, 0.025])
    assert [p for p, _ in statistics.holm([0.6, 0.7], 0.05)] == [1.0, 1.0]
    assert [level for _, level in statistics.holm([0.001, 0.02], 0.05)] == [0.025, 0.05]


def test_values_that_fall_into_two_groups_are_shown_as_two() -> None:
    assert statistics.groups_in([119.5, 97.7, 119.4, 97.6, 119.5]) == ((97.6, 97.7), (119.4, 119.5, 119.5))
    # One run that lost 30 % is an outlier, loss draws a wide field, and 3 % apart is one group.
    for one in (
        [100.0, 101, 99, 102, 98, 70],
        [4.32, 5.80, 4.69, 5.24, 8.28, 4.90],
        [100.0, 100, 103, 103],
        [1.0, 2],
        [5.0],
    ):
        assert len(statistics.groups_in(one)) == 1 and statistics.one_apart(one) is None


def test_one_value_apart_is_no_group() -> None:
    """Of three seeds 97.7, 119.5, 119.5 the first may be an outlier as well as one of a group."""
    for values, alone in (([97.7, 119.5, 119.5], 97.7), ([3.42, 3.78, 3.42], 3.78), ([1.0, 1.001, 2.0, 1.0], 2.0)):
        assert statistics.groups_in(values) == (tuple(sorted(values)),)
        assert statistics.one_apart(values) == alone
    assert statistics.one_apart([1.0, 1.0, 2.0, 2.0]) is None and statistics.one_apart([]) is None


def test_noise_seldom_looks_like_two_groups() -> None:
    draw = random.Random(2)
    for runs, most in ((3, 0.08), (5, 0.02), (10, 0.005)):
        wrong = sum(
            len(statistics.groups_in(drawn)) == 2 or statistics.one_apart(drawn) is not None
            for drawn in ([math.exp(draw.gauss(0, 0.2)) for _ in range(runs)] for _ in range(2000))
        )
        assert wrong / 2000 <= most


def in_bucket(value: float) -> float:
    """Return the middle of the bucket of fabstat that `value` falls into, sixteen an octave."""
    width = math.ldexp(1, math.floor(math.log2(value)) - 4)
    return (math.floor(value / width) + 0.5) * width


@pytest.mark.parametrize("runs", [3, 5])
@pytest.mark.parametrize("noise", [0.005, 0.02, 0.05])
def test_values_of_a_bucket_are_not_known_better_than_it(runs: int, noise: float) -> None:
    """Their intervals held the mean in 19 to 95 % of cases, and up to a third of three looked like one apart."""
    draw = random.Random(3)
    held = apart = 0
    for _ in range(1000):
        mean = 8 * 2 ** draw.random()
        drawn = [in_bucket(mean * math.exp(draw.gauss(0, noise))) for _ in range(runs)]
        low, high = statistics.mean_interval(drawn, 0.05, 1 / 32)
        assert low is not None and high is not None
        held += low <= mean <= high
        apart += len(statistics.groups_in(drawn, 1 / 32)) == 2 or statistics.one_apart(drawn, 1 / 32) is not None
    assert held >= 940 and apart <= 20


def test_what_no_bucket_explains_is_still_seen() -> None:
    assert statistics.groups_in([6308.0, 8858, 6308, 8858, 6308], 1 / 32) == ((6308, 6308, 6308), (8858, 8858))
    assert statistics.one_apart([0.176, 0.186, 0.186], 1 / 32) is None
    assert statistics.one_apart([0.176, 0.386, 0.176], 1 / 32) == 0.386


def test_values_that_have_nothing_in_common_leave_an_interval_that_is_a_number() -> None:
    wild = Sides(a=(1e-9, 1.0, 1e9), b=(1e9, 1e-9, 1.0), better=1, paired=False)
    for one in judge_together([wild] * 200):
        assert one.verdict is Verdict.CANNOT_TELL and one.low and one.high and math.isfinite(one.high)

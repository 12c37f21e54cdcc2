# SPDX-License-Identifier: GPL-2.0-or-later
"""Where nothing moved there is no ratio, and order alone decides: exactly, seldom wrongly, in every verb's words."""

import copy
import html
import json
import random
import re
from typing import Any

import attrs
import pytest
import scipy.stats
from run_records import make_record, said, with_step

from fabtune.autotune.goal import Aim, Figures, Goal
from fabtune.errors import ExitCode
from fabtune.experiment.summary import summarise
from fabtune.model import order, typed
from fabtune.model.judgement import Judgement, Sides, Verdict, judge_together, proven_bias
from fabtune.model.outputs import FioOutput
from fabtune.model.results import Point
from fabtune.model.runrecord import RunRecord
from fabtune.report import compare, suite, verdict_table

STILL = (0.0,) * 10
FAST = (100.0, 101.0, 99.0, 100.5, 98.0, 102.0, 100.0, 99.5, 101.5, 100.0)
NO_RATIO = "a value of 0 has no ratio"


def judge(a: tuple[float, ...], b: tuple[float, ...], *, paired: bool = True, **more: Any) -> Judgement:
    return judge_together([Sides(a=a, b=b, better=1, paired=paired, **more)])[0]


@pytest.mark.parametrize("paired", [True, False])
def test_a_side_on_which_nothing_moves_is_worse(paired: bool) -> None:
    """Ten of ten runs at 0 MB/s against 100 were "cannot tell", which no script takes for harm."""
    down, up = judge(FAST, STILL, paired=paired), judge(STILL, FAST, paired=paired)
    assert (down.verdict, up.verdict) == (Verdict.WORSE, Verdict.BETTER)
    for one in (down, up):
        assert (one.ratio, one.interval, one.why) == (None, None, "") and one.p is not None and one.p < 0.01
    less_is_better = judge_together([Sides(a=FAST, b=STILL, better=-1, paired=paired)])[0]
    assert less_is_better.verdict is Verdict.BETTER


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize(("zeros", "runs"), [(3, 3), (3, 10), (1, 10), (4, 8), (10, 10)])
def test_few_zeros_or_few_runs_cannot_tell(zeros: int, runs: int, paired: bool) -> None:
    """Runs that moved data were faster, which makes up for no standstill; of the last, nothing moved on either side."""
    a = (0.0,) * runs if zeros == 10 else FAST[:runs]
    b = (0.0,) * zeros + tuple(1.5 * one for one in FAST[zeros:runs])
    one = judge(a, b, paired=paired)
    assert (one.verdict, one.why, one.ratio) == (Verdict.CANNOT_TELL, NO_RATIO, None)


def test_one_run_that_stood_still_does_not_hide_what_all_pairs_say() -> None:
    a = (0.0, *FAST[1:])
    assert judge(a, tuple(2 * one for one in FAST)).verdict is Verdict.BETTER
    # A difference that is of no use to anybody says nothing, however often it is seen.
    assert judge(a, tuple(1.01 * one for one in FAST)).verdict is Verdict.CANNOT_TELL
    assert judge(a, tuple(1.1 * one for one in FAST), bias=(1.05, 1.2)).verdict is Verdict.CANNOT_TELL


def test_what_is_judged_by_order_alone_is_one_of_its_family() -> None:
    """Beside others it needs as much more certainty as they do; where so few runs cannot have it, it costs nothing."""
    six, others = Sides(a=FAST[:6], b=STILL[:6], better=1, paired=True), Sides(a=FAST, b=FAST, better=1, paired=True)
    assert judge_together([six])[0].verdict is Verdict.WORSE
    among = judge_together([six, others])[0]
    assert among.verdict is Verdict.CANNOT_TELL and among.why.startswith("alone it would count as a difference")
    doubtful = Sides(a=FAST[:7], b=tuple(map(lambda x, y: x * y, FAST, (1.01, 1.05, 1.1, 1.02, 1.08, 1.01, 0.999))),
                     better=1, paired=True)  # fmt: skip
    few = Sides(a=FAST[:3], b=STILL[:3], better=1, paired=True)
    assert judge_together([doubtful]) == judge_together([doubtful, few])[:1]


def test_a_set_up_that_itself_stands_still_proves_nothing() -> None:
    bias = proven_bias(judge(FAST, STILL))
    for a, b in ((FAST, STILL), (STILL, FAST), (FAST, tuple(2 * one for one in FAST))):
        one = judge(a, b, bias=bias)
        assert one.verdict is Verdict.CANNOT_TELL
        assert one.why == "A against A stood still on one side: the set-up itself favours one side"
    assert judge(FAST, STILL, bias=(1.05, 1.2)).verdict is Verdict.WORSE


@pytest.mark.parametrize(("n", "m"), [(4, 4), (5, 9), (10, 10), (3, 12)])
def test_order_as_scipy_has_it(n: int, m: int) -> None:
    draw = random.Random(n * m)
    for shift in (0.0, 1.0, 3.0):
        a, b = [draw.gauss(0, 1) + 9 for _ in range(n)], [draw.gauss(shift, 1) + 9 for _ in range(m)]
        u = int(sum(y > x for x in a for y in b))
        wanted = scipy.stats.mannwhitneyu(b, a, method="exact").pvalue
        assert min(1.0, 2 * order._rank_tail(n, m, n * m - max(u, n * m - u))) == pytest.approx(wanted)
        rises = sum(y > x for x, y in zip(a, b, strict=False))
        wanted = scipy.stats.binomtest(rises, min(n, m)).pvalue
        assert order.signs(a[: min(n, m)], b[: min(n, m)], 1.0).p == pytest.approx(wanted)
        zeros, others = draw.randrange(n + 1), draw.randrange(m + 1)
        wanted = scipy.stats.fisher_exact([[zeros, n - zeros], [others, m - others]], alternative="greater").pvalue
        assert order._p_of_zeros(zeros, n, others, m) == pytest.approx(min(1.0, 2 * wanted))
    assert order._rank_tail(40, 40, 600) == pytest.approx(order._rank_sums(40, 40)[600], rel=0.05)
    assert order.least_p(n, m, paired=False) == pytest.approx(2 * order._rank_sums(n, m)[0])


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("spread", [0.02, 1.0])
def test_equal_sides_that_stand_still_now_and_then_are_seldom_called_different(paired: bool, spread: float) -> None:
    """Also where the second side varies far more: ranks alone take that for a difference."""
    sets, draw, different = 2000, random.Random(3), 0
    runs = (12, 12) if paired else (8, 24)
    for _ in range(sets):
        a, b = (
            tuple(0.0 if draw.random() < 0.3 else draw.lognormvariate(0, sigma) for _ in range(count))
            for sigma, count in zip((0.02, spread), runs, strict=True)
        )
        if min(*a, *b) > 0:
            continue
        different += judge(a, b, paired=paired).verdict is not Verdict.CANNOT_TELL
    assert different <= 0.05 * sets


def _stood_still(label: str, pair: int) -> RunRecord:
    """A run of which all requests came back after the measured part."""
    made = make_record(5.0, label, pair, start=pair)
    before: Any = copy.deepcopy(typed.STRICT.write(made.steps[0].fio))
    nothing = {"total_ios": 0, "io_bytes": 0, "runtime": 1000, "clat_ns": {}, "lat_ns": {"mean": 0, "N": 0}}
    before["jobs"][0] |= {"read": nothing, "write": nothing}
    return with_step(made, before_drain=said(FioOutput, before))


def test_compare_and_report_say_worse_without_a_ratio() -> None:
    a = [make_record(rate, "default", pair, start=pair) for pair, rate in enumerate(FAST)]
    b = [_stood_still("wan", pair) for pair in range(10)]
    outcome = compare.compare(a, b)
    assert outcome.exit_code is ExitCode.DRIFT
    row = verdict_table.verdict_tables(outcome)[0].rows[0]
    assert (row[3], row[4], row[5], row[-1]) == ("100", "0", None, "worse")
    (told,) = [one for one in json.loads(verdict_table.as_json(outcome))["rows"] if one["primary"]]
    assert (told["verdict"], told["ratio"], told["low"], told["high"]) == ("worse", None, None, None)
    records = [attrs.evolve(one, file=f"{at}.run.json.gz") for at, one in enumerate([*a, *b])]
    page = suite.render(records, [], [], ["fabtune", "report"])
    first = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page.split("<h2")[0])).split())
    assert "No, it harmed. xdd, wan against default: worse at read." in first
    assert "By how much? without a ratio, since one side stood still: read." in first
    assert "10 pairs a point, without an interval." in first


def test_an_experiment_s_row_says_worse() -> None:
    rows = [
        ({"profile": profile}, Point({"profile": profile, "op": "read", "seed": seed, "mb_per_s": values[seed]}))
        for profile, values in (("untouched", FAST), ("wan", STILL))
        for seed in range(10)
    ]
    point = summarise(rows)[1].point
    assert (point["verdict"], point["gain"], point["gain_low"]) == ("worse", 0.0, None)


def test_blocks_of_one_look_that_stand_still_prove_nothing_about_a_step() -> None:
    """They are one draw, however many they are: a load that begins by itself is no gain."""
    outcome = Aim(Goal.THROUGHPUT).outcome(Figures(STILL[:7]), Figures(FAST[:7]))
    assert (outcome.throughput.verdict, outcome.throughput.why) == (Verdict.CANNOT_TELL, NO_RATIO)

# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs over several seeds: medians, intervals, groups, gains against the right row, and statements judged by them."""

import math
import re
from pathlib import Path
from typing import Any

import numpy
import pytest
from run_records import make_record
from scipy import stats

from fabtune.cli import experiment as cli
from fabtune.errors import ExitCode
from fabtune.experiment import batch, definition, expect, publish, results
from fabtune.experiment.summary import summarise
from fabtune.lab import topology
from fabtune.lab.recipe import recipe_for
from fabtune.measure import keptrun, recordfile
from fabtune.model.results import Point
from fabtune.model.runrecord import Value
from fabtune.model.statistics import mean_interval
from fabtune.report import demo, suite

RATES = (4.32, 5.80, 4.69, 5.24, 4.90)


def runs(profile: str, *rates: float, **factors: str) -> list[tuple[dict[str, str], Point]]:
    """Runs of one combination with seeds from 1 on."""
    told = {"profile": profile, "rtt": "50ms", **factors}
    point: dict[str, float | str | None] = {"profile": profile, "rtt_ms": 50.0, "op": "read", "bound_mb_per_s": 119.5}
    return [
        (told, Point(point | {"seed": seed, "mb_per_s": rate, "fraction_of_bound": rate / 119.5, "p50_ms": 1.0}))
        for seed, rate in enumerate(rates, 1)
    ]


def test_a_row_is_the_median_with_an_interval_and_the_number_of_seeds() -> None:
    (row,) = summarise(runs("wan", *RATES))
    assert row.point["mb_per_s"] == 4.90 and row.point["seeds"] == 5 and "seed" not in row.point
    logs = numpy.log(RATES)
    low, high = numpy.exp(stats.t.interval(0.95, len(logs) - 1, numpy.mean(logs), stats.sem(logs)))
    assert row.point["mb_per_s_low"] == pytest.approx(low, 1e-4)
    assert row.point["mb_per_s_high"] == pytest.approx(high, 1e-4)
    # Percentiles are known to a bucket: three alike are not one number.
    assert row.point["p50_ms"] == 1.0
    assert (row.point["p50_ms_low"], row.point["p50_ms_high"]) == pytest.approx((1 / 1.03125, 1.03125), 1e-4)


def test_a_point_names_every_factor_though_a_figure_of_it_begins_with_its_name() -> None:
    (told, point), *_ = runs("wan", 5.0, cross="cubic")
    (row,) = summarise([(told, point | {"cross_mb_per_s": 6.4})])
    assert row.published["cross"] == "cubic"
    # Its own rtt_ms says that.
    assert "rtt" not in row.published


def test_what_limited_is_said_of_the_seed_in_the_middle_and_of_how_many_it_is_true() -> None:
    """The first seed's sentence stood for all: "limited to 9.1 MB/s" beside a median of 6.7."""
    lost, filled = "Writes of sda are limited to {} MB/s by loss", "Writes of sda fill the line: {} MB/s"

    def said(*sentences: str) -> object:
        told = zip(runs("wan", *RATES), sentences, strict=False)
        (row,) = summarise([(factors, point | {"limits": text}) for (factors, point), text in told])
        return row.point["limits"]

    assert said(*(lost.format(rate) for rate in RATES)) == lost.format(4.9)
    mixed = [filled.format(4.32), *(lost.format(rate) for rate in RATES[1:4]), filled.format(4.9)]
    assert said(*mixed) == f"{lost.format(5.24)}; so with 3 of 5 seeds"


def test_what_limited_some_seeds_is_not_said_of_those_that_nobody_looked_at() -> None:
    """Of three seeds one was looked at, and its sentence stood there as if all had said so."""
    buffer, filled = "Writes of sda are limited to 4.7 MB/s by a buffer", "Writes of sda fill the line"

    def said(*sentences: str | None) -> object:
        told = zip(runs("wan", *RATES), sentences, strict=False)
        (row,) = summarise([(factors, point | ({"limits": text} if text else {})) for (factors, point), text in told])
        return row.point["limits"]

    assert said(None, buffer, None) == f"{buffer}; so with 1 of 3 seeds, the others were not looked at"
    assert said(None, buffer) == f"{buffer}; so with 1 of 2 seeds, the other was not looked at"
    mixed = said(None, buffer, buffer, filled)
    assert mixed == f"{buffer}; so with 2 of 4 seeds, 1 of the others was not looked at"
    # The words of other directions and runs are not of this one.
    assert said(buffer, buffer, buffer) == buffer


def test_the_rate_in_what_limited_is_the_point_s_own() -> None:
    """ "Limited to 81.0 MB/s" stood beside 80.59, a median of two seeds."""
    told = zip(runs("wan", 80.4, 81.0), ("80.4", "81.0"), strict=True)
    rows = [(factors, point | {"limits": f"Reads are limited to {rate} MB/s by it"}) for (factors, point), rate in told]
    (row,) = summarise(rows)
    assert row.point["limits"] == "Reads are limited to 80.7 MB/s by it" and row.point["mb_per_s"] == 80.7


def test_one_seed_has_no_interval() -> None:
    (row,) = summarise(runs("wan", 5.0))
    assert row.point["mb_per_s_low"] is None and row.point["seeds"] == 1


def test_two_groups_are_shown_as_two_groups() -> None:
    (row,) = summarise(runs("untouched", 119.5, 97.7, 119.4, 97.6, 119.5))
    assert row.point["mb_per_s_groups"] == "97.65 (2), 119.5 (3)"
    assert (row.point["mb_per_s_low"], row.point["mb_per_s_high"]) == (97.6, 119.5)
    (text,) = demo.group_notes([row.published])
    assert text.startswith("untouched, 50 ms, read: the seeds fall into two groups, 97.65 (2) and 119.5 (3) MB/s")


def test_of_three_seeds_one_that_differs_is_no_group() -> None:
    (row,) = summarise(runs("untouched", 119.5, 97.7, 119.4))
    logs = numpy.log([119.5, 97.7, 119.4])
    low, high = numpy.exp(stats.t.interval(0.95, 2, numpy.mean(logs), stats.sem(logs)))
    assert "mb_per_s_groups" not in row.point and row.point["mb_per_s"] == 119.4 and row.point["mb_per_s_apart"] == 97.7
    assert (row.point["mb_per_s_low"], row.point["mb_per_s_high"]) == (
        pytest.approx(low, 1e-4),
        pytest.approx(high, 1e-4),
    )
    (text,) = demo.group_notes([row.published])
    assert text == "untouched, 50 ms, read: one seed differs, 97.7 MB/s, from the other 2; one alone is no group"


def test_a_gain_is_taken_against_the_row_of_the_same_other_factors() -> None:
    """sessions = 1 against untouched with 4 sessions showed 0.26x."""
    rows = summarise([
        *runs("untouched", 10, 10.1, 9.9, sessions="1"), *runs("untouched", 40, 40.1, 39.9, sessions="4"),
        *runs("wan", 30, 30.1, 29.9, sessions="1"), *runs("wan", 110, 110.1, 109.9, sessions="4"),
    ])  # fmt: skip
    gains = [row.point.get("gain") for row in rows]
    assert gains == [None, None, pytest.approx(3.0, 0.01), pytest.approx(2.75, 0.01)]
    assert [row.point.get("verdict") for row in rows] == [None, None, "better", "better"]
    assert rows[2].point["gain_low"] < 3 < rows[2].point["gain_high"]


def test_no_two_rows_of_a_table_have_the_same_name() -> None:
    rows = summarise([*runs("untouched", 10, 11, 12, sessions="1"), *runs("untouched", 40, 41, 42, sessions="4")])
    tables = demo.tables([row.published for row in rows])
    names = [(one.caption, *row[:2]) for one in tables for row in one.rows]
    assert len(set(names)) == len(names) == 2
    assert [one.caption.split(",")[0] for one in tables] == ["sessions 1", "sessions 4"]


def test_what_the_seeds_do_not_tell_is_not_told() -> None:
    rows = summarise([*runs("untouched", 119.5, 97.7, 119.4), *runs("wan", 119.5, 119.5, 119.6)])
    assert rows[1].point["verdict"] == "cannot tell"


FACTORS = {"profile": ("untouched", "wan")}
NEVER_BELOW = {"of": {"profile": "wan"}, "to": {"profile": "untouched"}, "at_least": 0.998}


def judged(statement: dict[str, Any], untouched: tuple[float, ...], wan: tuple[float, ...]) -> expect.JudgedExpectation:
    rows = [
        {"profile": profile, "op": "read", "mb_per_s": rate, "seed": seed}
        for profile, rates in (("untouched", untouched), ("wan", wan))
        for seed, rate in enumerate(rates, 1)
    ]
    sides = {"where", "of", "to"} & statement.keys()
    table: dict[str, Any] = dict(statement)
    table |= {side: {name: expect.Text(value) for name, value in statement[side].items()} for side in sides}
    return expect.judge(expect.Expectation(says="so", **table), rows, FACTORS)


@pytest.mark.parametrize(
    ("statement", "untouched", "wan", "holds"),
    [
        (NEVER_BELOW, (10, 10.1, 10.2), (20, 20.1, 20.2), True),
        (NEVER_BELOW, (20, 20.1, 20.2), (10, 10.1, 10.2), False),
        # Two of three seeds say nothing, one a lot.
        (NEVER_BELOW, (119.5, 97.7, 119.4), (119.4, 119.5, 119.3), None),
        # The same three draws for both: the differences by seed tell what the two ranges do not.
        (NEVER_BELOW, (4.3, 5.8, 8.3), (4.5, 6.1, 8.7), True),
        (NEVER_BELOW, (10.0,), (20.0,), True),
        (NEVER_BELOW, (20.0,), (10.0,), False),
        ({"where": {"profile": "wan"}, "at_most": 21}, (), (20, 20.1, 20.2), True),
        ({"where": {"profile": "wan"}, "at_most": 20.1}, (), (20, 20.1, 20.2), None),
        ({"where": {"profile": "wan"}, "at_most": 19}, (), (20, 20.1, 20.2), False),
        ({"along": "profile", "shape": "rises"}, (10, 10.1, 10.2), (20, 20.1, 20.2), True),
        ({"along": "profile", "shape": "rises"}, (10, 15, 20), (11, 15, 24), None),
        ({"along": "profile", "shape": "falls"}, (10, 10.1, 10.2), (20, 20.1, 20.2), False),
        ({"along": "profile", "shape": "level"}, (10, 10.1, 10.2), (10.1, 10.2, 10.3), True),
    ],
)  # fmt: skip
def test_a_statement_holds_by_its_interval(
    statement: dict[str, Any], untouched: tuple[float, ...], wan: tuple[float, ...], holds: bool | None
) -> None:
    verdict = judged(statement, untouched, wan)
    assert verdict.holds is holds and verdict.measured


def test_the_exit_code_says_which() -> None:
    def one(holds: bool | None, *, measured: bool = True) -> expect.JudgedExpectation:
        return expect.JudgedExpectation("so", holds, "", measured)

    assert cli._code([one(True), one(None, measured=False)]) == ExitCode.DONE
    assert cli._code([one(True), one(None)]) == ExitCode.CANNOT_TELL
    assert cli._code([one(None), one(False)]) == ExitCode.FAILED


def _load(directory: Path, text: str) -> definition.Definition:
    (directory / "exp.toml").write_text(text)
    return definition.load(str(directory / "exp.toml"))


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ('[factors]\nrtt = ["0ms"]\n', 3),
        ('[factors]\nloss = ["0.00%"]\n', 3),
        ('[factors]\nloss = ["0%", "0.01%"]\n', 5),
        ('[fixed]\nloss = "0.1%"\n', 5),
        ('seeds = 7\n[fixed]\nloss = "0.1%"\n', 7),
        ("[factors]\nseed = [1, 2, 3, 4]\n", 1),
        ('[factors]\njitter = ["0ms", "2ms"]\n', 5),
        ('[fixed]\nreorder = "0.1%"\n', 5),
        ('[fixed]\nduplicate = "0.1%"\n', 5),
        ('[factors]\ncross = ["none", "short"]\n', 5),
        ('[fixed]\nbuffer = "0.25"\n', 5),
        ('[fixed]\njitter = "0s"\nreorder = "0%"\nduplicate = "0.0%"\ncross = "none"\nbuffer = "0.0"\n', 3),
    ],
)
def test_there_are_more_seeds_where_chance_decides_what_becomes_of_packets(
    text: str, seeds: int, tmp_path: Path
) -> None:
    assert _load(tmp_path, text).seeds == seeds


def test_each_run_has_the_seed_that_follows(tmp_path: Path) -> None:
    wanted = _load(tmp_path, 'seeds = 2\n[factors]\nprofile = ["untouched", "wan"]\n[fixed]\nseed = 5\n')
    found = batch.runs_of(wanted, wanted.combinations(), tmp_path)
    assert [(run.settings.profile, run.settings.seed) for run in found] == [
        ("untouched", 5), ("wan", 5), ("untouched", 6), ("wan", 6),
    ]  # fmt: skip


def test_the_path_loses_the_same_packets_for_every_profile_of_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(topology, "tc_batch", lambda _, lines: told.extend(lines))
    path = topology.EmulatedPath(rtt_ms=50, loss=0.001, seed=3)
    topology.lose_anew(path)
    first, told[:] = list(told), []
    topology.lose_anew(path)
    assert told == first and ["seed 6" in first[0], "seed 7" in first[1]] == [True, True]
    told.clear()
    topology.lose_anew(topology.EmulatedPath(rtt_ms=50, seed=3))
    assert told == []


def test_an_interval_needs_two_values_and_stands_for_counts_too() -> None:
    assert mean_interval([3.0], 0.05) == (None, None)
    assert mean_interval([0, 0, 0], 0.05) == (0, 0)
    # What has no end is not off by a share of it.
    assert mean_interval([math.inf] * 3, 0.05) == (math.inf, math.inf)
    low, high = mean_interval([math.inf, 1, 2], 0.05, 1 / 16)
    assert low == pytest.approx(1 / (1 + 1 / 16)) and high == math.inf
    low, high = mean_interval([0, 1, 2], 0.05)
    assert low == 0 and high == pytest.approx(3.484, abs=1e-3)
    # A clock that is behind.
    low, high = mean_interval([-1, 0, 1], 0.05)
    assert (low, high) == pytest.approx((-2.484, 2.484), abs=1e-3)


def test_no_interval_of_a_load_that_hung_with_a_seed_begins_below_zero() -> None:
    """Of 0, 47.8 and 47.9 MB/s it was -36.7 to 100.5."""
    rows = [
        ({"clients": "8"}, Point({"profile": "untouched", "op": "read", "seed": seed, "mb_per_s": rate}))
        for seed, rate in enumerate((0.0, 47.8, 47.9), 1)
    ]
    (found,) = summarise(rows)
    assert (found.point["mb_per_s_low"], found.point["mb_per_s_high"]) == (0, pytest.approx(100.53))


def test_run_and_report_say_the_same_of_one_tree(tmp_path: Path) -> None:
    text = 'seeds = 3\n[factors]\nprofile = ["untouched", "wan"]\nrtt = ["20ms", "50ms", "100ms"]\n'
    wanted = _load(tmp_path, text)
    found = batch.runs_of(wanted, wanted.combinations(), tmp_path / "out")
    untouched = {20: 12.8, 50: 5.2, 100: 2.6}
    for run in found:
        profile, rtt_ms = run.settings.profile, run.settings.rtt_ms
        rate = (untouched[int(rtt_ms)] if profile == "untouched" else 81.5) * (1 + 0.001 * run.settings.seed)
        record = make_record(rate, label=profile, path={"rtt_ms": rtt_ms})
        recordfile.write(record, run.directory / f"read{recordfile.SUFFIX}")
        point = Point({"profile": profile, "rtt_ms": rtt_ms, "op": "read", "mb_per_s": rate, "seed": run.settings.seed})
        run.keep([point])
    ours = {row.point["rtt_ms"]: row.point["verdict"] for row in batch.summary_of(found) if "verdict" in row.point}
    assert ours == dict.fromkeys((20, 50, 100), "better")
    results.keep_index(wanted, tmp_path / "out", "fabtune run exp")
    records, unusable, remarks = suite.load(tmp_path / "out")
    html = suite.render(records, unusable, remarks, ["fabtune", "report", "out"])
    assert (len(records), unusable, remarks) == (18, [], [])
    for rtt_ms in (20, 50, 100):
        assert f"RTT {rtt_ms} ms: read throughput, better" in html


@pytest.mark.parametrize("plot", ["", '[plot]\nx = "rtt"\nseries = "profile"\n'])
def test_what_is_published_is_in_tables_sentences_points_and_page(plot: str, tmp_path: Path) -> None:
    (tmp_path / "exp.toml").write_text(
        f'summary = "far away"\n[factors]\nprofile = ["untouched", "wan"]\nrtt = ["50ms"]\n{plot}'
    )
    wanted = definition.load(str(tmp_path / "exp.toml"))
    lost = [({"profile": "wan", "rtt": "50ms"}, Point({"fabric": "fc", "op": "read", "missing": "no adapter"}))]
    found = summarise([*runs("untouched", 4.3, 4.4, 4.2), *runs("wan", 81.0, 81.2, 80.8), *(lost if plot else [])])
    shown = publish.of_lab(wanted, found, (), "", "fabtune run exp", tmp_path)
    html = shown.page.read_text()
    assert shown.page == tmp_path / "figures.html" and "fabtune run exp" in html and "far away" in html
    assert "81.0" in html and any("81.00" in row for one in shown.tables for row in one.shown())
    assert ("fc: no adapter" in shown.texts) == bool(plot) and shown.texts
    assert shown.kept.read_text() == keptrun.as_text(shown.points)


def test_a_figure_that_some_seeds_do_not_tell_is_not_that_of_the_others() -> None:
    """Its median and interval were those of three seeds, and "5 seeds" stood beside them."""
    told: list[Value | None] = [5.0, 5.1, 5.2, None, None]
    rows = [
        ({"profile": "wan"}, Point({"profile": "wan", "op": "read", "seed": seed, "mb_per_s": 20.0, "p99_ms": p99}))
        for seed, p99 in enumerate(told, 1)
    ]
    (found,) = summarise(rows)
    assert found.point["mb_per_s"] == 20.0 and found.point["seeds"] == 5
    assert found.point["p99_ms"] is None and "p99_ms_low" not in found.point
    assert summarise(rows[:3])[0].point["p99_ms"] == 5.1


def test_why_seeds_tell_no_figure_is_said() -> None:
    """A gain's cost was "no run of untouched tells it", and never why."""
    why = "it is less than ten of the kernel's ticks; measure longer"
    untold = {"cpu_s_per_gb": None, "cpu_s_per_gb_untold": why}
    rows = [(told, point | untold) for told, point in runs("untouched", 4.3, 4.4, 4.2)]
    rows += [(told, point | {"cpu_s_per_gb": 3.0}) for told, point in runs("wan", 81.0, 81.2, 80.8)]
    assert summarise(rows)[1].point["cpu_why"] == f"no run of untouched tells it: {why}"
    rows[0] = rows[0][0], rows[0][1] | {"cpu_s_per_gb": 3.0}
    assert summarise(rows)[1].point["cpu_why"].startswith(f"2 of 3 runs of untouched do not tell it: {why}; the")


def test_shares_of_the_cpu_and_refusals_are_told_of_all_seeds_or_of_none() -> None:
    """They were those of the one seed that told them, with "seeds 3" beside them."""
    known: dict[str, Value | None] = {"target_cpu_share": 0.7, "fastest_mb_per_s": 5.0, "at_limit": 0.1}
    bound: dict[str, Value | None] = {"bound_mb_per_s": 119.5}
    points = [{**known, **bound}, dict.fromkeys(known) | bound, bound]
    told = [(factors, point | more) for (factors, point), more in zip(runs("wan", 5.0, 5.1, 5.2), points, strict=True)]
    (found,) = summarise(told)
    assert [found.point[name] for name in (*known, "seeds", *bound)] == [None, None, None, 3, 119.5]
    assert [summarise(told[:1])[0].point[name] for name in known] == [0.7, 5.0, 0.1]


@pytest.mark.parametrize("plot", ["", '[plot]\nx = "rtt"\nseries = "profile"\n'])
@pytest.mark.parametrize(
    ("path", "bound", "limit"),
    [
        ("mtu = 9000", 117.9, "queue depth and round trip"),
        ("mtu = 9000", 124.0, "the link"),
        ("mtu = 576", 110.9, "the link"),
        ('rate_back = "20mbit"', 2.39, "the link"),
        ("", 119.5, "the link"),
    ],
)
def test_what_limits_is_told_by_what_the_line_itself_carries(
    path: str, bound: float, limit: str, plot: str, tmp_path: Path
) -> None:
    """Each line was taken for one of MTU 1500, and as fast back as forth: a full one's bound was the queue's."""
    text = f'seeds = 1\n[factors]\nprofile = ["wan"]\nrtt = ["1ms", "2ms"]\n[fixed]\nop = "read"\n{path}\n{plot}'
    (tmp_path / "exp.toml").write_text(text)
    wanted = definition.load(str(tmp_path / "exp.toml"))
    found = batch.runs_of(wanted, wanted.combinations(), tmp_path / "out")
    for run in found:
        reached = {"mb_per_s": bound, "bound_mb_per_s": bound, "fraction_of_bound": 1.0}
        run.keep([Point({"profile": "wan", "rtt_ms": run.settings.rtt_ms, "op": "read"}) | reached])
    shown = publish.of_lab(wanted, batch.summary_of(found), (), "", "fabtune run exp", tmp_path)
    assert re.search(f"What limits now.*?: {limit}: ", shown.page.read_text(), re.DOTALL)


def test_a_page_names_each_image_that_a_root_or_a_kernel_came_from(tmp_path: Path) -> None:
    """Of three kernels, and of a target of its own, the first suite's image was named alone."""
    factors = 'kernel = ["trixie", "sid"]\ntarget = ["lio", "tgt"]\n'
    (tmp_path / "exp.toml").write_text(f'[factors]\n{factors}[plot]\nx = "kernel"\nseries = "target"\n')
    wanted = definition.load(str(tmp_path / "exp.toml"))
    rows = [(one.factors, Point({"op": "read", "mb_per_s": 1.0})) for one in wanted.combinations()]
    html = publish.of_lab(wanted, summarise(rows), (), "", "fabtune run exp", tmp_path).page.read_text()
    for name in ("trixie", "sid", "trixie+tgt"):
        assert f"{name} {recipe_for(name).digest}" in html
    assert f"bookworm {recipe_for('bookworm').digest}" not in html


@pytest.mark.parametrize(("op", "bounds"), [("mixed", (17.3, 9.96)), ("both", (27.26, 27.26))])
@pytest.mark.parametrize("plot", ["", '[plot]\nx = "stream_rate"\n'])
def test_a_bound_that_is_the_disk_s_is_called_that(
    op: str, bounds: tuple[float, float], plot: str, tmp_path: Path
) -> None:
    """Of a data buffer whose target's disk gives 27.3 MB/s the page said "queue depth and round trip"."""
    text = f'seeds = 1\n[factors]\nstream_rate = ["1MB", "2MB"]\n[fixed]\nclients = 4\nop = "{op}"\ntarget_rate = 26\n'
    (tmp_path / "exp.toml").write_text(text + plot)
    wanted = definition.load(str(tmp_path / "exp.toml"))
    found = batch.runs_of(wanted, wanted.combinations(), tmp_path / "out")
    for run in found:
        told: dict[str, Value | None] = {"profile": "untouched", "rtt_ms": 0.0, "fraction_of_bound": 1.0}
        run.keep([
            Point(told | {"op": way, "mb_per_s": bound, "bound_mb_per_s": bound})
            for way, bound in zip(("read", "write"), bounds, strict=True)
        ])  # fmt: skip
    html = publish.of_lab(wanted, batch.summary_of(found), (), "", "fabtune run exp", tmp_path).page.read_text()
    assert "the target&#39;s disk: " in html and "queue depth and round trip" not in html

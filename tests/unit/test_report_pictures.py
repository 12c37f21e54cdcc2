# SPDX-License-Identifier: GPL-2.0-or-later
"""What a drawing shows is what was measured: bounds that bend, tails, ramps, events, looks, digits."""

import random
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from run_records import make_record, with_fio, with_step

from fabtune.measure import checks, measured, recordfile
from fabtune.measure.measured import Latencies
from fabtune.model import typed
from fabtune.model.runrecord import Edge, Event, RunRecord, SessionTurn
from fabtune.report import (
    answers,
    cells,
    chart,
    compare,
    forest,
    latency,
    laws,
    looks,
    overtime,
    paired,
    suite,
    table,
    throughput,
    verdict_table,
)
from fabtune.report import page as pages
from fabtune.report.chart import Axis, Series, line_chart

PATH = {"rtt_ms": 10.0, "rate_bytes_per_s": 1.25e8, "mtu": 1500}


def over(name: str, values: Mapping[float, float], label: str = "wan", **more: Any) -> list[RunRecord]:
    """A record for each value of a parameter, with its rate."""
    return [make_record(rate, label, parameters={"block_bytes": 65536, name: value}, path=PATH, **more)
            for value, rate in values.items()]  # fmt: skip


def drawn(records: list[RunRecord]) -> list[str]:
    group = cells.cells(records)
    found = throughput.sections(group, "xdd", looks.looks(one.label for one in records))
    return [figure.svg for section in found for figure in section.figures]


def test_a_bound_is_its_own_curve_and_not_a_line_between_measured_points() -> None:
    records = [make_record(6, path=PATH | {"rtt_ms": rtt}, parameters={"block_bytes": 65536}) for rtt in (1.0, 100.0)]
    (cell, _) = cells.cells(records)
    for rtt_ms in (1.0, 7.0, 30.0):
        told = attrs.evolve(records[0], path=attrs.evolve(records[0].path, rtt_s=rtt_ms / 1e3))
        assert cell.bound_at("rtt_ms", rtt_ms) == pytest.approx(
            (checks.bound(told, told.steps[0], "read") or 0) / 1e6, rel=1e-9
        )
    (path,) = re.findall(r'<g class="bound"><path class="line" d="([^"]+L[^"]+)"', drawn(records)[0])
    assert path.count("L") >= throughput.STEPS


def test_bounds_that_differ_between_sets_are_drawn_as_two() -> None:
    """A write that waits for an R2T has another bound than one that does not."""
    usual = {"FirstBurstLength": "262144", "MaxBurstLength": "262144", "MaxXmitDataSegmentLength": "8192",
             "MaxOutstandingR2T": "1", "ImmediateData": "Yes"}  # fmt: skip
    records = [
        with_step(one, before=Edge(negotiated={"1": usual | {"InitialR2T": waits}}))
        for label, waits in (("untouched", "Yes"), ("wan", "No"))
        for one in over("queue_depth", {1: 2.0, 8: 3.0}, label, op="write")
    ]
    svg = drawn(records)[0]
    assert re.findall(r">(bound[^<]*)</text>", svg) == ["bound, untouched", "bound, wan"]
    assert svg.count('class="s0 theory"') == svg.count('class="s1 theory"') == 2


def test_latency_stands_beside_throughput_where_the_load_varies() -> None:
    svgs = drawn([one for depth in (1, 4, 16) for one in over("queue_depth", {depth: 30.0})])
    assert len(svgs) == 2 and "latency, ms" in svgs[1] and ">wan p99<" in svgs[1] and ">wan p50<" in svgs[1]
    size = [make_record(3, path=PATH, parameters={"block_bytes": size}) for size in (4096, 65536)]
    assert not any("latency, ms" in svg for svg in drawn(size))


def test_two_points_are_not_joined_by_a_line() -> None:
    """The CPU time of two round trips was: nothing was measured between them."""
    records = [make_record(50, "wan", path=PATH | {"rtt_ms": rtt_ms}, seconds=10) for rtt_ms in (1.0, 10.0, 50.0)]
    for count, joined in ((2, False), (3, True)):
        (svg,) = [one for one in drawn(records[:count]) if ": CPU</title>" in one]
        assert bool(re.search(r'class="line" d="M[^"]*L', svg)) is joined


def test_intervals_are_drawn_from_three_runs_on() -> None:
    points = {1.0: 3.0, 4.0: 4.0}
    two = [one for number in range(2) for one in over("queue_depth", points, start=number)]
    assert 'class="span"' not in drawn(two)[0]
    three = [*two, *over("queue_depth", {depth: rate * 1.1 for depth, rate in points.items()})]
    assert drawn(three)[0].count('class="span"') == 2


def test_one_request_in_ten_thousand_is_seen() -> None:
    """One request of ten thousand took a second: the axis leaves it as much room as the median."""
    bins = {1_000_000: 9_000, 2_000_000: 990, 50_000_000: 9, 1_000_000_000: 1}
    found = latency._points(Latencies(bins))
    assert found == ((1.0, 1.0), (10.0, 2.0), (1000.0, 50.0), (10_000.0, 1000.0), (10_000.0, 1000.0))
    assert [latency._percentile(one_in) for one_in, _ in found[:4]] == ["0", "90 %", "99.9 %", "99.99 %"]


def test_what_the_drained_hide_is_not_drawn() -> None:
    draw = random.Random(1)
    bins = {round(1e6 * 1.1**step): draw.randrange(1, 50) for step in range(60)}
    for drained in (0, 5, 40):
        every = Latencies(bins, drained)
        for one_in, ms in latency._points(every)[:-1]:
            rank = every.total - every.total / one_in + bins[round(ms * 1e6)]
            # The slowest bin ends at the longest of all, which is no percentile.
            assert every.quantile_ns(rank / every.total - (rank < every.total) * 1e-12) == round(ms * 1e6)


def test_both_tables_of_a_page_say_the_same_percentiles() -> None:
    """One had the median of the runs' p50, the other the p50 of all runs' requests, under one name."""

    def taking(ms: int, count: int) -> RunRecord:
        record = make_record(1, "wan", path=PATH)
        return with_fio(record, lambda job: job["read"]["clat_ns"].update(bins={str(ms * 1_000_000): count}))

    group = cells.cells([taking(1, 50), taking(2, 50), taking(3, 1000)])
    (found,) = latency.section(group, "xdd", {"wan": 0}).tables[0].rows  # type: ignore[union-attr]
    by_key = dict(zip(["step", "label", "requests", "p50", "p90", "p99"], found, strict=False))
    assert (by_key["requests"], by_key["p50"], by_key["p90"], by_key["p99"]) == (1100, 2.0, 2.0, None)
    assert (group[0].median("p50_ms"), group[0].median("p99_ms")) == (2.0, None)


def test_no_curve_is_drawn_of_what_a_short_run_cut_off() -> None:
    cut_off = Latencies({round(1e8): 50, round(2.3e9): 13}, part_s=1.5)
    assert latency._points(cut_off) == ((1.0, 100.0),)
    assert not latency._points(Latencies({round(2.3e9): 13}, part_s=1.5))


def test_a_page_shows_every_bin(tmp_path: Path) -> None:
    def bins(job: dict[str, Any]) -> None:
        job["read"]["clat_ns"]["bins"] = {str(1000 * n): 1 for n in range(1, 301)}

    group = cells.cells([with_fio(make_record(1, seconds=10), bins)])
    section = latency.section(group, "xdd", {"default": 0})
    assert section is not None
    assert len(section.tables[1].rows) >= 300
    assert "percentile of requests" in section.figures[0].svg


def a_run_with_events() -> RunRecord:
    record = make_record(100, "wan", seconds=20, environment={"settings": {"seed": 3}}, path=PATH)
    job = "[x]\nioengine=libaio\ndirect=1\nfilename=/dev/sdb\ntime_based=1\nramp_time=4\nruntime=12\n"
    record = with_step(with_fio(record, lambda document: document["read"].update(runtime=12_000)), job=job)
    begun = record.steps[0].samples[0]["time.unix"]
    return attrs.evolve(record, events=(Event(begun + 9.0, "the second path is cut"),))


def test_ramp_is_shaded_and_events_are_marked() -> None:
    record = a_run_with_events()
    part = measured.span(record.steps[0])
    section = overtime.section([record], "xdd")
    assert part and section
    svg = section.details[0].figures[0].svg
    shaded = re.findall(r'class="ramp" data-from="([0-9.]+)" data-to="([0-9.]+)"', svg)
    assert shaded[0] == ("0.000", f"{part.begin_s:.3f}") and part.begin_s == 8
    assert 'class="event" data-at="9.000"' in svg and "the second path is cut" in svg
    # The made-up samples resend at 7 and 14 s.
    assert 'class="resent" data-at="7.000 14.000"' in svg


def test_a_new_session_is_said() -> None:
    before, after = ({name: {"r2t_pdus": 1}} for name in ("1", "2"))
    record = with_step(make_record(100, seconds=5), before=Edge(iscsi=before), after=Edge(iscsi=after))
    section = overtime.section([record], "xdd")
    assert section and "logged in anew" in section.details[0].figures[0].caption


def test_a_session_that_was_out_is_marked_where_it_was() -> None:
    """A re-login was a sentence in the caption, and no mark where the curve falls to nothing."""
    record = a_run_with_events()
    for sample in record.steps[0].samples:
        if 10 <= sample["time.monotonic"] <= 12:
            sample["iscsi.sessions_out"] = 1
    section = overtime.section([record], "xdd")
    assert section
    marked = re.findall(r'class="event" data-at="([0-9.]+)"', section.details[0].figures[0].svg)
    begun = record.steps[0].samples[0]["time.monotonic"]
    assert marked == ["9.000", f"{10 - begun:.3f}", f"{13 - begun:.3f}"]
    assert all(words in section.details[0].figures[0].svg for words in ("a session is out", "logged in again"))
    flapping = with_step(record, samples=tuple(
        sample | {"iscsi.sessions_out": at % 2} for at, sample in enumerate(record.steps[0].samples)
    ))  # fmt: skip
    section = overtime.section([flapping], "xdd")
    assert (
        section
        and "Of 10 times that a session was out, the first 3 are marked." in section.details[0].figures[0].caption
    )


@pytest.mark.skipif(not shutil.which("chromium"), reason="chromium is not installed here")
def test_an_opened_fold_says_what_its_marks_are(tmp_path: Path) -> None:
    """The zoomable drawing had the marks without their words."""
    html = suite.render([a_run_with_events()], [], [], ["fabtune", "report"])
    noted = "const said = [], draw = CanvasRenderingContext2D.prototype.fillText;"
    noted += "CanvasRenderingContext2D.prototype.fillText = function (text, ...at) {"
    noted += "said.push(text); document.title = said.join('|'); return draw.call(this, text, ...at); };"
    opened = "for (const x of document.querySelectorAll('details')) x.open = true;"
    html = html.replace("</body>", f"<script>{opened}</script></body>").replace(
        "</head>", f"<script>{noted}</script></head>"
    )
    (tmp_path / "page.html").write_text(html)
    command = [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--virtual-time-budget=3000",
        f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", f"file://{tmp_path / 'page.html'}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "the second path is cut" in done.stdout.partition("</title>")[0]


def test_a_connection_that_was_made_anew_unseen_is_said() -> None:
    """Edges name the sessions that there were at first: no record of a re-login had others at the end."""
    before, after = ({"remote": "10.0.0.1", "remote_port": 3260, "local_port": port} for port in (40000, 40002))
    record = make_record(100, seconds=5)

    def caption(*ends: Any) -> str:
        first, last = (Edge(sockets=(one,)) for one in ends)
        section = overtime.section([with_step(record, before=first, after=last)], "xdd")
        assert section
        return section.details[0].figures[0].caption

    assert "A session was logged in anew during this step." in caption(before, after)
    assert "anew" not in caption(before, before) and "anew" not in caption(before, before | {"remote": "10.0.0.2"})


def test_folds_are_named_by_their_point() -> None:
    section = overtime.section([a_run_with_events(), make_record(1, seconds=5)], "xdd")
    assert section
    assert [one.summary for one in section.details] == [
        "read, wan, RTT 10 ms, seed 3 (run 1)", "read, default (run 2)",
    ]  # fmt: skip


def test_looks_belong_to_labels() -> None:
    every = looks.looks(["untouched", "wan", "lan", "tune", "wan-lossy"])
    assert len(set(every.values())) == 5
    for missing in every:
        left = looks.looks(label for label in reversed(list(every)) if label != missing)
        assert all(left[label] == look for label, look in every.items() if label in left), missing
    assert len(looks.looks(map(str, range(9)))) == 9


def test_texts_are_sorted_by_their_numbers(tmp_path: Path) -> None:
    assert sorted(["rtt=100ms", "rtt=20ms", "rtt=0ms", "a"], key=looks.natural) == [
        "a",
        "rtt=0ms",
        "rtt=20ms",
        "rtt=100ms",
    ]
    for rtt in (0, 100, 20):
        recordfile.write(make_record(1, path=PATH | {"rtt_ms": rtt}), tmp_path / f"rtt={rtt}ms/run-1/read.run.json.gz")
    assert [one.path.rtt_ms for one in suite.load(tmp_path)[0]] == [0, 20, 100]


@pytest.mark.parametrize(
    ("value", "low", "high", "shown"),
    [
        (31.134, 30.9123, 31.3456, ["31.13", "30.91", "31.35"]),
        (109.123, 97.412, 119.498, ["109", "97", "119"]),
        (2.6182, 2.6181, 2.6183, ["2.618", "2.618", "2.618"]),
        (119.5, 119.5, 119.5, ["119.5", "119.5", "119.5"]),
        (400.0, 12.0, 9000.0, ["400", "12", "9000"]),
        (4.4, 0.03721, 1105.87, ["4.4", "0.037", "1110"]),
        (1.0, 0.000123, 8130.0, ["1.0", "0.00012", "8100"]),
        (1.0, 1.234e-13, 8.13e12, ["1.0", "1.2e-13", "8100000000000"]),
        (1.234e-6, 1.12e-6, 1.34e-6, ["0.00000123", "0.00000112", "0.00000134"]),
        (35.0, 0.0, 300.0, ["35", "0", "300"]),
        (0.0, 0.0, 0.0, ["0.000", "0.000", "0.000"]),
    ],
)
def test_digits_follow_the_interval(value: float, low: float, high: float, shown: list[str]) -> None:
    columns = tuple(table.Column(key, key, "", table.decimals(3)) for key in ("x", "x_low", "x_high"))
    found = table.Table("t", columns, ((value, low, high), (1.0, None, None)))
    assert found.shown()[0] == shown and found.shown()[1][0] == "1.000"
    # The file keeps what was found.
    assert str(value) in found.to_csv()


def test_a_ratio_is_not_rounded_away_by_its_interval() -> None:
    """Three pairs of 100 and 10, 100 and 100, 10 and 100 were "0× [0, 300]"."""
    rates = {"default": (100, 100, 10), "wan": (10, 100, 100)}
    records = [make_record(rate, label, pair) for label, of in rates.items() for pair, rate in enumerate(of)]
    ((_, outcome),) = paired.outcomes(records)
    said = verdict_table.change(outcome.primary[0].judgement)
    assert re.fullmatch(r"1\.0× \[0\.00\d\d, 300\]", said) and said in page_of(records)


def test_a_ratio_has_as_many_digits_as_its_interval_supports_wherever_it_stands() -> None:
    rates = {"default": (100, 103, 97, 101, 99), "wan": (140, 149, 151, 138, 144)}
    records = [make_record(rate, label, pair) for label, of in rates.items() for pair, rate in enumerate(of)]
    ((_, outcome),) = paired.outcomes(records)
    found = outcome.primary[0].judgement
    assert found.low and found.high and 0.02 < (found.high - found.low) / 2 < 0.1
    ratio, low, high = (f"{value:.3f}" for value in (found.ratio, found.low, found.high))
    (section,) = paired.sections([("", outcome)], "xdd", {})
    (ratios,) = (one for one in section.tables if one.caption == "Ratios")
    assert ratios.shown()[0][1:] == [f"{ratio}×", f"{low}×", f"{high}×"]
    assert f"better: {ratio}× [{low}, {high}]</title>" in section.figures[0].svg
    assert f"{ratio}× [{low}, {high}], read." in re.sub(r"<[^>]+>", "", page_of(records))
    assert str(found.ratio) in ratios.to_csv()
    (by_pair,) = (one for one in section.tables if one.caption == "Runs by pair")
    assert by_pair.shown()[0][3:] == ["100.0", "140.0", "1.40×"]


def spread(name: str, ratio: float, low: float, high: float) -> forest.Spread:
    return forest.Spread(name, ratio, low, high, sense=0)


@pytest.mark.parametrize(
    "rows",
    [
        # Names reach across the line at 1 where all is a gain or a loss, and under the mark of the row above.
        [spread("read throughput, better", 1.08, 1.06, 1.1), spread("read latency p99, better", 0.92, 0.9, 0.94)],
        [spread("write, RTT 100 ms: write throughput, no practical difference", 1.0, 0.999, 1.001)] * 3,
        [spread(f"random read, RTT 100 ms, depth {n}: read latency p99, cannot tell", 3 * n, n, 31) for n in (1, 16)],
    ],
)
def test_no_text_of_a_forest_stands_on_a_line_or_a_mark(rows: list[forest.Spread]) -> None:
    """In units of the drawing, which is as a whole made smaller where the screen is narrow."""
    svg = forest.forest_plot("t", rows, 0.02, "wan / untouched")
    boxes = [
        (x - (centred := len(text) * chart.GLYPH / 2 if "middle" in group else 0), y - 11,
         x - centred + len(text) * chart.GLYPH, y + 3)
        for group, inner in re.findall(r"<g class=\"(?:legend|tick|label)\"([^>]*)>(.*?)</g>", svg, re.DOTALL)
        for x, y, text in ((float(x), float(y), text) for x, y, text in re.findall(
            r"<text x=\"([0-9.]+)\" y=\"([0-9.]+)\">([^<]+)<", inner))
    ]  # fmt: skip
    paths = re.findall(r"<path (?:class=\"(?:unity|band|line|mark)\" )?d=\"([^\"]+)\"", svg)
    drawn_at = [box for d in paths for box in reach_of(d)]
    assert len(boxes) > len(rows) and len(drawn_at) > 2 * len(rows) + 2
    assert all(left >= 0 and right <= chart.WIDTH for left, _, right, _ in boxes)
    for text in boxes:
        for one in drawn_at:
            assert text[2] <= one[0] or one[2] <= text[0] or text[3] <= one[1] or one[3] <= text[1], (text, one)


def reach_of(d: str) -> list[tuple[float, float, float, float]]:
    """The rectangle that each part of a path is within."""
    found = []
    for part in filter(None, d.split("M")):
        x, y = map(float, re.findall(r"^([0-9.]+) ([0-9.]+)", part)[0])
        spots = [(x, y)]
        for step, numbers in re.findall(r"([HVvl])([-0-9. ]+)", part):
            values = [float(one) for one in numbers.split()]
            x = values[0] if step == "H" else x + values[0] if step == "l" else x
            y = values[0] if step == "V" else y + values[-1] if step in "vl" else y
            spots.append((x, y))
        xs, ys = zip(*spots, strict=True)
        found.append((min(xs) - 0.5, min(ys), max(xs) + 0.5, max(ys)))
    return found


def test_significant_digits_have_no_exponent() -> None:
    assert [table.significant(3)(value) for value in (1577.058, 85.983, 0.001234, 0, 12.0)] == [
        "1580", "86.0", "0.00123", "0.00", "12.0",
    ]  # fmt: skip


def test_zero_has_no_place_on_a_logarithmic_axis() -> None:
    one = Series("x", ((1.0, 0.0), (2.0, 5.0), (3.0, 6.0)), spans=((1.0, 0.0, 1.0), (2.0, 4.0, 6.0)))
    svg = line_chart("t", [one], Axis("x"), Axis("y", 10))
    assert svg.count('class="mark"') == 3 and svg.count('class="span"') == 1
    assert "y 5</title>" in svg and "y 0</title>" not in svg


def page_of(records: list[RunRecord]) -> str:
    return suite.render(records, [], [], ["fabtune", "report", "runs"])


def seeded(rates: dict[str, float]) -> list[RunRecord]:
    return [make_record(rate * (1 + seed / 1000), label, path=PATH, environment={"settings": {"seed": seed}})
            for label, rate in rates.items() for seed in (1, 2, 3, 4)]  # fmt: skip


def test_a_report_begins_with_the_answers() -> None:
    html = page_of(seeded({"untouched": 0.02, "wan": 0.09}))
    first = re.sub(r"<[^>]+>", " ", html[html.index("<h1") : html.index("<h2")])
    told = " ".join(first.split())
    assert "Did it help? Yes. xdd, wan against untouched: better at read." in told
    assert "By how much? 4.500×" in told and "How sure? 4 pairs a point, 95 % intervals" in told
    assert "What limits now? wan: " in told


def first_screen(records: list[RunRecord]) -> str:
    html = page_of(records)
    return " ".join(re.sub(r"<[^>]+>", " ", html[html.index("<h1") : html.index("<h2")]).split())


def test_a_report_of_three_labels_names_the_best_supported_one() -> None:
    told = first_screen(seeded({"untouched": 0.02, "wan": 0.09, "lan": 0.03}))
    assert "Which is best supported? xdd: wan, better than untouched at read. Did it help?" in told
    assert "Yes. xdd, wan against untouched: better at read." in told and "lan against untouched: better at" in told
    assert "wan: 4.500× [" in told and "lan: 1.500× [" in told and "What limits now? wan: " in told
    page = page_of(seeded({"untouched": 0.02, "wan": 0.09, "lan": 0.03}))
    assert "Every other label is held against untouched, since that is what runs with nothing applied" in page
    assert "The other label is held against lan, the first by name: no" in page_of(seeded({"lan": 0.02, "wan": 0.09}))


def test_a_report_of_three_labels_says_what_it_cannot_tell() -> None:
    rates = (0.8, 1.3, 1.0, 0.7)
    noisy = [make_record(0.09 * rate, "tune", path=PATH, environment={"settings": {"seed": seed}})
             for seed, rate in enumerate(rates, 1)]  # fmt: skip
    told = first_screen([*seeded({"untouched": 0.02, "wan": 0.09}), *noisy])
    assert (
        "xdd: wan, better than untouched at read. Cannot tell whether it beats tune: their intervals overlap." in told
    )
    told = first_screen([*seeded({"untouched": 0.09, "wan": 0.09}), *noisy])
    assert (
        "Which is best supported? xdd: Cannot tell: none is certain to be better, each held against untouched." in told
    )
    assert (
        "No. xdd, wan against untouched: no practical difference" in told and "Cannot tell. xdd, tune against" in told
    )


def test_a_page_keeps_numbers_with_their_units_and_shows_commands_as_such() -> None:
    told = pages.Answer("What?", "`fabtune why` of <wan>: 1.5 MB/s at 50 ms (98 % of 3), 2 maps\nlan: 7 s")
    html = pages.render("t", "", [], {}, (), answers=[told])
    said = "<code>fabtune why</code> of &lt;wan&gt;: 1.5\xa0MB/s at 50\xa0ms (98\xa0% of 3), 2 maps"
    assert f"<dd>{said}</dd><dd>lan: 7\xa0s</dd>" in html


def test_what_is_said_of_several_labels_alike_stands_once() -> None:
    told = first_screen(seeded({"untouched": 0.02, "wan": 0.09, "lan": 0.03}))
    assert "How sure? 4 pairs a point, 95 % intervals, all points judged together." in told
    each = [pages.Answer("How sure?", text) for text in ("5 pairs.", "5 pairs. No.", "5 pairs.")]
    (found,) = answers.merged(each, ["wan", "lan", "tune"])
    assert found.text == "wan, tune: 5 pairs.\nlan: 5 pairs. No."
    html = page_of(seeded({"untouched": 0.02, "wan": 0.09, "lan": 0.03}))
    assert html.count("Every other label is held against") == 1


def test_none_is_best_supported_that_harms_elsewhere() -> None:
    def gain(where: str, verdict: str, low: float, high: float) -> answers.Gain:
        return answers.Gain(where=where, verdict=verdict, ratio=(low * high) ** 0.5, low=low, high=high)

    mixed = [gain("reads", "better", 5.0, 6.0), gain("writes", "worse", 0.5, 0.6)]
    small = [gain("reads", "better", 1.2, 1.3), gain("writes", "cannot tell", 0.9, 1.2)]
    quick = [gain("reads", "better", 0.3, 0.4), gain("writes", "no practical difference", 0.99, 1.01)]
    (found,) = answers.of_best("untouched", {"mixed": mixed, "small": small})
    assert found.text == "small, better than untouched at 1 of 2 points (reads)." and found.sense == 1
    assert "without being worse elsewhere" in answers.of_best("untouched", {"mixed": mixed, "other": mixed})[0].text
    assert answers.of_best("untouched", {"quick": quick, "none": small[1:]})[0].text.startswith("quick, better")
    assert answers.of_best("untouched", {"a": quick[1:], "b": quick[1:]})[0].text.startswith("None: no practical")
    assert answers.of_best("untouched", {"alone": small}) == []


def of_both_ways(read: float, write: float, label: str, number: int) -> RunRecord:
    """A run whose one step reads and writes at once."""
    rates = {"read": read, "write": write}
    ways = {op: make_record(rate + number / 100, label, op=op, seconds=10) for op, rate in rates.items()}
    written: Any = typed.STRICT.write(ways["write"].steps[0].fio)
    both = with_fio(ways["read"], lambda job: job.update(write=written["jobs"][0]["write"]))
    keys = ("disk.dev.write", "disk.dev.write_bytes")
    seen = zip(both.steps[0].samples, ways["write"].steps[0].samples, strict=True)
    samples = tuple(one | {key: other[key] for key in keys} for one, other in seen)
    return with_step(both, name="4 KiB, 70/30", samples=samples)


def judged_both_ways(**rates: tuple[float, float]) -> list[compare.Comparison]:
    """Each label held against the first, of runs that read and write at such rates."""
    sides = [[of_both_ways(*both, label, number) for number in range(4)] for label, both in rates.items()]
    return compare.compare_each(sides[0], sides[1:])


def test_reads_and_writes_of_one_step_are_two_points() -> None:
    """The first screen said "better at 1 of 2 points (buffer); worse at 1 of 2 points (buffer)"."""
    (found,) = judged_both_ways(untouched=(100, 100), wan=(200, 50))
    helped, much, *_, cost = [one.text for one in suite._answers("oltp", [("", found)], [])]
    assert "better at 1 of 2 points (4 KiB read, 70/30); worse at 1 of 2 points (4 KiB write, 70/30)" in helped
    assert "[1.999, 2.000], 4 KiB read, 70/30; " in much and "[0.4999, 0.5003], 4 KiB write, 70/30." in much
    # The CPU time is that of the step, whichever way its data goes.
    assert "less at all 2 points" in cost
    (found,) = judged_both_ways(untouched=(100, 100), wan=(200, 200))
    assert "better at all 2 points" in suite._answers("oltp", [("", found)], [])[0].text


def test_the_best_of_a_mixed_load_is_held_against_the_others_in_each_direction() -> None:
    """One's writes were held against the other's reads, or the other way round, and nothing was said of a doubt."""
    for lan, doubt in (((200, 120), False), ((310, 120), True), ((140, 160), True)):
        found = judged_both_ways(untouched=(100, 100), wan=(300, 150), lan=lan)
        (best,) = answers.of_best("untouched", {one.b: suite._gains(one) for one in found})
        # The second is better at as many points.
        assert best.text.startswith("wan, better than untouched at all 2 points.")
        assert ("Cannot tell whether it beats lan" in best.text) == doubt


@pytest.mark.parametrize(("primary", "most", "least"), [("p99_ms", 0.1, 0.8), ("mb_per_s", 10, 1.25)])
def test_most_is_the_most_that_was_gained(primary: str, most: float, least: float) -> None:
    """A latency of a tenth was called the least gain, and one of four fifths the most."""
    rates = {("untouched", 20): 80.0, ("wan", 20): 100.0, ("untouched", 100): 10.0, ("wan", 100): 100.0}
    runs = [make_record(rate * (1 + number / 1000), label, path={"rtt_ms": rtt_ms})
            for (label, rtt_ms), rate in rates.items() for number in range(4)]  # fmt: skip
    runs = [attrs.evolve(one, workload=attrs.evolve(one.workload, primary=primary)) for one in runs]
    told = re.search(r"By how much\? most (\S+)× \[.*?\], read at 100 ms; least (\S+)× \[", first_screen(runs))
    assert told and [float(said) for said in told.groups()] == pytest.approx([most, least], rel=0.05)


def test_the_bias_of_a_mixed_load_is_told_in_each_direction() -> None:
    runs = [
        attrs.evolve(of_both_ways(100, 100, "default", pair), session=SessionTurn("s-calibration", pair, side))
        for pair in range(4) for side in "AB"
    ]  # fmt: skip
    same = compare.a_against_a(runs)
    assert same is not None
    told = [one.split(":")[0] for one in verdict_table._calibration(same)]
    assert told == ["A against A, 4 KiB read, 70/30", "A against A, 4 KiB write, 70/30"]
    steps = [one.step for one in laws.of_records(runs) if one.law == laws.A_AGAINST_A]
    assert steps == ["xdd 4 KiB read, 70/30, session s", "xdd 4 KiB write, 70/30, session s"]


def test_a_report_of_runs_that_cannot_be_used_says_so_first() -> None:
    broken = [attrs.evolve(one, complete=False, problem="fio ended") for one in seeded({"wan": 0.09})]
    assert "Did it help? xdd: cannot tell: no run can be used; why is named below." in first_screen(broken)


def test_runs_paired_by_seed_have_no_order_to_drift_in() -> None:
    """Seeds are draws: eight charts of three of them hid what the page had to say."""
    assert "pair, in the order measured" not in page_of(seeded({"untouched": 0.02, "wan": 0.09}))


def test_a_report_of_one_set_claims_nothing() -> None:
    html = page_of(seeded({"wan": 0.09}))
    assert "cannot tell: wan alone was measured" in html


def test_long_tables_are_folds() -> None:
    records = over("queue_depth", {float(depth): 1.0 for depth in range(1, 30)})
    html = page_of(records)
    assert re.search(r"<details class=\"long\"><summary>xdd: throughput over queue depth: 29 rows</summary>", html)
    assert '<details class="long">' not in page_of(records[:3])

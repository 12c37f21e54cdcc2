# SPDX-License-Identifier: GPL-2.0-or-later
"""The throughput-over-RTT table and page say what the points say, in the same bytes each time."""

import base64
import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from fabtune.cli import table
from fabtune.errors import InputError
from fabtune.report import demo
from fabtune.report.page import Facts

FACTS: Facts = {"Kernel": "6.12.107", "Seed": 7}
COMMANDS = ["make demo", "echo '<&>'"]
WINDOW_MB_MS = 8388.608  # 32 requests of 256 KiB
WIRE_MS = 262.144 / 119.5  # the time of one on the wire


def bound_of(rtt_ms: float, trips: int = 1) -> float:
    return min(119.5, WINDOW_MB_MS / (trips * rtt_ms + WIRE_MS))


def make_points(**extra: Any) -> Any:
    points = []
    for rtt_ms, default, wan in ((0, 119.5, 112.9), (50, 5.2, 110.3), (100, 2.6, 81.1)):
        bound = bound_of(rtt_ms)
        for op in ("read", "write"):
            for profile, rate in (("wan", wan), ("default", default)):
                points.append(
                    {
                        "profile": profile,
                        "rtt_ms": rtt_ms,
                        "op": op,
                        "mb_per_s": rate,
                        "bound_mb_per_s": bound,
                        "fraction_of_bound": rate / bound,
                        "p50_ms": 70.25,
                        "p99_ms": None,
                        "queue_full": 3,
                        "queue_depth": 32,
                        "size_bytes": 262144,
                        "seeds": 3,
                        "mb_per_s_low": rate - 0.1,
                        "mb_per_s_high": rate + 0.1,
                        **(gained(wan / default) if profile == "wan" else {}),
                        **extra,
                    }
                )
    return points


def gained(gain: float) -> dict[str, Any]:
    verdict = "better" if gain > 1.02 else "cannot tell"
    return {"gain": gain, "gain_low": gain - 0.01, "gain_high": gain + 0.01, "verdict": verdict, "why": ""}


def page(points: Any, out_dir: Any) -> Any:
    return demo.write(points, FACTS, COMMANDS, out_dir).read_text()


def csv_rows(html: Any) -> Iterator[Any]:
    for encoded in re.findall(r"data:text/csv;base64,([^\"]+)", html):
        yield list(csv.DictReader(io.StringIO(base64.b64decode(encoded).decode())))


def test_the_untouched_are_the_first_whatever_they_were_called() -> None:
    for name in ("untouched", "default"):
        points = [point | {"profile": name if point["profile"] == "default" else "wan"} for point in make_points()]
        assert demo._profiles(points) == [name, "wan"]


def test_same_points_give_same_bytes(tmp_path: Path) -> None:
    assert page(make_points(), tmp_path / "a") == page(make_points(), tmp_path / "b")


def test_nothing_is_fetched(tmp_path: Path) -> None:
    html = page(make_points(), tmp_path)
    assert "default-src 'none'" in html
    assert not re.search(r"(?:src|href)=\"(?!#|data:text/csv)", html)
    assert "@import" not in html and "url(" not in html


def test_every_measured_number_is_in_a_table(tmp_path: Path) -> None:
    points = make_points()
    rows = [row for rows in csv_rows(page(points, tmp_path)) for row in rows]
    assert len(rows) == len(points)
    assert sorted(float(row["mb_per_s"]) for row in rows) == sorted(point["mb_per_s"] for point in points)
    wan = [row for row in rows if row["profile"] == "wan" and row["rtt_ms"] == "50"]
    assert [float(row["gain"]) for row in wan] == [pytest.approx(110.3 / 5.2)] * 2


def test_marks_stand_where_the_numbers_are(tmp_path: Path) -> None:
    """The heights of the markers, measured against the tick labels, give the throughput back."""
    html = page(make_points(), tmp_path)
    svg: Any = ElementTree.fromstring(re.findall(r"<svg.*?</svg>", html, re.DOTALL)[0])
    ticks = {float(text.text): float(text.get("y")) - 4 for text in svg.findall("g[@text-anchor='end']/text")}
    per_unit = (ticks[0] - ticks[100]) / 100
    curve = svg.find("g[@class='s1']")
    rates = [(ticks[0] - (float(mark.get("d").split("h")[0].split()[1]) + 3.5)) / per_unit for mark in curve
             if mark.get("class") == "mark"]  # fmt: skip
    assert rates == pytest.approx([112.9, 110.3, 81.1], abs=0.2)


@pytest.mark.parametrize("trips", [1, 2])
def test_bound_bends_at_the_knee(trips: int) -> None:
    points = [point | {"bound_mb_per_s": bound_of(point["rtt_ms"], trips)} for point in make_points()]
    curve = dict(demo._bound_curve(points))
    knee = 31 * WIRE_MS / trips
    assert min(curve, key=lambda rtt: abs(rtt - knee)) == pytest.approx(knee)
    assert curve[0] == 119.5
    assert all(bound == pytest.approx(bound_of(rtt, trips)) for rtt, bound in curve.items())


def test_of_profiles_whose_bursts_differ_the_higher_bound_is_drawn() -> None:
    slow = [point | {"bound_mb_per_s": bound_of(point["rtt_ms"], 2)} for point in make_points()]
    assert demo._bound_curve(slow + make_points()) == demo._bound_curve(make_points())


def test_bound_of_another_shape_is_drawn_at_its_points_alone(tmp_path: Path) -> None:
    points = [point | {"bound_mb_per_s": 100 - point["rtt_ms"] / 2} for point in make_points()]
    assert demo._bound_curve(points) == ()
    html = page(points, tmp_path)
    (limits,) = set(re.findall(r'<g class="bound"><path class="line" d="((?:M[^L"]*h16)+)"', html))
    assert limits.count("M") == 3


def test_nothing_joins_marks_below_a_bound_that_bends(tmp_path: Path) -> None:
    """From 50 to 100 ms a straight line between two marks would run above the bound."""
    svg = re.findall(r"<svg.*?</svg>", page(make_points(), tmp_path), re.DOTALL)[0]
    for look in ("s0", "s1"):
        assert 'class="line"' not in re.findall(rf'<g class="{look}">.*?</g>', svg)[0]
    (bound,) = re.findall(r'<g class="bound"><path class="line" d="([^"]*L[^"]*)"', svg)
    xs = [float(pair.split()[0]) for pair in bound[1:].split("L")]
    # Beyond the knee no piece is longer than a tick of the pen.
    assert max(b - a for a, b in zip(xs[1:], xs[2:], strict=False)) < 4


def test_a_label_keeps_its_look_when_another_set_is_missing(tmp_path: Path) -> None:
    lossy = [point | {"profile": "wan-lossy"} for point in make_points() if point["profile"] == "wan"]
    both, alone = page(make_points() + lossy, tmp_path / "a"), page(lossy, tmp_path / "b")
    for html in (both, alone):
        assert re.search(r'<g class="s3"><path class="mark"[^>]*/></g><g class="legend"><text[^>]*>wan-lossy<', html)


def test_terminal_table_fits_80_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "room", lambda: 80)
    for one in demo.tables(make_points()):
        table.report_table(one)
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert not [line for line in lines if "…" in line]
    row = next(line.split() for line in lines if "110.3" in line)
    assert row == ["wan", "110.3", "110.2", "110.4", "92", "%", "21.2×", "better"]


def test_the_page_begins_with_whether_it_helped_how_much_how_surely_and_what_limits(tmp_path: Path) -> None:
    points = make_points(rate_mbit=1000.0)
    assert {one.question: one.text for one in demo.answers(points)} == {
        "Did it help?": "Yes. wan against default: better at 4 of 6 points (reads, writes at 50, 100 ms); "
        "cannot tell at 2 of 6 points (reads, writes at 0 ms).",
        "By how much?": "most 31.19× [31.18, 31.20], reads at 100 ms; least 21.21× [21.20, 21.22], reads at 50 ms.",
        "How sure?": "Median of 3 seeds with its 95 % interval; all points are judged together.",
        "What limits now?": "wan: queue depth and round trip: reads, writes at 100 ms (98.8 % of the bound); "
        "something else, for `fabtune why` to name: reads, writes at 0, 50 ms (92.3 % to 94.5 % of the bound).",
    }
    html = page(points, tmp_path)
    assert html.index("Did it help?") < html.index("What limits now?") < html.index("<h2")


def test_what_the_gain_costs_is_on_the_first_screen() -> None:
    """Writes with `wan` took 3.6 times the CPU time for each GB, and the page said "Yes"."""

    def cost(of: dict[int, tuple[str, float | None]]) -> list[str]:
        points = make_points()
        for one in points:
            if one["op"] == "write" and one["profile"] == "wan" and one["rtt_ms"] in of:
                verdict, ratio = of[one["rtt_ms"]]
                ends = {"cpu_change_low": ratio * 0.9, "cpu_change_high": ratio * 1.1} if ratio else {}
                one |= {"cpu_verdict": verdict, "cpu_change": ratio, "cpu_why": "" if ratio else "a run failed"} | ends
        return [one.text for one in demo.answers(points) if one.question == "At what cost?"]

    assert cost({}) == []
    assert cost({0: ("no practical difference", 1.0)}) == [
        "wan against default: CPU time for each GB: no practical difference at 1 of 6 points (writes at 0 ms); cannot "
        "tell at 5 of 6 points (reads at 0, 50, 100 ms; writes at 50, 100 ms). Cannot tell: no run tells it."
    ]
    assert cost({50: ("worse", 3.6), 100: ("better", 0.5), 0: ("cannot tell", None)}) == [
        "wan against default: CPU time for each GB: more at 1 of 6 points (writes at 50 ms), up to 3.60× [3.24, 3.96]; "
        "less at 1 of 6 points (writes at 100 ms), down to 0.500× [0.450, 0.550]; cannot tell at 4 of 6 points (reads "
        "at 0, 50, 100 ms; writes at 0 ms). Cannot tell: no run tells it; a run failed."
    ]


def test_harm_and_doubt_are_said_first() -> None:
    worse = [p | ({"gain": 0.5, "gain_low": 0.4, "gain_high": 0.6, "verdict": "worse"} if "gain" in p else {})
             for p in make_points()]  # fmt: skip
    assert demo.answers(worse)[0].text.startswith("No, it harmed. wan against default: worse at all 6 points")
    one = [p | ({"verdict": "cannot tell", "why": "1 pair; at least 3 are needed"} if "gain" in p else {})
           | {"seeds": 1} for p in make_points()]  # fmt: skip
    first, _, sure = demo.answers(one)[:3]
    assert first.text.startswith("Cannot tell.") and first.sense == 0
    assert "One seed, so without intervals" in sure.text and "1 pair; at least 3 are needed" in sure.text


def test_a_zero_or_a_missing_partner_is_not_left_out_of_the_answers() -> None:
    """A profile under which nothing moved at 50 ms was "better at all points"."""
    nothing = {"mb_per_s": 0.0, "fraction_of_bound": 0.0, "gain": None, "gain_low": None, "gain_high": None}
    doubt = {"verdict": "cannot tell", "why": "a figure is zero"}
    points = [p | (nothing | doubt if p["profile"] == "wan" and p["rtt_ms"] == 50 else {}) for p in make_points()]
    helped, _, sure = demo.answers(points)[:3]
    assert "better at 2 of 6 points" in helped.text and "cannot tell at 4 of 6 points" in helped.text
    assert "a figure is zero" in sure.text
    alone = [{k: v for k, v in p.items() if k != "verdict"} if p["rtt_ms"] == 100 else p for p in make_points()]
    assert "default was not measured there" in demo.answers(alone)[2].text


def test_two_groups_are_told_on_the_first_screen() -> None:
    points = make_points()
    points[1] |= {"mb_per_s_groups": "97.7 (2), 119.5 (3)"}
    assert "The seeds of 1 figure fall into two groups" in demo.answers(points)[2].text
    points[0] |= {"mb_per_s_apart": 97.7, "seeds": 3}
    assert "One seed of 1 figure differs from all others" in demo.answers(points)[2].text


def test_a_caption_speaks_of_bars_where_there_are_bars(tmp_path: Path) -> None:
    assert "bars their 95 % intervals" in page(make_points(), tmp_path)
    alone = [{key: value for key, value in one.items() if not key.endswith(("_low", "_high"))} for one in make_points()]
    html = page(alone, tmp_path)
    assert "Each mark is one seed." in html and "bars their" not in html


def test_intervals_are_drawn(tmp_path: Path) -> None:
    assert page(make_points(), tmp_path).count('class="span"') == 2 * 2 * 3
    # A load that hung with one seed.
    assert page(make_points(mb_per_s_low=0.0), tmp_path).count('class="span"') == 2 * 2 * 3


def test_path_parameters_that_vary_are_drawn_apart(tmp_path: Path) -> None:
    html = page(make_points(loss=0.0) + make_points(loss=0.0001), tmp_path)
    headings = re.findall(r"<h2 [^>]*>([^<]*)</h2>", html)
    assert headings[:4] == ["Reads, loss 0 %", "Writes, loss 0 %", "Reads, loss 0.01 %", "Writes, loss 0.01 %"]


def test_what_limited_is_said_of_the_point_that_it_limited() -> None:
    """Of two losses two limiters were named, both "untouched, reads at 100 ms"."""
    window, loss = "reads are limited by the receive window", "reads are limited by packet loss"
    points = make_points(loss=0.0, limits=window) + make_points(loss=0.0001, limits=loss)
    points = [one for one in points if one["op"] == "read"]
    told = {one.question: one.text.split("\n") for one in demo.answers(points)}
    assert told["Why was it slow?"] == [
        f"default, reads at 100 ms, loss 0 %: {window}.",
        f"default, reads at 100 ms, loss 0.01 %: {loss}.",
    ]
    assert [line.partition(": ")[0] for line in told["What limits after?"]] == [
        "wan, reads at 100 ms, loss 0 %",
        "wan, reads at 100 ms, loss 0.01 %",
    ]
    section = demo._why_section(points)
    assert section
    (table,) = section.tables
    assert ("default", 100, "loss 0.01 %", loss) in table.rows and ("wan", 0, "loss 0 %", window) in table.rows
    # Where all are of one, no column says it.
    alone = demo._why_section(points[:6])
    assert alone and [column.key for column in alone.tables[0].columns] == ["profile", "rtt_ms", "limits"]


def test_seeds_that_fall_apart_are_said_of_their_own_point() -> None:
    points = make_points(loss=0.0) + make_points(loss=0.0001)
    points[0] |= {"mb_per_s_apart": 97.7}
    (said,) = demo.group_notes(points)
    assert said.startswith("wan, 0 ms, read, loss 0 %: one seed differs")


def test_commands_are_escaped_and_kept(tmp_path: Path) -> None:
    html = page(make_points(), tmp_path)
    assert "make demo\n" in html and "&lt;&amp;&gt;" in html


@pytest.mark.parametrize(
    ("points", "says"),
    [
        ([], "no points"),
        ([{"profile": "wan"}], "point 0: no rtt_ms"),
        ([make_points()[0] | {"op": "trim"}], "op is 'trim', expected one of read, write"),
    ],
)
def test_bad_points_are_named(points: Any, says: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=says):
        demo.write(points, FACTS, COMMANDS, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "figures.html").mkdir()
    with pytest.raises(OSError):
        demo.write(make_points(), FACTS, COMMANDS, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["figures.html"]

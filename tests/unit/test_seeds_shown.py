# SPDX-License-Identifier: GPL-2.0-or-later
"""What is shown of few seeds: no interval of two, no bar that flattens a drawing, and what a gain beside rates is."""

import re

import pytest
from test_seeds import runs

from fabtune.experiment.summary import Summary, summarise
from fabtune.report import demo, figure

APART = (119.0, 20.0)


def _rows(*seeds: float) -> list[Summary]:
    return summarise(runs("untouched", *[100.0, 97.0, 98.0][: len(seeds)]) + runs("wan", *seeds))


def test_of_two_seeds_there_is_no_interval() -> None:
    """Of 119 and 20 MB/s it was 0.0006 to 4063300 MB/s."""
    base, row = _rows(*APART)
    for figure_ in ("mb_per_s", "fraction_of_bound", "p50_ms"):
        assert row.point[f"{figure_}_low"] is None and row.point[f"{figure_}_high"] is None
    assert row.point["mb_per_s"] == 69.5 and row.point["verdict"] == "cannot tell"
    points = [base.published, row.published]
    assert "too few for an interval" in demo.tables(points)[0].caption
    said = " ".join(one.text for one in demo.answers(points))
    assert "2 seeds, too few for an interval" in said and "95 %" not in said
    said = " ".join(one.text for one in figure.answers([base.row, row.row], ("profile",), ()))
    assert "Medians of 2 seeds, too few for intervals" in said and "95 %" not in said
    assert 'class="span"' not in demo.chart("x", "read", points)


def test_a_gain_is_of_the_seeds_ratios_though_it_has_no_interval_and_that_is_said() -> None:
    """Beside 97.5 and 69.5 MB/s, whose ratio is 0.71, and of three seeds beside 98 and 119 stood another gain."""
    _, row = _rows(*APART)
    assert row.point["gain"] == pytest.approx((1.19 * 20 / 97) ** 0.5, 1e-4)
    base, row = _rows(*APART, 119.0)
    assert row.point["gain"] == pytest.approx((1.19 * 20 / 97 * 119 / 98) ** (1 / 3), 1e-4)
    points = [base.published, row.published]
    for table in (*demo.tables(points), figure.table("x", [base.row, row.row], ("profile",))):
        (gain,) = (column for column in table.columns if column.key == "gain")
        assert (gain.title, gain.unit) == ("gain", "by seed")


def test_a_bar_ends_within_the_drawing_and_is_open_where_its_interval_does_not() -> None:
    """Three seeds of which one is apart had 5 to 850 MB/s on a line of 119.5: the marks lay on the ground."""
    base, row = _rows(*APART, 119.0)
    assert row.point["mb_per_s_high"] > 800
    svg = demo.chart("x", "read", [base.published, row.published])
    ticks = [float(text) for text in re.findall(r'<text x="50" y="[^"]*">([^<]*)', svg)]
    assert max(ticks) <= 2.5 * 119.5
    assert len(re.findall('class="span open"', svg)) == 1
    assert all(float(y) >= 0 for y in re.findall(r'class="span[^"]*" d="M[0-9.]+ ([0-9.]+)', svg))
    section = demo._section("Reads", "read", [base.published, row.published])
    assert "A bar that ends in an arrow goes on beyond the drawing" in section.figures[0].caption

# SPDX-License-Identifier: GPL-2.0-or-later
"""Records that are whole and unusual: each has its page, with what there is to say."""

import html
import re
from typing import Any

import attrs
import pytest
from run_records import make_record, with_fio

from fabtune.model.judgement import Rules
from fabtune.model.runrecord import RunRecord, SessionTurn
from fabtune.report import cells, latency, suite, throughput


def page(records: list[RunRecord]) -> str:
    text = suite.render(records, [], [], ["fabtune", "report", "out"])
    return html.unescape(re.sub("<[^>]+>", " ", text)).replace("\u00a0", " ")


@pytest.mark.parametrize("practical", [0.02, 1.0, 3.0])
def test_no_difference_that_counts_is_too_large_to_draw(practical: float) -> None:
    """`ab --practical 100%` made a session of which there was no page: the scale began at 0, or below it."""
    records = [
        attrs.evolve(
            make_record(rate + pair / 10, label, start=float(pair)),
            session=SessionTurn("s-pairs", pair, side, Rules(practical=practical)),
        )
        for pair in range(4)
        for side, label, rate in (("A", "untouched", 100.0), ("B", "wan", 150.0))
    ]
    text = page(records)
    assert "wan / untouched" in text and not re.search(r"-[\d.]+×", text)


@pytest.mark.parametrize("name", ["threads", "streams", "processes", "queue_depth"])
def test_only_numbers_are_on_an_axis(name: str) -> None:
    """A workload's own parameter may be a text, whatever it is called: it was read as a number."""
    made = [make_record(100, "a", parameters={name: text}) for text in ("few", "many")]
    assert "xdd: throughput" in page(made) and "few" in page(made)
    (section,) = throughput.sections(cells.cells(made), "xdd", {"a": 0})
    assert section.heading == "xdd: throughput" and section.figures == ()
    # One text among numbers has no place between them.
    values: tuple[int | str, ...] = (1, 2, "many")
    mixed = [make_record(100, "a", parameters={name: value}) for value in values]
    assert throughput.sections(cells.cells(mixed), "xdd", {"a": 0})[0].heading == "xdd: throughput"


def test_a_number_of_streams_in_words_has_no_rate_to_hold() -> None:
    made = [
        make_record(5, "a", op=op, parameters={"stream_bytes_per_s": 5_000_000, "streams": "few"})
        for op in ("read", "write")
    ]
    assert "xdd: throughput" in page(made) and throughput.balanced(cells.cells(made)) == []


def test_a_histogram_of_empty_bins_is_none() -> None:
    def emptied(job: Any) -> None:
        job["read"]["clat_ns"]["bins"] = {"100": 0}

    assert "xdd: throughput" in page([with_fio(make_record(100, "a"), emptied)])

    def with_empty_ends(job: Any) -> None:
        job["read"]["clat_ns"]["bins"] |= {"1": 0, "999999999": 0}

    record = make_record(100, "a")
    (whole,), (padded,) = (cells.cells([one]) for one in (record, with_fio(record, with_empty_ends)))
    assert latency._points(padded.latencies()) == latency._points(whole.latencies()) != ()

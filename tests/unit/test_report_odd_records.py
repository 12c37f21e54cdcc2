# SPDX-License-Identifier: GPL-2.0-or-later
"""Records that are whole and unusual: each has its page, with what there is to say."""

import html
import re

import attrs
import pytest
from run_records import make_record

from fabtune.model.judgement import Rules
from fabtune.model.runrecord import RunRecord, SessionTurn
from fabtune.report import suite


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

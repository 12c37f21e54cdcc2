# SPDX-License-Identifier: GPL-2.0-or-later
"""At the bound is one number, whoever asks: a page's first screen, or a verdict on what limits."""

import pytest

from fabtune.model.path import is_at_bound
from fabtune.report.answers import Reach, bound_by, of_limits
from fabtune.why import words
from fabtune.why.judging import Judged, Share

LINE = 119.55


@pytest.mark.parametrize("share", [0.5, 0.949, 0.951, 0.96, 0.969, 0.971, 0.99, 1.0])
def test_a_page_names_the_link_where_the_verdict_says_that_the_line_is_full_and_nowhere_else(share: float) -> None:
    """From 95 to 97 % of the bound "What limits now?" was the link, and `why` named a window to be lifted."""
    (window,) = (Share("receive-window", 0.95, "its receive window", lifts=("tcp.rmem_max",), ends=("initiator",)),)
    one = Judged("sda", "read", share * LINE * 1e6, True, LINE * 1e6, (window,))
    page = of_limits("wan", [Reach(where="reads at 20 ms", share=share, by=bound_by(LINE, LINE, disk=False))]).text
    assert page.startswith("wan: the link: " if one.at_the_bound else "wan: something else, for `fabtune why` to name")
    assert ("fill the line" in words.verdict(one)) is one.at_the_bound is is_at_bound(share, 1.0)


def test_at_the_bound_begins_where_a_change_would_gain_less_than_three_parts_in_a_hundred() -> None:
    assert is_at_bound(97.0, 100.0) and not is_at_bound(96.9, 100.0)

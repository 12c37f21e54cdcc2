# SPDX-License-Identifier: GPL-2.0-or-later
"""What limits now, on the first screen: of each side its own runs, and no accusation of a load that is held back."""

import html
import re
from collections.abc import Iterable
from typing import Any

import attrs
import pytest
from run_records import make_record, with_step

from fabtune.model.offered import Offered
from fabtune.model.results import Point
from fabtune.model.runrecord import RunRecord, SessionTurn, WorkloadUsed
from fabtune.report import demo, figure, suite

NEAR: dict[str, Any] = {
    "parameters": {"block_bytes": 262144, "queue_depth": 32},
    "path": {"rtt_ms": 0.1, "rate_bytes_per_s": 1.25e8},
}
ELSE, TOLD = "something else, for fabtune why to name", "not known, as the load sends only what it is told to"


def side(label: str, mb_per_s: float, start: float = 0.0) -> list[RunRecord]:
    """Four runs of a load that has a depth of 32 near by."""
    made = (make_record(mb_per_s + at / 10, label, start=start + at, **NEAR) for at in range(4))
    return [with_step(one, depth=32) for one in made]


def plain(text: str) -> str:
    return html.unescape(re.sub("<[^>]+>", "", text)).replace("\u00a0", " ")


def limits(records: Iterable[RunRecord]) -> list[str]:
    """Return the lines of the page's answer."""
    answers = suite.render(list(records), [], [], ["fabtune", "report", "out"]).split("<h2")[0]
    text = answers.partition("What limits now?")[2].partition("<dt")[0].partition("</dl>")[0]
    return [line.strip() for line in plain(text).split("\n") if line.strip()]


@pytest.mark.parametrize("label", ["", "wan", "the second", "wan (B)"])
def test_what_limits_a_side_is_told_whatever_it_is_called(label: str) -> None:
    """A side was looked for by the name under which it is shown, which of runs without a label is another one."""
    (said,) = limits([*side("untouched", 5), *side(label, 119)])
    assert said == f"{label or 'the second'}: the link: read at 0.1 ms (99.7 % of the bound)."


def test_of_two_sides_with_one_name_what_limits_is_b_s() -> None:
    records = [
        attrs.evolve(one, session=SessionTurn("s-pairs", pair, letter))
        for letter, runs in (("A", side("wan", 5)), ("B", side("wan", 119)))
        for pair, one in enumerate(runs)
    ]
    assert limits(records) == ["wan (B): the link: read at 0.1 ms (99.7 % of the bound)."]


def test_of_two_sessions_each_has_what_limits_its_own_runs() -> None:
    records = [
        attrs.evolve(one, session=SessionTurn(f"{name}-pairs", pair, letter))
        for name, rate in (("first", 119), ("second", 60))
        for letter, runs in (("A", side("untouched", 5)), ("B", side("wan", rate)))
        for pair, one in enumerate(runs)
    ]
    page = plain(suite.render(records, [], [], ["fabtune"]))
    assert "wan, session first: the link: read at 0.1 ms (99.7 % of the bound)." in page
    assert f"wan, session second: {ELSE}: read at 0.1 ms (50.3 % of the bound)." in page


def test_an_unlabelled_side_has_its_path_beside_a_third_label() -> None:
    """Where another side was found, it was told that no path was known of it, which its runs had."""
    said = "\n".join(limits([*side("", 119), *side("untouched", 5), *side("wan", 60)]))
    assert "the second: the link: read" in said and f"wan: {ELSE}" in said and "without a path" not in said


def open_loop(label: str) -> list[RunRecord]:
    sent = Offered(200, 200, 1.0, 6, 1000, 10, 1000, 2000)
    made = (
        make_record(
            0.8192, label, start=float(at), parameters={"block_bytes": 4096},
            path={"rtt_ms": 1.0, "rate_bytes_per_s": 1.25e8},
        ) for at in range(4)
    )  # fmt: skip
    return [
        attrs.evolve(
            with_step(one, depth=6, closed_loop=False, offered=sent),
            workload=WorkloadUsed("openloop", primary="p99_ms"),
        )
        for one in made
    ]


def rate_limited(label: str, mb_per_s: float) -> list[RunRecord]:
    return [with_step(one, closed_loop=False) for one in side(label, mb_per_s)]


@pytest.mark.parametrize("load", [open_loop, lambda label: rate_limited(label, 5.0)])
def test_nothing_is_accused_where_the_load_sends_no_more_than_it_is_told_to(load: Any) -> None:
    """Every request of an open loop came back, and "something else" held it down."""
    (said,) = limits([*load("untouched"), *load("wan")])
    assert said.startswith(f"wan: {TOLD}: read at ") and ELSE not in said
    # At its bound it is the bound that holds it, whatever it is told.
    (said,) = limits([*side("untouched", 5), *rate_limited("wan", 119.0)])
    assert said == "wan: the link: read at 0.1 ms (99.7 % of the bound)."


@pytest.mark.parametrize("told", [{"decided_by": "p99_ms"}, {"stream_rate": "1MB"}])
def test_run_says_the_same_of_its_points(told: dict[str, str]) -> None:
    points = [
        Point({
            "profile": name, "op": "write", "rtt_ms": 1.0, "mb_per_s": 0.8, "bound_mb_per_s": 24.0,
            "fraction_of_bound": 0.034, "seeds": 4, "verdict": "cannot tell", "why": "x", **told,
        })
        for name in ("untouched", "wan")
    ]  # fmt: skip
    for answers in (demo.answers(points), figure.answers(points, ("profile",), [])):
        (said,) = (one.text for one in answers if one.question == "What limits now?")
        assert TOLD in said and "something else" not in said

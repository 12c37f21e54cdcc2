# SPDX-License-Identifier: GPL-2.0-or-later
"""A run that tells nothing of a direction that others of the same load tell: it counts there as one that failed."""

from collections.abc import Set
from pathlib import Path

import pytest

from fabtune.experiment import batch, definition, derived, publish, results
from fabtune.experiment.publish import Published
from fabtune.experiment.settings import common, ops_of, ways_of
from fabtune.experiment.summary import Summary

_MIXED = 'workload = "oltp"\nop = "mixed"\nrtt = "20ms"\n'
# Several clients, of which a request of a read hangs: their writes are not measured.
_BOTH = 'clients = 4\nrtt = "20ms"\n'


def _measured(tmp_path: Path, fixed: str, lack: Set[tuple[str, int]], more: str = "") -> list[batch.Run]:
    """Return the runs of an experiment of 5 seeds, of which those that `lack` writes have no point of them."""
    path = tmp_path / "mine.toml"
    path.write_text(f'summary = "s"\nseeds = 5\n[factors]\nprofile = ["untouched", "wan"]\n[fixed]\n{fixed}{more}')
    wanted = definition.load(str(path))
    runs = batch.runs_of(wanted, wanted.combinations(), tmp_path / "out")
    for run in runs:
        profile, told = run.settings.profile, {"bound_mb_per_s": 50.0, "fraction_of_bound": 0.5}
        ways = [way for op in ops_of(run.settings) for way in ways_of(op)]
        rates = {"read": 10.0, "write": 6.0 if profile == "wan" else 4.0}
        run.keep([
            common(run.settings, way) | {"mb_per_s": rates[way] + 0.01 * run.number} | told
            for way in ways if way == "read" or (profile, run.number) not in lack
        ])  # fmt: skip
    return runs


def _writes(runs: list[batch.Run]) -> dict[str, Summary]:
    return {one.point["profile"]: one for one in batch.summary_of(runs) if one.point["op"] == "write"}


@pytest.mark.parametrize("fixed", [_MIXED, _BOTH])
def test_what_is_left_of_a_direction_is_no_verdict(fixed: str, tmp_path: Path) -> None:
    """Of five runs of wan two told nothing of writes; by the other three it was "better", and nothing was said."""
    runs = _measured(tmp_path, fixed, {("wan", 2), ("wan", 4)})
    point = _writes(runs)["wan"].point
    assert (point["verdict"], point["seeds"], point["lacking"]) == ("cannot tell", 3, 2)
    assert point["why"] == "2 of 5 runs of wan tell nothing of it; the others are no fair sample"
    reads = next(one.point for one in batch.summary_of(runs) if one.point["op"] == "read")
    assert "lacking" not in reads and reads["seeds"] == 5
    said = batch.said_of_part(runs, runs)
    assert said == (
        "2 runs tell nothing of a direction that others tell: profile=wan run 2: write; profile=wan run 4: write"
    )


def test_a_direction_that_a_profile_never_tells_has_a_row(tmp_path: Path) -> None:
    runs = _measured(tmp_path, _MIXED, {("wan", number) for number in range(1, 6)})
    point = _writes(runs)["wan"].point
    assert (point["mb_per_s"], point["seeds"], point["lacking"]) == (None, 0, 5)
    assert (point["verdict"], point["why"]) == ("cannot tell", "5 of 5 runs of wan tell nothing of it")


def test_a_direction_that_no_run_tells_is_missed_by_none(tmp_path: Path) -> None:
    """A load told to move data both ways may move it one way alone."""
    runs = _measured(
        tmp_path, _MIXED, {(profile, number) for profile in ("wan", "untouched") for number in range(1, 6)}
    )
    assert _writes(runs) == {} and batch.said_of_part(runs, runs) == ""
    assert all("lacking" not in one.point for one in batch.summary_of(runs))


def test_a_statement_is_not_judged_by_what_is_left_of_a_direction(tmp_path: Path) -> None:
    more = '[[expect]]\nsays = "fast"\nwhere = { op = "write", profile = "wan" }\nat_least = 5\n'
    runs = _measured(tmp_path, _MIXED, {("wan", 2)}, more)
    (judged,) = batch.judge(definition.load(str(tmp_path / "mine.toml")), runs)
    assert judged.holds is None and "1 of 5 runs of a point do not tell mb_per_s" in judged.found


def test_page_and_tree_say_it(tmp_path: Path) -> None:
    runs = _measured(tmp_path, _MIXED, {("wan", 2)})
    wanted = definition.load(str(tmp_path / "mine.toml"))
    part = batch.said_of_part(runs, runs)
    shown: Published = publish.of_lab(wanted, batch.summary_of(runs), [], part, "fabtune run", tmp_path / "out")
    html = shown.page.read_text()
    assert "1 run tells nothing of a direction that others tell: profile=wan run 2: write" in html
    assert "1 of 5 runs of wan tells nothing of it; the others are no fair sample" in html
    # The summary has what the index alone does not give: nobody has changed it.
    index = results.keep_index(wanted, tmp_path / "out", "fabtune run", None)
    assert derived.summary_apart(index, tmp_path / "out") == []
    assert [one["lacking"] for one in shown.points if "lacking" in one] == [1]

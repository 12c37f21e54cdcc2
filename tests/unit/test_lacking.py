# SPDX-License-Identifier: GPL-2.0-or-later
"""A run that tells nothing of a direction that others of the same load tell: it counts there as one that failed."""

import html
import re
from collections.abc import Set
from pathlib import Path
from typing import Any

import attrs
import pytest
from run_records import make_record, said, with_step

from fabtune.cli.main import main
from fabtune.errors import ExitCode
from fabtune.experiment import batch, definition, derived, publish, results
from fabtune.experiment.publish import Published
from fabtune.experiment.settings import common, ops_of, ways_of
from fabtune.experiment.summary import Summary
from fabtune.measure import failedruns, recordfile
from fabtune.model import typed
from fabtune.model.judgement import Verdict
from fabtune.model.outputs import FioOutput
from fabtune.model.runrecord import RunRecord
from fabtune.report import compare

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


_HUNG = "1 request stayed outstanding for more than 60 s"


def _with_records(tmp_path: Path, lack: Set[tuple[str, int]]) -> Path:
    """Return the tree of such an experiment with its records: of those that `lack` writes the reads hung."""
    runs = _measured(tmp_path, _BOTH, lack)
    for run in runs:
        profile, points = run.settings.profile, run.points()
        for point in points:
            around = {"settings": attrs.asdict(run.settings)}
            made = make_record(
                point["mb_per_s"], profile, workload="clients", op=point["op"], environment=around, start=run.number
            )
            hung = (profile, run.number) in lack
            made = attrs.evolve(made, complete=not hung, problem=_HUNG if hung else None)
            recordfile.write(made, run.directory / f"{point['op']}.run.json.gz")
        run.keep(points)
    results.keep_index(definition.load(str(tmp_path / "mine.toml")), tmp_path / "out", "fabtune run mine.toml", None)
    return tmp_path / "out"


def test_report_and_compare_count_the_record_that_a_run_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`run` could not tell, and both called the writes "better", by the seeds whose reads had not hung."""
    out = _with_records(tmp_path, {("wan", 2), ("wan", 4)})
    assert main(["report", str(out)]) == ExitCode.DONE
    first = html.unescape(re.sub(r"<[^>]+>", " ", (out / "report.html").read_text().split("<h2")[0]))
    assert "cannot tell at all 2 points" in first and "better" not in first
    capsys.readouterr()
    assert main(["compare", *(str(out / f"profile={name}") for name in ("untouched", "wan"))]) == ExitCode.CANNOT_TELL
    told = " ".join(capsys.readouterr().out.split())
    assert "better" not in told and "2 of 5 runs of wan failed; the others are no fair sample" in told
    assert "run-2/write.run.json.gz" in told and "though others of its load did" in told
    # Their own records stay what they are: no run failed, and none is left out.
    assert failedruns.find(out) == [] and len(failedruns.records_below(out)) == 18
    assert [Path(one.file).parent.name for one in failedruns.stand_ins(out / "profile=wan")] == ["run-2", "run-4"]


def test_a_whole_tree_lacks_nothing(tmp_path: Path) -> None:
    assert failedruns.stand_ins(_with_records(tmp_path, set())) == []


def _both_ways(label: str, pair: int, write_mb_per_s: float) -> RunRecord:
    """A mixed load whose writes are none where their rate is 0: nothing of them ever came back."""
    asked = {"op": "randrw"}
    made = make_record(50.0, label, pair, workload="oltp", parameters=asked)
    if not write_mb_per_s:
        return made
    both: Any = typed.STRICT.write(made.steps[0].fio)
    other: Any = typed.STRICT.write(make_record(write_mb_per_s, op="write").steps[0].fio)
    both["jobs"][0]["write"] = other["jobs"][0]["write"]
    return with_step(made, fio=said(FioOutput, both))


@pytest.mark.parametrize("never", [{1, 4, 7}, set(range(10))])
def test_a_run_of_a_mixed_load_without_a_direction_counts_in_a_comparison(never: Set[int]) -> None:
    """Three of ten runs in which no write came back were left out: the seven others were "better"."""
    a = [_both_ways("default", pair, 20.0 + 0.1 * pair) for pair in range(10)]
    b = [_both_ways("wan", pair, 0.0 if pair in never else 22.0 + 0.1 * pair) for pair in range(10)]
    rows = {row.metric.key: row.judgement for row in compare.compare(a, b).rows}
    assert rows["read_mb_per_s"].verdict is Verdict.SAME
    for key in ("write_mb_per_s", "write_p50_ms"):
        assert rows[key].verdict is Verdict.CANNOT_TELL
        assert rows[key].why.startswith(f"{len(never)} of 10 runs of wan tell nothing of it"), rows[key].why


def test_runs_of_one_direction_each_lack_nothing_of_the_other() -> None:
    """A step of one name that is run in one direction at a time."""

    def one_way(op: str, label: str, at: int) -> RunRecord:
        rate = (20.0 if label == "default" else 30.0) + 0.1 * at
        made = make_record(rate, label, op=op, parameters={"op": op}, start=at)
        return with_step(made, name="stream")

    sides = [[one_way(op, label, at) for op in ("read", "write") for at in range(5)] for label in ("default", "wan")]
    assert {row.judgement.verdict for row in compare.compare(*sides).rows if row.primary} == {Verdict.BETTER}

# SPDX-License-Identifier: GPL-2.0-or-later
"""The documentation's figures come from kept results: what is stale, edited by hand or not whole is found."""

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import kept_results
import pytest
from kept_results import check
from run_records import make_record

from fabtune.experiment import definition
from fabtune.experiment.settings import common, ops_of
from fabtune.lab import fabrics
from fabtune.measure import recordfile
from fabtune.model.results import Point


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    return kept_results.load()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The pages, pictures and results of this tree."""
    return kept_results.copied(tmp_path)


def test_what_is_in_the_tree_is_what_the_kept_results_give(
    figures: ModuleType, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check(copy, monkeypatch) == 0


@pytest.mark.parametrize("page", ["README.md", "Documentation/wan.md", "Documentation/demo.svg"])
def test_an_edited_figure_is_found_and_made_anew(
    page: str, figures: ModuleType, copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copy / page
    was = path.read_text()
    made = was if path.suffix == ".svg" else figures.MARKS.search(was)[0]
    shown = re.search(r"\b\d{2,3}\.\d\b", made.partition("|---")[2] or made)
    assert shown
    path.write_text(was.replace(shown[0], f"9{shown[0]}"))
    assert check(copy, monkeypatch) == 1
    assert f"{page}: not what the kept results give" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["figures.py", "--top", str(copy)])
    assert figures.main() == 0
    # What stands outside the tables is nobody's to change.
    outside = figures.MARKS.sub("", was).count(shown[0]) if path.suffix == ".md" else 0
    assert path.read_text().count(f"9{shown[0]}") == outside


def test_edited_results_are_found(
    figures: ModuleType, copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copy / "Documentation/results/demo.json"
    document = json.loads(path.read_text())
    document["points"][0]["mb_per_s"] += 1
    path.write_text(json.dumps(document))
    assert check(copy, monkeypatch) == 1
    assert "demo.json: edited by hand" in capsys.readouterr().err


def test_results_that_no_run_is_known_to_have_given_are_refused(
    figures: ModuleType, copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Figures that were typed off a page passed for a measurement, as a digest was over them."""
    path = copy / "Documentation/results/wan-loss.json"
    kept = figures.kept_file.read(path)
    for part in ("image", "code"):
        figures.kept_file.write(path, kept.points, re.sub(rf"{part} [^,]+, ", "", kept.origin))
        assert check(copy, monkeypatch) == 1
        assert f"wan-loss.json: its origin names no {part}" in capsys.readouterr().err


def test_a_picture_whose_results_are_not_kept_is_none(
    figures: ModuleType, copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without results the picture of others stood on, as nothing made it."""
    monkeypatch.setattr(figures, "PICTURES", ("demo", "mine"))
    assert check(copy, monkeypatch) == 0
    (copy / "Documentation/mine.svg").write_text("<svg/>")
    assert check(copy, monkeypatch) == 1
    assert "Documentation/mine.svg: no results are kept for it" in capsys.readouterr().err


def test_a_drawing_whose_data_are_not_kept_is_as_it_was_drawn(
    figures: ModuleType, copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A curve of the dashboard's picture could be moved by hand."""
    drawing = copy / "Documentation/dashboard.svg"
    was = drawing.read_text()
    drawing.write_text(was.replace(' d="M', ' d="M1', 1))
    assert was != drawing.read_text() and check(copy, monkeypatch) == 1
    assert "Documentation/dashboard.svg: not as it was drawn (" in capsys.readouterr().err
    drawing.unlink()
    assert check(copy, monkeypatch) == 1


def test_a_file_that_is_cut_short_is_named(
    figures: ModuleType, copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was "Expecting value: line 1 column 11", of one of thirty files."""
    for name in (
        "daq.json",
        "simulated/power.json",
        "why/bench.json",
        "sanitizers/suites.json",
        "bench/module.json",
        "bench/scale.json",
    ):
        path = copy / "Documentation/results" / name
        whole = path.read_text()
        for text in (whole[:10], "[]", "{}", '{"digest": 1}'):
            path.write_text(text)
            assert check(copy, monkeypatch) == 1
            assert f"{name}: " in capsys.readouterr().err
        path.write_text(whole)


@pytest.mark.parametrize(
    ("page", "line"),
    [
        ("measuring.md", "| 5 % effect, 2 % noise, 10 pairs |"),
        ("why.md", "| `configurations` |"),
        ("fabstat.md", "| kasan |"),
        ("fabstat.md", "| **fabstat** |"),
        ("fabstat.md", "| a request of scsi_debug |"),
        ("monitoring.md", "| CPU time a scrape, compressing included |"),
        ("monitoring.md", "| 4.8 s |"),
        ("wan.md", "| `wan by maxrate` | 73.2 | 73.2 |"),
        ("wan.md", "| `untouched` | 1,500 |"),
        ("wan.md", "| `wan --set busy_sessions=4` |"),
        ("monitoring.md", "| bytes a host and day |"),
        ("why-predictions.svg", "<text "),
    ],
)
def test_the_tables_that_benches_keep_are_made_too(
    page: str, line: str, figures: ModuleType, copy: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """An edited line of them was in order, and `make figures` left it."""
    path = copy / "Documentation" / page
    was = path.read_text()
    assert line in was
    path.write_text(was.replace(line, f"{line} 9", 1))
    assert check(copy, monkeypatch) == 1
    assert f"{page}: not what the kept results give" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["figures.py", "--top", str(copy)])
    assert figures.main() == 0 and path.read_text() == was
    if path.suffix == ".md":
        path.write_text(re.sub("<!-- end of (power|bench-why|sanitizers|ops-scale|connection-wan) -->\n", "", was))
        assert check(copy, monkeypatch) == 1
        assert re.search(f"{page}: expected .*<!-- end of ", capsys.readouterr().err)


@pytest.mark.parametrize("name", ["fabric-cpu", "fabric-size", "lan-hosts", "scale-clients"])
def test_results_without_a_table_of_their_own_have_one(
    name: str, figures: ModuleType, copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kept as it is said, with the lines that it asked for, it ended in a KeyError."""
    wanted = definition.load(name)
    points: list[dict[str, Any]] = []
    for cell in wanted.combinations():
        for op in ops_of(cell.settings):
            told = common(cell.settings, op) | {"mb_per_s": 47.25, "cpu_s_per_gb": 3.4, "p99_ms": None}
            if why := fabrics.find(cell.settings.fabric).MISSING:
                told = Point({"fabric": cell.settings.fabric, "op": op, "mb_per_s": None, "missing": why})
            points.append({**told, **told.unsaid(cell.factors), "seeds": 3})
    assert figures.kept_against.points_apart(name, points) == []
    figures.kept_file.write(copy / "Documentation/results/mine.json", points, "`fabtune run`, image a, code b")
    assert check(copy, monkeypatch) == 1 and "mine are shown on no page" in capsys.readouterr().err
    page = copy / "Documentation/experiments.md"
    page.write_text(page.read_text() + "\n<!-- figures: mine -->\n<!-- end of figures -->\n")
    monkeypatch.setattr(sys, "argv", ["figures.py", "--top", str(copy)])
    assert figures.main() == 0
    made = page.read_text().rpartition("<!-- figures: mine")[2]
    head, _, *rows = made.splitlines()[1:]
    varied = [one for one in wanted.factors if one not in ("size", "depth")]
    assert all(f"| {one} |" in head for one in varied) and "| MB/s |" in head and "p99" not in head, head
    # Each row is told from all others, and what is not there stands below with the reason.
    sound = [point for point in points if "missing" not in point]
    assert sum(row.startswith("| ") for row in rows) == len(set(rows[: len(sound)])) == len(sound)
    assert all(str(point.get("missing", "")) in made for point in points)


def test_a_table_without_results_is_found(
    figures: ModuleType, copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (copy / "Documentation/results/wan-loss.json").unlink()
    assert check(copy, monkeypatch) == 1
    assert "no results are kept for the table 'wan-loss'" in capsys.readouterr().err


def test_one_seed_is_said_and_groups_and_intervals_are_shown(figures: ModuleType) -> None:
    told = figures.kept_tables.told
    assert figures.kept_file.Kept([{"seeds": 1}], "").seeds.startswith("One seed")
    assert told({"mb_per_s": 5.0, "mb_per_s_low": 4.32, "mb_per_s_high": 5.7}) == "5.0 (4.3..5.7)"
    assert told({"mb_per_s": 119.5, "mb_per_s_low": 119.51, "mb_per_s_high": 119.52}) == "119.5"
    assert told({"mb_per_s": 97.7, "mb_per_s_groups": "97.7 (2), 119.5 (3)"}) == "97.7 (2) or 119.5 (3)"
    alone = {"mb_per_s": 119.5, "mb_per_s_low": 84.1, "mb_per_s_high": 149.0, "mb_per_s_apart": 97.7}
    assert told(alone) == "119.5 (84.1..149.0, one seed 97.7)"
    assert told({}) == "–"
    # One bucket of 1/16 further is not apart, and three alike are known to a bucket.
    beside = {"oldest_s": 0.186, "oldest_s_low": 0.17, "oldest_s_high": 0.2, "oldest_s_apart": 0.177}
    assert told(beside, "oldest_s", 2) == "0.19 (0.17..0.20)"
    alike = {"p50_ms": 160.43, "p50_ms_low": 160.43, "p50_ms_high": 160.43}
    assert told(alike, "p50_ms", 0) == "160 (156..165)"


def test_a_row_s_bound_is_that_of_all_its_points_or_says_of_whom_it_is_not(figures: ModuleType) -> None:
    """It was that of the first: untouched writes at 100 ms, which ask for R2Ts, stood beside twice their bound."""
    tables = figures.kept_tables

    def points(*bounds: tuple[str, str, str, float]) -> list[dict[str, Any]]:
        place = {"rtt_ms": 100.0, "mb_per_s": 3.0, "fraction_of_bound": 0.1}
        return [place | dict(zip(("target", "profile", "op", "bound_mb_per_s"), one, strict=True)) for one in bounds]

    every = [(target, profile, op) for target in ("lio", "tgt") for profile in ("untouched", "wan")
             for op in ("read", "write")]  # fmt: skip
    slow = points(*((*one, 41.49 if one[1:] == ("untouched", "write") else 82.09) for one in every))
    assert tables.kinds(slow).endswith("| 82.1 (`untouched` writes 41.5) |\n")
    one_target = points(*((*one, 41.49 if one == ("lio", "untouched", "write") else 82.09) for one in every))
    assert tables.kinds(one_target).endswith("| 82.1 (lio, `untouched` writes 41.5) |\n")
    of_lio = [one for one in slow if one["target"] == "lio"]
    assert tables.profiles(of_lio).endswith("| 82.1 (`untouched` writes 41.5) |\n")
    assert tables.over("rtt_ms")(of_lio).endswith("| 82.1 (`untouched` writes 41.5) |\n")
    assert "| 82.1 | 10.0% |" in tables.gains(of_lio) and "| 82.1 (`untouched` 41.5) | 10.0% |" in tables.gains(of_lio)
    timed = [one | {"p50_ms": 69.2, "p50_ms_low": 67.1, "p50_ms_high": 71.4, "p99_ms": 73.4} for one in of_lio]
    assert tables.gains(timed).endswith("| 69.2 (67.1..71.4) / 73.4 |\n")
    # What looks the same in the table is the same.
    alike = points(*((*one, 82.09 if one[2] == "read" else 82.11) for one in every))
    assert tables.kinds(alike).endswith("| 82.1 |\n")


def test_sandia_s_line_stands_beside_what_is_measured_over_losses(figures: ModuleType) -> None:
    """It was on the run's own page alone."""
    points = [
        {"profile": "wan", "op": op, "loss": loss, "mb_per_s": 7.0} | ({"mathis_mb_per_s": 2.03} if loss else {})
        for loss in (0.0, 1e-4) for op in ("read", "write")
    ]  # fmt: skip
    head, _, free, lossy = figures.kept_tables.losses(points).splitlines()
    assert head.endswith("| one Reno connection (Mathis, 0.7) |")
    assert free.endswith("| – |") and lossy.endswith("| 7.0 / 7.0 | 2.0 |")
    without = [{key: value for key, value in one.items() if key != "mathis_mb_per_s"} for one in points]
    assert figures.kept_tables.losses(without).splitlines()[0] == "| loss | `wan` |"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results of two profiles with three seeds each."""
    return kept_results.measured(tmp_path, monkeypatch)


def test_kept_is_what_the_runs_left(
    tree: Path, figures: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A median of 99.9 written into summary.json by hand was kept, with a digest."""
    sound = figures.kept_file.read(figures.keep(tree, tmp_path / "kept"))
    assert [point["mb_per_s"] for point in sound.points] == [10.2, 20.2] and not capsys.readouterr().err
    points = json.loads((tree / "summary.json").read_text())
    # The summary has more than the runs told: that comes from the settings.
    assert all("line_mb_per_s" in point for point in points)
    points[0]["mb_per_s"] = 99.9
    (tree / "summary.json").write_text(json.dumps(points))
    assert figures.kept_file.read(figures.keep(tree, tmp_path / "kept")).points == sound.points
    assert "summary.json: not what its runs give" in capsys.readouterr().err


def test_a_tree_with_a_changed_run_is_not_kept(tree: Path, figures: ModuleType, tmp_path: Path) -> None:
    points = tree / "profile=wan/run-1/points.json"
    points.write_text(points.read_text().replace("20.1", "99.9"))
    with pytest.raises(ValueError, match="not kept: .*points.json: not what the run left"):
        figures.keep(tree, tmp_path / "kept")


@pytest.mark.parametrize(
    ("page", "lost"), [("README.md", "end"), ("Documentation/wan.md", "end"), ("README.md", "both")]
)
def test_a_table_that_lost_its_marks_is_found_and_nothing_is_eaten(
    page: str, lost: str, figures: ModuleType, copy: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """An edited table without its end was in order, or `make figures` ate all that stood up to the next one."""
    path = copy / page
    text = path.read_text()
    first = figures.MARKS.search(text)
    begin, name = first[0].partition("\n")[0], first[2]
    text = text.replace("<!-- end of figures -->\n", "", 1)
    text = text.replace(f"{begin}\n", "", 1) if lost == "both" else text
    path.write_text(text)
    assert check(copy, monkeypatch) == 1
    said = capsys.readouterr().err
    assert ("shown on no page" if lost == "both" else f"{page}: the table '{name}' has no end") in said
    monkeypatch.setattr(sys, "argv", ["figures.py", "--top", str(copy)])
    assert figures.main() == 1 and path.read_text() == text


def test_a_tree_without_its_summary_is_kept_all_the_same(tree: Path, figures: ModuleType, tmp_path: Path) -> None:
    (tree / "summary.json").unlink()
    assert len(figures.kept_file.read(figures.keep(tree, tmp_path / "kept")).points) == 2


def edit(path: Path, change: Callable[[Any], object]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def twice(index: Any) -> None:
    index["combinations"][1]["runs"] += index["combinations"][1]["runs"][:1] * 2


def link_to_another(tree: Path) -> None:
    shutil.rmtree(tree / "profile=wan/run-2")
    (tree / "profile=wan/run-2").symlink_to("run-1")


NOT_WHOLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "another's name": (lambda t: edit(t / "index.json", lambda i: i.update(name="demo")), "testrun.xml: does not say"),
    "a run listed thrice": (lambda t: edit(t / "index.json", twice), "of 3 runs of .*wan it lists 1, 1, 1, 2, 3"),
    "a run that is a link": (link_to_another, "run-2 is a link to"),
    "XML of another": (lambda t: (t / "testrun.xml").write_text("<testrun/>"), "testrun.xml: does not say"),
    "a record of no run": (lambda t: recordfile.write(make_record(50.0), t / "profile=wan/run-9/read.run.json.gz"),
                           "of no run of this experiment"),
}  # fmt: skip


@pytest.mark.parametrize("case", NOT_WHOLE)
def test_a_tree_that_is_not_whole_is_not_kept(case: str, tree: Path, figures: ModuleType, tmp_path: Path) -> None:
    """A run listed three times counted as "seeds 5", and a tree was kept under whatever name its index had."""
    change, why = NOT_WHOLE[case]
    change(tree)
    with pytest.raises(ValueError, match=f"not kept: .*{why}"):
        figures.keep(tree, tmp_path / "kept")

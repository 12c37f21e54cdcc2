# SPDX-License-Identifier: GPL-2.0-or-later
"""The documentation's figures come from kept results: what is stale, edited by hand or not whole is found."""

import importlib.util
import json
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType

import attrs
import pytest

from fabtune.experiment import batch, definition, present, results
from fabtune.model.results import Point
from fabtune.model.runrecord import Value

TOP = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_figures", TOP / "tests/bench/figures.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def copy(tmp_path: Path, figures: ModuleType) -> Path:
    """The pages, pictures and results of this tree."""
    for name in ("README.md", figures.STYLE, *(str(path.relative_to(TOP)) for path in TOP.glob("Documentation/**/*"))):
        if (TOP / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(TOP / name, tmp_path / name)
    return tmp_path


def check(figures: ModuleType, top: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["figures.py", "--top", str(top), *(words or ("--check",))])
    code: int = figures.main()
    return code


def test_what_is_in_the_tree_is_what_the_kept_results_give(
    figures: ModuleType, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check(figures, copy, monkeypatch) == 0


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
    assert check(figures, copy, monkeypatch) == 1
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
    assert check(figures, copy, monkeypatch) == 1
    assert "demo.json: edited by hand" in capsys.readouterr().err


def test_a_table_without_results_is_found(
    figures: ModuleType, copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (copy / "Documentation/results/wan-loss.json").unlink()
    assert check(figures, copy, monkeypatch) == 1
    assert "no results are kept for the table 'wan-loss'" in capsys.readouterr().err


def test_one_seed_is_said_and_groups_and_intervals_are_shown(figures: ModuleType) -> None:
    assert figures.Kept([{"seeds": 1}], "").seeds.startswith("One seed")
    assert figures.told({"mb_per_s": 5.0, "mb_per_s_low": 4.32, "mb_per_s_high": 5.7}) == "5.0 (4.3..5.7)"
    assert figures.told({"mb_per_s": 119.5, "mb_per_s_low": 119.51, "mb_per_s_high": 119.52}) == "119.5"
    assert figures.told({"mb_per_s": 97.7, "mb_per_s_groups": "97.7 (2), 119.5 (3)"}) == "97.7 (2) or 119.5 (3)"
    alone = {"mb_per_s": 119.5, "mb_per_s_low": 84.1, "mb_per_s_high": 149.0, "mb_per_s_apart": 97.7}
    assert figures.told(alone) == "119.5 (84.1..149.0, one seed 97.7)"
    assert figures.told({}) == "–"
    # One bucket of 1/16 further is not apart, and three alike are known to a bucket.
    beside = {"oldest_s": 0.186, "oldest_s_low": 0.17, "oldest_s_high": 0.2, "oldest_s_apart": 0.177}
    assert figures.told(beside, "oldest_s", 2) == "0.19 (0.17..0.20)"
    alike = {"p50_ms": 160.43, "p50_ms_low": 160.43, "p50_ms_high": 160.43}
    assert figures.told(alike, "p50_ms", 0) == "160 (156..165)"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results of two profiles with three seeds each, from a lab with an image, whatever this machine has."""
    known = present.origin_now
    monkeypatch.setattr(batch, "origin_now", lambda *asked: attrs.evolve(known(*asked), packages="p" * 64, kernel="6"))
    (tmp_path / "exp.toml").write_text('seeds = 3\n[factors]\nprofile = ["untouched", "wan"]\n')
    wanted = definition.load(str(tmp_path / "exp.toml"))
    runs = batch.runs_of(wanted, wanted.combinations(), tmp_path / "exp")
    for run in runs:
        rate = 20.0 if run.settings.profile == "wan" else 10.0
        told: dict[str, Value | None] = {"profile": run.settings.profile, "op": "read", "seed": run.settings.seed}
        run.keep([Point(told | {"mb_per_s": rate + run.settings.seed / 10, "bound_mb_per_s": 119.5})])
    results.keep_index(wanted, tmp_path / "exp", "fabtune run exp")
    results.keep_points([one.published for one in batch.summary_of(runs)], tmp_path / "exp")
    return tmp_path / "exp"


def test_kept_is_what_the_runs_left(
    tree: Path, figures: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A median of 99.9 written into summary.json by hand was kept, with a digest."""
    sound = figures.read(figures.keep(tree, tmp_path / "kept"))
    assert [point["mb_per_s"] for point in sound.points] == [10.2, 20.2] and not capsys.readouterr().err
    points = json.loads((tree / "summary.json").read_text())
    # The summary has more than the runs told: that comes from the settings.
    assert all("line_mb_per_s" in point for point in points)
    points[0]["mb_per_s"] = 99.9
    (tree / "summary.json").write_text(json.dumps(points))
    assert figures.read(figures.keep(tree, tmp_path / "kept")).points == sound.points
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
    assert check(figures, copy, monkeypatch) == 1
    said = capsys.readouterr().err
    assert ("shown on no page" if lost == "both" else f"{page}: the table '{name}' has no end") in said
    monkeypatch.setattr(sys, "argv", ["figures.py", "--top", str(copy)])
    assert figures.main() == 1 and path.read_text() == text


def test_a_tree_without_its_summary_is_kept_all_the_same(tree: Path, figures: ModuleType, tmp_path: Path) -> None:
    (tree / "summary.json").unlink()
    assert len(figures.read(figures.keep(tree, tmp_path / "kept")).points) == 2

# SPDX-License-Identifier: GPL-2.0-or-later
"""An experiment measured anew: what was there is kept until the new runs are, and nothing reads it meanwhile."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from run_records import make_record

from fabtune.cli.main import main
from fabtune.errors import ExitCode, FabtuneError
from fabtune.experiment import batch, definition
from fabtune.lab.image import find_image
from fabtune.measure import keptrun, recordfile
from fabtune.model.results import Point

TEXT = 'summary = "s"\nseeds = 1\n[factors]\nprofile = ["untouched", "wan"]\nrtt = ["20ms", "50ms"]\n'
OLD, NEW = 100.0, 7.0


def _point(profile: str, rtt_ms: float, mb_per_s: float) -> Point:
    figures = {"mb_per_s": mb_per_s, "bound_mb_per_s": 119.5, "fraction_of_bound": mb_per_s / 119.5}
    return Point({"profile": profile, "rtt_ms": rtt_ms, "op": "read", **figures})


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A whole tree of one run a combination, in out/exp, with its summary."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exp.toml").write_text(TEXT)
    wanted = definition.load("exp.toml")
    for run in batch.runs_of(wanted, wanted.combinations(), Path("out/exp")):
        label, rtt_ms = run.settings.profile, run.settings.rtt_ms
        recordfile.write(make_record(OLD, label=label, path={"rtt_ms": rtt_ms}), run.directory / "read.run.json.gz")
        run.keep([_point(label, rtt_ms, OLD)])
    assert main(["run", "exp.toml", "--resume"]) == ExitCode.DONE
    return tmp_path / "out/exp"


def _runs(tree: Path) -> dict[str, bytes]:
    return {str(path.relative_to(tree)): path.read_bytes() for path in sorted(tree.glob("*/run-1/*.json*"))}


@pytest.fixture
def guests(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Guests that measure at once, as many as the list's number says; then somebody presses Ctrl-C."""
    left = [1]

    def guest(machine: Any, _job: Path, draft: Path, **_others: object) -> SimpleNamespace:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        draft.mkdir()
        (draft / "points.json").write_text(keptrun.as_text([_point("untouched", 20.0, NEW)]))
        return SimpleNamespace(exit_status=0)

    monkeypatch.setattr(batch, "build_module", lambda _image: None)
    monkeypatch.setattr(batch, "build_image", lambda name, _progress: find_image(name))
    monkeypatch.setattr(batch, "write_job", lambda *_words, **_others: None)
    monkeypatch.setattr(batch, "run_guest", guest)
    return left


def test_without_an_image_no_result_is_lost(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All runs were deleted before their images were built, and summary.json with them."""
    before, summary = _runs(tree), (tree / "summary.json").read_bytes()

    def no_image(*_: object) -> None:
        raise FabtuneError("no image: the archive does not answer")

    monkeypatch.setattr(batch, "build_image", no_image)
    assert main(["run", "exp.toml"]) == ExitCode.FAILED
    assert _runs(tree) == before
    assert (tree / ".earlier/summary.json").read_bytes() == summary
    told = capsys.readouterr().err
    assert "what was there before is kept in out/exp/.earlier until the runs in its place are measured" in told
    assert main(["run", "exp.toml", "--resume"]) == ExitCode.DONE
    assert (tree / "summary.json").read_bytes() == summary and not (tree / ".earlier").exists()


def test_a_report_is_left_where_nothing_is_measured_and_its_end_is_told(
    tree: Path, guests: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    """`run --resume` that had nothing to measure deleted the report of the very same runs, without a word."""
    assert main(["report", "out/exp"]) == ExitCode.DONE
    made = (tree / "report.html").read_bytes()
    for words in (["--resume"], ["--resume", "--only", "profile=wan"]):
        capsys.readouterr()
        assert main(["run", "exp.toml", *words]) == ExitCode.DONE
        assert (tree / "report.html").read_bytes() == made and "report.html" not in capsys.readouterr().err
        assert not (tree / ".earlier").exists()
    guests[0] = 4
    assert main(["run", "exp.toml"]) == ExitCode.DONE
    assert not (tree / "report.html").exists() and not (tree / ".earlier").exists()
    said = "report.html of the earlier runs is removed; `fabtune report out/exp` makes one of those that are there now"
    assert said in " ".join(capsys.readouterr().err.split())


def test_an_interrupt_leaves_the_earlier_runs_out_of_sight_until_all_are_measured(
    tree: Path, guests: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    before = _runs(tree)
    assert main(["run", "exp.toml", "--jobs", "1"]) == ExitCode.INTERRUPTED
    assert _runs(tree / ".earlier") == before
    told = capsys.readouterr().err
    assert "1 of 4 runs is kept" in told and "kept in out/exp/.earlier" in told
    # Nobody takes them for results of today.
    assert main(["report", "out/exp"]) == ExitCode.USAGE
    assert "no run records" in capsys.readouterr().err
    # Begun once more, the last of each is kept: the one that was measured since, and those it did not come to.
    since = _runs(tree)
    guests[0] = 1
    assert main(["run", "exp.toml", "--jobs", "1"]) == ExitCode.INTERRUPTED
    anew = {Path(name).parent for name in since}
    others = {name: text for name, text in before.items() if Path(name).parent not in anew}
    assert _runs(tree / ".earlier") == others | since
    guests[0] = 1
    assert main(["run", "exp.toml", "--only", "profile=wan", "--only", "rtt=50ms"]) == ExitCode.DONE
    assert len({Path(name).parent for name in _runs(tree / ".earlier")}) == 3
    guests[0] = 2
    assert main(["run", "exp.toml", "--resume"]) == ExitCode.DONE
    assert not (tree / ".earlier").exists()


def test_a_run_that_fails_takes_nothing_from_the_earlier_ones(
    tree: Path, monkeypatch: pytest.MonkeyPatch, guests: list[int]
) -> None:
    before = _runs(tree)

    def crashed(_machine: object, _job: Path, draft: Path, **_others: object) -> SimpleNamespace:
        draft.mkdir()
        (draft / "output.log").write_text("Kernel panic\n")
        return SimpleNamespace(exit_status=1)

    monkeypatch.setattr(batch, "run_guest", crashed)
    assert main(["run", "exp.toml", "--jobs", "1"]) == ExitCode.FAILED
    assert _runs(tree / ".earlier") == before
    assert {path.name for path in tree.glob("*/run-1/*")} == {"output.log", "index.html"}


def test_part_of_an_experiment_takes_nothing_from_the_summary_of_all(
    tree: Path, guests: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    """With --only one of four points, summary.json and the page lost the other three, whose runs were all there."""
    only = ["run", "exp.toml", "--only", "profile=untouched", "--only", "rtt=20ms"]
    assert main(only) == ExitCode.DONE
    rows = {(one["profile"], one["rtt_ms"]): one["mb_per_s"] for one in json.loads((tree / "summary.json").read_text())}
    others = {("untouched", 50.0): OLD, ("wan", 20.0): OLD, ("wan", 50.0): OLD}
    assert rows == {("untouched", 20.0): NEW, **others}
    told = capsys.readouterr()
    assert "3 runs of other combinations, which were there before, are shown as well" in " ".join(told.out.split())
    for page in ("figures.html", "index.html"):
        text = (tree / page).read_text()
        assert "fabtune run exp.toml" in text and "exp.toml --only" not in text
    assert "3 runs of other combinations" in (tree / "figures.html").read_text()


def test_a_part_is_called_one(tree: Path, guests: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    """Of runs that are not there, or are not those of the definition any more, nothing was said."""
    shutil.rmtree(tree / "profile=wan,rtt=20ms")
    (tree / "profile=wan,rtt=50ms/run-1/run.json").unlink()
    assert main(["run", "exp.toml", "--only", "profile=untouched", "--only", "rtt=20ms"]) == ExitCode.DONE
    said = "2 of 4 runs of the experiment are not there, or not to be used"
    assert said in " ".join(capsys.readouterr().out.split()) and said in (tree / "figures.html").read_text()
    assert len(json.loads((tree / "summary.json").read_text())) == 2

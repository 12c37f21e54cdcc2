# SPDX-License-Identifier: GPL-2.0-or-later
"""A run of an experiment that failed: it counts wherever its setting is judged, and is named with the way to repeat it.

What fails is seldom a run like the others, so that these stand for it nowhere.
"""

import html
import json
import re
from pathlib import Path

import pytest
from run_records import make_record

from fabtune.cli.main import main
from fabtune.errors import ExitCode, FabtuneError
from fabtune.experiment import batch, definition
from fabtune.measure import failedruns, recordfile
from fabtune.model.results import Point

TEXT = """summary = "s"
seeds = 6
[factors]
profile = ["untouched", "wan"]
[fixed]
rtt = "20ms"
op = "read"
[plot]
x = "profile"
[[expect]]
says = "wan is faster"
of = { profile = "wan" }
to = { profile = "untouched" }
at_least = 2
"""
WHY = "fio: no space left on the device"
AGAIN = "fabtune run exp.toml --out out/exp --resume"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six pairs, wan three times as fast; its second run failed, and another part of the matrix was measured since."""
    monkeypatch.chdir(tmp_path)
    Path("exp.toml").write_text(TEXT)
    wanted = definition.load("exp.toml")
    out = Path("out/exp")
    for run in batch.runs_of(wanted, wanted.combinations(), out):
        name, seed = run.settings.profile, run.settings.seed
        if (name, run.number) == ("wan", 2):
            run.directory.mkdir(parents=True)
            (run.directory / "output.log").write_text(f"loading\n{WHY}\n")
            continue
        rate = (300.0 if name == "wan" else 100.0) + seed
        made = make_record(rate, label=name, environment={"settings": {"seed": seed, "profile": name}})
        recordfile.write(made, run.directory / "read.run.json.gz")
        run.keep([Point({"profile": name, "rtt_ms": 20.0, "op": "read", "mb_per_s": rate, "seed": seed})])
    main(["run", "exp.toml", "--only", "profile=untouched", "--resume"])
    return out


def _first_screen(page: Path) -> str:
    text = re.sub(r"<[^>]+>", " ", page.read_text().split("<h2")[0].split("Did it help?", 1)[1])
    return " ".join(html.unescape(text).split())


def test_a_summary_beside_a_failed_run_is_no_verdict(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After `run --only` of other points the five runs that had not failed were "better"."""
    (wan,) = (one for one in json.loads((tree / "summary.json").read_text()) if one["profile"] == "wan")
    assert wan["verdict"] == "cannot tell" and wan["seeds"] == 5
    assert wan["why"] == "1 of 6 runs of wan failed; the others are no fair sample"
    assert main(["run", "exp.toml", "--only", "profile=untouched", "--resume"]) == ExitCode.CANNOT_TELL
    told = " ".join(capsys.readouterr().out.split())
    assert "cannot tell: wan is faster (1 of 6 runs of a point do not tell mb_per_s" in told
    assert "1 of 12 runs of the experiment is not there, or not to be used (failed: profile=wan run 2)" in told
    said = _first_screen(tree / "figures.html")
    assert "1 of 6 runs of wan failed" in said and "(failed: profile=wan run 2): --resume without --only" in said


def test_a_report_counts_a_run_that_left_no_record(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`report` said "Yes", of the five pairs that were left, and not a word of the sixth."""
    assert main(["report", str(tree)]) == ExitCode.DONE
    said = _first_screen(tree / "report.html")
    assert said.startswith("Cannot tell.") and "1 of 6 runs of wan failed" in said
    assert f"profile=wan/run-2/read.run.json.gz (incomplete: {WHY}; {AGAIN} measures it again alone)" in said
    assert f"{tree}/profile=wan/run-2: failed: {WHY}" in capsys.readouterr().err


def test_what_a_run_wrote_before_it_failed_is_not_taken_for_its_result(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It counted as the record of a run that had ended well, and the run as none that failed."""
    left = make_record(302.0, label="wan", environment={"settings": {"seed": 2, "profile": "wan"}})
    recordfile.write(left, tree / "profile=wan/run-2/read.run.json.gz")
    assert main(["report", str(tree)]) == ExitCode.DONE
    assert "1 of 6 runs of wan failed" in _first_screen(tree / "report.html")
    sides = [str(tree / f"profile={name}") for name in ("untouched", "wan")]
    assert main(["compare", *sides]) == ExitCode.CANNOT_TELL
    assert main(["compare", *(f"{side}/run-2" for side in sides)]) == ExitCode.CANNOT_TELL
    assert WHY in capsys.readouterr().err


def test_a_comparison_of_two_combinations_counts_it_too(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = [str(tree / f"profile={name}") for name in ("untouched", "wan")]
    assert main(["compare", *sides]) == ExitCode.CANNOT_TELL
    told = " ".join(capsys.readouterr().out.split())
    assert "1 of 6 runs of wan failed; the others are no fair sample" in told and "measures it again alone" in told


@pytest.mark.parametrize("place", ["out/exp", "out", "out/exp/profile=wan", "out/exp/profile=wan/run-2/.."])
def test_it_is_found_once_from_wherever_one_looks(place: str, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    (found,) = failedruns.stand_ins(Path())
    assert not found.complete and found.failed and found.label == "wan"
    assert [run.resolve() for run, _ in failedruns.find(Path())] == [Path(found.file).parent.resolve()]


def test_a_run_measured_since_is_no_failed_one(tree: Path) -> None:
    made = make_record(302.0, label="wan", environment={"settings": {"seed": 2, "profile": "wan"}})
    wanted = definition.load("exp.toml")
    (run,) = (one for one in batch.runs_of(wanted, wanted.combinations(), tree) if "wan/run-2" in str(one.directory))
    recordfile.write(made, run.directory / "read.run.json.gz")
    run.keep([Point({"profile": "wan", "rtt_ms": 20.0, "op": "read", "mb_per_s": 302.0, "seed": 2})])
    assert main(["report", str(tree)]) == ExitCode.DONE
    assert _first_screen(tree / "report.html").startswith("Yes.")


def test_who_ends_with_failed_runs_says_how_to_measure_only_these_again(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def crashed(*_: object) -> None:
        raise FabtuneError(WHY)

    monkeypatch.setattr(batch, "build_image", lambda name, _progress: name)
    monkeypatch.setattr(batch, "_run_one", crashed)
    assert main(["run", "exp.toml", "--resume"]) == ExitCode.FAILED
    told = capsys.readouterr().err
    assert f"1 of 12 runs failed:\nprofile=wan run 2: {WHY}\n" in told
    assert "11 of 12 runs are kept; measure the rest with `fabtune run exp.toml --resume`" in told


def test_a_record_cut_short_hides_no_other_run_s_failure(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One damaged record, of which the failed run's stand-in was made, ended the report of the whole tree."""
    path = tree / "profile=wan/run-6/read.run.json.gz"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:200])
    assert main(["report", str(tree)]) == ExitCode.FAILED
    said, told = _first_screen(tree / "report.html"), capsys.readouterr().err
    assert said.startswith("Cannot tell.") and "1 of 5 runs of wan failed" in said
    assert f"{tree}/profile=wan/run-2: failed: {WHY}" in told and "profile=wan/run-6" in told


def test_without_any_whole_record_of_its_settings_a_failed_run_is_named(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in tree.glob("profile=*/run-*/read.run.json.gz"):
        if path.parent != tree / "profile=untouched/run-1":
            path.chmod(0o644)
            path.write_bytes(b"not a record")
    assert main(["report", str(tree)]) == ExitCode.FAILED
    assert f"{tree}/profile=wan/run-2: failed: {WHY}" in capsys.readouterr().err
    assert [one.label for one in failedruns.stand_ins(tree)] == ["wan"]
    (tree / "profile=untouched/run-1/read.run.json.gz").unlink()
    assert failedruns.stand_ins(tree) == []


def test_an_index_without_a_failed_run_s_profile_is_named_and_the_run_counts(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = json.loads((tree / "index.json").read_text())
    for run in (run for cell in index["combinations"] for run in cell["runs"] if run["status"] == "failed"):
        del run["settings"]["profile"]
    (tree / "index.json").write_text(json.dumps(index))
    assert main(["report", str(tree)]) == ExitCode.DONE
    assert "1 of 6 runs of wan failed" in _first_screen(tree / "report.html")
    assert "does not say with which profile run 2 of profile=wan was to be made" in capsys.readouterr().err


def test_an_interleaved_session_names_its_failed_run_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for pair in range(6):
        for label, rate in (("default", 100.0), ("wan", 300.0)):
            made = make_record(rate + pair, label, pair, complete=(pair, label) != (3, "wan"), start=pair)
            recordfile.write(made, tmp_path / label / f"{pair}.run.json.gz")
    assert main(["report", str(tmp_path)]) == ExitCode.DONE
    said = _first_screen(tmp_path / "report.html")
    assert "Not used: wan/3.run.json.gz (incomplete: fio ended)." in said
    assert "A pair is not measured again alone: fabtune ab makes a whole session." in said
    capsys.readouterr()
    assert main(["compare", str(tmp_path / "default"), str(tmp_path / "wan")]) == ExitCode.CANNOT_TELL
    told = " ".join(capsys.readouterr().out.split())
    assert "wan/3.run.json.gz" in told and "A pair is not measured again alone: `fabtune ab` makes a whole" in told

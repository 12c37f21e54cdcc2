# SPDX-License-Identifier: GPL-2.0-or-later
"""Combinations that tell nothing, all of whose runs failed or are left out: each verb shows, counts and explains them.

They dropped out of `run`'s verdict, which was "Yes" at the points that were left.
"""

import html
import json
import re
from pathlib import Path
from typing import Any

import attrs
import pytest
from run_records import EMULATED, make_record

from fabtune.cli.main import main
from fabtune.errors import ExitCode, FabtuneError
from fabtune.experiment import batch, definition, fleet, inventory, left_out
from fabtune.measure import recordfile, resulttree
from fabtune.model.results import Point

TEXT = """summary = "s"
seeds = 3
[factors]
profile = ["untouched", "wan"]
rtt = ["20ms", "100ms"]
[fixed]
rate = "1gbit"
op = "read"
"""
PLOT = '[plot]\nx = "rtt"\nseries = "profile"\n[[expect]]\nsays = "fast"\nwhere = { profile = "wan" }\nat_least = 2\n'
WHY = "login timed out"
RATES = {"untouched": 50.0, "wan": 100.0}


class Lab:
    """Guests that measure at once: `fails` has (profile, rtt_ms, number), `faster` those that beat their bound."""

    def __init__(self) -> None:
        self.fails: set[tuple[str, float, int]] = set()
        self.faster: set[tuple[str, float, int]] = set()

    def measure(self, _definition: object, run: batch.Run, *_: object) -> None:
        settings = run.settings
        key = (settings.profile, settings.rtt_ms, run.number)
        if key in self.fails:
            run.directory.mkdir(parents=True)
            (run.directory / "output.log").write_text(f"loading\n{WHY}\n")
            raise FabtuneError(f"exit 1\n  {WHY}")
        rate = RATES[settings.profile] * (1 + 0.01 * run.number)
        # A load of depth 1 is bound where the line's rate is known.
        path = {"rtt_ms": settings.rtt_ms} | ({"rate_bytes_per_s": 1.25e8} if key in self.faster else {})
        around = EMULATED | {"settings": attrs.asdict(settings)}
        record = make_record(rate, settings.profile, path=path, environment=around)
        recordfile.write(record, run.directory / "read.run.json.gz")
        told: dict[str, Any] = {
            "profile": settings.profile,
            "rtt_ms": settings.rtt_ms,
            "op": "read",
            "seed": run.number,
        }
        run.keep([Point(told | {"mb_per_s": rate, "bound_mb_per_s": 119.5, "fraction_of_bound": rate / 119.5})])


ALL_WAN_FAR = {("wan", 100.0, number) for number in (1, 2, 3)}
NEAR = ["run", "exp.toml", "--only", "rtt=20ms", "--resume"]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.chdir(tmp_path)
    Path("exp.toml").write_text(TEXT)
    found = Lab()
    monkeypatch.setattr(batch, "build_image", lambda name, _progress: name)
    monkeypatch.setattr(batch, "_run_one", found.measure)
    return found


def _said(text: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def _first_screen(page: str) -> str:
    return _said(Path(page).read_text().split("<h2")[0])


def _rows() -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (one["profile"], f"{one['rtt_ms']:g}ms"): one for one in json.loads(Path("out/exp/summary.json").read_text())
    }


@pytest.mark.parametrize("plot", ["", PLOT])
def test_a_combination_that_failed_whole_counts_in_the_verdict(
    plot: str, lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was "Yes. wan against untouched: better at reads at 20 ms", with a footnote."""
    Path("exp.toml").write_text(TEXT + plot)
    lab.fails = ALL_WAN_FAR
    assert main(["run", "exp.toml"]) == ExitCode.FAILED
    capsys.readouterr()
    main(NEAR)
    told = _said(capsys.readouterr().out)
    assert "3 of 3 runs" in told and "cannot tell" in told, told
    for said in (_first_screen("out/exp/figures.html"), *([] if plot else [told])):
        assert "better at 1 of 2 points" in said and "cannot tell at 1 of 2 points" in said, said
        assert "3 of 3 runs of wan failed" in said and "no fair sample" not in said
    row = _rows()["wan", "100ms"]
    assert (row["verdict"], row["why"], row["failed"]) == ("cannot tell", "3 of 3 runs of wan failed", 3)
    assert (row["mb_per_s"], row["seeds"], row["op"]) == (None, 0, "read")
    assert "failed" not in _rows()["wan", "20ms"]


@pytest.mark.parametrize("plot", ["", PLOT])
def test_what_nothing_can_be_held_against_is_no_verdict_either(plot: str, lab: Lab) -> None:
    Path("exp.toml").write_text(TEXT + plot)
    lab.fails = {("untouched", rtt_ms, number) for _, rtt_ms, number in ALL_WAN_FAR}
    main(["run", "exp.toml"])
    main(NEAR)
    assert _rows()["wan", "100ms"]["why"] == "3 of 3 runs of untouched failed"
    assert "3 of 3 runs of untouched failed" in _first_screen("out/exp/figures.html")


@pytest.mark.parametrize("plot", ["", PLOT])
def test_a_profile_that_failed_everywhere_is_shown(plot: str, lab: Lab) -> None:
    Path("exp.toml").write_text(TEXT + plot)
    lab.fails = {("wan", rtt_ms, number) for _, _, number in ALL_WAN_FAR for rtt_ms in (20.0, 100.0)}
    main(["run", "exp.toml"])
    main(["run", "exp.toml", "--only", "profile=untouched", "--resume"])
    said = _first_screen("out/exp/figures.html")
    assert "Cannot tell. wan against untouched: cannot tell at all 2 points" in said
    assert "3 of 3 runs of wan failed" in said


def test_a_report_says_that_all_failed_and_counts_them(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """It said "0 runs of a side; at least 3 are needed", and of no run that it was incomplete."""
    lab.fails = ALL_WAN_FAR
    main(["run", "exp.toml"])
    assert main(["report", "out/exp"]) == ExitCode.DONE
    said = _first_screen("out/exp/report.html")
    assert "12 runs of xdd" in said and "3 incomplete" in said, said
    assert "cannot tell at 1 of 2 points (read at 100 ms)" in said and "3 of 3 runs of wan failed" in said
    assert "runs of a side" not in said


def test_a_comparison_with_what_failed_whole_says_so(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """It was "no run records here; make some with `fabtune measure`", exit 2."""
    lab.fails = ALL_WAN_FAR
    main(["run", "exp.toml"])
    capsys.readouterr()
    sides = [f"out/exp/profile={profile},rtt=100ms" for profile in RATES]
    assert main(["compare", *sides]) == ExitCode.CANNOT_TELL
    told = _said(capsys.readouterr().out)
    assert told.startswith("wan (B) against untouched (A)")
    assert "3 of 3 runs of wan failed" in told and WHY in told and "measures it again alone" in told


@pytest.mark.parametrize("verb", [["report", "out/exp"], ["compare", "out/exp", "out/exp/profile=wan,rtt=20ms"]])
def test_where_every_run_failed_that_is_the_error(
    lab: Lab, capsys: pytest.CaptureFixture[str], verb: list[str]
) -> None:
    lab.fails = {(profile, rtt_ms, number) for profile in RATES for _, _, number in ALL_WAN_FAR for rtt_ms in (20, 100)}
    main(["run", "exp.toml"])
    capsys.readouterr()
    assert main(verb) == ExitCode.USAGE
    told = capsys.readouterr().err
    assert f"out/exp: 12 runs, all of which failed: profile=untouched,rtt=20ms/run-1: {WHY}" in told
    assert "fabtune run exp.toml --out out/exp --resume" in told and "fabtune measure" not in told


@pytest.mark.parametrize("plot", ["", PLOT])
def test_a_run_that_cannot_be_right_is_left_out_by_run_too(
    plot: str, lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    """`report` and `compare` left it out, and `run` counted it: "better" of what they could not tell."""
    Path("exp.toml").write_text(TEXT.replace("seeds = 3", "seeds = 4") + plot)
    lab.faster = {("wan", 20.0, 2), *ALL_WAN_FAR, ("wan", 100.0, 4)}
    main(["run", "exp.toml"])
    told = _said(capsys.readouterr().out)
    law = "broken law: no direction is faster than its bound"
    first = _first_screen("out/exp/figures.html")
    assert "Cannot tell. wan against untouched: cannot tell at all 2 points" in first
    for said in (told, first):
        assert (
            "5 runs are left out, since their own figures cannot be right: profile=wan,rtt=100ms run 1: read:" in said
        )
        assert law in said and "and 2 more" in said
    near, far = (_rows()["wan", place] for place in ("20ms", "100ms"))
    assert (near["verdict"], near["seeds"], near["left_out"]) == ("cannot tell", 3, 1)
    assert near["why"] == (
        "1 of 4 runs of wan is left out, since their own figures cannot be right; the others are no fair sample"
    )
    assert near["mb_per_s"] == pytest.approx(103.0)
    assert far["why"] == "4 of 4 runs of wan are left out, since their own figures cannot be right"
    assert (far["mb_per_s"], far["left_out"], far["verdict"]) == (None, 4, "cannot tell")
    # The index has what each run left, whatever is made of it.
    index = resulttree.read_experiment(Path("out/exp/index.json"))
    assert all(run.points for cell in index.combinations for run in cell.runs)


def test_a_point_that_is_left_out_is_marked_wherever_all_points_stand(lab: Lab) -> None:
    """An impossible rate stood on three pages among the others, and one alone said that it was left out."""
    lab.faster = {("wan", 100.0, 2)}
    main(["run", "exp.toml"])
    mark, law = "left out", "Not used read: broken law: no direction is faster than its bound"
    top, far = Path("out/exp"), Path("out/exp/profile=wan,rtt=100ms")
    for made_anew in (False, True):
        assert not made_anew or main(["report", "--tree", "out"]) == ExitCode.DONE
        told = {path: _said((path / "index.html").read_text()) for path in (top, far, far / "run-2")}
        assert all(said.count(mark) == said.count("cannot be right") == 1 for said in told.values()), told
        assert law in told[far / "run-2"]
        for other in (far / "run-1", Path("out/exp/profile=wan,rtt=20ms")):
            assert mark not in _said((other / "index.html").read_text())
    # The index has what each run left, whatever is made of it.
    index = resulttree.read_experiment(top / "index.json")
    assert not any("left_out" in point for cell in index.combinations for run in cell.runs for point in run.points)


def test_what_is_expected_is_not_judged_by_a_run_that_is_left_out(lab: Lab) -> None:
    Path("exp.toml").write_text(TEXT + PLOT)
    lab.faster = ALL_WAN_FAR
    main(["run", "exp.toml"])
    wanted = definition.load("exp.toml")
    runs = batch.runs_of(wanted, wanted.combinations(), Path("out/exp"))
    (judged,) = batch.judge(wanted, runs)
    assert judged.holds and judged.found.startswith("at 1 of 2 combinations: ")


@pytest.mark.parametrize("figures", [1, 2])
def test_a_statement_is_not_judged_by_what_is_left_of_a_point(
    figures: int, lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    """With two of three runs left out it was "as expected: fast (101)", exit 0, where the table said "cannot tell"."""
    Path("exp.toml").write_text(TEXT + PLOT)
    lab.faster = {("wan", 100.0, number) for number in range(figures + 1, 4)}
    assert main(["run", "exp.toml"]) == ExitCode.CANNOT_TELL
    untold = f"{3 - figures} of 3 runs of a point do not tell mb_per_s; the others are no fair sample"
    assert f"cannot tell: fast ({untold})" in _said(capsys.readouterr().out)


def test_a_host_that_cannot_be_right_takes_the_sum_with_it(tmp_path: Path) -> None:
    run = tmp_path / "run-1"
    paths: dict[str, dict[str, float]] = {"a": {}, "b": {"rtt_ms": 20, "rate_bytes_per_s": 1.25e8}}
    for host, path in paths.items():
        recordfile.write(make_record(100.0, path=path, environment=EMULATED), run / host / "read.run.json.gz")
    points = [Point({"op": op, "host": host}) for op in ("read", "write") for host in ("a", "b", "all")]
    sound, void, whys = left_out.sifted(run, points)
    assert void == [points[1], points[2]] and sound == [points[0], *points[3:]]
    assert len(whys) == 1 and whys[0].startswith("b, read: broken law: no direction is faster")


def test_a_fleet_that_failed_whole_is_a_row_a_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("exp.toml").write_text('seeds = 3\n[factors]\nprofile = ["untouched", "wan"]\n[fixed]\nop = "read"\n')
    monkeypatch.setattr(inventory, "load", lambda path: inventory.Inventory(path, ("a",), ("t",)))

    def measured(_: object, run: batch.Run, *rest: object) -> None:
        if run.settings.profile == "wan":
            run.directory.mkdir(parents=True)
            (run.directory / "ansible.log").write_text("unreachable\n")
            raise FabtuneError("a: unreachable")
        recordfile.write(make_record(100.0, "untouched"), run.directory / "a/read.run.json.gz")
        told: dict[str, Any] = {"profile": "untouched", "op": "read", "mb_per_s": 100.0}
        run.keep([Point(told | {"host": host}) for host in ("a", "all")])

    monkeypatch.setattr(fleet, "_run", measured)
    monkeypatch.setattr(fleet, "_check_untouched", lambda _: None)
    asked = ["run", "exp.toml", "--fleet", "hosts.ini", "--out", "out/exp"]
    assert main(asked) == ExitCode.FAILED
    assert main([*asked, "--only", "profile=untouched", "--resume"]) == ExitCode.DONE
    rows = json.loads(Path("out/exp/summary.json").read_text())
    failed = [(one["host"], one["verdict"], one["why"]) for one in rows if one["profile"] == "wan"]
    assert failed == [(host, "cannot tell", "3 of 3 runs of wan failed") for host in ("a", "all")]


def test_a_run_that_failed_first_is_said_to_have_done_so(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """Measured again until it did not fail, it was "better, 3 seeds" without a word of the failure."""
    lab.fails = {("wan", 100.0, 2)}
    assert main(["run", "exp.toml"]) == ExitCode.FAILED
    lab.fails = set()
    assert main(["run", "exp.toml", "--resume"]) == ExitCode.DONE
    name = "profile=wan,rtt=100ms"
    said = f"1 run failed before it was measured: {name} run 2: {WHY}"
    assert said in _said(capsys.readouterr().out)
    assert said in _first_screen("out/exp/figures.html")
    assert f"Failed before {WHY}" in _said(Path(f"out/exp/{name}/run-2/index.html").read_text())
    index = resulttree.read_experiment(Path("out/exp/index.json"))
    before = {(cell.name, run.number): run.failed_before for cell in index.combinations for run in cell.runs}
    assert before.pop((name, 2)) == WHY and not any(before.values())
    # It stays so for whoever looks later, and is of the measurement that goes on, not of one that begins anew.
    assert main(["run", "exp.toml", "--resume"]) == ExitCode.DONE
    assert said in _said(capsys.readouterr().out)
    main(["report", "out/exp"])
    assert f"{name}/run-2: failed before it was measured: {WHY}" in capsys.readouterr().err
    assert main(["run", "exp.toml"]) == ExitCode.DONE
    assert "failed before" not in capsys.readouterr().out


def test_a_failed_run_lacks_what_others_of_its_kind_tell_and_no_more(lab: Lab) -> None:
    """A load told to move data both ways may move it one way alone: of the other nothing is missed."""
    Path("exp.toml").write_text(TEXT.replace('op = "read"\n', ""))
    lab.fails = ALL_WAN_FAR
    main(["run", "exp.toml"])
    main(NEAR)
    rows = json.loads(Path("out/exp/summary.json").read_text())
    assert {one["op"] for one in rows} == {"read"} and len(rows) == 4
    assert "loss" not in _rows()["wan", "100ms"]

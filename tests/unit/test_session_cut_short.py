# SPDX-License-Identifier: GPL-2.0-or-later
"""Interleaved sessions that do not go as planned: what is kept of them, and what may be said of it."""

import errno
from pathlib import Path
from typing import Any

import attrs
import pytest
from run_records import make_record

from fabtune.cli.main import main
from fabtune.errors import ExitCode
from fabtune.experiment import alternation
from fabtune.host import files
from fabtune.measure import recordfile
from fabtune.measure.measurement import Measurement
from fabtune.measure.workload_run import IncompleteError
from fabtune.model import judgement
from fabtune.model.runrecord import INTERRUPTED, RunRecord, SessionTurn
from fabtune.report import compare, verdict_table
from fabtune.report.compare import Comparison

SIDES = ["ab", "untouched", "wan", "xdd", "--switch", "/bin/true", "--calibrate", "0", "--settle", "0s", "--seed", "1"]


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words of a session of four pairs whose runs are made up."""
    made: list[str] = []

    def measured(_: Measurement, profile: str, __: object) -> RunRecord:
        made.append(profile)
        return make_record({"untouched": 100.0, "wan": 200.0}[profile] + len(made), profile, start=float(len(made)))

    monkeypatch.setattr(Measurement, "measure", measured)
    monkeypatch.setattr(alternation, "switch", lambda *_: None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "elsewhere"))
    monkeypatch.chdir(tmp_path)
    Path("disk").mkdir()
    return [*SIDES, "--on", str(tmp_path / "disk"), "--out", "runs", "--set", "op=read", "--pairs", "4"]


def _fills_up(monkeypatch: pytest.MonkeyPatch, *full: str) -> None:
    """Let three records into ``runs``, and no more; none into other directories that are `full`."""
    keep, kept = files.keep, []

    def until_full(path: Path, *rest: Any, **more: Any) -> None:
        kept.append(path)
        if len(kept) > 3 and path.parts[0] == "runs" or str(path.parent) in full:
            raise OSError(errno.ENOSPC, "No space left on device")
        keep(path, *rest, **more)

    monkeypatch.setattr(files, "keep", until_full)


def test_a_full_disk_loses_no_run_of_a_session(
    session: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run just made was lost and the session ended, where `measure` keeps its record elsewhere."""
    _fills_up(monkeypatch)
    assert main(session) == ExitCode.FAILED
    told = capsys.readouterr()
    elsewhere = tmp_path / "elsewhere"
    assert (len(recordfile.find(Path("runs"))), len(recordfile.find(elsewhere))) == (3, 5)
    assert "wan (B) against untouched (A)" in told.out and "n=4" in told.out
    assert "No space left on device" in told.err
    assert f"report runs; 5 records could not be kept there: bring them from {elsewhere} first" in told.err
    # Theirs is the order of the session.
    assert [path.name[:4] for path in recordfile.find(elsewhere)] == ["01-A", "02-A", "02-B", "03-A", "03-B"]


def test_a_session_that_nothing_has_room_for_says_what_is_kept(
    session: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _fills_up(monkeypatch, str(tmp_path / "elsewhere"))
    assert main(session) == ExitCode.FAILED
    told = capsys.readouterr().err
    assert "1 of 4 pairs is kept in runs (" in told and "No space left on device" in told


def _looked_at(pairs: int, *more: RunRecord, failed: int = -1) -> Comparison:
    """A session of at most 24 pairs that may stop early, of which so many were made; in one of them a run failed."""
    rules = judgement.rules_with_looks(24)
    made = [
        attrs.evolve(
            make_record(rate, label, start=float(pair), complete=pair != failed or side == "A"),
            session=SessionTurn("s-pairs", pair, side, rules),
        )
        for pair in range(pairs)
        for side, label, rate in (("A", "untouched", 100 + pair % 3), ("B", "wan", 101.2 + (pair * 7) % 5))
    ]
    found = compare.compare_session([*made, *more])
    assert found
    return found


def _said_of_looks(found: Comparison) -> list[str]:
    return [one for one in verdict_table.notes(found) if "ook" in one]


def test_a_session_is_judged_at_a_look_that_was_planned() -> None:
    """Ended after 12 pairs it was judged at these twelve, and said to have been looked at after sixteen."""
    between, at_eight = _looked_at(12), _looked_at(8)
    assert between.primary[0].judgement == at_eight.primary[0].judgement and between.primary[0].judgement.n == 8
    levels = "each look judges at 1.5 %, so that all 4 together err in 5 % of sessions."
    assert _said_of_looks(at_eight) == [f"Looked at after 6, 8 of at most 24 pairs: {levels}"]
    ended = "The session ended after 12, between two looks: those after the last look do not count."
    assert _said_of_looks(between) == [f"{_said_of_looks(at_eight)[0]} {ended}"]


def test_before_its_first_look_a_session_tells_nothing() -> None:
    """Ended after 4 pairs, which no look was planned at, it was "better", "looked at after 6"."""
    found = _looked_at(4)
    assert found.exit_code == ExitCode.CANNOT_TELL
    assert {row.judgement.verdict for row in found.rows} == {judgement.Verdict.CANNOT_TELL}
    why = "the session ended after 4 of at most 24 pairs, before its first look, after 6"
    assert _said_of_looks(found) == [f"cannot tell: {why}"]


def test_a_look_is_reached_by_the_pairs_that_were_made() -> None:
    """A run that failed was made; one that Ctrl-C ended was not."""
    assert _looked_at(8, failed=7).looked[0].taken == (6, 8)
    rules = judgement.rules_with_looks(24)
    stopped = [
        attrs.evolve(make_record(100.0, label, complete=side == "A"), session=SessionTurn("s-pairs", 7, side, rules))
        for side, label in (("A", "untouched"), ("B", "wan"))
    ]
    cut = _looked_at(7, stopped[0], attrs.evolve(stopped[1], problem=INTERRUPTED))
    assert cut.looked[0].taken == (6,) and cut.primary[0].judgement.n == 6
    assert _looked_at(24).looked[0].taken == (6, 8, 16, 24)


@pytest.mark.parametrize(("failed", "runs", "code"), [(4, 12, ExitCode.CANNOT_TELL), (0, 12, ExitCode.DONE)])
def test_a_session_ends_at_the_look_after_which_no_run_decides_anything(
    failed: int, runs: int, code: ExitCode, session: list[str],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """A run that failed leaves no fair sample: the other 44 were made all the same, for "cannot tell"."""
    made: list[str] = []

    def measured(_: Measurement, profile: str, __: object) -> RunRecord:
        made.append(profile)
        taken = make_record(100.0 + 0.1 * len(made) + 100 * (profile == "wan"), profile, start=float(len(made)))
        if len(made) == failed:
            raise IncompleteError("fio ended", attrs.evolve(taken, complete=False, problem="fio ended"))
        return taken

    monkeypatch.setattr(Measurement, "measure", measured)
    assert main([*session[:-1], "24", "--until", "decided"]) == code
    assert len(made) == runs
    told = capsys.readouterr()
    said = "ended after 6 of at most 24 pairs, undecided: what a run does not tell, no further one can"
    assert (said in told.err) == bool(failed) and ("failed; the others are no fair sample" in told.out) == bool(failed)


def test_what_noise_leaves_undecided_asks_for_more_runs() -> None:
    assert not _looked_at(8).settled and _looked_at(8, failed=7).settled
    assert not _looked_at(8, failed=7).decided

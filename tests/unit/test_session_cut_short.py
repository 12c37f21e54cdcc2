# SPDX-License-Identifier: GPL-2.0-or-later
"""Interleaved sessions that do not go as planned: what is kept of them, and what may be said of it."""

import errno
from pathlib import Path
from typing import Any

import pytest
from run_records import make_record

from fabtune.cli.main import main
from fabtune.errors import ExitCode
from fabtune.experiment import alternation
from fabtune.host import files
from fabtune.measure import recordfile
from fabtune.measure.measurement import Measurement
from fabtune.model.runrecord import RunRecord

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

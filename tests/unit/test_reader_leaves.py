# SPDX-License-Identifier: GPL-2.0-or-later
"""A reader of stdout that leaves early (`| head`) changes nothing: no verb ends otherwise than with one that stays.

A full disk behind it is an error, and told as one.
"""

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import attrs
import hosttree
import pytest
from run_records import make_record

from fabtune.cli import experiment, measure
from fabtune.cli import guard as guarding
from fabtune.cli.main import main
from fabtune.errors import ExitCode
from fabtune.experiment.expect import JudgedExpectation
from fabtune.experiment.publish import Published
from fabtune.guard.news import WARNING, Told
from fabtune.measure import recordfile, workload_run
from fabtune.report import suite
from fabtune.tune import readiness


@pytest.fixture
def nobody_reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Return what makes stdout a pipe whose reader is gone; each line is written at once."""
    opened = []

    def leave() -> None:
        read, write = os.pipe()
        os.close(read)
        opened.append(os.fdopen(write, "w", buffering=1))
        monkeypatch.setattr(sys, "stdout", opened[-1])

    yield leave
    monkeypatch.undo()
    for one in opened:
        with contextlib.suppress(BrokenPipeError):
            one.close()


@pytest.mark.parametrize(("uneasy", "code"), [(True, ExitCode.DRIFT), (False, ExitCode.DONE)])
def test_guard_ends_with_what_it_has_seen(
    nobody_reads: Callable[[], None], monkeypatch: pytest.MonkeyPatch, uneasy: bool, code: ExitCode
) -> None:
    told = [Told("drift", WARNING, "a value differs")]
    guard = SimpleNamespace(look=lambda _: told, uneasy=uneasy, end=lambda: None)
    monkeypatch.setattr(guarding, "Guard", lambda heal: guard)
    nobody_reads()
    assert main(["guard"]) == code


def test_measure_keeps_its_exit_code(
    nobody_reads: Callable[[], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    record = attrs.evolve(make_record(10), complete=False)

    def stopped(_: object) -> None:
        raise workload_run.RunInterruptedError("interrupted", record)

    monkeypatch.setattr(measure, "_load", stopped)
    nobody_reads()
    assert main(["measure", "xdd", "--on", "/dev/sdx", "--out", str(tmp_path)]) == ExitCode.INTERRUPTED


def test_doctor_keeps_its_exit_code(
    nobody_reads: Callable[[], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hosttree.enter(hosttree.make(tmp_path / "root"), monkeypatch)
    monkeypatch.setattr(readiness, "exit_code", lambda _: ExitCode.NEEDS_ACTION)
    for words in (["doctor"], ["doctor", "--json"]):
        nobody_reads()
        assert main(words) == ExitCode.NEEDS_ACTION


def test_report_keeps_its_exit_code(
    nobody_reads: Callable[[], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    recordfile.keep(make_record(10), tmp_path)
    (tmp_path / "damaged.run.json.gz").write_text("no record")
    monkeypatch.setattr(suite, "write", lambda *_: "report.html")
    for words in (["report", str(tmp_path)], ["report", str(tmp_path), "--json"]):
        nobody_reads()
        assert main(words) == ExitCode.FAILED


def test_what_was_published_of_an_experiment_is_judged(nobody_reads: Callable[[], None], tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    shown = Published(points=(), tables=(), texts=("a sentence",), part="", page=nothing, kept=nothing)
    for as_json in (False, True):
        nobody_reads()
        experiment._show(shown, [JudgedExpectation("faster", False, "not so")], as_json)


@pytest.mark.parametrize(
    ("words", "code"),
    [(["history", "nosuch"], ExitCode.USAGE), (["plann"], ExitCode.USAGE), (["profiles"], ExitCode.FAILED)],
)
def test_a_full_disk_behind_stdout_is_told_where_each_line_is_written_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], code: ExitCode
) -> None:
    """With PYTHONUNBUFFERED the document about an error ended in a traceback of its own."""
    with Path("/dev/full").open("wb", buffering=0) as full:
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(full, write_through=True))
        assert main([*words, "--json"]) == code
    assert capsys.readouterr().err.startswith("fabtune: ")

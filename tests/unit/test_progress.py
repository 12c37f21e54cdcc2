# SPDX-License-Identifier: GPL-2.0-or-later
"""What long work says meanwhile: whole lines, a time left that learns, and what is kept when it is interrupted."""

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from fabtune.cli.main import main
from fabtune.errors import ExitCode, FabtuneError
from fabtune.experiment import batch, definition
from fabtune.model.results import Point
from fabtune.progress import Estimate, Progress, clock_text


class Pieces:
    """A stderr that keeps what each write brought."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def write(self, text: str) -> int:
        self.found.append(text)
        return len(text)

    def flush(self) -> None: ...


def test_lines_of_steps_side_by_side_do_not_run_into_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = Pieces()
    monkeypatch.setattr(sys, "stderr", pieces)
    show = Progress()
    show.begin([(f"run {number}", 1.0) for number in range(8)], at_once=8)
    together = threading.Barrier(8)

    def work(name: str) -> None:
        together.wait()
        with show.step(name):
            show.say(f"{name} works")

    threads = [threading.Thread(target=work, args=[f"run {number}"]) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    # Whatever the kernel does between two writes: each of them is one whole line.
    assert len(pieces.found) == 3 * 8
    assert all(text.startswith("fabtune: run ") and text.count("\n") == 1 and text[-1] == "\n" for text in pieces.found)
    assert sum("8 of 8" in text or "left" in text for text in pieces.found) == 7


def test_the_time_left_learns_from_the_steps_that_are_done() -> None:
    found = Estimate()
    found.expect([("image", 100.0)])
    found.expect([(f"run {number}", 75.0) for number in range(6)], at_once=2)
    found.start("image", 0)
    assert found.left_s(0) == 100 + 6 * 75 / 2
    # An image that took half as long says nothing of the runs.
    found.end("image", 50)
    assert found.left_s(50) == 225
    found.start("run 0", 50)
    found.start("run 1", 50)
    found.end("run 0", 200)
    # Twice as long as expected: so will the others be, and run 1 is due.
    assert found.left_s(200) == 4 * 150 / 2
    assert found.counts("run 3") == (1, 6)
    found.start("run 2", 200)
    found.end("run 1", 200)
    for name in ("run 3", "run 4"):
        found.start(name, 200)
        found.end(name, 350)
    found.end("run 2", 350)
    # The last one has nobody beside it.
    found.start("run 5", 350)
    assert found.left_s(350) == 150 and found.left_s(400) == 100 and found.left_s(900) == 0
    assert 0 < found.share(350) < found.share(400) < found.share(499) <= 1


def test_a_step_that_fails_early_is_over_and_nothing_is_learned_from_it(capsys: pytest.CaptureFixture[str]) -> None:
    show = Progress()
    show.begin([("one", 60.0), ("two", 60.0), ("three", 60.0)])
    with pytest.raises(FabtuneError), show.step("one"):
        raise FabtuneError("the guest died")
    assert capsys.readouterr().err.splitlines()[-1] == (
        "fabtune: one: ended after 0 s, not done; 1 of 3, about 2:00 min left"
    )
    for name in ("two", "three"):
        with show.step(name):
            pass
    assert capsys.readouterr().err.splitlines()[-1] == "fabtune: three: done in 0 s"


def test_the_time_left_learns_from_a_step_that_failed_late() -> None:
    """Each of 126 runs may end at its time limit as the first did: "about 2:36 h left", by 75 s a run."""
    found = Estimate()
    found.expect([(f"run {number}", 75.0) for number in range(126)])
    found.start("run 0", 0)
    found.give_up("run 0", 1829)
    assert found.counts("run 1") == (1, 126) and found.left_s(1829) == pytest.approx(125 * 1829)
    # One that is done in time says as much as one that failed late.
    found.start("run 1", 1829)
    found.end("run 1", 1900)
    assert found.left_s(1900) == pytest.approx(124 * (1829 + 71) / 2)
    # How long one ran that failed at once says nothing of those that will not.
    found.start("run 2", 1900)
    found.give_up("run 2", 1901)
    assert found.left_s(1901) == pytest.approx(123 * (1829 + 71) / 2) and found.counts("run 3") == (3, 126)
    assert 0 < found.share(1901) < 1


def test_a_run_that_failed_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    definition_file = tmp_path / "mine.toml"
    definition_file.write_text('seeds = 1\n[factors]\nrtt = ["0ms", "20ms"]\n')
    wanted = definition.load(str(definition_file))
    runs = batch.runs_of(wanted, wanted.combinations([]), tmp_path)
    said: list[str] = []
    show = Progress(quiet=True)
    monkeypatch.setattr(show, "say", said.append)
    monkeypatch.setattr(batch, "build_image", lambda suite, progress: suite)

    def measured(found: Any, run: batch.Run, *more: Any) -> None:
        if run is runs[0]:
            raise FabtuneError("exit 1 (files in here)\n  the last lines")
        assert said == ["rtt=0ms run 1: exit 1 (files in here)"]

    monkeypatch.setattr(batch, "_run_one", measured)
    with pytest.raises(FabtuneError, match=r"(?s)1 of 2 runs failed:.*the last lines"):
        batch.run_all(wanted, runs, resume=True, progress=show, jobs=1)


def test_a_step_that_nobody_announced_counts_as_it_comes() -> None:
    found = Estimate()
    found.start("extra", 0)
    assert found.left_s(4) == 6
    found.end("extra", 5)
    assert found.left_s(5) == 0 and found.share(5) == 1


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00 min"), (65.4, "1:05 min"), (3599.6, "1:00:00 h"), (-3, "0:00 min")]
)
def test_a_time_is_read_at_a_glance(seconds: float, text: str) -> None:
    assert clock_text(seconds) == text


def test_an_interrupted_experiment_says_what_is_kept_and_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    definition_file, out = tmp_path / "mine.toml", tmp_path / "my out"
    definition_file.write_text('seeds = 2\n[factors]\nrtt = ["0ms", "20ms"]\n')
    wanted = definition.load(str(definition_file))

    def stop(found: Any, runs: list[batch.Run], **more: Any) -> None:
        runs[0].keep([Point({"op": "read", "profile": "wan", "rtt_ms": 0.0, "mb_per_s": 1.0})])
        raise KeyboardInterrupt

    monkeypatch.setattr(batch, "run_all", stop)
    code = main(["run", str(definition_file), "--only", "rtt=0ms", "--out", str(out), "--jobs", "1"])
    said = capsys.readouterr().err
    assert code == ExitCode.INTERRUPTED
    assert "interrupted: 1 of 2 runs is kept; go on with `fabtune run" in said
    assert f"--only rtt=0ms --out '{out}' --jobs 1 --resume`" in said
    runs = batch.runs_of(wanted, wanted.combinations(["rtt=0ms"]), out)
    assert [run.state().status for run in runs] == ["measured", "not run"]

# SPDX-License-Identifier: GPL-2.0-or-later
"""An experiment runs no more guests at once than this process has CPUs and this computer memory."""

import os
from pathlib import Path
from typing import Any

import pytest

from fabtune.cli.main import main
from fabtune.errors import ExitCode
from fabtune.experiment import at_once, batch, definition
from fabtune.progress import Progress


@pytest.fixture(autouse=True)
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(at_once, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5, 7})
    Path("exp.toml").write_text("seeds = 64\n[factors]\nrtt = ['0ms']\n")


@pytest.mark.parametrize(("free_mib", "guests"), [(65536, 4), (7000, 3), (100, 1)])
def test_guests_are_as_many_as_cpus_and_memory_allow(
    free_mib: int, guests: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a large computer one a core needed more memory than it had; on a few of its CPUs they took turns."""
    Path("meminfo").write_text(f"MemFree:  1000 kB\nMemAvailable: {free_mib * 1024} kB\n")
    workers: list[int] = []
    monkeypatch.setattr(batch, "build_image", lambda *_: None)

    def waiting(*words: Any) -> list[Any]:
        workers.append(words[3])
        return []

    monkeypatch.setattr(batch, "_run_waiting", waiting)
    wanted = definition.load("exp.toml")
    runs = batch.runs_of(wanted, wanted.combinations(), Path("out"))
    batch.run_all(wanted, runs, resume=False, progress=Progress(quiet=True))
    batch.run_all(wanted, runs, resume=False, progress=Progress(quiet=True), jobs=7)
    assert workers == [guests, 7]
    assert main(["run", "exp.toml", "--dry-run"]) == ExitCode.DONE
    assert f"about {64 * batch.EXPECTED_RUN_S / guests / 60:.0f} minutes" in capsys.readouterr().err

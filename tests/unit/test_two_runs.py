# SPDX-License-Identifier: GPL-2.0-or-later
"""Two experiments are not measured into one directory at once."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from fabtune.cli.main import main
from fabtune.errors import ExitCode
from fabtune.experiment import batch
from fabtune.lab.image import find_image
from fabtune.measure import keptrun
from fabtune.model.results import Point


@pytest.fixture
def codes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The exit codes of `fabtune run` begun while the guest of another runs."""
    found: list[int] = []

    def guest(_machine: object, _job: Path, draft: Path, **_others: object) -> SimpleNamespace:
        if not found:
            found.append(-1)
            found[:] = [main(["run", "exp.toml", *more]) for more in ((), ("--dry-run", "--resume"))]
        draft.mkdir()
        point = Point({"op": "read", "seed": 1, "mb_per_s": 9.0, "profile": "untouched", "rtt_ms": 0.0})
        point |= {"bound_mb_per_s": 10.0, "fraction_of_bound": 0.9}
        (draft / keptrun.POINTS).write_text(keptrun.as_text([point]))
        return SimpleNamespace(exit_status=0)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(batch, "build_module", lambda _image: None)
    monkeypatch.setattr(batch, "build_image", lambda name, _progress: find_image(name))
    monkeypatch.setattr(batch, "write_job", lambda *_words, **_others: None)
    monkeypatch.setattr(batch, "run_guest", guest)
    Path("exp.toml").write_text('seeds = 1\n[factors]\nop = ["read"]\n')
    return found


def test_a_second_run_into_one_directory_is_refused_and_changes_nothing(
    codes: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    """It removed what the first had measured, and the first then failed on what the second had left."""
    assert main(["run", "exp.toml"]) == ExitCode.DONE
    assert codes == [ExitCode.USAGE, ExitCode.DONE]
    told = capsys.readouterr().err
    assert f"--out out/exp: process {os.getpid()} is measuring into it; wait for it, or name another directory" in told
    assert Path("out/exp/summary.json").exists() and not Path("out/exp/.earlier").exists()


def test_once_it_has_ended_the_directory_is_free(codes: list[int]) -> None:
    assert main(["run", "exp.toml"]) == ExitCode.DONE
    assert main(["run", "exp.toml", "--resume"]) == ExitCode.DONE
    assert codes == [ExitCode.USAGE, ExitCode.DONE]

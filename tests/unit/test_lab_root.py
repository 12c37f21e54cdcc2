# SPDX-License-Identifier: GPL-2.0-or-later
"""User Mode Linux runs inside a root of its own, with mounts: who is not root is told before anything is done."""

import os
from pathlib import Path

import pytest

from fabtune.cli.main import main
from fabtune.errors import ExitCode


@pytest.mark.parametrize("action", ["run {here}/script", "run --clock real {here}/script", "shell"])
def test_user_mode_linux_without_root_is_said_before_anything_starts(
    action: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Behind sudo the guest lost its channels, and that it could not be ended hid why."""
    (tmp_path / "script").write_text("true\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    verb, *rest = action.format(here=tmp_path).split()
    assert main(["lab", verb, "--accel", "uml", *rest]) == ExitCode.USAGE
    assert "--accel uml: needs root" in capsys.readouterr().err
    assert not (tmp_path / "cache").exists()

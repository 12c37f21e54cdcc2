# SPDX-License-Identifier: GPL-2.0-or-later
"""The target's end on another host: this one looks when that one does, with a program in ssh's place."""

import threading
from pathlib import Path

import pytest

from fabtune.errors import FabtuneError
from fabtune.measure.away import AwayEnd


def _in_place_of_ssh(place: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = place / "ssh"
    program.write_text(f"#!/bin/sh\ncd {place}\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:/usr/bin:/bin")


def test_this_host_waits_until_the_other_one_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ssh and Python take seconds on a busy host: of a short look the ends would have nothing in common."""
    (tmp_path / "told").write_text('{\n  "ends": []\n}\n')
    script = "echo Welcome >&2; until [ -e go ]; do sleep 0.01; done; echo 'looking for 1 s ...' >&2; cat told"
    _in_place_of_ssh(tmp_path, monkeypatch, script)
    away = AwayEnd("target", 1.0)
    waiting = threading.Thread(target=away.wait_until_begun)
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    (tmp_path / "go").touch()
    waiting.join()
    assert away.seen() == ()


def test_nobody_waits_for_a_host_that_has_said_no(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _in_place_of_ssh(tmp_path, monkeypatch, "echo Permission denied >&2; exit 255")
    away = AwayEnd("target", 1.0)
    away.wait_until_begun()
    with pytest.raises(FabtuneError, match="ssh ended with 255"):
        away.seen()

# SPDX-License-Identifier: GPL-2.0-or-later
"""Which stack of the randomised model test need not be measured again."""

import json
import sys
from pathlib import Path

import pytest

from fabtune.installed import PACKAGE

sys.path.insert(0, str(PACKAGE.parents[1] / "tests/vm"))

import model as check_model  # noqa: E402


def _row(directory: Path, requests: int, of: str) -> Path:
    file = directory / "model.json"
    file.write_text(json.dumps({"stack": "iscsi", "requests": requests, "differences": 0, "digest": of}))
    return file


def test_a_stack_is_kept_with_its_requests_and_its_code_alone(tmp_path: Path) -> None:
    file = _row(tmp_path, 1000, "this module")
    assert check_model.kept(file, 1000, "this module")
    assert check_model.kept(file, 1001, "this module") is None
    assert check_model.kept(file, 1000, "another module") is None
    assert check_model.kept(tmp_path / "none.json", 1, "this module") is None


def test_the_digest_names_the_module_the_model_and_the_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = check_model.digest(1)
    assert check_model.digest(2) != before == check_model.digest(1)
    guest = tmp_path / "model_guest.py"
    guest.write_text("another model")
    monkeypatch.setattr(check_model, "_GUEST", guest)
    assert check_model.digest(1) != before
    monkeypatch.setattr(check_model, "source_digest", lambda: "another module")
    assert check_model.digest(1) != before


def test_what_is_missing_is_said_and_only_the_rest_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = []

    def measure(stack: str, requests: int, seed: int, directory: Path, of: str) -> bool:
        measured.append(stack)
        directory.mkdir(parents=True)
        _row(directory, requests, of)
        return True

    monkeypatch.setattr(check_model, "measure", measure)
    asked = ["model.py", "--out", str(tmp_path), "--requests", "10"]
    monkeypatch.setattr(sys, "argv", [*asked, "iscsi"])
    assert check_model.main() == 0
    assert "not measured yet: scsi_debug, multipath, nvme-tcp" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", asked)
    assert check_model.main() == 0
    assert measured == ["iscsi", "scsi_debug", "multipath", "nvme-tcp"]
    found = json.loads((tmp_path / "model.json").read_text())
    assert (found["requests"], found["differences"], found["missing"]) == (40, 0, [])

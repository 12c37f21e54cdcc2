# SPDX-License-Identifier: GPL-2.0-or-later
"""Which stack of the randomised model test need not be measured again."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from fabtune.installed import PACKAGE

sys.path.insert(0, str(PACKAGE.parents[1] / "tests/vm"))

import model as check_model  # noqa: E402

LOCAL = check_model.TROUBLES["multipath"]


def piece_of(stack: str, requests: int) -> dict[str, Any]:
    """Return what a guest counted of a stack that all has been done to."""
    troubles = dict.fromkeys(check_model.TROUBLES[stack], 1)
    return {
        "requests": requests, "differences": 0, "rounds": 1, "found": [], "errors": 2, "highest": 48,
        "troubles": troubles,
    }  # fmt: skip


def test_what_is_of_other_code_is_not_kept(tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    assert check_model.kept(file, "this module") is None
    file.write_text(json.dumps({"requests": 1000, "digest": "this module"}))
    assert check_model.kept(file, "this module")
    assert check_model.kept(file, "another module") is None


def test_the_digest_names_the_module_the_model_and_the_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = check_model.digest("1.1")
    assert check_model.digest("1.2") != before == check_model.digest("1.1")
    guest = tmp_path / "model_guest.py"
    guest.write_text("another guest")
    monkeypatch.setattr(check_model, "_GUEST", guest)
    of_guest = check_model.digest("1.1")
    assert of_guest != before
    (tmp_path / "model_books.py").write_text("another model")
    assert check_model.digest("1.1") != of_guest
    monkeypatch.setattr(check_model, "source_digest", lambda: "another module")
    assert check_model.digest("1.1") not in (before, of_guest)


def test_a_run_goes_on_where_it_stopped_and_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured: list[tuple[str, int]] = []

    def measure(stack: str, requests: int, seed: str, directory: Path) -> dict[str, object] | None:
        measured.append((stack, requests))
        if len(measured) == 2:
            return None
        directory.mkdir(parents=True)
        # Guests end with the round that has the last request.
        row = piece_of(stack, requests + 1) | {"digest": check_model.digest(seed)}
        (directory / "model.json").write_text(json.dumps(row))
        return row

    monkeypatch.setattr(check_model, "measure", measure)
    monkeypatch.setattr(check_model, "PIECE", 10)
    asked = ["model.py", "--out", str(tmp_path), "--requests", "25"]
    monkeypatch.setattr(sys, "argv", [*asked, "iscsi"])
    assert check_model.main() == 1
    assert "not all are measured: scsi_debug, multipath, iscsi, nvme-tcp" in capsys.readouterr().out
    assert check_model.main() == 0
    assert measured == [("iscsi", 10), ("iscsi", 10), ("iscsi", 10), ("iscsi", 3)]
    monkeypatch.setattr(sys, "argv", asked)
    assert check_model.main() == 0
    found = json.loads((tmp_path / "model.json").read_text())
    assert (found["requests"], found["differences"], found["missing"]) == (4 * 26, 0, [])
    assert len(measured) == 4 + 3 * 3


def test_a_difference_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {"differences": 1, "found": ["read issued: 9, expected 10"]}
    monkeypatch.setattr(check_model, "measure", lambda stack, *_: piece_of(stack, 10) | wrong)
    monkeypatch.setattr(sys, "argv", ["model.py", "--out", str(tmp_path), "--requests", "10"])
    assert check_model.main() == 1


@pytest.mark.parametrize(
    ("changed", "said"),
    [({}, None), ({"highest": 15}, "16 in flight at once"), *(({"troubles": {name: 0}}, name) for name in LOCAL)],
)
def test_what_a_stack_can_do_and_did_not_is_no_success(
    changed: dict[str, Any], said: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def measure(stack: str, *_: object) -> dict[str, Any]:
        piece = piece_of(stack, 10)
        if stack != "multipath":
            return piece
        return piece | changed | {"troubles": piece["troubles"] | changed.get("troubles", {})}

    monkeypatch.setattr(check_model, "measure", measure)
    monkeypatch.setattr(sys, "argv", ["model.py", "--out", str(tmp_path), "--requests", "20"])
    assert check_model.main() == bool(said)
    document = json.loads((tmp_path / "model.json").read_text())
    assert document["lacking"] == ({"multipath": [said]} if said else {})
    assert not said or f"multipath was not tried: without {said}" in capsys.readouterr().out
    assert [row["errors"] for row in document["stacks"]] == [4] * 4
    assert document["stacks"][0]["troubles"]["removals"] == 2

# SPDX-License-Identifier: GPL-2.0-or-later
"""Which guests of the randomised model test need not run again, and what is no success."""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fabtune.installed import PACKAGE

sys.path.insert(0, str(PACKAGE.parents[1] / "tests/vm"))

import model as check_model  # noqa: E402
import model_kept  # noqa: E402
from model_judge import Judged  # noqa: E402

LOCAL = check_model.TROUBLES["multipath"]


class Guests:
    """Guests that leave a round of so many requests each, in which all has been done to a stack."""

    def __init__(self, requests: int) -> None:
        self.requests = requests
        self.ran: list[tuple[str, int]] = []
        self.exit = 0
        self.kernel = "6.12"
        self.found: dict[str, list[str]] = {}
        self.troubles: dict[str, dict[str, int]] = {}
        self.highest: dict[str, int] = {}
        self.apart_ns = (-300.0, 5000.0, 20.0)

    def measure(self, stack: str, requests: int, seed: str, directory: Path) -> None:
        self.ran.append((stack, requests))
        directory.mkdir(parents=True, exist_ok=True)
        guest = {"stack": stack, "digest": check_model.digest(seed), "lab": check_model.lab_digest(), "exit": self.exit}
        (directory / "guest.json").write_text(json.dumps(guest))
        if self.requests:
            model_kept.write(directory / "1.json.gz", {"stack": stack, "kernel": self.kernel})

    def judged(self, told: dict[str, Any]) -> Judged:
        stack = told["stack"]
        troubles = Counter(dict.fromkeys(check_model.TROUBLES[stack], 1)) | Counter(self.troubles.get(stack, {}))
        troubles.update({name: -1 for name, count in self.troubles.get(stack, {}).items() if not count})
        found = list(self.found.get(stack, []))
        return Judged(self.requests, self.highest.get(stack, 48), 2, troubles, found, list(self.apart_ns))


@pytest.fixture
def guests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Guests:
    guests = Guests(10)
    monkeypatch.setattr(check_model, "measure", guests.measure)
    monkeypatch.setattr(check_model, "judged", guests.judged)
    monkeypatch.setattr(sys, "argv", ["model.py", "--out", str(tmp_path), "--requests", "10"])
    return guests


def document(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "model.json").read_text())
    return found


def test_the_digest_names_the_module_what_measures_and_the_draw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in check_model._VM.glob("model_*.py"):
        (tmp_path / file.name).write_text(file.read_text())
    monkeypatch.setattr(check_model, "_VM", tmp_path)
    before = check_model.digest("1.1")
    assert check_model.digest("1.2") != before == check_model.digest("1.1")
    for name, is_another in (("model_compare.py", False), ("model_books.py", False), ("model_answers.py", True)):
        (tmp_path / name).write_text("another one")
        assert (check_model.digest("1.1") != before) == is_another
    before = check_model.digest("1.1")
    monkeypatch.setattr(check_model, "source_digest", lambda: "another module")
    assert check_model.digest("1.1") != before


def test_all_that_runs_in_the_guest_is_in_the_digest() -> None:
    seen, left = set[str](), {"model_guest"}
    while left:
        name = left.pop()
        seen.add(f"{name}.py")
        text = (check_model._VM / f"{name}.py").read_text()
        words = {word for line in text.splitlines() if line.startswith(("from ", "import ")) for word in line.split()}
        left |= {word for word in words if word.startswith("model_")} - {one.removesuffix(".py") for one in seen}
    assert seen == {*check_model._MEASURES}


def test_a_run_goes_on_where_it_stopped_and_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], guests: Guests
) -> None:
    monkeypatch.setattr(check_model, "PIECE", 10)
    asked = ["model.py", "--out", str(tmp_path), "--requests", "25"]
    monkeypatch.setattr(sys, "argv", [*asked, "iscsi"])
    guests.requests = 0
    assert check_model.main() == 1
    assert "not all are measured: scsi_debug, multipath, iscsi, nvme-tcp" in capsys.readouterr().out
    guests.requests = 11
    assert check_model.main() == 0
    assert guests.ran == [("iscsi", 10), ("iscsi", 10), ("iscsi", 10), ("iscsi", 3)]
    monkeypatch.setattr(sys, "argv", asked)
    assert check_model.main() == 0
    found = document(tmp_path)
    assert (found["requests"], found["differences"], found["missing"]) == (4 * 33, 0, [])
    assert len(guests.ran) == 4 + 3 * 3


def test_what_other_code_has_measured_is_compared_when_it_is_only_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guests: Guests
) -> None:
    assert check_model.main() == 0
    monkeypatch.setattr(check_model, "source_digest", lambda: "another module")
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--judge-only"])
    assert check_model.main() == 0
    guests.found["iscsi"] = ["read issued: 9, expected 10"]
    assert check_model.main() == 1
    assert (document(tmp_path)["requests"], document(tmp_path)["differences"]) == (40, 1)
    assert len(guests.ran) == 4
    monkeypatch.setattr(sys, "argv", sys.argv[:-1])
    assert check_model.main() == 1
    assert len(guests.ran) == 8


def test_a_difference_is_no_success(guests: Guests, capsys: pytest.CaptureFixture[str]) -> None:
    guests.found["multipath"] = ["sda: read issued: 9, expected 10"]
    assert check_model.main() == 1
    assert "multipath: sda: read issued: 9" in capsys.readouterr().out


def test_what_takes_longer_in_most_rounds_is_no_success(tmp_path: Path, guests: Guests) -> None:
    assert check_model.main() == 0
    assert [row["apart_ns"] for row in document(tmp_path)["stacks"]] == [300] * 4
    guests.apart_ns = (4000.0, 4100.0, 3900.0)
    assert check_model.main() == 1
    assert document(tmp_path)["differences"] == 4
    assert document(tmp_path)["stacks"][0]["found"] == [
        "device_ns: 4000 ns a request in the middle of all rounds, expected 1000"]  # fmt: skip


def test_a_guest_that_does_not_end_well_keeps_its_differences(
    tmp_path: Path, guests: Guests, capsys: pytest.CaptureFixture[str]
) -> None:
    guests.exit = 1
    guests.found["iscsi"] = ["seven"] * 7
    for _ in range(2):
        assert check_model.main() == 1
        assert document(tmp_path)["differences"] == 7
        assert "a guest did not end well: iscsi/1: exit 1" in capsys.readouterr().out
    guests.found.clear()
    assert check_model.main() == 1
    assert len(guests.ran) == 4


def test_a_guest_that_was_interrupted_counts_as_far_as_it_came(tmp_path: Path, guests: Guests) -> None:
    directory = tmp_path / "iscsi/1"
    guests.measure("iscsi", 10, "1.1", directory)
    guest = json.loads((directory / "guest.json").read_text())
    (directory / "guest.json").write_text(json.dumps(guest | {"exit": None}))
    assert check_model.kept(directory, "iscsi", check_model.digest("1.1"))
    (directory / "1.json.gz").unlink()
    assert check_model.kept(directory, "iscsi", check_model.digest("1.1")) is None


def test_another_stack_s_rounds_are_no_success(tmp_path: Path, guests: Guests) -> None:
    assert check_model.main() == 0
    (tmp_path / "iscsi/1/1.json.gz").write_bytes((tmp_path / "scsi_debug/1/1.json.gz").read_bytes())
    assert check_model.main() == 1
    assert "a round of scsi_debug among those of iscsi" in document(tmp_path)["stacks"][2]["found"]


def test_rounds_of_different_kernels_are_no_success(
    tmp_path: Path, guests: Guests, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_model.main() == 0
    told = {"stack": "iscsi", "kernel": "6.13"}
    model_kept.write(tmp_path / "iscsi/1/1.json.gz", told)
    assert check_model.main() == 1
    assert "measured with different things: kernel 6.12, lab " in capsys.readouterr().out
    assert len(document(tmp_path)["measured_with"]) == 2


@pytest.mark.parametrize(
    ("highest", "troubles", "said"),
    [
        (48, {}, None),
        (15, {}, "16 in flight at once"),
        *((48, {name: 0}, f"{name} (0 in 10 requests)") for name in LOCAL),
    ],
)
def test_what_a_stack_can_do_and_did_not_is_no_success(
    highest: int, troubles: dict[str, int], said: str | None, tmp_path: Path, guests: Guests,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    guests.highest["multipath"], guests.troubles["multipath"] = highest, troubles
    assert check_model.main() == bool(said)
    assert document(tmp_path)["lacking"] == ({"multipath": [said]} if said else {})
    assert not said or f"multipath was not tried: without {said}" in capsys.readouterr().out
    assert [row["errors"] for row in document(tmp_path)["stacks"]] == [2] * 4


def test_once_in_a_million_requests_is_too_seldom() -> None:
    row = {"stack": "nvme-tcp", "requests": 1_000_000, "highest": 48, "troubles": Counter(dict.fromkeys(LOCAL, 1))}
    assert "errors (1 in 1000000 requests)" in check_model.lacking(row)

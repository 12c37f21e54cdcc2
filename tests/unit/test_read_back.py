# SPDX-License-Identifier: GPL-2.0-or-later
"""Values that devices round are read back as all others: what did not move was not written, and did not go back."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hosttree
import pytest
from profiles import write

from fabtune import backends
from fabtune.cli import output
from fabtune.cli.main import main
from fabtune.host import tree
from fabtune.model.device import Device
from fabtune.tune import journal
from fabtune.tune.plan import Plan

_REQUESTS = "sys/block/sd1/queue/nr_requests"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the tree of a host with a disk that holds 128 requests."""
    root = hosttree.make(tmp_path / "root", 1)
    hosttree.enter(root, monkeypatch)
    return root


def device_makes(monkeypatch: pytest.MonkeyPatch, of: Callable[[str], str | None]) -> None:
    """Have the device make something else `of` a depth that is written, or nothing."""
    attributes = backends.get("attribute")
    real = attributes.write

    def written(device: Device, key: str, value: str) -> None:
        made = of(value) if key == "queue/nr_requests" else value
        if made is not None:
            real(device, key, made)

    monkeypatch.setattr(attributes, "write", written)


def requests(host: Path) -> str:
    return tree.read_text(host / _REQUESTS) or ""


def revert(capsys: pytest.CaptureFixture[str], code: int) -> dict[str, Any]:
    """Run it and return what became of the depth."""
    capsys.readouterr()
    assert main(["revert", "--json"]) == code
    steps = json.loads(capsys.readouterr().out)["steps"]
    return next((one for one in steps if one["tunable"] == "block.nr_requests"), {})


def test_a_write_that_moves_nothing_is_not_counted_as_written(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device_makes(monkeypatch, lambda _: None)
    result = write(host, "mine", {"block.nr_requests": 64, "block.rq_affinity": 2})
    assert [row.tunable.name for row in result.written] == ["block.rq_affinity"]
    ((row, why),) = result.refused
    assert row.tunable.name == "block.nr_requests" and why == "the device took 64, and reads 128 as before"


def test_what_comes_later_all_the_same_goes_back(
    host: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pause frames count once the link has been agreed on anew, seconds after the write."""
    with monkeypatch.context() as late:
        device_makes(late, lambda _: None)
        write(host, "mine", {"block.nr_requests": 64})
    hosttree.put(host / _REQUESTS, "64")
    assert revert(capsys, 0)["state"] == "restored"
    assert requests(host) == "128"


def test_what_never_moved_is_settled_by_a_revert(
    host: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    device_makes(monkeypatch, lambda _: None)
    write(host, "mine", {"block.nr_requests": 64})
    assert main(["verify"]) == 0
    assert revert(capsys, 0)["state"] == "already"


def test_what_the_device_made_of_it_is_said(
    host: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    device_makes(monkeypatch, lambda _: "96")
    result = write(host, "mine", {"block.nr_requests": 100})
    assert [row.tunable.name for row in result.written] == ["block.nr_requests"]
    output.show_result(Plan("mine", ("initiator",), "", None, {}), result, as_json=False)
    assert "block.nr_requests of sd1 was given 100, and reads 96" in " ".join(capsys.readouterr().out.split())


def test_a_value_that_still_is_ours_is_not_called_taken_back(
    host: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(host, "mine", {"block.nr_requests": 64})
    with monkeypatch.context() as stuck:
        device_makes(stuck, lambda _: None)
        found = revert(capsys, 1)
        assert found["state"] == "failed" and found["note"] == "wrote 128 back, but it reads 64"
    assert [one.state for one in journal.transactions()] == ["partly taken back"]
    assert revert(capsys, 0)["state"] == "restored"
    assert requests(host) == "128"


def test_nor_is_what_somebody_set_where_force_could_not_move_it(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(host, "mine", {"block.nr_requests": 64})
    hosttree.put(host / _REQUESTS, "512")
    device_makes(monkeypatch, lambda _: None)
    assert main(["revert", "--force"]) == 1
    assert [one.state for one in journal.transactions()] == ["partly taken back"]


def test_what_is_rounded_on_its_way_back_is_taken_back_and_said(
    host: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(host, "mine", {"block.nr_requests": 64})
    asked: list[str] = []

    def rounds(value: str) -> str:
        asked.append(value)
        return "120"

    device_makes(monkeypatch, rounds)
    found = revert(capsys, 0)
    assert found["state"] == "restored" and found["note"] == "it was 128, and the device makes 120 of that"
    assert asked == ["128"]
    assert [one.state for one in journal.transactions()] == ["taken back"]

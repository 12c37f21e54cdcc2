# SPDX-License-Identifier: GPL-2.0-or-later
"""A run of the lab says which QEMU emulated its CPU: on the virtual clock that decides the bytes."""

import json
from pathlib import Path

import attrs
import pytest

from fabtune.experiment import batch, definition
from fabtune.lab import accel
from fabtune.measure import keptrun
from fabtune.model.origin import Origin, mixed
from fabtune.model.results import Point


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> batch.Run:
    """A run that was measured with QEMU 7.2."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "exp.toml").write_text("seeds = 1\n[factors]\nrtt = ['0ms']\n")
    wanted = definition.load(str(tmp_path / "exp.toml"))
    (one,) = batch.runs_of(wanted, wanted.combinations(), tmp_path / "out")
    monkeypatch.setattr(accel, "qemu_version", lambda: "QEMU emulator version 7.2.1")
    one.keep([Point({"op": "read"})])
    return one


def test_a_run_by_another_qemu_is_not_what_would_be_measured_now(
    run: batch.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run.state().status == "measured"
    monkeypatch.setattr(accel, "qemu_version", lambda: "QEMU emulator version 10.0.2")
    assert run.state().status == "refused"
    assert run.state().why == "the QEMU was QEMU emulator version 7.2.1, is QEMU emulator version 10.0.2"
    # Who has none may look at what others have measured.
    monkeypatch.setattr(accel, "qemu_version", lambda: "")
    assert run.state().status == "measured"


def test_runs_that_do_not_say_theirs_count_as_they_did(run: batch.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    note = run.directory / keptrun.NOTE
    monkeypatch.setattr(accel, "qemu_version", lambda: "")
    run.keep([Point({"op": "read"})])
    assert "qemu" not in json.loads(note.read_text())["origin"]
    before = keptrun.read(run.directory)[0].origin
    monkeypatch.setattr(accel, "qemu_version", lambda: "QEMU emulator version 10.0.2")
    assert run.state().status == "measured"
    assert mixed([before, attrs.evolve(before, qemu="one")]) == []
    assert any("kinds of QEMU" in said for said in mixed([attrs.evolve(before, qemu=one) for one in "ab"]))


def test_where_there_is_no_qemu_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accel, "where_is", lambda _: None)
    accel.qemu_version.cache_clear()
    try:
        assert accel.qemu_version() == ""
    finally:
        accel.qemu_version.cache_clear()
    assert Origin(settings={}, clock="virtual", code="c").qemu == ""

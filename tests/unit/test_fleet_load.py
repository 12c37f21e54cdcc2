# SPDX-License-Identifier: GPL-2.0-or-later
"""What a fleet's hosts are asked to run is the workload that the definition names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fabtune.errors import InputError
from fabtune.experiment import batch, definition, fleet, inventory
from fabtune.measure import workload


def _asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> list[Mapping[str, Any]]:
    """Return what each host is asked to run for one run of the workload `name`, of which nothing else is said."""
    path = tmp_path / "exp.toml"
    path.write_text(f'seeds = 1\n[factors]\nprofile = ["untouched"]\n[fixed]\nworkload = "{name}"\n')
    wanted = definition.load(str(path))
    fleet.check_definition(wanted)
    hosts = inventory.Inventory(path, ("a",), ("t",))
    (run,) = batch.runs_of(wanted, wanted.combinations(), tmp_path / "out", hosts)
    asked: list[Mapping[str, Any]] = []
    monkeypatch.setattr(fleet, "_play", lambda _, __, variables, ___: asked.append(variables))
    monkeypatch.setattr(fleet, "_points", lambda *_: [])
    fleet._measure(run, hosts)
    return asked


def _told_fio(name: str, words: list[str]) -> list[str]:
    """Return the directions that fio is told for a workload with parameters as `fabtune measure --set` has them."""
    load = workload.load(name).with_parameters(words)
    place = workload.Place(Path("/dev/sdb"), Path("/x"), 1 << 40)
    steps = workload.expand(load, place, runtime_s=3, ramp_s=1)
    return [str(job.get("rw")) for step in steps for job in step.jobs.values()]


@pytest.mark.parametrize("name", workload.names())
def test_each_host_is_asked_for_the_load_that_the_workload_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    try:
        asked = _asked(tmp_path, monkeypatch, name)
    except InputError as error:
        assert "files that are made and removed" in str(error)
        return
    assert asked
    ours = [way for one in asked for way in _told_fio(name, [f"{k}={v}" for k, v in one["parameters"].items()])]
    assert set(ours) == set(_told_fio(name, []))

# SPDX-License-Identifier: GPL-2.0-or-later
"""Which workloads run for as long as something else is done under them."""

from pathlib import Path

import pytest

from fabtune.errors import FabtuneError, InputError
from fabtune.measure import fio, own_load, workload
from fabtune.measure.measurement import Measurement
from fabtune.measure.target import Target
from fabtune.model.runrecord import PathTold


def _asked(name: str, *parameters: str, kind: str = "device") -> Measurement:
    place = Target(Path("/dev/sdz"), kind, 1 << 30, "sdz", "", "", 512, ())
    return Measurement(workload.load(name).with_parameters(parameters), place, PathTold())


def test_one_step_runs_on_without_an_end() -> None:
    step = own_load.step_of(_asked("xdd", "op=read"))
    assert "runtime=604800000ms" in step.job_file() and not step.writes
    assert own_load.step_of(_asked("xdd", "op=write")).writes


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (_asked("xdd"), "2 steps, expected one; choose with --set, such as --set op=read"),
        (_asked("openloop"), "ends by itself"),
        (_asked("xdd", "op=read", kind="directory"), "expected a block device"),
    ],
)
def test_what_cannot_run_on_is_refused_before_anything_runs(asked: Measurement, says: str) -> None:
    with pytest.raises(InputError, match=says):
        own_load.step_of(asked)


def test_a_load_that_ends_under_the_work_fails_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "fio"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(fio, "find", lambda: (str(program), "3"))
    monkeypatch.setattr(own_load, "_completed", lambda _: 0)
    with pytest.raises(FabtuneError, match="fio ended with status 1"), own_load.loaded(_asked("xdd", "op=read")):
        pytest.fail("the load never began")

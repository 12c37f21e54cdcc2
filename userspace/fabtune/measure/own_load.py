# SPDX-License-Identifier: GPL-2.0-or-later
"""A workload that runs for as long as something else is done under it."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fabtune.errors import FabtuneError, InputError
from fabtune.host import blocks
from fabtune.measure import fio
from fabtune.measure.measurement import Measurement
from fabtune.measure.workload import LoadStep, Place, expand

# Longer than anything is done under a load.
_LONG_S = 7 * 86400.0
_EVERY_S, _MOST_S = 0.2, 60.0
# Requests of a load that has begun: more than the programs read that look at a new disk.
_BEGUN_REQUESTS = 64


def step_of(asked: Measurement) -> LoadStep:
    """Return the one step that `asked` runs, without an end.  Raises InputError for a workload of another kind."""
    if asked.place.kind != "device":
        raise InputError(f"--on {asked.place.path}: expected a block device, whose session is tuned under the load")
    place = Place(asked.place.path, Path("/nonexistent"), asked.place.size_bytes)
    steps = expand(asked.load, place, runtime_s=_LONG_S, ramp_s=0)
    if len(steps) > 1:
        several = [f"{name}={values[0]}" for name, values in asked.load.parameters.items() if len(values) > 1]
        more = f"; choose with --set, such as --set {several[0]}" if several else ""
        raise InputError(f"workload '{asked.name}' has {len(steps)} steps, expected one{more}")
    if steps[0].open_loop or steps[0].must_fail:
        raise InputError(f"workload '{asked.name}' ends by itself; expected one that runs on, such as xdd")
    return steps[0]


@contextmanager
def loaded(asked: Measurement) -> Iterator[None]:
    """Run `asked`, which was checked, from before the block to its end.

    Raises InputError as `step_of` does, FabtuneError where the load ends first.
    """
    step, (program, _) = step_of(asked), fio.find()
    disk = asked.place.path.name
    with tempfile.TemporaryDirectory(prefix="fabtune-load-") as scratch:
        begun = _completed(disk)
        with fio.load(program, step.job_file(), Path(scratch)) as load:
            end_s = time.monotonic() + _MOST_S
            while _completed(disk) - begun < _BEGUN_REQUESTS:
                _check(load)
                if time.monotonic() > end_s:
                    raise FabtuneError(f"workload '{asked.name}' got nothing through {disk} within {_MOST_S:g} s")
                time.sleep(_EVERY_S)
            yield
            _check(load)


def _check(load: fio.Load) -> None:
    if load.has_ended:
        load.document()
        raise FabtuneError("the load has ended by itself")


def _completed(disk: str) -> int:
    words = (blocks.directory(disk) / "stat").read_text().split()
    return int(words[0]) + int(words[4])

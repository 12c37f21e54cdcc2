# SPDX-License-Identifier: GPL-2.0-or-later
"""What is to be measured where, checked before it begins, and measured with all that belongs in its record."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import attrs

from fabtune.catalog.tunable import shipped_catalog
from fabtune.errors import FabtuneError, InputError
from fabtune.facts.collect import collect
from fabtune.measure import capture, pcp, workload, workload_run
from fabtune.measure import target as targets
from fabtune.measure.target import Target
from fabtune.measure.workload import Workload
from fabtune.model.runrecord import PathTold, RunRecord
from fabtune.progress import Progress

# What a step that ends with its data is taken to last, for the time left.
_GUESS_S = 20.0


class Runnable(Protocol):
    """What can be measured on a place, once it is `check`ed: a workload, or a trace."""

    @property
    def name(self) -> str: ...
    @property
    def place(self) -> Target: ...
    def check(self, confirm: str | None, ask: Callable[[str, str], str] | None) -> None: ...
    def measure(
        self, label: str, around: Mapping[str, str], begin_unix_s: float | None = None, show: Progress | None = None
    ) -> RunRecord: ...


@attrs.frozen
class Measurement:
    """One workload on one target; `path` is what the user said about the network between them."""

    load: Workload
    place: Target
    path: PathTold
    runtime_s: float | None = None
    ramp_s: float | None = None
    keep_files: bool = False

    @property
    def name(self) -> str:
        """What is measured with."""
        return self.load.name

    @property
    def writes(self) -> bool:
        """Whether any step changes what the target holds."""
        where = workload.Place(self.place.path, self.place.path, self.place.size_bytes)
        return any(step.writes for step in workload.expand(self.load, where, runtime_s=None, ramp_s=0))

    @property
    def expected_s(self) -> float:
        """About how long one run takes."""
        runtime_s = self.load.time.runtime_s if self.runtime_s is None else self.runtime_s
        ramp_s = self.load.time.ramp_s if self.ramp_s is None else self.ramp_s
        steps = len(list(self.load.combinations())) * len(self.load.steps)
        return float(steps * (runtime_s + ramp_s if runtime_s else _GUESS_S))

    def check(self, confirm: str | None, ask: Callable[[str, str], str] | None) -> None:
        """Raise InputError for what cannot be measured; before a device is overwritten, `ask` for its name."""
        self.load.check_runtime(self.runtime_s, self.ramp_s)
        if confirm is not None and self.place.kind == "directory":
            raise InputError(f"--confirm {confirm}: {self.place.path} is no device that would be overwritten")
        workload_run.check_target(self.load, self.place)
        if self.writes:
            targets.check_overwriting(self.place, confirm, ask)

    def measure(
        self,
        label: str,
        around: Mapping[str, str],
        begin_unix_s: float | None = None,
        show: Progress | None = None,
    ) -> RunRecord:
        """Return the record of one run, with `around` beside it.  Raises what workload_run.measure raises."""
        return workload_run.measure(
            self.load, self.place, label=label, path=self.path, runtime_s=self.runtime_s, ramp_s=self.ramp_s,
            environment=around, keep_files=self.keep_files, begin_unix_s=begin_unix_s, show=show,
        )  # fmt: skip


def of(name: str, on: str | None, parameters: Sequence[str], path: PathTold) -> Measurement:
    """Return the measurement of workload `name`, its `parameters` changed, on the device or directory `on`.

    Raises InputError.
    """
    load = workload.load(name).with_parameters(parameters)
    if not on:
        raise InputError(f"measuring '{name}' needs --on with a block device or a directory")
    return Measurement(load, targets.find(on), path)


def tunables_now() -> dict[str, str]:
    """Return every tunable of this host, read back, as ``name of device`` -> value."""
    readings = collect(shipped_catalog().tunables.values()).readings
    return {f"{one.tunable} of {one.device.label}": one.value for one in readings if one.value is not None}


def measure_whole(
    asked: Runnable, label: str, out: Path, claims: dict[str, str] | None, begin_unix_s: float | None,
    show: Progress, say: Callable[[str], None],
) -> RunRecord:  # fmt: skip
    """Return the record of one run, with PCP's archive in `out`; a workload's is proven unless `claims` is None.

    Raises InputError before anything runs, workload_run.IncompleteError with what was measured so far.
    """
    if claims is not None:
        capture.check_capture(asked.place)
    around = tunables_now()
    archive = pcp.PcpArchive(out / time.strftime(f"%Y%m%dT%H%M%S-{asked.name}.pcp", time.gmtime()))
    try:
        with contextlib.ExitStack() as stack:
            if pcp.is_there():
                stack.enter_context(archive)
            result = asked.measure(label, around, begin_unix_s, show)
    except workload_run.IncompleteError as error:
        error.record = attrs.evolve(error.record, pcp_archive=archive.name)
        raise
    finally:
        if archive.problem:
            say(archive.problem)
    result = attrs.evolve(result, pcp_archive=archive.name)
    return _proven(result, asked, claims, show) if claims is not None and isinstance(asked, Measurement) else result


def _proven(result: RunRecord, asked: Measurement, claims: dict[str, str], show: Progress) -> RunRecord:
    try:
        with show.step("capturing a short load of the same kind"):
            return capture.prove(result, asked.load, asked.place, claims)
    except KeyboardInterrupt:
        raise workload_run.RunInterruptedError("capture interrupted; the measured part is complete", result) from None
    except FabtuneError as error:
        raise workload_run.IncompleteError(f"no proof from the wire: {error}", result) from error

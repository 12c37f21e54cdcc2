# SPDX-License-Identifier: GPL-2.0-or-later
"""One run: every step of one workload on one target, with what was read around it, as one record."""

import os
import platform
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fabtune.errors import FabtuneError, InputError
from fabtune.measure import counters, fio
from fabtune.measure.record import Record, begin
from fabtune.measure.target import Target
from fabtune.measure.watch import Watch, check_judge
from fabtune.measure.workload import Place, Step, Workload, expand, space_bytes
from fabtune.progress import Progress

SAMPLE_S = 1.0
# What a step that ends with its data is taken to last, for the time left.
_GUESS_S = 20.0


class IncompleteError(FabtuneError):
    """A run that did not reach its end; `record` holds what was measured."""

    def __init__(self, message: str, record: Record) -> None:
        super().__init__(message)
        self.record = record


class RunInterruptedError(IncompleteError):
    """The user ended the run."""


def measure(
    workload: Workload,
    target: Target,
    *,
    label: str = "",
    path: Mapping[str, float] | None = None,
    runtime_s: float | None = None,
    ramp_s: float | None = None,
    environment: Mapping[str, Any] | None = None,
    keep_files: bool = False,
    begin_unix_s: float | None = None,
    show: Progress | None = None,
) -> Record:
    """Run `workload` on `target` and return its record.

    `label` names what is being compared (a profile); `path` gives what is known of the network
    (``rtt_ms``, ``rate_bytes_per_s``, ``mtu``) for the bounds; `environment` is kept as it is (the
    tunables read back).  `runtime_s` and `ramp_s` override the workload's own.  `begin_unix_s` is the
    instant of this host's clock at which the first step's load begins, for hosts that start together; a host
    that is not ready by then fails.  The caller has checked that writing to the target is allowed.
    Raises InputError before anything runs, IncompleteError (with the record so far) when a step
    fails, RunInterruptedError on Ctrl-C.
    """
    program, version = fio.find()
    runtime_s = workload.runtime_s if runtime_s is None else runtime_s
    ramp_s = workload.ramp_s if ramp_s is None else ramp_s
    check_target(workload, target)
    record = begin(
        workload={"name": workload.name, "summary": workload.summary, "source": workload.source},
        workload_text=workload.text, runtime_s=runtime_s, ramp_s=ramp_s, target=target.as_record(), host=host(),
        label=label, path=path, environment=environment, fio_version=version,
    )  # fmt: skip
    show = show or Progress(quiet=True)
    with tempfile.TemporaryDirectory(prefix="fabtune-measure-") as scratch:
        place = _place(workload, target)
        try:
            steps = expand(workload, place, runtime_s=runtime_s, ramp_s=ramp_s)
            names = _numbered(workload, steps)
            show.begin([(name, runtime_s + ramp_s if runtime_s else _GUESS_S) for name in names])
            for number, (name, step) in enumerate(zip(names, steps, strict=True)):
                record["steps"].append(result := new_result(step))
                begin_at = begin_unix_s if number == 0 else None
                with show.step(name):
                    _run_step(step, target, place, program, Path(scratch), workload.stuck_after_s, begin_at, result)
        except KeyboardInterrupt:
            record["problem"] = "interrupted by the user"
            raise RunInterruptedError(f"{workload.name}: interrupted", record) from None
        except (FabtuneError, OSError) as error:
            # An OSError: the device went away below what was being read, or there is no room for fio's output.
            record["problem"] = str(error)
            raise IncompleteError(f"{workload.name}: {error}", record) from error
        finally:
            record["ended_unix_s"] = time.time()
            if target.kind == "directory" and not keep_files:
                shutil.rmtree(place.directory, ignore_errors=True)
    record["complete"] = True
    return record


def _numbered(workload: Workload, steps: Sequence[Step]) -> list[str]:
    """Return how each step is called while it runs."""
    return [
        f"{workload.name}: {step.name}" + (f" ({number} of {len(steps)})" if len(steps) > 1 else "")
        for number, step in enumerate(steps, 1)
    ]


def host() -> dict[str, Any]:
    """Return which machine this is, as far as figures depend on it."""
    governors = {
        path.read_text().strip() for path in Path("/sys/devices/system/cpu").glob("cpu*/cpufreq/scaling_governor")
    }
    return {
        "name": platform.node(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "cpus": os.cpu_count(),
        "governors": sorted(governors),
    }


def check_target(workload: Workload, target: Target) -> None:
    """Raise InputError or FabtuneError when `workload` cannot run on `target`: wrong kind, no room, nobody to judge."""
    if workload.target not in ("any", target.kind):
        raise InputError(f"workload '{workload.name}' needs a {workload.target}; {target.path} is a {target.kind}")
    if target.kind == "directory":
        needed = max(space_bytes(workload, parameters) for parameters in workload.combinations())
        work = target.path / _work_name(workload)
        have = target.size_bytes + sum(path.stat().st_size for path in work.rglob("*") if path.is_file())
        if needed > have:
            raise FabtuneError(
                f"{target.path}: {have / 1e9:.1f} GB free, workload '{workload.name}' needs {needed / 1e9:.1f} GB; "
                f"make it smaller with --set ({', '.join(workload.space)})"
            )
    check_judge(workload.stuck_after_s)


def _work_name(workload: Workload) -> str:
    return f"fabtune-{workload.name}"


def _place(workload: Workload, target: Target) -> Place:
    """Return where the steps run, with the directories they need made."""
    if target.kind == "device":
        return Place(target.path, Path("/nonexistent"), target.size_bytes)
    work = target.path / _work_name(workload)
    most = max(int(parameters.get("processes", 1)) for parameters in workload.combinations())
    for directory in (work, *(work / f"own{index}" for index in range(most))):
        directory.mkdir(exist_ok=True)
    return Place(work / "data", work)


def new_result(step: Step) -> dict[str, Any]:
    """Return the record of a step that has yet to run."""
    return {
        "name": step.name,
        "phase": step.phase,
        "parameters": step.parameters,
        "cache": step.cache,
        "depth": step.depth,
        "closed_loop": step.closed_loop,
        "must_fail": step.must_fail,
        "job": step.job_file(),
        "skipped": None,
        "problem": None,
        "fio": None,
        "fabstat": None,
        "begun_unix_s": None,
        "samples": [],
    }


def _run_step(
    step: Step,
    target: Target,
    place: Place,
    program: str,
    scratch: Path,
    stuck_after_s: float | None,
    begin_unix_s: float | None,
    result: dict[str, Any],
) -> None:
    """Run one step and fill `result` as it goes, so that an end at any point leaves what there is."""
    smallest = step.parameters.get("block_bytes")
    if smallest and int(smallest) < target.logical_block_bytes:
        result["skipped"] = f"{smallest} bytes is less than the device's block of {target.logical_block_bytes} bytes"
        return
    if step.flip_byte_at is not None:
        _flip(place.file, step.flip_byte_at)
    watch = Watch(target, stuck_after_s)
    result["before"] = counters.edges(target)
    samples: list[counters.Sample] = result["samples"]
    try:
        if begin_unix_s is not None:
            _wait_until(begin_unix_s)
        result["begun_unix_s"] = time.time()
        with fio.Load(program, step.job_file(), scratch) as load:
            result["command"] = load.command
            try:
                samples.append(watch.sample(edge=True))
                load.wait(lambda: samples.append(watch.sample()), SAMPLE_S)
                samples.append(watch.sample(edge=True))
            except (KeyboardInterrupt, FabtuneError, OSError) as why:
                if not load.stop():
                    result["problem"] = "fio did not end: requests are outstanding on the target"
                try:
                    result["fio"] = load.document()
                except fio.FioError as error:
                    result["fio"] = error.document
                samples.append(watch.sample(edge=True))
                raise why
            _take_document(step, load, result)
    finally:
        result["after"] = counters.edges(target)
        watch.finish(result)
        if step.flip_byte_at is not None:
            _flip(place.file, step.flip_byte_at)


def _wait_until(unix_s: float) -> None:
    """Sleep until this host's clock shows `unix_s`.  Raises FabtuneError when it is past already."""
    left_s = unix_s - time.time()
    if left_s < 0:
        raise FabtuneError(
            f"ready {-left_s:.2f} s after the instant to begin at; give the hosts more time to get ready"
        )
    while left_s > 0:
        time.sleep(left_s)
        left_s = unix_s - time.time()


def _take_document(step: Step, load: fio.Load, result: dict[str, Any]) -> None:
    try:
        result["fio"] = load.document()
    except fio.FioError as error:
        result["fio"] = error.document
        result["problem"] = str(error)
        if step.must_fail is None or step.must_fail not in str(error):
            raise
        result["problem"], result["failed_as_expected"] = None, str(error)
        return
    if step.must_fail:
        problem = f"the {step.must_fail} step found nothing wrong after a byte was flipped"
        result["problem"] = problem
        raise FabtuneError(problem)


def _flip(path: Path, offset: int) -> None:
    """Invert one byte on the target, past every cache; twice gives back what was there."""
    with path.open("r+b", buffering=0) as file:
        was = os.pread(file.fileno(), 1, offset)
        if not was:
            raise FabtuneError(f"{path} has no byte {offset} to flip: give the workload more to write")
        os.pwrite(file.fileno(), bytes([was[0] ^ 0xFF]), offset)
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

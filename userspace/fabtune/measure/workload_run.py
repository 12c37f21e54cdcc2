# SPDX-License-Identifier: GPL-2.0-or-later
"""One run: every step of one workload on one target, with what was read around it, as one record."""

import contextlib
import os
import platform
import random
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from fabtune.errors import FabtuneError, InputError
from fabtune.measure import counters, fio, measured, paced_load
from fabtune.measure.beat import wait_until
from fabtune.measure.load_look import LoadLook
from fabtune.measure.target import Target
from fabtune.measure.watch import Watch, check_judge
from fabtune.measure.workload import LoadStep, Place, Workload, expand, space_bytes
from fabtune.model.document import Json
from fabtune.model.limits import Limits
from fabtune.model.runrecord import (
    INTERRUPTED,
    Draft,
    HostUsed,
    PathTold,
    RunRecord,
    Sample,
    StepResult,
    WorkloadUsed,
    begin,
)
from fabtune.progress import Progress

_SAMPLE_S = 1.0
# How long a host is watched before a load.
IDLE_S = 1.0
# A short part has samples enough for a slope, a long one not more than it needs.
_SAMPLES, _LEAST_SAMPLE_S = 12, 0.25
# What a step that ends with its data is taken to last, for the time left.
_GUESS_S = 20.0


class IncompleteError(FabtuneError):
    """A run that did not reach its end; `record` holds what was measured."""

    def __init__(self, message: str, record: RunRecord) -> None:
        super().__init__(message)
        self.record = record


class RunInterruptedError(IncompleteError):
    """The user ended the run."""


@contextlib.contextmanager
def recording(draft: Draft, what: str) -> Iterator[None]:
    """Complete the record of the run `what` when the block ends well.

    Raises IncompleteError (RunInterruptedError on Ctrl-C) with the record so far when it does not.
    """
    try:
        yield
    except KeyboardInterrupt:
        draft.end(INTERRUPTED)
        raise RunInterruptedError(f"{what}: interrupted", draft.record) from None
    except (FabtuneError, OSError) as error:
        # An OSError: the device went away below what was being read, or there is no room for fio's output.
        draft.end(str(error))
        raise IncompleteError(f"{what}: {error}", draft.record) from error
    draft.end()


def measure(
    workload: Workload,
    target: Target,
    *,
    label: str = "",
    path: PathTold | None = None,
    runtime_s: float | None = None,
    ramp_s: float | None = None,
    environment: Mapping[str, Json] | None = None,
    keep_files: bool = False,
    begin_unix_s: float | None = None,
    show: Progress | None = None,
    target_netns: str | None = None,
) -> RunRecord:
    """Run `workload` on `target`, to which the caller has checked that it may write, and return the record.

    `label` names what is being compared (a profile); `path` gives what is known of the network for the bounds;
    `environment` is kept as it is (the tunables read back).  `runtime_s` and `ramp_s` override the workload's own.
    `begin_unix_s` is the instant of this host's clock at which the first step's load begins, for hosts that start
    together; a host that is not ready by then fails.
    `target_netns` is the namespace of the target's end, where that is on this host.
    Raises InputError before anything runs, then what `recording` raises.
    """
    program, version = fio.find()
    runtime_s = workload.time.runtime_s if runtime_s is None else runtime_s
    ramp_s = workload.time.ramp_s if ramp_s is None else ramp_s
    workload.check_runtime(runtime_s)
    check_target(workload, target)
    path = path or PathTold()
    if path.framing_bytes is None:
        path = attrs.evolve(path, framing_bytes=counters.framing_bytes(target))
    draft = Draft(begin(
        workload=WorkloadUsed(workload.name, workload.summary, workload.source, workload.primary),
        workload_text=workload.text,
        runtime_s=runtime_s, ramp_s=ramp_s, target=target.as_record(), host=host_used(), label=label, path=path,
        environment=environment, fio_version=version,
    ))  # fmt: skip
    with _place(workload, target, keep_files) as place, recording(draft, workload.name):
        steps = expand(workload, place, runtime_s=runtime_s, ramp_s=ramp_s)
        run_steps(steps, target, place, draft, program, workload.stuck_after_s, begin_unix_s, show, target_netns)
    return draft.record


def run_steps(
    steps: Sequence[LoadStep],
    target: Target,
    place: Place,
    draft: Draft,
    program: str,
    stuck_after_s: float | None = None,
    begin_unix_s: float | None = None,
    show: Progress | None = None,
    target_netns: str | None = None,
) -> None:
    """Run each step and add it to `draft`, whose `recording` is under way; `program` is fio's path."""
    show = show or Progress(quiet=True)
    names, idle = _numbered(draft.record.workload.name, steps), _idle(target, steps[0], target_netns)
    lengths = (step.measured_s if step.runtime_s else _GUESS_S for step in steps)
    show.begin(list(zip(names, lengths, strict=True)))
    with tempfile.TemporaryDirectory(prefix="fabtune-measure-") as scratch:
        for name, step in zip(names, steps, strict=True):
            draft.add(attrs.evolve(new_result(step), idle=idle))
            with show.step(name):
                _run_step(step, target, place, program, Path(scratch), stuck_after_s, begin_unix_s, draft, target_netns)
            begin_unix_s = None


def _idle(target: Target, step: LoadStep, target_netns: str | None) -> tuple[Sample, Sample]:
    """Return two samples of this host before anything is asked of it: what it does then is no part of a load.

    Between them it is watched as often as under load, so that the watching is none either.
    """
    watch, every_s = Watch(target, None), sample_s(step)
    look = LoadLook(target.disk, target_netns, None, every_s)
    look.start(time.monotonic())
    first = last = watch.sample(edge=True)
    for _ in range(round(IDLE_S / every_s)):
        time.sleep(every_s)
        look.sample()
        last = watch.sample(edge=True)
    look.give_up()
    return first, last


def _numbered(workload: str, steps: Sequence[LoadStep]) -> list[str]:
    """Return how each step is called while it runs."""
    return [
        f"{workload}: {step.name}" + (f" ({number} of {len(steps)})" if len(steps) > 1 else "")
        for number, step in enumerate(steps, 1)
    ]


def host_used() -> HostUsed:
    """Return which machine this is, as far as figures depend on it."""
    governors = {
        path.read_text().strip() for path in Path("/sys/devices/system/cpu").glob("cpu*/cpufreq/scaling_governor")
    }
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return HostUsed(
        platform.node(), platform.release(), platform.machine(), boot_id, os.cpu_count(), tuple(sorted(governors))
    )


def check_target(workload: Workload, target: Target) -> None:
    """Raise InputError or FabtuneError when `workload` cannot run on `target`: wrong kind, no room, nobody to judge."""
    if workload.target not in ("any", target.kind):
        raise InputError(f"workload '{workload.name}' needs a {workload.target}; {target.path} is a {target.kind}")
    needed = max(space_bytes(workload, parameters) for parameters in workload.combinations())
    have, what = target.size_bytes, "large"
    if target.kind == "directory":
        work = target.path / _work_name(workload)
        have += sum(path.stat().st_size for path in work.rglob("*") if path.is_file())
        what = "free"
    # What runs on either makes do with the device that it is given.
    if needed > have and (target.kind == "directory" or workload.target == "device"):
        raise FabtuneError(
            f"{target.path}: {have / 1e9:.1f} GB {what}, workload '{workload.name}' needs {needed / 1e9:.1f} GB; "
            f"make it smaller with --set ({', '.join(workload.space)})"
        )
    check_judge(workload.stuck_after_s)


def _work_name(workload: Workload) -> str:
    return f"fabtune-{workload.name}"


@contextlib.contextmanager
def _place(workload: Workload, target: Target, keep_files: bool) -> Iterator[Place]:
    """Give the steps a place to run in, with the directories they need made, and removed unless `keep_files`."""
    if target.kind == "device":
        yield Place(target.path, Path("/nonexistent"), target.size_bytes)
        return
    work = target.path / _work_name(workload)
    most = max(int(parameters.get("processes", 1)) for parameters in workload.combinations())
    for directory in (work, *(work / f"own{index}" for index in range(most))):
        directory.mkdir(exist_ok=True)
    try:
        yield Place(work / "data", work)
    finally:
        if not keep_files:
            shutil.rmtree(work, ignore_errors=True)


def new_result(step: LoadStep) -> StepResult:
    """Return the record of a step that has yet to run."""
    return StepResult(
        step.name,
        step.parameters,
        step.phase,
        step.cache,
        step.depth,
        step.closed_loop,
        step.must_fail,
        step.job_file(),
        replayed=step.replayed,
    )


def _run_step(
    step: LoadStep,
    target: Target,
    place: Place,
    program: str,
    scratch: Path,
    stuck_after_s: float | None,
    begin_unix_s: float | None,
    draft: Draft,
    target_netns: str | None,
) -> None:
    """Run one step and note in `draft` what came of it as it goes, so that an end at any point leaves what there is."""
    if why := _too_small(step, target):
        draft.note(skipped=why)
        return
    if step.flip_byte_at is not None:
        _flip(place.file, step.flip_byte_at)
    watch = Watch(target, stuck_after_s)
    look = LoadLook(target.disk, target_netns, step.runtime_s, sample_s(step))
    draft.note(before=counters.edges(target))
    samples: list[Sample] = []
    try:
        if begin_unix_s is not None:
            _wait_for(begin_unix_s)
        draft.note(begun_unix_s=time.time())
        # Our own generator sends at once; fio takes its time to start, which is no part of the load.
        if step.open_loop:
            samples.append(watch.sample(edge=True))
        with _started(step, program, scratch) as load:
            draft.note(command=tuple(load.command))
            try:
                look.start(time.monotonic() + step.ramp_s if step.open_loop else None)
                if not step.open_loop:
                    samples.append(watch.sample(edge=True))
                load.wait(lambda: samples.append(_sampled(watch, look, load, step)), sample_s(step), step.measured_s)
                samples.append(watch.sample(edge=True))
            except (KeyboardInterrupt, FabtuneError, OSError):
                _end_early(load, draft)
                samples.append(watch.sample(edge=True))
                raise
            _take_document(step, load, draft)
            draft.note(before_drain=load.before_drain())
            if step.open_loop:
                _take_offered(draft)
    finally:
        draft.note(samples=tuple(samples), stuck=watch.stuck())
        draft.note(after=counters.edges(target), fabstat=watch.fabstat(measured.window(draft.step)))
        if step.flip_byte_at is not None:
            _flip(place.file, step.flip_byte_at)
        draft.note(limits=_limits(look, draft.record.path, draft.step))


def _limits(look: LoadLook, path: PathTold, made: StepResult) -> tuple[Limits, ...]:
    return look.limits(path.rate_bytes_per_s, made.fabstat, measured.span(made))


def _too_small(step: LoadStep, target: Target) -> str:
    """Return why the step cannot run, '' where it can."""
    smallest = step.parameters.get("block_bytes")
    if not smallest or int(smallest) >= target.logical_block_bytes:
        return ""
    return f"{smallest} bytes is less than the device's block of {target.logical_block_bytes} bytes"


def _sampled(watch: Watch, look: LoadLook, load: fio.Load, step: LoadStep) -> Sample:
    if look.waits:
        look.start(load.measures_since_s(step.ramp_s))
    look.sample()
    return watch.sample()


def _started(step: LoadStep, program: str, scratch: Path) -> fio.Load:
    """Start the load of a step: fio, or our own generator where requests are to leave at given instants."""
    if step.open_loop is None:
        return fio.load(program, step.job_file(), scratch)
    if step.runtime_s is None:
        raise FabtuneError("an open loop needs a run time: give it with --runtime")
    arrivals = step.open_loop.arrivals(step.ramp_s, step.runtime_s, random.SystemRandom())
    return paced_load.start(step.open_loop.place, step.open_loop.slots, arrivals, step.ramp_s, step.runtime_s, scratch)


def _take_offered(draft: Draft) -> None:
    """Note what an open loop sent; its depth is the most that was under way."""
    offered = paced_load.offered(draft.step.document)
    draft.note(offered=offered, depth=offered.most_outstanding)


def sample_s(step: LoadStep) -> float:
    """Return the time between two samples of a load."""
    return _SAMPLE_S if step.runtime_s is None else min(_SAMPLE_S, max(_LEAST_SAMPLE_S, step.runtime_s / _SAMPLES))


def _end_early(load: fio.Load, draft: Draft) -> None:
    if not load.stop():
        draft.note(problem="fio did not end: requests are outstanding on the target")
    try:
        draft.note(fio=load.document())
    except fio.FioError as error:
        draft.note(fio=error.document)


def _wait_for(begin_unix_s: float) -> None:
    """Return at the instant to begin at.  Raises FabtuneError where that is past: the other hosts have begun."""
    if late_s := wait_until(begin_unix_s):
        raise FabtuneError(f"ready {late_s:.2f} s after the instant to begin at; give the hosts more time to get ready")


def _take_document(step: LoadStep, load: fio.Load, draft: Draft) -> None:
    try:
        draft.note(fio=load.document())
    except fio.FioError as error:
        as_it_must = step.must_fail is not None and step.must_fail in str(error)
        draft.note(
            fio=error.document,
            failed_as_expected=str(error) if as_it_must else None, problem=None if as_it_must else str(error),
        )  # fmt: skip
        if not as_it_must:
            raise
        return
    if step.must_fail:
        problem = f"the {step.must_fail} step found nothing wrong after a byte was flipped"
        draft.note(problem=problem)
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

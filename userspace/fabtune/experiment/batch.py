# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs combinations in lab guests, as many at a time as there are cores, and keeps each run's files.

A run's directory holds what its guest left (records, points, console) and, written last, the note of what it came
from: a run that is not whole, or came from something else, runs again.
"""

import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

import attrs

from fabtune.catalog.profile import load_profile
from fabtune.catalog.tunable import shipped_catalog
from fabtune.errors import FabtuneError, InputError
from fabtune.experiment import clients, earlier, expect
from fabtune.experiment.definition import Combination, Definition
from fabtune.experiment.present import images_of, look_anew, origin_now
from fabtune.experiment.settings import ops_of, ways_of
from fabtune.experiment.summary import Summary, summarise
from fabtune.experiment.tuners import TUNERS
from fabtune.lab import fabrics
from fabtune.lab.accel import choose_accelerator
from fabtune.lab.image import Image, build_image, expected_steps
from fabtune.lab.initramfs import GUEST_DIR
from fabtune.lab.job import write_job
from fabtune.lab.module import build_module
from fabtune.lab.vm import Machine, run_guest
from fabtune.measure import interleave, keptrun
from fabtune.model.factors import Settings
from fabtune.model.origin import Origin
from fabtune.model.results import BY_DISK, Point, Status
from fabtune.model.units import counted
from fabtune.progress import Progress

# A guest that measures one combination took this long at most on 2 cores; only the time shown as left depends on it.
EXPECTED_RUN_S = 75.0
# 128 sessions logging in, in a guest that shares its core, are the slowest of the shipped ones.
_TIMEOUT_S = 1800.0
# How far a bound may be off because it is rounded.
_ROUNDED_BOUND = 0.005
# So many runs are named.
_NAMED = 3
# What a guest said.
_LOG = "output.log"


@attrs.frozen
class RunState:
    """What became of a run; `why` says what speaks against the files of one that is refused, or ended a failed one."""

    status: Status
    points: tuple[Point, ...] = ()
    why: str = ""
    origin: Origin | None = None


@attrs.frozen
class Run:
    """One run of a combination, `number` from 1 on, and where its files are; `hosts` of a fleet measure it, if any."""

    combination: Combination
    number: int
    directory: Path
    clock: str = "virtual"
    hosts: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.combination.name} run {self.number}"

    @property
    def tree(self) -> Path:
        """The directory of the experiment that the run is one of."""
        return self.directory.parent.parent

    @property
    def settings(self) -> Settings:
        """The combination's settings; each run has the seed that follows the last one's."""
        settings = self.combination.settings
        return attrs.evolve(settings, seed=settings.seed + self.number - 1)

    @property
    def origin(self) -> Origin:
        """What the run comes from if it is measured now."""
        return origin_now(self.settings, self.clock, self.hosts)

    @property
    def ended(self) -> bool:
        """Whether there is what a run leaves that ended well, of whatever it came."""
        return any((self.directory / name).exists() for name in (keptrun.NOTE, keptrun.POINTS))

    def state(self) -> RunState:
        """Return what became of the run: one that would not come out as it stands there is refused."""
        if not self.ended:
            left = keptrun.names_of(self.directory)
            return RunState("failed", why=_last_said(self.directory)) if left else RunState("not run")
        try:
            kept, points = keptrun.read(self.directory)
        except InputError as error:
            return RunState("refused", why=str(error))
        if differences := kept.origin.differences(self.origin):
            return RunState("refused", why="; ".join(differences), origin=kept.origin)
        return RunState("measured", points, origin=kept.origin)

    def points(self) -> tuple[Point, ...]:
        """Return what the run measured, nothing unless it ended well."""
        return self.state().points

    def keep(self, points: Sequence[Point]) -> None:
        """Write what the run measured, which ends it well; its other files are there already."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / keptrun.POINTS).write_text(keptrun.as_text(points))
        keptrun.seal(self.directory, self.origin)


def _last_said(directory: Path) -> str:
    """Return the last line that a guest said in a run that failed; nothing where there is none."""
    log = directory / _LOG
    lines = log.read_text(errors="replace").strip().splitlines() if log.is_file() else []
    return lines[-1].strip() if lines else ""


def runs_of(definition: Definition, cells: Sequence[Combination], out: Path, hosts: tuple[str, ...] = ()) -> list[Run]:
    """Return every run of `cells`, all with one seed before the next."""
    return [
        Run(cell, number, out / cell.name / f"run-{number}", definition.clock, hosts)
        for number in range(1, definition.seeds + 1)
        for cell in cells
    ]


def check_profiles(definition: Definition, cells: Sequence[Combination]) -> None:
    """Raise InputError for a profile that is neither fabtune's nor a tuner, which a guest would find after its boot."""
    for name in dict.fromkeys(cell.settings.profile for cell in cells):
        if name in TUNERS:
            continue
        try:
            load_profile(name, shipped_catalog())
        except InputError as error:
            raise InputError(f"{definition.path}: {error}, or a tuner: {', '.join(TUNERS)}") from None


def run_all(
    definition: Definition, runs: Sequence[Run], *, resume: bool, progress: Progress, jobs: int = 0
) -> list[Point]:
    """Run what is not there yet, `jobs` guests at a time (0: one a core), and return all points in the order of `runs`.

    Without `resume` everything runs anew; with it, what came from something else does, and is named.  What was there is
    put aside once there are images to measure with.  Raises RunsFailedError naming every one that failed, after the
    others have ended; an interrupt stops the guests at once and loses only their runs.
    """
    waiting = to_measure(runs, resume=resume, progress=progress)
    missing = [run for run in waiting if fabrics.find(run.settings.fabric).MISSING]
    waiting = [run for run in waiting if not fabrics.find(run.settings.fabric).MISSING]
    suites = dict.fromkeys(name for run in waiting for name in images_of(run.settings))
    workers = jobs or os.cpu_count() or 1
    progress.begin([step for suite in suites for step in expected_steps(suite)])
    progress.begin([(run.name, EXPECTED_RUN_S) for run in waiting], at_once=workers)
    images = {suite: build_image(suite, progress) for suite in suites} if waiting else {}
    make_room((*missing, *waiting))
    for run in missing:
        _say_missing(run, fabrics.find(run.settings.fabric).MISSING)
    if definition.clock == "real":
        waiting = interleave.in_random_blocks(waiting, lambda run: run.number)
    refuse_failures(_run_waiting(definition, waiting, images, workers, progress), runs)
    return [point for run in runs for point in run.points()]


class RunsFailedError(FabtuneError):
    """Runs of an experiment failed; the message says which and why."""


def refuse_failures(failures: Sequence[str], runs: Sequence[Run]) -> None:
    """Raise RunsFailedError where of `runs` some failed, as `failures` say."""
    if failures:
        raise RunsFailedError(f"{len(failures)} of {len(runs)} runs failed:\n" + "\n".join(failures))


def to_measure(runs: Sequence[Run], *, resume: bool, progress: Progress) -> list[Run]:
    """Return the runs to measure: all, or with `resume` those that are not there as they would be.

    Of the latter those are named that left something.
    """
    if not resume:
        return list(runs)
    waiting = []
    for run in runs:
        state = run.state()
        if state.status == "refused":
            progress.say(f"{run.name}: measured again: {state.why}")
        if state.status != "measured":
            waiting.append(run)
    return waiting


def make_room(runs: Sequence[Run]) -> None:
    """Put aside what is there of `runs`, which are about to be measured; what did not end well is removed."""
    for run in runs:
        if run.ended:
            earlier.put_aside([run.directory], run.tree)
        elif run.directory.exists():
            shutil.rmtree(run.directory)


def summary_of(runs: Sequence[Run]) -> list[Summary]:
    """Return one row a combination and direction: what its runs with all seeds say together."""
    rows = [
        (run.combination.factors, _with_bound(run, point, points))
        for run in runs
        for points in [run.points()]
        for point in points
    ]
    return summarise(rows, [run.combination.factors for run in failed_runs(runs)])


def failed_runs(runs: Sequence[Run]) -> list[Run]:
    """Return those of `runs` that failed."""
    return [run for run in runs if run.state().status == "failed"]


def _with_bound(run: Run, point: Point, points: Sequence[Point]) -> Point:
    """Return a point that has a bound with what that is: the payload that its line carries this way, and if the disk's.

    Directions that are measured at once, all `points` of a run, share its disk.
    """
    if point.get("bound_mb_per_s") is None:
        return point
    together = points if run.settings.op == "mixed" else [point]
    disk, bound = clients.disks_bytes_per_s(run.settings), sum(one.number("bound_mb_per_s") for one in together) * 1e6
    if disk and abs(bound / disk - 1) < _ROUNDED_BOUND:
        point |= {"bound_by": BY_DISK}
    told = clients.path_told(run.settings, run.settings.op if run.settings.op == "mixed" else point["op"])
    return point | {"line_mb_per_s": round(told.network.goodput_bytes_per_s / 1e6, 2)} if told.network else point


def said_of_part(runs: Sequence[Run], every: Sequence[Run]) -> str:
    """Return in words what is shown but was not asked for, and what is not; `runs` of `every` were asked for."""
    asked = {run.directory for run in runs}
    there = {run.directory for run in every if run.state().status == "measured"}
    said = []
    if others := len(there - asked):
        was, are = ("which was", "is") if others == 1 else ("which were", "are")
        said.append(f"{counted(others, 'run')} of other combinations, {was} there before, {are} shown as well")
    if missing := len(every) - len(there):
        names = [run.name for run in failed_runs(every)]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        which = f" (failed: {'; '.join(names[:_NAMED])}{more})" if names else ""
        are = "is" if missing == 1 else "are"
        left = f"{missing} of {len(every)} runs of the experiment {are} not there, or not to be used{which}"
        said.append(f"{left}: --resume without --only measures what is missing")
    return "; ".join(said)


def judge(definition: Definition, runs: Sequence[Run]) -> list[expect.JudgedExpectation]:
    """Return what became of everything that `definition` expects of its figures."""
    rows = [point | run.combination.factors for run in runs for point in run.points()]
    rows += [_untold(run, way) for run in failed_runs(runs) for op in ops_of(run.settings) for way in ways_of(op)]
    return [expect.judge(one, rows, definition.factors) for one in definition.expect]


def _untold(run: Run, way: str) -> Point:
    """Return the point of a run that failed: it tells nothing, and is missed."""
    host = {"host": expect.EVERY_HOST} if run.hosts else {}
    return Point({"op": way, "seed": run.settings.seed, **host, **run.combination.factors})


def _say_missing(run: Run, why: str) -> None:
    """Leave a point a direction that says why it has no figures."""
    fabric, seed = run.settings.fabric, run.settings.seed
    run.keep([Point({"fabric": fabric, "op": op, "seed": seed, "missing": why}) for op in ops_of(run.settings)])


def _run_waiting(
    definition: Definition, waiting: Sequence[Run], images: dict[str, Image], workers: int, progress: Progress
) -> list[str]:
    failures = []
    stop = threading.Event()
    with ThreadPoolExecutor(workers) as pool:
        pending: dict[Future[None], Run] = {
            pool.submit(_run_one, definition, run, images, stop, progress): run for run in waiting
        }
        try:
            while pending:
                for future in wait(pending, return_when=FIRST_COMPLETED).done:
                    run = pending.pop(future)
                    error = future.exception()
                    if isinstance(error, FabtuneError):
                        failures.append(f"{run.name}: {error}")
                        # Why, before the others have ended; all of it follows then.
                        progress.say(failures[-1].splitlines()[0])
                    elif error is not None:
                        raise error
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return failures


def _run_one(
    definition: Definition, run: Run, images: dict[str, Image], stop: threading.Event, progress: Progress
) -> None:
    image, kernel = (images[name] for name in images_of(run.settings))
    machine = Machine(
        image,
        kernel if kernel is not image else None,
        clock=definition.clock,
        accelerator=choose_accelerator("auto", kernel) if definition.clock == "real" else "tcg",
        seed=run.settings.seed,
    )
    module = build_module(kernel)
    with progress.step(run.name), tempfile.TemporaryDirectory(prefix="fabtune-run-") as name:
        job, draft = Path(name) / "job.cpio", Path(name) / "out"
        arguments = ["fabtune.experiment.combination", json.dumps(attrs.asdict(run.settings), sort_keys=True)]
        made_from = _given(
            run, lambda: write_job(job, GUEST_DIR / "python-module", arguments, image=image, module=module)
        )
        outcome = run_guest(machine, job, draft, timeout_s=_TIMEOUT_S, on_output=lambda _: None, stop=stop)
        ended = outcome.exit_status == 0 and (draft / keptrun.POINTS).exists()
        shutil.copytree(draft, run.directory)
        if not ended:
            (run.directory / keptrun.POINTS).unlink(missing_ok=True)
            said = (draft / _LOG).read_text(errors="replace").strip().splitlines()[-6:]
            raise FabtuneError("\n  ".join([f"exit {outcome.exit_status} (files in {run.directory})", *said]))
        keptrun.seal(run.directory, made_from)


def _given(run: Run, write: Callable[[], None]) -> Origin:
    """Let `write` take what the guest gets of this tree and return what the run thus comes from."""
    look_anew()
    before = run.origin
    write()
    look_anew()
    if run.origin != before:
        raise FabtuneError("fabtune's own code was changed while it was copied for the guest: run it again")
    return before

# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs combinations in lab guests, as many at a time as there are CPUs and memory for, and keeps each run's files.

A run's directory holds what its guest left (records, points, console) and, written last, the note of what it came
from: a run that is not whole, or came from something else, runs again.
"""

import json
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
from fabtune.experiment import clients, earlier, expect, left_out
from fabtune.experiment.at_once import guests_at_once
from fabtune.experiment.definition import Combination, Definition
from fabtune.experiment.inventory import Inventory
from fabtune.experiment.places import like_others, only_place, points_due, points_lacking
from fabtune.experiment.present import images_of, look_anew, origin_now
from fabtune.experiment.settings import decided, ops_of
from fabtune.experiment.summary import UNTOLD, Summary, summarise
from fabtune.experiment.tuners import HANDS_OFF, TUNERS
from fabtune.lab import fabrics, left
from fabtune.lab.accel import choose_accelerator
from fabtune.lab.image import Image, build_image, expected_steps
from fabtune.lab.initramfs import GUEST_DIR
from fabtune.lab.job import write_job
from fabtune.lab.module import build_module
from fabtune.lab.vm import Machine, run_guest
from fabtune.measure import interleave, keptrun
from fabtune.model.factors import Settings
from fabtune.model.judgement import CANNOT_BE_RIGHT
from fabtune.model.listing import first_of
from fabtune.model.origin import Origin
from fabtune.model.results import FAILED, LACKING, LEFT_OUT, Point, Status
from fabtune.model.units import counted
from fabtune.progress import Progress

# A guest that measures one combination took this long at most on 2 cores; only the time shown as left depends on it.
EXPECTED_RUN_S = 75.0
# 128 sessions logging in, in a guest that shares its core, are the slowest of the shipped ones.
_TIMEOUT_S = 1800.0
# `fabtune tune` takes up to 90 s of the guest's clock for each direction, which can be three times what is measured.
_TUNING_S = 3600.0
# So many runs are named.
_NAMED = 3
# Why a run failed that left no word of it.
_DID_NOT_END = "it did not end well"
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
    """One run of a combination, `number` from 1 on, and where its files are; a `fleet` measures it, if any."""

    combination: Combination
    number: int
    directory: Path
    clock: str = "virtual"
    fleet: Inventory | None = None

    @property
    def hosts(self) -> tuple[str, ...]:
        return self.fleet.initiators if self.fleet else ()

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
        return origin_now(self.settings, self.clock, self.fleet)

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

    @property
    def failed_before(self) -> str:
        """Why the run failed before it was measured; nothing where it did not, or where that is not known."""
        return earlier.failure(self.directory, self.tree)

    def keep(self, points: Sequence[Point], disks: tuple[str, ...] = (), kernel: str = "") -> None:
        """Write what the run measured, on a fleet with which disks and kernels; its other files are there already."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / keptrun.POINTS).write_text(keptrun.as_text(points))
        keptrun.seal(self.directory, attrs.evolve(self.origin, disks=disks, kernel=kernel or self.origin.kernel))


def _last_said(directory: Path) -> str:
    """Return the last line that a guest said in a run that failed; nothing where there is none."""
    log = directory / _LOG
    lines = log.read_text(errors="replace").strip().splitlines() if log.is_file() else []
    return lines[-1].strip() if lines else ""


def runs_of(
    definition: Definition, cells: Sequence[Combination], out: Path, fleet: Inventory | None = None
) -> list[Run]:
    """Return every run of `cells`, all with one seed before the next; no clock but the real one runs on a fleet."""
    clock = "real" if fleet else definition.clock
    return [
        Run(cell, number, out / cell.name / f"run-{number}", clock, fleet)
        for number in range(1, definition.seeds + 1)
        for cell in cells
    ]


def check_profiles(definition: Definition, cells: Sequence[Combination]) -> None:
    """Raise InputError for a profile that is neither fabtune's nor a tuner, which a guest would find after its boot."""
    for name in dict.fromkeys(cell.settings.profile for cell in cells):
        if name in (HANDS_OFF, *TUNERS):
            continue
        try:
            load_profile(name, shipped_catalog())
        except InputError as error:
            raise InputError(f"{definition.path}: {error}, or a tuner: {', '.join((*TUNERS, HANDS_OFF))}") from None


def run_all(
    definition: Definition, runs: Sequence[Run], *, resume: bool, progress: Progress, jobs: int = 0
) -> list[Point]:
    """Run what is not there yet, `jobs` guests at a time (0: as many as fit), and return all points as `runs` stand.

    Without `resume` everything runs anew; with it, what came from something else does, and is named.  What was there is
    put aside once there are images to measure with.  Raises RunsFailedError naming every one that failed, after the
    others have ended; an interrupt stops the guests at once and loses only their runs.
    """
    waiting = to_measure(runs, resume=resume, progress=progress)
    missing = [run for run in waiting if fabrics.find(run.settings.fabric).MISSING]
    waiting = [run for run in waiting if not fabrics.find(run.settings.fabric).MISSING]
    suites = dict.fromkeys(name for run in waiting for name in images_of(run.settings))
    workers = jobs or guests_at_once()
    progress.begin([step for suite in suites for step in expected_steps(suite)])
    progress.begin([(run.name, EXPECTED_RUN_S) for run in waiting], at_once=workers)
    images = {suite: build_image(suite, progress) for suite in suites} if waiting else {}
    make_room((*missing, *waiting), resume=resume)
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


def make_room(runs: Sequence[Run], *, resume: bool) -> None:
    """Put aside what is there of `runs`, which are about to be measured; what did not end well is removed.

    Where their experiment goes on, with `resume`, it stays known why: who measures until nothing fails must be told.
    """
    for run in runs:
        if not resume:
            earlier.forget_failure(run.directory, run.tree)
        elif run.state().status == "failed":
            earlier.note_failure(run.directory, run.tree, run.state().why or _DID_NOT_END)
        if run.ended:
            earlier.put_aside([run.directory], run.tree)
        elif run.directory.exists():
            shutil.rmtree(run.directory)


def summary_of(runs: Sequence[Run]) -> list[Summary]:
    """Return one row a combination and direction: what its runs with all seeds say together.

    Of runs that failed, of those that are left out, and of what others tell and one does not, a point says so.
    """
    states = [(run, run.state()) for run in runs]
    left = [(run, state.points) for run, state in states]
    rows = []
    for run, state in states:
        sound, out, _ = left_out.sifted(run.directory, state.points)
        bounded = [clients.with_what_bounds(run.settings, point, state.points) for point in sound]
        points = [Point({"seed": run.settings.seed}) | point for point in bounded]
        if state.status == "failed":
            points += [place | {UNTOLD: FAILED} for place in like_others(run, left)]
        if state.status == "measured":
            points += [place | {UNTOLD: LACKING} for place in points_lacking(run, state.points, left)]
        points += [only_place(point) | {UNTOLD: LEFT_OUT} for point in out]
        rows += [(run.combination.factors, point | decided(run.settings.workload)) for point in points]
    return summarise(rows)


def failed_runs(runs: Sequence[Run]) -> list[Run]:
    """Return those of `runs` that failed."""
    return [run for run in runs if run.state().status == "failed"]


def said_of_part(runs: Sequence[Run], every: Sequence[Run]) -> str:
    """Return in words what is shown but was not asked for, and what is not; `runs` of `every` were asked for."""
    asked = {run.directory for run in runs}
    measured = [(run, state.points) for run in every if (state := run.state()).status == "measured"]
    there = {run.directory for run, _ in measured}
    said = []
    if others := len(there - asked):
        was, are = ("which was", "is") if others == 1 else ("which were", "are")
        said.append(f"{counted(others, 'run')} of other combinations, {was} there before, {are} shown as well")
    if out := [f"{run.name}: {why}" for run in every for why in left_out.sifted(run.directory, run.points())[2]]:
        runs_are = f"{counted(len(out), 'run')} {'is' if len(out) == 1 else 'are'}"
        said.append(f"{runs_are} left out, {CANNOT_BE_RIGHT}: {_named(out)}")
    lacks = [(run.name, _ways(points_lacking(run, points, measured))) for run, points in measured]
    if silent := [f"{name}: {' and '.join(ways)}" for name, ways in lacks if ways]:
        tell = "1 run tells" if len(silent) == 1 else f"{len(silent)} runs tell"
        said.append(f"{tell} nothing of a direction that others tell: {_named(silent)}")
    if before := [f"{run.name}: {run.failed_before}" for run in every if run.directory in there and run.failed_before]:
        said.append(f"{counted(len(before), 'run')} failed before {_were(before)} measured: {_named(before)}")
    if missing := len(every) - len(there):
        names = [run.name for run in failed_runs(every)]
        which = f" (failed: {_named(names)})" if names else ""
        are = "is" if missing == 1 else "are"
        left = f"{missing} of {len(every)} runs of the experiment {are} not there, or not to be used{which}"
        said.append(f"{left}: --resume without --only measures what is missing")
    return "; ".join(said)


def _ways(points: Sequence[Point]) -> dict[str, None]:
    return dict.fromkeys(str(point["op"]) for point in points)


def _named(names: Sequence[str]) -> str:
    return first_of(names, _NAMED, "; ")


def _were(runs: Sequence[object]) -> str:
    return "it was" if len(runs) == 1 else "they were"


def judge(definition: Definition, runs: Sequence[Run]) -> list[expect.JudgedExpectation]:
    """Return what became of everything that `definition` expects; a run that failed, or is left out, is missed.

    So is one that tells nothing of a direction that others tell.
    """
    rows = []
    states = [(run, run.state()) for run in runs]
    left = [(run, state.points) for run, state in states]
    for run, state in states:
        sound, out, _ = left_out.sifted(run.directory, state.points)
        points = points_due(run) if state.status == "failed" else [*sound, *map(only_place, out)]
        points += points_lacking(run, state.points, left) if state.status == "measured" else []
        # A fleet's points do not say theirs.
        told = Point({"seed": run.settings.seed}) | decided(run.settings.workload)
        rows += [told | point | run.combination.factors for point in points]
    return [expect.judge(one, rows, definition.factors) for one in definition.expect]


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
    timeout_s = _TIMEOUT_S + (_TUNING_S if run.settings.profile == HANDS_OFF else 0)
    with progress.step(run.name), tempfile.TemporaryDirectory(prefix="fabtune-run-") as name:
        job, draft = Path(name) / "job.cpio", Path(name) / "out"
        arguments = ["fabtune.experiment.combination", json.dumps(attrs.asdict(run.settings), sort_keys=True)]
        made_from = _given(
            run, lambda: write_job(job, GUEST_DIR / "python-module", arguments, image=image, module=module)
        )
        outcome = run_guest(machine, job, draft, timeout_s=timeout_s, on_output=lambda _: None, stop=stop)
        ended = outcome.exit_status == 0 and (draft / keptrun.POINTS).exists()
        shutil.copytree(draft, run.directory, ignore=shutil.ignore_patterns(left.LIST))
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

# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs combinations on a fleet of real hosts through Ansible: apply, start together, fetch, take back.

A run's directory gets, for each initiator, ``HOST/OP.run.json.gz`` (its record) and ``HOST/OP.start.json`` (when
it began), and ``ansible.log``.  ``points.json`` and the note of what the run came from are written last, and only
when every host was measured.
"""

import configparser
import json
import os
import shlex
import shutil
import signal
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from fabtune.errors import FabtuneError, InputError
from fabtune.experiment.at_once import memory_allows
from fabtune.experiment.batch import Run, make_room, refuse_failures, to_measure
from fabtune.experiment.definition import Definition
from fabtune.experiment.inventory import Inventory
from fabtune.experiment.settings import ops_of, parameters_of, ways_of
from fabtune.experiment.taking_back import taken_back_whole
from fabtune.experiment.tuners import LABS_OWN
from fabtune.experiment.untold import untold_of
from fabtune.host.run import ended, launch, require, tail
from fabtune.installed import data_dir
from fabtune.measure import interleave, measured, metrics, recordfile, workload
from fabtune.model import typed
from fabtune.model.document import printed
from fabtune.model.origin import each
from fabtune.model.results import EVERY_HOST, Point, rounded
from fabtune.model.untouched import UNTOUCHED
from fabtune.progress import Progress
from fabtune.tune import signals

# What a fleet can be told; its path, kernels, sessions and targets are what they are.
_OURS = ("profile", "workload", "size", "depth", "op", "ramp", "runtime")
# What may be said of the path so that formulas and bounds know it, and the replicate's number.
_SAID = ("rtt", "rate", "seed")
# A host that dies must not hang the others: ssh asks a silent host three times in 15 s.
_SSH_ARGS = "-o ControlMaster=auto -o ControlPersist=60s -o ServerAliveInterval=5 -o ServerAliveCountMax=3"

# A process of Ansible for each host: what begins together must not wait for another's end, and five are its default.
# Beyond this, or what memory is there for, hosts take turns.
_MOST_AT_ONCE, _BYTES_EACH = 200, 50 << 20
# What starting a process for each host and reaching it takes before all of them can look: the first waits for the last.
_REACH_S, _REACH_HOST_S = 5.0, 0.15

# In a run's directory, which has one of each host: no host is called so.
_TRANSACTIONS = ".transactions"


class NotTakenBackError(FabtuneError):
    """A profile may still be in force on hosts of a fleet; the message says where, why and what to do."""


@attrs.frozen
class _Start:
    """When a host's load began by its own clock, and how far that was ahead of true time."""

    wanted_unix_s: float
    begun_unix_s: float
    clock_offset_ms: float
    clock_uncertainty_ms: float


def check_definition(definition: Definition) -> None:
    """Raise InputError when `definition` asks for what only the lab can set."""
    _check_names(definition, "factors", definition.factors, _OURS)
    _check_names(definition, "fixed", definition.fixed, _OURS + _SAID)
    if "net" in (*definition.factors.get("workload", ()), definition.fixed.get("workload")):
        raise InputError(
            f"{definition.path}: workload = net: found the network alone, expected a load on disks, which a fleet "
            "measures; `fabtune measure net --peer HOST` measures the network between two hosts"
        )
    profiles = (*definition.factors.get("profile", ()), definition.fixed.get("profile"))
    if name := next((one for one in profiles if one in LABS_OWN), None):
        raise InputError(
            f"{definition.path}: profile = {name}: found what tunes the lab's guests, expected a profile that "
            f"`fabtune apply` can apply to a fleet, or {UNTOUCHED}"
        )


def _check_names(definition: Definition, table: str, names: Iterable[str], allowed: Sequence[str]) -> None:
    for name in names:
        if name not in allowed:
            raise InputError(
                f"{definition.path}: {table}.{name}: fabtune cannot set the {name} of a fleet; allowed in [{table}]: "
                f"{', '.join(allowed)}; leave it out or run in the lab"
            )


def run_all(
    definition: Definition,
    runs: Sequence[Run],
    inventory: Inventory,
    *,
    allow_relogin: bool,
    resume: bool,
    progress: Progress,
) -> list[Point]:
    """Run what is not there yet, one after another in random blocks, and return all points in the order of `runs`.

    Raises FabtuneError before anything is begun where something is in force already, and RunsFailedError naming every
    host that failed; the others' records stay.  After each run, a failed or interrupted one too, what it applied is
    taken back on every host that can be reached; where that fails somewhere, no other run is begun: it would be
    measured with a profile in force that it does not name.
    """
    waiting = to_measure(runs, resume=resume, progress=progress)
    if waiting:
        _check_untouched(inventory)
    make_room(waiting, resume=resume)
    progress.begin([(run.name, expected_s(run)) for run in waiting])
    failures = []
    for begun, run in enumerate(interleave.in_random_blocks(waiting, lambda run: run.number)):
        try:
            with progress.step(run.name):
                if begun:
                    _check_untouched(inventory)
                _run(definition, run, inventory, allow_relogin, progress)
        except FabtuneError as error:
            failures.append(f"{run.name}: {error}")
            # At once: whatever ends the others could hide it.
            progress.say(failures[-1])
            if isinstance(error, NotTakenBackError):
                break
    refuse_failures(failures, runs)
    return [point for run in runs for point in run.points()]


def _check_untouched(inventory: Inventory) -> None:
    """Raise FabtuneError naming each host where something is in force, or of which that cannot be told.

    A run would be measured with it, whatever profile it names.
    """
    _play("untouched", inventory, {}, None)


def expected_s(run: Run) -> float:
    """Return about how long a run takes: two loads and the playbooks around them."""
    return 2 * float(run.settings.ramp_s + run.settings.runtime_s + 20) + 30


def _run(definition: Definition, run: Run, inventory: Inventory, allow_relogin: bool, progress: Progress) -> None:
    run.directory.mkdir(parents=True)
    settings = run.settings
    path = {key: definition.fixed[key] for key in ("rtt", "rate") if key in definition.fixed}
    tuning: dict[str, Any] = {**path, "profile": settings.profile, "allow_relogin": allow_relogin}
    # What each host's apply was called: that alone goes back, not what others have applied of the same profile.
    tuning["transactions"] = str(run.directory.resolve() / _TRANSACTIONS)
    untouched = settings.profile == UNTOUCHED
    try:
        points = _measure(run, inventory) if untouched else _with_profile(run, inventory, tuning, progress)
        run.keep(points, *_seen(run, inventory))
    except KeyboardInterrupt:
        # What somebody ended has not failed.
        shutil.rmtree(run.directory)
        raise


def _seen(run: Run, inventory: Inventory) -> tuple[tuple[str, ...], str]:
    """Return which disks the devices of the hosts were while a run was measured, and which kernels the hosts had.

    A name may be another disk's the next time.
    """
    disks: set[tuple[str, str]] = set()
    kernels: set[tuple[str, str]] = set()
    for host in inventory.initiators:
        for path in sorted((run.directory / host).glob(f"*{recordfile.SUFFIX}")):
            taken = recordfile.read(path)
            disks.add((host, taken.target.wwid))
            kernels.add((host, taken.host.kernel))
    return each(disks), ", ".join(each(kernels))


def _with_profile(run: Run, inventory: Inventory, tuning: Mapping[str, Any], progress: Progress) -> list[Point]:
    """Measure with the profile in force and take it back, whatever happened.

    Raises NotTakenBackError, which tells how the run ended as well, where the profile is not back everywhere.
    """
    Path(tuning["transactions"]).mkdir()
    try:
        _play("apply", inventory, tuning, run.directory)
        points = _measure(run, inventory)
    except KeyboardInterrupt:
        _take_back(run, inventory, tuning, "interrupted", progress)
        raise
    except BaseException as error:
        _take_back(run, inventory, tuning, str(error) or type(error).__name__, progress)
        raise
    _take_back(run, inventory, tuning, "", progress)
    return points


def _take_back(run: Run, inventory: Inventory, tuning: Mapping[str, Any], ended: str, progress: Progress) -> None:
    """Take back what a run applied that `ended` so; not even a second Ctrl-C stops that.

    Raises NotTakenBackError, and KeyboardInterrupt where a signal came meanwhile.
    """

    def back() -> None:
        if ended:
            signals.unfailing(progress.say)(f"{run.name}: {ended.splitlines()[0]}; taking the profile back ...")
        _play("revert", inventory, tuning, run.directory)

    left, interrupted = taken_back_whole(back)
    if left:
        command = ["ansible-playbook", "--inventory", str(inventory.path), "fabtune.fleet.revert"]
        command += ["--extra-vars", "allow_relogin=true"] if tuning["allow_relogin"] else []
        command += ["--extra-vars", json.dumps({name: tuning[name] for name in ("profile", "transactions")})]
        again = shlex.join(["env", f"ANSIBLE_COLLECTIONS_PATH={data_dir('ansible')}", *command])
        lines = [ended or "interrupted"] if ended or interrupted else []
        lines.append(f"not taken back everywhere: {left}")
        lines.append(f"take it back, once all hosts can be reached, with: {again}")
        raise NotTakenBackError("\n  ".join(lines))
    if interrupted:
        raise KeyboardInterrupt


def _measure(run: Run, inventory: Inventory) -> list[Point]:
    settings = run.settings
    load = workload.load(settings.workload)
    points = []
    for op in ops_of(settings):
        variables: dict[str, Any] = {
            "workload": settings.workload,
            # What nobody can set of a fleet stays as the workload has it.
            "parameters": parameters_of(load, settings, op, _OURS),
            "op": op,
            "label": settings.profile,
            "results": str(run.directory.resolve()),
        }
        if not load.time.ends_with_data:
            variables |= {"runtime_s": settings.runtime_s, "ramp_s": settings.ramp_s}
        _play("measure", inventory, variables, run.directory)
        points += _points(run, inventory, op)
    return points


def _points(run: Run, inventory: Inventory, op: str) -> list[Point]:
    """Return one point a host, and their sum under the name EVERY_HOST."""
    found: list[Point] = []
    latencies: dict[str, list[measured.Latencies]] = {}
    for host in inventory.initiators:
        taken = recordfile.read(run.directory / host / f"{op}{recordfile.SUFFIX}")
        said = run.directory / host / f"{op}.start.json"
        start = typed.TOLERANT.read(_Start, printed(said.read_text(), str(said)), str(said))
        steps = [(step, {metric.key: metric.value for metric in metrics.of_step(step)}) for step in taken.steps]
        late_s = start.begun_unix_s - start.wanted_unix_s
        for way in ways_of(op):
            moved = [(step, told) for step, told in steps if f"{way}_mb_per_s" in told]
            if not moved:
                continue
            # Of several steps the last counts, as in the lab: after the cached ones, that on disk.
            step, figures = moved[-1]
            latencies.setdefault(way, []).append(measured.latencies(step, way))
            found.append(
                Point({
                    "profile": run.settings.profile,
                    "host": host,
                    "op": way,
                    "mb_per_s": rounded(figures[f"{way}_mb_per_s"], 2),
                    **{name: _rounded(figures.get(f"{way}_{name}")) for name in ("p50_ms", "p99_ms")},
                    **untold_of(step, way),
                    "begun_late_ms": round(late_s * 1e3 - start.clock_offset_ms, 1),
                    "clock_offset_ms": round(start.clock_offset_ms, 3),
                    "clock_uncertainty_ms": round(start.clock_uncertainty_ms, 3),
                })
            )  # fmt: skip
    return found + [_sum([one for one in found if one["op"] == way], latencies[way]) for way in latencies]


def _rounded(value_ms: float | None) -> float | None:
    return None if value_ms is None else rounded(value_ms, 3)


def _sum(points: Sequence[Point], latencies: Sequence[measured.Latencies]) -> Point:
    """Return all hosts' points of one direction as one: what they moved together, and the latest begin.

    Percentiles are those of all hosts' requests together.
    """
    every = measured.together(latencies)
    values = {key: every.quantile_ns(share) for key, share in (("p50_ms", 0.5), ("p99_ms", 0.99))}
    return Point(
        {
            "profile": points[0]["profile"],
            "host": EVERY_HOST,
            "op": points[0]["op"],
            "mb_per_s": rounded(sum(one.number("mb_per_s") for one in points), 2),
            **{key: _rounded(None if ns is None else ns / 1e6) for key, ns in values.items()},
            "begun_late_ms": max(one.number("begun_late_ms") for one in points),
        }
    )


def play_why(inventory: Inventory, seconds: float, directory: Path) -> None:
    """Let all hosts look at their sessions for `seconds`; what each says goes to `directory`, as HOST.json.

    All begin at one instant by their own clocks; who is reached later begins at once.
    Raises FabtuneError naming each host that failed and why.
    """
    at_unix_s = time.time() + _REACH_S + _REACH_HOST_S * _at_once(inventory)
    variables = {"seconds": f"{seconds:g}", "at_unix_s": f"{at_unix_s:.1f}", "results": str(directory)}
    _play("why", inventory, variables, None)


def _at_once(inventory: Inventory) -> int:
    """Return how many hosts are worked on at once, where nobody says otherwise."""
    hosts = len({*inventory.initiators, *inventory.targets})
    return memory_allows(min(hosts, _MOST_AT_ONCE), _BYTES_EACH)


def _forks_are_said() -> bool:
    """Tell whether the configuration that Ansible reads, the first that is there, sets a number of its own."""
    told = os.environ.get("ANSIBLE_CONFIG")
    told = str(Path(told, "ansible.cfg")) if told and Path(told).is_dir() else told
    places = [*([told] if told else []), "ansible.cfg", "~/.ansible.cfg", "/etc/ansible/ansible.cfg"]
    found = next((path for path in (Path(one).expanduser() for one in places) if path.is_file()), None)
    if found is None:
        return False
    config = configparser.RawConfigParser(strict=False)
    try:
        config.read(found)
    except (configparser.Error, UnicodeError):
        # Ansible says what is wrong with it.
        return True
    return config.has_option("defaults", "forks")


def _play(name: str, inventory: Inventory, variables: Mapping[str, Any], directory: Path | None) -> None:
    """Run one playbook of the collection; its output is added to ``ansible.log`` in `directory`, or is not kept.

    Raises FabtuneError naming each host that failed and why, and the log that is kept.
    """
    program = require("ansible-playbook", "ansible-core")
    with tempfile.TemporaryDirectory(prefix="fabtune-fleet-") as scratch:
        log = (directory or Path(scratch)) / "ansible.log"
        extra, failed = Path(scratch) / "variables.json", Path(scratch) / "failures"
        extra.write_text(json.dumps(variables))
        failed.touch()
        collections = [str(data_dir("ansible")), os.environ.get("ANSIBLE_COLLECTIONS_PATH")]
        environment = {
            "ANSIBLE_SSH_ARGS": _SSH_ARGS,
            **({} if _forks_are_said() else {"ANSIBLE_FORKS": str(_at_once(inventory))}),
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": ":".join(filter(None, collections)),
            "ANSIBLE_CALLBACKS_ENABLED": "fabtune.fleet.failures,fabtune.fleet.transactions",
            "ANSIBLE_RETRY_FILES_ENABLED": "false",
            "FABTUNE_FAILURES": str(failed),
            "FABTUNE_TRANSACTIONS": variables.get("transactions", scratch),
        }
        command = [program, "--inventory", str(inventory.path), "--extra-vars", f"@{extra}", f"fabtune.fleet.{name}"]
        with log.open("ab") as sink:
            status = _to_its_end(command, environment, sink)
        found = [json.loads(line) for line in failed.read_text().splitlines()]
        said = tail(log.read_text(errors="replace")) if status else ""
    if found:
        raise FabtuneError("; ".join(_said(one) for one in found) + (f" ({log} has it all)" if directory else ""))
    if status != 0:
        raise FabtuneError(f"ansible-playbook {name}: exit {status}{f' ({log})' if directory else ''}\n{said}")


def _said(failure: Mapping[str, Any]) -> str:
    lost = "lost or out of reach: " if failure["unreachable"] else ""
    return f"{failure['host']}: {failure['task']}: {lost}{failure['message'].strip()}"


def _to_its_end(command: Sequence[str], environment: Mapping[str, str], sink: Any) -> int:
    """Run `command` to its end; an interrupt of ours ends it in order first, so that no host is left half-way."""
    # At the terminal's Ctrl-C Ansible would drop its connections at once.
    process = launch(command, log=sink, env=environment)
    try:
        return process.wait()
    except BaseException:
        # A second Ctrl-C would leave it running beside the playbook that takes back.
        with signals.held_back():
            os.killpg(process.pid, signal.SIGINT)
            if not ended(process, 30):
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        raise

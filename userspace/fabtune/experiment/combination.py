# SPDX-License-Identifier: GPL-2.0-or-later
"""Inside a lab guest: measures one combination, leaves records and points.

Run as ``python3 -m fabtune.experiment.combination SETTINGS-AS-JSON``.
"""

import contextlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path

import attrs

from fabtune.errors import FabtuneError
from fabtune.experiment import clients, hands_off, raw
from fabtune.experiment.settings import common, ops_of, parameters_of, ways_of
from fabtune.experiment.testbed import Testbed, mount
from fabtune.experiment.untold import untold_of
from fabtune.host.run import run
from fabtune.lab import cross, joined, topology
from fabtune.lab.cpu_time import CpuTime
from fabtune.measure import checks, measured, measurement, metrics, recordfile, target, verdicts, workload
from fabtune.measure.workload_run import measure
from fabtune.model.document import Json
from fabtune.model.factors import Settings
from fabtune.model.path import LINUX_FRAMING, NetworkPath
from fabtune.model.results import Point, rounded
from fabtune.model.runrecord import PathTold, RunRecord, StepResult, Value
from fabtune.tune.switch import Ends, target_values

RESULTS = Path("/results")
MODULE = Path("/fabtune/kmod/fabstat.ko")


def main() -> int:
    """Measure the combination given on the command line; results go to RESULTS."""
    try:
        points = run_combination(Settings(**json.loads(sys.argv[1])))
    except FabtuneError as error:
        print(f"fabtune: {error}", file=sys.stderr)
        return error.exit_code
    (RESULTS / "points.json").write_text(json.dumps([dict(one) for one in points], indent=1, sort_keys=True) + "\n")
    return 0


def run_combination(settings: Settings) -> list[Point]:
    """Return one point a direction.  Raises FabtuneError when the path, the tuning or the load fails."""
    testbed = Testbed(settings)
    if settings.workload == "net":
        return [common(settings, op) | figures for op, figures in raw.measure(settings, RESULTS)]
    run(["insmod", MODULE], what="loading fabstat.ko")
    points: list[Point] = []
    disks, theirs = testbed.tune(), target_tunables()
    for op in ops_of(settings):
        if points:
            disks = testbed.renew()
        did = hands_off.tuned_beside_load(settings, testbed.path, disks, op)
        around = target_tunables() | {hands_off.DID: did} if did else theirs
        points += measure_op(testbed, disks, op, around)
        if points[-1].number("oldest_s") > clients.STUCK_S:
            # A session whose requests hang cannot log out; there is nothing left to measure.
            break
    return points


def measure_op(testbed: Testbed, disks: list[str], op: str, theirs: Mapping[str, Json]) -> list[Point]:
    """Measure one direction, or those that the workload mixes, and return the points; full records go to RESULTS.

    The records have every tunable of both ends as it is read back, the target's, which no login changes, from `theirs`,
    and what tuned beside the load before.
    """
    settings, path = testbed.settings, testbed.path
    topology.lose_anew(path)
    before = topology.qdisc_counters()
    found: list[Point] = []
    with testbed.faults() as events, cross.traffic(settings.cross, op) as arrived:
        if len(disks) > 1:
            taken, seen = clients.measure(disks, op, settings)
            for way, part in clients.by_way(op, seen):
                point = common(settings, way) | clients.figures(taken, way, part) | untold_of(taken.steps[0], way)
                point |= clients.off_by(part) if op == "mixed" else {}
                found.append(with_bound(point, taken, taken.steps[0], way))
        else:
            crossed = clients.path_told(settings, op) if testbed.fabric.CROSSES_PATH else PathTold()
            idle = joined.moved_bytes(disks[0])
            taken = measure_one(settings, crossed, disks[0], op)
            evenly = evenness(idle, joined.moved_bytes(disks[0]))
            moved = [way for way in ways_of(op) if moved_data(taken, way)]
            own = testbed.fabric.figures() | evenly
            for way in moved:
                step, figures = figures_of(way, taken)
                found.append(with_bound(common(settings, way) | figures | own, taken, step, way))
    if arrived:
        found = [point | crossing(settings, arrived, taken) for point in found]
    if settings.cpu == "ends":
        shares = ends_of_cpu(settings, disks[0], op)
        found = [point | {f"{end}_cpu_share": _rounded(shares.get(end), 3) for end in metrics.ENDS} for point in found]
        taken = attrs.evolve(taken, steps=(*taken.steps[:-1], attrs.evolve(taken.steps[-1], cpu_shares=shares)))
    after = topology.qdisc_counters()
    if testbed.fabric.CROSSES_PATH:
        topology.assert_clean(before, after, path)
    around = taken.environment | measurement.tunables_now() | dict(theirs)
    around |= {"qdiscs_before": before, "qdiscs_after": after}
    taken = attrs.evolve(taken, environment=around, events=tuple(events))
    recordfile.write(taken, RESULTS / f"{op}.run.json.gz")
    return found


def evenness(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, float]:
    """Return what the session of joined ones that moved least has moved, over the mean of all; nothing for one disk."""
    moved = [after[disk] - before.get(disk, 0) for disk in after]
    return {"slowest_share": round(min(moved) * len(moved) / sum(moved), 3)} if moved and sum(moved) else {}


def crossing(settings: Settings, arrived: cross.Arrived, taken: RunRecord) -> dict[str, float]:
    """Return the payload per second that other hosts got of the line during the measured part."""
    begun_unix_s = (taken.steps[-1].begun_unix_s or 0.0) + settings.ramp_s
    per_s = arrived.bytes_per_s(begun_unix_s, begun_unix_s + settings.runtime_s)
    line = NetworkPath(settings.rtt_ms / 1e3, settings.rate_bit_per_s / 8, settings.mtu, framing_bytes=LINUX_FRAMING)
    return {"cross_mb_per_s": round(per_s * line.goodput_bytes_per_s / line.rate_bytes_per_s / 1e6, 4)}


def target_tunables() -> dict[str, Json]:
    """Return every tunable of a target in a namespace of its own, read back, as ``target: NAME of DEVICE``."""
    theirs = target_values(Ends(target_netns=topology.target_namespace() or ""))
    return {f"target: {name}": value for name, value in theirs.items()}


def ends_of_cpu(settings: Settings, disk: str, op: str) -> dict[str, float]:
    """Return whom the CPU's time serves, nothing where that cannot be told.

    Of a load of its own, since the tracepoints that tell it cost up to a tenth of the time.
    """
    with contextlib.closing(CpuTime()) as meter:
        taken = measure_one(settings, PathTold(), disk, op, meter)
    return metrics.cpu_by_end(taken.steps[-1])


def measure_one(settings: Settings, path: PathTold, disk: str, op: str, meter: CpuTime | None = None) -> RunRecord:
    """Return the run record of the combination's workload on one device, or on a file system on it."""
    work = workload.load(settings.workload)
    small = {name: value for name, value in SMALL_FILES.items() if name in work.parameters}
    wanted = small | parameters_of(work, settings, op)
    work = work.with_parameters([f"{name}={value}" for name, value in wanted.items()])
    files = work.target == "directory"
    # Phases that move a given amount end with it.
    timed = not work.time.ends_with_data and (not files or work.time.runtime_s is not None)
    on = target.find(mount(disk, settings) if files else f"/dev/{disk}")
    taken = measure(
        work, attrs.evolve(on, meter=meter and meter.sample), label=settings.profile,
        runtime_s=settings.runtime_s if timed else None, ramp_s=settings.ramp_s if timed else None,
        environment={"settings": attrs.asdict(settings)},
        path=path,
        target_netns=topology.target_namespace(),
    )  # fmt: skip
    return attrs.evolve(taken, target=attrs.evolve(taken.target, limit_bytes_per_s=clients.disks_bytes_per_s(settings)))


# A guest's disk is RAM: files of the studies' number, not of their size.
SMALL_FILES = {
    "files": 64, "file_bytes": 4 << 20, "cache_file_bytes": 4 << 20, "disk_file_bytes": 32 << 20,
    "part_bytes": 32 << 20, "job_bytes": 65 * 1024_000,
}  # fmt: skip


def moved_data(taken: RunRecord, op: str) -> bool:
    """Tell whether any step of a record moved data in direction `op`."""
    return any(one.key == f"{op}_mb_per_s" for step in taken.steps for one in metrics.of_step(step))


def figures_of(op: str, taken: RunRecord) -> tuple[StepResult, dict[str, Value | None]]:
    """Return the figures of one device's record that tables and curves are made of, and the step they are of.

    Of a workload of several steps the last counts that moved data this way: after the cached ones, that on disk.
    """
    steps = [(step, {one.key: one.value for one in metrics.of_step(step)}) for step in taken.steps]
    step, figures = [(step, found) for step, found in steps if f"{op}_mb_per_s" in found][-1]
    seen = measured.seen(step)
    # md passes requests on without a queue of its own, and the page cache may keep all of a phase from the disk.
    if seen is None and taken.target.kind == "device" and Path(f"/sys/block/{taken.target.disk}/mq").exists():
        raise FabtuneError(f"fabstat saw no {op} on {taken.target.disk}: is the module loaded?")
    point: dict[str, Value | None] = {
        "mb_per_s": _rounded(figures[f"{op}_mb_per_s"], 4),
        "cpu_s_per_gb": _rounded(figures.get("cpu_s_per_gb"), 3),
        "oldest_s": _rounded(measured.oldest_s(step, op), 6),
        **{name: _rounded(figures.get(f"{op}_{name}"), 3) for name in ("p50_ms", "p99_ms")},
        **untold_of(step, op),
    }
    if seen is not None:
        point |= {"queue_full": seen.queue_full, "at_limit": round(seen.at_limit, 4)}
    said = [verdicts.limited_by(step, one) for one in step.limits if one.way == op]
    return step, point | {"limits": said[0]} if said else point


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else rounded(value, digits)


def with_bound(point: Point, taken: RunRecord, step: StepResult, op: str) -> Point:
    """Return `point` with the bound of path, depth, bursts and disk, and the share of it that was reached."""
    network = taken.path.network
    if network is None:
        return point
    # Requests of several sizes, or through the page cache, are bound by the line alone.
    bound = checks.bound(taken, step, op) or network.goodput_bytes_per_s
    share = point.number("mb_per_s") * 1e6 / bound
    reno = network.sandias_reno_bytes_per_s(point.number("loss"))
    if reno < bound:
        point |= {"mathis_mb_per_s": rounded(reno / 1e6, 2)}
    return point | {"bound_mb_per_s": rounded(bound / 1e6, 4), "fraction_of_bound": rounded(share, 4)}


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: GPL-2.0-or-later
"""One load on many disks at once, each in the hands of a process of its own: the clients of one target."""

import fcntl
import math
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import attrs

from fabtune.errors import FabtuneError, InputError
from fabtune.experiment.settings import ways_of
from fabtune.lab.waiting import until
from fabtune.measure import counters, fio, measured, metrics, target
from fabtune.measure.fio_options import Options
from fabtune.measure.watch import as_record, check_judge, only_disks
from fabtune.measure.workload import LoadStep
from fabtune.measure.workload_run import IDLE_S, host_used, new_result, sample_s
from fabtune.model.factors import Settings
from fabtune.model.path import LINUX_FRAMING
from fabtune.model.results import BY_DISK, OFF_BY, Point, rounded
from fabtune.model.runrecord import (
    Draft,
    PathTold,
    Readings,
    RunRecord,
    Sample,
    StepResult,
    Stuck,
    WorkloadUsed,
    begin,
)
from fabtune.model.units import counted
from fabtune.stat import DeviceInterval, StuckList, diff, parse, stuck
from fabtune.stat.snapshot import read_file

# GUPFS's criterion for many connections (FY2003, 16-node scalability): a request that cannot complete within a minute.
STUCK_S = 60.0
# How far a bound may be off because it is rounded.
_ROUNDED_BOUND = 0.005
_OPTIONS: Options = {"ioengine": "libaio", "direct": 1, "thread": 1, "norandommap": 1, "randrepeat": 0, "time_based": 1}


@attrs.frozen
class Client:
    """What one client's disk did in the measured part, and its throughput there."""

    interval: DeviceInterval
    bytes_per_s: float
    # How far that may be off where all clients ask in step.
    error_bytes_per_s: float = 0.0


def measure(disks: Sequence[str], op: str, settings: Settings) -> tuple[RunRecord, list[Client]]:
    """Return the record of one direction on all `disks`, and what fabstat saw of each in the measured part.

    Every disk gets ``queue_depth`` requests of ``size_bytes`` in a stream of its own, in a part of its own where all
    share one LUN; all begin at once.  Of `op` mixed the first half of the disks is written to, each at the stream's
    rate, and the rest is read as fast as it goes: CASPUR's DAQ buffer.  A request that hangs ends the load; the
    record is incomplete then, and nothing was measured.
    Raises FabtuneError when fio fails, a client never got through, or fabstat cannot tell of requests that hang.
    """
    check_judge(STUCK_S)
    program, version = fio.find()
    # What all disks are alike in; the record is of no single one.
    like = attrs.evolve(
        target.find(f"/dev/{disks[0]}").as_record(), path=f"{len(disks)} disks", disk=None, wwid="",
        limit_bytes_per_s=disks_bytes_per_s(settings),
    )  # fmt: skip
    draft = Draft(begin(
        workload=WorkloadUsed("clients", f"{len(disks)} clients at once", "GUPFS FY2003, D.3.6"), target=like,
        host=host_used(), runtime_s=settings.runtime_s, ramp_s=settings.ramp_s, label=settings.profile,
        path=path_told(settings, op),
        environment={"settings": attrs.asdict(settings)}, fio_version=version,
    ))  # fmt: skip
    seen: list[Client] = []
    with tempfile.TemporaryDirectory(prefix="fabtune-clients-") as scratch:
        gate = Path(scratch) / "gate"
        gate.touch()
        step = _step(disks, like.size_bytes, op, settings, gate)
        draft.add(new_result(step))
        try:
            readings = _load(step, program, Path(scratch), gate, disks, draft)
            begun_unix_s = draft.step.begun_unix_s or 0.0
            queue_bytes = settings.size_bytes * settings.queue_depth
            part = begun_unix_s + settings.ramp_s, settings.runtime_s
            seen = measured_part(readings, *part, disks, queue_bytes)
            if seen:
                draft.note(samples=_with_moved(draft.step.samples, readings, disks))
            draft.note(stuck=Stuck(STUCK_S, longest_wait_s(draft.step, op, seen)))
            inside = [only_disks(text, disks) for text in _inside(readings, *part)]
            draft.note(fabstat=Readings(inside[0], inside[-1]))
        except _HangingError as error:
            # fio would wait for its requests for good.
            hanging = error.stuck.requests
            problem = f"{counted(len(hanging), 'request')} stayed outstanding for more than {STUCK_S:g} s"
            draft.note(stuck=error.stuck, problem=problem)
    draft.end(draft.step.problem)
    return draft.record, seen


def by_way(op: str, seen: Sequence[Client]) -> list[tuple[str, Sequence[Client]]]:
    """Return each direction with what its disks did."""
    half = len(seen) // 2
    return [("read", seen[half:]), ("write", seen[:half])] if op == "mixed" else [(op, seen)]


def longest_wait_s(step: StepResult, op: str, seen: Sequence[Client]) -> float:
    """Return the longest that a request took: what fio last told may leave out some of which fabstat has the time."""
    told = [measured.by_fio(step, way) for way in ways_of(op)]
    told += [_latencies(part, way, math.inf) for way, part in by_way(op, seen)]
    return max((one.quantile_ns(1) or 0) / 1e9 for one in told)


def _latencies(seen: Sequence[Client], op: str, part_s: float) -> measured.Latencies:
    return measured.of_disks((one.interval for one in seen), op, part_s)


def path_told(settings: Settings, op: str) -> PathTold:
    """Return what is known of the emulated path as data of `op` crosses it; of mixed data the faster direction."""
    back = settings.rate_back_bit_per_s or settings.rate_bit_per_s
    rates = {"read": back, "write": settings.rate_bit_per_s}
    rate = rates.get(op, max(rates.values()))
    return PathTold(settings.rtt_ms / 1e3, rate / 8, settings.mtu, LINUX_FRAMING)


def disks_bytes_per_s(settings: Settings) -> float | None:
    """Return what the targets' disks give together, None without a limit."""
    return float(settings.target_mib_per_s * 2**20 * settings.targets) or None


def with_what_bounds(settings: Settings, point: Point, points: Sequence[Point]) -> Point:
    """Return a point that has a bound with what that is: the payload that its line carries this way, and if the disk's.

    Directions that are measured at once, all `points` of a run, share its disk.
    """
    if point.get("bound_mb_per_s") is None:
        return point
    together = points if settings.op == "mixed" else [point]
    disk, bound = disks_bytes_per_s(settings), sum(one.number("bound_mb_per_s") for one in together) * 1e6
    if disk and abs(bound / disk - 1) < _ROUNDED_BOUND:
        point |= {"bound_by": BY_DISK}
    told = path_told(settings, settings.op if settings.op == "mixed" else point["op"])
    return point | {"line_mb_per_s": rounded(told.network.goodput_bytes_per_s / 1e6, 4)} if told.network else point


def _step(disks: Sequence[str], disk_bytes: int, op: str, settings: Settings, gate: Path) -> LoadStep:
    """Return one job a disk; each waits for `gate` when ready, or the first would keep the CPU from the others."""
    parameters: dict[str, int | float | str] = {
        "block_bytes": settings.size_bytes,
        "queue_depth": settings.queue_depth,
        "streams": len(disks),
    }
    options: Options = _OPTIONS | {
        "bs": settings.size_bytes, "iodepth": settings.queue_depth, "runtime": settings.runtime_s,
        "ramp_time": settings.ramp_s, "exec_prerun": f"flock --shared {gate} true",
    }  # fmt: skip
    jobs: dict[str, Options] = {}
    for number, disk in enumerate(disks):
        own: Options = {"filename": f"/dev/{disk}", "rw": op}
        if op == "mixed":
            own |= {"rw": "write", "rate": settings.stream_bytes_per_s} if number < len(disks) // 2 else {"rw": "read"}
        if settings.lun == "shared":
            part = disk_bytes // len(disks) // settings.size_bytes * settings.size_bytes
            own |= {"offset": number * part, "size": part}
        jobs[disk] = own | options
    return LoadStep(
        f"{op} by {len(disks)}", op, parameters, jobs, cache=None, flip_byte_at=None, must_fail=None,
        runtime_s=settings.runtime_s, ramp_s=settings.ramp_s,
    )  # fmt: skip


def _load(
    step: LoadStep, program: str, scratch: Path, gate: Path, disks: Sequence[str], draft: Draft
) -> list[tuple[float, str]]:
    """Run the load, note it in `draft` and return fabstat's readings (unix s, text).  Raises _HangingError."""
    readings = []
    draft.note(idle=_idle(sample_s(step)))
    with gate.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with fio.load(program, step.job_file(), scratch) as load:
            # fio leaves what the waiting program says in a file; before that the job is not ready.
            until(lambda: len(list(scratch.glob("*.prerun.txt"))) == len(disks), "fio to start its jobs")
            draft.note(begun_unix_s=time.time())
            fcntl.flock(lock, fcntl.LOCK_UN)

            def look() -> None:
                taken, reading, old = _look()
                draft.note(samples=(*draft.step.samples, taken))
                readings.append(reading)
                hanging = [one for one in old.requests if one.disk in disks and one.known_age_s > STUCK_S]
                if hanging:
                    requests = tuple(as_record(one) for one in hanging)
                    raise _HangingError(Stuck(STUCK_S, max(one.age_s for one in requests), requests))

            load.wait(look, sample_s(step), step.measured_s)
            draft.note(fio=load.document(), before_drain=load.before_drain())
    return readings


def _look() -> tuple[Sample, tuple[float, str], StuckList]:
    """Return a sample of the host, fabstat's reading (unix s, text), and the requests that are old."""
    return counters.sample(None), (time.time(), read_file("stats")), stuck()


def _idle(every_s: float) -> tuple[Sample, Sample]:
    """Return two samples of the host before anything is asked of it, watched as often between them as under load."""
    first = last = _look()[0]
    for _ in range(round(IDLE_S / every_s)):
        time.sleep(every_s)
        last = _look()[0]
    return first, last


def _with_moved(
    samples: Sequence[Sample], readings: Sequence[tuple[float, str]], disks: Sequence[str]
) -> tuple[Sample, ...]:
    """Return `samples` with what all `disks` had moved by the reading beside each."""
    found = []
    for taken, (_, text) in zip(samples, readings, strict=False):
        live = [one for one in parse(only_disks(text, disks)).devices if one.state != "gone"]
        found.append(taken | {metrics.MOVED_BYTES: float(sum(op.bytes for one in live for op in one.ops.values()))})
    return tuple(found)


def _inside(readings: Sequence[tuple[float, str]], begin_unix_s: float, runtime_s: float) -> list[str]:
    return [text for unix_s, text in readings if begin_unix_s <= unix_s <= begin_unix_s + runtime_s]


def measured_part(
    readings: Sequence[tuple[float, str]],
    begin_unix_s: float,
    runtime_s: float,
    disks: Sequence[str],
    queue_bytes: float,
) -> list[Client]:
    """Return what each disk did in the measured part.  `queue_bytes`: what one disk's queue of requests carries.

    The jobs' own figures cannot be added: each job counts its run time from its own first request.
    """
    inside = [parse(text) for text in _inside(readings, begin_unix_s, runtime_s)]
    if len(inside) < 2:
        raise FabtuneError(f"{len(inside)} readings in the measured part: give it at least 3 s")
    since = [diff(inside[0], one) for one in inside[1:]]
    try:
        return [_client([interval.device(disk) for interval in since], queue_bytes) for disk in disks]
    except InputError as error:
        raise FabtuneError(f"{error}: one client got nothing through") from None


def _client(since: Sequence[DeviceInterval], queue_bytes: float) -> Client:
    """Return one disk's figures from its increases since the first reading.

    Moderated clients ask in step with each other: from the last reading less the first, one request more or less of
    every client would count.  Where their beat is nearly that of the readings these still see a request come or go over
    the whole of it, evenly: of that the scatter about the line tells nothing.
    """
    times = [0.0, *(one.elapsed_ns / 1e9 for one in since)]
    moved = [0.0, *(float(sum(op.bytes for op in one.ops.values())) for one in since)]
    rate = measured.rate_of(times, moved, queue_bytes)
    return Client(since[-1], rate.bytes_per_s, max(rate.error_bytes_per_s, queue_bytes / times[-1]))


def off_by(seen: Sequence[Client]) -> dict[str, float]:
    """Return by which share the throughput of moderated clients may be off.

    They ask in step, at instants that no seed moves: their errors do not cancel out, nor do those of several runs.
    """
    moved = sum(one.bytes_per_s for one in seen)
    return {OFF_BY: rounded(sum(one.error_bytes_per_s for one in seen) / moved, 4)} if moved else {}


def figures(record: RunRecord, op: str, seen: Sequence[Client]) -> dict[str, float | None]:
    """Return throughput of all clients, of the slowest and the fastest, latency, CPU, refusals and the oldest request.

    `slowest_share` is the slowest client's throughput over the mean of all; CPU time is the whole host's for each GB of
    all of them.
    """
    step = record.steps[0]
    stuck = step.stuck
    found: dict[str, float | None] = {"oldest_s": rounded(stuck.oldest_s if stuck else 0.0, 6)}
    if not seen:
        return found | {"mb_per_s": 0.0, "slowest_mb_per_s": 0.0, "fastest_mb_per_s": 0.0, "slowest_share": 0.0}
    shares = sorted(one.bytes_per_s / 1e6 for one in seen)
    every = _latencies(seen, op, record.runtime_s or math.inf)
    for name, share in (("p50_ms", 0.5), ("p99_ms", 0.99)):
        value_ns = every.quantile_ns(share)
        found[name] = None if value_ns is None else rounded(value_ns / 1e6, 3)
    cpu = next((one.value for one in metrics.of_step(step) if one.key == "cpu_s_per_gb"), None)
    found["cpu_s_per_gb"] = None if cpu is None else rounded(cpu, 3)
    return found | {
        "queue_full": sum(one.interval.queue_full for one in seen),
        "mb_per_s": rounded(sum(shares), 2),
        "slowest_mb_per_s": rounded(shares[0], 3),
        "fastest_mb_per_s": rounded(shares[-1], 3),
        "slowest_share": round(shares[0] * len(shares) / sum(shares), 3) if sum(shares) else 0.0,
    }


class _HangingError(Exception):
    """A request hangs; the load is given up."""

    def __init__(self, stuck: Stuck) -> None:
        super().__init__()
        self.stuck = stuck

# SPDX-License-Identifier: GPL-2.0-or-later
"""Run records for tests: made up, but of the shape and with the consistency of measured ones."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import attrs

from fabtune.model import runrecord, typed
from fabtune.model.outputs import FioOutput
from fabtune.model.runrecord import (
    HostUsed,
    PathTold,
    RunRecord,
    Sample,
    SessionTurn,
    StepResult,
    TargetUsed,
    Value,
    WorkloadUsed,
)


def make_record(
    mb_per_s: float,
    label: str = "default",
    pair: int | None = None,
    *,
    workload: str = "xdd",
    op: str = "read",
    parameters: Mapping[str, Value] | None = None,
    path: Mapping[str, float] | None = None,
    complete: bool = True,
    environment: Mapping[str, Any] | None = None,
    start: float = 0.0,
    seconds: int = 1,
) -> RunRecord:
    """A run record of one step in a closed loop of depth 1 that obeys every law, with a sample a second."""
    parameters = {"block_bytes": 1000, **(parameters or {})}
    size = int(parameters["block_bytes"])
    requests = round(mb_per_s * 1e6 / size * seconds)
    latency_ns = seconds * 1e9 / requests
    nothing = {"total_ios": 0, "io_bytes": 0, "runtime": 0, "clat_ns": {}, "lat_ns": {"mean": 0, "N": 0}}
    moved = {
        "total_ios": requests,
        "io_bytes": requests * size,
        "runtime": seconds * 1000,
        "clat_ns": {"bins": {str(round(latency_ns * factor)): requests // 4 for factor in (0.7, 0.9, 1.1, 1.3)}},
        "lat_ns": {"mean": latency_ns, "N": requests},
    }
    step = StepResult(
        op,
        dict(parameters),
        depth=1,
        closed_loop=True,
        job="[x]\nioengine=libaio\ndirect=1\nfilename=/dev/sdb\n",
        samples=tuple(_sample(op, mb_per_s, second, size) for second in range(seconds + 1)) if seconds > 1 else (),
        fio=said(FioOutput, {"jobs": [{"read": nothing, "write": nothing} | {op: moved}]}),
    )
    made = runrecord.begin(
        workload=WorkloadUsed(workload),
        target=TargetUsed("/dev/sdb", "device", disk="sdb", wwid="naa.1"),
        host=HostUsed("initiator", "6.12.107", cpus=2),
        runtime_s=seconds,
        ramp_s=0,
        label=label,
        path=told(path or {}),
        environment=environment,
        fio_version="fio-3.39",
    )
    return attrs.evolve(
        made,
        complete=complete,
        problem=None if complete else "fio ended",
        command=("fabtune", "measure", workload, "--on", "/dev/sdb"),
        started_unix_s=start,
        steps=(step,),
        session=None if pair is None else SessionTurn("s", pair, "A" if label == "default" else "B"),
    )


# What a record has of a line that was emulated.
EMULATED: dict[str, Any] = {"qdiscs_before": {}}

T = TypeVar("T")


def said(kind: type[T], document: object) -> T:
    """What fio, iperf3 or tc said, as it stands in a record."""
    return typed.STRICT.read(kind, document, "made up")


def told(path: Mapping[str, float]) -> PathTold:
    """A path from what was said of it, as a record's file has it."""
    rtt_s = path["rtt_ms"] / 1e3 if "rtt_ms" in path else None
    return PathTold(rtt_s, path.get("rate_bytes_per_s"), int(path["mtu"]) if "mtu" in path else None)


def with_step(record: RunRecord, **changes: Any) -> RunRecord:
    """The record with its first step changed."""
    return attrs.evolve(record, steps=(attrs.evolve(record.steps[0], **changes), *record.steps[1:]))


def with_fio(record: RunRecord, change: Callable[[Any], object]) -> RunRecord:
    """The record with `change` made to the JSON that its first step has of fio."""
    document: Any = typed.STRICT.write(record.steps[0].fio)
    change(document["jobs"][0])
    return with_step(record, fio=said(FioOutput, document))


def with_latency(record: RunRecord, factor: float) -> RunRecord:
    """The record with the mean latency of its first step's requests `factor` times as long."""
    document: Any = typed.STRICT.write(record.steps[0].fio)
    for job in document["jobs"]:
        for op in ("read", "write"):
            job[op]["lat_ns"]["mean"] *= factor
    return with_step(record, fio=said(FioOutput, document))


def _sample(op: str, mb_per_s: float, second: int, size: int) -> Sample:
    """What the sampler reads after `second` seconds of an even load on two CPUs."""
    cpu = {
        "user": 100,
        "nice": 0,
        "sys": 300,
        "idle": 1400,
        "wait.total": 0,
        "irq.hard": 0,
        "irq.soft": 200,
        "steal": 0,
    }
    moved = mb_per_s * 1e6 * second
    disk = {"read": 0, "write": 0, "read_bytes": 0, "write_bytes": 0} | {op: moved / size, f"{op}_bytes": moved / 1024}
    return {
        "time.unix": 1e9 + second,
        "time.monotonic": float(second),
        **{f"kernel.all.cpu.{name}": ms * second for name, ms in cpu.items()},
        **{f"disk.dev.{name}": value for name, value in disk.items()},
        "disk.dev.inflight": 32,
        "network.tcp.retranssegs": second // 7,
        "fabstat.p50_ms": 8.0 + second % 3,
        "fabstat.p99_ms": 12.0 + second % 5,
        "fabstat.queue_full": second % 2,
    }

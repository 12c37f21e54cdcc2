# SPDX-License-Identifier: GPL-2.0-or-later
"""What one run read and did, as frozen types: times in s, rates in bytes/s, the file's own units in one place.

Whatever measures makes a RunRecord, whatever reports reads one.  Of an unknown key nothing is lost: it is kept.
"""

import sys
import time
from collections.abc import Mapping
from typing import Annotated

import attrs

from fabtune import __version__
from fabtune.model import sampled, typed
from fabtune.model.document import Json, Rest
from fabtune.model.judgement import Rules
from fabtune.model.limits import Limits
from fabtune.model.offered import Offered, Replayed
from fabtune.model.outputs import FioOutput, Iperf3Output, Qdisc
from fabtune.model.path import LINUX_FRAMING, NetworkPath
from fabtune.model.units import LEAST_MTU, MOST_MTU

SCHEMA = "fabtune-run/1"
# Why a run that somebody ended is not complete.
INTERRUPTED = "interrupted by the user"
# What the ids of a session's two parts end with.
CALIBRATION, PAIRS = "-calibration", "-pairs"

# What a guest of the lab is called.
LAB_GUEST = "fabtune-lab"

# More than any size, rate or number of requests that there is.
_MOST = 2**63


def _has_sizes(parameters: "dict[str, Value]") -> bool:
    # A window of 0 is the kernel's own.
    least = {name: int(name == "block_bytes") for name in parameters if name.endswith(("_bytes", "_bytes_per_s"))}
    return all(isinstance(one := parameters[name], int | float) and least[name] <= one <= _MOST for name in least)


def _is_finite(value: Json) -> bool:
    if isinstance(value, Mapping | list):
        return all(map(_is_finite, value.values() if isinstance(value, Mapping) else value))
    return not isinstance(value, int | float) or abs(value) <= sys.float_info.max


# A sample's keys are PCP's metric names.
Sample = Annotated[dict[str, float], typed.Check(sampled.is_sample, sampled.OF_SAMPLE)]
Value = int | float | str
_Samples = Annotated[tuple[Sample, ...], typed.Check(sampled.in_order, "samples, each later by time.monotonic")]
_Interval = Annotated[tuple[Sample, ...], typed.Check(sampled.is_interval, "none or two samples, the second later")]
_Nic = Annotated[dict[str, int], typed.Check(sampled.is_nic, sampled.OF_NIC)]
_Socket = Annotated[dict[str, Value], typed.Check(sampled.is_socket, sampled.OF_SOCKET)]
_Environment = Annotated[dict[str, Json], typed.Check(_is_finite, "finite numbers")]
_Parameters = Annotated[dict[str, Value], typed.Check(_has_sizes, "sizes and rates in bytes as numbers")]


@attrs.frozen
class WorkloadUsed:
    """Which workload was run, where it comes from, and which of its figures decides (the end of its key)."""

    name: str
    summary: str = ""
    source: str = ""
    primary: str = typed.omitted("")


@attrs.frozen
class TargetUsed:
    """What it ran on: a device, a directory, or the peer of a network run; `queue` has the block queue's settings.

    `limit_bytes_per_s` is what its disk is known to give at most.
    """

    path: str
    kind: str
    size_bytes: int = 0
    disk: str | None = None
    wwid: str = ""
    model: str = ""
    logical_block_bytes: int = 512
    sessions: tuple[int, ...] = ()
    queue: dict[str, str] = attrs.field(factory=dict)
    limit_bytes_per_s: float | None = typed.omitted()


@attrs.frozen
class HostUsed:
    """Which machine it was, as far as figures depend on it."""

    name: str
    kernel: str
    architecture: str = ""
    boot_id: str = ""
    cpus: int | None = None
    governors: tuple[str, ...] = ()


@attrs.frozen
class Versions:
    """What made the record; empty where it is not known."""

    fabtune: str = ""
    fio: str = ""


@attrs.frozen
class PathTold:
    """What was said of the network path; None for what was not.

    `framing_bytes` is found by fabtune: what the rate counts of a packet beside the packet itself.
    """

    rtt_s: float | None = None
    rate_bytes_per_s: float | None = None
    mtu: int | None = None
    framing_bytes: int | None = None

    @property
    def rtt_ms(self) -> float | None:
        """The round trip in ms, without what the conversion adds in the last place."""
        return None if self.rtt_s is None else round(self.rtt_s * 1e3, 9)

    @property
    def network(self) -> NetworkPath | None:
        """The path to compute with, None unless round trip and rate are known."""
        if self.rtt_s is None or self.rate_bytes_per_s is None:
            return None
        framing_bytes = LINUX_FRAMING if self.framing_bytes is None else self.framing_bytes
        return NetworkPath(self.rtt_s, self.rate_bytes_per_s, self.mtu or 1500, framing_bytes=framing_bytes)


@attrs.frozen
class Edge:
    """The counters read before or after a step, by the id of the session where it is one's."""

    nics: dict[str, _Nic] = attrs.field(factory=dict)
    session_nics: dict[str, str | None] = attrs.field(factory=dict)
    qdiscs: tuple[Qdisc, ...] = ()
    negotiated: dict[str, dict[str, str]] = attrs.field(factory=dict)
    luns: dict[str, tuple[str, ...]] = attrs.field(factory=dict)
    iscsi: dict[str, dict[str, int]] = attrs.field(factory=dict)
    sockets: tuple[_Socket, ...] = ()


@attrs.frozen
class Readings:
    """fabstat's text before and after the measured part of a step."""

    before: str
    after: str


@attrs.frozen
class HangingRequest:
    """A request that stayed outstanding too long."""

    op: str
    sector: int
    age_s: float
    state: str


@attrs.frozen
class Stuck:
    """The oldest request seen, and those that stayed outstanding for longer than `after_s`."""

    after_s: float
    oldest_s: float
    requests: tuple[HangingRequest, ...] = ()


@attrs.frozen
class StepResult:
    """One step: what was asked of fio or iperf3, what they said, and what was read around it.

    `before_drain` is what fio had counted at the end of the measured part, before it waited for what was outstanding;
    `idle` are two samples before the load, of a host that only waits; `offered` is there where requests left at given
    instants, and their times count from these: then our own generator speaks in `fio`, in its words;
    `cpu_shares` is whom a second load's CPU time served, empty where that could not be told;
    `phase` is the step's name whatever its parameters; `skipped`, `problem` and `failed_as_expected` say why there
    are no figures, or what went wrong as it had to; `limits` is what held back a disk of an iSCSI session meanwhile.
    """

    name: str
    parameters: _Parameters
    phase: str = ""
    cache: str | None = None
    depth: Annotated[int, typed.between(0, _MOST)] = 0
    closed_loop: bool = False
    must_fail: str | None = None
    job: str = ""
    skipped: str | None = None
    problem: str | None = None
    fio: FioOutput | None = None
    fabstat: Readings | None = None
    begun_unix_s: float | None = None
    samples: _Samples = ()
    before: Edge = typed.omitted(Edge())
    after: Edge = typed.omitted(Edge())
    command: tuple[str, ...] = typed.omitted(())
    before_drain: FioOutput | None = typed.omitted()
    idle: _Interval = typed.omitted(())
    offered: Offered | None = typed.omitted()
    replayed: Replayed | None = typed.omitted()
    stuck: Stuck | None = typed.omitted()
    failed_as_expected: str | None = typed.omitted()
    cpu_shares: dict[str, float] | None = typed.omitted()
    limits: tuple[Limits, ...] = typed.omitted(())
    iperf3: Iperf3Output | None = typed.omitted()
    others: Rest = Rest()

    @property
    def document(self) -> FioOutput:
        """What fio said, without any job where it said nothing."""
        return self.fio or FioOutput(())


@attrs.frozen
class Event:
    """What was done to the path or the target while the load ran."""

    unix_s: float
    what: str


@attrs.frozen
class Replicate:
    """Which run of a fleet's `experiment`, called by its directory, a record is of: those of one seed were in turn."""

    experiment: str
    seed: int


@attrs.frozen
class SessionTurn:
    """The place of a run in an interleaved session; `side` is A or B, `rules` what the session is judged by."""

    id: str
    pair: int
    side: str
    rules: Rules | None = typed.omitted()

    @property
    def name(self) -> str:
        """What A against A and A against B of one session have in common."""
        return self.id.removesuffix(CALIBRATION).removesuffix(PAIRS)

    @property
    def calibration(self) -> bool:
        """Whether this run is one of A against A."""
        return self.id.endswith(CALIBRATION)


@attrs.frozen
class JudgedClaim:
    """One claim held against a capture."""

    claim: str
    configured: str
    seen: str
    verdict: str


@attrs.frozen
class Captured:
    """What a capture's writes were: how many, bytes of each where all are alike, R2Ts of each on average."""

    writes: int
    write_bytes: int | None
    r2ts_per_write: float | None


@attrs.frozen
class RunRecord:
    """One run of a workload, or of the network alone, whole or as far as it came.

    `environment` has every tunable read back, or the settings of an experiment; `file` is where it was read from,
    and `clock` by which it is known to have been measured, there and then, as which `replicate` of a fleet's run.
    """

    workload: WorkloadUsed
    target: TargetUsed
    host: HostUsed
    runtime_s: float | None
    ramp_s: float | None
    schema: str = SCHEMA
    complete: bool = False
    problem: str | None = None
    label: str = ""
    path: PathTold = PathTold()
    workload_text: str = ""
    versions: Versions = Versions()
    environment: _Environment = attrs.field(factory=dict)
    started_unix_s: float = 0.0
    steps: tuple[StepResult, ...] = ()
    ended_unix_s: float | None = typed.omitted()
    command: tuple[str, ...] = typed.omitted(())
    pcp_archive: str | None = None
    session: SessionTurn | None = typed.omitted()
    proof: tuple[JudgedClaim, ...] = typed.omitted(())
    capture: Captured | None = typed.omitted()
    round_trips_ms: tuple[float, ...] = typed.omitted(())
    path_mtu_bytes: int | None = typed.omitted()
    interface_mtu_bytes: int | None = typed.omitted()
    path_mtu_verdict: str = typed.omitted("")
    events: tuple[Event, ...] = typed.omitted(())
    file: str = typed.omitted("")
    clock: str = typed.omitted("")
    replicate: Replicate | None = typed.omitted()
    others: Rest = Rest()

    @property
    def failed(self) -> bool:
        """Whether the run did not reach its end, and not because somebody ended it."""
        return not self.complete and self.problem != INTERRUPTED


def begin(
    *,
    workload: WorkloadUsed,
    target: TargetUsed,
    host: HostUsed,
    runtime_s: float | None,
    ramp_s: float | None,
    label: str = "",
    path: PathTold | None = None,
    environment: Mapping[str, Json] | None = None,
    workload_text: str = "",
    fio_version: str = "",
) -> RunRecord:
    """Return the record of a run that begins now, with no step yet and not complete.

    Whatever measures begins here, so that whatever reads finds the same keys.
    """
    return RunRecord(
        workload=workload, target=target, host=host, runtime_s=runtime_s, ramp_s=ramp_s, label=label,
        path=path or PathTold(), environment=dict(environment or {}), workload_text=workload_text,
        versions=Versions(__version__, fio_version), started_unix_s=time.time(),
    )  # fmt: skip


class Draft:
    """A record while it is being made: whenever it ends, `record` has what there is."""

    def __init__(self, record: RunRecord) -> None:
        self.record = record

    def add(self, step: StepResult) -> None:
        """Begin a step."""
        self.record = attrs.evolve(self.record, steps=(*self.record.steps, step))

    @property
    def step(self) -> StepResult:
        """The step under way."""
        return self.record.steps[-1]

    def note(self, **found: object) -> None:
        """Put what was found, fields of StepResult by name, into the step under way."""
        step = attrs.evolve(self.step, **found)
        self.record = attrs.evolve(self.record, steps=(*self.record.steps[:-1], step))

    def end(self, problem: str | None = None) -> None:
        """Note that the run has ended, complete unless there was a `problem`."""
        self.record = attrs.evolve(self.record, complete=problem is None, problem=problem, ended_unix_s=time.time())


@attrs.frozen
class _PathKeys:
    """A path as the file has it; bounds are divided by its rate and by what a packet has beside its headers."""

    rtt_ms: Annotated[float, typed.at_least(0)] | None = typed.omitted()
    rate_bytes_per_s: Annotated[float, typed.at_least(1)] | None = typed.omitted()
    mtu: Annotated[int, typed.between(LEAST_MTU, MOST_MTU)] | None = typed.omitted()
    framing_bytes: Annotated[int, typed.between(0, _MOST)] | None = typed.omitted()


def _path_of(keys: _PathKeys) -> PathTold:
    rtt_s = None if keys.rtt_ms is None else keys.rtt_ms / 1e3
    return PathTold(rtt_s, keys.rate_bytes_per_s, keys.mtu, keys.framing_bytes)


def _keys_of(path: PathTold) -> _PathKeys:
    return _PathKeys(path.rtt_ms, path.rate_bytes_per_s, path.mtu, path.framing_bytes)


_FORMAT = typed.Format()
_FORMAT.convert(PathTold, _PathKeys, _path_of, _keys_of)


def read(raw: object, where: str) -> RunRecord:
    """Return the record of parsed JSON.  Raises InputError naming `where` and the key."""
    return _FORMAT.read(RunRecord, raw, where)


def as_json(record: RunRecord) -> dict[str, Json]:
    """Return the record as it stands in its file."""
    return _FORMAT.write(record)

# SPDX-License-Identifier: GPL-2.0-or-later
"""A lint rule: an id, a predicate over facts, and what to say where it holds: what was seen, what follows, what to do.

    @rule("dead-knob", "notice", seen="{name} is {value}", so="it has no effect on this kernel", fix="leave it at 0")
    def dead_knob(scene: Scene) -> Iterator[Case]:
        ...
        yield case(reading, name=name, value=value)

The three texts are format strings over the values of a case.  A predicate that lacks a fact yields nothing, but for the
path: without it most is not known, and a device that it would have been held against is a `gap`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from fabtune.catalog.tunable import Catalog, Value
from fabtune.facts.collect import Facts, Reading
from fabtune.host.sessions import Session
from fabtune.model.full_queue import IO_BYTES
from fabtune.model.path import NetworkPath
from fabtune.tune.path_choice import HalfPath

# Worst first: may lose data or access; costs throughput or stalls; worth knowing.
SEVERITIES = ("danger", "warning", "notice")
MIB = 1 << 20


@dataclass(frozen=True)
class Hazard:
    """What one rule found on one device."""

    rule: str
    severity: str
    device: str
    evidence: str
    consequence: str
    fix: str

    def as_json(self) -> dict[str, str]:
        """Return the hazard with stable keys."""
        return {"hazard": self.rule, "severity": self.severity, "device": self.device, "evidence": self.evidence,
                "consequence": self.consequence, "fix": self.fix}  # fmt: skip


@dataclass(frozen=True)
class Unasked:
    """A rule that could not be asked about one device: why, and what is `known` of it all the same."""

    rule: str
    device: str
    why: str
    known: str

    def as_json(self) -> dict[str, str]:
        """Return it with stable keys."""
        return {"hazard": self.rule, "device": self.device, "why": self.why, "known": self.known}


@dataclass(frozen=True)
class ToldPath:
    """What somebody said of the path, and to whom: `told` names that."""

    told: str
    rtt_ms: float
    rate_bit_per_s: float | None
    # The request that a queue was planned for.
    io_bytes: float | None = None
    # Whether values for it are in force.
    in_force: bool = True
    # Whether the rate is the fastest NIC's, as nobody told one.
    by_nic: bool = False
    # The ends of the connections that it is for, where it is for these alone.
    lifted: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True)
class Scene:
    """What a rule looks at: the facts, the vocabulary they are written in, the path if it is known, and who told it."""

    facts: Facts
    catalog: Catalog
    path: NetworkPath | None
    told: tuple[ToldPath, ...] = ()
    # What is known of a path that is not known whole.
    half: HalfPath | None = None

    def gap(self, reading: Reading, why: str = "", known: str = "") -> "Gap":
        """Return that the path of what was read is not known; by itself because the host's is not."""
        lacks = self.half.lacks if self.half else "round trip or rate unknown: give --rtt and --rate"
        return Gap(reading.device.label, why or lacks, known)

    @property
    def io_bytes(self) -> float:
        """The request that queues were planned for, that of most bytes where plans differ."""
        return max((one.io_bytes for one in self.told if one.io_bytes), default=IO_BYTES)

    def readings(self, *tunables: str, identity: str | None = None) -> Iterator[tuple[Reading, Value]]:
        """Yield each device's reading of each of `tunables` with its typed value; those without one are left out.

        With `identity` only those of devices that have it.
        """
        for tunable in tunables:
            known = self.catalog.tunables[tunable]
            for reading in self.facts.of(tunable, identity):
                if reading.value is not None and known.fits(value := known.parse(reading.value)):
                    yield reading, value

    def numbers(self, *tunables: str, identity: str | None = None) -> Iterator[tuple[Reading, int]]:
        """Yield each device's reading of each of `tunables` that is a number; a damaged file may hold any digits."""
        for reading, value in self.readings(*tunables, identity=identity):
            if isinstance(value, int) and abs(value) < 2**64:
                yield reading, int(value)

    def number(self, tunable: str, identity: str | None = None) -> int | None:
        """Return the number of `tunable` on device `identity` (the only one if None), None where it is not known."""
        return next((value for _, value in self.numbers(tunable, identity=identity)), None)

    def disks(self, tunable: str) -> Iterator[tuple[Session, Reading, int]]:
        """Yield session, reading and value of `tunable` of each disk that a session brings, where it is a number."""
        sessions = {lun: session for session in self.facts.sessions for lun in session.luns}
        for reading, value in self.numbers(tunable):
            if reading.device.label in sessions:
                yield sessions[reading.device.label], reading, value

    def default(self, tunable: str) -> Value | None:
        """Return the default of the facts' own kernel."""
        return self.catalog.tunables[tunable].default_for(self.facts.host.kernel)

    def running(self, program: str) -> bool:
        """Tell whether `program` was running."""
        return any(owner.who == program and not owner.key for owner in self.facts.owners)


@dataclass(frozen=True)
class Case:
    """One device on which a rule's predicate holds, and the values that its texts name."""

    device: str
    values: Mapping[str, float | str]


@dataclass(frozen=True)
class Gap:
    """One device of which a predicate lacks the path: why, and what is `known` of it all the same."""

    device: str
    why: str
    known: str


Predicate = Callable[[Scene], Iterator[Case | Gap]]


def case(device: Reading | str, **values: float | str) -> Case:
    """Return the case of `device`, given by its label or by a reading of it."""
    return Case(device if isinstance(device, str) else device.device.label, values)


@dataclass(frozen=True)
class Rule:
    """One row of the table of rules.

    `example` are values of tunables that make the rule fire on a host without any hazard; the tests try them.
    """

    id: str
    severity: str
    seen: str
    so: str
    fix: str
    predicate: Predicate
    example: Mapping[str, str]

    def check(self, scene: Scene) -> Iterator[Hazard | Unasked]:
        """Yield what the rule finds, and where it could not be asked."""
        for one in self.predicate(scene):
            if isinstance(one, Gap):
                yield Unasked(self.id, one.device, one.why, one.known)
                continue
            seen, so, fix = (text.format_map(one.values) for text in (self.seen, self.so, self.fix))
            yield Hazard(self.id, self.severity, one.device, seen, so, fix)


def rule(
    id: str,  # noqa: A002 - the rule's own word for it
    severity: str,
    *,
    seen: str,
    so: str,
    fix: str,
    example: Mapping[str, str] | None = None,
) -> Callable[[Predicate], Rule]:
    """Make the decorated predicate a rule."""
    assert severity in SEVERITIES
    return lambda predicate: Rule(id, severity, seen, so, fix, predicate, example or {})

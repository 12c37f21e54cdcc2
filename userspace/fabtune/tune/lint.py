# SPDX-License-Identifier: GPL-2.0-or-later
"""Looks for settings that lose data, stall or cost throughput, on this host or in a saved facts file.

A hazard is one function from facts to findings; the modules beside this one hold them by area.
Each finding says what was seen, what follows from it in figures, and how to mend it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass

from fabtune.catalog.tunable import Catalog, Value
from fabtune.facts.collect import Facts, Reading
from fabtune.model.path import NetworkPath

# Worst first: may lose data or access; costs throughput or stalls; worth knowing.
SEVERITIES = ("danger", "warning", "notice")


@dataclass(frozen=True)
class Finding:
    """One hazard on one device."""

    hazard: str
    severity: str
    device: str
    evidence: str
    consequence: str
    mend: str

    def as_json(self) -> dict[str, str]:
        """Return the finding with stable keys."""
        return asdict(self)


@dataclass(frozen=True)
class Scene:
    """What a hazard looks at: the facts, the vocabulary they are written in, and the path if it is known."""

    facts: Facts
    catalog: Catalog
    path: NetworkPath | None

    def readings(self, tunable: str) -> Iterator[tuple[Reading, Value]]:
        """Yield each device's reading of `tunable` with its typed value; unreadable ones are left out."""
        known = self.catalog.tunables[tunable]
        for reading in self.facts.of(tunable):
            if reading.value is not None:
                yield reading, known.parse(reading.value)

    def numbers(self, tunable: str) -> Iterator[tuple[Reading, int]]:
        """Yield each device's reading of `tunable` that is a number."""
        for reading, value in self.readings(tunable):
            if isinstance(value, int):
                yield reading, int(value)

    def number(self, tunable: str, identity: str | None = None) -> int | None:
        """Return the number of `tunable` on device `identity` (the only one if None)."""
        for reading, value in self.numbers(tunable):
            if identity is None or reading.device.identity == identity:
                return value
        return None

    def default(self, tunable: str) -> Value | None:
        """Return the default of the facts' own kernel."""
        return self.catalog.tunables[tunable].default_for(self.facts.host.kernel)

    def running(self, program: str) -> bool:
        """Tell whether `program` was running."""
        return any(owner.who == program and not owner.key for owner in self.facts.owners)


Hazard = Callable[[Scene], Iterable[Finding]]


def hazards() -> list[Hazard]:
    """Return every hazard the project knows."""
    from fabtune.tune import hazards_host, hazards_initiator, hazards_target

    return [*hazards_initiator.HAZARDS, *hazards_target.HAZARDS, *hazards_host.HAZARDS]


def lint(facts: Facts, catalog: Catalog, path: NetworkPath | None) -> list[Finding]:
    """Return what every hazard finds, worst first."""
    scene = Scene(facts, catalog, path)
    found = [finding for hazard in hazards() for finding in hazard(scene)]
    return sorted(found, key=lambda finding: (SEVERITIES.index(finding.severity), finding.hazard, finding.device))

# SPDX-License-Identifier: GPL-2.0-or-later
"""Paths that were told, and are not what connections and NICs show."""

from collections.abc import Iterator

from fabtune.host.nics import lowest
from fabtune.lint.rule import Case, Scene, case, rule
from fabtune.model.one_path import alike
from fabtune.tune.planned_paths import longest_of


def _round_trips(scene: Scene, *, longer: bool) -> Iterator[Case]:
    """Yield each path told with a round trip that connections do not have, theirs `longer` than it or shorter."""
    for one in scene.told:
        others_ms = [other.rtt_ms for other in scene.told if other.in_force and other is not one]
        seen_ms = longest_of(scene.facts.sockets, one.rtt_ms, others_ms, one.lifted)
        if seen_ms is not None and (seen_ms > one.rtt_ms) == longer and not alike(one.rtt_ms, seen_ms):
            yield case(one.told, told_ms=one.rtt_ms, seen_ms=seen_ms)


@rule(
    "path-longer-than-told",
    "warning",
    seen="{told_ms:.1f} ms were told, TCP saw none below {seen_ms:.1f} ms for minutes on a connection",
    so="buffers planned for the told path hold less than this one, unless a queue stands on it all the time",
    fix="tell the round trip as it is, or none: `fabtune apply` takes that of the connections",
)
def path_longer_than_told(scene: Scene) -> Iterator[Case]:
    """What was planned for a shorter path holds a longer one back."""
    yield from _round_trips(scene, longer=True)


@rule(
    "path-shorter-than-told",
    "notice",
    seen="{told_ms:.1f} ms were told, no connection's least round trip is above {seen_ms:.1f} ms",
    so="buffers planned for the told path are larger than this one needs: memory, and queues where it ends",
    fix="tell the round trip as it is, or none, unless a longer path is to come",
)
def path_shorter_than_told(scene: Scene) -> Iterator[Case]:
    """What was planned for a longer path makes queues on a shorter one."""
    yield from _round_trips(scene, longer=False)


@rule(
    "rate-above-nic",
    "warning",
    seen="{told_mbit:.0f} Mb/s were told, the NICs of storage have {nic_mbit:.0f} Mb/s",
    so="buffers are planned for what cannot pass, and pacing to the told rate paces nothing",
    fix="tell the rate of the slowest link, or none",
)
def rate_above_nic(scene: Scene) -> Iterator[Case]:
    """A path is no faster than the NIC at its end; another one's rate was told."""
    # What lies on a NIC sends nothing beside it.
    speeds = [one.speed_bit_per_s for one in lowest(scene.facts.nics)]
    known = [speed for speed in speeds if speed]
    for one in scene.told:
        # Nothing is said where any is not known.
        if known and len(known) == len(speeds) and (one.rate_bit_per_s or 0) > 1.01 * sum(known):
            yield case(one.told, told_mbit=(one.rate_bit_per_s or 0) / 1e6, nic_mbit=sum(known) / 1e6)

# SPDX-License-Identifier: GPL-2.0-or-later
"""Paths that were told, and are not what connections and NICs show."""

from collections.abc import Iterator

from fabtune.lint.rule import Case, Scene, ToldPath, case, rule
from fabtune.model.one_path import alike


def _longest_ms(scene: Scene) -> float | None:
    """Return the longest of the least round trips of storage's connections, None where one of them is not known."""
    found = [one.min_rtt_ms for one in scene.facts.sockets]
    return max(found) if found and all(found) else None


def _wrong(scene: Scene) -> Iterator[tuple[ToldPath, float]]:
    """Yield each path with another round trip than connections have, and theirs: plans are for the longest."""
    seen_ms = _longest_ms(scene)
    for one in scene.told:
        if seen_ms is not None and not alike(one.rtt_ms, seen_ms):
            yield one, seen_ms


@rule(
    "path-longer-than-told",
    "warning",
    seen="{told_ms:.1f} ms were told, TCP saw none below {seen_ms:.1f} ms for minutes on a connection",
    so="buffers planned for the told path hold less than this one, unless a queue stands on it all the time",
    fix="tell the round trip as it is, or none: `fabtune apply` takes that of the connections",
)
def path_longer_than_told(scene: Scene) -> Iterator[Case]:
    """What was planned for a shorter path holds a longer one back."""
    for one, seen_ms in _wrong(scene):
        if seen_ms > one.rtt_ms:
            yield case(one.told, told_ms=one.rtt_ms, seen_ms=seen_ms)


@rule(
    "path-shorter-than-told",
    "notice",
    seen="{told_ms:.1f} ms were told, no connection's least round trip is above {seen_ms:.1f} ms",
    so="buffers planned for the told path are larger than this one needs: memory, and queues where it ends",
    fix="tell the round trip as it is, or none, unless a longer path is to come",
)
def path_shorter_than_told(scene: Scene) -> Iterator[Case]:
    """What was planned for a longer path makes queues on a shorter one."""
    for one, seen_ms in _wrong(scene):
        if seen_ms < one.rtt_ms:
            yield case(one.told, told_ms=one.rtt_ms, seen_ms=seen_ms)


@rule(
    "rate-above-nic",
    "warning",
    seen="{told_mbit:.0f} Mb/s were told, the fastest NIC of storage has {nic_mbit:.0f} Mb/s",
    so="buffers are planned for what cannot pass, and pacing to the told rate paces nothing",
    fix="tell the rate of the slowest link, or none",
)
def rate_above_nic(scene: Scene) -> Iterator[Case]:
    """A path is no faster than the NIC at its end; another one's rate was told."""
    speeds = [one.speed_bit_per_s for one in scene.facts.nics]
    known = [speed for speed in speeds if speed]
    for one in scene.told:
        # An upper device of several has no speed of its own on every kernel: nothing is said where any is not known.
        if known and len(known) == len(speeds) and (one.rate_bit_per_s or 0) > 1.01 * sum(known):
            yield case(one.told, told_mbit=(one.rate_bit_per_s or 0) / 1e6, nic_mbit=max(known) / 1e6)

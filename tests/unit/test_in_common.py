# SPDX-License-Identifier: GPL-2.0-or-later
"""What the slow ones of a fleet have in common, over made observations of 3 initiators and 3 targets."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from fabtune.model import typed
from fabtune.model.observation import BackstoreSeen, Observation
from fabtune.why.in_common import InCommon, in_common, members_of

_KEPT: dict[str, object] = json.loads(
    gzip.decompress((Path(__file__).parent / "data/observations.json.gz").read_bytes())
)
Where = Callable[[int, int], bool]


def _seen(name: str, target: str, portal: str) -> Observation:
    seen = typed.STRICT.read(Observation, _KEPT[name], name)
    session = attrs.evolve(seen.session, target=target, portal=portal)
    return attrs.evolve(seen, session=session, rate_bytes_per_s=200e6 / 8, rate_by="--rate")


def _late(seen: Observation) -> Observation:
    """The target's disk takes most of a request's time."""
    assert seen.target
    way = attrs.evolve(seen.disk.ways["write"], device_ms=120.0, total_ms=120.0, block_ms=120.0)
    disk = BackstoreSeen("dm-0", {"write": 100}, {"write": 98.0}, 0.99, 2.0)
    target = attrs.evolve(seen.target, backstores=(disk,))
    return attrs.evolve(seen, disk=attrs.evolve(seen.disk, ways={"write": way}), target=target)


def _fleet(slow: Where, *, name: str = "untouched-read", portal: str = "10.0.{}.1:3260") -> InCommon:
    """Initiators 0..2 each have a disk of targets 0..2; those for which `slow` says so are held back, others full."""

    def one(initiator: int, target: int) -> Observation:
        place = f"iqn.t{target}", portal.format(target)
        if not slow(initiator, target):
            return _seen("wan-read", *place)
        return _late(_seen("wan-depth2w", *place)) if name == "late" else _seen(name, *place)

    return in_common(members_of({f"i{host}": [one(host, target) for target in range(3)] for host in range(3)}))


def test_the_slow_initiator_is_named() -> None:
    found = _fleet(lambda initiator, _: initiator == 1)
    assert (found.kind, found.names, found.limiter) == ("initiator", ("i1",), "receive-window")
    assert found.sentence.startswith("3 of 9 are slow, 3 of these by receive window; these and no others")


def test_the_slow_target_is_told_from_the_path_by_what_limits() -> None:
    found = _fleet(lambda _, target: target == 2, name="late")
    assert (found.kind, found.names) == ("target", ("iqn.t2",))
    found = _fleet(lambda _, target: target == 2, name="loss-read")
    assert (found.kind, found.names) == ("path", ("10.0.2.1:3260",))


def test_two_slow_targets_are_both_named() -> None:
    found = _fleet(lambda _, target: target != 0, name="late")
    assert (found.kind, found.names) == ("target", ("iqn.t1", "iqn.t2"))
    assert "the targets iqn.t1, iqn.t2" in found.sentence


def test_a_path_that_several_targets_share_is_named() -> None:
    def one(target: int, name: str) -> Observation:
        return _seen(name, f"iqn.t{target}", "10.0.0.1:3260" if target < 2 else "10.0.9.1:3260")

    hosts = {f"i{host}": [one(0, "loss-read"), one(1, "loss-read"), one(2, "wan-read")] for host in range(2)}
    assert in_common(members_of(hosts)).kind == "path"


def test_what_target_and_path_explain_alike_is_not_decided_without_evidence() -> None:
    found = _fleet(lambda _, target: target == 2)
    assert not found.kind and found.apart == ("target", "path")
    assert "cannot tell whether that is the target or the path" in found.sentence


@pytest.mark.parametrize(
    ("slow", "said"),
    [
        (lambda initiator, target: initiator == target, "neither a target nor a path nor an initiator"),
        (lambda initiator, target: True, "none is there to hold them against"),
        (lambda initiator, target: False, "none of 9 is slow"),
    ],
)
def test_nothing_is_blamed_without_a_pattern(slow: Where, said: str) -> None:
    found = _fleet(slow)
    assert not found.kind and not found.names and not found.apart
    assert said in found.sentence


def test_a_load_that_is_too_small_is_no_slow_member() -> None:
    assert not _fleet(lambda _, target: target == 1, name="wan-depth1").slow


def test_the_targets_own_ends_are_joined_to_their_connections() -> None:
    both = _seen("maxrate-read", "iqn.t", "p")
    alone = attrs.evolve(both, target=None)
    assert both.target
    (without,), (joined,) = members_of({"i": [alone]}), members_of({"i": [alone]}, [both.target])
    assert "pacing" in without.judged.first.among and joined.judged.first.limiter == "pacing"


def test_an_idle_fleet_has_nothing_to_say() -> None:
    assert "put it under its load" in in_common(members_of({"i": []})).sentence

# SPDX-License-Identifier: GPL-2.0-or-later
"""What the journal keeps of a disk whose queue is held short for a while, and whether it still is."""

from collections.abc import Mapping, Sequence

from fabtune.backends import attribute
from fabtune.errors import FabtuneError
from fabtune.facts import devices
from fabtune.facts.host_snapshot import HostSnapshot
from fabtune.host import tree
from fabtune.model.device import Device
from fabtune.tune.lines import HELD
from fabtune.tune.transaction import Transaction

DEPTH = "device/queue_depth"


def hold_short(kept: dict[str, str], few: int, was: str) -> None:
    """Note in what is `kept` of a disk that it is to have `few` requests under way for a while, and had `was`."""
    kept[HELD] = f"{few} {was}"


def is_short(kept: Mapping[str, str]) -> bool:
    """Tell whether what is `kept` of a disk says that it was held short, and nothing that it was let go."""
    return HELD in kept


def depth_before(kept: Mapping[str, str], disk: Device, known: Sequence[Transaction]) -> str | None:
    """Return the depth that `disk` had before it was held short, as `kept` has it; None where it is so no more.

    The kernel makes a depth smaller by itself when a target says that its queue is full.
    """
    few, _, was = kept.get(HELD, "").partition(" ")
    if not few:
        return None
    try:
        now = attribute.BACKEND.read(disk, DEPTH)
    except FabtuneError:
        return None
    depth, most = tree.whole(now), tree.whole(few)
    still = depth is not None and most is not None and depth <= most
    return was if still and not _stands_by_profile(disk, now, known) else None


def _stands_by_profile(disk: Device, now: str, known: Sequence[Transaction]) -> bool:
    """Tell whether a step in force wrote the depth that `disk` has `now`."""
    identities = {one.identity for one in devices.find("block", HostSnapshot()) if one.label == disk.label}
    return any(
        (step.backend, step.key) == ("attribute", DEPTH) and step.device.identity in identities
        and now in (step.wrote, step.holds) and not step.disturbed
        for one in known for step in one.open_steps
    )  # fmt: skip

# SPDX-License-Identifier: GPL-2.0-or-later
"""Values of a target with which an initiator that is logged in now could not log in again.

The kernel's initiator refuses a session whose MaxOutstandingR2T, the smaller of what the two ends ask for, is
no power of two.  A session that loses its connection for a moment logs in with what it asked for the first time.
"""

from fabtune.host import iscsiadm, targets, tree
from fabtune.host.sessions import live_sessions
from fabtune.host.targets import Login
from fabtune.model.device import Device

_KEY = "MaxOutstandingR2T"


def why_not(tunable: str, device: Device, now: str, wanted: str) -> str:
    """Return why `wanted` would keep initiators of portal group `device` from logging in again, '' if it would not."""
    ours, value = tree.whole(now), tree.whole(wanted)
    if targets.offers().get(tunable) != _KEY or ours is None or value is None or value & (value - 1) == 0:
        return ""
    target = device.identity.partition(",")[0]
    names = [one.initiator for one in targets.logins(device) if not _comes_back(one, target, ours, value)]
    if not names:
        return ""
    return (
        f"with {wanted}, no power of two, {', '.join(names)} could not log in again; let it ask for no more than "
        f"{1 << (value.bit_length() - 1)}, log it in again there, then come back here, or give --force"
    )


def _comes_back(login: Login, target: str, now: int, wanted: int) -> bool:
    """Tell whether `login` is known to ask for so little that `wanted` is not what both agree on.

    What was agreed on below the target's own value is what the initiator asks for; otherwise it may ask for more.
    """
    theirs = tree.whole(login.negotiated.get(_KEY))
    agreed = _agreed_here(login, target) if theirs is None else [theirs]
    return bool(agreed) and all(one <= wanted and one < now for one in agreed)


def _agreed_here(login: Login, target: str) -> list[int]:
    """Return what this host's own sessions agreed on, where `login` is this host's; LIO shows none of a dynamic ACL."""
    if login.initiator != iscsiadm.own_initiator_name():
        return []
    numbers = [tree.whole(one.negotiated.get(_KEY)) for one in live_sessions() if one.target == target]
    known = [number for number in numbers if number is not None]
    return known if len(known) == len(numbers) else []

# SPDX-License-Identifier: GPL-2.0-or-later
"""What can keep a tunable's value over a reboot, and what a tunable's table says for each."""

import re
from dataclasses import dataclass

from fabtune.errors import InputError


@dataclass(frozen=True)
class Keeper:
    """One native file or store: which tunables it can keep, and what `persist_as` calls them there.

    No `backends` or `scopes`: any.  No `names`: it calls them by their own key, and `persist_as` has no place.
    """

    backends: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    names: str = ""
    pattern: str = ""


NONE = "none"
KEEPERS = {
    "sysctl.d": Keeper(("sysctl",), ("host", "netns")),
    "udev": Keeper(("attribute",), ("block", "nic"), pattern=r"[^*]+"),
    "link": Keeper(
        (), ("nic",), "the setting's name in systemd.link(5), such as RxBufferSize", r"[A-Z][A-Za-z0-9]+"
    ),
    "modprobe.d": Keeper((), (), "MODULE/parameters/NAME", r"[\w-]+/parameters/\w+"),
    "iscsid.conf": Keeper(("record",), ("record",)),
    # The node record, which is a file itself.
    "record": Keeper((), ("session",)),
    "saveconfig": Keeper(("attribute",), ("acl", "backstore", "srpt-tpg", "tpg")),
    "srp_daemon.conf": Keeper(("srp_daemon",), ("host",)),
    NONE: Keeper(),
}  # fmt: skip


def check_keeper(
    keeper: str, backend: str, scope: str, key: str, persist_as: str, persist_why: str, where: str
) -> None:
    """Raise InputError naming `where` if a tunable's statements about its keeper contradict each other."""
    one = KEEPERS[keeper]
    for what, found, allowed in (("backend", backend, one.backends), ("scope", scope, one.scopes)):
        if allowed and found not in allowed:
            raise InputError(
                f"{where}: key 'persist': '{keeper}' cannot keep a tunable of {what} '{found}', allowed: "
                f"{what} {', '.join(allowed)}, or persist = \"{NONE}\" with the reason in 'persist_why'"
            )
    if (keeper == NONE) != bool(persist_why):
        raise InputError(
            f"{where}: key 'persist_why': expected with persist = \"{NONE}\" and with no other: why nothing keeps it"
        )
    if persist_as and not one.names:
        raise InputError(f"{where}: key 'persist_as': '{keeper}' keeps it under its own key, '{key}'")
    if one.pattern and not re.fullmatch(one.pattern, persist_as or key):
        if not one.names:
            raise InputError(f"{where}: key 'persist': '{keeper}' keeps single values, and '{key}' is several")
        raise InputError(f"{where}: key 'persist_as': found '{persist_as or key}', allowed: {one.names}")

# SPDX-License-Identifier: GPL-2.0-or-later
"""The thing a tunable belongs to: a host, a namespace, a session, a TPG, a NIC, a disk."""

from dataclasses import dataclass, field

# Besides those that the kinds of targets bring.
SCOPES = ("host", "netns", "nic", "route", "record", "session", "block", "srp-port", "module", "connection")


@dataclass(frozen=True)
class Device:
    """One instance of a scope.

    `identity` survives renaming and reboots (IQN and portal, PCI path, WWID) and is what the
    journal keeps; `label` is what people read; `where` tells the backend how to reach it now
    (a directory, a netns name, an interface name).
    """

    scope: str
    identity: str
    label: str
    where: dict[str, str] = field(default_factory=dict, hash=False, compare=False)

    @property
    def key(self) -> tuple[str, str]:
        """What makes two devices the same one."""
        return self.scope, self.identity

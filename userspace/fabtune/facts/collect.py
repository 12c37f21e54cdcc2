# SPDX-License-Identifier: GPL-2.0-or-later
"""Gathers what plan, lint and show need: the host, its sessions and sockets, its devices and their values."""

import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass, field

from fabtune import backends
from fabtune.backends import UnsupportedError, tree
from fabtune.catalog.tunable import Tunable
from fabtune.errors import FabtuneError
from fabtune.facts import devices
from fabtune.facts.nics import Nic
from fabtune.facts.sessions import Session
from fabtune.facts.sockets import TcpSocket
from fabtune.facts.surroundings import Surroundings
from fabtune.model.device import Device


@dataclass(frozen=True)
class Host:
    """The machine: what default values and memory checks depend on."""

    name: str
    kernel: str
    boot_id: str
    memory_bytes: int
    cpus: int


@dataclass(frozen=True)
class Reading:
    """What one tunable of one device holds now; `value` is None with the reason in `problem`."""

    tunable: str
    device: Device
    value: str | None
    problem: str = ""
    unsupported: bool = False
    limit: int | None = None


@dataclass
class Facts:
    """One host at one moment."""

    host: Host
    netns: str
    sessions: list[Session] = field(default_factory=list)
    sockets: list[TcpSocket] = field(default_factory=list)
    nics: list[Nic] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)

    def of(self, tunable: str) -> list[Reading]:
        """Return the readings of `tunable`, one a device."""
        return [reading for reading in self.readings if reading.tunable == tunable]


def this_host() -> Host:
    """Return what this machine is."""
    memory_kib = 0
    for line in (tree.read_text(tree.PROC / "meminfo") or "").splitlines():
        if line.startswith("MemTotal:"):
            memory_kib = int(line.split()[1])
    return Host(
        name=platform.node(),
        kernel=platform.release(),
        boot_id=tree.read_text(tree.PROC / "sys/kernel/random/boot_id") or "",
        memory_bytes=memory_kib * 1024,
        cpus=len(os.sched_getaffinity(0)),
    )


def read(tunable: Tunable, device: Device) -> Reading:
    """Return what `tunable` of `device` holds; a missing or unreadable one says why."""
    backend = backends.get(tunable.backend)
    try:
        value = backend.read(device, tunable.key)
        limit = backends.limit(tunable.backend, device, tunable.limit) if tunable.limit else None
    except UnsupportedError as error:
        return Reading(tunable.name, device, None, str(error), unsupported=True)
    except FabtuneError as error:
        return Reading(tunable.name, device, None, str(error))
    return Reading(tunable.name, device, value, limit=limit)


def collect(tunables: Iterable[Tunable], netns: str = "") -> Facts:
    """Return the facts of this host, with the values of `tunables` on every device of their scope."""
    around = Surroundings(netns)
    found: dict[str, list[Device]] = {}
    readings: list[Reading] = []
    for tunable in tunables:
        if tunable.scope not in found:
            found[tunable.scope] = devices.find(tunable.scope, around)
        readings += [read(tunable, device) for device in found[tunable.scope]]
    return Facts(this_host(), netns, around.sessions, around.sockets, around.nics, readings)

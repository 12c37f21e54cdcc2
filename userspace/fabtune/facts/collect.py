# SPDX-License-Identifier: GPL-2.0-or-later
"""Gathers what plan, lint and show need: the host, its sessions and sockets, its devices and their values."""

import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass, field

from fabtune import backends
from fabtune.catalog.tunable import Tunable
from fabtune.errors import FabtuneError, UnsupportedError
from fabtune.facts import devices
from fabtune.facts.host_snapshot import HostSnapshot
from fabtune.facts.striped import striped
from fabtune.host import srp, targets, tree
from fabtune.host.nics import Nic
from fabtune.host.owners import Owner, owners
from fabtune.host.sessions import Session
from fabtune.host.sockets import TcpSocket
from fabtune.host.srp import SrpLogin
from fabtune.host.targets import Backstore, Tpg
from fabtune.host.users import Users
from fabtune.model.device import Device


@dataclass(frozen=True)
class Host:
    """The machine: what default values and memory checks depend on."""

    name: str
    kernel: str
    boot_id: str
    memory_bytes: int
    cpus: int
    page_bytes: int = 4096


@dataclass(frozen=True)
class Reading:
    """What one tunable of one device holds now; `value` is None with the reason in `problem`."""

    tunable: str
    device: Device
    value: str | None
    problem: str = ""
    unsupported: bool = False
    limit: int | None = None
    # Why the value is left alone although it could be written, and the parameter that overrides that.
    refusal: str = ""
    unless: str = ""


@dataclass
class Facts:
    """One host at one moment."""

    host: Host
    netns: str
    sessions: list[Session]
    sockets: list[TcpSocket]
    nics: list[Nic]
    readings: list[Reading]
    mounted: list[str] = field(default_factory=list)
    tpgs: list[Tpg] = field(default_factory=list)
    backstores: list[Backstore] = field(default_factory=list)
    srp: list[SrpLogin] = field(default_factory=list)
    owners: list[Owner] = field(default_factory=list)
    congestion_controls: list[str] = field(default_factory=list)
    # Portals' addresses that are not in this network namespace, with the names of those that have them.
    elsewhere: dict[str, list[str]] = field(default_factory=dict)
    # Sessions that share a line whenever any one of them is busy, 1 where one may be busy by itself.
    striped: int = 1

    def __post_init__(self) -> None:
        self._ordered: list[Reading] = []
        self._of: dict[str, list[Reading]] = {}
        self._on: dict[tuple[str, str], list[Reading]] = {}

    @property
    def session_count(self) -> int:
        """How many sessions this host has, or serves, at least one: what memory bounds divides among them."""
        return max(1, len(self.sessions), len(self.sockets))

    def of(self, tunable: str, identity: str | None = None) -> list[Reading]:
        """Return the readings of `tunable`, one a device; with `identity` those of devices that have it."""
        self._order()
        return self._of.get(tunable, []) if identity is None else self._on.get((tunable, identity), [])

    def on(self, tunable: str, device: Device) -> list[Reading]:
        """Return the readings of `tunable` that are of `device`."""
        return [one for one in self.of(tunable, device.identity) if one.device.key == device.key]

    def _order(self) -> None:
        """Put the readings in order where some have come: each of a thousand sessions asks for its own."""
        for one in self.readings[len(self._ordered) :]:
            self._ordered.append(one)
            self._of.setdefault(one.tunable, []).append(one)
            self._on.setdefault((one.tunable, one.device.identity), []).append(one)


def survey(tunables: Iterable[Tunable], netns: str = "") -> Facts:
    """Return all that is known of this host: what `collect` reads, its mounts, targets and other tuners."""
    facts = collect(tunables, netns)
    mounted = Users().mounted()
    facts.mounted = [lun for session in facts.sessions for lun in session.luns if lun in mounted]
    facts.tpgs, facts.backstores = targets.tpgs(), targets.backstores()
    facts.srp, facts.owners = srp.srp_logins(), owners()
    available = tree.read_text(tree.PROC / "sys/net/ipv4/tcp_available_congestion_control") or ""
    facts.congestion_controls = available.split()
    return facts


def this_host() -> Host:
    """Return what this machine is."""
    memory_kib = 0
    for line in (tree.read_text(tree.PROC / "meminfo") or "").splitlines():
        if line.startswith("MemTotal:"):
            memory_kib = tree.whole("".join(line.split()[1:2])) or 0
    return Host(
        name=platform.node(),
        kernel=platform.release(),
        boot_id=tree.read_text(tree.PROC / "sys/kernel/random/boot_id") or "",
        memory_bytes=memory_kib * 1024,
        cpus=len(os.sched_getaffinity(0)),
        page_bytes=os.sysconf("SC_PAGE_SIZE"),
    )


def read(tunable: Tunable, device: Device) -> Reading:
    """Return the value of `tunable` on `device`, or why it has none."""
    backend = backends.get(tunable.backend)
    try:
        value = backend.read(device, tunable.key)
        limit = backends.limit(tunable.backend, device, tunable.limit) if tunable.limit else None
        refusal = backends.why_not(tunable.backend, device, tunable.key)
    except UnsupportedError as error:
        return Reading(tunable.name, device, None, str(error), unsupported=True)
    except FabtuneError as error:
        return Reading(tunable.name, device, None, str(error))
    if refusal is None:
        return Reading(tunable.name, device, value, limit=limit)
    return Reading(tunable.name, device, value, limit=limit, refusal=refusal.reason, unless=refusal.unless)


def _devices(scope: str, around: HostSnapshot) -> list[Device]:
    try:
        return devices.find(scope, around)
    except FabtuneError:
        # A target that does not tell this user anything; the rest of the host is to be seen all the same.
        if targets.of_scope(scope) is None:
            raise
        return []


def collect(tunables: Iterable[Tunable], netns: str = "") -> Facts:
    """Return the facts of this host, with the values of `tunables` on every device of their scope."""
    around = HostSnapshot(netns)
    found: dict[str, list[Device]] = {}
    readings: list[Reading] = []
    for tunable in tunables:
        if tunable.scope not in found:
            found[tunable.scope] = _devices(tunable.scope, around)
        readings += [read(tunable, device) for device in found[tunable.scope]]
    return Facts(
        this_host(), netns, around.sessions, around.sockets, around.nics, readings, elsewhere=around.elsewhere,
        striped=striped(around.sessions, around.sockets),
    )  # fmt: skip

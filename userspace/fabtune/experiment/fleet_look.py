# SPDX-License-Identifier: GPL-2.0-or-later
"""Looks at the sessions of all hosts of an inventory at once, through Ansible; reads only."""

import tempfile
from pathlib import Path

import attrs

from fabtune.errors import FabtuneError, InputError
from fabtune.experiment import fleet
from fabtune.experiment.inventory import Inventory
from fabtune.measure.away import EndsSeen
from fabtune.model import typed
from fabtune.model.document import printed
from fabtune.model.observation import EndSeen, Observation


@attrs.frozen
class _Device:
    """What is needed of a disk in what `fabtune why --json` prints."""

    observation: Observation


@attrs.frozen
class _Devices:
    devices: tuple[_Device, ...]


@attrs.frozen
class FleetSeen:
    """What the initiators saw, by host, and the targets' ends; `problems` say which hosts are missing, and why."""

    observations: dict[str, tuple[Observation, ...]]
    ends: tuple[EndSeen, ...]
    problems: tuple[str, ...]


def over_fleet(inventory: Inventory, seconds: float) -> FleetSeen:
    """Look for `seconds` on all hosts of `inventory`.  Raises FabtuneError only where no initiator said anything."""
    problems = []
    with tempfile.TemporaryDirectory(prefix="fabtune-why-") as place:
        try:
            fleet.play_why(inventory, seconds, Path(place))
        except FabtuneError as error:
            problems.append(str(error))
        seen: dict[str, tuple[Observation, ...]] = {}
        ends: list[EndSeen] = []
        for host in dict.fromkeys((*inventory.targets, *inventory.initiators)):
            said = Path(place) / f"{host}.json"
            if not said.exists():
                continue
            try:
                if host in inventory.targets:
                    ends += typed.TOLERANT.read(EndsSeen, printed(said.read_text(), host), host).ends
                else:
                    devices = typed.TOLERANT.read(_Devices, printed(said.read_text(), host), host).devices
                    seen[host] = tuple(one.observation for one in devices)
            except InputError as error:
                problems.append(str(error))
    if not seen:
        raise FabtuneError("; ".join(problems) or "no initiator of the inventory said anything")
    return FleetSeen(seen, tuple(ends), tuple(problems))

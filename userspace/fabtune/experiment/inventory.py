# SPDX-License-Identifier: GPL-2.0-or-later
"""The hosts of a fleet: an Ansible inventory with initiators and targets, checked before anything starts."""

import json
from pathlib import Path
from typing import Any

import attrs

from fabtune.errors import FabtuneError, InputError
from fabtune.host.run import require, run

GROUPS = ("initiators", "targets")


@attrs.frozen
class Inventory:
    """Hosts by role; `path` is what Ansible reads, `devices` what each initiator loads, in their order."""

    path: Path
    initiators: tuple[str, ...]
    targets: tuple[str, ...]
    devices: tuple[str, ...] = ()


def load(path: Path, *, loaded: bool = True) -> Inventory:
    """Return the hosts in the inventory `path`.

    Raises InputError when it cannot be read, a role has no host, or an initiator that is to be `loaded` does not say
    where.
    """
    if not path.exists():
        raise InputError(
            f"--fleet {path}: no such file; expected an Ansible inventory with the groups {' and '.join(GROUPS)}"
        )
    program = require("ansible-inventory", "ansible-core")
    try:
        found = json.loads(run([program, "--inventory", path, "--list"], what="reading the inventory"))
    except FabtuneError as error:
        raise InputError(f"--fleet {path}: {error}") from None
    variables: dict[str, dict[str, Any]] = found["_meta"]["hostvars"]
    roles = {group: _hosts(found, group) for group in GROUPS}
    for group, hosts in roles.items():
        if not hosts:
            raise InputError(f"--fleet {path}: no host in the group '{group}'; expected at least one")
    for host in roles["initiators"] if loaded else ():
        if not variables.get(host, {}).get("fabtune_device"):
            raise InputError(
                f"--fleet {path}: initiator '{host}' has no fabtune_device; expected the block device or directory "
                "to load, such as /dev/disk/by-path/ip-10.0.0.1:3260-iscsi-...-lun-0"
            )
    devices = tuple(str(variables.get(host, {}).get("fabtune_device", "")) for host in roles["initiators"])
    return Inventory(path.resolve(), roles["initiators"], roles["targets"], devices)


def _hosts(found: dict[str, Any], group: str) -> tuple[str, ...]:
    """Return the hosts of `group` and of the groups in it."""
    members = found.get(group, {})
    hosts = list(members.get("hosts", ()))
    for child in members.get("children", ()):
        hosts += _hosts(found, child)
    return tuple(dict.fromkeys(hosts))

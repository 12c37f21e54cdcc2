# SPDX-License-Identifier: GPL-2.0-or-later
"""One attribute file below a device's directory in sysfs or configfs.

Serves block queues, SCSI devices, iSCSI sessions, LIO TPGs, ACLs and backstores, SRP ports, NIC
attributes and module parameters.  ``queue/scheduler``-like files, which list every choice with
the active one in brackets, read as the active one.
"""

import re
from pathlib import Path

from fabtune.backends import UnsupportedError, explained, tree
from fabtune.model.device import Device

_CHOSEN = re.compile(r"(?:^|\s)\[([^\]]+)\](?:\s|$)")


def _path(device: Device, key: str) -> Path:
    directory = device.where.get("directory")
    if not directory:
        raise UnsupportedError(f"{device.label}: has no attribute '{key}'")
    if "netns" in device.where:
        return tree.sysfs(device.where["netns"]) / directory / key
    return Path(directory) / key


class _Attribute:
    def read(self, device: Device, key: str) -> str:
        path = _path(device, key)
        with explained(f"{device.label}: {key}"):
            text = path.read_text(errors="replace").strip()
        chosen = _CHOSEN.search(text)
        return chosen[1] if chosen else text

    def write(self, device: Device, key: str, value: str) -> None:
        with explained(f"{device.label}: {key}={value}"):
            tree.write_text(_path(device, key), value)


BACKEND = _Attribute()

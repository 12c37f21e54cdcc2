# SPDX-License-Identifier: GPL-2.0-or-later
"""SCST, whose modules come from outside of the kernel: nothing to tune, but it holds disks.

A disk behind its vdisk handlers is opened as a file is, without a claim and without a process; one behind a
pass-through handler is held by its address.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from fabtune.host import tree
from fabtune.host.targets.kind import Export, Kind

_ADDRESS = re.compile(r"([0-9]{1,9}):([0-9]{1,9}):([0-9]{1,9}):([0-9]{1,20})")


def _devices() -> Path:
    return tree.SYS / "kernel/scst_tgt/devices"


class _Scst(Kind):
    name, title = "scst", "SCST"

    def exports(self) -> Iterator[Export]:
        for device in sorted(_devices().glob("*")):
            # Below the name stands a mark for scstadmin.
            path = (tree.read_text(device / "filename") or "").partition("\n")[0]
            address = _passed_on(device)
            if path.startswith("/") or address:
                yield Export(f"the SCST device {device.name}", paths=(path,) if path else (), address=address)

    def hidden(self) -> str:
        if (tree.SYS / "module/scst").is_dir() and not _devices().is_dir():
            return f"SCST, perhaps: {_devices()} is not there to tell what it exports"
        unread = [one for one in sorted(_devices().glob("*/filename")) if tree.read_text(one) is None]
        return f"SCST, perhaps: {unread[0]} cannot be read" if unread else ""


def _passed_on(device: Path) -> tuple[int, ...]:
    """Return the address of the SCSI device behind `device`, nothing where SCST merely lists it, as it does each."""
    found = _ADDRESS.fullmatch(device.name)
    held = (device / "handler").is_symlink() or tree.names(device / "exported")
    return tuple(map(int, found.groups())) if found and held else ()


KIND = _Scst()

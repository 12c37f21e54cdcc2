# SPDX-License-Identifier: GPL-2.0-or-later
"""Our .link files and drop-ins to other ones: written only if every NIC keeps its name at the next boot."""

from fabtune.backends.textfile import TextFile
from fabtune.errors import FabtuneError
from fabtune.host import udevadm
from fabtune.model.device import Device


class _LinkFile(TextFile):
    def write(self, device: Device, key: str, value: str) -> None:
        """As for any file of ours; raises FabtuneError, after the write, when a NIC would be named differently."""
        if not value:
            # Taking it back needs no leave: without it things are as they were.
            super().write(device, key, value)
            return
        before = udevadm.links()
        super().write(device, key, value)
        for was, now in zip(before, udevadm.links(), strict=True):
            if (was.name, was.naming) != (now.name, now.naming):
                raise FabtuneError(f"/{key}: NIC {was.name} would not be named as before at the next boot")


BACKEND = _LinkFile()

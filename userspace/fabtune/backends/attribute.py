# SPDX-License-Identifier: GPL-2.0-or-later
"""One attribute of a device: a file of the kernel's below its directory, or what its kind of target makes of the key.

Serves block queues, SCSI devices, iSCSI sessions, SRP ports, NIC attributes, module parameters and targets.
"""

from fabtune.host import attributes, targets
from fabtune.model.device import Device


class _Attribute:
    def read(self, device: Device, key: str) -> str:
        kind = targets.of_scope(device.scope)
        return kind.read(device, key) if kind else attributes.read(device, key)

    def write(self, device: Device, key: str, value: str) -> None:
        kind = targets.of_scope(device.scope)
        if kind:
            kind.write(device, key, value)
        else:
            attributes.write(device, key, value)


BACKEND = _Attribute()

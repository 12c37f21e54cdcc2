# SPDX-License-Identifier: GPL-2.0-or-later
"""What the next boot gives a target: single values in what its kind restores it from, '' where that has none."""

from fabtune.errors import UnsupportedError
from fabtune.host import targets
from fabtune.host.targets.kind import Kind
from fabtune.model.device import Device


def _kind(device: Device) -> Kind:
    kind = targets.of_scope(device.scope)
    if kind is None:
        raise UnsupportedError(f"{device.label}: not part of a target")
    return kind


class _SaveConfig:
    def read(self, device: Device, key: str) -> str:
        return _kind(device).read_saved(device, key)

    def write(self, device: Device, key: str, value: str) -> None:
        _kind(device).write_saved(device, key, value)


BACKEND = _SaveConfig()

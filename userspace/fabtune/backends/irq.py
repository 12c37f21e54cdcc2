# SPDX-License-Identifier: GPL-2.0-or-later
"""Which CPUs serve a NIC's interrupts (/proc/irq/N/smp_affinity_list), one entry a vector.

irqbalance is neither stopped nor reconfigured: where it runs it may move them again, and
`fabtune lint` says so.
"""

from pathlib import Path

from fabtune.errors import FabtuneError, UnsupportedError, explained
from fabtune.host import namespaces, tree
from fabtune.model.device import Device


def _vectors(device: Device) -> list[Path]:
    directory = namespaces.sysfs(device.where.get("netns", "")) / device.where.get("directory", "") / "device/msi_irqs"
    numbers = sorted(int(path.name) for path in directory.glob("*") if path.name.isdigit())
    files = [tree.PROC / "irq" / str(number) / "smp_affinity_list" for number in numbers]
    found = [file for file in files if file.exists()]
    if not found:
        raise UnsupportedError(f"{device.label}: has no interrupts of its own")
    return found


class _Irq:
    def read(self, device: Device, _: str) -> str:
        with explained(f"{device.label}: interrupt affinity"):
            lists = [file.read_text().strip() for file in _vectors(device)]
        return lists[0] if len(set(lists)) == 1 else " ".join(lists)

    def write(self, device: Device, _: str, value: str) -> None:
        vectors = _vectors(device)
        lists = value.split()
        if len(lists) == 1:
            lists *= len(vectors)
        if len(lists) != len(vectors):
            raise FabtuneError(f"{device.label}: {len(lists)} CPU lists for {len(vectors)} interrupts")
        for file, cpus in zip(vectors, lists, strict=True):
            with explained(f"{device.label}: {file}={cpus}"):
                tree.write_text(file, cpus)


BACKEND = _Irq()

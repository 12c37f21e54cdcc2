# SPDX-License-Identifier: GPL-2.0-or-later
"""nvmet, the kernel's NVMe target: nothing to tune, but it holds disks, and the lab measures beside it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from fabtune.host import tree
from fabtune.host.run import run
from fabtune.host.targets.kind import Export, Kind, Store


def _configfs() -> Path:
    return tree.SYS / "kernel/config/nvmet"


class _Nvmet(Kind):
    name = title = "nvmet"

    def exports(self) -> Iterator[Export]:
        for namespace in sorted((_configfs() / "subsystems").glob("*/namespaces/*")):
            path = tree.read_text(namespace / "device_path") or ""
            if tree.read_text(namespace / "enable") == "1" and path.startswith("/"):
                yield Export(f"the NVMe namespace {namespace.parents[1].name}/{namespace.name}", paths=(path,))

    def hidden(self) -> str:
        if not (tree.SYS / "module/nvmet").is_dir() or _configfs().is_dir():
            return ""
        return f"nvmet, perhaps: {_configfs()} is not there to tell what it exports: mount configfs"

    def add_store(self, store: Store) -> str:
        # A namespace is a block device.
        return str(store.device)

    def add_target(self, name: str, portals: Sequence[str], stores: Sequence[str], inside: Sequence[str]) -> None:
        run(["modprobe", "nvmet_tcp"], what="loading nvmet_tcp")
        subsystem = _configfs() / "subsystems" / name
        subsystem.mkdir()
        (subsystem / "attr_allow_any_host").write_text("1")
        for number, store in enumerate(stores, 1):
            (subsystem / f"namespaces/{number}").mkdir()
            (subsystem / f"namespaces/{number}/device_path").write_text(store)
            (subsystem / f"namespaces/{number}/enable").write_text("1")
        for number, portal in enumerate(portals, 1):
            port, (address, _, service) = _configfs() / f"ports/{number}", portal.rpartition(":")
            port.mkdir()
            for key, value in {"trtype": "tcp", "adrfam": "ipv4", "traddr": address, "trsvcid": service}.items():
                (port / f"addr_{key}").write_text(value)
            # The listening socket belongs to the namespace of whoever makes this link.
            run(
                [*inside, "ln", "-s", str(subsystem), str(port / "subsystems" / name)], what="opening the target's port"
            )


KIND = _Nvmet()

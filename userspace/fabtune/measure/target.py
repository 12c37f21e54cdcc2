# SPDX-License-Identifier: GPL-2.0-or-later
"""What a workload runs on: the block device or directory, its identity, and whether writing there is safe."""

import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import attrs

from fabtune.errors import FabtuneError, InputError
from fabtune.host import blocks, tree
from fabtune.host.run import run
from fabtune.host.users import Users
from fabtune.model.runrecord import Sample, TargetUsed


@attrs.frozen
class Target:
    """A device or directory.  `disk` is the whole block device below it, None where there is none (tmpfs, NFS).

    `meter` returns what else to read with each sample of a load on it.
    """

    path: Path
    kind: str
    size_bytes: int
    disk: str | None
    wwid: str
    model: str
    logical_block_bytes: int
    sessions: tuple[int, ...]
    meter: Callable[[], Sample] | None = None

    def as_record(self) -> TargetUsed:
        """Return the target as a run record keeps it."""
        return TargetUsed(
            str(self.path), self.kind, self.size_bytes, self.disk, self.wwid, self.model, self.logical_block_bytes,
            self.sessions, self.queue(),
        )  # fmt: skip

    def queue(self) -> dict[str, str]:
        """Return the block queue's settings, as the kernel has them now."""
        if not self.disk:
            return {}
        settings = {}
        for path in sorted((blocks.directory(self.disk) / "queue").glob("*")):
            # Some are directories, or attributes that this driver does not have.
            if (value := tree.read_text(path)) is not None:
                settings[path.name] = value
        return settings


def find(name: str) -> Target:
    """Return the target at path `name`.  Raises InputError when it is neither device nor directory."""
    path = Path(name).resolve()
    try:
        status = path.stat()
    except OSError as error:
        raise InputError(f"--on {name}: {error.strerror}; expected a block device or a directory") from None
    if stat.S_ISBLK(status.st_mode):
        device, kind = status.st_rdev, "device"
    elif stat.S_ISDIR(status.st_mode):
        device, kind = status.st_dev, "directory"
    else:
        raise InputError(f"--on {name}: neither a block device nor a directory")
    disk = _disk(device)
    if kind == "device":
        size = int((Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}") / "size").read_text()) * 512
    else:
        size = shutil.disk_usage(path).free
    return Target(
        path=path,
        kind=kind,
        size_bytes=size,
        disk=disk,
        wwid=blocks.wwid(blocks.directory(disk)) if disk else "",
        model=_text(disk, "device/model"),
        logical_block_bytes=int(_text(disk, "queue/logical_block_size") or 512),
        sessions=tuple(sorted(_sessions(disk))),
    )


def _disk(device: int) -> str | None:
    """Return the whole disk that a device number belongs to."""
    node = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    return _disk_of(node) if node.exists() else None


def _text(disk: str | None, attribute: str) -> str:
    return (tree.read_text(blocks.directory(disk) / attribute) or "") if disk else ""


def _sessions(disk: str | None) -> set[int]:
    """Return the iSCSI sessions below `disk`, through device-mapper and md."""
    if not disk:
        return set()
    node = blocks.directory(disk)
    found = {
        int(part.removeprefix("session"))
        for part in node.resolve().parts
        if part.startswith("session") and part[7:].isdigit()
    }
    for slave in node.glob("slaves/*"):
        found |= _sessions(_disk_of(slave))
    return found


def _disk_of(node: Path) -> str:
    """Return the whole disk of the disk or partition in sysfs directory `node`."""
    node = node.resolve()
    return node.parent.name if (node / "partition").exists() else node.name


def what_is_lost(target: Target) -> str:
    """Return what would be overwritten, for the question that comes first."""
    wwid = f", WWID {target.wwid}" if target.wwid else ", no WWID"
    model = f", {target.model}" if target.model else ""
    return f"{target.path}: {target.size_bytes / 1e9:.3f} GB{model}{wwid}"


def who_holds(target: Target) -> list[str]:
    """Return who holds a device: mounts, swap, holders, open exclusive claims, exports, processes; empty when free.

    Each entry says what to do about it.
    """
    assert target.kind == "device"
    if Path("/") != tree.ROOT:
        return [f"FABTUNE_ROOT={tree.ROOT} is not the host that {target.path} belongs to: unset it"]
    number = target.path.stat().st_rdev
    return Users().of_block(Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve().name)


def signatures(target: Target) -> list[str]:
    """Return the file systems, labels and partition tables found on a device."""
    text = run(["wipefs", "--no-act", "--json", str(target.path)], what=f"looking for signatures on {target.path}")
    found = json.loads(text)["signatures"] if text.strip() else []
    return [f"{one['type']} at byte {int(one['offset'], 0)}" for one in found]


def check_overwriting(target: Target, confirm: str | None, ask: Callable[[str, str], str] | None) -> None:
    """Refuse as `check_writable` does; before that, `ask` for the name of a free device that was not named.

    `ask` gets what is about to happen and the name that allows it; None where nobody can be asked.
    """
    if confirm is None and ask and target.kind == "device" and not who_holds(target):
        found = ", ".join(signatures(target)) or "no signatures found"
        confirm = ask(f"This overwrites {what_is_lost(target)} ({found}).", target.path.name)
    check_writable(target, confirm)


def check_writable(target: Target, confirm: str | None) -> None:
    """Refuse to let a workload write to a device that is in use or was not named.

    `confirm` is the name the user typed or gave with --confirm.  Raises InputError.
    """
    if target.kind == "directory":
        if not os.access(target.path, os.W_OK):
            raise FabtuneError(f"{target.path}: no permission to write here")
        return
    reasons = who_holds(target)
    if reasons:
        raise InputError(f"refusing to write to {target.path}: {'; '.join(reasons)}")
    if confirm != target.path.name:
        found = ", ".join(signatures(target)) or "no signatures found"
        raise InputError(
            f"this workload overwrites {what_is_lost(target)} ({found}); "
            f"to allow it give --confirm={target.path.name}" + (f", not '{confirm}'" if confirm else "")
        )

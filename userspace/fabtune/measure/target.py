# SPDX-License-Identifier: GPL-2.0-or-later
"""What a workload runs on: the block device or directory, its identity, and whether writing there is safe."""

import json
import os
import shutil
import stat
from pathlib import Path

import attrs

from fabtune.errors import FabtuneError, InputError
from fabtune.host.run import run
from fabtune.host.users import Users
from fabtune.model.runrecord import TargetUsed

SYS_BLOCK = Path("/sys/block")


@attrs.frozen
class Target:
    """A device or directory.  `disk` is the whole block device below it, None where there is none (tmpfs, NFS)."""

    path: Path
    kind: str
    size_bytes: int
    disk: str | None
    wwid: str
    model: str
    logical_block_bytes: int
    sessions: tuple[int, ...]

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
        for path in sorted((SYS_BLOCK / self.disk / "queue").glob("*")):
            try:
                settings[path.name] = path.read_text().strip()
            except OSError:
                continue  # a directory, or an attribute this driver does not have
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
        wwid=_wwid(disk),
        model=_text(disk, "device/model"),
        logical_block_bytes=int(_text(disk, "queue/logical_block_size") or 512),
        sessions=tuple(sorted(_sessions(disk))),
    )


def _disk(device: int) -> str | None:
    """Return the whole disk that a device number belongs to."""
    node = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    if not node.exists():
        return None
    node = node.resolve()
    return node.parent.name if (node / "partition").exists() else node.name


def _text(disk: str | None, attribute: str) -> str:
    try:
        return (SYS_BLOCK / (disk or "") / attribute).read_text().strip() if disk else ""
    except OSError:
        return ""


def _wwid(disk: str | None) -> str:
    """Return the name that survives renaming; empty where the device has none (a RAM disk)."""
    return _text(disk, "wwid") or _text(disk, "device/wwid") or _text(disk, "dm/uuid")


def _sessions(disk: str | None) -> set[int]:
    """Return the iSCSI sessions below `disk`, through device-mapper and md."""
    if not disk:
        return set()
    node = SYS_BLOCK / disk
    found = {
        int(part.removeprefix("session"))
        for part in node.resolve().parts
        if part.startswith("session") and part[7:].isdigit()
    }
    for slave in node.glob("slaves/*"):
        found |= _sessions(_disk_of(slave))
    return found


def _disk_of(node: Path) -> str:
    node = node.resolve()
    return node.parent.name if (node / "partition").exists() else node.name


def describe(target: Target) -> str:
    """Return what would be overwritten, for the question that comes first."""
    wwid = f", WWID {target.wwid}" if target.wwid else ", no WWID"
    model = f", {target.model}" if target.model else ""
    return f"{target.path}: {target.size_bytes / 1e9:.3f} GB{model}{wwid}"


def in_use(target: Target) -> list[str]:
    """Return who holds a device: mounts, swap, holders, open exclusive claims, exports, processes; empty when free.

    Each entry says what to do about it.
    """
    assert target.kind == "device"
    name = Path(target.path).name
    node = Path(f"/sys/class/block/{name}")
    reasons = []
    parts = [node.name, *(child.parent.name for child in node.glob("*/partition"))]
    numbers = {Path(f"/sys/class/block/{part}/dev").read_text().strip(): part for part in parts}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if fields[2] in numbers:
            reasons.append(f"{numbers[fields[2]]} is mounted on {fields[4]}: unmount it")
    for line in Path("/proc/swaps").read_text().splitlines()[1:]:
        if Path(line.split()[0]).resolve().name in parts:
            reasons.append(f"{line.split()[0]} is swap space: run swapoff")
    for part in parts:
        for holder in Path(f"/sys/class/block/{part}/holders").glob("*"):
            reasons.append(f"{part} is held by {holder.name}: stop it first")
    if not reasons:
        try:
            os.close(os.open(target.path, os.O_RDONLY | os.O_EXCL))
        except OSError as error:
            reasons.append(f"{target.path} cannot be opened for exclusive use: {error.strerror}")
    user = "" if reasons else Users().of_block(name)
    if user:
        reasons.append(f"{name} is in use by {user}: end that first")
    return reasons


def signatures(target: Target) -> list[str]:
    """Return the file systems, labels and partition tables found on a device."""
    text = run(["wipefs", "--no-act", "--json", str(target.path)], what=f"looking for signatures on {target.path}")
    found = json.loads(text)["signatures"] if text.strip() else []
    return [f"{one['type']} at byte {int(one['offset'], 0)}" for one in found]


def check_writable(target: Target, confirm: str | None) -> None:
    """Refuse to let a workload write to a device that is in use or was not named.

    `confirm` is the name the user typed or gave with --confirm.  Raises InputError.
    """
    if target.kind == "directory":
        if not os.access(target.path, os.W_OK):
            raise FabtuneError(f"{target.path}: no right to write here")
        return
    reasons = in_use(target)
    if reasons:
        raise InputError(f"refusing to write to {target.path}: {'; '.join(reasons)}")
    if confirm != target.path.name:
        found = ", ".join(signatures(target)) or "no signatures found"
        raise InputError(
            f"this workload overwrites {describe(target)} ({found}); "
            f"to allow it give --confirm={target.path.name}" + (f", not '{confirm}'" if confirm else "")
        )

# SPDX-License-Identifier: GPL-2.0-or-later
"""dm-multipath's own view of its paths: whether a device can do without one path, and when it has that path back."""

import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from fabtune.errors import FabtuneError
from fabtune.host import blocks, tree
from fabtune.host.run import ended, launch, require, run
from fabtune.host.sessions import Session

# multipathd takes a path back in when udev tells of its disk; the next path must not go before that.
_BACK_WAIT_S = 30
_ANSWER_WAIT_S = 10
_STATUS_WAIT_S = 10
# ALUA states in which a port group answers reads and writes (SPC-4, 5.15.2.4).
_SERVING = ("active/optimized", "active/non-optimized", "lba-dependent")


@dataclass(frozen=True)
class MapPath:
    """One path of a multipath device: `number` is major:minor, `usable` what device-mapper thinks of it."""

    number: str
    usable: bool


def maps_above(session: Session) -> list[str]:
    """Return the dm-multipath devices that have a path through `session`."""
    return sorted({holder for lun in session.luns for holder in blocks.multipath_above(lun)})


def parse_status(text: str) -> list[list[MapPath]]:
    """Return the paths in `dmsetup status` of one device, one list a line of its table.

    Raises ValueError for what is not dm-multipath's status (drivers/md/dm-mpath.c, multipath_status).
    """
    return [_parse_line(line.split()) for line in text.splitlines() if line.strip()]


def _parse_line(words: list[str]) -> list[MapPath]:
    if words[2] != "multipath":
        raise ValueError(f"target {words[2]}")
    left = iter(words[3:])

    def skip() -> None:
        for _ in range(int(next(left))):
            next(left)

    found = []
    try:
        skip()  # features
        skip()  # hardware handler
        groups, _ = int(next(left)), next(left)
        for _ in range(groups):
            group = next(left)
            skip()  # the selector's own status
            paths, arguments = int(next(left)), int(next(left))
            for _ in range(paths):
                number, state, _ = next(left), next(left), next(left)
                for _ in range(arguments):
                    next(left)
                # D: the whole group is disabled.
                found.append(MapPath(number, state == "A" and group != "D"))
    except StopIteration:
        raise ValueError("it ends early") from None
    return found


def _status(holder: str) -> list[list[MapPath]]:
    """Return the paths of multipath device `holder`, as device-mapper sees them now.  Raises FabtuneError."""
    major, _, minor = (tree.read_text(tree.SYS / "block" / holder / "dev") or "").partition(":")
    command = [require("dmsetup", "dmsetup"), "status", "--major", major, "--minor", minor]
    text = run(command, what=f"reading the paths of {holder}", timeout_s=_STATUS_WAIT_S)
    try:
        lines = parse_status(text)
    except (ValueError, IndexError) as error:
        raise FabtuneError(f"the paths of {holder}: dmsetup status says {text.strip()!r:.80}: {error}") from None
    if not lines:
        raise FabtuneError(f"the paths of {holder}: dmsetup status says nothing")
    return lines


def why_not_without(holder: str, session: Session) -> str:
    """Return why multipath device `holder` cannot do without its paths through `session`, '' if it can."""
    name = tree.read_text(tree.SYS / "block" / holder / "dm/name") or holder
    if tree.read_text(tree.SYS / "block" / holder / "dm/suspended") == "1":
        return f"{holder} ({name}) is suspended"
    if not _multipathd_runs():
        return f"multipathd does not run, so that {holder} ({name}) would not get its path back"
    try:
        lines = _status(holder)
    except FabtuneError as error:
        return str(error)
    for line in lines:
        others = [path for path in line if path.usable and _session_of(path.number) != session.sid]
        if not any(_lives(path.number) for path in others):
            return f"{holder} ({name}) has no other live path"
    return _why_not_taken_back(f"{holder} ({name})", set(session.luns) & set(blocks.slaves(holder)))


def _why_not_taken_back(device: str, disks: set[str]) -> str:
    """Return why multipathd would not take `disks` back into multipath `device`, '' if it will.

    It hears of disks from udevd, and takes none that its configuration excludes by now.
    """
    try:
        run([require("udevadm", "udev"), "control", "--ping", f"--timeout={_ANSWER_WAIT_S}"], what="asking udevd",
            timeout_s=2 * _ANSWER_WAIT_S)  # fmt: skip
    except FabtuneError:
        return f"udevd does not answer, so that multipathd would not hear of the new path of {device}"
    try:
        command = [require("multipathd", "multipath-tools"), "show", "paths", "raw", "format", "%d"]
        known = run(command, what="asking multipathd for its paths", timeout_s=_ANSWER_WAIT_S).split()
    except FabtuneError:
        return f"multipathd does not say whether it would take the path of {device} back"
    strange = next(iter(sorted(disks - set(known))), "")
    if strange:
        return f"multipathd knows no {strange} (excluded in multipath.conf?), and would not take it back into {device}"
    return ""


def _multipathd_runs() -> bool:
    return any(tree.read_text(process / "comm") == "multipathd" for process in tree.PROC.glob("[0-9]*"))


def _session_of(number: str) -> int | None:
    """Return the id of the iSCSI session that the disk with this number is reached through, None for none."""
    for part in (tree.SYS / "dev/block" / number).resolve().parts:
        if part.startswith("session") and (sid := tree.whole(part[7:])) is not None:
            return sid
    return None


def _lives(number: str) -> bool:
    """Tell whether the disk with this number answers now: by the kernel's states, by ALUA's, and by a read."""
    disk = tree.SYS / "dev/block" / number
    if tree.read_text(disk / "device/state") != "running":
        return False
    sid = _session_of(number)
    if sid is not None and tree.read_text(tree.SYS / f"class/iscsi_session/session{sid}/state") != "LOGGED_IN":
        return False
    access = tree.read_text(disk / "device/access_state")
    if access is not None and access not in _SERVING:
        return False
    return _answers(disk.resolve().name)


def _answers(name: str) -> bool:
    """Tell whether disk `name` can be read; what hangs is left to the kernel's own time limits."""
    command = ["dd", f"if=/dev/{name}", "of=/dev/null", "bs=4096", "count=1", "iflag=direct"]
    try:
        process = launch(command)
    except FabtuneError:
        return False
    if not ended(process, _ANSWER_WAIT_S):
        process.kill()
    return process.returncode == 0


def wait_until_back(holders: Collection[str], session: Session) -> str:
    """Wait until each of `holders` has a usable path through `session` again; return the one that has not, or ''."""
    deadline = time.monotonic() + _BACK_WAIT_S
    left = list(holders)
    while left and time.monotonic() < deadline:
        left = [holder for holder in left if not _has_path(holder, session)]
        if left and not _multipathd_runs():
            break
        if left:
            time.sleep(0.1)
    return left[0] if left else ""


def lacking(session: Session) -> list[str]:
    """Return the dm-multipath devices of `session`'s disks that are not known to have a usable path through it."""
    maps = [entry.name for entry in (tree.SYS / "block").glob("dm-*") if blocks.is_multipath(entry.name)]
    mine = {blocks.wwid(blocks.directory(lun)) for lun in session.luns} - {""}
    above = [one for one in maps if mine & {blocks.wwid(blocks.directory(disk)) for disk in blocks.slaves(one)}]
    return sorted(one for one in above if not _has_path(one, session))


def _has_path(holder: str, session: Session) -> bool:
    try:
        lines = _status(holder)
    except FabtuneError:
        return False
    return all(any(path.usable and _session_of(path.number) == session.sid for path in line) for line in lines)


def disk_of(device: Path) -> str:
    """Return the disk of SCSI device `device`, '' if it is not a disk."""
    return next((disk.name for disk in (device / "block").glob("*")), "")

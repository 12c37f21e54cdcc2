# SPDX-License-Identifier: GPL-2.0-or-later
"""The block layer's own lists of requests that wait to be sent: debugfs, block/DISK/*.

Nothing here may wait for a host that hangs.  So nothing of sysfs' queue/ is read: the kernel takes a lock for each of
those files that it may hold while it waits for the disk's requests.  These lists take spinlocks alone.
"""

import errno
import os
import re
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from fabtune.host import tree
from fabtune.model.listing import first_of

# A list is read as far as this (some thousand requests), all of them for no longer than this.
_MOST_BYTES = 1 << 20
_MOST_S = 2.0
_READ_BYTES = 1 << 16
# Of so many disks it is said what is not seen of them, of the rest how many they are.
_MOST_NAMED = 4
_GONE = (errno.ENOENT, errno.EIO, errno.ENODEV, errno.ENXIO)

_LINE = re.compile(r"(?P<request>\S+) \{\.op=(?P<op>\w+), (?P<rest>.*)\}")
_AGE = re.compile(r"allocated ([0-9]{1,10})\.([0-9]{3}) s ago")
_STATE = re.compile(r"\.state=(\w+)")
_RQ_FLAGS = re.compile(r"\.rq_flags=([\w|]*)")
_SCSI_FLAGS = re.compile(r", \.flags=([\w|]*)")
_CDB = re.compile(r"\.cmd=[^,]*?((?:\b[0-9a-f]{2} )*\b[0-9a-f]{2}), \.retries=")
_SCSI_ADDRESS = re.compile(r"[0-9]+(?::[0-9]+){3}")
# By operation code of READ, WRITE and WRITE SAME (SBC-4): where the first block stands, and how many.
_BLOCKS = {
    0x28: ((2, 6), (7, 9)), 0x2A: ((2, 6), (7, 9)), 0x41: ((2, 6), (7, 9)),
    0xA8: ((2, 6), (6, 10)), 0xAA: ((2, 6), (6, 10)),
    0x88: ((2, 10), (10, 14)), 0x8A: ((2, 10), (10, 14)), 0x93: ((2, 10), (10, 14)),
}  # fmt: skip
# SCSI's own commands carry their time from the beginning, others from when SCSI first took them up.
_PASSTHROUGH = ("DRV_IN", "DRV_OUT", "SCSI_IN", "SCSI_OUT")

_RELEASE = re.compile(r"([0-9]+)\.([0-9]+)")
# Red Hat's and SUSE's kernels have parts of newer ones than their number says.
_MIXED = re.compile(r"\.el[0-9]|-15[0-9]{4}\.")
# From 6.6 on SCSI looks for a command's device, which one that it never took up has not: that ended in an oops until
# 6.10 (linux 90f359c1aa4a, ba0f09b0dbd8).  To do so it lets interrupts in under the requeue list's lock, still in 7.2:
# one that sends a request back there would wait for the CPU that it has interrupted.
_NO_LISTS, _NO_REQUEUE_LIST = (6, 6), (6, 10)


@dataclass(frozen=True, slots=True)
class QueuedRequest:
    """One request in a list.  `request` is the kernel's word for it, and the next one's in the same place.

    `age_ns` counts from when SCSI first took it up; `lba` and `blocks` are in the disk's own blocks.  They are None
    where the kernel does not tell them.  `place` is ``requeue_list``, ``dispatch`` or ``scheduler``.  `counted` tells
    whether the disk's statistics will know when it ends.
    """

    disk: str
    request: str
    op: str
    place: str
    age_ns: int | None
    lba: int | None
    blocks: int | None
    counted: bool


@dataclass(frozen=True, slots=True)
class QueueLists:
    """What is in the lists, and of which disks what is not seen, and why, as ends of a sentence."""

    requests: tuple[QueuedRequest, ...]
    unseen: tuple[str, ...]


def queue_lists(sys: Path | None = None, proc: Path | None = None) -> QueueLists:
    """Read the lists of all disks.  Raises nothing: what cannot be read is said."""
    root = sys or tree.SYS
    place = root / "kernel/debug/block"
    try:
        disks = sorted(os.listdir(place))  # noqa: PTH208 - names are wanted
    except FileNotFoundError:
        mounted = bool(tree.names(place.parent))
        lacking = "this kernel does not show it (CONFIG_BLK_DEBUG_FS)" if mounted else "debugfs is not mounted there"
        return QueueLists((), (f"{place}: {lacking}",))
    except OSError as error:
        return QueueLists((), (f"{place}: {error.strerror}",))
    reading = _Reading(root, tree.read_text((proc or tree.PROC) / "sys/kernel/osrelease") or "")
    for disk in disks:
        reading.own_lists(disk)
    # These are many where CPUs are: what time is left is theirs.
    for disk in disks:
        reading.scheduler_lists(disk)
    return reading.result()


class _Reading:
    """One look at all lists, and what it could not see."""

    def __init__(self, sys: Path, release: str) -> None:
        self._sys = sys
        self._until = time.monotonic() + _MOST_S
        self._found: dict[tuple[str, str, str], QueuedRequest] = {}
        self._why: dict[str, list[str]] = defaultdict(list)
        said = _RELEASE.match(release)
        version = (int(said[1]), int(said[2])) if said else _NO_LISTS
        mixed = _MIXED.search(release) and version < _NO_REQUEUE_LIST
        self._no_scsi = bool(mixed) or _NO_LISTS <= version < _NO_REQUEUE_LIST
        self._no_requeue_list = version >= _NO_REQUEUE_LIST

    def result(self) -> QueueLists:
        """Return what was found and what was not seen."""
        return QueueLists(tuple(self._found.values()), tuple(by_reason(self._why)))

    def own_lists(self, disk: str) -> None:
        """Read what the disk's queue itself holds back."""
        place = self._place(disk)
        inside = tree.names(place)
        queues = [name for name in inside if name.startswith("hctx")]
        if not queues or not self._may(disk):
            # A disk without queues of its own, as LVM's, hands requests on to those below.
            return
        host = self._scsi_host(disk)
        if host is None or not self._no_requeue_list:
            self._read(disk, place / "requeue_list", "requeue_list")
        elif tree.read_text(self._sys / f"class/scsi_host/{host}/state") != "running":
            # But while it recovers the host, SCSI has what it puts there taken out at once.
            self._say("the SCSI host recovers, and this kernel may hang when its requeue_list is read", disk)
        for queue in queues:
            self._read(disk, place / queue / "dispatch", "dispatch")

    def scheduler_lists(self, disk: str) -> None:
        """Read what the disk's I/O scheduler holds, or without one what each CPU has put in."""
        place = self._place(disk)
        queues = [name for name in tree.names(place) if name.startswith("hctx")]
        if not queues or not self._may(disk):
            return
        settings = tree.names(self._sys / "block" / disk / "queue/iosched")
        if "fifo_batch" in settings:
            for name in tree.names(place / "sched"):
                if name.endswith("_fifo_list") or name.startswith("dispatch"):
                    self._read(disk, place / "sched" / name, "scheduler")
        elif settings:
            self._say("the I/O scheduler does not tell what it holds", disk)
        else:
            for queue in queues:
                for cpu in (name for name in tree.names(place / queue) if name.startswith("cpu")):
                    for kind in ("default", "read", "poll"):
                        self._read(disk, place / queue / cpu / f"{kind}_rq_list", "scheduler")

    def _place(self, disk: str) -> Path:
        return self._sys / "kernel/debug/block" / disk

    def _scsi_host(self, disk: str) -> str | None:
        """Return the host of a SCSI disk, "" where that is not known, None for any other disk."""
        try:
            address = Path(os.readlink(self._sys / "block" / disk / "device")).name  # noqa: PTH115 - OSError's errno
        except OSError:
            # Careful with one that is on its way out.
            return None if (self._sys / "block" / disk).exists() or disk.startswith("nvme") else ""
        return f"host{address.partition(':')[0]}" if _SCSI_ADDRESS.fullmatch(address) else None

    def _may(self, disk: str) -> bool:
        """Tell whether the disk's lists may be read; say why not."""
        if time.monotonic() > self._until:
            self._say(f"reading took longer than {_MOST_S:g} s", disk)
        elif self._no_scsi and self._scsi_host(disk) is not None:
            self._say("this kernel may crash when the lists of a SCSI disk are read", disk)
        else:
            return True
        return False

    def _say(self, why: str, disk: str) -> None:
        if disk not in self._why[why]:
            self._why[why].append(disk)

    def _read(self, disk: str, path: Path, place: str) -> None:
        try:
            text = self._text(disk, path)
        except OSError as error:
            if error.errno not in _GONE:
                self._say(f"{path.name}: {error.strerror}", disk)
            return
        for line in text.splitlines():
            if one := request_in(line, disk, place):
                # A long list is read in parts, between which it moves.
                self._found.setdefault((disk, one.request, place), one)

    def _text(self, disk: str, path: Path) -> str:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            data = os.read(fd, _READ_BYTES)
            while more := os.read(fd, _READ_BYTES) if data else b"":
                data += more
                if len(data) > _MOST_BYTES or time.monotonic() > self._until:
                    self._say("more wait than were read", disk)
                    break
        finally:
            os.close(fd)
        return data.decode(errors="replace")


def by_reason(why: dict[str, list[str]]) -> list[str]:
    """Return for each reason the disks that it holds of."""
    return [f"of {first_of(disks, _MOST_NAMED)}: {reason}" for reason, disks in why.items()]


def request_in(line: str, disk: str, place: str) -> QueuedRequest | None:
    """Return the request that `line` of a list tells of, None for one that is being sent or another line."""
    found = _LINE.fullmatch(line)
    if not found:
        return None
    rest = found["rest"]
    state = _STATE.search(rest)
    if state and state[1] != "idle":
        return None
    flags, of_scsi = _RQ_FLAGS.search(rest), _SCSI_FLAGS.search(rest)
    # Of one that SCSI has not taken up, older kernels show what an earlier command has left.
    taken_up = bool(of_scsi and "INITIALIZED" in of_scsi[1].split("|"))
    age = _AGE.search(rest) if taken_up or found["op"] in _PASSTHROUGH else None
    lba, blocks = _blocks(rest) if taken_up else (None, None)
    return QueuedRequest(
        disk=disk, request=found["request"], op=found["op"].lower(), place=place,
        age_ns=int(age[1] + age[2]) * 1_000_000 if age else None, lba=lba, blocks=blocks,
        counted=bool(flags and "IO_STAT" in flags[1].split("|")),
    )  # fmt: skip


def _blocks(rest: str) -> tuple[int, int] | tuple[None, None]:
    """Return the first block and the number of blocks that a SCSI command is about, None twice for others."""
    told = _CDB.search(rest)
    command = bytes.fromhex(told[1]) if told else b""
    if len(command) == 6 and command[0] in (0x08, 0x0A):
        return int.from_bytes(command[1:4], "big") & 0x1F_FFFF, command[4] or 256
    where = _BLOCKS.get(command[0]) if command else None
    if where is None or len(command) < where[1][1]:
        return None, None
    return (int.from_bytes(command[slice(*where[0])], "big"), int.from_bytes(command[slice(*where[1])], "big"))

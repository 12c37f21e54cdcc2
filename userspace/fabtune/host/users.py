# SPDX-License-Identifier: GPL-2.0-or-later
"""Who uses a SCSI device: everything that would lose data or access if it went away now.

One `Users` is one look at the host.  Devices are compared by their numbers, never by the names of their
nodes: a node may lie anywhere, and a disk has several (sd, sg, bsg).  What cannot be looked at counts as a user.

    open files      every thread's descriptors, mappings that outlive them, and what needs none (see `hidden`)
    mounts, swap    in the mount namespace of every process
    holders         device-mapper, md, bcache: sysfs's holders of the disk and of its partitions
    kernel          what holds a device without a process: see `kept_open`
    the rest        whatever has claimed the block device refuses a second exclusive open
"""

import errno
import os
import re
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path

from fabtune.host import blocks, hidden, kept_open, mounts, targets, tree
from fabtune.host.blocks import BLOCK, Node, above, block_node, holders, node_at, numbered, rdev
from fabtune.host.mounts import Mount

# Loses nothing with a path: it only asks whether the path is alive.
_CHECKERS = ("multipathd",)
# include/linux/proc_ns.h: PROC_PID_INIT_INO
_INITIAL_PID_NAMESPACE = 0xEFFFFFFC
_MOUNT_ID = re.compile(rb"^mnt_id:\s+(\d+)", re.MULTILINE)
# The file systems that hold what would bring a session back.
_SYSTEM = ("/", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/etc/iscsi", "/var", "/var/lib",
           "/var/lib/iscsi", "/var/lib/fabtune", "/run")  # fmt: skip


class Users:
    """All users of block and SCSI devices at one moment; `own` are descriptors of this process that do not count."""

    def __init__(self, own: Collection[int] = ()) -> None:
        self._own = own
        # What could not be looked at, each a reason to take any device for used.
        self.doubts: list[str] = []
        # Sockets that were looked at, by number, and processes with an io_uring.
        self._sockets: set[str] = set()
        self._rings: set[str] = set()

    def of_device(self, device: Path, passing: Collection[str] = ()) -> str:
        """Return who uses SCSI device `device`, '' for nobody; the holders named in `passing` do not count.

        Claims are not checked here: see `claimed`.
        """
        for name in blocks.blocks_of(device):
            held = [holder for holder in holders(name) if holder not in passing]
            if held:
                return f"{self._described(held[0])}"
        for node in blocks.nodes_of(device):
            user = self._of_node(node)
            if user:
                return user
        address = tuple(int(part) for part in device.name.split(":") if part.isdigit())
        return self._passed_through.get(address, "") or next(iter(self._all_doubts), "")

    def of_block(self, block: str) -> list[str]:
        """Return who uses block device `block` or one of its partitions, each with what to do; nothing when it is free.

        Unlike `of_device`, what cannot be looked at does not count, but a claim does.
        """
        nodes = {part: node for part in (block, *blocks.partitions(block)) if (node := block_node(part))}
        found = []
        for part, node in nodes.items():
            places = dict.fromkeys(self.mounts.get(node, ()))
            found += [f"{part} is mounted on {place}: unmount it" for place in places]
            found += [f"{self.swaps[node]} is swap space: run swapoff"] if node in self.swaps else []
            held = sorted(holder.name for holder in blocks.directory(part).glob("holders/*"))
            found += [f"{part} is held by {holder}: stop it first" for holder in held]
        if not found:
            user = next(filter(None, map(self._of_node, nodes.values())), "")
            found += [f"{block} is in use by {user}: end that first"] if user else []
        try:
            # What says who it is says more.
            with blocks.claimed([] if found else [block]):
                return found
        except blocks.InUseError as error:
            return [str(error)]

    def system_on(self, block: str, *needed: Path) -> str:
        """Return what of the running system lies on `block` or on anything built on it, '' for nothing.

        The directories `needed` are part of it, wherever they lie.
        """
        below = {node: place for place in map(str, needed) for node in _below_file(os.path.realpath(place))}
        for name in above(block):
            node = block_node(name)
            if node is None:
                continue
            for place in self.mounts.get(node, ()):
                if place in _SYSTEM:
                    return f"the file system on {place}"
            if node in below:
                return f"the file system of {below[node]}"
            if node in self.swaps:
                return "swap space"
        lost = self._swaps[1]
        return f"swap space, perhaps: {lost[0]} is not to be found" if lost else ""

    def mounted(self) -> set[str]:
        """Return the block devices that a mount or swap lies on, and all that these are built on."""
        # From above: mounts are few where disks are many.
        return blocks.carrying((*self.mounts, *self.swaps))

    def _of_node(self, node: Node) -> str:
        if node in self.mounts:
            return f"a mount on {self.mounts[node][0]}"
        if node in self.swaps:
            return "swap space"
        return self._kernel.get(node, "") or self._opened.get(node, "")

    def _described(self, holder: str) -> str:
        name = tree.read_text(tree.SYS / "block" / holder / "dm/name")
        mounts = [place for one in above(holder) for place in self.mounts.get(block_node(one) or Node("", 0, 0), ())]
        where = f", a mount on {mounts[0]}" if mounts else ""
        return f"{holder}{f' ({name})' if name else ''}{where}"

    @cached_property
    def _all_doubts(self) -> list[str]:
        _ = self._opened, self.mounts, self._kernel, self._passed_through
        return self.doubts

    @cached_property
    def _namespaces(self) -> list[tuple[Path, list[Mount]]]:
        """The mounts of every mount namespace that a process lives in, with that process."""
        found = []
        seen = set()
        for number in _numbers():
            try:
                # By the thousand: a Path of each would take longer.
                namespace = os.readlink(f"{tree.PROC}/{number}/ns/mnt")  # noqa: PTH115
                if namespace not in seen:
                    seen.add(namespace)
                    process = tree.PROC / number
                    found.append((process, mounts.of(process)))
            except OSError as error:
                self._doubt(tree.PROC / number, "mounts", error)
        return found

    @cached_property
    def mounts(self) -> dict[Node, list[str]]:
        """Mount points by block device, of every mount namespace that a process lives in."""
        found: dict[Node, list[str]] = {}
        for process, seen in self._namespaces:
            for mount in seen:
                for node in _mount_nodes(process, mount, seen):
                    found.setdefault(node, []).append(mount.place)
        # The first mount namespace's names are the ones that people know.
        return found

    @property
    def swaps(self) -> dict[Node, str]:
        """Swap space by the device that it lies on: a partition, or what the file system of a swap file lies on."""
        return self._swaps[0]

    @cached_property
    def _swaps(self) -> tuple[dict[Node, str], list[str]]:
        """Swap space by device, and that of which the device cannot be told."""
        found: dict[Node, str] = {}
        lost = []
        own = mounts.seen_by(tree.PROC / "self")
        for line in (tree.read_text(tree.PROC / "swaps") or "").splitlines()[1:]:
            path = mounts.unescaped(line.split()[0])
            node = node_at(Path(path)) if mounts.answering(path, own) else None
            nodes = [node] if node else _below_file(path)
            found.update(dict.fromkeys(nodes, path))
            lost += [] if nodes else [path]
        return found, lost

    @cached_property
    def _opened(self) -> dict[Node, str]:
        """Who has each device node open or mapped."""
        if Path("/") == tree.ROOT and Path("/proc/self/ns/pid").stat().st_ino != _INITIAL_PID_NAMESPACE:
            self.doubts.append("a process outside of this PID namespace, perhaps")
        found: dict[Node, str] = {}
        mapped: dict[tuple[str, str], Node | None] = {}
        for process in _processes():
            nodes = [*self._descriptors(process), *self._mappings(process, mapped)]
            if not nodes or _is_checker(process):
                continue
            for node in nodes:
                found.setdefault(node, f"process {process.name} ({tree.read_text(process / 'comm') or '?'})")
        return found

    def _descriptors(self, process: Path) -> Iterator[Node]:
        """Yield the devices that `process` has open; threads may have descriptors of their own."""
        own = self._own if process.name == str(os.getpid()) else ()
        try:
            tasks = list((process / "task").iterdir()) or [process]
        except OSError:
            tasks = [process]
        for task in tasks:
            try:
                entries = list((task / "fd").iterdir())
            except OSError as error:
                self._doubt(process, "open files", error)
                continue
            for entry in entries:
                if int(entry.name) in own:
                    continue
                try:
                    link = _link(entry)
                    if link.startswith("/"):
                        node = rdev(entry.stat()) if self._may_ask(process, entry, link) else None
                        yield from (node,) if node else ()
                    else:
                        yield from self._hidden(process, entry, link)
                except OSError as error:
                    self._doubt(process, "open files", error)

    def _may_ask(self, process: Path, entry: Path, link: str) -> bool:
        """Tell whether a look at the file `link`, open as `entry`, waits for nobody and may find a device."""
        fd = os.open(str(entry).replace("/fd/", "/fdinfo/"), os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = _MOUNT_ID.search(os.read(fd, 4096))
        finally:
            os.close(fd)
        key = int(found[1]) if found else -1
        return self._asked(key, process, entry, link)

    def _asked(self, key: int | Node, process: Path, entry: Path, link: str) -> bool:
        if key not in self._answers:
            # In a root of its own a process may see more than the first of its namespace.
            for one in mounts.seen_by(process):
                self._answers[one.ident] = self._answers[one.number] = one.answers
        if key not in self._answers:
            # A mount that nobody sees any more, or the kernel's own: it is asked once.
            self._answers[key] = mounts.probed(entry)
            if not self._answers[key]:
                self._suspect(process, f"it uses {link:.200}, on a file system that is unmounted and does not answer")
        return self._answers[key]

    @cached_property
    def _answers(self) -> dict[int | Node, bool]:
        """Whether the files of a mount, or of a file system by its number, can be looked at: see `mounts`."""
        found: dict[int | Node, bool] = {}
        for _, seen in self._namespaces:
            for one in seen:
                found[one.ident] = found[one.number] = one.answers
        return found

    def _hidden(self, process: Path, entry: Path, link: str) -> Iterator[Node]:
        """Yield the devices that `entry` of `process`, a socket or ring, holds open in the place of a descriptor."""
        if link.startswith("socket:") and link not in self._sockets:
            self._sockets.add(link)
            count = hidden.under_way(entry)
            if count:
                self._suspect(process, f"{count} open files are on their way to it")
        if link == hidden.RING:
            self._rings.add(process.name)
            nodes, doubt = hidden.registered(entry, process)
            yield from nodes
            if doubt:
                self._suspect(process, doubt)

    def _mappings(self, process: Path, known: dict[tuple[str, str], Node | None]) -> Iterator[Node]:
        """Yield the devices that `process` has mapped into memory; each file is looked at once."""
        task, lines = _maps(process)
        for line in lines:
            words = line.split(maxsplit=5)
            if words[5:] == [hidden.RING] and process.name not in self._rings:
                self._rings.add(process.name)
                self._suspect(process, "it has an io_uring, but no descriptor of it that would tell its files")
            if len(words) < 6 or not words[5].startswith("/"):
                continue
            key = words[3], words[4]
            if key not in known:
                start, _, end = words[0].partition("-")
                file = task / "map_files" / f"{int(start, 16):x}-{int(end, 16):x}"
                major, _, minor = words[3].partition(":")
                try:
                    asked = self._asked(Node(BLOCK, int(major, 16), int(minor, 16)), process, file, words[5])
                    known[key] = rdev(file.stat()) if asked else None
                except OSError:
                    # Unmapped meanwhile; another process with the same file may still show it.
                    continue
            node = known[key]
            if node:
                yield node

    def _doubt(self, process: Path, what: str, error: OSError) -> None:
        """Note what could not be looked at; a process that has ended uses nothing."""
        if error.errno in (errno.ENOENT, errno.ESRCH, errno.ENOTDIR):
            return
        state = re.search(r"^State:\s+(\S)", tree.read_text(process / "status") or "State: Z", re.MULTILINE)
        if state is None or state[1] not in "ZX":
            self._suspect(process, f"its {what} cannot be read ({error.strerror})")

    def _suspect(self, process: Path, what: str) -> None:
        if not _is_checker(process):
            who = tree.read_text(process / "comm") or "?"
            self.doubts.append(f"process {process.name} ({who}), perhaps: {what}")

    @cached_property
    def _kernel(self) -> dict[Node, str]:
        """What the kernel itself keeps open."""
        found, doubts = kept_open.nodes([seen for _, seen in self._namespaces])
        self.doubts += doubts
        return found

    @cached_property
    def _passed_through(self) -> dict[tuple[int, ...], str]:
        """The SCSI devices that targets pass on, by host, channel, id and LUN."""
        return {export.address: export.who for export in targets.exports() if export.address}


def _below_file(path: str) -> list[Node]:
    """Return the devices of the file system that file `path` lies on, none where that cannot be told."""
    own = tree.PROC / "self"
    seen = mounts.seen_by(own)
    try:
        number = Path(path).stat().st_dev if mounts.answering(path, seen) else 0
    except OSError:
        return []
    if os.major(number):
        return [Node(BLOCK, os.major(number), os.minor(number))]
    mount = mounts.at(path, seen)
    return list(_mount_nodes(own, mount, seen)) if mount else []


def _link(descriptor: Path) -> str:
    """Return what `descriptor` in /proc leads to: a path, or what begins otherwise.  Raises OSError."""
    try:
        # By the ten thousand: a Path of each would double the time.
        return os.readlink(descriptor)  # noqa: PTH115
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return "/..."
        raise


def _numbers() -> list[str]:
    """Return the processes' numbers, the lowest first."""
    return sorted((name for name in tree.names(tree.PROC) if name.isdigit()), key=int)


def _processes() -> list[Path]:
    """Return the processes, the lowest numbers first."""
    return [tree.PROC / name for name in _numbers()]


def _maps(process: Path) -> tuple[Path, list[str]]:
    """Return what `process` has mapped, and the directory of a thread that shows it: one that has ended shows nothing.

    A thread's own directory, which no listing of /proc names, has map_files, unlike the one below task.
    """
    threads = (tree.PROC / task.name for task in (process / "task").glob("*"))
    for task in chain((process,), threads):
        text = tree.read_text(task / "maps")
        if text:
            return task, text.splitlines()
    return process, []


def _is_checker(process: Path) -> bool:
    try:
        program = str((process / "exe").readlink()).removesuffix(" (deleted)")
    except OSError:
        return False
    return program.rpartition("/")[2] in _CHECKERS


def _mount_nodes(process: Path, mount: Mount, seen: Sequence[Mount]) -> Iterator[Node]:
    """Yield the block devices of a mount; btrfs numbers its mounts by itself and names one device."""
    if mount.number.major:
        yield mount.number
    elif mount.source.startswith("/"):
        for root in (process / "root", Path("/")):
            if mounts.answering(mount.source, seen, str(root).rstrip("/")):
                node = node_at(root / mount.source.lstrip("/"))
                yield from _of_btrfs(node) if node else ()


def _of_btrfs(node: Node) -> set[Node]:
    """Return all devices of the btrfs that lies on `node`; a mount names one of them."""
    for devices in (tree.SYS / "fs/btrfs").glob("*/devices"):
        numbers = {number for one in devices.iterdir() if (number := numbered(BLOCK, tree.read_text(one / "dev")))}
        if node in numbers:
            return numbers
    return {node}

# SPDX-License-Identifier: GPL-2.0-or-later
"""Disks that are busy together whatever is asked of a device on them: a stripe's, and those that multipath deals to."""

from functools import cached_property

from fabtune.errors import FabtuneError
from fabtune.host import blocks, tree
from fabtune.host.run import require, run

# drivers/md/dm-ps-*.c: those that go on to another path with each request, or as soon as one has more to do.
# historical-service-time and io-affinity may keep to one.
_DEALING = ("round-robin", "queue-length", "service-time")
_TABLE_WAIT_S = 10
# A line of a table has start, length and target in front.
_BEFORE = 3


class Stripes:
    """The stripes and multipath devices of this host at one moment."""

    def __init__(self) -> None:
        self._known: dict[str, list[frozenset[str]]] = {}

    def busy_together(self, block: str) -> list[frozenset[str]]:
        """Return the disks below `block` that are busy at once: one set of a stripe, one for each group of paths.

        Of several sets one is busy at a time.  There is none where nothing says so, as of a concatenation.
        """
        if block not in self._known:
            self._known[block] = self._found(block)
        return self._known[block]

    def _found(self, block: str) -> list[frozenset[str]]:
        below = [(blocks.disk_with(name) or [name])[0] for name in blocks.slaves(block)]
        if not below:
            return [frozenset({block})]
        if blocks.is_multipath(block):
            return self._groups(block, below)
        if not self._is_striped(block):
            return []
        members = [self.busy_together(disk) for disk in below]
        # Which of several groups of paths is active changes.
        return [frozenset().union(*(sets[0] for sets in members))] if all(len(sets) == 1 for sets in members) else []

    def _is_striped(self, block: str) -> bool:
        if level := tree.read_text(tree.SYS / "block" / block / "md/level"):
            return level == "raid0"
        lines = self._table(block)
        return bool(lines) and all(words[_BEFORE - 1] == "striped" for words in lines)

    def _groups(self, block: str, below: list[str]) -> list[frozenset[str]]:
        """Return the disks of each group of paths of a multipath device."""
        if len(below) == 1:
            return [frozenset(below)]
        lines = self._table(block)
        try:
            (words,) = lines
            groups = _dealt(words[_BEFORE:])
            numbered = {tree.read_text(blocks.directory(disk) / "dev"): disk for disk in below}
            return [frozenset(numbered[number] for number in group) for group in groups]
        except (StopIteration, ValueError, KeyError):
            return []

    def _table(self, block: str) -> list[list[str]]:
        """Return the lines of a device-mapper device's table, none of another device or where it is not told."""
        return self._tables.get(tree.read_text(tree.SYS / "block" / block / "dm/name") or "", [])

    @cached_property
    def _tables(self) -> dict[str, list[list[str]]]:
        """The lines of every table by the device's name as the kernel has it, none where they may not be read."""
        try:
            command = [require("dmsetup", "dmsetup"), "table", "--manglename", "none"]
            text = run(command, what="reading the device mapper's tables", timeout_s=_TABLE_WAIT_S)
        except FabtuneError:
            return {}
        found: dict[str, list[list[str]]] = {}
        for name, _, line in (one.partition(": ") for one in text.splitlines()):
            words = line.split()
            if len(words) >= _BEFORE:
                found.setdefault(name, []).append(words)
        return found


def _dealt(words: list[str]) -> list[list[str]]:
    """Return the numbers of the paths of each group in a multipath table, none where one keeps to some of its paths.

    drivers/md/dm-mpath.c, parse_priority_group: selector, its arguments, how many paths, what each has besides, paths.
    """
    left = iter(words)

    def skip() -> None:
        for _ in range(int(next(left))):
            next(left)

    skip()  # features
    skip()  # hardware handler
    groups, _ = int(next(left)), next(left)
    found = []
    for _ in range(groups):
        selector = next(left)
        skip()
        paths, arguments = int(next(left)), int(next(left))
        numbers = []
        for _ in range(paths):
            numbers.append(next(left))
            for _ in range(arguments):
                next(left)
        if paths > 1 and selector not in _DEALING:
            return []
        found.append(numbers)
    return found

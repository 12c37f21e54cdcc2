# SPDX-License-Identifier: GPL-2.0-or-later
"""One disk over a look: what fabstat counted of it, else what the block layer did."""

import os
from collections.abc import Mapping

from fabtune.errors import FabtuneError
from fabtune.host import blocks, tree
from fabtune.host.blocks import SECTOR_BYTES
from fabtune.model.observation import WAYS, DiskSample, DiskSeen, WaySeen
from fabtune.stat import NOT_COUNTING, DeviceInterval, Snapshot, diff, snapshot

_QUEUE = ("scheduler", "nr_requests", "read_ahead_kb", "max_sectors_kb", "rq_affinity")
# Places of Documentation/block/stat.rst: requests, sectors and ms of each direction.
_FIELDS = {"read": (0, 2, 3), "write": (4, 6, 7)}


def fabstat_now() -> tuple[Snapshot | None, str]:
    """Return fabstat's reading, or None and why there is none; one that counts nothing is none."""
    try:
        found = snapshot()
    except FabtuneError as error:
        return None, str(error)
    return (found, "") if found.counting else (None, NOT_COUNTING)


def host_number(disk: str) -> int:
    """Return the number of the SCSI host that brings a disk, -1 for none."""
    number = _scsi_address(disk)[0]
    return -1 if number is None else number


def _scsi_address(disk: str) -> list[int | None]:
    """Return a disk's host, channel, target and LUN; what brings no SCSI disks has none of them."""
    address = os.path.realpath(blocks.directory(disk) / "device").rpartition("/")[2]
    return [tree.whole(number) for number in address.split(":")]


class DiskLook:
    """Samples one disk from `begin` to `stop`."""

    def __init__(self, name: str) -> None:
        self.name = name
        # As text: joining paths takes longer than reading the files of a thousand disks.
        self._directory = str(blocks.directory(name))
        self._begin: list[int] = []
        self._end: list[int] = []
        self._samples: list[DiskSample] = []

    def _counters(self) -> list[int]:
        return [int(word) for word in (tree.read_text(f"{self._directory}/stat") or "").split()]

    def begin(self) -> None:
        """Read the counters that `seen` takes differences to."""
        self._begin = self._counters()

    def stop(self) -> None:
        """Read them again: the look is over."""
        self._end = self._counters()

    def sample(self, at_s: float) -> None:
        """Note bytes, requests in flight and their limits as they are now; a disk that went has none."""
        now = self._counters()
        if len(now) > 8:
            limit = tree.whole(tree.read_text(f"{self._directory}/device/queue_depth"))
            tags = tree.whole(tree.read_text(f"{self._directory}/queue/nr_requests"))
            moved = now[2] * SECTOR_BYTES, now[6] * SECTOR_BYTES
            self._samples.append(DiskSample(at_s, *moved, now[8], limit, tags))

    def seen(self, counted: Mapping[str, DeviceInterval], elapsed_s: float) -> DiskSeen:
        """Return what fabstat counted of the disk, or what the block layer did where it is not in `counted`."""
        queue = {name: value for name, value in tree.read_texts(f"{self._directory}/queue", _QUEUE).items() if value}
        limit = tree.whole(tree.read_text(f"{self._directory}/device/queue_depth"))
        counted_by = counted.get(self.name)
        if counted_by is None:
            return self._by_block_layer(elapsed_s, limit, queue)
        ops = {way: counted_by.ops[way] for way in WAYS if way in counted_by.ops}
        by_blocks = self._ways()
        return DiskSeen(
            name=self.name,
            by_fabstat=True,
            elapsed_s=counted_by.elapsed_ns / 1e9,
            ways={way: _way(counted_by, way, by_blocks[way].block_ms if way in by_blocks else None) for way in ops},
            mean_depth=counted_by.mean_depth,
            limit=counted_by.device.limit or limit,
            at_limit=counted_by.at_limit,
            refusals={name: count for name, count in counted_by.events.items() if count},
            refused_ms={way: op.refused_ns / 1e6 for way, op in ops.items() if op.refused},
            queue=queue,
            samples=tuple(self._samples),
            lun=_scsi_address(self.name)[-1],
            in_flight=self._in_flight(),
        )

    def _ways(self) -> dict[str, WaySeen]:
        """Return both directions by the block layer's own counters, nothing of a disk that went away."""
        grown = [now - then for now, then in zip(self._end, self._begin, strict=False)]
        if any(grown[place] < 0 for requests, sectors, _ in _FIELDS.values() for place in (requests, sectors) if grown):
            # Another disk that has come in its place.
            return {}
        ways = {}
        for way, (requests, sectors, spent_ms) in _FIELDS.items() if len(grown) > 10 else ():
            mean_ms = grown[spent_ms] / grown[requests] if grown[requests] else None
            ways[way] = WaySeen(grown[requests], grown[sectors] * SECTOR_BYTES, mean_ms, mean_ms, mean_ms)
        return ways

    def moved_bytes(self) -> dict[str, int]:
        """Return the bytes of each direction between `begin` and `stop`, by the block layer's counters."""
        return {way: one.moved_bytes for way, one in self._ways().items()}

    @property
    def is_idle(self) -> bool:
        """Whether nothing moved between `begin` and `stop`, and no request is on its way; not where nothing tells."""
        ways = self._ways()
        return bool(ways) and not any(one.moved_bytes for one in ways.values()) and not any(self._in_flight().values())

    def _in_flight(self) -> dict[str, int]:
        words = (tree.read_text(f"{self._directory}/inflight") or "").split()
        return {way: int(word) for way, word in zip(WAYS, words, strict=False)}

    def _by_block_layer(self, elapsed_s: float, limit: int | None, queue: dict[str, str]) -> DiskSeen:
        depths = [one.in_flight for one in self._samples]
        mean_depth = sum(depths) / len(depths) if depths else None
        return DiskSeen(
            self.name, False, elapsed_s, self._ways(), mean_depth, limit, None, {}, {}, queue, tuple(self._samples),
            _scsi_address(self.name)[-1], self._in_flight(),
        )  # fmt: skip


def counted_between(first: Snapshot | None, last: Snapshot | None) -> dict[str, DeviceInterval]:
    """Return the difference between two readings of fabstat by disk; nothing where there are none to compare."""
    if first is None or last is None:
        return {}
    try:
        interval = diff(first, last)
    except FabtuneError:
        return {}
    # What was not counted is no nothing: the block layer has it.
    found = sorted(interval.devices, key=lambda one: one.device.id) if interval.counting else []
    # A disk that is being removed may have left its name to another, which was seen later.
    return {one.device.disk: one for one in found if one.device.state != "gone"}


def _way(interval: DeviceInterval, way: str, block_ms: float | None) -> WaySeen:
    op = interval.ops[way]
    p99 = interval.percentile(99, way, "total")
    return WaySeen(
        completed=op.completed,
        moved_bytes=op.bytes,
        device_ms=op.device_ns / op.completed / 1e6 if op.completed else None,
        total_ms=op.total_ns / op.completed / 1e6 if op.completed else None,
        block_ms=block_ms,
        p99_ms=p99.value_ms if p99 else None,
    )

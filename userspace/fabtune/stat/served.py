# SPDX-License-Identifier: GPL-2.0-or-later
"""What this host has served as a target, by initiator and LUN: the module's file ``target``."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from fabtune.errors import FabtuneError, InputError
from fabtune.stat.coverage import coverage, coverage_since_load
from fabtune.stat.histogram import Histogram
from fabtune.stat.interval import check_order, increases
from fabtune.stat.snapshot import (
    DIRECTORY,
    Taken,
    check_ended,
    ends,
    grouped,
    histogram_of,
    name_of,
    read_file,
    saved_text,
    words,
)

FORMAT_VERSION = 1
_FIRST_LINE = f"# fabstat-target {FORMAT_VERSION}"

# Of those under way at either end of an interval one part is counted, and another one not.
_NEARLY_ALL = 0.9
# Of commands that are answered while a reading is taken the times may not be in it.
_WHILE_READ = 1 / 100
# Answers other than GOOD, by the names of SAM.
ANSWERS = ("check_condition", "busy", "task_set_full", "reservation_conflict", "task_aborted", "other_status")


@dataclass(frozen=True, slots=True)
class ServedOp:
    """One kind of command: `target_ns` is the sum, over completed ones, of the time from its coming to its answer.

    `forgotten` ones ended unseen: aborted in silence, or under way when the probes were taken off.
    `bytes` are those of commands that were answered with GOOD.  `ready` ones were seen to have all of their data,
    `done` ones to be answered by the backstore; `ready_ns` and `done_ns` are the sums of the times until then.
    """

    started: int = 0
    completed: int = 0
    forgotten: int = 0
    bytes: int = 0  # noqa: A003
    target_ns: int = 0
    ready: int = 0
    ready_ns: int = 0
    done: int = 0
    done_ns: int = 0
    histogram: Histogram = field(default_factory=lambda: Histogram(()))

    @property
    def ready_ms(self) -> float | None:
        """The mean wait for data, None where it was not seen of nearly all that were answered."""
        seen = self.ready and self.ready >= _NEARLY_ALL * self.completed
        return self.ready_ns / self.ready / 1e6 if seen else None

    @property
    def backstore_ms(self) -> float | None:
        """The mean time in the backstore, None where it was not seen of nearly all.

        Others than reads and writes may be answered by the target's core itself.
        """
        if self.ready_ms is None or self.done < _NEARLY_ALL * self.ready:
            return None
        return max(0.0, self.done_ns / self.done / 1e6 - self.ready_ms)


@dataclass(frozen=True, slots=True)
class ServedLun:
    """One LUN as one initiator's session uses it.

    `isid` has the first eight digits of an iSCSI session's identifier, all that the target's core keeps; empty on
    other fabrics.  `at_target` commands have come and not been answered, the oldest `oldest_ns` ago.  `unmatched`
    answers are to commands that were not seen to come.  `window` is how many commands its session may have under way,
    None where that is not told.
    """

    id: int
    fabric: str
    initiator: str
    isid: str
    target: str
    tpg: str
    lun: int
    seen_ns: int
    time_ns: int
    at_target: int
    oldest_ns: int
    unmatched: int
    untracked: int
    answers: Mapping[str, int]
    ops: Mapping[str, ServedOp]
    window: int | None = None


@dataclass(frozen=True, slots=True)
class TargetSnapshot(Taken):
    """What was served.  `module` has the module's own line."""

    module: Mapping[str, str]
    luns: tuple[ServedLun, ...]
    text: str = field(repr=False, compare=False)

    @property
    def counting(self) -> bool:
        """Whether commands are counted: the module and its switch are on, and LIO is there."""
        return all(self.module[name] == "1" for name in ("enabled", "wanted", "target"))


@dataclass(frozen=True, slots=True)
class LunInterval:
    """One LUN of one session over `elapsed_ns`: the counters' increase.  `lun` is its latest reading."""

    lun: ServedLun
    elapsed_ns: int
    ops: Mapping[str, ServedOp]
    answers: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TargetInterval:
    """All LUNs of all sessions between two readings; `counting` tells whether commands were counted all the time.

    `counted_ns` is as in fabtune.stat.interval.Interval.
    """

    elapsed_ns: int
    luns: tuple[LunInterval, ...]
    counting: bool
    counted_ns: int | None

    def windows_used(self) -> dict[int, int]:
        """Return by LUN's id how many commands its session has at the target now, of all of the session's LUNs."""
        used = Counter[tuple[str, ...]]()
        for one in self.luns:
            used[_session(one.lun)] += one.lun.at_target
        return {one.lun.id: used[_session(one.lun)] for one in self.luns}


def target_snapshot(directory: Path = DIRECTORY) -> TargetSnapshot:
    """Read the module.  Raises FabtuneError, as fabtune.stat.snapshot does, and where the module has no such file."""
    if (directory / "stats").exists() and not (directory / "target").exists():
        raise FabtuneError(
            f"{directory / 'target'} is missing: the fabstat that is loaded is too old to count what this host serves; "
            "load the one of this fabtune"
        )
    return parse_target(read_file("target", directory), str(directory / "target"))


def load_target(path: Path) -> TargetSnapshot:
    """Read a reading that was saved to a file.  Raises InputError."""
    return parse_target(saved_text(path, "stat --target --save"), str(path))


def parse_target(text: str, source: str = "target") -> TargetSnapshot:
    """Return the reading in `text`; `source` names it in errors.  Raises InputError."""
    lines = text.splitlines()
    if not lines or lines[0] != _FIRST_LINE:
        raise InputError(f"{source}: expected '{_FIRST_LINE}' in the first line")
    check_ended(text, source)
    try:
        records = iter(lines[1:])
        module = words(next(records))
        empty = Histogram(tuple(map(int, next(records).split(" ")[2:])))
        luns = tuple(_lun(group, empty) for group in grouped(records, "nexus "))
        if ends(module, len(luns)) and lines[-1] != "end":
            raise ValueError("it has no end")
        return TargetSnapshot(int(module["time_ns"]), int(module["loaded_ns"]), module, luns, text)
    except (KeyError, ValueError, IndexError, TypeError, StopIteration) as error:
        raise InputError(f"{source}: damaged or cut short ({error!r})") from None


def target_diff(before: TargetSnapshot, after: TargetSnapshot) -> TargetInterval:
    """Return what was served between two readings of one loaded module.  Raises InputError."""
    check_order(before, after)
    earlier = {lun.id: lun for lun in before.luns}
    luns = tuple(_subtract(lun, earlier.get(lun.id)) for lun in after.luns)
    counted = coverage(before, after)
    return TargetInterval(after.time_ns - before.time_ns, luns, counted.whole, counted.last_ns)


def served_since_seen(snapshot: TargetSnapshot) -> TargetInterval:
    """Return everything served since the module was loaded, of each LUN of a session since its first command.

    Raises InputError.
    """
    luns = tuple(_subtract(lun, None) for lun in snapshot.luns)
    counted = coverage_since_load(snapshot)
    return TargetInterval(snapshot.time_ns - snapshot.loaded_ns, luns, counted.whole, counted.last_ns)


def _session(lun: ServedLun) -> tuple[str, ...]:
    return (lun.fabric, lun.initiator, lun.isid, lun.target, lun.tpg)


_TEXTS = ("fabric", "initiator", "isid", "target", "tpg")
_NUMBERS = ("id", "lun", "seen_ns", "time_ns", "at_target", "oldest_ns", "unmatched", "untracked")
_COUNTERS = tuple(one.name for one in fields(ServedOp) if one.name != "histogram")
# What older modules do not tell.
_PARTS = ("ready", "ready_ns", "done", "done_ns")
# The fabric that has a window of commands for each session.
_WINDOWED = "iSCSI"


def _lun(lines: list[str], empty: Histogram) -> ServedLun:
    first = words(lines[0])
    texts = {name: "" if first[name] == "-" else name_of(first[name]) for name in _TEXTS}
    numbers = {name: int(first[name]) for name in _NUMBERS}
    answers = {name: int(first[name]) for name in ANSWERS}
    counts: dict[str, dict[str, int]] = {}
    histograms: dict[str, Histogram] = {}
    # Records that only a newer module has are left out.
    for line in lines[1:]:
        kind = line.split(" ", 1)[0]
        if kind == "op":
            record = words(line)
            counts[record["op"]] = {
                name: int(record.get(name, 0) if name in _PARTS else record[name]) for name in _COUNTERS
            }
        elif kind == "histogram":
            _, _, op, time, *counted = line.split(" ")
            if time == "time=target":
                histograms[op.removeprefix("op=")] = histogram_of(empty, counted)
    ops = {op: ServedOp(**values, histogram=_told(histograms.get(op, empty), values)) for op, values in counts.items()}
    window = int(first["window"]) if "window" in first and texts["fabric"] == _WINDOWED else None
    return ServedLun(**texts, **numbers, answers=answers, ops=ops, window=window)  # type: ignore[arg-type]


def _told(times: Histogram, counts: Mapping[str, int]) -> Histogram:
    """Return the histogram with how many times it lacks."""
    lacking = counts["completed"] - times.count
    return replace(times, lacking=lacking) if lacking > _WHILE_READ * counts["completed"] else times


def _subtract(after: ServedLun, before: ServedLun | None) -> LunInterval:
    if before is None:
        return LunInterval(after, after.time_ns - after.seen_ns, after.ops, after.answers)
    who = f"LUN {after.lun} of {after.initiator or 'an initiator without a name'}"
    ops = {
        name: _subtract_op(after.ops.get(name, ServedOp()), before.ops.get(name, ServedOp()), who)
        for name in {**after.ops, **before.ops}
    }
    return LunInterval(after, after.time_ns - before.time_ns, ops, increases(before.answers, after.answers, who))


def _subtract_op(after: ServedOp, before: ServedOp, who: str) -> ServedOp:
    then, now = ({name: getattr(op, name) for name in _COUNTERS} for op in (before, after))
    return ServedOp(**increases(then, now, who), histogram=after.histogram - before.histogram)

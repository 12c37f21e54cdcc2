# SPDX-License-Identifier: GPL-2.0-or-later
"""Readings of fabstat.ko: what its file ``stats`` says.  fabtune.stat.binary reads the same from ``stats.bin``.

The format is described in Documentation/ABI/testing/debugfs-fabstat.  All counters are cumulative
since the module was loaded; fabtune.stat.interval subtracts two readings.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from fabtune.errors import FabtuneError, InputError
from fabtune.host import userfile
from fabtune.stat.histogram import Histogram

_List = TypeVar("_List")

DIRECTORY = Path("/sys/kernel/debug/fabstat")
FORMAT_VERSION = 1
_MAX_BYTES = 256 << 20
NOT_COUNTING = (
    "nothing is being counted: fabstat is switched off (enabled=N), or its probes could not be attached, which the "
    "kernel's log says and which is tried again"
)
_PLAIN = bytes((ord("\n"), *range(0x20, 0x7F)))
# So many devices that are gone stay readable.
_MOST_GONE = 16

OPS = ("read", "write", "flush", "discard", "other")
TIMES = ("device", "total", "refused")
# What is recorded with the module's parameter detail: the wait before the first issue, and device times by size.
DETAILS = ("wait", "4KiB", "32KiB", "256KiB", "above")

# "Queue full" in all its spellings: the target's answers and the driver's refusals.
QUEUE_FULL_EVENTS = ("task_set_full", "busy", "host_busy", "device_busy", "target_busy", "driver_other")
# Held back by the midlayer before the driver was asked.
HELD_EVENTS = ("held_device", "held_recovery", "held_backoff", "held_target", "held_other")


# Nobody changes one; but a frozen one takes much longer to make, and a reading has thousands of them and of histograms.
@dataclass(slots=True)
class Op:
    """One device's counters of one kind of request; times in ns are sums over completed requests.

    `details` has a histogram by each name of DETAILS that something was recorded for.
    """

    issued: int = 0
    completed: int = 0
    sent_back: int = 0
    bytes: int = 0  # noqa: A003
    errors: int = 0
    device_ns: int = 0
    total_ns: int = 0
    refused: int = 0
    refused_ns: int = 0
    errors_by_class: Mapping[str, int] = field(default_factory=dict)
    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    details: Mapping[str, Histogram] = field(default_factory=dict)

    def counted(self, time: str) -> int:
        """Return of how many requests there is a `time` of TIMES."""
        return self.refused if time == "refused" else self.completed


@dataclass(frozen=True, slots=True)
class HardwareQueue:
    """One hardware queue of a device, where each has a limit of its own; `issued` is None of an older module."""

    queue: int
    in_flight: int
    highest: int
    limit: int
    at_limit_ns: int
    issued: int | None = None


@dataclass(frozen=True, slots=True)
class Around:
    """What a host's sysfs said of a device when its reading was saved; empty, or None, where it said nothing."""

    transport: str = ""
    target: str = ""
    portal: str = ""
    path_of: str = ""
    can_queue: int | None = None
    nr_requests: int | None = None


@dataclass(slots=True)  # as Op
class CountedDevice:
    """One block device: who it is, and everything counted of it.

    `id` is given once and never again while the module is loaded.  `hctl` is host:channel:id:lun and
    `parent` the transport's object (``session1``, ``rport-1:0-2``); ``-`` where there is none.
    `depth_ns` is the integral of the number of requests in flight over time, off by at most `depth_error_ns`; by any
    time where CPUs were found in the middle of an event (`torn`).  `highest`, `limit` and `at_limit_ns` are of the
    fullest hardware queue where each has a limit of its own (`limit_of` queue, the queues in `queues`), else the
    device's.  `around` is what was saved with it; None of a reading of this host, whose sysfs is asked.
    """

    id: int
    state: str
    disk: str
    dev: str
    diskseq: int
    hctl: str
    driver: str
    parent: str
    seen_ns: int
    time_ns: int
    in_flight: int
    highest: int
    limit: int
    forgotten: int
    eh_wakeups: int
    depth_ns: int
    at_limit_ns: int
    events: Mapping[str, int]
    ops: Mapping[str, Op]
    depth_error_ns: int = 0
    torn: int = 0
    limit_of: str = "device"
    queues: tuple[HardwareQueue, ...] = ()
    around: Around | None = None
    # Modules before 0.2.0 keep to the limit that they saw first.
    follows_limit: bool = True


@dataclass(frozen=True, slots=True)
class Taken:
    """A reading, as of `time_ns` of the module's clock (CLOCK_MONOTONIC_RAW)."""

    time_ns: int
    loaded_ns: int


@dataclass(frozen=True, slots=True)
class Snapshot(Taken):
    """What was counted of the devices.

    `module` has the module's own line, `text` the file as read, nothing where it was the typed one.  The integrals of
    the depth wrap at `depth_modulus_ns`, after months.
    """

    depth_modulus_ns: int
    module: Mapping[str, str]
    event_names: tuple[str, ...]
    devices: tuple[CountedDevice, ...]
    text: str = field(default="", repr=False, compare=False)

    @property
    def counting(self) -> bool:
        """Whether requests are counted: while the module is switched off, what is under way is not known either."""
        return self.module.get("enabled", "1") == "1"


def text_snapshot(directory: Path = DIRECTORY) -> Snapshot:
    """Read the module's text, to keep it as well.  Raises FabtuneError when it is not loaded or may not be read."""
    return parse(read_file("stats", directory), str(directory / "stats"))


def load(path: Path) -> Snapshot:
    """Read a reading that was saved to a file.  Raises InputError."""
    found = parse(saved_text(path, "stat --save"), str(path))
    if lacks := _lacks(found):
        raise InputError(f"{path}: cut short ({lacks}); expected all of a file saved by 'fabtune stat --save'")
    # This host's sysfs knows nothing of another one's disks, nor of those that were here before.
    return replace(found, devices=tuple(replace(one, around=one.around or Around()) for one in found.devices))


def ends(module: Mapping[str, str], records: int) -> bool:
    """Tell whether a reading with that line of the module has an end: older modules write none, and none of nothing."""
    return module.get("ends") == "1" or ("ends" in module and records > 0)


def _lacks(found: Snapshot) -> str:
    """Return what a reading that ends with a whole line has lost all the same, as far as that can be told."""
    records = found.text.count("\ndevice ")
    if ends(found.module, records):
        return "" if found.text.endswith(f"\nend devices={records}\n") else "it has no end"
    # Older modules write no end.
    if found.text.count("\nevents ") != records:
        return "no events of its last disk"
    shown, seen = len(found.devices), int(found.module["devices_seen"])
    # Only of devices that are gone, which come last, are the oldest left out.
    any_gone = any(one.state == "gone" for one in found.devices)
    if shown < min(seen, _MOST_GONE) or (shown < seen and not any_gone):
        return f"{shown} of {seen} devices"
    for one in found.devices:
        if one.torn or one.events.get("no_histogram"):
            continue
        for name, op in one.ops.items():
            if op.completed and not op.histograms["device"].counts:
                return f"no times of {one.disk}'s {name} requests"
    return ""


def saved_text(path: Path, command: str) -> str:
    """Return the text of a reading that `command` of fabtune saved to a file.  Raises InputError."""
    try:
        return userfile.read_text(path, _MAX_BYTES)
    except InputError as error:
        raise InputError(f"{error}; expected a file saved by 'fabtune {command}'") from None


def read_file(name: str, directory: Path = DIRECTORY) -> str:
    """Return the text of the module's file `name`, what is not printable ASCII as \\ooo.  Raises FabtuneError.

    An initiator may log in with a name of any bytes, and some of them would end a line or be no text.
    """
    try:
        data = (directory / name).read_bytes()
        if data.translate(None, _PLAIN):
            data = re.sub(rb"[^\n\x20-\x7e]", lambda found: b"\\%03o" % ord(found[0]), data)
        return data.decode("ascii")
    except PermissionError:
        raise FabtuneError(f"{directory / name}: permission denied; fabstat is readable by root only") from None
    except FileNotFoundError:
        if not Path("/sys/module/fabstat").exists():
            # Imported here: only who lacks the module asks why.
            from fabtune.stat import loadable

            raise FabtuneError(loadable.why_not_loaded()) from None
        raise FabtuneError(
            f"{directory} is missing although fabstat is loaded; mount debugfs: "
            "mount -t debugfs debugfs /sys/kernel/debug"
        ) from None


def parse(text: str, source: str = "fabstat") -> Snapshot:
    """Return the reading in `text`; `source` names it in errors.  Raises InputError."""
    lines = text.splitlines()
    if not lines or not lines[0].startswith("# fabstat "):
        raise InputError(f"{source}: expected '# fabstat {FORMAT_VERSION}' in the first line")
    if lines[0].split()[2:] != [str(FORMAT_VERSION)]:
        raise InputError(f"{source}: format '{lines[0][2:]}', this fabtune reads 'fabstat {FORMAT_VERSION}'")
    check_ended(text, source)
    try:
        return _parse_records(lines[1:], text)
    except (KeyError, ValueError, IndexError, TypeError, StopIteration) as error:
        raise InputError(f"{source}: damaged or cut short ({error!r})") from None


def check_ended(text: str, source: str) -> None:
    """Raise InputError where `text` ends within a line: a number may have lost digits."""
    if not text.endswith("\n"):
        raise InputError(f"{source}: cut short: its last line has no end")


def parse_list(
    text: str, source: str, first_line: str, build: Callable[[dict[str, str], list[dict[str, str]]], _List]
) -> _List:
    """Return what `build` makes of the head and the requests in `text`, a list of single requests.

    `source` names the text in errors.  Raises InputError.
    """
    lines = text.splitlines()
    if not lines or lines[0] != first_line:
        raise InputError(f"{source}: expected '{first_line}' in the first line")
    try:
        return build(words(lines[1]), [_words_of_name(line) for line in lines[2:]])
    except (KeyError, ValueError, IndexError, TypeError) as error:
        raise InputError(f"{source}: damaged or cut short ({error!r})") from None


def _words_of_name(line: str) -> dict[str, str]:
    """Return the words of a record whose names earlier modules did not escape.

    What has no key goes on with the word before.
    """
    return words(re.sub(r"(=\S*)((?: [^ =]+)+)(?= |$)", lambda found: found[1] + found[2].replace(" ", r"\040"), line))


def words(line: str) -> dict[str, str]:
    """Return the ``key=value`` words of a record."""
    return dict([word.split("=", 1) for word in line.split(" ")[1:]])  # noqa: C404 - by the thousand


def name_of(text: str) -> str:
    """Return a driver's, disk's or initiator's own name, which has blanks and odd bytes as \\ooo in the file.

    What cannot be shown stays so.
    """
    return re.sub(r"(?:\\[0-7]{3})+", _shown, text) if "\\" in text else text


def _shown(found: re.Match[str]) -> str:
    raw = bytes(int(octal, 8) & 0xFF for octal in found[0].split("\\")[1:])
    letters = raw.decode("utf-8", "backslashreplace")
    return "".join(one if one.isprintable() else f"\\{ord(one):03o}" for one in letters)


def escaped(name: str) -> str:
    """Return what stands in the file for `name`, or for none."""
    return re.sub(r"[\s\\]", lambda found: f"\\{ord(found[0]):03o}", name) or "-"


def _parse_records(lines: list[str], text: str) -> Snapshot:
    records = iter(lines)
    module = words(next(records))
    from_ns = tuple(map(int, next(records).split(" ")[2:]))
    event_names = tuple(next(records).split(" ")[1:])
    empty = Histogram(from_ns)
    found = (_parse_device(group, event_names, empty) for group in grouped(records, "device "))
    # A device that went while the file was read stands there twice in modules before 0.2.0; the later record counts.
    devices = {one.id: one for one in found}
    times = int(module["time_ns"]), int(module["loaded_ns"]), int(module["depth_modulus_ns"]) or 2**64
    return Snapshot(*times, module, event_names, tuple(devices.values()), text)


def grouped(records: Iterator[str], first: str) -> Iterator[list[str]]:
    """Yield each record that begins with `first`, with those that follow it."""
    group: list[str] = []
    for line in records:
        if line.startswith(first) and group:
            yield group
            group = []
        group.append(line)
    if group:
        yield group


_TEXT_FIELDS = frozenset(("state", "disk", "dev", "hctl", "driver", "parent", "limit_of"))
_OF_RECORDS = {"events", "ops", "queues", "around", "follows_limit"}
_DEVICE_FIELDS = frozenset(CountedDevice.__slots__) - _OF_RECORDS  # type: ignore[attr-defined]
_QUEUE_FIELDS = ("queue", "in_flight", "highest", "limit", "at_limit_ns")
_OP_FIELDS = frozenset(Op.__slots__) - {"errors_by_class", "histograms", "details"}  # type: ignore[attr-defined]


def _parse_device(lines: list[str], event_names: tuple[str, ...], empty: Histogram) -> CountedDevice:
    first = words(lines[0])
    known = ((key, value) for key, value in first.items() if key in _DEVICE_FIELDS)
    fields = {key: name_of(value) if key in _TEXT_FIELDS else int(value) for key, value in known}
    events = dict.fromkeys(event_names, 0)
    counts: dict[str, dict[str, int]] = {}
    classes: dict[str, dict[str, int]] = {}
    histograms: dict[str, dict[str, Histogram]] = {}
    details: dict[str, dict[str, Histogram]] = {}
    queues = []
    around = None
    for line in lines[1:]:
        kind = line.split(" ", 1)[0]
        if kind == "events":
            events.update((key, int(value)) for key, value in words(line).items() if key in events)
        elif kind == "op":
            record = words(line)
            counts[record["op"]] = {key: int(value) for key, value in record.items() if key in _OP_FIELDS}
            histograms[record["op"]] = {}
        elif kind == "errors":
            record = words(line)
            classes[record["op"]] = {key: int(value) for key, value in record.items() if key in events}
        elif kind == "histogram":
            _, _, op, time, *counted = line.split(" ")
            histograms[op[3:]][time[5:]] = histogram_of(empty, counted)
        elif kind == "detail":
            _, _, op, what, *counted = line.split(" ")
            details.setdefault(op[3:], {})[what.partition("=")[2]] = histogram_of(empty, counted)
        elif kind == "queue":
            record = words(line)
            issued = int(record["issued"]) if "issued" in record else None
            queues.append(HardwareQueue(**{name: int(record[name]) for name in _QUEUE_FIELDS}, issued=issued))
        elif kind == "around":
            around = _around(words(line))
    ops = {}
    for name, values in counts.items():
        device = histograms[name].get("device", empty)
        # The module leaves the total times out while they equal the device times.
        times = {"device": device, "total": device, "refused": empty} | histograms[name]
        ops[name] = Op(**values, errors_by_class=classes.get(name, {}), histograms=times, details=details.get(name, {}))
    follows_limit = "limit_of" in first
    return CountedDevice(
        **fields, events=events, ops=ops, queues=tuple(queues), around=around, follows_limit=follows_limit,  # type: ignore[arg-type]
    )  # fmt: skip


def _around(record: dict[str, str]) -> Around:
    told = {name: value for name, value in record.items() if value != "-"}
    transport, target, portal, path_of = (
        name_of(told.get(name, "")) for name in ("transport", "target", "portal", "path_of")
    )
    can_queue, nr_requests = (int(told[name]) if name in told else None for name in ("can_queue", "nr_requests"))
    return Around(transport, target, portal, path_of, can_queue, nr_requests)


def histogram_of(empty: Histogram, counted: list[str]) -> Histogram:
    """Return what the last words of a record count, in the buckets of `empty`.  Raises ValueError."""
    # Keys of a newer module stand before the buckets.
    pairs = (bucket.split(":") for bucket in counted if "=" not in bucket)
    found = Histogram(empty.from_ns, {int(index): int(count) for index, count in pairs})
    if f"count={found.count}" not in counted:
        raise ValueError(f"a histogram of {found.count}, not of as many as it says")
    return found

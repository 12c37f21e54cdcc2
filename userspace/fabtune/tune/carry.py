# SPDX-License-Identifier: GPL-2.0-or-later
"""What only the kernel keeps of a session and its disks: read before a logout, given back after the login.

A login creates session and disks again, with the values that record, kernel and udev give them.  What an administrator
set by hand is in none of these.  What came from the record, on the other hand, follows the record as it is now.
"""

import contextlib
import fcntl
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fabtune.backends import attribute
from fabtune.catalog.tunable import shipped_catalog
from fabtune.errors import FabtuneError
from fabtune.facts import devices
from fabtune.facts.collect import this_host
from fabtune.facts.host_snapshot import HostSnapshot
from fabtune.host import blocks, iscsiadm, tree
from fabtune.host.run import require, run
from fabtune.host.sessions import Session, scsi_devices
from fabtune.model.device import Device
from fabtune.tune import depth_held, journal
from fabtune.tune.depth_held import DEPTH
from fabtune.tune.lines import FROM_RECORD, STEP_MARK, DueLine, PendingLine
from fabtune.tune.map_paths import disk_of
from fabtune.tune.pending import Pending
from fabtune.tune.plan import better

# Values by key, for the session and for each of its disks by LUN and WWID.
Values = dict[str, dict[str, str]]
Transactions = list[journal.Transaction]
_SESSION = "session"
_QUEUE = "can_queue"
# Beside the vocabulary.  What tells of the disk itself (write_cache, rotational) is the target's to say.
_MORE = ("device/eh_timeout", "queue/discard_max_bytes", "queue/iostats")
# By blockdev --setro, not through sysfs; of a partition with its number behind it.
_READ_ONLY = "ro"
# Owner, group and mode of the disk's node, as Oracle ASM wants them; of a partition's with its number behind it.
_OWNERSHIP = "ownership"
# BLKROSET, include/uapi/linux/fs.h
_SET_READ_ONLY = 0x125D
# BLKDEV_DEFAULT_RQ, block/blk-mq-sched.c
_DEFAULT_REQUESTS = 128
_DISKS_WAIT_S = 10
_UDEV_WAIT_S = 5


@dataclass(frozen=True)
class Difference:
    """A value that was set by hand and differs now; `now` is '-' where it or its device is missing."""

    device: str
    what: str
    was: str
    now: str


def of(session: Session) -> Values:
    """Return the current values of `session` and its disks, except those that may come from its record."""
    values = {_SESSION: _read(_session(session), ("recovery_tmo",)) | {_QUEUE: str(session.can_queue)}}
    there, known, settings = disks_by_place(session), _transactions(), _record(session)
    values |= {
        place: _read(disk, (*_keys(), _READ_ONLY)) | _protected(disk) | _owned(disk) for place, disk in there.items()
    }
    for key, setting in FROM_RECORD.items():
        said = _said_by_record(setting, settings, session, known)
        # The kernel cuts a LUN's depth to the session's.
        said |= {str(min(session.can_queue, depth)) for one in said if (depth := tree.whole(one)) is not None}
        for found in values.values():
            if found.get(key) in said:
                del found[key]
    journalled = {disk.label: disk.identity for disk in devices.find("block", HostSnapshot())}
    identities = {place: journalled.get(disk.label) for place, disk in there.items()} | {_SESSION: session.own_identity}
    return {place: found | _ours(identities[place], found, known) for place, found in values.items()}


def _ours(identity: str | None, found: Mapping[str, str], known: Transactions) -> dict[str, str]:
    """Return which step in force wrote a value of `found` to `identity`: its transaction and number by `step KEY`."""
    return {
        f"{STEP_MARK}{step.key}": f"{one.name} {step.number}"
        for one in known for step in one.open_steps
        if (step.backend, step.device.identity) == ("attribute", identity)
        and found.get(step.key) in (step.wrote, step.holds) and not step.disturbed
    }  # fmt: skip


def _protected(disk: Device) -> dict[str, str]:
    """Return the partitions of `disk` that are write-protected themselves."""
    # Below a protected disk each of them reads so.
    if _read(disk, (_READ_ONLY,)).get(_READ_ONLY) == "1":
        return {}
    return {f"{_READ_ONLY}{name}": "1" for name, part in _partitions(disk).items()
            if _read(part, (_READ_ONLY,)).get(_READ_ONLY) == "1"}  # fmt: skip


def _owned(disk: Device) -> dict[str, str]:
    """Return owner, group and mode of the nodes of `disk` and its partitions."""
    parts = {"": disk} | _partitions(disk)
    return {f"{_OWNERSHIP}{name}": text for name, part in parts.items() if (text := blocks.ownership(part.label))}


def _partitions(disk: Device) -> dict[str, Device]:
    """Return the partitions of `disk` by ` of partition N`."""
    found = {}
    for number in Path(disk.where["directory"]).glob("*/partition"):
        place = f" of partition {tree.read_text(number)}"
        found[place] = Device("block", disk.identity + place, number.parent.name, {"directory": str(number.parent)})
    return found


def _keys() -> tuple[str, ...]:
    """Return the keys of a disk in an order in which no write moves a value written before it."""
    known = [
        one.key for one in shipped_catalog().tunables.values() if (one.backend, one.scope) == ("attribute", "block")
    ]
    return *known, *_MORE


def _session(session: Session) -> Device:
    return Device("session", session.own_identity, f"session {session.sid}", {"directory": str(session.directory)})


def disks_by_place(session: Session) -> dict[str, Device]:
    """Return the disks of `session` by the place that `of` has them at."""
    found = {}
    for device in scsi_devices(session):
        name = disk_of(device)
        if name:
            place = f"LUN {device.name.rpartition(':')[2]} {blocks.wwid(device)}".rstrip()
            found[place] = Device("block", place, name, {"directory": str(tree.SYS / "block" / name)})
    return found


def _read(device: Device, keys: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for key in keys:
        with contextlib.suppress(FabtuneError):
            found[key] = attribute.BACKEND.read(device, key)
    return found


def give_back(
    kept: Mapping[str, Mapping[str, str]], session: Session, tell: Callable[[str], None]
) -> list[tuple[str, str]]:
    """Give `session`, which has just logged in, and its disks the values `kept` that somebody set by hand.

    What a profile asks of the record instead is told.  Returns (value, reason) of what could not be given back.
    """
    lost, known = give_depths_back(kept, session), _transactions()
    for place, device in _there(kept, session):
        if device is None:
            lost.append((f"what was set by hand of {place}", "it is not there any more"))
            continue
        for key, part in _to_protect(kept[place], device):
            if part is None:
                lost.append(
                    (f"write protection{key.removeprefix(_READ_ONLY)} of {device.label}", "it is not there any more")
                )
            elif problem := _set_read_only(part):
                lost.append((f"write protection of {part.label}", problem))
        lost += _own_anew(kept[place], device, tell)
        wanted = _by_hand(kept, place, session, known)
        for key in [key for key in wanted if key in FROM_RECORD]:
            value, now = wanted[key], _read(device, (key,)).get(key)
            profile = _asked_by(key, value, session.identity, known)
            if profile:
                if now != value:
                    tell(f"{key} of {device.label} was set to {value} by hand, and is {now}, as {profile} has it")
                del wanted[key]
        lost += [(f"{key} of {device.label}", why) for key, why in _write(device, wanted).items()]
    return lost


def follow_record(kept: Mapping[str, Mapping[str, str]], session: Session) -> list[tuple[str, str]]:
    """Let the disks of `session`, connected anew, have the queue's depth that its record says, unless set by hand.

    An iscsid before 2.1.10 does so at a login alone.  Returns (value, reason) of what could not be written.
    """
    lost, known, depth = [], _transactions(), tree.whole(_record(session).get(FROM_RECORD[DEPTH]))
    for place, device in disks_by_place(session).items():
        by_hand = _by_hand(kept, place, session, known).get(DEPTH) if place in kept else None
        if depth is None or (by_hand and not _asked_by(DEPTH, by_hand, session.identity, known)):
            continue
        wanted = {DEPTH: str(min(depth, session.can_queue))}
        lost += [(f"{key} of {device.label}", why) for key, why in _write(device, wanted).items()]
    return lost


def differing(kept: Mapping[str, Mapping[str, str]], session: Session) -> list[Difference]:
    """Return what of `kept` was set by hand and is missing from `session`, which has logged in since, or its disks."""
    found, known = [], _transactions()
    for place, device in _there(kept, session):
        if device is None:
            found.append(Difference(place, "disk", "there", "-"))
            continue
        for key, part in _to_protect(kept[place], device):
            now = _read(part, (_READ_ONLY,)).get(_READ_ONLY, "-") if part else "-"
            found += [Difference(device.label, key, "1", now)] if now != "1" else []
        before = depth_held.depth_before(kept[place], device, known)
        if before:
            found.append(Difference(device.label, DEPTH, before, _read(device, (DEPTH,)).get(DEPTH, "-")))
        found += [Difference(part.label, _OWNERSHIP, was, now) for part, was, now in _disowned(kept[place], device)]
        for key, value in _by_hand(kept, place, session, known).items():
            now = _read(device, (key,)).get(key, "-")
            if now != value and not (before and key == DEPTH) and not _asked_by(key, value, session.identity, known):
                found.append(Difference(device.label, key, value, now))
    return found


def give_depths_back(kept: Mapping[str, Mapping[str, str]], session: Session) -> list[tuple[str, str]]:
    """Give the disks of `session` that are held short their depth; return (value, reason) of what could not be."""
    short = {place: disk for place, disk in disks_by_place(session).items() if depth_held.is_short(kept.get(place, {}))}
    lost, known = list[tuple[str, str]](), _transactions()
    for place, disk in short.items():
        if not _read(disk, (DEPTH,)):
            lost.append((f"{DEPTH} of {disk.label}", "it cannot be read"))
        elif was := depth_held.depth_before(kept[place], disk, known):
            lost += [(f"{key} of {disk.label}", why) for key, why in _write(disk, {DEPTH: was}).items()]
    return lost


def _disowned(kept: Mapping[str, str], device: Device) -> list[tuple[Device, str, str]]:
    """Return the disk and partitions whose node has another owner or mode than in `kept`, with what was and is."""
    parts = {"": device} | _partitions(device)
    pairs = [(part, kept.get(f"{_OWNERSHIP}{name}", ""), blocks.ownership(part.label)) for name, part in parts.items()]
    return [(part, was, now or "-") for part, was, now in pairs if was and was != now]


def _own_anew(kept: Mapping[str, str], device: Device, tell: Callable[[str], None]) -> list[tuple[str, str]]:
    """Give the nodes of `device` their owner and mode again; return what could not be given back, with the reason."""
    lost = []
    for part, was, now in _disowned(kept, device):
        try:
            blocks.set_ownership(part.label, was)
            tell(f"/dev/{part.label} belongs to {was} again, as before the re-login, which had made it {now}")
        except FabtuneError as error:
            lost.append((f"{_OWNERSHIP} of /dev/{part.label}", f"it was {was} and is {now}: {error}"))
    return lost


def _to_protect(kept: Mapping[str, str], device: Device) -> list[tuple[str, Device | None]]:
    """Return the keys of `kept` that tell of write protection, each with the disk or partition it is of today."""
    present = {_READ_ONLY: device} | {_READ_ONLY + name: part for name, part in _partitions(device).items()}
    return [(key, present.get(key)) for key, value in kept.items()
            if value == "1" and key.partition(" ")[0] == _READ_ONLY]  # fmt: skip


def _by_hand(
    kept: Mapping[str, Mapping[str, str]], place: str, session: Session, known: Transactions
) -> dict[str, str]:
    """Return what of `kept` at `place` the ended session did not have from its login on.

    What a profile wrote there is left out as well once it has been taken back.
    """
    keys = ("recovery_tmo", *_keys())
    in_force = {"", *(f"{one.name} {step.number}" for one in known for step in one.open_steps)}
    return {
        key: value for key, value in kept[place].items()
        if key in keys and not _born_with(key, value, kept, session)
        and kept[place].get(f"{STEP_MARK}{key}", "") in in_force
    }  # fmt: skip


def _there(kept: Mapping[str, Mapping[str, str]], session: Session) -> Iterator[tuple[str, Device | None]]:
    """Yield each place of `kept` with its device of today, once udev is done with the new disks."""
    deadline = time.monotonic() + _DISKS_WAIT_S
    while not _all_there(kept, session) and time.monotonic() < deadline:
        time.sleep(0.1)
    with contextlib.suppress(FabtuneError):
        run([require("udevadm", "udev"), "settle", f"--timeout={_UDEV_WAIT_S}"], what="waiting for udev",
            timeout_s=2 * _UDEV_WAIT_S)  # fmt: skip
    present = {_SESSION: _session(session), **disks_by_place(session)}
    for place in kept:
        yield place, present.get(place)


def _all_there(kept: Mapping[str, Mapping[str, str]], session: Session) -> bool:
    """Tell whether every place of `kept` is there; the kernel reads a disk's partitions after the disk itself shows."""
    there = disks_by_place(session)
    return (
        set(kept) <= {_SESSION, *there}
        and all(part for place, disk in there.items() if place in kept for _, part in _to_protect(kept[place], disk))
        and all(
            f" of partition{key.partition(' of partition')[2]}" in _partitions(disk)
            for place, disk in there.items()
            for key in kept.get(place, ())
            if key.startswith(f"{_OWNERSHIP} ")
        )
    )


def _write(device: Device, wanted: Mapping[str, str]) -> dict[str, str]:
    """Write what differs; return why, by key, for what differs still."""
    problems: dict[str, str] = {}
    # A limit of the disk moves what was written before it.
    for _ in range(2):
        problems = {}
        for key, value in wanted.items():
            try:
                found = attribute.BACKEND.read(device, key)
                if found != value:
                    attribute.BACKEND.write(device, key, value)
                    found = attribute.BACKEND.read(device, key)
            except FabtuneError as error:
                problems[key] = f"it was {value}: {error}"
                continue
            if found != value:
                problems[key] = f"it was {value} and is {found}"
    return problems


def _set_read_only(device: Device) -> str:
    """Protect a disk from being written if it is not; return why that failed, '' if it is protected."""
    try:
        if _read(device, (_READ_ONLY,)).get(_READ_ONLY) == "1":
            return ""
        with Path(f"/dev/{device.label}").open("rb") as disk:
            fcntl.ioctl(disk, _SET_READ_ONLY, struct.pack("i", 1))
    except OSError as error:
        return f"it was set by hand and is gone: {error.strerror}"
    return "" if _read(device, (_READ_ONLY,)).get(_READ_ONLY) == "1" else "it was set by hand and is gone"


def _born_with(key: str, value: str, kept: Mapping[str, Mapping[str, str]], session: Session) -> bool:
    """Tell whether the session before `session` may have had `value` for the depth of its queue."""
    if key != "queue/nr_requests":
        return False
    # blk_mq_init_sched and blk_mq_init_queue make it of the session's queue, which the record may have changed.
    queue = tree.whole(kept.get(_SESSION, {}).get(_QUEUE)) or session.can_queue
    return queue != session.can_queue and value in (str(queue), str(2 * min(queue, _DEFAULT_REQUESTS)))


def _record(session: Session) -> dict[str, str]:
    with contextlib.suppress(FabtuneError):
        return iscsiadm.one(session.target, session.portal, session.interface) or {}
    return {}


def _said_by_record(key: str, settings: Mapping[str, str], session: Session, known: Transactions) -> set[str]:
    """Return what `session` may have of `key` from its record: what that says (`settings`), or said at the login."""
    said = {text for one, step in _steps(key, session.identity, known) for text in _at_login(one, step, session)}
    return said | ({settings[key]} if settings.get(key) else set())


def _at_login(transaction: journal.Transaction, step: journal.Step, session: Session) -> set[str]:
    """Return what the record may have said when `session` logged in, as far as `step` tells."""
    # A session that is there when a record is written, or given back, is to log in anew.
    before = _waits(transaction.pending, session)
    if step not in transaction.open_steps and not _waits(transaction.due, session):
        # It logged in after that.
        return set()
    old = {step.old, *step.ours} if before or not transaction.applied else set()
    return old if before and transaction.applied else old | {step.wrote, step.holds or step.wrote}


def _waits(lines: Iterable[PendingLine | DueLine], session: Session) -> bool:
    own = session.identity, str(session.sid), this_host().boot_id
    return any((one.identity, one.sid, one.boot_id) == own and not Pending.of(one).reconnected for one in lines)


def _steps(key: str, identity: str, known: Transactions) -> list[tuple[journal.Transaction, journal.Step]]:
    return [(one, step) for one in known for step in one.steps
            if (step.backend, step.key, step.device.identity) == ("record", key, identity)]  # fmt: skip


def _transactions() -> Transactions:
    with contextlib.suppress(FabtuneError):
        return journal.transactions()
    return []


def _asked_by(key: str, value: str, identity: str, known: Transactions) -> str:
    """Return the profile that set what the record makes of `key` and does not take `value` for better, '' for none."""
    if key not in FROM_RECORD:
        return ""
    for one, step in reversed(_steps(FROM_RECORD[key], identity, known)):
        if step in one.open_steps:
            return "" if _better(step, value) else one.profile
    return ""


def _better(step: journal.Step, value: str) -> bool:
    tunable = shipped_catalog().tunables.get(step.tunable)
    if tunable is None or not step.form:
        return False
    try:
        return better(tunable, step.form, tunable.parse(value), tunable.parse(step.wrote))
    except (FabtuneError, ValueError):
        return False

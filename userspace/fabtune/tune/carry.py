# SPDX-License-Identifier: GPL-2.0-or-later
"""What only the kernel keeps of a session and its disks: read before a logout, given back after the login.

A login makes session and disks anew, with the values that record, kernel and udev give them.  What an administrator
set by hand is in none of these.  What came from the record, on the other hand, follows the record as it is now.
"""

import contextlib
import fcntl
import struct
import time
from collections.abc import Callable, Iterator, Mapping

from fabtune.backends import attribute, record, tree
from fabtune.catalog.tunable import shipped_catalog
from fabtune.errors import FabtuneError
from fabtune.facts.sessions import Session, scsi_devices
from fabtune.model.device import Device
from fabtune.run import require, run
from fabtune.tune import journal
from fabtune.tune.paths import disk_of

# Values by key, for the session and for each of its disks by LUN and WWID.
Values = dict[str, dict[str, str]]
_SESSION = "session"
_QUEUE = "can_queue"
# Beside the vocabulary.  What tells of the disk itself (write_cache, rotational) is the target's to say.
_MORE = ("device/eh_timeout", "queue/discard_max_bytes", "queue/iostats")
# By blockdev --setro, not through sysfs.
_READ_ONLY = "ro"
# BLKROSET, include/uapi/linux/fs.h
_SET_READ_ONLY = 0x125D
_FROM_RECORD = {
    "device/queue_depth": "node.session.queue_depth",
    "recovery_tmo": "node.session.timeo.replacement_timeout",
}
# BLKDEV_DEFAULT_RQ, block/blk-mq-sched.c
_DEFAULT_REQUESTS = 128
_DISKS_WAIT_S = 10
_UDEV_WAIT_S = 5


def of(session: Session) -> Values:
    """Return the values of `session` and its disks as they are now."""
    values = {_SESSION: _read(_session(session), ("recovery_tmo",)) | {_QUEUE: str(session.can_queue)}}
    return values | {place: _read(device, (*_keys(), _READ_ONLY)) for place, device in _disks(session).items()}


def _keys() -> tuple[str, ...]:
    """Return the keys of a disk in an order in which no write moves a value written before it."""
    known = [one.key for one in shipped_catalog().tunables.values() if (one.backend, one.scope) == ("attribute", "block")]
    return *known, *_MORE


def _session(session: Session) -> Device:
    return Device("session", session.own_identity, f"session {session.sid}", {"directory": str(session.directory)})


def _disks(session: Session) -> dict[str, Device]:
    found = {}
    for device in scsi_devices(session):
        name = disk_of(device)
        if name:
            wwid = " ".join((tree.read_text(device / "wwid") or "").split())
            place = f"LUN {device.name.rpartition(':')[2]} {wwid}".rstrip()
            found[place] = Device("block", place, name, {"directory": str(tree.SYS / "block" / name)})
    return found


def _read(device: Device, keys: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for key in keys:
        with contextlib.suppress(FabtuneError):
            found[key] = attribute.BACKEND.read(device, key)
    return found


def give_back(kept: Mapping[str, Mapping[str, str]], session: Session, tell: Callable[[str], None]) -> list[tuple[str, str]]:
    """Give `session`, which has just logged in, and its disks the values `kept` that somebody set by hand.

    What a profile asks of the record instead is told.  Returns (value, reason) of what could not be given back.
    """
    lost = []
    for place, device in _there(kept, session):
        if device is None:
            lost.append((f"what was set by hand of {place}", "it is not there any more"))
            continue
        wanted = {}
        if kept[place].get(_READ_ONLY) == "1" and (problem := _set_read_only(device)):
            lost.append((f"write protection of {device.label}", problem))
        for key, value in kept[place].items():
            if key not in ("recovery_tmo", *_keys()) or _born_with(key, value, kept, session):
                continue
            wanted[key] = value
            profile = _asked_by(key, session.identity)
            if profile:
                now = _read(device, (key,)).get(key)
                if now != value:
                    tell(f"{key} of {device.label} was set to {value} by hand, and is {now}, as {profile} has it")
                del wanted[key]
        lost += [(f"{key} of {device.label}", why) for key, why in _write(device, wanted).items()]
    return lost


def _there(kept: Mapping[str, Mapping[str, str]], session: Session) -> Iterator[tuple[str, Device | None]]:
    """Yield each place of `kept` with its device of today, once udev is done with the new disks."""
    deadline = time.monotonic() + _DISKS_WAIT_S
    while not set(kept) <= {_SESSION, *_disks(session)} and time.monotonic() < deadline:
        time.sleep(0.1)
    with contextlib.suppress(FabtuneError):
        run([require("udevadm", "udev"), "settle", f"--timeout={_UDEV_WAIT_S}"], what="waiting for udev",
            timeout_s=2 * _UDEV_WAIT_S)  # fmt: skip
    present = {_SESSION: _session(session), **_disks(session)}
    for place in kept:
        yield place, present.get(place)


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
        with open(f"/dev/{device.label}", "rb") as disk:
            fcntl.ioctl(disk, _SET_READ_ONLY, struct.pack("i", 1))
    except OSError as error:
        return f"it was set by hand and is gone: {error.strerror}"
    return "" if _read(device, (_READ_ONLY,)).get(_READ_ONLY) == "1" else "it was set by hand and is gone"


def _born_with(key: str, value: str, kept: Mapping[str, Mapping[str, str]], session: Session) -> bool:
    """Tell whether the ended session may have had `value` from its login on."""
    queue = tree.whole(kept.get(_SESSION, {}).get(_QUEUE)) or session.can_queue
    if key == "queue/nr_requests":
        # blk_mq_init_sched and blk_mq_init_queue make it of the session's queue, which the record may have changed.
        return queue != session.can_queue and value in (str(queue), str(2 * min(queue, _DEFAULT_REQUESTS)))
    if key not in _FROM_RECORD:
        return False
    said = _said_by_record(_FROM_RECORD[key], session)
    # The kernel cuts a LUN's depth to the session's.
    return value in said | {str(min(queue, int(one))) for one in said if one.isdigit()}


def _said_by_record(key: str, session: Session) -> set[str]:
    """Return what the record of `session` says of `key`, and what it said before fabtune changed it."""
    said = {text for step in _steps(key, session.identity) for text in (step.old, step.wrote, step.holds or step.wrote)}
    with contextlib.suppress(FabtuneError):
        now = (record.one(session.target, session.portal, session.interface) or {}).get(key)
        said |= {now} if now else set()
    return said


def _steps(key: str, identity: str) -> list[journal.Step]:
    with contextlib.suppress(FabtuneError):
        return [step for one in journal.transactions() for step in one.steps
                if (step.backend, step.key, step.device.identity) == ("record", key, identity)]  # fmt: skip
    return []


def _asked_by(key: str, identity: str) -> str:
    """Return the profile that set what the record makes of `key`, '' for none."""
    if key not in _FROM_RECORD:
        return ""
    with contextlib.suppress(FabtuneError):
        for one in reversed(journal.transactions()):
            for step in one.open_steps:
                if (step.backend, step.key, step.device.identity) == ("record", _FROM_RECORD[key], identity):
                    return one.profile
    return ""

# SPDX-License-Identifier: GPL-2.0-or-later
"""Looks at what the metrics tell of: the module, sessions and their sockets, and what verify found last.

Nothing here fails: what cannot be read is left out, and is said by its source.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from fabtune.errors import FabtuneError
from fabtune.export import kept
from fabtune.export.guarded import Guarded
from fabtune.export.verified import Verified
from fabtune.host import sockets
from fabtune.host.sessions import Connections, Session, live_sessions
from fabtune.host.sockets import TcpSocket
from fabtune.stat import NOT_COUNTING, CountedDevice, Endpoint, Snapshot, StuckList, endpoint, snapshot, stuck
from fabtune.stat.stack import heads
from fabtune.tune import journal

_Found = TypeVar("_Found")

# What is read, each of which may be missing for itself.
SOURCES = ("fabstat", "stuck", "sessions", "sockets", "verify", "guard")
# Beyond so many disks the rest is counted only: each takes up to 350 series.
MOST_DEVICES = 2000


@dataclass(frozen=True, slots=True)
class WatchedDevice:
    """One disk as the module counts it, where it leads, and the multipath disk that it is a path of ('' for none)."""

    device: CountedDevice
    endpoint: Endpoint
    head: str


@dataclass(frozen=True, slots=True)
class Gathered:
    """All that one scrape tells of.  `problems` has a text for each source of SOURCES that could not be read."""

    time_s: float
    snapshot: Snapshot | None
    devices: tuple[WatchedDevice, ...]
    left_out: int
    stuck: StuckList | None
    sessions: tuple[tuple[Session, TcpSocket | None], ...]
    verified: Verified | None
    guarded: Guarded | None
    problems: Mapping[str, str]
    cpu_s: float


@dataclass
class Gatherer:
    """Looks again and again; what never changes of a device is asked once."""

    most_devices: int = MOST_DEVICES
    _endpoints: dict[tuple[int, int], Endpoint] = field(default_factory=dict)

    def gather(self) -> Gathered:
        """Return what is there now.  Raises nothing that a host can cause."""
        started_s = time.process_time()
        problems: dict[str, str] = {}
        reading = _tried("fabstat", snapshot, problems)
        waiting = _tried("stuck", stuck, problems) if reading and reading.counting else None
        if reading is None or not reading.counting:
            # Why the module is not there is asked once, and stuck requests are told of at its devices.
            problems["stuck"] = NOT_COUNTING if reading else problems["fabstat"]
        sessions = _tried("sessions", live_sessions, problems) or []
        connected = _tried("sockets", sockets.established, problems) or [] if sessions else []
        outcome = _tried("verify", _last_verified, problems)
        watch = _tried("guard", lambda: kept.saved(Guarded), problems)
        devices = self._devices(reading) if reading else []
        return Gathered(
            time_s=time.time(),
            snapshot=reading,
            devices=tuple(devices[: self.most_devices]),
            left_out=len(devices[self.most_devices :]),
            stuck=waiting,
            sessions=tuple(zip(sessions, _sockets_of(sessions, connected), strict=True)),
            verified=outcome,
            guarded=watch,
            problems=problems,
            cpu_s=time.process_time() - started_s,
        )

    def _devices(self, reading: Snapshot) -> list[WatchedDevice]:
        """Return the disks that are there, of two with one name the one that was seen later, in order of their ids.

        One that is being removed stays until it is gone: its requests may hang.
        """
        present = {one.disk: one for one in sorted(reading.devices, key=lambda one: one.id) if one.state != "gone"}
        known = {(reading.loaded_ns, one.id): self._endpoint(reading.loaded_ns, one) for one in present.values()}
        # One whose transport went before we could ask would have other labels than ever before.
        self._endpoints = {key: found for key, found in known.items() if found is not None}
        above = heads()
        return [
            WatchedDevice(one, self._endpoints[reading.loaded_ns, one.id], above(one.disk))
            for one in present.values()
            if (reading.loaded_ns, one.id) in self._endpoints
        ]

    def _endpoint(self, loaded_ns: int, device: CountedDevice) -> Endpoint | None:
        found = self._endpoints.get((loaded_ns, device.id)) or endpoint(device)
        return None if found.transport and not found.target else found


def _sockets_of(sessions: Sequence[Session], connected: Sequence[TcpSocket]) -> Iterator[TcpSocket | None]:
    """Yield each session's own connection; None for one that has none now, or whose it is cannot be told."""
    return map(Connections(connected, sessions).of, sessions)


def _last_verified() -> Verified | None:
    """Return what verify found last, None where nothing was applied.

    Raises FabtuneError where nobody has looked since the boot: the last look's metrics went with it, so that none
    grows old.
    """
    found = kept.saved(Verified)
    if found is None and journal.files_as_they_are():
        raise FabtuneError("no verification has been published since this host booted; fabtune-verify.timer does that")
    return found


def _tried(source: str, read: Callable[[], _Found], problems: dict[str, str]) -> _Found | None:
    try:
        return read()
    except (FabtuneError, OSError) as error:
        problems[source] = str(error)
        return None

# SPDX-License-Identifier: GPL-2.0-or-later
"""Whose devices are: which of a plan's, or of the journal's, the data of one session passes at either end.

A device is known here by its identity and label alone, as a journal and a saved plan keep it.  One of which it is not
known whose it is, such as one of several backstores, is nobody's.
"""

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fabtune.facts import portals
from fabtune.host import targets
from fabtune.host.blocks import kernel_name
from fabtune.host.links import Links
from fabtune.model.address import EVERY, canonical
from fabtune.model.device import Device
from fabtune.model.observation import ENDS, INITIATOR, TARGET, Observation
from fabtune.tune.plan import Row

_Key = tuple[str, ...]
# What all sessions of a host have in common.
_COMMON = ("host", "netns", "module")
_EVERYBODY: _Key = ("host",)


def _key(device: Device | None) -> _Key:
    """Return what a device and the session that uses it have in common; () for nobody's."""
    if device is None:
        return ()
    names = device.identity.split(",")
    match device.scope:
        case scope if scope in _COMMON:
            return _EVERYBODY
        case "record" | "session":
            return _session_key(names)
        case "block":
            return "block", kernel_name(device)
        case "nic":
            # What it lies on its own host alone knows; a plan of another has no NICs but those that storage uses.
            return ("nic", device.label) if device.where else _EVERYBODY
        case "connection":
            role, address, port, _ = portals.parts(device)
            return device.scope, role, address, str(port)
        case "route":
            return device.scope, destination(device), device.label.partition(" dev ")[2].partition(" ")[0]
        case "backstore":
            return ()
        case scope if targets.of_scope(scope):
            # A portal group, or what one initiator has of it.
            return "target", names[0], *names[2:]
    return ()


def _session_key(names: Sequence[str]) -> _Key:
    """Return the key of target, portal and interface; which of the record's sessions it is (``#2``) is left out."""
    return ("session", *(name.partition("#")[0] for name in names[:3]))


def _every_key(key: _Key) -> tuple[_Key, ...]:
    """Return `key`, and of a session's the one without its interface, which older looks do not tell."""
    return (key, key[:3]) if key[:1] == ("session",) and len(key) > 3 else (key,)


def is_known(device: Device | None) -> bool:
    """Tell whether it can be told whose `device` is, one alone of its kind or not."""
    return bool(_key(device))


def destination(device: Device) -> str:
    """Return a route's destination as a network, '' for none; of one without its host the gateway tells the family."""
    named, gateway, *_ = f"{device.identity},".split(",")
    if named == "default":
        return "::/0" if device.where.get("family") == "-6" or ":" in gateway else "0.0.0.0/0"
    try:
        return str(ipaddress.ip_network(named, strict=False))
    except ValueError:
        return ""


def _place(text: str) -> tuple[str, str]:
    address, _, port = text.rpartition(":")
    return canonical(address), port


def _keys(seen: Observation, end: str, below: Mapping[str, Sequence[str]]) -> Iterator[_Key]:
    """Yield what the devices of one session have at one end; `below` are the NICs that each lies on."""
    session, here = seen.session, seen.initiator if end == INITIATOR else seen.target
    socket, nic = (here.socket, here.nic) if here else (None, None)
    yield _EVERYBODY
    if end == INITIATOR:
        yield "session", session.target, session.portal, *filter(None, [session.interface])
        yield from (("block", name) for name in (seen.device, *session.multipath.split(", ")))
    else:
        yield "target", session.target
        yield "target", session.target, session.initiator
    portal = session.portal if socket is None else socket.remote if end == INITIATOR else socket.local
    address, port = _place(portal)
    yield from (("connection", end, one, port) for one in (address, *(EVERY if end == TARGET else ())))
    names = [nic.name] if nic else []
    for name in names:
        yield "nic", name
        names += [one for one in below.get(name, ()) if one not in names]


def _routes(seen: Observation, end: str) -> Iterator[_Key]:
    """Yield the routes that lead to the other end, the narrowest first."""
    here = seen.initiator if end == INITIATOR else seen.target
    if here is None or here.socket is None or here.nic is None:
        return
    peer = ipaddress.ip_address(_place(here.socket.remote)[0])
    for bits in range(peer.max_prefixlen, -1, -1):
        network = str(ipaddress.ip_network((peer, bits), strict=False))
        # One over several hops names no interface.
        yield from (("route", network, name) for name in (here.nic.name, ""))


class Owned:
    """Rows of a plan by whose they are: of a thousand sessions each asks for its own."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = list(rows)
        self._of: dict[_Key, list[int]] = {}
        self._below: dict[str, list[str]] = {}
        stores = {row.device.identity for row in self._rows if row.device and row.device.scope == "backstore"}
        for number, row in enumerate(self._rows):
            alone = row.device is not None and {row.device.identity} == stores
            for key in (_EVERYBODY,) if alone else _every_key(_key(row.device)):
                self._of.setdefault(key, []).append(number)
            if row.device and row.device.scope == "nic":
                self._below[row.device.label] = row.device.where.get("below", "").split()

    def of(self, seen: Observation, end: str) -> list[Row]:
        """Return the rows of `end`'s role whose devices the session of `seen` uses there, in their order."""
        keys = dict.fromkeys(_keys(seen, end, self._below))
        way = next((key for key in _routes(seen, end) if key in self._of), None)
        found = sorted(number for key in (*keys, *([way] if way else [])) for number in self._of.get(key, ()))
        return [self._rows[number] for number in found if self._rows[number].role == end]


class Passed:
    """What was written to, of what not all sessions have in common: whose data passes it?"""

    def __init__(self, devices: Iterable[Device]) -> None:
        known = (key for one in devices if (key := _lasting_key(one)) not in ((), _EVERYBODY))
        self._of = {one for key in known for one in _every_key(key)}

    def by(self, seen: Observation) -> bool:
        """Tell whether the data of `seen` does; True where all was in common, which does not tell whose it is."""
        ends = [end for end in ENDS if end == INITIATOR or seen.target]
        below = _below_here(seen)
        return not self._of or any(
            key in self._of
            for end in ends
            for key in (*_keys(seen, end, below if end == INITIATOR else {}), *_routes(seen, end))
        )


def _below_here(seen: Observation) -> dict[str, list[str]]:
    """Return what each layer of the initiator's NIC lies on: a journal tells it of what was written to alone."""
    links, nic = Links(), seen.initiator.nic
    return {name: links.below(name) for name in links.stack([nic.name])} if nic else {}


def _lasting_key(device: Device) -> _Key:
    """Return the same of a device of the journal's; of a disk its session's, as its name may be another's since."""
    match device.scope:
        case "nic":
            return "nic", device.label
        case "block":
            session = device.identity.rsplit(",", 3)[1:]
            return _session_key(session) if session else ()
    return _key(device)

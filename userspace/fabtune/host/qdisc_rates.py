# SPDX-License-Identifier: GPL-2.0-or-later
"""Queueing disciplines as they are at present, asked so cheaply (rtnetlink) that it can be asked again and again."""

import contextlib
import socket
import struct
from collections.abc import Mapping

import attrs

from fabtune.errors import explained
from fabtune.host import namespaces, netlink, tree

# include/uapi/linux/rtnetlink.h, pkt_sched.h
_GET_QDISC, _TCMSG_BYTES = 38, 20
_KIND, _OPTIONS, _STATS2, _STATS_QUEUE = 1, 2, 7, 3
_ROOT = (1 << 32) - 1
_FQ_FLOW_MAX_RATE, _TBF_PARMS, _TBF_RATE64, _NETEM_RATE, _NETEM_RATE64 = 7, 1, 4, 6, 8
_NETEM_OPTIONS_BYTES, _RATESPEC_RATE = 24, 8
_NO_RATE = (1 << 32) - 1


@attrs.frozen
class QdiscNow:
    """The qdiscs of one interface: the least rate of any, in bytes/s (None for none), drops and backlog of the root."""

    max_bytes_per_s: float | None
    dropped: int = 0
    backlog_bytes: int = 0


class QdiscRates:
    """The qdiscs of the interfaces `names` of namespace `netns`, as they are whenever they are read."""

    def __init__(self, names: tuple[str, ...], netns: str = "") -> None:
        place = namespaces.sysfs(netns) / "class/net"
        numbers = {name: tree.whole(tree.read_text(place / name / "ifindex")) for name in names}
        self._names = {number: name for name, number in numbers.items() if number is not None}
        with namespaces.inside(netns), explained("rtnetlink"):
            self._route = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)

    def close(self) -> None:
        """Let go of the kernel's ear."""
        self._route.close()

    def read(self) -> dict[str, QdiscNow]:
        """Return what each interface that has a qdisc has now.  Raises FabtuneError."""
        with explained("rtnetlink"):
            return self._read()

    def _read(self) -> dict[str, QdiscNow]:
        found: dict[str, QdiscNow] = {}
        for message in netlink.dump(self._route, _GET_QDISC, bytes(_TCMSG_BYTES)):
            self._take(message, found)
        return found

    def _take(self, message: bytes, found: dict[str, QdiscNow]) -> None:
        number, _, parent = struct.unpack_from("=iII", message, 4)
        name = self._names.get(number)
        told = netlink.attribute_list(message[_TCMSG_BYTES:])
        kind = told.get(_KIND, b"").rstrip(b"\0").decode(errors="replace")
        if name is None or kind in ("clsact", "ingress"):
            return
        before = found.get(name, QdiscNow(None))
        rates = (qdisc_limit(kind, told.get(_OPTIONS, b"")), before.max_bytes_per_s)
        rate = min((one for one in rates if one is not None), default=None)
        queue = netlink.attribute_list(told.get(_STATS2, b"")).get(_STATS_QUEUE, b"")
        if parent == _ROOT and len(queue) >= 12:
            _, backlog, drops = struct.unpack_from("=3I", queue)
            found[name] = QdiscNow(rate, drops, backlog)
        else:
            found[name] = attrs.evolve(before, max_bytes_per_s=rate)


def qdisc_limit(kind: str, options: bytes) -> float | None:
    """Return the rate that a qdisc lets one flow (fq) or all together (tbf, netem) have, in bytes/s; None for none."""
    with contextlib.suppress(struct.error):
        if kind == "fq":
            return _rate(_number(netlink.attribute_list(options), _FQ_FLOW_MAX_RATE))
        if kind == "tbf":
            told = netlink.attribute_list(options)
            narrow = _number({0: told.get(_TBF_PARMS, b"")[_RATESPEC_RATE:]}, 0)
            return _rate(_number(told, _TBF_RATE64, "=Q") or narrow)
        if kind == "netem":
            told = netlink.attribute_list(options[_NETEM_OPTIONS_BYTES:])
            return _rate(_number(told, _NETEM_RATE64, "=Q") or _number(told, _NETEM_RATE))
    return None


def _number(told: Mapping[int, bytes], name: int, form: str = "=I") -> int | None:
    return int(struct.unpack_from(form, told[name])[0]) if told.get(name) else None


def _rate(found: int | None) -> float | None:
    return float(found) if found and found != _NO_RATE else None

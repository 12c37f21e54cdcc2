# SPDX-License-Identifier: GPL-2.0-or-later
"""The queueing discipline that a NIC's packets leave through: the root's, or each leaf's below ``mq``.

Only what nobody configured is ever replaced: a root with a handle of its own and another kind
than ours belongs to the administrator.
"""

from typing import Any

from fabtune.backends import UnsupportedError, iproute
from fabtune.errors import FabtuneError
from fabtune.model.device import Device

# The kernel gives handle 0: to the qdiscs it attaches by itself.
_DEFAULT_HANDLE = "0:"
# What the kernel may attach by itself (net.core.default_qdisc), and what we attach.
_OURS = ("fq", "fq_codel", "pfifo_fast", "noqueue", "pfifo", "sfq", "cake")
_MAXRATE_OFF = "0"


def _list(device: Device) -> list[dict[str, Any]]:
    name = device.where.get("name")
    if not name:
        raise UnsupportedError(f"{device.label}: not a NIC")
    return iproute.read_json("tc", "qdisc", "show", "dev", name, netns=device.where.get("netns", ""))


def _root(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return next((row for row in rows if row.get("root")), {"kind": "noqueue", "handle": _DEFAULT_HANDLE})


def _leaves(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what packets queue in: the root itself, or mq's children."""
    root = _root(rows)
    if root["kind"] != "mq":
        return [root]
    return [row for row in rows if str(row.get("parent", "")).startswith(str(root["handle"]).rstrip(":") + ":")] or [
        row for row in rows if not row.get("root") and row["kind"] not in ("clsact", "ingress")
    ]


class _Qdisc:
    def read(self, device: Device, key: str) -> str:
        leaves = _leaves(_list(device))
        if key == "kind":
            kinds = {str(leaf["kind"]) for leaf in leaves}
            return " ".join(sorted(kinds))
        # Whatever is not fq limits no connection; so a plan can ask for fq and its maxrate at once.
        rates = {str(leaf.get("options", {}).get("maxrate", _MAXRATE_OFF)) for leaf in leaves}
        return " ".join(sorted(rates))

    def write(self, device: Device, key: str, value: str) -> None:
        name, netns = device.where["name"], device.where.get("netns", "")
        rows = _list(device)
        root = _root(rows)
        if key == "maxrate":
            if any(leaf["kind"] != "fq" for leaf in _leaves(rows)):
                raise UnsupportedError(f"{device.label}: its qdisc is not fq, which alone has a maxrate")
            rate = "maxrate", f"{int(value) * 8}bit" if value != _MAXRATE_OFF else "34359738360bit"
            for leaf in _leaves(rows):
                where = ("root",) if leaf.get("root") else ("parent", str(leaf["parent"]))
                iproute.run("tc", "qdisc", "change", "dev", name, *where, "fq", *rate, netns=netns)
            return
        if root["handle"] != _DEFAULT_HANDLE and root["kind"] not in (*_OURS, "mq"):
            raise UnsupportedError(f"{device.label}: its qdisc {root['kind']} was configured by hand and is left alone")
        if value not in _OURS:
            raise FabtuneError(f"{device.label}: qdisc '{value}': allowed: {', '.join(_OURS)}")
        if root["handle"] != _DEFAULT_HANDLE:
            # Without a root of its own the device gets the kernel's default again, mq and its leaves included.
            iproute.run("tc", "qdisc", "del", "dev", name, "root", netns=netns)
            if self.read(device, key) == value:
                return
            root = _root(_list(device))
        if root["kind"] == "mq":
            iproute.run("tc", "qdisc", "replace", "dev", name, "root", "handle", "1:", "mq", netns=netns)
            for queue in range(1, len(_leaves(_list(device))) + 1):
                iproute.run("tc", "qdisc", "replace", "dev", name, "parent", f"1:{queue:x}", value, netns=netns)
        else:
            iproute.run("tc", "qdisc", "replace", "dev", name, "root", value, netns=netns)


BACKEND = _Qdisc()

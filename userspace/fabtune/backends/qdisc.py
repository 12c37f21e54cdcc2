# SPDX-License-Identifier: GPL-2.0-or-later
"""The queueing discipline that a NIC's packets leave through: the root's, or each leaf's below ``mq``.

Only what the kernel attached by itself is ever replaced (its handles are 0:, and nothing can
change its options), and only where taking ours away brings back the same.  Ours has a handle of
its own, so that nobody else's is taken for it.  Whatever else is found was made by hand.
"""

import json
from collections.abc import Mapping

from fabtune.backends import Refusal
from fabtune.errors import ByHandError, FabtuneError, UnsupportedError
from fabtune.host import iproute, tree
from fabtune.model.device import Device
from fabtune.model.document import Json

# The kernel gives handle 0: to the qdiscs it attaches by itself; fab: is ours.
_KERNELS, _OURS = "0:", "fab:"
_KINDS = ("fq", "fq_codel", "pfifo_fast", "noqueue", "pfifo", "sfq", "cake")
_BY_HAND = "by hand"
# Attached beside the root, for what comes in; nothing here touches them.
_BESIDE = ("clsact", "ingress")
# fq's own limits are 32 bits wide, all ones for none (net/sched/sch_fq.c, flow_max_rate).
_MAXRATE_OFF, _MAXRATE_END = "0", (1 << 32) - 1
# What fq has where nobody says otherwise; quanta depend on the MTU, the rest on no kernel's age (sch_fq.c, fq_init).
_FQ_DEFAULTS = {
    "limit": 10000, "flow_limit": 100, "buckets": 1024, "orphan_mask": 1023, "low_rate_threshold": 68750,
    "refill_delay": 40000, "timer_slack": 10000, "horizon": 10000000,
}  # fmt: skip
_FROM_THE_MTU = ("quantum", "initial_quantum")
_SHARE = "share_nic"

Rows = list[iproute.Listed]


def _tc(device: Device, *words: str) -> None:
    iproute.run("tc", "qdisc", *words, netns=device.where.get("netns", ""))


def _rows(device: Device) -> Rows:
    name = device.where.get("name")
    if not name:
        raise UnsupportedError(f"{device.label}: not a NIC")
    words = ("-details", "qdisc", "show", "dev", name)
    found = iproute.read_json("tc", *words, netns=device.where.get("netns", ""), texts=("kind", "handle"))
    for row in found:
        if not isinstance(row.get("options", {}), dict) or not isinstance(_options(row).get("maxrate", 0), int):
            raise FabtuneError(f"tc -j {' '.join(words)}: 'options' cannot be read: {str(row['options']):.60}")
    return [row for row in found if row["kind"] not in _BESIDE]


def _options(row: iproute.Listed) -> Mapping[str, Json]:
    options = row.get("options")
    return options if isinstance(options, Mapping) else {}


def _root(rows: Rows) -> iproute.Listed:
    return next((row for row in rows if row.get("root")), {"kind": "noqueue", "handle": _KERNELS})


def _leaves(rows: Rows) -> Rows:
    """Return what packets queue in: the root itself, or mq's children."""
    root = _root(rows)
    if root["kind"] != "mq":
        return [root]
    parent = ":" if root["handle"] == _KERNELS else str(root["handle"])
    return [row for row in rows if str(row.get("parent", "")).startswith(parent)]


def _kernels_own(rows: Rows) -> bool:
    return all(row["handle"] == _KERNELS for row in rows)


def _kinds(rows: Rows) -> str:
    return " ".join(sorted({str(leaf["kind"]) for leaf in _leaves(rows)}))


def _by_hand(rows: Rows, device: Device) -> bool:
    """Tell whether anybody but the kernel and fabtune had a hand in what is attached."""
    if _kernels_own(rows):
        return False
    leaves = _leaves(rows)
    if _root(rows)["handle"] != _OURS or len(rows) != len(leaves) + (_root(rows)["kind"] == "mq"):
        return True
    changed = (
        _options(leaf).get(key, default) != default
        for leaf in leaves
        if leaf["kind"] == "fq"
        for key, default in _FQ_DEFAULTS.items()
    )
    words = ("filter", "show", "dev", device.where["name"], "parent", _OURS)
    return any(changed) or bool(iproute.run("tc", *words, netns=device.where.get("netns", "")).strip())


def _default_kind() -> str:
    """Return what the kernel attaches by itself to a queueing device, '' where that is not told."""
    return tree.read_text(tree.PROC / "sys/net/core/default_qdisc") or ""


def _comes_back(kind: str) -> bool:
    """Tell whether the kernel attaches `kind` by itself again; a device without a queue has none to choose."""
    return kind in ("noqueue", _default_kind())


def _detach(device: Device) -> None:
    """Take ours away: without a root of its own the device gets the kernel's again, mq and its leaves included."""
    if device.where.get("down"):
        raise FabtuneError(f"{device.label}: is down, and the kernel attaches its own qdisc when the link comes up")
    _tc(device, "del", "dev", device.where["name"], "root")


def _attach(device: Device, kind: str) -> None:
    """Put ours in the place of the kernel's own."""
    name, rows = device.where["name"], _rows(device)
    if _root(rows)["kind"] != "mq":
        _tc(device, "replace", "dev", name, "root", "handle", _OURS, kind)
        return
    _tc(device, "replace", "dev", name, "root", "handle", _OURS, "mq")
    for queue in range(1, len(_leaves(rows)) + 1):
        _tc(device, "replace", "dev", name, "parent", f"{_OURS}{queue:x}", kind)


def _refuse_by_hand(device: Device, rows: Rows) -> None:
    if _by_hand(rows, device):
        raise ByHandError(
            f"{device.label}: its {_root(rows)['kind']} was configured by hand and is left alone; "
            f"`tc qdisc del dev {device.label} root` removes it"
        )


def _write_kind(device: Device, kind: str) -> None:
    if kind not in _KINDS:
        raise FabtuneError(f"{device.label}: qdisc '{kind}': allowed: {', '.join(_KINDS)}")
    rows = _rows(device)
    _refuse_by_hand(device, rows)
    if not _kernels_own(rows):
        if kind != "fq" and (rate := _maxrate(rows)) != _MAXRATE_OFF:
            # What was written after the kind goes before it: one that is there yet is somebody else's.
            raise ByHandError(
                f"{device.label}: its fq has a maxrate of {rate} bytes/s, given by hand or by what is still in force, "
                f"and is left alone; `tc qdisc del dev {device.label} root` removes it"
            )
        _detach(device)
        rows = _rows(device)
    if _kinds(rows) != kind:
        _attach(device, kind)


def _write_maxrate(device: Device, value: str) -> None:
    rows = _rows(device)
    if any(leaf["kind"] != "fq" for leaf in _leaves(rows)):
        raise UnsupportedError(f"{device.label}: its qdisc is not fq, and only fq has a maxrate")
    if _root(rows)["handle"] != _OURS:
        _refuse_by_hand(device, rows)
    if _kernels_own(rows):
        # What the kernel attached by itself takes no options.
        _attach(device, "fq")
    rate = f"{8 * (int(value) or _MAXRATE_END)}bit"
    for leaf in _leaves(_rows(device)):
        where = ("root",) if leaf.get("root") else ("parent", str(leaf["parent"]))
        _tc(device, "change", "dev", device.where["name"], *where, "fq", "maxrate", rate)


def _tree(rows: Rows) -> str:
    """Return all that is attached, each with all its options, less what counts anew each time.

    The kernel's own have the options that follow from MTU, queue length and sysctls when it made them,
    and nobody can give them others: they are no part of what must come back.  Nor are the quanta of ours,
    which the kernel takes from the MTU too.
    """
    kept = [{key: value for key, value in row.items() if key != "refcnt"} for row in rows]
    for row in kept:
        ours_below = str(row.get("parent", "")).startswith(_OURS)
        if row.get("handle") == _KERNELS:
            row.pop("options", None)
        if ours_below or row.get("handle") == _OURS:
            row["options"] = {key: value for key, value in _options(row).items() if key not in _FROM_THE_MTU}
        if ours_below:
            # The kernel numbers the leaves that we attach.
            row.pop("handle", None)
    return json.dumps(sorted(kept, key=lambda row: str(row.get("parent", ""))), separators=(",", ":"), sort_keys=True)


def _write_tree(device: Device, saved: str) -> None:
    """Bring back what `saved` (a former `_tree`) holds: the kernel's own, or ours.  Raises FabtuneError if not."""
    rows, before = _rows(device), json.loads(saved)
    _refuse_by_hand(device, rows)
    kind = _kinds(before)
    if _root(before)["handle"] == _OURS:
        _write_kind(device, kind)
        if kind == "fq":
            _write_maxrate(device, _maxrate(before))
    elif not _comes_back(kind):
        raise FabtuneError(
            f"{device.label}: had the kernel's own {kind}, which net.core.default_qdisc "
            f"({_default_kind() or 'not told'}) does not bring back: set it to {kind} and revert again"
        )
    else:
        if _kernels_own(rows):
            # Made anew, it takes what it depends on (MTU, queue length) as these are now.
            _tc(device, "replace", "dev", device.where["name"], "root", "handle", _OURS, "pfifo")
        _detach(device)
    now = _tree(_rows(device))
    if now != _tree(before):
        raise FabtuneError(f"{device.label}: its qdisc is not all as before: {_differences(before, json.loads(now))}")


def _differences(before: Rows, now: Rows) -> str:
    """Return in words the first thing in which two trees differ."""
    for old, new in zip(before, now, strict=False):
        for key, value in {**old, **_options(old)}.items():
            found = {**new, **_options(new)}.get(key)
            if key != "options" and found != value:
                return f"{old['kind']}: {key} was {value}, and is {found}"
    return f"{len(before)} disciplines were there, and {len(now)} are"


def _maxrate(rows: Rows) -> str:
    """Return the most that one connection may send in bytes/s, 0 for no limit."""
    # Whatever is not fq limits no connection; so a plan can ask for fq and its maxrate at once.
    rates = {tree.whole(str(_options(leaf).get("maxrate"))) or _MAXRATE_END for leaf in _leaves(rows)}
    return " ".join(_MAXRATE_OFF if rate >= _MAXRATE_END else str(rate) for rate in sorted(rates))


class _Qdisc:
    def read(self, device: Device, key: str) -> str:
        rows = _rows(device)
        if key == "tree":
            return _tree(rows)
        if key == "maxrate":
            return _maxrate(rows)
        return " ".join([_kinds(rows), *([_BY_HAND] if _by_hand(rows, device) else [])])

    def write(self, device: Device, key: str, value: str) -> None:
        {"kind": _write_kind, "maxrate": _write_maxrate, "tree": _write_tree}[key](device, value)

    def why_not(self, device: Device, key: str) -> Refusal | None:
        """Return why `device` keeps its qdisc: not its own, not restorable, or not storage's alone."""
        where, rows = device.where, _rows(device)
        if key == "tree":
            return Refusal("it only keeps what else a new qdisc moves")
        if where.get("below"):
            return Refusal(f"its packets queue below it, in {where['lowest']}")
        if where.get("down"):
            return Refusal("it is down")
        if _by_hand(rows, device):
            return Refusal(f"its {_kinds(rows) or _root(rows)['kind']} was configured by hand and is left alone")
        if _kernels_own(rows) and not _comes_back(_kinds(rows)):
            return Refusal(f"revert could not bring back {_kinds(rows)}: net.core.default_qdisc is {_default_kind()}")
        if where.get("member_of") in ("bridge", "openvswitch"):
            return Refusal(f"others' packets leave through this port of a bridge; --set {_SHARE}=1 overrides", _SHARE)
        if key == "maxrate" and where.get("shared"):
            return Refusal(
                f"it carries more than storage: {where['shared']}; maxrate would hold each of their connections back "
                f"as well; --set {_SHARE}=1 overrides",
                _SHARE,
            )
        return None


BACKEND = _Qdisc()

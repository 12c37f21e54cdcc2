# SPDX-License-Identifier: GPL-2.0-or-later
"""Makes a plan's values survive a reboot: more rows, for the native files that set them at boot.

The rows run after the plan's own, in the same transaction, so that revert takes the files back
too.  Files of our own are replaced as a whole; iscsid.conf and LIO's saved configuration change
by single keys.
"""

from collections.abc import Callable, Iterable

from fabtune import backends
from fabtune.backends import UnsupportedError
from fabtune.backends.sysctl import split_key
from fabtune.backends.textfile import HEADER
from fabtune.catalog.tunable import Tunable
from fabtune.model.device import Device
from fabtune.tune.plan import CHANGE, KEPT, SAME, Plan, Row

_HOST = Device("host", "host", "host")
_SYSCTL = "etc/sysctl.d/90-fabtune.conf"
_MODPROBE = "etc/modprobe.d/fabtune.conf"
_UDEV = "etc/udev/rules.d/99-fabtune.rules"
# ethtool key -> the setting of systemd.link(5).
_LINK = {
    "nic.mtu": "MTUBytes", "nic.txqueuelen": "TransmitQueueLength", "nic.rx_ring": "RxBufferSize",
    "nic.tx_ring": "TxBufferSize", "nic.channels": "CombinedChannels", "nic.tso": "TCPSegmentationOffload",
    "nic.gso": "GenericSegmentationOffload", "nic.gro": "GenericReceiveOffload", "nic.lro": "LargeReceiveOffload",
    "nic.rx_usecs": "RxCoalesceSec", "nic.tx_usecs": "TxCoalesceSec", "nic.rx_frames": "RxMaxCoalescedFrames",
    "nic.adaptive_rx": "UseAdaptiveRxCoalesce", "nic.adaptive_tx": "UseAdaptiveTxCoalesce",
    "nic.pause_rx": "RxFlowControl", "nic.pause_tx": "TxFlowControl", "nic.pause_autoneg": "AutoNegotiationFlowControl",
}  # fmt: skip
_NO_RULE = "no native file matches it: not a PCI device, or a value of each queue"
# A .link file that matches replaces the distribution's default one, which names the interface.
_LINK_NAMES = (
    "NamePolicy=keep kernel database onboard slot path",
    "AlternativeNamesPolicy=database onboard slot path mac",
)


def rows(plan: Plan) -> tuple[list[Row], list[str]]:
    """Return the rows that make `plan` permanent, and a remark for each value that nothing native can keep."""
    kept = [row for row in plan.rows if row.state in (CHANGE, SAME, KEPT) and row.device is not None]
    found: list[Row] = []
    remarks: list[str] = []
    by_kind: dict[str, list[Row]] = {}
    for row in kept:
        by_kind.setdefault(row.tunable.persist, []).append(row)
    makers: dict[str, Callable[[list[Row], list[str]], Iterable[Row]]] = {
        "sysctl.d": _sysctls, "modprobe.d": _modules, "udev": _udev, "link": _links, "iscsid.conf": _iscsid,
        "saveconfig": _saved,
    }  # fmt: skip
    for kind, group in by_kind.items():
        if kind == "none":
            remarks += [f"{row.tunable.name}: nothing native keeps it" for row in group]
        # Node records and srp_daemon.conf are files already.
        elif kind in makers:
            found += makers[kind](group, remarks)
    return [row for row in found if row.state == CHANGE], list(dict.fromkeys(remarks))


def _row(name: str, backend: str, key: str, device: Device, wanted: str, role: str) -> Row:
    tunable = Tunable(
        name=f"persist.{name}", summary="", backend=backend, key=key, scope=device.scope, type="text", effect="live",
        roles=(role,), source="",
    )  # fmt: skip
    now = backends.get(backend).read(device, key)
    state = SAME if now == wanted else CHANGE
    return Row(tunable, role, device, now, wanted, state, "keeps the values after a reboot")


def _file(key: str, lines: Iterable[str], role: str) -> Row:
    text = "".join(f"{line}\n" for line in (HEADER, *lines))
    return _row(key.split("/")[1], "textfile", key, _HOST, text, role)


def _entries(key: str) -> dict[str, str]:
    """Return the ``name = value`` lines our file has already, from another role or profile."""
    text = backends.get("textfile").read(_HOST, key)
    pairs = [line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#")]
    return {name.strip(): value.strip() for name, _, value in pairs}


def _sysctls(group: list[Row], remarks: list[str]) -> Iterable[Row]:
    entries = _entries(_SYSCTL)
    for row in group:
        assert row.device is not None and row.wanted is not None
        if row.device.identity not in ("host", "netns:init"):
            remarks.append(f"{row.tunable.name} of {row.device.label}: sysctl.d sets the first network namespace alone")
            continue
        name, index = split_key(row.tunable.key)
        if index is None:
            entries[name] = row.wanted
        else:
            fields = entries.get(name, backends.get("sysctl").read(row.device, name)).split()
            fields[index] = row.wanted
            entries[name] = " ".join(fields)
    if entries:
        yield _file(_SYSCTL, (f"{name} = {value}" for name, value in sorted(entries.items())), group[0].role)


def _modules(group: list[Row], _remarks: list[str]) -> Iterable[Row]:
    # "options MODULE NAME=VALUE" has its name before the first "=": other roles' and profiles' lines stay.
    entries = _entries(_MODPROBE)
    for row in group:
        module, _, parameter = row.tunable.key.partition("/parameters/")
        if not parameter:
            # An SRP port's own timeouts: the module's are what its next ports get.
            module, parameter = "ib_srp", row.tunable.key
        entries[f"options {module} {parameter}"] = row.wanted or ""
    yield _file(_MODPROBE, (f"{name}={value}" for name, value in sorted(entries.items())), group[0].role)


def _udev(group: list[Row], remarks: list[str]) -> Iterable[Row]:
    rules = []
    for row in group:
        assert row.device is not None
        attribute = f'ATTR{{{row.tunable.key}}}="{row.wanted}"'
        if row.device.scope == "block":
            wwid = row.device.identity.split(",")[0]
            if wwid.startswith("name:"):
                remarks.append(
                    f"{row.tunable.name} of {row.device.label}: the disk has no WWID for a udev rule to match"
                )
            else:
                rules.append(f'ACTION=="add|change", SUBSYSTEM=="block", ENV{{DEVTYPE}}=="disk", '
                             f'ATTR{{device/wwid}}=="{wwid}", {attribute}')  # fmt: skip
        elif row.device.scope == "nic" and row.device.identity.startswith("pci:") and "*" not in row.tunable.key:
            pci = row.device.identity.split(",")[0].removeprefix("pci:")
            rules.append(f'ACTION=="add|change", SUBSYSTEM=="net", KERNELS=="{pci}", {attribute}')
        else:
            remarks.append(f"{row.tunable.name} of {row.device.label}: {_NO_RULE}")
    if rules:
        ours = backends.get("textfile").read(_HOST, _UDEV).splitlines()
        earlier = [line for line in ours if not line.startswith("#") and _rule_key(line) not in map(_rule_key, rules)]
        yield _file(_UDEV, sorted([*earlier, *rules]), group[0].role)


def _rule_key(rule: str) -> str:
    """Return a rule without the value it sets: what makes two rules the same setting."""
    return rule.rpartition('="')[0]


def _links(group: list[Row], remarks: list[str]) -> Iterable[Row]:
    by_nic: dict[str, list[Row]] = {}
    for row in group:
        assert row.device is not None
        if not row.device.identity.startswith("pci:") or row.tunable.name not in _LINK:
            remarks.append(f"{row.tunable.name} of {row.device.label}: {_NO_RULE}")
        else:
            by_nic.setdefault(row.device.identity.split(",")[0].removeprefix("pci:"), []).append(row)
    for pci, wishes in sorted(by_nic.items()):
        key = f"etc/systemd/network/10-fabtune-{pci.replace(':', '-')}.link"
        kept = {name: value for name, value in _entries(key).items() if name in _LINK.values()}
        kept |= {_LINK[row.tunable.name]: _link_value(row) for row in wishes}
        settings = sorted(f"{name}={value}" for name, value in kept.items())
        lines = ["[Match]", f"Path=pci-{pci}*", "", "[Link]", *_LINK_NAMES, *settings]
        yield _file(key, lines, wishes[0].role)


def _link_value(row: Row) -> str:
    if row.tunable.type == "bool":
        return "yes" if row.tunable.parse(row.wanted or "") else "no"
    return f"{row.wanted}us" if row.tunable.unit == "us" else str(row.wanted)


def _iscsid(group: list[Row], remarks: list[str]) -> Iterable[Row]:
    wanted: dict[str, set[str]] = {}
    for row in group:
        wanted.setdefault(row.tunable.key, set()).add(row.wanted or "")
    for key, values in wanted.items():
        if len(values) > 1:
            remarks.append(
                f"{key}: records differ ({', '.join(sorted(values))}), and iscsid.conf has one for all new ones"
            )
        else:
            yield _row("iscsid.conf", "conf", key, _HOST, values.pop(), "initiator")


def _saved(group: list[Row], remarks: list[str]) -> Iterable[Row]:
    for row in group:
        assert row.device is not None
        try:
            yield _row("saveconfig", "saveconfig", row.tunable.key, row.device, row.wanted or "", "target")
        except UnsupportedError as error:
            remarks.append(str(error))

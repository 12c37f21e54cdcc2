# SPDX-License-Identifier: GPL-2.0-or-later
"""Keeps NIC settings by systemd.link(5) without ever changing what a NIC is called.

udev reads one .link file for a NIC, the first that matches, and that file names it.  Where it is the
administrator's and made for this NIC alone, ours is a drop-in to it.  Where it is the distribution's, which
serves every NIC, ours is a copy of it for this NIC with our settings added, read just before it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from fabtune.catalog.tunable import Tunable, shipped_catalog
from fabtune.errors import FabtuneError
from fabtune.facts.boot import Rival
from fabtune.host import udevadm
from fabtune.host.udevadm import LinkSetup, Setting
from fabtune.model.device import Device
from fabtune.tune.plan import Row

_NO_FILE = "no native file matches it: not a PCI device"
_OTHER_NAMESPACE = "udev sets up only the NICs of the first network namespace"
_DROP_IN = "50-fabtune.conf"
_MARK = "-fabtune-"
# Conditions that hold for one NIC, unless their value has a wildcard or is a list.
_ONE_NIC = ("MACAddress", "PermanentMACAddress", "Path")


@dataclass(frozen=True)
class LinkFile:
    """A file of ours: its key for the backend, its lines below the header, and those of them that this plan wants."""

    key: str
    lines: tuple[str, ...]
    role: str
    share: tuple[str, ...]


def link_files(group: Iterable[Row], remarks: list[str]) -> Iterable[LinkFile]:
    """Yield the .link files and drop-ins that keep the rows of `group`; add a remark for each row that none keeps."""
    by_nic: dict[str, list[Row]] = {}
    for row in group:
        assert row.device is not None
        pci, _, namespace = row.device.identity.partition(",")
        if not pci.startswith("pci:"):
            remarks.append(f"{row.tunable.name} of {row.device.label}: {_NO_FILE}")
        elif namespace.rpartition(",")[2] != "netns:init":
            remarks.append(f"{row.tunable.name} of {row.device.label}: {_OTHER_NAMESPACE}")
        else:
            by_nic.setdefault(row.device.label, []).append(row)
    if not by_nic:
        return
    try:
        links = udevadm.links()
    except FabtuneError as error:
        remarks += [f"settings of {label}: {error}" for label in by_nic]
        return
    for label, wishes in sorted(by_nic.items()):
        found = _file(label, wishes, links, remarks)
        if found:
            yield found


def _file(label: str, wishes: list[Row], links: list[LinkSetup], remarks: list[str]) -> LinkFile | None:
    link = next((one for one in links if one.name == label), None)
    if link is None or not link.file or not link.path:
        remarks.append(f"settings of {label}: udev has no .link file for it under this name")
        return None
    ours = _ours(link)
    settings = {row.tunable.persist_as: value(row.tunable, row.wanted or "") for row in wishes}
    for row in wishes:
        name = row.tunable.persist_as
        other = _administrators(link, name)
        if other is None:
            continue
        # As wanted, or not ours to change.
        wanted = settings.pop(name)
        if not _same(other.value, wanted):
            remarks.append(f"{row.tunable.name} of {label}: {other.file} sets {name}={other.value} at boot")
    problem = _problem(link, links, ours) if settings else ""
    if problem:
        remarks.append(f"settings of {label}: {problem}")
    if problem or not settings:
        return None
    copied = link.file in ours
    mine = [one for one in link.settings if one.file in ours and one.section == "Link"]
    known = {one.persist_as for one in shipped_catalog().tunables.values()}
    kept = {one.name: one.value for one in mine if not copied or one.name in known}
    others = {f"{name}={value}" for name, value in kept.items() if name not in settings}
    made = _made(link, copied, kept | settings, wishes[0].role)
    return replace(made, share=tuple(line for line in made.lines if line not in others))


def _ours(link: LinkSetup) -> set[str]:
    """Return which files that say something of this NIC may be ours."""
    ours = {f"/{udevadm.DIRECTORIES[0]}/{Path(link.file).name}.d/{_DROP_IN}"}
    return ours | {link.file} if _MARK in Path(link.file).name else ours


def _administrators(link: LinkSetup, name: str) -> Setting | None:
    """Return what the administrator's own files set `name` to, None where they do not."""
    ours = _ours(link)
    found = next((one for one in reversed(link.settings) if _is(one, name) and one.file not in ours), None)
    return None if found is None or found.file.startswith("/usr/") else found


def rival(device: Device, tunable: Tunable) -> Rival | None:
    """Return what a .link file of the administrator sets `tunable` of the NIC `device` to, None where none does."""
    pci, _, namespace = device.identity.partition(",")
    if not pci.startswith("pci:") or namespace.rpartition(",")[2] != "netns:init":
        return None
    try:
        link = next((one for one in udevadm.links() if one.name == device.label), None)
    except FabtuneError:
        # Without udev no such file counts.
        return None
    found = _administrators(link, tunable.persist_as) if link and link.file else None
    return Rival(found.file, found.value, later=True) if found else None


def _made(link: LinkSetup, copied: bool, settings: dict[str, str], role: str) -> LinkFile:
    base = Path(link.file).name
    lines = [f"{name}={settings[name]}" for name in sorted(settings)]
    if not copied and not link.file.startswith("/usr/"):
        return LinkFile(f"{udevadm.DIRECTORIES[0]}/{base}.d/{_DROP_IN}", ("[Link]", *lines), role, ())
    # "99-default-fabtune-X.link" stands right before "99-default.link", and after all that stood before it.
    name = base if copied else f"{base.removesuffix('.link')}{_MARK}{link.path.replace(':', '-')}.link"
    old = [f"{one.name}={one.value}" for one in link.settings if one.section == "Link" and one.name not in settings]
    text = ("[Match]", f"Path={link.path}", "", "[Link]", *old, *lines)
    return LinkFile(f"{udevadm.DIRECTORIES[0]}/{name}", text, role, ())


def _problem(link: LinkSetup, links: list[LinkSetup], ours: set[str]) -> str:
    """Return why nothing may be added to what sets up this NIC, '' if it may."""
    if link.file in ours:
        return ""
    if link.file.startswith("/usr/"):
        if any(one.file != link.file for one in link.settings):
            return f"{link.file} has drop-ins, which a copy of it for one NIC would leave behind"
        if any(one.section not in ("Match", "Link") for one in link.settings):
            return f"{link.file} has more than a copy of it for one NIC can say"
        if sum(one.path == link.path for one in links) > 1:
            return f"other NICs have the same path, {link.path}, for a .link file to match"
        return ""
    matches = [one for one in link.settings if one.section == "Match"]
    one_nic = any(one.name in _ONE_NIC and not set("*?[ ") & set(one.value) for one in matches)
    if not one_nic or sum(one.file == link.file for one in links) > 1:
        return f"{link.file} is for other NICs too; set the values there"
    return ""


def _is(setting: Setting, name: str) -> bool:
    return setting.section == "Link" and setting.name == name


def says(tunable: Tunable, text: str, wanted: str) -> bool:
    """Tell whether `text` in a .link file sets `tunable` to what is wanted."""
    return _same(text, value(tunable, wanted))


def _same(first: str, second: str) -> bool:
    truth = {"yes": "yes", "true": "yes", "on": "yes", "1": "yes", "no": "no", "false": "no", "off": "no", "0": "no"}
    return first == second or (first in truth and second in truth and truth[first] == truth[second])


def value(tunable: Tunable, wanted: str) -> str:
    """Return how a .link file says that `tunable` is `wanted`."""
    if tunable.type == "bool":
        return "yes" if tunable.parse(wanted) else "no"
    return f"{wanted}us" if tunable.unit == "us" else wanted

# SPDX-License-Identifier: GPL-2.0-or-later
"""Makes a plan's values survive a reboot: more rows, for the native files that set them at boot.

The rows run after the plan's own, in the same transaction, so that revert takes the files back
too.  Files of our own are replaced as a whole; iscsid.conf and LIO's saved configuration change
by single keys.  A value that the administrator's own files set is his: it is left to them, and said.
"""

import re
from collections.abc import Callable, Iterable
from functools import cache, partial
from graphlib import TopologicalSorter
from pathlib import Path

from fabtune import backends
from fabtune.backends.sysctl import split_key
from fabtune.backends.textfile import DIRECTORY, HEADER, is_ours
from fabtune.catalog.keepers import NONE
from fabtune.catalog.tunable import Tunable, shipped_catalog
from fabtune.errors import FabtuneError, UnsupportedError
from fabtune.facts import boot
from fabtune.host import tree
from fabtune.model.device import Device
from fabtune.tune import nextlogin, persist_links
from fabtune.tune.lines import FROM_RECORD
from fabtune.tune.plan import CHANGE, KEPT, REFUSED, SAME, Plan, Row
from fabtune.tune.transaction import Step, Transaction

_HOST = Device("host", "host", "host")
_SYSCTL = "etc/sysctl.d/90-fabtune.conf"
_MODPROBE = "etc/modprobe.d/fabtune.conf"
_UDEV = "etc/udev/rules.d/99-fabtune.rules"
# The backends of whole files of ours.
_FILES = ("textfile", "link")
_FIRST_NAMESPACE = ("host", "netns:init")
_UNTIL_DISCOVERY = "the present records keep it until a discovery rewrites them"
_NO_RULE = "no native file matches it: not a PCI device"


def rows(plan: Plan) -> tuple[list[Row], list[str]]:
    """Return the rows that make `plan` permanent, and a remark for each value that nothing native can keep."""
    kept = [row for row in plan.rows if row.state in (CHANGE, SAME, KEPT) and row.device is not None]
    found: list[Row] = []
    remarks: list[str] = []
    by_kind: dict[str, list[Row]] = {}
    for row in kept:
        by_kind.setdefault(row.tunable.persist, []).append(row)
    refused = [row for row in plan.rows if row.state == REFUSED]
    makers: dict[str, Callable[[list[Row], list[str]], Iterable[Row]]] = {
        "sysctl.d": _sysctls, "modprobe.d": _modules, "udev": _udev, "link": _links,
        "iscsid.conf": partial(_iscsid, refused), "saveconfig": _saved,
    }  # fmt: skip
    for kind, group in by_kind.items():
        if kind == NONE:
            remarks += [f"{row.tunable.name}: nothing native keeps it: {row.tunable.persist_why}" for row in group]
        # Node records and srp_daemon.conf are files already.
        elif kind in makers:
            try:
                found += list(makers[kind](group, remarks))
            except FabtuneError as error:
                # A file that is masked, missing or no file keeps no values; they are good until the next boot.
                remarks.append(str(error))
    # Two files may need one new directory.
    once: dict[tuple[str, str, Device | None], Row] = {}
    for row in found:
        once.setdefault((row.tunable.backend, row.tunable.key, row.device), row)
    # A file found right already is another profile's, and stays as long as this one wants it.
    return [row for row in once.values() if row.state == CHANGE or row.tunable.backend in _FILES], list(
        dict.fromkeys(remarks)
    )


def _row(name: str, backend: str, key: str, device: Device, wanted: str, role: str, share: str = "") -> Row:
    tunable = Tunable(
        name=f"persist.{name}", summary="", backend=backend, key=key, scope=device.scope, type="text", effect="live",
        roles=(role,), source="", persist=NONE,
    )  # fmt: skip
    now = backends.get(backend).read(device, key)
    state = SAME if now == wanted else CHANGE
    return Row(tunable, role, device, now, wanted, state, "keeps the values after a reboot", share=share)


def _file(
    key: str, lines: Iterable[str], role: str, remarks: list[str], backend: str = "textfile", share: Iterable[str] = ()
) -> Iterable[Row]:
    """Yield the rows that make the directories of one of our files, then the row that writes it.

    Of its `lines`, other profiles' among them, `share` are those that this plan wants.
    """
    try:
        now = backends.get(backend).read(_HOST, key)
    except FabtuneError as error:
        remarks.append(str(error))
        return
    if now and (not is_ours(now) or any(line.startswith(("#", ";")) for line in now.splitlines()[1:])):
        remarks.append(f"/{key} was written or edited by somebody else; it is left alone")
        return
    for parent in reversed(Path(key).parents):
        if len(parent.parts) < 2:
            continue
        if not (tree.ROOT / parent).exists() or backends.get("textfile").read(_HOST, f"{parent}/"):
            yield _row("directory", "textfile", f"{parent}/", _HOST, DIRECTORY, role)
    text = "".join(f"{line}\n" for line in (HEADER, *lines))
    yield _row(key.split("/")[1], backend, key, _HOST, text, role, "".join(f"{line}\n" for line in share))


def _entries(key: str) -> dict[str, str]:
    """Return the ``name = value`` lines our file has already, from another role or profile."""
    try:
        text = backends.get("textfile").read(_HOST, key)
    except FabtuneError:
        return {}
    pairs = [line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#")]
    return {name.strip(): value.strip() for name, _, value in pairs}


def what_keeps(name: str, device: Device) -> str:
    """Return what could have kept the value of tunable `name` over a reboot, in words for somebody who lost it."""
    tunable = shipped_catalog().tunables.get(name)
    if tunable is None or tunable.persist == NONE or not _may_be_kept(tunable, device):
        return "nothing native keeps it; apply again"
    stronger = what_sets(name, device)
    if stronger:
        return f"{stronger} at boot, and --persist leaves it to that file; change it there"
    return "apply again, with --persist to keep it"


def _may_be_kept(tunable: Tunable, device: Device) -> bool:
    return tunable.persist != "sysctl.d" or device.identity in _FIRST_NAMESPACE


def what_sets(name: str, device: Device, other_than: str | None = None) -> str:
    """Return which file of somebody else sets tunable `name` of `device` to what, '' where none prevails over ours.

    A file that sets the value `other_than` does not count.
    """
    tunable = shipped_catalog().tunables.get(name)
    rivals: Iterable[boot.Rival | None] = ()
    if tunable is None or not _may_be_kept(tunable, device):
        return ""
    if tunable.persist == "sysctl.d":
        rivals = [boot.sysctl(split_key(tunable.key)[0], Path(_SYSCTL).name)]
    elif tunable.persist == "modprobe.d":
        rivals = [boot.module_option(*_module_parameter(tunable), Path(_MODPROBE).name)]
    elif tunable.persist == "udev":
        rivals = boot.udev_writes(device, tunable.key, Path(_UDEV).name)
    elif tunable.persist == "link":
        rivals = [persist_links.rival(device, tunable)]
    stronger = [one for one in rivals if one and one.prevails]
    if other_than is not None:
        stronger = [one for one in stronger if not _says(tunable, one, other_than)]
    return f"{stronger[-1].file} sets {stronger[-1].value or 'nothing'}" if stronger else ""


def _says(tunable: Tunable, rival: boot.Rival, wanted: str) -> bool:
    """Tell whether what another file sets is what is wanted."""
    if tunable.persist == "link":
        return persist_links.says(tunable, rival.value, wanted)
    index = split_key(tunable.key)[1] if tunable.persist == "sysctl.d" else None
    fields = [rival.value] if index is None else rival.value.split()
    return (index or 0) < len(fields) and tunable.same(fields[index or 0], wanted)


def brought_by_us(step: Step, known: Iterable[Transaction], boot_id: str) -> bool:
    """Tell whether a device created since the value of `step` has it from a file or a re-login of ours.

    What was taken back before this boot, `boot_id`, has brought nothing since.
    """
    known = list(known)
    carried = {text for one in known for text in one.carried}
    return any(
        _keeps(other, step, boot_id) or (other.value == step.value and f"{one.name} {other.number}" in carried)
        for one in known
        for other in one.steps
        if (other.restored_in == boot_id if one.closed or other.restored else True)
    )


def _keeps(file: Step, step: Step, boot_id: str) -> bool:
    """Tell whether the journalled `file`, one of ours or a node record, sets the value of `step` with a new device."""
    tunable = shipped_catalog().tunables.get(step.tunable)
    ours = {step.wrote, step.holds or step.wrote, *step.ours}
    texts = (file.wrote, file.holds or file.wrote)
    if file.backend == "record":
        session = ",".join(name.partition("#")[0] for name in step.device.identity.split(",")[-3:])
        same = file.device.identity == session and not ours.isdisjoint(texts)
        return file.key == FROM_RECORD.get(step.key, "") and same
    if tunable is None or not file.tunable.startswith("persist."):
        return False
    lines = [line for text in texts for line in text.splitlines()]
    match tunable.persist:
        case "link":
            wanted = {f"{tunable.persist_as}={persist_links.value(tunable, one)}" for one in ours}
            return file.backend == "link" and not wanted.isdisjoint(lines)
        case "sysctl.d":
            # A file that was written since the boot is read at the next one.
            return file.key == _SYSCTL and file.boot_id != boot_id and not ours.isdisjoint(_sysctl_in(lines, step.key))
        case "udev":
            wanted = {f'ATTR{{{step.key}}}="{one}"' for one in ours}
            return file.key == _UDEV and any(line.endswith(tuple(wanted)) for line in lines)
        case "modprobe.d":
            wanted = {"options {} {}={}".format(*_module_parameter(tunable), one) for one in ours}
            return file.key == _MODPROBE and not wanted.isdisjoint(lines)
    return False


def _sysctl_in(lines: Iterable[str], key: str) -> set[str]:
    """Return what the lines of a file of sysctl.d set `key` to, which may be a field of several."""
    name, index = split_key(key)
    found = [value.strip() for one, _, value in (line.partition("=") for line in lines) if one.strip() == name]
    return {field for value in found for field in ([value] if index is None else value.split()[index : index + 1])}


def _module_parameter(tunable: Tunable) -> tuple[str, str]:
    """Return module and parameter."""
    module, _, parameter = (tunable.persist_as or tunable.key).partition("/parameters/")
    return module, parameter


def _beaten(what: str, rival: boot.Rival, key: str) -> str:
    """Return the remark for a value that another file sets too."""
    verb = "and is read after" if rival.later else "and is not to be overridden by"
    return f"{what}: {rival.file} sets {rival.value or 'nothing'} at boot, {verb} /{key}"


def _sysctls(group: list[Row], remarks: list[str]) -> Iterable[Row]:
    entries, ours = _entries(_SYSCTL), set()
    for row in group:
        assert row.device is not None and row.wanted is not None
        if row.device.identity not in _FIRST_NAMESPACE:
            remarks.append(f"{row.tunable.name} of {row.device.label}: sysctl.d sets only the first network namespace")
            continue
        name, index = split_key(row.tunable.key)
        rival = boot.sysctl(name, Path(_SYSCTL).name)
        if rival and rival.prevails:
            # Set by somebody else: as wanted, or not ours to change.
            if not _says(row.tunable, rival, row.wanted):
                remarks.append(_beaten(f"{row.tunable.name} = {row.wanted}", rival, _SYSCTL))
            continue
        ours.add(name)
        if index is None:
            entries[name] = row.wanted
        else:
            fields = entries.get(name, backends.get("sysctl").read(row.device, name)).split()
            fields[index] = row.wanted
            entries[name] = " ".join(fields)
    if ours:
        lines = {name: f"{name} = {value}" for name, value in sorted(entries.items())}
        share = [line for name, line in lines.items() if name in ours]
        yield from _file(_SYSCTL, lines.values(), group[0].role, remarks, share=share)


def _modules(group: list[Row], remarks: list[str]) -> Iterable[Row]:
    # "options MODULE NAME=VALUE" has its name before the first "=": other roles' and profiles' lines stay.
    entries, ours = _entries(_MODPROBE), set()
    for row in group:
        module, parameter = _module_parameter(row.tunable)
        rival = boot.module_option(module, parameter, Path(_MODPROBE).name)
        if rival and rival.prevails:
            if not _says(row.tunable, rival, row.wanted or ""):
                remarks.append(_beaten(f"{row.tunable.name} = {row.wanted}", rival, _MODPROBE))
            continue
        entries[f"options {module} {parameter}"] = row.wanted or ""
        ours.add(f"options {module} {parameter}")
    if ours:
        lines = {name: f"{name}={value}" for name, value in sorted(entries.items())}
        share = [line for name, line in lines.items() if name in ours]
        yield from _file(_MODPROBE, lines.values(), group[0].role, remarks, share=share)


def _udev(group: list[Row], remarks: list[str]) -> Iterable[Row]:
    rules = []
    for row in group:
        assert row.device is not None
        match = _rule_match(row, remarks)
        if not match:
            continue
        rivals = [one for one in boot.udev_writes(row.device, row.tunable.key, Path(_UDEV).name) if one.prevails]
        other = next((one for one in reversed(rivals) if not _says(row.tunable, one, row.wanted or "")), None)
        if other:
            what = f"{row.tunable.name} = {row.wanted} of {row.device.label}"
            remarks.append(_beaten(what, other, _UDEV))
        else:
            rules.append(f'{match}, ATTR{{{row.tunable.key}}}="{row.wanted}"')
    if rules:
        ours = backends.get("textfile").read(_HOST, _UDEV).splitlines()
        replaced = {_rule_key(rule) for rule in rules}
        earlier = [line for line in ours if not line.startswith("#") and _rule_key(line) not in replaced]
        yield from _file(_UDEV, sorted([*earlier, *rules], key=_rule_order), group[0].role, remarks, share=rules)


def _rule_match(row: Row, remarks: list[str]) -> str:
    """Return the conditions that hold for the row's device alone, '' with a remark where none do."""
    assert row.device is not None
    identity, _, rest = row.device.identity.partition(",")
    what = f"{row.tunable.name} of {row.device.label}"
    # Not at "change", which any program that wrote to the disk causes: what was set since then stays.
    if row.device.scope == "block" and identity.startswith("dm:"):
        # Its UUID is known at "change" alone, and only its own table brings a cookie.
        uuid = identity.removeprefix("dm:")
        return f'ACTION=="change", SUBSYSTEM=="block", ENV{{DM_UUID}}=="{uuid}", ENV{{DM_COOKIE}}=="?*"'
    if row.device.scope == "block" and not identity.startswith(("name:", "md:")):
        wwid = _shown(row.device, identity)
        return f'ACTION=="add", SUBSYSTEM=="block", ENV{{DEVTYPE}}=="disk", ATTR{{device/wwid}}=="{wwid}"'
    if row.device.scope == "block":
        remarks.append(f"{what}: the disk has no WWID for a udev rule to match")
    elif not identity.startswith("pci:"):
        remarks.append(f"{what}: {_NO_RULE}")
    elif rest.rpartition(",")[2] != "netns:init":
        remarks.append(f"{what}: udev sets up only the NICs of the first network namespace")
    else:
        return f'ACTION=="add", SUBSYSTEM=="net", KERNELS=="{identity.removeprefix("pci:")}"'
    return ""


def _shown(disk: Device, wwid: str) -> str:
    """Return the pattern that only this disk's WWID fits as sysfs shows it: the identity has runs of blanks as one."""
    raw = tree.read_text(Path(disk.where.get("directory", "/nowhere")) / "device/wwid") or ""
    text = raw if " ".join(raw.split()) == wwid else wwid
    # What means something else in a pattern, or ends its text, stands for any one character.
    return re.sub(r'[][*?|"\\]', "?", text)


def _rule_key(rule: str) -> str:
    """Return a rule without the value it sets: what makes two rules the same setting."""
    return rule.rpartition('="')[0]


def _rule_order(rule: str) -> tuple[str, int]:
    """Sort rules by device, and those of one device as the values depend on each other: udev writes them in turn."""
    match, _, attribute = _rule_key(rule).rpartition(", ATTR{")
    return match, _udev_order().get(attribute.rstrip("}"), 0)


@cache
def _udev_order() -> dict[str, int]:
    """Return the place of each attribute that a udev rule sets among all of them."""
    tunables = shipped_catalog().tunables
    ours = {name: one.after for name, one in sorted(tunables.items()) if one.persist == "udev"}
    return {tunables[name].key: place for place, name in enumerate(TopologicalSorter(ours).static_order())}


def _links(group: list[Row], remarks: list[str]) -> Iterable[Row]:
    for file in persist_links.link_files(group, remarks):
        yield from _file(file.key, file.lines, file.role, remarks, "link", file.share)


def _iscsid(refused: list[Row], group: list[Row], remarks: list[str]) -> Iterable[Row]:
    """Yield what every new record shall get, and every old one at its next discovery: also those of unknown targets."""
    wanted: dict[str, set[str]] = {}
    for row in group:
        wanted.setdefault(row.tunable.key, set()).add(row.wanted or "")
    tunables = {row.tunable.key: row.tunable for row in group}
    for key, values in wanted.items():
        against = [row for row in refused if row.tunable.key == key and row.device]
        if len(values) > 1:
            remarks.append(
                f"{key}: records differ ({', '.join(sorted(values))}), and iscsid.conf has one for all new ones"
            )
            continue
        (value,) = values
        if against and against[0].device:
            remarks.append(
                f"{key} = {value}: not in iscsid.conf, which is for every new record, and refused for "
                f"{against[0].device.label}; {_UNTIL_DISCOVERY}"
            )
        elif reason := nextlogin.why_not_for_all(tunables[key], value, backends.get("conf").read(_HOST, key)):
            remarks.append(
                f"{key} = {value}: not in iscsid.conf, which is for every new record: {reason}; {_UNTIL_DISCOVERY}"
            )
        else:
            yield _row("iscsid.conf", "conf", key, _HOST, value, "initiator")


def _saved(group: list[Row], remarks: list[str]) -> Iterable[Row]:
    for row in group:
        assert row.device is not None
        try:
            yield _row("saveconfig", "saveconfig", row.tunable.key, row.device, row.wanted or "", "target")
        except UnsupportedError as error:
            remarks.append(str(error))

# SPDX-License-Identifier: GPL-2.0-or-later
"""LIO, the kernel's SCSI target: iSCSI, iSER and SRP.  All of it is configfs, and rtslib's saved configuration."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fabtune.errors import FabtuneError, UnsupportedError, explained
from fabtune.host import files, tree
from fabtune.host.run import run
from fabtune.host.targets.kind import Backstore, Export, Kind, Login, Store, Tpg
from fabtune.model.device import Device

# It is written with a small and with a capital a, by file.
_NO_SESSION = "no active iscsi session"
# rtslib's own place, and Debian's.
_PLACES = ("target/saveconfig.json", "rtslib-fb-target/saveconfig.json")
_PLUGINS = {"rd_mcp": "ramdisk", "iblock": "block"}
_SECTIONS = {"param": "parameters", "attrib": "attributes"}


def configfs() -> Path:
    """Return LIO's directory in configfs."""
    return tree.SYS / "kernel/config/target"


def _tail(iqn: str) -> str:
    return iqn.rpartition(":")[2] or iqn


def _portal_groups() -> list[Path]:
    return sorted((configfs() / "iscsi").glob("*/tpgt_*"))


def _stores() -> list[Path]:
    return [path for path in sorted((configfs() / "core").glob("*_*/*")) if (path / "attrib").is_dir()]


def _plugin(store: Path) -> str:
    return store.parent.name.rpartition("_")[0]


class _Lio(Kind):
    name, title = "lio", "LIO"
    scopes = ("tpg", "acl", "backstore", "srpt-tpg")
    group = "tpg"
    usual = True
    factors = frozenset({
        "clients", "lun", "sessions", "cut", "targets", "target_rate", "stall", "cmdsn_depth", "unsolicited",
        "security",
    })  # fmt: skip
    offers = {
        "lio.initial_r2t": "InitialR2T",
        "lio.immediate_data": "ImmediateData",
        "lio.first_burst": "FirstBurstLength",
        "lio.max_burst": "MaxBurstLength",
        "lio.max_outstanding_r2t": "MaxOutstandingR2T",
        "lio.max_xmit_segment": "MaxXmitDataSegmentLength",
        "lio.header_digest": "HeaderDigest",
        "lio.data_digest": "DataDigest",
        "lio.max_connections": "MaxConnections",
        "lio.error_recovery_level": "ErrorRecoveryLevel",
        "lio.default_cmdsn_depth": "cmdsn_depth",
    }
    acl_offers = {"lio.cmdsn_depth": "cmdsn_depth"}

    def devices(self, scope: str) -> list[Device]:
        return {"tpg": _tpg_devices, "acl": _acl_devices, "backstore": _store_devices, "srpt-tpg": _srpt_devices}[
            scope
        ]()

    def tpgs(self) -> list[Tpg]:
        return [_tpg(path) for path in _portal_groups()]

    def backstores(self) -> list[Backstore]:
        found = []
        for path in _stores():
            plugin = _plugin(path)
            mode = re.search(r"Mode: (\S+)", tree.read_text(path / "info") or "")
            writes_back = mode[1] == "Buffered-WCE" if mode and plugin == "fileio" else None
            found.append(Backstore(f"{plugin}/{path.name}", plugin, writes_back))
        return found

    def logins(self, device: Device) -> list[Login]:
        if device.scope not in ("tpg", "acl"):
            # A backstore has none of its own, and ib_srpt does not show who is logged in.
            return []
        target, tpg, *acl = device.identity.split(",")
        return [one for one in _logins(configfs() / "iscsi" / target / tpg) if not acl or one.initiator in acl]

    def in_use(self, device: Device) -> bool:
        if device.scope in ("tpg", "acl"):
            return super().in_use(device)
        if device.scope == "srpt-tpg":
            # ib_srpt does not show who is logged in.
            return tree.read_text(Path(device.where.get("directory", "")) / "enable") == "1"
        store = Path(device.where.get("directory", "")).resolve()
        return any(link.resolve() == store for link in configfs().glob("*/*/*/lun/*/*") if link.is_symlink())

    def read_saved(self, device: Device, key: str) -> str:
        section, _, name = key.partition("/")
        value = _saved_values(_load()[0], device, section).get(name)
        return "" if value is None else str(value)

    def write_saved(self, device: Device, key: str, value: str) -> None:
        """Change one value and nothing else; rtslib's own save writes the whole running target."""
        section, _, name = key.partition("/")
        config, end = _load()
        values = _saved_values(config, device, section)
        if not value:
            values.pop(name, None)
        else:
            # rtslib saves attributes as numbers and parameters as texts; what is there already keeps its kind.
            number = isinstance(values[name], int) if name in values else section == "attrib"
            whole = tree.whole(value)
            values[name] = whole if number and whole is not None else value
        path = _saved_path()
        with explained(f"{path}: {key}"):
            # rtslib's own way to write it, the keys in the order in which they were.
            files.amend(path, json.dumps(config, indent=2) + end)

    def exports(self) -> Iterator[Export]:
        for store in sorted((configfs() / "core").glob("*_*/*")):
            info = tree.read_text(store / "info") or ""
            numbers = re.findall(r"Major: ([0-9]{1,9}) Minor: ([0-9]{1,9})", info)
            yield Export(
                f"the LIO backstore {store.parent.name}/{store.name}",
                tuple((int(major), int(minor)) for major, minor in numbers),
                tuple(_paths_of(store, info)),
                _passed_through(info) if store.parent.name.startswith("pscsi_") else (),
            )

    def hidden(self) -> str:
        if not (tree.SYS / "module/target_core_mod").is_dir() or configfs().is_dir():
            return ""
        return f"LIO, perhaps: {configfs()} is not there to tell what it exports: mount configfs"

    def lacking(self) -> tuple[str, str] | None:
        if configfs().is_dir():
            return "no target: LIO is loaded, but has no portal group", "for a target on this host: targetcli"
        return (
            "no target: the kernel's target (LIO) is not loaded, or configfs is not mounted",
            "for a target on this host: modprobe iscsi_target_mod, then targetcli",
        )

    def add_store(self, store: Store) -> str:
        modules = ["target_core_mod", "target_core_iblock"] if store.device else ["target_core_mod"]
        for module in modules:
            run(["modprobe", module], what=f"loading {module}")
        name = f"iblock_0/disk{store.index}" if store.device else f"rd_mcp_0/disk{store.index}"
        ram = f"rd_pages={store.size_mib * 256},rd_nullio={int(not store.keeps_data)}"
        directory = configfs() / "core" / name
        directory.mkdir(parents=True)
        (directory / "control").write_text(f"udev_path={store.device}" if store.device else ram)
        (directory / "wwn/vpd_unit_serial").write_text(f"fabtune-lab-disk{store.index}")
        (directory / "enable").write_text("1")
        return name

    def add_target(self, name: str, portals: Sequence[str], stores: Sequence[str], inside: Sequence[str]) -> None:
        run(["modprobe", "iscsi_target_mod"], what="loading iscsi_target_mod")
        tpg = configfs() / "iscsi" / name / "tpgt_1"
        tpg.mkdir(parents=True)
        for portal in portals:
            self.open_portal(name, portal, inside)
        _add_luns(tpg, stores)
        demo = {"generate_node_acls": 1, "cache_dynamic_acls": 1, "demo_mode_write_protect": 0, "authentication": 0}
        for attribute, value in demo.items():
            (tpg / "attrib" / attribute).write_text(str(value))
        (tpg / "enable").write_text("1")

    def open_portal(self, name: str, portal: str, inside: Sequence[str]) -> None:
        # The portal's socket belongs to the namespace of whoever makes this directory.
        place = configfs() / "iscsi" / name / "tpgt_1/np" / portal
        run([*inside, "mkdir", str(place)], what="opening the target's portal")

    def close_portal(self, name: str, portal: str) -> None:
        (configfs() / "iscsi" / name / "tpgt_1/np" / portal).rmdir()

    def offer_iser(self, name: str, portal: str) -> None:
        """Let `portal` of target `name` take iSER logins besides.  Raises FabtuneError."""
        run(["modprobe", "ib_isert"], what="loading ib_isert")
        (configfs() / "iscsi" / name / "tpgt_1/np" / portal / "iser").write_text("1")

    def map_lun(self, name: str, initiator: str, number: int) -> None:
        _map_lun(configfs() / "iscsi" / name / "tpgt_1", initiator, number)

    def add_srp_target(self, port: str, stores: Sequence[str], initiators: Sequence[str], cm_port: int) -> None:
        """Export `stores` as LUNs of SRP port `port`; LUN 0 to each of `initiators`.  Raises FabtuneError."""
        run(["modprobe", "ib_srpt", f"rdma_cm_port={cm_port}"], what="loading ib_srpt")
        tpg = configfs() / "srpt" / port / port
        tpg.mkdir(parents=True)
        _add_luns(tpg, stores)
        listening = configfs() / "srpt/discovery_auth/rdma_cm_port"
        if listening.exists():
            listening.write_text(str(cm_port))
        for initiator in initiators:
            _map_lun(tpg, initiator, 0)
        (tpg / "enable").write_text("1")

    def set_everywhere(self, key: str, value: str) -> None:
        for tpg in _portal_groups():
            (tpg / key).write_text(value)

    def remembered(self) -> list[str]:
        return [login.initiator for tpg in self.tpgs() for login in tpg.logins if login.dynamic]

    def forget(self, initiators: Iterable[str]) -> None:
        # An ACL takes the place of what demo mode made at the first login, and goes with its own values.
        for initiator in initiators:
            for tpg in _portal_groups():
                (tpg / "acls" / initiator).mkdir()
                (tpg / "acls" / initiator).rmdir()


def _tpg_devices() -> list[Device]:
    return [
        Device(
            "tpg",
            f"{tpg.parent.name},{tpg.name}",
            f"{_tail(tpg.parent.name)} {tpg.name}",
            {"directory": str(tpg), "portals": " ".join(sorted(portal.name for portal in tpg.glob("np/*")))},
        )
        for tpg in _portal_groups()
    ]


def _acl_devices() -> list[Device]:
    """Return the ACLs of the portal groups, one an initiator."""
    found = []
    for tpg in _portal_groups():
        for acl in sorted(tpg.glob("acls/*")):
            label = f"{_tail(tpg.parent.name)} {_tail(acl.name)}"
            identity = f"{tpg.parent.name},{tpg.name},{acl.name}"
            found.append(Device("acl", identity, label, {"directory": str(acl)}))
    return found


def _store_devices() -> list[Device]:
    """Return the backstores, by unit serial."""
    found = []
    for disk in _stores():
        serial = (tree.read_text(disk / "wwn/vpd_unit_serial") or "").rpartition(":")[2].strip()
        name = f"{_plugin(disk)}/{disk.name}"
        found.append(Device("backstore", f"{name},{serial}", name, {"directory": str(disk)}))
    return found


def _srpt_devices() -> list[Device]:
    """Return the SRP portal groups, by port GUID."""
    return [
        Device("srpt-tpg", f"{tpg.parent.name}/{tpg.name}", f"srpt {tpg.name}", {"directory": str(tpg)})
        for tpg in sorted((configfs() / "srpt").glob("*/*"))
        if (tpg / "attrib").is_dir()
    ]


def _tpg(path: Path) -> Tpg:
    luns = [link.resolve().name for link in sorted(path.glob("lun/lun_*/*")) if link.is_symlink()]
    return Tpg(
        identity=f"{path.parent.name},{path.name}",
        enabled=tree.read_text(path / "enable") == "1",
        portals=tuple(sorted(portal.name for portal in path.glob("np/*"))),
        luns=tuple(luns),
        logins=tuple(_logins(path)),
    )


def _logins(tpg: Path) -> list[Login]:
    """Return who is logged in through the portal group in directory `tpg`."""
    logins = [login for acl in sorted(tpg.glob("acls/*")) if (login := _login(acl))]
    known = {login.initiator for login in logins}
    dynamic = (tree.read_text(tpg / "dynamic_sessions") or "").replace("\0", "\n").split()
    return logins + [Login(name, True, {}) for name in sorted(dynamic) if name not in known]


def _login(acl: Path) -> Login | None:
    info = tree.read_text(acl / "info") or _NO_SESSION
    if _NO_SESSION in info.lower():
        return None
    values = {file.name: tree.read_text(file) or "" for file in sorted(acl.glob("param/*"))}
    agreed = {name: text for name, text in values.items() if text and _NO_SESSION not in text.lower()}
    sid = next((word for word in info.replace(":", " ").split() if word.isdigit()), "")
    return Login(acl.name, False, agreed, sid)


def _paths_of(store: Path, info: str) -> Iterator[str]:
    """Yield the paths that a backstore was made from."""
    path = (tree.read_text(store / "udev_path") or "").strip("\0\n ")
    if path.startswith("/"):
        yield path
    # A path may have blanks.
    file = re.search(r"\bFile: (/.*)  Size: [0-9]", info, re.DOTALL) or re.search(r"\bFile: (/\S*)", info)
    if file:
        yield file[1]


def _passed_through(info: str) -> tuple[int, ...]:
    """Return host, channel, id and LUN of the SCSI device that a pscsi backstore passes on, nothing where unknown."""
    patterns = [rf"{word}: ([0-9]{{1,9}})" for word in ("Host ID", "Channel ID", "Target ID", "LUN")]
    found = [match for pattern in patterns if (match := re.search(pattern, info))]
    return tuple(int(match[1]) for match in found) if len(found) == len(patterns) else ()


def _saved_path() -> Path:
    """Return the saved configuration's file.  Raises UnsupportedError where the target was never saved."""
    found = next((tree.ETC / place for place in _PLACES if (tree.ETC / place).exists()), None)
    if found is None:
        raise UnsupportedError(f"no saved target in /etc/{' or /etc/'.join(_PLACES)}; run `targetcli saveconfig` once")
    return found


def _load() -> tuple[dict[str, Any], str]:
    """Return the saved configuration and what stands after it: line ends."""
    path = _saved_path()
    try:
        with explained(str(path)):
            text = path.read_text()
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FabtuneError(f"{path}: not JSON: {error}") from None
    if not isinstance(config, dict):
        raise FabtuneError(f"{path}: expected an object")
    return config, text.rpartition("}")[2]


def _objects(holder: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the objects in the list `key` of `holder`; what rtslib would not have written there is passed over."""
    found = holder.get(key)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _saved_nodes(config: dict[str, Any], device: Device) -> Iterator[dict[str, Any]]:
    """Yield the saved objects that `device` may be: backstores, portal groups of iSCSI or of SRP, or ACLs."""
    if device.scope == "backstore":
        plugin, _, name = device.identity.partition(",")[0].partition("/")
        for store in _objects(config, "storage_objects"):
            # The kernel's names for rtslib's ramdisk, and for block and SCSI pass-through, differ from its own.
            if store.get("name") == name and store.get("plugin") == _PLUGINS.get(plugin, plugin):
                yield store
        return
    target, _, place = device.identity.replace("/", ",", device.scope == "srpt-tpg").partition(",")
    tag, _, acl = place.partition(",")
    for saved in _objects(config, "targets"):
        if device.scope == "srpt-tpg":
            # configfs names a port by GID or GUID, rtslib by type and number.
            if saved.get("fabric") == "srpt" and _digits(str(saved.get("wwn"))) == _digits(target):
                yield from _objects(saved, "tpgs")
        elif saved.get("wwn") == target:
            for tpg in [one for one in _objects(saved, "tpgs") if f"tpgt_{one.get('tag')}" == tag]:
                yield from (
                    [node for node in _objects(tpg, "node_acls") if node.get("node_wwn") == acl] if acl else [tpg]
                )


def _digits(wwn: str) -> str:
    return wwn.removeprefix("ib.").removeprefix("0x").replace(":", "").lower()


def _saved_node(config: dict[str, Any], device: Device) -> dict[str, Any]:
    """Return the saved object of `device`.  Raises UnsupportedError if it was never saved."""
    found = next(_saved_nodes(config, device), None)
    if found is None:
        raise UnsupportedError(f"{device.label}: not in the saved configuration; run `targetcli saveconfig` once")
    return found


def _saved_values(config: dict[str, Any], device: Device, section: str) -> dict[str, Any]:
    """Return the values of `device` in `config`, to be read or changed."""
    values = _saved_node(config, device).setdefault(_SECTIONS[section], {})
    if not isinstance(values, dict):
        raise FabtuneError(f"{_saved_path()}: {device.label}: '{_SECTIONS[section]}' is not an object")
    return values


def _add_luns(tpg: Path, stores: Sequence[str]) -> None:
    for number, store in enumerate(stores):
        backstore = configfs() / "core" / store
        (tpg / f"lun/lun_{number}").mkdir(parents=True)
        (tpg / f"lun/lun_{number}" / backstore.name).symlink_to(backstore)


def _map_lun(tpg: Path, initiator: str, number: int) -> None:
    mapped = tpg / "acls" / initiator / "lun_0"
    mapped.mkdir(parents=True)
    (mapped / "lun").symlink_to(tpg / f"lun/lun_{number}")


KIND = _Lio()

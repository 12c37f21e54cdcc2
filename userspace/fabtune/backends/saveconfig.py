# SPDX-License-Identifier: GPL-2.0-or-later
"""Single parameters and attributes in LIO's saved configuration.

rtslib's own save writes the whole running target, with whatever else changed and was not meant
to stay; here one value of one TPG, ACL or backstore changes and nothing else.  A key is
configfs's, such as ``param/FirstBurstLength``; '' means that the file does not have it.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fabtune.errors import FabtuneError, UnsupportedError, explained
from fabtune.host import files, tree
from fabtune.model.device import Device

# rtslib's own place, and Debian's.
_PLACES = ("target/saveconfig.json", "rtslib-fb-target/saveconfig.json")
_PLUGINS = {"rd_mcp": "ramdisk", "iblock": "block"}
_SECTIONS = {"param": "parameters", "attrib": "attributes"}


def _path() -> Path:
    """Return the saved configuration's file.  Raises UnsupportedError where the target was never saved."""
    found = next((tree.ETC / place for place in _PLACES if (tree.ETC / place).exists()), None)
    if found is None:
        raise UnsupportedError(f"no saved target in /etc/{' or /etc/'.join(_PLACES)}; run `targetcli saveconfig` once")
    return found


def _text() -> str:
    path = _path()
    with explained(str(path)):
        return path.read_text()


def _load() -> dict[str, Any]:
    path, text = _path(), _text()
    try:
        config = json.loads(text)
    except ValueError as error:
        raise FabtuneError(f"{path}: not JSON: {error}") from None
    if not isinstance(config, dict):
        raise FabtuneError(f"{path}: expected an object")
    return config


def _nodes(config: dict[str, Any], device: Device) -> Iterator[dict[str, Any]]:
    """Yield the saved objects that `device` may be: backstores, TPGs of iSCSI or of SRP, or ACLs."""
    if device.scope == "backstore":
        plugin, _, name = device.identity.partition(",")[0].partition("/")
        for store in config.get("storage_objects", []):
            # The kernel's names for rtslib's ramdisk, and for block and SCSI pass-through, differ from its own.
            if store.get("name") == name and store.get("plugin") == _PLUGINS.get(plugin, plugin):
                yield store
        return
    target, tag, *acl = device.identity.replace("/", ",", device.scope == "srpt-tpg").split(",")
    for saved in config.get("targets", []):
        if device.scope == "srpt-tpg":
            # configfs names a port by GID or GUID, rtslib by type and number.
            if saved.get("fabric") == "srpt" and _digits(saved.get("wwn", "")) == _digits(target):
                yield from saved.get("tpgs", [])
        elif saved.get("wwn") == target:
            for tpg in [one for one in saved.get("tpgs", []) if one.get("tag") == int(tag.removeprefix("tpgt_"))]:
                yield from (
                    [node for node in tpg.get("node_acls", []) if node.get("node_wwn") == acl[0]] if acl else [tpg]
                )


def _digits(wwn: str) -> str:
    return wwn.removeprefix("ib.").removeprefix("0x").replace(":", "").lower()


def _node(config: dict[str, Any], device: Device) -> dict[str, Any]:
    """Return the saved object of `device`.  Raises UnsupportedError if it was never saved."""
    found = next(_nodes(config, device), None)
    if found is None:
        raise UnsupportedError(f"{device.label}: not in the saved configuration; run `targetcli saveconfig` once")
    return found


class _SaveConfig:
    def read(self, device: Device, key: str) -> str:
        section, _, name = key.partition("/")
        value = _node(_load(), device).get(_SECTIONS.get(section, ""), {}).get(name)
        return "" if value is None else str(value)

    def write(self, device: Device, key: str, value: str) -> None:
        section, _, name = key.partition("/")
        config, end = _load(), _text().rpartition("}")[2]
        values = _node(config, device).setdefault(_SECTIONS[section], {})
        if not value:
            values.pop(name, None)
        else:
            # rtslib saves attributes as numbers and parameters as texts; what is there already keeps its kind.
            number = isinstance(values[name], int) if name in values else section == "attrib"
            values[name] = int(value) if number and value.lstrip("-").isdigit() else value
        path = _path()
        with explained(f"{path}: {key}"):
            # rtslib's own way to write it, the keys in the order in which they were.
            files.replace(path, json.dumps(config, indent=2) + end)


BACKEND = _SaveConfig()

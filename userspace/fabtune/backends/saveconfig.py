# SPDX-License-Identifier: GPL-2.0-or-later
"""Single parameters and attributes in LIO's saved configuration (/etc/target/saveconfig.json).

rtslib's own save writes the whole running target, with whatever else changed and was not meant
to stay; here one value of one TPG, ACL or backstore changes and nothing else.  A key is
configfs's, such as ``param/FirstBurstLength``; '' means that the file does not have it.
"""

import json
from typing import Any, cast

from fabtune.backends import UnsupportedError, explained, files, tree
from fabtune.errors import FabtuneError
from fabtune.model.device import Device

_PATH = "target/saveconfig.json"
_SECTIONS = {"param": "parameters", "attrib": "attributes"}


def _load() -> dict[str, Any]:
    path = tree.ETC / _PATH
    with explained(f"/etc/{_PATH}"):
        text = path.read_text()
    try:
        config = json.loads(text)
    except ValueError as error:
        raise FabtuneError(f"/etc/{_PATH}: not JSON: {error}") from None
    if not isinstance(config, dict):
        raise FabtuneError(f"/etc/{_PATH}: expected an object")
    return config


def _node(config: dict[str, Any], device: Device) -> dict[str, Any]:
    """Return the saved TPG or ACL of `device`.  Raises UnsupportedError if it was never saved."""
    target, tag, *acl = device.identity.split(",")
    number = int(tag.removeprefix("tpgt_"))
    for saved in config.get("targets", []):
        for tpg in saved.get("tpgs", []):
            if saved.get("wwn") != target or tpg.get("tag") != number:
                continue
            nodes = tpg.get("node_acls", []) if acl else [tpg]
            for node in nodes:
                if not acl or node.get("node_wwn") == acl[0]:
                    return cast(dict[str, Any], node)
    raise UnsupportedError(f"{device.label}: not in the saved configuration; run `targetcli saveconfig` once")


class _SaveConfig:
    def read(self, device: Device, key: str) -> str:
        section, _, name = key.partition("/")
        value = _node(_load(), device).get(_SECTIONS.get(section, ""), {}).get(name)
        return "" if value is None else str(value)

    def write(self, device: Device, key: str, value: str) -> None:
        section, _, name = key.partition("/")
        config = _load()
        values = _node(config, device).setdefault(_SECTIONS[section], {})
        if not value:
            values.pop(name, None)
        else:
            # rtslib saves attributes as numbers and parameters as texts.
            values[name] = int(value) if section == "attrib" and value.lstrip("-").isdigit() else value
        path = tree.ETC / _PATH
        with explained(f"/etc/{_PATH}: {key}"):
            files.replace(path, json.dumps(config, sort_keys=True, indent=2) + "\n", path.stat().st_mode & 0o777)


BACKEND = _SaveConfig()

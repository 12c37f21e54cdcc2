# SPDX-License-Identifier: GPL-2.0-or-later
"""What LIO serves: portal groups with their initiators and what was negotiated with each, and backstores."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from fabtune.host import tree

# LIO writes it with a small and with a capital a, by file.
_NO_SESSION = "no active iscsi session"


@dataclass(frozen=True)
class Login:
    """One initiator logged in to a TPG; `negotiated` is empty where LIO does not show it (dynamic ACLs)."""

    initiator: str
    dynamic: bool
    negotiated: dict[str, str] = field(hash=False)


@dataclass(frozen=True)
class Tpg:
    """One iSCSI target portal group."""

    identity: str
    enabled: bool
    portals: tuple[str, ...]
    luns: tuple[str, ...]
    logins: tuple[Login, ...]


@dataclass(frozen=True)
class Backstore:
    """One backstore; `writes_back` tells a fileio store that really caches (its mode, not the advertised bit)."""

    name: str
    plugin: str
    writes_back: bool | None


def tpgs() -> list[Tpg]:
    """Return LIO's iSCSI TPGs."""
    return [_tpg(path) for path in sorted((tree.CONFIGFS / "iscsi").glob("iqn.*/tpgt_*"))]


def _tpg(path: Path) -> Tpg:
    luns = [link.resolve().name for link in sorted(path.glob("lun/lun_*/*")) if link.is_symlink()]
    return Tpg(
        identity=f"{path.parent.name},{path.name}",
        enabled=tree.read_text(path / "enable") == "1",
        portals=tuple(sorted(portal.name for portal in path.glob("np/*"))),
        luns=tuple(luns),
        logins=tuple(logins_of(path)),
    )


def logins_of(path: Path) -> list[Login]:
    """Return who is logged in through the TPG in directory `path`."""
    logins = [login for acl in sorted(path.glob("acls/*")) if (login := _login(acl))]
    known = {login.initiator for login in logins}
    dynamic = (tree.read_text(path / "dynamic_sessions") or "").replace("\0", "\n").split()
    return logins + [Login(name, True, {}) for name in sorted(dynamic) if name not in known]


def _login(acl: Path) -> Login | None:
    info = tree.read_text(acl / "info") or _NO_SESSION
    if _NO_SESSION in info.lower():
        return None
    values = {file.name: tree.read_text(file) or "" for file in sorted(acl.glob("param/*"))}
    return Login(
        acl.name, False, {name: text for name, text in values.items() if text and _NO_SESSION not in text.lower()}
    )


def backstores() -> list[Backstore]:
    """Return LIO's backstores."""
    found = []
    for path in sorted((tree.CONFIGFS / "core").glob("*_*/*")):
        if not (path / "attrib").is_dir():
            continue
        plugin = path.parent.name.rpartition("_")[0]
        mode = re.search(r"Mode: (\S+)", tree.read_text(path / "info") or "")
        writes_back = mode[1] == "Buffered-WCE" if mode and plugin == "fileio" else None
        found.append(Backstore(f"{plugin}/{path.name}", plugin, writes_back))
    return found

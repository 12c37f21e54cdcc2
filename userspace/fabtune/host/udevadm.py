# SPDX-License-Identifier: GPL-2.0-or-later
"""What udev makes of each NIC at boot: the .link file that wins, and the settings in it and in its drop-ins.

udevadm says which file wins.  Before systemd 257 its dry run sets the NIC up for real, MTU included
(seen with 252), so it runs without the capability to do so.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fabtune.errors import FabtuneError, UnsupportedError
from fabtune.host import tools, tree

# .link files have had drop-ins since systemd 243.
_LEAST_VERSION = 243
# systemd's order: a file of the same name in an earlier directory stands for all others.
DIRECTORIES = ("etc/systemd/network", "run/systemd/network", "usr/local/lib/systemd/network", "usr/lib/systemd/network")
# The settings of [Link] that decide what a NIC is called and addressed by.
NAMING = (
    "Name", "NamePolicy", "AlternativeName", "AlternativeNamesPolicy", "MACAddress", "MACAddressPolicy",
)  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """One line of a .link file or of a drop-in."""

    file: str
    section: str
    name: str
    value: str


@dataclass(frozen=True)
class LinkSetup:
    """How udev sets up one NIC: its name, the path udev knows it by, the .link file and what it says.

    Files are absolute paths of the host; `file` is '' where no .link file matches.
    """

    name: str
    path: str
    file: str
    settings: tuple[Setting, ...]

    @property
    def naming(self) -> tuple[tuple[str, str], ...]:
        """What decides the NIC's name at the next boot, which may not be the one it has now."""
        return tuple((one.name, one.value) for one in self.settings if one.section == "Link" and one.name in NAMING)


def run(*arguments: str) -> str:
    """Return what ``udevadm`` prints.  Raises UnsupportedError where there is no udev, FabtuneError."""
    done = tools.run_tool("udevadm", "udev", *arguments, without="net_admin")
    if done.status:
        raise FabtuneError(f"udevadm {' '.join(arguments)}: {tools.last_words(done)}")
    return done.stdout


@cache
def _version() -> int:
    match = re.match(r"\d+", run("--version"))
    return int(match[0]) if match else 0


def links() -> list[LinkSetup]:
    """Return every hardware NIC of the first network namespace.  Raises UnsupportedError, FabtuneError."""
    if _version() < _LEAST_VERSION:
        raise UnsupportedError(f"systemd {_version()} has no drop-ins for .link files; {_LEAST_VERSION} has")
    return [_link(device.parent.name) for device in sorted((tree.SYS / "class/net").glob("*/device"))]


def _link(name: str) -> LinkSetup:
    told = dict(
        line.split("=", 1)
        for line in run("test-builtin", "net_setup_link", f"/sys/class/net/{name}").splitlines()
        if line.startswith("ID_NET_")
    )
    known = dict(line.split("=", 1) for line in run("info", "--query=property", f"/sys/class/net/{name}").splitlines())
    file = told.get("ID_NET_LINK_FILE", "")
    settings = tuple(setting for part in (file, *_drop_ins(file)) if part for setting in _parse(part))
    return LinkSetup(told.get("ID_NET_NAME", name), known.get("ID_PATH", ""), file, settings)


def _drop_ins(file: str) -> list[str]:
    """Return the drop-ins of a .link file in the order in which they are read."""
    found: dict[str, str] = {}
    for directory in DIRECTORIES:
        for path in (tree.ROOT / directory / f"{Path(file).name}.d").glob("*.conf"):
            found.setdefault(path.name, f"/{directory}/{path.parent.name}/{path.name}")
    return [found[name] for name in sorted(found)]


def _parse(file: str) -> list[Setting]:
    """Return the settings of one file of systemd's, in their order."""
    text = (tree.ROOT / file.lstrip("/")).read_text(errors="replace").replace("\\\n", " ")
    section, settings = "", []
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        elif "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            settings.append(Setting(file, section, name.strip(), value.strip()))
    return settings

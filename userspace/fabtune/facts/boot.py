# SPDX-License-Identifier: GPL-2.0-or-later
"""What files other than ours set at boot: sysctl.d, modprobe.d and udev's rules, as their readers read them.

A value in the administrator's own directories is meant, whichever file would win.
"""

import fnmatch
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fabtune.host import tree
from fabtune.host.blocks import kernel_name
from fabtune.model.device import Device

# The order of systemd and kmod: a file of the same name in an earlier directory stands for all others.
_ROOTS = ("etc", "run", "usr/local/lib", "usr/lib", "lib")
_ADMINISTRATOR = ("/etc/", "/run/", "/proc/")
_TOKEN = re.compile(r'([A-Z]+)(?:\{([^}]*)\})?\s*(==|!=|\+=|-=|:=|=)\s*[ei]?"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Rival:
    """A value that another file sets, and whether it is read after ours."""

    file: str
    value: str
    later: bool

    @property
    def prevails(self) -> bool:
        """Whether ours must not be written, or would not count: the administrator's own, or read last."""
        return self.later or self.file.startswith(_ADMINISTRATOR)


def _files(directory: str, pattern: str, ours: str) -> list[tuple[str, str]]:
    """Return (path, text) of the files in effect below every ``directory``, in reading order, without ours."""
    found: dict[str, Path] = {}
    for root in _ROOTS:
        for path in (tree.ROOT / root / directory).glob(pattern):
            found.setdefault(path.name, path)
    texts = [(found[name], tree.read_text(found[name])) for name in sorted(found) if name != ours]
    return [(f"/{path.relative_to(tree.ROOT)}", text.replace("\\\n", " ")) for path, text in texts if text]


def sysctl(name: str, ours: str) -> Rival | None:
    """Return what systemd-sysctl would set sysctl ``net.ipv4.tcp_rmem`` to without our file `ours`, None for nothing.

    An explicit key beats a glob wherever they stand; ``-key`` alone takes a key out of the globs.  /etc/sysctl.conf
    counts as read last, as ``sysctl --system`` does: not every systemd reads it.
    """
    explicit: Rival | None = None
    globbed: Rival | None = None
    files = _files("sysctl.d", "*.conf", ours)
    files.append(("/etc/sysctl.conf", tree.read_text(tree.ETC / "sysctl.conf") or ""))
    wanted = name.replace(".", "/")
    for file, text in files:
        later = Path(file).name > ours or file == "/etc/sysctl.conf"
        for line in map(str.strip, text.splitlines()):
            if not line or line[0] in "#;":
                continue
            key, equals, value = line.partition("=")
            key, excepted = _slashes(key.strip().lstrip("-")), not equals and line.startswith("-")
            rival = Rival(file, " ".join(value.split()), later)
            if key == wanted and (equals or excepted):
                explicit = rival if equals else Rival(file, "", later)
            elif equals and fnmatch.fnmatchcase(wanted, key):
                globbed = rival
    if explicit is not None:
        return explicit if explicit.value else None
    # Ours is explicit, so no glob of the distribution's beats it.
    return Rival(globbed.file, globbed.value, False) if globbed else None


def _slashes(key: str) -> str:
    """Return a sysctl's key with slashes; the first of dot and slash in it says which one separates."""
    first = next((character for character in key if character in "./"), "/")
    return key if first == "/" else key.translate(str.maketrans("./", "/."))


def module_option(module: str, parameter: str, ours: str) -> Rival | None:
    """Return what modprobe would give `parameter` of `module` without our file `ours`, None for nothing."""
    found: Rival | None = None
    for file, text in _files("modprobe.d", "*.conf", ours):
        for words in map(str.split, text.splitlines()):
            if len(words) > 2 and words[0] == "options" and words[1].replace("-", "_") == module:
                for name, equals, value in (word.partition("=") for word in words[2:]):
                    if equals and name == parameter:
                        found = Rival(file, value, Path(file).name > ours)
    for word in (tree.read_text(tree.PROC / "cmdline") or "").split():
        name, equals, value = word.partition("=")
        if equals and name.replace("-", "_") == f"{module}.{parameter}":
            found = Rival("/proc/cmdline", value, True)
    return found


@dataclass(frozen=True)
class _Place:
    """What a rule sees of a device: its sysfs directory, its names, and the attribute in question."""

    directory: Path
    kernel: str
    subsystem: str
    attribute: str


def udev_writes(device: Device, attribute: str, ours: str) -> Iterator[Rival]:
    """Yield what other udev rules write, or may write, to `attribute` of a disk or NIC; in doubt, they do."""
    directory = Path(device.where.get("directory", ""))
    directory = directory if directory.is_absolute() else tree.SYS / directory
    subsystem = {"nic": "net"}.get(device.scope, device.scope)
    places = [_Place(directory, kernel_name(device), subsystem, attribute)]
    if attribute.startswith("device/"):
        below = (directory / "device").resolve()
        places.append(_Place(below, below.name, "scsi", attribute.removeprefix("device/")))
    for file, text in _files("udev/rules.d", "*.rules", ours):
        for line in text.splitlines():
            tokens = [] if line.lstrip().startswith("#") else _TOKEN.findall(line)
            for place in places:
                values = [
                    value
                    for key, name, operator, value in tokens
                    if (key, name) == ("ATTR", place.attribute) and operator in ("=", ":=")
                ]
                if values and all(_may_match(place, token) for token in tokens):
                    yield Rival(file, values[-1], Path(file).name > ours)


def _may_match(place: _Place, token: tuple[str, str, str, str]) -> bool:
    """Tell whether one condition of a rule may hold for a device; one that cannot be decided here may."""
    key, name, operator, pattern = token
    if operator not in ("==", "!="):
        return True
    actual: Iterable[str | None]
    if key == "KERNEL":
        actual = [place.kernel]
    elif key == "SUBSYSTEM":
        actual = [place.subsystem]
    elif key == "ACTION":
        actual = ["add", "change"]
    elif key == "ATTR":
        actual = [tree.read_text(place.directory / name)]
    else:
        return True
    alternatives = pattern.split("|")
    matches = [any(fnmatch.fnmatchcase(one or "", alternative) for alternative in alternatives) for one in actual]
    return any(matches) if operator == "==" else not all(matches)

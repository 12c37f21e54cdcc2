# SPDX-License-Identifier: GPL-2.0-or-later
"""Who else tunes this host: sysctl files, tuned, bpftune, irqbalance, NetworkManager, multipathd."""

import re
from dataclasses import dataclass
from pathlib import Path

from fabtune.host import tree

# Later directories win over earlier ones for a file of the same name (sysctl.d(5)).
_SYSCTL_DIRECTORIES = ("usr/lib/sysctl.d", "usr/local/lib/sysctl.d", "run/sysctl.d", "etc/sysctl.d")
_PROCESSES = ("tuned", "bpftune", "irqbalance", "NetworkManager", "systemd-networkd", "multipathd")
_LINE = re.compile(r"\s*-?(?P<key>[A-Za-z0-9_./-]+)\s*=\s*(?P<value>.*)")


@dataclass(frozen=True)
class Owner:
    """One program or file that sets values; `key` and `value` are empty for a program as such."""

    who: str
    where: str
    key: str = ""
    value: str = ""


def owners() -> list[Owner]:
    """Return everybody found who may set the same values as fabtune."""
    return [*_sysctl_files(), *_tuned(), *_processes()]


def _sysctl_files() -> list[Owner]:
    files: dict[str, Path] = {}
    for directory in _SYSCTL_DIRECTORIES:
        files |= {path.name: path for path in sorted((tree.ROOT / directory).glob("*.conf"))}
    paths = [files[name] for name in sorted(files)] + [tree.ETC / "sysctl.conf"]
    found = []
    for path in paths:
        for line in (tree.read_text(path) or "").splitlines():
            match = _LINE.fullmatch(line)
            if match and not line.lstrip().startswith(("#", ";")):
                key = match["key"].replace("/", ".")
                found.append(Owner("sysctl.d", str(path), key, " ".join(match["value"].split())))
    return found


def _tuned() -> list[Owner]:
    profile = tree.read_text(tree.ETC / "tuned/active_profile")
    return [Owner("tuned", str(tree.ETC / "tuned/active_profile"), "", profile)] if profile else []


def _processes() -> list[Owner]:
    names = {tree.read_text(f"{tree.PROC}/{name}/comm") for name in tree.names(tree.PROC) if name[0].isdigit()}
    return [Owner(name, "a running process") for name in _PROCESSES if name in names or name[:15] in names]

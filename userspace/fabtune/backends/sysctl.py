# SPDX-License-Identifier: GPL-2.0-or-later
"""Sysctls, whole or one field of a vector (``net.ipv4.tcp_rmem[2]``), in any network namespace."""

import re
from pathlib import Path

from fabtune.errors import FabtuneError, explained
from fabtune.host import namespaces, tree
from fabtune.model.device import Device

_KEY = re.compile(r"(?P<name>[a-z0-9_.]+)(?:\[(?P<field>\d+)\])?")


def split_key(key: str) -> tuple[str, int | None]:
    """Return the sysctl's name and the field of its vector, if the key names one."""
    match = _KEY.fullmatch(key)
    if match is None:
        raise FabtuneError(f"sysctl key '{key}': expected a dotted name, such as net.ipv4.tcp_rmem[2]")
    return match["name"], None if match["field"] is None else int(match["field"])


def _path(name: str) -> Path:
    return tree.PROC / "sys" / name.replace(".", "/")


def _check(name: str, index: int, fields: list[str]) -> None:
    if index >= len(fields):
        raise FabtuneError(f"sysctl {name}: has {len(fields)} fields, but no field {index}")


class _Sysctl:
    def read(self, device: Device, key: str) -> str:
        name, index = split_key(key)
        with namespaces.inside(device.where.get("netns", "")), explained(f"sysctl {name}"):
            text = _path(name).read_text(errors="replace").strip()
        if index is None:
            return text
        fields = text.split()
        _check(name, index, fields)
        return fields[index]

    def write(self, device: Device, key: str, value: str) -> None:
        name, index = split_key(key)
        with namespaces.inside(device.where.get("netns", "")), explained(f"sysctl {name}={value}"):
            path = _path(name)
            if index is not None:
                fields = path.read_text(errors="replace").split()
                _check(name, index, fields)
                fields[index] = value
                value = "\t".join(fields)
            tree.write_text(path, value)


BACKEND = _Sysctl()

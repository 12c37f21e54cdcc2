# SPDX-License-Identifier: GPL-2.0-or-later
"""Whole files that belong to fabtune, each with a header that says so; an absent one reads as ''."""

import re

from fabtune.backends import explained, files, tree
from fabtune.errors import FabtuneError
from fabtune.model.device import Device

HEADER = "# Written by fabtune apply --persist; `fabtune revert` removes it."
# Whatever a journal says, no other file is ever touched.
_OURS = re.compile(
    r"etc/(sysctl\.d/90-fabtune\.conf|modprobe\.d/fabtune\.conf|udev/rules\.d/99-fabtune\.rules"
    r"|systemd/network/10-fabtune-[A-Za-z0-9_.-]+\.link)"
)


class _TextFile:
    def read(self, _: Device, key: str) -> str:
        with explained(f"/{key}"):
            path = tree.ROOT / self._checked(key)
            return path.read_text() if path.exists() else ""

    def write(self, _: Device, key: str, value: str) -> None:
        path = tree.ROOT / self._checked(key)
        with explained(f"/{key}"):
            if value:
                files.replace(path, value)
            else:
                files.remove(path)

    @staticmethod
    def _checked(key: str) -> str:
        if not _OURS.fullmatch(key):
            raise FabtuneError(f"/{key}: not a file of fabtune's; it is left alone")
        return key


BACKEND = _TextFile()

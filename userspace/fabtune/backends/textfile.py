# SPDX-License-Identifier: GPL-2.0-or-later
"""Whole files that belong to fabtune, each with a header that says so, and the directories made for them.

An absent file reads as ''.  A key that ends in a slash is a directory: 'ours' while nothing but our files is in it,
'' where there is none, or one that holds something else and is to stay.
"""

import re
from pathlib import Path

from fabtune.errors import FabtuneError, explained
from fabtune.host import files, tree
from fabtune.model.device import Device

HEADER = "# Written by fabtune apply --persist; `fabtune revert` removes it."
# What a directory made for our files is written as.
DIRECTORY = "ours"
_NAME = r"[^/\x00-\x1f]+"
# Whatever a journal says, nothing else is ever touched.
_OURS = re.compile(
    r"etc/(sysctl\.d/90-fabtune\.conf|modprobe\.d/fabtune\.conf|udev/rules\.d/99-fabtune\.rules"
    rf"|systemd/network/({_NAME}-fabtune-{_NAME}\.link|{_NAME}\.link\.d/50-fabtune\.conf))"
    rf"|etc/(sysctl\.d|modprobe\.d|udev(/rules\.d)?|systemd(/network(/{_NAME}\.link\.d)?)?)/"
)


class TextFile:
    """The backend; others that write files of ours build on it."""

    def read(self, _: Device, key: str) -> str:
        """Return the file's text.  Raises FabtuneError for what is no file of ours: a link, a device."""
        path = _checked(key)
        with explained(f"/{key}"):
            if key.endswith("/"):
                strangers = (one for one in path.rglob("*") if not _OURS.fullmatch(_key(one)))
                return DIRECTORY if path.is_dir() and not any(strangers) else ""
            if path.is_symlink() or (path.exists() and not path.is_file()):
                raise FabtuneError(f"/{key}: not a plain file, so not fabtune's; it is left alone")
            return path.read_text(errors="replace") if path.exists() else ""

    def write(self, device: Device, key: str, value: str) -> None:
        """Replace the file, or remove it for ''.  Raises FabtuneError, above all for a file that is not ours."""
        path = _checked(key)
        if key.endswith("/"):
            with explained(f"/{key}"):
                if value:
                    files.make_directory(path)
                elif self.read(device, key):
                    files.remove_directory(path)
            return
        there = self.read(device, key)
        if there and not is_ours(there):
            raise FabtuneError(f"/{key}: has no line '{HEADER}', so it is not fabtune's; it is left alone")
        with explained(f"/{key}"):
            if value:
                files.replace(path, value)
            else:
                files.remove(path)


def is_ours(text: str) -> bool:
    """Tell whether the text of a file says that fabtune wrote it."""
    return text.startswith(HEADER + "\n")


def _key(path: Path) -> str:
    return f"{path.relative_to(tree.ROOT)}{'/' * path.is_dir()}"


def _checked(key: str) -> Path:
    if not _OURS.fullmatch(key):
        raise FabtuneError(f"/{key}: not a file of fabtune's; it is left alone")
    return tree.ROOT / key


BACKEND = TextFile()

# SPDX-License-Identifier: GPL-2.0-or-later
"""Single settings of iscsid.conf, which gives new node records their values; '' means that it has no such line.

As for open-iscsi, a setting has white space before its "=", a value and a newline at its end; it passes over others.
Only the value of the key's line is read, journalled and changed, so that what goes back is what was there to the
byte: the file also holds CHAP secrets.
"""

import re
from pathlib import Path

from fabtune.errors import explained
from fabtune.host import files, tree
from fabtune.model.device import Device

_PATH = "iscsi/iscsid.conf"
# What stands around a value: the spaces are as the administrator left them.
_LINE = re.compile(r"(?P<before>\s*(?P<key>[^#=\s][^=\s]*)\s+=[ \t]*)(?P<value>\S.*?)(?P<after>\s*)", re.DOTALL)


def path() -> Path:
    """Return where iscsid.conf is."""
    return tree.ETC / _PATH


def _text() -> str:
    # Other people's comments may be in any encoding, with any line ends: they go back as they came.
    return path().read_bytes().decode(errors="surrogateescape")


def _lines(text: str) -> list[tuple[str, re.Match[str] | None]]:
    *whole, rest = text.split("\n")
    return [*((line, _LINE.fullmatch(line)) for line in whole), (rest, None)]


class _Conf:
    def read(self, _: Device, key: str) -> str:
        with explained(f"/etc/{_PATH}"):
            text = _text()
        values = [match["value"] for _, match in _lines(text) if match and match["key"] == key]
        # The last one wins, as it does for iscsid.
        return values[-1] if values else ""

    def write(self, _: Device, key: str, value: str) -> None:
        with explained(f"/etc/{_PATH}: {key}={value}"):
            found = _lines(_text())
            lines = [line for line, _ in found]
            places = [(number, match) for number, (_, match) in enumerate(found) if match and match["key"] == key]
            if places and value:
                number, match = places[-1]
                lines[number] = f"{match['before']}{value}{match['after']}"
            elif places:
                del lines[places[-1][0]]
            elif value:
                # Before what follows the last newline, which stays as it is: a newline would bring it to life.
                lines.insert(len(lines) - 1, f"{key} = {value}")
            files.amend(path(), "\n".join(lines))


BACKEND = _Conf()

# SPDX-License-Identifier: GPL-2.0-or-later
"""Single settings of iscsid.conf, which gives new node records their values; '' means that it has no such line.

Only the line of the key is read, journalled and changed: the file also holds CHAP secrets.
"""

from fabtune.backends import explained, files, tree
from fabtune.model.device import Device

_PATH = "iscsi/iscsid.conf"


def _key(line: str) -> str:
    return "" if line.lstrip().startswith("#") else line.partition("=")[0].strip()


class _Conf:
    def read(self, _: Device, key: str) -> str:
        with explained(f"/etc/{_PATH}"):
            lines = (tree.ETC / _PATH).read_text().splitlines()
        values = [line.partition("=")[2].strip() for line in lines if _key(line) == key]
        # The last one wins, as it does for iscsid.
        return values[-1] if values else ""

    def write(self, _: Device, key: str, value: str) -> None:
        path = tree.ETC / _PATH
        with explained(f"/etc/{_PATH}: {key}={value}"):
            lines = path.read_text().splitlines()
            places = [number for number, line in enumerate(lines) if _key(line) == key]
            if places and value:
                lines[places[-1]] = f"{key} = {value}"
            elif places:
                del lines[places[-1]]
            elif value:
                lines.append(f"{key} = {value}")
            files.replace(path, "".join(f"{line}\n" for line in lines), path.stat().st_mode & 0o777)


BACKEND = _Conf()

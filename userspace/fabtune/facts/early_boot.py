# SPDX-License-Identifier: GPL-2.0-or-later
"""The initramfs of each kernel: what of /etc it was packed with sets values at a boot, whatever /etc says by then."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from fabtune.host import tree

_UPDATE = "`update-initramfs -u -k all`"
_DRACUT = "`dracut -f --regenerate-all`"
# Where they are, what makes them, and what they are packed with: udev's hook copies each rule of /etc, dracut none but
# those it names; systemd in dracut's sets sysctls, which no later boot stage resets.
_MADE = (
    ("boot/initrd.img-*", _UPDATE, ("etc/systemd/network/", "etc/udev/rules.d/", "etc/modprobe.d/")),
    ("boot/initramfs-*.img", _DRACUT, ("etc/systemd/network/", "etc/modprobe.d/", "etc/sysctl.d/")),
    ("boot/initrd-*", _DRACUT, ("etc/systemd/network/", "etc/modprobe.d/", "etc/sysctl.d/")),
)


@dataclass(frozen=True)
class Initramfs:
    """One of them: its path, when it was made, what makes it anew, and whose files it is packed with."""

    path: str
    made_s: float
    remedy: str
    directories: tuple[str, ...]

    def may_hold(self, file: str) -> bool:
        """Tell whether `file`, a path from the root without its slash, may have been packed."""
        return file.startswith(self.directories)


def every_initramfs() -> Iterator[Initramfs]:
    """Yield each initramfs of this host that can be looked at."""
    for pattern, remedy, directories in _MADE:
        for path in sorted(tree.ROOT.glob(pattern)):
            # A link may lead nowhere.
            with contextlib.suppress(OSError):
                yield Initramfs(f"/{path.relative_to(tree.ROOT)}", path.stat().st_mtime, remedy, directories)

# SPDX-License-Identifier: GPL-2.0-or-later
"""Files of ours that several profiles write lines into, and what is left of one when a profile goes."""

from collections.abc import Sequence

from fabtune.backends.textfile import HEADER
from fabtune.tune.transaction import Step


def setting(line: str) -> str:
    """Return a line of sysctl.d, modprobe.d, a .link file or a udev rule without its value: its setting."""
    return line.rpartition('="')[0] or line.partition("=")[0].strip()


def shared(step: Step) -> bool:
    """Tell whether `step` wrote a file that holds other profiles' lines as well."""
    return bool(step.share)


def left(text: str, before: str, shares: Sequence[str]) -> str:
    """Return the file `text` with nothing but the lines of the file as it was `before` and of `shares`; later ones win.

    A setting may stand there several times (Property= of a .link file): a file that has it has all of its lines.
    """
    kept: dict[str, list[str]] = {}
    for one in (before, *shares):
        kept |= _by_setting(one)
    lines = []
    for line in text.splitlines():
        if not line:
            lines.append(line)
        elif not line.startswith("#") and kept.get(setting(line)):
            lines.append(kept[setting(line)].pop(0))
    return "".join(f"{line}\n" for line in (HEADER, *lines))


def _by_setting(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            found.setdefault(setting(line), []).append(line)
    return found

# SPDX-License-Identifier: GPL-2.0-or-later
"""Files of ours that several profiles write lines into, and what is left of one when a profile goes."""

from collections.abc import Sequence

from fabtune.backends.textfile import HEADER
from fabtune.tune.transaction import Step


def setting(line: str) -> str:
    """Return a line of sysctl.d, modprobe.d, a .link file or a udev rule without its value: what makes two lines the same setting."""
    return line.rpartition('="')[0] or line.partition("=")[0].strip()


def shared(step: Step) -> bool:
    """Tell whether `step` wrote a file that holds other profiles' lines as well."""
    return bool(step.share)


def left(text: str, before: str, shares: Sequence[str]) -> str:
    """Return the file `text` with nothing but the lines of the file as it was `before` and of `shares`; later ones win."""
    kept = {setting(line): line for one in (before, *shares) for line in one.splitlines() if not line.startswith("#")}
    lines = (kept.get(setting(line)) if line else "" for line in text.splitlines() if not line.startswith("#"))
    return "".join(f"{line}\n" for line in (HEADER, *(line for line in lines if line is not None)))

# SPDX-License-Identifier: GPL-2.0-or-later
"""systemd, on hosts that it runs."""

from collections.abc import Sequence

from fabtune.errors import FabtuneError
from fabtune.host import tools, tree

_TIMEOUT_S = 90
# What is mounted after these, as `_netdev` says, may need a session itself.
_LATE_UNITS = ("remote-fs-pre.target", "network-pre.target", "network.target", "network-online.target")


def manages_host() -> bool:
    """Tell whether systemd runs this host."""
    return (tree.ROOT / "run/systemd/system").is_dir()


def depend_on(unit: str) -> list[str]:
    """Return the units that are stopped when `unit` is, which a restart of it would interrupt.  Raises FabtuneError."""
    words = [f"--property={name}" for name in ("RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf")]
    done = tools.run_tool("systemctl", "systemd", "show", "--value", *words, unit, timeout_s=_TIMEOUT_S)
    if done.status:
        raise FabtuneError(f"systemctl show {unit}: {tools.last_words(done)}")
    return done.stdout.split()


def mount_unit(place: str) -> tuple[str, list[str]]:
    """Return the file of the unit that mounts `place`, '' for none, and what it comes after.  Raises FabtuneError."""
    escaped = tools.run_tool("systemd-escape", "systemd", "--path", "--suffix=mount", place, timeout_s=_TIMEOUT_S)
    words = ("--property=FragmentPath", "--property=After", escaped.stdout.strip())
    done = tools.run_tool("systemctl", "systemd", "show", *words, timeout_s=_TIMEOUT_S)
    if escaped.status or done.status:
        raise FabtuneError(f"which unit mounts {place} cannot be told: {tools.last_words(done)}")
    found = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    return found.get("FragmentPath", ""), found.get("After", "").split()


def late(after: Sequence[str]) -> str:
    """Return which one of the units `after` makes a mount come when sessions may log in already, '' for none."""
    return next((unit for unit in after if unit in _LATE_UNITS), "")


def systemctl(*words: str) -> None:
    """Run systemctl with `words`.  Raises FabtuneError with what it said."""
    done = tools.run_tool("systemctl", "systemd", *words, timeout_s=_TIMEOUT_S)
    if done.status:
        raise FabtuneError(f"systemctl {' '.join(words)}: {tools.last_words(done)}")

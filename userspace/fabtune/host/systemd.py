# SPDX-License-Identifier: GPL-2.0-or-later
"""systemd, on hosts that it runs."""

from fabtune.errors import FabtuneError
from fabtune.host import tools, tree

_TIMEOUT_S = 90


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


def systemctl(*words: str) -> None:
    """Run systemctl with `words`.  Raises FabtuneError with what it said."""
    done = tools.run_tool("systemctl", "systemd", *words, timeout_s=_TIMEOUT_S)
    if done.status:
        raise FabtuneError(f"systemctl {' '.join(words)}: {tools.last_words(done)}")

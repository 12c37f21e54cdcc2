# SPDX-License-Identifier: GPL-2.0-or-later
"""ip, tc and sysctl inside a guest's network namespaces; None names the initial one."""

from collections.abc import Sequence
from pathlib import Path

from fabtune.host.run import run


def nsenter(namespace: str | None) -> list[str]:
    """Return the words that run a command in `namespace`.

    Not `ip netns exec`: that mounts a fresh /sys, and what a target keeps below it is gone.
    """
    return [] if namespace is None else ["nsenter", f"--net=/run/netns/{namespace}"]


def ip_batch(namespace: str | None, lines: Sequence[str]) -> None:
    """Run `lines` of ip(8) commands in `namespace`.  Raises FabtuneError at the first that fails."""
    _batch(namespace, "ip", lines)


def tc_batch(namespace: str | None, lines: Sequence[str]) -> None:
    """Run `lines` of tc(8) commands in `namespace`.  Raises FabtuneError at the first that fails."""
    _batch(namespace, "tc", lines)


def write_sysctl(namespace: str | None, key: str, value: str) -> None:
    """Write one sysctl in `namespace`."""
    path = Path("/proc/sys") / key.replace(".", "/")
    run([*nsenter(namespace), "sh", "-c", f"echo '{value}' > {path}"], what=f"writing {key}")


def _batch(namespace: str | None, program: str, lines: Sequence[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    run([*nsenter(namespace), program, "-batch", "-"], what=f"{program} in {namespace or 'init_net'}", stdin=text)

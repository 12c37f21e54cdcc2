# SPDX-License-Identifier: GPL-2.0-or-later
"""What the figures of a run came from, as far as they depend on it, so that two runs are known to be of one kind."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import attrs

from fabtune.model import typed
from fabtune.model.runrecord import Value

KEPT_RUN = "fabtune-kept-run/1"
# How each is called where two differ, besides the settings.
_NAMES = {
    "clock": "clock", "accelerator": "accelerator", "qemu": "QEMU", "hosts": "host", "image": "image recipe",
    "devices": "device", "targets": "target host", "disks": "disk",
    "packages": "packages of the image", "kernel": "kernel", "module": "fabstat.ko", "code": "code of fabtune",
}  # fmt: skip


@attrs.frozen(kw_only=True)
class Origin:
    """The settings of a run and what it was measured with; empty is what is not known, or not there on a fleet.

    `packages`, `module` and `code` are digests: of the image's list of packages with their versions, of the sources of
    fabstat.ko, and of that part of fabtune, its vocabulary and its profiles that runs while it is measured.  Of a fleet
    `devices` are those that its inventory names, `disks` by their WWIDs what these were, each with its host.
    """

    settings: dict[str, Value | None]
    clock: str
    code: str
    module: str = ""
    image: str = ""
    packages: str = ""
    kernel: str = ""
    accelerator: str = ""
    qemu: str = typed.omitted("")
    hosts: tuple[str, ...] = ()
    devices: tuple[str, ...] = typed.omitted(())
    targets: tuple[str, ...] = typed.omitted(())
    disks: tuple[str, ...] = typed.omitted(())

    def differences(self, now: "Origin") -> list[str]:
        """Return in words what is different `now`; what either does not know is not held against it."""
        found = []
        for name in sorted({*self.settings, *now.settings}):
            ours, theirs = self.settings.get(name), now.settings.get(name)
            if ours != theirs:
                found.append(f"{name} was {_said(ours)}, is {_said(theirs)}")
        for name, called in _NAMES.items():
            ours, theirs = self.told(name), now.told(name)
            if ours and theirs and ours != theirs:
                is_digest = name in ("packages", "module", "code")
                found.append(f"the {called} changed" if is_digest else f"the {called} was {ours}, is {theirs}")
        return found

    def told(self, name: str) -> str:
        """Return the value of `name`, one of what is not a setting, as text; empty where it is not known."""
        if name == "clock" and self.hosts:
            # Older notes have the definition's, which is the lab's.
            return "real"
        if name == "hosts":
            return ", ".join(self.hosts) or "the lab"
        value = getattr(self, name)
        return ", ".join(value) if isinstance(value, tuple) else str(value)


def each(told: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return (host, what it has), in the order of the hosts; nothing of those that have nothing."""
    return tuple(f"{host}: {what}" for host, what in sorted(told) if what)


@attrs.frozen(kw_only=True)
class KeptRun:
    """The note beside a run's files, written last: what the run came from, and each file's SHA-256 by its name.

    `digest` is that of the other keys: a note that was changed by hand is known by it.
    """

    origin: Origin
    files: dict[str, str]
    digest: str = ""
    schema: Literal["fabtune-kept-run/1"] = "fabtune-kept-run/1"

    def sealed(self) -> "KeptRun":
        """Return the note with its digest."""
        rest = {key: value for key, value in FORMAT.write(self).items() if key != "digest"}
        return attrs.evolve(self, digest=digest_of(json.dumps(rest, sort_keys=True).encode()))


# A note that a later fabtune wrote may say more.
FORMAT = typed.Format()


def digest_of(content: bytes) -> str:
    """Return the SHA-256 of `content` as hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def mixed(origins: Sequence[Origin]) -> list[str]:
    """Return in words what runs that are shown together do not have in common, their settings aside.

    Where the settings ask for several kernels or targets, runs of each are compared among themselves.
    """
    groups: dict[tuple[Any, ...], list[Origin]] = {}
    for one in origins:
        groups.setdefault((one.settings.get("kernel"), one.settings.get("target")), []).append(one)
    found: dict[str, None] = {}
    for name, called in _NAMES.items():
        for mine in groups.values():
            values = list(dict.fromkeys(value for one in mine if (value := one.told(name))))
            if len(values) > 1:
                found[f"runs of {len(values)} kinds of {called} together: {', '.join(one[:40] for one in values)}"] = (
                    None
                )
    return list(found)


def _said(value: Value | None) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)

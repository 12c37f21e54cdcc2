# SPDX-License-Identifier: GPL-2.0-or-later
"""The kinds of targets, one file each: found, not listed.

A module of this package with a `KIND` is one; `kind.Kind` says what it answers.  No other package knows where a
target keeps what it is told.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache

from fabtune.host.targets.kind import Backstore, Export, Kind, Login, Tpg
from fabtune.model.device import SCOPES, Device

__all__ = [
    "Backstore", "Export", "Kind", "Login", "Tpg", "backstores", "devices", "every_scope", "exports", "groups",
    "in_use", "kinds", "logins", "named", "of_scope", "tpgs",
]  # fmt: skip


@cache
def kinds() -> tuple[Kind, ...]:
    """Return every kind of target, by name."""
    modules = [importlib.import_module(f"{__name__}.{one.name}") for one in pkgutil.iter_modules(__path__)]
    return tuple(module.KIND for module in modules if hasattr(module, "KIND"))


def named(name: str) -> Kind:
    """Return the kind called `name`, which is one of them."""
    return next(kind for kind in kinds() if kind.name == name)


@cache
def of_scope(scope: str) -> Kind | None:
    """Return the kind of target that devices of `scope` belong to, None for what is no target's."""
    return next((kind for kind in kinds() if scope in kind.scopes), None)


def every_scope() -> tuple[str, ...]:
    """Return every scope of tunables, those that belong to targets among them."""
    return (*SCOPES, *(scope for kind in kinds() for scope in kind.scopes))


def devices(scope: str) -> list[Device]:
    """Return the devices of `scope`, which is a target's."""
    kind = of_scope(scope)
    return kind.devices(scope) if kind else []


def groups() -> list[Device]:
    """Return every iSCSI portal group, of whatever kind, with its portals in `where`."""
    return [device for kind in kinds() if kind.group for device in kind.devices(kind.group)]


def tpgs() -> list[Tpg]:
    """Return every iSCSI portal group with who is logged in."""
    return [tpg for kind in kinds() for tpg in kind.tpgs()]


def backstores() -> list[Backstore]:
    """Return every backstore."""
    return [store for kind in kinds() for store in kind.backstores()]


def exports() -> Iterator[Export]:
    """Yield what block and SCSI devices the kernel's own targets hold."""
    for kind in kinds():
        yield from kind.exports()


def logins(device: Device) -> list[Login]:
    """Return who is logged in to the target by the portal group or ACL `device`."""
    kind = of_scope(device.scope)
    return kind.logins(device) if kind else []


def in_use(device: Device) -> bool:
    """Tell whether a live session depends on `device`, a part of a target."""
    kind = of_scope(device.scope)
    return kind is not None and kind.in_use(device)

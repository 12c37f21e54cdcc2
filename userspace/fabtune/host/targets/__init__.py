# SPDX-License-Identifier: GPL-2.0-or-later
"""The kinds of targets, one file each: found, not listed.

A module of this package with a `KIND` is one; `kind.Kind` says what it answers.  No other package knows where a
target keeps what it is told.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import TypeVar

from fabtune.errors import FabtuneError, InputError
from fabtune.host.targets.kind import Backstore, Export, Kind, Login, Tpg
from fabtune.model.device import SCOPES, Device

__all__ = [
    "Backstore", "Export", "Kind", "Login", "Tpg", "acl_offers", "backstores", "default_of", "devices", "every_scope",
    "exports", "group_scopes", "groups", "in_use", "kinds", "logins", "named", "of_scope", "offering", "offers",
    "serving", "tpgs",
]  # fmt: skip

_Thing = TypeVar("_Thing")


@cache
def kinds() -> tuple[Kind, ...]:
    """Return every kind of target, by name."""
    modules = [importlib.import_module(f"{__name__}.{one.name}") for one in pkgutil.iter_modules(__path__)]
    return tuple(module.KIND for module in modules if hasattr(module, "KIND"))


def named(name: str) -> Kind:
    """Return the kind called `name`.  Raises InputError for one that is unknown."""
    found = {kind.name: kind for kind in serving()}
    if name not in found:
        raise InputError(f"target = '{name}': expected one of {', '.join(found)}")
    return found[name]


@cache
def of_scope(scope: str) -> Kind | None:
    """Return the kind of target that has devices of `scope`, None for other scopes."""
    return next((kind for kind in kinds() if scope in kind.scopes), None)


def every_scope() -> tuple[str, ...]:
    """Return every scope of tunables, those that belong to targets among them."""
    return (*SCOPES, *(scope for kind in kinds() for scope in kind.scopes))


def devices(scope: str) -> list[Device]:
    """Return the devices of a target's `scope`.  Raises FabtuneError where it does not tell."""
    kind = of_scope(scope)
    return kind.devices(scope) if kind else []


def serving() -> list[Kind]:
    """Return the kinds that serve iSCSI portal groups."""
    return [kind for kind in kinds() if kind.group]


def offers() -> dict[str, str]:
    """Return the tunables that a login negotiates with a portal group of any kind, with the name in RFC 7143."""
    return {tunable: key for kind in kinds() for tunable, key in kind.offers.items()}


def acl_offers() -> dict[str, str]:
    """Return the tunables that an ACL has in the place of its portal group's, with the name in RFC 7143."""
    return {tunable: key for kind in kinds() for tunable, key in kind.acl_offers.items()}


def offering(*keys: str) -> tuple[str, ...]:
    """Return the tunables by which a target of any kind offers one of `keys` of RFC 7143, an ACL's among them."""
    return tuple(
        tunable for kind in kinds() for offered in (kind.offers, kind.acl_offers)
        for tunable, key in offered.items() if key in keys
    )  # fmt: skip


def default_of(tunable: str) -> str | None:
    """Return the portal group's tunable whose value a new ACL has for `tunable`, None for what is not an ACL's."""
    return next((kind.offer(kind.acl_offers[tunable]) for kind in kinds() if tunable in kind.acl_offers), None)


def group_scopes() -> list[str]:
    """Return the scopes of iSCSI portal groups."""
    return [kind.group for kind in serving()]


def groups() -> list[Device]:
    """Return the iSCSI portal groups that can be seen, of whatever kind, with their portals in `where`."""
    return [device for kind in serving() for device in _seen(partial(kind.devices, kind.group))]


def tpgs() -> list[Tpg]:
    """Return the iSCSI portal groups that can be seen, with who is logged in."""
    return [tpg for kind in kinds() for tpg in _seen(kind.tpgs)]


def backstores() -> list[Backstore]:
    """Return the backstores that can be seen."""
    return [store for kind in kinds() for store in _seen(kind.backstores)]


def _seen(ask: Callable[[], list[_Thing]]) -> list[_Thing]:
    """Return what a target shows, nothing where it does not let this user see."""
    try:
        return ask()
    except FabtuneError:
        return []


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

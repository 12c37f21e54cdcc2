# SPDX-License-Identifier: GPL-2.0-or-later
"""The fabrics: each is one file of this directory, found there, and says itself what it can do.

Nothing outside a fabric's file knows its name: what differs between them is asked of the class.
"""

import functools
import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from fabtune.errors import InputError
from fabtune.lab import disks
from fabtune.lab.disks import USUAL, Disk
from fabtune.model.factors import Settings


@dataclass(frozen=True)
class Injection:
    """A fault, `what` in words, that begins `after_s` of the load and, where it can be, is undone after it."""

    what: str
    after_s: float
    begin: Callable[[], object]
    undo: Callable[[], object] | None = None


class Fabric(ABC):
    """A target and an initiator at the ends of the topology's path.  A file's is its FABRIC."""

    NAME: ClassVar[str]
    # Why a computer alone cannot have it: said in place of figures, and nothing else is measured under its name.
    MISSING: ClassVar[str] = ""
    # The factors that it takes and not every fabric does; clients, sessions and targets are among them.
    FACTORS: ClassVar[frozenset[str]] = frozenset()
    # Whether its requests travel over the emulated path.
    CROSSES_PATH: ClassVar[bool] = True
    # Both ends in init_net: what `topology.up` is told.
    ONE_NAMESPACE: ClassVar[bool] = False
    # Whether `fabtune tune` tunes its sessions under a load.
    TUNED_BY_ITSELF: ClassVar[bool] = False
    # Whether `fabtune apply --allow-relogin` logs it in again; the logins of the others are their administrator's.
    RELOGIN_BY_FABTUNE: ClassVar[bool] = False

    def __init__(self, settings: Settings, disk: Disk = USUAL) -> None:
        """`disk` is what each target exports."""
        self.settings = settings
        self.disk = disk

    @staticmethod
    def refusal(settings: Settings) -> str:
        """Return why it does not take the values that `settings` give its factors, nothing when it does."""
        return ""

    @abstractmethod
    def start_target(self) -> None:
        """Export the disk to the initiator; the topology is up."""

    @abstractmethod
    def start_initiator(self) -> None:
        """Make everything ready for `login`."""

    @abstractmethod
    def login(self) -> list[str]:
        """Log every session in and return their disks once all can be opened."""

    @abstractmethod
    def logout(self) -> None:
        """Log out and wait until the disks are gone."""

    @abstractmethod
    def disks(self) -> list[str]:
        """Return the disks once all can be opened, after a login by somebody else."""

    def renew(self) -> None:  # noqa: B027  # most have nothing to renew
        """Log in anew where that alone lets a target give its new values to an initiator that it remembers."""

    def join(self, disks: list[str]) -> list[str]:
        """Return what is to be loaded: the disks, or the device that joins them."""
        return disks

    def part(self) -> None:  # noqa: B027  # nor to part
        """Take the device that joins the disks apart where there is one, so that nothing uses them."""

    def injections(self) -> list[Injection]:
        """Return the faults that the settings ask for."""
        return (
            [Injection("the target's disk stalls", self.settings.stall_s, lambda: disks.stall(0))]
            if self.settings.stall_s
            else []
        )

    def figures(self) -> dict[str, int]:
        """Return what only this fabric can say of a load that has ended."""
        return {}


@functools.cache
def known() -> dict[str, type[Fabric]]:
    """Return every fabric by its name, those that are missing here included."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        fabric: type[Fabric] = importlib.import_module(f"{__name__}.{module.name}").FABRIC
        found[fabric.NAME] = fabric
    return found


def find(name: str) -> type[Fabric]:
    """Return the fabric `name`.  Raises InputError for one that is unknown."""
    if name not in known():
        raise InputError(f"fabric = '{name}': expected one of {', '.join(known())}")
    return known()[name]
